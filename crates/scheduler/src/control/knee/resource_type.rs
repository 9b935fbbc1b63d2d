//! One resource type: its window, the window to try next, and its rests.

use alloc::collections::BTreeMap;

use super::{
    tally::Tally,
    trial::{QUARTER, Trial},
};
use crate::control::{
    controller::{Finished, Load, Reason},
    settings::Window,
};

/// The first factor between the windows compared.
const WIDEST: f64 = 2.0;
/// A window of at least this size that had no waiting requests for long first tries a narrower one, a fourth
/// of it.
const LARGE: u32 = 4;
/// A configured first window above this is approached from here.
const SMALL: u32 = 4;
/// The smallest factor. Closer windows differ too little to be told apart in reasonable time.
const NARROWEST: f64 = 1.15;
/// The factor to start again with when the site has changed.
const ANEW: f64 = 1.5;
/// Number of requests for which a window rests: the first time, and at most.
const REST: u32 = 1_000;
const REST_MOST: u32 = 16_000;
/// Number of requests over which the throughput is watched while a window rests.
const WATCHED: u32 = 400;
/// A change of the log of the throughput by more than this ends the rest.
const CHANGED: f64 = 0.3;
/// With fewer running requests than this on average, no narrower window is tried while no requests wait.
const CROWD: f64 = 3.0;
/// Number of requests in the running averages of the load and of the shortage of slots.
const LATELY: f64 = 50.0;
/// Most routes told apart in a type. All others count as one.
const ROUTES_MOST: usize = 256;
/// The mean service time of a route follows about this many recent requests.
const REMEMBERED: f64 = 200.0;

#[derive(Debug)]
pub(super) struct ResourceType {
    limits: Window,
    /// The window in force, apart from trials.
    pub window: u32,
    /// The configured first window, while it is approached.
    pub goal: Option<u32>,
    pub trying: Option<u32>,
    pub told: u32,
    pub reason: Reason,
    factor: f64,
    upward: bool,
    /// Directions that were no better since the window last changed.
    failed: u32,
    /// Consecutive changes of the window with the same factor.
    moved: u32,
    /// Requests for which the window still rests, and the length of the rest.
    pub rest: u32,
    rested: u32,
    /// The trial between two rounds, while other types have their turn.
    pub aside: Option<Trial>,
    /// Total time of its trials, in nanoseconds.
    pub tried_ns: f64,
    pub load: Load,
    /// Running averages: requests that ran, and how often the type was short of slots.
    running: f64,
    pub short: f64,
    routes: BTreeMap<u64, Route>,
    others: Route,
    pub mean_ns: f64,
    pub watch: Tally,
    /// Log of the throughput when the rest began.
    level: Option<f64>,
    /// The window rests because there were too few requests.
    idle: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Route {
    seen: f64,
    mean_ns: f64,
    /// The weight of a request of this route, fixed when the last trial of the type began.
    worth_ns: f64,
}

impl ResourceType {
    pub fn new(limits: Window) -> Self {
        let window = limits.clamp(SMALL.min(limits.first));
        Self {
            limits,
            window,
            goal: (window < limits.first).then_some(limits.first),
            trying: None,
            told: limits.first,
            reason: Reason::Approach,
            factor: WIDEST,
            upward: true,
            failed: 0,
            moved: 0,
            // The first requests of all only teach the weights of the routes.
            rest: 2 * QUARTER,
            rested: 0,
            aside: None,
            tried_ns: 0.0,
            load: Load::default(),
            running: 0.0,
            short: 0.0,
            routes: BTreeMap::new(),
            others: Route::default(),
            mean_ns: 0.0,
            watch: Tally::default(),
            level: None,
            idle: false,
        }
    }

    /// Whether all slots are taken and requests wait.
    pub fn is_short(&self) -> bool {
        self.load.waiting && self.load.running >= self.told
    }

    pub fn set(&mut self, trying: Option<u32>, reason: Reason) {
        if self.trying != trying {
            (self.trying, self.reason) = (trying, reason);
        }
    }

    /// Takes a request that was done, with its weight, into the averages of the load and of the throughput.
    pub fn watch_load(&mut self, worth: f64) {
        self.running += (f64::from(self.load.running) - self.running) / LATELY;
        self.short += (f64::from(u8::from(self.is_short())) - self.short) / LATELY;
        self.watch.add(worth);
        self.look();
    }

    /// Fixes the weights of all routes for a trial that begins.
    pub fn fix_weights(&mut self) {
        for route in self.routes.values_mut().chain([&mut self.others]) {
            route.worth_ns = route.mean_ns;
        }
    }

    /// Updates the averages of the request's route, and returns the weight of the request in nanoseconds.
    pub fn learn(&mut self, finished: &Finished) -> f64 {
        let known = self.routes.contains_key(&finished.route);
        let route = if known || self.routes.len() < ROUTES_MOST {
            self.routes.entry(finished.route).or_default()
        } else {
            &mut self.others
        };
        let service_ns = finished.service_ns as f64;
        route.seen = (route.seen + 1.0).min(REMEMBERED);
        route.mean_ns += (service_ns - route.mean_ns) / route.seen;
        // The weight of a route is set when a trial of its type begins, or when the route is first seen.
        if route.worth_ns <= 0.0 {
            route.worth_ns = if self.mean_ns > 0.0 { self.mean_ns } else { service_ns };
        }
        let worth_ns = route.worth_ns;
        if self.mean_ns == 0.0 {
            self.mean_ns = service_ns;
        }
        self.mean_ns += (service_ns - self.mean_ns) / REMEMBERED;
        worth_ns
    }

    /// The window to try next. `None` means that there is none; then the type rests.
    pub fn candidate(&mut self) -> Option<u32> {
        if let Some(goal) = self.goal {
            return Some(goal.min(2 * self.window));
        }
        loop {
            let window = f64::from(self.window);
            let other = if self.upward {
                ((window * self.factor + 0.5) as u32).max(self.window + 1)
            } else {
                ((window / self.factor + 0.5) as u32).min(self.window - 1)
            };
            let other = self.limits.clamp(other);
            if other != self.window {
                return Some(other);
            }
            if !self.give_up() {
                return None;
            }
        }
    }

    /// Records that the direction was no better. Returns whether another is left to try before a rest.
    pub fn give_up(&mut self) -> bool {
        if self.goal.take().is_some() {
            // One step says little.
            (self.factor, self.upward, self.failed) = (WIDEST, false, 0);
            return true;
        }
        self.upward = !self.upward;
        self.failed += 1;
        if self.failed < 2 {
            return true;
        }
        self.failed = 0;
        if libm::sqrt(self.factor) >= NARROWEST {
            self.factor = libm::sqrt(self.factor);
            self.moved = 0;
            return true;
        }
        self.sleep(false);
        false
    }

    /// Rests for longer each time.
    pub fn sleep(&mut self, idle: bool) {
        self.idle = idle;
        self.rested = (2 * self.rested).clamp(REST, REST_MOST);
        self.rest = self.rested;
        (self.watch, self.level) = (Tally::default(), None);
    }

    /// A window narrower than the number of running requests, if that number is large.
    pub fn narrower(&mut self) -> Option<u32> {
        let other = self.limits.clamp((self.running / ANEW + 0.5) as u32);
        let worthwhile = self.running >= CROWD && other < self.window;
        if !worthwhile {
            self.sleep(true);
            if self.goal.is_some() {
                // The approach goes on as soon as requests wait.
                self.rest = QUARTER;
            }
        }
        worthwhile.then_some(other)
    }

    pub fn decide(&mut self, kept: bool, window: u32, free: bool) {
        self.trying = None;
        if kept {
            self.reason = Reason::NoBetter;
            if free {
                self.sleep(true);
            } else {
                self.give_up();
            }
        } else {
            (self.window, self.reason) = (window, Reason::Better);
            self.rested = 0;
            if self.goal.is_some() && !free {
                self.goal = self.goal.filter(|goal| *goal != window);
                return;
            }
            self.goal = None;
            self.moved += 1;
            if self.moved > 1 {
                self.factor = (self.factor * self.factor).min(WIDEST).max(self.factor);
            }
            // The opposite direction leads back to the previous window, which was no better.
            self.failed = 1;
        }
    }

    /// Checks whether the site has changed while the window rests.
    fn look(&mut self) {
        if self.watch.requests < WATCHED {
            return;
        }
        let watched = core::mem::take(&mut self.watch);
        if self.rest == 0 || self.trying.is_some() || watched.short_ns < 0.9 * watched.ns {
            return;
        }
        if self.idle {
            // Now there is enough work, or the site has become too slow for the work it did before.
            (self.rest, self.rested, self.failed, self.idle) = (0, 0, 0, false);
            (self.factor, self.upward) = first_step(self.window);
            return;
        }
        let level = libm::log(watched.worth / watched.ns);
        match self.level {
            None => self.level = Some(level),
            Some(before) if (level - before).abs() > CHANGED => {
                (self.rest, self.rested, self.failed, self.level) = (0, 0, 0, None);
                self.factor = ANEW;
            }
            Some(_) => {}
        }
    }
}

/// The first factor and direction for a window of which nothing is known; true means upward.
fn first_step(window: u32) -> (f64, bool) {
    // Far above the knee, throughput hardly depends on the window, so only distant windows can be told apart
    // soon. Also, a window that is too wide does more harm than one that is too narrow.
    if window < LARGE { (WIDEST, true) } else { (WIDEST * WIDEST, false) }
}

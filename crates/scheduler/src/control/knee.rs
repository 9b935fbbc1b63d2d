//! A controller that tries a neighbouring window and keeps the one with the higher throughput.
//!
//! The intuition: a window is good if the throughput is high, so only throughput is compared. A service time
//! alone does not tell a site that works on more requests from one that is overloaded. The service time
//! without load is unknown where there is always load.
//!
//! **The first window** is approached from a small one. The window is doubled while requests wait for it and
//! doubling serves more. A window that is far too wide can make a site a hundred times slower, and then it
//! also takes a hundred times as long to notice. So the controller does not go there in one step.
//!
//! **Turns.** The resource types try windows one at a time. A turn is one round of a trial, and then the
//! trial waits for its next turn. The turn goes to the type that has spent the least time on trials. So a
//! type with slow requests, or with windows that are hard to tell apart, does not block the others until it
//! is done.
//!
//! **A trial.** A type tries another window, a factor above or below the one in force. The two alternate in
//! the order A B B A, each for a number of requests, so that a steady drift affects both alike. After a
//! change of the window, as many requests as were running do not count. Requests that end at the same moment
//! are counted together, since a site may work in lockstep. The trial goes on until it is certain enough
//! which window is better, or until certainty would take too long. If the halves A B and B A contradict each
//! other, the site has changed and they do not count.
//!
//! **The measure** is the sum of the logarithms of the throughputs, over all types that were short of slots.
//! So a type gains nothing by taking throughput from another in equal proportion. The change of another type
//! counts only if it is larger than its standard error; otherwise the noise of all types would hide the gain
//! of one. A wider window must pay: its throughput must grow by [`PAYS`] of the growth of the window. So of
//! windows that serve equally well, the narrow one is taken.
//!
//! **Mix.** A request is weighted by the mean service time of its route, which stays constant during a trial.
//! A route whose requests need ten times the work counts ten times as much, so a change of the mix changes
//! nothing.
//!
//! **A window without waiting requests** can still be too wide: all users may be in the site and slow one
//! another down. So now and then a window narrower than the number of running requests is tried, and taken if
//! it serves more. Serving as much is not enough then, since the requests that wait for it would wait in
//! vain. The trial itself records whether requests waited. A window that rested because no requests waited is
//! tried again as soon as requests wait.
//!
//! **Rest.** When neither a wider nor a narrower window is better, the factor moves closer to 1. At the
//! smallest factor the window rests, for longer and longer, until the throughput changes at an unchanged
//! window.
//!
//! **Failure.** Errors are no throughput. When the site stops answering, or answers with errors, the trial
//! ends without a result and the window in force before it comes back. The controller learns nothing until
//! the site works again, so a window does not collapse because the site was down. A window that was on trial
//! when the site failed counts as no better, since it may be the cause: another is tried next.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{Change, Controller, Finished, Load, Reason, SECOND_NS, Settings, Window};
use crate::{admission::ResourceId, time::Instant};

/// A wider window pays if the log of the throughput grows by at least this part of the growth of the log of
/// the window.
const PAYS: f64 = 0.04;
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
/// Number of standard errors by which a difference must exceed its threshold.
const CERTAIN: f64 = 2.0;
/// A trial ends when the standard error is as small as this, or as the gain that the wider window must show.
/// A smaller difference matters little, or is found later with closer windows.
const FINE: f64 = 0.03;
/// Least number of requests in a quarter of a trial. A quarter also has at least as many requests as the
/// window.
const QUARTER: u32 = 30;
/// Number of requests for which a window rests: the first time, and at most.
const REST: u32 = 1_000;
const REST_MOST: u32 = 16_000;
/// Number of requests over which the throughput is watched while a window rests.
const WATCHED: u32 = 400;
/// A change of the log of the throughput by more than this ends the rest.
const CHANGED: f64 = 0.3;
/// Without waiting requests, a narrower window must improve the log of the throughput by more than this to be
/// kept.
const GAINS: f64 = 0.05;
/// With fewer running requests than this on average, no narrower window is tried while no requests wait.
const CROWD: f64 = 3.0;
/// Number of requests in the running averages of the load and of the shortage of slots.
const LATELY: f64 = 50.0;
/// Least part of the time in which a type must be short of slots for its throughput to say something of its
/// window.
const SHORT: f64 = 0.5;
/// The same for another type, for its throughput to count in a trial.
const CONCERNED: f64 = 0.3;
/// Most routes told apart in a type. All others count as one.
const ROUTES_MOST: usize = 256;
/// The mean service time of a route follows about this many recent requests.
const REMEMBERED: f64 = 200.0;
/// A gap in the answers this many times as long as usual is no chance: the site has stopped answering.
const GAP: f64 = 30.0;
/// The least gap that counts as silence, in nanoseconds.
const GAP_LEAST_NS: u64 = SECOND_NS / 2;
/// Part of errors that ends a trial.
const ERRORS: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Knee {
    types: Vec<Option<Type>>,
    now: Instant,
    /// The trial that runs. Trials of other types are kept in `Type::aside`.
    trial: Option<Trial>,
    /// Trial time of the type that had the last turn, before that turn; a type that joins starts level with
    /// it.
    tried_ns: f64,
    /// A window has changed since the last round.
    unsettled: bool,
    /// The site does not answer, or answers with errors.
    gone: bool,
    /// When a request of any type was last done, and the mean time between two while the site was busy.
    last_done: Instant,
    gap_ns: f64,
    /// Requests that started before this time teach nothing.
    trusted_from: Instant,
    errors: f64,
}

#[derive(Debug)]
struct Type {
    limits: Window,
    /// The window in force, apart from trials.
    window: u32,
    /// The configured first window, while it is approached.
    goal: Option<u32>,
    trying: Option<u32>,
    told: u32,
    reason: Reason,
    factor: f64,
    upward: bool,
    /// Directions that were no better since the window last changed.
    failed: u32,
    /// Consecutive changes of the window with the same factor.
    moved: u32,
    /// Requests for which the window still rests, and the length of the rest.
    rest: u32,
    rested: u32,
    /// The trial between two rounds, while other types have their turn.
    aside: Option<Trial>,
    /// Total time of its trials, in nanoseconds.
    tried_ns: f64,
    load: Load,
    /// Running averages: requests that ran, and how often the type was short of slots.
    running: f64,
    short: f64,
    routes: BTreeMap<u64, Route>,
    others: Route,
    mean_ns: f64,
    watch: Tally,
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

/// Work done while one window was in force.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    ns: f64,
    short_ns: f64,
    requests: u32,
    worth: f64,
    worth_squared: f64,
}

#[derive(Debug)]
struct Trial {
    of: usize,
    /// The narrower and the wider window, and the index of the one in force before.
    windows: [u32; 2],
    before: usize,
    /// The wider window was in force before, and in the last round no requests waited for it.
    free: bool,
    /// The trial is a step towards the configured first window. It has two quarters only.
    approaches: bool,
    /// Number of the quarter, 0 to 3.
    quarter: usize,
    /// Requests of the type that do not count yet, because they began under the other window.
    settling: u32,
    /// Requests that end now count.
    counts: bool,
    left: u32,
    /// Work done, by quarter and type.
    quarters: [Vec<Tally>; 4],
    /// Work done in all earlier rounds, by window and type.
    sums: [Vec<Tally>; 2],
    /// Rounds whose two halves contradicted each other.
    contradictions: u32,
    /// When the trial ends without a result.
    until: Instant,
}

impl Knee {
    pub fn new(settings: &Settings) -> Self {
        Self {
            types: settings.windows.iter().map(|window| window.map(Type::new)).collect(),
            now: Instant::ORIGIN,
            trial: None,
            tried_ns: 0.0,
            unsettled: true,
            gone: false,
            last_done: Instant::ORIGIN,
            gap_ns: 0.0,
            trusted_from: Instant::ORIGIN,
            errors: 0.0,
        }
    }

    /// Advances the time, with the loads reported last.
    fn advance(&mut self, now: Instant) {
        if now > self.now {
            // Requests that end at the same moment count alike: a site may work in lockstep.
            self.move_on();
            if let Some(trial) = &mut self.trial {
                trial.counts = trial.settling == 0;
            }
        }
        let ns = now.ns_since(self.now) as f64;
        self.now = self.now.max(now);
        if let Some(trial) = &self.trial
            && let Some(Some(it)) = self.types.get_mut(trial.of)
        {
            it.tried_ns += ns;
        }
        let mut quarter = self.trial.as_mut().filter(|trial| trial.counts).map(|trial| {
            let quarter = trial.quarter;
            &mut trial.quarters[quarter]
        });
        for (number, it) in self.types.iter_mut().enumerate() {
            let Some(it) = it else { continue };
            let short_ns = if it.is_short() { ns } else { 0.0 };
            let tally = quarter.as_mut().map(|tallies| &mut tallies[number]);
            for tally in tally.into_iter().chain([&mut it.watch]) {
                tally.ns += ns;
                tally.short_ns += short_ns;
            }
        }
        if !self.gone && self.gap_ends().is_some_and(|at| now >= at) {
            self.lose();
        }
        if self.trial.as_ref().is_some_and(|trial| now >= trial.until) {
            self.interrupt();
        }
    }

    /// When the site will have been silent for too long.
    fn gap_ends(&self) -> Option<Instant> {
        let busy = self.types.iter().flatten().any(|it| it.load.running > 0);
        let slowest_ns = self.types.iter().flatten().map(|it| it.mean_ns).fold(0.0, f64::max);
        let gap_ns = (GAP * self.gap_ns).max(4.0 * slowest_ns).max(GAP_LEAST_NS as f64);
        (busy && self.gap_ns > 0.0).then(|| self.last_done.add_ns(gap_ns as u64))
    }

    /// Marks the site as failed.
    fn lose(&mut self) {
        self.gone = true;
        self.interrupt();
        for it in self.types.iter_mut().flatten() {
            (it.watch, it.aside) = (Tally::default(), None);
        }
    }

    fn interrupt(&mut self) {
        if let Some(trial) = self.trial.take()
            && let Some(Some(it)) = self.types.get_mut(trial.of)
        {
            if it.trying.is_some() {
                // The window on trial may be the cause of the failure.
                it.give_up();
            }
            it.set(None, Reason::Interrupted);
            self.unsettled = true;
            it.rest = it.rest.max(2 * it.window + QUARTER);
        }
    }

    /// Ends the quarter of the trial if it has enough requests.
    fn move_on(&mut self) {
        let Some(trial) = &mut self.trial else { return };
        if trial.settling > 0 || trial.left > 0 {
            return;
        }
        let Some(Some(it)) = self.types.get_mut(trial.of) else { return };
        trial.left = quarter_of(trial.windows[1]);
        trial.quarter += 1;
        let verdict = match trial.quarter {
            2 if trial.approaches => trial.step(),
            // The window of the second quarter stays for the third.
            2 => return,
            4 => trial.round(),
            _ => Verdict::Open,
        };
        match verdict {
            Verdict::Open if trial.quarter < 4 => {
                trial.settling = settling_of(trial.windows);
                let arm = trial.arm();
                let trying = (arm != trial.before).then_some(trial.windows[arm]);
                it.set(trying, Reason::Trial);
                trial.until = self.now.add_ns(trial.patience_ns(it, self.gap_ns));
            }
            Verdict::Open => it.aside = self.trial.take(),
            Verdict::Idle | Verdict::Nothing => {
                it.sleep(matches!(verdict, Verdict::Idle));
                self.interrupt();
            }
            Verdict::Better(arm) => {
                let (kept, window, free) = (arm == trial.before, trial.windows[arm], trial.free);
                // The last quarter ran under the old window, or under the other one in a step towards the
                // first window.
                self.unsettled |= kept == trial.approaches;
                it.decide(kept, window, free);
                self.trial = None;
            }
        }
    }

    /// Begins or continues a trial, if a type is ready for one.
    fn begin(&mut self) {
        if self.trial.is_some() || self.gone || self.now < self.trusted_from {
            return;
        }
        let count = self.types.len();
        loop {
            let tries = |it: &Type| it.rest == 0 && it.mean_ns > 0.0;
            let ready = self.types.iter_mut().enumerate().filter_map(|(number, it)| Some((number, it.as_mut()?)));
            let next = ready.filter(|(_, it)| tries(it)).min_by(|(_, a), (_, b)| a.tried_ns.total_cmp(&b.tried_ns));
            let Some((number, it)) = next else { return };
            let mut trial = match it.aside.take() {
                Some(trial) => trial,
                None => {
                    let free = it.short <= SHORT;
                    let Some(other) = (if free { it.narrower() } else { it.candidate() }) else { continue };
                    for route in it.routes.values_mut().chain([&mut it.others]) {
                        route.worth_ns = route.mean_ns;
                    }
                    Trial { approaches: it.goal.is_some() && !free, ..Trial::new(number, it.window, other, count) }
                }
            };
            it.tried_ns = it.tried_ns.max(self.tried_ns);
            self.tried_ns = it.tried_ns;
            trial.quarter = 0;
            trial.left = quarter_of(trial.windows[1]);
            trial.settling = if self.unsettled { settling_of(trial.windows) } else { 0 };
            trial.counts = false;
            self.unsettled = false;
            trial.until = self.now.add_ns(trial.patience_ns(it, self.gap_ns));
            self.trial = Some(trial);
            return;
        }
    }
}

impl Controller for Knee {
    fn handle_finished(&mut self, now: Instant, finished: &Finished) {
        self.advance(now);
        let number = finished.resource.index();
        let Some(Some(it)) = self.types.get_mut(number) else { return };
        self.errors += (f64::from(u8::from(!finished.done)) - self.errors) / 50.0;
        if !finished.done {
            if self.errors > ERRORS && !self.gone {
                self.lose();
            }
            return;
        }
        if self.gone {
            if self.errors > ERRORS {
                return;
            }
            // Requests that queued in the site meanwhile do not measure it.
            self.gone = false;
            self.trusted_from = now;
        } else if self.last_done > Instant::ORIGIN {
            let gap_ns = now.ns_since(self.last_done) as f64;
            self.gap_ns += (gap_ns - self.gap_ns) / if self.gap_ns > 0.0 { 100.0 } else { 1.0 };
        }
        self.last_done = now;
        if now.ns_since(self.trusted_from) < finished.service_ns {
            return;
        }
        let worth = it.learn(finished);
        it.rest = it.rest.saturating_sub(1);
        it.running += (f64::from(it.load.running) - it.running) / LATELY;
        it.short += (f64::from(u8::from(it.is_short())) - it.short) / LATELY;
        it.watch.add(worth);
        it.look();
        if let Some(trial) = &mut self.trial {
            if trial.counts {
                trial.quarters[trial.quarter][number].add(worth);
            }
            if trial.of == number {
                let left = if trial.counts { &mut trial.left } else { &mut trial.settling };
                *left = left.saturating_sub(1);
            }
        }
    }

    fn handle_load(&mut self, now: Instant, resource: ResourceId, load: Load) {
        self.advance(now);
        if let Some(Some(it)) = self.types.get_mut(resource.index()) {
            if it.load.running == 0 && load.running > 0 && self.types.iter().flatten().all(|it| it.load.running == 0) {
                // The site was idle, so its silence means nothing.
                self.last_done = self.last_done.max(now);
            }
            if let Some(Some(it)) = self.types.get_mut(resource.index()) {
                it.load = load;
            }
        }
    }

    fn poll_window(&mut self, now: Instant) -> Option<Change> {
        self.advance(now);
        self.begin();
        self.types.iter_mut().zip((0..).map(ResourceId)).find_map(|(it, resource)| {
            let it = it.as_mut()?;
            let window = it.trying.unwrap_or(it.window);
            (window != it.told).then(|| {
                it.told = window;
                Change { resource, window, reason: it.reason }
            })
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let silent = if self.gone { None } else { self.gap_ends() };
        let until = self.trial.as_ref().map(|trial| trial.until);
        [silent, until].into_iter().flatten().min()
    }

    fn window(&self, resource: ResourceId) -> Option<u32> {
        Some(self.types.get(resource.index())?.as_ref()?.told)
    }
}

impl Type {
    fn new(limits: Window) -> Self {
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
    fn is_short(&self) -> bool {
        self.load.waiting && self.load.running >= self.told
    }

    fn set(&mut self, trying: Option<u32>, reason: Reason) {
        if self.trying != trying {
            (self.trying, self.reason) = (trying, reason);
        }
    }

    /// Updates the averages of the request's route, and returns the weight of the request in nanoseconds.
    fn learn(&mut self, finished: &Finished) -> f64 {
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
    fn candidate(&mut self) -> Option<u32> {
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
    fn give_up(&mut self) -> bool {
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
    fn sleep(&mut self, idle: bool) {
        self.idle = idle;
        self.rested = (2 * self.rested).clamp(REST, REST_MOST);
        self.rest = self.rested;
        (self.watch, self.level) = (Tally::default(), None);
    }

    /// A window narrower than the number of running requests, if that number is large.
    fn narrower(&mut self) -> Option<u32> {
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

    fn decide(&mut self, kept: bool, window: u32, free: bool) {
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

enum Verdict {
    Open,
    /// The window with this index is better.
    Better(usize),
    /// There were too few requests for a result.
    Idle,
    /// The rounds contradict themselves again and again.
    Nothing,
}

impl Trial {
    fn new(of: usize, window: u32, other: u32, types: usize) -> Self {
        let windows = [window.min(other), window.max(other)];
        let tallies = || vec![Tally::default(); types];
        Self {
            of,
            before: usize::from(windows[1] == window),
            windows,
            free: false,
            approaches: false,
            quarter: 0,
            settling: 0,
            counts: false,
            left: 0,
            quarters: [tallies(), tallies(), tallies(), tallies()],
            sums: [tallies(), tallies()],
            contradictions: 0,
            until: Instant::ORIGIN,
        }
    }

    /// Index of the window in force in the quarter: A B B A, where A is the window in force before.
    fn arm(&self) -> usize {
        match self.quarter {
            0 | 3 => self.before,
            _ => 1 - self.before,
        }
    }

    /// Judges a step towards the first window after two quarters.
    fn step(&self) -> Verdict {
        let better = compare(self.of, &self.quarters[0], &self.quarters[1]).is_some_and(|(gain, error)| gain > error);
        Verdict::Better(usize::from(better))
    }

    /// Judges the trial after four quarters.
    fn round(&mut self) -> Verdict {
        let (narrow, wide) = if self.before == 0 { ([0, 3], [1, 2]) } else { ([1, 2], [0, 3]) };
        let half = |half: usize| compare(self.of, &self.quarters[narrow[half]], &self.quarters[wide[half]]);
        let halves = half(0).zip(half(1));
        let contradict = halves.is_some_and(|((first, of_first), (second, of_second))| {
            (first - second).abs() > 2.0 * CERTAIN * libm::sqrt(of_first * of_first + of_second * of_second)
        });
        if contradict {
            self.contradictions += 1;
        }
        for (arm, quarters) in [narrow, wide].into_iter().enumerate() {
            for quarter in quarters {
                for (sum, tally) in self.sums[arm].iter_mut().zip(&mut self.quarters[quarter]) {
                    let tally = core::mem::take(tally);
                    if !contradict {
                        sum.merge(&tally);
                    }
                }
            }
        }
        if contradict {
            return if self.contradictions > 3 { Verdict::Nothing } else { Verdict::Open };
        }
        let [narrow_short, wide_short] = [0, 1].map(|arm: usize| {
            let own = &self.sums[arm][self.of];
            own.short_ns >= SHORT * own.ns
        });
        // As found in the trial, since it may have changed after the trial began.
        self.free = self.before == 1 && !wide_short;
        if self.before == 0 && !narrow_short {
            return Verdict::Idle;
        }
        let Some((gain, error)) = compare(self.of, &self.sums[0], &self.sums[1]) else { return Verdict::Nothing };
        let wider = libm::log(f64::from(self.windows[1]) / f64::from(self.windows[0]));
        let pays = if self.free { -GAINS } else { PAYS * wider };
        if gain - CERTAIN * error > pays {
            Verdict::Better(1)
        } else if gain + CERTAIN * error < pays {
            Verdict::Better(0)
        } else if error < if self.free { FINE } else { FINE.max(pays) } {
            Verdict::Better(self.before)
        } else {
            Verdict::Open
        }
    }

    /// How long a quarter may take before the trial is given up.
    fn patience_ns(&self, it: &Type, gap_ns: f64) -> u64 {
        let requests = f64::from(self.settling + self.left);
        let typical_ns = (it.mean_ns / f64::from(it.window)).max(gap_ns) * requests + it.mean_ns;
        (10.0 * typical_ns) as u64 + 5 * SECOND_NS
    }
}

/// Returns the gain in throughput of the second window, as a logarithm over all types concerned, and its
/// standard error.
///
/// A type that serves fewer requests than the one on trial has less weight; its noise would hide the rest.
fn compare(of: usize, narrow: &[Tally], wide: &[Tally]) -> Option<(f64, f64)> {
    let gain_of = |number: usize| {
        let (a, b) = (&narrow[number], &wide[number]);
        let counts = a.requests.min(b.requests) >= 5 && a.ns > 0.0 && b.ns > 0.0;
        counts.then(|| (libm::log((b.worth / b.ns) / (a.worth / a.ns)), a.variance() + b.variance()))
    };
    let (mut gain, of_own) = gain_of(of)?;
    let mut variance = of_own;
    for number in (0..narrow.len()).filter(|&number| number != of) {
        let short = |tally: &Tally| tally.short_ns > CONCERNED * tally.ns;
        if let Some((its_gain, its_variance)) = gain_of(number)
            && (short(&narrow[number]) || short(&wide[number]))
            && its_gain * its_gain > its_variance
        {
            let weight = (of_own / its_variance).min(1.0);
            gain += weight * its_gain;
            variance += weight * weight * its_variance;
        }
    }
    Some((gain, libm::sqrt(variance)))
}

impl Tally {
    fn add(&mut self, worth: f64) {
        self.requests += 1;
        self.worth += worth;
        self.worth_squared += worth * worth;
    }

    fn merge(&mut self, other: &Self) {
        self.ns += other.ns;
        self.short_ns += other.short_ns;
        self.requests += other.requests;
        self.worth += other.worth;
        self.worth_squared += other.worth_squared;
    }

    /// Variance of the log of the work, if requests ended at random. Requests of equal work end more evenly
    /// than that.
    fn variance(&self) -> f64 {
        self.worth_squared / (self.worth * self.worth)
    }
}

/// The first factor and direction for a window of which nothing is known; true means upward.
fn first_step(window: u32) -> (f64, bool) {
    // Far above the knee, throughput hardly depends on the window, so only distant windows can be told apart
    // soon. Also, a window that is too wide does more harm than one that is too narrow.
    if window < LARGE { (WIDEST, true) } else { (WIDEST * WIDEST, false) }
}

fn quarter_of(window: u32) -> u32 {
    QUARTER.max(window)
}

/// Requests until the site has settled at another window: as many as must leave, and half of those that stay.
fn settling_of(windows: [u32; 2]) -> u32 {
    windows[1] - windows[0] / 2
}

//! By trying the window beside the one in force, and keeping what serves more requests.
//!
//! The intuition: what a window is good for is throughput, so that is what is compared, and nothing else. A service time
//! alone cannot tell a site that works on more at once from one that is overloaded; and what it should be without load is
//! not known where there is always load.
//!
//! **The first window** is approached from a small one, which is doubled for as long as somebody waits for it and that serves more.
//! A window that is far too wide can make a site a hundred times slower, and then it takes a hundred times as long to learn that
//! it is; so nobody goes there in one step.
//!
//! **Turns.** The types try one at a time. A turn is one round of a trial, which then waits for the next; the turn goes to
//! the type that has tried for the least time. So a type whose requests are slow, or whose windows cannot be told apart,
//! does not make the others wait until it is done.
//!
//! **A trial.** A type tries another window, a factor above or below the one in force. The two take turns, in
//! the order A B B A, each for a certain number of requests; what changes steadily meanwhile falls on both alike. After a
//! change of the window as many requests as were running do not count. Those that end at the same moment are counted
//! together, since a site may work in step. The trial goes on until it is certain enough which
//! of the two is better, or until certainty would take too long. If the two halves A B and B A contradict each other, the
//! site has changed meanwhile, and they do not count.
//!
//! **What is compared** is the sum, over all types that were short of slots, of the logarithm of their throughput: a type
//! gains nothing by taking from another in equal proportion, however their requests compare. Another type's change counts
//! only if it is larger than its standard error, or else the noise of all would drown the one. A wider window must pay: its
//! throughput has to be higher by [`PAYS`] of what its slots are more. So of windows that serve alike the narrow one is
//! taken.
//!
//! **Mix.** A request counts as much as its route's mean service time so far, which does not change during a trial. A route
//! whose requests need ten times the work is worth ten of another's, and a change of the mix changes nothing.
//!
//! **A window that nobody waits for** can still be too wide: users who wait for their answers may all be in the site and slow
//! one another down. So now and then a narrower one is tried than there are requests running, and taken if it serves more.
//! That it serves as much is not enough then, since those who wait for it wait for nothing. Whether anybody waited is
//! judged by the trial itself. A window that rested because nobody waited is looked at again as soon as somebody does.
//!
//! **Rest.** When neither a wider nor a narrower window does better, the factor comes nearer to 1. When it is as near as it
//! gets, the window rests, for longer and longer, until the throughput changes at an unchanged window.
//!
//! **Failure.** Errors are no throughput. When the site stops answering, or answers with errors, the trial ends without a
//! result, the window in force before it comes back, and nothing is learned until the site works again. So a window does
//! not collapse because the site was gone. A window that was being tried when the site failed counts as no better, since it
//! may be why: another is tried next.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{Change, Controller, Finished, Load, Reason, SECOND_NS, Settings, Window};
use crate::{admission::ResourceId, time::Instant};

/// A wider window pays if the logarithm of the throughput grows by this part of that of the window.
const PAYS: f64 = 0.04;
/// The first factor between the windows compared.
const WIDEST: f64 = 2.0;
/// Where nobody waited for long, from such a window on a narrower one is tried first, a fourth of it: here that is 1.
const LARGE: u32 = 4;
/// A first window beyond this is approached from here.
const SMALL: u32 = 4;
/// The smallest factor. Nearer windows differ by too little to be told apart in reasonable time.
const NARROWEST: f64 = 1.15;
/// The factor to begin anew with when the site has changed.
const ANEW: f64 = 1.5;
/// Standard errors by which the difference must exceed what is to be decided.
const CERTAIN: f64 = 2.0;
/// A trial ends when the standard error is as small as this, or as what the wider window has to pay: what cannot be told
/// by then matters little, or is found with windows nearer to one another.
const FINE: f64 = 0.03;
/// Requests of a quarter of a trial, at least. Also at least as many as the window.
const QUARTER: u32 = 30;
/// Requests for which a window rests at first, and at most.
const REST: u32 = 1_000;
const REST_MOST: u32 = 16_000;
/// Requests over which the throughput is watched while a window rests.
const WATCHED: u32 = 400;
/// A change of the throughput by more than this, as a logarithm, ends the rest.
const CHANGED: f64 = 0.3;
/// A window for which nobody waits must serve more than this, as a logarithm, to be taken for a wider one.
const GAINS: f64 = 0.05;
/// With fewer running than this, on average, nothing narrower is tried while nobody waits.
const CROWD: f64 = 3.0;
/// Requests over which is averaged how many run, and whether any wait.
const LATELY: f64 = 50.0;
/// Part of the time for which a type must have been short of slots for its throughput to say something of its window.
const SHORT: f64 = 0.5;
/// The same of another type, for its throughput to be looked at.
const CONCERNED: f64 = 0.3;
/// Routes told apart in a type. All others count as one.
const ROUTES_MOST: usize = 256;
/// The mean service time of a route follows the last requests: about so many.
const REMEMBERED: f64 = 200.0;
/// A gap in the answers so many times as long as usual is none that chance makes.
const GAP: f64 = 30.0;
/// And no shorter than this.
const GAP_LEAST_NS: u64 = SECOND_NS / 2;
/// Part of errors that ends a trial.
const ERRORS: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Knee {
    types: Vec<Option<Type>>,
    now: Instant,
    /// The one that runs. Those of other types are put aside.
    trial: Option<Trial>,
    /// Time for which the type whose turn it is had tried before, as a fair queue counts it.
    tried_ns: f64,
    /// A window has changed since the last round.
    unsettled: bool,
    /// The site does not answer, or with errors.
    gone: bool,
    /// The last time that a request of any type was done, and the mean time between two while the site was busy.
    last_done: Instant,
    gap_ns: f64,
    /// What was started before is not learned from.
    trusted_from: Instant,
    errors: f64,
}

#[derive(Debug)]
struct Type {
    limits: Window,
    /// In force, but for trials.
    window: u32,
    /// The first window, while it is approached.
    goal: Option<u32>,
    trying: Option<u32>,
    told: u32,
    reason: Reason,
    factor: f64,
    upward: bool,
    /// Directions that did not do better since the window last changed.
    failed: u32,
    /// Moves in a row with the same factor.
    moved: u32,
    /// Requests for which it rests still, and for how many it did.
    rest: u32,
    rested: u32,
    /// Between two rounds, while others have their turn.
    aside: Option<Trial>,
    /// The time of all its rounds.
    tried_ns: f64,
    load: Load,
    /// Lately: how many ran, and how often others waited.
    running: f64,
    short: f64,
    routes: BTreeMap<u64, Route>,
    others: Route,
    mean_ns: f64,
    watch: Tally,
    /// The logarithm of the throughput when the rest began.
    level: Option<f64>,
    /// It rests because there was too little to do.
    idle: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Route {
    seen: f64,
    mean_ns: f64,
    /// As it was when the last trial of the type began.
    worth_ns: f64,
}

/// What was served while a window was in force.
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
    /// The narrower and the wider window, and which of them was in force before.
    windows: [u32; 2],
    before: usize,
    /// Nobody waited for the wider window, which was in force before: so the last round found.
    free: bool,
    /// A step towards the first window. It has two quarters only.
    approaches: bool,
    /// Number of the quarter, 0 to 3.
    quarter: usize,
    /// Requests of the type that do not count still, because they began under the other window.
    settling: u32,
    /// What ends now counts.
    counts: bool,
    left: u32,
    /// By quarter and type.
    quarters: [Vec<Tally>; 4],
    /// By window and type, of all rounds before.
    sums: [Vec<Tally>; 2],
    /// Rounds that contradicted themselves.
    contradictions: u32,
    /// It ends without a result then.
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

    /// Time goes by, with the loads last told.
    fn advance(&mut self, now: Instant) {
        if now > self.now {
            // Requests that end at the same moment count alike: a site may work in step.
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

    /// The site fails.
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
                // It may be why.
                it.give_up();
            }
            it.set(None, Reason::Interrupted);
            self.unsettled = true;
            it.rest = it.rest.max(2 * it.window + QUARTER);
        }
    }

    /// The trial may have come to the end of a quarter.
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
            // The second quarter's window goes on.
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
                // The last quarter was under the window before, or under the other one in a step towards the first.
                self.unsettled |= kept == trial.approaches;
                it.decide(kept, window, free);
                self.trial = None;
            }
        }
    }

    /// Somebody may try something.
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
            // What waited in the site meanwhile is no measure of it.
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
                // Nobody was there to be answered.
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
            // What is learned from the first requests of all is what they are worth.
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

    /// All slots are taken, and somebody waits.
    fn is_short(&self) -> bool {
        self.load.waiting && self.load.running >= self.told
    }

    fn set(&mut self, trying: Option<u32>, reason: Reason) {
        if self.trying != trying {
            (self.trying, self.reason) = (trying, reason);
        }
    }

    /// What a request is worth, in nanoseconds.
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
        // What a route is worth is settled when a trial of its type begins, or else when it is first seen.
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

    /// The window to try next; `None` if there is none, and then the type rests.
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

    /// The direction did no better. Whether there is anything left to try before a rest.
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

    /// For longer and longer.
    fn sleep(&mut self, idle: bool) {
        self.idle = idle;
        self.rested = (2 * self.rested).clamp(REST, REST_MOST);
        self.rest = self.rested;
        (self.watch, self.level) = (Tally::default(), None);
    }

    /// A window narrower than there are requests running, if those are many.
    fn narrower(&mut self) -> Option<u32> {
        let other = self.limits.clamp((self.running / ANEW + 0.5) as u32);
        let worthwhile = self.running >= CROWD && other < self.window;
        if !worthwhile {
            self.sleep(true);
            if self.goal.is_some() {
                // As soon as somebody waits it goes on.
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
            // Back is where it came from, and was no better.
            self.failed = 1;
        }
    }

    /// Whether the site has changed while the window rests.
    fn look(&mut self) {
        if self.watch.requests < WATCHED {
            return;
        }
        let watched = core::mem::take(&mut self.watch);
        if self.rest == 0 || self.trying.is_some() || watched.short_ns < 0.9 * watched.ns {
            return;
        }
        if self.idle {
            // Now there is enough to do, or the site has become too slow for what it did before.
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
    /// By number of the window.
    Better(usize),
    /// There was too little to do for anything to be seen.
    Idle,
    /// It contradicts itself, again and again.
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

    /// Which window is in force in the quarter: A B B A, where A is the one that was in force before.
    fn arm(&self) -> usize {
        match self.quarter {
            0 | 3 => self.before,
            _ => 1 - self.before,
        }
    }

    /// Two quarters of a step towards the first window are over.
    fn step(&self) -> Verdict {
        let better = compare(self.of, &self.quarters[0], &self.quarters[1]).is_some_and(|(gain, error)| gain > error);
        Verdict::Better(usize::from(better))
    }

    /// Four quarters are over.
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
        // As it was in the trial, since that may have changed after it began.
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

    /// How long a quarter may take before it is given up.
    fn patience_ns(&self, it: &Type, gap_ns: f64) -> u64 {
        let requests = f64::from(self.settling + self.left);
        let typical_ns = (it.mean_ns / f64::from(it.window)).max(gap_ns) * requests + it.mean_ns;
        (10.0 * typical_ns) as u64 + 5 * SECOND_NS
    }
}

/// How much higher the throughput of the second is, as a logarithm, over all types concerned; and the standard error. A
/// type that serves fewer requests than the one that tries counts that much less: its own noise would drown the rest.
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

    /// Of the logarithm of the worth, if the requests came one by one at random. Those of equal work come more evenly.
    fn variance(&self) -> f64 {
        self.worth_squared / (self.worth * self.worth)
    }
}

/// From a window of which nothing is known: by which factor, and whether upward.
fn first_step(window: u32) -> (f64, bool) {
    // Far beyond the knee it does not matter much how far, so that only windows far apart can be told apart soon. And a
    // window that is too wide does more harm than one that is too narrow.
    if window < LARGE { (WIDEST, true) } else { (WIDEST * WIDEST, false) }
}

fn quarter_of(window: u32) -> u32 {
    QUARTER.max(window)
}

/// Requests until the site has got used to another window: as many as have to leave, and half of those who stay.
fn settling_of(windows: [u32; 2]) -> u32 {
    windows[1] - windows[0] / 2
}

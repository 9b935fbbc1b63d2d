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
//! of one. A wider window must pay: its throughput must grow by a small part of the growth of the window. So of
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

mod resource_type;
mod tally;
mod trial;

use alloc::vec::Vec;

use self::{
    resource_type::ResourceType,
    tally::Tally,
    trial::{QUARTER, SHORT, Trial, Verdict, quarter_of, settling_of},
};
use super::{
    controller::{Change, Controller, Finished, Load, Reason},
    settings::Settings,
};
use crate::{
    admission::ResourceId,
    time::{Instant, SECOND_NS},
};

/// A gap in the answers this many times as long as usual is no chance: the site has stopped answering.
const GAP: f64 = 30.0;
/// The least gap that counts as silence, in nanoseconds.
const GAP_LEAST_NS: u64 = SECOND_NS / 2;
/// Part of errors that ends a trial.
const ERRORS: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Knee {
    types: Vec<Option<ResourceType>>,
    now: Instant,
    /// The trial that runs. Trials of other types are kept in [`ResourceType::aside`].
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

impl Knee {
    pub fn new(settings: &Settings) -> Self {
        Self {
            types: settings.windows.iter().map(|window| window.map(ResourceType::new)).collect(),
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
                trial.until = self.now.add_ns(trial.patience_ns(it.mean_ns, it.window, self.gap_ns));
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
            let tries = |it: &ResourceType| it.rest == 0 && it.mean_ns > 0.0;
            let ready = self.types.iter_mut().enumerate().filter_map(|(number, it)| Some((number, it.as_mut()?)));
            let next = ready.filter(|(_, it)| tries(it)).min_by(|(_, a), (_, b)| a.tried_ns.total_cmp(&b.tried_ns));
            let Some((number, it)) = next else { return };
            let mut trial = match it.aside.take() {
                Some(trial) => trial,
                None => {
                    let free = it.short <= SHORT;
                    let Some(other) = (if free { it.narrower() } else { it.candidate() }) else { continue };
                    it.fix_weights();
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
            trial.until = self.now.add_ns(trial.patience_ns(it.mean_ns, it.window, self.gap_ns));
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
        it.watch_load(worth);
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

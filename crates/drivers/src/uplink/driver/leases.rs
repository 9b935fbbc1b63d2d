//! The line that several gateways send through, and the task that talks to the store about it.

use scheduler::{
    Instant,
    lease::{Line, Reply},
    pace::Pace,
};

use super::Driver;
use crate::{lease::LeaseAsk, uplink::line::LineStats};

impl Driver {
    /// Waits until the store is to be asked for a part of the line; forever without a line. `None`: the gateway no longer sends
    /// through the line `asked_of`. One task calls it; it reports the outcome before it calls again.
    pub(in super::super) async fn line_ask(&self, asked_of: Option<&str>) -> Option<LeaseAsk> {
        loop {
            {
                let mut state = self.state.lock();
                if asked_of.is_some() && state.config.line.as_deref() != asked_of {
                    return None;
                }
                if let Some(due) = state.line_ask.take() {
                    return Some(due);
                }
            }
            self.line_asks.notified().await;
        }
    }

    /// The store has answered.
    pub(in super::super) fn line_leased(&self, ask: &LeaseAsk, reply: &Reply) {
        self.with_line(|line, _| line.handle_reply(ask.asked_at, reply));
    }

    /// The store has not answered.
    pub(in super::super) fn line_failed(&self) {
        self.with_line(Line::handle_failed);
    }

    /// The store says that an ask is worth its while.
    pub(in super::super) fn line_notice(&self) {
        self.with_line(|line, _| line.handle_notice());
    }

    /// The line that several gateways send through, if there is one.
    pub(in super::super) fn line_stats(&self) -> Option<LineStats> {
        match &self.state.lock().pace {
            Some(Pace::Leased(leased)) => Some(LineStats::of(&leased.line, self.now())),
            _ => None,
        }
    }

    /// Changes something about the lease, and carries out the decisions that follow.
    fn with_line(&self, change: impl FnOnce(&mut Line, Instant)) {
        let wakers = {
            let mut state = self.state.lock();
            let (state, now) = (&mut *state, self.now());
            let Some(Pace::Leased(leased)) = &mut state.pace else { return };
            change(&mut leased.line, now);
            state.machine.handle_parts(leased.line.parts(now));
            self.pump(state, now)
        };
        wakers.wake();
    }
}

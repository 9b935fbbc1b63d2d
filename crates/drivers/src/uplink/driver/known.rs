//! What is known of the rate that is found before it is found: from before a restart, and from the kernel.

use std::net::IpAddr;

use scheduler::{Instant, Rate, pace::Pace};

use super::{Driver, DriverState};
use crate::wakers::Wakers;

impl Driver {
    /// Begins with a rate that was found earlier, where the rate is found and is not known yet.
    pub(in super::super) fn begin_at(&self, known: Rate) {
        let wakers = {
            let mut state = self.state.lock();
            let now = self.now();
            let Some(Pace::Found(finder)) = &mut state.pace else { return };
            finder.begin_at(now, known);
            self.take_over_rate(&mut state, now)
        };
        wakers.wake();
    }

    /// A client has come.
    pub fn handle_client(&self, address: IpAddr) {
        if self.estimates_rate()
            && let Some(mut client) = self.client.try_lock()
        {
            *client = Some(address);
        }
    }

    /// The last client that has come since the last call.
    pub(in super::super) fn take_client(&self) -> Option<IpAddr> {
        self.client.try_lock()?.take()
    }

    /// Takes the rate that the kernel holds the device to; `None`: none.
    pub(in super::super) fn handle_device_rate(&self, limit: Option<Rate>) {
        let wakers = {
            let mut state = self.state.lock();
            let now = self.now();
            state.limit = limit;
            let Some(Pace::Found(finder)) = &mut state.pace else { return };
            finder.handle_limit(now, limit);
            self.take_over_rate(&mut state, now)
        };
        wakers.wake();
    }

    fn take_over_rate(&self, state: &mut DriverState, now: Instant) -> Wakers {
        let rate = state.pace.as_ref().and_then(Pace::rate);
        state.machine.handle_rate(now, rate);
        self.follow_rate(state);
        self.pump(state, now)
    }

    /// The rate of the link that was found, once it is known well.
    pub(in super::super) fn known(&self) -> Option<Rate> {
        match &self.state.lock().pace {
            Some(Pace::Found(finder)) => finder.known(),
            _ => None,
        }
    }
}

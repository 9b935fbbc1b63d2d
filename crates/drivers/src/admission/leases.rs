//! The task that talks to the store, and admission.

use scheduler::{
    Instant,
    lease::{Reply, Times},
};

use super::{
    driver::{AdmissionDriver, Core},
    handle::Admission,
    membership::Membership,
};
use crate::{config::Classes, lease::LeaseAsk};

impl Admission {
    /// Makes this gateway one of several, which divide the windows of the site. From now on no request goes in beyond its
    /// leases; the task that calls [`Admission::lease_ask`] has to send the asks.
    pub fn join(&self, classes: impl Into<Classes>, times: Times) {
        let classes = classes.into();
        self.driver.with_leases(|driver, core, now| {
            let membership = Membership::new(now, times, core.machine.settings(), &classes);
            core.membership = Some(membership);
            driver.asks.notify_one();
        });
    }

    /// Waits until the store is to be asked. One task calls it; it reports the outcome before it calls again.
    pub async fn lease_ask(&self) -> LeaseAsk {
        loop {
            let due = self.driver.core.lock().membership.as_mut().and_then(Membership::take_ask);
            match due {
                Some(due) => return due,
                None => self.driver.asks.notified().await,
            }
        }
    }

    /// The store has answered.
    pub fn leased(&self, ask: &LeaseAsk, reply: &Reply) {
        self.driver.with_leases(|_, core, now| {
            if let Some(membership) = &mut core.membership {
                membership.handle_reply(now, ask.asked_at, reply, &mut core.machine, &mut core.windows);
                // It is set for an answer that does not come soon.
                core.armed_at = None;
            }
        });
    }

    /// The store has not answered.
    pub fn lease_failed(&self) {
        self.driver.with_leases(|_, core, now| {
            if let Some(membership) = &mut core.membership {
                membership.handle_failed(now);
            }
        });
    }

    /// The store says that an ask is worth its while.
    pub fn lease_notice(&self) {
        self.driver.with_leases(|_, core, _| {
            if let Some(membership) = &mut core.membership {
                membership.handle_notice();
            }
        });
    }
}

impl AdmissionDriver {
    /// Changes something about leases, and carries out the decisions that follow.
    fn with_leases(&self, change: impl FnOnce(&Self, &mut Core, Instant)) {
        let wakers = {
            let mut core = self.core.lock();
            let now = self.now();
            change(self, &mut core, now);
            self.pump(&mut core, now, None).1
        };
        wakers.wake();
    }
}

//! A controller by the service times of probing requests ("Multiple-resource Request Scheduling Algorithms
//! for Proportional System-time Differentiation at Website Gateway", section 3.5.2, figure 5).
//!
//! One probing request goes to each type every P seconds. A late answer adds one to a counter, a timely
//! answer subtracts one. At the upper threshold the window shrinks by one, at the lower it grows by one, and
//! the counter restarts at 0. The thresholds differ, since a window that is too large does more harm.
//!
//! One difference to figure 5. There the counter goes on counting when it can do nothing, because the window
//! is 1 already; after an hour of overload it takes an hour to come back. Here it stops at the threshold.

use alloc::vec::Vec;

use super::{
    controller::{Change, Controller, Probed, Reason},
    settings::{Settings, Window},
};
use crate::{admission::ResourceId, time::Instant};

#[derive(Debug)]
pub(super) struct Probe {
    types: Vec<Option<Type>>,
    every_ns: u64,
    after_ns: u64,
    shrink_above: i32,
    grow_below: i32,
}

#[derive(Debug)]
struct Type {
    limits: Window,
    bound_ns: u64,
    window: u32,
    told: u32,
    counter: i32,
    /// When the next probing request goes out; `None` before the first call.
    next: Option<Instant>,
    /// A probing request is under way.
    asked: bool,
}

impl Probe {
    pub fn new(settings: &Settings) -> Self {
        let of = |window: &Option<Window>| {
            let limits = (*window)?;
            let bound_ns = limits.bound_ns.unwrap_or(u64::MAX);
            let window = limits.first;
            Some(Type { limits, bound_ns, window, told: window, counter: 0, next: None, asked: false })
        };
        Self {
            types: settings.windows.iter().map(of).collect(),
            every_ns: settings.probe_every_ns,
            after_ns: settings.probe_after_ns,
            shrink_above: settings.shrink_above,
            grow_below: settings.grow_below,
        }
    }
}

impl Controller for Probe {
    fn poll_probe(&mut self, now: Instant) -> Option<ResourceId> {
        let (every_ns, after_ns) = (self.every_ns, self.after_ns);
        for (it, id) in self.types.iter_mut().zip((0..).map(ResourceId)) {
            let Some(it) = it else { continue };
            // The caller's clock need not begin at 0; in that case the wait ends at the first call.
            let next =
                *it.next.get_or_insert_with(|| if now.as_ns() >= after_ns { now } else { Instant::from_ns(after_ns) });
            if now >= next {
                it.next = Some(now.add_ns(every_ns));
                // A site that has not answered the last probing request gets no second one.
                if !core::mem::replace(&mut it.asked, true) {
                    return Some(id);
                }
            }
        }
        None
    }

    fn handle_probed(&mut self, _now: Instant, resource: ResourceId, probed: Probed) {
        let Some(Some(it)) = self.types.get_mut(resource.index()) else { return };
        it.asked = false;
        let late = match probed {
            Probed::Answered { service_ns } => service_ns >= it.bound_ns,
            Probed::Failed => true,
            Probed::Lost => return,
        };
        it.counter += if late { 1 } else { -1 };
        if it.counter > self.shrink_above {
            if it.window > it.limits.least {
                (it.window, it.counter) = (it.window - 1, 0);
            } else {
                it.counter = self.shrink_above;
            }
        } else if it.counter < self.grow_below {
            if it.window < it.limits.most {
                (it.window, it.counter) = (it.window + 1, 0);
            } else {
                it.counter = self.grow_below;
            }
        }
    }

    fn poll_window(&mut self, _now: Instant) -> Option<Change> {
        self.types.iter_mut().zip((0..).map(ResourceId)).find_map(|(it, resource)| {
            let it = it.as_mut().filter(|it| it.told != it.window)?;
            let reason = if it.window < it.told { Reason::Late } else { Reason::InTime };
            it.told = it.window;
            Some(Change { resource, window: it.window, reason })
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.types.iter().flatten().map(|it| it.next.unwrap_or(Instant::ORIGIN)).min()
    }

    fn window(&self, resource: ResourceId) -> Option<u32> {
        Some(self.types.get(resource.index())?.as_ref()?.told)
    }
}

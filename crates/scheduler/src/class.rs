//! Classes of requests, and their settings.

/// Number of a class: its index in the settings, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

impl ClassId {
    /// The index in a table with a row for each class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Settings of a class. The [`crate::share::Policy`] in force decides which of them apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its weight, at least 1. The share of a class is its weight over the sum of all weights. If the weights add up to the
    /// window, they are slots.
    pub weight: u32,
    /// Its target in the ratios of system times, at least 1 ([`crate::share::Policy::is_by_delay`]). With 1, 2 and 4 the
    /// first class is the fastest.
    pub delay_ratio: u32,
    /// Slots in each shared window that are never lent ([`crate::share::Policy::Shared`]).
    pub reserved_slots: u32,
    /// Most of its requests at the site at once, over all resource types; `None` for no limit of its own. It holds under
    /// any share: a slot stays free rather than go to a class at its limit.
    pub most_running: Option<u32>,
    /// Time from arrival to the end of the response, in nanoseconds ([`crate::share::Policy::Edf`]). A class without a
    /// deadline (`None`) is served when no request with a deadline waits.
    pub deadline_ns: Option<u64>,
    /// Which of its waiting requests goes first.
    pub order: QueueOrder,
    /// Most of its requests that wait for one resource type. With 0 a request starts at once or is refused.
    pub most_waiting: u32,
    /// Waiting time in nanoseconds after which a request is refused; `None` for no limit.
    pub most_wait_ns: Option<u64>,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            weight: 1,
            delay_ratio: 1,
            reserved_slots: 0,
            most_running: None,
            deadline_ns: None,
            order: QueueOrder::Fifo,
            // Requests that wait cost memory; behind a thousand others few clients are still there when their turn comes.
            most_waiting: 1000,
            most_wait_ns: None,
        }
    }
}

/// Which request of a class goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueOrder {
    /// First come, first served.
    #[default]
    Fifo,
    /// First come, first served, but the newest first while the oldest has waited for more than half of its clients'
    /// patience. The patience is learned from clients that leave (`admission/patience.rs`), and is at most
    /// [`Class::most_wait_ns`]. If no client leaves and none waits for half of that, this is [`QueueOrder::Fifo`].
    Adaptive,
    /// Shortest expected service first.
    Shortest,
    /// [`QueueOrder::Adaptive`] with a fixed limit: the newest first while the oldest has waited for longer than
    /// `after_ns` nanoseconds. Under overload not all can be served in time, and the newest clients are still there.
    LifoUnderOverload {
        /// The wait that means overload.
        after_ns: u64,
    },
    /// Clients take turns, by their keys; the requests of one client are served first come, first served.
    FairAmongClients,
}

//! Leases: the windows of a site, divided among several gateways.
//!
//! One gateway keeps a site full and never overloaded. Two gateways in front of one site would each fill the whole window.
//! So the gateways of a site share its windows through a store that all of them reach. Each holds a *lease*: a number of
//! slots of each window, for a short time (leases of capacity, as in Doorman, <https://github.com/youtube/doorman>).
//!
//! Two state machines without clock and I/O:
//!
//! - The [`Ledger`] is the store's side. It adds up what all gateways ask for, and divides each window. In operation a
//!   function inside the store does the same; this one runs in simulations, and says what that one has to answer.
//! - The [`Holder`] is a gateway's side. It says how many slots the gateway has at any moment, and when to ask again.
//!
//! A *cell* is a window that is divided on its own: a resource type's window, the limit of all types together, or one
//! class's slots where classes lend nothing.
//!
//! Promises, held by tests:
//! - The slots granted in unexpired leases, and the requests of expired ones as far as they are known, are never more than
//!   the window. More may be in use only in two cases. A gateway started requests while an answer with fewer slots was
//!   on its way for more than 50 ms. A gateway cannot reach the store while others do, and has [`alone`] slots.
//! - Where asks say so, the equal part of a silent gateway is kept for it for some time, unless its connection has
//!   ended. While the part is kept, the second case does not occur.
//! - Without the store no gateway has more than [`alone`] slots once its lease has ended, and each has so many once the
//!   leases of all others have ended, too.
//! - If there is more demand than slots, each class has the slots that its policy gives it over the whole site. Each
//!   gateway has a part of them in proportion to its requests of the class. Fractions of slots are evened out over
//!   time, so that with fewer slots than gateways all have their turns.
//! - With [`Division::Weighted`], what a class lacks while requests move between gateways is repaid, where other
//!   classes wait at the same gateway.
//! - If there are more slots than demand, each gateway has slots for its requests and an equal part of the rest. One such
//!   part stays with the store.
//! - A store that was started anew, or failed over to a replica, may have forgotten leases. Until all of these must
//!   have ended, it grants no gateway more than the gateway holds.

mod account;
mod divide;
mod holder;
mod ledger;
mod line;
mod member;

use alloc::vec::Vec;

pub use self::{
    holder::{Holder, Times},
    ledger::{GatewayId, Ledger, Notice},
    line::{Line, PARTS, Seen},
    member::{Cell, Member, cells},
};
use crate::{class::Class, share::Policy};

/// How a window is divided between the classes while they ask for more than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Division {
    /// The first class has all that it asks for, the next one what is left.
    Strict,
    /// In proportion to weights.
    Weighted,
    /// Each class has its share by weight. Slots that others leave are lent by weight, except reserves.
    Shared,
    /// In proportion to weight times demand. With weights of 1 / delay ratio this keeps system times in their ratios: by
    /// Little's law the demand of a class is its rate times its system time.
    Demand,
}

/// A class in the settings of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSettings {
    /// Its weight, at least 1.
    pub weight: u32,
    /// Slots that are not lent to others ([`Division::Shared`]).
    pub reserve: u32,
}

/// A window to divide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellSettings {
    /// All its slots.
    pub window: u32,
    /// Whether a controller adjusts them: then the number is that of the gateway that leads.
    pub adjusted: bool,
    /// How they are divided between classes.
    pub division: Division,
    /// The classes, the most important first.
    pub classes: Vec<ClassSettings>,
}

/// The requests of a class at one gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Requests that the site works on.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
}

/// Requests that the site has finished in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Work done.
    pub done: u32,
    /// Errors of the site.
    pub failed: u32,
    /// The sum of the service times of work done, in microseconds.
    pub service_us: u64,
}

/// The ask of a gateway in one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellAsk {
    /// All slots, as far as it knows. Those of the gateway that leads count.
    pub window: u32,
    /// Finished since its last ask.
    pub finished: Tally,
    /// Slots that it has by an unexpired lease, or without the store.
    pub holds: u32,
    /// By class.
    pub demands: Vec<Demand>,
    /// Requests that have started since its last ask, by class.
    pub started: Vec<u32>,
}

/// A message of a gateway to the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The number of the last answer that it has, 0 for none.
    pub seen: u64,
    /// How many gateways there are, as far as it knows.
    pub gateways: u32,
    /// How long its requests may go on when nothing more is heard of it, in nanoseconds.
    pub linger_ns: u64,
    /// How long its equal part of each cell is kept for it when nothing more is heard of it, in nanoseconds. Nothing is
    /// kept if its connection with the store has ended. A gateway that is cut off goes on at that part.
    pub keep_ns: u64,
    /// By cell.
    pub cells: Vec<CellAsk>,
}

/// The grant to a gateway in one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Slots.
    pub slots: u32,
    /// The part of each class's requests that is at this gateway, in thousandths.
    pub parts: Vec<u32>,
    /// The factor of each class's weight, in thousandths: more than 1000 for a class that is owed something.
    pub factors: Vec<u32>,
    /// Whether there is more demand than slots: then slots without a request are given back at once.
    pub wanted: bool,
    /// All slots of the cell.
    pub window: u32,
    /// To the gateway that leads: the requests at the others. Otherwise zeros.
    pub others: Others,
}

/// The requests of a cell at all gateways but the one that leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// They run.
    pub running: u32,
    /// They wait.
    pub waiting: u32,
    /// Finished since the last answer to the gateway that leads.
    pub finished: Tally,
}

/// The answer of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The number of this answer to the gateway.
    pub number: u64,
    /// How many gateways there are.
    pub gateways: u32,
    /// Whether this gateway adjusts the windows of the site, for as long as its lease lasts.
    pub leads: bool,
    /// By cell.
    pub cells: Vec<Grant>,
}

/// The slots of a gateway that cannot reach the store: its equal part of the window, rounded down, and at least 1.
pub fn alone(window: u32, gateways: u32) -> u32 {
    (window / gateways.max(1)).max(1)
}

impl Tally {
    /// Counts more.
    pub fn add(&mut self, more: Self) {
        self.done += more.done;
        self.failed += more.failed;
        self.service_us += more.service_us;
    }
}

impl ClassSettings {
    /// The weight and the reserve of a class under a policy.
    pub fn of(policy: Policy, class: &Class) -> Self {
        // The largest delay ratio that is told from the next smaller one.
        const FINEST: u32 = 1_000_000;
        let weight = match policy {
            Policy::Edf => {
                let deadline_ms = class.deadline_ns.map_or(u64::from(FINEST), |ns| ns / 1_000_000);
                FINEST / u32::try_from(deadline_ms).unwrap_or(FINEST).clamp(1, FINEST)
            }
            _ if policy.is_by_delay() => FINEST / class.delay_ratio.clamp(1, FINEST),
            _ => class.weight,
        };
        Self { weight: weight.max(1), reserve: if policy == Policy::Shared { class.reserved_slots } else { 0 } }
    }
}

impl Division {
    /// The division that keeps the promises of a policy. [`Policy::Fixed`] has a cell for each class, where
    /// any division is right. Deadlines are kept as proportional delays: each gateway serves its own earliest first.
    pub const fn of(policy: Policy) -> Self {
        match policy {
            Policy::Strict => Self::Strict,
            Policy::Weighted | Policy::Fixed => Self::Weighted,
            Policy::Shared => Self::Shared,
            Policy::Edf | Policy::Wtp | Policy::Pwad | Policy::Mdp | Policy::Ratio => Self::Demand,
        }
    }
}

#[cfg(test)]
mod tests;

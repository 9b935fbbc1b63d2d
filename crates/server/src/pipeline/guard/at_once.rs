//! Requests that a client has under way at once.

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32, sync::Arc};

use parking_lot::Mutex;

/// The owner of requests that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    Address(IpAddr),
    Key([u8; 32]),
    Class(u16),
}

/// The requests that each client has under way.
#[derive(Clone, Debug)]
pub(super) struct AtOnce {
    most: u32,
    /// Those that have any under way, so no more entries than requests.
    under_way: Arc<Mutex<HashMap<Who, u32>>>,
}

/// One of the requests that a client may have under way; over when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    at_once: AtOnce,
    who: Who,
}

impl AtOnce {
    pub(super) fn new(most: NonZeroU32) -> Self {
        Self { most: most.get(), under_way: Arc::default() }
    }

    /// `None`: the client has as many under way as it may.
    pub(super) fn begin(&self, who: Who) -> Option<Permit> {
        let mut under_way = self.under_way.lock();
        let count = under_way.entry(who).or_default();
        (*count < self.most).then(|| {
            *count += 1;
            Permit { at_once: self.clone(), who }
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut under_way = self.at_once.under_way.lock();
        if let Some(count) = under_way.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(number: u8) -> Who {
        Who::Address(IpAddr::from([192, 0, 2, number]))
    }

    #[test]
    fn a_request_that_is_over_makes_room_and_leaves_nothing() {
        let at_once = AtOnce::new(NonZeroU32::new(2).unwrap());
        let (first, second) = (at_once.begin(who(1)), at_once.begin(who(1)));
        assert!(first.is_some() && second.is_some() && at_once.begin(who(1)).is_none());
        assert!(at_once.begin(who(2)).is_some(), "others have their own");
        drop(first);
        assert!(at_once.begin(who(1)).is_some());
        drop(second);
        assert!(at_once.under_way.lock().is_empty());
    }
}

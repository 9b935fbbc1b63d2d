//! Counts the requests or connections that a client has under way.

use std::{collections::HashMap, num::NonZeroU32, sync::Arc};

use parking_lot::Mutex;

use crate::who::Who;

/// The requests or connections that each client has under way.
#[derive(Clone, Debug, Default)]
pub struct AtOnce {
    /// Of those that have any, so no more entries than there are permits.
    under_way: Arc<Mutex<HashMap<Who, u32>>>,
}

/// One of those that a client may have under way; over when this is dropped.
#[derive(Debug)]
pub struct Permit {
    at_once: AtOnce,
    who: Who,
}

impl AtOnce {
    /// `None`: the client has `most` under way already, or more.
    pub fn begin(&self, who: Who, most: NonZeroU32) -> Option<Permit> {
        let mut under_way = self.under_way.lock();
        let count = under_way.get(&who).copied().unwrap_or_default();
        (count < most.get()).then(|| {
            under_way.insert(who, count + 1);
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
    use std::net::IpAddr;

    use super::*;

    fn who(number: u8) -> Who {
        Who::Address(IpAddr::from([192, 0, 2, number]))
    }

    #[test]
    fn a_request_that_is_over_makes_room_and_leaves_nothing() {
        let at_once = AtOnce::default();
        let begin = |who| at_once.begin(who, NonZeroU32::new(2).unwrap());
        let (first, second) = (begin(who(1)), begin(who(1)));
        assert!(first.is_some() && second.is_some() && begin(who(1)).is_none());
        assert!(begin(who(2)).is_some(), "others have their own");
        drop(first);
        assert!(begin(who(1)).is_some());
        drop(second);
        assert!(at_once.under_way.lock().is_empty());
    }
}

//! Counts the requests or connections that a client has under way.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::who::Who;

/// The requests or connections that each client has under way.
#[derive(Clone, Debug, Default)]
pub struct AtOnce {
    /// Of those that have any, so no more entries than there are permits.
    under_way: Arc<Mutex<HashMap<Who, u32>>>,
    /// The counts heard from other gateways, where several have one limit together.
    elsewhere: Arc<OnceLock<Mutex<Elsewhere>>>,
}

/// The counts of requests at other gateways.
#[derive(Debug, Default)]
struct Elsewhere {
    /// By client; of those only that have any.
    under_way: HashMap<Who, u32>,
    heard_at: Option<Instant>,
}

/// One of those that a client may have under way; over when this is dropped.
#[derive(Debug)]
pub struct Permit {
    at_once: AtOnce,
    who: Who,
}

/// The word of other gateways counts for so long.
pub const HEARD_FOR: Duration = Duration::from_secs(1);

impl AtOnce {
    /// Counts requests at other gateways, too, from now on.
    pub(crate) fn share(&self) {
        let _ = self.elsewhere.set(Mutex::default());
    }

    /// Whether requests at other gateways count.
    pub(crate) fn is_shared(&self) -> bool {
        self.elsewhere.get().is_some()
    }

    /// The requests of each client here, to tell others: of at most `most` clients, those with the most requests.
    pub(crate) fn tell(&self, most: usize) -> Vec<(Who, u32)> {
        let mut counts: Vec<(Who, u32)> = self.under_way.lock().iter().map(|(who, count)| (*who, *count)).collect();
        counts.sort_unstable_by_key(|&(_, count)| std::cmp::Reverse(count));
        counts.truncate(most);
        counts
    }

    /// Takes the counts that other gateways have told.
    pub(crate) fn hear(&self, counts: impl Iterator<Item = (Who, u32)>, now: Instant) {
        if let Some(elsewhere) = self.elsewhere.get() {
            let mut elsewhere = elsewhere.lock();
            elsewhere.under_way = counts.filter(|(_, count)| *count > 0).collect();
            elsewhere.heard_at = Some(now);
        }
    }

    fn elsewhere(&self, who: Who, now: Instant) -> u32 {
        let Some(elsewhere) = self.elsewhere.get() else { return 0 };
        let elsewhere = elsewhere.lock();
        let is_new = elsewhere.heard_at.is_some_and(|at| now.saturating_duration_since(at) < HEARD_FOR);
        if is_new { elsewhere.under_way.get(&who).copied().unwrap_or_default() } else { 0 }
    }

    /// `None`: the client has `most` under way already, or more.
    pub fn begin(&self, who: Who, most: NonZeroU32) -> Option<Permit> {
        // The clock is asked only where others are heard.
        let elsewhere = if self.elsewhere.get().is_some() { self.elsewhere(who, Instant::now()) } else { 0 };
        let mut under_way = self.under_way.lock();
        let count = under_way.get(&who).copied().unwrap_or_default();
        (count.saturating_add(elsewhere) < most.get()).then(|| {
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

    #[test]
    fn requests_at_other_gateways_count_for_as_long_as_they_say_so() {
        let at_once = AtOnce::default();
        assert!(!at_once.is_shared());
        at_once.share();
        let begin = |who| at_once.begin(who, NonZeroU32::new(2).unwrap());
        let first = begin(who(1));
        let _other = begin(who(2));
        let mut told = at_once.tell(10);
        told.sort_unstable_by_key(|(who, _)| format!("{who:?}"));
        assert_eq!(told, [(who(1), 1), (who(2), 1)]);
        at_once.hear([(who(1), 1), (who(2), 0)].into_iter(), Instant::now());
        assert!(begin(who(1)).is_none() && begin(who(2)).is_some());
        at_once.hear([(who(1), 1)].into_iter(), Instant::now() - HEARD_FOR);
        assert!(begin(who(1)).is_some(), "that was long ago");
        drop(first);
        assert_eq!(at_once.tell(1), [(who(2), 1)]);
    }
}

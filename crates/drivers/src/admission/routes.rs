//! Estimates how long the site takes for the requests of each route.
//!
//! The estimate is a moving average in which each request counts for an eighth. It follows a change within a
//! few dozen requests, and one slow request does not reverse the order. Unused routes are forgotten, so their
//! number is bounded.

use quick_cache::unsync::Cache;

/// Most routes remembered.
const ROUTES: usize = 1024;
/// A new service time counts for one part in this many.
const PARTS: u64 = 8;

#[derive(Debug)]
pub(super) struct Routes {
    mean_ns: Cache<u64, u64>,
}

impl Routes {
    pub fn new() -> Self {
        Self { mean_ns: Cache::new(ROUTES) }
    }

    /// `None` for a route that is not known.
    pub fn expected_ns(&self, route: u64) -> Option<u64> {
        self.mean_ns.get(&route).copied()
    }

    pub fn learn(&mut self, route: u64, service_ns: u64) {
        if let Some(mut mean_ns) = self.mean_ns.get_mut(&route) {
            let (old, parts) = (u128::from(*mean_ns), u128::from(PARTS));
            *mean_ns = ((old * (parts - 1) + u128::from(service_ns)) / parts) as u64;
            return;
        }
        self.mean_ns.insert(route, service_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_is_taken_and_later_ones_move_it_by_an_eighth() {
        let mut routes = Routes::new();
        assert_eq!(routes.expected_ns(7), None);
        routes.learn(7, 800);
        assert_eq!(routes.expected_ns(7), Some(800));
        routes.learn(7, 1600);
        assert_eq!(routes.expected_ns(7), Some(900));
        for _ in 0..100 {
            routes.learn(7, u64::MAX);
        }
        assert!(routes.expected_ns(7).is_some_and(|ns| ns > u64::MAX / 2), "no overflow");
    }

    #[test]
    fn no_more_routes_are_kept_than_the_bound() {
        let mut routes = Routes::new();
        for route in 0..10_000 {
            routes.learn(route, 1);
        }
        let kept = (0..10_000).filter(|&route| routes.expected_ns(route).is_some()).count();
        assert!((1..=ROUTES).contains(&kept), "{kept}");
    }
}

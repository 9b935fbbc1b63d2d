//! Derives from the setting of a point what its numbers depend on.

use workload::{
    rate::Link,
    stats::alone::{AlonePoint, AloneTimes, GroupPath},
    wire::WireModel,
};

use crate::{
    plan,
    record::{CellRecord, Point},
    setting::DemandSetting,
};

/// The link, the cost of a request on it, and which requests count.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) link: Link,
    pub(super) wire: WireModel,
    /// Requests planned before this time are warm-up.
    pub(super) from_ns: u64,
    /// End of sending.
    pub(super) until_ns: u64,
    /// Whether every subject gets the same requests at the same times.
    pub(super) open_loop: bool,
    /// The reason why the ideal is only a bound here; empty where it serves the same requests on the same
    /// link.
    pub(super) ideal_is_bound: String,
}

impl Conditions {
    /// Makes the conditions. The error names an impossible setting, which no run that has begun has.
    pub(super) fn new(point: &Point) -> Result<Self, String> {
        let setting = &point.setting;
        let link = plan::link(&setting.link).map_err(|error| error.to_string())?;
        let open_loop = matches!(setting.demand, DemandSetting::Open { .. } | DemandSetting::Trace { .. });
        let mut reasons = Vec::new();
        if !open_loop {
            reasons.push("users wait for answers, so a faster server would have been asked earlier: the first subject's own requests are taken");
        }
        if !setting.link.uploads.is_empty() {
            reasons.push("uploads of another machine take a part of the link");
        }
        if setting.groups.iter().any(|group| group.path != Default::default()) {
            reasons.push("paths add round trips and loss that a bare link does not have");
        }
        Ok(Self {
            link,
            wire: plan::wire(setting),
            from_ns: ns(setting.time.warm_up_s),
            until_ns: ns(setting.time.seconds),
            open_loop,
            ideal_is_bound: reasons.join("; "),
        })
    }

    /// Times alone, from the single requests of the point's sound cells. All subjects share one denominator.
    pub(super) fn alone<'a>(&self, point: &Point, cells: impl Iterator<Item = &'a CellRecord>) -> AloneTimes {
        let points: Vec<AlonePoint> = cells
            .flat_map(|cell| &cell.facts.alone)
            .map(|alone| AlonePoint {
                group: alone.group,
                size_bytes: alone.size_bytes,
                least_ms: alone.least_ms,
                median_ms: alone.measured_ms,
            })
            .collect();
        let paths = point.setting.groups.iter().map(|group| &group.path);
        let group_paths: Vec<GroupPath> =
            paths.map(|path| GroupPath { line: path.rate, jitters: path.jitter_ms > 0.0 }).collect();
        AloneTimes::new(&points, self.wire, self.link.clone(), &group_paths)
    }
}

/// Converts seconds to nanoseconds. Negative seconds and NaN become zero.
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(toml: &str) -> Point {
        Point { label: String::new(), values: Default::default(), setting: toml::from_str(toml).unwrap() }
    }

    #[test]
    fn connections_and_segments_change_the_cost_of_a_request() {
        assert_eq!(Conditions::new(&point("")).unwrap().wire, WireModel::PER_CONNECTION);
        let kept = Conditions::new(&point("clients.requests-per-connection = 0")).unwrap();
        assert_eq!(kept.wire, WireModel::KEPT_ALIVE);
        let five =
            Conditions::new(&point("clients.requests-per-connection = 5\n[[groups]]\npath.mss-bytes = 536")).unwrap();
        assert_eq!((five.wire.control_bytes, five.wire.segment_bytes), (54, 524));
    }

    #[test]
    fn the_ideal_is_called_a_bound_where_it_is_one() {
        assert_eq!(Conditions::new(&point("")).unwrap().ideal_is_bound, "");
        let users = Conditions::new(&point("demand.kind = 'users'\ndemand.users = 9")).unwrap();
        assert!(!users.open_loop && users.ideal_is_bound.contains("users wait"));
        let far = Conditions::new(&point("[[groups]]\npath.rtt-ms = 50")).unwrap();
        assert!(far.open_loop && far.ideal_is_bound.contains("paths"));
        let shared = Conditions::new(&point("link.uploads = [{ from-s = 1, until-s = 2 }]")).unwrap();
        assert!(shared.open_loop && shared.ideal_is_bound.contains("uploads"));
        assert!(Conditions::new(&point("link.rate-changes = [[5, '1mbit'], [4, '2mbit']]")).is_err());
    }
}

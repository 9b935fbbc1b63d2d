//! The time that a request takes on the idle system: the denominator of a slowdown.
//!
//! Single requests of a few sizes are measured before the load. Between those sizes, the time is the known
//! wire time plus an interpolated overhead: the server's work, the round trips of the handshake, slow start.
//! Interpolating the overhead and not the time keeps the steps of the wire time, and follows a link that
//! changes its rate.

use std::collections::BTreeMap;

use super::median;
use crate::{
    rate::{Link, Rate},
    wire::WireModel,
};

/// Several single requests of one size on the idle system, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlonePoint {
    /// Number of the client group.
    pub group: u16,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// The shortest measured time, in milliseconds.
    pub least_ms: f64,
    /// The median, in milliseconds.
    pub median_ms: f64,
}

/// The network path of a client group, as far as its time alone depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupPath {
    /// Rate of the group's own line; `None` where the link is the only bottleneck.
    pub line: Option<Rate>,
    /// Whether the path's delay varies. Then the minimum is luck and shrinks with more measurements, so the
    /// median counts. Else the minimum counts, since a longer time had causes outside of the measured system.
    pub jitters: bool,
}

/// Times on the idle system by group and size.
#[derive(Clone, Debug)]
pub struct AloneTimes {
    wire: WireModel,
    link: Link,
    /// By number of the group; a missing group is directly on the link.
    paths: Vec<GroupPath>,
    /// By group: wire bytes in rising order, and overhead in nanoseconds.
    overheads: BTreeMap<u16, Vec<(f64, f64)>>,
}

impl AloneTimes {
    /// Makes the table from single requests measured at the link's first rate. Of several points with the
    /// same group and size the minimum counts, or the median of the medians, as [`GroupPath::jitters`] says. So
    /// pass the points of all runs that are to be compared. A group without points has no overhead.
    pub fn new(points: &[AlonePoint], wire: WireModel, link: Link, paths: &[GroupPath]) -> Self {
        let mut times = Self { wire, link, paths: paths.to_vec(), overheads: BTreeMap::new() };
        let mut by_size: BTreeMap<(u16, u64), Vec<f64>> = BTreeMap::new();
        for point in points {
            let ms = if times.path(point.group).jitters { point.median_ms } else { point.least_ms };
            if ms.is_finite() {
                by_size.entry((point.group, point.size_bytes)).or_default().push(ms);
            }
        }
        for ((group, size_bytes), of_runs_ms) in by_size {
            let alone_ms = if times.path(group).jitters {
                median(of_runs_ms)
            } else {
                of_runs_ms.into_iter().fold(f64::INFINITY, f64::min)
            };
            let wire_ns = times.wire_ns(group, size_bytes, 0);
            let overhead_ns = (alone_ms * 1e6 - wire_ns).max(0.0);
            let wire_bytes = times.wire.bytes_for(size_bytes) as f64;
            times.overheads.entry(group).or_default().push((wire_bytes, overhead_ns));
        }
        times
    }

    /// Time alone of a request sent at `at_ns`, in nanoseconds. Outside of the measured sizes the overhead is
    /// that of the nearest measured size.
    pub fn ns(&self, group: u16, size_bytes: u64, at_ns: u64) -> f64 {
        let overheads = self.overheads.get(&group).map_or(&[][..], Vec::as_slice);
        self.wire_ns(group, size_bytes, at_ns) + interpolate(overheads, self.wire.bytes_for(size_bytes) as f64)
    }

    /// Whether single requests of this group were measured.
    pub fn knows(&self, group: u16) -> bool {
        self.overheads.contains_key(&group)
    }

    fn path(&self, group: u16) -> GroupPath {
        self.paths.get(usize::from(group)).copied().unwrap_or_default()
    }

    fn wire_ns(&self, group: u16, size_bytes: u64, at_ns: u64) -> f64 {
        let link = self.link.rate_at(at_ns);
        self.path(group).line.map_or(link, |line| line.min(link)).ns_for(self.wire.bytes_for(size_bytes) as f64)
    }
}

/// Linear interpolation between `points`, which rise in x; constant outside. 0 without points.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|&(at, _)| at <= x);
    match (after.checked_sub(1).map(|before| points[before]), points.get(after)) {
        (None, None) => 0.0,
        (Some((_, y)), None) => y,
        (None, Some(&(_, y))) => y,
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(group: u16, size_bytes: u64, least_ms: f64) -> AlonePoint {
        AlonePoint { group, size_bytes, least_ms, median_ms: 2.0 * least_ms }
    }

    /// A byte takes a millisecond, and half of one from second 10 on.
    fn link() -> Link {
        let rate = |text: &str| text.parse().unwrap();
        Link::constant(rate("8kbit")).then(10_000_000_000, rate("16kbit")).unwrap()
    }

    #[test]
    fn the_overhead_is_interpolated_between_the_sizes_measured_and_held_outside() {
        // Overheads of 5 ms at 100 bytes and 25 ms at 300.
        let points = [point(0, 100, 105.0), point(0, 300, 325.0), point(0, 300, 400.0)];
        let alone = AloneTimes::new(&points, WireModel::BODY_ONLY, link(), &[]);
        let ms = |size, at_s: u64| alone.ns(0, size, at_s * 1_000_000_000) / 1e6;
        assert_eq!([ms(50, 0), ms(100, 0), ms(200, 0), ms(300, 0), ms(1000, 0)], [55.0, 105.0, 215.0, 325.0, 1025.0]);
        assert_eq!(ms(200, 10), 115.0, "twice the rate halves the wire time, not the overhead");
    }

    #[test]
    fn groups_have_their_own_distance_and_line() {
        let points = [point(0, 100, 100.0), point(1, 100, 1100.0)];
        let line = Some(Rate::from_bits_per_second(8_000).unwrap());
        let paths = [GroupPath::default(), GroupPath::default(), GroupPath { line, jitters: false }];
        let fast = Link::constant("16kbit".parse().unwrap());
        let alone = AloneTimes::new(&points, WireModel::BODY_ONLY, fast, &paths);
        assert_eq!([0, 1, 2].map(|group| alone.ns(group, 100, 0) / 1e6), [100.0, 1100.0, 100.0]);
        assert!(alone.knows(1) && !alone.knows(2));
    }

    #[test]
    fn under_jitter_the_time_alone_does_not_sink_as_more_runs_are_measured() {
        let paths = [GroupPath { line: None, jitters: true }];
        let ms = |of_runs_ms: &[f64]| {
            let points: Vec<AlonePoint> =
                of_runs_ms.iter().map(|&median_ms| AlonePoint { median_ms, ..point(0, 100, 100.0) }).collect();
            AloneTimes::new(&points, WireModel::BODY_ONLY, link(), &paths).ns(0, 100, 0) / 1e6
        };
        assert_eq!([ms(&[150.0, 160.0, 140.0]), ms(&[150.0, 160.0, 140.0, 130.0, 170.0])], [150.0, 150.0]);
    }

    #[test]
    fn a_time_below_the_wire_time_is_the_wire_time() {
        let alone = AloneTimes::new(&[point(0, 100, 90.0)], WireModel::BODY_ONLY, link(), &[]);
        assert_eq!(alone.ns(0, 100, 0), 100e6);
    }
}

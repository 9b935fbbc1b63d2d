//! Single requests before the load: the denominators of slowdowns.

use super::Plan;

/// Requests on an idle link, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleRequests {
    /// Numbers of the files.
    pub files: Vec<usize>,
    /// Number of requests by each client group for each file.
    pub repeats: usize,
}

/// Places of the files in the order of their sizes, as fractions. In a set for a heavy tail, half of the
/// files are the body up to the 90th percentile, and the last quarter the largest 1 %.
const PLACES: [f64; 5] = [0.0, 0.25, 0.5, 0.625, 0.75];
const REPEATS: usize = 5;
/// Over a distance round trips dominate and every request is slow, so fewer are enough.
const PLACES_FAR: [f64; 3] = [0.0, 0.5, 0.75];
const REPEATS_FAR: usize = 3;
/// Files that take longer on the ideal link are not requested, since only the link matters for them.
const LONGEST_WIRE_NS: f64 = 1e9;

impl Plan {
    /// The single requests of files of these sizes.
    pub fn single_requests(&self, sizes_bytes: &[u64]) -> SingleRequests {
        let far = self.groups.iter().any(|group| group.setting.path.rtt_ms > 0.0);
        let (places, repeats) = if far { (&PLACES_FAR[..], REPEATS_FAR) } else { (&PLACES[..], REPEATS) };
        let short = |&file: &usize| file == 0 || self.wire_ns(sizes_bytes[file]) <= LONGEST_WIRE_NS;
        let mut by_size: Vec<usize> = (0..sizes_bytes.len()).filter(short).collect();
        by_size.sort_by_key(|&file| sizes_bytes[file]);
        let at = |place: &f64| by_size.get((place * by_size.len().saturating_sub(1) as f64) as usize);
        let mut files: Vec<usize> = places.iter().filter_map(at).copied().collect();
        files.dedup();
        SingleRequests { files, repeats }
    }

    /// Time of a response of this size on the ideal link at its first rate, in nanoseconds.
    pub fn wire_ns(&self, size_bytes: u64) -> f64 {
        self.link.first_rate().ns_for(self.wire.bytes_for(size_bytes) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Inputs;

    fn plan(toml: &str) -> Plan {
        Plan::new(&toml::from_str(toml).unwrap(), &mut Inputs::default()).unwrap()
    }

    #[test]
    fn files_of_several_sizes_are_asked_for_and_none_that_takes_long() {
        let sizes = [100, 9000, 200, 300, 400, 10_000_000, 500, 600, 700];
        let asked = plan("").single_requests(&sizes);
        assert_eq!((asked.files, asked.repeats), (vec![0, 2, 4, 6, 7], 5));
        let far = plan("[[groups]]\npath.rtt-ms = 50").single_requests(&sizes);
        assert_eq!((far.files, far.repeats), (vec![0, 4, 7], 3));
        assert_eq!(plan("").single_requests(&[10_000_000]).files, [0], "if there is no other");
        assert_eq!(plan("").single_requests(&[]).files, [0; 0]);
    }
}

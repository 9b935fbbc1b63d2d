//! Classes of sizes, in steps of 1, 2, 5.

/// Number of classes: one for responses without a body, then three a decade up to 1 TB.
pub(super) const CLASSES: usize = 1 + 3 * DECADES;
const DECADES: usize = 12;
const STEPS: [u64; 3] = [1, 2, 5];

/// Returns the class of a size.
pub(super) fn class(size_bytes: u64) -> usize {
    if size_bytes == 0 {
        return 0;
    }
    let decade = size_bytes.ilog10() as usize;
    if decade >= DECADES {
        return CLASSES - 1;
    }
    let lead = size_bytes / 10_u64.pow(decade as u32);
    1 + 3 * decade + STEPS.iter().rposition(|&step| step <= lead).unwrap_or(0)
}

/// Returns the smallest size of a class, and the first size above the class.
pub(super) fn bounds(class: usize) -> (u64, u64) {
    let from = |class: usize| match class {
        0 => 0,
        _ => STEPS[(class - 1) % 3] * 10_u64.pow(((class - 1) / 3) as u32),
    };
    (from(class), from(class + 1))
}

/// Returns the classes of each decade, for tables. The first class stands alone.
pub(super) fn decades() -> impl Iterator<Item = std::ops::Range<usize>> {
    // Differences below a kilobyte do not matter, so those decades are one range.
    let first = 1 + 3 * 3;
    [0..1, 1..first].into_iter().chain((first..CLASSES).step_by(3).map(|class| class..class + 3))
}

/// Requests and work by class of size.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    pub(super) requests: [u64; CLASSES],
    pub(super) wire_bytes: [u64; CLASSES],
}

impl Default for Cells {
    fn default() -> Self {
        Self { requests: [0; CLASSES], wire_bytes: [0; CLASSES] }
    }
}

impl Cells {
    pub(super) fn add(&mut self, size_bytes: u64, wire_bytes: u64) {
        let class = class(size_bytes);
        self.requests[class] += 1;
        self.wire_bytes[class] = self.wire_bytes[class].saturating_add(wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_lies_within_the_bounds_of_its_class() {
        let sizes = (0..13).flat_map(|power| [1, 2, 3, 4, 5, 9].map(|lead| lead * 10_u64.pow(power)));
        for size in sizes.flat_map(|size| [size - 1, size, size + 1]).filter(|&size| size < 10_u64.pow(12)) {
            let (from, below) = bounds(class(size));
            assert!((from..below).contains(&size), "{size} in {from}..{below}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1, "what is larger than all counts as the largest");
    }

    #[test]
    fn decades_hold_every_class_once() {
        let all: Vec<usize> = decades().flatten().collect();
        assert_eq!(all, (0..CLASSES).collect::<Vec<_>>());
        let bounds: Vec<u64> = decades().map(|classes| bounds(classes.start).0).take(5).collect();
        assert_eq!(bounds, [0, 1, 1000, 10_000, 100_000]);
    }
}

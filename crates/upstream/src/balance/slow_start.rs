//! A server that comes back starts with a part of its weight, which grows until it has all of it. Its caches are cold and
//! its program is not yet compiled, so its whole share at once would be too much.

/// The first part, in percent.
const FIRST: u64 = 10;

/// The part of its weight that a server has, in percent, some time after it came back.
pub(crate) fn percent(since_ns: u64, whole_ns: u64) -> u32 {
    if since_ns >= whole_ns {
        return 100;
    }
    (FIRST + u128::from(100 - FIRST) as u64 * (since_ns / 1_000) / (whole_ns / 1_000).max(1)).min(100) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_server_starts_with_a_tenth() {
        let parts: Vec<_> = (0..=4).map(|quarter| percent(quarter * 5_000_000_000, 20_000_000_000)).collect();
        assert_eq!(parts, [10, 32, 55, 77, 100]);
        assert_eq!(percent(0, 0), 100);
    }

    proptest! {
        #[test]
        fn the_part_only_grows(one in 0..100_000_000_000_u64, other in 0..100_000_000_000_u64, whole in 1..100_000_000_000_u64) {
            let (first, second) = (one.min(other), one.max(other));
            prop_assert!(percent(first, whole) <= percent(second, whole));
            prop_assert!((10..=100).contains(&percent(first, whole)));
        }
    }
}

//! The typical size of recent responses.

/// The geometric mean of the sizes of the last responses. A few very large ones among many small ones hardly move it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TypicalSize {
    /// The mean of the logarithms, to base 2.
    log2: f64,
    /// Responses seen, at most [`MEMORY`].
    seen: u32,
}

/// The memory, in responses.
const MEMORY: u32 = 64;
/// So many are needed to know it.
const LEAST: u32 = 16;

impl TypicalSize {
    /// A response of this size begins.
    pub fn handle_size(&mut self, bytes: u64) {
        self.seen = (self.seen + 1).min(MEMORY);
        self.log2 += (libm::log2(bytes.max(1) as f64) - self.log2) / f64::from(self.seen);
    }

    /// In bytes; `None` while too few were seen.
    pub fn bytes(&self) -> Option<u64> {
        (self.seen >= LEAST).then(|| libm::exp2(self.log2) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_large_sizes_hardly_move_it_and_a_new_mix_does() {
        let mut typical = TypicalSize::default();
        for at in 0..320_u64 {
            assert_eq!(typical.bytes().is_some(), at >= 16);
            typical.handle_size(if at % 32 == 31 { 100_000_000 } else { 1_000 });
        }
        assert!((1_000..2_500).contains(&typical.bytes().unwrap()), "{typical:?}");
        for _ in 0..320 {
            typical.handle_size(100_000);
        }
        assert!((90_000..110_000).contains(&typical.bytes().unwrap()), "{typical:?}");
        typical.handle_size(0);
        typical.handle_size(u64::MAX);
        assert!(typical.bytes().is_some());
    }
}

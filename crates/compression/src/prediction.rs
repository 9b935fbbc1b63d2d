//! How long a compressed body will be.
//!
//! The intuition: bodies of one place compress alike, and the rest of a body compresses as its beginning did. So the
//! ratio of earlier bodies stands for a body of which little has passed, and its own ratio counts the more, the more of
//! it has passed.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// Text is about a quarter of its size when compressed. Holds until a body has passed.
const FIRST_RATIO: f32 = 0.25;
/// The part of the learned ratio that one body makes.
const WEIGHT: f32 = 0.125;
/// So many bytes of a body count as much as what was learned before.
const PRIOR_BYTES: f32 = 65_536.0;

/// The learned ratio of compressed to plain bytes, shared by the bodies of one place. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ratio(Arc<AtomicU32>);

impl Default for Ratio {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(FIRST_RATIO.to_bits())))
    }
}

impl Ratio {
    pub(crate) fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Relaxed))
    }

    /// A body has ended.
    pub(crate) fn learn(&self, plain_bytes: u64, compressed_bytes: u64) {
        if plain_bytes > 0 {
            let seen = compressed_bytes as f32 / plain_bytes as f32;
            // Two bodies that end at once may overwrite each other. Then one of them is not learned from.
            self.0.store((self.get() + WEIGHT * (seen - self.get())).to_bits(), Relaxed);
        }
    }
}

/// The bytes that a compressed body is expected to have left. Cheap to clone; follows the body while it is sent.
#[derive(Clone, Debug)]
pub struct Prediction(Arc<AtomicU64>);

impl Prediction {
    /// For a body of which so many plain bytes are left.
    pub(crate) fn new(plain_bytes: u64, ratio: &Ratio) -> Self {
        Self(Arc::new(AtomicU64::new(scaled(plain_bytes, ratio.get()))))
    }

    /// Compressed bytes that are expected to be left.
    pub fn left_bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// So many plain bytes of the body have passed and became so many, and so many plain bytes are left.
    pub(crate) fn update(&self, ratio: &Ratio, plain_bytes: u64, compressed_bytes: u64, left_bytes: u64) {
        let prior = ratio.get() * PRIOR_BYTES;
        let ratio = (prior + compressed_bytes as f32) / (PRIOR_BYTES + plain_bytes as f32);
        self.0.store(scaled(left_bytes, ratio), Relaxed);
    }
}

fn scaled(bytes: u64, ratio: f32) -> u64 {
    (bytes as f64 * f64::from(ratio)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prediction_moves_from_what_was_learned_to_what_is_seen() {
        let ratio = Ratio::default();
        let prediction = Prediction::new(1_000_000, &ratio);
        assert_eq!(prediction.left_bytes(), 250_000);
        // The body does not compress at all.
        prediction.update(&ratio, 500_000, 500_000, 500_000);
        assert!((450_000..500_000).contains(&prediction.left_bytes()), "{prediction:?}");
        prediction.update(&ratio, 1_000_000, 1_000_000, 0);
        assert_eq!(prediction.left_bytes(), 0);
    }

    #[test]
    fn the_ratio_of_bodies_is_learned() {
        let ratio = Ratio::default();
        for _ in 0..60 {
            ratio.learn(1000, 900);
        }
        assert!((ratio.get() - 0.9).abs() < 0.01, "{ratio:?}");
        ratio.learn(0, 20);
        assert!((ratio.get() - 0.9).abs() < 0.01, "an empty body teaches nothing");
    }
}

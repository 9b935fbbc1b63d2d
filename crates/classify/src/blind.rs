//! Keyed hashes with a secret of this process.

use aws_lc_rs::{hmac, rand::SystemRandom};

/// A random secret key, for hashes that must reveal nothing.
pub(crate) fn random_key() -> hmac::Key {
    hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("the system has randomness")
}

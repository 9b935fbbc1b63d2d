//! What several looks say together, none of which is clear.
//!
//! Each look finds the likeliest rate, and how much likelier that is than others. By this evidence the rates are averaged. It
//! takes enough evidence, and the rates have to be alike.

use crate::round_trips::Slope;

/// The looks so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faint {
    /// The evidence: by how much the rates that were found are likelier than others, in nats. Older looks count for less.
    nats: f64,
    /// Sums of the logarithms of these rates and of their squares, each with its evidence.
    log: f64,
    squares: f64,
}

/// So much evidence is enough, in nats. Older evidence fades over this time. The relative errors of rates that are alike, and
/// of their mean.
const NATS: f64 = 3.0;
const OVER_NS: f64 = 2e9;
const SPREAD: f64 = 0.03;
const ERROR: f64 = 0.04;

impl Faint {
    /// Older looks count for less after this time.
    pub fn fade(&mut self, elapsed_ns: u64) {
        let left = libm::exp(-(elapsed_ns as f64) / OVER_NS);
        (self.nats, self.log, self.squares) = (self.nats * left, self.log * left, self.squares * left);
    }

    /// Takes a look: the rate that it found, in bits per second, and the evidence for that.
    pub fn add(&mut self, bits: f64, nats: f64) {
        let log = libm::log(bits);
        self.nats += nats;
        self.log += nats * log;
        self.squares += nats * log * log;
    }

    /// The mean of the rates, if there is enough evidence and they are alike.
    pub fn rate(&self) -> Option<Slope> {
        let mean = self.log / self.nats;
        let variance = self.squares / self.nats - mean * mean;
        let bits = libm::exp(mean);
        let is_enough = self.nats >= NATS && variance <= SPREAD * SPREAD;
        is_enough.then_some(Slope { bits, error: bits * ERROR })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    #[test]
    fn looks_with_little_evidence_show_nothing_nor_do_those_that_differ_or_are_old() {
        let rate = |looks: &[(f64, f64)], ms: u64| {
            let mut faint = Faint::default();
            looks.iter().for_each(|(bits, nats)| faint.add(*bits, *nats));
            faint.fade(ms * MS);
            faint.rate().map(|slope| slope.bits.round())
        };
        let alike = [(98e6, 2.0), (102e6, 2.0)];
        assert_eq!(rate(&alike, 0), Some(99_979_998.0));
        assert_eq!(rate(&alike, 600), None);
        assert_eq!(rate(&[(98e6, 2.0)], 0), None);
        assert_eq!(rate(&[(90e6, 2.0), (110e6, 2.0)], 0), None);
        assert_eq!(rate(&[], 0), None);
    }
}

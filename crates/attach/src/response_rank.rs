//! The ranks that a Serpent server gives the classifier for what its connections send. The server knows the lengths of
//! responses also under TLS and with HTTP/2.

/// Words that the map holds for a connection.
const WORDS: usize = 4;

const WORD_BYTES: usize = 16;

/// Bytes of the value in the map.
pub const RANKS_BYTES: usize = WORDS * WORD_BYTES;

/// The rank of the response that a connection sends from an offset on. The type is that of `bpf/attach.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseRank {
    /// The bytes by which it is ranked.
    pub measure: Measure,
    /// The place where this begins to hold: bytes that the connection has sent before it.
    pub offset: u64,
    /// The number of the response's class; 0 goes first.
    pub class: u8,
    /// Classes in strict order, at least 1.
    pub classes: u8,
    /// Whether this is the first word of its response.
    pub is_new: bool,
}

/// The bytes by which a response is ranked: those that are left, or those that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// So many bytes are left.
    Left(u64),
    /// So many bytes were sent before.
    Sent(u64),
}

impl ResponseRank {
    /// The last words on a connection as the map holds them, in the order of their bytes.
    pub fn to_value(words: &[Self]) -> [u8; RANKS_BYTES] {
        let mut value = [0; RANKS_BYTES];
        let last = words.iter().skip(words.len().saturating_sub(WORDS));
        for (place, word) in value.chunks_exact_mut(WORD_BYTES).zip(last) {
            place.copy_from_slice(&word.to_bytes());
        }
        value
    }

    fn to_bytes(self) -> [u8; WORD_BYTES] {
        let (amount, by_sent) = match self.measure {
            Measure::Left(bytes) => (bytes, 0),
            Measure::Sent(bytes) => (bytes, 2),
        };
        let mut bytes = [0; WORD_BYTES];
        bytes[..8].copy_from_slice(&amount.to_ne_bytes());
        // The program counts as TCP does, in 32 bits.
        bytes[8..12].copy_from_slice(&(self.offset as u32).to_ne_bytes());
        bytes[12..15].copy_from_slice(&[self.class, self.classes, u8::from(self.is_new) | by_sent]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_laid_out_as_the_program_reads_it() {
        let told = ResponseRank { measure: Measure::Left(7), offset: 1 << 32 | 5, class: 1, classes: 3, is_new: true };
        let mut expected = [7u64.to_ne_bytes(), [0; 8]].concat();
        expected[8..12].copy_from_slice(&5u32.to_ne_bytes());
        expected[12..15].copy_from_slice(&[1, 3, 1]);
        assert_eq!(told.to_bytes()[..], expected);
        let told = ResponseRank { measure: Measure::Sent(7), is_new: false, ..told };
        assert_eq!(told.to_bytes()[14], 2);
    }

    #[test]
    fn the_last_words_are_handed_over_in_their_order() {
        let told = |offset| ResponseRank { measure: Measure::Left(7), offset, class: 0, classes: 1, is_new: false };
        let offsets = |words: &[ResponseRank]| -> Vec<u8> {
            ResponseRank::to_value(words).chunks_exact(WORD_BYTES).map(|word| word[8] * word[13]).collect()
        };
        assert_eq!(offsets(&[told(3)]), [3, 0, 0, 0]);
        assert_eq!(offsets(&[1, 2, 3, 4, 5].map(told)), [2, 3, 4, 5]);
    }
}

//! The words that the kernel is given on a connection in kernel mode.
//!
//! A word holds from a byte of the connection on, until the next word does. Bytes may wait in the socket while the server
//! tells of the next response already. So the kernel is given the last few words, each with the byte where it begins.

use crate::uplink::{Measure, ResponseRank};

/// Words that the kernel keeps of a connection.
const WORDS: usize = 4;

/// The kernel counts bytes in 32 bits, so it is told again in time.
const AGAIN_BYTES: u64 = 1 << 30;

/// The last words on a connection, in the order of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    words: [ResponseRank; WORDS],
    count: usize,
}

impl From<ResponseRank> for Words {
    fn from(told: ResponseRank) -> Self {
        Self { words: [told; WORDS], count: 1 }
    }
}

impl Words {
    pub fn as_slice(&self) -> &[ResponseRank] {
        &self.words[..self.count]
    }

    /// Adds a word; `false`: the last one says the same. Bytes before it that the client does not have yet,
    /// `unacked_bytes`, go with a word that is much better than the last one, because its own cannot arrive before them.
    pub fn push(&mut self, told: ResponseRank, unacked_bytes: impl FnOnce() -> u64) -> bool {
        let last = self.words[self.count - 1];
        if !told.is_new && says_the_same(told, last) {
            return false;
        }
        let told = if is_much_better(told, last) { from_earlier_on(told, unacked_bytes()) } else { told };
        self.count = self.as_slice().iter().filter(|word| word.offset < told.offset).count();
        self.append(told);
        true
    }

    /// Makes responses longer, by what is sent around so many bytes.
    pub fn lengthen(&mut self, overhead_bytes: impl Fn(u64) -> u64) {
        for word in &mut self.words[..self.count] {
            if let Measure::Left(bytes) = &mut word.measure {
                *bytes = bytes.saturating_add(overhead_bytes(*bytes));
            }
        }
    }

    fn append(&mut self, told: ResponseRank) {
        if self.count == WORDS {
            self.words.rotate_left(1);
            self.count -= 1;
        }
        self.words[self.count] = told;
        self.count += 1;
    }
}

/// The measure of a word at a later byte.
fn at(word: ResponseRank, offset: u64) -> Measure {
    let since_bytes = offset.saturating_sub(word.offset);
    match word.measure {
        Measure::Left(bytes) => Measure::Left(bytes.saturating_sub(since_bytes)),
        Measure::Sent(bytes) => Measure::Sent(bytes.saturating_add(since_bytes)),
    }
}

/// Whether the kernel knows it already, nearly: framing and encryption lengthen what was predicted a little.
fn says_the_same(told: ResponseRank, last: ResponseRank) -> bool {
    let is_near = match (told.measure, at(last, told.offset)) {
        (Measure::Left(bytes), Measure::Left(other)) | (Measure::Sent(bytes), Measure::Sent(other)) => {
            bytes.abs_diff(other) <= other / 32
        }
        _ => false,
    };
    is_near
        && (told.class, told.classes) == (last.class, last.classes)
        && told.offset.saturating_sub(last.offset) < AGAIN_BYTES
}

/// Whether a response goes well before the one that the last word is of. A small difference is not worth a call.
fn is_much_better(told: ResponseRank, last: ResponseRank) -> bool {
    match (told.measure, at(last, told.offset)) {
        _ if told.class != last.class => told.class < last.class,
        (Measure::Left(bytes), Measure::Left(other)) | (Measure::Sent(bytes), Measure::Sent(other)) => {
            bytes < other / 2
        }
        _ => false,
    }
}

/// The same word, for as many bytes before it, too.
fn from_earlier_on(told: ResponseRank, bytes: u64) -> ResponseRank {
    let bytes = bytes.min(told.offset);
    let measure = match told.measure {
        Measure::Left(left) => Measure::Left(left.saturating_add(bytes)),
        Measure::Sent(sent) => Measure::Sent(sent.saturating_sub(bytes)),
    };
    ResponseRank { measure, offset: told.offset - bytes, ..told }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(bytes: u64, offset: u64) -> ResponseRank {
        ResponseRank { measure: Measure::Left(bytes), offset, class: 0, classes: 1, is_new: false }
    }

    #[test]
    fn a_word_that_follows_from_the_last_one_is_not_said() {
        let mut words = Words::from(left(100_000, 500));
        assert!(!words.push(left(92_000, 8_500), || 0));
        assert!(!words.push(left(92_100, 8_500), || 0), "the framing's bytes");
        assert!(words.push(ResponseRank { is_new: true, ..left(92_000, 8_500) }, || 0));
        assert!(words.push(left(80_000, 9_000), || 0));
        assert!(words.push(ResponseRank { class: 1, ..left(78_000, 11_000) }, || 0));
        let mut words = Words::from(left(4 << 30, 0));
        assert!(!words.push(left((4 << 30) - 1000, 1000), || 0));
        assert!(words.push(left(3 << 30, 1 << 30), || 0), "the kernel counts in 32 bits");
    }

    #[test]
    fn a_better_response_takes_along_what_is_before_it() {
        let mut words = Words::from(left(100_000, 500));
        assert!(words.push(left(3_000, 40_500), || 16_000));
        assert_eq!(words.as_slice(), [left(100_000, 500), left(19_000, 24_500)]);
        // The large response goes on behind it, and keeps nothing of its rank.
        assert!(words.push(left(60_000, 43_500), || unreachable!("a worse one takes nothing along")));
        assert_eq!(words.as_slice(), [left(100_000, 500), left(19_000, 24_500), left(60_000, 43_500)]);
        // Words on bytes behind which a better one begins are not needed.
        assert!(words.push(left(100, 44_000), || 20_000));
        assert_eq!(words.as_slice(), [left(100_000, 500), left(20_100, 24_000)]);
    }

    #[test]
    fn better_is_less_sent_where_that_is_the_order_and_classes_go_first() {
        let sent = |bytes, offset| ResponseRank { measure: Measure::Sent(bytes), ..left(0, offset) };
        let mut words = Words::from(sent(0, 0));
        assert!(words.push(sent(0, 50_000), || 10_000));
        assert_eq!(words.as_slice(), [sent(0, 0), sent(0, 40_000)]);
        let mut words = Words::from(ResponseRank { class: 2, ..left(10, 0) });
        assert!(words.push(ResponseRank { class: 1, ..left(1_000_000, 10) }, || 10));
        assert_eq!(words.as_slice(), [ResponseRank { class: 1, ..left(1_000_010, 0) }]);
    }

    #[test]
    fn the_last_words_are_kept() {
        let mut words = Words::from(left(1, 0));
        for number in 1..9 {
            assert!(words.push(left(1000 * number, 10 * number), || 0));
        }
        let offsets: Vec<u64> = words.as_slice().iter().map(|word| word.offset).collect();
        assert_eq!(offsets, [50, 60, 70, 80]);
    }
}

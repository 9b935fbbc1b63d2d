//! Counts of what happened while a log was read.

use super::{Order, Reason, Record, jump::Held};

/// Number of broken lines that are kept with their text.
pub(super) const KEPT: usize = 10;
/// Number of characters that are kept of a broken line.
const EXCERPT_CHARS: usize = 100;

/// Counts of records, of broken lines and of other problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records read.
    pub records: u64,
    /// Lines that are not records. Empty lines and comments (`#`) are not counted.
    pub broken: u64,
    /// The first ten broken lines.
    pub first_broken: Vec<Broken>,
    /// The place where the data ended too early, if it did.
    pub cut: Option<Cut>,
    /// Whether the caller stopped reading before the end.
    pub stopped: bool,
    /// The order of the records' times.
    pub order: Order,
}

/// A line that is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Number of the line, from 1.
    pub number: u64,
    /// Beginning of the line, made printable.
    pub excerpt: String,
    /// The reason why it is not a record.
    pub reason: Reason,
}

/// The end of data that was cut off or damaged, such as a compressed file whose copying was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of the last whole line or record.
    pub after: u64,
    /// The message of the decompressor.
    pub error: String,
}

impl Tally {
    pub(super) fn record(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.order.note(record);
    }

    pub(super) fn broken(&mut self, number: u64, line: &[u8], reason: Reason) {
        self.broken += 1;
        if self.first_broken.len() < KEPT {
            self.first_broken.push(Broken { number, excerpt: excerpt(line), reason });
        }
    }

    /// Counts a held record whose time was far ahead, and a later record `back` that contradicts it.
    pub(super) fn ahead(&mut self, held: &Held, back: &Record<'_>) {
        const REASON: Reason = "its time is more than an hour ahead of those around it";
        self.broken(held.number, held.piece.trim_ascii_end(), REASON);
        self.order.note_ahead(held.number, held.at_ns, back);
    }

    /// Remarks on problems, a sentence each; empty if there were none.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(first) = self.first_broken.first() {
            let share = 100.0 * self.broken as f64 / (self.broken + self.records) as f64;
            notes.push(format!(
                "lines left out because they could not be read: {} ({share:.2} %), the first of them {first}",
                self.broken
            ));
        }
        if let Some(Cut { after, error }) = &self.cut {
            notes.push(format!(
                "the data ends too early or is damaged ({error}): what was read up to line or record {after} is used"
            ));
        }
        let Order { late, far, worst_ns, .. } = self.order;
        if late > 0 {
            let worst_s = worst_ns as f64 / 1e9;
            notes.push(format!("records earlier than one before them: {late}, by up to {worst_s} s"));
        }
        if far > 0 {
            notes.push(format!(
                "records more than an hour behind: {far}; the clock may have been set back, or several logs were put together"
            ));
        }
        notes
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {} (`{}`)", self.number, self.reason, self.excerpt)
    }
}

fn excerpt(line: &[u8]) -> String {
    let start = &line[..line.len().min(4 * EXCERPT_CHARS)];
    let text = String::from_utf8_lossy(start);
    let mut excerpt: String = text.chars().take(EXCERPT_CHARS).flat_map(printable).collect();
    if text.chars().count() > EXCERPT_CHARS || start.len() < line.len() {
        excerpt.push('…');
    }
    excerpt
}

/// Escapes control characters, so that a log cannot control the terminal on which it is reported.
fn printable(character: char) -> impl Iterator<Item = char> {
    let (escaped, plain) = if character.is_control() { (Some(character), None) } else { (None, Some(character)) };
    escaped.into_iter().flat_map(char::escape_default).chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_broken_lines_are_kept_and_all_are_counted() {
        let mut tally = Tally { records: 985, ..Tally::default() };
        for number in 1..=15 {
            tally.broken(number, b"\x1b[2J\xff junk", "the size is no number");
        }
        assert_eq!((tally.broken, tally.first_broken.len()), (15, KEPT));
        assert_eq!(
            tally.notes(),
            [
                "lines left out because they could not be read: 15 (1.50 %), the first of them line 1: the size is no number \
              (`\\u{1b}[2J\u{fffd} junk`)"
            ]
        );
    }

    #[test]
    fn an_excerpt_is_short_whatever_the_line() {
        assert_eq!(excerpt("ä".repeat(5000).as_bytes()).chars().count(), EXCERPT_CHARS + 1);
        assert_eq!(excerpt(&[b'x'; EXCERPT_CHARS]).len(), EXCERPT_CHARS);
    }

    #[test]
    fn a_log_without_a_fault_needs_no_note() {
        assert!(Tally { records: 5, ..Tally::default() }.notes().is_empty());
    }
}

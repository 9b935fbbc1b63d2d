//! How urgent the streams of a connection are, as the client says it before and after it asks (RFC 9218). No I/O.

use heads::PriorityField;
use scheduler::priority::Priority;

/// The words on how urgent the response of a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamPriority {
    /// The number of the stream.
    pub stream: u32,
    /// The priority that the client asks for.
    pub client: PriorityField,
    /// The priority that the origin sets, which overrides that of the client.
    pub origin: PriorityField,
}

impl StreamPriority {
    /// The sum of the words.
    pub fn whole(&self) -> Priority {
        let PriorityField { urgency, incremental } = self.origin.or(self.client);
        let usual = Priority::default();
        Priority { urgency: urgency.unwrap_or(usual.urgency), incremental: incremental.unwrap_or(usual.incremental) }
    }
}

/// More streams are called urgent before they are opened than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Priorities that a client has sent for streams whose responses have not begun.
#[derive(Debug, Default)]
pub(super) struct EarlyWords(Vec<(u32, PriorityField)>);

impl EarlyWords {
    /// Keeps a word. Streams up to `last_opened` are open or over. At most `most` words are kept; those on streams that may be
    /// over go first.
    pub fn keep(&mut self, stream: u32, field: PriorityField, last_opened: u32, most: usize) -> Result<(), TooMany> {
        if let Some(word) = self.0.iter_mut().find(|word| word.0 == stream) {
            word.1 = field;
            return Ok(());
        }
        if self.0.len() >= most {
            let opened = self.0.iter().position(|word| word.0 <= last_opened);
            self.0.remove(opened.ok_or(TooMany)?);
        }
        self.0.push((stream, field));
        Ok(())
    }

    /// Takes the word on a stream whose response begins.
    pub fn take(&mut self, stream: u32) -> Option<PriorityField> {
        let at = self.0.iter().position(|word| word.0 == stream)?;
        let (_, field) = self.0.swap_remove(at);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgent(urgency: u8) -> PriorityField {
        PriorityField { urgency: Some(urgency), incremental: None }
    }

    #[test]
    fn the_last_word_on_a_stream_counts_and_their_number_has_a_bound() {
        let mut words = EarlyWords::default();
        for (stream, urgency) in [(1, 0), (3, 1), (1, 2)] {
            words.keep(stream, urgent(urgency), 0, 2).unwrap();
        }
        assert_eq!(words.keep(5, urgent(4), 0, 2), Err(TooMany), "none of them is open");
        words.keep(5, urgent(4), 1, 2).unwrap();
        assert_eq!(words.take(1), None, "its stream may be over");
        assert_eq!(words.take(3), Some(urgent(1)));
        assert_eq!(words.take(3), None);
        assert_eq!(words.take(5), Some(urgent(4)));
        assert_eq!(words.0.capacity(), 0);
    }

    #[test]
    fn the_origin_overrides_the_client_in_what_it_names() {
        let client = PriorityField { urgency: Some(1), incremental: Some(true) };
        let whole = StreamPriority { stream: 1, client, origin: urgent(6) }.whole();
        assert_eq!(whole, Priority { urgency: 6, incremental: true });
        assert_eq!(StreamPriority::default().whole(), Priority::default());
    }
}

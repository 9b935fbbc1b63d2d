//! PRIORITY_UPDATE frames: a client says anew how urgent a response is (RFC 9218, section 7.1). No I/O, no clock.
//!
//! h2 ignores these frames, so they are read in passing.

use heads::PriorityField;

use super::frames::{Fault, FrameHead, kind};

/// Bytes of the number of the stream before the text.
const STREAM_BYTES: usize = 4;
/// Largest text that is read: `u=7, i` has 6 bytes. A longer one says nothing.
const MOST_TEXT_BYTES: usize = 256;

/// The frame that is being read, if it is one of these.
#[derive(Debug, Default)]
pub(super) struct PriorityUpdates {
    /// The length of its payload, and as much of that as has come; no memory is held while there is none.
    frame: Option<(usize, Vec<u8>)>,
}

/// The word of a client on one of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PriorityUpdate {
    pub(super) stream: u32,
    pub(super) field: PriorityField,
}

impl PriorityUpdates {
    /// A frame begins.
    pub(super) fn handle_head(&mut self, head: FrameHead) -> Result<(), Fault> {
        self.frame = None;
        if head.kind != kind::PRIORITY_UPDATE {
            return Ok(());
        }
        if head.stream != 0 {
            return Err(Fault::Protocol);
        }
        if head.len < STREAM_BYTES {
            return Err(Fault::FrameSize);
        }
        self.frame = Some((head.len, Vec::new()));
        Ok(())
    }

    /// Bytes of the frame's payload have come. Returns its word when all of them are there.
    pub(super) fn handle_payload(&mut self, bytes: &[u8]) -> Result<Option<PriorityUpdate>, Fault> {
        let Some((left, payload)) = &mut self.frame else { return Ok(None) };
        *left = left.saturating_sub(bytes.len());
        let room = STREAM_BYTES + MOST_TEXT_BYTES + 1 - payload.len();
        payload.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if *left > 0 {
            return Ok(None);
        }
        let Some((_, payload)) = self.frame.take() else { return Ok(None) };
        let Some((stream, text)) = payload.split_first_chunk() else { return Ok(None) };
        // The highest bit is reserved.
        let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
        // Streams with even numbers are those of a server that pushes, which this one never does.
        if stream % 2 == 0 {
            return Err(Fault::Protocol);
        }
        let field = if text.len() > MOST_TEXT_BYTES { PriorityField::default() } else { PriorityField::read(text) };
        Ok(Some(PriorityUpdate { stream, field }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::frames::{Frames, Part};

    fn frame(on: u32, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() as u32;
        let head = [&len.to_be_bytes()[1..], &[kind::PRIORITY_UPDATE, 0], &on.to_be_bytes()].concat();
        [head, payload.to_vec()].concat()
    }

    /// The updates in `bytes`, which come in pieces of `piece` bytes.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<PriorityUpdate>, Fault> {
        let (mut frames, mut updates, mut read) = (Frames::behind(0), PriorityUpdates::default(), Ok(Vec::new()));
        for piece in bytes.chunks(piece) {
            frames.read_parts(piece, |part| {
                let said = match part {
                    Part::Head(head) => updates.handle_head(head).map(|()| None),
                    Part::Payload(bytes) => updates.handle_payload(bytes),
                };
                match (&mut read, said) {
                    (Ok(read), Ok(Some(update))) => read.push(update),
                    (Ok(_), Err(fault)) => read = Err(fault),
                    _ => {}
                }
            });
        }
        read
    }

    #[test]
    fn frames_are_read_however_they_are_cut_and_bad_ones_end_the_connection() {
        let said = |stream: u32, text: &str| [&stream.to_be_bytes(), text.as_bytes()].concat();
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
        let sound = [
            frame(0, &said(5, "u=0, i")),
            ping,
            frame(0, &said(7, "")),
            frame(0, &said(0x8000_0009, "u=7")),
            frame(0, &said(11, "((")),
            frame(0, &said(13, &format!("u=1{}", " ".repeat(MOST_TEXT_BYTES)))),
            frame(0, &said(15, "i")),
        ]
        .concat();
        let expected = vec![
            (5, Some(0), Some(true)),
            (7, None, None),
            (9, Some(7), None),
            (11, None, None),
            (13, None, None),
            (15, None, Some(true)),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(stream, urgency, incremental)| PriorityUpdate {
                stream,
                field: PriorityField { urgency, incremental },
            })
            .collect();
        for piece in 1..sound.len() {
            assert_eq!(read(&sound, piece), Ok(expected.clone()), "{piece}");
        }
        for (bytes, fault) in [
            (frame(1, &said(5, "u=0")), Fault::Protocol),
            (frame(0, &said(0, "u=0")), Fault::Protocol),
            (frame(0, &said(2, "u=0")), Fault::Protocol),
            (frame(0, &[0, 0, 1]), Fault::FrameSize),
            (frame(0, &[]), Fault::FrameSize),
        ] {
            assert_eq!(read(&bytes, 1), Err(fault), "{bytes:?}");
        }
    }
}

//! The boundaries of HTTP/2 frames in a stream of bytes (RFC 9113, section 4.1). No I/O, no clock.

/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD_BYTES: usize = 9;
/// Length, type and no flags, and the stream 0.
const GOAWAY_HEAD: [u8; FRAME_HEAD_BYTES] = [0, 0, 8, kind::GOAWAY, 0, 0, 0, 0, 0];

/// Types of frames (RFC 9113, section 6).
pub(super) mod kind {
    pub(in crate::http) const DATA: u8 = 0;
    pub(in crate::http) const HEADERS: u8 = 1;
    pub(in crate::http) const RST_STREAM: u8 = 3;
    pub(in crate::http) const SETTINGS: u8 = 4;
    pub(in crate::http) const GOAWAY: u8 = 7;
    pub(in crate::http) const CONTINUATION: u8 = 9;
    /// RFC 9218, section 7.1.
    pub(in crate::http) const PRIORITY_UPDATE: u8 = 0x10;
    /// No type. Frames of unknown types are ignored (RFC 9113, section 5.5).
    pub(in crate::http) const UNKNOWN: u8 = 0xff;
}

/// The flag of HEADERS and CONTINUATION frames that end a block of fields.
const END_HEADERS: u8 = 4;
/// Bytes of the largest payload that every peer takes.
const LARGEST_PAYLOAD_BYTES: usize = 16 * 1024;

/// A part of a frame, given out as soon as its bytes come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// All of its head.
    Head(FrameHead),
    /// The next bytes of its payload. The bytes before the first frame come so, too.
    Payload(&'a [u8]),
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Bytes of its payload.
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) stream: u32,
}

/// Follows frames through a stream of bytes.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes before the next head: the rest of a payload.
    skip: usize,
    head: [u8; FRAME_HEAD_BYTES],
    /// Bytes of `head` that have come.
    come: usize,
    /// The next frame has to continue a block of fields.
    is_in_block: bool,
}

impl Frames {
    /// Frames that begin behind so many bytes.
    pub(super) fn behind(bytes: usize) -> Self {
        Self { skip: bytes, head: [0; FRAME_HEAD_BYTES], come: 0, is_in_block: false }
    }

    /// Reads on. `each` is told the head of each frame as soon as all of the head has come.
    pub(super) fn read(&mut self, bytes: &[u8], mut each: impl FnMut(FrameHead)) {
        self.read_parts(bytes, |part| {
            if let Part::Head(head) = part {
                each(head);
            }
        });
    }

    /// As [`Frames::read`]; `each` is told the payload of each frame, too.
    pub(super) fn read_parts(&mut self, mut bytes: &[u8], mut each: impl FnMut(Part<'_>)) {
        loop {
            let (payload, behind) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= payload.len();
            bytes = behind;
            if !payload.is_empty() {
                each(Part::Payload(payload));
            }
            let taken = (FRAME_HEAD_BYTES - self.come).min(bytes.len());
            if taken == 0 {
                return;
            }
            self.head[self.come..self.come + taken].copy_from_slice(&bytes[..taken]);
            self.come += taken;
            bytes = &bytes[taken..];
            if self.come == FRAME_HEAD_BYTES {
                let [long, lengths @ .., kind, flags, s0, s1, s2, s3] = self.head;
                let head = FrameHead {
                    len: usize::from(long) << 16 | usize::from(u16::from_be_bytes(lengths)),
                    kind,
                    // The highest bit is reserved.
                    stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
                };
                self.come = 0;
                self.skip = head.len;
                if matches!(kind, kind::HEADERS | kind::CONTINUATION) {
                    self.is_in_block = flags & END_HEADERS == 0;
                }
                each(Part::Head(head));
            }
        }
    }

    /// Whether the last frame is whole, and nothing of the next one has come.
    pub(super) fn is_between(&self) -> bool {
        self.skip == 0 && self.come == 0
    }

    /// Whether a frame of any type may come next.
    pub(super) fn takes_any(&self) -> bool {
        self.is_between() && !self.is_in_block
    }
}

/// The head of a frame that is ignored and that fills `bytes`, or as many as a frame may have; and its length. `None`:
/// it has no room.
pub(super) fn filler(bytes: usize) -> Option<([u8; FRAME_HEAD_BYTES], usize)> {
    let payload = bytes.checked_sub(FRAME_HEAD_BYTES)?.min(LARGEST_PAYLOAD_BYTES);
    let [.., long, high, low] = payload.to_be_bytes();
    Some(([long, high, low, kind::UNKNOWN, 0, 0, 0, 0, 0], FRAME_HEAD_BYTES + payload))
}

/// Why a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Protocol = 1,
    FrameSize = 6,
    EnhanceYourCalm = 0xb,
}

/// A GOAWAY frame for a client at fault. Streams up to `last` may have been processed.
pub(super) fn goaway(last: u32, fault: Fault) -> [u8; FRAME_HEAD_BYTES + 8] {
    let mut frame = [0; FRAME_HEAD_BYTES + 8];
    let (head, payload) = frame.split_at_mut(FRAME_HEAD_BYTES);
    head.copy_from_slice(&GOAWAY_HEAD);
    payload[..4].copy_from_slice(&last.to_be_bytes());
    payload[4..].copy_from_slice(&(fault as u32).to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(frames: &mut Frames, pieces: &[&[u8]]) -> Vec<(usize, u8, u32)> {
        let mut heads = Vec::new();
        for piece in pieces {
            frames.read(piece, |head| heads.push((head.len, head.kind, head.stream)));
        }
        heads
    }

    #[test]
    fn frames_are_told_apart_however_they_are_cut() {
        let bytes = b"preface\x00\x00\x02\x06\x01\x80\x00\x00\x05ab\x00\x00\x00\x04\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff";
        let expected = [(2, 6, 5), (0, 4, 0), (0x1_0000, 0, 0x7fff_ffff)];
        for cut in 0..=bytes.len() {
            let mut frames = Frames::behind(7);
            let (one, other) = bytes.split_at(cut);
            assert_eq!(heads(&mut frames, &[one, other]), expected, "{cut}");
            assert!(!frames.is_between(), "a payload is to come");
        }
        let mut frames = Frames::behind(0);
        assert!(frames.is_between());
        assert_eq!(heads(&mut frames, &[&goaway(5, Fault::EnhanceYourCalm)]), [(8, kind::GOAWAY, 0)]);
        assert!(frames.is_between());
        heads(&mut frames, &[b"\0"]);
        assert!(!frames.is_between());
    }

    #[test]
    fn within_a_block_of_fields_no_other_frame_may_come() {
        let takes_any = |pieces: &[&[u8]]| {
            let mut frames = Frames::behind(0);
            heads(&mut frames, pieces);
            frames.takes_any()
        };
        let headers: &[u8] = &[0, 0, 1, kind::HEADERS, 1, 0, 0, 0, 1, 0x82];
        let middle: &[u8] = &[0, 0, 1, kind::CONTINUATION, 0, 0, 0, 0, 1, 0x87];
        let last: &[u8] = &[0, 0, 1, kind::CONTINUATION, END_HEADERS, 0, 0, 0, 1, 0x84];
        assert!(takes_any(&[]));
        assert!(!takes_any(&[headers]));
        assert!(!takes_any(&[headers, middle]));
        assert!(takes_any(&[headers, middle, last]));
        assert!(!takes_any(&[headers, middle, &last[..9]]));
        assert!(takes_any(&[&goaway(5, Fault::Protocol)]));
    }

    #[test]
    fn a_filler_is_one_frame_of_an_unknown_type() {
        for (room, expected) in [(9, 9), (10, 10), (8192, 8192), (16_393, 16_393), (20_000, 16_393)] {
            let (head, len) = filler(room).unwrap();
            assert_eq!(len, expected);
            let mut frames = Frames::behind(0);
            assert_eq!(heads(&mut frames, &[&head, &vec![0; len - head.len()]]), [(len - 9, kind::UNKNOWN, 0)]);
            assert!(frames.takes_any());
        }
        assert_eq!(filler(8), None);
    }
}

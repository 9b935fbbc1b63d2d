//! The window with which an HTTP/2 client lets each stream begin (RFC 9113, sections 3.4 and 6.5.2). No I/O, no clock.
//!
//! h2 does not tell it. The first frame of a client has to be SETTINGS, so its place is known.

use super::frames::{FRAME_HEAD_BYTES, kind};

/// An entry of a SETTINGS frame: an identifier of two bytes, and a value of four.
const ENTRY_BYTES: usize = 6;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Where the client does not say.
const DEFAULT_WINDOW_BYTES: u32 = 65_535;
/// Clients send about six entries. More than these are not read.
const LARGEST_FRAME_BYTES: usize = 64 * ENTRY_BYTES;

/// Reads the first SETTINGS frame of a client.
#[derive(Debug)]
pub(super) struct ClientSettings {
    /// Bytes before the frame: the rest of the preface.
    skip: usize,
    /// As much of the frame as has come; `None`: the frame was read.
    frame: Option<Vec<u8>>,
}

impl ClientSettings {
    /// Of a client whose preface has so many bytes.
    pub(super) fn behind(preface_bytes: usize) -> Self {
        Self { skip: preface_bytes, frame: Some(Vec::new()) }
    }

    /// Whether the frame was read.
    pub(super) fn is_read(&self) -> bool {
        self.frame.is_none()
    }

    /// Reads on. Returns the window in bytes, once, when all of the frame has come.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<u32> {
        let frame = self.frame.as_mut()?;
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let room = FRAME_HEAD_BYTES + LARGEST_FRAME_BYTES - frame.len();
        let bytes = &bytes[skipped..];
        frame.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let (head, payload) = frame.split_first_chunk::<FRAME_HEAD_BYTES>()?;
        let [long, lengths @ .., frame_kind, _flags, _, _, _, _] = *head;
        let len = usize::from(long) << 16 | usize::from(u16::from_be_bytes(lengths));
        if frame_kind != kind::SETTINGS || len > LARGEST_FRAME_BYTES {
            self.frame = None;
            return None;
        }
        let window = window_bytes(payload.get(..len)?);
        self.frame = None;
        Some(window)
    }
}

/// The window that a SETTINGS frame tells. Of several entries the last one counts.
fn window_bytes(payload: &[u8]) -> u32 {
    let (entries, _) = payload.as_chunks::<ENTRY_BYTES>();
    let entry = entries.iter().rfind(|&&[i0, i1, ..]| u16::from_be_bytes([i0, i1]) == INITIAL_WINDOW_SIZE);
    entry.map_or(DEFAULT_WINDOW_BYTES, |&[_, _, v0, v1, v2, v3]| u32::from_be_bytes([v0, v1, v2, v3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: &[u8] = b"preface";

    fn frame(kind: u8, entries: &[(u16, u32)]) -> Vec<u8> {
        let len = (ENTRY_BYTES * entries.len()) as u32;
        let mut bytes = PREFACE.to_vec();
        bytes.extend_from_slice(&len.to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, 0, 0, 0, 0, 0]);
        for (identifier, value) in entries {
            bytes.extend_from_slice(&identifier.to_be_bytes());
            bytes.extend_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    fn window(pieces: &[&[u8]]) -> (Option<u32>, bool) {
        let mut settings = ClientSettings::behind(PREFACE.len());
        let windows: Vec<_> = pieces.iter().filter_map(|piece| settings.read(piece)).collect();
        assert!(windows.len() <= 1, "{windows:?}");
        (windows.first().copied(), settings.is_read())
    }

    #[test]
    fn the_window_is_read_however_the_frame_is_cut() {
        let bytes = [frame(kind::SETTINGS, &[(3, 100), (4, 1 << 20), (2, 0)]), vec![0; 20]].concat();
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(window(&[one, other]), (Some(1 << 20), true), "{cut}");
        }
        let bytes: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(window(&bytes), (Some(1 << 20), true));
    }

    #[test]
    fn a_client_that_says_no_window_has_the_usual_one() {
        assert_eq!(window(&[&frame(kind::SETTINGS, &[])]), (Some(65_535), true));
        assert_eq!(window(&[&frame(kind::SETTINGS, &[(3, 1000)])]), (Some(65_535), true));
        assert_eq!(window(&[&frame(kind::SETTINGS, &[(4, 1000), (4, 0)])]), (Some(0), true), "the last one counts");
    }

    #[test]
    fn of_other_first_frames_and_of_long_ones_nothing_is_known() {
        assert_eq!(window(&[&frame(kind::HEADERS, &[(4, 1000)])]), (None, true));
        assert_eq!(window(&[&frame(kind::SETTINGS, &[(4, 1000); 65])]), (None, true));
        assert_eq!(window(&[&frame(kind::SETTINGS, &[(4, 1000); 64])]), (Some(1000), true));
        let whole = frame(kind::SETTINGS, &[(4, 1000)]);
        assert_eq!(window(&[&whole[..whole.len() - 1]]), (None, false));
    }
}

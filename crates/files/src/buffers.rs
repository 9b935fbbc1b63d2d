//! Reused buffers for chunks of files. A new buffer would have to be cleared before the kernel fills it.

// Only Linux can read from the page cache alone.
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

use bytes::Bytes;
use parking_lot::Mutex;

/// Size of a buffer, and of the largest chunk.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// Most unused buffers kept: 4 MiB. Further ones are allocated when needed and freed afterwards.
const SPARE_BUFFERS: usize = 64;

/// A chunk smaller than this gets memory of its own size, so that a waiting response does not hold a whole
/// buffer.
const SMALL_BYTES: usize = BUFFER_BYTES / 8;

static SPARE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer to be filled.
pub(crate) struct Buffer {
    memory: Box<[u8]>,
    filled: usize,
}

/// A buffer of at least `length` bytes; `length` is at most [`BUFFER_BYTES`].
pub(crate) fn take(length: usize) -> Buffer {
    let spare = if length < SMALL_BYTES { None } else { SPARE.lock().pop() };
    let size = if length < SMALL_BYTES { length } else { BUFFER_BYTES };
    Buffer { memory: spare.unwrap_or_else(|| vec![0; size].into_boxed_slice()), filled: 0 }
}

impl Buffer {
    /// The first `filled` bytes. The buffer is reused when the last reference to them is dropped.
    pub fn into_bytes(mut self, filled: usize) -> Bytes {
        self.filled = filled.min(self.memory.len());
        Bytes::from_owner(self)
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.memory.len() == BUFFER_BYTES {
            let memory = std::mem::take(&mut self.memory);
            let mut spare = SPARE.lock();
            if spare.len() < SPARE_BUFFERS {
                spare.push(memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_hold_what_was_filled_and_nothing_of_an_earlier_use() {
        for round in 0..3u8 {
            let mut buffer = take(BUFFER_BYTES);
            buffer.as_mut()[..2].copy_from_slice(&[round, round]);
            assert_eq!(buffer.into_bytes(2).as_ref(), [round, round]);
        }
        assert_eq!(take(10).memory.len(), 10);
        assert_eq!(take(SMALL_BYTES).memory.len(), BUFFER_BYTES);
        assert!(SPARE.lock().len() <= SPARE_BUFFERS);
    }
}

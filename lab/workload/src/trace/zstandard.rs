//! Decompression of zstd files (RFC 8878), which are made of frames.

use std::{
    error::Error,
    io::{self, BufRead, Read},
};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// Limit of memory for a frame's window, the same as that of the program `zstd`. A file of `zstd --long` needs all of it.
const WINDOW_BYTES: u64 = 128 * 1024 * 1024;

/// An empty last block and a checksum. It ends a frame at a fault, so that the decoder releases its window.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Reads the frames of a file as one stream.
pub struct Decoder<R> {
    input: R,
    frame: FrameDecoder,
    /// The fault that ended the frame. It is reported when everything before it has been read.
    fault: Option<io::Error>,
}

impl<R: BufRead> Decoder<R> {
    /// Reads from the start of a file.
    pub fn new(input: R) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(WINDOW_BYTES);
        Self { input, frame, fault: None }
    }

    /// Begins the next frame; false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.frame.init(&mut self.input) {
                Ok(()) => return Ok(true),
                // Such a frame holds notes of other programs.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(fault(error)),
            }
        }
        Ok(false)
    }

    /// Decodes the next block. The decoder keeps a whole window for the blocks to come; at a fault there are none.
    fn decode(&mut self) {
        if let Err(error) = self.frame.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1)) {
            self.fault = Some(fault(error));
            let _ = self.frame.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::UptoBlocks(1));
        }
    }

    /// Whether the frame that has ended has the checksum that it says, if it says one.
    fn checksum_is_right(&self) -> bool {
        let said = self.frame.get_checksum_from_data();
        said.is_none_or(|said| self.frame.get_calculated_checksum() == Some(said))
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.frame.can_collect() > 0 {
                return self.frame.read(buffer);
            }
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            if !self.frame.is_finished() {
                self.decode();
            } else if !self.checksum_is_right() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the data does not match its checksum"));
            } else if !self.begin()? {
                return Ok(0);
            }
        }
    }
}

/// The error for the reader of a log. An error of the system stays one; the end of the input is a fault of the data.
fn fault(error: FrameDecoderError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        }
        cause = error.source();
    }
    io::Error::new(io::ErrorKind::InvalidData, error)
}

//! Brotli (RFC 7932), as the codings of other crates are used: bytes are written, and compressed ones come into a buffer.
//!
//! The crate's own writer compresses what is left when it is dropped, so a client that goes away would cost the work of
//! its whole response. This one drops it.

use std::io;

use brotli::enc::{
    StandardAlloc,
    encode::{
        BrotliEncoderOperation::{
            self as Operation, BROTLI_OPERATION_FINISH, BROTLI_OPERATION_FLUSH, BROTLI_OPERATION_PROCESS,
        },
        BrotliEncoderParameter as Parameter, BrotliEncoderStateStruct as State,
    },
};

/// The binary logarithm of the window: 256 KiB.
///
/// It bounds the memory of an encoder, however long the body is. An encoder has at most 0.3 MB at level 0, 0.7 MB at
/// 1, 1.4 MB at 2 and 3, and 4.5 MB at 4. Levels 9, 10 and 11 have at most 38, 15 and 24 MB. A window of 4 MiB takes
/// 30 MB at level 4, and makes texts of 70 to 430 KB smaller by 0.1 % at most. One of 128 KiB makes JSON of 290 KB
/// larger by a fifth.
///
/// The defect below makes text of 4.5 MB 4 % larger at level 4 than by the C library: 2 % larger than by level 5 of gzip.
const WINDOW_BITS: u32 = 18;

/// The window of levels 5 to 8: 512 KiB. An encoder has at most 9 MB at level 5, 11 MB at 6, 15 MB at 7 and 22 MB at 8.
///
/// Their usual table (`H5`) has wrong positions as soon as a body is longer than two windows (`StoreRangeOptBatch` of
/// brotli 9.1.1 stores them masked). Text of 4.5 MB gets 29 % larger than by the C library. Another table (`H6`) has
/// the size of the C library. It is chosen for windows from 512 KiB on and bodies from 4 MB on.
const WINDOW_BITS_OF_H6: u32 = 19;
const BODY_BYTES_OF_H6: u32 = 8 << 20;

pub(crate) struct Brotli {
    state: State<StandardAlloc>,
    out: Vec<u8>,
}

impl Brotli {
    /// Makes an encoder. It takes memory when the first bytes are written.
    pub(crate) fn new(level: u8) -> Self {
        let mut state = State::new(StandardAlloc::default());
        state.set_parameter(Parameter::BROTLI_PARAM_QUALITY, level.into());
        if (5..=8).contains(&level) {
            state.set_parameter(Parameter::BROTLI_PARAM_LGWIN, WINDOW_BITS_OF_H6);
            state.set_parameter(Parameter::BROTLI_PARAM_SIZE_HINT, BODY_BYTES_OF_H6);
        } else {
            state.set_parameter(Parameter::BROTLI_PARAM_LGWIN, WINDOW_BITS);
        }
        Self { state, out: Vec::new() }
    }

    /// So many bytes are kept before they are compressed; `None` where they are compressed when they are written.
    pub(crate) fn block_bytes(&mut self) -> Option<usize> {
        (self.state.params.quality > 1).then(|| self.state.input_block_size())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.step(BROTLI_OPERATION_PROCESS, bytes)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.step(BROTLI_OPERATION_FLUSH, &[])
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.step(BROTLI_OPERATION_FINISH, &[])
    }

    /// The compressed bytes that were not taken yet.
    pub(crate) fn get_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn step(&mut self, operation: Operation, bytes: &[u8]) -> io::Result<()> {
        let (mut left, mut at) = (bytes.len(), 0);
        loop {
            let done = self.state.compress_stream(
                operation,
                &mut left,
                bytes,
                &mut at,
                // Compressed bytes are taken from the encoder's own buffer below.
                &mut 0,
                &mut [],
                &mut 0,
                &mut None,
                &mut |_, _, _, _| (),
            );
            if !done {
                return Err(io::Error::other("the Brotli encoder failed"));
            }
            while self.state.has_more_output() {
                let mut ready_bytes = 0;
                // The slice is the rest of the buffer, of which so many bytes are ready.
                let buffer = self.state.take_output(&mut ready_bytes);
                self.out.extend_from_slice(&buffer[..ready_bytes]);
            }
            let is_ended = match operation {
                BROTLI_OPERATION_FINISH => self.state.is_finished(),
                _ => left == 0,
            };
            if is_ended {
                return Ok(());
            }
        }
    }
}

//! Compressed logs, recognised by their first bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use super::zstandard;

/// The compression of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// Number of first bytes that decide the compression.
const MAGIC_BYTES: usize = 6;
/// Bytes decompressed at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// Limit of memory for the dictionary of an xz file. A file of `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB: u32 = 256 * 1024;

impl Compression {
    /// The compression of data with these first bytes.
    pub fn detect(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, 0x08, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Self::Xz,
            _ => Self::None,
        }
    }

    /// The usual name; `None` for no compression.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
            Self::Bzip2 => Some("bzip2"),
            Self::Xz => Some("xz"),
        }
    }
}

/// Decompresses the data, and tells its compression. Concatenated compressed files are read as one.
///
/// Data that is cut off or damaged gives everything before the fault, then an error.
///
/// # Errors
/// If the first bytes cannot be read.
pub fn decode<'a>(mut input: impl BufRead + 'a) -> io::Result<(Compression, Box<dyn BufRead + 'a>)> {
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    input.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    let compression = Compression::detect(&magic);
    let input = Cursor::new(magic).chain(input);
    Ok((
        compression,
        match compression {
            Compression::None => Box::new(input),
            Compression::Gzip => buffered(flate2::bufread::MultiGzDecoder::new(input)),
            Compression::Zstd => buffered(zstandard::Decoder::new(input)),
            Compression::Bzip2 => buffered(bzip2::bufread::MultiBzDecoder::new(input)),
            Compression::Xz => buffered(lzma_rust2::XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB)),
        },
    ))
}

fn buffered<'a>(decoder: impl Read + 'a) -> Box<dyn BufRead + 'a> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
}

//! The encoders of the codings, behind one type.

use std::{
    io::{self, Write as _},
    mem,
};

use bytes::Bytes;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

/// How much time each coding spends to make a body small: higher levels take longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// 1 to 19.
    pub zstd: u8,
    /// 1 to 9.
    pub gzip: u8,
}

impl Default for Levels {
    fn default() -> Self {
        Self { zstd: 3, gzip: 5 }
    }
}

/// The encoder of one body.
pub struct Encoder(Inner);

enum Inner {
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
}

impl Encoder {
    /// Makes the encoder of a coding.
    ///
    /// # Errors
    /// Zstandard has no memory, or does not know the level.
    pub fn new(coding: Coding, levels: Levels) -> io::Result<Self> {
        let out = Vec::new();
        Ok(Self(match coding {
            Coding::Zstd => Inner::Zstd(Box::new(zstd::stream::write::Encoder::new(out, levels.zstd.into())?)),
            Coding::Gzip => {
                let level = flate2::Compression::new(levels.gzip.into());
                Inner::Gzip(Box::new(flate2::write::GzEncoder::new(out, level)))
            }
        }))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Inner::Zstd(writer) => writer.write_all(bytes),
            Inner::Gzip(writer) => writer.write_all(bytes),
        }
    }

    /// Makes all that was written readable for the client.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Inner::Zstd(writer) => writer.flush(),
            Inner::Gzip(writer) => writer.flush(),
        }
    }

    /// The compressed bytes that were not taken yet, if there are so many.
    pub(crate) fn take_if(&mut self, least_bytes: usize) -> Option<Bytes> {
        let out = match &mut self.0 {
            Inner::Zstd(writer) => writer.get_mut(),
            Inner::Gzip(writer) => writer.get_mut(),
        };
        (out.len() >= least_bytes).then(|| mem::take(out).into())
    }

    /// Ends the body; returns the bytes that were not taken.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        Ok(match self.0 {
            Inner::Zstd(writer) => writer.finish()?,
            Inner::Gzip(writer) => writer.finish()?,
        }
        .into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read as _;

    use super::*;

    pub(crate) const ALL: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

    pub(crate) fn decompress(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match coding {
            Coding::Zstd => return zstd::stream::decode_all(bytes),
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out)?,
        };
        Ok(out)
    }

    fn compress(coding: Coding, body: &[u8]) -> Bytes {
        let mut encoder = Encoder::new(coding, Levels::default()).unwrap();
        encoder.write(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_whole_body_comes_back() {
        let text = "the connection, the scheduler, the request. ".repeat(2000);
        for coding in ALL {
            let compressed = compress(coding, text.as_bytes());
            assert!(compressed.len() < text.len() / 20, "{coding:?}: {}", compressed.len());
            assert_eq!(decompress(coding, &compressed).unwrap(), text.as_bytes(), "{coding:?}");
            let empty = compress(coding, b"");
            assert_eq!(decompress(coding, &empty).unwrap(), b"", "{coding:?}");
        }
    }
}

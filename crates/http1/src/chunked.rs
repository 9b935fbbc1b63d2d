//! The chunked coding (RFC 9112, section 7.1), decoded from a stream of bytes. No I/O, no clock.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Most bytes of chunk extensions and trailers in a client's body. Clients send few.
const MAX_CLIENT_EXTRAS_BYTES: usize = 4096;
/// Most bytes of chunk extensions and trailers in a server's body.
const MAX_SERVER_EXTRAS_BYTES: usize = 16 * 1024;
/// Most trailers of one body.
const MAX_TRAILERS: usize = 100;

/// The position within a chunked body.
#[derive(Debug)]
pub struct Chunks {
    state: State,
    /// While the size is read, its value so far; then the bytes left of the chunk.
    size: u64,
    digits: u32,
    extras: usize,
    of_server: bool,
    /// The trailer lines as received.
    trailers: Vec<u8>,
}

/// The content after the framing that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More bytes are needed.
    More,
    /// At least this many bytes of data. Report the consumed ones to [`Chunks::take`] before the next call.
    Data(usize),
    /// The body has ended.
    End,
}

/// The bytes are not the chunked coding. Every further call fails too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// Spaces after the size, with which some servers pad the line.
    Padding,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerEnd,
    EndLf,
    Ended,
    Malformed,
}

impl Chunks {
    /// Decodes a client's body.
    pub fn of_client() -> Self {
        Self { state: State::Size, size: 0, digits: 0, extras: 0, of_server: false, trailers: Vec::new() }
    }

    /// Decodes a server's body, with some tolerance.
    pub fn of_server() -> Self {
        Self { of_server: true, ..Self::of_client() }
    }

    /// Reads framing from the front. Returns its length, and the content after it.
    pub fn next(&mut self, bytes: &[u8]) -> Result<(usize, Next), Malformed> {
        let mut at = 0;
        loop {
            if self.state == State::Ended {
                return Ok((at, Next::End));
            }
            let Some(&byte) = bytes.get(at) else { return Ok((at, Next::More)) };
            if self.state == State::Data {
                let here = bytes.len() - at;
                return Ok((at, Next::Data(usize::try_from(self.size).map_or(here, |size| size.min(here)))));
            }
            at += 1;
            let next = self.step(byte);
            self.state = next.unwrap_or(State::Malformed);
            next.ok_or(Malformed)?;
        }
    }

    /// Records that so many bytes of data were consumed.
    pub fn take(&mut self, bytes: usize) {
        self.size -= bytes as u64;
        if self.size == 0 {
            self.state = State::DataCr;
        }
    }

    /// The trailers of a body that has ended.
    ///
    /// # Errors
    /// The trailers are malformed, or too many.
    pub fn trailers(&self) -> Result<HeaderMap, Malformed> {
        let mut trailers = HeaderMap::new();
        if self.trailers.is_empty() {
            return Ok(trailers);
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
        let lines = [&self.trailers, b"\n".as_slice()].concat();
        match httparse::parse_headers(&lines, &mut fields) {
            Ok(httparse::Status::Complete((end, fields))) if end == lines.len() => {
                for field in fields {
                    let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
                    trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?);
                }
                Ok(trailers)
            }
            _ => Err(Malformed),
        }
    }

    fn step(&mut self, byte: u8) -> Option<State> {
        use State as S;
        Some(match (self.state, byte) {
            (S::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digits += 1;
                if self.digits > 16 {
                    return None;
                }
                self.size = self.size << 4 | u64::from(char::from(byte).to_digit(16)?);
                S::Size
            }
            (S::Size, b'\r') if self.digits > 0 => S::SizeEnd,
            (S::Size, b';') if self.digits > 0 => S::Extension,
            (S::Size | S::Padding, b' ' | b'\t') if self.digits > 0 && self.of_server => {
                self.count()?;
                S::Padding
            }
            (S::Padding, b';') => S::Extension,
            (S::Padding | S::Extension, b'\r') => S::SizeEnd,
            (S::Extension, byte) if byte != b'\n' => {
                self.count()?;
                S::Extension
            }
            (S::SizeEnd, b'\n') => {
                self.digits = 0;
                if self.size == 0 { S::TrailerStart } else { S::Data }
            }
            (S::DataCr, b'\r') => S::DataLf,
            (S::DataLf, b'\n') => S::Size,
            (S::TrailerStart, b'\r') => S::EndLf,
            (S::TrailerStart | S::Trailer, byte) if byte != b'\r' && byte != b'\n' => {
                self.count()?;
                self.trailers.push(byte);
                S::Trailer
            }
            (S::Trailer, b'\r') => S::TrailerEnd,
            (S::TrailerEnd, b'\n') => {
                self.trailers.push(b'\n');
                S::TrailerStart
            }
            (S::EndLf, b'\n') => S::Ended,
            _ => return None,
        })
    }

    fn count(&mut self) -> Option<()> {
        let most = if self.of_server { MAX_SERVER_EXTRAS_BYTES } else { MAX_CLIENT_EXTRAS_BYTES };
        self.extras += 1;
        (self.extras <= most).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data, the trailers, and the end of the body's bytes.
    fn read(mut chunks: Chunks, text: &str, piece: usize) -> Result<(String, HeaderMap, usize), Malformed> {
        let (mut data, mut held, mut at) = (Vec::new(), Vec::new(), 0);
        for bytes in text.as_bytes().chunks(piece) {
            held.extend_from_slice(bytes);
            loop {
                let (framing, next) = chunks.next(&held)?;
                held.drain(..framing);
                at += framing;
                match next {
                    Next::More => break,
                    Next::Data(len) => {
                        data.extend(held.drain(..len));
                        chunks.take(len);
                        at += len;
                    }
                    Next::End => {
                        return Ok((String::from_utf8(data).unwrap(), chunks.trailers()?, at));
                    }
                }
            }
        }
        panic!("{text:?} has no end");
    }

    #[test]
    fn a_body_is_read_in_any_cuts() {
        let text = "5;a=b\r\nhello\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n000\r\nx: 1\r\ny: 2\r\n\r\n";
        for piece in 1..=text.len() {
            let data = "helloabcdefghijklmnopqrstuvwxyz".to_owned();
            let behind = format!("{text}more");
            let trailers =
                [("x", "1"), ("y", "2")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            for chunks in [Chunks::of_client(), Chunks::of_server()] {
                let read = read(chunks, &behind, piece);
                assert_eq!(read, Ok((data.clone(), trailers.clone().into_iter().collect(), text.len())));
            }
        }
    }

    #[test]
    fn trailers_are_fields_and_not_too_many() {
        let body = |trailers: &str| format!("0\r\n{trailers}\r\n");
        for chunks in [Chunks::of_client as fn() -> Chunks, Chunks::of_server] {
            for trailers in ["x\r\n", "x y: 1\r\n", ": 1\r\n", "x: \u{1}\r\n", &"x: 1\r\n".repeat(MAX_TRAILERS + 1)] {
                let body = body(trailers);
                assert_eq!(read(chunks(), &body, body.len()).map(|_| ()), Err(Malformed), "{trailers:?}");
            }
            let body = body(&"x: 1\r\n".repeat(MAX_TRAILERS));
            assert_eq!(read(chunks(), &body, body.len()).map(|(_, trailers, _)| trailers.len()), Ok(MAX_TRAILERS));
        }
    }

    #[test]
    fn what_is_malformed_stays_so() {
        for text in
            ["\r\n", "g\r\n", "-1\r\n", " 1\r\n", "1\n", "1\r\nab\r\n", "1\r\na\n", "11111111111111111\r\n", "0\r\n\n"]
        {
            for (mut chunks, text) in [(Chunks::of_client(), text), (Chunks::of_server(), text)] {
                let mut held = text.as_bytes();
                let malformed = loop {
                    match chunks.next(held) {
                        Ok((framing, Next::Data(_))) => {
                            held = &held[framing + 1..];
                            chunks.take(1);
                        }
                        Ok(next) => panic!("{text:?}: {next:?}"),
                        Err(malformed) => break malformed,
                    }
                };
                assert_eq!(malformed, Malformed);
                assert_eq!(chunks.next(b"0\r\n\r\n"), Err(Malformed), "{text:?}");
            }
        }
    }

    #[test]
    fn only_servers_pad_sizes_and_all_extras_are_bounded() {
        assert_eq!(Chunks::of_client().next(b"1 \r\n"), Err(Malformed));
        assert_eq!(Chunks::of_server().next(b"1 \t \r\n"), Ok((6, Next::More)));
        assert_eq!(Chunks::of_server().next(b"1  ;x\r\n"), Ok((7, Next::More)));
        assert_eq!(Chunks::of_server().next(b"1 1\r\n"), Err(Malformed));
        for (chunks, most) in [(Chunks::of_client as fn() -> Chunks, 4096), (Chunks::of_server, 16 * 1024)] {
            for before in ["1;", "0\r\nx"] {
                let text = |extras: usize| format!("{before}{}\r\n", "x".repeat(extras)).into_bytes();
                assert!(chunks().next(&text(most - 1)).is_ok());
                assert_eq!(chunks().next(&text(most + 1)), Err(Malformed));
            }
        }
    }
}

//! Interim responses (RFC 9110, section 15.2), taken out of what an HTTP/1.1 server sends before hyper reads it. hyper would tell of
//! them as well, but only where it is given something that has to be allocated for every request, and few servers send any.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Empty;
use tokio::io::ReadBuf;

use super::head;

/// Interim responses before one response. All together they may be as large as one head. Who works for half an hour, and says every
/// 20 seconds that it does (102, as for WebDAV), stays below.
const MOST: usize = 100;
/// As many fields as hyper takes.
const MOST_FIELDS: usize = 100;

/// An interim response, as any client may see it.
pub type Interim = Response<Empty<Bytes>>;

/// What hyper is to read of a connection on which a response is awaited. What cannot be an interim response goes on to it as it is,
/// and so does what is not understood here.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// Read and not handed on; the first `free` bytes of them may be.
    held: BytesMut,
    free: usize,
    /// So far no end of a head was found.
    searched: usize,
    /// What was found before the response that is awaited.
    count: usize,
    bytes: usize,
}

/// What came of looking at what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sifted {
    /// The response itself is to come.
    Awaited,
    /// It has begun, and all that is held may go on.
    Begun,
    /// There were too many before it, or they were too large.
    TooMuch,
}

/// What stands first.
#[derive(PartialEq, Eq)]
enum Front {
    Interim,
    Other,
    /// It is too short to say.
    Unclear,
}

impl Sieve {
    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether these bytes, the first of a response, begin one that is not interim. Where nothing is held they can go on as they are.
    pub(super) fn is_other(bytes: &[u8]) -> bool {
        front(bytes) == Front::Other
    }

    /// Takes the first bytes of a response, or further ones. `most_bytes` is what a head may have; `found` gets interim responses,
    /// but for 100: it is about a body that is on its way already, and that the client was asked for here.
    pub(super) fn sift(&mut self, bytes: &[u8], most_bytes: usize, mut found: impl FnMut(Interim)) -> Sifted {
        self.held.extend_from_slice(bytes);
        loop {
            match front(&self.held) {
                Front::Interim => {}
                Front::Unclear => return Sifted::Awaited,
                Front::Other => return self.release(),
            }
            let end = self.end_of_head();
            let bytes = self.bytes + end.unwrap_or(self.held.len());
            if bytes > most_bytes || self.count == MOST {
                return Sifted::TooMuch;
            }
            let Some(end) = end else { return Sifted::Awaited };
            // Whatever is wrong with it, hyper says.
            let Some(mut interim) = parsed(&self.held[..end]) else { return self.release() };
            match interim.status() {
                StatusCode::SWITCHING_PROTOCOLS => return self.release(),
                StatusCode::CONTINUE => {}
                _ => {
                    head::response(&mut interim, &Method::GET);
                    found(interim);
                }
            }
            self.held.advance(end);
            self.searched = 0;
            (self.bytes, self.count) = (bytes, self.count + 1);
        }
    }

    /// Nothing more is held back.
    pub(super) fn release(&mut self) -> Sifted {
        self.free = self.held.len();
        (self.searched, self.count, self.bytes) = (0, 0, 0);
        Sifted::Begun
    }

    /// Hands on what may go on; false: nothing.
    pub(super) fn hand_on(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let len = self.free.min(buf.remaining());
        if len == 0 {
            return false;
        }
        buf.put_slice(&self.held[..len]);
        self.held.advance(len);
        self.free -= len;
        if self.held.is_empty() {
            // A connection that waits holds no buffer here.
            self.held = BytesMut::new();
        }
        true
    }

    /// Where the first head ends: at the first empty line.
    fn end_of_head(&mut self) -> Option<usize> {
        let from = self.searched.saturating_sub(2);
        for at in memchr::memchr_iter(b'\n', &self.held[from..]) {
            let end = from + at + 1;
            match &self.held[end..] {
                [b'\n', ..] => return Some(end + 1),
                [b'\r', b'\n', ..] => return Some(end + 2),
                _ => {}
            }
        }
        self.searched = self.held.len();
        None
    }
}

fn front(bytes: &[u8]) -> Front {
    const LIKE: &[u8; 10] = b"HTTP/1.x 1";
    let fits = |(&byte, &like): (&u8, &u8)| match like {
        b'x' => matches!(byte, b'0' | b'1'),
        _ => byte == like,
    };
    if !bytes.iter().zip(LIKE).all(fits) {
        Front::Other
    } else if bytes.len() < LIKE.len() {
        Front::Unclear
    } else {
        Front::Interim
    }
}

fn parsed(head: &[u8]) -> Option<Interim> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(head) {
        Ok(httparse::Status::Complete(end)) if end == head.len() => {}
        _ => return None,
    }
    let mut interim = Response::new(Empty::new());
    *interim.status_mut() = StatusCode::from_u16(response.code?).ok().filter(StatusCode::is_informational)?;
    for field in response.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        interim.headers_mut().append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(interim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b.js>\r\nKeep-Alive: 5\r\n\
         Connection: x-hop\r\nX-Hop: 1\r\nContent-Length: 0\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    /// What goes on, and what was found, as one text each.
    fn sifted(text: &str, piece: usize) -> (String, Vec<String>, Sifted) {
        let mut sieve = Sieve::default();
        let (mut passed, mut found, mut last) = (Vec::new(), Vec::new(), Sifted::Awaited);
        for bytes in text.as_bytes().chunks(piece) {
            if last == Sifted::Begun {
                passed.extend_from_slice(bytes);
                continue;
            }
            last = sieve.sift(bytes, 2000, |interim| {
                let fields: Vec<_> = interim
                    .headers()
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
                    .collect();
                found.push(format!("{} {}", interim.status().as_u16(), fields.join(" ")));
            });
            match last {
                Sifted::Awaited => {}
                Sifted::Begun => passed.extend_from_slice(handed_on(&mut sieve).as_bytes()),
                Sifted::TooMuch => break,
            }
        }
        assert!(last != Sifted::Begun || sieve.is_empty());
        (String::from_utf8(passed).unwrap(), found, last)
    }

    /// All that may go on, a few bytes at a time.
    fn handed_on(sieve: &mut Sieve) -> String {
        let mut all = Vec::new();
        let mut bytes = [0; 5];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            if !sieve.hand_on(&mut buf) {
                return String::from_utf8(all).unwrap();
            }
            all.extend_from_slice(buf.filled());
        }
    }

    #[test]
    fn interim_responses_are_taken_out_in_any_cuts() {
        let text = format!("HTTP/1.1 100 Continue\r\n\r\n{HINTS}HTTP/1.0 102\r\n\r\nHTTP/1.1 199 \n\n{OK}{HINTS}");
        let expected = ["103 link=</a.css>; rel=preload link=</b.js>", "102 ", "199 "].map(str::to_owned).to_vec();
        for piece in 1..=text.len() {
            let (passed, found, _) = sifted(&text, piece);
            assert_eq!(passed, format!("{OK}{HINTS}"), "pieces of {piece}");
            assert_eq!(found, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn all_else_goes_on_as_it_is() {
        for text in [
            OK,
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nHTTP/1.1 103\r\n\r\n",
            "HTTP/1.1 1",
            "HTTP/1.1 103 Early Hints\r\nbad name: 1\r\n\r\nHTTP/1.1 200",
            "HTTP/1.1 1x3 \r\n\r\n",
            "\r\nHTTP/1.1 103\r\n\r\n",
            "HTTP/2 103\r\n\r\n",
            "SSH-2.0",
        ] {
            for piece in 1..=text.len() {
                let (passed, found, last) = sifted(text, piece);
                assert!(found.is_empty(), "{text:?}");
                match last {
                    Sifted::Begun => assert_eq!(passed, text, "pieces of {piece}"),
                    // It might have become one.
                    _ => assert_eq!((last, text), (Sifted::Awaited, "HTTP/1.1 1")),
                }
            }
        }
    }

    #[test]
    fn they_are_neither_many_nor_large() {
        let many = "HTTP/1.1 102\r\n\r\n".repeat(MOST);
        let (passed, found, _) = sifted(&format!("{many}{OK}"), 7);
        assert_eq!((passed.as_str(), found.len()), (OK, MOST));
        assert_eq!(sifted(&format!("{many}HTTP/1.1 102\r\n\r\n"), 7).2, Sifted::TooMuch);
        let large = format!("HTTP/1.1 103\r\nlink: {}\r\n\r\n", "x".repeat(900));
        assert_eq!(sifted(&format!("{large}{large}{OK}"), 7).2, Sifted::Begun);
        assert_eq!(sifted(&format!("{large}{large}{large}"), 7).2, Sifted::TooMuch);
        assert_eq!(sifted(&format!("HTTP/1.1 103\r\nlink: {}", "x".repeat(2000)), 7).2, Sifted::TooMuch);
        // What was counted before one response is nothing to the next.
        let mut sieve = Sieve::default();
        for _ in 0..3 {
            assert_eq!(sieve.sift(format!("{many}{OK}").as_bytes(), 2000, drop), Sifted::Begun);
            assert_eq!(handed_on(&mut sieve), OK);
        }
    }
}

//! The client's parser of HTTP/1.1 responses, which checks everything.

use workload::outcome::End;

use crate::docroot::Content;

/// A response in progress.
#[derive(Debug)]
pub(super) struct Response {
    file: u32,
    size_bytes: u64,
    head: Vec<u8>,
    head_bytes: u32,
    body_bytes: u64,
    keep: bool,
}

/// Longest accepted head.
const LONGEST_HEAD_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;

impl Response {
    /// Expects `file` of `size_bytes`.
    pub(super) fn to(file: u32, size_bytes: u64) -> Self {
        Self { file, size_bytes, head: Vec::new(), head_bytes: 0, body_bytes: 0, keep: false }
    }

    /// Takes received bytes. Returns `Ok(true)` once the response is complete.
    pub(super) fn take(&mut self, bytes: &[u8], content: &Content) -> Result<bool, End> {
        if self.head_bytes > 0 {
            return self.take_body(bytes, content);
        }
        let seen = self.head.len();
        self.head.extend_from_slice(bytes);
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(&self.head) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.head.len() < LONGEST_HEAD_BYTES => return Ok(false),
            _ => return Err(End::WrongHead),
        };
        if parsed.code != Some(200) {
            return Err(End::WrongStatus);
        }
        let all = |name: &'static str| parsed.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name));
        let announced: Vec<Option<u64>> =
            all("content-length").map(|h| std::str::from_utf8(h.value).ok()?.trim().parse().ok()).collect();
        if announced != [Some(self.size_bytes)] || all("transfer-encoding").next().is_some() {
            return Err(End::WrongHead);
        }
        self.keep = parsed.version == Some(1) && !all("connection").any(|h| h.value.eq_ignore_ascii_case(b"close"));
        self.head_bytes = length as u32;
        self.head = Vec::new();
        // The head ends within these bytes, or it would have been complete before.
        self.take_body(&bytes[length - seen..], content)
    }

    fn take_body(&mut self, bytes: &[u8], content: &Content) -> Result<bool, End> {
        let more_than_announced = bytes.len() as u64 > self.size_bytes - self.body_bytes;
        if more_than_announced || !content.matches(self.file, self.body_bytes, bytes) {
            return Err(End::WrongBody);
        }
        self.body_bytes += bytes.len() as u64;
        Ok(self.body_bytes == self.size_bytes)
    }

    /// Whether any byte has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.head_bytes > 0 || !self.head.is_empty()
    }

    /// Length of the head; 0 until it is complete.
    pub(super) fn head_bytes(&self) -> u32 {
        self.head_bytes
    }

    /// Bytes of the body so far.
    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether the server keeps the connection.
    pub(super) fn keeps_connection(&self) -> bool {
        self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response_of(file: u32, size: u64, head: &str) -> Vec<u8> {
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(Content::new().piece(file, 0, size));
        bytes
    }

    fn read(bytes: &[u8], piece: usize) -> (Response, Result<bool, End>) {
        let content = Content::new();
        let mut response = Response::to(5, 3000);
        let mut result = Ok(false);
        for part in bytes.chunks(piece) {
            result = response.take(part, &content);
            if result.is_err() {
                break;
            }
        }
        (response, result)
    }

    #[test]
    fn a_response_is_whole_however_it_is_cut() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\nServer: x\r\n\r\n";
        let bytes = response_of(5, 3000, head);
        for piece in [1, 7, 100, head.len(), head.len() + 1, 10_000] {
            let (response, result) = read(&bytes, piece);
            assert_eq!(result, Ok(true), "pieces of {piece}");
            assert_eq!((response.head_bytes() as usize, response.body_bytes()), (head.len(), 3000));
            assert!(response.keeps_connection());
        }
        assert_eq!(read(&bytes[..bytes.len() - 1], 64).1, Ok(false), "one byte is missing");
    }

    #[test]
    fn close_is_heard() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\nConnection: Close\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 3000\r\n\r\n",
        ] {
            let (response, result) = read(&response_of(5, 3000, head), 100);
            assert_eq!(result, Ok(true));
            assert!(!response.keeps_connection());
        }
    }

    #[test]
    fn every_lie_has_its_name() {
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n";
        let mut changed = response_of(5, 3000, good);
        *changed.last_mut().unwrap() ^= 1;
        let mut longer = response_of(5, 3000, good);
        longer.push(0);
        for (what, bytes, end) in [
            (
                "another status",
                response_of(5, 3000, "HTTP/1.1 503 No\r\nContent-Length: 3000\r\n\r\n"),
                End::WrongStatus,
            ),
            ("another length", response_of(5, 3000, "HTTP/1.1 200 OK\r\nContent-Length: 2999\r\n\r\n"), End::WrongHead),
            ("no length", response_of(5, 3000, "HTTP/1.1 200 OK\r\n\r\n"), End::WrongHead),
            (
                "two lengths",
                response_of(5, 3000, "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\nContent-Length: 3000\r\n\r\n"),
                End::WrongHead,
            ),
            ("not HTTP", b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), End::WrongHead),
            ("a head without end", vec![b'a'; 20_000], End::WrongHead),
            ("another file", response_of(6, 3000, good), End::WrongBody),
            ("a changed byte", changed, End::WrongBody),
            ("a byte too many", longer, End::WrongBody),
        ] {
            assert_eq!(read(&bytes, 10_000).1, Err(end), "{what}");
        }
    }
}

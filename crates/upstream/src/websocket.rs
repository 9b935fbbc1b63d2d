//! The handshake of a WebSocket (RFC 6455, section 4) where one side speaks HTTP/2, which has none of it (RFC 8441).

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderValue, StatusCode, Version,
    header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE},
    response::Parts,
};

/// The text that a server adds to the key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request for a WebSocket.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    key: HeaderValue,
    /// The client has sent none, so the answer is checked here.
    is_ours: bool,
}

impl Handshake {
    /// Takes the key of the client, or makes one for a client of HTTP/2. `None`: a client of HTTP/1.1 has sent none.
    pub(crate) fn of(headers: &mut HeaderMap, version: Version) -> Option<Self> {
        if let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|_| version != Version::HTTP_2) {
            return Some(Self { key: key.clone(), is_ours: false });
        }
        if version != Version::HTTP_2 {
            return None;
        }
        let mut bytes = [0; 16];
        fastrand::fill(&mut bytes);
        let key = HeaderValue::try_from(STANDARD.encode(bytes)).unwrap_or(HeaderValue::from_static(""));
        headers.insert(SEC_WEBSOCKET_KEY, key.clone());
        Some(Self { key, is_ours: true })
    }

    /// The answer of a server that understands the key.
    fn accept(&self) -> HeaderValue {
        let mut digest = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        digest.update(self.key.as_bytes());
        digest.update(GUID);
        HeaderValue::try_from(STANDARD.encode(digest.finish())).unwrap_or(HeaderValue::from_static(""))
    }

    /// Whether a server's 101 is for this key. Where the key is the client's, the client looks at it.
    pub(crate) fn is_answered_by(&self, headers: &HeaderMap) -> bool {
        !self.is_ours || headers.get(SEC_WEBSOCKET_ACCEPT) == Some(&self.accept())
    }

    /// Makes the answer of an HTTP/2 server one of HTTP/1.1.
    pub(crate) fn switch(&self, answer: &mut Parts) {
        answer.status = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        answer.headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        let mut headers = HeaderMap::from_iter([(SEC_WEBSOCKET_KEY, key)]);
        let of_client = Handshake::of(&mut headers, Version::HTTP_11).unwrap();
        assert_eq!(of_client.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(of_client.is_answered_by(&HeaderMap::new()), "the client looks at it");
        assert!(Handshake::of(&mut HeaderMap::new(), Version::HTTP_11).is_none());
        let ours = Handshake::of(&mut HeaderMap::new(), Version::HTTP_2).unwrap();
        assert!(!ours.is_answered_by(&HeaderMap::new()));
        let answer = HeaderMap::from_iter([(SEC_WEBSOCKET_ACCEPT, ours.accept())]);
        assert!(ours.is_answered_by(&answer));
    }
}

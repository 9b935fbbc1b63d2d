//! The cookie by which a client keeps its server.
//!
//! Its value is the HMAC-SHA256 of the server's address, cut to 128 bits. So it tells clients nothing about servers, no
//! client can name a server that it was not given, and the value stays the same over reloads. Which server a value stands
//! for is found by comparison with those of all servers.

use std::{fmt::Write as _, sync::OnceLock, time::Duration};

use aws_lc_rs::{hmac, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};

use crate::{config::StickyConfig, error::UpstreamSetupError};

/// The purpose of the signature, so that no other signature made with the same secret can be used here.
const PURPOSE: &[u8] = b"serpent server\0";
/// Fewest bytes of a secret: as many as the signature has.
const SECRET_BYTES: usize = 32;
/// Bytes of the signature that the cookie has, and their length in base64.
const TOKEN_BYTES: usize = 16;
const TOKEN_CHARS: usize = 22;
/// Most cookies of one name that are tried. Browsers send several only where paths or domains differ.
const MOST_TRIED: usize = 4;

/// Reads and writes the cookie of an upstream.
pub(crate) struct Sticky {
    cookie: Box<str>,
    upstream: Box<str>,
    key: hmac::Key,
    lifetime: Option<Duration>,
}

impl Sticky {
    /// Reads the secret.
    pub(crate) fn new(config: &StickyConfig, upstream: &str) -> Result<Self, UpstreamSetupError> {
        let wrong = |message| UpstreamSetupError { upstream: upstream.to_owned(), message };
        let key = match &config.secret {
            Some(path) => {
                let unreadable = |error| wrong(format!("the secret {} cannot be read: {error}", path.display()));
                let secret = std::fs::read(path).map_err(unreadable)?;
                if secret.len() < SECRET_BYTES {
                    return Err(wrong(format!(
                        "the secret {} has {} bytes; at least {SECRET_BYTES} are needed, as `head -c 32 /dev/urandom` makes them",
                        path.display(),
                        secret.len()
                    )));
                }
                hmac::Key::new(hmac::HMAC_SHA256, &secret)
            }
            None => hmac::Key::new(hmac::HMAC_SHA256, secret_of_this_process()),
        };
        let (cookie, upstream) = (config.cookie.as_str().into(), upstream.into());
        Ok(Self { cookie, upstream, key, lifetime: config.lifetime })
    }

    /// Whether the same values stand for the same servers.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.token("", None) == other.token("", None)
    }

    /// The value that stands for a server.
    pub(crate) fn token(&self, server: &str, class: Option<usize>) -> Box<str> {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(PURPOSE);
        for part in [&self.upstream, &self.cookie] {
            context.update(part.as_bytes());
            context.update(b"\0");
        }
        context.update(server.as_bytes());
        if let Some(class) = class {
            context.update(b"\0");
            context.update(&class.to_be_bytes());
        }
        URL_SAFE_NO_PAD.encode(&context.sign().as_ref()[..TOKEN_BYTES]).into()
    }

    /// The value that a request brings along.
    pub(crate) fn read(&self, headers: &HeaderMap) -> Option<Box<[u8]>> {
        let named = heads::cookies(headers).filter(|(name, _)| *name == self.cookie.as_bytes());
        named.take(MOST_TRIED).find(|(_, value)| value.len() == TOKEN_CHARS).map(|(_, value)| value.into())
    }

    /// The `Set-Cookie` value for a server.
    pub(crate) fn write(&self, token: &str, secure: bool) -> Option<HeaderValue> {
        let mut text = format!("{}={token}; Path=/; HttpOnly; SameSite=Lax", self.cookie);
        if let Some(lifetime) = self.lifetime {
            write!(text, "; Max-Age={}", lifetime.as_secs()).ok()?;
        }
        if secure {
            text.push_str("; Secure");
        }
        HeaderValue::try_from(text).ok()
    }
}

/// The secret of this process, made once so that a reload does not move clients.
fn secret_of_this_process() -> &'static [u8; SECRET_BYTES] {
    static SECRET: OnceLock<[u8; SECRET_BYTES]> = OnceLock::new();
    SECRET.get_or_init(|| {
        let mut secret = [0; SECRET_BYTES];
        rand::fill(&mut secret).expect("the system has randomness");
        secret
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::header;

    use super::*;

    fn sticky(secret: Option<&Path>, upstream: &str) -> Result<Sticky, UpstreamSetupError> {
        let secret = secret.map(Path::to_owned);
        Sticky::new(&StickyConfig { cookie: "server".to_owned(), secret, lifetime: None }, upstream)
    }

    #[test]
    fn a_value_stands_for_one_server_of_one_upstream_under_one_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other, short) = (folder.path().join("one"), folder.path().join("other"), folder.path().join("short"));
        std::fs::write(&one, [1; 32]).unwrap();
        std::fs::write(&other, [2; 40]).unwrap();
        std::fs::write(&short, [3; 31]).unwrap();
        let first = sticky(Some(&one), "app").unwrap();
        let token = first.token("10.0.0.1:80", None);
        assert_eq!(token.len(), TOKEN_CHARS);
        assert_eq!(sticky(Some(&one), "app").unwrap().token("10.0.0.1:80", None), token, "after a restart");
        for different in [
            first.token("10.0.0.2:80", None),
            first.token("10.0.0.1:80", Some(0)),
            sticky(Some(&one), "shop").unwrap().token("10.0.0.1:80", None),
            sticky(Some(&other), "app").unwrap().token("10.0.0.1:80", None),
            sticky(None, "app").unwrap().token("10.0.0.1:80", None),
        ] {
            assert_ne!(different, token);
        }
        assert!(sticky(None, "app").unwrap().is_like(&sticky(None, "app").unwrap()), "after a reload");
        assert!(!first.is_like(&sticky(Some(&other), "app").unwrap()));
        let message = |path| sticky(Some(path), "app").err().unwrap().to_string();
        assert!(message(&short).contains("has 31 bytes; at least 32 are needed"), "{}", message(&short));
        assert!(message(&folder.path().join("none")).contains("cannot be read"));
    }

    #[test]
    fn what_is_set_is_read() {
        let sticky = Sticky { lifetime: Some(Duration::from_secs(60)), ..sticky(None, "app").unwrap() };
        let token = sticky.token("10.0.0.1:80", None);
        let set = sticky.write(&token, true).unwrap();
        let set = set.to_str().unwrap();
        assert_eq!(set, format!("server={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure"));
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("server=short; servers=aaaaaaaaaaaaaaaaaaaaaa"));
        assert_eq!(sticky.read(&headers), None);
        headers.append(header::COOKIE, HeaderValue::from_str(set.split(';').next().unwrap()).unwrap());
        assert_eq!(sticky.read(&headers).as_deref(), Some(token.as_bytes()));
    }
}

//! The cookie by which a session keeps its class: `v1.CLASS.EXPIRY.SIGNATURE`.
//!
//! The class is given by name, in base64url, so that it survives a reload that renumbers classes. The expiry
//! is in seconds since 1970. The signature is the HMAC-SHA256 of the parts before it and the cookie's name. A
//! cookie that is forged, expired or of a class that no longer exists is ignored: a new session begins.

use std::{
    fmt::{self, Write as _},
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use aws_lc_rs::{constant_time, hmac, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use heads::cookies;
use http::{HeaderMap, HeaderValue};
use scheduler::class::ClassId;

use crate::{
    config::SessionConfig,
    error::{ClassifierError, read},
};

/// The purpose of the signature, so that no other signature made with the same secret can be used here.
const PURPOSE: &[u8] = b"serpent session\0";
const VERSION: &str = "v1";
/// Fewest bytes of a secret: as many as the signature has.
pub const SECRET_BYTES: usize = 32;
/// Most cookies of one name that are tried. Browsers send several only where paths or domains differ.
const MOST_TRIED: usize = 4;

/// Reads and writes the cookie.
pub(crate) struct Sessions {
    cookie: Box<str>,
    /// Class names in base64url.
    names: Vec<String>,
    keys: SessionKeys,
    lifetime: Duration,
    secure: bool,
}

/// The keys that cookies are signed with. Clones share them, so they can change while requests are classified.
#[derive(Clone)]
pub struct SessionKeys(Arc<ArcSwap<Ring>>);

/// The first key signs, and all are accepted.
struct Ring(Vec<hmac::Key>);

impl SessionKeys {
    fn new(secrets: &[&[u8]]) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Ring::new(secrets))))
    }

    /// One key, made once in a process.
    pub fn of_this_process() -> Self {
        Self::new(&[secret_of_this_process()])
    }

    /// Uses other secrets from now on: the first one signs, and all are accepted. Those of this process stay accepted.
    pub fn replace(&self, secrets: &[[u8; SECRET_BYTES]]) {
        let own = secret_of_this_process();
        let all: Vec<&[u8]> = secrets.iter().chain([own]).map(|secret| &secret[..]).collect();
        self.0.store(Arc::new(Ring::new(&all)));
    }
}

impl Ring {
    fn new(secrets: &[&[u8]]) -> Self {
        Self(secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect())
    }
}

/// A valid session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) class: ClassId,
    /// Whether more than half of its lifetime is over.
    pub(crate) ageing: bool,
}

/// The effect of a request on its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEffect {
    /// There is no session, and none begins.
    None,
    /// A session begins, with the class of the rule.
    Begun,
    /// The session keeps its class.
    Kept,
    /// The session keeps its class, and its cookie is renewed, because more than half of its lifetime is
    /// over.
    Renewed,
    /// The session takes the class of the rule, which is more important.
    Raised,
}

impl SessionEffect {
    pub(crate) fn sets_cookie(self) -> bool {
        matches!(self, Self::Begun | Self::Renewed | Self::Raised)
    }

    /// The effect as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Begun => "begun",
            Self::Kept => "kept",
            Self::Renewed => "renewed",
            Self::Raised => "raised",
        }
    }
}

impl Sessions {
    /// `keys`: those in use if the configuration names no file.
    pub(crate) fn new(config: &SessionConfig, classes: &[String], keys: &SessionKeys) -> Result<Self, ClassifierError> {
        let keys = match &config.secret {
            Some(path) => SessionKeys::new(&[&secret(path)?]),
            None => keys.clone(),
        };
        Ok(Self {
            cookie: config.cookie.as_str().into(),
            names: classes.iter().map(|class| URL_SAFE_NO_PAD.encode(class)).collect(),
            keys,
            lifetime: config.lifetime,
            secure: config.secure,
        })
    }

    /// The session of a request.
    pub(crate) fn read(&self, headers: &HeaderMap, now: SystemTime) -> Option<Session> {
        let named = cookies(headers).filter(|(name, _)| *name == self.cookie.as_bytes());
        named.take(MOST_TRIED).find_map(|(_, value)| self.session(value, now))
    }

    fn session(&self, value: &[u8], now: SystemTime) -> Option<Session> {
        let value = std::str::from_utf8(value).ok()?;
        let (payload, signature) = value.rsplit_once('.')?;
        let mut given = [0; 32];
        let len = URL_SAFE_NO_PAD.decode_slice(signature, &mut given).ok()?;
        let is_by = |key: &hmac::Key| {
            constant_time::verify_slices_are_equal(self.sign_with(key, payload).as_ref(), &given[..len]).is_ok()
        };
        self.keys.0.load().0.iter().any(is_by).then_some(())?;
        // The signature is valid, so the parts were written by this server, maybe under another
        // configuration.
        let mut parts = payload.split('.');
        let (Some(VERSION), Some(name), Some(expiry), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let expiry = UNIX_EPOCH.checked_add(Duration::from_secs(expiry.parse().ok()?))?;
        let left = expiry.duration_since(now).ok().filter(|left| !left.is_zero())?;
        let class = self.names.iter().position(|known| known == name)?;
        Some(Session { class: ClassId(u16::try_from(class).ok()?), ageing: left < self.lifetime / 2 })
    }

    /// The `Set-Cookie` value of a session.
    pub(crate) fn write(&self, class: ClassId, now: SystemTime) -> Option<HeaderValue> {
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expiry = since_1970.saturating_add(self.lifetime).as_secs();
        let mut text = String::with_capacity(self.cookie.len() + 192);
        let cookie = &self.cookie;
        write!(text, "{cookie}={VERSION}.{}.{expiry}", self.names.get(class.index())?).ok()?;
        let signature = self.sign(&text[cookie.len() + 1..]);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut text);
        write!(text, "; Path=/; Max-Age={}; HttpOnly; SameSite=Lax", self.lifetime.as_secs()).ok()?;
        if self.secure {
            text.push_str("; Secure");
        }
        HeaderValue::try_from(text).ok()
    }

    pub(crate) fn sign(&self, payload: &str) -> hmac::Tag {
        self.sign_with(&self.keys.0.load().0[0], payload)
    }

    fn sign_with(&self, key: &hmac::Key, payload: &str) -> hmac::Tag {
        let mut context = hmac::Context::with_key(key);
        context.update(PURPOSE);
        context.update(self.cookie.as_bytes());
        context.update(b"\0");
        context.update(payload.as_bytes());
        context.sign()
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").finish_non_exhaustive()
    }
}

fn secret(path: &Path) -> Result<Vec<u8>, ClassifierError> {
    let secret = read(path)?;
    if secret.len() < SECRET_BYTES {
        let message = format!(
            "the secret has {} bytes; at least {SECRET_BYTES} are needed, as `head -c 32 /dev/urandom` makes them",
            secret.len()
        );
        return Err(ClassifierError { path: path.to_owned(), message });
    }
    Ok(secret)
}

/// The secret of this process, made once so that a reload does not end sessions.
fn secret_of_this_process() -> &'static [u8; SECRET_BYTES] {
    static SECRET: OnceLock<[u8; SECRET_BYTES]> = OnceLock::new();
    SECRET.get_or_init(|| {
        let mut secret = [0; SECRET_BYTES];
        rand::fill(&mut secret).expect("the system has randomness");
        secret
    })
}

//! Sorts requests into classes, by rules and sessions.
//!
//! Rules are tried in order. The first one whose conditions all hold matches, and no later one is tried. Its
//! class is the request's; without a match it is the default class.
//!
//! # Sessions
//!
//! With sessions configured, a class that a rule gave is kept in a signed cookie (`sessions`). Later requests
//! with that cookie have the class, whatever they ask for:
//!
//! - Without a session, the matching rule gives the class and begins a session. Where no rule matches, none
//!   begins: the default class needs no cookie.
//! - In a session, rules are tried too. The matching rule still gives the resource. If it has
//!   `raises_session` and its class is more important than the session's, the request and the session take
//!   that class. Otherwise the session's class holds. So no request lowers a session, and a rule that does
//!   not raise hides the rules behind it.
//! - A session ends when its cookie has not been renewed for a lifetime. The first request after half of that
//!   renews it, so most responses set no cookie.
//! - A cookie with an invalid signature, an expired one, or one of a class that no longer exists is no
//!   session.
//!
//! # Passwords
//!
//! Checking a password takes milliseconds (`passwords`). It is done only when a rule with a user condition is
//! tried, its other conditions hold, and the request has a password without a cached result. Then the verdict
//! comes later. The verdicts for a right and for a wrong password are both prepared at once, so that the
//! request need not be kept. When too many checks wait, the password counts as wrong: the request gets the
//! class that it would have without one.

mod apr1;
mod conditions;
mod explain;
mod forwarded;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod keys;
pub mod passwords;
mod sessions;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::SystemTime,
};

use aws_lc_rs::{hmac, rand::SystemRandom};
use http::{HeaderValue, request::Parts};
use scheduler::{admission::ResourceId, class::ClassId};

pub use self::explain::{ConditionExplained, Explanation, RuleExplained, SessionEffect};
use self::{
    conditions::{Asked, Login},
    keys::Keys,
    passwords::{Check, Passwords},
    sessions::{Session, Sessions},
};
use crate::config::{Classes, Condition, ForwardedField};

/// Sorts requests into classes. Classifying is cheap; files are read when the classifier is made.
#[derive(Debug)]
pub struct Classifier {
    classes: Classes,
    /// The conditions of every rule, cheap ones first.
    conditions: Vec<Vec<Condition>>,
    passwords: Option<Arc<Passwords>>,
    keys: Option<Keys>,
    sessions: Option<Sessions>,
    trivial: bool,
}

/// Why a classifier cannot be made; the operator has to fix it.
#[derive(Debug)]
pub struct ClassifierError {
    /// The file.
    pub path: PathBuf,
    /// The problem, with its line if there is one.
    pub message: String,
}

impl fmt::Display for ClassifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for ClassifierError {}

/// The properties of a request that rules can test.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Method, target, header.
    pub parts: &'a Parts,
    /// The requested host, in the form of [`crate::config::Site::names`]: without port, in lower case.
    pub host: &'a str,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// This server's end of the connection.
    pub local: SocketAddr,
    /// Names in the client's verified certificate: the common name and the DNS names. Empty without one.
    pub certificate_names: &'a [Box<str>],
    /// Whether the client has shown a trusted certificate.
    pub has_certificate: bool,
    /// Whether the connection is TLS.
    pub tls: bool,
    /// The current time, for sessions.
    pub now: SystemTime,
}

/// The result of classifying a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Its class.
    pub class: ClassId,
    /// The index of the rule that gave it; `None`: none matched, or the session's class holds.
    pub rule: Option<usize>,
    /// The resource that it mainly needs, if the matching rule names one.
    pub resource: Option<ResourceId>,
    /// The client's address, as told by trusted proxies.
    pub client: IpAddr,
    /// The field in which the peer's statement about its client is believed; `None`: the peer is no trusted
    /// proxy.
    pub believed: Option<ForwardedField>,
    /// The user's name, if a rule tested it and the password was right. For the log and for programs
    /// (`REMOTE_USER`).
    pub user: Option<Box<str>>,
    /// A cookie to set, by which the session keeps its class.
    pub set_cookie: Option<HeaderValue>,
}

/// A verdict, available now or after a password check, which is slow by design and runs on another thread.
pub enum Classified {
    /// Here.
    Now(Verdict),
    /// To be awaited within a tokio runtime; it may be dropped at any time.
    Later(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

/// The outcome for a request whose rule and session are known.
struct Decision {
    class: ClassId,
    rule: Option<usize>,
    effect: SessionEffect,
}

impl Classifier {
    /// Reads the files that the classes name. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub fn new(classes: &Classes) -> Result<Self, ClassifierError> {
        let in_order = |conditions: &Vec<Condition>| {
            let mut conditions = conditions.clone();
            conditions.sort_by_key(conditions::cost);
            conditions
        };
        let nothing_asked = classes.rules.is_empty() && (classes.session.is_none() || classes.classes.len() == 1);
        Ok(Self {
            conditions: classes.rules.iter().map(|rule| in_order(&rule.conditions)).collect(),
            passwords: classes.users.as_deref().map(Passwords::read).transpose()?.map(Arc::new),
            keys: classes.keys.as_ref().map(|keys| Keys::read(&keys.file)).transpose()?,
            sessions: classes.session.as_ref().map(|session| Sessions::new(session, classes)).transpose()?,
            trivial: nothing_asked && classes.trusted_proxies.is_empty(),
            classes: classes.clone(),
        })
    }

    /// Whether all requests have one class, so that none need be classified.
    pub fn is_trivial(&self) -> bool {
        self.trivial
    }

    /// The users, if there are any.
    pub fn passwords(&self) -> Option<&Arc<Passwords>> {
        self.passwords.as_ref()
    }

    /// The class of a request.
    pub fn classify(&self, facts: Facts<'_>) -> Classified {
        if self.trivial {
            let (class, client) = (self.classes.default, facts.peer.ip().to_canonical());
            return Classified::Now(Verdict {
                class,
                rule: None,
                resource: None,
                client,
                believed: None,
                user: None,
                set_cookie: None,
            });
        }
        let asked = self.ask(facts);
        let verdict = self.verdict(&asked);
        let (Some(passwords), Some(credentials)) = (&self.passwords, asked.unchecked()) else {
            return Classified::Now(verdict);
        };
        let check = passwords.clone().check(credentials.clone(), verdict.client);
        asked.set_login(Login::Right);
        let if_right = self.verdict(&asked);
        let if_wrong = verdict;
        Classified::Later(Box::pin(async move {
            match check.await {
                Check::Right => if_right,
                Check::Wrong => if_wrong,
                Check::Busy => {
                    // A client that guesses passwords must not fill the log too.
                    tracing::debug!(client = %if_wrong.client, "a password was not checked: too many wait for that");
                    if_wrong
                }
            }
        }))
    }

    fn ask<'a>(&'a self, facts: Facts<'a>) -> Asked<'a> {
        let Classes { trusted_proxies, forwarded, keys, .. } = &self.classes;
        let peer = facts.peer.ip().to_canonical();
        let client = match trusted_proxies.is_empty() {
            true => peer,
            false => forwarded::client(peer, &facts.parts.headers, trusted_proxies, *forwarded),
        };
        Asked::new(facts, client, self.passwords.as_deref(), self.keys.as_ref().zip(keys.as_ref()))
    }

    fn verdict(&self, asked: &Asked<'_>) -> Verdict {
        let matched = self.conditions.iter().position(|rule| rule.iter().all(|condition| asked.holds(condition)));
        let session = self.session(asked);
        let Decision { class, rule, effect } = self.decide(matched, session);
        Verdict {
            class,
            rule,
            resource: matched.and_then(|rule| self.classes.rules[rule].resource),
            client: asked.client,
            believed: forwarded::is_trusted(asked.facts.peer.ip(), &self.classes.trusted_proxies)
                .then_some(self.classes.forwarded),
            user: asked.user().map(Into::into),
            set_cookie: self
                .sessions
                .as_ref()
                .filter(|_| effect.sets_cookie())
                .and_then(|sessions| sessions.write(class, asked.facts.now)),
        }
    }

    fn session(&self, asked: &Asked<'_>) -> Option<Session> {
        self.sessions.as_ref()?.read(&asked.facts.parts.headers, asked.facts.now)
    }

    fn decide(&self, matched: Option<usize>, session: Option<Session>) -> Decision {
        let rule = matched.map(|rule| (rule, &self.classes.rules[rule]));
        match (session, rule) {
            // A revoked key must not survive in a cookie. A client with a key sends it with each request.
            (session, Some((at, rule)))
                if conditions::ask_who(&rule.conditions)
                    && session.is_none_or(|session| rule.class < session.class) =>
            {
                Decision { class: rule.class, rule: Some(at), effect: SessionEffect::None }
            }
            (Some(session), Some((at, rule))) if rule.raises_session && rule.class < session.class => {
                Decision { class: rule.class, rule: Some(at), effect: SessionEffect::Raised }
            }
            (Some(Session { class, ageing }), _) => {
                let effect = if ageing { SessionEffect::Renewed } else { SessionEffect::Kept };
                Decision { class, rule: None, effect }
            }
            (None, Some((at, rule))) => {
                let effect = if self.sessions.is_some() { SessionEffect::Begun } else { SessionEffect::None };
                Decision { class: rule.class, rule: Some(at), effect }
            }
            (None, None) => Decision { class: self.classes.default, rule: None, effect: SessionEffect::None },
        }
    }
}

/// A request's path for routes and rules: decoded, and with empty and dot segments resolved. `None`: it is no
/// path or not UTF-8, so no pattern matches it. `%2F` and `%25` stay encoded, because a slash within a name
/// does not separate names.
pub fn decoded_path(raw: &str) -> Option<Cow<'_, str>> {
    files::pattern_path(raw)
}

/// Encodes a path from [`decoded_path`], or a part of one, for a request target.
pub fn encoded_path(decoded: &str) -> Cow<'_, str> {
    files::encode_pattern_path(decoded)
}

fn read(path: &Path) -> Result<Vec<u8>, ClassifierError> {
    std::fs::read(path).map_err(|error: io::Error| ClassifierError {
        path: path.to_owned(),
        message: format!("it cannot be read: {error}"),
    })
}

/// A random secret key, for hashes that must reveal nothing.
fn random_key() -> hmac::Key {
    hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("the system has randomness")
}

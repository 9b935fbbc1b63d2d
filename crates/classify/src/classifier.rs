//! Finds the class of a request.

use std::{net::IpAddr, pin::Pin, sync::Arc};

use heads::ForwardedField;
use http::{HeaderValue, request::Parts};
use scheduler::{admission::ResourceId, class::ClassId};

use crate::{
    conditions::{self, Login, RequestView},
    config::{ClassifierConfig, Condition},
    error::ClassifierError,
    facts::Facts,
    forwarded,
    keys::Keys,
    passwords::{Check, Passwords},
    sessions::{Session, SessionEffect, SessionKeys, Sessions},
};

/// Sorts requests into classes. Classifying is cheap; files are read when the classifier is made.
#[derive(Debug)]
pub struct Classifier {
    pub(crate) config: ClassifierConfig,
    /// The conditions of every rule, cheap ones first.
    pub(crate) conditions: Vec<Vec<Condition>>,
    pub(crate) passwords: Option<Arc<Passwords>>,
    pub(crate) keys: Option<Keys>,
    pub(crate) sessions: Option<Sessions>,
    trivial: bool,
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
pub(crate) struct Decision {
    class: ClassId,
    rule: Option<usize>,
    pub(crate) effect: SessionEffect,
}

impl Classifier {
    /// Reads the files that the classes name. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub fn new(config: impl Into<ClassifierConfig>) -> Result<Self, ClassifierError> {
        Self::with_keys(config, &SessionKeys::of_this_process())
    }

    /// The same, with keys for the cookies of sessions that are used if the configuration names no file with a secret.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub fn with_keys(config: impl Into<ClassifierConfig>, keys: &SessionKeys) -> Result<Self, ClassifierError> {
        let config = config.into();
        let in_order = |conditions: &Vec<Condition>| {
            let mut conditions = conditions.clone();
            conditions.sort_by_key(conditions::cost);
            conditions
        };
        let nothing_asked = config.rules.is_empty() && (config.session.is_none() || config.classes.len() == 1);
        Ok(Self {
            conditions: config.rules.iter().map(|rule| in_order(&rule.conditions)).collect(),
            passwords: config.users.as_deref().map(Passwords::read).transpose()?.map(Arc::new),
            keys: config.keys.as_ref().map(|keys| Keys::read(&keys.file)).transpose()?,
            sessions: config
                .session
                .as_ref()
                .map(|session| Sessions::new(session, &config.classes, keys))
                .transpose()?,
            trivial: nothing_asked && config.trusted_proxies.is_empty(),
            config,
        })
    }

    /// Whether all requests have one class, so that none need be classified.
    pub fn is_trivial(&self) -> bool {
        self.trivial
    }

    /// Whether a peer is a proxy whose word about its clients is believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        forwarded::is_trusted(peer, &self.config.trusted_proxies)
    }

    /// The users, if there are any.
    pub fn passwords(&self) -> Option<&Arc<Passwords>> {
        self.passwords.as_ref()
    }

    /// The hash of the key of a request, if it has one that is in the file of keys.
    pub fn key(&self, parts: &Parts) -> Option<[u8; 32]> {
        let (keys, config) = self.keys.as_ref().zip(self.config.keys.as_ref())?;
        keys.of_request(parts, config.header.as_ref(), config.query.as_deref()).map(|(hash, _)| *hash)
    }

    /// The class of a request.
    pub fn classify(&self, facts: Facts<'_>) -> Classified {
        if self.trivial {
            let (class, client) = (self.config.default, facts.peer.ip().to_canonical());
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
        let request = self.view(facts);
        let verdict = self.verdict(&request);
        let (Some(passwords), Some(credentials)) = (&self.passwords, request.unchecked()) else {
            return Classified::Now(verdict);
        };
        let check = passwords.clone().check(credentials.clone(), verdict.client);
        request.set_login(Login::Right);
        let if_right = self.verdict(&request);
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

    pub(crate) fn view<'a>(&'a self, facts: Facts<'a>) -> RequestView<'a> {
        let ClassifierConfig { trusted_proxies, forwarded, keys, .. } = &self.config;
        let peer = facts.peer.ip().to_canonical();
        let client = match trusted_proxies.is_empty() {
            true => peer,
            false => forwarded::client(peer, &facts.parts.headers, trusted_proxies, *forwarded),
        };
        RequestView::new(facts, client, self.passwords.as_deref(), self.keys.as_ref().zip(keys.as_ref()))
    }

    pub(crate) fn verdict(&self, request: &RequestView<'_>) -> Verdict {
        let matched = self.conditions.iter().position(|rule| rule.iter().all(|condition| request.holds(condition)));
        let session = self.session(request);
        let Decision { class, rule, effect } = self.decide(matched, session);
        Verdict {
            class,
            rule,
            resource: matched.and_then(|rule| self.config.rules[rule].resource),
            client: request.client,
            believed: forwarded::is_trusted(request.facts.peer.ip(), &self.config.trusted_proxies)
                .then_some(self.config.forwarded),
            user: request.user().map(Into::into),
            set_cookie: self
                .sessions
                .as_ref()
                .filter(|_| effect.sets_cookie())
                .and_then(|sessions| sessions.write(class, request.facts.now)),
        }
    }

    pub(crate) fn session(&self, request: &RequestView<'_>) -> Option<Session> {
        self.sessions.as_ref()?.read(&request.facts.parts.headers, request.facts.now)
    }

    pub(crate) fn decide(&self, matched: Option<usize>, session: Option<Session>) -> Decision {
        let rule = matched.map(|rule| (rule, &self.config.rules[rule]));
        match (session, rule) {
            // A revoked key must not survive in a cookie. A client with a key sends it with each request.
            (session, Some((at, rule)))
                if conditions::identify_client(&rule.conditions)
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
            (None, None) => Decision { class: self.config.default, rule: None, effect: SessionEffect::None },
        }
    }
}

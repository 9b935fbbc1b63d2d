//! Evaluates the conditions of rules on a request. A property that several conditions use is computed once,
//! at first use.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    net::{IpAddr, SocketAddr},
};

use heads::cookies;

use crate::{
    config::{Condition, KeysConfig, ValueMatch},
    facts::Facts,
    keys::Keys,
    passwords::{Credentials, Passwords},
    path::decoded_path,
};

/// A request, and the properties computed so far.
pub(crate) struct RequestView<'a> {
    pub(crate) facts: Facts<'a>,
    pub(crate) client: IpAddr,
    passwords: Option<&'a Passwords>,
    keys: Option<(&'a Keys, &'a KeysConfig)>,
    path: OnceCell<Option<Cow<'a, str>>>,
    level: OnceCell<Option<&'a str>>,
    credentials: OnceCell<Option<Credentials>>,
    login: Cell<Login>,
}

/// The state of the request's password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// No condition has used it.
    Unasked,
    /// It has to be checked. Until then it counts as wrong.
    Unchecked,
    /// There is no password, or it is wrong.
    Wrong,
    /// The password is right.
    Right,
}

impl<'a> RequestView<'a> {
    pub(crate) fn new(
        facts: Facts<'a>,
        client: IpAddr,
        passwords: Option<&'a Passwords>,
        keys: Option<(&'a Keys, &'a KeysConfig)>,
    ) -> Self {
        Self {
            facts,
            client,
            passwords,
            keys,
            path: OnceCell::new(),
            level: OnceCell::new(),
            credentials: OnceCell::new(),
            login: Cell::new(Login::Unasked),
        }
    }

    pub(crate) fn holds(&self, condition: &Condition) -> bool {
        let Facts { parts, host, local, certificate_names, has_certificate, .. } = self.facts;
        match condition {
            Condition::Host(names) => names.iter().any(|name| is_host(name, host)),
            Condition::Path(patterns) => {
                self.path().is_some_and(|path| patterns.iter().any(|pattern| pattern.matches(path).is_some()))
            }
            Condition::Extension(extensions) => {
                self.path().is_some_and(|path| extensions.iter().any(|extension| has_extension(path, extension)))
            }
            Condition::Method(methods) => methods.contains(&parts.method),
            Condition::Query(key, values) => self.query(key).any(|value| fits(values, value.as_bytes())),
            Condition::Header(name, values) => {
                parts.headers.get_all(name).iter().any(|value| fits(values, value.as_bytes()))
            }
            Condition::Cookie(name, values) => {
                cookies(&parts.headers).any(|(found, value)| found == name.as_bytes() && fits(values, value))
            }
            Condition::Destination(addresses) => addresses.iter().any(|address| is_destination(address, &local)),
            Condition::Client(nets) => nets.iter().any(|net| net.contains(&self.client)),
            Condition::User(users) => {
                // The password is checked even for a user who is not listed; otherwise the time would reveal
                // the listed users.
                self.login() == Login::Right
                    && (users.is_empty() || self.user().is_some_and(|user| users.iter().any(|name| name == user)))
            }
            Condition::Certificate(names) => {
                let shown = |name: &String| certificate_names.iter().any(|shown| shown.eq_ignore_ascii_case(name));
                has_certificate && (names.is_empty() || names.iter().any(shown))
            }
            Condition::Key(levels) => {
                self.level().is_some_and(|level| levels.is_empty() || levels.iter().any(|wanted| wanted == level))
            }
        }
    }

    /// The path in the form that patterns match.
    pub(crate) fn path(&self) -> Option<&str> {
        self.path.get_or_init(|| decoded_path(self.facts.parts.uri.path())).as_deref()
    }

    /// The decoded values of a query parameter.
    pub(crate) fn query<'b>(&'b self, key: &'b str) -> impl Iterator<Item = Cow<'b, str>> {
        let query = self.facts.parts.uri.query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).filter(move |(found, _)| found == key).map(|(_, value)| value)
    }

    /// The level of the request's key.
    pub(crate) fn level(&self) -> Option<&'a str> {
        *self.level.get_or_init(|| {
            let (keys, config) = self.keys?;
            keys.level_of(self.facts.parts, config.header.as_ref(), config.query.as_deref())
        })
    }

    /// The credentials of the request.
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.get_or_init(|| Credentials::basic(&self.facts.parts.headers)).as_ref()
    }

    /// The user's name, if a condition used the password and it was right.
    pub(crate) fn user(&self) -> Option<&str> {
        self.credentials().filter(|_| self.login.get() == Login::Right).map(Credentials::user)
    }

    /// The state of the password. It is computed now if that needs no slow check.
    fn login(&self) -> Login {
        if self.login.get() == Login::Unasked {
            let known = || {
                let (passwords, credentials) = (self.passwords?, self.credentials()?);
                Some(passwords.known(credentials))
            };
            self.set_login(match known() {
                Some(None) => Login::Unchecked,
                Some(Some(true)) => Login::Right,
                Some(Some(false)) | None => Login::Wrong,
            });
        }
        self.login.get()
    }

    pub(crate) fn set_login(&self, login: Login) {
        self.login.set(login);
    }

    /// The credentials that must be checked before the user is known, if a condition used them.
    pub(crate) fn unchecked(&self) -> Option<&Credentials> {
        self.credentials().filter(|_| self.login.get() == Login::Unchecked)
    }
}

/// The relative cost of a condition: the cheap ones of a rule are evaluated first.
pub(crate) fn cost(condition: &Condition) -> u8 {
    match condition {
        Condition::Method(_) => 0,
        Condition::Destination(_) => 1,
        Condition::Client(_) => 2,
        Condition::Host(_) => 3,
        Condition::Certificate(_) => 4,
        Condition::Extension(_) => 5,
        Condition::Path(_) => 6,
        Condition::Header(..) => 7,
        Condition::Cookie(..) => 8,
        Condition::Query(..) => 9,
        Condition::Key(_) => 10,
        // Checking a password takes milliseconds; it is skipped if another condition does not hold.
        Condition::User(_) => 11,
    }
}

/// Whether some condition identifies the client.
pub(crate) fn identify_client(conditions: &[Condition]) -> bool {
    conditions.iter().any(|it| matches!(it, Condition::Certificate(_) | Condition::Key(_) | Condition::User(_)))
}

fn fits(values: &ValueMatch, value: &[u8]) -> bool {
    match values {
        ValueMatch::Present => true,
        ValueMatch::OneOf(values) => values.iter().any(|wanted| wanted.as_bytes() == value),
        ValueMatch::Regex(regex) => regex.is_match(&String::from_utf8_lossy(value)),
    }
}

fn is_host(name: &str, host: &str) -> bool {
    match name.strip_prefix('*') {
        // `.example.org` with something before it.
        Some(suffix) if suffix.starts_with('.') => {
            let (name, suffix) = (host.as_bytes(), suffix.as_bytes());
            name.len() > suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
        _ => name.eq_ignore_ascii_case(host),
    }
}

/// Whether the path has the extension. A name whose only dot is its first character, such as `.profile`, has
/// none.
fn has_extension(path: &str, extension: &str) -> bool {
    let name = path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let Some(dot) = name.len().checked_sub(extension.len() + 1).filter(|dot| *dot > 0) else { return false };
    name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(extension.as_bytes())
}

fn is_destination(wanted: &SocketAddr, local: &SocketAddr) -> bool {
    let address = wanted.ip().is_unspecified() || wanted.ip().to_canonical() == local.ip().to_canonical();
    address && (wanted.port() == 0 || wanted.port() == local.port())
}

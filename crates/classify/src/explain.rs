//! Explains why a request has its class: every rule up to the matching one, and the values that its
//! conditions tested.
//!
//! Secrets are not shown: passwords, keys, `Authorization` and the session's cookie. This holds for the
//! request's values and for the values in rules.

use std::{fmt, net::IpAddr};

use heads::cookies;
use http::{HeaderName, HeaderValue, header};
use serde_json::{Value, json};

use crate::{
    classifier::{Classifier, Decision, Verdict},
    conditions::{Login, RequestView},
    config::{Condition, ValueMatch},
    facts::Facts,
    sessions::SessionEffect,
};

/// Most characters shown of a request's value.
const MAX_SHOWN_CHARS: usize = 200;
const HIDDEN: &str = "(not shown)";

/// Why a request is of its class.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The classifier's verdict, as if the request had arrived.
    pub verdict: Verdict,
    /// The name of the class.
    pub class: String,
    /// The path that rules matched; `None`: the path is invalid and cannot match.
    pub path: Option<String>,
    /// The peer's address, if the peer is a trusted proxy rather than the client.
    pub proxy: Option<IpAddr>,
    /// The class of the request's session, if it has one.
    pub session_class: Option<String>,
    /// The rules, in order, up to the one that matches.
    pub rules: Vec<RuleExplained>,
    /// The number of later rules, which were not tried.
    pub rules_left: usize,
    /// The effect on the session.
    pub session: SessionEffect,
}

/// A rule, and whether it matches.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleExplained {
    /// The rule's name.
    pub name: String,
    /// The name of its class.
    pub class: String,
    /// Whether it raises sessions.
    pub raises_session: bool,
    /// Its conditions, in the order of the configuration.
    pub conditions: Vec<ConditionExplained>,
    /// Whether all of them hold.
    pub matches: bool,
}

/// A condition, and whether it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionExplained {
    /// The tested property: `host`, `path`, `header x-plan`...
    pub what: String,
    /// The values that the condition accepts.
    pub asked: String,
    /// The request's value; `None`: it has none.
    pub seen: Option<String>,
    /// Whether it holds.
    pub holds: bool,
}

impl Classifier {
    /// Explains the class of a request. Blocks while a password is checked.
    pub fn explain(&self, facts: Facts<'_>) -> Explanation {
        let request = self.view(facts);
        // Evaluated as in classifying, so that a password is checked only where it would be.
        let mut verdict = self.verdict(&request);
        if let (Some(passwords), Some(credentials)) = (&self.passwords, request.unchecked()) {
            let right = passwords.check_blocking(credentials);
            request.set_login(if right { Login::Right } else { Login::Wrong });
            verdict = self.verdict(&request);
        }
        let class_name = |class: scheduler::class::ClassId| self.config.classes[class.index()].clone();
        let all = &self.config.rules;
        let matched = self.conditions.iter().position(|rule| rule.iter().all(|condition| request.holds(condition)));
        let shown = &all[..matched.map_or(all.len(), |at| at + 1)];
        // Checked even if another condition of the rule does not hold, to answer fully. This does not change
        // the match.
        let asks_user = |condition: &Condition| matches!(condition, Condition::User(_));
        if let (Some(passwords), Some(credentials)) = (&self.passwords, request.credentials())
            && shown.iter().any(|rule| rule.conditions.iter().any(asks_user))
        {
            let right = passwords.check_blocking(credentials);
            request.set_login(if right { Login::Right } else { Login::Wrong });
        }
        let rules = shown.iter().enumerate().map(|(at, rule)| RuleExplained {
            name: rule.name.clone(),
            class: class_name(rule.class),
            raises_session: rule.raises_session,
            conditions: rule.conditions.iter().map(|condition| self.condition(condition, &request)).collect(),
            matches: matched == Some(at),
        });
        let rules = rules.collect();
        let session = self.session(&request);
        let Decision { effect, .. } = self.decide(matched, session);
        let peer = facts.peer.ip().to_canonical();
        Explanation {
            class: class_name(verdict.class),
            path: request.path().map(str::to_owned),
            proxy: (peer != verdict.client).then_some(peer),
            session_class: session.map(|session| class_name(session.class)),
            rules,
            rules_left: all.len() - shown.len(),
            session: effect,
            verdict,
        }
    }

    fn condition(&self, condition: &Condition, request: &RequestView<'_>) -> ConditionExplained {
        let Facts { parts, host, local, certificate_names, has_certificate, .. } = request.facts;
        let holds = request.holds(condition);
        let (what, wanted, seen) = match condition {
            Condition::Host(names) => ("host".to_owned(), names.join(", "), Some(shown(host.as_bytes()))),
            Condition::Path(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_str()).collect();
                ("path".to_owned(), patterns.join(", "), request.path().map(|path| shown(path.as_bytes())))
            }
            Condition::Extension(extensions) => {
                let name = request.path().and_then(|path| path.rsplit('/').next());
                let name = name.filter(|name| !name.is_empty()).map(|name| shown(name.as_bytes()));
                ("extension".to_owned(), extensions.join(", "), name)
            }
            Condition::Method(methods) => {
                let methods: Vec<_> = methods.iter().map(http::Method::as_str).collect();
                ("method".to_owned(), methods.join(", "), Some(shown(parts.method.as_str().as_bytes())))
            }
            Condition::Query(key, values) => {
                let secret = self.config.keys.as_ref().is_some_and(|keys| keys.query.as_deref() == Some(key));
                let seen = all(request.query(key).map(|value| shown(value.as_bytes())));
                (format!("query {key}"), hide(secret, values_asked(values)), seen.map(|seen| hide(secret, seen)))
            }
            Condition::Header(name, values) => {
                let secret = self.is_secret(name);
                let values_seen = parts.headers.get_all(name).iter();
                let seen = all(values_seen.map(HeaderValue::as_bytes).map(shown));
                (format!("header {name}"), hide(secret, values_asked(values)), seen.map(|seen| hide(secret, seen)))
            }
            Condition::Cookie(name, values) => {
                let secret = self.sessions.as_ref().is_some_and(|sessions| sessions.cookie() == name);
                let values_seen = cookies(&parts.headers).filter(|(found, _)| *found == name.as_bytes());
                let seen = all(values_seen.map(|(_, value)| shown(value)));
                (format!("cookie {name}"), hide(secret, values_asked(values)), seen.map(|seen| hide(secret, seen)))
            }
            Condition::Destination(addresses) => {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                ("destination".to_owned(), addresses.join(", "), Some(local.to_string()))
            }
            Condition::Client(nets) => {
                let nets: Vec<_> = nets.iter().map(ToString::to_string).collect();
                ("client".to_owned(), nets.join(", "), Some(request.client.to_string()))
            }
            Condition::User(users) => {
                let seen = request.credentials().map(|credentials| {
                    let name = shown(credentials.user().as_bytes());
                    match (self.passwords.is_some(), request.user().is_some()) {
                        (_, true) => format!("{name}, with the right password"),
                        (true, false) => format!("{name}, with a wrong password or unknown"),
                        (false, false) => format!("{name}, but there is no file of users"),
                    }
                });
                ("user".to_owned(), or_any(users, "any user"), seen)
            }
            Condition::Certificate(names) => {
                let seen = has_certificate.then(|| match certificate_names {
                    [] => "one without a name".to_owned(),
                    names => shown(names.join(", ").as_bytes()),
                });
                ("certificate".to_owned(), or_any(names, "any that is trusted"), seen)
            }
            Condition::Key(levels) => (
                "key".to_owned(),
                or_any(levels, "any level"),
                request.level().map(|level| format!("one of level {level}")),
            ),
        };
        ConditionExplained { what, asked: wanted, seen, holds }
    }

    fn is_secret(&self, name: &HeaderName) -> bool {
        let of_keys = self.config.keys.as_ref().and_then(|keys| keys.header.as_ref());
        [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE].contains(name) || of_keys == Some(name)
    }
}

impl Explanation {
    /// The explanation as JSON, for programs.
    pub fn to_json(&self) -> Value {
        let condition = |condition: &ConditionExplained| {
            let ConditionExplained { what, asked, seen, holds } = condition;
            json!({ "what": what, "asked": asked, "seen": seen, "holds": holds })
        };
        let rule = |rule: &RuleExplained| {
            let RuleExplained { name, class, raises_session, conditions, matches } = rule;
            let conditions: Vec<_> = conditions.iter().map(condition).collect();
            json!({
                "name": name, "class": class, "raises_session": raises_session, "conditions": conditions,
                "matches": matches,
            })
        };
        json!({
            "class": self.class,
            "rule": self.verdict.rule.and_then(|at| self.rules.get(at)).map(|rule| &rule.name),
            "path": self.path,
            "client": self.verdict.client.to_string(),
            "proxy": self.proxy.map(|proxy| proxy.to_string()),
            "user": self.verdict.user,
            "session": { "class": self.session_class, "effect": self.session.as_str() },
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
            "rules_left": self.rules_left,
        })
    }
}

/// The explanation as text, for people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proxy {
            Some(proxy) => writeln!(f, "client  {} (behind {proxy}, which is trusted)", self.verdict.client)?,
            None => writeln!(f, "client  {}", self.verdict.client)?,
        }
        match &self.path {
            Some(path) => writeln!(f, "path    {}", shown(path.as_bytes()))?,
            None => writeln!(f, "path    none that a rule could match: it cannot be decoded")?,
        }
        for rule in &self.rules {
            let verdict = if rule.matches { "matches" } else { "does not match" };
            let raises = if rule.raises_session { ", raises sessions" } else { "" };
            writeln!(f, "\n{} (class {}{raises}): {verdict}", rule.name, rule.class)?;
            if rule.conditions.is_empty() {
                writeln!(f, "  yes  no conditions")?;
            }
            for ConditionExplained { what, asked, seen, holds } in &rule.conditions {
                let holds = if *holds { "yes" } else { "no " };
                let seen = seen.as_deref().unwrap_or("none");
                writeln!(f, "  {holds}  {what}: asked for {asked}; the request has {seen}")?;
            }
        }
        match self.rules_left {
            0 => {}
            1 => writeln!(f, "\n1 rule more is not looked at")?,
            left => writeln!(f, "\n{left} rules more are not looked at")?,
        }
        let matched = self.rules.last().filter(|rule| rule.matches).map(|rule| rule.name.as_str());
        let class = &self.class;
        match (self.session, matched) {
            (SessionEffect::None, None) => write!(f, "\nclass {class}: no rule matches, so it is the default"),
            (SessionEffect::None, Some(rule)) => write!(f, "\nclass {class}: by {rule}"),
            (SessionEffect::Begun, rule) => {
                write!(f, "\nclass {class}: by {}; a session begins", rule.unwrap_or_default())
            }
            (SessionEffect::Raised, rule) => {
                let before = self.session_class.as_deref().unwrap_or_default();
                write!(f, "\nclass {class}: by {}; it raises the session from {before}", rule.unwrap_or_default())
            }
            (SessionEffect::Kept, _) => write!(f, "\nclass {class}: the session keeps it"),
            (SessionEffect::Renewed, _) => write!(f, "\nclass {class}: the session keeps it, and is renewed"),
        }
    }
}

fn values_asked(values: &ValueMatch) -> String {
    match values {
        ValueMatch::Present => "any value".to_owned(),
        ValueMatch::OneOf(values) => values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or "),
        ValueMatch::Regex(regex) => format!("/{regex}/"),
    }
}

fn or_any(wanted: &[String], any: &str) -> String {
    if wanted.is_empty() { any.to_owned() } else { wanted.join(", ") }
}

/// All values joined; `None` if there are none.
fn all(values: impl Iterator<Item = String>) -> Option<String> {
    let values: Vec<_> = values.map(|value| format!("`{value}`")).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

fn hide(secret: bool, text: String) -> String {
    if secret { HIDDEN.to_owned() } else { text }
}

/// A client's value, escaped so that it cannot control a terminal.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

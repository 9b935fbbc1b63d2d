//! Classes of requests, the rules that assign them, and the sharing of the site's slots.

use std::{path::PathBuf, time::Duration};

use classify::ClassifierConfig;
use drivers::{AdmissionConfig, NamedClass};
use http::StatusCode;
use ipnet::IpNet;
use scheduler::{
    admission::QueueOrder,
    class::{Class, ClassId},
    share::Policy,
};

use super::{ForwardedField, KeysConfig, Priority, Rule, SessionConfig};

/// The classes, the rules that assign requests to them, and their shares.
#[derive(Clone, Debug)]
pub struct Classes {
    /// The classes, the most important first. Never empty.
    pub classes: Vec<ClassConfig>,
    /// The class of requests that no rule matches.
    pub default: ClassId,
    /// The rules that assign classes; the first match counts.
    pub rules: Vec<Rule>,
    /// How the site's slots are shared between classes.
    pub admission: AdmissionConfig,
    /// How the uplink is shared between classes; `None`: all classes are treated as one.
    pub uplink_share: Option<Policy>,
    /// The file of names and passwords, in the format of Apache's `htpasswd`.
    pub users: Option<PathBuf>,
    /// Key values.
    pub keys: Option<KeysConfig>,
    /// The cookie by which a session keeps its class.
    pub session: Option<SessionConfig>,
    /// The proxies whose statement about the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The field with that statement. Only one is believed, because a proxy that writes one field passes on
    /// the client's own text in the other.
    pub forwarded: ForwardedField,
}

/// One class.
#[derive(Clone, Debug)]
pub struct ClassConfig {
    /// Its name.
    pub name: String,
    /// Its share and limits.
    pub given: Class,
    /// The processor priority of programs and workers that do its work.
    pub priority: Priority,
    /// The objective promised for it.
    pub objective: Objective,
    /// The answer to its refused requests.
    pub refusal: Refusal,
}

/// The objective promised for a class; it is monitored, not enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// Mean system time (waiting and service).
    pub mean: Option<Duration>,
    /// Percentile, in percent, and the system time that it must not exceed.
    pub percentile: Option<(f64, Duration)>,
    /// Largest part of requests that may fail: refused, or answered 5xx.
    pub error_rate: Option<f64>,
    /// The time over which it is monitored.
    pub window: Duration,
}

/// The answer to a refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The status; 503 by default.
    pub status: StatusCode,
    /// The value of `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The file of a page that replaces the built-in one.
    pub page: Option<PathBuf>,
}

impl ClassConfig {
    /// Makes a class with only a name. Configured settings replace these defaults one by one, and a
    /// configuration without classes has one class of only defaults. docs/DEFAULTS.md gives their reasons.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            given: Class { order: QueueOrder::Adaptive, most_wait_ns: Some(30_000_000_000), ..Class::default() },
            priority: Priority::default(),
            objective: Objective { window: Duration::from_secs(60), ..Objective::default() },
            refusal: Refusal::default(),
        }
    }
}

impl From<&Classes> for drivers::Classes {
    fn from(classes: &Classes) -> Self {
        let class = |class: &ClassConfig| NamedClass { name: class.name.clone(), given: class.given };
        Self {
            classes: classes.classes.iter().map(class).collect(),
            default: classes.default,
            admission: classes.admission.clone(),
            uplink_share: classes.uplink_share,
        }
    }
}

impl From<&Classes> for ClassifierConfig {
    fn from(classes: &Classes) -> Self {
        Self {
            classes: classes.classes.iter().map(|class| class.name.clone()).collect(),
            default: classes.default,
            rules: classes.rules.clone(),
            users: classes.users.clone(),
            keys: classes.keys.clone(),
            session: classes.session.clone(),
            trusted_proxies: classes.trusted_proxies.clone(),
            forwarded: classes.forwarded,
        }
    }
}

impl Classes {
    /// One class for all requests, none of which waits.
    pub fn one() -> Self {
        Self {
            classes: vec![ClassConfig::new("default")],
            default: ClassId(0),
            rules: Vec::new(),
            admission: AdmissionConfig::off(),
            uplink_share: None,
            users: None,
            keys: None,
            session: None,
            trusted_proxies: Vec::new(),
            forwarded: ForwardedField::default(),
        }
    }
}

impl Default for Refusal {
    fn default() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, retry_after: Some(Duration::from_secs(5)), page: None }
    }
}

//! Classes of requests, the rules that assign them, and the sharing of the site's slots.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use http::{
    HeaderName, Method, StatusCode,
    uri::{Authority, PathAndQuery},
};
use ipnet::IpNet;
use scheduler::{
    admission::{Late, QueueOrder, ResourceId},
    class::{Class, ClassId},
    control,
    share::{DELAY_WINDOW_NS, Policy},
};

use super::{PathPattern, Priority};

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

/// The field in which proxies name their client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`, which nearly all proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
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

/// Slots of the site, and how they are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// Whether requests wait for slots at all.
    pub enabled: bool,
    /// How classes are ordered.
    pub policy: Policy,
    /// Most requests at the site at once, for all resources together; `None`: no limit.
    pub total: Option<NonZeroU32>,
    /// The resources that requests can need, each with or without a window. Never empty.
    pub resources: Vec<ResourceConfig>,
    /// The treatment of a request that can no longer meet its deadline.
    pub late: Late,
    /// How long departed requests count for the shares that keep delays in ratios.
    pub delay_window: Duration,
    /// How the windows of resources are adjusted.
    pub adjustment: Adjustment,
}

/// A resource of the site that requests can need.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceConfig {
    /// Its name.
    pub name: String,
    /// Most requests for it at the site at once; `None`: no limit of its own. The initial value, if the
    /// window is adjusted.
    pub window: Option<NonZeroU32>,
    /// The smallest adjusted window.
    pub least: NonZeroU32,
    /// The largest adjusted window.
    pub most: NonZeroU32,
    /// The bound on the service time of its probing requests.
    pub bound: Option<Duration>,
    /// The page that probes it.
    pub probe: Option<ProbeConfig>,
}

/// A page that mainly needs one resource, requested in addition to clients' requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeConfig {
    /// The upstream's index.
    pub upstream: usize,
    /// The path and query of the page.
    pub path: PathAndQuery,
    /// The host of the request; `None`: the server's own.
    pub host: Option<Authority>,
}

/// How the windows of resources are adjusted while the gateway runs. See [`scheduler::control`].
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustment {
    /// The adjustment rule.
    pub method: control::Method,
    /// Time between two probing requests to a resource.
    pub probe_every: Duration,
    /// Time until the first one.
    pub probe_after: Duration,
    /// The paper's Dmax.
    pub shrink_above: i32,
    /// The paper's Imax.
    pub grow_below: i32,
}

/// A rule: all conditions must hold.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name: the configured one, or `rule N` counted from 1.
    pub name: String,
    /// The class of matching requests.
    pub class: ClassId,
    /// The resource that they mainly need, instead of their route's.
    pub resource: Option<ResourceId>,
    /// Conditions; an empty list matches everything.
    pub conditions: Vec<Condition>,
    /// Whether a session takes this class if it is more important than the session's ("add to basket").
    /// Otherwise the session keeps its class.
    pub raises_session: bool,
}

/// A condition; it holds if one of its values does.
#[derive(Clone, Debug)]
pub enum Condition {
    /// Host names, in lower case, without port; `*.example.org` for those below.
    Host(Vec<String>),
    /// Paths.
    Path(Vec<PathPattern>),
    /// File extensions of the path, in lower case, without dot.
    Extension(Vec<String>),
    /// Methods.
    Method(Vec<Method>),
    /// A key of the query, and its values.
    Query(String, ValueMatch),
    /// A header field, and its values.
    Header(HeaderName, ValueMatch),
    /// A cookie, and its values.
    Cookie(String, ValueMatch),
    /// This server's addresses that the connection came to; port 0 stands for any.
    Destination(Vec<SocketAddr>),
    /// Clients' addresses.
    Client(Vec<IpNet>),
    /// Users with a correct password; an empty list stands for any user.
    User(Vec<String>),
    /// Trusted client certificates, by common name or DNS name of the subject; an empty list stands for any.
    Certificate(Vec<String>),
    /// Levels of key values; an empty list stands for any.
    Key(Vec<String>),
}

/// Values of a key. If it occurs several times, one match is enough.
#[derive(Clone, Debug)]
pub enum ValueMatch {
    /// The key is present.
    Present,
    /// The value is one of these.
    OneOf(Vec<String>),
    /// A regular expression matches in the value.
    Regex(regex::Regex),
}

/// Key values (API keys): a file with a line `LEVEL HASH` each, with SHA-256 in hexadecimal, made by `serpent
/// key`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysConfig {
    /// The file.
    pub file: PathBuf,
    /// The header field with the key.
    pub header: Option<HeaderName>,
    /// The query parameter with the key.
    pub query: Option<String>,
}

/// The cookie by which a session keeps its class.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Its name.
    pub cookie: String,
    /// The file with the signing secret, of at least 32 bytes; `None`: a random one, lost when the process
    /// ends.
    pub secret: Option<PathBuf>,
    /// How long a class is kept.
    pub lifetime: Duration,
    /// Whether the cookie is sent only over TLS (`Secure`).
    pub secure: bool,
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

impl AdmissionConfig {
    /// No request waits.
    pub fn off() -> Self {
        Self {
            enabled: false,
            policy: Policy::Strict,
            total: None,
            resources: vec![ResourceConfig::new("site", None)],
            late: Late::default(),
            delay_window: Duration::from_nanos(DELAY_WINDOW_NS),
            adjustment: Adjustment::default(),
        }
    }
}

impl ResourceConfig {
    /// Makes a resource whose window may take any sensible size, and which has no probe.
    pub fn new(name: impl Into<String>, window: Option<NonZeroU32>) -> Self {
        let limits = control::Window::new(window.map_or(1, NonZeroU32::get));
        let most = NonZeroU32::new(limits.most).unwrap_or(NonZeroU32::MAX);
        Self { name: name.into(), window, least: NonZeroU32::MIN, most, bound: None, probe: None }
    }
}

impl Default for Adjustment {
    fn default() -> Self {
        let control::Settings { method, probe_every_ns, probe_after_ns, shrink_above, grow_below, .. } =
            control::Settings::new(control::Method::Fixed, Vec::new());
        Self {
            method,
            probe_every: Duration::from_nanos(probe_every_ns),
            probe_after: Duration::from_nanos(probe_after_ns),
            shrink_above,
            grow_below,
        }
    }
}

impl Default for Refusal {
    fn default() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, retry_after: Some(Duration::from_secs(5)), page: None }
    }
}

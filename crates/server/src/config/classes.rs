//! Whose request it is, what that is worth, and how many are served at once.

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

/// Classes, who is in which, and what they are given.
#[derive(Clone, Debug)]
pub struct Classes {
    /// The classes, the most important first. Never empty.
    pub classes: Vec<ClassConfig>,
    /// The class of requests that no rule matches.
    pub default: ClassId,
    /// Who is in which class: the first that matches.
    pub rules: Vec<Rule>,
    /// How the site's slots are shared between classes.
    pub admission: AdmissionConfig,
    /// How the uplink is shared between classes; `None`: all are one.
    pub uplink_share: Option<Policy>,
    /// Names and passwords, as Apache's htpasswd writes them.
    pub users: Option<PathBuf>,
    /// Key values.
    pub keys: Option<KeysConfig>,
    /// The cookie by which a session keeps its class.
    pub session: Option<SessionConfig>,
    /// Whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// The field in which they give it. Only one is believed: a proxy that writes one passes on what its client has written in
    /// the other.
    pub forwarded: ForwardedField,
}

/// The field in which proxies name their client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`, which nearly all of them write.
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
    /// What it is given.
    pub given: Class,
    /// The processor priority of programs and workers that do its work.
    pub priority: Priority,
    /// What is promised to it.
    pub objective: Objective,
    /// What a refused request of it gets.
    pub refusal: Refusal,
}

/// What is promised to a class; it is watched, not enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// Mean system time (waiting and service).
    pub mean: Option<Duration>,
    /// Percentile, in percent, and the system time that it must not exceed.
    pub percentile: Option<(f64, Duration)>,
    /// Largest part of requests that may fail: refused, or answered 5xx.
    pub error_rate: Option<f64>,
    /// The time over which it is watched.
    pub window: Duration,
}

/// What a refused request gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// 503 as a rule.
    pub status: StatusCode,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// A page (file) in place of our own.
    pub page: Option<PathBuf>,
}

/// Slots of the site, and how they are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// Whether requests wait for slots at all.
    pub enabled: bool,
    /// Which class goes first.
    pub policy: Policy,
    /// Requests at the site at once, whatever they need; `None`: no limit.
    pub total: Option<NonZeroU32>,
    /// What requests can need, with a window for each or none. Never empty.
    pub resources: Vec<ResourceConfig>,
    /// What is done with a request that cannot make its deadline any more.
    pub late: Late,
    /// How long what has left counts for the shares that keep delays in ratios.
    pub delay_window: Duration,
    /// How the windows of resources are adjusted.
    pub adjustment: Adjustment,
}

/// What requests can need of the site.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceConfig {
    /// Its name.
    pub name: String,
    /// Requests for it at the site at once; `None`: no limit of its own. The first such number, where it is adjusted.
    pub window: Option<NonZeroU32>,
    /// The least that it is adjusted to.
    pub least: NonZeroU32,
    /// The most that it is adjusted to.
    pub most: NonZeroU32,
    /// The bound on the service time of its probing requests.
    pub bound: Option<Duration>,
    /// What is asked for to probe it.
    pub probe: Option<ProbeConfig>,
}

/// A page that mainly needs one resource, to be asked for beside all requests of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeConfig {
    /// The place of the upstream that is asked.
    pub upstream: usize,
    /// What it is asked for.
    pub path: PathAndQuery,
    /// The host that is asked for. `None`: the server's own.
    pub host: Option<Authority>,
}

/// How the windows of resources are adjusted while the gateway runs. See [`scheduler::control`].
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustment {
    /// By which rule.
    pub method: control::Method,
    /// Time between two probing requests to a resource.
    pub probe_every: Duration,
    /// Time to the first one.
    pub probe_after: Duration,
    /// The paper's Dmax.
    pub shrink_above: i32,
    /// The paper's Imax.
    pub grow_below: i32,
}

/// A rule: all conditions must hold.
#[derive(Clone, Debug)]
pub struct Rule {
    /// How it is called: given, or `rule N` counted from 1.
    pub name: String,
    /// The class of what it matches.
    pub class: ClassId,
    /// What it mainly needs of the site, in place of what its route says.
    pub resource: Option<ResourceId>,
    /// Conditions; none of them: everything.
    pub conditions: Vec<Condition>,
    /// Whether a session that has a class already takes this one if it is more important ("add to basket"). Otherwise its
    /// class stays as it is.
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
    /// Addresses of ours that the connection came to; port 0 stands for any.
    Destination(Vec<SocketAddr>),
    /// Clients' addresses.
    Client(Vec<IpNet>),
    /// Users who gave their password; none listed: any of them.
    User(Vec<String>),
    /// Client certificates that we trust, by common name or DNS name of the subject; none listed: any of them.
    Certificate(Vec<String>),
    /// Levels of key values; none listed: any of them.
    Key(Vec<String>),
}

/// Values of a key. Where it is there several times, it is enough that one of them fits.
#[derive(Clone, Debug)]
pub enum ValueMatch {
    /// It is there.
    Present,
    /// One of these.
    OneOf(Vec<String>),
    /// A regular expression is found in it.
    Regex(regex::Regex),
}

/// Key values (API keys): a file with a line `LEVEL HASH` each, with SHA-256 in hexadecimal, made by `serpent key`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysConfig {
    /// The file.
    pub file: PathBuf,
    /// The header field that a key comes in.
    pub header: Option<HeaderName>,
    /// The key of the query that it comes in.
    pub query: Option<String>,
}

/// The cookie by which a session keeps its class.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Its name.
    pub cookie: String,
    /// The file with the secret that signs it, at least 32 bytes; `None`: one made at the start, lost with the process.
    pub secret: Option<PathBuf>,
    /// How long a class is kept.
    pub lifetime: Duration,
    /// Whether it is only for TLS (`Secure`).
    pub secure: bool,
}

impl ClassConfig {
    /// A class of which nothing is written but its name. Written settings replace these defaults one by one, and the class of a
    /// configuration without classes has them all. Their reasons stand in docs/DEFAULTS.md.
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
    /// One class for all; nobody waits.
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
    /// Nobody waits.
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
    /// One that may be adjusted to whatever is good, and cannot be probed.
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

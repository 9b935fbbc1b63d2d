//! The resolved configuration of the drivers.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use http::uri::{Authority, PathAndQuery};
use scheduler::{
    Order, Rate,
    admission::Late,
    class::{Class, ClassId},
    control,
    share::{DELAY_WINDOW_NS, Policy},
};

/// The classes of requests, and how they share the site's slots and the uplink.
#[derive(Clone, Debug)]
pub struct Classes {
    /// The classes, the most important first. Never empty.
    pub classes: Vec<NamedClass>,
    /// The class of requests whose own class is gone after a change.
    pub default: ClassId,
    /// How the site's slots are shared between classes.
    pub admission: AdmissionConfig,
    /// How the uplink is shared between classes; `None`: all classes are treated as one.
    pub uplink_share: Option<Policy>,
}

/// One class.
#[derive(Clone, Debug)]
pub struct NamedClass {
    /// Its name, by which it is known again after a change.
    pub name: String,
    /// Its share and limits.
    pub given: Class,
}

impl Classes {
    /// One class for all requests, none of which waits.
    pub fn one() -> Self {
        Self {
            classes: vec![NamedClass { name: "default".to_owned(), given: Class::default() }],
            default: ClassId(0),
            admission: AdmissionConfig::off(),
            uplink_share: None,
        }
    }
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

/// How the bytes of responses leave.
#[derive(Clone, Debug, PartialEq)]
pub struct UplinkConfig {
    /// The bottleneck's rate: given, found, or not limited.
    pub rate: UplinkRate,
    /// Which response goes first.
    pub order: Order,
    /// The part of the system that keeps the order.
    pub enforce: Enforce,
    /// The line that several gateways send through, by its name: this one has a part of the rate, by leases. Only with a given
    /// rate that this process enforces.
    pub line: Option<String>,
    /// The cutoff of `quick-fix` between small and large responses.
    pub cutoffs: Cutoffs,
    /// Largest response time of a response, as a multiple of the time it would have had under fair sharing, before it
    /// is put ahead of all others. `None`: no guard.
    pub guard_stretch: Option<f64>,
    /// The largest share of the rate that is used. `None`: the pacer corrects a given rate up and down, and decides how
    /// much of one that it found it uses.
    pub utilisation: Option<f64>,
    /// Bytes that every segment costs on the wire beside its payload (headers of link, IP and TCP).
    pub segment_overhead_bytes: u32,
    /// The attached device whose classifier `enforce = "kernel"` tells of responses; `None`: the only one.
    pub device: Option<String>,
    /// Where a rate that was found is kept over a restart. The program reads and writes it, not the driver.
    pub keep: KeepRate,
}

/// Where the rate that was found is kept over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeepRate {
    /// In the state directory that systemd gives to the service, if there is one.
    #[default]
    StateDirectory,
    /// In this file.
    File(PathBuf),
    /// Nowhere.
    Off,
}

/// The uplink's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UplinkRate {
    /// Found by the server and followed up and down.
    Auto,
    /// Given by the operator: the true rate of the bottleneck.
    Given(Rate),
    /// Responses are not paced.
    Off,
}

/// The part of the system that keeps the order of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforce {
    /// The pacer in this process: exact order, no privileges.
    Server,
    /// The classifier of a device that was attached beforehand by `serpent attach`.
    Kernel,
    /// None: responses are not ordered.
    Off,
}

/// Cutoffs between bands, in bytes remaining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cutoffs {
    /// Learned from the sizes seen.
    Learned,
    /// Given: strictly increasing, one to six of them.
    Given(Vec<u64>),
}

impl Cutoffs {
    /// Those given, if any are.
    pub fn given(&self) -> Option<&[u64]> {
        if let Self::Given(cutoffs) = self { Some(cutoffs) } else { None }
    }
}

//! All conditions of one measurement, as written in experiment files and shown in reports.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use workload::{behaviour::Behaviour, rate::Rate, sequence::LoadMatch, surge::Surge};

/// A day: longer runs would need another way of storing outcomes.
pub(crate) const LONGEST_S: f64 = 86_400.0;

/// The conditions of one measurement, without subject and seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Setting {
    /// The bottleneck.
    pub link: LinkSetting,
    /// Limits of the server's kernel.
    pub server: ServerSetting,
    /// The demand.
    pub demand: DemandSetting,
    /// The behaviour of clients, unless their group has its own.
    pub clients: Behaviour,
    /// Groups of clients, each with its own path. Empty means one group without distance.
    pub groups: Vec<GroupSetting>,
    /// The times of a measurement.
    pub time: TimeSetting,
    /// Rules of counting and validity.
    pub count: CountSetting,
}

/// The uplink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkSetting {
    /// Its rate, in frames without preamble and checksum.
    pub rate: Rate,
    /// Packets that its queue holds.
    pub queue_packets: u32,
    /// On the server's device, or on a router behind it.
    pub bottleneck: Bottleneck,
    /// Most segments in one packet of the server's stack. By default 1 below 50 Mbit/s and 4 above.
    pub gso_segments: Option<u32>,
    /// TCP congestion control of the server.
    pub congestion: String,
    /// Changes of the rate: second from the start of the run, and new rate.
    pub rate_changes: Vec<(f64, Rate)>,
    /// Uploads of another machine through the same router.
    pub uploads: Vec<UploadSetting>,
}

/// Streams of TCP from another machine to clients of the first group. They take what the server leaves of the uplink, and
/// keep its queue full. The bottleneck has to be on the router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct UploadSetting {
    /// When they begin, in seconds from the start of the run.
    pub from_s: f64,
    /// When they end.
    pub until_s: f64,
    /// Number of them.
    pub streams: u32,
    /// Their TCP congestion control.
    pub congestion: String,
}

/// Where the bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// On the server's own network device, as when a machine shapes its uplink.
    Server,
    /// On a router behind it, as when the modem is slower than the server's network.
    Router,
}

/// Settings of the server's network stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSetting {
    /// Most half-open connections (`tcp_max_syn_backlog`).
    pub syn_queue: u32,
    /// Most connections waiting to be accepted (`somaxconn`, the upper limit of a server's own setting).
    pub accept_queue: u32,
    /// `tcp_syncookies`: whether cookies are sent when the queue of half-open connections is full.
    pub syn_cookies: bool,
    /// First retransmission time-out of the server's and the clients' connections, in seconds; it then
    /// doubles. Needs a kernel from 5.15 on. Without it the kernel's default applies: 1 s, repeated a few
    /// times before it doubles.
    pub initial_rto_s: Option<f64>,
}

/// The demand: the kinds of clients and their requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum DemandSetting {
    /// Requests at the times of a Poisson process, independent of responses.
    Open {
        /// Sizes of the requested files.
        #[serde(default)]
        sizes: SizesSetting,
        /// Number of files that represent the sizes.
        #[serde(default = "default_files")]
        files: usize,
        /// The load over time.
        #[serde(flatten)]
        intensity: Intensity,
    },
    /// Sessions that begin as a Poisson process; within one, the next request waits for the answer (partly
    /// open).
    Sessions {
        /// Sizes of the requested files.
        #[serde(default)]
        sizes: SizesSetting,
        /// Number of files that represent the sizes.
        #[serde(default = "default_files")]
        files: usize,
        /// Mean number of requests in a session, geometrically distributed; at least 1.
        requests_per_session: f64,
        /// Mean time between an answer and the next request of a session, exponentially distributed.
        think_s: f64,
        /// The load over time of all sessions' requests, if answers took no time.
        #[serde(flatten)]
        intensity: Intensity,
    },
    /// SURGE's user equivalents: ON and OFF times, pages with embedded objects (closed).
    Users {
        /// Number of users; they are divided among the groups by their shares.
        users: u32,
        /// Number of files.
        #[serde(default = "default_files")]
        files: usize,
        /// SURGE's parameters; the default is the published table.
        #[serde(default)]
        surge: Box<Surge>,
    },
    /// A replayed log.
    Trace {
        /// The log, in any supported format; relative to the folder of `SERPENT_TRACES`, then to the current
        /// one.
        file: PathBuf,
        /// Its format, where it cannot be detected.
        #[serde(default)]
        format: Option<String>,
        /// Load to which its times are scaled; by default the times are kept.
        #[serde(default)]
        load: Option<f64>,
        /// Begin and end in the log, in seconds from its first record.
        #[serde(default)]
        window_s: Option<(f64, f64)>,
        /// Whether an unreadable line makes the log invalid; otherwise such lines are counted and skipped.
        #[serde(default)]
        strict: bool,
    },
}

/// The load, in one of these forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intensity {
    /// Requested bytes over bytes that the link can carry.
    Load(f64),
    /// A changing load: `w1` to `w10`, steps and ramps such as `25s@0.2,10s@0.2-1.2`, or `@FILE`.
    Pattern(String),
    /// Requests per second.
    RequestsPerSecond(f64),
}

/// Sizes of the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum SizesSetting {
    /// World Cup 1998, as papers 001 and 002 describe it.
    #[default]
    WorldCup,
    /// NASA 1995, as paper 001 describes it.
    Nasa,
    /// SURGE's request sizes.
    Surge,
    /// One size, in bytes.
    Fixed(u64),
    /// A lognormal body and a bounded Pareto tail.
    HeavyTail {
        /// Least size.
        min_bytes: f64,
        /// Median of the body.
        median_bytes: f64,
        /// Size at which the tail begins.
        knee_bytes: f64,
        /// Fraction of the requests below it.
        body_share: f64,
        /// Exponent of the tail.
        alpha: f64,
        /// Largest size.
        max_bytes: f64,
    },
}

/// A group of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroupSetting {
    /// Its name in reports.
    pub name: String,
    /// Its share of the requests or users, relative to the other groups.
    pub share: f64,
    /// The path between it and the server.
    pub path: PathSetting,
    /// The behaviour of its clients, if different from the common one.
    pub clients: Option<Behaviour>,
}

/// A path between server and clients. All zero means no path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathSetting {
    /// Round-trip time added, in milliseconds.
    pub rtt_ms: f64,
    /// Jitter of the round-trip time: standard deviation, in milliseconds; each connection's packets keep
    /// their order.
    pub jitter_ms: f64,
    /// Fraction of the packets to the clients that is lost.
    pub loss: f64,
    /// Rate of the clients' own line, shared by the group.
    pub rate: Option<Rate>,
    /// Most packets waiting for that line; by default 100, as in many modems.
    pub queue_packets: Option<u32>,
    /// Largest segment that clients accept, in bytes.
    pub mss_bytes: Option<u16>,
}

/// The times of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimeSetting {
    /// Seconds over which requests are sent.
    pub seconds: f64,
    /// Seconds at the start whose requests are not counted.
    pub warm_up_s: f64,
    /// Seconds to wait for unfinished requests after the last one.
    pub drain_s: f64,
}

/// Rules of counting and validity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CountSetting {
    /// The bytes that a load counts.
    pub accounting: Accounting,
    /// How the number of requests follows from the load.
    pub load_match: LoadMatch,
    /// Longest lateness of the generator, in milliseconds, that 1 % of the requests may exceed.
    pub max_lateness_ms: f64,
    /// Whether the server's system calls are counted, which makes each slightly slower. Needs `perf`.
    pub system_calls: bool,
}

/// The bytes that a load counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accounting {
    /// Frames on the wire.
    #[default]
    Wire,
    /// Bodies alone, without headers and framing.
    Body,
}

const fn default_files() -> usize {
    2000
}

impl PathSetting {
    /// Most packets waiting for the clients' own line.
    pub fn line_queue_packets(&self) -> u32 {
        const MODEM: u32 = 100;
        self.queue_packets.unwrap_or(MODEM)
    }

    /// Whether there is no path.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for LinkSetting {
    fn default() -> Self {
        const TEN_MEGABIT: Rate = Rate::from_bits_per_second(10_000_000).unwrap();
        Self {
            rate: TEN_MEGABIT,
            queue_packets: 1000,
            bottleneck: Bottleneck::Server,
            gso_segments: None,
            congestion: "cubic".to_owned(),
            rate_changes: Vec::new(),
            uploads: Vec::new(),
        }
    }
}

impl Default for UploadSetting {
    fn default() -> Self {
        Self { from_s: 0.0, until_s: 0.0, streams: 1, congestion: "cubic".to_owned() }
    }
}

impl Default for ServerSetting {
    fn default() -> Self {
        Self { syn_queue: 65_536, accept_queue: 65_536, syn_cookies: true, initial_rto_s: None }
    }
}

impl Default for DemandSetting {
    fn default() -> Self {
        Self::Open { sizes: SizesSetting::default(), files: default_files(), intensity: Intensity::Load(0.8) }
    }
}

impl Default for GroupSetting {
    fn default() -> Self {
        Self { name: "clients".to_owned(), share: 1.0, path: PathSetting::default(), clients: None }
    }
}

impl Default for TimeSetting {
    fn default() -> Self {
        Self { seconds: 60.0, warm_up_s: 0.0, drain_s: 60.0 }
    }
}

impl Default for CountSetting {
    fn default() -> Self {
        Self {
            accounting: Accounting::Wire,
            load_match: LoadMatch::Sequence,
            max_lateness_ms: 1.0,
            system_calls: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_comes_back_from_json_as_it_was() {
        let setting = Setting {
            groups: vec![GroupSetting {
                path: PathSetting { rtt_ms: 50.0, ..PathSetting::default() },
                ..GroupSetting::default()
            }],
            demand: DemandSetting::Trace {
                file: "a.log".into(),
                format: None,
                load: Some(0.8),
                window_s: None,
                strict: true,
            },
            ..Setting::default()
        };
        let json = serde_json::to_string(&setting).unwrap();
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
        let json = serde_json::to_string(&Setting::default()).unwrap();
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), Setting::default());
    }

    #[test]
    fn a_file_names_what_it_changes_and_nothing_else() {
        let text = "link.rate = '100mbit'\n[demand]\nkind = 'open'\nsizes = 'nasa'\npattern = 'w1'\n[[groups]]\npath.rtt-ms = 50";
        let setting: Setting = toml::from_str(text).unwrap();
        assert_eq!(setting.link.rate.to_string(), "100mbit");
        let intensity = Intensity::Pattern("w1".to_owned());
        assert_eq!(setting.demand, DemandSetting::Open { sizes: SizesSetting::Nasa, files: 2000, intensity });
        assert_eq!((setting.groups.len(), setting.groups[0].path.rtt_ms), (1, 50.0));
        assert!(toml::from_str::<Setting>("link.colour = 'red'").is_err());
        assert!(toml::from_str::<Setting>("[demand]\nkind = 'open'\nload = 0.5\ncolour = 'red'").is_err());
    }
}

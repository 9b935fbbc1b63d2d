//! The arguments of `serpent-lab uplink`.

use std::path::PathBuf;

use clap::Args;
use workload::{pattern::Pattern, rate::Rate, sequence::LoadMatch};

use crate::{bed::Bottleneck, setting::Accounting};

/// Measure response times behind a busy uplink, in network namespaces on this machine.
///
/// Every subject gets the same seeded requests at the same times, in open loop: a request is sent at its
/// planned time, independent of the others. Response times count from that time to the last byte. The ideal
/// is shown beside them: the same requests on an ideal link, shortest remaining first and shared equally.
///
/// Needs root, iproute2 and, as subjects, nginx and Apache httpd. Touches nothing outside its own namespaces.
#[derive(Args, Clone, Debug)]
pub struct UplinkArgs {
    /// Rate of the uplink, counted in Ethernet frames without preamble and checksum.
    #[arg(long, default_value = "10mbit", value_name = "RATE")]
    pub rate: Rate,

    /// Constant load: requested bytes over bytes that the uplink can carry.
    #[arg(long, default_value_t = 0.8, value_name = "LOAD", conflicts_with = "pattern")]
    pub load: f64,

    /// Changing load: w1 to w10 of the overload paper, or steps such as `25s@0.2,25s@1.2`, repeated.
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<Pattern>,

    /// Seconds over which requests are sent. Default: 60, or the least number of whole periods of the pattern
    /// that lasts as long.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,

    /// Seconds to wait for unfinished requests after the last one.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub drain: f64,

    /// Seeds; each is a separate run for every subject, and the table shows medians over them.
    #[arg(long, default_value = "1,2,3", value_delimiter = ',', value_name = "SEED,...")]
    pub seeds: Vec<u64>,

    /// Servers to compare, in this order; the first is the baseline of the ratios. `nginx[,workers=N]`,
    /// `serpent:ORDER[,enforce=server|kernel|off][,uplink=RATE|auto|off][,workers=N]
    /// [,guard=STRETCH][,config=FILE]`, `apache[,workers=N][,processes=N]`, `caddy`, or `cmd:COMMAND` with `{dir}`,
    /// `{listen}`, `{ip}`, `{port}` and `{rate}` filled in (a command takes the rest of the list).
    #[arg(long, default_value = "nginx,serpent:srpt,serpent:fair", value_name = "SUBJECT,...")]
    pub subjects: String,

    /// The program to measure. Default: `serpent` beside this program, then in the folders of `PATH`.
    #[arg(long, value_name = "PROGRAM")]
    pub serpent: Option<PathBuf>,

    /// Packets that the bottleneck's queue holds: 1000 drops nothing in most runs, 100 is common in devices.
    #[arg(long, default_value_t = 1000, value_name = "PACKETS")]
    pub queue: u32,

    /// Where the bottleneck is: on the server's own device, or on a router behind it.
    #[arg(long, default_value = "server")]
    pub bottleneck: Bottleneck,

    /// Changes of the uplink's rate during a run, such as `60s:5mbit,120s:20mbit`. The load stays the same
    /// fraction of the rate.
    #[arg(long, value_name = "TIME:RATE,...")]
    pub rate_change: Option<String>,

    /// Segments in one packet of the server's stack. Default: 1 below 50 Mbit/s, 4 above.
    #[arg(long, value_name = "SEGMENTS")]
    pub gso_segments: Option<u32>,

    /// TCP congestion control of the server.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    pub congestion: String,

    /// Keep connections and reuse them, instead of a new one for each request.
    #[arg(long)]
    pub keepalive: bool,

    /// Number of files that represent the size distribution.
    #[arg(long, default_value_t = 2000, value_name = "FILES")]
    pub files: usize,

    /// The bytes that a load counts: `wire` (with response head, packet headers and handshake, as on the
    /// uplink) or `body` (as in the papers). The ideal always counts wire bytes.
    #[arg(long, default_value = "wire")]
    pub accounting: Accounting,

    /// How the number of requests follows from the load: `sequence` (the bytes of every sequence match it) or
    /// `expectation` (a Poisson process whose expected bytes match it; under a heavy tail a short run strays
    /// by 10 % and more).
    #[arg(long, default_value = "sequence", value_name = "sequence|expectation")]
    pub load_match: LoadMatch,

    /// Port that the servers listen on.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,

    /// Longest lateness of the generator, in milliseconds, that 1 % of the requests may exceed in a valid
    /// run.
    #[arg(long, default_value_t = 1.0, value_name = "MS")]
    pub max_lateness: f64,

    /// Write all measurements to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write every request's outcome to files in this directory, one JSON object per line.
    #[arg(long, value_name = "DIR")]
    pub outcomes: Option<PathBuf>,
}

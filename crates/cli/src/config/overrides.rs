//! Settings from the command line.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use scheduler::Order;
use server::config::{CertificateFiles, Enforce, LogFormat, SymlinkPolicy, UplinkRate, UpstreamServer};

use crate::values::{self, ListenAt, named};

/// The flags of `serpent serve`. They go before the file, and the file before the defaults.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Directory to serve [default: the current directory, unless a file names the sites]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Server to pass all requests on to, in place of a directory; several share the work
    ///
    /// `http://HOST:PORT`, `https://HOST`, `h2c://HOST:PORT`, `h2://HOST` or `unix:PATH`.
    #[arg(long, value_name = "URL", value_parser = values::upstream_server, conflicts_with = "dir", help_heading = "Gateway")]
    pub upstream: Vec<UpstreamServer>,

    /// Requests that the site does well at once; more wait here for their turn, or `off` [default: off]
    #[arg(long, value_name = "N", value_parser = values::limit_or_off, help_heading = "Gateway")]
    pub slots: Option<std::option::Option<NonZeroU32>>,

    /// Number of threads that serve connections, or `auto` [default: auto, one for each CPU but one]
    #[arg(long, value_name = "N", value_parser = values::workers)]
    pub workers: Option<NonZeroUsize>,

    /// Connections open at once, or `auto` [default: auto, 16384 or as many as the limit on open files allows]
    #[arg(long, value_name = "N", value_parser = values::connections)]
    pub connections: Option<std::option::Option<u64>>,

    /// How long responses under way may take after SIGTERM, or `off` for as long as they need [default: off]
    #[arg(long, value_name = "TIME", value_parser = values::duration_or_off)]
    // The path of the inner `Option` is written out so that clap takes it for an ordinary type.
    pub shutdown_timeout: Option<std::option::Option<Duration>>,

    /// Address to listen on, may be repeated [default: 127.0.0.1:8080]
    ///
    /// An IP address and a port; `:8080` is that port on all addresses, port 0 any free port. With a certificate TLS is
    /// spoken on every address that does not say `http://` in front.
    #[arg(long, short, value_name = "ADDR:PORT", value_parser = values::listen, help_heading = "Addresses and TLS")]
    pub listen: Vec<ListenAt>,

    /// Addresses of sockets that were open before the start; they are served if neither a flag nor the file names
    /// addresses.
    #[arg(skip)]
    pub inherited: Vec<ListenAt>,

    /// Certificate chain (PEM, leaf first)
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Addresses and TLS")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Addresses and TLS")]
    pub tls_key: Option<PathBuf>,

    /// Address for metrics and status, or `off` [default: off]
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::address_or_off, help_heading = "Addresses and TLS")]
    pub admin: Option<std::option::Option<SocketAddr>>,

    /// Rate of the uplink: `auto`, `off`, or as in 10mbit, "12.5 Mbit/s", 1gbit [default: auto]
    #[arg(long, value_name = "auto|RATE|off", value_parser = values::uplink_rate, help_heading = "Uplink")]
    pub uplink: Option<UplinkRate>,

    /// Which response goes first [default: srpt]
    #[arg(long, value_name = "NAME", value_parser = named::<Order>(), help_heading = "Uplink")]
    pub order: Option<Order>,

    /// Where the order is enforced [default: server]
    #[arg(long, value_name = "server|kernel|off", value_parser = named::<Enforce>(), help_heading = "Uplink")]
    pub enforce: Option<Enforce>,

    /// Put a response ahead of all others when it has taken this many times what it would under fair sharing, or `off`
    /// [default: off]
    #[arg(long, value_name = "STRETCH", value_parser = values::stretch_or_off, help_heading = "Uplink")]
    pub guard: Option<std::option::Option<f64>>,

    /// Device whose bands are used with `--enforce kernel` [default: whichever has them]
    #[arg(long, value_name = "DEV", help_heading = "Uplink")]
    pub device: Option<String>,

    /// List directories that have no index file
    #[arg(long, help_heading = "Files")]
    pub listing: bool,

    /// Serve names that start with a dot
    #[arg(long, help_heading = "Files")]
    pub dot_files: bool,

    /// Handling of symbolic links [default: within-root]
    #[arg(long, value_name = "POLICY", value_parser = named::<SymlinkPolicy>(), help_heading = "Files")]
    pub symlinks: Option<SymlinkPolicy>,

    /// Memory for small hot files, or `off` [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::memory_or_off, help_heading = "Files")]
    pub cache: Option<u64>,

    /// Access log: a file, `-` for standard output, `syslog:SETTINGS`, `journal`, or `off` [default: off]
    #[arg(long, value_name = "FILE|-", help_heading = "Logs")]
    pub access_log: Option<String>,

    /// Form of the access log [default: combined]
    #[arg(long, value_name = "FORMAT", value_parser = named::<LogFormat>(), help_heading = "Logs")]
    pub access_log_format: Option<LogFormat>,
}

impl Overrides {
    /// The certificate given by flags.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let (chain, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(CertificateFiles { chain, key, ocsp: None })
    }
}

//! The command line. What stands here is kept stable.

use std::{
    net::{IpAddr, SocketAddr},
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use clap_complete::Shell;
use kernel::bands::Qdisc;
use scheduler::{Order, Rate};
use server::config::{CertificateFiles, Enforce, LogFormat, SymlinkPolicy, UplinkRate, UpstreamServer};

use crate::{
    advise::AdviseArgs,
    lab::LabArgs,
    probe::ProbeArgs,
    values::{self, ListenAt, Named},
};

/// A web server that sends the response with the shortest remaining work first.
///
/// Under load, a server that shares its uplink fairly makes everybody wait for everybody. Serpent lets the response that
/// is nearest to its end go first, so that most clients wait many times less, and the few large responses hardly longer.
#[derive(Debug, Parser)]
#[command(name = "serpent", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_long_help = "\
Examples:
  serpent serve                                   Serve the current directory on 127.0.0.1:8080
  serpent serve /srv/www --listen :80 --uplink 100mbit
                                                  Serve on all addresses over an uplink of 100 Mbit/s
  serpent serve --config /etc/serpent.toml        Serve what the file says
  serpent serve --upstream http://127.0.0.1:3000 --slots 20
                                                  Pass requests on, 20 at a time
  serpent check /etc/serpent.toml                 Say what is wrong with the file, and where
  serpent explain -c /etc/serpent.toml http://shop.example/basket
                                                  Say what becomes of a request
  serpent probe /etc/serpent.toml                 Find out how many requests the site does well at once

Exit codes:
  0  success; for `serve`: stopped by SIGTERM or SIGINT after the last response
  1  failure at run time
  2  error in the command line or the configuration")]
pub struct Cli {
    /// What to write to standard error: error, warn, info, debug, trace, or directives such as `serpent_server=debug`
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "SERPENT_LOG",
        default_value = "warn",
        help_heading = "Logs"
    )]
    pub log: String,

    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory, or the sites of a configuration file
    ///
    /// One line with the addresses is printed when the server is ready. SIGTERM or SIGINT stops it after the last
    /// response. SIGHUP reads configuration, certificates and log files anew; if the configuration is wrong, the old one
    /// stays.
    ///
    /// Flags go before the file, the file before the defaults.
    Serve(Box<ServeArgs>),
    /// Check a configuration file and everything it names
    ///
    /// Reads the file as `serve` does, and looks whether directories can be read and certificates and keys belong
    /// together. Every mistake is shown at its line. Nothing is bound and nothing is changed.
    Check(CheckArgs),
    /// Say what becomes of a request: its site and route, the rule that matches and why, its class and what that is given
    ///
    /// Nothing is sent, and no running server is asked: the configuration file is. Rules are shown in their order, condition by
    /// condition, up to the one that decides.
    Explain(Box<ExplainArgs>),
    /// Make an API key, and the line for the file of keys
    ///
    /// The line, with the key's level and its hash, goes to standard output; the key itself to standard error, this once. It is
    /// stored nowhere.
    Key(KeyArgs),
    /// From an access log: what scheduling would do for a site, and the configuration it should have
    ///
    /// Simulates the requests of the log over an uplink of the given rate, under fair sharing as other servers do it and under
    /// Serpent's orders, at today's load and at growing load. Says who would gain, who would lose, and how sure that is.
    Advise(Box<AdviseArgs>),
    /// Find out how many requests of each kind a site does well at once, by asking it
    ///
    /// Asks for the page of each resource at higher and higher rates until the site falls behind, shows the window and the bound
    /// on service times that it finds, and writes them into the configuration file if that is wanted. For a site that is not in
    /// use.
    Probe(Box<ProbeArgs>),
    /// Set up, show or take away the kernel's priority bands on a device
    ///
    /// `serpent serve --enforce kernel` needs them. Changing them needs the capability CAP_NET_ADMIN.
    #[command(subcommand)]
    Uplink(UplinkCommand),
    /// Measure servers against each other: runs the program `serpent-lab`, where it is installed
    #[command(disable_help_flag = true)]
    Lab(LabArgs),
    /// Simulate an experiment of the lab: runs `serpent-lab simulate`, where it is installed
    #[command(disable_help_flag = true)]
    Simulate(LabArgs),
    /// What queueing theory says: runs `serpent-lab theory`, where it is installed
    #[command(disable_help_flag = true)]
    Theory(LabArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write all manual pages into a folder
    Man {
        /// Folder for `serpent.1`, `serpent-serve.1` and so on; made if missing
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// What to serve, where, and in which order.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = "\
Examples:
  serpent serve ./public --uplink 10mbit
  serpent serve ./public --listen 127.0.0.1:0 --access-log -
  serpent serve /srv/www --listen http://:80 --listen https://:443 \\
                --tls-cert fullchain.pem --tls-key privkey.pem
  serpent serve --upstream http://127.0.0.1:3000 --slots 20 --listen :80
  serpent serve --config /etc/serpent.toml --order fsp

The rate of the uplink is that of the bottleneck towards the clients. Given too high, nothing is
scheduled, because the queue stands elsewhere; `auto` finds it and follows it.")]
pub struct ServeArgs {
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

    /// Connections open at once [default: 16384]
    #[arg(long, value_name = "N", value_parser = |text: &str| values::count(text, 10_000_000))]
    pub connections: Option<u64>,

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

    /// Who enforces the order [default: server]
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

    /// What to do with symbolic links [default: within-root]
    #[arg(long, value_name = "POLICY", value_parser = named::<SymlinkPolicy>(), help_heading = "Files")]
    pub symlinks: Option<SymlinkPolicy>,

    /// Memory for small hot files, or `off` [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size_or_off, help_heading = "Files")]
    pub cache: Option<u64>,

    /// Access log: a file, `-` for standard output, or `off` [default: off]
    #[arg(long, value_name = "FILE|-", help_heading = "Logs")]
    pub access_log: Option<String>,

    /// Form of the access log [default: combined]
    #[arg(long, value_name = "FORMAT", value_parser = named::<LogFormat>(), help_heading = "Logs")]
    pub access_log_format: Option<LogFormat>,
}

impl ServeArgs {
    /// The certificate given by flags.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let (chain, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(CertificateFiles { chain, key })
    }
}

/// What to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The directory that `serve` will be given beside the file
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// As JSON: where the server listens, and how the uplink is scheduled
    #[arg(long)]
    pub json: bool,
}

/// Which request to explain.
#[derive(Args, Debug, Default)]
#[command(after_long_help = "\
Examples:
  serpent explain --config /etc/serpent.toml https://shop.example/basket?item=7
  serpent explain -c /etc/serpent.toml --client 192.0.2.7 -H 'Cookie: id=1' http://shop.example/
  serpent explain -c /etc/serpent.toml -X POST -H 'X-Api-Key: 3f9c...' http://api.example/orders")]
pub struct ExplainArgs {
    /// What is asked for: a whole URL, or a path
    #[arg(value_name = "URL")]
    pub url: String,

    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,

    /// Method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET", value_parser = values::method)]
    pub method: http::Method,

    /// Header field, may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = values::header_field)]
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,

    /// Name and password, asked for by the rules
    #[arg(long, short = 'u', value_name = "NAME:PASSWORD")]
    pub user: Option<String>,

    /// Address of the client [default: that of --peer]
    ///
    /// Where it is not that of --peer, --peer is a proxy that names it, which must be one of `trusted-proxies`.
    #[arg(long, value_name = "IP")]
    pub client: Option<IpAddr>,

    /// Address at the other end of the connection [default: that of --client, or 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub peer: Option<IpAddr>,

    /// Address of ours that the connection came to [default: the first that is listened on]
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::address)]
    pub local: Option<SocketAddr>,

    /// The connection is TLS [default: if the URL says https]
    #[arg(long)]
    pub tls: bool,

    /// Name in a client certificate that is trusted, may be repeated
    #[arg(long, value_name = "NAME")]
    pub certificate_name: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Which key to make.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  serpent key gold >> /etc/serpent/keys
  serpent key gold --from-stdin < key.txt >> /etc/serpent/keys")]
pub struct KeyArgs {
    /// The level, by which rules tell keys apart
    #[arg(value_name = "LEVEL", value_parser = values::name)]
    pub level: String,

    /// Take the key from standard input in place of making one
    #[arg(long)]
    pub from_stdin: bool,
}

/// What to do with the bands.
#[derive(Debug, Subcommand)]
pub enum UplinkCommand {
    /// Shape a device to a rate, with eight strict priority bands
    ///
    /// Band 0 is for what no response may delay: SYN-ACKs, ARP, everything that is not ours. A queueing discipline that
    /// somebody else has set up is never replaced without --replace. The bands need no running server: if it crashes, the
    /// network goes on working.
    #[command(after_long_help = "\
Examples:
  serpent uplink install eth0 --rate 97mbit     # in front of a modem or router of 100 Mbit/s
  serpent uplink show eth0
  serpent uplink remove eth0

Give a rate a little below that of the bottleneck: where the queue stands is where the order is made.")]
    Install {
        /// The device
        #[arg(value_name = "DEV")]
        device: String,
        /// The rate to shape to, as in 97mbit
        #[arg(long, value_name = "RATE", value_parser = values::rate)]
        rate: Rate,
        /// Replace a queueing discipline that somebody else has set up
        #[arg(long)]
        replace: bool,
        /// The queueing discipline; `auto` takes the first that this kernel has
        #[arg(long, value_name = "auto|htb|prio", value_parser = named::<Qdisc>(), default_value = "auto")]
        qdisc: Qdisc,
    },
    /// Show the bands, and what has passed through them
    Show {
        /// The device; all devices with bands if left out
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Take the bands away
    Remove {
        /// The device
        #[arg(value_name = "DEV")]
        device: String,
    },
}

/// A parser for a closed set of values that lists them, with their meaning, in the help and in completions.
pub fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    let values = T::NAMED.iter().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(|name| T::named(&name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn serve(args: &[&str]) -> Result<ServeArgs, String> {
        let args = ["serpent", "serve"].into_iter().chain(args.iter().copied());
        match Cli::try_parse_from(args).map_err(|error| error.to_string())?.command {
            Command::Serve(args) => Ok(*args),
            command => Err(format!("{command:?}")),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_are_read_as_the_file_is() {
        let args = serve(&[
            "/srv/www",
            "--listen",
            ":80",
            "--listen",
            "https://[::1]:443",
            "--tls-cert",
            "c",
            "--tls-key",
            "k",
            "--uplink",
            "12.5 Mbit/s",
            "--order",
            "fsp",
            "--enforce",
            "off",
            "--guard",
            "3",
            "--cache",
            "off",
            "--shutdown-timeout",
            "off",
            "--admin",
            "off",
            "--workers",
            "3",
        ])
        .unwrap();
        assert_eq!(args.listen.len(), 2);
        assert_eq!(args.uplink, Some(UplinkRate::Given("12.5mbit".parse().unwrap())));
        assert_eq!(args.order, Some(Order::Fsp));
        assert_eq!(args.guard, Some(Some(3.0)));
        assert_eq!(args.cache, Some(0));
        assert_eq!(args.shutdown_timeout, Some(None));
        assert_eq!(args.admin, Some(None));
        assert_eq!(args.certificate().unwrap().key, PathBuf::from("k"));
    }

    #[test]
    fn what_cannot_be_read_says_what_can() {
        let error = serve(&["--order", "fastest"]).unwrap_err();
        assert!(error.contains("srpt") && error.contains("quick-fix"), "{error}");
        let error = serve(&["--uplink", "10"]).unwrap_err();
        assert!(error.contains("unknown unit of rate"), "{error}");
        let error = serve(&["--tls-cert", "c"]).unwrap_err();
        assert!(error.contains("--tls-key"), "{error}");
        let error = serve(&["--listen", "here"]).unwrap_err();
        assert!(error.contains("give an IP address and a port"), "{error}");
    }
}

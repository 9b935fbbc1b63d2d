//! The command line. Its commands and flags are kept stable.

use std::path::{Path, PathBuf};

use clap::{
    Parser, Subcommand,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;

#[cfg(target_os = "linux")]
use crate::attach::{AttachArgs, DetachArgs};
use crate::{
    advise::AdviseArgs, check::CheckArgs, config::Overrides, explain::ExplainArgs, import::ImportArgs, key::KeyArgs,
    lab::LabArgs, other_servers, probe::ProbeArgs, spelling,
};

/// A web server that sends the response with the shortest remaining work first.
///
/// Under load, a server that shares its uplink fairly makes all clients wait for each other. Serpent sends the response
/// that is nearest to its end first. So most clients wait many times less, and the few large responses hardly longer.
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
    /// Level of the log on standard error: error, warn, info, debug, trace, or directives such as
    /// `serpent_server=debug`. Lines of libraries appear from debug on
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

impl Cli {
    /// Reads the command line of this process. A mistake in it ends the process.
    pub fn parse_or_exit() -> Self {
        let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
        Self::try_parse().unwrap_or_else(|error| with_useful_tips(error, args).exit())
    }
}

/// Replaces the tips of clap by useful ones. Clap suggests values that are hardly alike, and offers to take any
/// unknown flag for a value.
fn with_useful_tips(mut error: clap::Error, args: impl IntoIterator<Item = String>) -> clap::Error {
    match (error.kind(), error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (ErrorKind::InvalidValue, _, Some(ContextValue::String(given))) => {
            let like = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => spelling::like(given, known.iter().map(String::as_str)),
                _ => None,
            };
            if let Some(like) = like.map(|like| ContextValue::String(like.to_owned())) {
                error.insert(ContextKind::SuggestedValue, like);
            } else {
                error.remove(ContextKind::SuggestedValue);
            }
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(given)), _) => {
            let tip = match args.into_iter().nth(1).as_deref() {
                Some("serve") if !given.starts_with('-') => Some(SECOND_DIRECTORY),
                Some("serve") => other_servers::flag(given),
                Some(first) if first == given => other_servers::command(given),
                _ => None,
            };
            let is_like = match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(suggested)) => spelling::like(given, [suggested.as_str()]).is_some(),
                _ => false,
            };
            let offers_a_value = matches!(error.get(ContextKind::Suggested), Some(ContextValue::StyledStrs(tips))
                if tips.iter().any(|tip| tip.to_string().contains("as a value")));
            if tip.is_some() || offers_a_value {
                error.remove(ContextKind::Suggested);
            }
            if tip.is_some() || !is_like {
                error.remove(ContextKind::SuggestedArg);
                // It shows what was suggested.
                error.remove(ContextKind::Usage);
            }
            if let Some(tip) = tip {
                add_tip(&mut error, tip.to_owned());
            }
        }
        (ErrorKind::InvalidSubcommand, ..) => {
            let given = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string).unwrap_or_default();
            let path = Path::new(&given);
            let tip = match other_servers::command(&given) {
                _ if path.is_dir() => Some(format!("'serpent serve {given}' serves this directory")),
                _ if path.is_file() => Some(format!("'serpent serve --config {given}' serves what this file says")),
                tip => tip.map(str::to_owned),
            };
            if let Some(tip) = tip {
                error.remove(ContextKind::SuggestedSubcommand);
                add_tip(&mut error, tip);
            }
        }
        (ErrorKind::MissingRequiredArgument, ..) => {
            let missing = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
            if missing.contains("ACCESS_LOG") {
                add_tip(&mut error, WITHOUT_A_LOG.to_owned());
            }
        }
        (ErrorKind::ArgumentConflict, ..) => {
            let prior = error.get(ContextKind::PriorArg).map(ToString::to_string).unwrap_or_default();
            let given = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default() + &prior;
            if given.contains("[DIR]") && given.contains("--upstream") {
                add_tip(&mut error, DIRECTORY_AND_UPSTREAM.to_owned());
            }
        }
        _ => {}
    }
    error
}

const SECOND_DIRECTORY: &str = "one directory is served; a file has several sites: 'serpent serve --config FILE'";
const WITHOUT_A_LOG: &str = "'serpent advise --nginx --uplink 100mbit' finds the log of an installed nginx (or '--apache', \
                             '--caddy'); '--admin http://127.0.0.1:9090' takes the last responses of a running Serpent";
const DIRECTORY_AND_UPSTREAM: &str =
    "leave one of them out; a file has both, in routes of a site: 'serpent serve --config FILE'";

fn add_tip(error: &mut clap::Error, tip: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory, or the sites of a configuration file
    ///
    /// One line with the addresses is printed when the server is ready; on a terminal, four more say in which order
    /// responses go, who can reach them, and what to try next. SIGTERM or SIGINT stops it after the last response. SIGHUP
    /// reads configuration, certificates and log files anew; if the configuration is wrong, the old one stays. If the
    /// terminal that it was started on is closed, a server in the foreground stops.
    ///
    /// Flags go before the file, the file before the defaults.
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
    Serve(Box<Overrides>),
    /// Check a configuration file and everything it names
    ///
    /// Reads the file as `serve` does, and looks whether directories can be read and certificates and keys belong
    /// together. Every mistake is shown at its line. Nothing is bound and nothing is changed.
    Check(CheckArgs),
    /// Explain how a request is handled: its site and route, the rule that matches and why, its class and its share
    ///
    /// The answer comes from the configuration file alone: nothing is sent, and no running server is asked. Rules are
    /// shown in their order, condition by condition, up to the one that decides.
    Explain(Box<ExplainArgs>),
    /// Translate the configuration of nginx, HAProxy or Caddy
    ///
    /// Reads the file and those that it includes, and writes a configuration of Serpent to standard output. What has no
    /// counterpart, or another meaning, is named with its file, line and reason, on standard error and at the top of the
    /// text.
    Import(ImportArgs),
    /// Make an API key, and the line for the file of keys
    ///
    /// The line, with the key's level and its hash, goes to standard output. The key itself is shown once, on standard
    /// error, and stored nowhere.
    Key(KeyArgs),
    /// From an access log: what scheduling would do for a site, and the configuration it should have
    ///
    /// Simulates the requests of the log over an uplink of the given rate, at today's load and at growing load: under
    /// fair sharing, as other servers do it, and under Serpent's orders. Says which responses would gain, which would
    /// lose, and how sure that is.
    Advise(Box<AdviseArgs>),
    /// Find out how many requests of each kind a site does well at once, by asking it
    ///
    /// Asks for the page of each resource at higher and higher rates until the site falls behind. Shows the window and
    /// the bound on service times that it finds, and writes them into the configuration file on request. For a site that
    /// is not in use.
    Probe(Box<ProbeArgs>),
    /// Put the responses of servers in order, in the kernel: nginx, Apache, anything
    ///
    /// Makes strict priority bands on a device, and a classifier that gives each packet a rank by what is left of its
    /// response. The servers are not changed, and nothing stays running. `serpent serve --enforce kernel` needs it, and
    /// tells the classifier what is left, also under TLS. Needs root, or the capabilities CAP_NET_ADMIN,
    /// CAP_BPF and CAP_PERFMON.
    #[cfg(target_os = "linux")]
    Attach(Box<AttachArgs>),
    /// Take the order off a device again: what was there before comes back
    #[cfg(target_os = "linux")]
    Detach(DetachArgs),
    /// Measure servers against each other: runs the program `serpent-lab`, where it is installed
    #[command(disable_help_flag = true)]
    Lab(LabArgs),
    /// Simulate an experiment of the lab: runs `serpent-lab simulate`, where it is installed
    #[command(disable_help_flag = true)]
    Simulate(LabArgs),
    /// Compute results of queueing theory: runs `serpent-lab theory`, where it is installed
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use scheduler::Order;
    use server::config::UplinkRate;

    use super::*;

    fn serve(args: &[&str]) -> Result<Overrides, String> {
        let args = ["serpent", "serve"].into_iter().chain(args.iter().copied());
        let said = |error| with_useful_tips(error, args.clone().map(str::to_owned)).to_string();
        match Cli::try_parse_from(args.clone()).map_err(said)?.command {
            Command::Serve(args) => Ok(*args),
            command => Err(format!("{command:?}")),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_mistake_in_a_flag_gets_a_tip_only_where_it_can_help() {
        for (args, tip) in [
            (&["--port", "80"][..], Some("'--listen :80' listens on port 80")),
            (&["--root=www"], Some("'serpent serve ./public'")),
            (&["-p", "80"], Some("'--listen :80' listens on port 80")),
            (&["--proxy", "http://a"], Some("'--upstream http://127.0.0.1:3000'")),
            (&["--lisen", ":80"], Some("a similar argument exists: '--listen'")),
            (&["--order", "strpt"], Some("a similar value exists: 'srpt'")),
            (&["--order", "shortest"], None),
            (&["--frobnicate"], None),
        ] {
            let said = serve(args).unwrap_err();
            assert_eq!(said.contains("tip: "), tip.is_some(), "{args:?}: {said}");
            assert!(said.contains(tip.unwrap_or_default()), "{args:?}: {said}");
        }
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

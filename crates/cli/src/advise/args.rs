//! The command line of `serpent advise`.

use std::path::PathBuf;

use clap::Args;
use scheduler::Rate;
use simulator::advise::Part;
use workload::trace::Format;

use super::installed::Installed;
use crate::values;

/// Options that can take the place of a log.
const SOURCES: [&str; 4] = ["nginx", "apache", "caddy", "admin"];

/// The log and the uplink.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  serpent advise /var/log/nginx/access.log --uplink 100mbit
  serpent advise --nginx --uplink 100mbit
  serpent advise --admin http://127.0.0.1:9090
  serpent advise access.log* --uplink 100mbit --html advice.html
  zcat access.log.gz | serpent advise - --uplink 20mbit --json -
  serpent advise site.csv --format csv:time=begin_ms,size=volume --uplink 1gbit
  serpent advise month.log --uplink 100mbit --window 8h..20h

Logs are read in the Common and Combined Log Format, the W3C extended format (IIS), as JSON lines, CSV, or
World Cup records, plain or compressed (gzip, bzip2, xz, zstd).")]
pub struct AdviseArgs {
    /// Access logs of one site, `-` for standard input. Several count as one, in the order of their times
    #[arg(value_name = "ACCESS_LOG", required_unless_present_any = SOURCES)]
    pub logs: Vec<PathBuf>,

    /// The logs of an installed nginx, with rotated ones, in place of ACCESS_LOG
    #[arg(long, conflicts_with = "logs", group = "installed")]
    pub nginx: bool,

    /// The logs of an installed Apache
    #[arg(long, conflicts_with = "logs", group = "installed")]
    pub apache: bool,

    /// The logs of an installed Caddy
    #[arg(long, conflicts_with = "logs", group = "installed")]
    pub caddy: bool,

    /// The last responses of a running Serpent, from its admin address, in place of a log
    #[arg(long, value_name = "URL", conflicts_with_all = ["logs", "installed", "format"])]
    pub admin: Option<String>,

    /// File with the token of that server, to ask it from another machine
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub admin_token: Option<PathBuf>,

    /// Rate of the site's present or planned uplink, as in 100mbit; of a running Serpent its present one, if left out
    #[arg(long, value_name = "RATE", value_parser = values::rate, required_unless_present = "admin")]
    pub uplink: Option<Rate>,

    /// Write one page with everything, plots included, which needs no other file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write every number, for programs; `-` for standard output, in place of the tables
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,

    /// Seed for details that the log does not tell: when within its second a request came
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Part of the log that is simulated: `auto` (the whole log, or the busiest hours of a long one) or
    /// `whole`. A window from the first record, as in `8h..20h`, leaves out everything else
    #[arg(long, value_name = "auto|whole|FROM..UNTIL", default_value = "auto", value_parser = part, verbatim_doc_comment)]
    pub window: Part,

    /// Format of the logs, if it is not to be detected: common, combined, w3c, world-cup, csv, json; with
    /// columns as in `csv:time=begin_ms,size=volume`
    #[arg(long, value_name = "FORMAT", value_parser = format, verbatim_doc_comment)]
    pub format: Option<FormatArg>,
}

/// A format with the text that names it, because a format cannot write its columns as text.
#[derive(Clone, Debug)]
pub struct FormatArg {
    text: String,
    /// The format.
    pub format: Format,
}

impl AdviseArgs {
    /// The server whose logs are looked for.
    pub fn installed(&self) -> Option<Installed> {
        let all = [(self.nginx, Installed::Nginx), (self.apache, Installed::Apache), (self.caddy, Installed::Caddy)];
        all.into_iter().find(|(is_asked, _)| *is_asked).map(|(_, installed)| installed)
    }

    /// The command line that repeats this advice, for an uplink of this rate.
    pub fn command(&self, uplink: Rate) -> String {
        let quoted = |text: String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
            if !text.is_empty() && text.chars().all(plain) {
                text
            } else {
                format!("'{}'", text.replace('\'', "'\\''"))
            }
        };
        let logs: Vec<String> = match (&self.admin, self.installed()) {
            (Some(url), _) => vec![format!("--admin {}", quoted(url.clone()))],
            (None, Some(installed)) => vec![format!("--{}", installed.name().to_lowercase())],
            (None, None) => self.logs.iter().map(|log| quoted(log.display().to_string())).collect(),
        };
        let mut command = format!("serpent advise {} --uplink {uplink} --seed {}", logs.join(" "), self.seed);
        match self.window {
            Part::Auto => {}
            Part::Whole => command += " --window whole",
            Part::Window(from_ns, u64::MAX) => command += &format!(" --window {}..", time(from_ns)),
            Part::Window(from_ns, until_ns) => command += &format!(" --window {}..{}", time(from_ns), time(until_ns)),
        }
        if let Some(format) = &self.format {
            command += &format!(" --format {}", quoted(format.text.clone()));
        }
        command
    }
}

/// Formats a time as [`part`] reads it, without a space.
fn time(ns: u64) -> String {
    [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
        .into_iter()
        .find(|(_, unit_ns)| ns.is_multiple_of(*unit_ns))
        .map_or_else(|| format!("{ns}ns"), |(unit, unit_ns)| format!("{}{unit}", ns / unit_ns))
}

fn part(text: &str) -> Result<Part, String> {
    let help = || {
        format!(
            "`{text}` is no part of a log: give `auto`, `whole`, or two times from the first record on, the earlier first, \
             as in `8h..20h` or `0s..90m`"
        )
    };
    match text {
        "auto" => Ok(Part::Auto),
        "whole" => Ok(Part::Whole),
        _ => {
            let (from, until) = text.split_once("..").ok_or_else(help)?;
            let ns = |text: &str| {
                let text = text.trim();
                let ns = match text {
                    "" | "0" => 0,
                    _ => humantime::parse_duration(text).map_err(|_| help())?.as_nanos(),
                };
                u64::try_from(ns).map_err(|_| help())
            };
            let until_ns = if until.trim().is_empty() { u64::MAX } else { ns(until)? };
            let from_ns = ns(from)?;
            if from_ns < until_ns { Ok(Part::Window(from_ns, until_ns)) } else { Err(help()) }
        }
    }
}

fn format(text: &str) -> Result<FormatArg, String> {
    let format = text.parse().map_err(|error: workload::trace::FormatError| error.to_string())?;
    Ok(FormatArg { text: text.to_owned(), format })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: u64 = 1_000_000_000;

    fn args() -> AdviseArgs {
        AdviseArgs {
            logs: vec!["a.log".into()],
            nginx: false,
            apache: false,
            caddy: false,
            admin: None,
            admin_token: None,
            uplink: None,
            html: None,
            json: None,
            seed: 1,
            window: Part::Auto,
            format: None,
        }
    }

    #[test]
    fn a_part_is_read_as_people_write_it() {
        assert_eq!(part("auto"), Ok(Part::Auto));
        assert_eq!(part("whole"), Ok(Part::Whole));
        assert_eq!(part("8h..20h"), Ok(Part::Window(8 * 3600 * NS, 20 * 3600 * NS)));
        assert_eq!(part("0s .. 1m 30s"), Ok(Part::Window(0, 90 * NS)));
        assert_eq!(part("..1h"), Ok(Part::Window(0, 3600 * NS)));
        assert!(matches!(part("1h.."), Ok(Part::Window(_, until)) if until > 100 * 365 * 86_400 * NS));
        for text in ["", "all", "5h", "2h..1h", "1h..1h", "-1h..2h", "x..y", "1..2"] {
            assert!(part(text).unwrap_err().contains("as in `8h..20h`"), "{text}");
        }
    }

    #[test]
    fn a_window_is_read_back_as_written() {
        let (mut args, rate) = (args(), "10mbit".parse().unwrap());
        for (text, written) in [
            ("8h..20h", "28800s..72000s"),
            ("0s..1500ms", "0s..1500ms"),
            ("1s 500us .. 2s 7ns", "1000500us..2000000007ns"),
            ("1h..", "3600s.."),
            ("1ns..2ns", "1ns..2ns"),
        ] {
            args.window = part(text).unwrap();
            let command = args.command(rate);
            let (_, window) = command.split_once(" --window ").unwrap();
            assert_eq!((window, part(window).unwrap()), (written, args.window), "{text}");
        }
    }

    #[test]
    fn the_command_does_the_same_again() {
        let rate = "10mbit".parse().unwrap();
        let installed = AdviseArgs { apache: true, ..args() };
        assert_eq!(installed.command(rate), "serpent advise --apache --uplink 10mbit --seed 1");
        let live = AdviseArgs { admin: Some("http://[::1]:9".into()), ..args() };
        assert_eq!(live.command(rate), "serpent advise --admin 'http://[::1]:9' --uplink 10mbit --seed 1");
        let args = AdviseArgs {
            logs: vec!["a.log".into(), "it's".into()],
            seed: 3,
            window: Part::Window(0, 90 * NS),
            format: Some(super::format("csv:time=t,size=s").unwrap()),
            ..args()
        };
        let command = args.command(rate);
        assert_eq!(
            command,
            "serpent advise a.log 'it'\\''s' --uplink 10mbit --seed 3 --window 0s..90s --format csv:time=t,size=s"
        );
    }
}

//! The arguments of `serpent-lab site`.

use std::path::PathBuf;

use clap::Args;

/// Measure gateways before a real site: the waiting times of classes, and the site's throughput.
///
/// Users of three classes request the site's pages, one page each, wait for the whole answer, think, and
/// repeat. The same users use each gateway in turn. The site must already run (see `examples/two-tier`), and
/// its pages report their own time; gateways are started and stopped here. Without --quick each subject takes
/// 30 minutes, as in the paper's experiment.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Subjects:
  uncontrolled                            Serpent without windows
  direct                                  nobody: the users ask the site itself
  single:slots=N[,share=SHARE][,windows=METHOD]
                                          Serpent with one window for all pages; probe is not for it
  multi:PAGE=N,...[,share=SHARE][,windows=METHOD][,KEY=VALUE,...]
                                          Serpent with a window for each page, N, N/LEAST-MOST,
                                          N@BOUND or N/LEAST-MOST@BOUND; other keys of `[admission]`:
                                          probe-every, probe-after, shrink-above, grow-below, delay-window
  haproxy:PAGE=N,...[,share=strict]       HAProxy, a backend with maxconn N for each page
SHARE: wtp (the default), pwad, mdp, ratio, weighted, strict.
METHOD: fixed (the default), probe, knee, gradient; probe needs bounds, which `serpent probe` measures.

Examples:
  examples/two-tier/site start
  serpent-lab site --quick --out quick
  serpent-lab site --subject uncontrolled --subject multi:cpu=1,disk=2,db=8,share=ratio --seconds 600
  serpent-lab site --quick --subject multi:cpu=1,disk=2,db=8 --stop-database 120..140 \\
                   --stop-command 'examples/two-tier/site stop-database' \\
                   --start-command 'examples/two-tier/site start-database'")]
pub struct SiteArgs {
    /// The site.
    #[arg(long, default_value = "http://127.0.0.1:8091", value_name = "URL")]
    pub site: String,

    /// A page, named by the resource that it mainly needs; may be repeated, and then replaces all defaults.
    #[arg(long, value_name = "NAME=PATH", default_values = ["cpu=/cpu.php", "disk=/disk.php", "db=/db.php"])]
    pub page: Vec<String>,

    /// A gateway between the users and the site; may be repeated, and they are measured in this order.
    /// Default: all that the paper compares, and others; with --quick fewer of them.
    #[arg(long, value_name = "SUBJECT")]
    pub subject: Vec<String>,

    /// The short form, of 3.5 minutes for each subject. It shows the direction: do not quote its numbers.
    #[arg(long)]
    pub quick: bool,

    /// Classes, the most important first.
    #[arg(long, default_value = "gold,silver,bronze", value_delimiter = ',', value_name = "NAME,...")]
    pub classes: Vec<String>,

    /// The header field with a user's class.
    #[arg(long, default_value = "X-Class", value_name = "NAME")]
    pub class_field: String,

    /// The target ratios of the classes' delays, in whole numbers.
    #[arg(long, default_value = "1,2,4", value_delimiter = ',', value_name = "NUMBER,...")]
    pub ratios: Vec<u32>,

    /// Users for each page: one number per class, or one for all.
    #[arg(long, default_value = "25", value_delimiter = ',', value_name = "N,...")]
    pub users: Vec<usize>,

    /// Mean think time of a user in seconds, exponentially distributed. The paper does not give it.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    pub think: f64,

    /// A user's patience, in seconds.
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    pub timeout: f64,

    /// Length of a run. Default: 1800, with --quick 210.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u32>,

    /// Length of the warm-up, which does not count. Default: 60, of shorter runs a tenth.
    #[arg(long, value_name = "SECONDS")]
    pub warm_up: Option<u32>,

    /// Length of the last part, from which the ratios of the classes are computed. Default: a third.
    #[arg(long, value_name = "SECONDS")]
    pub last: Option<u32>,

    /// The period in which the first class is silent, or `off`. Default: 570..660, of shorter runs the third
    /// seventh.
    #[arg(long, value_name = "FROM..UNTIL")]
    pub silence: Option<String>,

    /// Length of the time windows for ratios and moving means. Default: 30, of shorter runs a fourteenth.
    #[arg(long, value_name = "SECONDS")]
    pub window: Option<u32>,

    /// Largest error of a settled ratio, in per cent.
    #[arg(long, default_value_t = 25.0, value_name = "PERCENT")]
    pub tolerance: f64,

    /// Seconds to wait after the end until the site has finished its requests.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub drain: u32,

    /// Seed of the users' think times.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub seed: u64,

    /// Stop the database at the first of two times, and start it at the second.
    #[arg(long, value_name = "FROM..UNTIL", requires = "stop_command", requires = "start_command")]
    pub stop_database: Option<String>,

    /// Shell command that stops it.
    #[arg(long, value_name = "COMMAND", requires = "stop_database")]
    pub stop_command: Option<String>,

    /// Shell command that starts it. It also runs if the experiment is stopped in between.
    #[arg(long, value_name = "COMMAND", requires = "stop_database")]
    pub start_command: Option<String>,

    /// The page that needs the database.
    #[arg(long, default_value = "db", value_name = "NAME")]
    pub database: String,

    /// Folder for the report (report.html, report.json), the requests and the gateways' configurations.
    /// Default: serpent-lab/site-TIME here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// The program to measure. Default: `serpent` beside this program, then in the folders of `PATH`.
    #[arg(long, value_name = "PROGRAM")]
    pub serpent: Option<PathBuf>,

    /// Port of the gateway on 127.0.0.1. Default: any free one.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Only write the gateways' configurations.
    #[arg(long)]
    pub dry_run: bool,
}

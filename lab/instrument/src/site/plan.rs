//! Resolves the flags into a plan: users, times and subjects.

use std::net::{SocketAddr, ToSocketAddrs as _};

use http::{HeaderName, HeaderValue, Uri};

use super::{args::SiteArgs, stats::Span, subject::Subject, target::Page};
use crate::LabError;

/// A fully resolved run of the experiment.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) site: Site,
    pub(super) pages: Vec<Page>,
    /// The most important first.
    pub(super) classes: Vec<Class>,
    pub(super) field: HeaderName,
    pub(super) seed: u64,
    pub(super) think_s: f64,
    pub(super) timeout_s: f64,
    pub(super) seconds: u32,
    pub(super) warm_up_s: u32,
    /// Length of the last part, from which ratios are computed.
    pub(super) last_s: u32,
    /// The period in which the first class is silent.
    pub(super) silence: Option<(u32, u32)>,
    pub(super) drain_s: u32,
    /// Length of the time windows for means and ratios.
    pub(super) window_s: u32,
    pub(super) tolerance: f64,
    pub(super) cut: Option<Outage>,
    pub(super) subjects: Vec<Subject>,
}

/// The address of the site.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The URL as given.
    pub(super) url: String,
    pub(super) address: SocketAddr,
}

/// A class of users.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) name: String,
    /// Its value in the header field of classes.
    pub(super) value: HeaderValue,
    /// Users for each page.
    pub(super) users: usize,
    /// Its share in the target ratios of delays.
    pub(super) ratio: u32,
}

/// A planned outage of the database.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub(super) from_s: u32,
    pub(super) until_s: u32,
    pub(super) stop: String,
    pub(super) start: String,
    /// Number of the page that needs the database.
    pub(super) page: usize,
}

const FULL_SECONDS: u32 = 1800;
const QUICK_SECONDS: u32 = 210;
/// Longer runs would need another way of storing outcomes.
const MOST_SECONDS: u32 = 86_400;
/// A client has this many ports towards one address.
const MOST_USERS: usize = 20_000;

impl Plan {
    pub(super) fn new(args: &SiteArgs) -> Result<Self, LabError> {
        let pages = pages(&args.page)?;
        let classes = classes(args)?;
        let users: usize = classes.iter().map(|class| class.users * pages.len()).sum();
        if users > MOST_USERS {
            return Err(refused(format!("--users: {users} in all, more than {MOST_USERS}")));
        }
        let seconds = args.seconds.unwrap_or(if args.quick { QUICK_SECONDS } else { FULL_SECONDS });
        if !(1..=MOST_SECONDS).contains(&seconds) {
            return Err(refused(format!("--seconds {seconds}: from 1 to {MOST_SECONDS}")));
        }
        // The paper waits one of thirty minutes for its adjustment, and computes ratios of the last ten.
        let warm_up_s = args.warm_up.unwrap_or(if seconds >= FULL_SECONDS { 60 } else { seconds / 10 });
        let last_s = args.last.unwrap_or((seconds / 3).max(1));
        if warm_up_s >= seconds || !(1..=seconds).contains(&last_s) {
            return Err(refused(format!(
                "--warm-up {warm_up_s}, --last {last_s}: shorter than the run of {seconds} s"
            )));
        }
        let window_s = args.window.unwrap_or(if seconds >= FULL_SECONDS { 30 } else { (seconds / 14).max(1) });
        if !(1..=seconds).contains(&window_s) {
            return Err(refused(format!("--window {window_s}: from 1 s to the run's {seconds} s")));
        }
        if !(args.tolerance > 0.0 && args.tolerance < 100.0) {
            return Err(refused(format!("--tolerance {}: a percentage above 0 and below 100", args.tolerance)));
        }
        let positive = |flag: &str, value: f64, least: f64| match value {
            value if value >= least && value <= f64::from(MOST_SECONDS) => Ok(value),
            _ => Err(refused(format!("{flag} {value}: out of range"))),
        };
        let plan = Self {
            site: site(&args.site)?,
            field: args.class_field.parse().map_err(|_| {
                refused(format!("--class-field `{}`: that cannot be the name of a header field", args.class_field))
            })?,
            seed: args.seed,
            think_s: positive("--think", args.think, 0.0)?,
            timeout_s: positive("--timeout", args.timeout, 0.001)?,
            seconds,
            warm_up_s,
            last_s,
            silence: silence(args.silence.as_deref(), seconds)?,
            drain_s: args.drain,
            window_s,
            tolerance: args.tolerance / 100.0,
            cut: cut(args, &pages, warm_up_s, seconds)?,
            subjects: subjects(args, &pages)?,
            pages,
            classes,
        };
        Ok(plan)
    }

    /// The part of the run that counts.
    pub(super) fn counted(&self) -> Span {
        Span::new(self.warm_up_s, self.seconds)
    }

    /// The last part, from which ratios are computed.
    pub(super) fn last(&self) -> Span {
        Span::new(self.seconds - self.last_s, self.seconds)
    }

    /// The target mean system times of the classes, as multiples of the first's.
    pub(super) fn targets(&self) -> Vec<f64> {
        self.classes.iter().map(|class| f64::from(class.ratio) / f64::from(self.classes[0].ratio)).collect()
    }

    pub(super) fn users(&self) -> usize {
        self.classes.iter().map(|class| class.users * self.pages.len()).sum()
    }

    /// The numbers of class and page of each user.
    pub(super) fn each_user(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let of_class = |class: usize| (0..self.pages.len()).map(move |page| (class, page));
        (0..self.classes.len())
            .flat_map(of_class)
            .flat_map(|(class, page)| std::iter::repeat_n((class, page), self.classes[class].users))
    }
}

fn pages(given: &[String]) -> Result<Vec<Page>, LabError> {
    let page = |text: &String| {
        let (name, target) = text.split_once('=').unwrap_or_default();
        let is_target = target.starts_with('/') && target.parse::<Uri>().is_ok_and(|uri| uri.path() != "*");
        if !is_name(name) || !is_target {
            return Err(refused(format!("--page `{text}`: write NAME=PATH, such as cpu=/cpu.php")));
        }
        Ok(Page { name: name.to_owned(), target: target.to_owned() })
    };
    let pages: Vec<Page> = given.iter().map(page).collect::<Result<_, _>>()?;
    different("--page", pages.iter().map(|page| page.name.as_str()))?;
    // A gateway distinguishes them by the path.
    different("--page", pages.iter().map(Page::path))?;
    Ok(pages)
}

fn classes(args: &SiteArgs) -> Result<Vec<Class>, LabError> {
    let count = args.classes.len();
    if count == 0 || args.classes.iter().any(|name| !is_name(name)) {
        return Err(refused("--classes: names of letters, digits, - and _, separated by commas".to_owned()));
    }
    different("--classes", args.classes.iter().map(String::as_str))?;
    if args.users.len() != 1 && args.users.len() != count {
        return Err(refused(format!("--users: one number, or one for each of the {count} classes")));
    }
    if args.ratios.len() != count || args.ratios.iter().any(|&ratio| !(1..=1000).contains(&ratio)) {
        return Err(refused(format!("--ratios: {count} whole numbers from 1 to 1000, one for each class")));
    }
    let class = |(number, (name, &ratio)): (usize, (&String, &u32))| {
        let value =
            name.parse().map_err(|_| refused(format!("--classes `{name}`: that cannot stand in a header field")))?;
        let users = args.users[if args.users.len() == 1 { 0 } else { number }];
        Ok(Class { name: name.clone(), value, users, ratio })
    };
    args.classes.iter().zip(&args.ratios).enumerate().map(class).collect()
}

fn subjects(args: &SiteArgs, pages: &[Page]) -> Result<Vec<Subject>, LabError> {
    let shipped: &[&str] = if args.quick { super::subject::QUICK } else { super::subject::FULL };
    let texts: Vec<&str> = match &args.subject[..] {
        [] => shipped.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let read = |text: &&str| {
        let subject: Subject = text.parse()?;
        subject.suits(pages)?;
        Ok(subject)
    };
    let subjects: Vec<Subject> = texts.iter().map(read).collect::<Result<_, _>>().map_err(|error: LabError| match error {
        LabError::Request(what) if args.subject.is_empty() => {
            refused(format!("{what}; the subjects that are measured by default are for the pages cpu, disk and db: give others by --subject"))
        }
        other => other,
    })?;
    different("--subject", texts.into_iter())?;
    Ok(subjects)
}

fn site(url: &str) -> Result<Site, LabError> {
    let wrong = || refused(format!("--site `{url}`: write http://HOST:PORT"));
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none());
    let host = host.ok_or_else(wrong)?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(80);
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| refused(format!("--site `{url}`: {error}")))?;
    let address = addresses.next().ok_or_else(|| refused(format!("--site `{url}`: {host} has no address")))?;
    Ok(Site { url: url.trim_end_matches('/').to_owned(), address })
}

/// The paper's silence: from 570 s for 90 s of 1800 s. In a shorter run it is a seventh: a twentieth would
/// hardly show.
fn silence(given: Option<&str>, seconds: u32) -> Result<Option<(u32, u32)>, LabError> {
    match given {
        Some("off") => Ok(None),
        Some(text) => from_until("--silence", text, seconds).map(Some),
        None if seconds >= FULL_SECONDS => Ok(Some((570, 660))),
        None => Ok(Some((seconds * 2 / 7, seconds * 3 / 7)).filter(|(from, until)| from < until)),
    }
}

fn cut(args: &SiteArgs, pages: &[Page], warm_up_s: u32, seconds: u32) -> Result<Option<Outage>, LabError> {
    let (Some(text), Some(stop), Some(start)) = (&args.stop_database, &args.stop_command, &args.start_command) else {
        return Ok(None);
    };
    let (from_s, until_s) = from_until("--stop-database", text, seconds)?;
    if from_s <= warm_up_s || until_s == seconds {
        return Err(refused(format!(
            "--stop-database `{text}`: the throughput before is measured from the warm-up's end at {warm_up_s} s on, and that \
             after until the run's end at {seconds} s; stop it in between"
        )));
    }
    let page = pages.iter().position(|page| page.name == args.database).ok_or_else(|| {
        refused(format!(
            "--database `{}`: there is no page of this name; it is the one that needs the database",
            args.database
        ))
    })?;
    Ok(Some(Outage { from_s, until_s, stop: stop.clone(), start: start.clone(), page }))
}

fn from_until(flag: &str, text: &str, seconds: u32) -> Result<(u32, u32), LabError> {
    let parsed = text.split_once("..").and_then(|(from, until)| Some((from.parse().ok()?, until.parse().ok()?)));
    match parsed {
        Some((from, until)) if from < until && until <= seconds => Ok((from, until)),
        _ => Err(refused(format!(
            "{flag} `{text}`: write two rising whole seconds of the run's {seconds}, such as 570..660"
        ))),
    }
}

/// A name that is valid in configuration files of any kind.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=32).contains(&text.len()) && text.bytes().all(plain)
}

fn different<'a>(flag: &str, mut names: impl Iterator<Item = &'a str> + Clone) -> Result<(), LabError> {
    while let Some(name) = names.next() {
        if names.clone().any(|other| other == name) {
            return Err(refused(format!("{flag}: `{name}` is there twice")));
        }
    }
    Ok(())
}

pub(super) fn refused(text: String) -> LabError {
    LabError::Request(text)
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SiteArgs,
    }

    pub(in super::super) fn args(flags: &[&str]) -> SiteArgs {
        Cli::try_parse_from(std::iter::once("lab").chain(flags.iter().copied())).unwrap_or_else(|e| panic!("{e}")).args
    }

    pub(in super::super) fn plan(flags: &[&str]) -> Plan {
        Plan::new(&args(flags)).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn defaults_are_the_papers() {
        let plan = plan(&[]);
        assert_eq!((plan.users(), plan.seconds, plan.silence, plan.last_s), (225, 1800, Some((570, 660)), 600));
        assert_eq!(plan.targets(), [1.0, 2.0, 4.0]);
        assert_eq!(plan.subjects.len(), super::super::subject::FULL.len());
        let users: Vec<_> = plan.each_user().collect();
        assert_eq!((users.len(), users[0], users[25], users[75], users[224]), (225, (0, 0), (0, 1), (1, 0), (2, 2)));
    }

    #[test]
    fn the_quick_form_has_all_of_it_in_minutes() {
        let plan = plan(&["--quick"]);
        assert_eq!((plan.seconds, plan.silence, plan.last_s, plan.warm_up_s), (210, Some((60, 90)), 70, 21));
        // There is time to settle before the last part begins.
        assert!(plan.silence.unwrap().1 + plan.window_s < plan.seconds - plan.last_s);
        assert_eq!(plan.subjects.len(), super::super::subject::QUICK.len());
    }

    #[test]
    fn users_are_given_for_all_classes_or_for_each() {
        let each = |flags: &[&str]| plan(flags).classes.iter().map(|class| class.users).collect::<Vec<_>>();
        assert_eq!(each(&["--users", "3"]), [3, 3, 3]);
        assert_eq!(each(&["--users", "5,4,0"]), [5, 4, 0]);
        assert_eq!(plan(&["--users", "5,4,0"]).each_user().count(), 27);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_flag_that_says_it() {
        for (flags, reason) in [
            (&["--users", "1,2"][..], "--users"),
            (&["--users", "9000"], "--users"),
            (&["--ratios", "1,2"], "--ratios"),
            (&["--ratios", "1,2,0"], "--ratios"),
            (&["--classes", "a,b,a"], "twice"),
            (&["--classes", "a,b,c d"], "--classes"),
            (&["--class-field", "X Class"], "--class-field"),
            (&["--page", "cpu"], "NAME=PATH"),
            (&["--page", "cpu=cpu.php"], "NAME=PATH"),
            (&["--page", "a=/x?cost=1", "--page", "b=/x?cost=2", "--subject", "direct"], "`/x` is there twice"),
            (&["--page", "a=/x"], "--subject"),
            (&["--site", "https://127.0.0.1"], "--site"),
            (&["--site", "127.0.0.1:80"], "--site"),
            (&["--site", "http://127.0.0.1/shop"], "--site"),
            (&["--seconds", "0"], "--seconds"),
            (&["--seconds", "10", "--warm-up", "10"], "--warm-up"),
            (&["--silence", "20..10"], "--silence"),
            (&["--silence", "20..2000"], "--silence"),
            (&["--tolerance", "0"], "--tolerance"),
            (&["--think=-1"], "--think"),
            (&["--think", "NaN"], "--think"),
            (&["--timeout", "0"], "--timeout"),
            (&["--window", "0"], "--window"),
            (&["--subject", "direct", "--subject", "direct"], "twice"),
            (&["--subject", "squid"], "squid"),
            (&["--stop-database", "9", "--stop-command", "a", "--start-command", "b"], "--stop-database"),
            (&["--stop-database", "60..90", "--stop-command", "a", "--start-command", "b"], "warm-up"),
            (&["--stop-database", "70..1800", "--stop-command", "a", "--start-command", "b"], "run's end"),
            (
                &["--stop-database", "65..99", "--stop-command", "a", "--start-command", "b", "--database", "x"],
                "--database",
            ),
        ] {
            let args = Cli::try_parse_from(std::iter::once("lab").chain(flags.iter().copied()));
            let error = match args.map_err(|error| error.to_string()) {
                Ok(cli) => Plan::new(&cli.args).map(drop).unwrap_err().to_string(),
                Err(error) => error,
            };
            assert!(error.contains(reason), "{flags:?}: {error}");
        }
    }
}

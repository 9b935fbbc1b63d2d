//! Tests of the search and of the changes to the configuration file. The site has an exact capacity, and the
//! clock advances when all tasks are idle.

use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicUsize},
    },
    time::Duration,
};

use clap::Parser as _;
use http::StatusCode;
use scheduler::control::{Found, Search, Stop};
use server::upstream::{
    Unavailable, UpstreamError,
    probe::{Answer, ProbeError},
};
use tokio::{sync::Semaphore, time::Instant};

use super::{load::RequestResult, *};

/// A site with a number of slots and a service time; further requests wait there. A function may replace its
/// answers.
struct Station {
    slots: Arc<Semaphore>,
    service: Duration,
    says: Mutex<Box<dyn FnMut() -> RequestResult + Send>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    asked: Mutex<Vec<Instant>>,
}

fn answer(status: u16) -> RequestResult {
    Ok(Answer { status: StatusCode::from_u16(status).unwrap(), took: Duration::from_millis(1), bytes: 1 })
}

fn late() -> RequestResult {
    Err(ProbeError::TimedOut { after: Duration::from_secs(30) })
}

impl Station {
    fn new(slots: usize, service_ms: u64) -> Arc<Self> {
        Self::saying(slots, service_ms, || answer(200))
    }

    fn saying(slots: usize, service_ms: u64, says: impl FnMut() -> RequestResult + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(slots)),
            service: Duration::from_millis(service_ms),
            says: Mutex::new(Box::new(says)),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            asked: Mutex::new(Vec::new()),
        })
    }

    fn page(self: &Arc<Self>) -> Page {
        let site = self.clone();
        Arc::new(move || {
            let site = site.clone();
            Box::pin(async move {
                let under_way = InProgress::new(&site);
                site.asked.lock().unwrap().push(Instant::now());
                let says = (site.says.lock().unwrap())();
                let slot = site.slots.acquire().await.unwrap();
                tokio::time::sleep(site.service).await;
                drop((slot, under_way));
                says
            })
        })
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

struct InProgress<'a>(&'a Station);

impl<'a> InProgress<'a> {
    fn new(site: &'a Station) -> Self {
        let now = site.under_way.fetch_add(1, Relaxed) + 1;
        site.most_under_way.fetch_max(now, Relaxed);
        Self(site)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

fn args(flags: &[&str]) -> ProbeArgs {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: ProbeArgs,
    }
    let args = ["probe", "serpent.toml"].into_iter().chain(flags.iter().copied());
    Cli::try_parse_from(args).unwrap().args
}

fn target(resource: &str) -> Target {
    let server = values::upstream_server("http://127.0.0.1:1").unwrap();
    Target {
        host: None,
        resource: resource.to_owned(),
        page: http::uri::PathAndQuery::from_static("/"),
        upstream: server::config::UpstreamConfig::new("shop", vec![server]),
        limits: (1.try_into().unwrap(), 100.try_into().unwrap()),
        elsewhere: Vec::new(),
    }
}

fn stop() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

async fn probed(flags: &[&str], site: &Arc<Station>) -> (Vec<Probed>, Option<String>) {
    probe_all(&args(flags), &[target("disk")], &|_| Ok(site.page()), &stop(), &Progress::nowhere()).await
}

#[tokio::test(start_paused = true)]
async fn both_searches_find_a_capacity_that_is_exact() {
    // Two at once with 99 ms each are 20.2 a second, so at 20 a second no request waits yet.
    let site = Station::new(2, 99);
    let (probed, failed) = probed(&["--search", "both"], &site).await;
    assert_eq!(failed, None);
    let [probed] = &*probed else { panic!("{probed:?}") };
    for searched in &probed.searches {
        let found = searched.found().unwrap_or_else(|| panic!("{searched:?}"));
        assert_eq!((found.per_second, found.window, found.at_ceiling), (20, 2, false), "{}", searched.search);
        // A clock of whole milliseconds may be late by one.
        assert!((99..=100).contains(&(found.bound_ns / 1_000_000)), "{found:?}");
    }
    assert_eq!(probed.searches.iter().map(|it| it.search).collect::<Vec<_>>(), [Search::Doubling, Search::Steps]);
    assert!(probed.searches[0].rates.len() < probed.searches[1].rates.len());
    let text = report::text(probed);
    for part in ["disk: / of shop (http://127.0.0.1:1)", "doubling", "steps", "20"] {
        assert!(text.contains(part), "{part} is missing from:\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_sent_at_their_moments_whatever_the_site_does() {
    // The site is slow: all requests are sent before the first is done.
    let site = Station::new(1, 900);
    let limits = limits(64);
    let plan = load::Plan { per_second: 10, warm: 2, counted: 5 };
    let start = Instant::now();
    let rate = load::at_rate(&site.page(), plan, &limits, &|_| {}).await.unwrap();
    let sent: Vec<_> = site.asked.lock().unwrap().iter().map(|at| (*at - start).as_millis()).collect();
    assert_eq!(sent, [50, 150, 250, 350, 450, 550, 650]);
    // No request ends within the interval, and all end before the call returns.
    assert_eq!((rate.measured.sent, rate.measured.answered, rate.held), (5, 0, 0));
    assert_eq!(site.under_way.load(Relaxed), 0);
    assert!(rate.measured.grew);
}

#[tokio::test(start_paused = true)]
async fn the_service_time_counts_from_the_planned_moment() {
    // Only one request at a time may be at the site, so that requests wait here and not there.
    let site = Station::new(1, 200);
    let limits = limits(1);
    let plan = load::Plan { per_second: 10, warm: 1, counted: 4 };
    let rate = load::at_rate(&site.page(), plan, &limits, &|_| {}).await.unwrap();
    assert_eq!(site.most_under_way.load(Relaxed), 1);
    assert_eq!((rate.measured.sent, rate.measured.answered), (4, 2));
    // Planned at 50 and 150 ms, answered at 250 and 450 ms.
    assert_eq!(rate.measured.service_ns / 1_000_000, 250);
    assert!(rate.held >= 2, "{rate:?}");
    assert!((rate.measured.running - 1.0).abs() < 0.01, "{rate:?}");
}

fn limits(outstanding: usize) -> Limits {
    Limits { outstanding, most_errors: 0.01, silence: Duration::from_secs(60), stop: stop() }
}

#[tokio::test(start_paused = true)]
async fn no_more_are_at_the_site_than_may_be() {
    let site = Station::new(2, 1000);
    let (probed, _) = probed(&["--outstanding", "7"], &site).await;
    assert_eq!(site.most_under_way.load(Relaxed), 7);
    let found = probed[0].found().unwrap();
    assert_eq!((found.per_second, found.window), (2, 2));
    assert!(report::text(&probed[0]).contains("--outstanding"));
}

#[tokio::test(start_paused = true)]
async fn the_ceiling_is_kept_and_told_of() {
    let site = Station::new(100, 10);
    let (probed, failed) = probed(&["--ceiling", "9"], &site).await;
    let found = probed[0].found().unwrap();
    assert_eq!((found.per_second, found.at_ceiling, failed), (9, true, None));
    assert!(probed[0].searches[0].rates.iter().all(|rate| rate.per_second <= 9));
    assert!(report::text(&probed[0]).contains("it may do more"));
}

#[tokio::test(start_paused = true)]
async fn errors_end_the_search_with_the_best_so_far() {
    // At more than 10 requests a second the site returns errors.
    let times = Arc::new(Mutex::new(VecDeque::new()));
    let site = Station::saying(100, 10, move || {
        let mut times = times.lock().unwrap();
        let now = Instant::now();
        times.push_back(now);
        while now - *times.front().unwrap() > Duration::from_secs(1) {
            times.pop_front();
        }
        answer(if times.len() > 12 { 503 } else { 200 })
    });
    let (probed, failed) = probed(&[], &site).await;
    assert_eq!(failed, None, "an error page at a high rate is an answer");
    let searched = &probed[0].searches[0];
    let End::Stopped(Stop::Errors { per_second: 16 }, Some(Found { per_second: 8, .. })) = searched.end else {
        panic!("{searched:?}")
    };
    assert!(probed[0].found().is_none());
    let text = report::text(&probed[0]);
    assert!(text.contains("not confirmed") && text.contains("(status 503)"), "{text}");
    // Of 320 requests 3 may be errors. The measurement ended with the fourth error, before all requests were
    // sent.
    assert_eq!(searched.rates.last().unwrap().measured.errors, 4);
}

#[tokio::test(start_paused = true)]
async fn a_site_that_answers_nothing_is_not_asked_on() {
    let count = Arc::new(AtomicU32::new(0));
    let refused = move || {
        let upstream = UpstreamError::NoServer { upstream: "shop".into(), why: Unavailable::Down };
        // The site works until its 300th request.
        if count.fetch_add(1, Relaxed) < 300 { answer(200) } else { Err(ProbeError::Upstream(upstream)) }
    };
    let site = Station::saying(1000, 1, refused);
    let (all, failed) = probed(&["--seconds-per-rate", "200"], &site).await;
    let failed = failed.unwrap();
    assert!(failed.contains("does not answer") || matches!(all[0].searches[0].end, End::Stopped(..)), "{failed}");
    assert!(site.asked() <= 306, "{}", site.asked());

    // A site that accepts requests and is silent.
    let site = Station::new(1, 3_600_000);
    let halt = load::at_rate(&site.page(), load::Plan::new(10, 20.0, 40), &limits(64), &|_| {}).await.unwrap_err();
    assert!(matches!(halt, Halt::Silent { .. }), "{halt}");
    assert_eq!(site.under_way.load(Relaxed), 0, "what was asked for is given up");
}

#[tokio::test(start_paused = true)]
async fn a_site_that_is_not_done_in_time_is_left_alone() {
    let mut asked = 0;
    let site = Station::saying(1000, 100, move || {
        asked += 1;
        if asked == 1000 { late() } else { answer(200) }
    });
    // The interval ends before the last request does.
    let plan = load::Plan { per_second: 100, warm: 100, counted: 900 };
    let halt = load::at_rate(&site.page(), plan, &limits(64), &|_| {}).await.unwrap_err();
    assert!(matches!(halt, Halt::NotDone { requests: 1 }), "{halt}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_sites_fault_ends_it_all() {
    let site = Station::saying(1, 10, || {
        Err(ProbeError::Upstream(UpstreamError::NoServer { upstream: "shop".into(), why: Unavailable::Full }))
    });
    let halt = load::at_rate(&site.page(), load::Plan::new(10, 20.0, 40), &limits(64), &|_| {}).await.unwrap_err();
    assert!(matches!(halt, Halt::Broken(_)), "{halt}");
    assert_eq!(site.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_request_finds_what_is_wrong_with_the_page() {
    for (says, part) in [(404, "answers 404"), (302, "answers 302"), (500, "answers 500")] {
        let site = Station::saying(1, 10, move || answer(says));
        let (probed, failed) = probed(&[], &site).await;
        assert!(probed.is_empty() && failed.unwrap().contains(part));
        assert_eq!(site.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_interrupts_it_keeps_what_was_found() {
    let (site, stop) = (Station::new(2, 99), stop());
    let pages = |target: &Target| {
        let (page, stop, asked) = (site.page(), stop.clone(), AtomicUsize::new(0));
        let is_second = target.resource == "cpu";
        let page: Page = Arc::new(move || {
            stop.store(is_second && asked.fetch_add(1, Relaxed) >= 150, Relaxed);
            page()
        });
        Ok(page)
    };
    let targets = [target("disk"), target("cpu")];
    let (probed, failed) = probe_all(&args(&[]), &targets, &pages, &stop, &Progress::nowhere()).await;
    assert!(failed.unwrap().contains("interrupted"));
    assert_eq!(probed.iter().map(|it| it.found().is_some()).collect::<Vec<_>>(), [true, false]);
    let End::Halted(Halt::Interrupted, Some(best)) = &probed[1].searches[0].end else { panic!("{probed:?}") };
    assert!(best.per_second > 0 && site.under_way.load(Relaxed) == 0);
}

#[tokio::test(start_paused = true)]
async fn the_knee_shows_itself_around_the_window() {
    let site = Station::new(2, 99);
    let (probed, failed) = probed(&["--knee"], &site).await;
    assert_eq!(failed, None);
    let throughput: Vec<_> =
        probed[0].knee.iter().map(|it| (it.at_once, it.times.len(), it.throughput().0.round())).collect();
    assert_eq!(throughput, [(1, 3, 10.0), (2, 3, 20.0), (4, 3, 20.0)]);
    let text = report::text(&probed[0]);
    assert!(text.contains("-50.0 %") && text.contains("+0.0 %"), "{text}");
}

#[tokio::test]
async fn a_site_that_answers_at_once_comes_to_an_end() {
    let page: Page = Arc::new(|| Box::pin(std::future::ready(answer(200))));
    let closed = load::at_once(&page, 8, Duration::from_millis(4), &limits(64)).await.unwrap();
    assert!(closed.errors.is_none());
    let plan = load::Plan { per_second: 100_000, warm: 1, counted: 100 };
    let rate = load::at_rate(&page, plan, &limits(64), &|_| {}).await.unwrap();
    assert_eq!((rate.measured.sent, rate.measured.errors), (100, 0));
}

#[tokio::test(start_paused = true)]
async fn all_that_was_measured_is_in_the_files() {
    let site = Station::new(4, 100);
    let (probed, _) = probed(&["--search", "both", "--ceiling", "6"], &site).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a/b");
    report::write(&folder, &probed).unwrap();
    let tsv = fs::read_to_string(folder.join("rates.tsv")).unwrap();
    let rates: usize = probed[0].searches.iter().map(|searched| searched.rates.len()).sum();
    let mut lines = tsv.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    assert_eq!(rows.len(), rates);
    assert!(rows.iter().all(|row| row.len() == head.len()));
    assert_eq!(rows[0][..3], ["disk", "doubling", "1"]);
    for what in ["throughput", "service-time"] {
        let svg = fs::read_to_string(folder.join(format!("disk-{what}.svg"))).unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let text: String = document.descendants().filter_map(|node| node.text()).collect();
        assert!(text.contains("requests a second") && text.contains("steps"), "{text}");
    }
}

const FILE: &str = r#"# The shop.
listen = [ "127.0.0.1:8080" ]   # for now

[[upstream]]
name = "shop"
servers = ["http://127.0.0.1:8081"]

[admission]
share = "strict"
[admission.resources]
cpu = { probe = "/cpu.php" } # to be measured
# Slow.
disk = { window = 7, most = 9, bound = "1s", probe = "/disk.php?cost=12" }   # since May
database = 5

[[site]]
names = ["shop.example"]
[[site.route]]
path = "/"
upstream = "shop"
resource = "cpu"
"#;

fn change(resource: &str, window: u32, ms: u64) -> Change {
    Change { resource: resource.to_owned(), window, bound: Duration::from_millis(ms) }
}

#[test]
fn only_windows_and_bounds_change() {
    let new = write::edited(FILE, &[change("disk", 4, 1420), change("cpu", 2, 15)]).unwrap();
    let expected = FILE
        .replace(
            r#"cpu = { probe = "/cpu.php" } # to be measured"#,
            r#"cpu = { probe = "/cpu.php", window = 2, bound = "15ms" } # to be measured"#,
        )
        .replace(r#"window = 7, most = 9, bound = "1s""#, r#"window = 4, most = 9, bound = "1s420ms""#);
    assert_eq!(new, expected);
    let shown = write::difference(FILE, &new);
    assert_eq!(shown.lines().filter(|line| line.starts_with('+')).count(), 2, "{shown}");
    assert_eq!(shown.lines().filter(|line| line.starts_with('-')).count(), 2, "{shown}");
    assert!(!shown.contains("shop.example"));
}

#[test]
fn a_resource_may_be_a_table_of_its_own() {
    let table = "[admission.resources.disk] # slow\nprobe = \"/\"\nwindow = 7 # guessed\n\n[uplink]\nrate = \"off\"\n";
    let expected = table.replace("window = 7 # guessed\n", "window = 4 # guessed\nbound = \"90ms\"\n");
    assert_eq!(write::edited(table, &[change("disk", 4, 90)]).unwrap(), expected);
    let dotted = "admission.resources.disk.probe = \"/\" # slow\nworkers = 1\n";
    let edited = write::edited(dotted, &[change("disk", 4, 90)]).unwrap();
    let read: toml::Table = edited.parse().unwrap();
    assert_eq!(read["admission"]["resources"]["disk"]["window"].as_integer(), Some(4), "{edited}");
    assert!(edited.contains("# slow\n") && edited.contains("workers = 1\n"), "{edited}");
    assert!(write::edited(FILE, &[change("database", 4, 90)]).unwrap_err().contains("`database`"));
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_replaced_as_a_whole_and_keeps_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("real.toml"), folder.path().join("serpent.toml"));
    fs::write(&file, FILE).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.toml", &link).unwrap();
    let before = fs::metadata(&file).unwrap();
    let new = write::edited(FILE, &[change("disk", 4, 420)]).unwrap();
    write::save(&link, FILE, &new).unwrap();
    let after = fs::metadata(&file).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), new);
    assert_ne!(before.ino(), after.ino(), "it is another file");
    assert_eq!(after.permissions().mode() & 0o7777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(folder.path()), ["real.toml", "serpent.toml"]);
}

#[test]
fn what_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    fs::write(&file, FILE).unwrap();
    // The window is outside the range from `least` to `most`.
    let refused = write::edited(FILE, &[change("disk", 10, 420)]).unwrap();
    let error = write::save(&file, FILE, &refused).unwrap_err();
    assert!(error.contains("not accepted") && error.contains("where it is to stay"), "{error}");
    // The file has been changed meanwhile.
    let new = write::edited(FILE, &[change("disk", 4, 420)]).unwrap();
    let error = write::save(&file, "listen = []\n", &new).unwrap_err();
    assert!(error.contains("changed meanwhile"), "{error}");
    // The file is gone.
    assert!(write::save(&folder.path().join("gone.toml"), FILE, &new).unwrap_err().contains("nothing was changed"));
    assert_eq!(fs::read_to_string(&file).unwrap(), FILE);
    assert_eq!(names(folder.path()), ["serpent.toml"]);
}

#[test]
fn a_bound_is_written_as_it_is_read() {
    for ns in [1, 4_999, 5_000, 123_456, 9_999_999, 12_345_678, 420_400_000, 1_234_567_890, 61_000_000_000] {
        let bound = write::rounded(ns);
        assert_eq!(values::duration(&values::show_duration(bound)), Ok(bound), "{ns}");
        assert!(bound.as_nanos().abs_diff(ns.into()) <= 500_000, "{ns}: {bound:?}");
    }
    assert_eq!(values::show_duration(write::rounded(420_400_000)), "420ms");
}

#[test]
fn a_window_stays_within_its_limits() {
    let found = |window| Found { per_second: 10, window, bound_ns: 1_000_000, at_ceiling: false };
    for (window, expected) in [(1, 3), (4, 4), (200, 100)] {
        let searched = search::Searched { search: Search::Steps, rates: Vec::new(), end: End::Done(found(window)) };
        let probed = Probed {
            resource: "disk".to_owned(),
            whereabouts: String::new(),
            searches: vec![searched],
            knee: Vec::new(),
        };
        let target = Target { limits: (3.try_into().unwrap(), 100.try_into().unwrap()), ..target("disk") };
        assert_eq!(changes(&[probed], &[target]).unwrap()[0].window, expected);
    }
}

#[test]
fn a_bound_may_be_missing_before_it_is_measured() {
    let text = FILE.replace("share = \"strict\"", "windows = \"probe\"").replace("bound = \"1s\", ", "");
    let text = text.replace("database = 5", "database = \"off\"");
    let path = Path::new("serpent.toml");
    assert!(config::load_text(path, text.clone()).unwrap_err().to_string().contains("no bound"));
    let config = super::load_config(path, &text).unwrap();
    assert_eq!(targets::targets(&config, &[]).unwrap().len(), 2);
    // All other problems are still reported, with their places in the real file.
    let problems =
        super::load_config(path, &text.replace("share", "x").replace("window = 7", "window = 70")).unwrap_err();
    assert!(problems.to_string().contains("window = 70, most = 9, probe"), "{problems}");
}

#[test]
fn resources_are_chosen_by_name_or_by_having_a_page() {
    let load = |text: &str| config::load_text(Path::new("serpent.toml"), text.to_owned()).unwrap().0;
    let config = load(FILE);
    let chosen = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let targets = targets::targets(&config, &names)?;
        Ok::<_, String>(targets.into_iter().map(|target| target.resource).collect::<Vec<_>>())
    };
    assert_eq!(chosen(&[]).unwrap(), ["cpu", "disk"]);
    assert_eq!(chosen(&["disk", "disk"]).unwrap(), ["disk"]);
    assert!(chosen(&["database"]).unwrap_err().contains("has no page"));
    assert!(chosen(&["tape"]).unwrap_err().contains("`cpu`, `disk`"));
    let none = load(&FILE.replace("probe = \"/cpu.php\"", "window = 3").replace(", probe = \"/disk.php?cost=12\"", ""));
    assert!(targets::targets(&none, &[]).unwrap_err().contains("no resource has a page"));
    let slots = load("[[site]]\nroot = \".\"\n[admission]\nslots = 20\n");
    assert!(targets::targets(&slots, &[]).unwrap_err().contains("in place of `slots = 20`"));
}

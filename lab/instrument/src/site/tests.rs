//! Tests of the whole experiment against a small site in this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rand_chacha::rand_core::Rng as _;

use super::{
    outcome::{End, Outcome},
    plan::tests::plan,
    stats::tests::answered,
    *,
};

/// Observations of the small site.
#[derive(Clone, Default)]
struct Seen {
    connections: Arc<AtomicUsize>,
    /// Class and path of each request.
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

/// A site with a thread for each connection: its pages answer at once, and report 2 ms. `/full` refuses,
/// `/mute` does not report its time, `/cut` closes the connection, and `/hung` never answers.
fn site() -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let told = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let told = told.clone();
            told.connections.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || serve(stream.unwrap(), &told));
        }
    });
    (address, seen)
}

fn serve(mut stream: TcpStream, seen: &Seen) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let path = first.split(' ').nth(1).unwrap().to_owned();
        let mut class = String::new();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            if let Some(said) = line.to_lowercase().strip_prefix("x-class: ") {
                class = said.to_owned();
            }
        }
        seen.requests.lock().unwrap().push((class, path.clone()));
        let (head, body) = match path.as_str() {
            "/full" => ("503 Service Unavailable", "{\"ms\": 2.0}\n"),
            "/mute" => ("200 OK", "hello\n"),
            "/cut" => return,
            // Until its user leaves.
            "/hung" if lines.next().is_none() => return,
            _ => ("200 OK", "{\"page\":\"x\",\"ms\":2.0}\n"),
        };
        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn measured(flags: &str) -> (Plan, Vec<Outcome>, Seen) {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let (address, seen) = site();
    let site = format!("http://{address}");
    let words: Vec<&str> = flags.split_whitespace().chain(["--site", &site, "--subject", "direct"]).collect();
    let plan = plan(&words);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcomes = runtime.block_on(users::run(&plan, address, Instant::now(), &NEVER)).unwrap();
    (plan, outcomes, seen)
}

/// A request cut off by the end of the run; a slow machine or chance is the cause.
fn is_cut_off(outcome: &Outcome) -> bool {
    outcome.end == End::Unfinished
}

#[test]
fn users_ask_wait_think_and_ask_again_on_one_connection_each() {
    let flags = "--page a=/a --page b=/b?cost=1 --users 3,2,1 --think 0.02 --seconds 1 --silence off --warm-up 0";
    let (plan, outcomes, seen) = measured(flags);
    assert_eq!((plan.users(), seen.connections.load(Ordering::Relaxed)), (12, 12));
    let ended_well = |outcome: &Outcome| outcome.end == End::Answered(200) && outcome.page_s == Some(0.002);
    assert!(outcomes.iter().all(|outcome| ended_well(outcome) || is_cut_off(outcome)), "{outcomes:?}");
    assert_eq!(outcomes.iter().map(|outcome| outcome.user).collect::<BTreeSet<_>>().len(), 12);
    let asked: BTreeSet<(String, String)> = seen.requests.lock().unwrap().iter().cloned().collect();
    let of_class = |class: &str| ["/a", "/b?cost=1"].map(|path| (class.to_owned(), path.to_owned()));
    assert_eq!(asked, ["bronze", "gold", "silver"].into_iter().flat_map(of_class).collect());
    // A user sends no request before the last answer has arrived.
    for user in 0..12 {
        let mine: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.user == user).collect();
        assert!(mine.windows(2).all(|pair| pair[0].ended_s() <= pair[1].at_s), "{mine:?}");
    }
}

#[test]
fn the_first_class_is_silent_while_it_is_to_be() {
    let (_, outcomes, _) = measured("--page a=/a --users 2 --think 0.01 --seconds 2 --silence 0..1 --warm-up 0");
    let begins = |class| outcomes.iter().filter(|o| o.class == class).map(|o| o.at_s).fold(f64::INFINITY, f64::min);
    assert!(begins(0) >= 1.0 && begins(0).is_finite(), "{}", begins(0));
    // Their first think times are random, and far below a second.
    assert!(begins(1).is_finite() && begins(2).is_finite());
    assert!(outcomes.iter().any(|outcome| outcome.class != 0));
}

#[test]
fn the_seed_and_the_user_decide_how_long_is_thought() {
    let draws = |seed, user| {
        let mut rng = users::generator(seed, user);
        [0; 4].map(|_| rng.next_u64())
    };
    assert_eq!(draws(1, 3), draws(1, 3));
    assert_ne!(draws(1, 3), draws(1, 4));
    assert_ne!(draws(1, 3), draws(2, 3));
}

#[test]
fn whatever_becomes_of_a_request_is_an_outcome() {
    let flags = "--page full=/full --page mute=/mute --page cut=/cut --users 1 --think 0.02 --seconds 1 --silence off \
                 --warm-up 0";
    let (_, outcomes, _) = measured(flags);
    let of = |page: usize| outcomes.iter().filter(move |outcome| outcome.page == page && !is_cut_off(outcome));
    assert!(of(0).all(|outcome| outcome.end == End::Refused(503) && outcome.page_s.is_none()));
    assert!(of(1).all(|outcome| outcome.end == End::Answered(200) && outcome.page_s.is_none()));
    assert!(of(2).all(|outcome| matches!(outcome.end, End::Failed(_))));
    assert_eq!(outcomes.iter().map(|outcome| outcome.user).collect::<BTreeSet<_>>().len(), 9);
}

#[test]
fn who_loses_patience_leaves_and_is_counted() {
    let flags =
        "--page hung=/hung --users 1 --think 0.02 --timeout 0.2 --seconds 1 --silence off --warm-up 0 --drain 0";
    let (_, outcomes, seen) = measured(flags);
    assert!(!outcomes.is_empty());
    for outcome in &outcomes {
        match outcome.end {
            End::TimedOut => assert!(outcome.took_s >= 0.2 && outcome.late_s.is_none()),
            End::Unfinished => assert!(outcome.late_s.is_none()),
            _ => panic!("{outcome:?}"),
        }
    }
    // A new connection each time; the site may see the last one later.
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    while seen.connections.load(Ordering::Relaxed) < outcomes.len() {
        assert!(std::time::Instant::now() < patience, "{outcomes:?}");
        thread::yield_now();
    }
    assert_eq!(seen.connections.load(Ordering::Relaxed), outcomes.len());
}

#[test]
fn a_site_that_is_not_as_it_must_be_is_told_before_the_run() {
    let (address, _) = site();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |page: &str, address: SocketAddr| {
        let plan = plan(&["--page", page, "--subject", "direct", "--site", &format!("http://{address}")]);
        runtime.block_on(users::ask_each(&plan, address)).unwrap()
    };
    assert_eq!(ask("a=/a", address).unwrap()["a"].page_s, Some(0.002));
    assert_eq!(ask("a=/mute", address).unwrap()["a"].page_s, None);
    assert_eq!(ask("a=/full", address).unwrap_err(), "/full answers 503");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(ask("a=/a", nobody).unwrap_err().contains("no connection"));
}

fn report(plan: &Plan, subjects: &[Vec<Outcome>], cut: Option<outage::OutageTimes>) -> Report {
    let begun = RunStart { unix_s: 0, command: "serpent-lab site".to_owned(), versions: Vec::new(), quick: true };
    let mut report = Report::new(plan, begun, BTreeMap::new());
    for (subject, outcomes) in plan.subjects.iter().zip(subjects) {
        let measured = Measured { outcomes: outcomes.clone(), alone: BTreeMap::new(), cut, windows: Vec::new() };
        report.take(plan, subject, Ok(&measured));
    }
    report
}

/// In each second one request of each of two classes ends; those of the second take twice as long.
fn steady(seconds: u32, every_s: f64, took_s: f64) -> Vec<Outcome> {
    let count = (f64::from(seconds) / every_s) as u32;
    let of = |n: u32| {
        let ended_s = f64::from(n) * every_s + 0.01;
        let request =
            |class: usize| Outcome { page_s: Some(0.1), ..answered(class, ended_s, took_s * (class + 1) as f64) };
        [request(0), request(1)]
    };
    (0..count).flat_map(of).collect()
}

const TWO: &[&str] = &[
    "--page",
    "db=/db",
    "--classes",
    "gold,silver",
    "--ratios",
    "1,2",
    "--seconds",
    "20",
    "--warm-up",
    "0",
    "--silence",
    "5..8",
];

#[test]
fn subjects_are_compared_with_each_other_and_with_what_is_published() {
    let subjects = [
        "--subject",
        "uncontrolled",
        "--subject",
        "single:slots=3",
        "--subject",
        "single:slots=5",
        "--subject",
        "multi:db=2",
    ];
    let plan = plan(&[TWO, &subjects].concat());
    let runs = [steady(20, 1.0, 2.0), steady(20, 1.0, 2.0), steady(20, 0.8, 2.0), steady(20, 0.5, 1.0)];
    let report = report(&plan, &runs, None);
    let [uncontrolled, _, single, multi] = &report.rows[..] else { panic!("{}", report.rows.len()) };
    assert_eq!((uncontrolled.all.throughput, single.all.throughput, multi.all.throughput), (2.0, 2.5, 4.0));
    let [system_s, service_s, queueing_s] =
        [multi.all.system_s, multi.all.service_s, multi.all.queueing_s].map(|mean| (mean.unwrap() * 1e6).round() / 1e6);
    assert_eq!((system_s, service_s, queueing_s), (1.5, 0.1, 1.4));
    assert_eq!(multi.ratios.plain, [Some(1.0), Some(2.0)]);
    assert_eq!(multi.settled.after_s, Some(0));
    let shown = report.to_string();
    let line = |table: &str| {
        let from = shown.find(table).unwrap_or_else(|| panic!("{table}: {shown}"));
        let mut blocks = shown[from..].split("\n\n");
        let first = blocks.next().unwrap();
        // A wide table comes in parts below each other, each with the first column.
        let subject = first.lines().nth(1).and_then(|head| head.split_whitespace().next()).unwrap();
        let parts = std::iter::once(first).chain(blocks.take_while(|block| block.starts_with(subject)));
        let cells = parts.filter_map(|part| part.lines().find_map(|line| line.strip_prefix("multi wtp")));
        format!("multi wtp {}", cells.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" "))
    };
    assert!(line("Throughput").starts_with("multi wtp 4.00 2.00× 1.60×"), "{shown}");
    assert!(line("Mean times").starts_with("multi wtp 1500 -50 % -50 % 1400 100 0.4"), "{shown}");
    assert!(line("Mean system times").starts_with("multi wtp 1:2.00 1:1.92:3.81 1:2.00 1:2.00 0 s 100.0 %"), "{shown}");
    assert!(shown.contains("the best of 2, single 5"), "{shown}");
}

#[test]
fn a_stop_of_the_database_is_told_before_during_and_after() {
    let flags = [
        "--subject",
        "direct",
        "--stop-database",
        "8..12",
        "--stop-command",
        "a",
        "--start-command",
        "b",
        "--window",
        "2",
    ];
    let plan = plan(&[TWO, &flags].concat());
    let mut outcomes = steady(20, 1.0, 0.5);
    for outcome in outcomes.iter_mut().filter(|outcome| (8.0..14.0).contains(&outcome.ended_s())) {
        outcome.end = End::Wrong(500);
    }
    let report = report(&plan, &[outcomes], Some(outage::OutageTimes { stopped_s: 8.1, started_s: 12.2 }));
    let cut = report.rows[0].cut.as_ref().unwrap();
    assert_eq!(cut.throughput, [[2.0, 0.0, 1.5]]);
    assert_eq!(cut.back_after_s, [Some(2)]);
    assert_eq!(cut.ends[1], BTreeMap::from([("500".to_owned(), 8)]));
    let shown = report.to_string();
    assert!(shown.contains("8.1 s, 12.2 s") && shown.contains("2 s\n"), "{shown}");
}

#[test]
fn a_page_is_well_formed_and_names_the_papers_figures() {
    let subjects = ["--subject", "multi:db=2", "--subject", "multi:db=3", "--subject", "direct"];
    let plan = plan(&[TWO, &subjects].concat());
    let mut report = report(&plan, &[steady(20, 1.0, 2.0), steady(20, 1.0, 2.0)], None);
    report.take(&plan, &plan.subjects[2], Err("it said: <no & \"never\">".to_owned()));
    assert!(!report.is_whole());
    assert_eq!(report.rows[1].label, "multi wtp #2");
    let dir = tempfile::tempdir().unwrap();
    report.write(dir.path()).unwrap();
    let page = fs::read_to_string(dir.path().join(shown::PAGE)).unwrap();
    // The page's own declaration, which names no file.
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document =
        roxmltree::Document::parse_with_options(&page, options).unwrap_or_else(|error| panic!("{error}\n{page}"));
    let text: String = document.descendants().filter_map(|node| node.text()).collect();
    for wanted in [
        "(the paper's figure 7)",
        "(the paper's figure 10)",
        "(the paper's figure 12)",
        "(the paper's figure 13)",
        "(table 4)",
        "<no & \"never\">",
        "multi wtp #2",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(json["rows"][0]["all"]["throughput"], 2.0);
}

#[test]
fn a_request_is_a_line_of_json() {
    let plan = plan(&[TWO, &["--subject", "direct"]].concat());
    let failed = Outcome { end: End::Failed("reset".to_owned()), page_s: None, ..answered(1, 3.5, 0.5) };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests");
    outcome_file::write(&file, &plan, &[Outcome { page_s: Some(0.25), ..answered(0, 2.0, 1.0) }, failed]).unwrap();
    assert_eq!(
        fs::read_to_string(file).unwrap(),
        "{\"user\":0,\"class\":\"gold\",\"page\":\"db\",\"at_s\":1.0,\"took_ms\":1000.0,\"end\":\"answered\",\"status\":200,\
         \"page_ms\":250.0,\"late_ms\":null}\n\
         {\"user\":1,\"class\":\"silver\",\"page\":\"db\",\"at_s\":3.0,\"took_ms\":500.0,\"end\":\"failed\",\"status\":null,\
         \"page_ms\":null,\"late_ms\":null,\"reason\":\"reset\"}\n"
    );
}

#[test]
fn the_database_is_started_again_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let plan = |stop: &str| {
        let start = format!("echo started >> {}", state.display());
        let flags =
            ["--subject", "direct", "--stop-database", "1..2", "--stop-command", stop, "--start-command", &start];
        let mut plan = plan(&[TWO, &flags].concat());
        // The time before the outage is not measured.
        plan.cut.iter_mut().for_each(|cut| (cut.from_s, cut.until_s) = (0, 1));
        plan
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stop = format!("echo stopped >> {}", state.display());
    let told = || fs::read_to_string(&state).unwrap();

    let whole = plan(&stop);
    let mut database = Database::new(whole.cut.as_ref());
    let done = runtime.block_on(database.stop_and_start(Instant::now())).unwrap().unwrap();
    assert!(done.stopped_s < done.started_s && done.started_s >= 1.0);
    drop(database);
    assert_eq!(told(), "stopped\nstarted\n");

    // Stopped between the two commands.
    let mut database = Database::new(whole.cut.as_ref());
    runtime.block_on(async {
        let mut both = std::pin::pin!(database.stop_and_start(Instant::now()));
        while told().lines().count() < 3 {
            tokio::select! {
                _ = &mut both => break,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
    });
    drop(database);
    assert!(told().ends_with("stopped\nstarted\n") && told().lines().count() == 4, "{}", told());

    // A failed command may still have stopped it.
    let failing = plan("false");
    let mut database = Database::new(failing.cut.as_ref());
    let error = runtime.block_on(database.stop_and_start(Instant::now())).unwrap_err().to_string();
    assert!(error.contains("--stop-command `false`"), "{error}");
    drop(database);
    assert_eq!(told().lines().count(), 5);
}

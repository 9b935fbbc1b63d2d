//! The function in a real store beside [`Ledger`], and what the connection does when the store changes under it.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use scheduler::{
    Instant,
    lease::{Ask, CellAsk, CellSettings, ClassSettings, Demand, Division, GatewayId, Ledger, Tally},
};
use tempfile::TempDir;

use crate::{CellName, Error, Spent, Store, message::decode, message::encode};

const LEASE: Duration = Duration::from_secs(1);

/// A store of this test only.
struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    /// `None` if the program is missing, which only CI does not forgive.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let process = match start(folder.path()) {
            Ok(process) => process,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "redis-server cannot be started: {error}");
                eprintln!("SKIPPED: redis-server cannot be started: {error}");
                return None;
            }
        };
        Some(Self { process, folder })
    }

    fn address(&self) -> String {
        format!("unix://{}/socket", self.folder.path().display())
    }

    async fn connect(&self, site: &str, gateway: &str) -> crate::Connection {
        let store = Store::new(&self.address(), site, gateway).expect("an address");
        loop {
            match store.connect(Duration::from_secs(10)).await {
                Ok(connection) => return connection,
                // It has just started.
                Err(Error::Connection(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn start(folder: &Path) -> std::io::Result<Child> {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(folder.join("socket"))
        .arg("--dir")
        .arg(folder)
        .stdout(Stdio::null())
        .spawn()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().expect("it can be stopped");
        self.process.wait().expect("it ends");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn cells(division: Division, window: u32) -> (Vec<CellSettings>, Vec<CellName>) {
    let classes = [(4, 2), (2, 0), (1, 0)].map(|(weight, reserve)| ClassSettings { weight, reserve }).to_vec();
    let names = |cell: &str| CellName {
        cell: cell.to_owned(),
        classes: ["gold", "silver", "plain"].map(str::to_owned).to_vec(),
    };
    let cell = |window, adjusted| CellSettings { window, adjusted, division, classes: classes.clone() };
    (vec![cell(window, false), cell(1, true)], vec![names("cpu"), names("disk")])
}

type Event = (u32, u64, [u32; 3], [u32; 3], [u32; 3]);

/// Random asks of up to eight gateways, with pauses in which leases end: both answer alike, to the last number.
#[test]
fn the_function_in_the_store_decides_as_the_ledger() {
    let Some(server) = Server::start() else { return };
    let runtime = runtime();
    let mut runner = TestRunner::new(ProptestConfig { cases: 60, ..ProptestConfig::default() });
    let event = (0_u32..8, 0_u64..300, [0_u32..9, 0..9, 0..9], [0_u32..40, 0..3, 0..40], [0_u32..3, 0..3, 0..3]);
    let divisions = [Division::Strict, Division::Weighted, Division::Shared, Division::Demand];
    let division = prop::sample::select(divisions.to_vec());
    let case = (division, 6_u32..40, prop::collection::vec(event, 1..120));
    let number = std::cell::Cell::new(0);
    let outcome = runner.run(&case, |(division, window, events)| {
        number.set(number.get() + 1);
        runtime.block_on(same(&server, &format!("site-{}", number.get()), division, window, &events))
    });
    outcome.expect("they agree");
}

async fn same(
    server: &Server,
    site: &str,
    division: Division,
    window: u32,
    events: &[Event],
) -> Result<(), TestCaseError> {
    let (settings, names) = cells(division, window);
    let mut gateways = Vec::new();
    for id in 0..8 {
        gateways.push((server.connect(site, &format!("gateway-{id}")).await, 0_u64, [0_u32; 2]));
    }
    let mut now_us = 1_000_000_000_u64;
    let mut ledger = Ledger::new(Instant::from_ns(now_us * 1000), 1_000_000_000, settings.clone());
    let mut first = true;
    for &(id, pass_ms, running, waiting, of_disk) in events {
        // The ledger begins with its first ask.
        if !first {
            now_us += pass_ms * 1000 * if pass_ms > 290 { 20 } else { 1 };
        }
        first = false;
        let (connection, seen, holds) = &mut gateways[id as usize];
        let demands = |running: [u32; 3], waiting: [u32; 3]| {
            running.into_iter().zip(waiting).map(|(running, waiting)| Demand { running, waiting }).collect()
        };
        let finished = Tally { done: running[0], failed: running[1], service_us: pass_ms };
        let ask = Ask {
            seen: *seen,
            gateways: 3,
            linger_ns: 300_000_000,
            cells: vec![
                CellAsk { window, finished, holds: holds[0], demands: demands(running, waiting) },
                CellAsk { window: 1 + waiting[1], finished, holds: holds[1], demands: demands([0; 3], of_disk) },
            ],
        };
        let json = encode(&ask, &settings, &names);
        let (gateway, now) = (format!("gateway-{id}"), now_us.to_string());
        let answer = connection.call("serpent_1_ask", &[&gateway, "1000000", &json, &now]).await.expect("an answer");
        let answer = decode(&answer).expect("an answer of ours");
        let reply = ledger.handle_ask(Instant::from_ns(now_us * 1000), GatewayId(id), ask);
        while ledger.poll_notice().is_some() {}
        prop_assert_eq!(&answer, &reply);
        *seen = answer.number;
        *holds = [answer.cells[0].slots, answer.cells[1].slots];
    }
    Ok(())
}

fn one_waits(settings: &[CellSettings]) -> Ask {
    let demands = vec![Demand { running: 0, waiting: 5 }; 3];
    let cells = settings.iter().map(|_| CellAsk { demands: demands.clone(), ..CellAsk::default() }).collect();
    Ask { seen: 0, gateways: 1, linger_ns: 0, cells }
}

#[test]
fn an_emptied_store_gets_its_function_again() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (settings, names) = cells(Division::Weighted, 10);
        let mut connection = server.connect("site", "a").await;
        let ask = one_waits(&settings);
        let first = connection.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        assert_eq!((first.gateways, first.cells[0].slots), (1, 10));
        let flush = redis::cmd("FUNCTION").arg("FLUSH").clone();
        let other = redis::Client::open(server.address()).expect("an address");
        let mut other = other.get_multiplexed_async_connection().await.expect("a connection");
        let _: String = flush.query_async(&mut other).await.expect("it is emptied");
        let again = connection.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        assert_eq!(again.number, first.number + 1);
    });
}

#[test]
fn a_gateway_that_was_denied_slots_hears_when_they_are_free() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (settings, names) = cells(Division::Weighted, 10);
        let ask = one_waits(&settings);
        let (mut a, mut b) = (server.connect("site", "a").await, server.connect("site", "b").await);
        let of_a = a.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        let mut working = ask.clone();
        for (cell, grant) in working.cells.iter_mut().zip(&of_a.cells) {
            cell.holds = grant.slots;
            cell.demands[0] = Demand { running: grant.slots, waiting: 0 };
        }
        working.seen = of_a.number;
        a.ask(LEASE, &working, &settings, &names).await.expect("an answer");
        let of_b = b.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        assert_eq!(of_b.cells[0].slots, 0, "all run at the other");
        let waits = b.notices();
        a.leave().await.expect("it leaves");
        // In a task of its own, as in the server.
        tokio::spawn(async move { waits.notified().await }).await.expect("a notice");
        let of_b = b.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        assert_eq!(of_b.cells[0].slots, 10);
    });
}

#[test]
fn each_gateway_hears_what_the_others_have_let_in_since_it_last_asked() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (mut a, mut b) = (server.connect("site", "a").await, server.connect("site", "b").await);
        let keep = Duration::from_secs(60);
        let spent = |requests| [Spent { of: "limit:client".to_owned(), requests, keep }];
        assert_eq!(a.spend(&spent(3)).await.expect("an answer"), [0]);
        assert_eq!(b.spend(&spent(2)).await.expect("an answer"), [3]);
        assert_eq!(b.spend(&spent(1)).await.expect("an answer"), [0]);
        let two = [spent(4), [Spent { of: "limit:other".to_owned(), requests: 1, keep }]].concat();
        assert_eq!(a.spend(&two).await.expect("an answer"), [3, 0]);
    });
}

#[test]
fn a_store_that_is_gone_is_an_error_and_no_wait() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (settings, names) = cells(Division::Weighted, 10);
        let mut connection = server.connect("site", "a").await;
        drop(server);
        let error = connection.ask(LEASE, &one_waits(&settings), &settings, &names).await.expect_err("it is gone");
        assert!(matches!(error, Error::Connection(_)), "{error}");
    });
}

#[test]
fn addresses_and_their_mistakes() {
    for good in ["redis://host", "rediss://user:secret@host:6380/2", "unix:///run/valkey.sock", "redis://[::1]:6379"] {
        let store = Store::new(good, "site", "a").expect(good);
        assert!(!format!("{store:?}").contains("secret"));
    }
    for bad in ["", "host:6379", "http://host"] {
        let error = Store::new(bad, "site", "a").expect_err(bad).to_string();
        assert!(error.contains("rediss://user:password@host:6379"), "{error}");
    }
}

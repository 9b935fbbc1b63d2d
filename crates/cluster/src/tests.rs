//! The function in a real store beside [`Ledger`], and what the connection does when the store changes under it.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use scheduler::{
    Instant,
    lease::{Ask, CellAsk, CellSettings, ClassSettings, Demand, Division, GatewayId, Ledger, Reply, Tally},
};
use tempfile::TempDir;

use crate::{CellName, Connection, Error, Shared, Spent, Store, Trust, message::decode, message::encode};

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
        self.connect_as(site, gateway, false).await
    }

    async fn connect_shared(&self, site: &str, gateway: &str) -> crate::Connection {
        self.connect_as(site, gateway, true).await
    }

    async fn connect_as(&self, site: &str, gateway: &str, shared: bool) -> crate::Connection {
        let store = Store::new(&self.address(), &Trust::default(), site, gateway).expect("an address");
        loop {
            let connection = match shared {
                true => store.connect_shared(Duration::from_secs(10)).await,
                false => store.connect(Duration::from_secs(10)).await,
            };
            match connection {
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

type Event = (u32, u64, bool, [u32; 3], [u32; 3], [u32; 3]);

/// Random asks of up to eight gateways, with pauses in which leases end: both answer alike, to the last number.
#[test]
fn the_function_in_the_store_decides_as_the_ledger() {
    let Some(server) = Server::start() else { return };
    let runtime = runtime();
    let mut runner = TestRunner::new(ProptestConfig { cases: 60, ..ProptestConfig::default() });
    let moves = prop::bool::weighted(0.03);
    let event = (0_u32..8, 0_u64..300, moves, [0_u32..9, 0..9, 0..9], [0_u32..40, 0..3, 0..40], [0_u32..3, 0..3, 0..3]);
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
    let (mut first, mut process) = (true, 1);
    for &(id, pass_ms, moves, running, waiting, of_disk) in events {
        // The ledger begins with its first ask.
        if !first {
            now_us += pass_ms * 1000 * if pass_ms > 290 { 20 } else { 1 };
        }
        if moves && !first {
            process += 1;
            ledger.handle_moved(Instant::from_ns(now_us * 1000));
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
            keep_ns: if id < 4 { 0 } else { 2_000_000_000 },
            cells: vec![
                CellAsk {
                    window,
                    finished,
                    holds: holds[0],
                    demands: demands(running, waiting),
                    started: vec![running[1], running[2], waiting[1]],
                },
                CellAsk {
                    window: 1 + waiting[1],
                    finished,
                    holds: holds[1],
                    demands: demands([0; 3], of_disk),
                    started: of_disk.to_vec(),
                },
            ],
        };
        let json = encode(&ask, process, &settings, &names);
        // No connection listens for these.
        let is_closed = id >= 6;
        let name = if is_closed { "closed" } else { "gateway" };
        let (gateway, now) = (format!("{name}-{id}"), now_us.to_string());
        let answer = connection.call("serpent_2_ask", &[&gateway, "1000000", &json, &now]).await.expect("an answer");
        let answer = decode(&answer).expect("an answer of ours");
        let reply = ledger.handle_ask(Instant::from_ns(now_us * 1000), GatewayId(id), ask);
        while ledger.poll_notice().is_some() {}
        if is_closed {
            ledger.handle_closed(GatewayId(id));
        }
        prop_assert_eq!(&answer, &reply);
        *seen = answer.number;
        *holds = [answer.cells[0].slots, answer.cells[1].slots];
    }
    Ok(())
}

/// The store's clock is a wall clock. One that goes back must not give leases a longer life at the store than at the
/// gateways, and one that jumps ahead must not end them early.
#[test]
fn a_clock_of_the_store_that_jumps_grants_nothing_twice() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        const LEASE_US: u64 = 1_000_000;
        let (settings, names) = cells(Division::Weighted, 12);
        let (settings, names) = (&settings[..1], &names[..1]);
        let mut a = server.connect("jumps", "a").await;
        let mut b = server.connect("jumps", "b").await;
        // Asks at a time of the store's clock, with what it holds and all that it could use.
        let ask = async |(gateway, connection): (&str, &mut Connection), had: &Reply, now_us: u64| {
            let holds = had.cells.first().map_or(0, |cell| cell.slots);
            let waiting = Demand { running: 0, waiting: 30 };
            let demands = vec![waiting, Demand::default(), Demand::default()];
            let cells = vec![CellAsk { window: 12, holds, demands, ..CellAsk::default() }];
            let ask = Ask { seen: had.number, gateways: 2, linger_ns: 0, keep_ns: 0, cells };
            let now = now_us.to_string();
            let json = encode(&ask, 1, settings, names);
            let answer = connection.call("serpent_2_ask", &[gateway, &LEASE_US.to_string(), &json, &now]).await;
            decode(&answer.expect("an answer")).expect("an answer of ours")
        };
        let none = Reply::default();
        let mut now_us = 5_000 * LEASE_US;
        let mut of_a = ask(("a", &mut a), &none, now_us).await;
        // No lease of before is heard of, so all slots are granted.
        now_us += LEASE_US / 2;
        of_a = ask(("a", &mut a), &of_a, now_us).await;
        assert_eq!(of_a.cells[0].slots, 12);
        // An hour back: the lease is still in force, and ends a lease's time after it was granted.
        now_us -= 3_600 * LEASE_US;
        let of_b = ask(("b", &mut b), &none, now_us).await;
        assert_eq!(of_b.cells[0].slots, 0, "the other gateway has them all");
        now_us += LEASE_US * 9 / 10;
        assert_eq!(ask(("b", &mut b), &of_b, now_us).await.cells[0].slots, 0);
        now_us += LEASE_US / 5;
        let of_b = ask(("b", &mut b), &of_b, now_us).await;
        assert_eq!(of_b.cells[0].slots, 12, "it has ended");
        // An hour ahead: by that clock no gateway asked for so long, but the lease may be in force.
        now_us += 3_600 * LEASE_US;
        let of_a = ask(("a", &mut a), &none, now_us).await;
        assert!(of_a.cells[0].slots <= 6, "its equal part at most, until leases of before have ended: {of_a:?}");
        let of_b = ask(("b", &mut b), &of_b, now_us + 1).await;
        assert!(of_a.cells[0].slots + of_b.cells[0].slots <= 12, "{of_a:?} {of_b:?}");
    });
}

fn one_waits(settings: &[CellSettings]) -> Ask {
    let demands = vec![Demand { running: 0, waiting: 5 }; 3];
    let cells = settings.iter().map(|_| CellAsk { demands: demands.clone(), ..CellAsk::default() }).collect();
    Ask { seen: 0, gateways: 1, linger_ns: 0, keep_ns: 0, cells }
}

#[test]
fn sums_of_gateways_of_an_earlier_version_are_understood() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (settings, names) = cells(Division::Weighted, 10);
        let mut connection = server.connect("site", "a").await;
        let ask = one_waits(&settings);
        connection.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        let script = "local key = redis.call('KEYS', '*:sums')[1]\n\
                      local sums = cmsgpack.unpack(redis.call('GET', key))\n\
                      for _, cell in pairs(sums.cells) do cell.owed, cell.recent, cell.settled = nil, nil, nil end\n\
                      redis.call('SET', key, cmsgpack.pack(sums))";
        let strip = redis::cmd("EVAL").arg(script).arg(0).clone();
        let other = redis::Client::open(server.address()).expect("an address");
        let mut other = other.get_multiplexed_async_connection().await.expect("a connection");
        let _: redis::Value = strip.query_async(&mut other).await.expect("a script that runs");
        let again = connection.ask(LEASE, &ask, &settings, &names).await.expect("an answer");
        assert_eq!((again.gateways, again.cells[0].slots), (1, 10));
    });
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
fn requests_under_way_at_other_gateways_count_until_they_end_or_nobody_speaks_of_them() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (mut a, mut b) = (server.connect("site", "a").await, server.connect("site", "b").await);
        let keep = Duration::from_secs(60);
        let here = |count| [("client".to_owned(), count), ("other".to_owned(), 1)];
        assert_eq!(a.under_way("limit", keep, &here(3)).await.expect("an answer"), []);
        let mut said = b.under_way("limit", keep, &here(2)[..1]).await.expect("an answer");
        said.sort_unstable();
        assert_eq!(said, [("client".to_owned(), 3), ("other".to_owned(), 1)]);
        assert_eq!(b.under_way("another", keep, &[]).await.expect("an answer"), []);
        assert_eq!(a.under_way("limit", keep, &[]).await.expect("an answer"), [("client".to_owned(), 2)]);
        assert_eq!(b.under_way("limit", Duration::from_millis(1), &here(2)).await.expect("an answer"), []);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(
            a.under_way("limit", keep, &here(1)).await.expect("an answer"),
            [],
            "the word of the other has aged"
        );
    });
}

#[test]
fn common_values_pass_through_a_store_that_forgets_them() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (mut to_a, mut to_b) = (server.connect_shared("site", "a").await, server.connect_shared("site", "b").await);
        let (mut a, mut b) = (Shared::default(), Shared::default());
        async fn exchange(connection: &mut crate::Connection, of: &mut Shared, held: &[&str]) -> bool {
            let ask = of.ask(held.iter().map(|name| (*name).to_owned()).collect());
            let reply = connection.share(&ask).await.expect("an answer");
            of.handle_reply(&ask, reply)
        }
        let heard = to_b.notices();
        a.set("closed", "yes, \u{e9}\r\n".to_owned());
        a.propose("key", "first".to_owned());
        exchange(&mut to_a, &mut a, &[]).await;
        tokio::spawn(async move { heard.notified().await }).await.expect("a notice");
        b.propose("key", "second".to_owned());
        assert!(exchange(&mut to_b, &mut b, &["file"]).await);
        assert_eq!((b.get("closed"), b.get("key")), (Some("yes, \u{e9}\r\n"), Some("first")));
        assert!(!exchange(&mut to_b, &mut b, &["file"]).await, "nothing new");
        assert!(exchange(&mut to_a, &mut a, &[]).await && a.is_held("file"));
        exchange(&mut to_b, &mut b, &[]).await;
        assert!(exchange(&mut to_a, &mut a, &[]).await && !a.is_held("file"), "said no more");
        let other = redis::Client::open(server.address()).expect("an address");
        let mut other = other.get_multiplexed_async_connection().await.expect("a connection");
        let _: String = redis::cmd("FLUSHALL").query_async(&mut other).await.expect("it is emptied");
        exchange(&mut to_a, &mut a, &[]).await;
        assert!(a.is_untold(), "it has forgotten them");
        exchange(&mut to_a, &mut a, &[]).await;
        let mut c = Shared::default();
        exchange(&mut server.connect_shared("site", "c").await, &mut c, &[]).await;
        assert_eq!((c.get("closed"), c.get("key")), (a.get("closed"), Some("first")));
    });
}

#[test]
fn gateways_hear_what_the_others_say_of_themselves() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let (mut a, mut b) = (server.connect("site", "a").await, server.connect("site", "b").await);
        let keep = Duration::from_secs(60);
        assert_eq!(a.see("{\"a\":1}", keep, false).await.expect("an answer"), []);
        let all = b.see("{}", keep, true).await.expect("an answer");
        let mut said: Vec<_> = all.iter().map(|(gateway, _, text)| (&**gateway, &**text)).collect();
        said.sort_unstable();
        assert_eq!(said, [("a", "{\"a\":1}"), ("b", "{}")]);
        a.see("", keep, false).await.expect("an answer");
        assert_eq!(b.see("{}", keep, true).await.expect("an answer").len(), 1);
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

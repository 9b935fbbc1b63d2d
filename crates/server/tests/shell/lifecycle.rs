//! Starting, changing while running, and stopping.

use std::{
    net::{SocketAddr, TcpStream},
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use scheduler::Rate;
use serpent_server::{
    Server, StartError,
    config::{
        AccessLog, Config, Enforce, LogFormat, LogTarget, PassiveChecks, UplinkRate, UpstreamConfig, WorkersConfig,
    },
};

use crate::harness::{Client, Running, config, plain, root, site, statuses};

const GET: &str = "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n";
const GET_BIG: &str = "GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn several_workers_share_an_address() {
    let root = root();
    let mut config = config(root.path());
    config.workers = NonZeroUsize::new(3).expect("three");
    let server = Running::start(config);
    for _ in 0..30 {
        assert_eq!(statuses(&server.say(GET)), [200]);
    }
}

#[test]
fn a_stop_finishes_the_responses_under_way_and_closes_idle_connections() {
    let root = root();
    let mut server = Running::start(config(root.path()));
    let mut idle = server.connect();
    idle.send(GET);
    idle.response();
    let mut reading = server.connect();
    reading.send(GET_BIG);
    let mut first = [0; 15];
    std::io::Read::read_exact(&mut reading.0, &mut first).expect("the response has begun");
    assert_eq!(&first, b"HTTP/1.1 200 OK");

    server.handle.shutdown();
    assert_eq!(idle.rest(), "", "an idle connection is closed");
    assert!(TcpStream::connect(server.addresses[0]).is_err(), "nothing is accepted any more");
    assert!(!server.has_ended(), "a response is under way");
    let rest = reading.rest();
    assert_eq!(rest.split("\r\n\r\n").nth(1).map(str::len), Some(8 << 20), "the response is whole");
    server.wait();
}

#[test]
fn a_stop_serves_connections_that_the_kernel_has_completed() {
    let root = root();
    for _ in 0..20 {
        let mut server = Running::start(config(root.path()));
        // The worker is busy with none of these when it is told to stop; some of them wait in the accept queue.
        let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
        server.handle.shutdown();
        for client in &mut clients {
            client.send(GET);
        }
        for mut client in clients {
            assert_eq!(statuses(&client.rest()), [200]);
        }
        server.wait();
    }
}

#[test]
fn a_stop_waits_for_a_head_that_has_begun() {
    let root = root();
    let mut server = Running::start(config(root.path()));
    let mut client = server.connect();
    client.send(GET);
    client.response();
    client.send(&GET[..20]);
    // The next answer on another connection shows that the server has seen the bytes before.
    server.say(GET);
    server.handle.shutdown();
    std::thread::sleep(Duration::from_millis(200));
    client.send(&GET[20..]);
    assert_eq!(statuses(&client.rest()), [200]);
    server.wait();
}

#[test]
fn a_stop_gives_up_after_its_time() {
    let root = root();
    let mut config = config(root.path());
    config.limits.shutdown_timeout = Some(Duration::from_millis(100));
    let mut server = Running::start(config);
    let mut client = server.connect();
    client.send(GET_BIG);
    let mut first = [0; 15];
    std::io::Read::read_exact(&mut client.0, &mut first).expect("the response has begun");
    server.handle.shutdown();
    server.wait();
}

#[test]
fn a_reload_changes_sites_without_touching_what_is_under_way() {
    let (old, new) = (root(), root());
    std::fs::write(new.path().join("a.txt"), "changed").expect("written");
    let server = Running::start(config(old.path()));
    let mut kept = server.connect();
    kept.send(GET);
    assert!(kept.response().ends_with("file a\n"));
    let mut reading = server.connect();
    reading.send("GET /big.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut first = [0; 15];
    std::io::Read::read_exact(&mut reading.0, &mut first).expect("the response has begun");

    let mut changed = config(new.path());
    changed.listen[0].address.set_port(server.addresses[0].port());
    // An address with port 0 in the file stays the one that was bound.
    changed.listen[0].address.set_port(0);
    server.handle.reload(changed).expect("a good configuration");
    kept.send(GET);
    assert!(kept.response().ends_with("changed"), "kept connections see the new site");
    assert_eq!(reading.rest().split("\r\n\r\n").nth(1).map(str::len), Some(8 << 20));
}

#[test]
fn a_reload_adds_and_removes_addresses() {
    let root = root();
    let mut server = Running::start(config(root.path()));
    let mut old = server.connect();
    old.send(GET);
    old.response();
    // At an address that no other test listens at or connects from.
    let free = std::net::TcpListener::bind("127.0.13.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let mut changed = config(root.path());
    changed.listen[0].address = free;
    server.handle.reload(changed).expect("a good configuration");
    assert_eq!(server.handle.addresses().iter().map(|listen| listen.address).collect::<Vec<_>>(), [free]);
    assert_eq!(old.rest(), "", "connections of the removed address are asked to end");
    assert_eq!(
        statuses(&{
            let mut client = Client::connect(free);
            client.send(GET);
            client.response()
        }),
        [200]
    );
    server.addresses = vec![free];
}

#[test]
fn a_bad_configuration_leaves_the_old_one_in_force() {
    let root = root();
    let server = Running::start(config(root.path()));
    let bad = |change: fn(&mut serpent_server::config::Config, SocketAddr)| {
        let mut changed = config(root.path());
        change(&mut changed, server.addresses[0]);
        server.handle.reload(changed).expect_err("a bad configuration").to_string()
    };
    let error = bad(|config, _| config.sites[0].root = Some("/nonexistent".into()));
    assert!(error.starts_with("root: cannot open /nonexistent: "), "{error}");
    let error = bad(|config, _| config.listen[0].tls = true);
    assert!(error.starts_with("listen: TLS is asked for"), "{error}");
    let error = bad(|config, taken| config.listen.push(serpent_server::config::Listen { address: taken, tls: false }));
    assert!(error.starts_with("listen: cannot listen on "), "{error}");
    let error = bad(|config, _| {
        config.access_log =
            Some(AccessLog { target: LogTarget::File("/nonexistent/log".into()), format: LogFormat::Json });
    });
    assert!(error.starts_with("access_log: cannot open /nonexistent/log"), "{error}");
    assert_eq!(statuses(&server.say(GET)), [200]);
}

#[test]
fn workers_that_never_serve_are_tried_again_at_the_start_and_refused_at_a_reload() {
    let root = root();
    let with = |script: &str| -> Config {
        let long = Duration::from_secs(60);
        let workers = WorkersConfig {
            upstream: "app".to_owned(),
            command: ["sh", "-c", script, "{socket}"].map(str::to_owned).to_vec(),
            directory: None,
            environment: Vec::new(),
            processes: NonZeroU32::MIN,
            start_timeout: long,
            stop_timeout: long,
        };
        let upstream = UpstreamConfig {
            retries: 0,
            passive: PassiveChecks { failures: 0, pause: long },
            ..UpstreamConfig::new("app", Vec::new())
        };
        Config { upstreams: vec![upstream], upstream_workers: vec![workers], ..config(root.path()) }
    };
    let mut server = Running::start(with("exit 1"));
    assert_eq!(statuses(&server.say(GET)), [200]);
    let error = server.handle.reload(with("exit 2")).expect_err("no worker serves");
    assert!(matches!(error, StartError::Workers(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains("sh for the class default of the upstream app") && !error.contains("exit"), "{error}");
    assert_eq!(statuses(&server.say(GET)), [200]);
    // An unchanged configuration replaces no program.
    server.handle.reload(with("exit 1")).expect("the same configuration");
    server.handle.shutdown();
    server.wait();
}

#[test]
fn a_taken_address_is_an_error_also_with_several_workers() {
    let root = root();
    let server = Running::start(config(root.path()));
    for workers in [1, 2] {
        let mut config = config(root.path());
        config.workers = NonZeroUsize::new(workers).expect("some");
        config.listen[0].address = server.addresses[0];
        let error = Server::bind(config).err().expect("taken");
        assert!(matches!(error, StartError::Listen { .. }), "{error}");
    }
}

#[test]
fn sites_are_chosen_by_host() {
    let (one, two) = (root(), root());
    std::fs::write(two.path().join("a.txt"), "site two").expect("written");
    let mut config = config(one.path());
    config.listen = vec![plain()];
    config.sites =
        vec![site(one.path(), &["one.example"], None), site(two.path(), &["two.example", "*.two.example"], None)];
    let server = Running::start(config);
    for (host, two) in [
        ("one.example", false),
        ("two.example", true),
        ("Two.Example.:8080", true),
        ("www.two.example", true),
        ("unknown.example", false),
    ] {
        let text = server.say(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(text.ends_with("site two"), two, "{host}: {text}");
    }
}

#[test]
fn behind_a_paced_uplink_all_is_served_whole_and_a_stop_waits() {
    let root = root();
    let mut config = config(root.path());
    config.workers = NonZeroUsize::new(2).expect("two");
    config.uplink.rate = UplinkRate::Given(Rate::from_bits_per_second(200_000_000).expect("a rate"));
    config.uplink.enforce = Enforce::Server;
    let mut server = Running::start(config);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(GET_BIG);
        let mut first = [0; 15];
        std::io::Read::read_exact(&mut client.0, &mut first).expect("the response has begun");
    }
    // A small response is not held up by the large ones before it.
    assert_eq!(statuses(&server.say(GET)), [200]);
    server.handle.shutdown();
    let readers: Vec<_> = clients.into_iter().map(|mut client| std::thread::spawn(move || client.rest())).collect();
    for reader in readers {
        let text = reader.join().expect("no panic");
        assert_eq!(text.split("\r\n\r\n").nth(1).map(str::len), Some(8 << 20));
    }
    server.wait();
}

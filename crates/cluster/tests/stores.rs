//! Stores of all kinds as real processes: with TLS, with accounts, a replica that becomes the master, sentinels, clusters.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use scheduler::lease::{Ask, CellAsk, CellSettings, ClassSettings, Demand, Division, Reply};
use serpent_cluster::{CellName, Connection, Error, Shared, Spent, Store, Trust};
use tempfile::TempDir;

const LEASE: Duration = Duration::from_secs(1);
const WINDOW: u32 = 12;
/// A cluster needs some seconds until its nodes know each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of `redis-server` with a folder of its own.
struct Server {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// `None` if the program is missing, which only CI does not forgive.
    fn start(arguments: &[&str]) -> Option<Self> {
        let (folder, port) = (tempfile::tempdir().unwrap(), port());
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(folder.path()).args(arguments);
        Some(Self { process: spawn(command)?, port, folder })
    }

    fn socket(&self) -> String {
        self.folder.path().join("socket").display().to_string()
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(mut command: Command) -> Option<Child> {
    match command.stdout(Stdio::null()).spawn() {
        Ok(process) => Some(process),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{command:?} cannot be started: {error}");
            eprintln!("SKIPPED: {command:?} cannot be started: {error}");
            None
        }
    }
}

/// A port that is free, and for which a cluster has another one 10,000 above. Both are below those that the system gives
/// to connections, and no other test of this process gets them.
fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    loop {
        let at = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = 12_000 + (at % 10_000) as u16;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn store(address: &str, trust: &Trust, gateway: &str) -> Store {
    Store::new(address, trust, "shop", gateway).unwrap()
}

/// Connects, and tries again until the store is there. Any other refusal is an error.
async fn connect(store: &Store) -> Result<Connection, Error> {
    let start = Instant::now();
    loop {
        match store.connect(Duration::from_secs(10)).await {
            Err(Error::Connection(_) | Error::Unknown(_)) if start.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            done => return done,
        }
    }
}

/// Asks for slots for so many waiting requests of one class, when all slots of the last answer are in use.
async fn ask(connection: &mut Connection, had: Option<&Reply>, waiting: u32) -> Result<Reply, Error> {
    ask_for(connection, had, Demand { running: had.map_or(0, |had| had.cells[0].slots), waiting }).await
}

async fn ask_for(connection: &mut Connection, had: Option<&Reply>, demand: Demand) -> Result<Reply, Error> {
    let class = ClassSettings { weight: 1, reserve: 0 };
    let cells = [CellSettings { window: WINDOW, adjusted: false, division: Division::Weighted, classes: vec![class] }];
    let names = [CellName { cell: "total".to_owned(), classes: vec!["all".to_owned()] }];
    let holds = had.map_or(0, |had| had.cells[0].slots);
    let cell = CellAsk { window: WINDOW, holds, demands: vec![demand], ..CellAsk::default() };
    let seen = had.map_or(0, |had| had.number);
    let ask = Ask { seen, gateways: 2, linger_ns: 0, keep_ns: 0, cells: vec![cell] };
    connection.ask(LEASE, &ask, &cells, &names).await
}

/// Asks, over and over, until the store has got over what happened to it.
async fn ask_again(store: &Store, had: Option<&Reply>, waiting: u32) -> (Connection, Reply) {
    let start = Instant::now();
    loop {
        let mut connection = connect(store).await.unwrap();
        match ask(&mut connection, had, waiting).await {
            Ok(reply) => return (connection, reply),
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs `redis-cli`, and returns what it says.
fn cli(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    let output = command.args(["-p", &port.to_string()]).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An authority, and files with a certificate that it made for 127.0.0.1 and the key.
fn authority(folder: &Path) -> (String, String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "a host");
    let certificate = params.signed_by(&key, &authority).unwrap();
    let write = |name: &str, pem: String| {
        let path = folder.join(name);
        fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    (write("ca", authority.pem()), write("certificate", certificate.pem()), write("key", key.serialize_pem()))
}

#[test]
fn over_tls_with_an_authority_of_its_own_and_a_certificate_of_the_gateway() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (ca, certificate, key) = authority(folder.path());
    let tls_port = port().to_string();
    let tls = ["--tls-port", &tls_port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    // Without a certificate a client is refused: that is the default of Redis.
    let Some(_server) = Server::start(&[&tls[..], &["--tls-ca-cert-file", &ca]].concat()) else { return };
    let (address, read) = (format!("rediss://127.0.0.1:{tls_port}"), |path: &str| fs::read(path).unwrap());
    let authorities = Some(read(&ca));
    let trust = Trust { authorities: authorities.clone(), identity: Some((read(&certificate), read(&key))) };
    runtime().block_on(async {
        let (_, reply) = ask_again(&store(&address, &trust, "a"), None, 3).await;
        assert_eq!(reply.cells[0].window, WINDOW);
        for (trust, what) in [
            (Trust { authorities, identity: None }, "without a certificate of the gateway"),
            (Trust { authorities: None, identity: trust.identity }, "with the authorities of the system"),
        ] {
            let error =
                store(&address, &trust, "b").connect(Duration::from_secs(10)).await.map(|_| ()).expect_err(what);
            assert!(matches!(error, Error::Connection(_)), "{what}: {error}");
        }
    });
}

/// The rights that the guide says.
const RIGHTS: &str = include_str!("../../../docs/guide/gateways.md");

#[test]
fn an_account_with_the_rights_of_the_guide_and_a_numbered_database_are_enough() {
    let Some(server) = Server::start(&["--unixsocket", "socket", "--requirepass", "of-the-operator"]) else { return };
    let rights = RIGHTS.lines().find_map(|line| line.trim().strip_prefix("user serpent on >PASSWORD ")).unwrap();
    let rights: Vec<&str> =
        ["acl", "setuser", "serpent", "on", ">of gateways"].into_iter().chain(rights.split(' ')).collect();
    wait_until("it starts", || cli(server.port, &["-a", "of-the-operator", "ping"]).contains("PONG"));
    assert!(cli(server.port, &[&["-a", "of-the-operator"], &rights[..]].concat()).contains("OK"));
    let (tcp, unix) = (format!("redis://serpent:of%20gateways@127.0.0.1:{}/3", server.port), server.socket());
    let unix = format!("unix://{unix}?user=serpent&pass=of%20gateways&db=3");
    runtime().block_on(async {
        let (mut first, reply) = ask_again(&store(&tcp, &Trust::default(), "a"), None, 3).await;
        assert_eq!(reply.gateways, 2);
        let (_second, _) = ask_again(&store(&unix, &Trust::default(), "b"), None, 3).await;
        let reply = ask(&mut first, Some(&reply), 3).await.unwrap();
        assert_eq!(reply.gateways, 2, "both know each other: {reply:?}");
        first.leave().await.unwrap();
        let (mut shared, minute) = (store(&tcp, &Trust::default(), "a").connect_shared(LEASE).await.unwrap(), PATIENCE);
        let spent = Spent { of: "limit:client".to_owned(), requests: 1, keep: minute };
        shared.spend(&[spent]).await.unwrap();
        shared.under_way("limit", minute, &[("client".to_owned(), 1)]).await.unwrap();
        shared.see("{}", minute, true).await.unwrap();
        let mut values = Shared::default();
        values.set("a", "b".to_owned());
        shared.share(&values.ask(vec!["c".to_owned()])).await.unwrap();
        for wrong in [&tcp.replace("of%20gateways", "guess"), &tcp.replace("serpent:of%20gateways@", "")] {
            let error = store(wrong, &Trust::default(), "c").connect(Duration::from_secs(10)).await.map(|_| ());
            assert!(matches!(error, Err(Error::Refused(_))), "{error:?}");
        }
    });
    assert!(cli(server.port, &["-a", "of-the-operator", "-n", "3", "dbsize"]).trim() != "0");
}

/// A proxy between a replica and its master, which can be blocked: then the replica lags.
struct ReplicaProxy {
    address: SocketAddr,
    blocked: Arc<AtomicBool>,
}

impl ReplicaProxy {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, blocked) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let is_blocked = blocked.clone();
        std::thread::spawn(move || {
            for replica in listener.incoming().map_while(Result::ok) {
                let Ok(master) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                for (mut from, mut to) in
                    [(replica.try_clone().unwrap(), master.try_clone().unwrap()), (master, replica)]
                {
                    let blocked = is_blocked.clone();
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(read @ 1..) = from.read(&mut bytes) {
                            // Bytes that come while the proxy is blocked are lost.
                            if !blocked.load(SeqCst) && to.write_all(&bytes[..read]).is_err() {
                                return;
                            }
                        }
                        // The replica keeps what it has, and does not ask anew.
                        while blocked.load(SeqCst) {
                            std::thread::sleep(Duration::from_millis(20));
                        }
                    });
                }
            }
        });
        Self { address, blocked }
    }
}

/// The answers to two gateways, of which the second one was lent all that the first one left, and the replica does not know
/// of it. Returns the slots of both.
async fn two_gateways_and_a_replica_behind(
    store_of: impl Fn(&str) -> Store,
    proxy: &ReplicaProxy,
    caught_up: impl FnOnce(),
) -> [Reply; 2] {
    let (of_a, of_b) = (store_of("a"), store_of("b"));
    let (mut a, mut first) = ask_again(&of_a, None, 0).await;
    let (mut b, mut second) = ask_again(&of_b, None, 0).await;
    // The memory of a new store is complete when all leases of before would have ended.
    let (start, one, none) = (Instant::now(), Demand { running: 1, waiting: 0 }, Demand::default());
    while start.elapsed() < LEASE + LEASE / 2 {
        tokio::time::sleep(LEASE / 10).await;
        first = ask_for(&mut a, Some(&first), one).await.unwrap();
        second = ask_for(&mut b, Some(&second), none).await.unwrap();
    }
    caught_up();
    proxy.blocked.store(true, SeqCst);
    let second = ask(&mut b, Some(&second), 100).await.unwrap();
    let held = first.cells[0].slots + second.cells[0].slots;
    assert!(held <= WINDOW && second.cells[0].slots > WINDOW / 2, "{first:?} {second:?}");
    [first, second]
}

/// The replica, now the master, does not grant the first gateway the slots that the second one has. The master that
/// granted those is gone with its memory.
async fn nothing_is_granted_twice(store_of: impl Fn(&str) -> Store, [of_a, of_b]: [Reply; 2]) {
    let (a, b) = (store_of("a"), store_of("b"));
    let (_, of_a) = ask_again(&a, Some(&of_a), 100).await;
    assert!(of_a.cells[0].slots + of_b.cells[0].slots <= WINDOW, "{of_a:?} {of_b:?}");
    // Both ask as gateways do, and it goes on as before: all slots are in use, none twice.
    let (mut a, mut of_a) = ask_again(&a, Some(&of_a), 100).await;
    let (mut b, mut of_b) = ask_again(&b, Some(&of_b), 100).await;
    let start = Instant::now();
    while of_a.cells[0].slots + of_b.cells[0].slots < WINDOW {
        assert!(start.elapsed() < Duration::from_secs(3), "exact again within 3 s: {of_a:?} {of_b:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        of_a = ask(&mut a, Some(&of_a), 100).await.unwrap();
        of_b = ask(&mut b, Some(&of_b), 100).await.unwrap();
        assert!(of_a.cells[0].slots + of_b.cells[0].slots <= WINDOW, "{of_a:?} {of_b:?}");
    }
}

fn replica_of(proxy: &ReplicaProxy) -> Option<Server> {
    Server::start(&["--replicaof", "127.0.0.1", &proxy.address.port().to_string()])
}

fn has_all(master: u16, replica: u16) -> bool {
    let offset = |port, name: &str| {
        let info = cli(port, &["info", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let (there, here) = (offset(master, "master_repl_offset:"), offset(replica, "slave_repl_offset:"));
    there.is_some() && there == here && cli(replica, &["info", "replication"]).contains("master_link_status:up")
}

#[test]
fn a_replica_that_lacks_the_last_writes_becomes_the_master_and_grants_nothing_twice() {
    let Some(mut master) = Server::start(&[]) else { return };
    let proxy = ReplicaProxy::to(master.port);
    let Some(replica) = replica_of(&proxy) else { return };
    wait_until("the replica has a copy", || has_all(master.port, replica.port));
    let at = |port: u16| move |gateway: &str| store(&format!("redis://127.0.0.1:{port}"), &Trust::default(), gateway);
    runtime().block_on(async {
        let caught_up = || wait_until("the replica catches up", || has_all(master.port, replica.port));
        let replies = two_gateways_and_a_replica_behind(at(master.port), &proxy, caught_up).await;
        let error = at(replica.port)("c").connect(LEASE).await.map(|_| ()).expect_err("a replica");
        assert!(error.to_string().contains("is a replica"), "{error}");
        master.kill();
        assert!(cli(replica.port, &["replicaof", "no", "one"]).contains("OK"));
        nothing_is_granted_twice(at(replica.port), replies).await;
    });
}

#[test]
fn sentinels_make_a_replica_the_master_and_gateways_find_it() {
    let Some(mut master) = Server::start(&[]) else { return };
    let proxy = ReplicaProxy::to(master.port);
    let Some(replica) = replica_of(&proxy) else { return };
    wait_until("the replica has a copy", || has_all(master.port, replica.port));
    let folder = tempfile::tempdir().unwrap();
    let sentinels: Vec<(u16, Child)> = (0..3)
        .map(|number| {
            let (port, file) = (port(), folder.path().join(format!("{number}.conf")));
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor shop 127.0.0.1 {} 2\n\
                 sentinel down-after-milliseconds shop 300\nsentinel failover-timeout shop 3000\n",
                folder.path().display(),
                master.port
            );
            fs::write(&file, text).unwrap();
            let mut command = Command::new("redis-server");
            command.arg(&file).arg("--sentinel");
            (port, spawn(command).unwrap())
        })
        .collect();
    let _end = Ended(sentinels.iter().map(|(_, child)| child.id()).collect());
    // The first one of the address is no sentinel.
    let hosts: Vec<String> = sentinels.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
    let address = format!("redis+sentinel://127.0.0.1:1,{}/shop/0", hosts.join(","));
    for (port, _) in &sentinels {
        wait_until("the sentinels know each other and the replica", || {
            let said = cli(*port, &["sentinel", "master", "shop"]);
            let value = |name: &str| said.lines().skip_while(|line| *line != name).nth(1).map(str::to_owned);
            value("num-slaves").as_deref() == Some("1") && value("num-other-sentinels").as_deref() == Some("2")
        });
    }
    let at = |gateway: &str| store(&address, &Trust::default(), gateway);
    runtime().block_on(async {
        let caught_up = || wait_until("the replica catches up", || has_all(master.port, replica.port));
        let replies = two_gateways_and_a_replica_behind(at, &proxy, caught_up).await;
        master.kill();
        nothing_is_granted_twice(at, replies).await;
        let other = store(&address.replace("/shop/", "/other/"), &Trust::default(), "a");
        let error = other.connect(LEASE).await.map(|_| ()).expect_err("no such master");
        assert!(matches!(error, Error::Unknown(_)), "{error}");
    });
    assert!(cli(replica.port, &["role"]).starts_with("master"));
}

/// Ends processes when dropped, also if a test fails.
struct Ended(Vec<u32>);

impl Drop for Ended {
    fn drop(&mut self) {
        for process in &self.0 {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
        }
    }
}

#[test]
fn a_cluster_of_stores_whose_slot_moves_and_whose_master_ends() {
    let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    let nodes: Option<Vec<Server>> = (0..3).map(|_| Server::start(&settings)).collect();
    let Some(mut nodes) = nodes else { return };
    nodes.iter().for_each(|node| wait_until("it starts", || cli(node.port, &["ping"]).contains("PONG")));
    let host = |node: &Server| format!("127.0.0.1:{}", node.port);
    let all: Vec<String> = nodes.iter().map(host).collect();
    let create =
        [&["--cluster", "create"], &all.iter().map(String::as_str).collect::<Vec<_>>()[..], &["--cluster-yes"]];
    let said = cli(nodes[0].port, &create.concat());
    assert!(said.contains("All 16384 slots covered"), "{said}");
    let slot = cli(nodes[0].port, &["cluster", "keyslot", "serpent:{shop}:sums"]).trim().to_owned();
    let id = |node: &Server| cli(node.port, &["cluster", "myid"]).trim().to_owned();
    let owns = |node: &Server| !cli(node.port, &["get", "serpent:{shop}:nothing"]).contains("MOVED");
    let owner = nodes.iter().position(owns).unwrap();
    let (to, seed) = ((owner + 1) % 3, (owner + 2) % 3);
    // Only one node is given, and it is not the one that has the data.
    let address = format!("redis+cluster://{}", host(&nodes[seed]));
    let (of_a, of_b) = (store(&address, &Trust::default(), "a"), store(&address, &Trust::default(), "b"));
    runtime().block_on(async {
        let (mut a, first) = ask_again(&of_a, None, 2).await;
        let (mut b, _) = ask_again(&of_b, None, 0).await;
        let notices = b.notices();
        // Another gateway hears what the store has to say, as notices pass between nodes.
        tokio::time::sleep(LEASE).await;
        let busy = ask(&mut a, Some(&first), 100).await.unwrap();
        let busy = ask(&mut a, Some(&busy), 100).await.unwrap();
        let denied = ask(&mut b, None, 1).await.unwrap();
        assert!(denied.cells[0].slots == 0 || busy.cells[0].slots < WINDOW);
        a.leave().await.unwrap();
        if denied.cells[0].slots == 0 {
            tokio::time::timeout(PATIENCE, tokio::spawn(async move { notices.notified().await }))
                .await
                .unwrap()
                .unwrap();
        }
        let had = ask(&mut b, Some(&denied), 1).await.unwrap();
        // The slot moves, with all that is in it, to a node that does not have the function yet.
        for (node, state, other) in [(to, "importing", owner), (owner, "migrating", to)] {
            let said = cli(nodes[node].port, &["cluster", "setslot", &slot, state, &id(&nodes[other])]);
            assert!(said.contains("OK"), "{said}");
        }
        let keys = cli(nodes[owner].port, &["cluster", "getkeysinslot", &slot, "100"]);
        assert!(keys.contains("serpent:{shop}:sums"), "{keys}");
        let port = nodes[to].port.to_string();
        let migrate = ["migrate", "127.0.0.1", &port, "", "0", "5000", "keys"];
        let said = cli(nodes[owner].port, &migrate.into_iter().chain(keys.lines()).collect::<Vec<_>>());
        assert!(said.contains("OK"), "{said}");
        for node in [to, owner, seed] {
            let said = cli(nodes[node].port, &["cluster", "setslot", &slot, "node", &id(&nodes[to])]);
            assert!(said.contains("OK"), "{said}");
        }
        let error = ask(&mut b, Some(&had), 1).await.map(|_| ()).expect_err("it is elsewhere");
        assert!(error.to_string().contains("Moved"), "{error}");
        let (_, moved) = ask_again(&of_b, Some(&had), 1).await;
        assert_eq!(moved.number, had.number + 1, "the memory has moved, too");
        // The node of the address ends; the others are known by now, and give its slots to one of them.
        nodes[seed].kill();
        let rest = &nodes[owner];
        wait_until("the others notice", || cli(rest.port, &["cluster", "nodes"]).contains("fail"));
        for node in [owner, to] {
            let said = cli(nodes[node].port, &["config", "set", "cluster-require-full-coverage", "no"]);
            assert!(said.contains("OK"), "{said}");
        }
        let (_, later) = ask_again(&of_b, Some(&moved), 1).await;
        assert!(later.number > moved.number);
    });
}

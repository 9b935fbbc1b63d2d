//! Several gateways before one site, with a real store between them, and what they do when parts of that fail.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Instant,
};

use super::{super::support::signal_child, *};

/// The slots of the site.
pub(super) const WINDOW: u32 = 6;

/// Redis, with a socket in a folder; ended when dropped.
pub(super) struct Store {
    process: Option<Child>,
    folder: TempDir,
}

/// A master, its replica, and a sentinel that knows both.
struct Watched {
    processes: Vec<Child>,
    ports: [u16; 3],
    _folder: TempDir,
}

impl Watched {
    fn start() -> Option<Self> {
        tool("redis-server")?;
        let folder = tempfile::tempdir().unwrap();
        let ports @ [master, replica, sentinel] = [free_port(), free_port(), free_port()];
        let text = format!(
            "port {sentinel}\nbind 127.0.0.1\ndir {}\nsentinel monitor shop 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds shop 300\nsentinel failover-timeout shop 3000\n",
            folder.path().display()
        );
        let file = folder.path().join("sentinel");
        fs::write(&file, text).unwrap();
        let (port, of) = (|port: u16| ["--port".to_owned(), port.to_string()], ["--replicaof", "127.0.0.1"]);
        let run = |arguments: &dyn Fn(&mut std::process::Command)| {
            let mut command = tool("redis-server").unwrap();
            arguments(&mut command);
            command.stdout(Stdio::null()).spawn().unwrap()
        };
        let plain = ["--save", "", "--bind", "127.0.0.1", "--dir", folder.path().to_str().unwrap()];
        let processes = vec![
            run(&|it| {
                it.args(port(master)).args(plain);
            }),
            run(&|it| {
                it.args(port(replica)).args(plain).args(of).arg(master.to_string());
            }),
            run(&|it| {
                it.arg(&file).arg("--sentinel");
            }),
        ];
        let it = Self { processes, ports, _folder: folder };
        it.wait_for("*3\r\n$8\r\nSENTINEL\r\n$6\r\nMASTER\r\n$4\r\nshop\r\n", "num-slaves\r\n$1\r\n1\r\n");
        Some(it)
    }

    /// Asks the sentinel, until it says something.
    fn wait_for(&self, request: &str, expected: &str) {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "the sentinel never says {expected:?}");
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.ports[2])) else { continue };
            stream.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
            let mut said = String::new();
            if stream.write_all(request.as_bytes()).is_ok() {
                // It ends with the time limit: the sentinel leaves the connection open.
                let _ = stream.read_to_string(&mut said);
            }
            if said.contains(expected) {
                return;
            }
        }
    }

    fn kill_master(&mut self) {
        self.processes[0].kill().unwrap();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            process.wait().unwrap();
        }
    }
}

impl Store {
    /// `None` if the program is missing.
    pub fn start() -> Option<Self> {
        tool("redis-server")?;
        let mut store = Self { process: None, folder: tempfile::tempdir().unwrap() };
        store.restart();
        Some(store)
    }

    /// Starts it, without any memory.
    pub fn restart(&mut self) {
        let mut command = tool("redis-server").unwrap();
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(self.socket());
        let process = command.arg("--dir").arg(self.folder.path()).stdout(Stdio::null()).spawn().unwrap();
        self.process = Some(process);
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn signal(&self, signal: Signal) {
        signal_child(self.process.as_ref().unwrap(), signal);
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A site whose requests take a few milliseconds each. It knows how many it worked on at once.
pub(super) struct Site {
    address: SocketAddr,
    most: Arc<AtomicU32>,
}

impl Site {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let most = Arc::new(AtomicU32::new(0));
        let (now, highest) = (Arc::new(AtomicU32::new(0)), most.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (now, highest) = (now.clone(), highest.clone());
                std::thread::spawn(move || serve(stream, &now, &highest));
            }
        });
        Self { address, most }
    }

    /// The most requests at once since the last call.
    pub fn most(&self) -> u32 {
        self.most.swap(0, SeqCst)
    }
}

fn serve(stream: std::net::TcpStream, now: &AtomicU32, most: &AtomicU32) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
        }
        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        // The work of the site.
        std::thread::sleep(std::time::Duration::from_millis(4));
        now.fetch_sub(1, SeqCst);
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// Clients that ask one gateway again and again, each for its next answer, until they are dropped.
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<u32>>,
    answers: Arc<AtomicU32>,
}

impl Clients {
    pub fn start(gateway: &Serpent, clients: u32) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let threads = (0..clients).map(|_| {
            let (stop, answers) = (stop.clone(), answers.clone());
            let stream = gateway.connect();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while !stop.load(SeqCst) {
                    if stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").is_err() {
                        return 1;
                    }
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return 1;
                        }
                    }
                    let mut body = [0; 2];
                    match head.starts_with("HTTP/1.1 200 ") && reader.read_exact(&mut body).is_ok() {
                        true => drop(answers.fetch_add(1, SeqCst)),
                        false => return 1,
                    }
                }
                0
            })
        });
        let threads = threads.collect();
        Self { stop, threads, answers }
    }

    /// Waits until so many more requests were answered.
    pub fn wait_for_answers(&self, more: u32) {
        let (start, until) = (Instant::now(), self.answers.load(SeqCst) + more);
        while self.answers.load(SeqCst) < until {
            assert!(start.elapsed() < PATIENCE, "requests are not answered");
            std::thread::yield_now();
        }
    }

    /// Ends them, and returns how many requests had no sound answer.
    pub fn end(self) -> u32 {
        self.stop.store(true, SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

fn gateway(store: &Store, site: &Site) -> (TempDir, Serpent, SocketAddr) {
    gateway_with(store, site, "")
}

/// A gateway whose route has more settings.
fn gateway_with(store: &Store, site: &Site, route: &str) -> (TempDir, Serpent, SocketAddr) {
    gateway_at(&format!("unix://{}", store.socket().display()), site, route)
}

/// A gateway with a store at an address.
pub(super) fn gateway_at(store: &str, site: &Site, route: &str) -> (TempDir, Serpent, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nadmin-token = \"token\"\nworkers = 1\n[uplink]\nrate = \"off\"\n[cluster]\n\
         store = \"{store}\"\nsite = \"shop\"\n[admission]\nslots = {WINDOW}\n[[upstream]]\nname = \"app\"\n\
         servers = [\"http://{}\"]\n[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n{route}",
        site.address
    );
    fs::write(folder.path().join("token"), "t".repeat(64)).unwrap();
    rustix::fs::chmod(folder.path().join("token"), rustix::fs::Mode::RUSR).unwrap();
    fs::write(&file, config).unwrap();
    let (serpent, admin) = start(&file);
    (folder, serpent, admin)
}

/// Changes something at an admin address; `None` if curl is missing.
fn patch(admin: SocketAddr, place: &str, change: &str) -> Option<String> {
    let token = format!("Authorization: Bearer {}", "t".repeat(64));
    let (url, kind) = (format!("http://{admin}/api/{place}"), "Content-Type: application/merge-patch+json");
    curl(&["-X", "PATCH", "-H", &token, "-H", kind, "-d", change, &url])
}

/// Asks an admin address until it says something.
fn wait_for_api(admin: SocketAddr, place: &str, expected: &str) {
    let start = Instant::now();
    loop {
        let said = curl(&[&format!("http://{admin}/api/{place}")]).unwrap();
        if said.contains(expected) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{place} never says {expected}: {said}");
    }
}

/// The status of an answer, and its head.
fn ask(gateway: &Serpent, fields: &str) -> (String, String) {
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
    let answer = gateway.exchange(request.as_bytes());
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), answer)
}

pub(super) fn has_slots(admin: SocketAddr, slots: u32) {
    wait_for_metric(admin, &format!("serpent_lease_slots{{of=\"total\"}} {slots}"));
}

#[test]
fn two_gateways_fill_the_site_together_and_never_more() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, admin_a) = gateway(&store, &site);
    let (_b, b, admin_b) = gateway(&store, &site);
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    wait_for_metric(admin_b, "serpent_lease_gateways 2");
    if let Some(said) = curl(&[&format!("http://{admin_a}/api/admission")]) {
        assert!(said.contains("\"gateways\": 2") && said.contains("\"of\": \"total\""), "{said}");
    }
    let clients = [Clients::start(&a, 12), Clients::start(&b, 12)];
    clients.iter().for_each(|clients| clients.wait_for_answers(300));
    assert_eq!(site.most(), WINDOW);
    // One of them alone has it all.
    let [of_a, of_b] = clients;
    assert_eq!(of_b.end(), 0);
    has_slots(admin_a, WINDOW);
    of_a.wait_for_answers(100);
    assert_eq!(of_a.end(), 0);
    assert_eq!(site.most(), WINDOW);
}

#[test]
fn without_the_store_each_gateway_has_its_part_and_requests_go_on() {
    let Some(mut store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, admin_a) = gateway(&store, &site);
    let (_b, b, admin_b) = gateway(&store, &site);
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    wait_for_metric(admin_b, "serpent_lease_gateways 2");
    let clients = [Clients::start(&a, 12), Clients::start(&b, 12)];
    clients[0].wait_for_answers(100);
    store.kill();
    for admin in [admin_a, admin_b] {
        wait_for_metric(admin, "serpent_lease_in_force 0");
        has_slots(admin, WINDOW / 2);
    }
    a.wait_for_stderr("has its equal part");
    clients.iter().for_each(|clients| clients.wait_for_answers(100));
    store.restart();
    for admin in [admin_a, admin_b] {
        wait_for_metric(admin, "serpent_lease_in_force 1");
    }
    a.wait_for_stderr("the store answers");
    clients.iter().for_each(|clients| clients.wait_for_answers(100));
    assert_eq!(site.most(), WINDOW, "at no time more");
    assert_eq!(clients.map(Clients::end), [0, 0], "no request is lost");
}

#[test]
fn a_replica_becomes_the_master_and_no_request_is_lost() {
    let Some(mut store) = Watched::start() else { return };
    let address = format!("redis+sentinel://127.0.0.1:{}/shop", store.ports[2]);
    let site = Site::start();
    let (_a, a, admin_a) = gateway_at(&address, &site, "");
    let (_b, b, admin_b) = gateway_at(&address, &site, "");
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    wait_for_metric(admin_b, "serpent_lease_gateways 2");
    let clients = [Clients::start(&a, 12), Clients::start(&b, 12)];
    clients.iter().for_each(|clients| clients.wait_for_answers(100));
    store.kill_master();
    for (admin, gateway) in [(admin_a, &a), (admin_b, &b)] {
        // The sentinel may be so quick that no look at the metrics finds a gateway without a lease.
        gateway.wait_for_stderr("has its equal part");
        gateway.wait_for_stderr("the store answers");
        wait_for_metric(admin, "serpent_lease_in_force 1");
        wait_for_metric(admin, "serpent_lease_gateways 2");
    }
    clients.iter().for_each(|clients| clients.wait_for_answers(300));
    assert_eq!(site.most(), WINDOW, "at no time more");
    assert_eq!(clients.map(Clients::end), [0, 0], "no request is lost");
}

#[test]
fn a_store_that_hangs_is_the_same_as_none() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, admin) = gateway(&store, &site);
    let clients = Clients::start(&a, 12);
    // A store that has just begun listens first whether other gateways have leases.
    wait_for_metric(admin, &format!("serpent_lease_slots{{of=\"total\"}} {WINDOW}"));
    clients.wait_for_answers(50);
    store.signal(Signal::STOP);
    wait_for_metric(admin, "serpent_lease_in_force 0");
    clients.wait_for_answers(50);
    store.signal(Signal::CONT);
    wait_for_metric(admin, "serpent_lease_in_force 1");
    clients.wait_for_answers(50);
    assert_eq!((site.most(), clients.end()), (WINDOW, 0));
}

#[test]
fn the_slots_of_a_gateway_that_stands_still_go_to_the_other_and_it_asks_before_it_goes_on() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, admin_a) = gateway(&store, &site);
    let (_b, b, _) = gateway(&store, &site);
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    let of_b = Clients::start(&b, 12);
    of_b.wait_for_answers(100);
    // Requests that `b` let in before the stop would go on after it, so its clients end first.
    assert_eq!(of_b.end(), 0);
    b.signal(Signal::STOP);
    let clients = [Clients::start(&a, 12), Clients::start(&b, 12)];
    wait_for_metric(admin_a, "serpent_lease_gateways 1");
    has_slots(admin_a, WINDOW);
    clients[0].wait_for_answers(100);
    site.most();
    b.signal(Signal::CONT);
    clients.iter().for_each(|clients| clients.wait_for_answers(100));
    assert_eq!(site.most(), WINDOW);
    assert_eq!(clients.map(Clients::end), [0, 0]);
}

#[test]
fn a_gateway_that_is_killed_or_stops_leaves_its_slots() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, admin_a) = gateway(&store, &site);
    let (_b, b, _) = gateway(&store, &site);
    let (_c, c, _) = gateway(&store, &site);
    wait_for_metric(admin_a, "serpent_lease_gateways 3");
    let clients = [Clients::start(&a, 12), Clients::start(&b, 12)];
    clients.iter().for_each(|clients| clients.wait_for_answers(100));
    b.signal(Signal::KILL);
    has_slots(admin_a, WINDOW);
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    c.signal(Signal::TERM);
    let (status, _) = c.wait();
    assert!(status.success());
    wait_for_metric(admin_a, "serpent_lease_gateways 1");
    clients[0].wait_for_answers(100);
    assert!(site.most() <= WINDOW);
    let [of_a, of_b] = clients;
    assert_eq!(of_a.end(), 0);
    of_b.end();
}

#[test]
fn the_rate_of_a_client_holds_over_all_gateways() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let route = "limit = { rate = \"1/h\", burst = 5 }\n";
    let (_a, a, admin_a) = gateway_with(&store, &site, route);
    let (_b, b, admin_b) = gateway_with(&store, &site, route);
    wait_for_metric(admin_b, "serpent_lease_gateways 2");
    let ask = |gateway: &Serpent| {
        let answer = gateway.exchange(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    for _ in 0..4 {
        assert_eq!(ask(&a), "200");
    }
    let told = |admin, requests| wait_for_metric(admin, &format!("serpent_limit_requests_told_total {requests}"));
    told(admin_a, 4);
    assert_eq!(ask(&b), "200", "it has not heard of the others");
    told(admin_b, 1);
    assert_eq!(ask(&b), "429", "four there, one here");
}

#[test]
fn a_closed_site_and_a_drained_server_are_so_at_all_gateways() {
    let (Some(store), Some(_)) = (Store::start(), tool("curl")) else { return };
    let site = Site::start();
    let folder = tempfile::tempdir().unwrap();
    let settings = |name: &str| {
        let file = folder.path().join(name);
        format!(
            "[[site]]\nnames = [\"shop.example\"]\nmaintenance = {{ file = \"{}\" }}\nroot = \"/\"\n",
            file.display()
        )
    };
    let (_a, a, admin_a) = gateway_with(&store, &site, &settings("a"));
    let (_b, b, admin_b) = gateway_with(&store, &site, &settings("b"));
    let shop = |gateway: &Serpent| {
        let answer = gateway.exchange(b"GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n");
        answer.contains(" 503 ")
    };
    assert!(!shop(&a) && !shop(&b));
    // At the admin address of one.
    patch(admin_a, "maintenance/shop.example", "{\"closed\": true}");
    assert!(shop(&a));
    wait_for_api(admin_b, "maintenance", "\"closed\": true");
    assert!(shop(&b));
    // The last change holds, at whichever gateway it is made.
    patch(admin_b, "maintenance/shop.example", "{\"closed\": false}");
    wait_for_api(admin_a, "maintenance", "\"closed\": false");
    assert!(!shop(&a) && !shop(&b));
    // By a file at one.
    fs::write(folder.path().join("a"), "").unwrap();
    wait_for_api(admin_b, "maintenance", "\"closed\": true");
    assert!(shop(&a) && shop(&b));
    fs::remove_file(folder.path().join("a")).unwrap();
    wait_for_api(admin_b, "maintenance", "\"closed\": false");
    assert!(!shop(&b));
    // A server.
    let server = format!("upstreams/app/{}", site.address);
    patch(admin_b, &server, "{\"state\": \"draining\"}");
    patch(admin_b, &server, "{\"weight\": 7}");
    wait_for_api(admin_a, "upstreams", "\"weight\": 7");
    wait_for_api(admin_a, "upstreams", "\"state\": \"draining\"");
    // A gateway that is new, or reads its configuration again, has it, too.
    let (_c, _c_runs, admin_c) = gateway_with(&store, &site, &settings("c"));
    wait_for_api(admin_c, "upstreams", "\"state\": \"draining\"");
    a.signal(Signal::HUP);
    wait_for_metric(admin_a, "serpent_config_reloads_total 1");
    wait_for_api(admin_a, "upstreams", "\"state\": \"draining\"");
}

#[test]
fn a_session_that_one_gateway_begins_goes_on_at_another_one() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let classes = "[session]\n[[class]]\nname = \"gold\"\n[[class]]\nname = \"plain\"\n[[rule]]\nclass = \"gold\"\n\
                   header = { \"x-gold\" = \"yes\" }\n[[rule]]\nclass = \"plain\"\n";
    let (_a, a, _) = gateway_with(&store, &site, classes);
    let (_b, b, _) = gateway_with(&store, &site, classes);
    let start = Instant::now();
    loop {
        let (_, head) = ask(&a, "x-gold: yes\r\n");
        let set = head.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie"));
        let cookie = set.expect("a session begins").split_once(": ").unwrap().1.split(';').next().unwrap().to_owned();
        // The session is known if no other one begins.
        let (status, head) = ask(&b, &format!("cookie: {cookie}\r\n"));
        assert_eq!(status, "200");
        if !head.to_ascii_lowercase().contains("set-cookie") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the keys never come through the store: {head}");
    }
}

#[test]
fn requests_under_way_of_a_client_are_limited_over_all_gateways() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, _) = gateway_with(&store, &site, "limit = { at-once = 2 }\n");
    let (_b, b, _) = gateway_with(&store, &site, "limit = { at-once = 2 }\n");
    // Requests whose bodies do not end, so that they stay under way.
    let held: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = a.connect();
            stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345").unwrap();
            stream
        })
        .collect();
    let start = Instant::now();
    while ask(&b, "").0 != "429" {
        assert!(start.elapsed() < PATIENCE, "the other gateway never hears of them");
    }
    drop(held);
    while ask(&b, "").0 != "200" {
        assert!(start.elapsed() < PATIENCE, "the other gateway never hears that they are over");
    }
}

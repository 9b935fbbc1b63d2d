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

use rustix::process::{Pid, kill_process};

use super::*;

/// The slots of the site.
const WINDOW: u32 = 6;

/// Redis, with a socket in a folder; ended when dropped.
struct Store {
    process: Option<Child>,
    folder: TempDir,
}

impl Store {
    /// `None` if the program is missing.
    fn start() -> Option<Self> {
        tool("redis-server")?;
        let mut store = Self { process: None, folder: tempfile::tempdir().unwrap() };
        store.restart();
        Some(store)
    }

    /// Starts it, without any memory.
    fn restart(&mut self) {
        let mut command = tool("redis-server").unwrap();
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(self.socket());
        let process = command.arg("--dir").arg(self.folder.path()).stdout(Stdio::null()).spawn().unwrap();
        self.process = Some(process);
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().unwrap()), signal).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A site whose requests take a few milliseconds each. It knows how many it worked on at once.
struct Site {
    address: SocketAddr,
    most: Arc<AtomicU32>,
}

impl Site {
    fn start() -> Self {
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
    fn most(&self) -> u32 {
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
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<u32>>,
    answers: Arc<AtomicU32>,
}

impl Clients {
    fn start(gateway: &Serpent, clients: u32) -> Self {
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
    fn wait_for_answers(&self, more: u32) {
        let (start, until) = (Instant::now(), self.answers.load(SeqCst) + more);
        while self.answers.load(SeqCst) < until {
            assert!(start.elapsed() < PATIENCE, "requests are not answered");
            std::thread::yield_now();
        }
    }

    /// Ends them, and returns how many requests had no sound answer.
    fn end(self) -> u32 {
        self.stop.store(true, SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

fn gateway(store: &Store, site: &Site) -> (TempDir, Serpent, SocketAddr) {
    gateway_with(store, site, "")
}

/// A gateway whose route has more settings.
fn gateway_with(store: &Store, site: &Site, route: &str) -> (TempDir, Serpent, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n[cluster]\n\
         store = \"unix://{}\"\nsite = \"shop\"\n[admission]\nslots = {WINDOW}\n[[upstream]]\nname = \"app\"\n\
         servers = [\"http://{}\"]\n[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n{route}",
        store.socket().display(),
        site.address
    );
    fs::write(&file, config).unwrap();
    let (serpent, admin) = start(&file);
    (folder, serpent, admin)
}

fn has_slots(admin: SocketAddr, slots: u32) {
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
fn a_store_that_hangs_is_the_same_as_none() {
    let Some(store) = Store::start() else { return };
    let site = Site::start();
    let (_a, a, admin) = gateway(&store, &site);
    // A store that has just begun does not know yet that there is one gateway only.
    wait_for_metric(admin, "serpent_lease_gateways 1");
    let clients = Clients::start(&a, 12);
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
    // What it had let in before would go on afterwards.
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

//! Several gateways that send through one line, with a real store between them.

use std::{
    io::{BufRead as _, BufReader},
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

use super::{super::webdriver::Browser, cluster::Store, *};

/// The rate of the line in bits per second.
const LINE: f64 = 8e6;
/// Bytes of each response: a grant is a twelfth of it.
const PICTURE: usize = 60_000;

struct Gateway {
    _folder: TempDir,
    serpent: Serpent,
    admin: SocketAddr,
    /// Payload that its clients have taken.
    bytes: Arc<AtomicU64>,
}

impl Gateway {
    fn start(store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("picture"), vec![0; PICTURE]).unwrap();
        let file = folder.path().join("serpent.toml");
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"{LINE}bit\"\n\
             line = \"one\"\n[cluster]\nstore = \"{store}\"\nsite = \"shop\"\n\
             [admission]\nslots = 6\n[[class]]\nname = \"gold\"\nobjective = {{ p99 = \"2s\" }}\n[[class]]\nname = \"plain\"\n\
             [[rule]]\nclass = \"gold\"\npath = \"/picture*\"\n[[site]]\nroot = \".\"\n"
        );
        fs::write(&file, config).unwrap();
        let (serpent, admin) = start(&file);
        Self { _folder: folder, serpent, admin, bytes: Arc::default() }
    }

    fn has(&self, metric: &str, value: u32) {
        wait_for_metric(self.admin, &format!("serpent_{metric} {value}"));
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }
}

/// Clients that each ask for one picture after the other, until they are dropped.
struct Downloads(Vec<(TcpStream, JoinHandle<()>)>);

impl Downloads {
    fn start(gateway: &Gateway, count: usize) -> Self {
        let one = |_| {
            let stream = gateway.serpent.connect();
            let (mut asks, bytes) = (stream.try_clone().unwrap(), gateway.bytes.clone());
            let mut reads = BufReader::new(stream.try_clone().unwrap());
            let reader = std::thread::spawn(move || {
                while asks.write_all(b"GET /picture HTTP/1.1\r\nhost: a\r\n\r\n").is_ok() {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reads.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let mut left = PICTURE;
                    while left > 0 {
                        let taken = reads.fill_buf().map_or(0, <[u8]>::len).min(left);
                        if taken == 0 {
                            return;
                        }
                        reads.consume(taken);
                        bytes.fetch_add(taken as u64, SeqCst);
                        left -= taken;
                    }
                }
            });
            (stream, reader)
        };
        Self((0..count).map(one).collect())
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        for (stream, reader) in self.0.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
            reader.join().unwrap();
        }
    }
}

/// What gateways send in a time, as parts of the line. Segments are so long on the loopback device that headers do not count.
fn parts<const N: usize>(gateways: [&Gateway; N], over: Duration) -> [f64; N] {
    let (before, began) = (gateways.map(Gateway::bytes), Instant::now());
    sleep(over);
    let after = gateways.map(Gateway::bytes);
    let seconds = began.elapsed().as_secs_f64();
    std::array::from_fn(|at| (after[at] - before[at]) as f64 * 8.0 / seconds / LINE)
}

/// Waits until the gateways send as `is_right` wants. At no time they send more than the line carries together. Returns how
/// long that took, and their parts.
fn wait_for<const N: usize>(gateways: [&Gateway; N], is_right: impl Fn([f64; N]) -> bool) -> (Duration, [f64; N]) {
    let start = Instant::now();
    loop {
        let parts = parts(gateways, Duration::from_millis(500));
        let sum: f64 = parts.iter().sum();
        // A reader that was late takes what others would have counted before.
        assert!(sum < 1.05, "{parts:?}");
        if is_right(parts) {
            return (start.elapsed(), parts);
        }
        assert!(start.elapsed() < PATIENCE, "in the end: {parts:?}");
    }
}

#[test]
fn two_gateways_send_at_the_rate_of_the_line_together() {
    let Some(mut store) = Store::start() else { return };
    let address = format!("unix://{}", store.socket().display());
    let (a, b) = (Gateway::start(&address), Gateway::start(&address));
    for gateway in [&a, &b] {
        gateway.has("line_gateways", 2);
        gateway.has("line_in_force", 1);
        gateway.has("line_rate_bits_per_second", 7_960_000);
    }
    // 0.995, less what a busy machine makes the pacer lose.
    const FULL: f64 = 0.93;
    let _of_a = Downloads::start(&a, 4);
    println!("one alone: {:.3?}", wait_for([&a, &b], |[a, b]| a > FULL && b == 0.0));
    let of_b = Downloads::start(&b, 4);
    let as_many = |[a, b]: [f64; 2]| a + b > FULL && (0.46..0.54).contains(&(a / (a + b)));
    println!("both: {:.3?}", wait_for([&a, &b], as_many));
    drop(of_b);
    println!("one alone again: {:.3?}", wait_for([&a, &b], |[a, b]| a > FULL && b == 0.0));
    let of_b = Downloads::start(&b, 12);
    let a_quarter = |[a, b]: [f64; 2]| a + b > FULL && (0.22..0.28).contains(&(a / (a + b)));
    println!("4 and 12 downloads: {:.3?}", wait_for([&a, &b], a_quarter));

    store.kill();
    let killed = Instant::now();
    for gateway in [&a, &b] {
        gateway.has("line_in_force", 0);
        gateway.has("uplink_rate_bits_per_second", 3_980_000);
    }
    println!("the store is gone, and equal parts: after {:.3?}", killed.elapsed());
    let equal = |[a, b]: [f64; 2]| (0.46..0.52).contains(&a) && (0.46..0.52).contains(&b);
    println!("without the store: {:.3?}", wait_for([&a, &b], equal));
    drop(of_b);
    let (_, [of_a, of_b]) = wait_for([&a, &b], |[_, b]| b == 0.0);
    assert!(of_a < 0.52, "no more than that also while the other one is idle: {of_a} {of_b}");

    store.restart();
    let restarted = Instant::now();
    a.has("uplink_rate_bits_per_second", 7_960_000);
    let took = restarted.elapsed();
    println!("the whole line again after {took:.3?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    wait_for([&a], |[a]| a > FULL);
}

#[test]
fn a_browser_shows_all_gateways_with_their_parts_on_one_page() {
    let Some(store) = Store::start() else { return };
    let Some(browser) = Browser::start() else { return };
    let address = format!("unix://{}", store.socket().display());
    let (a, b) = (Gateway::start(&address), Gateway::start(&address));
    for gateway in [&a, &b] {
        gateway.has("line_gateways", 2);
        gateway.has("lease_gateways", 2);
    }
    browser.open(&format!("http://{}/cluster", a.admin));
    let rows = "document.querySelectorAll('#gateways tr')";
    let text = "document.getElementById('gateways').innerText";
    browser.wait_for(&format!("{rows}.length === 2 && {text}.includes('(this one)')"));
    browser.wait_for("document.getElementById('state').textContent === '2 gateways'");
    browser.wait_for(
        "[...document.querySelectorAll('#classes tr')].map((it) => it.cells[0].textContent).join() === 'gold,plain'",
    );
    browser.wait_for("document.getElementById('classes').innerText.includes('p99: not known (2.0 s)')");
    // Downloads at the other gateway: it has the line, and the page of this one says so.
    let downloads = Downloads::start(&b, 2);
    browser.wait_for(&format!("{text}.includes('line: 7.96 of 7.96 Mbit/s')"));
    browser.wait_for(&format!("{text}.includes('line: 0.01 of 7.96 Mbit/s')"));
    drop(downloads);
    b.serpent.signal(Signal::TERM);
    browser.wait_for(&format!("{rows}.length === 1"));
    assert_eq!(browser.errors(), Vec::<String>::new());
}

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

use super::{super::webdriver::Browser, cluster::Store, split::StoreProxy, *};

/// The rate of the line in bits per second.
const LINE: f64 = 8e6;
/// Bytes of each response: a grant is a twelfth of it.
const PICTURE: usize = 60_000;

struct Gateway {
    folder: TempDir,
    serpent: Serpent,
    admin: SocketAddr,
    /// Payload that its clients have taken.
    bytes: Arc<AtomicU64>,
}

impl Gateway {
    fn start(store: &str) -> Self {
        Self::start_with(&settings(LINE, "line = \"one\"", store))
    }

    fn start_with(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("picture"), vec![0; PICTURE]).unwrap();
        let file = folder.path().join("serpent.toml");
        fs::write(&file, text(settings)).unwrap();
        let (serpent, admin) = start(&file);
        Self { folder, serpent, admin, bytes: Arc::default() }
    }

    /// Reloads with other settings.
    fn reload(&self, settings: &str) {
        fs::write(self.folder.path().join("serpent.toml"), text(settings)).unwrap();
        self.serpent.signal(Signal::HUP);
    }

    /// A number among the metrics; `None` if it is not there.
    fn number(&self, metric: &str) -> Option<u64> {
        let name = format!("serpent_{metric} ");
        metrics(self.admin).lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    }

    /// The rate in force, in bits per second.
    fn rate(&self) -> u64 {
        self.number("uplink_rate_bits_per_second").unwrap()
    }

    fn has(&self, metric: &str, value: u32) {
        wait_for_metric(self.admin, &format!("serpent_{metric} {value}"));
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }
}

/// `more` are further settings of the uplink.
fn settings(rate: f64, more: &str, store: &str) -> String {
    format!("[uplink]\nrate = \"{rate}bit\"\n{more}\n[cluster]\nstore = \"{store}\"\nsite = \"shop\"\n")
}

fn text(settings: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n{settings}\
         [admission]\nslots = 6\n[[class]]\nname = \"gold\"\nobjective = {{ p99 = \"2s\" }}\n[[class]]\nname = \"plain\"\n\
         [[rule]]\nclass = \"gold\"\npath = \"/picture*\"\n[[site]]\nroot = \".\"\n"
    )
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

/// The parts of the line that gateways fill over a time. Segments are so long on the loopback device that headers do
/// not count.
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

/// The rate that is used of the line, in bits per second, and the equal part of each of three gateways.
const USED: u64 = 7_960_000;
const THIRD: u64 = 2_650_680;
/// The rate of a gateway without a part, for the first grant of its next response.
const LEAST: u64 = 8_000;
/// A few thousandths of the line, by which parts differ from what is exact.
const NEARLY: u64 = USED / 100;

/// Waits until rates in force are as `is_right` wants. At no time they are more than the line together. Returns how
/// long that took.
fn wait_for_rates<const N: usize>(gateways: [&Gateway; N], is_right: impl Fn([u64; N]) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let rates = gateways.map(Gateway::rate);
        // Rates that have not changed since the first was read were in force at the same time.
        if rates == gateways.map(Gateway::rate) {
            assert!(rates.iter().sum::<u64>() <= USED + LEAST * N as u64, "{rates:?}");
            if is_right(rates) {
                return start.elapsed();
            }
        }
        assert!(start.elapsed() < PATIENCE, "in the end: {rates:?}");
    }
}

/// Whether each rate is that, nearly.
fn each<const N: usize>(expected: [u64; N]) -> impl Fn([u64; N]) -> bool {
    move |rates| rates.iter().zip(expected).all(|(rate, expected)| rate.abs_diff(expected) <= NEARLY)
}

#[test]
fn three_gateways_keep_to_the_line_while_parts_of_it_fail() {
    const SOON: Duration = Duration::from_secs(3);
    let Some(mut store) = Store::start() else { return };
    let (address, way) = (format!("unix://{}", store.socket().display()), StoreProxy::to(&store));
    let (a, b) = (Gateway::start(&address), Gateway::start(&address));
    let c = Gateway::start(&address);
    for gateway in [&a, &b, &c] {
        gateway.has("line_gateways", 3);
        gateway.has("line_in_force", 1);
    }
    // One at work has what the idle ones lend. One more, and both have halves; with the third, thirds.
    let _of_a = Downloads::start(&a, 4);
    wait_for_rates([&a, &b, &c], |[a, ..]| a >= USED - NEARLY);
    let _of_b = Downloads::start(&b, 4);
    wait_for_rates([&a, &b, &c], |[a, b, _]| each([USED / 2; 2])([a, b]));
    let of_c = Downloads::start(&c, 4);
    wait_for_rates([&a, &b, &c], each([THIRD; 3]));
    println!("three at work: {:.3?}", wait_for([&a, &b, &c], |parts| parts.iter().all(|part| *part > 0.2)));

    // A killed process has no connection any more: it is known to be gone when its lease ends.
    c.serpent.signal(Signal::KILL);
    let killed = Instant::now();
    wait_for_rates([&a, &b], each([USED / 2; 2]));
    println!("one killed: exact after {:.3?}", killed.elapsed());
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    drop(of_c);

    // One that stands still may go on: its part is kept, and the others divide the rest.
    let c = Gateway::start(&format!("redis://{}", way.address));
    c.has("line_gateways", 3);
    let of_c = Downloads::start(&c, 4);
    wait_for_rates([&a, &b, &c], each([THIRD; 3]));
    // A download more at one of them makes the parts other than equal ones.
    let more_of_a = Downloads::start(&a, 4);
    wait_for_rates([&a, &b, &c], each([USED / 2, USED / 4, USED / 4]));
    c.serpent.signal(Signal::STOP);
    let both = [THIRD * 4 / 3, THIRD * 2 / 3];
    println!("one stands still: its part is kept after {:.3?}", wait_for_rates([&a, &b], each(both)));
    c.serpent.signal(Signal::CONT);
    let took = wait_for_rates([&a, &b, &c], each([USED / 2, USED / 4, USED / 4]));
    println!("it goes on: exact after {took:.3?}");
    assert!(took < SOON, "{took:?}");

    // One that is cut off from the store does go on, at its equal part. All three together keep to the line.
    way.cut(true);
    c.has("line_in_force", 0);
    wait_for_rates([&a, &b, &c], each([both[0], both[1], THIRD]));
    let (_, [of_a, of_b, of_c_part]) = wait_for([&a, &b, &c], |parts| parts.iter().all(|part| *part > 0.15));
    println!("cut off: {of_a:.3} {of_b:.3} {of_c_part:.3}");
    way.cut(false);
    let took = wait_for_rates([&a, &b, &c], each([USED / 2, USED / 4, USED / 4]));
    println!("joined again: exact after {took:.3?}");
    assert!(took < SOON, "{took:?}");
    drop(more_of_a);

    // Without the store no gateway has more than its equal part, nor less.
    store.kill();
    for gateway in [&a, &b, &c] {
        gateway.has("line_in_force", 0);
    }
    wait_for_rates([&a, &b, &c], |rates| rates == [THIRD; 3]);
    drop(of_c);
    wait_for([&a, &b, &c], |[a, b, c]| a < 0.35 && b < 0.35 && c == 0.0);
    assert_eq!([&a, &b, &c].map(Gateway::rate), [THIRD; 3], "also while one is idle");
    store.restart();
    let took = wait_for_rates([&a, &b, &c], |[a, b, _]| each([USED / 2; 2])([a, b]));
    println!("the store is back: exact after {took:.3?}");
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_reload_adds_changes_and_takes_away_the_line_and_its_rate() {
    let Some(store) = Store::start() else { return };
    let store = format!("unix://{}", store.socket().display());
    let (a, b) = (Gateway::start(&store), Gateway::start(&store));
    a.has("line_gateways", 2);
    let _downloads = (Downloads::start(&a, 2), Downloads::start(&b, 2));
    wait_for_rates([&a, &b], each([USED / 2; 2]));

    // Another rate: parts stay, and are parts of that.
    for gateway in [&a, &b] {
        gateway.reload(&settings(LINE / 2.0, "line = \"one\"", &store));
        gateway.has("line_rate_bits_per_second", (USED / 2) as u32);
    }
    wait_for_rates([&a, &b], each([USED / 4; 2]));

    // Invalid settings are refused, and all stays as it was.
    b.reload(&settings(LINE, "line = \"one\"\nshare = \"fixed\"", &store));
    b.has("config_reloads_failed_total", 1);
    b.serpent.wait_for_stderr("no part of a line that several gateways share can be kept for a class");
    b.reload(&settings(LINE, "", &store).replace("rate =", "line = \"one\" # rate ="));
    b.has("config_reloads_failed_total", 2);
    b.serpent.wait_for_stderr("the rate of a line that several gateways share has to be given");
    assert_eq!(b.number("line_rate_bits_per_second"), Some(USED / 2));

    // A gateway that leaves the line gives its part back at once: it is not taken for one that is cut off.
    let left = Instant::now();
    // No rate that it has as its part.
    b.reload(&settings(LINE / 5.0, "", &store));
    b.has("uplink_rate_bits_per_second", (USED / 5) as u32);
    assert_eq!(b.number("line_gateways"), None);
    a.has("line_gateways", 1);
    wait_for_rates([&a], each([USED / 2]));
    assert!(left.elapsed() < Duration::from_secs(5), "{:?}", left.elapsed());

    // It sends through another line, and through this one again.
    b.reload(&settings(LINE / 4.0, "line = \"two\"", &store));
    b.has("line_gateways", 1);
    wait_for_rates([&b], each([USED / 4]));
    wait_for_rates([&a], each([USED / 2]));
    b.reload(&settings(LINE / 2.0, "line = \"one\"", &store));
    a.has("line_gateways", 2);
    wait_for_rates([&a, &b], each([USED / 4; 2]));

    // At run time reserves may be set, but not where the uplink would have to keep them.
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let shared = settings(LINE / 2.0, "line = \"one\"\nshare = \"shared\"", &store);
    fs::write(b.folder.path().join("token"), TOKEN).unwrap();
    b.reload(&format!("admin-token = \"token\"\n{shared}"));
    b.has("config_reloads_total", 5);
    let mut stream = TcpStream::connect(b.admin).unwrap();
    let body = "{\"reserved\": 2}";
    let head = format!(
        "PATCH /api/classes/gold HTTP/1.1\r\nhost: {}\r\nif-match: *\r\ncontent-type: application/json\r\n\
         authorization: Bearer {TOKEN}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        b.admin,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 409") && said.contains("`uplink.line`"), "{said}");
    assert_eq!(b.number("line_gateways"), Some(2));
}

#[test]
fn a_reload_cannot_add_the_store_of_a_line() {
    let alone = format!("[uplink]\nrate = \"{LINE}bit\"\n");
    let gateway = Gateway::start_with(&alone);
    gateway.reload(&settings(LINE, "line = \"one\"", "unix:///nowhere"));
    gateway.serpent.wait_for_stderr("`uplink.line` takes effect at the next start");
    gateway.has("config_reloads_total", 1);
    assert_eq!((gateway.rate(), gateway.number("line_gateways")), (USED, None));
}

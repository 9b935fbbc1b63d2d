//! Every subject of the lab, started in the namespaces of a real test bed, answers in each of its protocols.
//! The test needs root, and the servers themselves.

mod programs;

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use instrument::{
    bed::{BedConfig, SERVER, TestBed},
    docroot::{DocRoot, name},
    sample::{EVERY, Sampler, SystemCalls},
    setting::Setting,
    subject::{Certificate, Environment, Running, Subject},
};

const PORT: u16 = 8080;

/// Each protocol, with its setting and with the flags that make curl use it.
const PROTOCOLS: [(&str, &str, &str, &str); 4] = [
    ("http", "clients.protocol = 'http1'", "--http1.1", "1.1"),
    ("https", "clients.tls = true", "--http1.1", "1.1"),
    ("http", "clients.protocol = 'http2'", "--http2-prior-knowledge", "2"),
    ("https", "clients.tls = true\nclients.protocol = 'http2'", "--http2", "2"),
];

/// This is one test, because a process can have only one test bed at a time.
#[test]
fn each_subject_answers_in_clear_and_over_tls_in_both_versions() {
    if !is_there("ip") || !is_there("curl") || !is_root() {
        return;
    }
    let root = DocRoot::write(&[3000, 200_000]).unwrap();
    let certificate = Certificate::make().unwrap();
    let subjects = [
        "nginx",
        "apache,workers=64,processes=2",
        "caddy",
        "caddy:attach",
        "serpent:srpt",
        "serpent:srpt,enforce=kernel",
    ];
    for subject in subjects {
        let subject: Subject = subject.parse().unwrap();
        if let Err(missing) = subject.is_installed(programs::serpent()) {
            if subject.to_string().starts_with("caddy") {
                // Also in CI: no shipped experiment measures it, and `./test` does not install another 40 MB for it.
                eprintln!("SKIPPED: {missing}");
            } else {
                skip(&missing.to_string());
            }
            continue;
        }
        let version = subject.version(programs::serpent()).unwrap();
        assert!(version.contains(|c: char| c.is_ascii_digit()), "{version}");
        let bed = TestBed::build(BedConfig { rate: "100mbit".parse().unwrap(), ..BedConfig::default() }).unwrap();
        for (number, (scheme, conditions, flag, spoken)) in PROTOCOLS.into_iter().enumerate() {
            let setting: Setting = toml::from_str(&format!("{conditions}\nserver.accept-queue = 100")).unwrap();
            subject.can(&setting).unwrap();
            let (root, serpent) = (root.path(), programs::serpent());
            let environment =
                Environment { bed: &bed, setting: &setting, root, port: PORT, serpent, certificate: &certificate };
            if number == 0 {
                subject.prepare(&environment).unwrap();
            }
            let running = subject.start(&environment).unwrap();
            let got = curl(&bed, &["--cacert", &certificate.certificate_file().display().to_string(), flag], scheme);
            assert_eq!(got, format!("200 {spoken} 200000"), "{subject}, {scheme}");
            if number == 0 {
                it_is_sampled(&bed, &subject);
            }
            ends_well(running, &subject);
        }
    }
}

/// Sends at least a hundred requests while the subject is sampled.
fn it_is_sampled(bed: &TestBed, subject: &Subject) {
    let counting = SystemCalls::count(bed);
    let start = Instant::now();
    let sampler = Sampler::start(bed, start, PORT).unwrap();
    let mut asked = 0;
    // The loop runs until a second sample has been taken, because counters are differences of samples.
    while asked < 100 || start.elapsed() < EVERY {
        assert_eq!(curl(bed, &["--http1.1"], "http"), "200 1.1 200000");
        asked += 1;
    }
    let (samples, notes) = sampler.stop();
    assert_eq!(notes, Vec::<String>::new(), "{subject}");
    let (first, last) = (samples[0], *samples.last().unwrap());
    assert!(samples.len() >= 2 && first.at_s < 0.5 && last.at_s >= 1.0, "{subject}: {samples:?}");
    assert!(samples.is_sorted_by_key(|sample| sample.queue_bytes), "{subject}: {samples:?}");
    assert!(last.queue_bytes > 10 * 200_000 && last.queue_drops == 0, "{subject}: {last:?}");
    assert!(last.resident_bytes > 1 << 20, "{subject}: {last:?}");
    assert_eq!((last.syn_drops, last.listen_overflows), (0, 0), "{subject}");
    match counting.and_then(SystemCalls::stop) {
        // At least accept, read, write and close.
        Ok(calls) => assert!(calls > 4 * asked, "{subject}: {calls} calls for {asked} requests"),
        Err(reason) => eprintln!("not tested: {reason}"),
    }
}

fn ends_well(running: Running, subject: &Subject) {
    let said = running.last_words();
    let status = running.stop();
    assert!(status.is_some_and(|status| status.success()), "{subject}: {status:?}: {said}");
}

/// Requests the second file from the clients' namespace. Returns status, version and bytes.
fn curl(bed: &TestBed, flags: &[&str], scheme: &str) -> String {
    let _inside = bed.client().enter().unwrap();
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "10", "--output", "/dev/null"]);
    command.args(["--write-out", "%{http_code} %{http_version} %{size_download}"]).args(flags);
    let output = command.arg(format!("{scheme}://{SERVER}:{PORT}/{}", name(1))).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("network namespaces need root");
    }
    root
}

fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(program).is_file());
    if !found {
        skip(&format!("`{program}` is missing"));
    }
    found
}

fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "in CI this must run: {why}; ./test as root installs what it needs");
    eprintln!("SKIPPED: {why}");
}

//! The page of the admin address, and what it is made of.

use std::{
    fs,
    net::SocketAddr,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    gateway,
    support::{PATIENCE, Serpent, curl, tool},
};

/// A paced mirror with a route to a server that is not there.
fn start() -> Option<(TempDir, Serpent, SocketAddr)> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    for (name, bytes) in [("small", 500), ("large", 200_000)] {
        fs::write(folder.path().join("www").join(name), vec![b'x'; bytes]).unwrap();
    }
    let file = folder.path().join("serpent.toml");
    let config = "[uplink]\nrate = \"8mbit\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://127.0.0.1:1\"]\n\
         [admission]\nslots = 2\n[[class]]\nname = \"gold\"\n[[site]]\nnames = [\"mirror.example\"]\nroot = \"www\"\n\
         [[site.route]]\npath = \"/app\"\nupstream = \"app\"\n";
    fs::write(&file, format!("listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n{config}")).unwrap();
    let (serpent, admin) = gateway::start(&file);
    for path in ["/small?token=secret", "/large", "/app", "/small"] {
        curl(&["--output", "/dev/null", &serpent.url(path)])?;
    }
    Some((folder, serpent, admin))
}

fn live(admin: SocketAddr, after: &str) -> Value {
    serde_json::from_str(&curl(&[&format!("http://{admin}/api/live{after}")]).unwrap()).unwrap()
}

/// What is told once small and large responses are among the points, and so is all that is asked for.
fn told_when(admin: SocketAddr, is_enough: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let told = live(admin, "");
        let of_size = |size: usize| {
            let points = told["seconds"].as_array().unwrap();
            points.iter().map(|it| it["size_per_second"][size].as_f64().unwrap()).sum::<f64>()
        };
        if of_size(0) > 0.0 && of_size(3) > 0.0 && is_enough(&told) {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "{told:#}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_last_hour_is_told_by_the_second() {
    let Some((_folder, _serpent, admin)) = start() else { return };
    let told = told_when(admin, |told| told["comparison"].is_object());
    assert_eq!(told["sites"][0][0], "mirror.example");
    assert_eq!(
        (told["uplink"]["order"].as_str(), told["seconds"][0]["resources"][0]["window"].as_u64()),
        (Some("srpt"), Some(2))
    );
    let slowest = &told["slowest"][0];
    assert_eq!((slowest["request"].as_str(), slowest["body_bytes"].as_u64()), (Some("GET /large"), Some(200_000)));
    // 200 KB at 8 Mbit/s.
    let time_s = slowest["response_time_s"].as_f64().unwrap();
    assert!(time_s > 0.15 && slowest["uplink_s"].as_f64().unwrap() <= time_s, "{slowest}");
    assert!(slowest["alone_s"].as_f64().unwrap() > 0.15, "{slowest}");
    assert!(!told.to_string().contains("secret"), "queries may hold secrets");
    let compared = &told["comparison"];
    assert!(
        compared["responses"].as_u64().unwrap() >= 3 && compared["other_mean_s"].as_f64().unwrap() > 0.0,
        "{compared}"
    );
    let last = told["seconds"].as_array().unwrap().last().unwrap()["at_s"].as_f64().unwrap();
    let newer = live(admin, &format!("?after={last}"));
    assert!(newer["seconds"].as_array().unwrap().iter().all(|it| it["at_s"].as_f64().unwrap() > last), "{newer:#}");
    let metrics = gateway::metrics(admin);
    for line in [
        "serpent_size_responses_total{size=\"to 1 MB\"} 1\n",
        "serpent_upstream_failures_total{upstream=\"app\",server=\"127.0.0.1:1\",class=\"\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn a_browser_shows_the_page() {
    let Some((_folder, _serpent, admin)) = start() else { return };
    let Some(mut chromium) = tool("chromium") else { return };
    // The browser's clock runs ahead, and that of the server does not.
    told_when(admin, |_| true);
    let profile = tempfile::tempdir().unwrap();
    let output = chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--no-proxy-server", "--disable-background-networking"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=5000", "--dump-dom", &format!("http://{admin}/")])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let (page, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for part in [
        ">mirror.example<",
        ">srpt<",
        ">GET /large 200<",
        ">200.0 KB<",
        "it is large for this uplink",
        "app: 127.0.0.1:1",
        ">Drain<",
        ">gold<",
        "<path d=\"M",
    ] {
        assert!(page.contains(part), "no {part} in {page}\n{said}");
    }
    assert!(!said.contains("CONSOLE"), "an error of the page: {said}");
}

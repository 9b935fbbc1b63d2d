//! The page of the admin address, and what it is made of.

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    gateway,
    support::{PATIENCE, Serpent, curl, serpent},
    webdriver::Browser,
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A paced mirror with a route to a server that is not there.
fn start() -> Option<(TempDir, Serpent, SocketAddr)> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    for (name, bytes) in [("small", 500), ("large", 200_000)] {
        fs::write(folder.path().join("www").join(name), vec![b'x'; bytes]).unwrap();
    }
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    fs::set_permissions(folder.path().join("token"), Permissions::from_mode(0o600)).unwrap();
    let file = folder.path().join("serpent.toml");
    let config = "[uplink]\nrate = \"8mbit\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://127.0.0.1:1\"]\n\
         [admission]\nslots = 2\n[[class]]\nname = \"gold\"\n[[site]]\nnames = [\"mirror.example\"]\nroot = \"www\"\n\
         maintenance = { file = \"closed\" }\n[[site.route]]\npath = \"/app\"\nupstream = \"app\"\n";
    fs::write(&file, format!("listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nadmin-token = \"token\"\n{config}"))
        .unwrap();
    let (serpent, admin) = gateway::start(&file);
    for path in ["/small?token=secret", "/large", "/app", "/small"] {
        curl(&["--output", "/dev/null", &serpent.url(path)])?;
    }
    Some((folder, serpent, admin))
}

fn live(admin: SocketAddr, after: &str) -> Value {
    serde_json::from_str(&curl(&[&format!("http://{admin}/api/live{after}")]).unwrap()).unwrap()
}

/// The live data, once small and large responses are among its points and `is_enough` holds.
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
    let orders = compared["orders"].as_array().unwrap();
    let named = |order: &str| orders.iter().find(|it| it["order"] == order).unwrap_or_else(|| panic!("{compared:#}"));
    assert_eq!((&orders[0]["order"], &compared["measured"]["order"]), (&"fair".into(), &"srpt".into()));
    for order in ["fair", "srpt", "srpt-guard-3", "fsp", "las", "fifo", "quick-fix"] {
        // 200 KB at 8 Mbit/s are the largest hundredth of a few responses.
        assert!(named(order)["largest_s"].as_f64().unwrap() > 0.15, "{compared:#}");
    }
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
fn a_response_that_is_under_way_counts_in_every_order() {
    let Some((folder, serpent, admin)) = start() else { return };
    fs::write(folder.path().join("www/huge"), vec![b'x'; 50_000_000]).unwrap();
    let mut waiting = serpent.connect();
    waiting.write_all(b"GET /huge HTTP/1.1\r\nHost: mirror.example\r\n\r\n").unwrap();
    // Of it less than a second is there by then, of fifty.
    let told = told_when(admin, |told| told["comparison"]["under_way"] == 1);
    let compared = &told["comparison"];
    for times in compared["orders"].as_array().unwrap().iter().chain([&compared["measured"]]) {
        let (largest_s, span_s) = (times["largest_s"].as_f64().unwrap(), compared["span_s"].as_f64().unwrap());
        assert!(largest_s > 0.0 && largest_s <= span_s, "{compared:#}");
    }
}

#[test]
fn advice_is_had_from_a_running_server() {
    let Some((_folder, _serpent, admin)) = start() else { return };
    told_when(admin, |_| true);
    let from = format!("http://{admin}/");
    let output = serpent(&["advise", "--admin", &from, "--json", "-"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    let large = advice["sizes"]["largest_bytes"].as_u64();
    assert!(advice["log"]["requests"].as_u64().unwrap() >= 3 && large == Some(200_000), "{advice:#}");
    // Its own rate, unless another one is named.
    let rate = advice["uplink_bits_per_second"].as_u64().unwrap();
    assert!((7_000_000..=8_000_000).contains(&rate), "{rate}");
    let output = serpent(&["advise", "--admin", &from, "--uplink", "20mbit", "--json", "-"]);
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(advice["uplink_bits_per_second"], 20_000_000);
    for (args, part) in [
        (&["advise", "--admin", "http://127.0.0.1:1"][..], "is the server running there"),
        (&["advise", "--admin", "localhost"], "as in http://127.0.0.1:9090"),
        (&["advise", "--admin", &from, "access.log"], "cannot be used with"),
        (&["advise", "--nginx"], "--uplink <RATE>"),
        (&["advise"], "<ACCESS_LOG>"),
    ] {
        let output = serpent(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn a_browser_shows_the_page_by_events_and_by_asking() {
    let Some((_folder, _serpent, admin)) = start() else { return };
    told_when(admin, |told| told["comparison"].is_object());
    let Some(browser) = Browser::start() else { return };
    for (query, by) in [("", ", live, "), ("?poll", ", asked every second, ")] {
        browser.open(&format!("http://{admin}/{query}"));
        browser.wait_for(&format!("document.querySelector('#state').textContent.includes({by:?})"));
        let page = browser.run("return document.body.outerHTML").to_string().replace("\\\"", "\"");
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
            ">fewest bytes left first<",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        let asked = browser.run("return performance.getEntriesByType('resource').map((it) => it.name)");
        let here = format!("http://{admin}/");
        assert!(asked.as_array().unwrap().iter().all(|it| it.as_str().unwrap().starts_with(&here)), "{asked}");
        // It goes on.
        let shown = browser.run("return document.querySelector('#state').textContent").to_string();
        browser.wait_for(&format!("document.querySelector('#state').textContent !== {shown}"));
        assert_eq!(browser.errors(), [""; 0], "errors of the page");
    }
}

#[test]
fn a_form_shows_a_change_makes_it_and_takes_it_back() {
    let Some((_folder, _serpent, admin)) = start() else { return };
    let Some(browser) = Browser::start() else { return };
    let weight = || {
        let text = curl(&[&format!("http://{admin}/api/classes/gold")]).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["settings"]["weight"].as_u64()
    };
    let said = |text: &str| format!("document.querySelector('#answer').textContent.includes({text:?})");
    let is_open = "document.querySelector('#edit').open";
    let (can_apply, is_closed) = ("!document.querySelector('#apply').hidden", format!("!{is_open}"));
    browser.open(&format!("http://{admin}/"));
    browser.click("button[aria-label='Change class gold']");
    browser.wait_for(is_open);
    let unnamed =
        "[...document.querySelectorAll('#edit input, #edit select')].filter((it) => !it.labels.length).length";
    assert_eq!(browser.run(&format!("return {unnamed}")), 0, "a field has no label");

    // A wrong token, then a value that the server refuses, in its words.
    browser.enter("#token", "wrong");
    browser.enter("#field-0", "7");
    browser.click("#preview");
    browser.wait_for(&said("needs the token"));
    browser.enter("#token", TOKEN);
    browser.enter("#field-0", "0");
    browser.click("#preview");
    browser.wait_for(&said("Weight: must be a whole number from 1"));
    assert_eq!(browser.run("return document.activeElement.id"), "field-0");

    browser.enter("#field-0", "7");
    browser.click("#preview");
    browser.wait_for(can_apply);
    assert_eq!(browser.run("return document.querySelector('#proposed').innerText"), "Weight\t1\t7");
    assert_eq!(weight(), Some(1), "a preview changes nothing");
    // The change that is applied is the one that was shown.
    browser.enter("#field-0", "8");
    browser.wait_for("document.querySelector('#apply').hidden");
    browser.enter("#field-0", "7");
    browser.click("#preview");
    browser.wait_for(can_apply);
    browser.click("#apply");
    browser.wait_for(&is_closed);
    assert_eq!(weight(), Some(7));

    browser.wait_for("document.querySelector('#made').innerText.includes('Weight: 7 instead of 1')");
    browser.click("#made button");
    browser.wait_for(can_apply);
    browser.click("#apply");
    browser.wait_for(&is_closed);
    assert_eq!(weight(), Some(1));

    browser.click("button[data-state=draining]");
    browser.wait_for(can_apply);
    browser.click("#apply");
    browser.wait_for("document.querySelector('#servers').innerText.includes('draining')");
    browser.click("#new-class");
    browser.enter("#field-name", "silver");
    browser.click("#preview");
    browser.wait_for(can_apply);
    browser.click("#apply");
    browser.wait_for("document.querySelector('#classes').innerText.includes('silver')");
    assert!(browser.errors().iter().all(|it| it.contains("401") || it.contains("422")), "{:?}", browser.errors());
}

#[test]
fn a_site_is_closed_and_opened_by_buttons() {
    let Some((folder, serpent, admin)) = start() else { return };
    let Some(browser) = Browser::start() else { return };
    let status = || curl(&["--output", "/dev/null", "--write-out", "%{http_code}", &serpent.url("/small")]).unwrap();
    let (is_open, can_apply) = ("document.querySelector('#edit').open", "!document.querySelector('#apply').hidden");
    let is_closed = format!("!{is_open}");
    let state = |text: &str| format!("document.querySelector('#switches').innerText.includes({text:?})");
    // Once the dialog is closed, what it has changed is shown.
    let apply = || {
        browser.wait_for(can_apply);
        browser.click("#apply");
        browser.wait_for(&is_closed);
    };
    let proposed = || browser.run("return document.querySelector('#proposed').innerText");
    let visible = || {
        browser
            .run("return [...document.querySelectorAll('#switches button:not([hidden])')].map((it) => it.textContent)")
    };

    browser.open(&format!("http://{admin}/"));
    browser.wait_for(&state("open"));
    assert_eq!(visible(), serde_json::json!(["Close"]));
    browser.click("button[aria-label='Close mirror.example']");
    browser.wait_for(is_open);
    browser.enter("#token", TOKEN);
    browser.click("#preview");
    browser.wait_for(can_apply);
    assert_eq!(proposed(), "Closed for maintenance\tno\tyes");
    assert_eq!(status(), "200", "a preview closes nothing");
    apply();
    assert_eq!(status(), "503");
    browser.wait_for(&state("closed by the switch"));
    browser
        .wait_for("document.querySelector('#summary').innerText.includes('mirror.example is closed for maintenance')");
    assert_eq!(visible(), serde_json::json!(["Open"]));

    // The same by the list of changes, with the token that is known by now.
    browser.wait_for("document.querySelector('#made').innerText.includes('Closed for maintenance: yes instead of no')");
    browser.click("#made button[aria-label='Undo change 1']");
    browser.wait_for(can_apply);
    assert_eq!(proposed(), "Closed for maintenance\tyes\tno");
    apply();
    assert_eq!(status(), "200");
    browser.wait_for(&state("open"));

    // The file closes the site whatever the switch says.
    browser.click("button[aria-label='Close mirror.example']");
    apply();
    let file = folder.path().join("closed");
    fs::write(&file, "").unwrap();
    browser.wait_for(&state(&format!("closed by the switch and {}", file.display())));
    browser.click("button[aria-label='Open mirror.example']");
    apply();
    browser.wait_for(&state(&format!("closed by {}", file.display())));
    assert_eq!(status(), "503");
    fs::remove_file(&file).unwrap();
    browser.wait_for(&state("open"));
    assert_eq!(status(), "200");
    // A change that a later one has overtaken stays.
    let undo = format!("http://{admin}/api/changes/3/undo");
    let token = format!("Authorization: Bearer {TOKEN}");
    let refused = curl(&["--request", "POST", "--header", &token, &undo]).unwrap();
    assert!(refused.contains("closed of site mirror.example is false by now, and not true"), "{refused}");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_page_without_scripts_shows_the_present() {
    let Some((_folder, _serpent, admin)) = start() else { return };
    told_when(admin, |_| true);
    let page = curl(&[&format!("http://{admin}/")]).unwrap();
    let plain = page.split("<noscript>").nth(1).and_then(|rest| rest.split("</noscript>").next()).unwrap();
    for part in [
        "<td>srpt</td>",
        "<td>gold</td>",
        "<td>127.0.0.1:1</td>",
        "<td>GET /large</td>",
        "<td>mirror.example</td><td>open</td>",
    ] {
        assert!(plain.contains(part), "no {part} in {plain}");
    }
    assert!(!plain.contains("secret"));
}

/// A stream of events, and what it has sent of whole events.
fn events(admin: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// The next line of a stream that begins so.
fn line_that_begins(stream: &mut BufReader<TcpStream>, begin: &str) -> String {
    let mut line = String::new();
    while !line.starts_with(begin) {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended before {begin}");
    }
    line
}

#[test]
fn events_tell_what_is_new_and_end_with_the_server() {
    let Some((_folder, serpent, admin)) = start() else { return };
    let mut stream = events(admin);
    assert!(line_that_begins(&mut stream, "HTTP/1.1").contains(" 200 "));
    let mut last_s = 0.0;
    for number in 0..3 {
        let id: f64 = line_that_begins(&mut stream, "id: ")["id: ".len()..].trim().parse().unwrap();
        let data = line_that_begins(&mut stream, "data: ");
        let told: Value = serde_json::from_str(&data["data: ".len()..]).unwrap();
        let points = told["seconds"].as_array().unwrap();
        assert!(points.iter().all(|it| it["at_s"].as_f64().unwrap() > last_s), "{number}: told twice");
        assert!(number == 0 || points.len() == 1, "{number}: {} points", points.len());
        assert_eq!(told["classes"]["classes"][0]["name"], "gold");
        last_s = id;
    }
    // Their number is bounded; one that has ended makes room.
    let streams: Vec<_> = (1..16).map(|_| events(admin)).collect();
    let mut all: Vec<_> = streams.into_iter().map(|mut it| (line_that_begins(&mut it, "HTTP/1.1"), it)).collect();
    assert!(all.iter().all(|(status, _)| status.contains(" 200 ")));
    assert!(line_that_begins(&mut events(admin), "HTTP/1.1").contains(" 503 "));
    all.pop();
    let begun = Instant::now();
    while !line_that_begins(&mut events(admin), "HTTP/1.1").contains(" 200 ") {
        assert!(begun.elapsed() < PATIENCE, "the place of a stream that was closed stays taken");
        thread::sleep(Duration::from_millis(100));
    }
    // Streams do not hold the server up.
    serpent.signal(Signal::TERM);
    let (status, said) = serpent.wait();
    assert!(status.success(), "{said}");
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn events_end_when_a_reload_takes_their_address_away() {
    let Some((folder, serpent, admin)) = start() else { return };
    let mut stream = events(admin);
    line_that_begins(&mut stream, "data: ");
    let file = folder.path().join("serpent.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[uplink]", "# Another.\n[uplink]")).unwrap();
    serpent.signal(Signal::HUP);
    serpent.wait_for_stderr("reloaded");
    line_that_begins(&mut stream, "data: ");
    let without: String =
        text.lines().filter(|line| !line.starts_with("admin")).map(|line| format!("{line}\n")).collect();
    fs::write(&file, without).unwrap();
    serpent.signal(Signal::HUP);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
}

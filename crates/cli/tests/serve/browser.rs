//! Tests with headless Chromium.

use super::support::{Serpent, certificate, site, tool};

#[test]
fn a_browser_shows_a_page_with_what_it_loads() {
    let site = site();
    let (chain, key) = certificate(site.path(), "localhost", &["localhost"]);
    let www = site.path().join("www");
    let serpent = Serpent::start(&[
        "serve",
        www.to_str().unwrap(),
        "--uplink",
        "100mbit",
        "--listen",
        "http://127.0.0.1:0",
        "--listen",
        "https://127.0.0.1:0",
        "--tls-cert",
        chain.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ]);
    for (i, url) in serpent.urls.iter().enumerate() {
        let Some(mut chromium) = tool("chromium") else { return };
        let profile = site.path().join(format!("profile-{i}"));
        let output = chromium
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            // The certificate is self-signed. The dump waits in virtual time for the page to settle.
            .args(["--ignore-certificate-errors", "--virtual-time-budget=20000"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(["--dump-dom", &format!("{url}/page.html")])
            .output()
            .unwrap();
        let page = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(page.contains("hello, world and 2000000"), "{url}: {page}\n{said}");
    }
}

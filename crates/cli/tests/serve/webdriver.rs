//! A browser that does what a test says: Chromium by WebDriver, which knows no virtual time.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{PATIENCE, curl, tool};

/// Starts chromedriver, and returns its port.
fn driver() -> Option<(Child, u16)> {
    let mut driver = tool("chromedriver")?
        .args(["--port=0", "--log-level=SEVERE"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let port = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    if port.is_none() {
        let _ = (driver.kill(), driver.wait());
    }
    Some((driver, port?))
}

/// A browser with one window; ended when dropped.
pub struct Browser {
    driver: Child,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts it; `None`: a program is missing.
    pub fn start() -> Option<Self> {
        tool("chromium")?;
        tool("curl")?;
        tool("chromedriver")?;
        let profile = tempfile::tempdir().unwrap();
        // It finds a port that is free for one version of IP, and ends if another program has it for the other one.
        let (driver, port) = (0..3).find_map(|_| driver()).expect("chromedriver has a port");
        let root = format!("http://127.0.0.1:{}", port);
        let mut browser = Self { driver, session: root, _profile: profile };
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
            "--disable-background-networking",
            &profile,
        ];
        let asked = json!({ "goog:chromeOptions": { "args": args }, "goog:loggingPrefs": { "browser": "ALL" } });
        let made = browser.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": asked } }));
        browser.session += &format!("/session/{}", made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")));
        Some(browser)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.session);
        let text = curl(&["--request", method, "--data", &body.to_string(), "--noproxy", "*", &url]).unwrap();
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{url}: {error}: {text}"));
        answer["value"].take()
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script in the page, and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression of the page is true.
    pub fn wait_for(&self, expression: &str) {
        let begun = Instant::now();
        while self.run(&format!("return Boolean({expression})")) != Value::Bool(true) {
            if begun.elapsed() > PATIENCE {
                let page = self.run("return document.body.innerText");
                panic!("not {expression}: {}\n{:?}", page.as_str().unwrap_or_default(), self.errors());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks on an element.
    pub fn click(&self, selector: &str) {
        self.wait_for(&format!("document.querySelector({selector:?})"));
        self.run(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Types into a field, as a person does.
    pub fn enter(&self, selector: &str, text: &str) {
        self.run(&format!(
            "const it = document.querySelector({selector:?}); it.value = {text:?}; \
             it.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        ));
    }

    /// The errors of the page.
    pub fn errors(&self) -> Vec<String> {
        let said = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        said.as_array().into_iter().flatten().map(|it| it["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, which would outlive the driver.
        let _ =
            tool("curl").unwrap().args(["--silent", "--max-time", "20", "--request", "DELETE", &self.session]).output();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

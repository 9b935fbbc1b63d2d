//! The records of the server: the access log, and the metrics.

use std::path::Path;

use serpent_server::config::{AccessLog, Config, LogFormat, LogTarget};

use crate::harness::{Client, Running, config, root};

fn logging(root: &Path, file: &Path, format: LogFormat) -> Config {
    let mut config = config(root);
    config.access_log = Some(AccessLog { target: LogTarget::File(file.to_owned()), format });
    config
}

#[test]
fn combined_lines_cannot_be_forged() {
    let root = root();
    let file = root.path().join("access.log");
    let mut server = Running::start(logging(root.path(), &file, LogFormat::Combined));
    server.say("GET /a.txt?q='\\' HTTP/1.1\r\nHost: h\r\nUser-Agent: a\"b\\c\u{e9}\tz\r\nReferer: http://r/\r\n\r\n");
    server.say("GET /\"\u{1} FTP/1.1\r\n\r\n");
    server.handle.shutdown();
    server.wait();
    let text = std::fs::read_to_string(&file).expect("a log");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let (start, rest) = lines[0].split_once(" [").expect("a time");
    assert_eq!(start, "127.0.0.1 - -");
    let (_, rest) = rest.split_once("] ").expect("a time");
    let expected = r#""GET /a.txt?q='\x5C' HTTP/1.1" 200 7 "http://r/" "a\x22b\x5Cc\xC3\xA9\x09z" default 0.0"#;
    assert!(rest.starts_with(expected), "{rest}");
    assert!(lines[1].contains(r#""GET /\x22\x01 FTP/1.1" 400 "#), "{text}");
}

#[test]
fn json_lines_say_the_same() {
    let root = root();
    let file = root.path().join("access.json");
    let mut server = Running::start(logging(root.path(), &file, LogFormat::Json));
    server.say("GET /none HTTP/1.1\r\nHost: h\r\nUser-Agent: a\"b\r\n\r\n");
    server.handle.shutdown();
    server.wait();
    let text = std::fs::read_to_string(&file).expect("a log");
    let value: serde_json::Value = serde_json::from_str(text.trim_end()).expect("one JSON object");
    assert_eq!(value["status"], 404);
    assert_eq!(value["target"], "/none");
    assert_eq!(value["host"], "h");
    assert_eq!(value["user_agent"], "a\"b");
    assert_eq!(value["referer"], serde_json::Value::Null);
    assert_eq!(value["complete"], true);
    assert!(value["response_time_s"].as_f64().is_some_and(|time| time > 0.0));
}

#[test]
fn a_log_is_in_its_file_without_a_stop_and_opened_anew_at_a_reload() {
    let root = root();
    let file = root.path().join("access.log");
    let config = || logging(root.path(), &file, LogFormat::Combined);
    let server = Running::start(config());
    server.say("GET /first HTTP/1.1\r\nHost: h\r\n\r\n");
    let moved = root.path().join("access.log.1");
    std::fs::rename(&file, &moved).expect("rotated");
    server.handle.reload(config()).expect("a good configuration");
    server.say("GET /second HTTP/1.1\r\nHost: h\r\n\r\n");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("/second")) {
        assert!(std::time::Instant::now() < until, "the line must be flushed within about a second");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let old = std::fs::read_to_string(&moved).expect("the rotated log");
    assert!(old.contains("/first") && !old.contains("/second"), "{old}");
}

#[test]
fn a_log_can_be_turned_on_by_a_reload() {
    let root = root();
    let file = root.path().join("access.log");
    let mut server = Running::start(config(root.path()));
    server.handle.reload(logging(root.path(), &file, LogFormat::Combined)).expect("a good configuration");
    server.say("GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    server.handle.shutdown();
    server.wait();
    assert!(std::fs::read_to_string(&file).expect("a log").contains("/a.txt"));
}

#[test]
fn metrics_and_health() {
    let root = root();
    let mut config = config(root.path());
    config.admin = Some("127.0.0.1:0".parse().expect("an address"));
    let server = Running::start(config);
    server.say("GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\nGET /none HTTP/1.1\r\nHost: h\r\n\r\n");
    let ask = |path: &str| {
        let mut client = Client::connect(server.admin.expect("an admin address"));
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
        client.rest()
    };
    let metrics = ask("/metrics");
    for line in [
        "serpent_responses_total{status=\"2xx\"} 1",
        "serpent_responses_total{status=\"4xx\"} 1",
        "serpent_connections_accepted_total 1",
        "serpent_response_time_seconds_count 2",
        "serpent_response_time_seconds_bucket{le=\"+Inf\"} 2",
        "serpent_log_lines_dropped_total 0",
        "serpent_error_log_lines_dropped_total 0",
        "serpent_config_reloads_total 0",
        "# EOF",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    assert!(metrics.contains("serpent_start_time_seconds 1") || metrics.contains("serpent_start_time_seconds 2"));
    assert!(ask("/health").ends_with("\r\n\r\nok\n"));
    assert!(ask("/nothing").starts_with("HTTP/1.1 404"));
    // Metrics are never on the public address.
    assert!(server.say("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("HTTP/1.1 404"));
}

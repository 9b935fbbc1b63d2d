//! The admin address: classes looked at and changed while the server runs.

use std::{
    future::Future,
    net::{Shutdown, SocketAddr},
    num::NonZeroU32,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use scheduler::{admission::ResourceId, class::ClassId};
use serde_json::{Value, json};
use serpent_server::{
    admission::{Admission, Arrival, Enter, Refused, Slot},
    config::{ClassConfig, Config, Objective},
};
use tempfile::TempDir;

use crate::harness::{Client, Running, config, root};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Gold and plain, plain being the default, and two slots.
fn two_classes(root: &Path, token: Option<&Path>) -> Config {
    let mut config = config(root);
    config.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.admin_token = token.map(Path::to_owned);
    let classes = &mut config.classes;
    let template = classes.classes[0].clone();
    classes.classes = ["gold", "plain"].map(|name| ClassConfig { name: name.to_owned(), ..template.clone() }).to_vec();
    classes.default = ClassId(1);
    classes.admission.enabled = true;
    classes.admission.total = NonZeroU32::new(2);
    config
}

fn token_file(root: &TempDir) -> PathBuf {
    let path = root.path().join("token");
    std::fs::write(&path, TOKEN).expect("written");
    path
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn etag(&self) -> String {
        let line = self.head.lines().find_map(|line| line.strip_prefix("etag: "));
        line.unwrap_or_else(|| panic!("no ETag: {}", self.head)).to_owned()
    }

    fn error(&self) -> (String, Value) {
        let value = self.json();
        let message = value["error"]["message"].as_str().expect("a message").to_owned();
        (message, value["error"]["field"].clone())
    }
}

trait Asks {
    fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> Answer;

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    /// With the token, whichever version is in force.
    fn change(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.change_if("*", method, path, body)
    }

    fn change_if(&self, version: &str, method: &str, path: &str, body: &Value) -> Answer {
        let fields = format!(
            "Authorization: Bearer {TOKEN}\r\nIf-Match: {version}\r\nContent-Type: application/merge-patch+json\r\n"
        );
        self.ask(method, path, &fields, &body.to_string())
    }

    fn create(&self, name: &str, body: &Value) -> Answer {
        let fields = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
        self.ask("PUT", &format!("/api/classes/{name}"), &fields, &body.to_string())
    }
}

impl Asks for Running {
    fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        let mut client = Client::connect(self.admin.expect("an admin address"));
        let length = body.len();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        ));
        Answer::of(&client.rest())
    }
}

fn start() -> (TempDir, Running) {
    let root = root();
    let server = Running::start(two_classes(root.path(), Some(&token_file(&root))));
    (root, server)
}

fn enter(admission: &Admission, class: u16) -> Pin<Box<Enter>> {
    Box::pin(admission.enter(Arrival {
        class: ClassId(class),
        resource: ResourceId(0),
        client: 0,
        route: 0,
        within: None,
    }))
}

fn poll(enter: &mut Pin<Box<Enter>>) -> Poll<Result<Slot, Refused>> {
    enter.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn everybody_may_look_and_sees_no_secret() {
    let (_root, server) = start();
    let all = server.get("/api/classes");
    assert_eq!(all.status, 200);
    let value = all.json();
    assert_eq!(value["default"], "plain");
    assert_eq!(value["classes"][0]["name"], "gold");
    assert_eq!(value["classes"][0]["settings"]["weight"], 1);
    assert_eq!(value["persistent"], true);
    let one = server.get("/api/classes/gold");
    assert_eq!((one.status, &one.json()["position"]), (200, &json!(0)));
    assert_eq!(one.etag(), all.etag());
    assert_eq!(server.get("/api/admission").json()["settings"]["total"], 2);
    assert_eq!(server.get("/api/upstreams").json(), json!({ "upstreams": [] }));
    assert_eq!(server.get("/api/schema").json()["openapi"], "3.1.0");
    assert_eq!(server.get("/api/classes/silver").status, 404);
    assert_eq!(server.get("/api/nothing").status, 404);
    for path in ["/api/classes", "/api/admission", "/api/schema", "/api/live", "/metrics", "/", "/page.js", "/live.js"]
    {
        let answer = server.get(path);
        assert!(!answer.body.contains(TOKEN) && !answer.body.contains("/token"), "{path}");
    }
    let page = server.get("/");
    assert!(page.head.contains("content-security-policy: default-src 'none'; "), "{}", page.head);
}

#[test]
fn nothing_changes_without_the_token() {
    let (_root, server) = start();
    let body = r#"{"weight": 9}"#;
    let json = "Content-Type: application/json\r\nIf-Match: *\r\n";
    for authorization in [
        "",
        "Authorization: Bearer 0123456789abcdef0123456789abcdeF\r\n",
        "Authorization: Bearer\r\n",
        "Authorization: Basic 0123456789abcdef0123456789abcdef\r\n",
        "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\nAuthorization: Bearer x\r\n",
    ] {
        let answer = server.ask("PATCH", "/api/classes/gold", &format!("{authorization}{json}"), body);
        assert_eq!(answer.status, 401, "{authorization}");
        assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
    }
    for (method, path) in [("DELETE", "/api/classes/gold"), ("PUT", "/api/classes/new"), ("PATCH", "/api/admission")] {
        assert_eq!(server.ask(method, path, json, body).status, 401, "{method} {path}");
    }
    let elsewhere = format!("Authorization: Bearer {TOKEN}\r\nOrigin: http://elsewhere\r\n{json}");
    assert_eq!(server.ask("PATCH", "/api/classes/gold", &elsewhere, body).status, 403);
    assert_eq!(server.get("/api/classes/gold").json()["settings"]["weight"], 1);
    let here = format!("Authorization: bearer {TOKEN}\r\nOrigin: http://admin\r\n{json}");
    assert_eq!(server.ask("PATCH", "/api/classes/gold", &here, body).status, 200);
}

#[test]
fn without_a_token_configured_nothing_changes_at_all() {
    let root = root();
    let server = Running::start(two_classes(root.path(), None));
    let answer = server.change("PATCH", "/api/classes/gold", &json!({ "weight": 9 }));
    assert_eq!(answer.status, 403);
    assert!(answer.error().0.contains("`admin-token`"), "{}", answer.body);
    // A reload brings one.
    server.handle.reload(two_classes(root.path(), Some(&token_file(&root)))).expect("a good configuration");
    assert_eq!(server.change("PATCH", "/api/classes/gold", &json!({ "weight": 9 })).status, 200);
}

#[test]
fn a_token_that_is_none_is_an_error_at_the_start() {
    let root = root();
    let short = root.path().join("short");
    std::fs::write(&short, "secret").expect("written");
    let Err(error) = serpent_server::Server::bind(two_classes(root.path(), Some(&short))) else { panic!("it started") };
    let error = error.to_string();
    assert!(error.starts_with("admin_token: ") && error.contains("32") && !error.contains("secret"), "{error}");
}

#[test]
fn a_class_is_changed_and_the_change_lasts_until_the_next_reload() {
    let (root, server) = start();
    let answer = server.change(
        "PATCH",
        "/api/classes/gold",
        &json!({ "weight": 4, "slots": 7, "max_wait_s": 2.5, "objective": { "mean_s": 0.2 } }),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    let value = answer.json();
    assert_eq!((&value["settings"]["weight"], &value["settings"]["slots"]), (&json!(4), &json!(7)));
    assert_eq!((&value["settings"]["queue"], &value["persistent"]), (&json!(1000), &json!(false)));
    assert_eq!(value["objectives"][0]["objective"], "mean");
    assert_eq!(server.get("/api/classes").json()["persistent"], false);
    // Set anew: what is not named has its default.
    let value = server.change("PUT", "/api/classes/gold", &json!({ "weight": 3 })).json();
    assert_eq!((&value["settings"]["weight"], &value["settings"]["slots"]), (&json!(3), &Value::Null));
    assert_eq!(value["settings"]["max_wait_s"], json!(30.0), "as in a file");

    server.handle.reload(two_classes(root.path(), Some(&root.path().join("token")))).expect("a good configuration");
    let value = server.get("/api/classes/gold").json();
    assert_eq!((&value["settings"]["weight"], &value["persistent"]), (&json!(1), &json!(true)));
}

#[test]
fn who_has_seen_another_version_changes_nothing() {
    let (_root, server) = start();
    let seen = server.get("/api/classes/gold").etag();
    let first = server.change_if(&seen, "PATCH", "/api/classes/gold", &json!({ "weight": 2 }));
    assert_eq!(first.status, 200);
    let second = server.change_if(&seen, "PATCH", "/api/classes/gold", &json!({ "weight": 3 }));
    assert_eq!(second.status, 412);
    assert_eq!(second.etag(), first.etag(), "it is told which version is in force");
    // Settings of admission belong to the same whole.
    assert_eq!(server.change_if(&seen, "PATCH", "/api/admission", &json!({ "total": 3 })).status, 412);
    assert_eq!(server.change_if(&seen, "DELETE", "/api/classes/gold", &json!({})).status, 412);
    assert_eq!(server.get("/api/classes/gold").json()["settings"]["weight"], 2);
    let fields = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let answer = server.ask("PATCH", "/api/classes/gold", &fields, "{}");
    assert_eq!(answer.status, 428);
    let third = server.change_if(&first.etag(), "PATCH", "/api/classes/gold", &json!({ "weight": 3 }));
    assert_eq!(third.status, 200);
    // Only what is there in one of these versions is not to be changed.
    for (unless, status) in [("*", 412), (&*format!("\"x\", {}", third.etag()), 412), (&*first.etag(), 200)] {
        let fields = format!("{fields}If-Match: *\r\nIf-None-Match: {unless}\r\n");
        assert_eq!(server.ask("PUT", "/api/classes/gold", &fields, "{}").status, status, "{unless}");
    }
}

#[test]
fn a_version_of_before_a_reload_is_old_too() {
    let (root, server) = start();
    let seen = server.get("/api/classes").etag();
    server.handle.reload(two_classes(root.path(), Some(&root.path().join("token")))).expect("a good configuration");
    assert_eq!(server.change_if(&seen, "PATCH", "/api/classes/gold", &json!({ "weight": 2 })).status, 412);
}

#[test]
fn what_cannot_be_is_refused_by_name_and_changes_nothing() {
    let (_root, server) = start();
    let before = server.get("/api/classes").etag();
    for (method, path, body, status, field) in [
        ("PATCH", "/api/classes/gold", json!({ "weight": 0 }), 422, json!("weight")),
        ("PATCH", "/api/classes/gold", json!({ "wieght": 1 }), 422, json!("wieght")),
        ("PATCH", "/api/classes/gold", json!({ "position": 2 }), 422, json!("position")),
        ("PATCH", "/api/classes/gold", json!({ "objective": { "mean_s": "x" } }), 422, json!("objective.mean_s")),
        ("PATCH", "/api/classes/gold", json!({ "max_wait_s": 0 }), 422, json!("max_wait_s")),
        ("PATCH", "/api/classes/gold", json!({ "reserved": 2, "slots": 1 }), 422, json!("reserved")),
        ("PATCH", "/api/classes/silver", json!({ "weight": 1 }), 404, Value::Null),
        ("PATCH", "/api/admission", json!({ "policy": "shared", "total": null }), 422, json!("policy")),
        ("PATCH", "/api/admission", json!({ "windows": { "disk": 1 } }), 422, json!("windows.disk")),
        ("PATCH", "/api/classes/gold", json!([]), 400, Value::Null),
        ("PUT", "/api/classes/silver", json!({}), 412, Value::Null),
        ("DELETE", "/api/classes/plain", json!({}), 409, Value::Null),
        ("DELETE", "/api/classes/silver", json!({}), 404, Value::Null),
        ("DELETE", "/api/admission", json!({}), 405, Value::Null),
    ] {
        let answer = server.change(method, path, &body);
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
        assert_eq!(answer.error().1, field, "{method} {path} {body}");
    }
    let answer = server.create("a%20b", &json!({}));
    assert_eq!((answer.status, answer.error().1), (422, json!("name")));
    // Each is sound by itself, and together they leave no slot for plain.
    server.change("PATCH", "/api/admission", &json!({ "policy": "shared" }));
    let answer = server.change("PATCH", "/api/classes/gold", &json!({ "reserved": 2 }));
    assert_eq!((answer.status, answer.error().1), (422, json!("reserved")));
    server.change("PATCH", "/api/admission", &json!({ "policy": "strict" }));

    let fields = format!("Authorization: Bearer {TOKEN}\r\nIf-Match: *\r\n");
    assert_eq!(server.ask("PATCH", "/api/classes/gold", &fields, "{}").status, 415);
    let fields = format!("{fields}Content-Type: application/json\r\n");
    assert_eq!(server.ask("PATCH", "/api/classes/gold", &fields, "{").status, 400);
    let large = format!("{{\"weight\": {}1}}", " ".repeat(70_000));
    assert_eq!(server.ask("PATCH", "/api/classes/gold", &fields, &large).status, 413);
    assert_ne!(server.get("/api/classes").etag(), before, "only the policy was changed, twice");
    assert_eq!(server.get("/api/classes").json()["version"], 3);
}

#[test]
fn classes_come_and_go_and_nobody_who_waits_is_lost() {
    let (_root, server) = start();
    assert_eq!(server.create("silver", &json!({ "weight": 2, "position": 1 })).status, 201);
    let fields = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nIf-None-Match: *\r\n");
    assert_eq!(server.ask("PUT", "/api/classes/silver", &fields, "{}").status, 412, "it is there already");
    let names = || {
        let value = server.get("/api/classes").json();
        let classes = value["classes"].as_array().expect("classes").clone();
        let of = |class: &Value| (class["name"].as_str().unwrap_or("?").to_owned(), class["stats"]["waiting"].as_u64());
        classes.iter().map(of).collect::<Vec<_>>()
    };
    let named = |name: &str, waiting| (name.to_owned(), Some(waiting));
    assert_eq!(names(), [named("gold", 0), named("silver", 0), named("plain", 0)]);

    let admission = server.handle.admission();
    let mut slots: Vec<_> = (0..2)
        .map(|_| match poll(&mut enter(&admission, 0)) {
            Poll::Ready(Ok(slot)) => slot,
            other => panic!("not let in: {other:?}"),
        })
        .collect();
    let (mut one, mut two) = (enter(&admission, 1), enter(&admission, 1));
    assert!(poll(&mut one).is_pending() && poll(&mut two).is_pending());
    assert_eq!(names()[1], named("silver", 2));
    let answer = server.change("DELETE", "/api/classes/silver", &json!({}));
    assert_eq!((answer.status, answer.json()["moved_to"].as_str()), (200, Some("plain")));
    assert_eq!(names(), [named("gold", 0), named("plain", 2)]);
    // One who was classified before the change comes after it.
    let mut late = enter(&admission, 1);
    assert!(poll(&mut late).is_pending());
    assert_eq!(names()[1], named("plain", 3));
    // A wider window lets them in at once.
    assert_eq!(server.change("PATCH", "/api/admission", &json!({ "total": 5 })).status, 200);
    for mut waited in [one, two, late] {
        let Poll::Ready(Ok(slot)) = poll(&mut waited) else { panic!("still waiting") };
        slots.push(slot);
    }
    slots.into_iter().for_each(Slot::finish);
    let gold = server.get("/api/classes/gold").json();
    assert_eq!((&gold["stats"]["arrived"], &gold["stats"]["finished"]), (&json!(2), &json!(2)));
}

#[test]
fn a_body_that_does_not_come_holds_nobody_up() {
    let (_root, server) = start();
    let mut slow = Client::connect(server.admin.expect("an admin address"));
    slow.send(format!(
        "PATCH /api/classes/gold HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {TOKEN}\r\nIf-Match: *\r\n\
         Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{{"
    ));
    assert_eq!(server.change("PATCH", "/api/classes/gold", &json!({ "weight": 2 })).status, 200);
    slow.0.shutdown(Shutdown::Both).expect("shut down");
    assert_eq!(server.get("/api/classes/gold").json()["settings"]["weight"], 2);
}

#[test]
fn classes_are_in_the_metrics_and_their_objectives_watched() {
    let root = root();
    let mut config = two_classes(root.path(), None);
    config.classes.classes[1].objective = Objective {
        mean: Some(Duration::from_secs(3600)),
        percentile: Some((99.0, Duration::ZERO)),
        error_rate: Some(0.5),
        window: Duration::from_secs(600),
    };
    let server = Running::start(config);
    server.say("GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    let admission = server.handle.admission();
    let Poll::Ready(Ok(_slot)) = poll(&mut enter(&admission, 0)) else { panic!("not let in") };
    let until = Instant::now() + Duration::from_secs(20);
    let text = loop {
        let text = server.get("/metrics").body;
        // A reading may fall between the two counts of a response: its time, then its status.
        if text.contains("serpent_class_objective_met{class=\"plain\",objective=\"error_rate\"}") {
            break text;
        }
        assert!(Instant::now() < until, "objectives are looked at every second: {text}");
        std::thread::sleep(Duration::from_millis(20));
    };
    for line in [
        "serpent_class_responses_total{class=\"plain\",status=\"2xx\"} 1",
        "serpent_class_responses_total{class=\"gold\",status=\"2xx\"} 0",
        "serpent_class_running{class=\"gold\"} 1",
        "serpent_class_waiting{class=\"gold\"} 0",
        "serpent_class_arrived_total{class=\"gold\"} 1",
        "serpent_class_refused_total{class=\"gold\",reason=\"queue_full\"} 0",
        "serpent_class_abandoned_total{class=\"gold\",state=\"waiting\"} 0",
        "serpent_class_system_time_seconds_count{class=\"plain\"} 1",
        "serpent_class_waiting_time_seconds_count{class=\"plain\"} 0",
        "serpent_class_objective_met{class=\"plain\",objective=\"mean\"} 1",
        "serpent_class_objective_met{class=\"plain\",objective=\"p99\"} 0",
        "serpent_class_objective_met{class=\"plain\",objective=\"error_rate\"} 1",
        "serpent_class_objective_target_seconds{class=\"plain\",objective=\"mean\"} 3600.0",
        "serpent_class_objective_error_ratio{class=\"plain\",objective=\"error_rate\"} 0.0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing:\n{text}");
    }
    assert!(text.trim_end().ends_with("# EOF"));
}

#[test]
fn a_preview_shows_what_would_change_and_changes_nothing() {
    let (_root, server) = start();
    let before = server.get("/api/classes");
    let shown = server.change("PATCH", "/api/classes/gold?preview", &json!({ "weight": 3, "slots": null })).json();
    assert_eq!((&shown["what"], &shown["preview"]), (&json!("class gold"), &json!(true)));
    assert_eq!(shown["differences"], json!([{ "path": ["weight"], "old": 1, "new": 3 }]));
    let shown = server.change("PATCH", "/api/admission?preview", &json!({ "windows": { "site": 7 } })).json();
    assert_eq!(shown["differences"], json!([{ "path": ["windows", "site"], "old": null, "new": 7 }]));
    assert_eq!(server.change("DELETE", "/api/classes/gold?preview", &json!({})).json()["what"], "class gold, deleted");
    // It is refused as the change would be.
    let answer = server.change("PATCH", "/api/classes/gold?preview", &json!({ "weight": 0 }));
    assert_eq!((answer.status, answer.error().1), (422, json!("weight")));
    assert_eq!(server.change_if("\"old\"", "PATCH", "/api/classes/gold?preview", &json!({ "weight": 2 })).status, 412);
    assert_eq!(
        server.ask("PATCH", "/api/classes/gold?preview", "Content-Type: application/json\r\n", "{}").status,
        401
    );
    let after = server.get("/api/classes");
    assert_eq!((after.etag(), after.body), (before.etag(), before.body));
    assert_eq!(server.get("/api/changes").json(), json!({ "changes": [] }));
}

#[test]
fn a_change_is_taken_back_unless_it_was_changed_since() {
    let (_root, server) = start();
    let undo = |id: u64| server.change("POST", &format!("/api/changes/{id}/undo"), &json!({}));
    let weight = || server.get("/api/classes/gold").json()["settings"]["weight"].clone();
    assert_eq!(server.change("PATCH", "/api/classes/gold", &json!({ "weight": 3 })).status, 200);
    assert_eq!(server.change("PATCH", "/api/classes/gold", &json!({ "weight": 3 })).status, 200, "changes nothing");
    assert_eq!(server.change("PATCH", "/api/classes/gold", &json!({ "weight": 8 })).status, 200);
    let kept = server.get("/api/changes").json();
    let ids: Vec<_> = kept["changes"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [2, 1], "{kept:#}");
    assert_eq!(kept["changes"][0]["differences"], json!([{ "path": ["weight"], "old": 3, "new": 8 }]));

    let (message, _) = undo(1).error();
    assert!(message.starts_with("weight of class gold is 8 by now, and not 3"), "{message}");
    let shown = server.change("POST", "/api/changes/2/undo?preview", &json!({})).json();
    assert_eq!((&shown["differences"][0]["new"], weight()), (&json!(3), json!(8)));
    assert_eq!((undo(2).status, weight()), (200, json!(3)));
    assert_eq!((undo(1).status, weight()), (200, json!(1)));
    assert_eq!(undo(1).status, 409, "it was taken back already");
    // A change that was taken back can be had again.
    assert_eq!((undo(4).status, weight()), (200, json!(3)));
    assert_eq!(undo(99).status, 404);

    assert_eq!(server.ask("POST", "/api/changes/5/undo", "", "").status, 401);
    let elsewhere = format!("Authorization: Bearer {TOKEN}\r\nSec-Fetch-Site: cross-site\r\n");
    assert_eq!(server.ask("POST", "/api/changes/5/undo", &elsewhere, "").status, 403);
    assert_eq!(weight(), json!(3));
}

#[test]
fn a_deleted_class_comes_back_with_the_requests_of_its_rules() {
    let (_root, server) = start();
    assert_eq!(server.change("PATCH", "/api/classes/gold", &json!({ "weight": 3, "slots": 1 })).status, 200);
    let before = server.get("/api/classes/gold").json()["settings"].clone();
    assert_eq!(server.change("DELETE", "/api/classes/gold", &json!({})).status, 200);
    assert_eq!(server.get("/api/classes/gold").status, 404);
    assert_eq!(server.change("POST", "/api/changes/2/undo", &json!({})).status, 200);
    let after = server.get("/api/classes/gold").json();
    assert_eq!((&after["settings"], &after["position"]), (&before, &json!(0)));
    // The newest change is that the class is new; taking it back deletes it again.
    assert_eq!(server.change("POST", "/api/changes/3/undo", &json!({})).status, 200);
    assert_eq!(server.get("/api/classes/gold").status, 404);
}

#[test]
fn from_elsewhere_reading_needs_the_token() {
    let (_root, server) = start();
    let get = |path: &str, host: &str, fields: &str| {
        let mut client = Client::connect(server.admin.expect("an admin address"));
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"));
        Answer::of(&client.rest())
    };
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/api/classes", "/api/live", "/api/upstreams", "/api/changes", "/api/events"] {
        assert_eq!(get(path, "evil.example", "").status, 401, "{path}");
        assert_eq!(get(path, "localhost", "X-Forwarded-For: 192.0.2.1\r\n").status, 401, "{path}");
        if path != "/api/events" {
            assert_eq!(get(path, "evil.example", &token).status, 200, "{path}");
        }
    }
    assert_eq!(get("/api/events", "localhost", "Origin: http://evil.example\r\n").status, 403);
    for path in ["/metrics", "/health", "/api/schema", "/page.js"] {
        assert_eq!(get(path, "evil.example", "").status, 200, "{path}");
    }
    assert!(get("/", "localhost", "").body.contains("<td>gold</td>"));
    assert!(!get("/", "evil.example", "").body.contains("gold"));

    let root = root();
    let open = Running::start(two_classes(root.path(), None));
    let mut client = Client::connect(open.admin.expect("an admin address"));
    client.send("GET /api/classes HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    let answer = Answer::of(&client.rest());
    assert_eq!(answer.status, 403);
    assert!(answer.error().0.contains("`admin-token`"), "{}", answer.body);
}

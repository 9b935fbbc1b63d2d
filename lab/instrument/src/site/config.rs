//! The configuration files of gateways.
//!
//! All have the same patience and the same capacity. No gateway refuses a user for waiting too long, and none
//! limits connections below the number of users. So the measurement shows only the order of service.

use std::{fmt::Write as _, net::SocketAddr};

use super::{
    plan::Plan,
    subject::{Subject, Window},
    target::Page,
};

/// The configuration file of a gateway that listens at `listen`, and the file's name. `None` without a
/// gateway. `admin` reports adjusted windows.
pub(super) fn of(
    plan: &Plan,
    subject: &Subject,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
) -> Option<(&'static str, String)> {
    match subject {
        Subject::Direct => None,
        Subject::Uncontrolled => Some((SERPENT, serpent(plan, listen, |_| None, None, "", None))),
        Subject::Single { slots, share, method } if method == "fixed" => {
            Some((SERPENT, serpent(plan, listen, |_| None, Some(share), &format!("slots = {slots}\n"), None)))
        }
        Subject::Single { slots, share, method } => {
            // An adjusted window belongs to a resource: all pages share one.
            let admission = format!("windows = \"{method}\"\nresources = {{ {ONE} = {slots} }}\n");
            Some((SERPENT, serpent(plan, listen, |_| Some(ONE), Some(share), &admission, admin)))
        }
        Subject::Multi { windows, share, method, others } => {
            let mut admission = String::new();
            if method != "fixed" {
                let _ = writeln!(admission, "windows = \"{method}\"");
            }
            for (key, value) in others {
                let _ = writeln!(admission, "{key} = \"{value}\"");
            }
            let each: Vec<String> =
                windows.iter().map(|(name, window)| resource(plan, name, window, method == "probe")).collect();
            let _ = writeln!(admission, "resources = {{ {} }}", each.join(", "));
            Some((SERPENT, serpent(plan, listen, |page| Some(&page.name), Some(share), &admission, admin)))
        }
        Subject::HaProxy { windows, strict } => Some((HAPROXY, haproxy(plan, listen, windows, *strict))),
    }
}

/// The resource of all pages, where one window for all is adjusted.
pub(super) const ONE: &str = "site";
const SERPENT: &str = "serpent.toml";
const HAPROXY: &str = "haproxy.cfg";

/// Longer than any wait: only the user's patience ends a request.
fn patience_s(plan: &Plan) -> u64 {
    plan.timeout_s.ceil() as u64 + u64::from(plan.drain_s) + 60
}

fn serpent(
    plan: &Plan,
    listen: SocketAddr,
    resource: impl Fn(&Page) -> Option<&str>,
    share: Option<&str>,
    admission: &str,
    admin: Option<SocketAddr>,
) -> String {
    let patience_s = patience_s(plan);
    let room = plan.users() + 100;
    let mut text = format!(
        "# Written by `serpent-lab site`.
listen = [\"{listen}\"]
{}default-class = \"{}\"

[[site]]
",
        admin.map_or(String::new(), |admin| format!("admin = \"{admin}\"\n")),
        plan.classes[plan.classes.len() - 1].name
    );
    for page in &plan.pages {
        let _ = write!(text, "\n[[site.route]]\npath-glob = \"{}\"\nupstream = \"site\"\n", escaped(page.path()));
        if let Some(resource) = resource(page) {
            let _ = writeln!(text, "resource = \"{resource}\"");
        }
    }
    let _ = write!(
        text,
        "
[[upstream]]
name = \"site\"
servers = [\"{}\"]
idle-timeout = \"{patience_s}s\"
",
        plan.site.url
    );
    for (class, weight) in plan.classes.iter().zip(weights(plan)) {
        let (name, ratio) = (&class.name, class.ratio);
        let waiting = match share {
            // The papers' gateways serve each class in the order of arrival.
            Some(_) => format!("max-wait = \"{patience_s}s\"\nqueue = {room}\norder = \"fifo\"\n"),
            // No request waits.
            None => String::new(),
        };
        let due = match share {
            Some("weighted") => format!("weight = {weight}\n"),
            None | Some("strict") => String::new(),
            Some(_) => format!("delay-ratio = {ratio}\n"),
        };
        let _ = write!(
            text,
            "
[[class]]
name = \"{name}\"
{due}{waiting}
[[rule]]
class = \"{name}\"
header = {{ \"{}\" = \"{name}\" }}
",
            plan.field
        );
    }
    if let Some(share) = share {
        let _ = write!(text, "\n[admission]\nshare = \"{share}\"\n{admission}");
    }
    let _ = write!(
        text,
        "
# The site is the bottleneck, not the uplink.
[uplink]
rate = \"off\"
"
    );
    text
}

/// A class with half the delay gets twice the weight. Integers, as small as possible.
fn weights(plan: &Plan) -> Vec<u32> {
    // Divisible by all numbers to 16.
    const MOST: u32 = 720_720;
    let least = plan.classes.iter().map(|class| class.ratio).min().unwrap_or(1);
    let weights: Vec<u32> =
        plan.classes.iter().map(|class| (u64::from(MOST) * u64::from(least) / u64::from(class.ratio)) as u32).collect();
    let divisor = weights.iter().fold(0, |a, &b| greatest_common_divisor(a, b)).max(1);
    weights.into_iter().map(|weight| weight / divisor).collect()
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// A number, or a table if there are further keys.
fn resource(plan: &Plan, name: &str, window: &Window, probe: bool) -> String {
    let mut keys = format!("window = {}", window.first);
    if let Some((least, most)) = window.range {
        let _ = write!(keys, ", least = {least}, most = {most}");
    }
    if let Some(bound) = &window.bound {
        let _ = write!(keys, ", bound = \"{bound}\"");
    }
    if probe && let Some(page) = plan.pages.iter().find(|page| page.name == name) {
        let _ = write!(keys, ", probe = \"{}\"", page.target);
    }
    if keys.contains(',') { format!("{name} = {{ {keys} }}") } else { format!("{name} = {}", window.first) }
}

/// Escapes a path for a glob that matches only itself, as TOML text.
fn escaped(path: &str) -> String {
    path.chars().flat_map(|c| if "*?[]{}\\".contains(c) { vec!['\\', '\\', c] } else { vec![c] }).collect()
}

fn haproxy(plan: &Plan, listen: SocketAddr, windows: &[(String, u32)], strict: bool) -> String {
    let patience_s = patience_s(plan);
    let room = plan.users() + 100;
    let mut text = format!(
        "# Written by `serpent-lab site`.
global
    maxconn {room}

defaults
    mode http
    maxconn {room}
    timeout connect 5s
    timeout client {patience_s}s
    timeout server {patience_s}s
    timeout queue {patience_s}s
    timeout http-keep-alive {patience_s}s

frontend users
    bind {listen}
"
    );
    if strict {
        // The smallest number goes first.
        for (number, class) in plan.classes.iter().enumerate() {
            let (field, name) = (&plan.field, &class.name);
            let _ = writeln!(
                text,
                "    http-request set-priority-class int({number}) if {{ req.hdr({field}) -m str {name} }}"
            );
        }
    }
    for (name, _) in windows {
        let page = plan.pages.iter().find(|page| page.name == *name);
        let _ = writeln!(text, "    use_backend {name} if {{ path {} }}", page.map_or("/", |page| page.path()));
    }
    for (name, most) in windows {
        let _ = write!(text, "\nbackend {name}\n    server site {} maxconn {most}\n", plan.site.address);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::plan::tests::plan;

    fn written(subject: &str) -> (&'static str, String) {
        let plan = plan(&["--subject", subject, "--site", "http://127.0.0.1:8091"]);
        of(&plan, &plan.subjects[0], "127.0.0.1:8090".parse().unwrap(), None).unwrap()
    }

    fn toml(subject: &str) -> toml::Table {
        let (name, text) = written(subject);
        assert_eq!(name, "serpent.toml");
        text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn each_gateway_is_the_same_but_for_who_is_let_in() {
        let mut all = Vec::new();
        for (subject, admission) in [
            ("uncontrolled", ""),
            ("single:slots=12", "share = 'wtp'\nslots = 12"),
            ("single:slots=4,windows=gradient", "share = 'wtp'\nwindows = 'gradient'\nresources = { site = 4 }"),
            (
                "multi:cpu=2,disk=4,db=8,share=mdp,delay-window=60s",
                "share = 'mdp'\ndelay-window = '60s'\nresources = { cpu = 2, disk = 4, db = 8 }",
            ),
            (
                "multi:cpu=2/1-64@205ms,disk=4@1s,db=8@2s,windows=probe,probe-after=10s",
                "share = 'wtp'\nwindows = 'probe'\nprobe-after = '10s'\nresources = { \
                 cpu = { window = 2, least = 1, most = 64, bound = '205ms', probe = '/cpu.php' }, \
                 disk = { window = 4, bound = '1s', probe = '/disk.php' }, db = { window = 8, bound = '2s', probe = '/db.php' } }",
            ),
            (
                "multi:cpu=2/1-9,disk=4,db=8,windows=knee",
                "share = 'wtp'\nwindows = 'knee'\nresources = { cpu = { window = 2, least = 1, most = 9 }, disk = 4, db = 8 }",
            ),
        ] {
            let mut table = toml(subject);
            let wanted: toml::Table = admission.parse().unwrap();
            let written = table.remove("admission").unwrap_or(toml::Value::Table(toml::Table::new()));
            assert_eq!(written.as_table(), Some(&wanted), "{subject}");
            // Without windows by resource, pages have no resource.
            let routes = table["site"][0]["route"].as_array().unwrap();
            let resources: Vec<_> = routes.iter().map(|route| Some(route.get("resource")?.as_str().unwrap())).collect();
            let wanted = match admission.contains("resources") {
                false => [None; 3],
                true if subject.starts_with("single") => [Some("site"); 3],
                true => ["cpu", "disk", "db"].map(Some),
            };
            assert_eq!(resources, wanted, "{subject}");
            table.remove("site");
            // Without waiting requests, classes need no settings of delay.
            for class in table["class"].as_array_mut().unwrap() {
                for key in ["delay-ratio", "max-wait", "queue", "order"] {
                    let value = class.as_table_mut().unwrap().remove(key);
                    assert_eq!(value.is_some(), subject != "uncontrolled", "{subject}: {key}");
                }
            }
            all.push(table);
        }
        assert!(all.iter().all(|table| *table == all[0]));
    }

    #[test]
    fn windows_that_are_adjusted_can_be_asked_for() {
        for subject in ["multi:cpu=2,disk=4,db=8,windows=knee", "single:slots=4,windows=gradient"] {
            let plan = plan(&["--subject", subject]);
            assert!(plan.subjects[0].adjusts());
            let admin = "127.0.0.1:9".parse().unwrap();
            let (_, text) = of(&plan, &plan.subjects[0], "127.0.0.1:8090".parse().unwrap(), Some(admin)).unwrap();
            let table: toml::Table = text.parse().unwrap();
            assert_eq!(table["admin"].as_str(), Some("127.0.0.1:9"));
        }
    }

    #[test]
    fn classes_say_what_their_delays_are_to_be_and_whoever_waits_less_has_more_weight() {
        let of = |table: &toml::Table, key: &str| -> Vec<Option<i64>> {
            table["class"].as_array().unwrap().iter().map(|class| class.get(key)?.as_integer()).collect()
        };
        let table = toml("single:slots=3,share=weighted");
        assert_eq!((of(&table, "weight"), of(&table, "delay-ratio")), (vec![Some(4), Some(2), Some(1)], vec![None; 3]));
        assert_eq!(weights(&plan(&["--ratios", "4,6,12"])), [3, 2, 1]);
        let table = toml("single:slots=3");
        assert_eq!((of(&table, "delay-ratio"), of(&table, "weight")), (vec![Some(1), Some(2), Some(4)], vec![None; 3]));
        assert_eq!(table["rule"][1]["header"]["x-class"].as_str(), Some("silver"));
        assert_eq!(table["default-class"].as_str(), Some("bronze"));
    }

    #[test]
    fn haproxy_has_a_backend_for_each_page() {
        let (name, text) = written("haproxy:cpu=2,disk=4,db=8");
        assert_eq!(name, "haproxy.cfg");
        assert!(text.contains("use_backend db if { path /db.php }\n"), "{text}");
        assert!(text.contains("backend disk\n    server site 127.0.0.1:8091 maxconn 4\n"), "{text}");
        assert!(!text.contains("priority"));
        let (_, text) = written("haproxy:cpu=2,disk=4,db=8,share=strict");
        assert!(text.contains("set-priority-class int(1) if { req.hdr(x-class) -m str silver }"), "{text}");
    }
}

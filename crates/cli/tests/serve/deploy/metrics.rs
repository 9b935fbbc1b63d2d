//! The metrics that rules and dashboard name, beside those that running servers export.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Instant,
};

use regex::Regex;
use serde_json::{Value, json};

use super::{accepted, list, read, yaml};
use crate::{
    gateway,
    support::{PATIENCE, certificate, curl, site},
};

/// Words that expressions may have beside metrics, labels and numbers.
const WORDS: [&str; 11] =
    ["and", "changes", "count", "histogram_quantile", "increase", "max", "min", "rate", "sum", "time", "up"];

/// Labels that Prometheus adds.
const OF_THE_SCRAPE: [&str; 2] = ["instance", "job"];

/// The series by metric; of each series its labels.
type Exported = BTreeMap<String, Vec<BTreeMap<String, String>>>;

/// Adds the series of a page of metrics.
fn add(exported: &mut Exported, page: &str) {
    let label = Regex::new(r#"(\w+)="([^"]*)""#).unwrap();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap().to_owned();
        let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
        let labels = label.captures_iter(labels).map(|it| (it[1].to_owned(), it[2].to_owned())).collect();
        exported.entry(name).or_default().push(labels);
    }
}

/// The series of a server of files with TLS and a paced uplink, and of a gateway with classes before it. `None` if curl
/// is missing.
fn exported() -> Option<Exported> {
    let site = site();
    let folder = site.path();
    certificate(folder, "site", &["site.example"]);
    let files = "listen = [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n\
         [uplink]\nrate = \"10mbit\"\n\
         [[site]]\nnames = [\"site.example\"]\nroot = \"www\"\ntls-cert = \"site.crt\"\ntls-key = \"site.key\"\n\
         https-redirect = false\n";
    fs::write(folder.join("files.toml"), files).unwrap();
    let (files, of_files) = gateway::start(&folder.join("files.toml"));
    let upstream = files.urls.iter().find(|url| url.starts_with("http://")).unwrap();

    let classes = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n[uplink]\nrate = \"10mbit\"\nshare = \"weighted\"\n\
         line = \"rack\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"{upstream}\"]\n\
         [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n\
         [[class]]\nname = \"buyers\"\nobjective = {{ p95 = \"10s\", error-rate = \"99%\" }}\n\
         [[class]]\nname = \"others\"\n[[rule]]\nclass = \"buyers\"\npath = \"/hello.txt\"\n\
         [admission.resources]\nsite = 20\n[cluster]\nstore = \"unix:///nowhere\"\nsite = \"shop\"\n"
    );
    fs::write(folder.join("gateway.toml"), classes).unwrap();
    let (before, of_classes) = gateway::start(&folder.join("gateway.toml"));
    for path in ["/hello.txt", "/big.bin"] {
        curl(&["--fail", "--output", "/dev/null", &before.url(path)])?;
    }

    let mut exported = Exported::new();
    add(&mut exported, &gateway::metrics(of_files));
    let start = Instant::now();
    loop {
        let page = gateway::metrics(of_classes);
        // They are known once the first response of the class has ended.
        if page.contains("serpent_class_objective_error_ratio{") && page.contains("serpent_class_objective_met{") {
            add(&mut exported, &page);
            return Some(exported);
        }
        assert!(start.elapsed() < PATIENCE, "no objectives in:\n{page}");
        std::thread::yield_now();
    }
}

/// Recorded values, each with its expression.
type Recorded = BTreeMap<String, String>;

fn names(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Checks an expression, and returns the labels of its result.
fn labels_of(expression: &str, exported: &Exported, recorded: &Recorded) -> BTreeSet<String> {
    let ranges = Regex::new(r"\[[^\]]*\]").unwrap();
    let grouping = Regex::new(r"\bby\s*\(([^)]*)\)").unwrap();
    let selector = Regex::new(r"([A-Za-z_:][\w:]*)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)""#).unwrap();

    let grouped: BTreeSet<_> =
        grouping.captures_iter(expression).flat_map(|it| names(&it[1]).collect::<Vec<_>>()).collect();
    let rest = ranges.replace_all(expression, "");
    let rest = grouping.replace_all(&rest, "");
    let mut known: BTreeSet<_> = OF_THE_SCRAPE.map(str::to_owned).into();
    for found in selector.captures_iter(&rest) {
        let name = &found[1];
        let series = if let Some(of) = recorded.get(name) {
            known.extend(labels_of(of, exported, recorded));
            continue;
        } else if let Some(series) = exported.get(name) {
            series
        } else {
            assert!(WORDS.contains(&name), "`{name}` is not exported:\n{expression}");
            continue;
        };
        known.extend(series.iter().flat_map(|labels| labels.keys().cloned()));
        for wanted in matcher.captures_iter(found.get(2).map_or("", |it| it.as_str())) {
            let (label, is, value) = (&wanted[1], &wanted[2], &wanted[3]);
            let mut values = series.iter().filter_map(|labels| labels.get(label));
            let has = values.any(|it| is != "=" || it == value);
            assert!(has || OF_THE_SCRAPE.contains(&label), "no {name} has {label}=\"{value}\":\n{expression}");
        }
    }
    assert!(grouped.is_subset(&known), "{grouped:?} of {known:?}:\n{expression}");
    if grouped.is_empty() { known } else { grouped }
}

/// Checks that a text names only labels that the result of its expression has.
fn assert_named(text: &str, pattern: &str, labels: &BTreeSet<String>) {
    for found in Regex::new(pattern).unwrap().captures_iter(text) {
        assert!(labels.contains(&found[1]), "no `{}` among {labels:?}: {text}", &found[1]);
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/serpent.json")).unwrap()
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().unwrap()
}

/// Expressions of a panel, each with its legend.
fn targets(panel: &Value) -> Vec<(&str, &str)> {
    let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
    targets.iter().map(|it| (it["expr"].as_str().unwrap(), it["legendFormat"].as_str().unwrap())).collect()
}

#[test]
fn rules_and_dashboard_name_only_metrics_and_labels_that_are_exported() {
    let Some(exported) = exported() else { return };
    let rules = yaml(&read("prometheus/serpent.rules.yml"));
    let rules: Vec<_> = list(&rules[0]["groups"]).iter().flat_map(|group| list(&group["rules"])).collect();
    let recorded: Recorded = rules
        .iter()
        .filter_map(|rule| Some((rule["record"].as_str()?.to_owned(), rule["expr"].as_str().unwrap().to_owned())))
        .collect();
    for rule in &rules {
        let labels = labels_of(rule["expr"].as_str().unwrap(), &exported, &recorded);
        for part in ["summary", "description"] {
            assert_named(rule["annotations"][part].as_str().unwrap_or(""), r"\$labels\.(\w+)", &labels);
        }
    }
    let dashboard = dashboard();
    let mut shown = 0;
    for (expression, legend) in panels(&dashboard).iter().flat_map(targets) {
        assert_named(legend, r"\{\{(\w+)\}\}", &labels_of(expression, &exported, &Recorded::new()));
        shown += 1;
    }
    assert!(shown > 50 && recorded.len() > 3, "{shown} {}", recorded.len());
}

#[test]
fn prometheus_reads_each_expression_of_the_dashboard() {
    let dashboard = dashboard();
    let expressions = panels(&dashboard).iter().flat_map(targets).map(|(it, _)| it.replace("$__rate_interval", "5m"));
    let rules: Vec<_> =
        expressions.enumerate().map(|(n, it)| json!({ "record": format!("panel:{n}"), "expr": it })).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    // JSON is YAML, too.
    fs::write(&file, json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string()).unwrap();
    accepted("promtool", &["check", "rules", file.to_str().unwrap()], "");
}

#[test]
fn each_panel_says_what_it_shows_in_which_unit_and_has_its_own_place() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<_> = variables.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
    assert_eq!(dashboard["schemaVersion"], 42);

    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let number = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(number("x") + number("w") <= 24, "{panel}");
        for (x, y) in (0..number("w")).flat_map(|x| (0..number("h")).map(move |y| (x, y))) {
            assert!(taken.insert((number("x") + x, number("y") + y)), "two panels in one place: {panel}");
        }
        if panel["type"] == "row" {
            continue;
        }
        let unit = [&panel["fieldConfig"]["defaults"]["unit"], &panel["options"]["yAxis"]["unit"]];
        assert!(unit.iter().any(|unit| unit.is_string()), "no unit: {panel}");
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "no description: {panel}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}");
        for (expression, _) in targets(panel) {
            let metrics = expression.matches("serpent_").count();
            for of in ["job=~\"$job\"", "instance=~\"$instance\""] {
                assert_eq!(expression.matches(of).count(), metrics, "{expression}");
            }
        }
    }
}

//! Routes, upstreams, classes, rules, slots.

use std::{collections::BTreeSet, net::SocketAddr, num::NonZeroU32, os::unix::fs::PermissionsExt as _, time::Duration};

use scheduler::{
    admission::{Late, QueueOrder, ResourceId},
    class::ClassId,
    control::Method,
    share::Policy,
};
use server::config::{
    Adjustment, AdmissionConfig, Condition, FastCgiAddress, ForwardedField, LimitBy, Origin, PathPattern, Priority,
    ProbeConfig, ResourceConfig, RouteLimit, UpstreamAddress, ValueMatch,
};

use super::*;

/// An upstream, a route to it, and a site for both.
const GATEWAY: &str = "[[upstream]]\nname = \"app\"\nservers = [\"http://127.0.0.1:3000\"]\n\
                       [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n";

/// Makes the files that the example names.
pub(super) fn files_of_the_example(folder: &Path) {
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["www", "cgi-bin"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    for (chain, key) in [("shop.crt", "shop.key"), ("gateway.crt", "gateway.key")] {
        let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
        write(chain, &made.cert.pem(), 0o644);
        write(key, &made.signing_key.serialize_pem(), 0o600);
        write("partners.pem", &made.cert.pem(), 0o644);
        write("internal.pem", &made.cert.pem(), 0o644);
    }
    write("reports", "#!/bin/sh\n", 0o755);
    write("busy.html", "<p>busy\n", 0o644);
    // `openssl passwd -apr1 -salt abcdefgh secret`
    write("users", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n", 0o600);
    write("keys", &format!("gold {}\n", "ab".repeat(32)), 0o600);
    write("session.secret", &"s".repeat(64), 0o600);
    write("admin.token", &"t".repeat(64), 0o600);
}

#[test]
fn the_example_of_a_gateway_is_served_as_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    files_of_the_example(folder.path());
    let path = folder.path().join("gateway.toml");
    fs::copy(repository("examples/gateway.toml"), &path).unwrap();
    let flags = Overrides { config: Some(path), ..Overrides::default() };
    let (config, warnings) = load_and_warn(&flags).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(warnings.is_none(), "{}", warnings.unwrap());

    let site = &config.sites[0];
    assert!(site.client_ca.is_some());
    let routes: Vec<_> = site.routes.iter().map(|route| (route.name.as_str(), route.admitted)).collect();
    assert_eq!(
        routes,
        [
            ("/api/", true),
            ("/internal/", true),
            ("^/app/(?<page>[a-z]+)$", false),
            ("/health", false),
            ("/live", false),
            ("^/reports/[0-9]{4}$", true),
            ("/static/**", false),
            ("/old", false),
            ("/cgi-bin/", true),
            ("/**/*.php", true),
            ("\\.phtml(/|$)", true),
            ("/blog", false)
        ]
    );
    let api = &site.routes[0];
    let Origin::Upstream { upstream: 0, replace_prefix, keep_host, buffer_request, buffer_response } = &api.origin
    else {
        panic!("{:?}", api.origin)
    };
    assert_eq!(
        (replace_prefix.as_deref(), *keep_host, *buffer_request, *buffer_response),
        (Some("/"), false, true, true)
    );
    assert_eq!(api.request_headers.remove, ["x-debug"]);
    assert_eq!(api.request_headers.set[0], ("x-gateway".parse().unwrap(), "serpent".parse().unwrap()));
    assert_eq!(api.request_headers.add[0].1, "1");
    assert_eq!(api.response_headers.remove.len(), 2);
    let Origin::Cgi(php) = &site.routes[9].origin else { panic!("{:?}", site.routes[9].origin) };
    assert!(php.program.is_absolute() && php.program.ends_with("www"));
    assert_eq!(php.interpreter.as_deref(), Some(Path::new("/bin/sh")));
    assert_eq!((php.timeout, php.head_bytes, php.most_running.get()), (Duration::from_secs(30), 16 * 1024, 16));
    assert_eq!(php.environment, [("LANG".to_owned(), "C.UTF-8".to_owned())]);
    assert_eq!(php.pass_environment, ["TZ"]);

    let Origin::FastCgi(fpm) = &site.routes[10].origin else { panic!("{:?}", site.routes[10].origin) };
    assert_eq!(fpm.address, FastCgiAddress::Unix("/run/php/php-fpm.sock".into()));
    assert!(fpm.root.as_ref().unwrap().ends_with("www"));
    assert_eq!(fpm.remote_root.as_deref(), Some(Path::new("/var/www/html")));
    assert_eq!((&*fpm.extensions, fpm.index.as_deref()), (&["php".into(), "phtml".into()][..], Some("index.phtml")));
    assert_eq!(fpm.environment, [("APP_ENV".to_owned(), "production".to_owned())]);
    assert_eq!((fpm.connect_timeout, fpm.idle_timeout), (Duration::from_secs(2), Duration::from_secs(30)));
    assert_eq!((fpm.head_bytes, fpm.most_running.get()), (16 * 1024, 32));
    assert_eq!((fpm.keep_connections, fpm.keep_for), (2, Duration::from_secs(1)));

    let internal = &site.routes[1].access;
    assert!(!internal.addresses.admit("192.0.2.13".parse().unwrap()));
    let require = internal.require.as_ref().unwrap();
    assert_eq!(require.basic_challenge, "Basic realm=\"shop\", charset=\"UTF-8\"");
    assert_eq!(require.requirement.users.as_deref(), Some(&["ann".to_owned(), "bob".to_owned()][..]));
    assert_eq!(require.requirement.certificates.as_deref(), Some(&[][..]), "any name");
    assert!(require.requirement.any && require.requirement.clients.is_some() && require.requirement.keys.is_some());

    let auth = internal.forward_auth.as_ref().unwrap();
    assert_eq!((auth.upstream, auth.path.as_str(), auth.copy.len()), (0, "/verify?app=shop", 2));
    let cors = site.routes[1].cors.as_ref().unwrap();
    assert_eq!((&cors.methods, cors.credentials, cors.max_age.as_secs()), (&"GET, PUT".parse().unwrap(), true, 3600));
    assert_eq!(
        (cors.headers.as_ref().unwrap(), cors.expose.as_ref().unwrap()),
        (&"x-cart".parse().unwrap(), &"x-total".parse().unwrap())
    );
    assert!(site.routes[0].cors.is_none() && site.routes[0].access.forward_auth.is_none());
    let RouteLimit::Own(limit) = site.routes[1].limit else { panic!("{:?}", site.routes[1].limit) };
    let rate = limit.rate.unwrap();
    assert_eq!((limit.by, rate.requests.get(), rate.burst.get()), (LimitBy::Key, 20, 40));
    assert_eq!((rate.window, limit.at_once.map(NonZeroU32::get)), (Duration::from_secs(1), Some(8)));
    let bytes = limit.bytes.unwrap();
    assert_eq!((bytes.bytes_per_second.get(), bytes.burst_bytes.get()), (2_000_000, 10_000_000));
    assert_eq!(site.routes[1].request_body_bytes, Some(10 * 1024 * 1024));
    let Origin::Rewrite(rewrite) = &site.routes[2].origin else { panic!("{:?}", site.routes[2].origin) };
    assert_eq!(rewrite.to_string(), "/api/page?name={page}");
    let Origin::Respond(health) = &site.routes[3].origin else { panic!("{:?}", site.routes[3].origin) };
    let (body, content_type) = health.body.as_ref().unwrap();
    assert_eq!(
        (health.status.as_u16(), &body[..], content_type),
        (200, &b"{}"[..], &"application/json".parse().unwrap())
    );

    let tried: Vec<_> = site.routes[6].try_files.iter().map(ToString::to_string).collect();
    assert_eq!(tried, ["/static/none.html"]);
    assert_eq!(site.routes[11].fallback.as_ref().unwrap().to_string(), "/blog/index.phtml{query}");

    let app = &config.upstreams[0];
    assert_eq!(app.servers[1].address, UpstreamAddress::Name("app2.internal".into(), 8443));
    assert_eq!(app.tls_name.as_deref(), Some("app.internal"));
    assert!(app.tls_certificate.is_some() && app.tls_ca.is_some() && app.tls_verify);
    assert_eq!((app.connect_timeout, app.idle_timeout), (Duration::from_secs(2), Duration::from_secs(30)));
    assert_eq!((app.total_timeout, app.keep_for), (Some(Duration::from_secs(300)), Duration::from_secs(4)));
    assert_eq!((app.keep_connections, app.most_connections.unwrap().get(), app.retries), (64, 200, 1));
    assert_eq!((app.passive.failures, app.passive.pause), (3, Duration::from_secs(10)));
    let active = app.active.as_ref().unwrap();
    assert_eq!((active.path.path(), active.statuses, active.rise, active.fall), ("/health", (200, 399), 2, 3));
    let workers = &config.upstream_workers[0];
    assert_eq!(workers.upstream, config.upstreams[1].name);
    assert!(Path::new(&workers.command[0]).is_absolute() && workers.command[0].ends_with("/reports"));
    assert_eq!((workers.command[2].as_str(), workers.processes.get()), ("unix:{socket}", 2));

    let classes = &config.classes;
    let names: Vec<_> = classes.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!((names, classes.default), (vec!["buyers", "partners", "plain"], ClassId(2)));
    let [buyers, partners, plain] = &*classes.classes else { panic!() };
    assert_eq!((buyers.given.weight, buyers.given.reserved_slots, buyers.given.most_waiting), (4, 4, 500));
    assert_eq!(buyers.given.most_wait_ns, Some(20_000_000_000));
    assert_eq!(buyers.priority, Priority::Nice(-5));
    assert_eq!(buyers.objective.mean, Some(Duration::from_millis(200)));
    assert_eq!(buyers.objective.percentile, Some((99.0, Duration::from_secs(1))));
    assert_eq!(buyers.objective.error_rate, Some(0.001));
    assert_eq!(buyers.refusal.retry_after, Some(Duration::from_secs(2)));
    assert!(buyers.refusal.page.as_ref().unwrap().ends_with("busy.html"));
    assert_eq!((partners.given.most_running, partners.given.order), (Some(8), QueueOrder::FairAmongClients));
    assert_eq!((partners.given.deadline_ns, partners.given.most_wait_ns), (None, Some(30_000_000_000)));
    assert_eq!(plain.given.order, QueueOrder::LifoUnderOverload { after_ns: 1_000_000_000 });

    let admission = &classes.admission;
    assert!(admission.enabled);
    assert_eq!((admission.policy, admission.total.unwrap().get(), admission.late), (Policy::Shared, 32, Late::Serve));
    let resources: Vec<_> = admission.resources.iter().map(|it| (it.name.as_str(), it.window.unwrap().get())).collect();
    assert_eq!(resources, [("cpu", 8), ("database", 24), ("disk", 8)], "each admitted route names what it needs");
    assert_eq!(api.resource, ResourceId(1));
    assert_eq!(classes.uplink_share, Some(Policy::Weighted));

    let rules: Vec<_> = classes.rules.iter().map(|rule| (rule.name.as_str(), rule.class.index())).collect();
    assert_eq!(rules[0], ("basket", 0));
    assert!(classes.rules[0].raises_session && !classes.rules[1].raises_session);
    assert!(
        matches!(&*classes.rules[0].conditions, [Condition::Method(methods), Condition::Path(_)] if methods.len() == 2)
    );
    let [Condition::Query(key, ValueMatch::OneOf(values)), Condition::Cookie(cookie, ValueMatch::Present)] =
        &*classes.rules[1].conditions
    else {
        panic!("{:?}", classes.rules[1].conditions)
    };
    assert_eq!((key.as_str(), values.len(), cookie.as_str()), ("campaign", 2, "customer"));
    assert!(
        matches!(&*classes.rules[2].conditions, [Condition::Client(nets), Condition::User(users)] if nets.len() == 2 && users.len() == 2)
    );
    assert!(matches!(&*classes.rules[3].conditions, [Condition::Key(levels)] if levels == &["gold", "silver"]));
    assert!(matches!(&*classes.rules[4].conditions, [Condition::Certificate(any)] if any.is_empty()));
    let reports = &classes.rules[5];
    assert_eq!(reports.resource, Some(ResourceId(2)));
    let Some(Condition::Destination(addresses)) = reports.conditions.get(1) else { panic!("{reports:?}") };
    assert_eq!(addresses, &["[::]:443".parse::<SocketAddr>().unwrap()]);
    assert!(
        matches!(reports.conditions.last(), Some(Condition::Header(name, ValueMatch::Regex(_))) if name == "accept")
    );
    assert!(
        matches!(&classes.rules[6].conditions[0], Condition::Path(paths) if matches!(paths[0], PathPattern::Regex(_)))
    );

    let keys = classes.keys.as_ref().unwrap();
    assert_eq!((keys.header.as_ref().unwrap().as_str(), keys.query.as_deref()), ("x-api-key", Some("key")));
    let session = classes.session.as_ref().unwrap();
    assert_eq!((session.cookie.as_str(), session.secure), ("shop-class", true));
    assert_eq!(session.lifetime, Duration::from_secs(1800));
    assert_eq!((classes.trusted_proxies.len(), classes.forwarded), (1, ForwardedField::XForwardedFor));
    assert!(config.admin_token.unwrap().ends_with("admin.token"));
}

#[test]
fn whole_files_in_the_documents_are_served_as_they_stand() {
    let mut found = 0;
    for document in ["README.md", "docs/guide/gateway.md"] {
        let text = fs::read_to_string(repository(document)).unwrap();
        // Indented blocks, with what separates their parts.
        let mut blocks = vec![String::new()];
        for line in text.lines() {
            match line.strip_prefix("    ") {
                Some(code) => blocks.last_mut().unwrap().extend([code, "\n"]),
                None if line.is_empty() => {}
                None => blocks.push(String::new()),
            }
        }
        for block in blocks.iter().filter(|block| block.contains("[[site]]") && block.contains("[[upstream]]")) {
            found += 1;
            let (config, warnings) = {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("serpent.toml");
                fs::write(&path, block).unwrap();
                load_and_warn(&Overrides { config: Some(path), ..Overrides::default() })
                    .unwrap_or_else(|problems| panic!("{document}\n{problems}"))
            };
            assert!(warnings.is_none(), "{document}\n{}", warnings.unwrap());
            assert!(config.classes.admission.enabled, "{document}");
        }
    }
    assert_eq!(found, 2);
}

/// Settings that exclude another setting of the example.
const NOT_IN_THE_EXAMPLE: &[&str] =
    &["class.objective.p50", "class.objective.p90", "class.objective.p95", "class.objective.p999"];

#[test]
fn the_example_of_a_gateway_has_every_setting_and_the_reference_a_row_for_each() {
    let text = fs::read_to_string(repository("examples/gateway.toml")).unwrap();
    let (raw, problems) = parse::parse(&text);
    assert_eq!(problems, []);
    let reference = fs::read_to_string(repository("docs/guide/configuration.md")).unwrap();
    let (mut shown, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (key, value) in settings(&serde_json::to_value(&raw).unwrap()) {
        if value.is_some() {
            shown.insert(key.clone());
        }
        all.insert(key);
    }
    let of_gateway = |key: &&String| {
        ["site.route", "upstream", "class", "rule", "admission", "users", "keys", "session"]
            .iter()
            .any(|section| key.starts_with(section))
    };
    for key in all.iter().filter(of_gateway) {
        let is_shown = shown.contains(key) || shown.iter().any(|it| it.starts_with(&format!("{key}.")));
        assert!(is_shown || NOT_IN_THE_EXAMPLE.contains(&key.as_str()), "examples/gateway.toml does not show `{key}`");
        if !SECTIONS.contains(&key.as_str()) {
            assert!(reference.contains(&format!("| `{key}` |")), "docs/guide/configuration.md has no row for `{key}`");
        }
    }
}

#[test]
fn every_default_of_the_gateway_stands_in_the_documents_with_its_reason() {
    let defaults = fs::read_to_string(repository("docs/DEFAULTS.md")).unwrap();
    let section = defaults.split("\n## ").find(|section| section.starts_with("The gateway\n")).unwrap();
    // Each in a file of its own, by its place.
    let plain = format!(
        "{GATEWAY}[[class]]\nname = \"a\"\n[[rule]]\nclass = \"a\"\n[keys]\nfile = \"keys\"\n[session]\n\
         [upstream.active]\npath = \"/\"\n"
    );
    let load = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        files_of_the_example(folder.path());
        fs::write(folder.path().join("serpent.toml"), text).unwrap();
        let flags = Overrides { config: Some(folder.path().join("serpent.toml")), ..Overrides::default() };
        let config = super::load(&flags).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        format!("{config:#?}").replace(&folder.path().display().to_string(), "")
    };
    let mut rows = 0;
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let Some((key, rest)) = row.split_once("` | ") else { continue };
        let value = rest.split_once(" | ").unwrap().0.trim_matches('`');
        // One in words depends on others; the general example has those of admission.
        if !rest.starts_with('`') || key.starts_with("admission.") || key == "site.route.resource" {
            continue;
        }
        rows += 1;
        let written = match value {
            "true" | "false" => value.to_owned(),
            list if list.starts_with('[') => list.to_owned(),
            _ => format!("\"{value}\""),
        };
        let (with, without) = with_setting(&plain, key, &written);
        assert_eq!(load(&with), load(&without), "`{key}` is not `{value}` by default");
    }
    assert!(rows > 40, "{rows} rows were found");
}

#[test]
fn a_configuration_without_classes_has_the_defaults_of_one_that_names_a_class() {
    let gateway = format!("{GATEWAY}[admission]\nslots = 1\n");
    let classes = |text: &str| load_text(text).unwrap_or_else(|problems| panic!("{text}\n{problems}")).classes;
    let implied = classes(&gateway);
    let written = classes(&format!("{gateway}[[class]]\nname = \"default\"\n"));
    assert_eq!(format!("{implied:#?}"), format!("{written:#?}"));
    assert_eq!(implied.classes[0].given.most_wait_ns, Some(30_000_000_000), "as docs/DEFAULTS.md says");
}

/// The file with a setting in it, and the same without.
fn with_setting(plain: &str, key: &str, written: &str) -> (String, String) {
    let (section, name) = key.rsplit_once('.').unwrap();
    let line = format!("{name} = {written}\n");
    let after = |header: &str| {
        assert!(plain.contains(header), "{header}");
        (plain.replacen(header, &format!("{header}{line}"), 1), plain.to_owned())
    };
    match section {
        "site.route" => after("path = \"/\"\nupstream = \"app\"\n"),
        "site.route.cgi" => {
            let cgi = |more: &str| {
                format!("[[site]]\n[[site.route]]\npath = \"/\"\n[site.route.cgi]\nprogram = \"cgi-bin\"\n{more}")
            };
            (cgi(&line), cgi(""))
        }
        "site.route.fastcgi" => {
            let fastcgi = |more: &str| {
                let table = "[site.route.fastcgi]\naddress = \"127.0.0.1:9000\"\n";
                format!("[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\n{table}{more}")
            };
            (fastcgi(&line), fastcgi(""))
        }
        "site.route.limit" => {
            let limit = |more: &str| format!("{GATEWAY}[site.route.limit]\nrate = \"1/s\"\n{more}");
            (limit(&line), limit(""))
        }
        "site.route.forward-auth" | "site.route.cors" => {
            let table = |more: &str| {
                let needed = if section.ends_with("cors") { "origins" } else { "upstream" };
                let value = if section.ends_with("cors") { "https://app.example" } else { "app" };
                format!("{GATEWAY}[{section}]\n{needed} = \"{value}\"\n{more}")
            };
            (table(&line), table(""))
        }
        "site.route.require" => {
            let require = |more: &str| {
                format!(
                    "[users]\nfile = \"users\"\n[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\n\
                     [site.route.require]\nuser = true\n{more}"
                )
            };
            (require(&line), require(""))
        }
        "upstream" => after("servers = [\"http://127.0.0.1:3000\"]\n"),
        "upstream.active" => after("[upstream.active]\n"),
        "upstream.workers" => {
            let workers = |more: &str| {
                format!(
                    "[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"w\"\n[[upstream]]\nname = \"w\"\n\
                         [upstream.workers]\ncommand = [\"/bin/sh\", \"{{socket}}\"]\n{more}"
                )
            };
            (workers(&line), workers(""))
        }
        "class" => after("[[class]]\nname = \"a\"\n"),
        "rule" => after("[[rule]]\nclass = \"a\"\n"),
        "keys" => after("[keys]\nfile = \"keys\"\n"),
        "session" => after("[session]\n"),
        "upstream.passive" | "class.objective" | "class.refuse" => {
            let (parent, table) = section.split_once('.').unwrap();
            let line = format!("{table} = {{ {name} = {written} }}\n");
            let header = if parent == "class" { "[[class]]\nname = \"a\"\n" } else { "name = \"app\"\n" };
            (plain.replacen(header, &format!("{header}{line}"), 1), plain.to_owned())
        }
        other => panic!("where `{other}` stands is not known here"),
    }
}

#[test]
fn one_flag_makes_a_gateway() {
    let upstream = |text: &str| values::upstream_server(text).unwrap();
    let flags = Overrides {
        upstream: vec![upstream("http://127.0.0.1:3000"), upstream("unix:/run/app.sock")],
        slots: Some(values::limit_or_off("20").unwrap()),
        ..Overrides::default()
    };
    let config = load(&flags).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((config.sites.len(), config.sites[0].root.as_ref()), (1, None));
    let route = &config.sites[0].routes[0];
    assert!(matches!(&route.pattern, PathPattern::Prefix(all) if all == "/"));
    assert!(matches!(route.origin, Origin::Upstream { upstream: 0, keep_host: true, .. }));
    assert!(route.admitted);
    assert_eq!(config.upstreams[0].servers.len(), 2);
    assert!(config.classes.admission.enabled);
    assert_eq!(config.classes.admission.total.unwrap().get(), 20);
    assert_eq!(config.classes.classes.len(), 1);

    let (_, said) = load_with(GATEWAY, flags).unwrap_err();
    assert!(said.contains("--upstream cannot be given: the file has sites"), "{said}");
    let slots = Overrides { slots: Some(values::limit_or_off("7").unwrap()), ..Overrides::default() };
    let config =
        load_with(&format!("{GATEWAY}[admission]\nslots = 3\n"), slots).unwrap_or_else(|(_, said)| panic!("{said}"));
    assert_eq!(config.classes.admission.total.unwrap().get(), 7, "flags go before the file");
}

#[test]
fn without_classes_all_are_one_and_nobody_waits() {
    let config = load_text(GATEWAY).unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(format!("{:?}", config.classes), format!("{:?}", server::config::Classes::one()));
    let route = &config.sites[0].routes[0];
    assert_eq!((route.resource, route.admitted), (ResourceId(0), true));
}

#[test]
fn a_resource_for_whoever_names_none_is_there_only_if_somebody_names_none() {
    let resources = |text: &str| -> Vec<String> {
        let config = load_text(text).unwrap_or_else(|said| panic!("{said}"));
        config.classes.admission.resources.iter().map(|resource| resource.name.clone()).collect()
    };
    let cpu = "[admission]\nresources = { disk = 2, cpu = 3 }\n";
    assert_eq!(resources(&format!("{GATEWAY}{cpu}")), ["site", "disk", "cpu"]);
    assert_eq!(resources(&format!("{GATEWAY}resource = \"cpu\"\n{cpu}")), ["disk", "cpu"]);
    assert_eq!(resources(&format!("{GATEWAY}{}", cpu.replace("disk", "site"))), ["site", "cpu"]);
}

#[test]
fn a_resource_says_how_it_is_adjusted_and_probed() {
    let admission = "[admission]\nwindows = \"probe\"\nprobe-every = \"2s\"\nprobe-after = \"0s\"\nshrink-above = 3\n\
                     grow-below = -5\n[admission.resources]\noff = { window = \"off\" }\nplain = { window = 5000 }\n\
                     [admission.resources.disk]\nwindow = 4\nleast = 2\nmost = 16\nbound = \"120ms\"\nprobe = \"/disk?n=1\"\n\
                     host = \"shop.example:81\"\n";
    let probed = admission.replace("plain = { window = 5000 }\n", "");
    let config = load_text(&format!("{GATEWAY}{probed}")).unwrap_or_else(|said| panic!("{said}"));
    let AdmissionConfig { enabled, resources, adjustment, .. } = config.classes.admission;
    assert!(enabled);
    let expected = Adjustment {
        method: Method::Probe,
        probe_every: Duration::from_secs(2),
        probe_after: Duration::ZERO,
        shrink_above: 3,
        grow_below: -5,
    };
    assert_eq!(adjustment, expected);
    let slots = |number| NonZeroU32::new(number).unwrap();
    let disk = ResourceConfig {
        window: Some(slots(4)),
        least: slots(2),
        most: slots(16),
        bound: Some(Duration::from_millis(120)),
        probe: Some(ProbeConfig {
            upstream: 0,
            path: "/disk?n=1".parse().unwrap(),
            host: Some("shop.example:81".parse().unwrap()),
        }),
        ..ResourceConfig::new("disk", None)
    };
    assert_eq!(resources, [ResourceConfig::new("site", None), ResourceConfig::new("off", None), disk]);
    let said = said_of(&format!("{GATEWAY}{admission}"));
    assert!(said.contains("which page probes this resource"), "{said}");
    let config = load_text(&format!("{GATEWAY}{}", admission.replace("\"probe\"", "\"knee\"")));
    let plain = &config.unwrap_or_else(|said| panic!("{said}")).classes.admission.resources[2];
    assert_eq!((plain.least, plain.most), (slots(1), slots(5000)), "a first window is always allowed");
}

/// One mistake each, after a gateway of eight lines, and the line and column it is shown at with a part of what is said.
const BROKEN: &[(&str, &str, &str)] = &[
    // Routes.
    ("[[site.route]]\npath = \"/api\"\nupstream = \"app\"\n", ":9:8", "no request reaches this route: `/` before it"),
    ("[[upstream]]\nname = \"app\"\nservers = [\"http://a\"]\n", ":9:8", "there are two upstreams `app`"),
    ("replace-prefix = \"x\"\n", ":8:18", "a path starts with `/`"),
    ("replace-prefix = \"/x\"\n", ":8:18", "do not end alike"),
    ("request-headers = { set = { \"X Y\" = \"a\" } }\n", ":8:29", "is not the name of a header field"),
    ("request-headers = { set = { \"X\" = \"a\\n\" } }\n", ":8:35", "a header cannot hold"),
    ("request-headers = { remove = [\"Connection\"] }\n", ":8:31", "says how a message is framed"),
    ("request-headers = { set = { Host = \"a\" } }\n", ":8:29", "set `keep-host`"),
    ("response-headers = { add = { Trailer = \"a\" } }\n", ":8:30", "says how a message is framed"),
    ("resource = \"cpu\"\n", ":8:12", "there is no resource `cpu`"),
    ("files = true\n", ":8:9", "a route leads to one place"),
    ("redirect = \"/x\"\n", ":8:12", "a route leads to one place"),
    ("redirect-status = 308\n", ":8:19", "this route has none"),
    ("path-glob = \"/*\"\n", ":8:13", "a route has one pattern"),
    ("upstrem = \"x\"\n", ":8:1", "did you mean `upstream`?"),
    // Access.
    ("allow = [\"10.0.0.1/8\"]\n", ":8:10", "is an address within a network"),
    ("allow = [\"::1\"]\ndeny = [\"10.0.0.0/8\", \"::1\"]\n", ":9:23", "`::1` is both allowed and denied"),
    ("forward-auth = { upstream = \"apps\" }\n", ":8:29", "did you mean `app`?"),
    ("forward-auth = { path = \"/a\" }\n", ":8:16", "this table has no `upstream`"),
    ("forward-auth = { upstream = \"app\", path = \"verify\" }\n", ":8:43", "`verify` is no path"),
    ("forward-auth = { upstream = \"app\", copy-headers = \"Host\" }\n", ":8:51", "is not changed by rules"),
    ("forward-auth = \"app\"\n", ":8:16", "`app` is no value of `forward-auth`"),
    ("cors = { methods = \"PUT\" }\n", ":8:8", "this table names no origin"),
    ("cors = { origins = \"https://a/\" }\n", ":8:20", "`https://a/` is no origin"),
    ("cors = { origins = [\"https://a\", \"*\"] }\n", ":8:34", "`*` stands for all origins"),
    ("cors = { origins = \"*\", credentials = true }\n", ":8:39", "no browser sends passwords"),
    ("cors = { origins = \"*\", methods = \"A B\" }\n", ":8:35", "`A B` is no method"),
    ("cors = { origins = \"*\", max-age = \"long\" }\n", ":8:35", "is not a duration"),
    ("require = { user = true }\n", ":8:20", "nobody has a password"),
    ("require = { key = \"gold\" }\n", ":8:19", "there are no keys"),
    ("require = { certificate = true }\n", ":8:27", "clients are not asked for a certificate"),
    ("require = { client = true }\n", ":8:22", "takes a text or a list of texts"),
    ("require = { client = \"::1\", satisfy = \"one\" }\n", ":8:39", "`one` is neither `all` nor `any`"),
    ("require = { client = \"::1\", realm = \"a\" }\n", ":8:37", "`realm` has no effect"),
    ("require = { satisfy = \"any\" }\n", ":8:11", "this table requires nothing"),
    ("require = { usr = true }\n", ":8:13", "did you mean `user`?"),
    ("require = \"on\"\n", ":8:11", "`on` is no value of `require`"),
    ("require = true\n", ":8:11", "expected \"off\" or a table"),
    // Limits.
    ("limit = \"10/s\"\n", ":8:9", "`10/s` is no value of `limit`"),
    ("limit = { rate = \"10\" }\n", ":8:18", "`10` is not a rate of requests"),
    ("limit = { rate = \"0/s\" }\n", ":8:18", "`0/s` is not a rate of requests"),
    ("limit = { rate = \"1/d\" }\n", ":8:18", "`1/d` is not a rate of requests"),
    ("limit = { rate = \"1/s\", burst = 0 }\n", ":8:33", "from 1 to 1000000"),
    ("limit = { at-once = 0 }\n", ":8:21", "from 1 to 1000000"),
    ("limit = { at-once = 1, burst = 3 }\n", ":8:32", "`burst` is about a rate"),
    ("limit = { at-once = 1, by = \"host\" }\n", ":8:29", "`host` is not one of `client`, `key`, `class`"),
    ("limit = { at-once = 1, by = \"key\" }\n", ":8:29", "there are no keys"),
    ("limit = { bytes = \"1MB\" }\n", ":8:19", "`1MB` is not a rate of bytes"),
    ("limit = { bytes = \"0B/s\" }\n", ":8:19", "`0B/s` is not a rate of bytes"),
    ("limit = { at-once = 1, bytes-burst = \"1MB\" }\n", ":8:38", "`bytes-burst` is about bytes"),
    ("limit = { by = \"class\" }\n", ":8:9", "this table limits nothing"),
    ("request-body = \"lots\"\n", ":8:16", "`lots` is not a size"),
    ("rewrite = \"/x\"\n", ":8:11", "a route leads to one place"),
    ("respond = 200\n", ":8:11", "a route leads to one place"),
    ("respond-body = \"x\"\n", ":8:16", "is about `respond`, and this route has none"),
    // Classes.
    ("[[class]]\nweight = 2\n", ":8:1", "this class has no `name`"),
    ("[[class]]\nname = \"a b\"\n", ":9:8", "cannot be a name here"),
    ("[[class]]\nname = \"a\"\nweight = 0\n", ":10:10", "from 1 to"),
    ("[[class]]\nname = \"a\"\norder = \"sjf\"\n", ":10:9", "`sjf` is not an order"),
    ("[[class]]\nname = \"a\"\ncpu-priority = \"rr 100\"\n", ":10:16", "is not a priority"),
    (
        "[[class]]\nname = \"a\"\nobjective = { p95 = \"1s\", p99 = \"2s\" }\n",
        ":10:33",
        "an objective has one percentile",
    ),
    ("[[class]]\nname = \"a\"\nobjective = { error-rate = 1 }\n", ":10:28", "give percent"),
    ("[[class]]\nname = \"a\"\nrefuse = { status = 200 }\n", ":10:21", "is not a status for a refusal"),
    ("[[class]]\nname = \"a\"\nrefuse = { page = \"none.html\" }\n", ":10:19", "`none.html` does not exist"),
    ("default-class = \"x\"\n", ":8:1", "there is no setting `default-class` in `[[site.route]]`"),
    // Rules.
    ("[[rule]]\npath = \"/a\"\n", ":8:1", "this rule has no `class`"),
    ("[[rule]]\nclass = \"gold\"\n", ":9:9", "there is no class `gold`"),
    ("[[rule]]\nclass = \"defualt\"\n", ":9:9", "did you mean `default`?"),
    ("[[rule]]\nclass = \"default\"\npath = []\n", ":10:8", "an empty list matches nothing"),
    ("[[rule]]\nclass = \"default\"\npath = true\n", ":10:8", "takes a text or a list of texts"),
    ("[[rule]]\nclass = \"default\"\nmethod = \"get\"\n", ":10:10", "write `GET`"),
    ("[[rule]]\nclass = \"default\"\nclient = [\"10.0.0.1/8\"]\n", ":10:11", "write `10.0.0.0/8`"),
    ("[[rule]]\nclass = \"default\"\npath-glob = \"*.php\"\n", ":10:13", "`**/*.php`"),
    ("[[rule]]\nclass = \"default\"\npath-regex = \"(\"\n", ":10:14", "cannot be read"),
    ("[[rule]]\nclass = \"default\"\nextension = \"tar.gz\"\n", ":10:13", "is not a file extension"),
    ("[[rule]]\nclass = \"default\"\ncookie = { id = false }\n", ":10:17", "cannot ask that something is not there"),
    (
        "[[rule]]\nclass = \"default\"\nheader = { A = { regexp = \"a\" } }\n",
        ":10:18",
        "there is no setting `regexp` here",
    ),
    ("[[rule]]\nclass = \"default\"\nheader = { A = { regex = \"[\" } }\n", ":10:26", "cannot be read"),
    ("[[rule]]\nclass = \"default\"\nuser = true\n", ":10:8", "nobody has a password"),
    ("[[rule]]\nclass = \"default\"\nkey = \"gold\"\n", ":10:7", "there are no keys"),
    ("[[rule]]\nclass = \"default\"\ncertificate = true\n", ":10:15", "clients are not asked for a certificate"),
    ("[[rule]]\nclass = \"default\"\nraises-session = true\n", ":10:18", "there are no sessions to raise"),
    ("[[rule]]\nclass = \"default\"\nresource = \"cpu\"\n", ":10:12", "there is no resource `cpu`"),
    (
        "[[rule]]\nclass = \"default\"\n[[rule]]\nclass = \"default\"\n",
        ":11:9",
        "no request reaches this rule: `rule 1`",
    ),
    (
        "[[rule]]\nclass = \"default\"\nname = \"a\"\nhost = \"b\"\n[[rule]]\nclass = \"default\"\nname = \"a\"\n",
        ":14:8",
        "there are two rules `a`",
    ),
    // Slots.
    ("[admission]\nshare = \"fair\"\n", ":9:9", "`fair` is not one of `strict`"),
    ("[admission]\nslots = 0\n", ":9:9", "from 1 to"),
    ("[admission]\nshare = \"shared\"\n", ":9:9", "there is no number of them"),
    ("[admission]\nresources = { \"a b\" = 3 }\n", ":9:15", "cannot be a name here"),
    ("[admission]\nresources = { cpu = \"many\" }\n", ":9:21", "or `off`"),
    ("[admission]\nresources = { cpu = [3] }\n", ":9:21", "a number of requests"),
    ("[admission]\nresources = { cpu = { windw = 3 } }\n", ":9:23", "there is no setting `windw` here"),
    ("[admission]\nresources = { cpu = { window = 0 } }\n", ":9:32", "from 1 to"),
    ("[admission]\nresources = { cpu = { window = 3, least = 4 } }\n", ":9:32", "is not from 4 to 1000"),
    ("[admission]\nresources = { cpu = { window = 3, most = 2 } }\n", ":9:32", "is not from 1 to 2"),
    ("[admission]\nresources = { cpu = { least = 3, most = 2 } }\n", ":9:31", "is more than the most, 2"),
    ("[admission]\nresources = { cpu = { most = \"off\" } }\n", ":9:30", "is no limit"),
    ("[admission]\nresources = { cpu = { probe = \"a\" } }\n", ":9:31", "is not a path"),
    ("[admission]\nresources = { cpu = { probe = \"/a\", upstream = \"b\" } }\n", ":9:48", "no upstream `b`"),
    ("[admission]\nresources = { cpu = { probe = \"/a\", host = \"http://b\" } }\n", ":9:44", "is not a host"),
    (
        "[admission]\nresources = { cpu = { probe = \"/a\" } }\n[[upstream]]\nname = \"b\"\nservers = [\"http://b\"]\n",
        ":9:31",
        "not said which upstream",
    ),
    ("[admission]\nwindows = \"aimd\"\n", ":9:11", "`aimd` is not one of `fixed`"),
    ("[admission]\nwindows = \"probe\"\nresources = { cpu = 3 }\n", ":10:21", "which page probes this resource"),
    (
        "[admission]\nwindows = \"probe\"\nresources = { cpu = { window = 3, probe = \"/a\" } }\n",
        ":10:21",
        "there is no bound",
    ),
    ("[admission]\nshrink-above = -1\n", ":9:16", "from 0 to 1000"),
    ("[admission]\ngrow-below = 1\n", ":9:14", "from -1000 to 0"),
    (
        "[admission]\nshare = \"shared\"\nwindows = \"knee\"\nresources = { cpu = { window = 6, least = 2 } }\nslots = 9\n\
         [[class]]\nname = \"a\"\nreserved = 2\n[[class]]\nname = \"b\"\n",
        ":15:12",
        "the reserves leave no slot of `cpu`",
    ),
    (
        "[admission]\nshare = \"shared\"\nslots = 2\n[[class]]\nname = \"a\"\nreserved = 2\n[[class]]\nname = \"b\"\n\
         [[rule]]\nclass = \"a\"\nhost = \"a\"\n",
        ":13:12",
        "the reserves of the classes leave no slot",
    ),
    ("[uplink]\nshare = \"half\"\n", ":9:9", "or `off`"),
    ("[uplink]\nshare = \"weighted\"\nenforce = \"kernel\"\n", ":9:9", "the kernel's bands keep a strict order"),
    (
        "[uplink]\nshare = \"shared\"\n[[class]]\nname = \"a\"\nreserved = 2\n[[class]]\nname = \"b\"\n\
         [[rule]]\nclass = \"a\"\nhost = \"a\"\n",
        ":12:12",
        "the reserves leave nothing of the uplink",
    ),
    // Users, keys, sessions and certificates.
    ("[users]\n", ":8:1", "`[users]` has no `file`"),
    ("[users]\nfile = \"none\"\n", ":9:8", "`none` does not exist"),
    ("[keys]\nfile = \"www\"\n", ":9:8", "is not a file"),
    ("[keys]\nfile = \"serpent.toml\"\nheader = \"off\"\n", ":10:10", "neither in a header nor in the query"),
    ("[session]\ncookie = \"a b\"\n", ":9:10", "is not the name of a cookie"),
    ("[session]\nlifetime = \"0s\"\n", ":9:12", "above zero"),
    ("[session]\nsecret = \"short\"\n", ":9:10", "too short: 5 bytes"),
    ("[limits]\nbody-directory = \"none\"\n", ":9:18", "`none` does not exist"),
];

#[test]
fn every_kind_of_mistake_about_a_gateway_is_found_at_its_place() {
    for (text, place, part) in BROKEN {
        let said = said_of(&format!("{GATEWAY}{text}"));
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert_eq!(said.matches("error: ").count(), 1, "one mistake is one problem:\n{said}");
    }
}

/// Everything that is said of a file, mistakes or not; beside it are a directory `www` and some files.
fn said_of(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    for (name, text, mode) in
        [("short", "12345", 0o600), ("open", &*"o".repeat(32), 0o644), ("tool", "", 0o644), ("line", "gold x\n", 0o600)]
    {
        fs::write(folder.path().join(name), text).unwrap();
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = folder.path().join("serpent.toml");
    fs::write(&path, text).unwrap();
    let said = match load_and_warn(&Overrides { config: Some(path), ..Overrides::default() }) {
        Ok((_, warnings)) => warnings.map(|warnings| warnings.to_string()).unwrap_or_default(),
        Err(problems) => problems.to_string(),
    };
    said.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn mistakes_about_upstreams() {
    let upstream =
        |text: &str| format!("[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n[[upstream]]\n{text}");
    for (text, place, part) in [
        ("servers = [\"http://a\"]\n", ":5:1", "this upstream has no `name`"),
        ("name = \"app\"\n", ":5:1", "this upstream has no server"),
        ("name = \"ap\"\nservers = [\"http://a\"]\n", ":4:12", "did you mean `ap`?"),
        ("name = \"app\"\nservers = [\"a:80\"]\n", ":7:12", "write `http://a:80`, or `https://` for TLS"),
        ("name = \"app\"\nservers = [\"http://a\", \"http://A\"]\n", ":7:24", "this server is given twice"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\ntls-verify = false\n",
            ":8:14",
            "no server of this upstream speaks it",
        ),
        ("name = \"app\"\nservers = [\"https://a\"]\ntls-cert = \"c\"\n", ":8:12", "this certificate has no key"),
        ("name = \"app\"\nservers = [\"https://a\"]\ntls-ca = \"c\"\n", ":8:10", "`c` does not exist"),
        ("name = \"app\"\nservers = [\"https://a\"]\ntls-ca = \"tool\"\n", ":8:10", "no certificate in `tool`"),
        ("name = \"app\"\nservers = [\"http://a\"]\nretries = -1\n", ":8:11", "or `off`"),
        ("name = \"app\"\nservers = [\"http://a\"]\nresponse-head = \"1GiB\"\n", ":8:17", "from 1KiB to 1MiB"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nactive = { every = \"1s\" }\n",
            ":8:10",
            "active checks need a `path`",
        ),
        ("name = \"app\"\nservers = [\"http://a\"]\nactive = { path = \"a\" }\n", ":8:19", "is not a path"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nactive = { path = \"/\", statuses = \"2xx\" }\n",
            ":8:35",
            "range of statuses",
        ),
        ("name = \"app\"\nworkers = { processes = 2 }\n", ":7:11", "these workers have no `command`"),
        ("name = \"app\"\nworkers = { command = [] }\n", ":7:23", "the command is empty"),
        ("name = \"app\"\nworkers = { command = [\"/bin/sh\"] }\n", ":7:23", "where to listen"),
        ("name = \"app\"\nworkers = { command = [\"/bin/sh\", \"{sockt}\"] }\n", ":7:35", "did you mean `{socket}`?"),
        ("name = \"app\"\nworkers = { command = [\"./tool\", \"{port}\"] }\n", ":7:24", "chmod +x"),
        ("name = \"app\"\nworkers = { command = [\"no-such-tool\", \"{port}\"] }\n", ":7:24", "in the folders of PATH"),
        (
            "name = \"app\"\nworkers = { command = [\"/bin/sh\", \"{port}\"] }\nservers = [\"http://a\"]\n",
            ":8:12",
            "exclude each other",
        ),
        (
            "name = \"app\"\nworkers = { command = [\"/bin/sh\", \"{port}\"], environment = { \"A=B\" = \"\" } }\n",
            ":7:62",
            "cannot be a variable",
        ),
    ] {
        let said = said_of(&upstream(text));
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert_eq!(said.matches("error: ").count(), 1, "one mistake is one problem:\n{said}");
    }
}

#[test]
fn mistakes_about_routes_without_an_upstream() {
    for (text, place, part) in [
        ("[[site]]\n[[site.route]]\nfiles = true\n", ":2:1", "this route has no `path`"),
        ("[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\n", ":3:1", "this route leads nowhere"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nfiles = true\n", ":4:9", "this site has no files"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"{url}\"\n", ":4:12", "there is no `{url}`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"//b\"\n", ":4:12", "leaves open where"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/a\"\nredirect-status = 304\n",
            ":5:19",
            "`304` is no status of a redirect",
        ),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 200 = \"/a\" }\n", ":3:17", "`200` is no status of an error"),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"a\" }\n", ":3:23", "a path starts with `/`"),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"/none\" }\n", ":3:23", "does not exist"),
        (
            "[[site]]\nerror-pages = { 404 = \"/a\" }\n[[site.route]]\npath = \"/\"\nrespond = 200\n",
            ":2:23",
            "no files for its errors",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\ntry-files = [\"/{1}\"]\n",
            ":6:14",
            "there is no `{1}`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 200\ntry-files = [\"/a\"]\n",
            ":5:14",
            "`try-files` is about files",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/{1}\"\n", ":4:12", "there is no `{1}`"),
        ("[[site]]\n[[site.route]]\npath-regex = \"a(b)\"\nredirect = \"/{2}\"\n", ":4:12", "there is no `{2}`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrewrite = \"https://a/\"\n", ":4:11", "is no path of this site"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrewrite = \"/{x}\"\n", ":4:11", "there is no `{x}`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 99\n", ":4:11", "`99` is no status of an answer"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 301\n", ":4:11", "use `redirect`"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 204\nrespond-body = \"a\"\n",
            ":5:16",
            "an answer of status 204 has no body",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 200\nrequest-body = \"1KiB\"\n",
            ":4:11",
            "a request that is answered at once goes to no origin",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/a\"\nadmitted = true\n",
            ":5:12",
            "a redirect never waits for a slot",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/a\"\nrequest-headers = { remove = [\"X\"] }\n",
            ":4:12",
            "a redirected request goes to no origin",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nkeep-host = true\n",
            ":6:13",
            "is about an upstream",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nadmitted = true\n",
            ":6:12",
            "files never wait for a slot",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nresource = \"site\"\n",
            ":6:12",
            "files never wait for a slot",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nearly-hints = true\n",
            ":6:15",
            "files never wait for a slot",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nmaintenance = false\n",
            ":6:15",
            "its site is never closed",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = \"none\"\n", ":4:7", "does not exist"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = \"tool\"\n", ":4:7", "may not be run"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = { timeout = \"1s\" }\n", ":4:7", "this table has no `program`"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\ncgi = { program = \"www\", interpretr = \"/bin/sh\" }\n",
            ":4:26",
            "did you mean `interpreter`?",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\ncgi = { program = \"www\", max-running = 0 }\n",
            ":4:40",
            "from 1 to",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = 3\n", ":4:7", "a directory or program, or a table"),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\ncgi = \"www\"\n[[site.route]]\npath = \"/a/\"\ncgi = \"www\"\n",
            ":6:8",
            "`/a` before it takes them all",
        ),
        (
            "[[site]]\n[[site.route]]\npath-glob = \"/*\"\ncgi = \"www\"\n[[site.route]]\npath-glob = \"/*\"\ncgi = \"www\"\n",
            ":6:13",
            "takes them all",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = 3\n",
            ":5:11",
            "the address of an application",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = \"127.0.0.1:9000\"\n",
            ":4:11",
            "nothing says where the scripts are",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = { root = \"www\" }\n", ":4:11", "has no `address`"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"[::1]:1\", root = \"none\" }\n",
            ":4:41",
            "does not exist",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"[::1]:1\", remote-root = \"www\" }\n",
            ":4:48",
            "begin with `/`",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"a:1\", extensions = [] }\n",
            ":5:11",
            "no file is a script",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"a:1\", extensions = \"*\" }\n",
            ":5:43",
            "not the extension of a script",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"a:1\", index = \"index.html\" }\n",
            ":5:38",
            "not the name of a script",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\ncgi = \"www\"\nfallback = \"/a\"\n",
            ":6:12",
            "about files that are missing",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nfallback = \"a\"\n",
            ":6:12",
            "no path of this site",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nfallback = \"/a\"\ntry-files = \"/b\"\n",
            ":7:13",
            "no effect beside `fallback`",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath-glob = \"/*.php\"\nfastcgi = \"a:1\"\n[[site.route]]\n\
             path = \"/\"\nfiles = true\ntry-files = [\"/index.php{query}\"]\n",
            ":9:14",
            "write `fallback = \"/index.php{query}\"`",
        ),
        (
            "[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"/tool.php\" }\n[[site.route]]\npath = \"/\"\nfastcgi = \"a:1\"\n",
            ":3:23",
            "an error page is a file",
        ),
        ("[[site]]\nroot = \"www\"\nclient-ca = \"www\"\n", ":3:13", "over TLS only"),
    ] {
        let said = said_of(text);
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
    }
    let said = said_of(
        "[[site]]\n[[site.route]]\npath = \"/a/\"\ncgi = \"www\"\n[[site.route]]\npath = \"/a\"\ncgi = \"www\"\n\
         [[site.route]]\npath = \"/ab\"\ncgi = \"www\"\n[[site.route]]\npath = \"/\"\ncgi = \"www\"\n",
    );
    assert_eq!(said, "", "none of these takes all that another matches");
}

#[test]
fn what_hardly_was_meant_is_told_and_served() {
    for (text, place, part) in [
        ("[[upstream]]\nname = \"b\"\nservers = [\"http://b\"]\n", ":9:8", "no route leads to the upstream `b`"),
        ("[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\n", ":9:8", "no request is of class `a`"),
        ("[[class]]\nname = \"a\"\ndeadline = \"1s\"\n", ":10:12", "`deadline` has no effect"),
        ("[[class]]\nname = \"a\"\nreserved = 2\n", ":10:12", "`reserved` has no effect"),
        ("[[class]]\nname = \"a\"\nweight = 2\n", ":10:10", "`weight` has no effect"),
        ("[[class]]\nname = \"a\"\ndelay-ratio = 2\n", ":10:15", "`delay-ratio` has no effect"),
        ("[admission]\nlate = \"refuse\"\n", ":9:8", "`late` has no effect"),
        ("[admission]\nshare = \"wtp\"\nslots = 2\ndelay-window = \"60s\"\n", ":11:16", "`delay-window` has no effect"),
        ("[admission]\nshare = \"ratio\"\nslots = 2\n", ":9:9", "`ratio` keeps delays in ratios"),
        ("[admission]\nshare = \"edf\"\nslots = 2\n", ":9:9", "`edf` goes by deadlines"),
        ("[admission]\nslots = 2\nwindows = \"knee\"\n", ":10:11", "there are no windows to adjust"),
        (
            "[admission]\nwindows = \"knee\"\nresources = { site = 2 }\nprobe-every = \"2s\"\n",
            ":11:15",
            "`probe-every` has no effect",
        ),
        ("[admission]\nresources = { site = { window = 2, upstream = \"app\" } }\n", ":9:47", "whom its `probe` asks"),
        ("[admission]\nresources = { site = { window = 2, host = \"app\" } }\n", ":9:43", "what its `probe` asks for"),
        ("[session]\nsecret = \"open\"\n", ":9:10", "is open to others than its owner (mode 644)"),
        ("[keys]\nfile = \"empty\"\n", ":9:8", "is open to everybody on this machine"),
    ] {
        let text = format!("{GATEWAY}{text}");
        let said = said_of(&text.replace("\"empty\"", "\"tool\""));
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert!(said.contains("warning: ") && !said.contains("error: "), "{said}");
    }
    let two = "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\n[[rule]]\nclass = \"a\"\nhost = \"a\"\n";
    let said = said_of(&format!("{GATEWAY}{two}[admission]\nshare = \"weighted\"\n"));
    assert!(said.contains("nobody waits for the site") && said.contains("slots = 20"), "{said}");
    assert_eq!(said_of(&format!("{GATEWAY}{two}[admission]\nshare = \"weighted\"\nslots = 2\n")), "");
    assert_eq!(said_of(GATEWAY), "");
}

#[test]
fn a_value_that_cannot_be_read_is_the_only_mistake_that_comes_of_it() {
    let two = "[[class]]\nname = \"a\"\nreserved = 2\ndeadline = \"1s\"\n[[class]]\nname = \"b\"\nqueue = 5\n\
               [[rule]]\nclass = \"a\"\nhost = \"a\"\n";
    for share in ["strict", "weighted", "shared", "fixed", "edf", "ratio", "shard"] {
        for (slots, windows) in [("\"lots\"", ""), ("-1", "windows = \"knee\"\n"), ("0", "windows = \"gess\"\n")] {
            let said = said_of(&format!("{GATEWAY}{two}[admission]\nslots = {slots}\nshare = \"{share}\"\n{windows}"));
            let wrong = 1 + usize::from(share == "shard") + usize::from(windows.contains("gess"));
            assert_eq!(said.matches("error: ").count(), wrong, "{said}");
            assert!(!said.contains("warning: ") && said.contains("give a number from 1 to"), "{said}");
        }
    }
    for server in ["a:80", "localhost", "3000", "https://", "http//a", "http://a:99999", "ftp://a", "http://a/b"] {
        let text = GATEWAY.replace("\"http://127.0.0.1:3000\"", &format!("\"{server}\""));
        assert!(text.contains(server));
        for more in ["", "tls-verify = false\n", "active = { path = \"/\" }\n"] {
            let text = text.replace("servers = ", &format!("{more}servers = "));
            let said = said_of(&format!("{text}{two}[admission]\nslots = 4\nshare = \"edf\"\n"));
            assert!(said.starts_with("error: ") && said.matches("error: ").count() == 1, "{said}");
            assert!(said.contains(server) && !said.contains("warning: "), "{said}");
        }
    }
}

#[test]
fn what_stands_in_files_is_looked_at_as_at_the_start() {
    let said = said_of(&format!("{GATEWAY}[keys]\nfile = \"line\"\n"));
    assert!(said.contains("line 1: the hash is not SHA-256") && said.contains("--> serpent.toml:9:8"), "{said}");
}

#[test]
fn sections_that_could_not_be_read_are_not_missed() {
    // The upstream, its name gone with a mistake of shape, is not said to be unknown to the route.
    let said = said_of(
        "[[upstream]]\nname = []\nservers = [\"http://a\"]\n[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n\
         [[rule]]\nclass = \"gold\"\n",
    );
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
}

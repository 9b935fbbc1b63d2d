//! Routes, upstreams, classes, rules, slots.

mod mistakes;

use std::{collections::BTreeSet, net::SocketAddr, num::NonZeroU32, os::unix::fs::PermissionsExt as _, time::Duration};

use scheduler::{
    admission::{Late, QueueOrder, ResourceId},
    class::ClassId,
    control::Method,
    share::Policy,
};
use server::config::{
    Adjustment, AdmissionConfig, Condition, FastCgiAddress, ForwardedField, LimitBy, Origin, PathPattern, Priority,
    ProbeConfig, ResourceConfig, RouteLimit, Times, UpstreamAddress, ValueMatch,
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
            ("/export", false),
            ("/live", false),
            ("^/reports/[0-9]{4}$", true),
            ("/static/**", false),
            ("/old", false),
            ("/cgi-bin/", true),
            ("/**/*.php", true),
            ("/lists/", true),
            ("\\.phtml(/|$)", true),
            ("/blog", false)
        ]
    );
    let api = &site.routes[0];
    let Origin::Upstream { upstream: 0, replace_prefix, keep_host, buffer_request, buffer_response, times } =
        &api.origin
    else {
        panic!("{:?}", api.origin)
    };
    assert_eq!(*times, Some(Times { idle: Duration::from_secs(300), total: Some(Duration::from_secs(600)) }));
    assert_eq!(
        (replace_prefix.as_deref(), *keep_host, *buffer_request, *buffer_response),
        (Some("/"), false, true, true)
    );
    assert_eq!(api.request_headers.remove, ["x-debug"]);
    assert_eq!(api.request_headers.set[0], ("x-gateway".parse().unwrap(), "serpent".parse().unwrap()));
    assert_eq!(api.request_headers.add[0].1, "1");
    assert_eq!(api.response_headers.remove.len(), 2);
    let Origin::Cgi(php) = &site.routes[10].origin else { panic!("{:?}", site.routes[10].origin) };
    assert!(php.program.is_absolute() && php.program.ends_with("www"));
    assert_eq!(php.interpreter.as_deref(), Some(Path::new("/bin/sh")));
    assert_eq!((php.timeout, php.head_bytes, php.most_running.get()), (Duration::from_secs(30), 16 * 1024, 16));
    assert_eq!(php.environment, [("LANG".to_owned(), "C.UTF-8".to_owned())]);
    assert_eq!(php.pass_environment, ["TZ"]);

    let Origin::FastCgi(fpm) = &site.routes[12].origin else { panic!("{:?}", site.routes[12].origin) };
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
    let RouteLimit::Own(limit) = &site.routes[1].limit else { panic!("{:?}", site.routes[1].limit) };
    let rate = limit.rate.unwrap();
    assert_eq!((&*limit.by, rate.requests.get(), rate.burst.get()), (&[LimitBy::Key][..], 20, 40));
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

    let tried: Vec<_> = site.routes[7].try_files.iter().map(ToString::to_string).collect();
    assert_eq!(tried, ["/static/none.html"]);
    assert_eq!(site.routes[13].fallback.as_ref().unwrap().to_string(), "/blog/index.phtml{query}");

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
        "site.route.cache" => {
            let cached = |more: &str| {
                let route = "path = \"/\"\nupstream = \"app\"\n";
                plain.replacen(route, &format!("{route}[site.route.cache]\n{more}"), 1)
            };
            (cached(&line), cached(""))
        }
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
        "site.route.uwsgi" => {
            let uwsgi = |more: &str| {
                format!(
                    "[[site]]\n[[site.route]]\npath = \"/\"\n[site.route.uwsgi]\naddress = \"127.0.0.1:3031\"\n{more}"
                )
            };
            (uwsgi(&line), uwsgi(""))
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
        "upstream.servers" => {
            let server = |more: &str| {
                let table = format!("servers = [{{ url = \"http://127.0.0.1:3000\"{more} }}]");
                plain.replacen("servers = [\"http://127.0.0.1:3000\"]", &table, 1)
            };
            (server(&format!(", {name} = {written}")), plain.to_owned())
        }
        "upstream.outliers" => {
            let outliers = |more: &str| format!("{plain}[upstream.outliers]\n{more}");
            (outliers(&line), outliers(""))
        }
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

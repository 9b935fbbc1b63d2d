mod broken;
mod gateway;

use std::fs;

use server::config::{AcmeConfig, ChallengeKind, Cutoffs, Enforce, LogChoice, LogTarget, SymlinkPolicy, UplinkRate};

use super::*;
use crate::values;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Loads a file of this text, beside which there is a directory `www`.
fn load_text(text: &str) -> Result<Config, String> {
    load_with(text, Overrides::default()).map_err(|(_, said)| said)
}

fn load_with(text: &str, flags: Overrides) -> Result<Config, (Problems, String)> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    let path = folder.path().join("serpent.toml");
    fs::write(&path, text).unwrap();
    load(&Overrides { config: Some(path), ..flags }).map_err(|problems| {
        let said = problems.to_string().replace(&format!("{}/", folder.path().display()), "");
        (problems, said)
    })
}

const SITE: &str = "[[site]]\nroot = \"www\"\n";

#[test]
fn the_example_has_every_setting_and_says_the_defaults() {
    let text = fs::read_to_string(repository("examples/serpent.toml")).unwrap();
    let (raw, problems) = parse::parse(&text);
    assert_eq!(problems, []);
    let value = serde_json::to_value(&raw).unwrap();
    let missing: Vec<_> =
        settings(&value).into_iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key).collect();
    let missing: Vec<_> = missing.iter().filter(|key| !overlays(key)).collect();
    let without_default = [
        "acme.ca",
        "acme.contact",
        "acme.external-account",
        "acme.external-key",
        "acme.profile",
        "acme.state",
        "admin-token",
        "attach",
        "cluster",
        "default-class",
        "keys",
        "session",
        "tracing.ca",
        "uplink.line",
        "users",
        "site.access-log",
        "site.client-ca",
        "site.ocsp-response",
        "site.tls-cert",
        "site.tls-key",
    ];
    let missing: std::collections::BTreeSet<_> = missing.iter().map(|key| key.as_str()).collect();
    assert_eq!(missing, without_default.into(), "all others have a default, which the example shows");

    let flags = Overrides { config: Some(repository("examples/serpent.toml")), ..Overrides::default() };
    let example = load(&flags).unwrap_or_else(|problems| panic!("{problems}"));
    let defaults = load(&Overrides { dir: Some(repository("examples/.")), ..Overrides::default() }).unwrap();
    let normal = |config: &Config| {
        let mut config = config.clone();
        config
            .sites
            .iter_mut()
            .filter_map(|site| site.root.as_mut())
            .for_each(|root| *root = fs::canonicalize(&*root).unwrap());
        format!("{config:#?}")
    };
    assert_eq!(normal(&example), normal(&defaults));
}

#[test]
fn every_default_stands_in_the_documents_with_its_reason() {
    let defaults = fs::read_to_string(repository("docs/DEFAULTS.md")).unwrap();
    let reference = fs::read_to_string(repository("docs/guide/configuration.md")).unwrap();
    let of = |file: &str| {
        let (raw, _) = parse::parse(&fs::read_to_string(repository(file)).unwrap());
        settings(&serde_json::to_value(&raw).unwrap())
    };
    let attach = of("examples/attach.toml").into_iter().filter(|(key, _)| key.starts_with("attach."));
    // Those of the device and its rate are examples.
    let attach = attach.map(|(key, value)| match key.as_str() {
        "attach.device" | "attach.rate" => (key, None),
        _ => (key, value),
    });
    for (key, value) in of("examples/serpent.toml").into_iter().chain(attach) {
        if overlays(&key) || SECTIONS.contains(&key.as_str()) {
            continue;
        }
        assert!(reference.contains(&format!("| `{key}` |")), "docs/guide/configuration.md has no row for `{key}`");
        let Some(value) = value else { continue };
        let row = format!("| `{key}` | `{value}` | ");
        assert!(defaults.contains(&row), "docs/DEFAULTS.md has no row that starts with {row}");
    }
}

/// Settings of a site that the whole file has, too.
fn overlays(key: &str) -> bool {
    key.starts_with("site.files.") || key.starts_with("site.compression.")
}

/// Tables whose keys are settings, and lists of such.
const SECTIONS: &[&str] = &[
    "",
    "uplink",
    "limits",
    "cache",
    "shared-cache",
    "access-log",
    "error-log",
    "tracing",
    "files",
    "compression",
    "acme",
    "admission",
    "users",
    "keys",
    "session",
    "attach",
    "cluster",
    "site",
    "site.files",
    "site.compression",
    "site.route",
    "site.limit",
    "site.require",
    "site.forward-auth",
    "site.cors",
    "site.response-headers",
    "site.route.unless",
    "site.route.cache",
    "site.route.cgi",
    "site.route.fastcgi",
    "site.route.uwsgi",
    "site.route.limit",
    "site.route.require",
    "site.route.forward-auth",
    "site.route.cors",
    "site.route.request-headers",
    "site.route.response-headers",
    "upstream",
    "upstream.servers",
    "upstream.sticky",
    "upstream.passive",
    "upstream.active",
    "upstream.outliers",
    "upstream.workers",
    "class",
    "class.objective",
    "class.refuse",
    "rule",
];

/// All settings as `section.key`, with their values as a person writes them in the file.
fn settings(value: &serde_json::Value) -> Vec<(String, Option<String>)> {
    fn walk(prefix: &str, value: &serde_json::Value, out: &mut Vec<(String, Option<String>)>) {
        match value {
            serde_json::Value::Object(map) if SECTIONS.contains(&prefix) => {
                for (key, value) in map {
                    walk(&if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") }, value, out);
                }
            }
            serde_json::Value::Array(list) if SECTIONS.contains(&prefix) => {
                list.iter().for_each(|value| walk(prefix, value, out))
            }
            serde_json::Value::Null => out.push((prefix.to_owned(), None)),
            serde_json::Value::String(text) => out.push((prefix.to_owned(), Some(text.clone()))),
            other => out.push((prefix.to_owned(), Some(other.to_string()))),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}

#[test]
fn a_whole_file_means_what_it_says() {
    let config = load_text(
        "listen = [\"127.0.0.1:1\", \"[::1]:2\"]\nadmin = \"127.0.0.1:3\"\nworkers = 3\n\
         [uplink]\nrate = \"12.5 Mbit/s\"\norder = \"fsp\"\nenforce = \"off\"\ncutoffs = [1024, \"20KiB\"]\nguard = 5\n\
         utilisation = 0.9\nsegment-overhead = 78\ndevice = \"eth0\"\n\
         [limits]\nconnections = 10\nrequest-head = \"8KiB\"\nshutdown-timeout = \"30s\"\n\
         [cache]\ncapacity = \"off\"\nrevalidate-after = \"0s\"\n\
         [access-log]\ntarget = \"access.log\"\nformat = \"json\"\n\
         [files]\nlisting = true\nindex = [\"start.htm\"]\n\
         cache-control = [{ pattern = \"/assets/*\", value = \"max-age=1\" }]\nmime-types = { \".Foo\" = \"a/b\" }\n\
         [[site]]\nroot = \"www\"\n\
         [[site]]\nnames = [\"Example.ORG.\", \"*.example.org\"]\nroot = \"www\"\n\
         files = { listing = false, symlinks = \"follow\" }\n",
    )
    .unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(config.listen[1].address.to_string(), "[::1]:2");
    assert!(!config.listen[1].tls);
    assert_eq!(config.admin, Some("127.0.0.1:3".parse().unwrap()));
    assert_eq!(config.workers.get(), 3);
    assert_eq!(config.uplink.rate, UplinkRate::Given("12.5mbit".parse().unwrap()));
    assert_eq!(config.uplink.order, scheduler::Order::Fsp);
    assert_eq!(config.uplink.enforce, Enforce::Off);
    assert_eq!(config.uplink.cutoffs, Cutoffs::Given(vec![1024, 20 * 1024]));
    assert_eq!(config.uplink.guard_stretch, Some(5.0));
    assert_eq!(config.uplink.utilisation, Some(0.9));
    assert_eq!(config.uplink.segment_overhead_bytes, 78);
    assert_eq!(config.uplink.device.as_deref(), Some("eth0"));
    assert_eq!(config.limits.connections, 10);
    assert_eq!(config.limits.request_head_bytes, 8192);
    assert_eq!(config.limits.shutdown_timeout, Some(std::time::Duration::from_secs(30)));
    assert_eq!(config.cache.capacity_bytes, 0);
    assert!(config.cache.revalidate_after.is_zero());
    let log = config.access_log.unwrap();
    assert!(matches!(&log.target, LogTarget::File(path) if path.is_absolute() && path.ends_with("access.log")));
    assert_eq!(config.sites[1].names, ["example.org", "*.example.org"]);
    assert!(config.sites[0].root.as_ref().unwrap().ends_with("www"));
    assert!(config.sites[0].files.listing && !config.sites[1].files.listing);
    assert_eq!(config.sites[1].files.index, ["start.htm"], "what a site leaves out is taken from [files]");
    assert_eq!(config.sites[1].files.symlinks, SymlinkPolicy::Follow);
    assert!(config.sites[0].files.cache_control[0].pattern.is_match("assets/a.js"));
    assert!(!config.sites[0].files.cache_control[0].pattern.is_match("assets/a/b.js"), "`*` ends at a slash");
    assert_eq!(config.sites[0].files.mime_types, [("foo".to_owned(), "a/b".to_owned())]);
}

#[test]
fn spans_go_where_the_file_says() {
    let config = load_text(&format!(
        "[tracing]\nendpoint = \"https://otlp.example\"\nsample = \"2.5%\"\nparents = \"none\"\nservice-name = \"shop\"\n\
         collector-headers = {{ Authorization = \"Bearer secret\" }}\ninterval = \"1s\"\n{SITE}"
    ));
    let config = config.unwrap_or_else(|said| panic!("{said}"));
    assert!(!format!("{config:?}").contains("secret"));
    let tracing = config.tracing.unwrap();
    assert_eq!(tracing.endpoint.to_string(), "https://otlp.example/v1/traces");
    assert_eq!((tracing.sample, tracing.parents), (0.025, server::config::TraceParents::None));
    assert_eq!((tracing.service_name.as_str(), tracing.interval), ("shop", std::time::Duration::from_secs(1)));
    assert_eq!(tracing.headers[0].0, "authorization");
    assert!(load_text(&format!("[tracing]\nsample = \"1%\"\n{SITE}")).unwrap().tracing.is_none(), "no collector");
}

#[test]
fn sites_and_routes_choose_their_logs() {
    let config = load_text(
        "[access-log]\ntarget = \"all.log\"\nformat = \"json\"\n\
         [[site]]\nroot = \"www\"\n\
         [[site]]\nnames = [\"a\"]\nroot = \"www\"\naccess-log = { target = \"a.log\", format = \"combined\" }\n\
         [[site.route]]\npath = \"/quiet/\"\nfiles = true\naccess-log = \"off\"\n\
         [[site.route]]\npath = \"/other/\"\nfiles = true\naccess-log = \"b.log\"\n\
         [[site.route]]\npath = \"/same/\"\nfiles = true\n\
         [[site]]\nnames = [\"b\"]\nroot = \"www\"\naccess-log = { target = \"b.log\", format = \"combined\" }\n\
         [[site]]\nnames = [\"c\"]\nroot = \"www\"\naccess-log = \"all.log\"\n",
    )
    .unwrap_or_else(|said| panic!("{said}"));
    let said = |choice: &LogChoice| match choice {
        LogChoice::Outer => "outer".to_owned(),
        LogChoice::Off => "off".to_owned(),
        LogChoice::Own(log) => {
            let LogTarget::File(path) = &log.target else { panic!("{log:?}") };
            format!("{} {:?}", path.file_name().unwrap().to_str().unwrap(), log.format)
        }
    };
    let sites: Vec<_> = config.sites.iter().map(|site| said(&site.access_log)).collect();
    assert_eq!(sites, ["outer", "a.log Combined", "b.log Combined", "all.log Json"]);
    let routes: Vec<_> = config.sites[1].routes.iter().map(|route| said(&route.access_log)).collect();
    assert_eq!(routes, ["off", "b.log Combined", "outer"], "a route takes the form of its site");
    for (log, place, part) in [
        ("true", ":5:14", "expected a file or \"off\", or a table"),
        ("\"no/folder/log\"", ":5:14", "of the access log does not exist"),
        ("{ target = \"a\", form = \"json\" }", ":5:30", "did you mean `format`"),
        ("{ target = \"off\" , format = 1 }", ":5:42", "`1` is not one of `combined`"),
        ("{ format = \"json\" }", ":5:14", "all.log has two forms"),
        ("{ target = \"all.log\", format = \"json\" }", ":5:14", "has another form"),
    ] {
        let text = format!("[access-log]\ntarget = \"all.log\"\n[[site]]\nroot = \"www\"\naccess-log = {log}\n");
        let (problems, said) = load_with(&text, Overrides::default()).unwrap_err();
        assert!(said.contains(part) && said.contains(&format!("--> serpent.toml{place}")), "{log}\n{said}");
        assert_eq!(problems.list.len(), 1, "{said}");
    }
    let said = load_text("[[site]]\nroot = \"www\"\naccess-log = { format = \"json\" }\n").unwrap_err();
    assert!(said.contains("this log has no `target`"), "{said}");
}

#[test]
fn flags_go_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let flags = Overrides {
        dir: Some(folder.path().to_owned()),
        listen: vec![values::listen("127.0.0.1:7").unwrap()],
        uplink: Some(UplinkRate::Off),
        guard: Some(None),
        listing: true,
        access_log: Some("-".into()),
        ..Overrides::default()
    };
    let text = format!("listen = [\":80\"]\nworkers = 2\n[uplink]\nrate = \"10mbit\"\nguard = 5\n{SITE}");
    let config = load_with(&text, flags).unwrap_or_else(|(_, said)| panic!("{said}"));
    assert_eq!(config.listen[0].address.to_string(), "127.0.0.1:7");
    assert_eq!(config.uplink.rate, UplinkRate::Off);
    assert_eq!(config.uplink.guard_stretch, None);
    assert_eq!(config.sites[0].root.as_ref().unwrap(), folder.path());
    assert!(config.sites[0].files.listing);
    assert_eq!(config.access_log.unwrap().target, LogTarget::Stdout);
    assert_eq!(config.workers.get(), 2);
}

#[test]
fn a_mistake_is_shown_at_its_line_with_what_to_do() {
    let said = load_text(&format!("[uplink]\nrate = \"10\"\n{SITE}")).unwrap_err();
    assert_eq!(
        said,
        "error: unknown unit of rate: use bit, kbit, mbit or gbit (optionally `/s` or `ps`), or MB/s and the like for \
         bytes; or write `auto` or `off`\n \
         --> serpent.toml:2:8\n  |\n2 | rate = \"10\"\n  |        ^^^^"
    );
    let said = load_text(&format!("listen = [\":80\", \"https://:80\"]\n{SITE}")).unwrap_err();
    assert!(said.contains("the address [::]:80 is given twice"), "{said}");
    assert!(said.contains("-----  ^^^^^^^^^^^^^"), "both places are marked: {said}");
    assert!(said.contains("first given here") && said.contains("help: leave one of them out"), "{said}");
}

/// One mistake each, and the line it is shown at with a part of what is said.
const BROKEN: &[(&str, &str, &str)] = &[
    ("workers = \n", ":1:11", "string values must be quoted"),
    ("listen = [\":80\"]\nlisten = []\n", ":2:1", "`listen` is given twice"),
    ("workers = 0\n", ":1:11", "`0` is not a number of workers"),
    ("worker = 2\n", ":1:1", "there is no setting `worker` at the top of the file"),
    ("workers = true\n", ":1:11", "`workers` is `true` here, expected a text in quotes or a number"),
    ("listen = true\n", ":1:10", "`listen` is `true` here, expected a list of texts in quotes, or a single one"),
    ("listen = [true]\n", ":1:11", "`listen` has `true` in it, expected a text in quotes or a number"),
    ("[uplink]\nlisten = [\":80\"]\n", ":2:1", "`listen` belongs at the top of the file, before the first table"),
    ("rate = \"1gbit\"\n", ":1:1", "`rate` belongs in `[uplink]`"),
    (
        "[cache]\nidle-timeout = \"1s\"\n",
        ":2:1",
        "`idle-timeout` belongs in `[limits]`, `[[site.route]]` or `[[upstream]]`",
    ),
    ("[limits]\nidle = \"1s\"\n", ":2:1", "did you mean `idle-timeout`?"),
    ("auth = \"basic\"\n", ":1:1", "here that is `require`"),
    ("rewrite = \"https\"\n", ":1:1", "`rewrite` belongs in `[[site.route]]`"),
    ("redirect = \"https\"\n", ":1:1", "`[[site.route]]`"),
    ("allow = [\"10.0.0.0/8\"]\n", ":1:1", "`allow` belongs in `[[site]]` or `[[site.route]]`"),
    ("worker_processes = 4\n", ":1:1", "here that is `workers`"),
    ("Proxy-Pass = \"http://a\"\n", ":1:1", "here that is `upstream` of a `[[site.route]]`"),
    ("[[uplink]]\nrate = \"off\"\n", ":1:3", "write `[uplink]`"),
    ("limits = [5]\n", ":1:1", "there is one `limits` only"),
    ("uplink = \"10mbit\"\n", ":1:10", "write `[uplink]`, and its settings below it"),
    ("upstream = \"http://a\"\n", ":1:12", "expected a list of tables"),
    ("listen = []\n", "", "there is no address to serve on"),
    ("listen = [\"example.org:80\"]\n", ":1:11", "give an IP address and a port"),
    ("listen = [\"https://:443\"]\n", ":1:11", "https://[::]:443 needs a certificate"),
    ("listen = [\":80\"]\nadmin = \":80\"\n", ":1:11", "is the address of `admin` already"),
    ("admin = \"9090\"\n", ":1:9", "is not an address"),
    ("[uplink]\norder = \"short\"\n", ":2:9", "`short` is not one of `fair`, `fifo`, `srpt`"),
    ("[uplink]\nenforce = \"tc\"\n", ":2:11", "`tc` is not one of `server`, `kernel`, `off`"),
    ("[uplink]\nenforce = \"kernel\"\nrate = \"off\"\n", ":2:11", "contradict each other"),
    ("[uplink]\nenforce = \"kernel\"\norder = \"fsp\"\n", ":3:9", "`fsp` cannot be put into the kernel's bands"),
    ("[uplink]\nenforce = \"kernel\"\norder = \"fair\"\n", ":3:9", "`fair` cannot be put into the kernel's bands"),
    ("[uplink]\nenforce = \"kernel\"\ncutoffs = [\"1KiB\"]\n", ":3:11", "`serpent attach` has the cutoffs"),
    ("[uplink]\nrate = \"9000gbit\"\n", ":2:8", "between 8kbit and 1000gbit"),
    ("[uplink]\nguard = 0.5\n", ":2:9", "is not a stretch"),
    ("[uplink]\nutilisation = 97\n", ":2:15", "is not a share"),
    ("[uplink]\nsegment-overhead = \"2KiB\"\n", ":2:20", "at most 1024 bytes"),
    ("[uplink]\ncutoffs = \"guess\"\n", ":2:11", "`guess` is not a way to choose cutoffs"),
    ("[uplink]\ncutoffs = 3\n", ":2:11", "expected \"learned\" or a list of sizes"),
    ("[uplink]\ncutoffs = []\n", ":2:11", "0 cutoffs are given"),
    ("[uplink]\ncutoffs = [1, 2, 3, 4, 5, 6, 7]\n", ":2:11", "7 cutoffs are given"),
    ("[uplink]\ncutoffs = [\"2KiB\", \"5KiB\", 5120]\n", ":2:28", "cutoffs must increase"),
    ("[uplink]\ncutoffs = [\"2KiB\", \"five\"]\n", ":2:20", "`five` is not a size"),
    ("[limits]\nconnections = 0\n", ":2:15", "from 1 to 10000000"),
    ("[limits]\nconnections = -1\n", ":2:15", "out of range: give a number from 1 to 10000000"),
    ("[limits]\nconnections = \"lots\"\n", ":2:15", "not a whole number: give a number from 1 to 10000000"),
    ("[limits]\nrequest-head = \"10\"\n", ":2:16", "from 1KiB to 1MiB"),
    ("[limits]\nhead-timeout = 30\n", ":2:16", "give a number and a unit"),
    ("[limits]\nidle-timeout = \"0s\"\n", ":2:16", "above zero"),
    ("[limits]\nshutdown-timeout = \"never\"\n", ":2:20", "or `off`"),
    ("[cache]\ncapacity = \"lots\"\n", ":2:12", "is not a size"),
    ("[cache]\ncompressed = \"10\"\n", ":2:14", "write the unit"),
    ("[cache]\ncapacity = \"off\"\ncompressed = \"1MiB\"\n", ":3:14", "`capacity`, which is `off`"),
    ("[shared-cache]\nmemory = \"lots\"\n", ":2:10", "is not a size"),
    ("[shared-cache]\nmemory = \"4MiB\"\n", ":2:10", "is more than half of `memory`"),
    ("[shared-cache]\ndirectory = \"nowhere\"\n", ":2:13", "does not exist"),
    ("[attach]\ndevice = \"eth0\"\n", ":1:1", "`[attach]` has no `rate`"),
    ("[attach]\nrate = \"fast\"\n", ":2:8", "a rate starts with a number"),
    ("[attach]\nrate = \"9kbit\"\n", ":2:8", "not between 16 kbit/s and 400 Gbit/s"),
    ("[attach]\nrate = \"1mbit\"\nports = [80, 0]\n", ":3:14", "from 1 to 65535"),
    ("[attach]\nrate = \"1mbit\"\nports = []\n", ":1:1", "give one to 16 ports"),
    (
        "[attach]\nrate = \"1mbit\"\nclasses = [\"a\", \"b:colour=red\"]\n",
        ":3:17",
        "expected mark, port, cgroup or source",
    ),
    ("[attach]\nrate = \"1mbit\"\nclasses = [\"a:port=81\"]\n", ":3:12", "is not among the ports"),
    ("[attach]\nrate = \"1mbit\"\ncutoffs = \"guess\"\n", ":3:11", "not a way to choose cutoffs"),
    ("[attach]\nrate = \"1mbit\"\ncutoffs = [2, 1]\n", ":3:15", "cutoffs must increase"),
    ("[attach]\nrate = \"1mbit\"\ncutoffs = [\"5GiB\"]\n", ":3:11", "a cutoff is below 4 GiB"),
    ("[attach]\nrate = \"1mbit\"\nothers = \"never\"\n", ":3:10", "`never` is not one of `first`, `last`"),
    ("[attach]\nrate = \"1mbit\"\noverhead = \"2KiB\"\n", ":3:12", "at most 1024 bytes"),
    (
        "[attach]\nrate = \"1mbit\"\nreplace = \"yes\"\n",
        ":3:11",
        "`replace` is a text here, expected `true` or `false`",
    ),
    ("[attach]\nrate = \"1mbit\"\nport = 80\n", ":3:1", "did you mean `ports`?"),
    ("[access-log]\ntarget = \"no/such/folder/log\"\n", ":2:10", "of the access log does not exist"),
    ("[access-log]\ntarget = \"www\"\n", ":2:10", "is a directory"),
    ("[access-log]\nformat = \"xml\"\n", ":2:10", "`xml` is not one of `combined`, `json`"),
    ("[access-log]\ntarget = \"syslog:tag=a b\"\n", ":2:10", "`a b` is no tag"),
    ("[error-log]\ntarget = \"off\"\n", ":2:10", "`--log off`"),
    ("[error-log]\ntarget = \"no/folder/log\"\n", ":2:10", "of the error log does not exist"),
    ("[error-log]\nformat = \"xml\"\n", ":2:10", "`xml` is not one of `text`, `json`"),
    ("[access-log]\ntarget = \"a.log\"\n[error-log]\ntarget = \"a.log\"\n", ":4:10", "a.log is an access log already"),
    ("[tracing]\nendpoint = \"collector:4317\"\n", ":2:12", "is not the address of a collector"),
    ("[tracing]\nendpoint = \"http://a:b@c\"\n", ":2:12", "has no account in it"),
    ("[tracing]\nsample = 2\n", ":2:10", "give percent from 0 to 100"),
    ("[tracing]\nparents = \"some\"\n", ":2:11", "`some` is not one of `trusted`, `all`, `none`"),
    ("[tracing]\nservice-name = \"\"\n", ":2:16", "has 1 to 255 characters"),
    ("[tracing]\ncollector-headers = { \"a b\" = \"c\" }\n", ":2:23", "`a b`"),
    ("[tracing]\ncollector-headers = { Host = \"c\" }\n", ":2:23", "always that of the collector"),
    ("[tracing]\nca = \"no.pem\"\n", ":2:6", "no.pem"),
    ("[tracing]\ninterval = \"0s\"\n", ":2:12", "above zero"),
    ("[files]\nindex = [\"a/b\"]\n", ":2:10", "is not a file name"),
    ("[files]\nlisting = \"yes\"\n", ":2:11", "`listing` is a text here, expected `true` or `false`"),
    ("[files]\nsymlinks = \"some\"\n", ":2:12", "`some` is not one of `never`"),
    ("[files]\ncache-control = [{ pattern = \"a{b\", value = \"x\" }]\n", ":2:30", "the pattern cannot be read"),
    ("[files]\ncache-control = [{ pattern = \"a\", value = \"x\\n\" }]\n", ":2:43", "a header cannot hold this"),
    ("[files]\ncache-control = [{ pattern = \"a\" }]\n", ":2:18", "missing field `value`"),
    ("[files]\nmime-types = { \"tar.gz\" = \"a/b\" }\n", ":2:16", "is not a file extension"),
    ("[files]\nmime-types = { x = \"text\" }\n", ":2:20", "`text` is not a MIME type"),
    ("[compression]\ncodings = [\"deflate\"]\n", ":2:12", "`deflate` is not one of `zstd`, `br`, `gzip`"),
    ("[compression]\ncodings = [\"gzip\", \"gzip\"]\n", ":2:20", "`gzip` is given twice"),
    ("[compression]\ncodings = \"zstd\"\ntypes = \"text\"\n", ":3:9", "`text` is no media type"),
    ("[compression]\ncodings = \"zstd\"\nmin-size = \"lots\"\n", ":3:12", "is not a size"),
    ("[compression]\nzstd-level = 20\n", ":2:14", "a number from 1 to 19"),
    ("[compression]\nbr-level = 12\n", ":2:12", "a number from 0 to 11"),
    ("[compression]\ngzip-level = 0\n", ":2:14", "a number from 1 to 9"),
];

#[test]
fn every_kind_of_mistake_is_found_at_its_place() {
    for (text, place, part) in BROKEN {
        let (problems, said) = load_with(&format!("{text}{SITE}"), Overrides::default()).unwrap_err();
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert_eq!(problems.list.len(), 1, "one mistake is one problem:\n{said}");
    }
}

#[test]
fn inherited_sockets_are_served_where_no_address_is_named_but_not_that_of_admin() {
    let inherited = ["127.0.0.1:81", "127.0.0.1:82"].map(|at| values::listen(at).unwrap()).to_vec();
    let served = |text: &str| {
        let flags = Overrides { inherited: inherited.clone(), ..Overrides::default() };
        let config = load_with(&format!("{text}{SITE}"), flags).unwrap_or_else(|(_, said)| panic!("{said}"));
        config.listen.iter().map(|listen| listen.address.port()).collect::<Vec<_>>()
    };
    assert_eq!(served(""), [81, 82]);
    assert_eq!(served("admin = \"127.0.0.1:82\"\n"), [81]);
    assert_eq!(served("listen = [\":83\"]\n"), [83]);
}

#[test]
fn no_word_of_another_server_is_a_setting_here() {
    for word in crate::other_servers::SETTINGS.iter().flat_map(|(words, _)| *words) {
        assert_eq!(schema::belongs(word), None, "{word}");
    }
}

#[test]
fn every_single_table_is_known_as_one() {
    let (raw, _) = parse::parse("");
    let value = serde_json::to_value(&raw).unwrap();
    let tables = value
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, value)| value.is_object() || ["users", "keys", "session", "attach"].contains(&key.as_str()));
    for (key, _) in tables {
        let (_, problems) = parse::parse(&format!("[[{key}]]\n"));
        assert_eq!(problems.len(), 1, "{key}: {problems:?}");
        assert!(problems[0].message.contains("only"), "{key}: {problems:?}");
    }
}

#[test]
fn mistakes_about_sites() {
    for (text, place, part) in [
        ("[site]\nroot = \"www\"\n", ":1:1", "write `[[site]]`"),
        ("", "", "the file has no site"),
        ("[[site]]\n", ":1:1", "this site has no `root`"),
        ("[[site]]\nroot = \"nowhere\"\n", ":2:8", "`nowhere` does not exist"),
        ("[[site]]\nroot = \"serpent.toml\"\n", ":2:8", "`serpent.toml` is not a directory"),
        ("[[site]]\nroot = \"www\"\ntls-cert = \"c\"\n", ":3:12", "add `tls-key = \"FILE\"`"),
        ("[[site]]\nroot = \"www\"\ntls-key = \"k\"\n", ":3:11", "add `tls-cert = \"FILE\"`"),
        ("[[site]]\nroot = \"www\"\nacme = true\n", ":3:8", "needs to know the names"),
        ("[[site]]\nroot = \"www\"\nacme = true\nnames = [\"*.a.b\"]\n", ":3:8", "an entry in the DNS"),
        ("[[site]]\nroot = \"www\"\nacme = true\nnames = [\"[::1]\"]\n", ":3:8", "is an address"),
        ("[[site]]\nroot = \"www\"\nacme = true\nnames = [\"a.b\"]\ntls-cert = \"c\"\n", ":3:8", "in a file already"),
        ("[acme]\ndirectory = \"http://a/\"\n[[site]]\nroot = \"www\"\n", ":2:13", "is not the address of a directory"),
        ("[acme]\ncontact = \"me\"\n[[site]]\nroot = \"www\"\n", ":2:11", "is not an address of electronic mail"),
        ("[acme]\nchallenges = \"dns-01\"\n[[site]]\nroot = \"www\"\n", ":2:14", "is not one of `tls-alpn-01`"),
        ("[acme]\nexternal-account = \"a\"\n[[site]]\nroot = \"www\"\n", ":2:20", "needs its key"),
        ("[acme]\nstaging = true\ndirectory = \"https://a/\"\n[[site]]\nroot = \"www\"\n", ":2:11", "names another"),
        ("[[site]]\nroot = \"www\"\nhsts = \"always\"\n", ":3:8", "give `on` (a year)"),
        (
            "[[site]]\nroot = \"www\"\nhttps-redirect = \"yes\"\n",
            ":3:18",
            "`https-redirect` is a text here, expected `true` or `false`",
        ),
        ("[[site]]\nroot = \"www\"\n[[site]]\nroot = \"www\"\n", ":3:1", "this site has no names"),
        ("[[site]]\nroot = \"www\"\nnames = [\"a\", \"A.\"]\n", ":3:15", "`a` is given twice"),
        ("[[site]]\nroot = \"www\"\nnames = [\"a:80\"]\n", ":3:10", "leave out the scheme and the port"),
        ("[[site]]\nroot = \"www\"\nnames = [\"bücher.example\"]\n", ":3:10", "must be written in ASCII"),
        ("[[site]]\nroot = \"www\"\nnames = [\"a..b\"]\n", ":3:10", "is not a host name"),
        ("[[site]]\nroot = \"www\"\nnames = [\"*\"]\n", ":3:10", "is not a host name"),
    ] {
        let said = load_text(text).unwrap_err();
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
    }
}

#[test]
fn a_single_value_is_a_list_of_one() {
    let text = "listen = \"127.0.0.1:80\"\ntrusted-proxies = \"10.0.0.0/8\"\n[[site]]\nnames = \"a\"\nroot = \"www\"\n\
                files = { index = \"default.html\" }\n[[site.route]]\npath = \"/api\"\nupstream = \"app\"\n\
                response-headers = { remove = \"Server\" }\n[[upstream]]\nname = \"app\"\nservers = \"http://a\"\n";
    let config = load_text(text).unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(config.listen.len(), 1);
    let site = &config.sites[0];
    assert_eq!((&*site.names, &*site.files.index), (&["a".to_owned()][..], &["default.html".to_owned()][..]));
    assert_eq!(site.routes[0].response_headers.remove, ["server"]);
    assert_eq!(config.upstreams[0].servers.len(), 1);
    let said = load_text(&format!("listen = \"here\"\n{SITE}")).unwrap_err();
    assert!(said.contains("--> serpent.toml:1:10") && said.contains("give an IP address and a port"), "{said}");
}

#[test]
fn what_is_no_configuration_is_one_mistake() {
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    for text in [made.cert.pem(), made.signing_key.serialize_pem()] {
        let (problems, said) = load_with(&text, Overrides::default()).unwrap_err();
        assert!(said.contains("this looks like a PEM file"), "{said}");
        assert_eq!(problems.list.len(), 1, "{said}");
    }
    for (text, place, what, help) in [
        ("server {\n    listen 80;\n}\n", ":2:5", "a configuration of nginx", "`serpent import FILE > serpent.toml`"),
        ("server a { b; }\n", ":1:1", "a configuration of nginx", "`serpent import FILE"),
        ("# mine\nexample.org {\n  file_server\n}\n", ":2:1", "a Caddyfile", "`serpent import --from caddy FILE"),
        (":80\nfile_server\n", ":1:1", "a Caddyfile", "`serpent import --from caddy FILE"),
        ("site:\n  - root: www\n", ":1:1", "YAML", "begin with `[[site]]`"),
        ("{\"site\": []}\n", ":1:1", "JSON", "begin with `[[site]]`"),
        ("{\n  \"site\": []\n}\n", ":1:1", "JSON", "begin with `[[site]]`"),
        ("<VirtualHost *:80>\n</VirtualHost>\n", ":1:1", "a configuration of Apache", "begin with `[[site]]`"),
        ("global\n  maxconn 10\n", ":1:1", "a configuration of HAProxy", "--from haproxy"),
    ] {
        let (problems, said) = load_with(text, Overrides::default()).unwrap_err();
        assert!(said.contains(&format!("this looks like {what}")) && said.contains(help), "{said}");
        assert!(said.contains(&format!("--> serpent.toml{place}\n")), "{said}");
        assert_eq!(problems.list.len(), 1, "{said}");
    }
    let (problems, said) = load_with(&"some words\n".repeat(20), Overrides::default()).unwrap_err();
    assert!(said.contains("15 more lines cannot be read") && said.contains("written in TOML"), "{said}");
    assert!(said.contains("--> serpent.toml:6:6"), "{said}");
    assert_eq!(problems.list.len(), 6, "{said}");
}

#[test]
fn a_directory_that_is_missing_is_told_of_as_it_was_given() {
    let said = load_text("[[site]]\nroot = \"nowhere\"\n").unwrap_err();
    assert!(said.contains("a relative path in the file"), "{said}");
    let said = load(&Overrides { dir: Some("no/where".into()), ..Overrides::default() }).unwrap_err().to_string();
    assert!(said.contains("the directory `no/where` does not exist") && !said.contains("in the file"), "{said}");
}

#[test]
fn a_site_with_a_certificate_sends_clients_to_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    fs::write(folder.path().join("c"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("k"), made.signing_key.serialize_pem()).unwrap();
    let path = folder.path().join("serpent.toml");
    let read = |listen: &str, of_site: &str| {
        fs::write(&path, format!("listen = [{listen}]\n{SITE}{of_site}\n")).unwrap();
        let (config, warnings) =
            load_and_warn(&Overrides { config: Some(path.clone()), ..Overrides::default() }).unwrap();
        let to = config.sites[0].to_https.as_ref().map(ToString::to_string).unwrap_or_default();
        (to, warnings.map(|warnings| warnings.to_string()).unwrap_or_default(), config.sites[0].hsts.clone())
    };
    let own = "tls-cert = \"c\"\ntls-key = \"k\"\n";
    let to = |listen: &str, of_site: &str| read(listen, &format!("{own}{of_site}")).0;
    assert_eq!(to("\"http://:80\", \":443\"", ""), "https://{host}{path}{query}");
    assert_eq!(to("\"http://:80\", \":8443\", \":443\"", ""), "https://{host}{path}{query}");
    assert_eq!(to("\"http://:80\", \":8443\"", "https-redirect = true"), "https://{host}:8443{path}{query}");
    for (listen, of_site) in
        [("\"http://:80\", \":443\"", "https-redirect = false"), ("\":443\"", ""), ("\"http://:80\"", "")]
    {
        assert_eq!(to(listen, of_site), "", "{listen} {of_site}");
    }
    let (to, said, _) = read("\":80\"", "https-redirect = true\nhsts = \"on\"");
    assert!(
        to.is_empty() && said.contains("`https-redirect` has no effect") && said.contains("`hsts` has no effect"),
        "{said}"
    );
    for (written, value) in [
        ("off", None),
        ("on", Some("max-age=31536000")),
        ("subdomains", Some("max-age=31536000; includeSubDomains")),
        ("preload", Some("max-age=63072000; includeSubDomains; preload")),
        ("30d", Some("max-age=2592000")),
        ("0s", Some("max-age=0")),
    ] {
        let (_, said, hsts) = read("\":443\"", &format!("{own}hsts = \"{written}\""));
        assert_eq!((hsts.as_ref().map(|value| value.to_str().unwrap()), &*said), (value, ""), "{written}");
    }

    let begin = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 24 * 60 * 60);
    let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
    params.not_before = begin.into();
    params.not_after = (begin + std::time::Duration::from_secs(60)).into();
    fs::write(folder.path().join("c"), params.self_signed(&made.signing_key).unwrap().pem()).unwrap();
    let said = read("\":443\"", own).1;
    assert!(said.contains("has expired: it ended 2 days ago") && said.contains(":4:12"), "{said}");
}

#[test]
fn an_authority_is_asked_for_sites_that_say_so() {
    let read = |before: &str, of_site: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        let path = folder.path().join("serpent.toml");
        fs::write(&path, format!("{before}\n{SITE}names = [\"a.b\", \"c.d\"]\n{of_site}\n")).unwrap();
        let (config, said) = load_and_warn(&Overrides { config: Some(path), ..Overrides::default() }).unwrap();
        (config, said.map(|said| said.to_string()).unwrap_or_default())
    };
    let (config, said) = read("listen = [\":443\", \"http://:80\"]", "acme = true");
    let acme = config.acme.expect("an authority");
    assert_eq!((&*said, &*acme.directory), ("", AcmeConfig::LETS_ENCRYPT));
    assert_eq!(acme.challenges, [ChallengeKind::TlsAlpn01, ChallengeKind::Http01]);
    assert_eq!(*acme.certificates[0], ["a.b".to_owned(), "c.d".to_owned()]);
    assert!(config.sites[0].to_https.is_some() && config.listen[0].tls && acme.state.ends_with("acme"));
    let (config, _) = read("listen = [\":443\"]\nacme = { staging = true, state = \"st\" }", "acme = true");
    let acme = config.acme.expect("an authority");
    assert_eq!(
        (&*acme.directory, &*acme.challenges),
        (AcmeConfig::LETS_ENCRYPT_STAGING, &[ChallengeKind::TlsAlpn01][..])
    );
    assert!(acme.state.ends_with("st") && acme.state.is_absolute(), "beside the file");
    let (_, said) = read("listen = [\"127.0.0.1:443\", \":8443\"]", "acme = true");
    assert!(said.contains("neither is in `listen`"), "{said}");
    assert!(read("listen = [\":80\"]", "acme = false").0.acme.is_none());
}

#[test]
fn the_port_of_https_without_a_certificate_is_warned_of() {
    let said_of = |listen: &str, flags: Overrides| {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        let path = folder.path().join("serpent.toml");
        fs::write(&path, format!("listen = [\"{listen}\"]\n{SITE}")).unwrap();
        let (_, warnings) = load_and_warn(&Overrides { config: Some(path), ..flags }).unwrap();
        warnings.map(|warnings| warnings.to_string()).unwrap_or_default()
    };
    let said = said_of(":443", Overrides::default());
    assert!(said.contains("warning: [::]:443 speaks HTTP without TLS") && said.contains(":1:11"), "{said}");
    assert!(
        said.contains("`acme = true`, or `tls-cert` and `tls-key`") && said.contains("`http://[::]:443`"),
        "{said}"
    );
    let flags = Overrides { listen: vec![values::listen("127.0.0.1:443").unwrap()], ..Overrides::default() };
    assert!(said_of(":80", flags).contains("127.0.0.1:443 speaks HTTP without TLS"));
    for other in ["http://:443", ":80", ":8443"] {
        assert_eq!(said_of(other, Overrides::default()), "", "{other}");
    }
}

#[test]
fn all_mistakes_are_shown_in_the_order_of_the_file() {
    let text =
        "lissten = []\n[uplink]\nrate = \"fast\"\norder = \"short\"\n[limits]\nidle = 3\n[[site]]\nroot = \"gone\"\n";
    let said = load_text(text).unwrap_err();
    let places: Vec<_> = said.lines().filter_map(|line| line.trim_start().strip_prefix("--> ")).collect();
    assert_eq!(
        places,
        ["serpent.toml:1:1", "serpent.toml:3:8", "serpent.toml:4:9", "serpent.toml:6:1", "serpent.toml:8:8"]
    );
}

#[test]
fn a_directory_by_flag_needs_a_file_with_at_most_one_site() {
    let folder = tempfile::tempdir().unwrap();
    let flags = || Overrides { dir: Some(folder.path().to_owned()), ..Overrides::default() };
    assert!(load_with("workers = 1\n", flags()).is_ok());
    let two = format!("{SITE}[[site]]\nnames = [\"b\"]\nroot = \"www\"\n");
    let (_, said) = load_with(&two, flags()).unwrap_err();
    assert!(said.contains("DIR cannot be given: the file has 2 sites"), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = Overrides { config: Some("/no/such/serpent.toml".into()), ..Overrides::default() };
    let said = load(&missing).unwrap_err().to_string();
    assert!(said.contains("no such configuration file") && said.contains("/no/such/serpent.toml"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let said = load(&Overrides { config: Some(folder.path().to_owned()), ..missing.clone() }).unwrap_err().to_string();
    assert!(said.contains("this is a directory, and a configuration is a file"), "{said}");
    let binary = folder.path().join("binary");
    fs::write(&binary, b"\xff\xfel\0").unwrap();
    let said = load(&Overrides { config: Some(binary), ..missing.clone() }).unwrap_err().to_string();
    assert!(said.contains("this is not a text in UTF-8") && said.contains("iconv -f UTF-16"), "{said}");
    let latin = folder.path().join("latin");
    fs::write(&latin, b"\nworkers = \"f\xfcnf\"\n").unwrap();
    let said = load(&Overrides { config: Some(latin), ..missing }).unwrap_err().to_string();
    assert!(said.contains("latin:2:13\n") && said.contains("iconv -f LATIN1"), "{said}");
}

#[cfg(target_os = "linux")]
mod attached {
    use attach::{AttachOptions, Others};

    use super::*;

    fn load_attach(text: &str) -> Result<Option<AttachOptions>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serpent.toml");
        fs::write(&path, text).unwrap();
        super::load_attach(&path).map_err(|problems| problems.to_string())
    }

    #[test]
    fn the_example_has_every_setting_of_attach_and_says_the_defaults() {
        let text = fs::read_to_string(repository("examples/attach.toml")).unwrap();
        let (raw, problems) = parse::parse(&text);
        assert_eq!(problems, []);
        let attach = serde_json::to_value(&raw).unwrap()["attach"].clone();
        let missing = attach.as_object().unwrap().iter().filter(|(_, value)| value.is_null());
        assert_eq!(missing.map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["server-user"], "it has no default");
        let example = super::load_attach(&repository("examples/attach.toml")).unwrap().unwrap();
        assert_eq!(example, AttachOptions::new("eth0", 97_000_000, AttachOptions::PORTS.to_vec()));
    }

    #[test]
    fn a_file_says_how_to_attach() {
        let options = load_attach(
            "[attach]\nrate = \"10mbit\"\nports = 8080\nclasses = \"a:port=8080\"\ncutoffs = [\"2KiB\", 30000]\n\
             others = \"last\"\noverhead = 24\nreplace = true\n",
        );
        let expected = AttachOptions {
            classes: vec!["a:port=8080".parse().unwrap()],
            cutoffs_bytes: vec![2048, 30_000],
            others: Others::Last,
            overhead_bytes: 24,
            replace: true,
            // The command line names it.
            ..AttachOptions::new("", 10_000_000, vec![8080])
        };
        assert_eq!(options, Ok(Some(expected)));
        assert_eq!(load_attach(SITE), Ok(None));
        let said = load_attach("workers = 0\n[attach]\nrate = \"10mbit\"\n").unwrap_err();
        assert!(said.contains("is not a number of workers"), "{said}");
    }

    #[test]
    fn a_file_for_attach_alone_serves_nothing() {
        let text = "[attach]\nrate = \"10mbit\"\n";
        assert!(super::load_text(text).unwrap_err().contains("the file has no site"));
        assert!(super::load_text(&format!("{text}{SITE}")).is_ok());
    }
}

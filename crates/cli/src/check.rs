//! `serpent check FILE`

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use clap::Args;
use scheduler::control::Method;
use serde_json::json;
use server::config::{
    Access, Certificate, ClassConfig, Classes, Config, Enforce, Limit, Maintenance, Origin, Requirement, Route,
    RouteLimit, UplinkRate, UpstreamConfig,
};

use crate::{
    config::{self, Overrides, Problems},
    values::{self, Named as _},
};

/// The file to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The directory that `serve` will be given beside the file
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// As JSON: where the server listens, and how the uplink is scheduled
    #[arg(long)]
    pub json: bool,
}

/// The result for a file without mistakes.
pub struct Checked {
    /// The sites and settings, as text or as JSON.
    pub summary: String,
    /// Settings that are valid and probably not intended.
    pub warnings: Option<Problems>,
}

/// Reads the file as `serve` does.
pub fn check(args: &CheckArgs) -> Result<Checked, Problems> {
    #[cfg(target_os = "linux")]
    let attach =
        || config::load_attach(&args.file).map(|options| options.map_or_else(String::new, |it| attach_line(&it)));
    #[cfg(not(target_os = "linux"))]
    let attach = || Ok(String::new());
    if args.dir.is_none() && !args.json && config::is_for_attach_alone(&args.file)? {
        return Ok(Checked { summary: format!("{}: ok\n{}", args.file.display(), attach()?), warnings: None });
    }
    let flags = Overrides { config: Some(args.file.clone()), dir: args.dir.clone(), ..Overrides::default() };
    let (config, warnings) = config::load_and_warn(&flags)?;
    let summary = match args.json {
        true => as_json(&config),
        false => format!("{}: ok\n{}{}", args.file.display(), summary(&config), attach()?),
    };
    Ok(Checked { summary, warnings })
}

/// The settings of `serpent attach`, which no server uses.
#[cfg(target_os = "linux")]
fn attach_line(options: &attach::AttachOptions) -> String {
    let device = if options.device.is_empty() { "a device" } else { &options.device };
    let ports: Vec<String> = options.ports.iter().map(u16::to_string).collect();
    let rate = scheduler::Rate::from_bits_per_second(options.rate_bits_per_second);
    let rate = rate.map(|rate| rate.to_string()).unwrap_or_default();
    let mut line = format!("{device} at {rate}, ports {}", ports.join(", "));
    let classes: Vec<&str> = options.classes.iter().map(|class| class.name.as_str()).collect();
    if !classes.is_empty() {
        let _ = write!(line, ", classes {}", classes.join(", "));
    }
    format!("  {:<10}{line}; by `serpent attach`, not by the server\n", "attach")
}

fn closed_by(maintenance: &Maintenance) -> String {
    format!(", closed while {} exists", maintenance.file.display())
}

/// The addresses, and the settings that decide the order of the uplink. `serpent-lab simulate` reads this, so the names
/// are kept stable.
fn as_json(config: &Config) -> String {
    let uplink = &config.uplink;
    let listen = config.listen.iter().map(|listen| json!({ "address": listen.address, "tls": listen.tls }));
    let json = json!({
        "listen": listen.collect::<Vec<_>>(),
        "uplink": {
            "rate_bits_per_second": match uplink.rate {
                UplinkRate::Given(rate) => Some(rate.bits_per_second()),
                UplinkRate::Auto | UplinkRate::Off => None,
            },
            "paced": uplink.rate != UplinkRate::Off && uplink.enforce == Enforce::Server,
            "order": uplink.order.name(),
            "enforce": Enforce::NAMED.iter().find(|(enforce, ..)| *enforce == uplink.enforce).map(|(_, name, _)| name),
            "cutoffs": uplink.cutoffs.given(),
            "guard_stretch": uplink.guard_stretch,
            "utilisation": uplink.utilisation,
            "segment_overhead_bytes": uplink.segment_overhead_bytes,
            "line": uplink.line,
        },
    });
    format!("{json:#}\n")
}

pub fn summary(config: &Config) -> String {
    let mut out = String::new();
    let mut line = |what: &str, text: String| {
        let _ = writeln!(out, "  {what:<10}{text}");
    };
    for listen in &config.listen {
        line("listen", format!("{}://{}", if listen.tls { "https" } else { "http" }, listen.address));
    }
    for site in &config.sites {
        let names = if site.names.is_empty() { "any name".to_owned() } else { site.names.join(", ") };
        line(
            "site",
            match &site.root {
                Some(root) => format!("{names} from {}", root.display()),
                None => names,
            } + if matches!(site.certificate, Some(Certificate::Acme(_))) { ", certificate by ACME" } else { "" }
                + &site.limit.as_ref().map(|limit| format!(", {}", self::limit(limit))).unwrap_or_default()
                + &site.maintenance.as_ref().map(closed_by).unwrap_or_default()
                + &access(&site.access).map(|access| format!(", {access}")).unwrap_or_default(),
        );
        for route in &site.routes {
            line("  route", self::route(route, config));
        }
    }
    if let Some(acme) = &config.acme {
        line("acme", format!("{}, kept in {}", acme.directory, acme.state.display()));
    }
    for upstream in &config.upstreams {
        line("upstream", self::upstream(upstream, config));
    }
    let classes = &config.classes;
    if classes.classes.len() > 1 || classes.admission.enabled {
        for (at, class) in classes.classes.iter().enumerate() {
            line("class", self::class(class, at == classes.default.index()));
        }
        for rule in self::rules(classes) {
            line("rules", rule);
        }
        line("slots", slots(classes));
    }
    let rate = match config.uplink.rate {
        UplinkRate::Auto => "rate found by itself".to_owned(),
        UplinkRate::Given(rate) => format!("{rate}"),
        UplinkRate::Off => "not paced".to_owned(),
    };
    let enforce = match config.uplink.enforce {
        Enforce::Server => "enforced by the server",
        Enforce::Kernel => "enforced by the kernel",
        Enforce::Off => "not enforced",
    };
    let share = classes.uplink_share.map(|share| format!(", shared by `{share}`")).unwrap_or_default();
    line("uplink", format!("{rate}, order {}, {enforce}{share}", config.uplink.order));
    if let Some(admin) = config.admin {
        line("admin", format!("http://{admin}"));
    }
    out
}

/// A line on a route: its paths, where they lead, and the resource that they need.
pub fn route(route: &Route, config: &Config) -> String {
    let resources = &config.classes.admission.resources;
    let needs = resources.get(route.resource.index()).filter(|_| resources.len() > 1 && route.admitted);
    let needs = needs.map(|resource| format!(", needs {}", resource.name)).unwrap_or_default();
    let at_once = if route.admitted || !config.classes.admission.enabled { "" } else { ", waits for no slot" };
    let access = access(&route.access).map(|access| format!(", {access}")).unwrap_or_default();
    let limit = match &route.limit {
        RouteLimit::Own(limit) => format!(", {}", self::limit(limit)),
        RouteLimit::OfSite | RouteLimit::Off => String::new(),
    };
    let filter = if route.filter.is_empty() { String::new() } else { format!(" ({})", route.filter) };
    format!("{}{filter} to {}{needs}{at_once}{access}{limit}", route.name, origin(route, config))
}

/// A few words on the requests that a site or a route refuses; `None`: none.
pub fn access(access: &Access) -> Option<String> {
    let by_address = (!access.addresses.is_empty()).then(|| "by address".to_owned());
    let by_showing = access.require.as_ref().map(|require| {
        let Requirement { clients, certificates, keys, users, any } = &require.requirement;
        let kinds = [
            (users.is_some(), "a password"),
            (keys.is_some(), "a key"),
            (certificates.is_some(), "a certificate"),
            (clients.is_some(), "a listed address"),
        ];
        let kinds: Vec<_> = kinds.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, kind)| kind).collect();
        format!("with {}", kinds.join(if *any { " or " } else { " and " }))
    });
    let by_asking = access.forward_auth.as_ref().map(|auth| format!("if {} allows it", auth.path));
    let all: Vec<_> = by_address.into_iter().chain(by_showing).chain(by_asking).collect();
    (!all.is_empty()).then(|| format!("only {}", all.join(", ")))
}

/// A few words on how many requests are answered.
fn limit(limit: &Limit) -> String {
    let by: Vec<_> = limit.by.iter().map(values::show_limit_by).collect();
    let by = if by.is_empty() { "all together".to_owned() } else { format!("each {}", by.join(" and ")) };
    let rate = limit.rate.map(|rate| format!("{} in {}", rate.requests, values::show_duration(rate.window)));
    let at_once = limit.at_once.map(|at_once| format!("{at_once} at once"));
    let bytes = limit.bytes.map(|bytes| format!("{} in 1s", bytesize::ByteSize::b(bytes.bytes_per_second.get())));
    let all: Vec<_> = rate.into_iter().chain(at_once).chain(bytes).collect();
    format!("{} for {by}", all.join(" and "))
}

/// A few words on the origin that answers a route's requests.
pub fn origin(route: &Route, config: &Config) -> String {
    match &route.origin {
        Origin::Files => match &route.fallback {
            Some(fallback) => format!("files, or else the route of {fallback}"),
            None => "files".to_owned(),
        },
        Origin::Redirect(redirect) => format!("{} {redirect}", redirect.status.as_u16()),
        Origin::Rewrite(rewrite) => format!("the route of {rewrite}"),
        Origin::Respond(respond) => format!("the answer {}", respond.status.as_u16()),
        Origin::Cgi(cgi) => match &cgi.interpreter {
            Some(interpreter) => format!("{} in {}", interpreter.display(), cgi.program.display()),
            None => format!("programs in {}", cgi.program.display()),
        },
        Origin::FastCgi(fastcgi) => format!("FastCGI at {}", fastcgi.address),
        Origin::Uwsgi(uwsgi) => format!("uwsgi at {}", uwsgi.address),
        Origin::Upstream { upstream, replace_prefix, .. } => {
            let name = &config.upstreams[*upstream].name;
            replace_prefix.as_ref().map_or(name.clone(), |prefix| format!("{name} as {prefix}"))
        }
    }
}

fn upstream(upstream: &UpstreamConfig, config: &Config) -> String {
    let servers: Vec<_> = upstream.servers.iter().map(values::show_server).collect();
    match config.upstream_workers.iter().find(|workers| workers.upstream == upstream.name) {
        Some(workers) => {
            format!("{}: {} of `{}` for each class", upstream.name, workers.processes, workers.command.join(" "))
        }
        None => format!("{}: {}", upstream.name, servers.join(", ")),
    }
}

/// A line on a class, with every setting that is not the default.
fn class(class: &ClassConfig, is_default: bool) -> String {
    let given = &class.given;
    let duration = |ns: u64| values::show_duration(std::time::Duration::from_nanos(ns));
    let usual = ClassConfig::new("").given;
    let said = [
        is_default.then(|| "for all others".to_owned()),
        (given.weight != usual.weight).then(|| format!("weight {}", given.weight)),
        (given.delay_ratio != usual.delay_ratio).then(|| format!("delay ratio {}", given.delay_ratio)),
        (given.reserved_slots > 0).then(|| format!("{} slots reserved", given.reserved_slots)),
        given.most_running.map(|slots| format!("{slots} slots at most")),
        given.deadline_ns.map(|ns| format!("deadline {}", duration(ns))),
        Some(format!("{} wait", given.most_waiting)),
        given.most_wait_ns.map(|ns| format!("for {} at most", duration(ns))),
        (given.order != usual.order).then(|| format!("order {}", values::show_queue_order(given.order))),
        (class.priority != server::config::Priority::Inherited)
            .then(|| format!("processor {}", values::show_priority(class.priority))),
    ];
    format!("{}: {}", class.name, said.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// How many rules lead to each class.
fn rules(classes: &Classes) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for rule in &classes.rules {
        *counts.entry(rule.class).or_insert(0) += 1;
    }
    let name = |class: scheduler::class::ClassId| &classes.classes[class.index()].name;
    counts.into_iter().map(|(class, count)| format!("{count} for {}", name(class))).collect()
}

fn slots(classes: &Classes) -> String {
    let admission = &classes.admission;
    if !admission.enabled {
        return "no limit, so nobody waits".to_owned();
    }
    let total = admission.total.map(|total| format!("{total} in all"));
    let windows = admission.resources.iter().filter_map(|it| Some(format!("{} for {}", it.window?, it.name)));
    let all: Vec<_> = total.into_iter().chain(windows).collect();
    let limits = if all.is_empty() { "no limit in all".to_owned() } else { all.join(", ") };
    let adjusted = match admission.adjustment.method {
        Method::Fixed => String::new(),
        method => format!(", adjusted by `{method}`"),
    };
    format!("{limits}{adjusted}, shared by `{}`", admission.policy)
}

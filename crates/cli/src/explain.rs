//! `serpent explain URL`: how a request is handled, from the configuration alone.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use base64::Engine as _;
use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, request::Parts};
use scheduler::{admission::ResourceId, class::Class};
use serde_json::json;
use server::{
    classify::{self, Classifier, Explanation, Facts},
    config::{ClassConfig, Config, ForwardedField, Redirect, Route, Site},
};

use crate::{
    check,
    config::{self, Overrides},
    failure::Failure,
    values,
};

/// The request to explain.
#[derive(Args, Debug, Default)]
#[command(after_long_help = "\
Examples:
  serpent explain --config /etc/serpent.toml https://shop.example/basket?item=7
  serpent explain -c /etc/serpent.toml --client 192.0.2.7 -H 'Cookie: id=1' http://shop.example/
  serpent explain -c /etc/serpent.toml -X POST -H 'X-Api-Key: 3f9c...' http://api.example/orders")]
pub struct ExplainArgs {
    /// The request's target: a whole URL, or a path
    #[arg(value_name = "URL")]
    pub url: String,

    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,

    /// Method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET", value_parser = values::method)]
    pub method: http::Method,

    /// Header field, may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = values::header_field)]
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,

    /// Name and password, asked for by the rules
    #[arg(long, short = 'u', value_name = "NAME:PASSWORD")]
    pub user: Option<String>,

    /// Address of the client [default: that of --peer]
    ///
    /// Where it is not that of --peer, --peer is a proxy that names it, which must be one of `trusted-proxies`.
    #[arg(long, value_name = "IP")]
    pub client: Option<IpAddr>,

    /// Address at the other end of the connection [default: that of --client, or 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub peer: Option<IpAddr>,

    /// Address of ours that the connection came to [default: the first that is listened on]
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::address)]
    pub local: Option<SocketAddr>,

    /// The connection is TLS [default: if the URL says https]
    #[arg(long)]
    pub tls: bool,

    /// Name in a client certificate that is trusted, may be repeated
    #[arg(long, value_name = "NAME")]
    pub certificate_name: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Explains how a request is handled.
pub fn explain(args: &ExplainArgs) -> Result<String, Failure> {
    let flags = Overrides { config: Some(args.config.clone()), ..Overrides::default() };
    let config = config::load(&flags).map_err(Failure::Configuration)?;
    let asked = SampleRequest::new(args, &config).map_err(Failure::Usage)?;
    let site = server::site_of(&config.sites, &asked.host);
    let path = classify::decoded_path(asked.parts.uri.path());
    // Its files were read when the configuration was checked.
    let classifier = Classifier::new(&config.classes)
        .map_err(|error| Failure::Usage(format!("{}: {}", error.path.display(), error.message)))?;
    let explanation = classifier.explain(asked.facts(&args.certificate_name));
    let client = explanation.verdict.client;
    let takes =
        |route: &&Route, path: &str| route.pattern.matches(path).is_some() && route.filter.takes(&asked.parts, client);
    let route = path.as_deref().and_then(|path| config.sites[site].routes.iter().find(|route| takes(route, path)));
    let is_path = path.is_some() || config.sites[site].routes.is_empty();
    let found = Findings { config: &config, site: &config.sites[site], route, is_path, asked: &asked, explanation };
    Ok(if args.json { found.json() } else { found.text() })
}

/// The request to explain, as the server would see it.
struct SampleRequest {
    parts: Parts,
    host: String,
    peer: SocketAddr,
    local: SocketAddr,
    tls: bool,
    certificate_names: Vec<Box<str>>,
}

impl SampleRequest {
    fn new(args: &ExplainArgs, config: &Config) -> Result<Self, String> {
        let url = args.url.parse::<Uri>().ok().filter(|url| url.scheme().is_some() || args.url.starts_with('/'));
        let Some(url) = url else {
            return Err(format!(
                "`{}` is not a URL: write it as in `http://shop.example/basket` or `/basket`",
                args.url
            ));
        };
        let tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") | None => args.tls,
            Some(other) => return Err(format!("`{other}` is neither http nor https")),
        };
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(());
        *request.method_mut() = args.method.clone();
        *request.uri_mut() = path.parse().map_err(|_| format!("`{path}` is not a path"))?;
        let headers = request.headers_mut();
        for (name, value) in &args.headers {
            headers.append(name, value.clone());
        }
        if let (false, Some(authority)) = (headers.contains_key(header::HOST), url.authority()) {
            headers.insert(header::HOST, values::header_value(authority.as_str())?);
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        let host = server::host_of(host).into_owned();
        if let Some(user) = &args.user {
            let encoded = base64::engine::general_purpose::STANDARD.encode(user);
            headers.insert(header::AUTHORIZATION, values::header_value(&format!("Basic {encoded}"))?);
        }
        let peer = args.peer.or(args.client).unwrap_or(Ipv4Addr::LOCALHOST.into());
        if let Some(client) = args.client.filter(|client| *client != peer) {
            let (name, value) = forwarded(config.classes.forwarded, client)?;
            headers.append(name, value);
        }
        let local = args.local.unwrap_or_else(|| {
            let listen = config.listen.iter().find(|listen| listen.tls == tls).or(config.listen.first());
            let address = listen.map_or(config::DEFAULT_LISTEN.address, |listen| listen.address);
            match address.ip().is_unspecified() {
                true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
                false => address,
            }
        });
        let certificate_names = args.certificate_name.iter().map(|name| name.as_str().into()).collect();
        let parts = request.into_parts().0;
        // Any port of the client will do.
        Ok(Self { parts, host, peer: SocketAddr::new(peer, 49_152), local, tls, certificate_names })
    }

    fn facts(&self, certificates: &[String]) -> Facts<'_> {
        Facts {
            parts: &self.parts,
            host: &self.host,
            peer: self.peer,
            local: self.local,
            certificate_names: &self.certificate_names,
            has_certificate: !certificates.is_empty(),
            tls: self.tls,
            now: SystemTime::now(),
        }
    }
}

/// The header field in which a proxy names its client.
fn forwarded(field: ForwardedField, client: IpAddr) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = match (field, client) {
        (ForwardedField::XForwardedFor, client) => ("x-forwarded-for", client.to_string()),
        (ForwardedField::Forwarded, IpAddr::V4(client)) => ("forwarded", format!("for={client}")),
        (ForwardedField::Forwarded, IpAddr::V6(client)) => ("forwarded", format!("for=\"[{client}]\"")),
    };
    Ok((HeaderName::from_static(name), values::header_value(&value)?))
}

/// The site, route and class of the request.
struct Findings<'a> {
    config: &'a Config,
    site: &'a Site,
    route: Option<&'a Route>,
    /// Whether the target has a path that routes can match.
    is_path: bool,
    asked: &'a SampleRequest,
    explanation: Explanation,
}

impl Findings<'_> {
    fn class(&self) -> &ClassConfig {
        &self.config.classes.classes[self.explanation.verdict.class.index()]
    }

    /// The resource that the request needs; `None` if it waits for no slot.
    fn resource(&self) -> Option<ResourceId> {
        let admitted = |route: &&Route| route.admitted && self.config.classes.admission.enabled;
        let route = self.route.filter(admitted).filter(|_| self.early_refusal().is_none())?;
        Some(self.explanation.verdict.resource.unwrap_or(route.resource))
    }

    fn site_name(&self) -> String {
        match (&*self.site.names, &self.site.root) {
            ([], Some(root)) => format!("the one of {}", root.display()),
            ([], None) => "the one without names".to_owned(),
            (names, _) => names.join(", "),
        }
    }

    /// Whether the site has the name that was asked for. The first site also answers for names of no site.
    fn site_has_name(&self) -> bool {
        let host = self.asked.host.as_str();
        let is_it = |name: &String| name == host || name.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix));
        self.site.names.iter().any(is_it)
    }

    /// The status and reason, if the request is refused before any route is matched.
    fn early_refusal(&self) -> Option<(StatusCode, &'static str)> {
        match self.asked.parts.method {
            Method::CONNECT | Method::TRACE => Some((StatusCode::METHOD_NOT_ALLOWED, "this method is not served")),
            _ if !self.is_path => {
                Some((StatusCode::BAD_REQUEST, "the path cannot be decoded, or leads out of the site"))
            }
            _ => None,
        }
    }

    /// Where the request is sent because it came without TLS.
    fn to_https(&self) -> Option<&Redirect> {
        // Only the running server knows what a proxy says.
        let is_direct = self.explanation.verdict.believed.is_none();
        self.site.to_https.as_ref().filter(|_| is_direct && !self.asked.tls && self.early_refusal().is_none())
    }

    fn destination(&self) -> String {
        if let Some((status, why)) = self.early_refusal() {
            return format!("none: {} at once, because {why}", status.as_str());
        }
        match (self.route, &self.site.root) {
            (Some(route), _) => check::route(route, self.config),
            (None, Some(root)) => {
                let access = check::access(&self.site.access).map(|access| format!(", {access}")).unwrap_or_default();
                format!("none matches, so it is for the files of {}{access}", root.display())
            }
            (None, None) => "none matches, and the site has no files: 404".to_owned(),
        }
    }

    fn slots(&self) -> String {
        let admission = &self.config.classes.admission;
        let Some(resource) = self.resource() else {
            return if admission.enabled { "needs none" } else { "no limit, so nobody waits" }.to_owned();
        };
        let (name, window) = match admission.resources.get(resource.index()) {
            Some(resource) => (resource.name.as_str(), resource.window),
            None => ("", None),
        };
        let slots = [
            window.map(|window| format!("{window} for {name}")),
            admission.total.map(|total| format!("{total} in all")),
            self.class().given.most_running.map(|most| format!("{most} for its class")),
        ];
        let slots: Vec<_> = slots.into_iter().flatten().collect();
        let slots = if slots.is_empty() { format!("no limit for {name}") } else { slots.join(", ") };
        let all: u64 = self.config.classes.classes.iter().map(|class| u64::from(class.given.weight)).sum();
        let Class { weight, delay_ratio, reserved_slots, deadline_ns, .. } = self.class().given;
        let place = self.explanation.verdict.class.index() + 1;
        let part = match admission.policy {
            scheduler::share::Policy::Strict => match place {
                1 => "before all other classes".to_owned(),
                place => format!("after {} other class{}", place - 1, if place == 2 { "" } else { "es" }),
            },
            scheduler::share::Policy::Edf => match deadline_ns {
                Some(ns) => format!("deadline {}", values::show_duration(Duration::from_nanos(ns))),
                None => "no deadline, so after all that have one".to_owned(),
            },
            policy if policy.is_by_delay() => format!("delay ratio {delay_ratio}"),
            _ if reserved_slots > 0 => format!("{weight} of {all} parts, {reserved_slots} reserved"),
            _ => format!("{weight} of {all} parts"),
        };
        format!("{slots}; share `{}`: {part}", admission.policy)
    }

    fn queue(&self) -> String {
        let Class { order, most_waiting, most_wait_ns, .. } = self.class().given;
        let wait = most_wait_ns.map(|ns| format!(", for {} at most", values::show_duration(Duration::from_nanos(ns))));
        format!("{most_waiting} wait at most{}, order {}", wait.unwrap_or_default(), values::show_queue_order(order))
    }

    fn refusal(&self) -> String {
        let refusal = &self.class().refusal;
        let mut said = refusal.status.as_str().to_owned();
        if let Some(after) = refusal.retry_after {
            let _ = write!(said, ", Retry-After {}", values::show_duration(after));
        }
        if let Some(page) = &refusal.page {
            let _ = write!(said, ", page {}", page.display());
        }
        said
    }

    /// The target of the request. An API key in its query is left out.
    fn target(&self) -> String {
        let uri = &self.asked.parts.uri;
        let key = self.config.classes.keys.as_ref().and_then(|keys| keys.query.as_deref());
        let (Some(key), Some(query)) = (key, uri.query()) else { return uri.to_string() };
        let shown = query.split('&').map(|pair| {
            let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = form_urlencoded::parse(name.as_bytes()).next();
            if decoded.is_some_and(|(name, _)| name == key) { format!("{name}=...") } else { pair.to_owned() }
        });
        format!("{}?{}", uri.path(), shown.collect::<Vec<_>>().join("&"))
    }

    /// Whether the request has a session cookie that only the running server can verify.
    fn session_is_unreadable(&self) -> bool {
        let session = self.config.classes.session.as_ref().filter(|session| session.secret.is_none());
        let starts = |value: &HeaderValue, name: &str| {
            let pairs = value.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii_start);
            pairs.into_iter().any(|pair| pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")))
        };
        let cookies = self.asked.parts.headers.get_all(header::COOKIE);
        session.is_some_and(|session| cookies.iter().any(|value| starts(value, &session.cookie)))
    }

    fn text(&self) -> String {
        let SampleRequest { parts, host, tls, .. } = self.asked;
        let scheme = if *tls { "https" } else { "http" };
        let mut out = format!("{} {scheme}://{host}{}\n", parts.method, self.target());
        let note = if self.site.names.is_empty() || self.site_has_name() {
            String::new()
        } else {
            format!(" (the first one: no site is called `{host}`)")
        };
        let _ = writeln!(out, "site    {}{note}", self.site_name());
        if let Some(to) = self.to_https() {
            let _ = writeln!(out, "tls     sent to {to} first, because it came without TLS");
        }
        let _ = writeln!(out, "route   {}", self.destination());
        let _ = writeln!(out, "{}", self.explanation);
        if self.session_is_unreadable() {
            let _ = writeln!(
                out,
                "note    it has a session's cookie, which only the running server can read: `session.secret` is not set"
            );
        }
        let _ = writeln!(out, "slots   {}", self.slots());
        if self.resource().is_some() {
            let _ = writeln!(out, "queue   {}", self.queue());
            let _ = writeln!(out, "refused {}", self.refusal());
        }
        if let Some(share) = self.config.classes.uplink_share {
            let _ = writeln!(out, "uplink  share `{share}`");
        }
        out
    }

    fn json(&self) -> String {
        let SampleRequest { parts, host, tls, .. } = self.asked;
        let class = self.class();
        let admission = &self.config.classes.admission;
        let ms = |ns: u64| ns as f64 / 1e6;
        let resource = self.resource().and_then(|resource| admission.resources.get(resource.index()));
        let value = json!({
            "request": { "method": parts.method.as_str(), "host": host, "target": self.target(), "tls": tls },
            "refused": self.early_refusal().map(|(status, why)| json!({ "status": status.as_u16(), "why": why })),
            "to_https": self.to_https().map(ToString::to_string),
            "session_unreadable": self.session_is_unreadable(),
            "site": { "names": self.site.names, "by_name": self.site_has_name(), "root": self.site.root },
            "route": self.route.map(|route| json!({
                "name": route.name,
                "to": check::origin(route, self.config),
                "admitted": route.admitted,
                "access": check::access(&route.access),
            })),
            "class": self.explanation.to_json(),
            "admission": resource.map(|resource| json!({
                "share": admission.policy.name(),
                "resource": resource.name,
                "slots": { "all": admission.total, "resource": resource.window, "class": class.given.most_running },
                "weight": class.given.weight,
                "delay_ratio": class.given.delay_ratio,
                "reserved": class.given.reserved_slots,
                "deadline_ms": class.given.deadline_ns.map(ms),
                "queue": class.given.most_waiting,
                "max_wait_ms": class.given.most_wait_ns.map(ms),
                "order": values::show_queue_order(class.given.order),
                "refusal": {
                    "status": class.refusal.status.as_u16(),
                    "retry_after_s": class.refusal.retry_after.map(|after| after.as_secs_f64()),
                    "page": class.refusal.page,
                },
            })),
            "cpu_priority": values::show_priority(class.priority),
            "uplink_share": self.config.classes.uplink_share.map(|share| share.name()),
        });
        format!("{value:#}\n")
    }
}

//! `http-request`, `http-response`, `redirect`: what is done with a request.

use super::{
    acl::{Acls, When, condition, split},
    maps::Map,
    rates::{Limit, Limited},
    state::{Proxy, Translation, reason},
    values,
};
use crate::{
    draft::{Settings, list},
    fields::Fields,
    syntax::Directive,
};

/// The effect of a line on its requests.
pub(super) enum Action<'a> {
    /// An answer at once: the settings of its route.
    Answer(Settings),
    /// A backend.
    Upstream(&'a str),
}

/// A line, and the requests that it is about.
pub(super) struct Line<'a> {
    pub directive: &'a Directive,
    pub when: When,
    pub action: Action<'a>,
}

/// The lines of a frontend or a backend.
#[derive(Default)]
pub(super) struct Lines<'a> {
    pub lines: Vec<Line<'a>>,
    /// Fields of all requests, and of all responses.
    pub of_requests: Fields,
    pub of_responses: Fields,
    /// A limit that holds for all requests, and those for some.
    pub limit: Option<Limit>,
    pub limits: Vec<Limited<'a>>,
    /// A line that refuses requests, and has no counterpart.
    pub unguarded: Option<&'a Directive>,
    /// Whether requests without TLS are sent to TLS; and whether some are.
    pub is_sent_to_tls: bool,
    pub is_partly_sent_to_tls: bool,
}

impl<'a> Lines<'a> {
    /// Adds a limit for these requests.
    /// Returns whether one of two limits for the same requests is lost: there is one, the lower.
    fn limit(&mut self, directive: &'a Directive, whens: Vec<When>, limit: &Limit) -> bool {
        let mut is_one_lost = false;
        for when in whens {
            let known = match when == When::default() {
                true => self.limit.as_mut(),
                false => self.limits.iter_mut().find(|known| known.when == when).map(|known| &mut known.limit),
            };
            match known {
                Some(known) => {
                    is_one_lost = true;
                    if limit.is_below(known) {
                        *known = limit.clone();
                    }
                }
                None if when == When::default() => self.limit = Some(limit.clone()),
                None => self.limits.push(Limited { directive, when, limit: limit.clone() }),
            }
        }
        is_one_lost
    }
}

/// Actions that refuse a request.
const GUARDS: &[&str] = &["deny", "reject", "silent-drop", "tarpit", "auth", "block"];

impl<'a> Translation<'a> {
    /// The lines of a frontend or a backend, in the order in which they count.
    pub(super) fn lines(&mut self, proxy: &Proxy<'a>) -> Lines<'a> {
        let mut found = Lines::default();
        let acls = Acls::of(proxy.section, self.files);
        let named = |names: &'static [&'static str]| {
            let inner: &'a [Directive] = proxy.section.inner();
            inner.iter().filter(move |line| names.contains(&line.name.as_str()))
        };
        for line in named(&["tcp-request", "http-request", "block"]).chain(named(&["redirect"])) {
            self.line(line, proxy, &acls, &mut found);
        }
        for line in named(&["http-response", "rspadd", "reqadd"]) {
            let (action, words) = split(&line.args);
            match words.is_empty() {
                true if self.field(line, action, &mut found.of_responses, false) => {}
                true => {}
                false => self.leave(line, "fields of responses are the same for all requests of a route"),
            }
        }
        let otherwise = proxy.in_force("default_backend").last().map(|line| line.arg(0));
        for line in named(&["use_backend"]) {
            let (action, words) = split(&line.args);
            let name = action.first().map_or("", String::as_str);
            match self.backends_of(line, name, words, &acls, found.is_partly_sent_to_tls, otherwise) {
                Ok(lines) => found.lines.extend(lines),
                Err(reason) => self.leave(line, reason),
            }
        }
        found
    }

    /// The lines of a `use_backend`: one for each alternative of its condition, and for each entry of its map. `otherwise`: the
    /// default backend, which gets what a map sends to no backend.
    fn backends_of(
        &mut self,
        line: &'a Directive,
        name: &'a str,
        words: &[String],
        acls: &Acls<'_>,
        is_sent_to_tls: bool,
        otherwise: Option<&'a str>,
    ) -> Result<Vec<Line<'a>>, String> {
        let map = values::has_variable(name).then(|| Map::read(name)).transpose()?;
        let whens = match &map {
            Some(map) if map.is_asked_for(words) => vec![When::default()],
            _ => condition(words, acls)?,
        };
        if whens.iter().any(|when| when.tls == Some(false) || when.tls.is_some() && !is_sent_to_tls) {
            return Err("a route does not ask whether a client has spoken TLS".to_owned());
        }
        let to = |when: When, name: &'a str| Line { directive: line, when, action: Action::Upstream(name) };
        let Some(map) = map else { return Ok(whens.into_iter().map(|when| to(when, name)).collect()) };
        let (entries, default) = map.entries(self.files)?;
        let mut lines = Vec::new();
        for (of_entry, value) in entries {
            let backend = self.backends.iter().map(|backend| backend.name).find(|name| *name == value);
            if backend.is_none() {
                self.leave(line, format!("the map names `{value}`, which is no backend that speaks HTTP"));
            }
            for when in &whens {
                let when = when.and(&of_entry)?;
                lines.push(match backend.or(otherwise) {
                    Some(backend) => to(when, backend),
                    None => {
                        let mut settings = Settings::default();
                        settings.write("respond", "503".to_owned(), None);
                        Line { directive: line, when, action: Action::Answer(settings) }
                    }
                });
            }
        }
        if let Some(default) = default {
            lines.extend(whens.into_iter().map(|when| to(when, default)));
        }
        Ok(lines)
    }

    /// The lines of a redirect whose target is in a map, if it is one: `location %[path,map(FILE)] if { path,map(FILE)
    /// -m found }`.
    fn redirects_of(
        &self,
        line: &'a Directive,
        rest: &[String],
        words: &[String],
    ) -> Option<Result<Vec<Line<'a>>, String>> {
        let target = rest.get(1).filter(|target| rest[0] == "location" && target.contains(",map"))?;
        let lines = || {
            let map = Map::read(target)?;
            if !map.is_asked_for(words) {
                return Err("such a redirect needs `if { ..., map(...) -m found }` with the same map".to_owned());
            }
            let (entries, _) = map.entries(self.files)?;
            let mut lines = Vec::new();
            for (when, value) in entries {
                let mut rest = rest.to_vec();
                rest[1] = value;
                let settings = redirect(&rest)?.unwrap_or_default();
                lines.push(Line { directive: line, when, action: Action::Answer(settings) });
            }
            Ok(lines)
        };
        Some(lines())
    }

    fn line(&mut self, line: &'a Directive, proxy: &Proxy<'a>, acls: &Acls<'a>, found: &mut Lines<'a>) {
        let is_http = line.name == "http-request";
        let args = match line.name.as_str() {
            // `tcp-request connection reject if ...`
            "tcp-request" if matches!(line.arg(0), "connection" | "content" | "session") => &line.args[1..],
            "tcp-request" => return self.notes.skip(line),
            "redirect" | "block" => &line.args[..],
            _ => &line.args[..],
        };
        let (action, words) = split(args);
        let name = if line.name == "redirect" || line.name == "block" {
            line.name.as_str()
        } else {
            action.first().map_or("", String::as_str)
        };
        let rest =
            if line.name == "redirect" || line.name == "block" { action } else { action.get(1..).unwrap_or_default() };
        let settings = match name {
            "set-header" | "add-header" | "del-header" if is_http => {
                if words.is_empty() {
                    self.field(line, action, &mut found.of_requests, true);
                } else if !is_of_scheme(action, words, acls) {
                    self.leave(line, "fields of requests are the same for all requests of a route");
                }
                return;
            }
            "disable-l7-retry" | "wait-for-handshake" => return self.notes.skip(line),
            "accept" if words.is_empty() => return self.notes.skip(line),
            "accept" => return self.leave(line, "what refuses requests behind it refuses these, too"),
            "track-sc0" | "track-sc1" | "track-sc2" => {
                // The lines that ask for a rate say what becomes of it.
                let asks = |it: &Directive| {
                    it.name != "stick-table"
                        && it.args.iter().any(|arg| arg.contains("_req_rate") || arg.contains("_conn_cur"))
                };
                if !proxy.section.inner().iter().any(asks) {
                    self.leave(line, reason("stick-table"));
                }
                return;
            }
            "expect-proxy" if !is_http => {
                let whens = condition(words, acls).unwrap_or_default();
                let proxies: Option<Vec<&[String]>> = whens.iter().map(When::clients_alone).collect();
                return match proxies.filter(|proxies| !proxies.is_empty()) {
                    Some(proxies) => self.top.set("proxy-protocol", list(proxies.concat())),
                    None => self.leave(line, "name the addresses of these proxies in `proxy-protocol`"),
                };
            }
            "use-service" if rest.first().is_some_and(|service| service.starts_with("lua.")) => {
                return self.leave(line, "there is no counterpart to filters and Lua");
            }
            "use-service" => return self.leave(line, "metrics are at the address of `admin`"),
            "redirect" => match self.redirects_of(line, rest, words) {
                Some(Ok(lines)) => return found.lines.extend(lines),
                Some(Err(reason)) => Err(reason),
                None => redirect(rest),
            },
            "return" => answer(rest),
            "auth" => Err("give the users to `[users]`, and the route `require = { user = true }`".to_owned()),
            name if GUARDS.contains(&name) => match self.limit_of(words, acls, proxy) {
                Some(Ok((whens, limit))) => {
                    if found.limit(line, whens, &limit) {
                        self.leave(line, "there is one limit of a kind: the lowest rate is taken");
                    }
                    return;
                }
                Some(Err(reason)) => Err(reason),
                None => match self.connections_of(words, acls, proxy) {
                    Some(most) => return self.limits.write("connections-per-client", most.to_string(), None),
                    None => refusal(name, rest),
                },
            },
            _ => Err(reason(&line.name).to_owned()),
        };
        let made = settings.and_then(|settings| Ok((settings, condition(words, acls)?)));
        match made {
            Ok((settings, whens)) => {
                for when in whens {
                    if settings.is_none() || when.tls == Some(false) {
                        // To TLS.
                        if settings.is_none() && (when.is_everything() || when.tls == Some(false)) {
                            found.is_sent_to_tls |= when.is_everything();
                            found.is_partly_sent_to_tls = true;
                        } else {
                            self.unsaid(
                                line,
                                name,
                                found,
                                "a route does not ask whether a client has spoken TLS".to_owned(),
                            );
                        }
                        continue;
                    }
                    if when.tls.is_some() {
                        self.unsaid(
                            line,
                            name,
                            found,
                            "a route does not ask whether a client has spoken TLS".to_owned(),
                        );
                        continue;
                    }
                    let action = Action::Answer(settings.clone().unwrap_or_default());
                    found.lines.push(Line { directive: line, when, action });
                }
            }
            Err(reason) => {
                let closed = if GUARDS.contains(&name) && !is_of_rate(line) { some_of(words, acls) } else { None };
                let Some(whens) = closed else { return self.unsaid(line, name, found, reason) };
                self.leave(line, reason);
                self.notes.close(line);
                let mut settings = Settings::default();
                settings.write("respond", "403".to_owned(), None);
                let refused = |when| Line { directive: line, when, action: Action::Answer(settings.clone()) };
                found.lines.extend(whens.into_iter().map(refused));
            }
        }
    }

    /// Names a line. If it refuses requests, nothing gets through without it.
    fn unsaid(&mut self, line: &'a Directive, name: &str, found: &mut Lines<'a>, reason: String) {
        self.leave(line, reason);
        if GUARDS.contains(&name) && !is_of_rate(line) {
            found.unguarded = found.unguarded.or(Some(line));
        }
    }

    /// A field of all requests or responses.
    fn field(&mut self, line: &Directive, action: &[String], fields: &mut Fields, of_requests: bool) -> bool {
        let (name, value) = (action.get(1).map_or("", String::as_str), action.get(2).map_or("", String::as_str));
        match action.first().map_or("", String::as_str) {
            "set-header" | "add-header" if is_written_anyway(name, value) => {}
            // Fields of a client are not believed, and Serpent writes its own.
            "del-header" if is_about_client(name) && of_requests => {}
            "set-header" if is_client(value) && of_requests => fields.client.push(name.to_owned()),
            "set-header" | "add-header" if values::has_variable(value) || value.contains('%') => {
                self.leave(line, "the value of a field has no variables");
            }
            "set-header" => fields.set(name, value),
            "add-header" if fields.add.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) => {
                self.leave(line, "a route adds one field of a name");
            }
            "add-header" => fields.add.push((name.to_owned(), value.to_owned())),
            // The name of the server is taken out anyway.
            "del-header" if name.eq_ignore_ascii_case("server") => {}
            "del-header" => fields.remove.push(name.to_owned()),
            _ => {
                self.leave(line, reason(&line.name));
                return false;
            }
        }
        true
    }
}

/// Whether a line asks for a rate, which is no matter of who asks.
fn is_of_rate(line: &Directive) -> bool {
    line.args.iter().any(|arg| arg.contains("sc_") || arg.contains("sc0_") || arg.contains("_rate"))
}

/// The requests of a condition without its tests that have no counterpart: more than it is about. `None`: all of them.
fn some_of(words: &[String], acls: &Acls<'_>) -> Option<Vec<When>> {
    let (first, rest) = words.split_first().filter(|(first, _)| *first == "if")?;
    let mut whens = Vec::new();
    for group in rest.split(|word| matches!(word.as_str(), "or" | "OR" | "||")) {
        let mut known = vec![first.clone()];
        let mut test = Vec::new();
        for word in group {
            test.push(word.clone());
            let is_open = test.iter().any(|word| word.ends_with('{')) && word != "}";
            if is_open || word == "!" {
                continue;
            }
            let test = std::mem::take(&mut test);
            if condition(&[vec![first.clone()], test.clone()].concat(), acls).is_ok() {
                known.extend(test);
            }
        }
        if known.len() == 1 {
            return None;
        }
        whens.extend(condition(&known, acls).ok()?);
    }
    let is_some = |when: &When| !when.is_everything() && when.tls.is_none();
    (!whens.is_empty() && whens.iter().all(is_some)).then_some(whens)
}

/// Whether a field names the client, so that Serpent writes it and takes out that of the client.
fn is_about_client(name: &str) -> bool {
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded"]
        .contains(&name.to_ascii_lowercase().as_str())
}

/// Whether Serpent gives a field this value by itself.
fn is_written_anyway(name: &str, value: &str) -> bool {
    if name.eq_ignore_ascii_case("x-forwarded-for") {
        return is_client(value);
    }
    let value = value.strip_prefix("%[").and_then(|value| value.strip_suffix(']')).unwrap_or(value);
    match name.to_ascii_lowercase().as_str() {
        "x-forwarded-proto" => value == "ssl_fc,iif(https,http)",
        "x-forwarded-host" => matches!(value, "req.hdr(host)" | "hdr(host)" | "req.hdr(Host)" | "hdr(Host)"),
        _ => false,
    }
}

/// Whether a value is the address of the client.
fn is_client(value: &str) -> bool {
    matches!(value, "%[src]" | "%ci")
}

/// Whether a line writes the scheme by which the client is connected.
fn is_of_scheme(action: &[String], words: &[String], acls: &Acls<'_>) -> bool {
    let [_, name, value] = action else { return false };
    let holds = |when: &When| match when.tls {
        Some(true) => value == "https",
        Some(false) => value == "http",
        None => false,
    };
    name.eq_ignore_ascii_case("x-forwarded-proto") && condition(words, acls).is_ok_and(|whens| whens.iter().all(holds))
}

fn after<'w>(words: &'w [String], name: &str) -> Option<&'w str> {
    words.iter().skip_while(|word| *word != name).nth(1).map(String::as_str)
}

fn refusal(name: &str, words: &[String]) -> Result<Option<Settings>, String> {
    let usual = if name == "tarpit" { "500" } else { "403" };
    let status = after(words, "deny_status").or(after(words, "status")).unwrap_or(usual);
    if !status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) {
        return Err(format!("`{status}` is no status of a refusal"));
    }
    let mut settings = Settings::default();
    settings.write("respond", status.to_owned(), None);
    Ok(Some(settings))
}

/// `None`: to TLS.
fn redirect(words: &[String]) -> Result<Option<Settings>, String> {
    let (kind, target) = (words.first().map_or("", String::as_str), words.get(1).map_or("", String::as_str));
    let drops_query = words.iter().any(|word| word == "drop-query");
    let target = match kind {
        "scheme" if target == "https" => return Ok(None),
        "location" => values::template(target)?,
        "prefix" => format!(
            "{}{}",
            values::template(target.trim_end_matches('/'))?,
            if drops_query { "{path}" } else { "{uri}" }
        ),
        _ => return Err("a redirect has a `location` or a `prefix`".to_owned()),
    };
    let mut settings = Settings::default();
    settings.set("redirect", target);
    match after(words, "code").unwrap_or("302") {
        "302" => {}
        status @ ("301" | "303" | "307" | "308") => settings.write("redirect-status", status.to_owned(), None),
        other => return Err(format!("`{other}` is no status of a redirect")),
    }
    match words.iter().any(|word| matches!(word.as_str(), "set-cookie" | "clear-cookie")) {
        true => Err("a redirect sets no cookie".to_owned()),
        false => Ok(Some(settings)),
    }
}

fn answer(words: &[String]) -> Result<Option<Settings>, String> {
    let status = after(words, "status").unwrap_or("200");
    let number = status.parse::<u16>().unwrap_or(0);
    if !matches!(number, 200..=299 | 400..=599) {
        return Err("`respond` has statuses from 200 to 299 and from 400 to 599".to_owned());
    }
    if ["file", "lf-file", "errorfile", "errorfiles"].iter().any(|word| after(words, word).is_some()) {
        return Err("`respond-body` has a text; a route with `files` has files".to_owned());
    }
    let mut settings = Settings::default();
    settings.write("respond", status.to_owned(), None);
    if let Some(text) = after(words, "string").or(after(words, "lf-string")) {
        if values::has_variable(text) || after(words, "lf-string").is_some_and(|text| text.contains('%')) {
            return Err("the text of an answer has no variables".to_owned());
        }
        settings.set("respond-body", text);
        if let Some(kind) = after(words, "content-type") {
            settings.set("respond-type", kind);
        }
    }
    Ok(Some(settings))
}

//! The directives of nginx, one by one.

mod access;
mod balancing;
mod cache;
mod clients;
mod compression;
mod condition;
mod conditional;
mod error_page;
mod expand;
mod expression;
mod fastcgi;
mod forward_auth;
mod freshness;
mod guards;
mod headers;
mod listen;
mod location;
mod logs;
mod missing;
mod named;
mod rewrite;
mod server;
mod state;
mod upstream;
mod uwsgi;
mod values;

use crate::{
    draft::{Draft, Section, Settings, list, table},
    report::Left,
    syntax::Directive,
};
use server::Server;
use state::{INHERITED, Translation};

impl<'a> Translation<'a> {
    fn main(&mut self, top: &mut Settings, directives: &'a [Directive]) {
        for directive in directives {
            match directive.name.as_str() {
                "http" => {}
                "error_log" => self.error_log(directive),
                "worker_processes" => match directive.arg(0) {
                    "auto" => {}
                    number => top.write("workers", number.to_owned(), None),
                },
                _ => self.other(directive),
            }
        }
    }

    /// Translates the directives of `http` that hold for all servers. Those that servers inherit are translated with
    /// them.
    fn http(&mut self, directives: &'a [Directive]) {
        let of = |name: &'static str| directives.iter().filter(move |directive| directive.name == name);
        self.maps = of("map").chain(of("geo")).collect();
        of("log_format").for_each(|format| self.log_format(format));
        self.log_of_all(directives);
        for directive in directives {
            match directive.name.as_str() {
                "server" | "log_format" => {}
                // Those that nothing asks are named at the end.
                "map" | "geo" => {}
                "error_log" => self.error_log(directive),
                "upstream" => self.upstreams.declare(directive),
                "limit_req_zone" | "limit_conn_zone" => self.zone(directive),
                "proxy_cache_path" => self.cache_path(directive),
                "keepalive_timeout" => self.limit_time(directive, "idle-timeout"),
                "client_header_timeout" => self.limit_time(directive, "head-timeout"),
                "types" => self.types(directive),
                name if INHERITED.contains(&name) || clients::NAMES.contains(&name) => {}
                _ => self.other(directive),
            }
        }
        self.largest_body(directives);
    }

    fn zone(&mut self, directive: &'a Directive) {
        let value = |name: &str| directive.args.iter().find_map(|arg| arg.strip_prefix(name));
        let Some(zone) = value("zone=").and_then(|zone| zone.split(':').next()) else {
            return self.leave(directive, "it names no zone");
        };
        let by = match access::counted_by(directive.arg(0)) {
            Ok(by) => Some(by),
            Err(reason) => {
                self.leave(directive, reason);
                None
            }
        };
        if let Some(note) = by.as_ref().and_then(|_| access::counts_otherwise(directive.arg(0))) {
            self.leave(directive, note);
        }
        self.zones.insert(zone, (value("rate=").map(|rate| rate.replace("r/", "/")), by));
    }

    fn unused_maps(&mut self) {
        for map in std::mem::take(&mut self.maps) {
            let is_used = map.args.last().is_some_and(|variable| self.maps_used.contains(variable));
            match map.arg(0) {
                // An upgrade is passed on by itself.
                "$http_upgrade" => self.notes.skip(map),
                _ if is_used || freshness::is_by_type(map) => {}
                _ => self.other(map),
            }
        }
    }

    fn limit_time(&mut self, directive: &Directive, name: &str) {
        match values::time(directive.arg(0)) {
            Some(time) => self.limits.set(name, time),
            None => self.leave(directive, "the time cannot be read, or is zero"),
        }
    }

    /// Only types that a usual table does not have.
    fn types(&mut self, directive: &Directive) {
        for entry in directive.inner() {
            let usual = |extension: &&String| !USUAL_EXTENSIONS.contains(&extension.as_str());
            self.mime_types.extend(entry.args.iter().filter(usual).map(|one| (one.clone(), entry.name.clone())));
        }
    }
}

/// The extensions of nginx's own `mime.types`, which the built-in table has as well.
const USUAL_EXTENSIONS: &[&str] = &[
    "html", "htm", "shtml", "css", "xml", "gif", "jpeg", "jpg", "js", "atom", "rss", "mml", "txt", "jad", "wml", "htc",
    "avif", "png", "svg", "svgz", "tif", "tiff", "wbmp", "webp", "ico", "jng", "bmp", "woff", "woff2", "jar", "war",
    "ear", "json", "hqx", "doc", "pdf", "ps", "eps", "ai", "rtf", "m3u8", "kml", "kmz", "xls", "eot", "odg", "odp",
    "ods", "odt", "pptx", "xlsx", "docx", "ppt", "wmlc", "wasm", "7z", "cco", "jardiff", "jnlp", "run", "pl", "pm",
    "prc", "pdb", "rar", "rpm", "sea", "swf", "sit", "tcl", "tk", "der", "pem", "crt", "xpi", "xhtml", "xspf", "zip",
    "bin", "exe", "dll", "deb", "dmg", "iso", "img", "msi", "msp", "msm", "mid", "midi", "kar", "mp3", "ogg", "m4a",
    "ra", "3gpp", "3gp", "ts", "mp4", "mpeg", "mpg", "mov", "webm", "flv", "m4v", "mng", "asx", "asf", "wmv", "avi",
];

/// Translates all that was read: the text, and what it does not have.
pub fn all(directives: &[Directive]) -> (String, Vec<Left>) {
    let directives = &expand::expanded(directives)[..];
    let mut translation = Translation::default();
    let mut draft = Draft::default();
    // A file of a site alone has no `http`.
    let http = directives.iter().find(|directive| directive.name == "http");
    if http.is_some() {
        translation.main(&mut draft.top, directives);
    }
    let http = http.map_or(directives, Directive::inner);
    translation.http(http);
    translation.believed_proxies(http, &mut draft.top);
    let blocks = http.iter().filter(|directive| directive.name == "server");
    let mut servers: Vec<Server<'_>> = blocks.map(|block| Server::read(&mut translation, http, block)).collect();
    server::without_lost(&mut translation, &mut servers);
    let addresses = listen::addresses(servers.iter().flat_map(|server| &server.listen));
    server::merge(&mut translation, &mut servers);
    if !addresses.is_empty() {
        draft.top.set("listen", list(addresses));
    }
    let mut sites = Vec::new();
    for server in &mut servers {
        let sent_elsewhere = server.take_sent_elsewhere(&mut translation);
        let site = server.translate(&mut translation);
        if site.settings.has("root") || site.inner.iter().any(|inner| inner.header == "[[site.route]]") {
            sites.push(site);
        } else {
            translation.leave(server.directive, "nothing is left of it; the first site answers for names of no site");
        }
        sites.extend(sent_elsewhere);
    }
    translation.unused_maps();
    let Translation { notes, upstreams, users, limits, access_log, error_log, mime_types, .. } = translation;
    for (header, settings) in [("[limits]", limits), ("[access-log]", access_log), ("[error-log]", error_log)] {
        if !settings.is_empty() {
            draft.sections.push(Section { settings, ..Section::new(header) });
        }
    }
    if !mime_types.is_empty() {
        let mut files = Section::new("[files]");
        files.settings.set("mime-types", table(mime_types.into_iter().map(|(k, v)| (k, v.into()))));
        draft.sections.push(files);
    }
    if let Some(file) = users {
        let mut section = Section::new("[users]");
        section.settings.set("file", file);
        draft.sections.push(section);
    }
    draft.sections.extend(upstreams.into_sections());
    draft.sections.extend(sites);
    draft.comment = notes.header("nginx");
    (draft.text(), notes.left)
}

//! `fastcgi_pass`: the application of a route.

use toml_edit::Value;

use super::{
    named::{fallback_to, goes_on_to, is_named_route, only_path},
    state::{Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

/// Parameters that every application gets, with what nginx's own files write for them.
const STANDARD: &[(&str, &[&str])] = &[
    ("AUTH_TYPE", &[]),
    ("CONTENT_LENGTH", &["$content_length"]),
    ("CONTENT_TYPE", &["$content_type"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("DOCUMENT_URI", &["$document_uri", "$uri"]),
    ("GATEWAY_INTERFACE", &["CGI/1.1"]),
    ("HTTPS", &["$https"]),
    ("HTTP_HOST", &["$host", "$http_host"]),
    ("HTTP_PROXY", &[""]),
    ("PATH_INFO", &["$fastcgi_path_info", "$path_info"]),
    ("PATH_TRANSLATED", &["$document_root$fastcgi_path_info", "$document_root$path_info"]),
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REDIRECT_STATUS", &["200"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("REQUEST_URI", &["$request_uri"]),
    (
        "SCRIPT_FILENAME",
        &[
            "$document_root$fastcgi_script_name",
            "$document_root/$fastcgi_script_name",
            "$realpath_root$fastcgi_script_name",
            "$request_filename",
        ],
    ),
    ("SCRIPT_NAME", &["$fastcgi_script_name"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_NAME", &["$server_name", "$host", "$http_host"]),
    ("SERVER_PORT", &["$server_port"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("SERVER_SOFTWARE", &["nginx/$nginx_version", "nginx"]),
];

/// Whether a directive in a location of scripts only says what is done anyway: a script has to exist, and the path behind
/// it is `PATH_INFO`.
pub fn is_done_anyway(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "if" => directive.args.join(" ").replace(' ', "") == "(!-f$document_root$fastcgi_script_name)",
        "set" => directive.arg(1) == "$fastcgi_path_info",
        "fastcgi_split_path_info" => directive.arg(0).contains(r"\.php"),
        _ => false,
    }
}

/// Whether every application gets this parameter with this value.
pub(super) fn is_standard(name: &str, value: &str) -> bool {
    STANDARD.iter().any(|(standard, values)| *standard == name && values.contains(&value))
}

impl<'a> Translation<'a> {
    /// `expression`: that of the location, if it has one. `root`: that of the site. Returns whether there is a route.
    pub(super) fn fastcgi(
        &mut self,
        pass: &'a Directive,
        levels: &[&'a [Directive]],
        expression: Option<&str>,
        root: Option<&str>,
        settings: &mut Settings,
    ) -> bool {
        let Some(address) = self.application(pass, pass.arg(0)) else { return false };
        let mut table = vec![("address", Value::from(address))];
        let own_root = one_in_force(levels, "root").map(|own| own.arg(0));
        if let Some(own) = own_root.filter(|own| Some(*own) != root) {
            table.push(("root", own.into()));
        }
        let root = own_root.or(root);
        let remote_root = self.parameters(levels, root, &mut table);
        if root.is_none() && !remote_root {
            self.leave(pass, "nothing says where the scripts are: add `root`, or `remote-root` if they are elsewhere");
            return false;
        }
        if expression.is_some_and(|text| text.contains("phtml")) {
            table.push(("extensions", list(["php", "phtml"])));
        }
        if let Some(index) = one_in_force(levels, "fastcgi_index").map(|index| index.arg(0)) {
            match index.ends_with(".php") && !index.contains(['/', '$']) {
                true if index == "index.php" => {}
                true => table.push(("index", index.into())),
                false => self.leave(pass, format!("the script of a directory (`{index}`) has an extension of scripts")),
            }
        }
        for (name, setting) in [("fastcgi_connect_timeout", "connect-timeout"), ("fastcgi_read_timeout", "timeout")] {
            if let Some(directive) = one_in_force(levels, name) {
                match values::time(directive.arg(0)) {
                    Some(time) => table.push((setting, time.into())),
                    None => self.leave(directive, "the time cannot be read, or is zero"),
                }
            }
        }
        if one_in_force(levels, "fastcgi_keep_conn").is_some_and(|keep| keep.arg(0) == "on") {
            table.push(("keep-connections", 4.into()));
        }
        // Only the location's own `try_files` is looked at; the server's is about files.
        for tried in levels.last().into_iter().flat_map(|level| level.iter()).filter(|one| one.name == "try_files") {
            if tried.args.iter().any(|arg| !matches!(arg.as_str(), "$uri" | "$fastcgi_script_name" | "=404")) {
                self.leave(tried, "a script that does not exist gets 404");
            }
        }
        match &mut table[..] {
            [(_, address)] => settings.set("fastcgi", address.clone()),
            table => table.iter().for_each(|(name, value)| settings.set(&format!("fastcgi.{name}"), value.clone())),
        }
        let hidden = in_force(levels, "fastcgi_hide_header");
        if !hidden.is_empty() {
            settings.set("response-headers.remove", list(hidden.into_iter().map(|hidden| hidden.arg(0))));
        }
        true
    }

    /// The address of the application; `None`: it has none here, which is said.
    pub(super) fn application(&mut self, pass: &'a Directive, written: &'a str) -> Option<String> {
        if values::has_variable(written) {
            self.leave(pass, "the address of an application is named in the file: variables cannot choose it");
            return None;
        }
        let group = self.upstreams.declared.iter().copied().find(|group| group.arg(0) == written);
        let mut address = written;
        if let Some(group) = group {
            let servers: Vec<_> = group.inner().iter().filter(|inner| inner.name == "server").collect();
            let Some(first) = servers.first() else {
                self.leave(pass, "the group has no server");
                return None;
            };
            address = first.arg(0);
            if servers.len() > 1 {
                self.leave(pass, format!("a route has one application: {address} is taken, the others are left out"));
            }
        }
        if !address.starts_with("unix:")
            && address.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err())
        {
            self.leave(pass, "the address of an application has a port");
            return None;
        }
        Some(address.to_owned())
    }

    /// `fastcgi_param`. Returns whether the application sees the scripts at a path of its own.
    fn parameters(
        &mut self,
        levels: &[&'a [Directive]],
        root: Option<&str>,
        settings: &mut Vec<(&'static str, Value)>,
    ) -> bool {
        let (mut environment, mut remote_root): (Vec<(&str, Value)>, Option<&str>) = (Vec::new(), None);
        for param in in_force(levels, "fastcgi_param") {
            let (name, value) = (param.arg(0), param.arg(1));
            environment.retain(|(other, _)| *other != name);
            if is_standard(name, value) {
                continue;
            }
            let elsewhere = value.strip_suffix("$fastcgi_script_name").map(|path| path.trim_end_matches('/'));
            match (name, elsewhere) {
                ("SCRIPT_FILENAME", Some(path)) if path.starts_with('/') && !values::has_variable(path) => {
                    remote_root = Some(path).filter(|path| root.map(|root| root.trim_end_matches('/')) != Some(*path));
                }
                ("SCRIPT_FILENAME", _) => {
                    self.leave(
                        param,
                        "the path of the request names the script: `fallback` of a route leads to one script",
                    );
                }
                _ if values::has_variable(value) => self.leave(param, "the value of a parameter has no variables"),
                _ => environment.push((name, value.into())),
            }
        }
        if let Some(path) = remote_root {
            settings.push(("remote-root", path.into()));
        }
        if !environment.is_empty() {
            settings.push(("environment", table(environment)));
        }
        remote_root.is_some()
    }

    /// Translates the targets of `try_files` after the path itself. A script or a named location becomes the route of
    /// another path, any other target another file.
    pub(super) fn instead_of_files(&mut self, levels: &[&'a [Directive]], settings: &mut Settings) {
        let (mut files, mut fallback): (Vec<String>, Option<String>) = (Vec::new(), None);
        // No block takes it from the blocks around it.
        for tried in levels.last().into_iter().flat_map(|level| level.iter()).filter(|one| one.name == "try_files") {
            for arg in &tried.args {
                if matches!(arg.as_str(), "$uri" | "$uri/" | "=404") {
                    continue;
                }
                if is_named_route(arg, levels) {
                    fallback = Some(fallback_to(arg));
                    if !tried.args.iter().any(|arg| arg == "$uri/") {
                        self.leave(tried, "a directory with an index is answered with its index (`fallback`)");
                    }
                    continue;
                }
                if let Some(path) = only_path(arg, levels) {
                    fallback = Some(path);
                    continue;
                }
                if arg.starts_with(['@', '=']) {
                    let message =
                        "what is missing is answered by another file, by the route of another path, or with 404";
                    self.leave(tried, format!("`{arg}`: {message}"));
                    continue;
                }
                // `fallback` appends the query to a path without one.
                let whole = arg.replace("&$args", "{query}").replace("&$query_string", "{query}");
                let (path, query) = match whole.split_once(['?']) {
                    Some((path, "$args" | "$query_string")) => (path.to_owned(), None),
                    Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
                    None => (whole.replace("$is_args$args", "").replace("$is_args$query_string", ""), None),
                };
                // The query behind a script is for the script.
                let is_script = path.ends_with(".php") || path.contains(".php/") || path.contains(".php$");
                let target =
                    query.as_ref().filter(|_| is_script).map_or(path.clone(), |query| format!("{path}?{query}"));
                match values::target(&target) {
                    Ok(target) if is_script => fallback = Some(target),
                    Ok(target) => files.push(target),
                    Err(reason) => self.leave(tried, reason),
                }
            }
            if let (Some(script), false) = (&fallback, files.is_empty()) {
                self.leave(tried, format!("the route of one path answers what is missing: {script} is taken"));
                files.clear();
            }
        }
        let missing = in_force(levels, "error_page").into_iter().find_map(|page| goes_on_to(page, levels));
        if let Some(fallback) = fallback.or_else(|| missing.map(fallback_to)) {
            settings.set("fallback", fallback);
        }
        if !files.is_empty() {
            settings.set("try-files", list(files));
        }
    }
}

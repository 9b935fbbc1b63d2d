//! `forward_auth`: another server says whether a request goes on.

use toml_edit::Value;

use super::{proxy::server, route::Addition, state::Translation};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

impl Translation {
    /// Returns whether there is a counterpart.
    pub fn forward_auth(&mut self, line: &Directive, args: &[String], addition: &mut Addition<'_>) -> bool {
        let mut path = "/".to_owned();
        let mut copied: Vec<String> = Vec::new();
        for inner in line.inner() {
            match inner.name.as_str() {
                "uri" => path = inner.arg(0).to_owned(),
                "copy_headers" => {
                    let names = inner.args.iter().chain(inner.inner().iter().map(|inner| &inner.name));
                    for name in names {
                        match name.split_once('>') {
                            None => copied.push(name.clone()),
                            Some((from, to)) if from.eq_ignore_ascii_case(to) => copied.push(to.to_owned()),
                            Some(_) => self.leave(inner, "a field is copied under its own name"),
                        }
                    }
                }
                _ => self.other(inner),
            }
        }
        let mut servers = Vec::new();
        for address in args {
            match server(address, false, false) {
                Ok(server) => servers.extend(server),
                Err(reason) => self.leave(line, reason),
            }
        }
        if servers.is_empty() || !path.starts_with('/') {
            self.leave(
                line,
                "without a server and a path that begins with a slash nobody is asked, and all are let in",
            );
            return false;
        }
        let upstream = self.upstream(line, &servers, Settings::default());
        let mut settings = vec![("upstream", Value::from(upstream)), ("path", Value::from(path))];
        if !copied.is_empty() {
            settings.push(("copy-headers", list(copied)));
        }
        addition.settings.set("forward-auth", table(settings));
        true
    }
}

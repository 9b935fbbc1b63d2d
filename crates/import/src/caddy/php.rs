//! `php_fastcgi`: scripts go to an application, and what is no file to the script that answers for all.

use toml_edit::Value;

use super::{block::Scope, matcher::Pattern, proxy::server, route::Route, state::Translation, values};
use crate::{draft::table, syntax::Directive};

/// The script that answers for what is no file.
const INDEX: &str = "index.php";

impl Translation {
    /// Makes the route of the scripts. Returns whether there is one; otherwise scripts are refused, so that none is sent as
    /// a file.
    pub fn php(&mut self, directive: &Directive, args: &[String], route: &mut Route, scope: &Scope<'_>) -> bool {
        let Some(scripts) = Pattern::Expression("\\.php(/|$)".to_owned()).within(&scope.pattern, &scope.stripped)
        else {
            self.leave(directive, "the scripts of these paths cannot be told from others: make a site of them");
            return false;
        };
        route.pattern = scripts;
        let servers: Vec<_> = args.iter().map(|address| server(address, false, false)).collect();
        let address = match &servers[..] {
            [Ok(servers)] if servers.len() == 1 => servers[0].trim_start_matches("http://").to_owned(),
            [Err(reason)] => {
                self.leave(directive, reason.as_str());
                return refused(route);
            }
            _ => {
                self.leave(directive, "an application has one address");
                return refused(route);
            }
        };
        if !scope.stripped.is_empty() {
            self.leave(directive, "a script is found by the path that the client asks for");
            return refused(route);
        }
        let mut settings = vec![("address", Value::from(address))];
        let mut root = scope.root.clone();
        let mut environment = Vec::new();
        for line in directive.inner() {
            match line.name.as_str() {
                "root" => root = line.args.last().cloned(),
                "index" if matches!(line.arg(0), INDEX | "off") => {}
                "index" => self.leave(line, "the script of a folder is one of `fastcgi.index` and `site.files.index`"),
                "split" if line.args.iter().all(|end| end == ".php") => {}
                "env" if line.args.len() == 2 && !values::has_placeholder(line.arg(1)) => {
                    environment.push((line.arg(0), Value::from(line.arg(1))));
                }
                "dial_timeout" | "read_timeout" => match values::time(line.arg(0)) {
                    Some(time) if line.name == "read_timeout" => settings.push(("timeout", time.into())),
                    Some(time) => settings.push(("connect-timeout", time.into())),
                    None => self.leave(line, "the time cannot be read, or is zero"),
                },
                "resolve_root_symlink" | "capture_stderr" => self.notes.skip(line),
                "write_timeout" => self.leave(line, "`fastcgi.timeout` holds for both directions"),
                "split" => {
                    self.leave(line, "a script ends where its file ends: the first one with one of `extensions`")
                }
                _ => self.other(line),
            }
        }
        match root.filter(|root| !values::has_placeholder(root)) {
            Some(root) => settings.push(("root", root.into())),
            None => {
                self.leave(directive, "nothing says where the scripts are: add `root`");
                return refused(route);
            }
        }
        if !environment.is_empty() {
            settings.push(("environment", table(environment)));
        }
        route.settings.set("fastcgi", table(settings));
        true
    }

    /// The script that answers for a path without a file, where a block has `php_fastcgi`.
    pub fn php_fallback(&mut self, lines: &[Directive], pattern: &Pattern) -> Option<String> {
        let php = lines.iter().find(|line| line.name == "php_fastcgi")?;
        if *pattern != Pattern::All {
            self.leave(php, "only the paths of a whole site go to its `index.php` where there is no file (`fallback`)");
            return None;
        }
        if !lines.iter().any(|line| line.name == "file_server") {
            self.leave(php, "only a route with files sends what is no file to `index.php` (`fallback`)");
        }
        Some(format!("/{INDEX}"))
    }
}

/// The text of a script is not sent as a file.
fn refused(route: &mut Route) -> bool {
    route.settings.write("respond", "501".to_owned(), None);
    true
}

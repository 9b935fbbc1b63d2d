//! `errorfile` and `errorfiles`: error pages of a site.

use toml_edit::Value;

use super::state::{Proxy, Translation};
use crate::{draft::table, syntax::Directive};

impl<'a> Translation<'a> {
    /// The error pages of a frontend: its own, those of sections that it names, and for other statuses those of its defaults.
    pub(super) fn error_pages(&mut self, proxy: &Proxy<'a>) -> Option<Value> {
        let mut pages: Vec<(String, Value)> = Vec::new();
        for section in proxy.defaults.into_iter().chain([proxy.section]) {
            for line in section.inner() {
                for (line, statuses) in self.files_of(line) {
                    if !statuses.is_empty() && !statuses.iter().any(|status| status == line.arg(0)) {
                        continue;
                    }
                    let (status, file) = (line.arg(0), line.arg(1));
                    if !status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) {
                        self.leave(line, "error pages are for statuses from 400 to 599");
                    } else if file == "/dev/null" {
                        self.leave(
                            line,
                            "an error has an answer; its text can be empty (`\"text:\"` in `error-pages`)",
                        );
                    } else {
                        pages.retain(|(known, _)| known != status);
                        pages.push((status.to_owned(), format!("file:{file}").into()));
                    }
                }
            }
        }
        // A server that cannot be reached is 503 there, and 502 here.
        let page_of = |status: &str| pages.iter().find(|(known, _)| known == status).map(|(_, page)| page.clone());
        if let (Some(page), None) = (page_of("503"), page_of("502")) {
            pages.push(("502".to_owned(), page));
        }
        pages.sort_by(|(one, _), (other, _)| one.cmp(other));
        (!pages.is_empty()).then(|| table(pages))
    }

    /// The lines of files that a line stands for, each with the statuses that it is meant for; none: its own.
    fn files_of(&mut self, line: &'a Directive) -> Vec<(&'a Directive, &'a [String])> {
        match line.name.as_str() {
            "errorfile" => vec![(line, &[])],
            "errorfiles" => {
                let Some(section) = self.http_errors.iter().find(|it| it.arg(0) == line.arg(0)) else {
                    self.leave(line, "there is no such section of files (`http-errors`)");
                    return Vec::new();
                };
                let files = section.inner().iter().filter(|it| it.name == "errorfile");
                files.map(|file| (file, line.args.get(1..).unwrap_or_default())).collect()
            }
            _ => Vec::new(),
        }
    }
}

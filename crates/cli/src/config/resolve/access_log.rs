//! Access logs: of the server, of sites, of routes.

use std::{ops::Range, path::Path};

use server::config::{AccessLog, LogChoice, LogFormat, LogTarget};
use toml::Spanned;

use super::{named_files::path_in, resolver::Resolver};
use crate::{
    config::{
        overrides::Overrides,
        problems::Problem,
        raw::{Raw, RawAccessLog},
        written::{FileOrTable, OrOff},
    },
    values::Named as _,
};

impl Resolver<'_> {
    /// Reads the log of the server.
    pub(super) fn access_log(&mut self, raw: &Raw, flags: &Overrides) {
        let section = &raw.access_log;
        let format = self.setting(flags.access_log_format, &section.format, LogFormat::named, LogFormat::Combined);
        let folder = self.folder;
        let target = self.setting(
            flags.access_log.as_deref().map(|text| log_target(None, text)),
            &section.target,
            |text| Ok(log_target(folder, text)),
            None,
        );
        self.logs.format = Some(format);
        self.logs.server = target.map(|target| AccessLog { target, format });
        if let Some(log) = self.logs.server.clone() {
            let place = section.target.as_ref().filter(|_| flags.access_log.is_none()).map(Spanned::span);
            self.one_form(&log, place);
        }
    }

    /// The log of a site or a route; `outer` is the one that it has otherwise.
    pub(super) fn log_of(
        &mut self,
        written: Option<&Spanned<FileOrTable<RawAccessLog>>>,
        outer: Option<&AccessLog>,
    ) -> LogChoice {
        let Some(written) = written else { return LogChoice::Outer };
        let format = outer.map(|log| log.format).or(self.logs.format).unwrap_or(LogFormat::Combined);
        let (target, format) = match &written.get_ref().0 {
            OrOff::Word(word) => (log_target(self.folder, &word.0), format),
            OrOff::Table(table) => {
                let format = self.setting(None, &table.format, LogFormat::named, format);
                let folder = self.folder;
                if let (None, None, true) = (&table.target, outer, self.shape_is_sound) {
                    self.problems.push(
                        Problem::new("this log has no `target`, and there is no other log", Some(written.span()))
                            .help("add `target = \"FILE\"`, or leave it out"),
                    );
                }
                let target = match &table.target {
                    None => outer.map(|log| log.target.clone()),
                    target => self.setting(None, target, |text| Ok(log_target(folder, text)), None),
                };
                (target, format)
            }
        };
        let Some(target) = target else { return LogChoice::Off };
        let log = AccessLog { target, format };
        self.one_form(&log, Some(written.span()));
        LogChoice::Own(log)
    }

    /// Adds a problem if lines of different forms would stand in one log.
    fn one_form(&mut self, log: &AccessLog, place: Option<Range<usize>>) {
        match self.logs.all.iter().find(|(other, _)| other.target == log.target) {
            Some((other, first)) if other.format != log.format => self.problems.push(
                Problem::new(format!("{} has two forms", log.target), place)
                    .also(first.clone(), "has another form")
                    .help("give both the same `format`, or write to two files"),
            ),
            Some(_) => {}
            None => self.logs.all.push((log.clone(), place)),
        }
    }
}

fn log_target(folder: Option<&Path>, text: &str) -> Option<LogTarget> {
    match text {
        "off" => None,
        "-" => Some(LogTarget::Stdout),
        _ => Some(LogTarget::File(path_in(folder, text))),
    }
}

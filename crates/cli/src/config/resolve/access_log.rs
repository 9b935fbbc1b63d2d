//! Access logs: of the server, of sites, of routes.

use std::{ops::Range, path::Path};

use server::config::{AccessLog, ErrorLog, LogChoice, LogFormat, LogTarget, MessageFormat};
use toml::Spanned;

use super::{named_files::path_in, resolver::Resolver};
use crate::{
    config::{
        overrides::Overrides,
        problems::Problem,
        raw::{Raw, RawAccessLog},
        written::{FileOrTable, OrOff},
    },
    values::{self, Named as _},
};

impl Resolver<'_> {
    /// Reads the log of the server.
    pub(super) fn access_log(&mut self, raw: &Raw, flags: &Overrides) {
        let section = &raw.access_log;
        let format = self.setting(flags.access_log_format, &section.format, LogFormat::named, LogFormat::Combined);
        let (folder, given) = (self.folder, flags.access_log.as_deref());
        let flag = given.map(|text| {
            values::log_target(text, |path| path.into()).unwrap_or_else(|message| {
                self.problems.push(Problem::new(message, None).help("give another `--access-log`"));
                None
            })
        });
        let target = self.setting(flag, &section.target, |text| target_in(folder, text), None);
        self.logs.format = Some(format);
        self.logs.server = target.map(|target| AccessLog { target, format });
        if let Some(log) = self.logs.server.clone() {
            let place = section.target.as_ref().filter(|_| flags.access_log.is_none()).map(Spanned::span);
            self.one_form(&log, place);
        }
    }

    /// Reads where messages go, and in which form.
    pub(super) fn error_log(&mut self, raw: &Raw) -> ErrorLog {
        let (folder, written) = (self.folder, &raw.error_log.target);
        let target = self.setting(None, written, |text| values::error_log_target(text, |it| path_in(folder, it)), None);
        if let (Some(log), Some(written)) = (&target, written) {
            match self.logs.all.iter().find(|(other, _)| matches!(log, LogTarget::File(_)) && other.target == *log) {
                None => self.logs.error = Some((log.clone(), Some(written.span()))),
                Some((_, first)) => self.problems.push(
                    Problem::new(format!("{log} is an access log already"), Some(written.span()))
                        .also(first.clone(), "the access log")
                        .help("write the messages to another file"),
                ),
            }
        }
        let format = self.setting(None, &raw.error_log.format, MessageFormat::named, MessageFormat::Text);
        ErrorLog { target, format }
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
            OrOff::Word(word) => {
                let target = target_in(self.folder, &word.0).unwrap_or_else(|message| {
                    self.problems.push(Problem::new(message, Some(written.span())));
                    None
                });
                (target, format)
            }
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
                    target => self.setting(None, target, |text| target_in(folder, text), None),
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

fn target_in(folder: Option<&Path>, text: &str) -> Result<Option<LogTarget>, String> {
    values::log_target(text, |path| path_in(folder, path))
}

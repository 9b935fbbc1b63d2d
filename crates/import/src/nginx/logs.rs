//! `access_log` and `error_log`.

use toml_edit::Value;

use super::{
    state::{Translation, in_force},
    values,
};
use crate::{
    draft::{Settings, table},
    syntax::Directive,
};

impl<'a> Translation<'a> {
    /// The log of all servers.
    pub(super) fn log_of_all(&mut self, http: &'a [Directive]) {
        if let Some((target, form)) = self.log_in(&[http])
            && target != "off"
        {
            self.access_log.set("target", target);
            if let Some(form) = form {
                self.access_log.set("format", form);
            }
        }
    }

    /// The log of a server or a location, if these levels say anything of it.
    pub(super) fn log(&mut self, levels: &[&'a [Directive]], settings: &mut Settings) {
        let Some((target, form)) = self.log_in(levels) else { return };
        let value: Value = match form {
            Some(form) => table([("target", target.into()), ("format", form.into())]),
            None => target.into(),
        };
        if self.access_log.text_of("target") != Some(value.to_string().trim()) {
            settings.set("access-log", value);
        }
    }

    /// The target and, if it is not the usual one, the form.
    fn log_in(&mut self, levels: &[&'a [Directive]]) -> Option<(String, Option<&'static str>)> {
        let mut logs = in_force(levels, "access_log").into_iter();
        let directive = logs.next()?;
        let target = match directive.arg(0) {
            "/dev/stdout" => "-".to_owned(),
            target => self.log_target(directive, target)?,
        };
        for other in logs {
            self.leave(other, "a request is logged once: the first log is taken");
        }
        let mut form = None;
        for option in directive.args.iter().skip(1) {
            match option.as_str() {
                "combined" | "main" => {}
                option if option.starts_with("buffer=") || option.starts_with("flush=") => {}
                option if option.starts_with("if=") => {
                    self.leave(directive, "there are no conditions; a route may have `access-log = \"off\"`");
                }
                option if option.starts_with("gzip") => {
                    self.leave(directive, "lines are not compressed: that is done when a log is rotated");
                }
                name if self.json_formats.contains(&name) => form = Some("json"),
                _ => {
                    self.leave(directive, "the forms of the access log are `combined` and `json` (`access-log.format`)")
                }
            }
        }
        Some((target, form))
    }

    fn log_target(&mut self, directive: &Directive, target: &str) -> Option<String> {
        if values::has_variable(target) {
            self.leave(directive, "the name of a log has no variables: give each site its own (`access-log`)");
            return None;
        }
        match target.strip_prefix("syslog:") {
            // nginx writes RFC 3164, also to receivers elsewhere.
            Some(settings) if !settings.contains("server=unix:") => Some(format!("{target},rfc=3164")),
            _ => Some(target.to_owned()),
        }
    }

    /// The log of messages: there is one, the outermost.
    pub(super) fn error_log(&mut self, directive: &'a Directive) {
        if self.error_log.has("target") {
            if self.error_log.text_of("target").is_none_or(|other| other.trim_matches('"') != directive.arg(0)) {
                self.leave(
                    directive,
                    "there is one log of messages for all sites (`error-log`); the first one is taken",
                );
            }
            return;
        }
        match directive.arg(0) {
            "stderr" | "/dev/stderr" | "/dev/stdout" => {}
            "/dev/null" | "off" => return self.leave(directive, "`--log off` has no messages written"),
            target if target.starts_with("memory:") => {
                return self.leave(directive, "messages go to a file or a receiver");
            }
            target => {
                let Some(target) = self.log_target(directive, target) else { return };
                // Each message has its own.
                let target = target.split(',').filter(|setting| !setting.starts_with("severity="));
                self.error_log.set("target", target.collect::<Vec<_>>().join(","));
            }
        }
        if matches!(directive.arg(1), "debug" | "info" | "notice") {
            self.leave(directive, "the flag `--log info` or `--log debug` sets how much is said");
        }
    }

    /// `log_format`: whether it is one of JSON.
    pub(super) fn log_format(&mut self, directive: &'a Directive) {
        match directive.arg(1) {
            "escape=json" => {
                self.json_formats.insert(directive.arg(0));
                self.leave(directive, "`json` has fields of its own (docs/reference/access-log.md)");
            }
            _ => self.other(directive),
        }
    }
}

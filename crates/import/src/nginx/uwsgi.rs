//! `uwsgi_pass`: the application of a route.

use toml_edit::Value;

use super::{
    fastcgi::is_standard,
    state::{Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

impl<'a> Translation<'a> {
    /// Returns whether there is a route.
    pub(super) fn uwsgi(&mut self, pass: &'a Directive, levels: &[&'a [Directive]], settings: &mut Settings) -> bool {
        let written = pass.arg(0);
        if written.starts_with("suwsgi://") {
            self.leave(pass, "uwsgi is spoken without TLS");
            return false;
        }
        let written = written.strip_prefix("uwsgi://").unwrap_or(written);
        let Some(address) = self.application(pass, written) else { return false };
        let mut of_uwsgi = vec![("address", Value::from(address))];
        if let Some(modifier) = one_in_force(levels, "uwsgi_modifier1") {
            match modifier.arg(0).parse::<u8>() {
                Ok(number) => of_uwsgi.push(("modifier", i64::from(number).into())),
                Err(_) => self.leave(modifier, "it is a number from 0 to 255"),
            }
        }
        for (name, setting) in [("uwsgi_connect_timeout", "connect-timeout"), ("uwsgi_read_timeout", "timeout")] {
            if let Some(directive) = one_in_force(levels, name) {
                match values::time(directive.arg(0)) {
                    Some(time) => of_uwsgi.push((setting, time.into())),
                    None => self.leave(directive, "the time cannot be read, or is zero"),
                }
            }
        }
        let mut environment: Vec<(&str, Value)> = Vec::new();
        for param in in_force(levels, "uwsgi_param") {
            let (name, value) = (param.arg(0), param.arg(1));
            environment.retain(|(other, _)| *other != name);
            if is_standard(name, value) || name == "PATH_INFO" && matches!(value, "$document_uri" | "$uri") {
                continue;
            }
            match values::has_variable(value) {
                true => self.leave(param, "the value of a parameter has no variables"),
                false => environment.push((name, value.into())),
            }
        }
        if !environment.is_empty() {
            of_uwsgi.push(("environment", table(environment)));
        }
        match &mut of_uwsgi[..] {
            [(_, address)] => settings.set("uwsgi", address.clone()),
            table => table.iter().for_each(|(name, value)| settings.set(&format!("uwsgi.{name}"), value.clone())),
        }
        let hidden = in_force(levels, "uwsgi_hide_header");
        if !hidden.is_empty() {
            settings.set("response-headers.remove", list(hidden.into_iter().map(|hidden| hidden.arg(0))));
        }
        true
    }
}

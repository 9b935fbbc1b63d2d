//! The configuration of HAProxy, section by section.

mod acl;
mod backend;
mod binds;
mod errors;
mod frontend;
mod fronts;
mod maps;
mod rates;
mod rules;
mod state;
mod syntax;
mod values;

use crate::{
    draft::{Draft, Section, table},
    report::Left,
    syntax::{Directive, Files, SyntaxError},
};
use state::{Proxy, Translation, reason};

/// Translates all that was read, or what one frontend needs of it: the text, and what it does not have.
pub fn all(file: &str, files: &dyn Files, only: Option<&str>) -> Result<(String, Vec<Left>), SyntaxError> {
    let sections = syntax::read(file, files)?;
    let mut translation = Translation::new(&sections, files);
    let mut proxies = Vec::new();
    let mut defaults: Vec<&Directive> = Vec::new();
    for section in &sections {
        match section.name.as_str() {
            "global" => translation.global(section),
            "defaults" => defaults.push(section),
            "frontend" | "backend" | "listen" => {
                // `frontend NAME from DEFAULTS`
                let named = section.args.iter().skip_while(|arg| *arg != "from").nth(1);
                let of_name = named.and_then(|name| defaults.iter().find(|it| it.arg(0) == name));
                let proxy = Proxy { section, defaults: of_name.or(defaults.last()).copied() };
                if proxy.is_http() {
                    proxies.push(proxy);
                } else {
                    translation.leave(section, "only HTTP is spoken (`mode http`)");
                }
            }
            // They count where others name them.
            "http-errors" | "resolvers" => {}
            _ => translation.leave(section, reason(&section.name)),
        }
    }
    for defaults in &defaults {
        translation.other_lines(defaults);
    }
    proxies.retain(|proxy| !translation.is_stats(proxy));
    let is_backend = |proxy: &&Proxy<'_>| proxy.section.name != "frontend";
    for proxy in proxies.iter().filter(is_backend) {
        translation.backend(proxy);
    }
    if let Some(only) = only
        && !proxies.iter().any(|proxy| proxy.section.name != "backend" && proxy.name() == only)
    {
        let message = format!("there is no `frontend` or `listen` of the name `{only}` in `mode http`");
        return Err(SyntaxError { place: None, message });
    }
    let sites = translation.sites(&proxies, only);
    let mut draft = Draft::default();
    let Translation { notes, limits, access_log, top, resources, backends, .. } = translation;
    draft.top = top;
    let mut admission = Section::new("[admission.resources]");
    let is_used = |name: &str| backends.iter().any(|backend| backend.is_used && backend.name == name);
    for (name, window) in resources.into_iter().filter(|(name, _)| is_used(name)) {
        admission.settings.set(&name, table([("window", window.into())]));
    }
    for (header, settings) in [("[limits]", limits), ("[access-log]", access_log)] {
        if !settings.is_empty() {
            draft.sections.push(Section { settings, ..Section::new(header) });
        }
    }
    if !admission.settings.is_empty() {
        admission
            .comment
            .push("As many requests at once as the servers of a backend have `maxconn`; others wait.".to_owned());
        draft.sections.push(admission);
    }
    draft.sections.extend(backends.into_iter().filter(|it| it.is_used).map(|it| it.upstream));
    draft.sections.extend(sites);
    draft.comment = notes.header("HAProxy");
    Ok((draft.text(), notes.left))
}

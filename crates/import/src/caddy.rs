//! Caddyfiles.

mod address;
mod ask;
mod block;
mod expand;
mod matcher;
mod options;
mod php;
mod proxy;
mod route;
mod site;
mod state;
mod syntax;
mod values;

use crate::{
    draft::{Draft, Section, list},
    report::Left,
    syntax::{Files, SyntaxError},
};
use site::Sites;
use state::Translation;

/// Translates a file and those that it imports: the text, and what it does not have.
pub fn all(file: &str, files: &dyn Files) -> Result<(String, Vec<Left>), SyntaxError> {
    let expanded = expand::read(file, files)?;
    let mut translation = Translation::default();
    translation.notes.left = expanded.left;
    let options = translation.options(&expanded.global);
    let mut sites = Sites::default();
    let mut sections: Vec<(usize, Section)> = Vec::new();
    // Those that only send clients to HTTPS are read last: whether there is a certificate is known then.
    let is_plain = |site: &&crate::syntax::Directive| site.name.starts_with("http://") || site.name == ":80";
    let order = expanded.sites.iter().enumerate();
    let (plain, others): (Vec<_>, Vec<_>) = order.partition(|(_, site)| is_plain(site));
    for (number, site) in others.into_iter().chain(plain) {
        let all = translation.site(site, &options, &mut sites);
        sections.extend(all.into_iter().map(|section| (number, section)));
    }
    // The first site answers for all names that no site has.
    sections.sort_by_key(|(number, section)| (section.settings.has("names"), *number));
    let mut draft = Draft::default();
    if !sites.listen.is_empty() {
        draft.top.set("listen", list(&sites.listen));
    }
    draft.top.extend(&translation.top);
    let has_acme = sections.iter().any(|(_, section)| section.settings.has("acme"));
    let Translation { mut notes, limits, acme, error_log, upstreams, has_users, .. } = translation;
    for (name, settings) in [("[limits]", limits), ("[error-log]", error_log), ("[acme]", acme)] {
        if !settings.is_empty() && (name != "[acme]" || has_acme) {
            draft.sections.push(Section { settings, ..Section::new(name) });
        }
    }
    if has_users {
        let mut section = Section::new("[users]");
        section.settings.set("file", "users.htpasswd");
        draft.sections.push(section);
    }
    draft.sections.extend(upstreams);
    draft.sections.extend(sections.into_iter().map(|(_, section)| section));
    notes.left.sort_by(|one, other| one.place.cmp(&other.place));
    draft.comment = notes.header("Caddy");
    Ok((draft.text(), notes.left))
}

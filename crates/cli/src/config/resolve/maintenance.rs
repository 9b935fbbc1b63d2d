//! `maintenance` of a site.

use server::config::Maintenance;
use toml::Spanned;

use super::{named_files::path_in, resolver::Resolver};
use crate::{
    config::{problems::Problem, raw::RawMaintenance, written::OrOff},
    values,
};

impl Resolver<'_> {
    /// `None`: nothing closes the site.
    pub(super) fn maintenance(&mut self, written: &Spanned<OrOff<RawMaintenance>>) -> Option<Maintenance> {
        let help = "write which file closes the site, as in `maintenance = { file = \"/run/closed\" }`, or `off`";
        let raw = self.table_or_off(written, "maintenance", help)?;
        let exempt = raw.exempt.as_ref().map_or_else(Vec::new, |list| self.read_each(list, values::network));
        let retry_after = self.setting(None, &raw.retry_after, values::duration, Maintenance::DEFAULT_RETRY_AFTER);
        let Some(file) = &raw.file else {
            self.problems.push(
                Problem::new("`maintenance` names no file", Some(written.span()))
                    .help("add `file = \"/run/serpent/maintenance\"`: the site is closed while that file exists"),
            );
            return None;
        };
        Some(Maintenance { file: path_in(self.folder, &file.get_ref().0), exempt, retry_after })
    }
}

//! Files of passwords and API keys, and the cookie of sessions.

use std::{path::PathBuf, time::Duration};

use server::config::{KeysConfig, SessionConfig};
use toml::Spanned;

use super::{named_files::FileKind, resolver::Resolver};
use crate::{
    config::{
        problems::Problem,
        raw::{RawKeys, RawSession, RawUsers},
        written::is_given,
    },
    values::{self, or_off},
};

impl Resolver<'_> {
    pub(super) fn users(&mut self, written: &Spanned<RawUsers>) -> Option<PathBuf> {
        let missing = ("`[users]` has no `file`", "add `file = \"htpasswd\"`, made by `htpasswd -B -c htpasswd NAME`");
        self.required(&written.get_ref().file, written.span(), missing, |text| Ok(text.to_owned()))?;
        self.file(&written.get_ref().file, FileKind::Hashes)
    }

    pub(super) fn keys(&mut self, written: &Spanned<RawKeys>) -> Option<KeysConfig> {
        let raw = written.get_ref();
        let missing = ("`[keys]` has no `file`", "add `file = \"keys\"`, with lines made by `serpent key LEVEL`");
        let file = self.required(&raw.file, written.span(), missing, |text| Ok(text.to_owned()));
        let header = self.setting(
            None,
            &raw.header,
            |text| or_off(text, values::header_name),
            Some(http::HeaderName::from_static("x-api-key")),
        );
        let query = self.setting(None, &raw.query, |text| or_off(text, |text| Ok(text.to_owned())), None);
        if header.is_none() && query.is_none() {
            self.problems.push(
                Problem::new("keys come neither in a header nor in the query", raw.header.as_ref().map(Spanned::span))
                    .help("name a `header`, or a key of the `query`"),
            );
        }
        file?;
        Some(KeysConfig { file: self.file(&raw.file, FileKind::Hashes)?, header, query })
    }

    pub(super) fn session(&mut self, written: &Spanned<RawSession>, tls: bool) -> SessionConfig {
        let raw = written.get_ref();
        SessionConfig {
            cookie: self.setting(None, &raw.cookie, values::cookie_name, "serpent-class".to_owned()),
            secret: if is_given(&raw.secret) { self.file(&raw.secret, FileKind::Secret(32)) } else { None },
            lifetime: self.setting(None, &raw.lifetime, values::duration, Duration::from_secs(30 * 60)),
            secure: raw.secure.unwrap_or(tls),
        }
    }
}

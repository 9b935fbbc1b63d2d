//! `gzip` and `brotli`: the compression of a site.

use std::collections::BTreeSet;

use super::{
    state::{Translation, one_in_force},
    values,
};
use crate::{
    draft::{Section, list},
    syntax::Directive,
};

impl<'a> Translation<'a> {
    pub(super) fn compression(&mut self, levels: &[&'a [Directive]]) -> Option<Section> {
        // Where both are on, nginx sends Brotli to a client that takes both.
        let on: Vec<Compressor> = COMPRESSORS.into_iter().filter(|it| it.is_on(levels)).collect();
        if on.is_empty() {
            return None;
        }
        let mut section = Section::new("[site.compression]");
        section.settings.set("codings", list(on.iter().map(|it| it.coding)));
        // nginx compresses HTML whatever the list says. The lists of two codings are made one.
        let mut types = vec!["text/html".to_owned()];
        let mut is_listed = true;
        for written in on.iter().filter_map(|it| one_in_force(levels, it.types)) {
            if written.args.iter().any(|one| one == "*") {
                self.leave(written, "media types are named: `text/*`, `application/*+json`");
                is_listed = false;
            }
            types.extend(written.args.iter().filter(|one| *one != "text/html").cloned());
        }
        let mut seen = BTreeSet::new();
        types.retain(|one| seen.insert(one.clone()));
        if is_listed {
            section.settings.set("types", list(&types));
        }
        let size = on.iter().find_map(|it| values::size(one_in_force(levels, it.min_length)?.arg(0)));
        if let Some(size) = size {
            section.settings.set("min-size", size);
        }
        for it in &on {
            let level = one_in_force(levels, it.level).map(|level| level.arg(0));
            if let Some(level) = level.filter(|level| level.parse::<u8>().is_ok()) {
                section.settings.write(it.setting, level.to_owned(), None);
            }
        }
        Some(section)
    }
}

/// Whether responses are compressed by any coding.
pub(super) fn is_compressed(levels: &[&[Directive]]) -> bool {
    COMPRESSORS.iter().any(|it| it.is_on(levels))
}

/// The directives of one coding, and what they become.
#[derive(Clone, Copy)]
struct Compressor {
    directive: &'static str,
    types: &'static str,
    min_length: &'static str,
    level: &'static str,
    coding: &'static str,
    setting: &'static str,
}

const COMPRESSORS: [Compressor; 2] = [
    Compressor {
        directive: "brotli",
        types: "brotli_types",
        min_length: "brotli_min_length",
        level: "brotli_comp_level",
        coding: "br",
        setting: "br-level",
    },
    Compressor {
        directive: "gzip",
        types: "gzip_types",
        min_length: "gzip_min_length",
        level: "gzip_comp_level",
        coding: "gzip",
        setting: "gzip-level",
    },
];

impl Compressor {
    fn is_on(&self, levels: &[&[Directive]]) -> bool {
        one_in_force(levels, self.directive).is_some_and(|it| it.arg(0) == "on")
    }
}

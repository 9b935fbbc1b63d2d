//! Compression of responses while they are sent.

use std::sync::Arc;

use server::config::{CompressionCoding as Coding, CompressionConfig, CompressionLevels, TypePattern};

use super::resolver::Resolver;
use crate::{
    config::{problems::Problem, raw::RawCompression, written::Setting},
    values,
};

impl Resolver<'_> {
    /// A site's `[site.compression]` goes before the file's `[compression]`, setting by setting.
    pub(super) fn compression(
        &mut self,
        site: &RawCompression,
        all: Option<&RawCompression>,
    ) -> Option<Arc<CompressionConfig>> {
        let codings = site.codings.as_ref().or_else(|| all?.codings.as_ref());
        let mut chosen = Vec::new();
        for written in codings.into_iter().flatten() {
            match coding(&written.get_ref().0) {
                Err(message) => self.unread(message, written),
                Ok(coding) if chosen.contains(&coding) => self.problems.push(
                    Problem::new(format!("`{}` is given twice", written.get_ref().0), Some(written.span()))
                        .help("leave one of them out"),
                ),
                Ok(coding) => chosen.push(coding),
            }
        }
        let types = site.types.as_ref().or_else(|| all?.types.as_ref());
        let types = match types {
            Some(list) => self.read_each(list, media_type),
            None => CompressionConfig::TYPES.iter().filter_map(|kind| TypePattern::parse(kind)).collect(),
        };
        let pick =
            |get: fn(&RawCompression) -> &Setting| get(site).clone().or_else(|| all.and_then(|all| get(all).clone()));
        let min_size = pick(|it| &it.min_size);
        let levels = [pick(|it| &it.zstd_level), pick(|it| &it.br_level), pick(|it| &it.gzip_level)];
        let default = CompressionLevels::default();
        let [zstd, br, gzip] = &levels;
        let levels = CompressionLevels {
            zstd: self.setting(None, zstd, |text| level(text, 1, 19), default.zstd),
            brotli: self.setting(None, br, |text| level(text, 0, 11), default.brotli),
            gzip: self.setting(None, gzip, |text| level(text, 1, 9), default.gzip),
        };
        let min_bytes = self.setting(None, &min_size, values::size, CompressionConfig::MIN_BYTES);
        let config = CompressionConfig { codings: chosen, types, min_bytes, levels };
        (!config.codings.is_empty()).then(|| Arc::new(config))
    }
}

fn coding(name: &str) -> Result<Coding, String> {
    match name {
        "zstd" => Ok(Coding::Zstd),
        "br" => Ok(Coding::Brotli),
        "gzip" => Ok(Coding::Gzip),
        _ => Err(format!("`{name}` is not one of `zstd`, `br`, `gzip`")),
    }
}

fn media_type(text: &str) -> Result<TypePattern, String> {
    TypePattern::parse(text).ok_or_else(|| {
        format!("`{text}` is no media type: write it as in `text/html`, `text/*` or `application/*+json`")
    })
}

fn level(text: &str, least: u8, most: u8) -> Result<u8, String> {
    text.parse()
        .ok()
        .filter(|level| (least..=most).contains(level))
        .ok_or_else(|| format!("`{text}` is no level: give a number from {least} to {most}"))
}

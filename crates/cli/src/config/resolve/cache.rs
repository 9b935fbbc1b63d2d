//! The shared cache: its bounds, and `cache` of a route.

use std::sync::Arc;

use server::config::{CacheRules, Condition, Filter, Origin, RouteCache, StoreConfig};
use toml::Spanned;

use super::{named_files::FileKind, resolver::Resolver};
use crate::{
    config::{
        problems::Problem,
        raw::{Raw, RawRoute, RawRouteCache},
        written::{OnOrTable, is_given},
    },
    values,
};

impl Resolver<'_> {
    pub(super) fn shared_cache(&mut self, raw: &Raw) -> StoreConfig {
        let (section, default) = (&raw.shared_cache, StoreConfig::default());
        let config = StoreConfig {
            memory_bytes: self.setting(None, &section.memory, values::size, default.memory_bytes),
            most_body_bytes: self.setting(None, &section.max_object, values::size, default.most_body_bytes),
            directory: match is_given(&section.directory) {
                true => self.file(&section.directory, FileKind::Directory),
                false => None,
            },
            disk_bytes: self.setting(None, &section.disk, values::size, default.disk_bytes),
        };
        if let Some(written) = section.max_object.as_ref().or(section.memory.as_ref())
            && config.most_body_bytes > config.memory_bytes / 2
            && self.is_as_written()
        {
            self.problems.push(
                Problem::new(
                    "`max-object` is more than half of `memory`: such a response is never stored",
                    Some(written.span()),
                )
                .help("raise `memory`, or lower `max-object`"),
            );
        }
        if let (Some(disk), None, true) = (&section.disk, &section.directory, self.shape_is_sound) {
            self.problems.push(
                Problem::warning("`disk` has no effect: responses are kept in memory only", Some(disk.span()))
                    .help("name where files are kept, as in `directory = \"/var/cache/serpent\"`"),
            );
        }
        let is_used = raw.site.iter().flat_map(|site| &site.get_ref().route).any(|route| {
            route.get_ref().cache.as_ref().is_some_and(|cache| !matches!(cache.get_ref(), OnOrTable::On(false)))
        });
        if let (Some(directory), false, true) =
            (&config.directory.as_ref().and(section.directory.as_ref()), is_used, self.shape_is_sound)
        {
            self.problems.push(
                Problem::warning("`directory` has no effect: no route has a cache", Some(directory.span()))
                    .help("give a route with an upstream `cache = true`"),
            );
        }
        config
    }

    /// `cache` of a route, which must lead to an upstream.
    pub(super) fn cache_of(&mut self, raw: &RawRoute, origin: &Origin, filter: &Filter) -> Option<Arc<RouteCache>> {
        let written = raw.cache.as_ref()?;
        let none = RawRouteCache::default();
        let table = match written.get_ref() {
            OnOrTable::On(false) => return None,
            OnOrTable::On(true) => &none,
            OnOrTable::Table(table) => table,
        };
        if !matches!(origin, Origin::Upstream { .. }) {
            self.problems.push(
                Problem::new("`cache` is about an upstream, and this route has none", Some(written.span()))
                    .help("leave it out"),
            );
            return None;
        }
        let is_in_key = |condition: &Condition| {
            matches!(condition, Condition::Method(_) | Condition::Query(..) | Condition::Path(_))
        };
        if !filter.all.iter().chain(&filter.unless).all(is_in_key) {
            self.problems.push(
                Problem::new("a stored response is found by its address, whoever asks", Some(written.span()))
                    .help("leave out `cache`, or the conditions on `header`, `cookie` and `client`"),
            );
        }
        let on = |setting: &Option<Spanned<bool>>| setting.as_ref().is_some_and(|on| *on.get_ref());
        let default = CacheRules::default();
        Some(Arc::new(RouteCache {
            rules: CacheRules {
                lifetime: self.setting(None, &table.lifetime, values::duration_or_off, default.lifetime),
                stale_while_revalidate: self.setting(
                    None,
                    &table.stale_while_revalidate,
                    values::duration_or_zero,
                    default.stale_while_revalidate,
                ),
                stale_if_error: self.setting(
                    None,
                    &table.stale_if_error,
                    values::duration_or_zero,
                    default.stale_if_error,
                ),
                cookies: on(&table.cookies),
            },
            stale_when_busy: on(&table.stale_when_busy),
            revalidation_class: table.revalidation_class.as_ref().map(|written| written.get_ref().0.clone()),
        }))
    }

    /// Looks for the classes that routes name for requests that renew stale responses.
    pub(super) fn revalidation_classes(&mut self, raw: &Raw, names: &[String]) {
        for route in raw.site.iter().flat_map(|site| &site.get_ref().route) {
            if let Some(cache) = &route.get_ref().cache
                && let OnOrTable::Table(table) = cache.get_ref()
                && let Some(written) = &table.revalidation_class
            {
                self.class_named(written, names);
            }
        }
    }
}

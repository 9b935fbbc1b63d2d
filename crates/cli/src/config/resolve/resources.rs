//! Resources: the parts of the site that requests need, their windows, and how windows are adjusted.

use scheduler::{admission::ResourceId, control::Method};
use server::config::{Adjustment, ProbeConfig, ResourceConfig, Rule, Site, UpstreamConfig};
use toml::Spanned;

use super::resolver::Resolver;
use crate::{
    config::{
        problems::Problem,
        raw::{Raw, RawResource},
        written::{Setting, Written},
    },
    values::{self, Named as _},
};

/// The resource of routes and rules that name none.
pub(super) const SITE: &str = "site";

impl Resolver<'_> {
    /// The resources of the file in its order, after the site as a whole if the file does not name it.
    pub(super) fn resources(&mut self, raw: &Raw) -> Vec<ResourceConfig> {
        let named = named_resources(raw);
        let mut resources = Vec::new();
        if !named.iter().any(|(name, _)| name.get_ref() == SITE) {
            resources.push(ResourceConfig::new(SITE, None));
        }
        for (name, written) in named {
            match values::name(name.get_ref()) {
                Ok(name) => resources.push(self.resource_of(name, written)),
                Err(message) => self.problems.push(Problem::new(message, Some(name.span()))),
            }
        }
        resources
    }

    fn resource_of(&mut self, name: String, written: &Spanned<RawResource>) -> ResourceConfig {
        let raw = match written.get_ref() {
            RawResource::Window(window) => {
                let window = Some(Spanned::new(written.span(), window.clone()));
                return ResourceConfig::new(name, self.optional(&window, values::limit_or_off).flatten());
            }
            RawResource::Table(table) => table,
        };
        let limit = |text: &str| {
            let limit = values::limit_or_off(text)?;
            limit.ok_or_else(|| format!("`{text}` is no limit: give a number of requests, or leave it out"))
        };
        let window = self.optional(&raw.window, values::limit_or_off).flatten();
        let default = ResourceConfig::new(name, window);
        let least = self.setting(None, &raw.least, limit, default.least);
        let most = self.setting(None, &raw.most, limit, default.most.max(least));
        let place = |key: &Setting| key.as_ref().map(Spanned::span);
        if least > most {
            self.problems.push(
                Problem::new(format!("the least window, {least}, is more than the most, {most}"), place(&raw.least))
                    .also(place(&raw.most), "the most"),
            );
        } else if let Some(window) = window.filter(|window| *window < least || *window > most) {
            self.problems.push(
                Problem::new(
                    format!("the window of {window} is not from {least} to {most}, where it is to stay"),
                    place(&raw.window),
                )
                .also(place(&raw.least), "the least")
                .also(place(&raw.most), "the most"),
            );
        }
        ResourceConfig { least, most, bound: self.optional(&raw.bound, values::duration), ..default }
    }

    /// The resource of that name.
    pub(super) fn resource(&mut self, written: &Spanned<Written>, resources: &[ResourceConfig]) -> ResourceId {
        let names: Vec<_> = resources.iter().map(|resource| resource.name.clone()).collect();
        let help =
            format!("name it and its slots: `[admission]` with `resources = {{ {} = 10 }}`", written.get_ref().0);
        ResourceId(self.index_of("resource", written, &names, &help).unwrap_or(0) as u16)
    }

    /// Pages by which resources are probed.
    pub(super) fn probes(&mut self, raw: &Raw, resources: &mut [ResourceConfig], upstreams: &[UpstreamConfig]) {
        let names: Vec<_> = upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        for (name, written) in named_resources(raw) {
            let RawResource::Table(raw) = written.get_ref() else { continue };
            let Some(resource) = resources.iter_mut().find(|resource| resource.name == *name.get_ref()) else {
                continue;
            };
            let Some(written) = &raw.probe else {
                let idle = [
                    (&raw.upstream, "`upstream` of a resource is whom its `probe` asks"),
                    (&raw.host, "`host` of a resource is what its `probe` asks for"),
                ];
                for (setting, message) in idle {
                    let Some(setting) = setting else { continue };
                    self.problems.push(
                        Problem::warning(message, Some(setting.span()))
                            .help("add the page, as in `probe = \"/search?q=all\"`, or leave it out"),
                    );
                }
                continue;
            };
            let Some(path) = self.optional(&raw.probe, values::page) else { continue };
            let host = self.optional(&raw.host, values::probed_host);
            let upstream = match (&raw.upstream, upstreams) {
                (Some(upstream), _) => {
                    let help = format!("add `[[upstream]]` with `name = \"{}\"`", upstream.get_ref().0);
                    self.index_of("upstream", upstream, &names, &help)
                }
                (None, [_]) => Some(0),
                (None, upstreams) => {
                    if self.shape_is_sound {
                        let help = match upstreams.first() {
                            None => "give the gateway an `[[upstream]]` to pass requests on to".to_owned(),
                            Some(first) => format!("name it, as in `upstream = \"{}\"` beside it", first.name),
                        };
                        let message = "it is not said which upstream is asked for this page";
                        self.problems.push(Problem::new(message, Some(written.span())).help(help));
                    }
                    None
                }
            };
            resource.probe = upstream.map(|upstream| ProbeConfig { upstream, path, host });
        }
    }

    /// How windows are adjusted.
    pub(super) fn adjustment(&mut self, raw: &Raw, resources: &[ResourceConfig]) -> Adjustment {
        let section = &raw.admission;
        let default = Adjustment::default();
        let adjustment = Adjustment {
            method: self.setting(None, &section.windows, Method::named, default.method),
            probe_every: self.setting(None, &section.probe_every, values::duration, default.probe_every),
            probe_after: self.setting(None, &section.probe_after, values::duration_or_zero, default.probe_after),
            shrink_above: self.setting(None, &section.shrink_above, values::shrink_above, default.shrink_above),
            grow_below: self.setting(None, &section.grow_below, values::grow_below, default.grow_below),
        };
        if !self.is_as_written() {
            return adjustment;
        }
        let method = section.windows.as_ref().map(Spanned::span);
        if adjustment.method == Method::Probe {
            for (name, written) in named_resources(raw) {
                let of_name = |it: &&ResourceConfig| it.name == *name.get_ref() && it.window.is_some();
                let Some(resource) = resources.iter().find(of_name) else { continue };
                let missing = match resource {
                    // A page that could not be read was reported.
                    ResourceConfig { probe: None, .. } if !asks_for_a_page(written.get_ref()) => {
                        ("it is not said which page probes this resource", "`probe = \"/search?q=all\"`")
                    }
                    ResourceConfig { bound: None, .. } => (
                        "there is no bound on how long this resource's probing requests may take",
                        "`bound = \"200ms\"`",
                    ),
                    _ => continue,
                };
                self.problems.push(
                    Problem::new(missing.0, Some(written.span()))
                        .also(method.clone(), "windows are adjusted by probing requests")
                        .help(format!("add {}; `serpent probe` measures windows and bounds", missing.1)),
                );
            }
        } else {
            // A setting that repeats the default is no mistake.
            let set = [
                (&section.probe_every, "probe-every", adjustment.probe_every != default.probe_every),
                (&section.probe_after, "probe-after", adjustment.probe_after != default.probe_after),
                (&section.shrink_above, "shrink-above", adjustment.shrink_above != default.shrink_above),
                (&section.grow_below, "grow-below", adjustment.grow_below != default.grow_below),
            ];
            for (setting, name, _) in set.into_iter().filter(|(.., differs)| *differs) {
                self.problems.push(
                    Problem::warning(
                        format!("`{name}` has no effect without `windows = \"probe\"`"),
                        setting.as_ref().map(Spanned::span),
                    )
                    .also(method.clone(), "how windows are adjusted"),
                );
            }
        }
        if adjustment.method != Method::Fixed && resources.iter().all(|resource| resource.window.is_none()) {
            self.problems.push(
                Problem::warning("there are no windows to adjust: no resource has one", method)
                    .help("name what requests need, with a first window each: `resources = { site = 20 }`"),
            );
        }
        adjustment
    }
}

/// The resource of routes that name none.
pub(super) fn default_resource(resources: &[ResourceConfig]) -> ResourceId {
    ResourceId(resources.iter().position(|resource| resource.name == SITE).unwrap_or(0) as u16)
}

/// Removes the site as a whole from the resources if no request can need it. Then every window is one of the file.
pub(super) fn drop_unused_site(raw: &Raw, sites: &mut [Site], rules: &mut [Rule], resources: &mut Vec<ResourceConfig>) {
    let named = raw.admission.resources.as_ref().is_some_and(|named| named.keys().any(|name| name.get_ref() == SITE));
    let site = ResourceId(0);
    let needed = sites.iter().flat_map(|site| &site.routes).any(|route| route.admitted && route.resource == site)
        || rules.iter().any(|rule| rule.resource == Some(site));
    if named || needed || resources.len() < 2 || resources[0].name != SITE {
        return;
    }
    resources.remove(0);
    let moved = |id: ResourceId| ResourceId(id.0.saturating_sub(1));
    for route in sites.iter_mut().flat_map(|site| &mut site.routes) {
        route.resource = moved(route.resource);
    }
    for rule in rules {
        rule.resource = rule.resource.map(moved);
    }
}

/// Resources that have a name, in the order of the file.
fn named_resources(raw: &Raw) -> Vec<(&Spanned<String>, &Spanned<RawResource>)> {
    let mut named: Vec<_> = raw.admission.resources.iter().flatten().collect();
    named.sort_by_key(|(name, _)| name.span().start);
    named
}

fn asks_for_a_page(resource: &RawResource) -> bool {
    matches!(resource, RawResource::Table(table) if table.probe.is_some())
}

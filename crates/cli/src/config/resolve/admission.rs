//! Admission to the site: slots, how classes share them, and settings that contradict each other or have no effect.

use std::{num::NonZeroU32, time::Duration};

use scheduler::{
    admission::{Late, ResourceId, Settings, SettingsError},
    control::Method,
    share::{DELAY_WINDOW_NS, Policy},
};
use server::config::{AdmissionConfig, ClassConfig, ResourceConfig, Site};
use toml::Spanned;

use super::{classes::class_span, resolver::Resolver, resources::SITE};
use crate::{
    config::{
        overrides::Overrides,
        problems::Problem,
        raw::{Raw, RawClass},
        written::is_given,
    },
    values::{self, Named as _, to_ns},
};

impl Resolver<'_> {
    pub(super) fn admission(
        &mut self,
        raw: &Raw,
        flags: &Overrides,
        classes: &[ClassConfig],
        resources: &[ResourceConfig],
    ) -> AdmissionConfig {
        let section = &raw.admission;
        let policy = self.setting(None, &section.share, Policy::named, Policy::Strict);
        let total = self.setting(flags.slots, &section.slots, values::limit_or_off, None);
        let late = self.setting(None, &section.late, Late::named, Late::default());
        let default_window = Duration::from_nanos(DELAY_WINDOW_NS);
        let delay_window = self.setting(None, &section.delay_window, delay_window, default_window);
        let adjustment = self.adjustment(raw, resources);
        let mut settings = Settings {
            classes: classes.iter().map(|class| class.given).collect(),
            windows: resources.iter().map(|resource| resource.window.map(NonZeroU32::get)).collect(),
            total: total.map(NonZeroU32::get),
            policy,
            late,
            delay_window_ns: to_ns(delay_window),
        };
        let limited = total.is_some() || resources.iter().any(|resource| resource.window.is_some());
        let enabled = limited || classes.iter().any(|class| class.given.most_running.is_some());
        let mut checked = settings.check();
        if checked.is_ok() && adjustment.method != Method::Fixed {
            // Windows may become as narrow as this.
            settings.windows = resources.iter().map(|it| it.window.map(|_| it.least.get())).collect();
            checked = settings.check();
        }
        if self.is_as_written()
            && let Err(error) = checked
        {
            self.contradiction(raw, resources, error);
        } else if !enabled && self.is_as_written() {
            let help = "say how many requests the site does well at once: `[admission]` with `slots = 20`";
            let waits = |class: &RawClass| {
                let settings = [&class.queue, &class.max_wait, &class.order, &class.refuse.status, &class.refuse.page];
                settings.into_iter().find_map(|setting| setting.as_ref().map(Spanned::span))
            };
            if let Some(place) = section.share.as_ref().filter(|_| policy != Policy::Strict && classes.len() > 1) {
                self.problems.push(
                    Problem::warning("nobody waits for the site, so there is nothing to share", Some(place.span()))
                        .help(help),
                );
            } else if let Some(place) = raw.class.iter().find_map(|class| waits(class.get_ref())) {
                self.problems
                    .push(Problem::warning("nobody waits for the site, so this has no effect", Some(place)).help(help));
            } else if classes.len() > 1 && !decides_otherwise(raw) {
                let place = raw.class.first().map(class_span);
                self.problems
                    .push(Problem::warning("no request waits for another, so classes only count", place).help(help));
            }
        }
        AdmissionConfig { enabled, policy, total, resources: resources.to_vec(), late, delay_window, adjustment }
    }

    /// Warns of slots that no request needs.
    pub(super) fn needless_slots(&mut self, raw: &Raw, flags: &Overrides, sites: &[Site]) {
        let needed = sites.iter().flat_map(|site| &site.routes).any(|route| route.admitted);
        let given = match (flags.slots, &raw.admission.slots) {
            (Some(slots), _) => slots.map(|_| None),
            (None, slots) => slots.as_ref().filter(|slots| slots.get_ref().0 != "off").map(|it| Some(it.span())),
        };
        if let Some(place) = given.filter(|_| !needed && self.is_as_written()) {
            self.problems.push(
                Problem::warning("`slots` has no effect: no route passes requests on, and files need none", place)
                    .help("add a route with an `upstream` (flag --upstream), or leave it out; `limit` of a site bounds requests"),
            );
        }
    }

    /// Adds the problem for settings of admission that contradict each other.
    fn contradiction(&mut self, raw: &Raw, resources: &[ResourceConfig], error: SettingsError) {
        let resource = |id: ResourceId| resources.get(id.index()).map_or("", |resource| resource.name.as_str());
        let window = |id: ResourceId| {
            let named = raw.admission.resources.iter().flatten().find(|(name, _)| name.get_ref() == resource(id));
            named.map(|(_, window)| window.span()).or_else(|| raw.admission.slots.as_ref().map(Spanned::span))
        };
        let share = raw.admission.share.as_ref().map(Spanned::span);
        let problem = match error {
            SettingsError::Unlimited(id) if resource(id) == SITE => {
                Problem::new("this share gives out slots, and there is no number of them", share)
                    .help("say how many requests the site does well at once: `slots = 20` (flag --slots)")
            }
            SettingsError::Unlimited(id) => {
                Problem::new(format!("this share gives out slots, and `{}` has none", resource(id)), share)
                    .also(window(id), "no number here")
                    .help("give the resource a number, or all of them `slots`")
            }
            SettingsError::Reserves(id) => {
                let reserved = raw.class.iter().filter_map(|class| class.get_ref().reserved.as_ref()).next_back();
                Problem::new(
                    match resource(id) {
                        SITE => "the reserves of the classes leave no slot for those who have none".to_owned(),
                        name => format!("the reserves leave no slot of `{name}` for a class without one"),
                    },
                    reserved.map(Spanned::span),
                )
                .also(window(id), "of so many slots")
                .help("reserve fewer slots, or have more of them")
            }
            other => Problem::new(other.to_string(), share),
        };
        self.problems.push(problem);
    }

    /// Warns of settings that have no effect. They are probably not intended.
    pub(super) fn without_effect(&mut self, raw: &Raw, admission: &AdmissionConfig, uplink: Option<Policy>) {
        if !self.is_as_written() {
            return;
        }
        let uses = |policy: Policy| admission.policy == policy || uplink == Some(policy);
        for class in raw.class.iter().map(Spanned::get_ref) {
            for (setting, used, what) in [
                (&class.deadline, uses(Policy::Edf), "`deadline` has no effect without the share `edf`"),
                (&class.reserved, uses(Policy::Shared), "`reserved` has no effect without the share `shared`"),
                (
                    &class.delay_ratio,
                    admission.policy.is_by_delay(),
                    "`delay-ratio` has no effect without the share `ratio`, `wtp`, `pwad` or `mdp`",
                ),
                (
                    &class.weight,
                    uses(Policy::Weighted) || uses(Policy::Shared) || uses(Policy::Fixed),
                    "`weight` has no effect without the share `weighted`, `shared` or `fixed`",
                ),
            ] {
                // A setting that repeats the default is no mistake.
                let is_default =
                    |text: &str| text == "off" || (text == "1" && std::ptr::eq(setting, &class.delay_ratio));
                let place = setting.as_ref().filter(|it| !is_default(&it.get_ref().0)).map(Spanned::span);
                if let Some(place) = place.filter(|_| !used) {
                    let share = raw.admission.share.as_ref().map(Spanned::span);
                    self.problems.push(
                        Problem::warning(what, Some(place))
                            .also(share, "the share")
                            .help("change the share, or leave it out"),
                    );
                }
            }
        }
        if uses(Policy::Edf) && !raw.class.iter().any(|class| is_given(&class.get_ref().deadline)) {
            let place = raw.admission.share.as_ref().or(raw.uplink.share.as_ref()).map(Spanned::span);
            self.problems.push(
                Problem::warning("`edf` goes by deadlines, and no class has one", place)
                    .help("give classes a `deadline`, as in `deadline = \"500ms\"`"),
            );
        }
        if admission.policy.is_by_delay() && !raw.class.iter().any(|class| is_given(&class.get_ref().delay_ratio)) {
            let place = raw.admission.share.as_ref().map(Spanned::span);
            self.problems.push(
                Problem::warning(format!("`{}` keeps delays in ratios, and no class has one", admission.policy), place)
                    .help("give classes a `delay-ratio`, as in 1 for the fastest and 2 for one that may take twice as long"),
            );
        }
        let remembers = admission.policy.is_by_delay() && admission.policy != Policy::Wtp;
        let is_default = to_ns(admission.delay_window) == DELAY_WINDOW_NS;
        let place = raw.admission.delay_window.as_ref().map(Spanned::span);
        if let Some(place) = place.filter(|_| !remembers && !is_default) {
            let message = "`delay-window` has no effect without the share `ratio`, `pwad` or `mdp`";
            self.problems.push(Problem::warning(message, Some(place)).help("change the share, or leave it out"));
        }
        if admission.late == Late::Refuse && admission.policy != Policy::Edf {
            let place = raw.admission.late.as_ref().map(Spanned::span);
            self.problems.push(
                Problem::warning("`late` has no effect without the share `edf`", place)
                    .help("change the share, or leave it out"),
            );
        }
    }
}

/// Reads the window over which mean delays are kept. A shorter one than a second holds hardly a mean.
fn delay_window(text: &str) -> Result<Duration, String> {
    let window = values::duration(text)?;
    if window < Duration::from_secs(1) {
        Err(format!("`{text}` is too short to tell a mean delay: give `1s` or more"))
    } else {
        Ok(window)
    }
}

/// Whether classes decide something although no request waits for the site.
fn decides_otherwise(raw: &Raw) -> bool {
    let decides = |class: &RawClass| {
        let objective = &class.objective;
        let promised =
            [&objective.mean, &objective.p50, &objective.p90, &objective.p95, &objective.p99, &objective.p999];
        promised.into_iter().chain([&objective.error_rate, &class.cpu_priority]).any(is_given)
    };
    is_given(&raw.uplink.share) || raw.class.iter().any(|class| decides(class.get_ref()))
}

//! Classes, rules, slots, sessions.

use std::{num::NonZeroU32, ops::Range, time::Duration};

use scheduler::{
    admission::{Late, ResourceId, Settings, SettingsError},
    class::{Class, ClassId},
    control::Method,
    share::{DELAY_WINDOW_NS, Policy},
    uplink::{ClassShare, ShareError},
};
use server::config::{
    AdmissionConfig, ClassConfig, Classes, Condition, ForwardedField, KeysConfig, Objective, Refusal, ResourceConfig,
    Rule, SessionConfig, Site, ValueMatch,
};
use toml::Spanned;

use super::{
    super::{
        problems::Problem,
        raw::{
            Raw, RawClass, RawKeys, RawObjective, RawRefuse, RawRule, RawSession, RawUsers, Setting, Values,
            ValuesByName, Written,
        },
    },
    FileKind, Resolver,
    resources::SITE,
};
use crate::{
    config::Overrides,
    values::{self, Named as _},
};

/// Each class costs a little at every decision.
const MOST_CLASSES: usize = 256;

/// What rules ask for must have been given somewhere.
struct Given {
    session: bool,
    users: bool,
    keys: bool,
    client_certificates: bool,
}

impl Resolver<'_> {
    pub(super) fn classes(
        &mut self,
        raw: &Raw,
        flags: &Overrides,
        sites: &mut [Site],
        resources: &mut Vec<ResourceConfig>,
        tls: bool,
    ) -> Classes {
        let mut classes: Vec<ClassConfig> = Vec::new();
        for (at, written) in raw.class.iter().enumerate() {
            let class = self.class(written);
            if let Some(first) = classes.iter().position(|it| it.name == class.name && !it.name.is_empty()) {
                self.problems.push(
                    Problem::new(format!("there are two classes `{}`", class.name), Some(class_place(&raw.class[at])))
                        .also(Some(class_place(&raw.class[first])), "the first one")
                        .help("give each a name of its own"),
                );
            }
            classes.push(class);
        }
        if classes.is_empty() {
            classes = Classes::one().classes;
        }
        if classes.len() > MOST_CLASSES {
            self.problems.push(
                Problem::new(
                    format!("there are {} classes, and at most {MOST_CLASSES} are possible", classes.len()),
                    Some(class_place(&raw.class[MOST_CLASSES])),
                )
                .help("let several rules lead to one class: who gets the same is of one class"),
            );
        }
        let names: Vec<_> = classes.iter().map(|class| class.name.clone()).collect();
        let class_named = |r: &mut Self, written: &Spanned<Written>| {
            let help = format!("add `[[class]]` with `name = \"{}\"`", written.get_ref().0);
            r.place_of("class", written, &names, &help).map(|at| ClassId(at as u16))
        };
        let last = ClassId((classes.len() - 1) as u16);
        let default = raw.default_class.as_ref().and_then(|written| class_named(self, written)).unwrap_or(last);

        let users = raw.users.as_ref().and_then(|users| self.users(users));
        let keys = raw.keys.as_ref().and_then(|keys| self.keys(keys));
        let session = raw.session.as_ref().map(|session| self.session(session, tls));
        let given = Given {
            session: raw.session.is_some(),
            users: raw.users.is_some(),
            keys: raw.keys.is_some(),
            client_certificates: sites.iter().any(|site| site.client_ca.is_some()),
        };
        let mut rules: Vec<(Rule, &Spanned<RawRule>)> = Vec::new();
        for (at, written) in raw.rule.iter().enumerate() {
            let missing = ("this rule has no `class`", "add `class = \"NAME\"`: whom it matches is of that class");
            if written.get_ref().class.is_none() && self.shape_is_sound {
                self.problems.push(Problem::new(missing.0, Some(written.span())).help(missing.1));
            }
            let class = written.get_ref().class.as_ref().and_then(|class| class_named(self, class));
            let rule = self.rule(written, at, class.unwrap_or(default), resources, &given);
            if let Some((first, place)) = rules.iter().find(|(earlier, _)| earlier.conditions.is_empty()) {
                self.problems.push(
                    Problem::new(
                        format!("no request reaches this rule: `{}` before it takes them all", first.name),
                        Some(rule_place(written)),
                    )
                    .also(Some(rule_place(place)), "has no condition")
                    .help("the first rule that matches decides: put this one before the other"),
                );
            }
            let same_name = |(earlier, _): &&(Rule, &Spanned<RawRule>)| earlier.name == rule.name;
            if let (Some(name), Some((_, first))) = (&written.get_ref().name, rules.iter().find(same_name)) {
                self.problems.push(
                    Problem::new(format!("there are two rules `{}`", rule.name), Some(name.span()))
                        .also(Some(rule_place(first)), "the first one")
                        .help("give each a name of its own, or none"),
                );
            }
            rules.push((rule, written));
        }
        for (at, (class, written)) in classes.iter().zip(&raw.class).enumerate() {
            let id = ClassId(at as u16);
            if self.shape_is_sound
                && !class.name.is_empty()
                && id != default
                && !rules.iter().any(|(rule, _)| rule.class == id)
            {
                self.problems.push(
                    Problem::warning(format!("no request is of class `{}`", class.name), Some(class_place(written)))
                        .help(format!(
                            "add a `[[rule]]` with `class = \"{}\"`, or make it the `default-class`",
                            class.name
                        )),
                );
            }
        }
        let mut rules: Vec<Rule> = rules.into_iter().map(|(rule, _)| rule).collect();
        drop_unused_site(raw, sites, &mut rules, resources);
        let admission = self.admission(raw, flags, &classes, resources);
        let policy_or_off = |text: &str| match text {
            "off" => Ok(None),
            _ => policy_of_links(text).map(Some),
        };
        let uplink_share = self.setting(None, &raw.uplink.share, policy_or_off, None);
        self.uplink_reserves(raw, &classes, &admission, uplink_share);
        self.without_effect(raw, &admission, uplink_share);
        let trusted_proxies = self.read_each(raw.trusted_proxies.as_deref().unwrap_or_default(), values::network);
        let forwarded = self.setting(None, &raw.forwarded_by, ForwardedField::named, ForwardedField::default());
        Classes { classes, default, rules, admission, uplink_share, users, keys, session, trusted_proxies, forwarded }
    }

    fn class(&mut self, written: &Spanned<RawClass>) -> ClassConfig {
        let raw = written.get_ref();
        let missing = ("this class has no `name`", "add `name = \"gold\"`, by which rules name it");
        let name = self.required(&raw.name, written.span(), missing, values::name).unwrap_or_default();
        let ClassConfig { given: default, priority, objective, refusal, .. } = ClassConfig::new(name.clone());
        let number = |text: &str| values::count(text, 1_000_000).map(|count| count as u32);
        let number_or_off = |text: &str| values::count_or_off(text, 1_000_000).map(|count| count.map(|it| it as u32));
        let time_or_off = |text: &str| values::duration_or_off(text).map(|time| time.map(to_ns));
        let given = Class {
            weight: self.setting(None, &raw.weight, number, default.weight),
            delay_ratio: self.setting(None, &raw.delay_ratio, number, default.delay_ratio),
            reserved_slots: self.setting(
                None,
                &raw.reserved,
                |text| number_or_off(text).map(Option::unwrap_or_default),
                default.reserved_slots,
            ),
            most_running: self.setting(None, &raw.slots, number_or_off, default.most_running),
            deadline_ns: self.setting(None, &raw.deadline, time_or_off, default.deadline_ns),
            order: self.setting(None, &raw.order, values::queue_order, default.order),
            most_waiting: self.setting(
                None,
                &raw.queue,
                |text| number_or_off(text).map(Option::unwrap_or_default),
                default.most_waiting,
            ),
            most_wait_ns: self.setting(None, &raw.max_wait, time_or_off, default.most_wait_ns),
        };
        ClassConfig {
            name,
            given,
            priority: self.setting(None, &raw.cpu_priority, values::priority, priority),
            objective: self.objective(&raw.objective, objective.window),
            refusal: self.refusal(&raw.refuse, refusal),
        }
    }

    fn objective(&mut self, raw: &RawObjective, window: Duration) -> Objective {
        let percentiles = [(50.0, &raw.p50), (90.0, &raw.p90), (95.0, &raw.p95), (99.0, &raw.p99), (99.9, &raw.p999)];
        let mut given = percentiles.into_iter().filter(|(_, setting)| is_given(setting));
        let percentile = given.next();
        if let (Some((_, first)), Some((_, second))) = (percentile, given.next()) {
            self.problems.push(
                Problem::new("an objective has one percentile", second.as_ref().map(Spanned::span))
                    .also(first.as_ref().map(Spanned::span), "given already")
                    .help("keep the one that was promised: all of them are among the metrics"),
            );
        }
        Objective {
            mean: self.setting(None, &raw.mean, values::duration_or_off, None),
            percentile: percentile
                .and_then(|(percent, setting)| Some((percent, self.optional(setting, values::duration)?))),
            error_rate: self.setting(None, &raw.error_rate, |text| or_off(text, values::percent), None),
            window: self.setting(None, &raw.window, values::duration, window),
        }
    }

    fn refusal(&mut self, raw: &RawRefuse, default: Refusal) -> Refusal {
        Refusal {
            status: self.setting(None, &raw.status, values::error_status, default.status),
            retry_after: self.setting(None, &raw.retry_after, values::duration_or_off, default.retry_after),
            page: if is_given(&raw.page) { self.file(&raw.page, FileKind::Page) } else { default.page },
        }
    }

    fn users(&mut self, written: &Spanned<RawUsers>) -> Option<std::path::PathBuf> {
        let missing = ("`[users]` has no `file`", "add `file = \"htpasswd\"`, made by `htpasswd -B -c htpasswd NAME`");
        self.required(&written.get_ref().file, written.span(), missing, |text| Ok(text.to_owned()))?;
        self.file(&written.get_ref().file, FileKind::Hashes)
    }

    fn keys(&mut self, written: &Spanned<RawKeys>) -> Option<KeysConfig> {
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

    fn session(&mut self, written: &Spanned<RawSession>, tls: bool) -> SessionConfig {
        let raw = written.get_ref();
        SessionConfig {
            cookie: self.setting(None, &raw.cookie, values::cookie_name, "serpent-class".to_owned()),
            secret: if is_given(&raw.secret) { self.file(&raw.secret, FileKind::Secret(32)) } else { None },
            lifetime: self.setting(None, &raw.lifetime, values::duration, Duration::from_secs(30 * 60)),
            secure: raw.secure.unwrap_or(tls),
        }
    }

    fn rule(
        &mut self,
        written: &Spanned<RawRule>,
        at: usize,
        class: ClassId,
        resources: &[ResourceConfig],
        given: &Given,
    ) -> Rule {
        let raw = written.get_ref();
        let need = |r: &mut Self, place: Option<Range<usize>>, there: bool, what: &str, help: &str| {
            if let Some(place) = place.filter(|_| !there && r.shape_is_sound) {
                r.problems.push(Problem::new(what, Some(place)).help(help));
            }
        };
        need(
            self,
            raw.raises_session.as_ref().filter(|raises| *raises.get_ref()).map(Spanned::span),
            given.session,
            "there are no sessions to raise",
            "add `[session]`, which keeps a session's class in a signed cookie",
        );
        need(
            self,
            raw.user.as_ref().map(Spanned::span),
            given.users,
            "nobody has a password",
            "add `[users]` with `file = \"htpasswd\"`",
        );
        need(
            self,
            raw.key.as_ref().map(Spanned::span),
            given.keys,
            "there are no keys",
            "add `[keys]` with `file = \"keys\"`, with lines made by `serpent key LEVEL`",
        );
        need(
            self,
            raw.certificate.as_ref().map(Spanned::span),
            given.client_certificates,
            "no site asks clients for a certificate",
            "give a site `client-ca = \"ca.pem\"`",
        );

        let mut conditions = Vec::new();
        conditions.extend(self.list(&raw.host, values::host_name).map(Condition::Host));
        conditions.extend(self.list(&raw.destination, values::destination).map(Condition::Destination));
        conditions.extend(self.list(&raw.client, values::network).map(Condition::Client));
        conditions.extend(self.list(&raw.method, values::method).map(Condition::Method));
        conditions.extend(self.list(&raw.path, values::path_prefix).map(Condition::Path));
        conditions.extend(self.list(&raw.path_glob, values::path_glob).map(Condition::Path));
        conditions.extend(self.list(&raw.path_regex, values::path_regex).map(Condition::Path));
        conditions.extend(self.list(&raw.extension, values::extension).map(Condition::Extension));
        for (name, values) in [("query", &raw.query), ("header", &raw.header), ("cookie", &raw.cookie)] {
            if values.as_ref().is_some_and(|values| values.is_empty()) {
                let place = raw.class.as_ref().map_or(written.span(), Spanned::span);
                self.problems.push(
                    Problem::new(
                        format!("`{name}` of this rule is an empty table, which asks for nothing"),
                        Some(place),
                    )
                    .help(format!("name what is to be there, as in `{name} = {{ a = \"1\" }}`, or leave it out")),
                );
            }
        }
        for (name, values) in by_name(&raw.query) {
            conditions.extend(self.value_match(values).map(|values| Condition::Query(name.get_ref().clone(), values)));
        }
        for (name, values) in by_name(&raw.header) {
            match values::header_name(name.get_ref()) {
                Ok(header) => {
                    conditions.extend(self.value_match(values).map(|values| Condition::Header(header, values)))
                }
                Err(message) => self.problems.push(Problem::new(message, Some(name.span()))),
            }
        }
        for (name, values) in by_name(&raw.cookie) {
            match values::cookie_name(name.get_ref()) {
                Ok(cookie) => {
                    conditions.extend(self.value_match(values).map(|values| Condition::Cookie(cookie, values)))
                }
                Err(message) => self.problems.push(Problem::new(message, Some(name.span()))),
            }
        }
        let asks_who = [&raw.certificate, &raw.key, &raw.user].into_iter().any(Option::is_some);
        if let Some(raises) = raw.raises_session.as_ref().filter(|raises| *raises.get_ref() && asks_who) {
            self.problems.push(
                Problem::warning(
                    "`raises-session` has no effect in a rule that asks who the client is",
                    Some(raises.span()),
                )
                .help("leave it out: such a rule decides for each request that shows a key, user or certificate"),
            );
        }
        conditions.extend(self.list_or_any(&raw.certificate).map(Condition::Certificate));
        conditions.extend(self.list_or_any(&raw.key).map(Condition::Key));
        conditions.extend(self.list_or_any(&raw.user).map(Condition::User));
        Rule {
            name: raw.name.as_ref().map_or_else(|| format!("rule {}", at + 1), |name| name.get_ref().0.clone()),
            class,
            resource: raw.resource.as_ref().map(|resource| self.resource(resource, resources)),
            conditions,
            raises_session: raw.raises_session.as_ref().is_some_and(|raises| *raises.get_ref()),
        }
    }

    /// Values of which one is enough; with a problem where there are none.
    fn list<T>(
        &mut self,
        written: &Option<Spanned<Values>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let written = written.as_ref()?;
        match written.get_ref() {
            Values::One(one) => {
                let one = Some(Spanned::new(written.span(), one.clone()));
                self.optional(&one, read).map(|value| vec![value])
            }
            Values::Many(many) => {
                if many.is_empty() {
                    self.problems.push(
                        Problem::new("an empty list matches nothing", Some(written.span()))
                            .help("write what is to match, or leave the condition out"),
                    );
                }
                Some(self.read_each(many, read)).filter(|values| !values.is_empty())
            }
            Values::Any(_) | Values::Regex(_) => {
                self.problems.push(
                    Problem::new("this condition takes a text or a list of texts", Some(written.span()))
                        .help("write it as in `\"a\"` or `[\"a\", \"b\"]`"),
                );
                None
            }
        }
    }

    /// The same, or `true` for any of them, which is an empty list.
    fn list_or_any(&mut self, written: &Option<Spanned<Values>>) -> Option<Vec<String>> {
        match written.as_ref().map(|written| (written.span(), written.get_ref()))? {
            (_, Values::Any(true)) => Some(Vec::new()),
            (place, Values::Any(false)) => {
                self.never_false(place);
                None
            }
            _ => self.list(written, |text| Ok(text.to_owned())),
        }
    }

    fn never_false(&mut self, place: Range<usize>) {
        self.problems.push(
            Problem::new("a condition cannot ask that something is not there", Some(place))
                .help("leave it out, and put a rule before this one that matches those who have it"),
        );
    }

    fn value_match(&mut self, written: &Spanned<Values>) -> Option<ValueMatch> {
        match written.get_ref() {
            Values::Any(true) => Some(ValueMatch::Present),
            Values::Any(false) => {
                self.never_false(written.span());
                None
            }
            Values::Regex(None) => {
                if self.shape_is_sound {
                    self.problems.push(
                        Problem::new("there is no `regex` in this table", Some(written.span()))
                            .help("write it as in `{ regex = \"^a\" }`"),
                    );
                }
                None
            }
            Values::Regex(Some(pattern)) => match values::regex(pattern.get_ref()) {
                Ok(regex) => Some(ValueMatch::Regex(regex)),
                Err(message) => {
                    self.problems.push(Problem::new(message, Some(pattern.span())));
                    None
                }
            },
            Values::One(_) | Values::Many(_) => {
                self.list(&Some(written.clone()), |text| Ok(text.to_owned())).map(ValueMatch::OneOf)
            }
        }
    }

    fn admission(
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
            // So narrow may they become.
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
                let place = raw.class.first().map(class_place);
                self.problems
                    .push(Problem::warning("no request waits for another, so classes only count", place).help(help));
            }
        }
        AdmissionConfig { enabled, policy, total, resources: resources.to_vec(), late, delay_window, adjustment }
    }

    /// Shows what contradicts itself at its place.
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

    /// Of the uplink as large a part is reserved as of the slots.
    fn uplink_reserves(
        &mut self,
        raw: &Raw,
        classes: &[ClassConfig],
        admission: &AdmissionConfig,
        policy: Option<Policy>,
    ) {
        let Some(policy) = policy.filter(|_| self.is_as_written()) else { return };
        let slots = admission.total.or_else(|| admission.resources.iter().filter_map(|it| it.window).max());
        let classes = classes.iter().map(|class| class.given).collect();
        let share = ClassShare { policy, classes, slots: slots.map(NonZeroU32::get) };
        if share.check() == Err(ShareError::Reserves) {
            let reserved = raw.class.iter().filter_map(|class| class.get_ref().reserved.as_ref()).next_back();
            let of = match slots {
                Some(slots) => format!("of the {slots} slots there are"),
                None => "of as many slots as the weights add up to, there being no other number".to_owned(),
            };
            self.problems.push(
                Problem::new(
                    "the reserves leave nothing of the uplink for a class without one",
                    reserved.map(Spanned::span),
                )
                .also(raw.uplink.share.as_ref().map(Spanned::span), "shared here")
                .help(format!("reserve fewer slots {of}, or share the uplink by `weighted`")),
            );
        }
    }

    /// Settings that nothing looks at are hardly what was meant.
    fn without_effect(&mut self, raw: &Raw, admission: &AdmissionConfig, uplink: Option<Policy>) {
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
                // What is written as it is anyhow is no mistake.
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

/// A share that the uplink can have.
fn policy_of_links(text: &str) -> Result<Policy, String> {
    let policy = Policy::named(text).ok().filter(|policy| Policy::OF_LINKS.contains(policy));
    policy.ok_or_else(|| {
        let names: Vec<_> = Policy::OF_LINKS.iter().map(|policy| format!("`{policy}`")).collect();
        format!("`{text}` is not one of {}; or `off`", names.join(", "))
    })
}

/// Below that there is hardly a mean.
fn delay_window(text: &str) -> Result<Duration, String> {
    let window = values::duration(text)?;
    if window < Duration::from_secs(1) {
        Err(format!("`{text}` is too short to tell a mean delay: give `1s` or more"))
    } else {
        Ok(window)
    }
}

/// The site as a whole is a resource only where somebody may need it: without, every window is one that was given.
fn drop_unused_site(raw: &Raw, sites: &mut [Site], rules: &mut [Rule], resources: &mut Vec<ResourceConfig>) {
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

/// In the order of the file.
fn by_name(values: &Option<ValuesByName>) -> Vec<(&Spanned<String>, &Spanned<Values>)> {
    let mut values: Vec<_> = values.iter().flatten().collect();
    values.sort_by_key(|(name, _)| name.span().start);
    values
}

fn or_off<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "off" { Ok(None) } else { read(text).map(Some) }
}

fn is_given(setting: &Setting) -> bool {
    setting.as_ref().is_some_and(|written| written.get_ref().0 != "off")
}

fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether classes decide something although nobody waits for the site.
fn decides_otherwise(raw: &Raw) -> bool {
    let decides = |class: &RawClass| {
        let objective = &class.objective;
        let promised =
            [&objective.mean, &objective.p50, &objective.p90, &objective.p95, &objective.p99, &objective.p999];
        promised.into_iter().chain([&objective.error_rate, &class.cpu_priority]).any(is_given)
    };
    is_given(&raw.uplink.share) || raw.class.iter().any(|class| decides(class.get_ref()))
}

fn class_place(written: &Spanned<RawClass>) -> Range<usize> {
    written.get_ref().name.as_ref().map_or(written.span(), Spanned::span)
}

fn rule_place(written: &Spanned<RawRule>) -> Range<usize> {
    let raw = written.get_ref();
    raw.name.as_ref().or(raw.class.as_ref()).map_or(written.span(), Spanned::span)
}

//! Rules, and the conditions by which they match requests.

use std::ops::Range;

use scheduler::class::ClassId;
use server::config::{Condition, ResourceConfig, Rule};
use toml::Spanned;

use super::{conditions::ByName, resolver::Resolver};
use crate::{
    config::{
        problems::Problem,
        raw::{Raw, RawKeys, RawRule},
        written::{Values, is_given},
    },
    values,
};

/// Which facts about clients the configuration provides. A rule or requirement cannot ask for others.
#[derive(Clone, Copy)]
pub(super) struct Configured {
    pub session: bool,
    pub users: bool,
    pub keys: bool,
    pub client_certificates: bool,
    /// Keys come in `Authorization` only, as passwords do.
    pub bearer_keys: bool,
}

impl Configured {
    /// The facts that the whole file provides. A single site may have no client certificates.
    pub fn of(raw: &Raw) -> Self {
        let keys = raw.keys.as_ref().map(Spanned::get_ref);
        let is_authorization = |keys: &RawKeys| {
            keys.header.as_ref().is_some_and(|it| it.get_ref().0.eq_ignore_ascii_case("authorization"))
        };
        Self {
            session: raw.session.is_some(),
            users: raw.users.is_some(),
            keys: keys.is_some(),
            client_certificates: raw.site.iter().any(|site| site.get_ref().client_ca.is_some()),
            bearer_keys: keys.is_some_and(|keys| is_authorization(keys) && !is_given(&keys.query)),
        }
    }
}

impl Resolver<'_> {
    /// The rules in the order of the file.
    pub(super) fn rules(
        &mut self,
        raw: &Raw,
        names: &[String],
        default: ClassId,
        resources: &[ResourceConfig],
        configured: &Configured,
    ) -> Vec<Rule> {
        let mut rules: Vec<(Rule, &Spanned<RawRule>)> = Vec::new();
        for (at, written) in raw.rule.iter().enumerate() {
            let missing = ("this rule has no `class`", "add `class = \"NAME\"`: whom it matches is of that class");
            if written.get_ref().class.is_none() && self.shape_is_sound {
                self.problems.push(Problem::new(missing.0, Some(written.span())).help(missing.1));
            }
            let class = written.get_ref().class.as_ref().and_then(|class| self.class_named(class, names));
            let rule = self.rule(written, at, class.unwrap_or(default), resources, configured);
            if let Some((first, place)) = rules.iter().find(|(earlier, _)| earlier.conditions.is_empty()) {
                self.problems.push(
                    Problem::new(
                        format!("no request reaches this rule: `{}` before it takes them all", first.name),
                        Some(rule_span(written)),
                    )
                    .also(Some(rule_span(place)), "has no condition")
                    .help("the first rule that matches decides: put this one before the other"),
                );
            }
            let same_name = |(earlier, _): &&(Rule, &Spanned<RawRule>)| earlier.name == rule.name;
            if let (Some(name), Some((_, first))) = (&written.get_ref().name, rules.iter().find(same_name)) {
                self.problems.push(
                    Problem::new(format!("there are two rules `{}`", rule.name), Some(name.span()))
                        .also(Some(rule_span(first)), "the first one")
                        .help("give each a name of its own, or none"),
                );
            }
            rules.push((rule, written));
        }
        rules.into_iter().map(|(rule, _)| rule).collect()
    }

    fn rule(
        &mut self,
        written: &Spanned<RawRule>,
        at: usize,
        class: ClassId,
        resources: &[ResourceConfig],
        configured: &Configured,
    ) -> Rule {
        let raw = written.get_ref();
        if let Some(raises) = raw.raises_session.as_ref().filter(|raises| *raises.get_ref())
            && !configured.session
            && self.shape_is_sound
        {
            self.problems.push(
                Problem::new("there are no sessions to raise", Some(raises.span()))
                    .help("add `[session]`, which keeps a session's class in a signed cookie"),
            );
        }
        self.credentials_exist(&raw.user, &raw.key, &raw.certificate, configured);

        let mut conditions = Vec::new();
        conditions.extend(self.list(&raw.host, values::host_name).map(Condition::Host));
        conditions.extend(self.list(&raw.destination, values::destination).map(Condition::Destination));
        conditions.extend(self.list(&raw.client, values::network).map(Condition::Client));
        conditions.extend(self.list(&raw.method, values::method).map(Condition::Method));
        conditions.extend(self.list(&raw.path, values::path_prefix).map(Condition::Path));
        conditions.extend(self.list(&raw.path_glob, values::path_glob).map(Condition::Path));
        conditions.extend(self.list(&raw.path_regex, values::path_regex).map(Condition::Path));
        conditions.extend(self.list(&raw.extension, values::extension).map(Condition::Extension));
        let place = raw.class.as_ref().map_or(written.span(), Spanned::span);
        let by_name = ByName { query: &raw.query, header: &raw.header, cookie: &raw.cookie };
        conditions.extend(self.by_name(&by_name, "this rule", place));
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

    /// Adds a problem for each credential that clients cannot have.
    pub(super) fn credentials_exist(
        &mut self,
        user: &Option<Spanned<Values>>,
        key: &Option<Spanned<Values>>,
        certificate: &Option<Spanned<Values>>,
        configured: &Configured,
    ) {
        let needs = [
            (user, configured.users, "nobody has a password", "add `[users]` with `file = \"htpasswd\"`"),
            (
                key,
                configured.keys,
                "there are no keys",
                "add `[keys]` with `file = \"keys\"`, with lines made by `serpent key LEVEL`",
            ),
            (
                certificate,
                configured.client_certificates,
                "clients are not asked for a certificate",
                "give the site `client-ca = \"ca.pem\"`",
            ),
        ];
        for (written, exists, what, help) in needs {
            if let Some(written) = written.as_ref().filter(|_| !exists && self.shape_is_sound) {
                self.problems.push(Problem::new(what, Some(written.span())).help(help));
            }
        }
    }
}

fn rule_span(written: &Spanned<RawRule>) -> Range<usize> {
    let raw = written.get_ref();
    raw.name.as_ref().or(raw.class.as_ref()).map_or(written.span(), Spanned::span)
}

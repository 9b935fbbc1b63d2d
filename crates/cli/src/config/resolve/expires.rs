//! `expires` of a site or a route: how long caches may keep responses.

use std::sync::Arc;

use server::config::{Expires, Freshness, TypePattern};
use toml::Spanned;

use super::resolver::Resolver;
use crate::{
    config::{
        problems::Problem,
        raw::{RawRoute, RawSite},
        written::{OrOff, RawExpires},
    },
    values,
};

/// The setting and those that belong to it.
struct Raw<'a> {
    expires: Option<&'a Spanned<RawExpires>>,
    overrides: Option<&'a Spanned<bool>>,
    field: Option<&'a Spanned<bool>>,
}

impl<'a> Raw<'a> {
    fn of_site(site: &'a RawSite) -> Self {
        Self {
            expires: site.expires.as_ref(),
            overrides: site.expires_override.as_ref(),
            field: site.expires_field.as_ref(),
        }
    }

    fn of_route(route: &'a RawRoute) -> Self {
        Self {
            expires: route.expires.as_ref(),
            overrides: route.expires_override.as_ref(),
            field: route.expires_field.as_ref(),
        }
    }
}

impl Resolver<'_> {
    /// `None`: nothing is said of how long responses may be kept.
    pub(super) fn expires(&mut self, site: &RawSite) -> Option<Arc<Expires>> {
        let raw = Raw::of_site(site);
        let mut expires = raw.expires.map(|written| self.by_type(written)).unwrap_or_default();
        if expires.is_empty() && site.route.iter().all(|route| route.get_ref().expires.is_none()) {
            self.without_expires(&raw);
        }
        expires.overrides_origin = raw.overrides.is_some_and(|on| *on.get_ref());
        expires.writes_date = raw.field.is_some_and(|on| *on.get_ref());
        (!expires.is_empty()).then(|| Arc::new(expires))
    }

    /// The same for a route, which takes from its site what it does not say itself.
    pub(super) fn expires_of(
        &mut self,
        route: &RawRoute,
        site: &RawSite,
        of_site: Option<&Arc<Expires>>,
    ) -> Option<Arc<Expires>> {
        let raw = Raw::of_route(route);
        if raw.expires.is_none() && raw.overrides.is_none() && raw.field.is_none() {
            return of_site.cloned();
        }
        let mut expires = match raw.expires {
            Some(written) => self.by_type(written),
            None => of_site.map(|expires| (**expires).clone()).unwrap_or_default(),
        };
        if expires.is_empty() {
            self.without_expires(&raw);
            return None;
        }
        let is_on = |own: Option<&Spanned<bool>>, other: &Option<Spanned<bool>>| {
            own.or(other.as_ref()).is_some_and(|on| *on.get_ref())
        };
        expires.overrides_origin = is_on(raw.overrides, &site.expires_override);
        expires.writes_date = is_on(raw.field, &site.expires_field);
        Some(Arc::new(expires))
    }

    fn without_expires(&mut self, raw: &Raw<'_>) {
        for (name, place) in [("expires-override", raw.overrides), ("expires-field", raw.field)] {
            if let Some(place) = place.filter(|on| *on.get_ref() && self.is_as_written()) {
                let message = format!("`{name}` has no effect: `expires` says nothing here");
                let help = "add `expires = { \"text/css\" = \"30d\" }`, or leave this out";
                self.problems.push(Problem::new(message, Some(place.span())).help(help));
            }
        }
    }

    fn by_type(&mut self, written: &Spanned<RawExpires>) -> Expires {
        let pairs = match &written.get_ref().0 {
            OrOff::Word(word) => {
                let freshness = values::freshness(&word.0).unwrap_or_else(|message| {
                    self.problems.push(Problem::new(message, Some(written.span())));
                    None
                });
                return Expires::new(Vec::new(), freshness);
            }
            OrOff::Table(pairs) => pairs,
        };
        let (mut by_type, mut otherwise) = (Vec::<(TypePattern, Option<Freshness>)>::new(), None);
        for (key, value) in &**pairs {
            let kind = match key.get_ref().as_str() {
                "default" => Ok(None),
                kind => TypePattern::parse(kind).map(Some).ok_or_else(|| {
                    format!("`{kind}` is no media type: write it as in `text/html` or `image/*`, or `default` for all others")
                }),
            };
            match (kind, values::freshness(&value.get_ref().0)) {
                (Ok(None), Ok(freshness)) => otherwise = freshness,
                (Ok(Some(kind)), Ok(_)) if by_type.iter().any(|(other, _)| *other == kind) => {
                    let message = format!("`{}` is given twice", key.get_ref());
                    self.problems.push(Problem::new(message, Some(key.span())).help("leave one of them out"));
                }
                (Ok(Some(kind)), Ok(freshness)) => by_type.push((kind, freshness)),
                (kind, freshness) => {
                    self.problems.extend(kind.err().map(|message| Problem::new(message, Some(key.span()))));
                    self.problems.extend(freshness.err().map(|message| Problem::new(message, Some(value.span()))));
                }
            }
        }
        Expires::new(by_type, otherwise)
    }
}

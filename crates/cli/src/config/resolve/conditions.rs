//! Conditions on requests: of rules, and of routes.

use std::ops::Range;

use server::config::{Condition, Filter, ValueMatch};
use toml::Spanned;

use super::resolver::Resolver;
use crate::{
    config::{
        problems::Problem,
        raw::{RawRoute, RawUnless},
        written::{Values, ValuesByName},
    },
    values,
};

/// Conditions whose values have names.
pub(super) struct ByName<'a> {
    pub query: &'a Option<ValuesByName>,
    pub header: &'a Option<ValuesByName>,
    pub cookie: &'a Option<ValuesByName>,
}

impl Resolver<'_> {
    /// The requests that a route takes, beside those of its path.
    pub(super) fn filter(&mut self, raw: &RawRoute, place: Range<usize>) -> Filter {
        let RawRoute { method, client, query, header, cookie, .. } = raw;
        let all = self.of_route(method, client, &ByName { query, header, cookie }, "this route", place);
        let unless = raw.unless.as_ref().map(|written| {
            let RawUnless { path, path_glob, path_regex, method, client, query, header, cookie } = written.get_ref();
            let mut unless =
                self.of_route(method, client, &ByName { query, header, cookie }, "`unless`", written.span());
            unless.extend(self.list(path, values::path_prefix).map(Condition::Path));
            unless.extend(self.list(path_glob, values::path_glob).map(Condition::Path));
            unless.extend(self.list(path_regex, values::path_regex).map(Condition::Path));
            if unless.is_empty() && self.shape_is_sound {
                self.problems.push(
                    Problem::new("`unless` has no condition", Some(written.span()))
                        .help("write it as in `unless = { method = [\"GET\", \"HEAD\"] }`, or leave it out"),
                );
            }
            unless
        });
        Filter { all, unless: unless.unwrap_or_default() }
    }

    fn of_route(
        &mut self,
        method: &Option<Spanned<Values>>,
        client: &Option<Spanned<Values>>,
        by_name: &ByName<'_>,
        owner: &str,
        place: Range<usize>,
    ) -> Vec<Condition> {
        let mut conditions = Vec::new();
        conditions.extend(self.list(method, values::method).map(Condition::Method));
        conditions.extend(self.list(client, values::network).map(Condition::Client));
        conditions.extend(self.by_name(by_name, owner, place));
        conditions
    }

    /// Conditions whose values have names. `owner`: what they belong to, at `place`.
    pub(super) fn by_name(&mut self, written: &ByName<'_>, owner: &str, place: Range<usize>) -> Vec<Condition> {
        let ByName { query, header, cookie } = written;
        let mut conditions = Vec::new();
        for (name, values) in [("query", query), ("header", header), ("cookie", cookie)] {
            if values.as_ref().is_some_and(|values| values.is_empty()) {
                self.problems.push(
                    Problem::new(
                        format!("`{name}` of {owner} is an empty table, which asks for nothing"),
                        Some(place.clone()),
                    )
                    .help(format!("name what is to be there, as in `{name} = {{ a = \"1\" }}`, or leave it out")),
                );
            }
        }
        for (name, values) in sorted(query) {
            conditions.extend(self.value_match(values).map(|values| Condition::Query(name.get_ref().clone(), values)));
        }
        for (name, values) in sorted(header) {
            match values::header_name(name.get_ref()) {
                Ok(header) => {
                    conditions.extend(self.value_match(values).map(|values| Condition::Header(header, values)))
                }
                Err(message) => self.problems.push(Problem::new(message, Some(name.span()))),
            }
        }
        for (name, values) in sorted(cookie) {
            match values::cookie_name(name.get_ref()) {
                Ok(cookie) => {
                    conditions.extend(self.value_match(values).map(|values| Condition::Cookie(cookie, values)))
                }
                Err(message) => self.problems.push(Problem::new(message, Some(name.span()))),
            }
        }
        conditions
    }

    /// The values of a condition, of which one must match, with a problem if there are none.
    pub(super) fn list<T>(
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

    /// The same for a condition that may be `true`: any value matches, and the list is empty.
    pub(super) fn list_or_any(&mut self, written: &Option<Spanned<Values>>) -> Option<Vec<String>> {
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
}

/// In the order of the file.
fn sorted(values: &Option<ValuesByName>) -> Vec<(&Spanned<String>, &Spanned<Values>)> {
    let mut values: Vec<_> = values.iter().flatten().collect();
    values.sort_by_key(|(name, _)| name.span().start);
    values
}

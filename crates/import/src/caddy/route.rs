//! A route on its way, and what other directives add to it.

use super::{matcher::Pattern, state::Translation};
use crate::{
    draft::{Section, Settings, from},
    fields::Fields,
    report::Place,
    syntax::Directive,
};

/// A route on its way.
#[derive(Clone, Debug)]
pub struct Route {
    pub pattern: Pattern,
    pub place: Place,
    /// Without those of the pattern.
    pub settings: Settings,
    pub request: Fields,
    pub response: Fields,
    /// The root that a site of these files has; only with files.
    pub root: Option<String>,
}

/// Adds the fields of an outer block behind a route's own.
fn extend(own: &mut Fields, outer: &Fields) {
    for (name, value) in &outer.set {
        if !own.set.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            own.set.push((name.clone(), value.clone()));
        }
    }
    for name in &outer.remove {
        if !own.remove.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            own.remove.push(name.clone());
        }
    }
    own.client.extend(outer.client.iter().filter(|one| !own.client.contains(one)).cloned().collect::<Vec<_>>());
    own.add.extend(outer.add.iter().filter(|one| !own.add.contains(one)).cloned().collect::<Vec<_>>());
}

impl Route {
    pub fn new(pattern: Pattern, directive: &Directive) -> Self {
        Self {
            pattern,
            place: directive.place.clone(),
            settings: Settings::default(),
            request: Fields::default(),
            response: Fields::default(),
            root: None,
        }
    }

    /// Whether it has nothing but files, as a path without a route has.
    pub fn is_plain(&self) -> bool {
        let (request, response) = (&self.request, &self.response);
        let changes = !request.is_empty() || !response.is_empty();
        self.pattern == Pattern::All && self.settings.is_only(&["files"]) && self.settings.has("files") && !changes
    }

    pub fn section(&self) -> Section {
        let mut settings = self.pattern.settings();
        settings.extend(&self.settings);
        // A request that never reaches an origin has no fields to change.
        if self.settings.has("upstream") || self.settings.has("files") {
            self.request.write("request-headers", &mut settings);
        }
        self.response.write("response-headers", &mut settings);
        let mut section = Section { settings, ..Section::new("[[site.route]]") };
        section.comment.push(from(&self.place));
        if let Pattern::Prefix(path) = &self.pattern
            && !path.ends_with('/')
        {
            section.comment.push(format!("{path} and what is below it; Caddy takes every path that begins with it"));
        }
        section
    }
}

/// Settings that a directive adds to the routes of some paths.
pub struct Addition<'a> {
    pub directive: &'a Directive,
    pub paths: Vec<Pattern>,
    pub settings: Settings,
    pub request: Fields,
    pub response: Fields,
}

impl<'a> Addition<'a> {
    pub fn new(directive: &'a Directive, paths: Vec<Pattern>) -> Self {
        let (request, response) = (Fields::default(), Fields::default());
        Self { directive, paths, settings: Settings::default(), request, response }
    }

    fn add_to(&self, route: &mut Route) {
        let is_answered = !(route.settings.has("upstream") || route.settings.has("files"));
        for name in self.settings.names().filter(|name| !(is_answered && *name == "request-body")) {
            if let Some(value) = self.settings.text_of(name) {
                route.settings.write(name, value.to_owned(), None);
            }
        }
        extend(&mut route.request, &self.request);
        extend(&mut route.response, &self.response);
    }
}

impl Translation {
    /// Adds to the routes that have the paths; where one has more, it gets a route of its own in front of it.
    pub fn add(&mut self, additions: &[Addition<'_>], routes: &mut Vec<Route>) {
        // Additions for all paths come last, so that they also reach the routes that the others make.
        let (for_all, for_some): (Vec<_>, Vec<_>) =
            additions.iter().partition(|addition| addition.paths.contains(&Pattern::All));
        for addition in for_some.into_iter().chain(for_all) {
            for path in &addition.paths {
                self.add_to_path(addition, path, routes);
            }
        }
    }

    fn add_to_path(&mut self, addition: &Addition<'_>, path: &Pattern, routes: &mut Vec<Route>) {
        let refuses = ["require", "allow", "deny"].iter().any(|name| addition.settings.has(name));
        if let Pattern::Prefix(path) = path
            && refuses
            && !path.ends_with('/')
        {
            self.leave(addition.directive, format!("it holds for `{path}` and what is below it, not for `{path}x`"));
        }
        let (mut found, mut is_covered) = (false, false);
        for route in routes.iter_mut() {
            let is_part = path.covers(&route.pattern);
            // The route's paths may be among them. Too much is refused rather than too little.
            let may_be_part = refuses && matches!(route.pattern, Pattern::Expression(_));
            if is_part || may_be_part {
                addition.add_to(route);
            }
            if may_be_part && !is_part {
                let reason = format!("it holds for all paths of the route at {}, too", route.place);
                self.leave(addition.directive, reason);
            }
            found |= is_part;
            is_covered |= route.pattern == *path;
        }
        if is_covered {
            return;
        }
        let Some(at) = routes.iter().position(|route| route.pattern.covers(path)) else {
            if !found {
                self.leave(addition.directive, "no route has these paths");
            }
            return;
        };
        let mut route = Route { pattern: path.clone(), place: addition.directive.place.clone(), ..routes[at].clone() };
        if let Some(replaced) = routes[at].settings.text_of("replace-prefix").map(str::to_owned) {
            let Some(replaced) = routes[at].pattern.replaced_below(&replaced, path) else {
                let reason =
                    "an upstream sees other paths here: only a prefix that ends in a slash has a route of its own";
                return self.leave(addition.directive, reason);
            };
            route.settings.replace("replace-prefix", replaced);
        }
        addition.add_to(&mut route);
        routes.insert(at, route);
    }
}

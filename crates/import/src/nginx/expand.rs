//! `proxy_pass http://$backend` where a `map` gives the server: a location for each entry of the map.

use super::condition::entries;
use crate::syntax::Directive;

/// The name of the line that such a location has: the variable, and the number of the entry. No file has it.
pub(super) const ENTRY: &str = "entry of a map";

/// The directives with a location for each entry of a map that chooses its server.
pub(super) fn expanded(directives: &[Directive]) -> Vec<Directive> {
    let http = directives.iter().find(|it| it.name == "http").map_or(directives, Directive::inner);
    let maps: Vec<&Directive> = http.iter().filter(|it| it.name == "map").collect();
    each(directives, &maps)
}

fn each(directives: &[Directive], maps: &[&Directive]) -> Vec<Directive> {
    let mut all = Vec::new();
    for directive in directives {
        let block = directive.block.as_ref().filter(|_| directive.name != "map").map(|block| each(block, maps));
        let directive = Directive { block: block.or_else(|| directive.block.clone()), ..directive.clone() };
        match by_map(&directive, maps) {
            Some(locations) => all.extend(locations),
            None => all.push(directive),
        }
    }
    all
}

/// The locations in place of one; `None`: it stays as it is.
fn by_map(location: &Directive, maps: &[&Directive]) -> Option<Vec<Directive>> {
    let inner = location.inner();
    if location.name != "location" || inner.iter().any(|it| it.name == "location") {
        return None;
    }
    let at = inner.iter().position(|it| it.name == "proxy_pass")?;
    let (scheme, rest) = inner[at].arg(0).split_once("://")?;
    let variable = rest.split('/').next().filter(|name| name.starts_with('$'))?;
    let map = maps.iter().find(|map| map.arg(1) == variable)?;
    let (entries, default) = entries(map).ok()?;
    // The map of a path would need a second pattern.
    if default.is_empty() || entries.iter().any(|entry| entry.when.path.is_some()) {
        return None;
    }
    let behind = &rest[variable.len()..];
    let with = |value: &str, line: Option<Directive>| {
        let mut inner = inner.to_vec();
        inner[at].args = vec![format!("{scheme}://{value}{behind}")];
        inner.extend(line);
        Directive { block: Some(inner), ..location.clone() }
    };
    let line = |number: usize| Directive {
        place: map.place.clone(),
        name: ENTRY.to_owned(),
        args: vec![variable.to_owned(), number.to_string()],
        block: None,
    };
    let of_entries = entries.iter().enumerate().map(|(number, entry)| with(&entry.value, Some(line(number))));
    Some(of_entries.chain([with(&default, None)]).collect())
}

//! `proxy_pass http://$backend`: a location for each entry of the `map` that gives the server, or the server that `set`
//! gives.

use super::{condition::entries, missing::with_try_files};
use crate::syntax::Directive;

/// The name of the line that such a location has: the variable, and the number of the entry. No file has it.
pub(super) const ENTRY: &str = "entry of a map";

/// The directives with a location for each entry of a map that chooses its server.
pub(super) fn expanded(directives: &[Directive]) -> Vec<Directive> {
    let http = directives.iter().find(|it| it.name == "http").map_or(directives, Directive::inner);
    let maps: Vec<&Directive> = http.iter().filter(|it| it.name == "map").collect();
    each(&each_server(directives), &maps)
}

/// The same, with the fixed values of variables in the addresses of applications and servers.
fn each_server(directives: &[Directive]) -> Vec<Directive> {
    let one = |directive: &Directive| {
        let block = directive.block.as_ref().map(|block| match directive.name.as_str() {
            "http" => each_server(block),
            "server" => with_try_files(without_unasked(with_constants(block, block, false))),
            _ => block.clone(),
        });
        Directive { block, ..directive.clone() }
    };
    directives.iter().map(one).collect()
}

/// Whether `auth_request` asks a location of this path.
fn asks(block: &[Directive], path: Option<&String>) -> bool {
    block.iter().any(|it| it.name == "auth_request" && it.args.first() == path || asks(it.inner(), path))
}

/// The directives of a block in a server: `set` of the block itself or of the server gives a variable its value.
/// `is_asked`: it is the location that `auth_request` asks, with one path for all requests.
fn with_constants(block: &[Directive], server: &[Directive], is_asked: bool) -> Vec<Directive> {
    let one = |directive: &Directive| {
        let mut directive = directive.clone();
        if let Some(inner) = directive.block.as_ref().filter(|_| directive.name == "location") {
            directive.block = Some(with_constants(inner, server, asks(server, directive.args.last())));
        }
        if matches!(directive.name.as_str(), "root" | "alias")
            && let Some(path) = directive.args.first().and_then(|path| substituted(path, block, server))
        {
            directive.args[0] = path;
        }
        if directive.name.ends_with("_pass")
            && let Some(written) = directive.args.first()
            && let Some(address) = with_values(written, block, server, is_asked)
        {
            directive.args[0] = address;
        }
        directive
    };
    block.iter().map(one).collect()
}

/// An address with the values of its variables; `None`: one has no fixed value, or the path behind the address would be
/// another.
fn with_values(written: &str, block: &[Directive], server: &[Directive], is_asked: bool) -> Option<String> {
    // With a variable the path behind a server is the whole path, and not what takes the place of a prefix.
    let bare = written.strip_suffix("$request_uri").unwrap_or(written);
    let address = bare.split_once("://").map_or(bare, |(_, rest)| rest);
    if !written.contains('$') || address.contains('/') && !address.starts_with("unix:") && !is_asked {
        return None;
    }
    substituted(bare, block, server)
}

/// A text with the values of its variables; `None`: one has no fixed value.
fn substituted(text: &str, block: &[Directive], server: &[Directive]) -> Option<String> {
    let mut whole = text.to_owned();
    for _ in 0..8 {
        let Some((before, behind)) = whole.split_once('$') else { return Some(whole) };
        let (name, rest) = match behind.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
            Some(split) => split,
            None => {
                behind.split_at(behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len()))
            }
        };
        let value = constant(name, block).or_else(|| constant(name, server))?;
        whole = format!("{before}{value}{rest}");
    }
    None
}

/// The value that a block gives to a variable, if nothing else in it does.
fn constant<'d>(name: &str, block: &'d [Directive]) -> Option<&'d str> {
    let is_it = |it: &Directive| it.name == "set" && it.arg(0).strip_prefix('$') == Some(name);
    let in_ifs = block.iter().filter(|it| it.name == "if").any(|it| it.inner().iter().any(is_it));
    let value = block.iter().rfind(|it| is_it(it)).filter(|_| !in_ifs)?.arg(1);
    (!value.contains('$')).then_some(value)
}

/// The block without `set` of variables that nothing in it asks for.
fn without_unasked(block: Vec<Directive>) -> Vec<Directive> {
    fn asked(block: &[Directive], variable: &str) -> bool {
        let plain = variable.trim_start_matches('$');
        let asks =
            |it: &Directive| it.args.iter().any(|arg| arg.contains(variable) || arg.contains(&format!("${{{plain}}}")));
        block.iter().any(|it| it.name != "set" && asks(it) || asked(it.inner(), variable))
    }
    fn without(block: Vec<Directive>, server: &[Directive]) -> Vec<Directive> {
        let is_asked = |it: &Directive| it.name != "set" || it.arg(1).contains('$') || asked(server, it.arg(0));
        let inner = |mut it: Directive| {
            it.block = it.block.map(|block| without(block, server));
            it
        };
        block.into_iter().filter(is_asked).map(inner).collect()
    }
    let server = block.clone();
    without(block, &server)
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

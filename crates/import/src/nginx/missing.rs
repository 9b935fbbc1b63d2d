//! `if (!-e $request_filename)`: how files were looked for before there was `try_files`. It is translated as `try_files`.

use crate::syntax::Directive;

/// Why a location is not of this kind: what answers for its files, too.
const ANSWERS: &[&str] = &["try_files", "proxy_pass", "fastcgi_pass", "uwsgi_pass", "return", "location"];

/// The block of a server with `try_files` in place of such conditions in its locations. Where the application is in the
/// condition itself, it gets a named location.
pub(super) fn with_try_files(block: Vec<Directive>) -> Vec<Directive> {
    let mut named = Vec::new();
    let mut all: Vec<Directive> = Vec::new();
    for location in block {
        match looked_for(&location, named.len()) {
            Some((location, applications)) => {
                all.push(location);
                named.extend(applications);
            }
            None => all.push(location),
        }
    }
    all.extend(named);
    all
}

/// The location with `try_files`, and the named location that this leads to. `None`: it stays as it is.
fn looked_for(location: &Directive, number: usize) -> Option<(Directive, Option<Directive>)> {
    if location.name != "location" || location.arg(0).starts_with('@') {
        return None;
    }
    let inner = location.inner();
    let mut conditions = inner.iter().enumerate().filter(|(_, it)| it.name == "if");
    let (Some((at, condition)), None) = (conditions.next(), conditions.next()) else { return None };
    if inner.iter().any(|it| ANSWERS.contains(&it.name.as_str())) {
        return None;
    }
    let tries: &[&str] = match condition.args.join(" ").replace("( ", "(").replace(" )", ")").as_str() {
        "(!-e $request_filename)" => &["$uri", "$uri/"],
        "(!-f $request_filename)" => &["$uri"],
        _ => return None,
    };
    let mut done = condition.inner().iter().filter(|it| it.name != "break");
    let action = done.next()?;
    let (target, application) = match action.name.as_str() {
        "rewrite" if done.next().is_none() => (instead(action)?, None),
        "proxy_pass" | "fastcgi_pass" | "uwsgi_pass" => {
            let name = format!("@missing-{number}");
            let of_application = |it: &&Directive| {
                ["proxy_", "fastcgi_", "uwsgi_"].iter().any(|begin| it.name.starts_with(begin)) || it.name == "include"
            };
            let around = inner.iter().filter(of_application).cloned();
            let inside = condition.inner().iter().filter(|it| it.name != "break").cloned();
            let block = Some(around.chain(inside).collect());
            (name.clone(), Some(Directive { args: vec![name], block, ..location.clone() }))
        }
        _ => return None,
    };
    let args = tries.iter().map(|&it| it.to_owned()).chain([target]).collect();
    let tried = Directive { name: "try_files".to_owned(), args, block: None, place: condition.place.clone() };
    let mut inner = inner.to_vec();
    inner[at] = tried;
    Some((Directive { block: Some(inner), ..location.clone() }, application))
}

/// The target of a `rewrite` of every path, in the words of `try_files`.
fn instead(rewrite: &Directive) -> Option<String> {
    let (target, flag) = (rewrite.arg(1), rewrite.arg(2));
    if !matches!(flag, "" | "last") || !target.starts_with('/') {
        return None;
    }
    let path = match rewrite.arg(0) {
        "^" | ".*" | "^.*$" | "^/" => None,
        "^(.*)$" | "^(.+)$" | "(.*)" | "^(.*)" | "^(/.*)$" => Some("$uri"),
        // Without the slash at its begin: it counts only behind one.
        "^/(.*)$" | "^/(.+)$" | "^/(.*)" => Some("/$1"),
        _ => return None,
    };
    let target = match path {
        None => target.to_owned(),
        Some("/$1") => target.replace("/$1", "$uri"),
        Some(path) => target.replace("$1", path),
    };
    if ["$1", "$2"].iter().any(|part| target.contains(part)) {
        return None;
    }
    // A rewrite appends the query, unless its target ends with a question mark.
    Some(match (target.strip_suffix('?'), target.contains('?')) {
        (Some(bare), _) => bare.to_owned(),
        (None, true) => format!("{target}&$args"),
        (None, false) => format!("{target}$is_args$args"),
    })
}

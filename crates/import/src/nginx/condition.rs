//! `if`, and the variables of `map` and `geo` that it asks: which requests a route takes.

use toml_edit::Value;

use super::{state::Translation, values};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

/// The property of a request that a variable holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Method,
    Client,
    /// A field, a cookie or a key of the query: the setting, and the name there.
    Named(&'static str, String),
    Path,
}

/// Values that a request may have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Matcher {
    /// Whole values.
    OneOf(Vec<String>),
    Regex(String),
    /// Something is there.
    Something,
}

/// A condition on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    subject: Subject,
    matcher: Matcher,
}

/// The requests that a route takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct When {
    /// A regular expression for the path, in place of the pattern of the route.
    pub path: Option<String>,
    all: Option<Test>,
    unless: Option<Test>,
}

/// An entry of a `map` or `geo`, and the requests for which it counts.
pub(super) struct Entry {
    pub when: When,
    pub value: String,
}

/// Why a condition has no counterpart.
type Reason = String;

impl When {
    /// Adds the conditions to the settings of a route.
    pub(super) fn write(&self, settings: &mut Settings) {
        if let Some((name, value)) = self.all.as_ref().and_then(Test::setting) {
            settings.set(name, value);
        }
        if let Some(unless) = self.unless.as_ref().and_then(Test::setting) {
            settings.set("unless", table([unless]));
        }
    }
}

impl Test {
    fn setting(&self) -> Option<(&'static str, Value)> {
        let named = |name: &String, value: Value| table([(name, value)]);
        Some(match (&self.subject, &self.matcher) {
            (Subject::Method, Matcher::OneOf(methods)) => ("method", list(methods)),
            (Subject::Client, Matcher::OneOf(nets)) => ("client", list(nets)),
            (Subject::Named(kind, name), Matcher::OneOf(values)) => match &values[..] {
                [one] => (kind, named(name, one.as_str().into())),
                several => (kind, named(name, list(several))),
            },
            (Subject::Named(kind, name), Matcher::Regex(regex)) => {
                (kind, named(name, table([("regex", regex.as_str().into())])))
            }
            (Subject::Named(kind, name), Matcher::Something) => (kind, named(name, table([("regex", ".".into())]))),
            _ => return None,
        })
    }
}

impl<'a> Translation<'a> {
    /// The requests for which the condition of an `if` holds. Several are tried one after the other.
    pub(super) fn condition(&mut self, directive: &Directive) -> Result<Vec<When>, Reason> {
        let text = directive.args.join(" ");
        let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(&text).trim();
        let (variable, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let (operator, operand) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let operand = operand.trim();
        if !matches!(operator, "" | "=" | "!=" | "~" | "~*" | "!~" | "!~*") || !variable.starts_with('$') {
            return Err(format!("`{text}`: a route asks for the method, the client, a field, a cookie or the query"));
        }
        if values::has_variable(operand) && !operator.contains('~') {
            return Err(format!("`{operand}`: a condition compares with a fixed value"));
        }
        if let Some(map) = self.map_of(variable) {
            let holds = |value: &str| match operator {
                "" => Ok(!matches!(value, "" | "0")),
                "=" => Ok(value == operand),
                "!=" => Ok(value != operand),
                _ => Err("what a map gives is compared as a whole".to_owned()),
            };
            let found = of_map(map, holds)?;
            self.maps_used.insert(variable.to_owned());
            return Ok(found);
        }
        of_request(&subject(variable)?, operator, operand)
    }

    /// The `map` or `geo` that gives a variable its value.
    pub(super) fn map_of(&self, variable: &str) -> Option<&'a Directive> {
        self.maps.iter().copied().find(|map| map.args.last().is_some_and(|to| to == variable))
    }
}

fn subject(variable: &str) -> Result<Subject, Reason> {
    let name = variable.strip_prefix('$').unwrap_or(variable).trim_start_matches('{').trim_end_matches('}');
    let plain = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    Ok(match name {
        "request_method" => Subject::Method,
        "remote_addr" | "binary_remote_addr" => Subject::Client,
        "uri" | "request_uri" | "document_uri" => Subject::Path,
        _ => {
            let kinds = [("http_", "header"), ("cookie_", "cookie"), ("arg_", "query")];
            let found = kinds.into_iter().find_map(|(prefix, kind)| Some((kind, name.strip_prefix(prefix)?)));
            match found {
                // In HTTP/2 the host is no field.
                Some(("header", "host")) => return Err("a site answers for a host (`names`)".to_owned()),
                Some(("header", field)) if plain(field) => Subject::Named("header", field.replace('_', "-")),
                Some((kind, key)) if plain(key) => Subject::Named(kind, key.to_owned()),
                _ => {
                    return Err(format!(
                        "`{variable}`: a route asks for the method, the client, a field, a cookie or the query"
                    ));
                }
            }
        }
    })
}

/// A comparison with what a request says.
fn of_request(subject: &Subject, operator: &str, operand: &str) -> Result<Vec<When>, Reason> {
    let is_negative = operator.starts_with('!');
    let matcher = match operator.trim_start_matches('!') {
        // Neither empty nor 0.
        "" => Matcher::Regex("[^0]|..".to_owned()),
        "=" if operand.is_empty() => Matcher::Something,
        "=" => Matcher::OneOf(vec![operand.to_owned()]),
        comparison => Matcher::Regex(values::regex(operand, comparison == "~*")?),
    };
    // `= ""` asks that nothing is there.
    let is_negative = is_negative != (operator.ends_with('=') && operand.is_empty());
    when(subject, matcher, is_negative).map(|when| vec![when])
}

fn when(subject: &Subject, matcher: Matcher, is_negative: bool) -> Result<When, Reason> {
    let matcher = match (subject, matcher) {
        (Subject::Path, matcher) => {
            let path = match matcher {
                Matcher::OneOf(paths) if !paths.iter().any(|path| path.contains('?')) => {
                    let paths: Vec<String> = paths.iter().map(|path| regex::escape(path)).collect();
                    if paths.len() == 1 { format!("^{}$", paths[0]) } else { format!("^(?:{})$", paths.join("|")) }
                }
                Matcher::Regex(regex) if !regex.contains(r"\?") => regex,
                _ => return Err("a path is compared without its query".to_owned()),
            };
            return match is_negative {
                true => Err("a route takes paths; it has no list of those that it does not take".to_owned()),
                false => Ok(When { path: Some(path), ..When::default() }),
            };
        }
        (Subject::Method, Matcher::Regex(regex)) => Matcher::OneOf(methods(&regex)?),
        (Subject::Method | Subject::Client, Matcher::Something) => return Err("that is always so".to_owned()),
        (Subject::Client, Matcher::Regex(_)) => return Err("clients are compared as networks".to_owned()),
        (_, matcher) => matcher,
    };
    let test = Some(Test { subject: subject.clone(), matcher });
    Ok(match is_negative {
        true => When { unless: test, ..When::default() },
        false => When { all: test, ..When::default() },
    })
}

/// The methods of an expression such as `^(GET|HEAD)$`.
fn methods(regex: &str) -> Result<Vec<String>, Reason> {
    let inner = regex.strip_prefix("(?i)").unwrap_or(regex);
    let inner = inner.strip_prefix('^').unwrap_or(inner);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    let inner = inner.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(inner);
    let inner = inner.strip_prefix("?:").unwrap_or(inner);
    let methods: Vec<String> = inner.split('|').map(str::to_owned).collect();
    let plain = |method: &String| !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase());
    match methods.iter().all(plain) {
        true => Ok(methods),
        false => Err("methods are listed by name, as in `^(GET|HEAD)$`".to_owned()),
    }
}

/// The keys of a `map` or `geo` whose values are asked for.
struct Keys {
    subject: Subject,
    /// Keys that are whole values, and those that are expressions, in their order, with their values.
    whole: Vec<(String, String)>,
    expressions: Vec<(String, String)>,
    /// The value where nothing is there.
    of_nothing: Option<String>,
    default: String,
}

impl Keys {
    fn of(map: &Directive) -> Result<Self, Reason> {
        let is_geo = map.name == "geo";
        let from = if is_geo && map.args.len() == 1 { "$remote_addr" } else { map.arg(0) };
        let subject = subject(from)?;
        let mut keys =
            Self { subject, whole: Vec::new(), expressions: Vec::new(), of_nothing: None, default: String::new() };
        for entry in map.inner() {
            let value = entry.arg(0).to_owned();
            match entry.name.as_str() {
                "default" => keys.default = value,
                "volatile" => {}
                "hostnames" | "delete" | "proxy" | "proxy_recursive" | "ranges" => {
                    return Err(format!("`{}` has no counterpart", entry.name));
                }
                "" => keys.of_nothing = Some(value),
                key => match key.strip_prefix('~') {
                    Some(expression) if !is_geo => {
                        let ignores_case = expression.starts_with('*');
                        let expression = values::regex(expression.trim_start_matches('*'), ignores_case)?;
                        keys.expressions.push((expression, value));
                    }
                    _ => keys.whole.push((key.trim_start_matches('\\').to_owned(), value)),
                },
            }
        }
        Ok(keys)
    }

    /// One matcher for several keys. Those of a map are compared without regard to case.
    fn matcher(&self, whole: &[&str], expressions: &[&str]) -> Matcher {
        match self.subject {
            Subject::Method | Subject::Client => Matcher::OneOf(whole.iter().map(|key| (*key).to_owned()).collect()),
            _ => {
                let whole: Vec<String> = whole.iter().map(|key| regex::escape(key)).collect();
                let exact = (!whole.is_empty()).then(|| format!("(?i:^(?:{})$)", whole.join("|")));
                let all: Vec<String> = exact.into_iter().chain(expressions.iter().map(|it| (*it).to_owned())).collect();
                Matcher::Regex(match &all[..] {
                    [one] => one.clone(),
                    several => several.iter().map(|one| format!("(?:{one})")).collect::<Vec<_>>().join("|"),
                })
            }
        }
    }
}

/// The requests for which the value of a map is one that holds.
fn of_map(map: &Directive, holds: impl Fn(&str) -> Result<bool, Reason>) -> Result<Vec<When>, Reason> {
    let keys = Keys::of(map)?;
    let values = keys.whole.iter().chain(&keys.expressions).map(|(_, value)| value).chain([&keys.default]);
    if values.chain(&keys.of_nothing).any(|value| values::has_variable(value)) {
        return Err("the values of this map have variables".to_owned());
    }
    let split = |all: &[(String, String)]| -> Result<(Vec<String>, Vec<String>), Reason> {
        let (mut yes, mut no) = (Vec::new(), Vec::new());
        for (key, value) in all {
            if holds(value)? { yes.push(key.clone()) } else { no.push(key.clone()) }
        }
        Ok((yes, no))
    };
    fn refs(all: &[String]) -> Vec<&str> {
        all.iter().map(String::as_str).collect()
    }
    let (whole_yes, whole_no) = split(&keys.whole)?;
    let (regex_yes, regex_no) = split(&keys.expressions)?;
    let default = holds(&keys.default)?;
    let nothing = keys.of_nothing.as_deref().map(&holds).transpose()?.unwrap_or(default);
    let mixes = "keys of both kinds overlap in this map: write the routes by hand";
    if keys.subject == Subject::Client && !whole_yes.is_empty() && !whole_no.is_empty() {
        return Err(mixes.to_owned());
    }
    let is_named = matches!(keys.subject, Subject::Named(..));
    if !default {
        // An expression that does not hold may stand before one that holds.
        if !regex_yes.is_empty() && (!regex_no.is_empty() || !whole_no.is_empty()) {
            return Err(mixes.to_owned());
        }
        let mut found = Vec::new();
        if !whole_yes.is_empty() || !regex_yes.is_empty() {
            found.push(when(&keys.subject, keys.matcher(&refs(&whole_yes), &refs(&regex_yes)), false)?);
        }
        if nothing && is_named {
            found.push(when(&keys.subject, Matcher::Something, true)?);
        }
        return Ok(found);
    }
    if !regex_yes.is_empty() || !whole_yes.is_empty() && !regex_no.is_empty() {
        return Err(mixes.to_owned());
    }
    if whole_no.is_empty() && regex_no.is_empty() {
        return match (nothing, is_named) {
            (false, true) => when(&keys.subject, Matcher::Something, false).map(|when| vec![when]),
            _ => Ok(vec![When::default()]),
        };
    }
    let mut all = when(&keys.subject, keys.matcher(&refs(&whole_no), &refs(&regex_no)), true)?;
    if !nothing && is_named {
        all.all = Some(Test { subject: keys.subject.clone(), matcher: Matcher::Something });
    }
    Ok(vec![all])
}

/// The entries of a map that give something, in the order in which they count, and the value for all other requests.
pub(super) fn entries(map: &Directive) -> Result<(Vec<Entry>, String), Reason> {
    let keys = Keys::of(map)?;
    let mut all = Vec::new();
    for (key, value) in &keys.whole {
        let matcher = match keys.subject {
            Subject::Path => Matcher::OneOf(vec![key.clone()]),
            _ => keys.matcher(&[key], &[]),
        };
        all.push(Entry { when: when(&keys.subject, matcher, false)?, value: value.clone() });
    }
    for (expression, value) in &keys.expressions {
        all.push(Entry { when: when(&keys.subject, keys.matcher(&[], &[expression]), false)?, value: value.clone() });
    }
    if keys.of_nothing.is_some_and(|value| value != keys.default) {
        return Err("this map has a value for requests without the field".to_owned());
    }
    if all.iter().any(|entry| entry.value.is_empty()) && !keys.default.is_empty() {
        return Err("an entry of this map takes the value away".to_owned());
    }
    all.retain(|entry| !entry.value.is_empty());
    Ok((all, keys.default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Place;

    fn directive(name: &str, args: &[&str], block: Option<Vec<Directive>>) -> Directive {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Directive { place: Place { file: "a".to_owned(), line: 1 }, name: name.to_owned(), args, block }
    }

    /// The conditions of an `if`, as they are written.
    fn written(maps: &[Directive], condition: &str) -> Result<Vec<String>, String> {
        let maps = maps.to_vec();
        let mut translation = Translation { maps: maps.iter().collect(), ..Translation::default() };
        let words: Vec<&str> = condition.split(' ').collect();
        let found = translation.condition(&directive("if", &words, None))?;
        Ok(found
            .iter()
            .map(|when| {
                let mut settings = Settings::default();
                when.write(&mut settings);
                let said = settings.names().map(|name| format!("{name} = {}", settings.text_of(name).unwrap()));
                said.chain(when.path.clone()).collect::<Vec<_>>().join("; ")
            })
            .collect())
    }

    #[test]
    fn comparisons_with_what_a_request_says() {
        for (condition, said) in [
            ("($request_method = POST)", "method = [\"POST\"]"),
            ("($request_method !~ ^(GET|HEAD)$ )", "unless = { method = [\"GET\", \"HEAD\"] }"),
            ("($http_user_agent ~* (bot|crawl))", "header = { user-agent = { regex = \"(?i)(bot|crawl)\" } }"),
            ("($http_user_agent = )", "unless = { header = { user-agent = { regex = \".\" } } }"),
            ("($http_x_token != abc)", "unless = { header = { x-token = \"abc\" } }"),
            ("($cookie_beta)", "cookie = { beta = { regex = \"[^0]|..\" } }"),
            ("($arg_id = 7)", "query = { id = \"7\" }"),
            ("($remote_addr = 192.0.2.1)", "client = [\"192.0.2.1\"]"),
            ("($uri ~ ^/old/)", "^/old/"),
        ] {
            assert_eq!(written(&[], condition), Ok(vec![said.to_owned()]), "{condition}");
        }
        for condition in [
            "(-f $request_filename)",
            "($args ~ a)",
            "($http_host = a)",
            "($remote_addr ~ ^10\\.)",
            "($request_method ~ P)",
            "($uri !~ ^/a)",
            "($request_uri ~ \\?a=1)",
            "($invalid_referer)",
            "($http_a = $http_b)",
            "($http_a ~ (?!b)c)",
        ] {
            let condition = condition.replace("~ P)", "~ ^P.*)");
            assert!(written(&[], &condition).is_err(), "{condition}: {:?}", written(&[], &condition));
        }
    }

    #[test]
    fn what_a_map_says_of_a_request() {
        let map = |from: &str, entries: &[(&str, &str)]| {
            let block = entries.iter().map(|(key, value)| directive(key, &[value], None)).collect();
            [directive("map", &[from, "$it"], Some(block))]
        };
        for (from, entries, condition, expected) in [
            (
                "$http_user_agent",
                &[("default", "0"), ("~*bot", "1"), ("curl", "1")][..],
                "($it)",
                Ok(vec!["header = { user-agent = { regex = \"(?:(?i:^(?:curl)$))|(?:(?i)bot)\" } }"]),
            ),
            (
                "$http_user_agent",
                &[("", "1"), ("~bad", "1")],
                "($it = 1)",
                Ok(vec![
                    "header = { user-agent = { regex = \"bad\" } }",
                    "unless = { header = { user-agent = { regex = \".\" } } }",
                ]),
            ),
            (
                "$request_method",
                &[("default", "1"), ("GET", "0"), ("HEAD", "0")],
                "($it)",
                Ok(vec!["unless = { method = [\"GET\", \"HEAD\"] }"]),
            ),
            (
                "$http_x_key",
                &[("default", "bad"), ("secret", "good")],
                "($it != good)",
                Ok(vec!["unless = { header = { x-key = { regex = \"(?i:^(?:secret)$)\" } } }"]),
            ),
            ("$http_a", &[("~a", "1"), ("~ab", "0")], "($it)", Err(())),
            ("$http_a", &[("a", "$http_b")], "($it)", Err(())),
            ("$host", &[("a", "1")], "($it)", Err(())),
            ("$http_a", &[("hostnames", ""), ("a", "1")], "($it)", Err(())),
        ] {
            let found = written(&map(from, entries), condition);
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(found.clone().map_err(drop), expected, "{from} {condition}: {found:?}");
        }
        let nets = vec![directive("default", &["0"], None), directive("10.0.0.0/8", &["1"], None)];
        let geo = [directive("geo", &["$it"], Some(nets))];
        assert_eq!(written(&geo, "($it = 0)"), Ok(vec!["unless = { client = [\"10.0.0.0/8\"] }".to_owned()]));
    }
}

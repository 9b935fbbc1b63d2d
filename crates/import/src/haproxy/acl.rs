//! `acl`, and the conditions behind `if` and `unless`: which requests a line is about.

use toml_edit::Value;

use super::values;
use crate::{
    draft::{Settings, list, table},
    syntax::{Directive, Files},
};

/// The property of a request that a test looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Host,
    /// Regular expressions for paths.
    Path,
    Method,
    Client,
    /// A field, a cookie or a key of the query: the setting, and the name there.
    Named(&'static str, String),
    Tls,
    Always,
    Never,
}

/// A test of a request. One of its values is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    subject: Subject,
    /// Whole values, or one regular expression for fields and cookies.
    values: Vec<String>,
    is_regex: bool,
}

/// The requests that a line is about: all tests hold, and none of the exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct When {
    /// Names of hosts; `None`: all.
    pub hosts: Option<Vec<String>>,
    /// Names of hosts that it is not about.
    pub other_hosts: Vec<String>,
    /// A regular expression for the path, or a prefix that ends in a slash.
    pub path: Option<String>,
    /// Whether only requests with TLS are meant, or only those without.
    pub tls: Option<bool>,
    all: Vec<Test>,
    unless: Vec<Test>,
}

/// The conditions of a section that have names.
pub(super) struct Acls<'a> {
    /// Each a list of tests, one of which is enough.
    named: Vec<(&'a str, Vec<&'a Directive>)>,
    /// Where lists of values are.
    files: &'a dyn Files,
}

impl<'a> Acls<'a> {
    pub(super) fn of(section: &'a Directive, files: &'a dyn Files) -> Self {
        let mut named: Vec<(&'a str, Vec<&'a Directive>)> = Vec::new();
        for line in section.inner().iter().filter(|line| line.name == "acl") {
            match named.iter_mut().find(|(name, _)| *name == line.arg(0)) {
                Some((_, lines)) => lines.push(line),
                None => named.push((line.arg(0), vec![line])),
            }
        }
        Self { named, files }
    }

    /// The lines of a name.
    pub(super) fn get(&self, name: &str) -> Option<&[&'a Directive]> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, lines)| &lines[..])
    }
}

/// The most combinations that a condition is made of.
const MOST: usize = 32;

impl When {
    /// Whether requests for these hosts may be meant. `names`: those of a site; none: all hosts that are no other site's.
    pub(super) fn is_about(&self, names: &[String]) -> bool {
        match &self.hosts {
            Some(hosts) => names.iter().any(|name| has_host(hosts, name) && !has_host(&self.other_hosts, name)),
            None => names.is_empty() || !names.iter().all(|name| has_host(&self.other_hosts, name)),
        }
    }

    /// Whether both ask the same of a request, apart from its host.
    pub(super) fn is_same_but_hosts(&self, other: &Self) -> bool {
        (&self.path, &self.all, &self.unless) == (&other.path, &other.all, &other.unless)
    }

    /// Whether all requests that the other is about are among its own, as far as patterns tell. Hosts are not looked at.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let has_all_paths = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(own), Some(path)) => own == path || own.starts_with('/') && path.starts_with(own.as_str()),
            (Some(_), None) => false,
        };
        has_all_paths && self.all.is_empty() && self.unless.is_empty()
    }

    /// The addresses of clients, if it is about those and asks for nothing else.
    pub(super) fn clients_alone(&self) -> Option<&[String]> {
        let Self { hosts: None, other_hosts, path: None, tls: None, all, unless } = self else { return None };
        match &all[..] {
            [Test { subject: Subject::Client, values, .. }] if other_hosts.is_empty() && unless.is_empty() => {
                Some(values)
            }
            _ => None,
        }
    }

    /// Whether it is about all requests of its hosts.
    pub(super) fn is_everything(&self) -> bool {
        self.path.is_none() && self.all.is_empty() && self.unless.is_empty()
    }

    /// The requests that both are about. An error is the reason why there is no word for them.
    pub(super) fn and(&self, other: &Self) -> Result<Self, String> {
        let path = match (&self.path, &other.path) {
            // Of two prefixes, the longer one may lie within the other.
            (Some(one), Some(other)) if one.starts_with('/') && one.starts_with(other.as_str()) => Some(one.clone()),
            (Some(one), Some(other)) if other.starts_with('/') && other.starts_with(one.as_str()) => {
                Some(other.clone())
            }
            (Some(one), Some(other)) if one != other => return Err("a route has one pattern".to_owned()),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let hosts = match (&self.hosts, &other.hosts) {
            (Some(one), Some(other)) => {
                let within = |all: &[String], hosts: &[String]| -> Vec<String> {
                    all.iter().filter(|name| has_host(hosts, name)).cloned().collect()
                };
                let mut names = within(one, other);
                names.extend(within(other, one));
                names.sort();
                names.dedup();
                Some(names)
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let mut both = Self { hosts, path, tls: self.tls.or(other.tls), ..self.clone() };
        both.other_hosts.extend(other.other_hosts.iter().cloned());
        for test in &other.all {
            if both.all.iter().any(|it| it.subject == test.subject && it != test) {
                return Err("a route asks for one value of a field".to_owned());
            }
            both.all.push(test.clone());
        }
        for test in &other.unless {
            add_exception(&mut both.unless, test.clone())?;
        }
        both.all.dedup();
        Ok(both)
    }

    /// Adds the conditions to the settings of a route, and its pattern.
    pub(super) fn write(&self, settings: &mut Settings) {
        match self.path.as_deref() {
            None => settings.set("path", "/"),
            Some(prefix) if prefix.starts_with('/') => settings.set("path", prefix),
            Some(regex) => settings.set("path-regex", regex),
        }
        for (name, value) in tables(&self.all) {
            settings.set(name, value);
        }
        let unless = tables(&self.unless);
        if !unless.is_empty() {
            settings.set("unless", table(unless));
        }
    }
}

/// Whether a name is one of the hosts, or below one such as `*.example.org`.
fn has_host(hosts: &[String], name: &str) -> bool {
    let is_below = |host: &String| host.strip_prefix('*').is_some_and(|suffix| name.ends_with(suffix));
    hosts.iter().any(|host| host == name || is_below(host))
}

/// Settings of tests, one for each kind.
fn tables(tests: &[Test]) -> Vec<(&'static str, Value)> {
    let mut found: Vec<(&'static str, Value)> = Vec::new();
    for (kind, subject) in [("method", Subject::Method), ("client", Subject::Client), ("path-regex", Subject::Path)] {
        found.extend(tests.iter().find(|it| it.subject == subject).map(|it| (kind, list(&it.values))));
    }
    for kind in ["header", "cookie", "query"] {
        let of_kind = tests.iter().filter_map(|it| match &it.subject {
            Subject::Named(other, name) if *other == kind => Some((name.clone(), it.value())),
            _ => None,
        });
        let of_kind: Vec<_> = of_kind.collect();
        if !of_kind.is_empty() {
            found.push((kind, table(of_kind)));
        }
    }
    found
}

impl Test {
    fn value(&self) -> Value {
        match &self.values[..] {
            [] => true.into(),
            [one] if self.is_regex => table([("regex", one.as_str().into())]),
            [one] => one.as_str().into(),
            several => list(several),
        }
    }
}

fn add_exception(unless: &mut Vec<Test>, test: Test) -> Result<(), String> {
    let Some(known) = unless.iter_mut().find(|it| it.subject == test.subject) else {
        unless.push(test);
        return Ok(());
    };
    if known.is_regex || test.is_regex {
        return Err("an exception has one expression for a field".to_owned());
    }
    known.values.extend(test.values);
    Ok(())
}

/// The words of an action, and those of its condition.
pub(super) fn split(args: &[String]) -> (&[String], &[String]) {
    let at = args.iter().position(|arg| arg == "if" || arg == "unless").unwrap_or(args.len());
    args.split_at(at)
}

/// The requests that a test with a single value is about.
pub(super) fn single(fetch: &str, value: &str, files: &dyn Files) -> Result<Vec<When>, String> {
    Ok(positive(&test(&[&fetch.to_owned(), &"--".to_owned(), &value.to_owned()], files)?))
}

/// The requests that a line is about, by the words behind its action: nothing, `if ...` or `unless ...`. They are
/// several where one of several is enough. An error is the reason why there is no word for them.
pub(super) fn condition(words: &[String], acls: &Acls<'_>) -> Result<Vec<When>, String> {
    let (is_unless, words) = match words.split_first() {
        None => return Ok(vec![When::default()]),
        Some((first, rest)) if first == "if" => (false, rest),
        Some((first, rest)) if first == "unless" => (true, rest),
        Some((other, _)) => return Err(format!("`{other}` has no counterpart")),
    };
    let groups = groups(words, acls)?;
    if !is_unless {
        let mut found = Vec::new();
        for group in groups {
            found.extend(conjunction(&group)?);
        }
        return if found.len() > MOST { Err("the condition has too many parts".to_owned()) } else { Ok(found) };
    }
    // Not (a b or c) is (not a or not b) and not c.
    let mut found = vec![When::default()];
    for group in groups {
        let mut next = Vec::new();
        for (is_negative, tests) in &group {
            for negated in conjunction(&[(!is_negative, tests.clone())])? {
                for one in &found {
                    next.push(one.and(&negated)?);
                }
            }
        }
        found = next;
        if found.len() > MOST {
            return Err("the condition has too many parts".to_owned());
        }
    }
    Ok(found)
}

/// Literals: whether it is negated, and its tests, one of which is enough.
type Literal = (bool, Vec<Test>);

/// The parts of a condition, one of which is enough; each is a list of literals that all hold.
fn groups(words: &[String], acls: &Acls<'_>) -> Result<Vec<Vec<Literal>>, String> {
    let mut groups = vec![Vec::new()];
    let mut rest = words.iter();
    let mut is_negative = false;
    while let Some(word) = rest.next() {
        let word = match word.strip_prefix('!') {
            Some(name) => {
                is_negative = !is_negative;
                name
            }
            None => word.as_str(),
        };
        match word {
            "" => continue,
            "||" | "or" | "OR" => groups.push(Vec::new()),
            "{" => {
                let inner: Vec<&String> = rest.by_ref().take_while(|word| *word != "}").collect();
                let test = test(&inner, acls.files)?;
                groups.last_mut().into_iter().for_each(|group| group.push((is_negative, vec![test.clone()])));
            }
            name => {
                let tests = named(name, acls)?;
                groups.last_mut().into_iter().for_each(|group| group.push((is_negative, tests.clone())));
            }
        }
        is_negative = false;
    }
    Ok(groups)
}

/// The tests of an `acl`, or of one that HAProxy has itself.
fn named(name: &str, acls: &Acls<'_>) -> Result<Vec<Test>, String> {
    let plain = |subject, values: &[&str]| {
        vec![Test { subject, values: values.iter().map(|value| (*value).to_owned()).collect(), is_regex: false }]
    };
    if let Some(lines) = acls.get(name) {
        return lines.iter().map(|line| test(&line.args.iter().skip(1).collect::<Vec<_>>(), acls.files)).collect();
    }
    Ok(match name {
        "TRUE" | "HTTP" | "HTTP_1.0" | "HTTP_1.1" | "HTTP_2.0" => plain(Subject::Always, &[]),
        "FALSE" => plain(Subject::Never, &[]),
        "LOCALHOST" => plain(Subject::Client, &["127.0.0.0/8", "::1"]),
        "METH_GET" => plain(Subject::Method, &["GET", "HEAD"]),
        _ => match name.strip_prefix("METH_") {
            Some(method) => plain(Subject::Method, &[method]),
            None => return Err(format!("there is no acl `{name}`")),
        },
    })
}

/// All literals hold: several alternatives, because each positive literal may have some.
fn conjunction(literals: &[Literal]) -> Result<Vec<When>, String> {
    let mut found = vec![When::default()];
    for (is_negative, tests) in literals {
        let mut next = Vec::new();
        for when in &found {
            if *is_negative {
                let mut when = when.clone();
                for test in tests {
                    when = when.and(&exception(test)?)?;
                }
                next.push(when);
                continue;
            }
            for test in tests {
                if test.subject == Subject::Never {
                    continue;
                }
                next.extend(positive(test).into_iter().map(|it| when.and(&it)).collect::<Result<Vec<_>, _>>()?);
            }
        }
        found = next;
        if found.len() > MOST {
            return Err("the condition has too many parts".to_owned());
        }
    }
    Ok(found)
}

fn positive(test: &Test) -> Vec<When> {
    match test.subject {
        Subject::Always => vec![When::default()],
        Subject::Never => Vec::new(),
        Subject::Tls => vec![When { tls: Some(true), ..When::default() }],
        Subject::Host => vec![When { hosts: Some(test.values.clone()), ..When::default() }],
        Subject::Path => test.values.iter().map(|path| When { path: Some(path.clone()), ..When::default() }).collect(),
        _ => vec![When { all: vec![test.clone()], ..When::default() }],
    }
}

fn exception(test: &Test) -> Result<When, String> {
    Ok(match test.subject {
        Subject::Always => return Err("it holds for no request".to_owned()),
        Subject::Never => When::default(),
        Subject::Tls => When { tls: Some(false), ..When::default() },
        Subject::Host => When { other_hosts: test.values.clone(), ..When::default() },
        Subject::Path => {
            // A prefix is a pattern of its own kind.
            let anchored =
                |path: &String| if path.starts_with('/') { format!("^{}", regex::escape(path)) } else { path.clone() };
            let values = test.values.iter().map(anchored).collect();
            When { unless: vec![Test { values, ..test.clone() }], ..When::default() }
        }
        _ => When { unless: vec![test.clone()], ..When::default() },
    })
}

/// A test as it is written: what it asks for, flags, values.
fn test(words: &[&String], files: &dyn Files) -> Result<Test, String> {
    let Some((fetch, rest)) = words.split_first() else { return Err("a test is missing".to_owned()) };
    let (mut how, mut ignores_case, mut values) = (None, false, Vec::new());
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" => ignores_case = true,
            "-m" => how = rest.next().map(|how| how.as_str()),
            "-f" => values.extend(values::list_of(rest.next().map_or("", |file| file.as_str()), files)?),
            "-M" | "-n" | "-u" => return Err(format!("`{word}` has no counterpart")),
            "--" => {
                values.extend(rest.by_ref().map(|word| (*word).clone()));
            }
            _ => values.push((*word).clone()),
        }
    }
    if values.iter().any(|value| value.contains("${") || value.contains("%[")) {
        return Err("values have no variables".to_owned());
    }
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').ok_or(format!("`{fetch}` has no counterpart"))?),
        None => (fetch.as_str(), ""),
    };
    let unknown = || format!("`{fetch}`: a route asks for host, path, method, client, field, cookie and query");
    if fetch.matches('(').count() > 1 || argument.contains(',') {
        return Err(unknown());
    }
    let name = name.strip_prefix("req.").unwrap_or(name);
    // `hdr_beg(host)` is `hdr(host) -m beg`.
    let suffixed = ["_beg", "_end", "_sub", "_reg", "_dom", "_dir", "_str"].into_iter().find(|it| name.ends_with(it));
    let base = suffixed.map_or(name, |suffix| name.trim_end_matches(suffix));
    let how = how.or(suffixed.map(|suffix| &suffix[1..])).unwrap_or("str");
    if matches!(how, "found") && !matches!(base, "hdr" | "cook" | "url_param" | "urlp" | "fhdr") {
        return Err(unknown());
    }
    let plain = |subject| Ok(Test { subject, values: values.clone(), is_regex: false });
    match base {
        "always_true" => plain(Subject::Always),
        "always_false" => plain(Subject::Never),
        "ssl_fc" => plain(Subject::Tls),
        "method" | "meth" if how == "str" => plain(Subject::Method),
        "src" if how == "str" => plain(Subject::Client),
        "path" | "url" => {
            let paths = values.iter().map(|value| path(value, how, ignores_case)).collect::<Result<_, _>>()?;
            Ok(Test { subject: Subject::Path, values: paths, is_regex: false })
        }
        "hdr" | "fhdr" if argument.eq_ignore_ascii_case("host") => {
            let names = values.iter().map(|value| host(value, how)).collect::<Result<Vec<_>, _>>()?;
            Ok(Test { subject: Subject::Host, values: names.concat(), is_regex: false })
        }
        "hdr" | "fhdr" | "cook" | "url_param" | "urlp" if !argument.is_empty() => {
            let kind = match base {
                "cook" => "cookie",
                "url_param" | "urlp" => "query",
                _ => "header",
            };
            let subject = Subject::Named(kind, argument.to_owned());
            if how == "found" {
                return Ok(Test { subject, values: Vec::new(), is_regex: false });
            }
            if how == "str" && !ignores_case {
                return plain(subject);
            }
            let all = values.iter().map(|value| expression(value, how)).collect::<Result<Vec<_>, _>>()?;
            let all = if all.len() == 1 { all.concat() } else { format!("(?:{})", all.join("|")) };
            let all = if ignores_case { format!("(?i){all}") } else { all };
            Ok(Test { subject, values: vec![checked(all)?], is_regex: true })
        }
        _ => Err(unknown()),
    }
}

/// The expression for a value.
fn expression(value: &str, how: &str) -> Result<String, String> {
    let escaped = regex::escape(value);
    Ok(match how {
        "str" => format!("^{escaped}$"),
        "beg" => format!("^{escaped}"),
        "end" => format!("{escaped}$"),
        "sub" => escaped,
        "reg" => value.to_owned(),
        "dir" => format!("(^|/){escaped}(/|$)"),
        "dom" => format!("(^|[./:]){escaped}([./:]|$)"),
        _ => return Err(format!("`-m {how}` has no counterpart")),
    })
}

/// The pattern of a path: a prefix that ends in a slash, or an expression.
fn path(value: &str, how: &str, ignores_case: bool) -> Result<String, String> {
    if how == "beg" && value.starts_with('/') && value.ends_with('/') && !ignores_case {
        return Ok(value.to_owned());
    }
    let expression = expression(value, how)?;
    checked(if ignores_case { format!("(?i){expression}") } else { expression })
}

fn checked(expression: String) -> Result<String, String> {
    match regex::Regex::new(&expression) {
        Ok(_) => Ok(expression),
        Err(_) => Err("this regular expression has what those here lack (looking around, references)".to_owned()),
    }
}

/// The names of hosts.
fn host(value: &str, how: &str) -> Result<Vec<String>, String> {
    let name = value.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    match how {
        "str" if plain(&name) => Ok(vec![name]),
        "end" if name.starts_with('.') && plain(&name) => Ok(vec![format!("*{name}")]),
        "dom" if plain(&name) && name.contains('.') => Ok(vec![name.clone(), format!("*.{name}")]),
        _ => Err(format!("`{value}`: a site has whole names, or such as `*.example.org`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Place;

    /// There are no files.
    struct Nothing;

    impl Files for Nothing {
        fn read(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
            Err(format!("{pattern} does not exist"))
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The alternatives of a condition, as they are written.
    fn written(acls: &[(&'static str, &str)], text: &str) -> Result<Vec<String>, String> {
        let place = Place { file: "a".to_owned(), line: 1 };
        let line = |name: &str, test: &str| Directive {
            place: place.clone(),
            name: "acl".to_owned(),
            args: words(&format!("{name} {test}")),
            block: None,
        };
        let lines: Vec<_> = acls.iter().map(|(name, test)| (*name, line(name, test))).collect();
        let acls = Acls { named: lines.iter().map(|(name, line)| (*name, vec![line])).collect(), files: &Nothing };
        let found = condition(&words(text), &acls)?;
        Ok(found
            .iter()
            .map(|when| {
                let mut settings = Settings::default();
                when.write(&mut settings);
                let said = settings.names().map(|name| format!("{name} = {}", settings.text_of(name).unwrap()));
                let hosts = when.hosts.iter().map(|hosts| format!("hosts {}", hosts.join(" ")));
                said.chain(hosts).chain(when.tls.map(|tls| format!("tls {tls}"))).collect::<Vec<_>>().join("; ")
            })
            .collect())
    }

    #[test]
    fn conditions_become_conditions_of_routes() {
        let acls = [
            ("api", "path_beg /api"),
            ("office", "src 10.0.0.0/8 192.0.2.1"),
            ("bot", "hdr_sub(User-Agent) -i bot crawl"),
        ];
        for (text, expected) in [
            ("", &["path = \"/\""][..]),
            ("if api", &["path-regex = \"^/api\""]),
            (
                "if { path_beg /api/ } !office",
                &["path = \"/api/\"; unless = { client = [\"10.0.0.0/8\", \"192.0.2.1\"] }"],
            ),
            (
                "if api or bot",
                &[
                    "path-regex = \"^/api\"",
                    "path = \"/\"; header = { User-Agent = { regex = \"(?i)(?:bot|crawl)\" } }",
                ],
            ),
            (
                "unless METH_GET || { path /up }",
                &["path = \"/\"; unless = { method = [\"GET\", \"HEAD\"], path-regex = [\"^/up$\"] }"],
            ),
            ("if { path_beg /a/ } { path_beg /a/b/ }", &["path = \"/a/b/\""]),
            (
                "if { path /a /b } METH_POST",
                &["path-regex = \"^/a$\"; method = [\"POST\"]", "path-regex = \"^/b$\"; method = [\"POST\"]"],
            ),
            (
                "if { hdr(host) -i A.example } { cook(beta) -m found }",
                &["path = \"/\"; cookie = { beta = true }; hosts a.example"],
            ),
            ("if !{ ssl_fc }", &["path = \"/\"; tls false"]),
            ("unless { ssl_fc }", &["path = \"/\"; tls false"]),
            (
                "if { path_end .php .inc } { url_param(x) 1 }",
                &["path-regex = '\\.php$'; query = { x = \"1\" }", "path-regex = '\\.inc$'; query = { x = \"1\" }"],
            ),
            ("if { hdr_end(host) .b.example }", &["path = \"/\"; hosts *.b.example"]),
        ] {
            let expected: Vec<_> = expected.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(written(&acls, text), Ok(expected), "{text}");
        }
        for text in [
            "if nothing",
            "if { src -f list }",
            "if { sc_http_req_rate(0) gt 5 }",
            "if { path_beg /a } { path_end b }",
            "if { hdr_beg(host) www. }",
            "if { path_reg ^/a(?!b) }",
            "if { nbsrv(web) lt 1 }",
            "if { req.hdr(a),lower -m str b }",
        ] {
            assert!(written(&acls, text).is_err(), "{text}: {:?}", written(&acls, text));
        }
    }
    #[test]
    fn what_is_about_a_host_is_about_those_below_it() {
        let below = When { hosts: Some(vec!["*.a.example".to_owned()]), ..When::default() };
        let others = When { other_hosts: vec!["*.a.example".to_owned()], ..When::default() };
        let both = When {
            hosts: Some(vec!["b.example".to_owned()]),
            other_hosts: vec!["b.example".to_owned()],
            ..When::default()
        };
        for (name, is_below) in
            [("x.a.example", true), ("*.a.example", true), ("a.example", false), ("b.example", false)]
        {
            assert_eq!(below.is_about(&[name.to_owned()]), is_below, "{name}");
            assert_eq!(others.is_about(&[name.to_owned()]), !is_below, "{name}");
        }
        assert!(!below.is_about(&[]) && others.is_about(&[]) && !both.is_about(&[]));
        assert!(!both.is_about(&["b.example".to_owned()]), "it is about no request");
    }
}

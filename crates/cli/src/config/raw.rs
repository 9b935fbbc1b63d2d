//! Stage one: the file as written. Only the shape is checked here; values keep their place in the file, so that stage two
//! can point at them.

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Range};

use serde::{
    Deserialize,
    de::{self, Deserializer, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::problems::Problem;

/// A value that may be written as a text, a number or a truth value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Written(pub String);

/// A text or number that may be left out, with its place.
pub type Setting = Option<Spanned<Written>>;

macro_rules! sections {
    ($(#[doc = $doc:literal] $name:ident { $($(#[$field_attr:meta])* $field:ident: $type:ty,)* })*) => {
        /// Each section, as an operator knows it, and the names of its settings.
        const SECTIONS: &[(&str, &[&str])] = &[$(($doc, &[$(stringify!($field)),*])),*];

        $(
        #[doc = $doc]
        #[derive(Clone, Debug, Default, Deserialize)]
        #[cfg_attr(test, derive(serde::Serialize))]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct $name { $($(#[$field_attr])* pub $field: $type,)* }
        )*
    };
}

sections! {
    /// The whole file.
    Raw {
        #[serde(deserialize_with = "one_or_more")]
        listen: Option<Vec<Spanned<Written>>>,
        admin: Setting,
        admin_token: Setting,
        workers: Setting,
        #[serde(deserialize_with = "one_or_more")]
        trusted_proxies: Option<Vec<Spanned<Written>>>,
        forwarded_by: Setting,
        default_class: Setting,
        uplink: RawUplink,
        limits: RawLimits,
        cache: RawCache,
        access_log: RawAccessLog,
        files: RawFiles,
        admission: RawAdmission,
        users: Option<Spanned<RawUsers>>,
        keys: Option<Spanned<RawKeys>>,
        session: Option<Spanned<RawSession>>,
        site: Vec<Spanned<RawSite>>,
        upstream: Vec<Spanned<RawUpstream>>,
        class: Vec<Spanned<RawClass>>,
        rule: Vec<Spanned<RawRule>>,
    }

    /// `[uplink]`
    RawUplink {
        rate: Setting,
        order: Setting,
        enforce: Setting,
        cutoffs: Option<Spanned<RawCutoffs>>,
        guard: Setting,
        utilisation: Setting,
        segment_overhead: Setting,
        device: Setting,
        share: Setting,
    }

    /// `[limits]`
    RawLimits {
        connections: Setting,
        request_head: Setting,
        request_headers: Setting,
        request_body: Setting,
        body_memory: Setting,
        body_file: Setting,
        body_files: Setting,
        body_directory: Setting,
        handshake_timeout: Setting,
        head_timeout: Setting,
        request_body_rate: Setting,
        idle_timeout: Setting,
        write_timeout: Setting,
        response_rate: Setting,
        http2_streams: Setting,
        shutdown_timeout: Setting,
    }

    /// `[cache]`
    RawCache {
        capacity: Setting,
        max_file: Setting,
        revalidate_after: Setting,
    }

    /// `[access-log]`
    RawAccessLog {
        target: Setting,
        format: Setting,
    }

    /// `[files]` and `[site.files]`
    RawFiles {
        #[serde(deserialize_with = "one_or_more")]
        index: Option<Vec<Spanned<Written>>>,
        listing: Option<bool>,
        dot_files: Option<bool>,
        symlinks: Setting,
        precompressed: Option<bool>,
        cache_control: Option<Vec<RawCacheControl>>,
        mime_types: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    }

    /// `[[site]]`
    RawSite {
        #[serde(deserialize_with = "one_or_more")]
        names: Option<Vec<Spanned<Written>>>,
        root: Setting,
        tls_cert: Setting,
        tls_key: Setting,
        client_ca: Setting,
        route: Vec<Spanned<RawRoute>>,
        files: RawFiles,
    }

    /// `[[site.route]]`
    RawRoute {
        path: Setting,
        path_glob: Setting,
        path_regex: Setting,
        upstream: Setting,
        cgi: Option<Spanned<RawProgram>>,
        files: Option<Spanned<bool>>,
        replace_prefix: Setting,
        keep_host: Option<Spanned<bool>>,
        buffer_request: Option<Spanned<bool>>,
        buffer_response: Option<Spanned<bool>>,
        resource: Setting,
        admitted: Option<Spanned<bool>>,
        request_headers: RawHeaders,
        response_headers: RawHeaders,
    }

    /// `request-headers` and `response-headers` of a route
    RawHeaders {
        #[serde(deserialize_with = "one_or_more")]
        remove: Option<Vec<Spanned<Written>>>,
        set: Option<Pairs>,
        add: Option<Pairs>,
    }

    /// `cgi` of a route, as a table
    RawCgi {
        program: Setting,
        interpreter: Setting,
        environment: Option<Pairs>,
        #[serde(deserialize_with = "one_or_more")]
        pass_environment: Option<Vec<Spanned<Written>>>,
        timeout: Setting,
        response_head: Setting,
        max_running: Setting,
    }

    /// `[[upstream]]`
    RawUpstream {
        name: Setting,
        #[serde(deserialize_with = "one_or_more")]
        servers: Option<Vec<Spanned<Written>>>,
        connect_timeout: Setting,
        idle_timeout: Setting,
        total_timeout: Setting,
        keep_connections: Setting,
        keep_for: Setting,
        max_connections: Setting,
        retries: Setting,
        response_head: Setting,
        tls_ca: Setting,
        tls_name: Setting,
        tls_cert: Setting,
        tls_key: Setting,
        tls_verify: Option<Spanned<bool>>,
        passive: RawPassive,
        active: Option<Spanned<RawActive>>,
        workers: Option<Spanned<RawWorkers>>,
    }

    /// `passive` of an upstream
    RawPassive {
        failures: Setting,
        pause: Setting,
    }

    /// `active` of an upstream
    RawActive {
        path: Setting,
        every: Setting,
        timeout: Setting,
        statuses: Setting,
        rise: Setting,
        fall: Setting,
    }

    /// `[upstream.workers]`
    RawWorkers {
        command: Option<Spanned<Vec<Spanned<Written>>>>,
        directory: Setting,
        environment: Option<Pairs>,
        processes: Setting,
        start_timeout: Setting,
        stop_timeout: Setting,
    }

    /// `[[class]]`
    RawClass {
        name: Setting,
        weight: Setting,
        delay_ratio: Setting,
        reserved: Setting,
        slots: Setting,
        deadline: Setting,
        order: Setting,
        queue: Setting,
        max_wait: Setting,
        cpu_priority: Setting,
        objective: RawObjective,
        refuse: RawRefuse,
    }

    /// `objective` of a class
    RawObjective {
        mean: Setting,
        p50: Setting,
        p90: Setting,
        p95: Setting,
        p99: Setting,
        p999: Setting,
        error_rate: Setting,
        window: Setting,
    }

    /// `refuse` of a class
    RawRefuse {
        status: Setting,
        retry_after: Setting,
        page: Setting,
    }

    /// `[[rule]]`
    RawRule {
        class: Setting,
        name: Setting,
        resource: Setting,
        raises_session: Option<Spanned<bool>>,
        host: Option<Spanned<Values>>,
        destination: Option<Spanned<Values>>,
        client: Option<Spanned<Values>>,
        method: Option<Spanned<Values>>,
        path: Option<Spanned<Values>>,
        path_glob: Option<Spanned<Values>>,
        path_regex: Option<Spanned<Values>>,
        extension: Option<Spanned<Values>>,
        query: Option<ValuesByName>,
        header: Option<ValuesByName>,
        cookie: Option<ValuesByName>,
        certificate: Option<Spanned<Values>>,
        key: Option<Spanned<Values>>,
        user: Option<Spanned<Values>>,
    }

    /// `[admission]`
    RawAdmission {
        share: Setting,
        slots: Setting,
        resources: Option<BTreeMap<Spanned<String>, Spanned<RawResource>>>,
        late: Setting,
        delay_window: Setting,
        windows: Setting,
        probe_every: Setting,
        probe_after: Setting,
        shrink_above: Setting,
        grow_below: Setting,
    }

    /// `resources` of `[admission]`, as tables
    RawWindow {
        window: Setting,
        least: Setting,
        most: Setting,
        bound: Setting,
        probe: Setting,
        host: Setting,
        upstream: Setting,
    }

    /// `[users]`
    RawUsers {
        file: Setting,
    }

    /// `[keys]`
    RawKeys {
        file: Setting,
        header: Setting,
        query: Setting,
    }

    /// `[session]`
    RawSession {
        cookie: Setting,
        secret: Setting,
        lifetime: Setting,
        secure: Option<bool>,
    }
}

/// Names with a value each.
pub type Pairs = BTreeMap<Spanned<String>, Spanned<Written>>;

/// Names with values each, of which one is enough.
pub type ValuesByName = BTreeMap<Spanned<String>, Spanned<Values>>;

/// Values of which one is enough: `"a"`, `["a", "b"]`, `true` for any, `{ regex = "^a" }` for those in which it is found.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum Values {
    Any(bool),
    One(Written),
    Many(Vec<Spanned<Written>>),
    Regex(Option<Spanned<String>>),
}

/// One rule of `cache-control`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawCacheControl {
    pub pattern: Spanned<String>,
    pub value: Spanned<String>,
}

/// `cutoffs`: a word or a list of sizes.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum RawCutoffs {
    Word(String),
    Sizes(Vec<Spanned<Written>>),
}

/// Reads a list, of which a single value may stand without brackets.
fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Spanned<Written>>>, D::Error> {
    enum OneOrMore {
        One(Written),
        More(Vec<Spanned<Written>>),
    }
    impl<'de> Deserialize<'de> for OneOrMore {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct TextOrList;
            impl<'de> Visitor<'de> for TextOrList {
                type Value = OneOrMore;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a list of texts in quotes, or a single one")
                }

                fn visit_str<E>(self, text: &str) -> Result<OneOrMore, E> {
                    Ok(OneOrMore::One(Written(text.to_owned())))
                }

                fn visit_i64<E>(self, number: i64) -> Result<OneOrMore, E> {
                    Ok(OneOrMore::One(Written(number.to_string())))
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMore, A::Error> {
                    let mut values = Vec::new();
                    while let Some(value) = seq.next_element()? {
                        values.push(value);
                    }
                    Ok(OneOrMore::More(values))
                }
            }
            deserializer.deserialize_any(TextOrList)
        }
    }
    let written = Spanned::<OneOrMore>::deserialize(deserializer)?;
    let place = written.span();
    Ok(Some(match written.into_inner() {
        OneOrMore::One(value) => vec![Spanned::new(place, value)],
        OneOrMore::More(values) => values,
    }))
}

/// The sections that have a setting of this name, as an operator knows them. The first is the whole file.
pub fn sections_with(setting: &str) -> impl Iterator<Item = &'static str> {
    let has = move |fields: &[&str]| fields.iter().any(|field| field.replace('_', "-") == setting);
    SECTIONS.iter().filter(move |(_, fields)| has(fields)).map(|(section, _)| section.trim())
}

/// The section that stands for what is outside of all tables.
pub const TOP: &str = "The whole file.";

/// Syntax errors that are shown: a file of another kind has one in each line.
const MOST_SYNTAX_ERRORS: usize = 5;

/// Reads the file's text. Whatever cannot be read is reported and left out, so that one run finds every mistake.
pub fn read(text: &str) -> (Raw, Vec<Problem>) {
    if text.trim_start().starts_with("-----BEGIN ") {
        let message = "this is not a configuration: it looks like a PEM file, as of a certificate or a key";
        let help = "give the configuration; `tls-cert` and `tls-key` of a `[[site]]` name such files in it";
        return (Raw::default(), vec![Problem::new(message, None).help(help)]);
    }
    let (mut table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What follows a syntax error may be misread: one is shown for each line, and nothing is read further.
        let mut problems: Vec<_> = errors.iter().map(|error| Problem::from_toml(error, text)).collect();
        let line = |problem: &Problem| {
            problem.span.as_ref().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count())
        };
        problems.sort_by_key(|problem| line(problem));
        problems.dedup_by_key(|problem| line(problem));
        if problems.len() > MOST_SYNTAX_ERRORS {
            let more = problems.len() - MOST_SYNTAX_ERRORS;
            problems.truncate(MOST_SYNTAX_ERRORS);
            let message = format!("{more} more lines cannot be read");
            problems
                .push(Problem::new(message, None).help("is this a configuration of Serpent? It is written in TOML"));
        }
        return (Raw::default(), problems);
    }
    let mut problems = Vec::new();
    let sound = table.get_ref().iter().filter(|(key, value)| {
        let problem = list_of_a_single_table(key, value);
        let is_sound = problem.is_none();
        problems.extend(problem);
        is_sound
    });
    *table.get_mut() = sound.map(|(key, value)| (key.clone(), value.clone())).collect();
    loop {
        match Raw::deserialize(toml::de::Deserializer::from(table.clone())) {
            Ok(raw) => return (raw, problems),
            Err(error) => {
                problems.push(Problem::from_toml(&error, text));
                let Some(at) = error.span() else { return (Raw::default(), problems) };
                let mut removed = false;
                *table.get_mut() = table_without(table.get_ref(), &at, &mut removed);
                if !removed {
                    return (Raw::default(), problems);
                }
            }
        }
    }
}

/// Tables of which there is one: `[uplink]`. Serde would take a list for their settings in order.
const SINGLE_TABLES: &[&str] =
    &["uplink", "limits", "cache", "access-log", "files", "admission", "users", "keys", "session"];

fn list_of_a_single_table(key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Option<Problem> {
    let name = key.get_ref();
    let is_list = SINGLE_TABLES.contains(&&**name) && matches!(value.get_ref(), DeValue::Array(_));
    is_list.then(|| {
        Problem::new(format!("there is one `{name}` only"), Some(key.span())).help(format!("write `[{name}]`"))
    })
}

/// The table without the innermost entry that an error points `at`.
fn table_without<'i>(table: &DeTable<'i>, at: &Range<usize>, removed: &mut bool) -> DeTable<'i> {
    let entries = table.iter().filter_map(|(key, value)| {
        if !*removed && key.span() == *at {
            *removed = true;
            return None;
        }
        Some((key.clone(), value_without(value, at, removed)?))
    });
    entries.collect()
}

/// The value without what an error points `at`; `None` if it is the value itself.
fn value_without<'i>(
    value: &Spanned<DeValue<'i>>,
    at: &Range<usize>,
    removed: &mut bool,
) -> Option<Spanned<DeValue<'i>>> {
    let own = value.span();
    if *removed {
        return Some(value.clone());
    }
    let rest = match value.get_ref() {
        // The span of a `[table]` is its header only, so its entries are asked whatever it says.
        DeValue::Table(table) if own != *at => DeValue::Table(table_without(table, at, removed)),
        DeValue::Array(array) if own != *at => {
            DeValue::Array(array.iter().filter_map(|value| value_without(value, at, removed)).collect())
        }
        _ if own.start <= at.start && at.end <= own.end => {
            *removed = true;
            return None;
        }
        other => other.clone(),
    };
    Some(Spanned::new(own, rest))
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Written, E> {
                Ok(Written(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Written, E> {
                Ok(Written(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Written, E> {
                Ok(Written(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Written, E> {
                Ok(Written(number.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

impl<'de> Deserialize<'de> for RawCutoffs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrSizes;
        impl<'de> Visitor<'de> for WordOrSizes {
            type Value = RawCutoffs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"learned\" or a list of sizes such as [\"2KiB\", \"20KiB\"]")
            }

            fn visit_str<E>(self, text: &str) -> Result<RawCutoffs, E> {
                Ok(RawCutoffs::Word(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawCutoffs, A::Error> {
                let mut sizes = Vec::new();
                while let Some(size) = seq.next_element()? {
                    sizes.push(size);
                }
                Ok(RawCutoffs::Sizes(sizes))
            }
        }
        deserializer.deserialize_any(WordOrSizes)
    }
}

/// `cgi` of a route: the program or directory, or a table with more to say of it.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum RawProgram {
    Path(Written),
    Table(Box<RawCgi>),
}

impl<'de> Deserialize<'de> for RawProgram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathOrTable;
        impl<'de> Visitor<'de> for PathOrTable {
            type Value = RawProgram;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a directory or program, or a table with `program`")
            }

            fn visit_str<E>(self, text: &str) -> Result<RawProgram, E> {
                Ok(RawProgram::Path(Written(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawProgram, A::Error> {
                RawCgi::deserialize(MapAccessDeserializer::new(map)).map(|table| RawProgram::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(PathOrTable)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Pattern {
            regex: Option<Spanned<String>>,
        }
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of texts, `true` for any value, or `{ regex = \"...\" }`")
            }

            fn visit_bool<E: de::Error>(self, any: bool) -> Result<Values, E> {
                Ok(Values::Any(any))
            }

            fn visit_str<E>(self, text: &str) -> Result<Values, E> {
                Ok(Values::One(Written(text.to_owned())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Values, E> {
                Ok(Values::One(Written(number.to_string())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(Values::Many(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Values, A::Error> {
                let pattern = Pattern::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Values::Regex(pattern.regex))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// A resource of `[admission]`: its window, or a table with more to say of it.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum RawResource {
    Window(Written),
    Table(Box<RawWindow>),
}

impl<'de> Deserialize<'de> for RawResource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WindowOrTable;
        impl<'de> Visitor<'de> for WindowOrTable {
            type Value = RawResource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests, \"off\", or a table with `window`")
            }

            fn visit_str<E>(self, text: &str) -> Result<RawResource, E> {
                Ok(RawResource::Window(Written(text.to_owned())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<RawResource, E> {
                Ok(RawResource::Window(Written(number.to_string())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawResource, A::Error> {
                RawWindow::deserialize(MapAccessDeserializer::new(map)).map(|it| RawResource::Table(Box::new(it)))
            }
        }
        deserializer.deserialize_any(WindowOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_of_shape_is_found_in_one_run_and_the_rest_is_kept() {
        let text = "workers = 2\nlissten = [\":80\"]\n[limits]\nconnections = []\nidle = 3\nhead-timeout = \"5s\"\n\
                    [[site]]\nroot = \"/a\"\nfiles = { listing = \"yes\" }\n[[site]]\nroot = \"/b\"\n\
                    [[site.files.cache-control]]\npattern = \"*\"\n";
        let (raw, problems) = read(text);
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(problems.len(), 5, "{messages:#?}");
        assert!(messages.iter().any(|m| m.contains("unknown field `lissten`")));
        assert!(messages.iter().any(|m| m.contains("unknown field `idle`")));
        assert!(messages.iter().any(|m| m.contains("expected a text in quotes or a number")));
        assert!(messages.iter().any(|m| m.contains("expected a boolean")));
        assert!(messages.iter().any(|m| m.contains("missing field `value`")));
        assert!(problems.iter().all(|problem| problem.span.is_some()));
        assert_eq!(raw.workers.unwrap().get_ref().0, "2");
        assert_eq!(raw.limits.head_timeout.unwrap().get_ref().0, "5s");
        assert_eq!(raw.site.len(), 2);
    }

    #[test]
    fn every_syntax_error_is_found() {
        let (_, problems) = read("a = \nb = 1\nc = [1,,,2]\n");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems.iter().map(|problem| problem.span.clone().unwrap().start).collect::<Vec<_>>(), [4, 18]);
    }
}

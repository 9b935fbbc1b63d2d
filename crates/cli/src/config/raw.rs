//! Stage one: the file as written. Only the shape is checked here; values keep their place in the file, so that stage two
//! can point at them.

use std::{fmt, ops::Range};

use serde::{
    Deserialize,
    de::{Deserializer, Visitor},
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
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_attr:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[cfg_attr(test, derive(serde::Serialize))]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct $name { $($(#[$field_attr])* pub $field: $type,)* }
    )*};
}

sections! {
    /// The whole file.
    Raw {
        listen: Option<Vec<Spanned<Written>>>,
        admin: Setting,
        workers: Setting,
        uplink: RawUplink,
        limits: RawLimits,
        cache: RawCache,
        access_log: RawAccessLog,
        files: RawFiles,
        site: Vec<Spanned<RawSite>>,
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
    }

    /// `[limits]`
    RawLimits {
        connections: Setting,
        request_head: Setting,
        request_headers: Setting,
        request_body: Setting,
        handshake_timeout: Setting,
        head_timeout: Setting,
        idle_timeout: Setting,
        write_timeout: Setting,
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
        index: Option<Vec<Spanned<Written>>>,
        listing: Option<bool>,
        dot_files: Option<bool>,
        symlinks: Setting,
        precompressed: Option<bool>,
        cache_control: Option<Vec<RawCacheControl>>,
        mime_types: Option<std::collections::BTreeMap<Spanned<String>, Spanned<String>>>,
    }

    /// `[[site]]`
    RawSite {
        names: Vec<Spanned<Written>>,
        root: Setting,
        tls_cert: Setting,
        tls_key: Setting,
        files: RawFiles,
    }
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

/// Reads the file's text. Whatever cannot be read is reported and left out, so that one run finds every mistake.
pub fn read(text: &str) -> (Raw, Vec<Problem>) {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What follows a syntax error may be misread: one is shown for each line, and nothing is read further.
        let mut problems: Vec<_> = errors.iter().map(Problem::from_toml).collect();
        let line = |problem: &Problem| {
            problem.span.as_ref().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count())
        };
        problems.sort_by_key(|problem| line(problem));
        problems.dedup_by_key(|problem| line(problem));
        return (Raw::default(), problems);
    }
    let mut problems = Vec::new();
    loop {
        match Raw::deserialize(toml::de::Deserializer::from(table.clone())) {
            Ok(raw) => return (raw, problems),
            Err(error) => {
                problems.push(Problem::from_toml(&error));
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

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<RawCutoffs, A::Error> {
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

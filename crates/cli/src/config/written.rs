//! The forms that a value can have in the file: a text or a number, a list, a choice of these. Each keeps its span, so that
//! problems can point at it.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData, ops::Range};

use serde::{
    Deserialize,
    de::{
        self, DeserializeOwned, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
        value::MapAccessDeserializer,
    },
};
use toml::Spanned;

/// A value that may be written as a text, a number or a truth value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Written(pub String);

/// A text or number that may be left out, with its place.
pub type Setting = Option<Spanned<Written>>;

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

/// `off`, or a table.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum OrOff<T> {
    Word(Written),
    Table(Box<T>),
}

/// `true`, `false`, or a table.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum OnOrTable<T> {
    On(bool),
    Table(Box<T>),
}

/// `expires`: how long all responses may be kept, or a table by media type.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(transparent))]
pub struct RawExpires(pub OrOff<Pairs>);

/// One rule of `cache-control`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawCacheControl {
    pub pattern: Spanned<String>,
    pub value: Spanned<String>,
}

/// `access-log` of a site or a route: a file, or a table.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(transparent))]
pub struct FileOrTable<T>(pub OrOff<T>);

/// `cutoffs`: a word or a list of sizes.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum RawCutoffs {
    Word(String),
    Sizes(Vec<Spanned<Written>>),
}

/// A setting that is a text, or a table with more to say of it.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum TextOr<T> {
    Text(Written),
    Table(Box<T>),
}

/// A table that a text may stand for.
pub trait OrText: DeserializeOwned {
    /// The text and the table, in words.
    const EXPECTED: &'static str;

    /// The table that a text stands for.
    fn of_text(text: Spanned<Written>) -> Self;
}

impl<T: OrText + Clone> TextOr<T> {
    /// The table, or that which the text stands for. `span`: where it is written.
    pub fn table(&self, span: Range<usize>) -> Cow<'_, T> {
        match self {
            Self::Table(table) => Cow::Borrowed(table),
            Self::Text(text) => Cow::Owned(T::of_text(Spanned::new(span, text.clone()))),
        }
    }
}

/// Reads a list, of which a single text or number may stand without brackets.
pub fn one_or_more<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Spanned<T>>>, D::Error> {
    enum OneOrMore<T> {
        One(T),
        More(Vec<Spanned<T>>),
    }
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct TextOrList<T>(PhantomData<T>);
            impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrList<T> {
                type Value = OneOrMore<T>;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a list of texts in quotes, or a single one")
                }

                fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMore<T>, E> {
                    T::deserialize(text.into_deserializer()).map(OneOrMore::One)
                }

                fn visit_i64<E: de::Error>(self, number: i64) -> Result<OneOrMore<T>, E> {
                    T::deserialize(number.into_deserializer()).map(OneOrMore::One)
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMore<T>, A::Error> {
                    let mut values = Vec::new();
                    while let Some(value) = seq.next_element()? {
                        values.push(value);
                    }
                    Ok(OneOrMore::More(values))
                }
            }
            deserializer.deserialize_any(TextOrList(PhantomData))
        }
    }
    let written = Spanned::<OneOrMore<T>>::deserialize(deserializer)?;
    let place = written.span();
    Ok(Some(match written.into_inner() {
        OneOrMore::One(value) => vec![Spanned::new(place, value)],
        OneOrMore::More(values) => values,
    }))
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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable { expected: "\"off\" or a table", table: PhantomData })
    }
}

impl<'de, T: OrText> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: OrText> Visitor<'de> for Reader<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E>(self, text: &str) -> Result<TextOr<T>, E> {
                Ok(TextOr::Text(Written(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|table| TextOr::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

impl<'de> Deserialize<'de> for RawExpires {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a text in quotes, as in \"30d\", or a table of media types";
        deserializer.deserialize_any(WordOrTable { expected, table: PhantomData }).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FileOrTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a file or \"off\", or a table with `target` and `format`";
        deserializer.deserialize_any(WordOrTable { expected, table: PhantomData }).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OnOrTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = OnOrTable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table")
            }

            fn visit_bool<E>(self, on: bool) -> Result<OnOrTable<T>, E> {
                Ok(OnOrTable::On(on))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OnOrTable<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|table| OnOrTable::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

struct WordOrTable<T> {
    /// The values that are allowed, for an error.
    expected: &'static str,
    table: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for WordOrTable<T> {
    type Value = OrOff<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E>(self, text: &str) -> Result<OrOff<T>, E> {
        Ok(OrOff::Word(Written(text.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrOff<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|table| OrOff::Table(Box::new(table)))
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

/// Whether the setting is there, and not `off`.
pub fn is_given(setting: &Setting) -> bool {
    setting.as_ref().is_some_and(|written| written.get_ref().0 != "off")
}

/// A resource of `[admission]`: its window, or a table with more to say of it.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Serialize), serde(untagged))]
pub enum WindowOrTable<T> {
    Window(Written),
    Table(Box<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WindowOrTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = WindowOrTable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests, \"off\", or a table with `window`")
            }

            fn visit_str<E>(self, text: &str) -> Result<WindowOrTable<T>, E> {
                Ok(WindowOrTable::Window(Written(text.to_owned())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<WindowOrTable<T>, E> {
                Ok(WindowOrTable::Window(Written(number.to_string())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WindowOrTable<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|table| WindowOrTable::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// The forms of sections that may be a text, and the setting that the text is.
macro_rules! or_text {
    ($($name:ident.$setting:ident: $expected:literal,)*) => { $(
        impl OrText for $name {
            const EXPECTED: &'static str = $expected;

            fn of_text(text: Spanned<Written>) -> Self {
                Self { $setting: Some(text), ..Self::default() }
            }
        }
    )* };
}

pub(super) use or_text;

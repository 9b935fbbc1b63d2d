//! The shape of a section of the file, and the macro that makes all sections.

/// A section of the file, as `schema` reads it.
pub struct Section {
    /// The name of its type.
    pub name: &'static str,
    /// Its name in messages to an operator.
    pub called: &'static str,
    /// The names of its settings in Rust, with their types.
    pub settings: &'static [(&'static str, &'static str)],
}

macro_rules! sections {
    ($all:ident $(#[doc = $doc:literal] $name:ident { $($(#[$field_attr:meta])* $field:ident: $type:ty,)* })*) => {
        /// Every section of this file.
        pub const $all: &[Section] = &[$(Section {
            name: stringify!($name),
            called: $doc,
            settings: &[$((stringify!($field), stringify!($type)),)*],
        }),*];

        $(
        #[doc = $doc]
        #[derive(Clone, Debug, Default, Deserialize)]
        #[cfg_attr(test, derive(serde::Serialize))]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct $name { $($(#[$field_attr])* pub $field: $type,)* }
        )*
    };
}

pub(super) use sections;

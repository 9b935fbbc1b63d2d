//! Patterns of media types.

/// A media type, as in `text/html`, `text/*` or `application/*+json`, in lower case. One `*` stands for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePattern {
    before: String,
    /// The text behind the `*`; `None`: the pattern has no `*`.
    after: Option<String>,
}

impl TypePattern {
    /// Reads a pattern; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (major, minor) = text.split_once('/')?;
        let is_name = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&byte))
        };
        if !is_name(major) || !is_name(minor) || major.contains('*') || text.matches('*').count() > 1 {
            return None;
        }
        Some(match text.split_once('*') {
            Some((before, after)) => Self { before: before.to_owned(), after: Some(after.to_owned()) },
            None => Self { before: text, after: None },
        })
    }

    /// How much of a type it says: patterns without `*` say more than all others, then longer ones say more.
    pub(crate) fn precision(&self) -> (bool, usize) {
        (self.after.is_none(), self.before.len() + self.after.as_ref().map_or(0, String::len))
    }

    /// Whether a value of `Content-Type`, with or without parameters, is of this type.
    pub fn matches(&self, content_type: &str) -> bool {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let Some(after) = &self.after else { return kind.eq_ignore_ascii_case(&self.before) };
        let (before, after) = (self.before.as_bytes(), after.as_bytes());
        let kind = kind.as_bytes();
        kind.len() >= before.len() + after.len()
            && kind[..before.len()].eq_ignore_ascii_case(before)
            && kind[kind.len() - after.len()..].eq_ignore_ascii_case(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_matched_without_its_parameters_and_in_any_case() {
        let matches = |pattern, kind| TypePattern::parse(pattern).unwrap().matches(kind);
        assert!(matches("text/*", "Text/HTML; charset=utf-8"));
        assert!(matches("application/*+json", "application/problem+json"));
        assert!(matches("application/JSON", "application/json"));
        assert!(!matches("application/json", "application/json5"));
        assert!(!matches("application/*+json", "application/json"));
        assert!(!matches("text/*", "application/text/x"));
        assert!(!matches("text/*", ""));
    }

    #[test]
    fn what_is_no_type_is_refused() {
        for wrong in ["text", "*/*", "text/", "/html", "text/*a*", "text/html; charset=utf-8", "text/h tml"] {
            assert_eq!(TypePattern::parse(wrong), None, "{wrong}");
        }
    }
}

//! How urgent a response is, as clients and origins say it: `Priority` (RFC 9218).

use std::{borrow::Cow, convert::Infallible};

use http::{HeaderMap, HeaderName};
use sfv::{
    BareItemFromInput, KeyRef, Parser,
    visitor::{DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor},
};

/// The field of requests and responses.
const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// The parameters of a `Priority` field that are there and valid. All others are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityField {
    /// `u`: from 0, the most urgent, to 7.
    pub urgency: Option<u8>,
    /// `i`: the client uses the first bytes before it has the last ones.
    pub incremental: Option<bool>,
}

impl PriorityField {
    /// The field of a request or a response. A field that is no dictionary counts as none.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(PRIORITY).iter().map(|line| line.as_bytes());
        let Some(first) = lines.next() else { return Self::default() };
        // Several lines are one list.
        let whole = lines.fold(Cow::Borrowed(first), |whole, line| Cow::Owned([&whole, line].join(&b","[..])));
        Self::read(&whole)
    }

    /// The text of a field, or of a PRIORITY_UPDATE frame. A text that is no dictionary says nothing.
    pub fn read(text: &[u8]) -> Self {
        Parser::new(text).parse_dictionary_with_visitor(Self::default()).unwrap_or_default()
    }

    /// These parameters, and those of `other` that are not among them.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { urgency: self.urgency.or(other.urgency), incremental: self.incremental.or(other.incremental) }
    }
}

impl<'de> DictionaryVisitor<'de> for PriorityField {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Infallible> {
        Ok(match key.as_str() {
            "u" => Some(Parameter::Urgency(&mut self.urgency)),
            "i" => Some(Parameter::Incremental(&mut self.incremental)),
            _ => None,
        })
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

/// A parameter to read. Of a repeated one the last counts, also if it is not valid.
enum Parameter<'a> {
    Urgency(&'a mut Option<u8>),
    Incremental(&'a mut Option<bool>),
}

impl<'de> EntryVisitor<'de> for Parameter<'_> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(move |item: BareItemFromInput<'de>| {
            match (self, item) {
                (Self::Urgency(urgency), BareItemFromInput::Integer(number)) => {
                    *urgency = u8::try_from(i64::from(number)).ok().filter(|number| *number <= 7);
                }
                (Self::Incremental(incremental), BareItemFromInput::Boolean(is)) => *incremental = Some(is),
                (Self::Urgency(urgency), _) => *urgency = None,
                (Self::Incremental(incremental), _) => *incremental = None,
            }
            Ok::<_, Infallible>(Ignored)
        })
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        match self {
            Self::Urgency(urgency) => *urgency = None,
            Self::Incremental(incremental) => *incremental = None,
        }
        Ok(Ignored)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(text: &str) -> (Option<u8>, Option<bool>) {
        let PriorityField { urgency, incremental } = PriorityField::read(text.as_bytes());
        (urgency, incremental)
    }

    #[test]
    fn parameters_that_are_not_valid_are_ignored_and_no_dictionary_says_nothing() {
        for (text, expected) in [
            ("", (None, None)),
            ("u=0", (Some(0), None)),
            ("u=7, i", (Some(7), Some(true))),
            ("i, u=2", (Some(2), Some(true))),
            ("i=?0", (None, Some(false))),
            (" u=5 ,  i=?1 ", (Some(5), Some(true))),
            ("u=1;x=2, x=(1 2), i;a", (Some(1), Some(true))),
            ("u=8, i", (None, Some(true))),
            ("u=-1", (None, None)),
            ("u=1.0", (None, None)),
            ("u=\"1\"", (None, None)),
            ("u=(1)", (None, None)),
            ("u, i=1", (None, None)),
            ("u=1, u=4", (Some(4), None)),
            ("u=1, u=9", (None, None)),
            ("u=999999999999999", (None, None)),
            ("u=1,", (None, None)),
            ("u=1 i", (None, None)),
            ("U=1", (None, None)),
            ("u=1\u{7f}", (None, None)),
            ("ü=1", (None, None)),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn several_lines_are_one_dictionary_and_an_origin_overrides_what_it_names() {
        let mut headers = HeaderMap::new();
        assert_eq!(PriorityField::of(&headers), PriorityField::default());
        headers.append(PRIORITY, HeaderValue::from_static("u=1"));
        headers.append(PRIORITY, HeaderValue::from_static("i"));
        let asked = PriorityField::of(&headers);
        assert_eq!(asked, PriorityField { urgency: Some(1), incremental: Some(true) });
        let said = PriorityField { urgency: Some(6), incremental: None };
        assert_eq!(said.or(asked), PriorityField { urgency: Some(6), incremental: Some(true) });
        headers.append(PRIORITY, HeaderValue::from_static("(("));
        assert_eq!(PriorityField::of(&headers), PriorityField::default(), "it is no dictionary as a whole");
    }
}

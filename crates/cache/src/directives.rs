//! `Cache-Control` (RFC 9111, section 5.2) and `CDN-Cache-Control` (RFC 9213), as a shared cache reads them.

use http::{HeaderMap, HeaderName, header};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Seconds that stand for "for ever": RFC 9111, section 1.2.2.
const MOST_SECONDS: u64 = 2_147_483_648;

/// The directives of a message. A directive that is given twice has its stricter value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub(crate) no_store: bool,
    /// Also with names of fields: all of the response is validated then, which is stricter.
    pub(crate) no_cache: bool,
    /// Also with names of fields: nothing is stored then, which is stricter.
    pub(crate) private: bool,
    pub(crate) public: bool,
    /// `must-revalidate` or `proxy-revalidate`.
    pub(crate) must_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) max_age_s: Option<u64>,
    pub(crate) s_maxage_s: Option<u64>,
    pub(crate) stale_while_revalidate_s: Option<u64>,
    pub(crate) stale_if_error_s: Option<u64>,
}

impl Directives {
    /// Those of a request, or of a response without `CDN-Cache-Control`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        for value in headers.get_all(header::CACHE_CONTROL) {
            for (name, value) in Members(value.as_bytes()) {
                directives.add(&name, value.as_deref());
            }
        }
        directives
    }

    /// Those that a response has for shared caches. True: they are of `CDN-Cache-Control`, and `Expires` does not count. A
    /// field that is no dictionary, or an empty one, is ignored.
    pub(crate) fn targeted(headers: &HeaderMap) -> (Self, bool) {
        let lines: Vec<_> = headers.get_all(CDN_CACHE_CONTROL).iter().map(|line| line.as_bytes()).collect();
        if lines.is_empty() {
            return (Self::of(headers), false);
        }
        match Parser::new(&lines.join(&b", "[..])).parse::<Dictionary>() {
            Ok(dictionary) if !dictionary.is_empty() => {
                let mut directives = Self::default();
                for (name, entry) in &dictionary {
                    let ListEntry::Item(item) = entry else { continue };
                    match &item.bare_item {
                        BareItem::Boolean(true) => directives.add(name.as_str(), None),
                        BareItem::Integer(number) => {
                            directives.add(name.as_str(), Some(&i64::from(*number).to_string()));
                        }
                        _ => {}
                    }
                }
                (directives, true)
            }
            _ => (Self::of(headers), false),
        }
    }

    fn add(&mut self, name: &str, value: Option<&str>) {
        let seconds = || value.map(seconds);
        let stricter = |before: &mut Option<u64>, after: Option<u64>| {
            if let Some(after) = after {
                *before = Some(before.map_or(after, |before| before.min(after)));
            }
        };
        match name {
            "no-store" => self.no_store = true,
            "no-cache" => self.no_cache = true,
            "private" => self.private = true,
            "public" => self.public = true,
            "must-revalidate" | "proxy-revalidate" => self.must_revalidate = true,
            "must-understand" => self.must_understand = true,
            "max-age" => stricter(&mut self.max_age_s, seconds()),
            "s-maxage" => stricter(&mut self.s_maxage_s, seconds()),
            "stale-while-revalidate" => stricter(&mut self.stale_while_revalidate_s, seconds()),
            "stale-if-error" => stricter(&mut self.stale_if_error_s, seconds()),
            _ => {}
        }
    }
}

/// A number of seconds. One that cannot be read is 0, so the response is stale (RFC 9111, section 4.2.1).
fn seconds(text: &str) -> u64 {
    match text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => 0,
        false => text.parse().unwrap_or(MOST_SECONDS).min(MOST_SECONDS),
    }
}

/// The members of a list of `name`, `name=token` and `name="text"`. Names are in lower case. A space on either side of the
/// `=` belongs to the name or the value, which is then an unknown name or no number.
struct Members<'a>(&'a [u8]);

impl Iterator for Members<'_> {
    type Item = (String, Option<String>);

    fn next(&mut self) -> Option<Self::Item> {
        while let [b',' | b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().position(|byte| matches!(byte, b'=' | b',')).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        let has_value = rest.first() == Some(&b'=');
        let name = if has_value { name } else { name.trim_ascii_end() };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if !has_value {
            self.0 = rest;
            return Some((name, None));
        }
        let rest = &rest[1..];
        let (value, rest) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let mut value = Vec::new();
                let mut at = 0;
                while let Some(&byte) = quoted.get(at) {
                    match byte {
                        b'"' => break,
                        b'\\' if at + 1 < quoted.len() => {
                            value.push(quoted[at + 1]);
                            at += 2;
                        }
                        _ => {
                            value.push(byte);
                            at += 1;
                        }
                    }
                }
                let rest = quoted.get(at + 1..).unwrap_or_default();
                // Text between the quote and the comma belongs to no member.
                let comma = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
                (value, &rest[comma..])
            }
            None => {
                let comma = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
                (rest[..comma].trim_ascii_end().to_vec(), &rest[comma..])
            }
        };
        self.0 = rest;
        Some((name, Some(String::from_utf8_lossy(&value).into_owned())))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn of(lines: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::CACHE_CONTROL, HeaderValue::from_str(line).unwrap());
        }
        Directives::of(&headers)
    }

    #[test]
    fn quotes_hide_what_looks_like_a_directive_and_names_have_no_case() {
        let max_age = |seconds| Directives { max_age_s: Some(seconds), ..Directives::default() };
        for (lines, expected) in [
            (&["max-age=60"][..], max_age(60)),
            (&["MaX-aGe=60, , foobar"], max_age(60)),
            (&["max-age=\"60\""], max_age(60)),
            (&["extension=\"max-age=3600\", max-age=1"], max_age(1)),
            (&["max-age=1, extension=\"a, max-age=3600, \\\" no-store\""], max_age(1)),
            (&["max-age=60", "max-age=5"], max_age(5)),
            (&["max-age=-1"], max_age(0)),
            (&["max-age='60'"], max_age(0)),
            (&["max-age=60.5"], max_age(0)),
            (&["max-age= 60"], max_age(0)),
            (&["max-age =60"], Directives::default()),
            (&["max-age=99999999999999999999999"], max_age(MOST_SECONDS)),
            (&["no-cache=\"set-cookie, x\""], Directives { no_cache: true, ..Directives::default() }),
            (&["No-Store, private"], Directives { no_store: true, private: true, ..Directives::default() }),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn what_is_for_gateways_replaces_what_is_for_all_unless_it_is_malformed() {
        let said = |cdn: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.insert(CDN_CACHE_CONTROL, HeaderValue::from_str(cdn).unwrap());
            let (directives, targeted) = Directives::targeted(&headers);
            (directives.no_store, directives.max_age_s, targeted)
        };
        assert_eq!(said("max-age=60"), (false, Some(60), true));
        assert_eq!(said("max-age=\"60\", no-cache"), (false, None, true), "of the wrong type");
        assert_eq!(said("max-age=60, &&&"), (true, None, false), "no dictionary");
        assert_eq!(said(""), (true, None, false));
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "[ -~]{0,64}") {
            prop_assert!(Members(text.as_bytes()).count() <= text.len());
        }
    }
}

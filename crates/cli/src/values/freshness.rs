//! How long a response may be kept, as an operator writes it.

use std::time::Duration;

use http::HeaderValue;
use server::config::Freshness;

use super::numbers::duration_or_zero;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Directives of `Cache-Control` that stand alone (RFC 9111, section 5.2.2; RFC 8246).
const WORDS: &[&str] = &[
    "public",
    "private",
    "no-cache",
    "no-store",
    "no-transform",
    "must-revalidate",
    "must-understand",
    "proxy-revalidate",
    "immutable",
];
/// Directives with a time (RFC 9111, section 5.2.2.10; RFC 5861).
const TIMES: &[&str] = &["s-maxage", "stale-while-revalidate", "stale-if-error"];

/// Reads how long a response may be kept: a time, or directives of `Cache-Control`, or both: `30d`, `1y, immutable`,
/// `no-cache`, `1h, stale-while-revalidate=1d`. `max` is ten years. `off`: nothing is said.
pub fn freshness(text: &str) -> Result<Option<Freshness>, String> {
    if text.trim() == "off" {
        return Ok(None);
    }
    let mut lifetime = None;
    let mut directives: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let directive = match part.split_once('=') {
            Some((name, value)) if TIMES.contains(&name) => format!("{name}={}", time(text, value)?.as_secs()),
            _ if WORDS.contains(&part) => part.to_owned(),
            _ => {
                let time = time(text, part)?;
                if lifetime.replace(time).is_some() {
                    return Err(format!("`{text}` has two times"));
                }
                format!("max-age={}", time.as_secs())
            }
        };
        if directives.contains(&directive) {
            return Err(format!("`{text}` says `{part}` twice"));
        }
        directives.push(directive);
    }
    let has = |name: &str| directives.iter().any(|it| it == name);
    let contradiction = match () {
        () if has("public") && has("private") => Some("`public` and `private`"),
        () if has("no-store") && lifetime.is_some() => Some("`no-store` and a time"),
        () if has("immutable") && lifetime.is_none() => Some("`immutable` without a time"),
        () => None,
    };
    if let Some(what) = contradiction {
        return Err(format!("`{text}` has {what}"));
    }
    let is_stale = has("no-cache") || has("no-store");
    let cache_control = HeaderValue::try_from(directives.join(", ")).map_err(|_| format!("`{text}` is too long"))?;
    Ok(Some(Freshness { cache_control, lifetime: lifetime.or(is_stale.then_some(Duration::ZERO)) }))
}

/// A time; a year has 365 days here, as in other servers.
fn time(all: &str, text: &str) -> Result<Duration, String> {
    let years = || {
        let number = text.strip_suffix("years").or(text.strip_suffix("year")).or(text.strip_suffix('y'))?;
        YEAR.checked_mul(number.trim_end().parse().ok().filter(|years| *years <= 100)?)
    };
    match text {
        "max" => Ok(YEAR * 10),
        _ => years().map_or_else(|| duration_or_zero(text), Ok).map_err(|_| {
            format!(
                "`{all}` does not say how long a response may be kept: give a time as in `30d`, words of \
                 Cache-Control as in `1y, immutable` or `no-cache`, or `off`"
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_directives_become_a_field() {
        for (text, value, lifetime_s) in [
            ("30d", "max-age=2592000", Some(2_592_000)),
            ("1 year, immutable", "max-age=31536000, immutable", Some(31_536_000)),
            ("public, 1y", "public, max-age=31536000", Some(31_536_000)),
            ("max", "max-age=315360000", Some(315_360_000)),
            ("0s", "max-age=0", Some(0)),
            ("no-cache", "no-cache", Some(0)),
            ("private, no-store", "private, no-store", Some(0)),
            ("no-transform", "no-transform", None),
            (
                "1h, s-maxage=1d, stale-while-revalidate=1m 30s",
                "max-age=3600, s-maxage=86400, stale-while-revalidate=90",
                Some(3600),
            ),
        ] {
            let read = freshness(text).unwrap_or_else(|error| panic!("{error}")).unwrap();
            assert_eq!(read.cache_control, value);
            assert_eq!(read.lifetime, lifetime_s.map(Duration::from_secs), "{text}");
        }
        assert_eq!(freshness("off"), Ok(None));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, part) in [
            ("", "does not say"),
            ("soon", "does not say"),
            ("-1", "does not say"),
            ("30", "does not say"),
            ("1h, 2h", "two times"),
            ("public, private, 1h", "`public` and `private`"),
            ("no-store, 1h", "`no-store` and a time"),
            ("immutable", "without a time"),
            ("1h, public, public", "twice"),
            ("1h, s-maxage=x", "does not say"),
            ("1h, max-age=5", "does not say"),
            ("1h\r\nset-cookie: a", "does not say"),
            ("101y", "does not say"),
        ] {
            let error = freshness(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

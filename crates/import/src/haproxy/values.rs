//! Values: times, addresses, texts with parts of a request, and files of values.

use crate::syntax::Files;

/// The facilities of syslog.
pub(super) const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "local0",
    "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// A time as `500ms`, `30s`; HAProxy means milliseconds where no unit is given. `None`: it is zero, or no time.
pub(super) fn time(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    match &text[digits.len()..] {
        "" => Some(if number.is_multiple_of(1000) { format!("{}s", number / 1000) } else { format!("{number}ms") }),
        unit @ ("ms" | "s" | "m" | "h" | "d") => Some(format!("{number}{unit}")),
        _ => None,
    }
}

/// The milliseconds of a time. `None`: it is zero, or no time.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    let time = time(text)?;
    let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let (_, ms) = units.into_iter().find(|(unit, _)| *unit == &time[digits.len()..])?;
    digits.parse::<i64>().ok()?.checked_mul(ms)
}

/// An address of `bind` or of a server, as host (empty for all) and port. `None`: it is none.
pub(super) fn address(text: &str) -> Option<(String, u16)> {
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let host = if matches!(host, "*" | "0.0.0.0" | "[::]" | "::") { "" } else { host };
    (!host.contains(['@', '$', '/'])).then_some(())?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// A text with HAProxy's `%[...]` as one with placeholders. An error is the reason why there is none.
pub(super) fn template(text: &str) -> Result<String, String> {
    if text.contains(['{', '}']) {
        return Err("braces have a meaning of their own here".to_owned());
    }
    let known = [
        ("%[path]", "{path}"),
        ("%[capture.req.uri]", "{uri}"),
        ("%[url]", "{uri}"),
        ("%[pathq]", "{uri}"),
        ("%[hdr(host)]", "{host}"),
        ("%[req.hdr(host)]", "{host}"),
        ("%[req.hdr(Host)]", "{host}"),
        ("%[hdr(Host)]", "{host}"),
        ("%%", "\0"),
    ];
    let out = known.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    match out.contains('%') {
        true => Err(format!("`{text}` has a variable without a counterpart")),
        false => Ok(out.replace('\0', "%")),
    }
}

/// The most values of a file.
const MOST_VALUES: usize = 1000;

/// The lines of a file of values, as `-f` and maps have them: without comments and empty ones.
pub(super) fn list_of(file: &str, files: &dyn Files) -> Result<Vec<String>, String> {
    let texts = files.read(file)?;
    let lines = texts.iter().flat_map(|(_, text)| text.lines()).map(str::trim);
    let values: Vec<String> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect();
    match values.len() {
        0 => Err(format!("{file} has no values")),
        1..=MOST_VALUES => Ok(values),
        more => Err(format!("{file} has {more} values, and at most {MOST_VALUES} are translated")),
    }
}

/// Whether a text has a variable.
pub(super) fn has_variable(text: &str) -> bool {
    text.contains("%[") || text.contains("${")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_addresses_and_texts_are_those_of_haproxy() {
        for (text, here) in
            [("5s", Some("5s")), ("5000", Some("5s")), ("1500", Some("1500ms")), ("0", None), ("2w", None)]
        {
            assert_eq!(time(text).as_deref(), here, "{text}");
        }
        assert_eq!((milliseconds("10s"), milliseconds("250"), milliseconds("0")), (Some(10_000), Some(250), None));
        assert_eq!(address("*:80"), Some((String::new(), 80)));
        assert_eq!(address(":::443"), Some((String::new(), 443)));
        assert_eq!(address("10.0.0.1:8080"), Some(("10.0.0.1".to_owned(), 8080)));
        assert_eq!(address("unix@/run/a.sock"), None);
        assert_eq!(template("https://%[hdr(host)]%[capture.req.uri]").as_deref(), Ok("https://{host}{uri}"));
        assert_eq!(template("100%%").as_deref(), Ok("100%"));
        assert!(template("%[src]").is_err());
    }
}

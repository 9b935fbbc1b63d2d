//! Values: times, sizes, variables.

/// A time as `500ms`, `30s`, `1h 30m`; nginx means seconds where no unit is given. `None`: it is zero, or no time.
pub fn time(text: &str) -> Option<String> {
    let text = text.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.trim_end_matches(|c: char| c.is_alphabetic()) == "0" {
        return None;
    }
    Some(if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text}s") } else { text.to_owned() })
}

/// Seconds of a time such as `30d` or `1h30m`.
pub fn seconds(text: &str) -> Option<u64> {
    let mut sum = 0u64;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            'M' => 30 * 86_400,
            'y' => 365 * 86_400,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    if number.is_empty() { Some(sum) } else { sum.checked_add(number.parse().ok()?) }
}

/// A size such as `10MiB`; nginx's `k`, `m` and `g` are binary.
pub fn size(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => "",
        "k" => "KiB",
        "m" => "MiB",
        "g" => "GiB",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// As [`template`], for a text whose `{query}` is a placeholder already.
pub fn target(text: &str) -> Result<String, String> {
    match text.strip_suffix("{query}") {
        Some(text) => template(text).map(|text| format!("{text}{{query}}")),
        None => template(text),
    }
}

/// A text with nginx's variables as one with placeholders. An error is the reason why there is none.
pub fn template(text: &str) -> Result<String, String> {
    if text.contains(['{', '}']) && !text.contains("${") {
        return Err("braces in an address have a meaning of their own here".to_owned());
    }
    let text = ["?$args", "?$query_string", "$is_args$args", "$is_args$query_string"]
        .iter()
        .fold(text.to_owned(), |text, query| text.replace(query, "{query}"));
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        let (name, after) = match behind.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
            Some(split) => split,
            None => {
                let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                // `$1` ends behind its digit.
                let end = if behind.starts_with(|c: char| c.is_ascii_digit()) { 1 } else { end };
                behind.split_at(end)
            }
        };
        let known = match name {
            "request_uri" => "{uri}",
            "uri" | "document_uri" => "{path}",
            "host" | "http_host" => "{host}",
            "scheme" => "{scheme}",
            digit if digit.len() == 1 && digit.chars().all(|c| ('1'..='9').contains(&c)) => {
                out.push_str(&format!("{{{digit}}}"));
                rest = after;
                continue;
            }
            _ => return Err(format!("`${name}` has no counterpart")),
        };
        out.push_str(known);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether a text has a variable.
pub fn has_variable(text: &str) -> bool {
    text.contains('$')
}

/// The regular expression of a location or a rewrite, if it means the same here. An error is the reason.
pub fn regex(text: &str, ignore_case: bool) -> Result<String, String> {
    let text = if ignore_case { format!("(?i){text}") } else { text.to_owned() };
    match regex::Regex::new(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err("this regular expression needs what regular expressions here do not have (looking around, \
                       references to groups)"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_those_of_nginx() {
        assert_eq!(time("60").as_deref(), Some("60s"));
        assert_eq!(time("1h30m").as_deref(), Some("1h30m"));
        assert_eq!(time("0"), None);
        assert_eq!(time("0s"), None);
        assert_eq!(time("none"), None);
        assert_eq!(seconds("1h30m"), Some(5400));
        assert_eq!(seconds("30d"), Some(2_592_000));
        assert_eq!(seconds("off"), None);
        assert_eq!(size("10m").as_deref(), Some("10MiB"));
        assert_eq!(size("4096").as_deref(), Some("4096"));
        assert_eq!(size("10q"), None);
    }

    #[test]
    fn variables_become_placeholders_or_a_reason() {
        for (nginx, here) in [
            ("https://$host$request_uri", "https://{host}{uri}"),
            ("/new/$1/${2}x?$args", "/new/{1}/{2}x{query}"),
            ("/x$is_args$args", "/x{query}"),
            ("/$12", "/{1}2"),
        ] {
            assert_eq!(template(nginx).as_deref(), Ok(here), "{nginx}");
        }
        assert!(template("https://$server_name/").unwrap_err().contains("$server_name"));
        assert!(template("/a{b}").is_err());
        assert!(regex("^/a(?!b)", false).is_err());
        assert_eq!(regex(r"\.php$", true).unwrap(), r"(?i)\.php$");
    }
}

//! Values: times, sizes, variables.

/// A time as `500ms`, `30s`, `1h 30m`; nginx means seconds where no unit is given. `None`: it is zero, or no time.
pub fn time(text: &str) -> Option<String> {
    let text = text.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.trim_end_matches(|c: char| c.is_alphabetic()) == "0" {
        return None;
    }
    // Serpent has no weeks, months and years.
    if text.contains(['w', 'M', 'y']) {
        return seconds(text).map(|seconds| format!("{seconds}s"));
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

/// The bytes of a size.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
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
    let flags = if ignore_case { "(?i)" } else { "" };
    let written = format!("{flags}{text}");
    let made = match regex::Regex::new(&written) {
        Ok(_) => return Ok(written),
        Err(_) => without_end_ahead(text).map(|text| format!("{flags}{text}")),
    };
    match made.filter(|text| regex::Regex::new(text).is_ok()) {
        Some(text) => Ok(text),
        None => Err("this regular expression needs what regular expressions here do not have (looking around, \
                       references to groups)"
            .to_owned()),
    }
}

/// An expression that ends with texts that must not follow, as in `/\.(?!well-known)`: the same without looking ahead,
/// found in the same paths.
fn without_end_ahead(text: &str) -> Option<String> {
    let (before, behind) = text.split_once("(?!")?;
    let (texts, end) = behind.split_once(')')?;
    if !matches!(end, "" | ".*" | ".*$") || before.ends_with('\\') || before.contains(['[', '|']) {
        return None;
    }
    let texts: Option<Vec<String>> = texts.split('|').map(plain_text).collect();
    Some(format!("{before}{}", follows_none(&texts?)))
}

/// The text that an expression without operators stands for.
fn plain_text(expression: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => chars.next().filter(|c| !c.is_ascii_alphanumeric())?,
            c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | ' ') => c,
            _ => return None,
        });
    }
    (!text.is_empty()).then_some(text)
}

/// An expression for what does not begin with one of these texts: the end, another first letter, or this letter and
/// then no rest.
fn follows_none(texts: &[String]) -> String {
    let mut firsts: Vec<char> = texts.iter().filter_map(|text| text.chars().next()).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let escaped = |c: char| regex::escape(&c.to_string());
    let mut choices = vec!["$".to_owned(), format!("[^{}]", firsts.iter().map(|c| escaped(*c)).collect::<String>())];
    for first in firsts {
        let rests: Vec<String> = texts.iter().filter_map(|text| text.strip_prefix(first)).map(str::to_owned).collect();
        if !rests.iter().any(String::is_empty) {
            choices.push(format!("{}{}", escaped(first), follows_none(&rests)));
        }
    }
    format!("(?:{})", choices.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_those_of_nginx() {
        assert_eq!(time("60").as_deref(), Some("60s"));
        assert_eq!(time("1h30m").as_deref(), Some("1h30m"));
        assert_eq!(time("1y").as_deref(), Some("31536000s"));
        assert_eq!(time("1M").as_deref(), Some("2592000s"));
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
    fn what_must_not_follow_at_the_end_is_written_without_looking_ahead() {
        for (written, found, not_found) in [
            (
                r"/\.(?!well-known\/).*",
                &["/.git", "/.", "/.well", "/.well-knownx", "/.well-known/.env", "/a/.w"][..],
                &["/.well-known/x", "/a", "/.Well-Known/"][..],
            ),
            ("^/(?!api|static)", &["/", "/ap", "/stat", "/x"], &["/api", "/apis", "/static/x"]),
        ] {
            let made = regex::Regex::new(&regex(written, true).unwrap()).unwrap();
            found.iter().for_each(|path| assert!(made.is_match(path), "{written} in {path}"));
            not_found.iter().for_each(|path| assert!(!made.is_match(path), "{written} in {path}"));
        }
        for other in ["a(?!b+)", "a(?!b)c", "(a|b(?!c))", "[(?!a)"] {
            assert_eq!(without_end_ahead(other), None, "{other}");
        }
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
        assert!(regex("^/a(?!b)c", false).is_err());
        assert_eq!(regex(r"\.php$", true).unwrap(), r"(?i)\.php$");
    }
}

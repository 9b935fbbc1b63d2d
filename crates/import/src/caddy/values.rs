//! Values: times, sizes, placeholders.

/// The networks of `private_ranges`.
pub const PRIVATE: [&str; 6] = ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

/// A time as Go writes it: `500ms`, `1m30s`, `2d`. `None`: it is zero, or no time.
pub fn time(text: &str) -> Option<String> {
    let units = ["ns", "us", "µs", "ms", "s", "m", "h", "d"];
    let mut rest = text;
    let mut is_zero = true;
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at(end);
        let unit_end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, after) = behind.split_at(unit_end);
        if number.is_empty() || !units.contains(&unit) {
            return None;
        }
        is_zero &= number.chars().all(|c| c == '0');
        parts += 1;
        rest = after;
    }
    (parts > 0 && !is_zero).then(|| text.to_owned())
}

/// A size such as `10MB` or `512KiB`.
pub fn size(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.trim().parse().ok()?;
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => "",
        "k" | "kb" => "kB",
        "m" | "mb" => "MB",
        "g" | "gb" => "GB",
        "ki" | "kib" => "KiB",
        "mi" | "mib" => "MiB",
        "gi" | "gib" => "GiB",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// A text with the placeholders of Caddy as one with ours. An error is the reason why there is none.
pub fn template(text: &str) -> Result<String, String> {
    let text = text.replace("?{query}", "{query}").replace("?{http.request.uri.query}", "{query}");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        let (name, after) = behind.split_once('}').ok_or("this brace has no end")?;
        let name = name.strip_prefix("http.request.").unwrap_or(name);
        out.push_str(&match name {
            "uri" => "{uri}".to_owned(),
            "path" | "uri.path" => "{path}".to_owned(),
            "query" | "uri.query" => "{query}".to_owned(),
            "host" | "hostport" => "{host}".to_owned(),
            "scheme" => "{scheme}".to_owned(),
            name => match name.strip_prefix("re.").or(name.strip_prefix("regexp.")) {
                // `re.NAME.1` or `re.1`
                Some(group) if group.rsplit('.').next().is_some_and(|group| !group.is_empty()) => {
                    format!("{{{}}}", group.rsplit('.').next().unwrap_or_default())
                }
                _ => return Err(format!("`{{{name}}}` has no counterpart")),
            },
        });
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether a text has a placeholder.
pub fn has_placeholder(text: &str) -> bool {
    text.contains('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_caddy_writes_them() {
        assert_eq!(time("1m30s").as_deref(), Some("1m30s"));
        assert_eq!(time("0"), None);
        assert_eq!(time("0s"), None);
        assert_eq!(time("soon"), None);
        assert_eq!(size("10MB").as_deref(), Some("10MB"));
        assert_eq!(size("512KiB").as_deref(), Some("512KiB"));
        assert_eq!(size("lots"), None);
        assert_eq!(template("https://www.{host}{uri}").as_deref(), Ok("https://www.{host}{uri}"));
        assert_eq!(template("/x?{query}").as_deref(), Ok("/x{query}"));
        assert_eq!(template("/u/{re.user.1}").as_deref(), Ok("/u/{1}"));
        assert!(template("{labels.1}").unwrap_err().contains("{labels.1}"));
        assert!(template("{host").is_err());
    }
}

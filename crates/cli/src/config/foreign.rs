//! Recognises files of other kinds that are given as a configuration.

use super::problems::Problem;

/// The one problem of a file that is no configuration of Serpent, if it looks like another kind.
pub fn foreign(text: &str) -> Option<Problem> {
    let lines = || {
        let lines = text.split_inclusive('\n').scan(0, |start, line| {
            let at = *start;
            *start += line.len();
            Some((at, line.trim()))
        });
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    };
    let find = |is: fn(&str) -> bool| lines().find(|(_, line)| is(line));
    let (first, start) = lines().next()?;
    let found = |what: &str, (at, line): (usize, &str), help: &str| {
        let message = format!("this looks like {what}; a configuration of Serpent is written in TOML");
        let line = text[at..].find(line).map_or(at, |indent| at + indent)..;
        let end = line.start + text[line.start..].lines().next().unwrap_or_default().trim_end().len();
        Some(Problem::new(message, Some(line.start..end)).help(help))
    };
    let at_first = (first, start);
    let by_hand = "begin with `[[site]]`, and write `root = \"DIRECTORY\"` below it; `serpent import` translates nginx.conf, \
                   Caddyfiles and haproxy.cfg";
    if start.starts_with("-----BEGIN ") {
        let help = "give the configuration; `tls-cert` and `tls-key` of a `[[site]]` name such files in it";
        return found("a PEM file, as of a certificate or a key", at_first, help);
    }
    if start.starts_with('{') && start != "{" || start == "{" && text.contains("\":") {
        return found("JSON", at_first, by_hand);
    }
    if start.starts_with('<') {
        return found("a configuration of Apache httpd, or a page", at_first, by_hand);
    }
    if lines().any(|(_, line)| is_toml(line)) {
        return None;
    }
    if let Some(line) = find(|line| line.ends_with(';') || line.ends_with('}') && line.contains("; ")) {
        return found("a configuration of nginx", line, "translate it: `serpent import FILE > serpent.toml`");
    }
    if lines().any(|(_, line)| line.ends_with('{')) || start.starts_with(':') {
        let help = "translate it: `serpent import --from caddy FILE > serpent.toml`";
        return found("a Caddyfile", at_first, help);
    }
    if ["global", "defaults", "frontend", "backend"].iter().any(|word| start.split(' ').next() == Some(word)) {
        let help = "translate it: `serpent import --from haproxy FILE > serpent.toml`";
        return found("a configuration of HAProxy", at_first, help);
    }
    if let Some(line) = find(|line| {
        let (key, value) = line.split_once(':').unwrap_or_default();
        let key = key.trim_start_matches("- ");
        let is_key = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        !key.is_empty() && key.bytes().all(is_key) && (value.is_empty() || value.starts_with(' '))
    }) {
        return found("YAML", line, by_hand);
    }
    None
}

/// Whether the line is a header or a setting of TOML.
fn is_toml(line: &str) -> bool {
    let is_key = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    let name = line.split_once('=').map_or("", |(name, _)| name.trim_end());
    line.starts_with('[') || !name.is_empty() && name.bytes().all(is_key)
}

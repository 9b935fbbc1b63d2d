//! `expires`: how long caches may keep responses.

use toml_edit::Value;

use super::{
    state::{Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Settings, table},
    syntax::Directive,
};

/// Words of `Cache-Control` that go along with a time.
const WORDS: &[&str] =
    &["public", "private", "immutable", "no-transform", "must-revalidate", "proxy-revalidate", "must-understand"];

impl<'a> Translation<'a> {
    /// `expires` of a site (`own` has `http` and `server`) or of a route (`own` has its locations). `levels` are all.
    /// Returns whether `Cache-Control` of `add_header` is part of it.
    pub(super) fn expires(
        &mut self,
        own: &[&'a [Directive]],
        levels: &[&'a [Directive]],
        is_proxied: bool,
        settings: &mut Settings,
    ) -> bool {
        let Some(expires) = one_in_force(levels, "expires") else { return false };
        let is_own = one_in_force(own, "expires").is_some();
        let added = in_force(levels, "add_header");
        let added = added.into_iter().find(|header| header.arg(0).eq_ignore_ascii_case("Cache-Control"));
        let words = match added.map(|header| header.arg(1)) {
            None => Vec::new(),
            Some(value) => value.split(',').map(|word| word.trim().to_ascii_lowercase()).collect(),
        };
        if added.is_some() && !words.iter().all(|word| WORDS.contains(&word.as_str())) {
            // A whole value of the operator's.
            self.leave(expires, "`add_header Cache-Control` says how long, and there is one such field");
            return false;
        }
        let with_words = |time: String| match time.as_str() {
            "no-cache" | "off" => time,
            _ => [vec![time], words.clone()].concat().join(", "),
        };
        let value: Option<Value> = match expires.arg(0).strip_prefix('$') {
            Some(name) => self.by_type(name, with_words),
            None => freshness(expires.args.last().map_or("", String::as_str)).map(|time| with_words(time).into()),
        };
        let Some(value) = value else {
            self.leave(expires, "a time, `max`, `epoch`, `off`, or a map of `$sent_http_content_type` is understood");
            return false;
        };
        if expires.arg(0) == "modified" {
            self.leave(expires, "the time is counted from the response, not from the change of the file");
        }
        let is_off = value.as_str() == Some("off");
        if is_proxied && !is_off {
            // nginx replaces what an upstream says.
            settings.set("expires-override", true);
        }
        if !is_own && words.is_empty() {
            return false;
        }
        // `off` is needed only where a block around this one sets `expires`.
        if !(is_off && one_in_force(&levels[..levels.len() - own.len()], "expires").is_none()) {
            settings.set("expires", value);
        }
        !words.is_empty() && !is_off
    }

    /// A map from media types.
    fn by_type(&mut self, variable: &str, with_words: impl Fn(String) -> String) -> Option<Value> {
        let map =
            self.maps.iter().copied().find(|map| is_by_type(map) && map.arg(1).strip_prefix('$') == Some(variable))?;
        let mut types = Vec::new();
        for entry in map.inner() {
            let Some(time) = freshness(entry.arg(0)) else {
                self.leave(entry, "a time, `max`, `epoch` or `off` is understood");
                continue;
            };
            let kind = match entry.name.strip_prefix('~') {
                // A response without a type.
                None if entry.name.is_empty() => continue,
                None => Some(entry.name.clone()),
                Some(expression) => media_type(expression.trim_start_matches(['*', '^'])),
            };
            let Some(kind) = kind else {
                self.leave(entry, "media types are whole, or begin as `image/*`");
                continue;
            };
            types.push((kind, with_words(time).into()));
        }
        Some(table(types))
    }
}

/// The media types that an expression without operators finds: `image/` or `image/svg\+xml`.
fn media_type(expression: &str) -> Option<String> {
    let (kind, rest) = expression.split_once('/')?;
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '+'));
    let rest = rest.replace("\\+", "+").replace("\\.", ".").replace("\\-", "-");
    match (plain(kind) && plain(&rest) && !kind.is_empty(), rest.as_str()) {
        (true, "") => Some(format!("{kind}/*")),
        (true, rest) => Some(format!("{kind}/{rest}")),
        (false, _) => None,
    }
}

/// Whether a `map` chooses by the type of the response.
pub fn is_by_type(map: &Directive) -> bool {
    map.arg(0) == "$sent_http_content_type"
}

/// A value of `Cache-Control` as `expires` has it; `None`: it has a part that `expires` does not know.
pub(super) fn kept_for(value: &str) -> Option<String> {
    let mut time = None;
    let mut words = Vec::new();
    for word in value.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        match word.strip_prefix("max-age=") {
            Some(seconds) if time.is_none() && seconds.bytes().all(|b| b.is_ascii_digit()) => time = freshness(seconds),
            _ if WORDS.contains(&word.as_str()) || matches!(word.as_str(), "no-cache" | "no-store") => words.push(word),
            _ => return None,
        }
    }
    let all: Vec<String> = time.into_iter().chain(words).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn freshness(text: &str) -> Option<String> {
    Some(match text {
        "off" | "max" => text.to_owned(),
        "epoch" => "no-cache".to_owned(),
        text if text.starts_with('-') => "no-cache".to_owned(),
        text => {
            let seconds = values::seconds(text.strip_prefix('+').unwrap_or(text))?;
            let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
            let (unit, name) =
                units.into_iter().find(|(unit, _)| seconds > 0 && seconds % unit == 0).unwrap_or((1, 's'));
            format!("{}{name}", seconds / unit)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_cache_control_that_have_a_counterpart() {
        for (value, here) in [
            ("public, max-age=31536000, immutable", Some("365d, public, immutable")),
            ("no-store, no-cache, must-revalidate", Some("no-store, no-cache, must-revalidate")),
            ("max-age=0", Some("0s")),
            ("max-age=a", None),
            ("max-age=1, s-maxage=2", None),
            ("", None),
        ] {
            assert_eq!(kept_for(value).as_deref(), here, "{value}");
        }
    }

    #[test]
    fn times_of_nginx_become_times_of_whole_units() {
        for (text, here) in [
            ("30d", Some("30d")),
            ("1M", Some("30d")),
            ("1y", Some("365d")),
            ("1h30m", Some("90m")),
            ("90", Some("90s")),
            ("0", Some("0s")),
            ("max", Some("max")),
            ("-1", Some("no-cache")),
            ("epoch", Some("no-cache")),
            ("off", Some("off")),
            ("@15h", None),
            ("soon", None),
        ] {
            assert_eq!(freshness(text).as_deref(), here, "{text}");
        }
    }
}

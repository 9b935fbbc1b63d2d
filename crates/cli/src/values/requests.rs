//! Parts of requests and responses: paths, methods, header fields, statuses.

use http::{HeaderName, HeaderValue, Method, StatusCode, uri::PathAndQuery};
use server::config::{LimitBy, PathPattern};

use super::numbers::duration_or_zero;
use crate::spelling::like;

/// Reads `hsts` of a site: `off`, a word, or the time for which browsers stay with TLS.
pub fn hsts(text: &str) -> Result<Option<HeaderValue>, String> {
    let value = match text {
        "off" | "false" => return Ok(None),
        "on" | "true" => "max-age=31536000".to_owned(),
        "subdomains" => "max-age=31536000; includeSubDomains".to_owned(),
        // The value that the browsers' preload list asks for (hstspreload.org).
        "preload" => "max-age=63072000; includeSubDomains; preload".to_owned(),
        // Zero has browsers forget it.
        time => match duration_or_zero(time) {
            Ok(time) => format!("max-age={}", time.as_secs()),
            Err(_) => {
                return Err(format!(
                    "`{text}` is not a value of `hsts`: give `on` (a year), `subdomains`, `preload`, `off`, or a time as in `30d`"
                ));
            }
        },
    };
    Ok(HeaderValue::try_from(value).ok())
}

/// Reads the path and query of an upstream's page.
pub fn page(text: &str) -> Result<PathAndQuery, String> {
    let page = text.parse().ok().filter(|_| text.starts_with('/') && !text.contains('#'));
    page.ok_or_else(|| format!("`{text}` is not a path: write it as in `/health` or `/health?deep=1`"))
}

/// Reads a prefix of paths.
pub fn path_prefix(text: &str) -> Result<PathPattern, String> {
    path(text).map(PathPattern::Prefix)
}

/// Reads a path: the part of a URL after the host, without the query.
pub fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        let expression = text.trim_start_matches(['~', '*', ' ']);
        return Err(match text.split_once("://") {
            Some((_, rest)) => {
                let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
                format!("`{text}` is not a path: write `{path}`; `names` of a `[[site]]` has the host")
            }
            None if text.starts_with(['~', '^']) => {
                format!(
                    "`{text}` is not a path: expressions stand in `path-regex`, as in `path-regex = '{expression}'`"
                )
            }
            None => format!("`{text}` is not a path: a path starts with `/`, as in `/{text}`"),
        });
    }
    if text.contains(['?', '#']) {
        return Err(format!("`{text}` has a query, and only paths are looked at: use a rule with `query` for that"));
    }
    if text.contains("//") || text.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(format!("`{text}` matches nothing: `.`, `..` and `//` are resolved before paths are looked at"));
    }
    let decoded = server::classify::decoded_path(text)
        .ok_or_else(|| format!("`{text}` is not a path: a `%` stands before two hexadecimal digits"))?;
    if decoded != text {
        return Err(format!(
            "`{text}` has escapes, and paths are decoded before they are looked at: write `{decoded}`"
        ));
    }
    Ok(text.to_owned())
}

/// Reads a glob over whole paths.
pub fn path_glob(text: &str) -> Result<PathPattern, String> {
    if !text.starts_with('/') && !text.starts_with("**") {
        return Err(format!(
            "`{text}` matches no path, because paths start with `/`: write `/{text}`, or `**/{text}` for any folder"
        ));
    }
    let glob = globset::GlobBuilder::new(text).literal_separator(true).build().map_err(|error| {
        format!(
            "the pattern cannot be read: {}; `*` stands for any part of a name, `**` for any folders, `{{js,css}}` for a \
             choice",
            error.kind()
        )
    })?;
    Ok(PathPattern::Glob(glob.compile_matcher()))
}

/// Reads a regular expression over paths.
pub fn path_regex(text: &str) -> Result<PathPattern, String> {
    regex(text).map(PathPattern::Regex)
}

/// Reads a regular expression.
pub fn regex(text: &str) -> Result<regex::Regex, String> {
    regex::Regex::new(text).map_err(|error| {
        let message = error.to_string();
        // The last line names the error; the lines before it draw its place.
        let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("the regular expression cannot be read: {last}")
    })
}

/// Reads the statuses of an error: one, as in `404`, or all of a kind: `4xx`, `5xx`.
pub fn error_statuses(text: &str) -> Result<(u16, u16), String> {
    match (text, text.parse()) {
        ("4xx", _) => Ok((400, 499)),
        ("5xx", _) => Ok((500, 599)),
        (_, Ok(status @ 400..=599)) => Ok((status, status)),
        _ => Err(format!("`{text}` is no status of an error: give 400 to 599, `4xx` or `5xx`")),
    }
}

/// Reads a file extension.
pub fn extension(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('.').unwrap_or(text).to_ascii_lowercase();
    if name.is_empty() || name.contains(['.', '/', '*']) {
        return Err(format!("`{text}` is not a file extension: write it as in `php`"));
    }
    Ok(name)
}

/// Reads a method.
pub fn method(text: &str) -> Result<Method, String> {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];
    let upper = text.to_ascii_uppercase();
    if upper != text && known.contains(&&*upper) {
        return Err(format!("`{text}` is not a method: methods are told apart by case, write `{upper}`"));
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a method: write it as in `GET`"))
}

/// Reads the name of a header field.
pub fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("`{text}` is not the name of a header field: write it as in `X-Api-Key`"))
}

/// Reads a thing by which a limit counts requests, as in `client` or `header X-Api-Key`.
pub fn limit_by(text: &str) -> Result<LimitBy, String> {
    match text {
        "client" => return Ok(LimitBy::Client),
        "key" => return Ok(LimitBy::Key),
        "class" => return Ok(LimitBy::Class),
        "path" => return Ok(LimitBy::Path),
        "all" => return Err("`all` stands alone: leave out the others, or this".to_owned()),
        _ => {}
    }
    if let Some(name) = text.strip_prefix("header ") {
        return header_name(name.trim()).map(|name| LimitBy::Header(name.as_str().into()));
    }
    let like = match text {
        "ip" | "address" | "remote-addr" | "src" => Some("client"),
        _ => like(text, ["client", "key", "class", "path", "all"]),
    };
    let meant = like.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    Err(format!("`{text}` is not one of `client`, `key`, `class`, `path`, `all` and `header NAME`{meant}"))
}

/// How [`limit_by`] reads it.
pub fn show_limit_by(by: &LimitBy) -> String {
    match by {
        LimitBy::Client => "client".to_owned(),
        LimitBy::Key => "key".to_owned(),
        LimitBy::Class => "class".to_owned(),
        LimitBy::Path => "path".to_owned(),
        LimitBy::Header(name) => format!("header {name}"),
    }
}

/// Reads the value of a header field.
pub fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("a header cannot hold `{text}`: write printable ASCII"))
}

/// Reads a header field, as in `X-Tier: gold`.
pub fn header_field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Some((name, value)) = text.split_once(':') else {
        return Err(format!("`{text}` is not a header field: write it as in `X-Tier: gold`"));
    };
    Ok((header_name(name.trim())?, header_value(value.trim())?))
}

/// Reads the name of a cookie. It is a token, as a method is.
pub fn cookie_name(text: &str) -> Result<String, String> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("`{text}` is not the name of a cookie: use letters, digits, `-` and `_`")),
    }
}

/// Reads a range of statuses, as in `200-399`, or a single status.
pub fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse::<u16>(), to.trim().parse::<u16>()) {
        (Ok(from), Ok(to)) if (100..=599).contains(&from) && (from..=599).contains(&to) => Ok((from, to)),
        _ => Err(format!("`{text}` is not a range of statuses: write it as in `200-399` or `204`")),
    }
}

/// Reads the status of a refusal.
pub fn error_status(text: &str) -> Result<StatusCode, String> {
    match text.parse::<StatusCode>() {
        Ok(status) if status.is_client_error() || status.is_server_error() => Ok(status),
        _ => Err(format!("`{text}` is not a status for a refusal: give one from 400 to 599, as in `503` or `429`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        let matches = |pattern: Result<PathPattern, String>, path: &str| match pattern.unwrap() {
            PathPattern::Glob(glob) => glob.is_match(path),
            PathPattern::Regex(regex) => regex.is_match(path),
            PathPattern::Prefix(_) => unreachable!(),
        };
        assert!(matches(path_glob("/*.php"), "/a.php") && !matches(path_glob("/*.php"), "/b/a.php"));
        assert!(matches(path_glob("**/*.php"), "/a.php") && matches(path_glob("**/*.php"), "/b/a.php"));
        assert!(matches(path_glob("/shop/**"), "/shop/a/b") && !matches(path_glob("/shop/**"), "/shops"));
        assert!(matches(path_regex("^/x[0-9]+"), "/x12/y"));
        assert!(path_glob("*.php").unwrap_err().contains("`**/*.php`"));
        assert!(path_glob("/a{b").unwrap_err().contains("cannot be read"));
        assert!(path_regex("(").unwrap_err().contains("unclosed group"));
        assert!(path("api").is_err() && path("/a?b=c").is_err() && path("/a/../b").is_err() && path("/a//b").is_err());
    }

    #[test]
    fn parts_of_requests_and_statuses() {
        assert_eq!((statuses("200-399"), statuses("204")), (Ok((200, 399)), Ok((204, 204))));
        assert!(statuses("399-200").is_err() && statuses("2xx").is_err() && statuses("200-600").is_err());
        assert!(error_status("200").is_err() && error_status("abc").is_err());
        assert_eq!(error_status("429").unwrap(), StatusCode::TOO_MANY_REQUESTS);
        assert!(method("get").unwrap_err().contains("write `GET`"));
        assert!(method("PURGE").is_ok() && method("a b").is_err());
        assert_eq!(extension(".PHP"), Ok("php".to_owned()));
        assert!(extension("tar.gz").is_err() && extension("").is_err());
        assert!(cookie_name("a b").is_err() && cookie_name("id").is_ok());
        assert_eq!(header_field("X-Tier: gold ").unwrap().1, "gold");
        assert!(header_field("X-Tier").is_err() && header_field("X Y: z").is_err());
        assert!(header_name("X Y").is_err() && header_value("a\n").is_err());
    }
}

//! Lines of the Common Log Format, and of the Combined Log Format, which adds fields at the end:
//!
//! ```text
//! host ident user [01/Aug/1995:00:00:01 -0400] "GET /index.html HTTP/1.0" 200 1839 "referer" "user agent"
//! ```

use std::borrow::Cow;

use super::{
    Name, Reason, Record, stamp,
    text::{number, request_line, without_fragment},
};

/// Reads a line of either format, without its end of line. Everything after the size is ignored.
///
/// Servers differ, so lines may vary:
///
/// - The user may hold spaces.
/// - The request may hold quotes (escaped or not), spaces and any bytes, lack a protocol, or be missing
///   (`-`).
/// - The size may be `-`.
/// - The virtual host may come first, as `name:port`.
pub fn parse(line: &[u8]) -> Result<Record<'_>, Reason> {
    let line = line.trim_ascii();
    let host = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    if host.is_empty() {
        return Err("the line is empty");
    }
    let (stamp, open, after) = find_time(line).ok_or("no time in brackets, such as [01/Aug/1995:00:00:01 -0400]")?;
    let request = line[after..].trim_ascii_start().strip_prefix(b"\"").ok_or("no request in quotes after the time")?;
    let (request, status, size_bytes) = split_request(request).ok_or("no status and size after the request")?;

    let (method, target) = request_line(request);
    let object = target.map(|target| Name::Text(without_fragment(path_of(unescape(target)))));
    Ok(Record {
        number: 0,
        at_ns: stamp.at_ns,
        tick_ns: stamp.tick_ns,
        object: object.filter(|object| *object != Name::Text(Cow::Borrowed(b""))),
        client: Some(client(host, &line[..open])).filter(|client| *client != b"-").map(|c| Name::Text(c.into())),
        size_bytes,
        status,
        method,
        class: None,
    })
}

/// Whether the line has a referer and a user agent in quotes after its size.
pub(super) fn is_combined(line: &[u8]) -> bool {
    line.trim_ascii().ends_with(b"\"")
}

/// Finds the first text in brackets that is a time. Returns the time, the position of its opening bracket,
/// and the position after its closing bracket. A client may be in brackets too, and the name of a user may
/// hold brackets.
fn find_time(line: &[u8]) -> Option<(stamp::Stamp, usize, usize)> {
    memchr::memchr_iter(b'[', line).take(8).find_map(|open| {
        let close = open + memchr::memchr(b']', &line[open..line.len().min(open + 64)])?;
        Some((stamp::parse(&line[open + 1..close], stamp::Unit::Guessed)?, open, close + 1))
    })
}

/// Splits at the closing quote into the request, and the status and size. A quote closes if status and size
/// follow it. An escaped quote is tried only if no other one closes: old servers escaped nothing, and a path
/// may end with a backslash.
fn split_request(text: &[u8]) -> Option<(&[u8], Option<u16>, Option<u64>)> {
    let closes = |only_plain: bool| {
        memchr::memchr_iter(b'"', text).find_map(|quote| {
            let escapes = text[..quote].iter().rev().take_while(|&&byte| byte == b'\\').count();
            if only_plain && escapes % 2 == 1 {
                return None;
            }
            let (status, size_bytes) = status_and_size(&text[quote + 1..])?;
            Some((&text[..quote], status, size_bytes))
        })
    };
    closes(true).or_else(|| closes(false))
}

/// Reads ` 200 1839`. Either number may be `-`.
fn status_and_size(text: &[u8]) -> Option<(Option<u16>, Option<u64>)> {
    let mut fields = text.strip_prefix(b" ")?.splitn(3, |&byte| byte == b' ');
    let status = match fields.next()? {
        b"-" => None,
        digits if digits.len() == 3 => Some(number(digits)? as u16),
        _ => return None,
    };
    let size_bytes = match fields.next()? {
        b"-" => None,
        digits => Some(number(digits)?),
    };
    Some((status, size_bytes))
}

/// Returns the client among the fields before the time. It is the first field, unless a virtual host with its
/// port comes first.
fn client<'a>(host: &'a [u8], fields: &'a [u8]) -> &'a [u8] {
    let Some(colon) = memchr::memchr(b':', host) else { return host };
    let is_virtual_host = number(&host[colon + 1..]).is_some_and(|port| port <= 65_535);
    let mut fields = fields.trim_ascii_end().split(|&byte| byte == b' ');
    match (fields.nth(1), fields.nth(1)) {
        (Some(second), Some(_)) if is_virtual_host => second,
        _ => host,
    }
}

/// Returns the path of a target. Requests to a proxy name scheme and host too, but a log belongs to one
/// server.
fn path_of(target: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if target.first() == Some(&b'/') {
        return target;
    }
    let Some(host) = target.windows(3).take(8).position(|window| window == b"://").map(|scheme| scheme + 3) else {
        return target;
    };
    let Some(path) = memchr::memchr(b'/', &target[host..]).map(|slash| host + slash) else {
        return Cow::Borrowed(b"/");
    };
    match target {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[path..]),
        Cow::Owned(bytes) => Cow::Owned(bytes[path..].to_vec()),
    }
}

/// Undoes the escapes with which Apache and nginx write bytes that would break a line: `\"`, `\\`, `\n` and
/// the like, and `\xHH`.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', text) else { return Cow::Borrowed(text) };
    let hex = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let mut plain = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, used) = match (byte, after) {
            (b'\\', [b'x', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (byte, 1),
            },
            (b'\\', [quoted @ (b'"' | b'\\'), ..]) => (*quoted, 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'b', ..]) => (0x08, 2),
            (b'\\', [b'v', ..]) => (0x0b, 2),
            _ => (byte, 1),
        };
        plain.push(byte);
        rest = &rest[used..];
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::Method;

    fn text(name: Option<Name<'_>>) -> Option<String> {
        name.map(|name| match name {
            Name::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            Name::Number(number) => panic!("{number} is no text"),
        })
    }

    /// Client, object, status and size.
    type ReadFields = (Option<String>, Option<String>, Option<u16>, Option<u64>);

    fn read_fields(line: &[u8]) -> Result<ReadFields, Reason> {
        let record = parse(line)?;
        Ok((text(record.client), text(record.object), record.status, record.size_bytes))
    }

    fn of<'a>(
        client: &'a str,
        object: &'a str,
        status: u16,
        size: impl Into<Option<u64>>,
    ) -> Result<ReadFields, Reason> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok((some(client), some(object), Some(status), size.into()))
    }

    /// A line with this request between its quotes.
    fn asking(request: &str) -> Vec<u8> {
        format!("h - - [01/Aug/1995:00:00:01 -0400] \"{request}\" 200 5").into_bytes()
    }

    #[test]
    fn a_line_of_the_nasa_log() {
        let record = parse(
            b"in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] \"GET /shuttle/sts-68-mcc-05.txt HTTP/1.0\" 200 1839",
        );
        let expected = Record {
            number: 0,
            at_ns: 807_249_601_000_000_000,
            tick_ns: 1_000_000_000,
            object: Some(Name::Text(b"/shuttle/sts-68-mcc-05.txt"[..].into())),
            client: Some(Name::Text(b"in24.inetnebr.com"[..].into())),
            size_bytes: Some(1839),
            status: Some(200),
            method: Some(Method::Get),
            class: None,
        };
        assert_eq!(record, Ok(expected));
    }

    #[test]
    fn clients_and_users_of_all_kinds() {
        for (front, client) in [
            ("10.0.0.1 - -", "10.0.0.1"),
            ("2001:db8::1 - -", "2001:db8::1"),
            ("[2001:db8::1] - -", "[2001:db8::1]"),
            ("::1 - frank", "::1"),
            ("h - Frank [the] Tank", "h"),
            ("h - -  ", "h"),
            ("- - -", ""),
            ("www.example.com:443 10.0.0.1 - -", "10.0.0.1"),
            ("www.example.com:443 2001:db8::1 - -", "2001:db8::1"),
            ("10.0.0.1:51234 - -", "10.0.0.1:51234"),
        ] {
            let line = format!("{front} [01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\" 200 5");
            assert_eq!(read_fields(line.as_bytes()), of(client, "/a", 200, 5), "{front}");
        }
    }

    #[test]
    fn what_follows_the_size_does_not_matter() {
        for end in ["", "\r", " \"-\" \"Mozilla/5.0 (\\\"x\\\") 200 7\"", " 0.005 upstream", " \"cut off"] {
            let line = [&asking("GET /a HTTP/1.0")[..], end.as_bytes()].concat();
            assert_eq!(read_fields(&line), of("h", "/a", 200, 5), "{end:?}");
        }
    }

    #[test]
    fn escapes_of_apache_and_nginx_are_undone() {
        for (request, object) in [
            (r"GET /a\x20b\x22.html HTTP/1.1", "/a b\".html"),
            (r"GET /a\x5C HTTP/1.1", r"/a\"),
            (r#"GET /a\"b\"c HTTP/1.1"#, r#"/a"b"c"#),
            (r"GET /tab\there HTTP/1.1", "/tab\there"),
            (r"GET /\xc3\xa4 HTTP/1.1", "/ä"),
            (r"GET /not\xzz\q\ HTTP/1.1", r"/not\xzz\q\"),
            ("GET /page#part HTTP/1.1", "/page"),
            ("GET /search?q=a#b HTTP/1.1", "/search?q=a"),
        ] {
            assert_eq!(read_fields(&asking(request)), of("h", object, 200, 5), "{request}");
        }
    }

    #[test]
    fn quotes_that_no_server_escaped_are_part_of_the_request() {
        assert_eq!(read_fields(&asking("GET /say/\"hello\".html HTTP/1.0")), of("h", "/say/\"hello\".html", 200, 5));
        assert_eq!(read_fields(&asking("GET /a\" 200 HTTP/1.0")), of("h", "/a\" 200", 200, 5));
        assert_eq!(read_fields(&asking("GET /dir\\")), of("h", "/dir\\", 200, 5), "a backslash at the end");
    }

    #[test]
    fn requests_that_are_none_have_no_object() {
        for request in ["-", "", "\\x16\\x03\\x01", "GET", "GET  HTTP/1.0"] {
            assert_eq!(read_fields(&asking(request)), of("h", "", 200, 5), "{request}");
        }
        assert_eq!(parse(&asking("-")).unwrap().method, None);
        assert_eq!(parse(&asking("\\x16\\x03")).unwrap().method, Some(Method::Other));
    }

    #[test]
    fn a_whole_url_counts_by_its_path() {
        for (target, path) in [
            ("http://example.com/a/b", "/a/b"),
            ("http://example.com", "/"),
            ("*", "*"),
            ("example.com:443", "example.com:443"),
        ] {
            assert_eq!(read_fields(&asking(&format!("GET {target} HTTP/1.1"))), of("h", path, 200, 5), "{target}");
        }
    }

    #[test]
    fn sizes_and_statuses_may_be_missing_and_large() {
        let front = "h - - [01/Aug/1995:00:00:01 -0400] \"GET /a HTTP/1.0\"";
        let size = |end: &str| read_fields(format!("{front} {end}").as_bytes()).map(|told| (told.2, told.3));
        assert_eq!(size("304 -"), Ok((Some(304), None)));
        assert_eq!(size("200 0"), Ok((Some(200), Some(0))));
        assert_eq!(size("- 12"), Ok((None, Some(12))));
        assert_eq!(size("200 18446744073709551615"), Ok((Some(200), Some(u64::MAX))));
        for broken in ["200", "200 ", "20 5", "2000 5", "200 5x", "200 -5", "200 18446744073709551616", "5"] {
            assert_eq!(size(broken), Err("no status and size after the request"), "{broken}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, reason) in [
            ("", "the line is empty"),
            ("hello world", "no time in brackets, such as [01/Aug/1995:00:00:01 -0400]"),
            (
                "h - - [01/Foo/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 5",
                "no time in brackets, such as [01/Aug/1995:00:00:01 -0400]",
            ),
            ("h - - [01/Aug/1995:00:00:01 -0400] GET / HTTP/1.0 200 5", "no request in quotes after the time"),
            ("h - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0", "no status and size after the request"),
        ] {
            assert_eq!(read_fields(line.as_bytes()), Err(reason), "{line}");
        }
    }

    /// Escapes the bytes of a request line as Apache does.
    fn escaped(target: &[u8]) -> String {
        target
            .iter()
            .map(|&byte| match byte {
                b'"' | b'\\' => format!("\\{}", char::from(byte)),
                b'\n' => "\\n".to_owned(),
                0x21..=0x7e => char::from(byte).to_string(),
                other => format!("\\x{other:02x}"),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(any in any::<Vec<u8>>(), near in r#"[h\[\]"\\x0-9a-f:/ -]{0,80}"#, request in any::<Vec<u8>>()) {
            let _ = parse(&any);
            let _ = parse(near.as_bytes());
            let _ = parse(&[b"h - - [01/Aug/1995:00:00:01 -0400] \"", &request[..], b"\" 200 5"].concat());
        }

        #[test]
        fn a_written_record_reads_back(
            client in "[0-9a-f:.]{1,20}",
            path in proptest::collection::vec(any::<u8>().prop_filter("the fragment ends a path", |&byte| byte != b'#'), 0..40),
            status in 100_u16..600,
            size in proptest::option::of(any::<u64>()),
        ) {
            let size_text = size.map_or("-".to_owned(), |size| size.to_string());
            let target = escaped(&path);
            let line = format!("{client} - - [01/Aug/1995:00:00:01 -0400] \"GET /{target} HTTP/1.1\" {status} {size_text}");
            let record = parse(line.as_bytes()).unwrap();
            let object = [b"/", &path[..]].concat();
            prop_assert_eq!(record.object, Some(Name::Text(object.into())));
            prop_assert_eq!(record.client, Some(Name::Text(client.as_bytes().into())));
            prop_assert_eq!((record.status, record.size_bytes), (Some(status), size));
        }
    }
}

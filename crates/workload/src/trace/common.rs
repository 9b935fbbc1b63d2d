//! Lines of the Common Log Format, and of the Combined one, which has more at the end:
//!
//! ```text
//! host ident user [01/Aug/1995:00:00:01 -0400] "GET /index.html HTTP/1.0" 200 1839 "referer" "user agent"
//! ```

use std::borrow::Cow;

use super::{Name, Reason, Record, number, request_line, stamp, without_fragment};

/// Reads a line of either format, without its end of line. What comes after the size is not looked at.
///
/// Servers differ, and so may lines: the user may hold spaces, the request quotes (escaped by the server or not), any bytes,
/// spaces, no protocol, or be missing (`-`); the size may be `-`; the virtual host may come first, as `name:port`.
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

/// Whether the line has a referer and a user agent in quotes behind its size.
pub(super) fn is_combined(line: &[u8]) -> bool {
    line.trim_ascii().ends_with(b"\"")
}

/// The first thing in brackets that is a time: the time, where its bracket opens, and where the line goes on. A client may be
/// in brackets too, and a user may be called anything.
fn find_time(line: &[u8]) -> Option<(stamp::Stamp, usize, usize)> {
    memchr::memchr_iter(b'[', line).take(8).find_map(|open| {
        let close = open + memchr::memchr(b']', &line[open..line.len().min(open + 64)])?;
        Some((stamp::parse(&line[open + 1..close], stamp::Unit::Guessed)?, open, close + 1))
    })
}

/// What is in front of the closing quote, and the status and size behind it. A quote closes if status and size follow. One
/// that is escaped is tried only if no other does: old servers escaped nothing, and paths may end with a backslash.
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

/// ` 200 1839`, either of which may be `-`.
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

/// The client among the fields in front of the time: the first, unless a virtual host with its port comes before it.
fn client<'a>(host: &'a [u8], fields: &'a [u8]) -> &'a [u8] {
    let Some(colon) = memchr::memchr(b':', host) else { return host };
    let is_virtual_host = number(&host[colon + 1..]).is_some_and(|port| port <= 65_535);
    let mut fields = fields.trim_ascii_end().split(|&byte| byte == b' ');
    match (fields.nth(1), fields.nth(1)) {
        (Some(second), Some(_)) if is_virtual_host => second,
        _ => host,
    }
}

/// The path of a target that names scheme and host too, as requests to a proxy do: a log is of one server.
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

/// Undoes what Apache and nginx do to bytes that would spoil a line: `\"`, `\\`, `\n` and the like, and `\xHH`.
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

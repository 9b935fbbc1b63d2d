//! The head of a program's answer (RFC 3875, section 6). No I/O.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, uri::PathAndQuery};

/// Most fields of a head; no honest program sends as many.
const MOST_FIELDS: usize = 100;

/// A parsed head.
#[derive(Debug)]
pub(crate) enum Head {
    /// A response, or a redirect of the client.
    Response(ResponseHead),
    /// A local redirect.
    Local(PathAndQuery),
}

#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// The fields, without hop-by-hop fields and `Content-Length`.
    pub(crate) fields: HeaderMap,
    /// The body's length, if the program gave it.
    pub(crate) len_bytes: Option<u64>,
}

/// The end of a head, after its empty line; `None`: not there yet. `seen` is the length of the part that was
/// searched before.
pub(crate) fn end(bytes: &[u8], seen: usize) -> Option<usize> {
    // A head without lines.
    match bytes {
        [b'\n', ..] => return Some(1),
        [b'\r', b'\n', ..] => return Some(2),
        _ => {}
    }
    // The empty line may begin in the part that was searched before.
    let mut at = seen.saturating_sub(3);
    while let Some(newline) = memchr::memchr(b'\n', &bytes[at..]) {
        let next = at + newline + 1;
        match &bytes[next..] {
            [b'\n', ..] => return Some(next + 1),
            [b'\r', b'\n', ..] => return Some(next + 2),
            _ => at = next,
        }
    }
    None
}

/// Parses a head, with or without its empty line. Lines end in LF or CRLF.
///
/// # Errors
/// The program's mistake.
pub(crate) fn parse(bytes: &[u8]) -> Result<Head, String> {
    if bytes.starts_with(b"HTTP/") {
        return Err(
            "it answers with a status line (\"non-parsed header\"), which is not supported: write a Status field"
                .to_owned(),
        );
    }
    fields(bytes, None)
}

/// Parses a head that may begin with a status line, whose status counts then.
///
/// # Errors
/// The program's mistake.
pub(crate) fn parse_with_status_line(bytes: &[u8]) -> Result<Head, String> {
    if !bytes.starts_with(b"HTTP/") {
        return parse(bytes);
    }
    let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |newline| newline + 1);
    let line = bytes[..end].trim_ascii_end();
    let after_version = memchr::memchr(b' ', line).map(|space| &line[space + 1..]);
    let status = after_version.and_then(|rest| HeaderValue::from_bytes(rest).ok());
    let status = status.ok_or_else(|| "its status line has no status".to_owned())?;
    fields(&bytes[end..], Some(read_status(&status)?))
}

/// Parses the fields of a head. `given`: its status, if a line before them has it.
fn fields(bytes: &[u8], given: Option<StatusCode>) -> Result<Head, String> {
    let mut fields = HeaderMap::new();
    let (mut status, mut location, mut len_bytes) = (given, None, None);
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        if fields.len() >= MOST_FIELDS {
            return Err(format!("it has more than {MOST_FIELDS} header fields"));
        }
        let (name, value) = field(line)?;
        match name.as_str() {
            "status" if given.is_some() => {}
            "status" => once(&mut status, "Status", read_status(&value)?)?,
            "location" => once(&mut location, "Location", value)?,
            "content-length" => once(&mut len_bytes, "Content-Length", read_length(&value)?)?,
            "content-type" if fields.contains_key(header::CONTENT_TYPE) => return Err(twice("Content-Type")),
            // Hop-by-hop: the program does not know the client's connection.
            "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer" | "transfer-encoding" | "upgrade" => {}
            _ => {
                fields.append(name, value);
            }
        }
    }
    if status.is_none() && location.is_none() && !fields.contains_key(header::CONTENT_TYPE) {
        return Err("it has none of the fields Content-Type, Location and Status".to_owned());
    }
    // Other fields, such as a cookie, can only be meant for the client, so this is not a local redirect.
    if let (Some(location), None) = (&location, status)
        && fields.keys().all(|name| name == header::CONTENT_TYPE)
        && location.as_bytes().starts_with(b"/")
        && !location.as_bytes().starts_with(b"//")
    {
        let target = PathAndQuery::try_from(location.as_bytes())
            .map_err(|_| format!("the path in its Location makes no sense: {location:?}"))?;
        return Ok(Head::Local(target));
    }
    let default = if location.is_some() { StatusCode::FOUND } else { StatusCode::OK };
    if let Some(location) = location {
        fields.insert(header::LOCATION, location);
    }
    Ok(Head::Response(ResponseHead { status: status.unwrap_or(default), fields, len_bytes }))
}

fn field(line: &[u8]) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || {
        let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        format!("a line of its head is no header field: {shown:?}")
    };
    let colon = memchr::memchr(b':', line).ok_or_else(wrong)?;
    // White space before the colon and continuation lines are invalid names.
    let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| wrong())?;
    let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(|_| wrong())?;
    Ok((name, value))
}

fn once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    if place.replace(value).is_some() { Err(twice(name)) } else { Ok(()) }
}

fn twice(name: &str) -> String {
    format!("it has the field {name} twice")
}

/// Three digits, and optionally a reason phrase.
fn read_status(value: &HeaderValue) -> Result<StatusCode, String> {
    let bytes = value.as_bytes();
    let digits = bytes.get(..3).filter(|_| matches!(bytes.get(3), None | Some(b' ')));
    let status = digits.and_then(|digits| StatusCode::from_bytes(digits).ok());
    // A program may not send interim responses.
    status.filter(|status| status.as_u16() >= 200).ok_or_else(|| format!("its Status makes no sense: {value:?}"))
}

fn read_length(value: &HeaderValue) -> Result<u64, String> {
    let digits = value.to_str().ok().filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length.ok_or_else(|| format!("its Content-Length makes no sense: {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(head: &str) -> ResponseHead {
        match parse(head.as_bytes()) {
            Ok(Head::Response(head)) => head,
            other => panic!("{head:?} is {other:?}"),
        }
    }

    fn local(head: &str) -> String {
        match parse(head.as_bytes()) {
            Ok(Head::Local(target)) => target.to_string(),
            other => panic!("{head:?} is {other:?}"),
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_reading_stopped() {
        for head in ["A: b\n\n", "A: b\r\n\r\n", "A: b\n\r\n", "A: b\r\nC: d\n\n", "\n", "\r\n"] {
            let bytes = [head.as_bytes(), b"body\n\nmore"].concat();
            for seen in 0..head.len() {
                assert_eq!(end(&bytes[..seen], 0), None, "{head:?} up to {seen}");
                assert_eq!(end(&bytes, seen), Some(head.len()), "{head:?} from {seen}");
            }
        }
        assert_eq!(end(b"A: b\r\nC: d\r\n", 0), None);
    }

    #[test]
    fn a_document_is_200_unless_it_says_otherwise() {
        let head = response("Content-Type: text/html\nX-One: 1\r\nx-one: 2\nContent-Length: 12\n\n");
        assert_eq!((head.status, head.len_bytes), (StatusCode::OK, Some(12)));
        assert_eq!(head.fields["content-type"], "text/html");
        assert_eq!(head.fields.get_all("x-one").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(response("Status: 404 Not Found\nContent-Type: a/b\n").status, StatusCode::NOT_FOUND);
        assert_eq!(response("Status: 204\n").status, StatusCode::NO_CONTENT);
        assert_eq!(response("status:299   odd\n").status.as_u16(), 299);
    }

    #[test]
    fn fields_about_a_connection_are_not_a_programs() {
        let head = response(
            "Content-Type: a/b\nConnection: close\nTransfer-Encoding: chunked\nKeep-Alive: 1\nUpgrade: x\nTE: y\nTrailer: z\n",
        );
        assert_eq!(head.fields.len(), 1);
    }

    #[test]
    fn redirects_are_of_the_client_or_local() {
        let head = response("Location: https://example.org/x\n");
        assert_eq!(
            (head.status, &head.fields["location"]),
            (StatusCode::FOUND, &"https://example.org/x".parse().unwrap())
        );
        let head = response("Location: https://example.org/x\nStatus: 308 Permanent\nContent-Type: a/b\n");
        assert_eq!(head.status, StatusCode::PERMANENT_REDIRECT);
        assert_eq!(local("Location: /a/b?c=d\n"), "/a/b?c=d");
        // With a status the redirect is meant for the client.
        let head = response("Status: 303 See Other\nLocation: /a\n");
        assert_eq!((head.status, &head.fields["location"]), (StatusCode::SEE_OTHER, &"/a".parse().unwrap()));
        // A content type describes a body that the client never sees.
        assert_eq!(local("Content-Type: text/html\nLocation: /a\n"), "/a");
        let head = response("Set-Cookie: a=b\nLocation: /a b\n");
        assert_eq!((head.status, &head.fields["location"]), (StatusCode::FOUND, &"/a b".parse().unwrap()));
        assert_eq!(head.fields["set-cookie"], "a=b");
        // Another host.
        assert_eq!(response("Location: //example.org/\n").status, StatusCode::FOUND);
        assert_eq!(response("Location: beside\n").status, StatusCode::FOUND);
    }

    #[test]
    fn a_status_line_has_the_status_where_there_may_be_one() {
        let read = |head: &str| match parse_with_status_line(head.as_bytes()) {
            Ok(Head::Response(head)) => Ok((head.status.as_u16(), head.fields.len(), head.len_bytes)),
            Ok(other) => panic!("{head:?} is {other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: 1\r\n\r\n"), Ok((200, 1, Some(3))));
        assert_eq!(read("HTTP/1.0 404\n"), Ok((404, 0, None)));
        assert_eq!(read("HTTP/1.1 302 Found\r\nLocation: /a\r\nStatus: 200\r\n"), Ok((302, 1, None)));
        assert_eq!(read("Status: 204\n"), Ok((204, 0, None)));
        for head in ["HTTP/1.1\r\n", "HTTP/1.1 OK\r\n", "HTTP/1.1 100 Continue\r\n", "HTTP/1.1 2000\r\n", "HTTP/"] {
            assert!(read(head).is_err(), "{head:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (head, reason) in [
            ("", "none of the fields"),
            ("X-Other: 1\n", "none of the fields"),
            ("Content-Type text/html\n", "no header field"),
            ("Content-Type : text/html\n", "no header field"),
            ("Content-Type: text/html\n folded\n", "no header field"),
            (": x\n", "no header field"),
            ("Content-Type: a\u{7f}\u{1}b\n", "no header field"),
            ("<html>\n", "no header field"),
            ("Status: OK\n", "Status makes no sense"),
            ("Status: 2000\n", "Status makes no sense"),
            ("Status: 20\n", "Status makes no sense"),
            ("Status: 101 Switching\n", "Status makes no sense"),
            ("Status: 200\nStatus: 200\n", "Status twice"),
            ("Content-Type: a/b\nContent-Type: a/b\n", "Content-Type twice"),
            ("Location: /a\nLocation: /b\n", "Location twice"),
            ("Content-Type: a/b\nContent-Length: 1\nContent-Length: 1\n", "Content-Length twice"),
            ("Content-Type: a/b\nContent-Length: +1\n", "Content-Length makes no sense"),
            ("Content-Type: a/b\nContent-Length: 99999999999999999999\n", "Content-Length makes no sense"),
            ("Content-Type: a/b\nContent-Length:\n", "Content-Length makes no sense"),
            ("Location: /a b\n", "Location makes no sense"),
            ("HTTP/1.1 200 OK\nContent-Type: a/b\n", "not supported"),
        ] {
            let error = parse(head.as_bytes()).expect_err(head);
            assert!(error.contains(reason), "{head:?}: {error}");
        }
        let many = "X: y\n".repeat(MOST_FIELDS + 1);
        assert!(parse(many.as_bytes()).expect_err("too many").contains("more than"));
    }
}

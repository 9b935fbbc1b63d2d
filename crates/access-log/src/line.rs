//! The two formats of an access log line. Text from a client is escaped, so that it can end neither a line
//! nor a field.

use std::io::Write;

use http::Version;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};

use super::{config::LogFormat, record::Record};

const CLF_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
const JSON_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Appends the line of a record, with its line end.
pub(super) fn write(line: &mut Vec<u8>, format: LogFormat, record: &Record) {
    match format {
        LogFormat::Combined => combined(line, record),
        LogFormat::Json => json(line, record),
    }
    line.push(b'\n');
}

/// Appends a line that reports missing lines.
pub(super) fn write_dropped(line: &mut Vec<u8>, format: LogFormat, lines: u64) {
    // Writing to a vector cannot fail.
    let _ = match format {
        LogFormat::Combined => writeln!(line, "# {lines} lines dropped: the log could not be written fast enough"),
        LogFormat::Json => writeln!(line, "{}", json!({ "dropped_lines": lines })),
    };
}

/// NCSA combined format, then class, response time in seconds and slowdown. As in nginx and Apache, the
/// address is the peer's. Times are UTC.
fn combined(line: &mut Vec<u8>, record: &Record) {
    let time = OffsetDateTime::from(record.time);
    let _ = write!(line, "{} - ", record.peer);
    match &record.processed.user {
        // A name with a space would be read as two fields.
        Some(user) => escape(line, user.replace(' ', "_").as_bytes()),
        None => line.push(b'-'),
    }
    line.extend_from_slice(b" [");
    let _ = time.format_into(line, CLF_TIME);
    line.extend_from_slice(b"] \"");
    match &record.refused {
        Some(text) => escape(line, text),
        None => {
            escape(line, record.method.as_str().as_bytes());
            line.push(b' ');
            escape(line, record.text(1));
            let _ = write!(line, " {}", version(record.version));
        }
    }
    let _ = write!(line, "\" {} {} ", record.status.as_u16(), record.body_bytes);
    quoted(line, record.text(2));
    line.push(b' ');
    quoted(line, record.text(3));
    let _ = write!(line, " {} {:.6} ", record.processed.class, record.response_time.as_secs_f64());
    let _ = match record.slowdown {
        Some(slowdown) => write!(line, "{slowdown:.2}"),
        None => write!(line, "-"),
    };
}

fn json(line: &mut Vec<u8>, record: &Record) {
    let text = |nth| String::from_utf8_lossy(record.text(nth));
    let optional = |nth| Some(text(nth)).filter(|text| !text.is_empty());
    let mut value = json!({
        "time": OffsetDateTime::from(record.time).format(JSON_TIME).unwrap_or_default(),
        "client": record.peer.to_string(),
        "method": record.method.as_str(),
        "host": text(0),
        "target": text(1),
        "protocol": version(record.version),
        "status": record.status.as_u16(),
        "bytes": record.body_bytes,
        "complete": record.complete,
        "referer": optional(2),
        "user_agent": optional(3),
        "class": &*record.processed.class,
        "user": record.processed.user,
        "waited_s": record.processed.waited.as_secs_f64(),
        "upstream": record.processed.upstream.as_deref(),
        "attempts": record.processed.attempts,
        "cache": record.processed.cache,
        "trace_id": record.processed.trace.map(|trace| format!("{trace:032x}")),
        "grpc_status": record.processed.grpc_status,
        "response_time_s": record.response_time.as_secs_f64(),
        "slowdown": record.slowdown,
    });
    if let Some(refused) = &record.refused {
        for name in ["method", "target", "protocol", "host"] {
            value[name] = Value::Null;
        }
        value["refused"] = String::from_utf8_lossy(refused).into();
    }
    // Writing to a vector cannot fail, and the value has only string keys.
    let _ = serde_json::to_writer(line, &value);
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// A field in quotes, `-` when empty.
fn quoted(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    escape(line, if text.is_empty() { b"-" } else { text });
    line.push(b'"');
}

/// Escapes as nginx does: quotes, backslashes and everything except printable ASCII become `\xHH`.
fn escape(line: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                let _ = write!(line, "\\x{byte:02X}");
            }
            _ => line.push(byte),
        }
    }
}

//! The formats of logs: detected from the first bytes, or given by name.

use std::{fmt, str::FromStr};

use super::{
    columns::{Columns, Field, guess, normalised},
    common,
    compression::Compression,
    extended::Extended,
    json,
    table::Table,
    world_cup,
};

/// The format of a log.
///
/// People give a format as text: `common`, `combined`, `w3c`, `world-cup`, `csv` or `json`. Columns of a
/// table and keys of JSON follow after a colon if their names are not the usual ones:
/// `csv:time=begin_ms,size=volume`. Without `=` they are the columns, in order, of a table without a header
/// line: `csv:time_ms,size,-,object`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// The Common Log Format of the NCSA server.
    Common,
    /// The Common Log Format with referer and user agent.
    Combined,
    /// The W3C extended format, whose logs name their columns.
    Extended,
    /// The 20-byte records of the 1998 World Cup logs.
    WorldCup,
    /// A table, separated by commas, semicolons, tabs or bars.
    Csv(Columns),
    /// One JSON object a line.
    Json(Columns),
}

/// A description of a file that is not a readable log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The file is empty.
    Empty,
    /// A well-known kind of file that is not a log, such as a PNG image.
    Known(&'static str),
    /// A log of another kind or in a container, and advice on how to make it readable.
    Unread(&'static str, &'static str),
    /// A table that lacks needed columns. These are its columns.
    Columns(Vec<String>),
    /// A W3C extended log that lacks needed fields. These are its fields.
    Fields(Vec<String>),
    /// JSON objects without a time. These are the keys of the first object.
    Json(Vec<String>),
    /// Bytes that are not text.
    Binary,
    /// Text of another kind. This is its first line.
    Text(String),
}

/// Number of bytes at the beginning of a log that decide its format.
pub const HEAD_BYTES: usize = 64 * 1024;
/// Number of lines that are tried, because a log may begin with broken ones.
const LINES_TRIED: usize = 50;

impl Format {
    /// Detects the format of a log from its beginning, decompressed. Detection works best with the full
    /// [`HEAD_BYTES`].
    pub fn detect(head: &[u8]) -> Result<Self, Foreign> {
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        if text.trim_ascii().is_empty() {
            return Err(Foreign::Empty);
        }
        if let Some(foreign) = well_known(text) {
            return Err(foreign);
        }
        // A text log may hold zero bytes too: after a power loss a file can contain blocks of them.
        let zeros = memchr::memchr(0, head).is_some();
        if zeros && world_cup::looks_like(head) {
            return Ok(Self::WorldCup);
        }
        if !zeros && Extended::looks_like(text) {
            return Ok(Self::Extended);
        }
        let lines = || text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let data = || lines().filter(|line| line[0] != b'#').take(LINES_TRIED);
        if let Some(line) = data().find(|line| common::parse(line).is_ok()) {
            return Ok(if common::is_combined(line) { Self::Combined } else { Self::Common });
        }
        if data().any(|line| json::parse(line, &Columns::Guessed).is_ok()) {
            return Ok(Self::Json(Columns::Guessed));
        }
        let first = lines().next().unwrap_or_default();
        match first[0] {
            b'{' | b'[' => Err(foreign_json(data())),
            b'<' => Err(Foreign::Known(if is_html(first) { "an HTML page" } else { "XML" })),
            _ => match Table::new(text, &Columns::Guessed) {
                Ok(_) => Ok(Self::Csv(Columns::Guessed)),
                Err(_) if zeros || mostly_unprintable(text) => Err(Foreign::Binary),
                Err(names) if names.len() > 1 && names.iter().all(|name| name.len() < 40) => {
                    Err(Foreign::Columns(names))
                }
                Err(_) => Err(Foreign::Text(String::from_utf8_lossy(first).chars().take(80).collect())),
            },
        }
    }
}

/// Recognises well-known kinds of files by their first bytes.
fn well_known(head: &[u8]) -> Option<Foreign> {
    let known = [
        (&b"\x89PNG"[..], "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF", "a PDF document"),
        (b"\x7fELF", "a program"),
        (b"#!", "a script"),
        (b"SQLite format 3", "an SQLite database"),
        (b"\xd4\xc3\xb2\xa1", "a capture of packets"),
        (b"\x0a\x0d\x0d\x0a", "a capture of packets"),
        (b"PAR1", "a Parquet file"),
    ];
    if let Some((_, name)) = known.into_iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(Foreign::Known(name));
    }
    let unread = [
        (&b"PK\x03\x04"[..], "a zip archive", "extract the log from it"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "extract the log from it"),
        (b"\x1f\x9d", "compressed by `compress`", "decompress it with `gunzip`"),
        (b"\x04\x22\x4d\x18", "compressed by lz4", "decompress it with `unlz4`"),
        (b"\xff\xfe", "text in UTF-16", "convert it with `iconv -f utf-16 -t utf-8`"),
        (b"\xfe\xff", "text in UTF-16", "convert it with `iconv -f utf-16 -t utf-8`"),
    ];
    if let Some((_, name, advice)) = unread.into_iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Some(Foreign::Unread(name, advice));
    }
    if Compression::detect(head) != Compression::None {
        return Some(Foreign::Unread("compressed twice", "decompress it once"));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(Foreign::Unread("a tar archive", "extract the log from it"));
    }
    None
}

fn is_html(line: &[u8]) -> bool {
    let start = line[..line.len().min(14)].to_ascii_lowercase();
    [&b"<!doctype html"[..], b"<html", b"<head", b"<body", b"<title"].iter().any(|tag| start.starts_with(tag))
}

fn mostly_unprintable(text: &[u8]) -> bool {
    let odd = text.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
    let valid = String::from_utf8_lossy(text);
    let broken = valid.chars().filter(|&character| character == char::REPLACEMENT_CHARACTER).count();
    (odd + broken) * 10 > text.len()
}

/// Explains why text that begins like JSON is not a readable log.
fn foreign_json<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Foreign {
    for line in lines {
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(line) {
            return Foreign::Json(object.keys().take(20).cloned().collect());
        }
        let name = line.iter().find(|byte| **byte != b'[');
        if line.starts_with(b"[") && line.ends_with(b"]") && name.is_some_and(u8::is_ascii_alphabetic) {
            return Foreign::Unread("a configuration", "name the access log");
        }
        if line.first() == Some(&b'[') {
            return Foreign::Unread("one JSON array", "write one object a line, as `jq -c '.[]'` does");
        }
    }
    Foreign::Unread("JSON over several lines", "write one object a line, as `jq -c .` does")
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is nothing in it"),
            Self::Known(name) => write!(f, "it looks like {name}, not like a log"),
            Self::Unread(name, advice) => write!(f, "it looks like {name}: {advice}"),
            Self::Binary => f.write_str("it is neither text nor the binary format of the 1998 World Cup logs"),
            Self::Text(line) => {
                write!(f, "it is text of no known format, beginning with `{}`; known are {KNOWN}", line.escape_debug())
            }
            Self::Columns(names) => write!(
                f,
                "it may be a table, but a time and a size or an object are not among its columns ({}): name them, as in \
                 `csv:time=COLUMN,size=COLUMN`, or if it has no line of names list them in order, as in `csv:time,size,-,object`",
                Names(names)
            ),
            Self::Fields(names) => write!(
                f,
                "it is a log in the W3C extended format, but a time and a size or an object are not among its fields ({}): have the \
                 server log `date time c-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes`",
                Names(names)
            ),
            Self::Json(names) => write!(
                f,
                "it is JSON, but no time is among its keys ({}): name it, as in `json:time=KEY,size=KEY,object=KEY`",
                Names(names)
            ),
        }
    }
}

impl std::error::Error for Foreign {}

const KNOWN: &str = "`common`, `combined`, `w3c`, `world-cup`, `csv` and `json`";

/// A list of names, made printable.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().take(20).map(|name| format!("`{}`", name.escape_debug()));
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Common => "Common Log Format",
            Self::Combined => "Combined Log Format",
            Self::Extended => "W3C Extended Log Format",
            Self::WorldCup => "1998 World Cup format",
            Self::Csv(_) => "table",
            Self::Json(_) => "JSON lines",
        })
    }
}

/// The error for a text that names no format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError(String);

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormatError {}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let (name, columns) = text.split_once(':').map_or((text, None), |(name, columns)| (name, Some(columns)));
        let parsed = columns.map(parse_columns).transpose()?.unwrap_or_default();
        match (name.trim().to_ascii_lowercase().as_str(), columns) {
            ("common" | "clf" | "ncsa", None) => Ok(Self::Common),
            ("combined", None) => Ok(Self::Combined),
            ("w3c" | "extended" | "iis", None) => Ok(Self::Extended),
            ("world-cup" | "worldcup" | "wc98", None) => Ok(Self::WorldCup),
            ("csv" | "table", _) => Ok(Self::Csv(parsed)),
            ("json", _) if matches!(parsed, Columns::InOrder(_)) => {
                Err(FormatError(format!("`{text}`: JSON has keys, not places: write `json:time=KEY,size=KEY`")))
            }
            ("json", _) => Ok(Self::Json(parsed)),
            (
                "common" | "clf" | "ncsa" | "combined" | "w3c" | "extended" | "iis" | "world-cup" | "worldcup" | "wc98",
                Some(_),
            ) => Err(FormatError(format!("`{text}`: only `csv` and `json` have columns to name"))),
            _ => Err(FormatError(format!("`{text}` is no format of a log: known are {KNOWN}"))),
        }
    }
}

fn parse_columns(text: &str) -> Result<Columns, FormatError> {
    let field = |name: &str| {
        let role = guess(&normalised(name));
        role.map(|role| (role.field, role.unit)).ok_or_else(|| {
            FormatError(format!(
                "`{name}` is nothing that a log tells: use `time` (or `time_ms`, `time_us`, `time_ns`), `date`, `size`, `object`, `client`, \
                 `status`, `method`, `class`, `request`"
            ))
        })
    };
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.iter().all(|item| item.contains('=')) {
        let named = items.iter().filter_map(|item| item.split_once('='));
        let named = named.map(|(name, column)| Ok((field(name)?.0, normalised(column))));
        return Ok(Columns::Named(named.collect::<Result<_, _>>()?));
    }
    if items.iter().any(|item| item.contains('=')) {
        return Err(FormatError(format!("`{text}`: either all columns are named (`time=COLUMN`) or none is")));
    }
    let fields: Vec<_> = items
        .into_iter()
        .map(|item| if matches!(item, "-" | "") { Ok(None) } else { field(item).map(Some) })
        .collect::<Result<_, _>>()?;
    if !fields.iter().flatten().any(|(field, _)| matches!(field, Field::Time | Field::Date)) {
        return Err(FormatError(format!("`{text}`: the time is missing among the columns")));
    }
    Ok(Columns::InOrder(fields))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMMON: &str = "h - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 5";

    fn world_cup(times: &[u32]) -> Vec<u8> {
        let record = |time: &u32| [&time.to_be_bytes()[..], &[0; 11], &[9, 0, 0x42, 1, 0]].concat();
        times.iter().flat_map(record).collect()
    }

    #[test]
    fn logs_are_told_by_their_beginning() {
        let broken_first = format!("garbage\n\n# note\n{COMMON}\n");
        let lost_power = format!("{COMMON}\n\0\0\0\0\0\0\0\0\n{COMMON}\n");
        for (head, format) in [
            (COMMON, Format::Common),
            (&broken_first, Format::Common),
            (&lost_power, Format::Common),
            (&format!("\u{feff}{COMMON} \"-\" \"curl\""), Format::Combined),
            ("{\"ts\":1,\"size\":2}\n{\"ts\":", Format::Json(Columns::Guessed)),
            ("time,size\n1,2\n", Format::Csv(Columns::Guessed)),
            ("#Software: Microsoft IIS\n#Version: 1.0\n#Fields: date time cs-uri-stem\n", Format::Extended),
            ("2024-05-01 00:00:01 /a\n#Fields: date time cs-uri-stem\n", Format::Extended),
        ] {
            assert_eq!(Format::detect(head.as_bytes()), Ok(format), "{head}");
        }
        assert_eq!(Format::detect(&world_cup(&[893_971_817, 893_971_817, 893_971_818])), Ok(Format::WorldCup));
        assert_eq!(Format::detect(&world_cup(&[893_971_817])[..]), Ok(Format::WorldCup), "one record is enough");
    }

    #[test]
    fn what_is_no_log_is_named() {
        let tar = [&[b'a'; 257][..], b"ustar\0"].concat();
        let far_apart = world_cup(&[893_971_817, 993_971_817]);
        for (head, start) in [
            (&b""[..], "there is nothing in it"),
            (b" \n\n", "there is nothing in it"),
            (b"\x89PNG\r\n\x1a\n\0\0", "it looks like a PNG image, not like a log"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "it looks like a JPEG image"),
            (b"%PDF-1.7\n", "it looks like a PDF document"),
            (b"\n  <!DOCTYPE HTML>\n<html>", "it looks like an HTML page"),
            (b"<?xml version='1.0'?>", "it looks like XML"),
            (b"PK\x03\x04\x14\0", "it looks like a zip archive: extract"),
            (b"\x1f\x8b\x08\0", "it looks like compressed twice"),
            (&tar, "it looks like a tar archive: extract"),
            (b"\xff\xfeh\0", "it looks like text in UTF-16: convert"),
            (
                b"{\"name\":\"serpent\",\"version\":1}",
                "it is JSON, but no time is among its keys (`name`, `version`): name it",
            ),
            (b"[{\"ts\":1},\n{\"ts\":2}]", "it looks like one JSON array: write one object a line"),
            (b"[[site]]\nroot = \"www\"\n", "it looks like a configuration: name the access log"),
            (b"{\n  \"ts\": 1\n}", "it looks like JSON over several lines: write one"),
            (
                b"name,age\nx,1\n",
                "it may be a table, but a time and a size or an object are not among its columns (`name`, `age`)",
            ),
            (b"Dear Sir,\nthis is a letter", "it may be a table"),
            (b"It was a dark and stormy night.", "it is text of no known format, beginning with `It was a dark"),
            (&far_apart, "it is neither text nor"),
            (b"\x01\x02\x03\x04\xfe\xfd\xfc", "it is neither text nor"),
            (b"abc\0def", "it is neither text nor"),
        ] {
            let foreign = Format::detect(head).map(|format| format!("{format:?}")).unwrap_err().to_string();
            assert!(foreign.starts_with(start), "{head:?}: {foreign}");
        }
    }

    #[test]
    fn formats_are_given_by_name() {
        for (text, format) in [
            ("common", Format::Common),
            ("CLF", Format::Common),
            ("combined", Format::Combined),
            ("world-cup", Format::WorldCup),
            ("csv", Format::Csv(Columns::Guessed)),
            ("csv:time=When,size=How-much", Format::Csv(named([(Field::Time, "when"), (Field::Size, "how_much")]))),
            ("json:time=t", Format::Json(named([(Field::Time, "t")]))),
        ] {
            assert_eq!(text.parse(), Ok(format), "{text}");
        }
        for (text, why) in [
            ("apache", "is no format of a log"),
            ("common:time", "only `csv` and `json` have columns"),
            ("csv:size,path", "the time is missing"),
            ("csv:time,size=x", "either all columns are named"),
            ("csv:time,colour", "`colour` is nothing that a log tells"),
            ("json:time,size", "JSON has keys, not places"),
        ] {
            let error = text.parse::<Format>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    fn named<const N: usize>(columns: [(Field, &str); N]) -> Columns {
        Columns::Named(columns.into_iter().map(|(field, name)| (field, name.to_owned())).collect())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(any in any::<Vec<u8>>(), text in "[a-z:=,_ -]{0,40}") {
            let _ = Format::detect(&any).map_err(|foreign| foreign.to_string());
            let _ = Format::detect(text.as_bytes()).map_err(|foreign| foreign.to_string());
            let _ = text.parse::<Format>();
        }
    }
}

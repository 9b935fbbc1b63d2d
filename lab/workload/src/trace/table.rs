//! Lines of a table: CSV, also with tabs or semicolons (RFC 4180, but a field holds no line break).

use std::borrow::Cow;

use csv_core::ReadRecordResult;

use super::{
    Reason, Record,
    columns::{Columns, Draft, Field, Role, Value, normalised},
};

/// Most columns of a table.
const MAX_COLUMNS: usize = 256;

/// Reads the lines of one table.
#[derive(Debug)]
pub struct Table {
    splitter: Splitter,
    roles: Vec<Option<Role>>,
}

impl Table {
    /// Makes a reader for the table with this beginning, and tells whether its next line that is not a
    /// comment is its header. A comment may be the header too.
    ///
    /// # Errors
    /// If a time, or a size or an object, is missing from the names of the columns; the error holds the
    /// names.
    pub fn new(head: &[u8], columns: &Columns) -> Result<(Self, bool), Vec<String>> {
        let lines = || head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        if let Columns::InOrder(fields) = columns {
            let first = lines().find(|line| line[0] != b'#').unwrap_or_default();
            let role = |&field: &Option<_>| field.map(|(field, unit)| Role { field, unit, rank: 0 });
            let roles = fields.iter().map(role).collect();
            return Ok((Self { splitter: Splitter::new(delimiter_of(first)), roles }, false));
        }
        for line in lines() {
            let comment = line.strip_prefix(b"#");
            let header = comment.unwrap_or(line);
            let delimiter = delimiter_of(header);
            let mut splitter = Splitter::new(delimiter);
            let names: Vec<String> = match splitter.split(header) {
                Ok(fields) => fields.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect(),
                Err(_) => Vec::new(),
            };
            let roles: Vec<Option<Role>> = names.iter().map(|name| columns.role(&normalised(name))).collect();
            let has = |field| roles.iter().flatten().any(|role| role.field == field);
            if (has(Field::Time) || has(Field::Date)) && (has(Field::Size) || has(Field::Object) || has(Field::Request))
            {
                return Ok((Self { splitter, roles }, comment.is_none()));
            }
            if comment.is_none() {
                // The words of a text are not names of columns.
                return Err(if delimiter == b' ' { Vec::new() } else { names });
            }
        }
        Err(Vec::new())
    }

    /// Reads a line, without its end of line.
    pub fn parse<'a>(&'a mut self, line: &[u8]) -> Result<Record<'a>, Reason> {
        let Self { splitter, roles } = self;
        let mut draft = Draft::default();
        let mut count = 0;
        for (field, role) in splitter.split(line)?.zip(roles.iter()) {
            count += 1;
            if let Some(role) = role {
                draft.set(*role, Value::Text(Cow::Borrowed(field)))?;
            }
        }
        // A short line is accepted if only columns at its end that are not used are missing.
        if roles.iter().skip(count).any(Option::is_some) {
            return Err("it has fewer columns than the table");
        }
        draft.finish()
    }
}

/// Returns the most frequent delimiter of the line. Spaces count only if there is no other.
fn delimiter_of(line: &[u8]) -> u8 {
    let count = |delimiter: u8| memchr::memchr_iter(delimiter, line).count();
    let most = b"|;\t,".iter().copied().max_by_key(|&delimiter| count(delimiter)).unwrap_or(b',');
    if count(most) == 0 && count(b' ') > 0 { b' ' } else { most }
}

/// Splits a line into fields and removes their quotes.
#[derive(Debug)]
struct Splitter {
    reader: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
}

impl Splitter {
    fn new(delimiter: u8) -> Self {
        let reader = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
        Self { reader, fields: Vec::new(), ends: vec![0; MAX_COLUMNS] }
    }

    fn split(&mut self, line: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Reason> {
        self.reader.reset();
        // Removing quotes makes no field longer.
        self.fields.resize(line.len().max(1), 0);
        let (mut read, mut written, mut columns) = (0, 0, 0);
        // An empty input tells the CSV reader that the line has ended.
        loop {
            let (result, used, wrote, ended) =
                self.reader.read_record(&line[read..], &mut self.fields[written..], &mut self.ends[columns..]);
            (read, written, columns) = (read + used, written + wrote, columns + ended);
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::Record | ReadRecordResult::End => break,
                ReadRecordResult::OutputFull => return Err("a field is longer than its line"),
                ReadRecordResult::OutputEndsFull => return Err("it has more than 256 columns"),
            }
        }
        let (fields, ends) = (&self.fields[..], &self.ends[..columns]);
        let mut start = 0;
        Ok(ends.iter().map(move |&end| {
            let field = &fields[start..end];
            start = end;
            field
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{Format, Method, Name};

    /// Reads the only data line of a table.
    fn read(text: &str, format: &str) -> Result<(f64, Option<u64>, Option<String>), String> {
        let Ok(Format::Csv(columns)) = format.parse() else { panic!("{format} is no table") };
        let (mut table, header) = Table::new(text.as_bytes(), &columns).map_err(|names| names.join(" "))?;
        let line = text.lines().filter(|line| !line.starts_with('#')).nth(usize::from(header)).unwrap();
        let record = table.parse(line.as_bytes())?;
        let object = record.object.map(|object| match object {
            Name::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            Name::Number(number) => number.to_string(),
        });
        Ok((record.at_ns as f64 / 1e9, record.size_bytes, object))
    }

    #[test]
    fn columns_are_found_by_their_usual_names_and_any_delimiter() {
        for text in [
            "time,size,path\n1.5,10,/a",
            "Path;Time;Status;Bytes\n/a;1.5;200;10",
            "timestamp\turl\tsize_bytes\n1.5\t/a\t10",
            "# ts_ms|object|size\n1500|/a|10",
            "# made by hand\nts_ms,object,size\n1500,/a,10.0",
            "\"time\",\"size\",\"path\"\n\"1.5\",\"10\",\"/a\"",
        ] {
            assert_eq!(read(text, "csv"), Ok((1.5, Some(10), Some("/a".to_owned()))), "{text}");
        }
    }

    #[test]
    fn columns_are_named_or_listed_where_they_are_not_usual() {
        let expected = Ok((1.5, Some(10), Some("/a".to_owned())));
        assert_eq!(read("begin_ms,volume,what\n1500,10,/a", "csv:time=Begin_ms,size=volume,object=what"), expected);
        assert_eq!(read("1500,x,10,/a", "csv:time_ms,-,size,path"), expected);
    }

    #[test]
    fn quotes_hide_delimiters() {
        assert_eq!(
            read("time,path,size\n1,\"/a,\"\"b\"\"\",10", "csv"),
            Ok((1.0, Some(10), Some("/a,\"b\"".to_owned())))
        );
    }

    #[test]
    fn a_size_may_be_missing_but_not_wrong() {
        for none in ["", "-", "null", "-1"] {
            assert_eq!(
                read(&format!("time,path,size\n1,/a,{none}"), "csv"),
                Ok((1.0, None, Some("/a".to_owned()))),
                "{none}"
            );
        }
        for wrong in ["ten", "1.5", "0x10", "1e300", "NaN", "inf"] {
            assert!(read(&format!("time,path,size\n1,/a,{wrong}"), "csv").is_err(), "{wrong}");
        }
        assert_eq!(read("time,path,size\n1,/a", "csv"), Err("it has fewer columns than the table".to_owned()));
        assert_eq!(read("time,path,size\nnever,/a,1", "csv"), Err("the time is none that is known".to_owned()));
        assert_eq!(read("time,path,size\n,/a,1", "csv"), Err("it has no time".to_owned()));
    }

    #[test]
    fn a_table_without_a_time_names_what_it_has() {
        assert_eq!(read("name,age\nx,1", "csv"), Err("name age".to_owned()));
    }

    #[test]
    fn a_request_line_gives_method_and_object() {
        let (mut table, _) = Table::new(b"time,request,class", &Columns::Guessed).unwrap();
        let record = table.parse(b"1,\"POST /a#b HTTP/1.1\",gold").unwrap();
        assert_eq!((record.method, record.object), (Some(Method::Post), Some(Name::Text(b"/a"[..].into()))));
        assert_eq!(record.class.as_deref(), Some(&b"gold"[..]));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(head in any::<Vec<u8>>(), line in any::<Vec<u8>>(), near in "[\",;\t0-9\r.]{0,80}") {
            let _ = Table::new(&head, &Columns::Guessed);
            let (mut table, _) = Table::new(b"time,path,size,status", &Columns::Guessed).unwrap();
            let _ = table.parse(&line);
            let _ = table.parse(near.as_bytes());
            let _ = table.parse(",".repeat(1000).as_bytes());
        }

        #[test]
        fn a_written_record_reads_back(at_s in 0_u32.., size in any::<u64>(), path in "/[ -~]{0,30}[!-~]") {
            prop_assume!(!path.contains('#'));
            let line = format!("{at_s},{size},\"{}\"", path.replace('"', "\"\""));
            let (mut table, _) = Table::new(b"time,size,path", &Columns::Guessed).unwrap();
            let record = table.parse(line.as_bytes()).unwrap();
            prop_assert_eq!(record.at_ns, u64::from(at_s) * 1_000_000_000);
            prop_assert_eq!((record.size_bytes, record.object), (Some(size), Some(Name::Text(path.as_bytes().into()))));
        }
    }
}

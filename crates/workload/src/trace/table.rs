//! Lines of a table: CSV, and the like with tabs or semicolons (RFC 4180, but a field holds no line break).

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
    /// The table that begins like this, and whether its next line that is no comment is its header. A comment may be the
    /// header as well.
    ///
    /// # Errors
    /// The names that it has, if a time and a size or an object are not among them.
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
            let mut splitter = Splitter::new(delimiter_of(header));
            let names: Vec<String> = match splitter.split(header) {
                Ok(fields) => fields.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect(),
                Err(_) => Vec::new(),
            };
            let roles: Vec<Option<Role>> = names.iter().map(|name| columns.role(&normalised(name))).collect();
            let has = |field| roles.iter().flatten().any(|role| role.field == field);
            if has(Field::Time) && (has(Field::Size) || has(Field::Object) || has(Field::Request)) {
                return Ok((Self { splitter, roles }, comment.is_none()));
            }
            if comment.is_none() {
                return Err(names);
            }
        }
        Err(Vec::new())
    }

    /// Reads a line, without its end.
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
        // A column short at the end may be one that nobody asked for.
        if roles.iter().skip(count).any(Option::is_some) {
            return Err("it has fewer columns than the table");
        }
        draft.finish()
    }
}

/// The delimiter that the line has most of; a comma if it has none.
fn delimiter_of(line: &[u8]) -> u8 {
    let count = |delimiter: u8| memchr::memchr_iter(delimiter, line).count();
    b"|;\t,".iter().copied().max_by_key(|&delimiter| count(delimiter)).unwrap_or(b',')
}

/// Splits a line into fields and undoes their quotes.
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
        // Undoing quotes makes nothing longer.
        self.fields.resize(line.len().max(1), 0);
        let (mut read, mut written, mut columns) = (0, 0, 0);
        // The end of the line is told by an empty input.
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

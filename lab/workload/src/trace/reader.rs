//! Reads a log as a stream of records.

use std::{
    fmt,
    io::{self, BufRead, Read},
    ops::ControlFlow,
};

use super::{
    Compression, Cut, Foreign, Format, Reason, Record, Tally,
    columns::Columns,
    common, compression,
    extended::Extended,
    format::HEAD_BYTES,
    json,
    jump::{Held, Jumps},
    order::FarBehind,
    table::Table,
    tally::Broken,
    world_cup,
};

/// Longest line, in bytes. A longer line is broken.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Options of a [`Reader`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format. If not given, it is detected from the first bytes.
    pub format: Option<Format>,
    /// Whether the first broken line, and data that is cut off, are errors.
    pub strict: bool,
}

/// Reads a log of any supported compression and format, in constant memory.
pub struct Reader<'a> {
    input: Input<'a>,
    parser: Parser,
    format: Format,
    compression: Compression,
    strict: bool,
    /// Lines, or records of a fixed length, that were read. Broken and empty ones are included.
    pieces: u64,
    jumps: Jumps,
    tally: Tally,
}

impl<'a> Reader<'a> {
    /// Opens a log.
    ///
    /// # Errors
    /// If the input cannot be read, is empty or is not a log. [`TraceError::Foreign`] describes it in the
    /// last two cases.
    pub fn open(input: impl BufRead + 'a, options: &Options) -> Result<Self, TraceError> {
        let (compression, plain) = compression::decode(input).map_err(TraceError::Io)?;
        let mut input = Input::new(plain);
        if input.head.is_empty() {
            return Err(input.error.take().map_or(TraceError::Foreign(Foreign::Empty), TraceError::Io));
        }
        let format = match &options.format {
            Some(format) => format.clone(),
            None => Format::detect(&input.head).map_err(TraceError::Foreign)?,
        };
        if format != Format::WorldCup && input.head.starts_with(b"\xef\xbb\xbf") {
            input.at = 3;
        }
        let parser = Parser::new(&format, &input.head[input.at..]).map_err(TraceError::Foreign)?;
        let (jumps, tally) = (Jumps::default(), Tally::default());
        Ok(Self { input, parser, format, compression, strict: options.strict, pieces: 0, jumps, tally })
    }

    /// The format, detected or given.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The compression.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Counts of everything that was read so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Reads to the end, or until `each` breaks off. Records come in the order of the log, which is nearly
    /// the order of time: see [`Order`](super::Order). A record whose time jumps ahead is given once later
    /// records confirm it. It counts as broken if the time of a later record is back where the log was
    /// before.
    ///
    /// # Errors
    /// If no record is found, if the log is far out of order, or if the machine cannot read on. With
    /// [`Options::strict`], also at the first broken line and where data is cut off. Records that `each` got
    /// before the error are valid.
    pub fn read(&mut self, mut each: impl FnMut(&Record<'_>) -> ControlFlow<()>) -> Result<(), TraceError> {
        // The beginning of a piece that is not whole in the buffer.
        let mut carry = Vec::new();
        loop {
            let Self { input, parser, strict, pieces, jumps, tally, .. } = self;
            let buffer = match input.fill_buf() {
                Ok([]) => break,
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // An error with a number is one of the machine. Errors of decompressors have none: the data
                // ends too early or is damaged.
                Err(error) if *strict || (tally.records == 0 && jumps.is_empty()) || error.raw_os_error().is_some() => {
                    return Err(TraceError::Io(error));
                }
                Err(error) => {
                    tally.cut = Some(Cut { after: *pieces, error: error.to_string() });
                    carry.clear();
                    break;
                }
            };
            let mut rest = buffer;
            let mut flow = ControlFlow::Continue(());
            while let Some(end) = parser.end_of_piece(rest, carry.len()).filter(|_| flow.is_continue()) {
                let (piece, after) = rest.split_at(end);
                rest = after;
                flow = if carry.is_empty() {
                    take(piece, parser, *strict, pieces, jumps, tally, &mut each)?
                } else {
                    push(&mut carry, piece);
                    let flow = take(&carry, parser, *strict, pieces, jumps, tally, &mut each)?;
                    carry.clear();
                    flow
                };
            }
            let used = match flow {
                ControlFlow::Continue(()) => {
                    push(&mut carry, rest);
                    buffer.len()
                }
                ControlFlow::Break(()) => buffer.len() - rest.len(),
            };
            input.consume(used);
            if flow.is_break() {
                tally.stopped = true;
                return self.judge();
            }
        }
        let Self { parser, strict, pieces, jumps, tally, .. } = self;
        if !carry.is_empty() {
            tally.stopped = take(&carry, parser, *strict, pieces, jumps, tally, &mut each)?.is_break();
        }
        while !tally.stopped
            && let Some(held) = jumps.pop()
        {
            tally.stopped = give(&held, parser, tally, &mut each).is_break();
        }
        self.judge()
    }

    /// Checks whether the data that was read is a log.
    fn judge(&self) -> Result<(), TraceError> {
        let Tally { records, broken, first_broken, order, .. } = &self.tally;
        match (records, first_broken.first()) {
            (0, None) => return Err(TraceError::Foreign(Foreign::Empty)),
            (0, Some(first)) => {
                return Err(TraceError::NoRecords {
                    format: self.format.clone(),
                    broken: *broken,
                    first: first.clone(),
                });
            }
            _ => {}
        }
        match order.wild(*records) {
            Some(first) => Err(TraceError::Unordered { first, far: order.far + order.ahead }),
            None => Ok(()),
        }
    }
}

/// Handles one piece: a line with its end, or a record of fixed length.
fn take(
    piece: &[u8],
    parser: &mut Parser,
    strict: bool,
    pieces: &mut u64,
    jumps: &mut Jumps,
    tally: &mut Tally,
    each: &mut impl FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, TraceError> {
    *pieces += 1;
    // Records that are held back are parsed again later. They must be parsed with the fields that were valid
    // when they were written.
    while parser.is_changed_by(piece)
        && let Some(held) = jumps.pop()
    {
        if give(&held, parser, tally, each).is_break() {
            parser.parse(piece);
            return Ok(ControlFlow::Break(()));
        }
    }
    let parsed = if piece.len() > MAX_LINE_BYTES { Some(Err("it is longer than 64 KiB")) } else { parser.parse(piece) };
    match parsed {
        None => {}
        Some(Ok(record)) => {
            let record = Record { number: *pieces, ..record };
            while let Some(held) = jumps.pop_contradicted(record.at_ns) {
                tally.ahead(&held, &record);
                if let (true, Some(first)) = (strict, tally.first_broken.first()) {
                    return Err(TraceError::Broken(first.clone()));
                }
            }
            if !jumps.must_hold(record.at_ns) {
                tally.record(&record);
                return Ok(each(&record));
            }
            jumps.hold(Held { number: record.number, at_ns: record.at_ns, piece: piece.to_vec() });
            while let Some(held) = jumps.pop_sure() {
                if give(&held, parser, tally, each).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Some(Err(reason)) => {
            tally.broken(*pieces, piece.trim_ascii_end(), reason);
            if let (true, Some(first)) = (strict, tally.first_broken.first().cloned()) {
                // The records before the strict error are still given away.
                while let Some(held) = jumps.pop()
                    && give(&held, parser, tally, each).is_continue()
                {}
                return Err(TraceError::Broken(first));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Gives away a record that was held back.
fn give(
    held: &Held,
    parser: &mut Parser,
    tally: &mut Tally,
    each: &mut impl FnMut(&Record<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    // It was a valid record when it was held back.
    let Some(Ok(record)) = parser.parse(&held.piece) else { return ControlFlow::Continue(()) };
    let record = Record { number: held.number, ..record };
    tally.record(&record);
    each(&record)
}

/// Appends to the beginning of a piece, up to one byte more than the longest line.
fn push(carry: &mut Vec<u8>, part: &[u8]) {
    let room = (MAX_LINE_BYTES + 1).saturating_sub(carry.len());
    carry.extend_from_slice(&part[..part.len().min(room)]);
}

/// Makes records of bytes, by format.
enum Parser {
    Common,
    WorldCup,
    Table {
        table: Box<Table>,
        /// Whether the header is still expected.
        header: bool,
    },
    Json(Columns),
    Extended(Extended),
}

impl Parser {
    fn new(format: &Format, head: &[u8]) -> Result<Self, Foreign> {
        Ok(match format {
            Format::Common | Format::Combined => Self::Common,
            Format::WorldCup => Self::WorldCup,
            Format::Extended => Self::Extended(Extended::new(head).map_err(Foreign::Fields)?),
            Format::Json(columns) => Self::Json(columns.clone()),
            Format::Csv(columns) => {
                let (table, header) = Table::new(head, columns).map_err(Foreign::Columns)?;
                Self::Table { table: Box::new(table), header }
            }
        })
    }

    /// Returns the end of the first piece in these bytes. `have` bytes of the piece came before them.
    fn end_of_piece(&self, bytes: &[u8], have: usize) -> Option<usize> {
        match self {
            Self::WorldCup => Some(world_cup::RECORD_BYTES - have).filter(|&missing| missing <= bytes.len()),
            _ => memchr::memchr(b'\n', bytes).map(|newline| newline + 1),
        }
    }

    /// Whether this line changes how the following lines are read.
    fn is_changed_by(&self, line: &[u8]) -> bool {
        matches!(self, Self::Extended(log) if line.first() == Some(&b'#') && log.is_changed_by(line.trim_ascii()))
    }

    /// Parses a piece. Returns `None` for an empty line, a comment, and the header of a table.
    fn parse<'p>(&'p mut self, piece: &'p [u8]) -> Option<Result<Record<'p>, Reason>> {
        if let Self::WorldCup = self {
            return Some(world_cup::parse(piece));
        }
        let line = piece.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            if let Self::Extended(log) = self {
                log.directive(line);
            }
            return None;
        }
        Some(match self {
            Self::Common => common::parse(line),
            Self::WorldCup => world_cup::parse(piece),
            Self::Json(columns) => json::parse(line, columns),
            Self::Extended(log) => log.parse(line),
            Self::Table { header, .. } if *header => {
                *header = false;
                return None;
            }
            // The line is not trimmed, because a tab at its end marks an empty column.
            Self::Table { table, .. } => table.parse(piece.strip_suffix(b"\n").unwrap_or(piece)),
        })
    }
}

/// The decompressed data: the beginning, which format detection has already read, then the rest.
struct Input<'a> {
    head: Vec<u8>,
    at: usize,
    /// The error that occurred after the beginning. It is returned when reading gets there.
    error: Option<io::Error>,
    rest: Box<dyn BufRead + 'a>,
}

impl<'a> Input<'a> {
    fn new(mut rest: Box<dyn BufRead + 'a>) -> Self {
        let mut head = Vec::new();
        let error = rest.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).err();
        Self { head, at: 0, error, rest }
    }

    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at < self.head.len() {
            return Ok(&self.head[self.at..]);
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.rest.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        if self.at < self.head.len() {
            self.at += bytes;
        } else {
            self.rest.consume(bytes);
        }
    }
}

/// The reason why a log cannot be used.
#[derive(Debug)]
pub enum TraceError {
    /// The machine could not read it (then the error has a number), or its compressed data is damaged from
    /// the beginning.
    Io(io::Error),
    /// The input is not a readable log.
    Foreign(Foreign),
    /// A line is broken, and [`Options::strict`] is set.
    Broken(Broken),
    /// None of its lines is a record of the format.
    NoRecords {
        /// The format, detected or given.
        format: Format,
        /// Number of broken lines.
        broken: u64,
        /// The first broken line.
        first: Broken,
    },
    /// Its times are too far out of order.
    Unordered {
        /// The first record that is more than an hour behind an earlier record.
        first: FarBehind,
        /// Number of records that are as far behind, or as far ahead of their neighbours.
        far: u64,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.raw_os_error().is_some() => write!(f, "it cannot be read: {error}"),
            Self::Io(error) => write!(f, "its data ends too early or is damaged ({error})"),
            Self::Foreign(foreign) => foreign.fmt(f),
            Self::Broken(broken) => broken.fmt(f),
            Self::NoRecords { format, broken, first } => {
                let none = if *broken == 1 { "its only line is no" } else { "none of its lines is a" };
                write!(f, "{none} record of the format `{format}`, not even {first}")
            }
            Self::Unordered { first, far } => write!(
                f,
                "its lines are not in the order of their times: line {} is {:.1} hours earlier than line {}, and {far} lines are more than \
                 an hour off; put its parts together in order, the oldest first, or correct the time in line {}",
                first.number,
                first.behind_ns as f64 / 3.6e12,
                first.after,
                first.after,
            ),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

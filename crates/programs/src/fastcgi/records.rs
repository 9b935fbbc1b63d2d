//! The records of FastCGI 1.0: requests are written, and the records of answers are read. No I/O.
//!
//! A connection carries one request at a time, whose number is 1. Applications rarely know how to do more.

use bytes::{Buf as _, BufMut as _, BytesMut};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
/// The number of the only request of a connection.
const REQUEST: u16 = 1;
/// Most content of a record that is written: the largest multiple of eight, so no record needs padding.
const MOST_CONTENT_BYTES: usize = 65_528;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const RESPONDER: u16 = 1;
const KEEP_CONNECTION: u8 = 1;

/// Writes the beginning of a request: its role, and its parameters. `keep`: the application keeps the connection open
/// behind its answer.
pub(super) fn begin<'a>(out: &mut BytesMut, keep: bool, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    header(out, BEGIN_REQUEST, 8);
    out.put_u16(RESPONDER);
    out.put_u8(if keep { KEEP_CONNECTION } else { 0 });
    out.put_bytes(0, 5);
    // PHP reads the parameters of each record alone, so none is cut in two that fits into a record.
    let (mut record, mut pair) = (BytesMut::new(), BytesMut::new());
    for (name, value) in pairs {
        length(&mut pair, name.len());
        length(&mut pair, value.len());
        pair.put_slice(name);
        pair.put_slice(value);
        if record.len() + pair.len() > MOST_CONTENT_BYTES {
            stream(out, PARAMS, &record.split());
        }
        record.unsplit(pair.split());
    }
    stream(out, PARAMS, &record);
    header(out, PARAMS, 0);
}

/// Writes a part of the request's body.
pub(super) fn body(out: &mut BytesMut, data: &[u8]) {
    stream(out, STDIN, data);
}

/// Writes the end of the request's body.
pub(super) fn end_of_body(out: &mut BytesMut) {
    header(out, STDIN, 0);
}

/// Writes bytes of a stream. Without bytes there is no record, because an empty one is the end of the stream.
fn stream(out: &mut BytesMut, kind: u8, data: &[u8]) {
    for part in data.chunks(MOST_CONTENT_BYTES) {
        header(out, kind, part.len() as u16);
        out.put_slice(part);
    }
}

fn header(out: &mut BytesMut, kind: u8, content_bytes: u16) {
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u16(REQUEST);
    out.put_u16(content_bytes);
    out.put_u16(0);
}

/// The length of a name or a value, in one byte or in four.
fn length(out: &mut BytesMut, bytes: usize) {
    match u8::try_from(bytes) {
        Ok(short @ ..=127) => out.put_u8(short),
        _ => out.put_u32(bytes as u32 | 1 << 31),
    }
}

/// An event in the records of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes of the answer.
    Output(BytesMut),
    /// The end of the answer's bytes.
    EndOfOutput,
    /// Bytes for the log.
    Errors(BytesMut),
    /// The end of the request.
    End {
        /// The exit status of the application's work.
        status: u32,
        /// Whether the request was answered, or why not.
        verdict: Verdict,
    },
}

/// How a request has ended, as far as the protocol is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Complete,
    /// The application answers one request at a time on a connection. It never gets two.
    CannotMultiplex,
    Overloaded,
    UnknownRole,
    Unknown(u8),
}

/// Reads the records of an answer. The bytes of a record are told as they come.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    kind: u8,
    /// Whether the record is about the request. Others are about the connection, and are passed over.
    is_own: bool,
    content_bytes: usize,
    padding_bytes: usize,
}

impl Decoder {
    /// Takes the next event from the bytes that were read; `None`: more bytes are needed.
    ///
    /// # Errors
    /// The application's mistake.
    pub(super) fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<Event>, String> {
        loop {
            if self.content_bytes > 0 {
                if bytes.is_empty() {
                    return Ok(None);
                }
                let part = self.content_bytes.min(bytes.len());
                match (self.is_own, self.kind) {
                    (true, END_REQUEST) => {
                        if bytes.len() < self.content_bytes {
                            return Ok(None);
                        }
                        let mut content = bytes.split_to(self.content_bytes);
                        self.content_bytes = 0;
                        let status = content.get_u32();
                        let verdict = match content.get_u8() {
                            0 => Verdict::Complete,
                            1 => Verdict::CannotMultiplex,
                            2 => Verdict::Overloaded,
                            3 => Verdict::UnknownRole,
                            other => Verdict::Unknown(other),
                        };
                        return Ok(Some(Event::End { status, verdict }));
                    }
                    (true, kind) => {
                        self.content_bytes -= part;
                        let part = bytes.split_to(part);
                        return Ok(Some(if kind == STDOUT { Event::Output(part) } else { Event::Errors(part) }));
                    }
                    (false, _) => {
                        self.content_bytes -= part;
                        bytes.advance(part);
                        continue;
                    }
                }
            }
            if self.padding_bytes > 0 {
                let part = self.padding_bytes.min(bytes.len());
                self.padding_bytes -= part;
                bytes.advance(part);
                if self.padding_bytes > 0 {
                    return Ok(None);
                }
            }
            if bytes.len() < HEADER_BYTES {
                return Ok(None);
            }
            let mut header = bytes.split_to(HEADER_BYTES);
            if self.begin(&mut header)? {
                return Ok(Some(Event::EndOfOutput));
            }
        }
    }

    /// Whether all bytes so far belong to whole records.
    pub(super) fn is_between_records(&self) -> bool {
        self.content_bytes == 0 && self.padding_bytes == 0
    }

    /// Reads the header of a record. Returns whether it ends the output.
    fn begin(&mut self, header: &mut BytesMut) -> Result<bool, String> {
        let version = header.get_u8();
        self.kind = header.get_u8();
        let request = header.get_u16();
        self.content_bytes = header.get_u16().into();
        self.padding_bytes = header.get_u8().into();
        if version != VERSION {
            return Err(format!(
                "it does not speak FastCGI: a record of version {version} (is this the right address?)"
            ));
        }
        self.is_own = request == REQUEST;
        match (request, self.kind) {
            (0, _) => Ok(false),
            (REQUEST, STDOUT) => Ok(self.content_bytes == 0),
            (REQUEST, STDERR) => Ok(false),
            (REQUEST, END_REQUEST) if self.content_bytes >= 8 => Ok(false),
            (REQUEST, END_REQUEST) => Err("the record at its end is too short".to_owned()),
            (REQUEST, kind) => Err(format!("it sends a record of type {kind}, which no application may send")),
            (other, _) => Err(format!("it answers request {other} of the connection, and only 1 was asked")),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    /// A record of an application.
    pub(in crate::fastcgi) fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let len = (content.len() as u16).to_be_bytes();
        let mut record = vec![VERSION, kind, 0, 1, len[0], len[1], padding, 0];
        record.extend_from_slice(content);
        record.extend(std::iter::repeat_n(0xee, padding.into()));
        record
    }

    pub(in crate::fastcgi) fn end(status: u32, verdict: u8) -> Vec<u8> {
        let mut content = status.to_be_bytes().to_vec();
        content.extend([verdict, 0, 0, 0]);
        record(END_REQUEST, &content, 0)
    }

    /// The events of bytes that come in pieces, with neighbouring bytes of a stream put together.
    fn events(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Event>, String> {
        let (mut decoder, mut unread, mut events) = (Decoder::default(), BytesMut::new(), Vec::new());
        let mut at = 0;
        for &cut in cuts.iter().chain([&bytes.len()]) {
            let to = cut.clamp(at, bytes.len());
            unread.extend_from_slice(&bytes[at..to]);
            at = to;
            while let Some(event) = decoder.next(&mut unread)? {
                match (events.last_mut(), event) {
                    (Some(Event::Output(last)), Event::Output(more))
                    | (Some(Event::Errors(last)), Event::Errors(more)) => {
                        last.extend_from_slice(&more);
                    }
                    (_, event) => events.push(event),
                }
            }
        }
        if !decoder.is_between_records() || !unread.is_empty() {
            return Err("something is left".to_owned());
        }
        Ok(events)
    }

    /// A request as an application reads it: parameters and body.
    pub(in crate::fastcgi) fn read_request(mut bytes: &[u8]) -> (bool, Pairs, Vec<u8>) {
        let (mut params, mut body, mut keep, mut ended) = (Vec::new(), Vec::new(), false, 0);
        while bytes.has_remaining() {
            assert_eq!((bytes.get_u8(), ended < 2), (VERSION, true));
            let (kind, request, len) = (bytes.get_u8(), bytes.get_u16(), bytes.get_u16().into());
            let padding: usize = bytes.get_u8().into();
            bytes.advance(1);
            assert_eq!(request, REQUEST);
            let content = &bytes[..len];
            match kind {
                BEGIN_REQUEST => keep = content[2] == 1,
                PARAMS => params.extend_from_slice(content),
                STDIN => body.extend_from_slice(content),
                other => panic!("type {other}"),
            }
            ended += usize::from(len == 0);
            bytes.advance(len + padding);
        }
        assert_eq!(ended, 2, "both streams end");
        let (mut rest, mut pairs) = (&params[..], Vec::new());
        let length = |rest: &mut &[u8]| match rest[0] {
            short @ ..=127 => {
                rest.advance(1);
                usize::from(short)
            }
            _ => (rest.get_u32() & 0x7fff_ffff) as usize,
        };
        while !rest.is_empty() {
            let (name, value) = (length(&mut rest), length(&mut rest));
            pairs.push((rest[..name].to_vec(), rest[name..name + value].to_vec()));
            rest.advance(name + value);
        }
        (keep, pairs, body)
    }

    #[test]
    fn a_request_is_written_as_the_standard_shows_it() {
        let mut out = BytesMut::new();
        begin(&mut out, true, [(&b"A"[..], &b"bc"[..])].into_iter());
        body(&mut out, b"xyz");
        body(&mut out, b"");
        end_of_body(&mut out);
        let expected: &[&[u8]] = &[
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
            &[1, 4, 0, 1, 0, 5, 0, 0, 1, 2, b'A', b'b', b'c'],
            &[1, 4, 0, 1, 0, 0, 0, 0],
            &[1, 5, 0, 1, 0, 3, 0, 0, b'x', b'y', b'z'],
            &[1, 5, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn parameters_that_fit_into_a_record_are_not_cut() {
        let pairs: Vec<_> = (0..40_u8).map(|n| (vec![b'A' + n % 26; 3], vec![n; 5000])).collect();
        let mut out = BytesMut::new();
        begin(&mut out, false, pairs.iter().map(|(name, value)| (&name[..], &value[..])));
        let mut rest = &out[16..];
        while rest.len() > HEADER_BYTES {
            let len = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
            assert_eq!(len % 5008, 0, "whole parameters");
            rest = &rest[HEADER_BYTES + len..];
        }
    }

    #[test]
    fn what_no_application_may_send_is_named() {
        let foreign = [&[1, 6, 0, 9, 0, 0, 0, 0][..]].concat();
        for (bytes, reason) in [
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "does not speak FastCGI"),
            (foreign, "answers request 9"),
            (record(4, b"x", 0), "type 4"),
            (record(END_REQUEST, b"short", 0), "too short"),
        ] {
            let error = events(&bytes, &[]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let about_connection = [1, 10, 0, 0, 0, 3, 2, 0, 1, 2, 3, 0, 0];
        let bytes = [&about_connection[..], &record(STDOUT, b"", 0), &end(3, 2)].concat();
        assert_eq!(
            events(&bytes, &[4, 9]).unwrap(),
            [Event::EndOfOutput, Event::End { status: 3, verdict: Verdict::Overloaded }]
        );
    }

    proptest! {
        #[test]
        fn a_request_reads_as_it_was_written(
            keep: bool,
            pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(any::<u8>(), 0..700)), 0..20),
            long in prop::option::of(60_000_usize..140_000),
            data in prop::collection::vec(0_usize..150_000, 0..3),
        ) {
            let mut pairs = pairs;
            pairs.extend(long.map(|long| (b"LONG".to_vec(), vec![7; long])));
            let mut out = BytesMut::new();
            begin(&mut out, keep, pairs.iter().map(|(name, value)| (&name[..], &value[..])));
            let mut whole = Vec::new();
            for len in data {
                let part: Vec<u8> = (0..len).map(|n| n as u8).collect();
                body(&mut out, &part);
                whole.extend(part);
            }
            end_of_body(&mut out);
            prop_assert_eq!(read_request(&out), (keep, pairs, whole));
        }

        #[test]
        fn an_answer_is_read_the_same_however_it_is_cut(
            records in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..300), any::<u8>()), 0..8),
            cuts in prop::collection::vec(0_usize..3000, 0..20),
        ) {
            let mut bytes = Vec::new();
            let mut expected: Vec<Event> = Vec::new();
            for (is_output, content, padding) in &records {
                bytes.extend(record(if *is_output { STDOUT } else { STDERR }, content, *padding));
                let content = BytesMut::from(&content[..]);
                match (expected.last_mut(), is_output) {
                    (Some(Event::Output(last)), true) | (Some(Event::Errors(last)), false) => {
                        last.extend_from_slice(&content);
                    }
                    (_, true) => expected.push(Event::Output(content)),
                    (_, false) => expected.push(Event::Errors(content)),
                }
            }
            bytes.extend([record(STDERR, b"", 3), record(STDOUT, b"", 1), end(0, 0)].concat());
            expected.extend([Event::EndOfOutput, Event::End { status: 0, verdict: Verdict::Complete }]);
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(events(&bytes, &cuts).unwrap(), expected);
        }

        #[test]
        fn bytes_of_any_kind_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), start: bool) {
            let bytes = if start { [record(STDOUT, b"x", 0), bytes].concat() } else { bytes };
            let _ = events(&bytes, &[1, 3, 50]);
        }
    }
}

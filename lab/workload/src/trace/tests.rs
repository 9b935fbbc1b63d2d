//! Tests of the readers' guarantees that hold for every format.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    ops::ControlFlow,
};

use proptest::prelude::*;

use super::*;

fn line(second: u64, path: &str) -> String {
    format!(
        "h - - [01/Aug/1995:{:02}:{:02}:{:02} +0000] \"GET {path} HTTP/1.0\" 200 5\n",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn lines(count: u64) -> String {
    (0..count).map(|i| line(i, &format!("/{i}"))).collect()
}

/// Lines that compress badly, so that enough compressed data remains to cut and to damage.
fn mixed(count: u64) -> String {
    let any = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count).map(|i| line(i, &format!("/{:x}{:x}{:x}", any(i), any(any(i)), any(!i)))).collect()
}

/// Reads a log. Returns the numbers of the records, the tally and the result.
fn read_with(input: impl BufRead, options: &Options) -> (Vec<u64>, Tally, Result<(), TraceError>) {
    let mut reader = match Reader::open(input, options) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Tally::default(), Err(error)),
    };
    let mut numbers = Vec::new();
    let result = reader.read(|record| {
        numbers.push(record.number);
        ControlFlow::Continue(())
    });
    (numbers, reader.tally().clone(), result)
}

fn read(input: impl AsRef<[u8]>) -> (Vec<u64>, Tally, Result<(), TraceError>) {
    read_with(input.as_ref(), &Options::default())
}

fn message(input: impl AsRef<[u8]>) -> String {
    read(input).2.unwrap_err().to_string()
}

fn compressed(compression: Compression, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match compression {
        Compression::None => out.extend_from_slice(data),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap();
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(&mut out, 0).unwrap();
            // The zstd program includes a checksum; the library does so only on request.
            encoder.include_checksum(true).unwrap();
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap();
        }
        Compression::Bzip2 => {
            bzip2::read::BzEncoder::new(data, bzip2::Compression::fast()).read_to_end(&mut out).unwrap();
        }
        Compression::Xz => {
            let mut encoder = lzma_rust2::XzWriter::new(&mut out, lzma_rust2::XzOptions::with_preset(1)).unwrap();
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap();
        }
    }
    out
}

const ALL: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Zstd, Compression::Bzip2, Compression::Xz];

#[test]
fn every_compression_gives_the_same_records() {
    let text = lines(3000);
    for compression in ALL {
        let data = compressed(compression, text.as_bytes());
        let reader = Reader::open(&data[..], &Options::default()).unwrap();
        assert_eq!((reader.compression(), reader.format()), (compression, &Format::Common));
        let (numbers, tally, result) = read(&data);
        assert!(result.is_ok() && tally.notes().is_empty(), "{compression:?}: {result:?} {tally:?}");
        assert_eq!(numbers, (1..=3000).collect::<Vec<_>>(), "{compression:?}");
    }
}

#[test]
fn compressed_parts_put_together_are_one_log() {
    let text = lines(3000);
    // Cut in the middle of a line, as `split` does.
    let (first, second) = text.as_bytes().split_at(70_001);
    for compression in ALL {
        let data = [compressed(compression, first), compressed(compression, second)].concat();
        assert_eq!(read(&data).0.len(), 3000, "{compression:?}");
    }
}

#[test]
fn compressed_data_that_is_cut_off_is_used_up_to_there() {
    // The text is longer than a block of any compression.
    let text = mixed(5_000);
    for compression in &ALL[1..] {
        let whole = compressed(*compression, text.as_bytes());
        let (numbers, tally, result) = read(&whole[..whole.len() / 2]);
        assert!(result.is_ok(), "{compression:?}: {result:?}");
        let cut = tally.cut.as_ref().unwrap_or_else(|| panic!("{compression:?} ends too early, and it is not noticed"));
        assert_eq!(cut.after as usize, numbers.len(), "{compression:?}");
        assert!((500..4_500).contains(&numbers.len()), "{compression:?}: {}", numbers.len());
        assert_eq!(tally.broken, 0, "{compression:?}: half a line at the end is not a broken line");
        assert!(
            tally.notes()[0].contains(&format!("up to line or record {} is used", numbers.len())),
            "{:?}",
            tally.notes()
        );

        let strict = Options { strict: true, ..Options::default() };
        assert!(matches!(read_with(&whole[..whole.len() / 2], &strict).2, Err(TraceError::Io(_))), "{compression:?}");
    }
}

#[test]
fn zstd_with_the_largest_window_and_with_notes_of_other_programs_is_read() {
    let text = mixed(5_000);
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    let [first, second] = [first, second].map(|part| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 19).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    });
    // A skippable frame, such as `pzstd` writes between others.
    let notes = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, b'a', b'b', b'c'];
    let (numbers, tally, result) = read([&first[..], &notes, &second].concat());
    assert!(result.is_ok() && tally.cut.is_none(), "{result:?} {tally:?}");
    assert_eq!(numbers.len(), 5_000);
    let (_, tally, _) = read([&first[..], &notes[..9]].concat());
    assert!(tally.cut.is_some(), "notes that are cut off are noticed");
}

#[test]
fn compressed_data_that_is_damaged_never_passes_for_whole() {
    let text = mixed(3_000);
    for compression in &ALL[1..] {
        let mut data = compressed(*compression, text.as_bytes());
        let middle = data.len() / 2;
        data[middle..middle + 64].fill(0x55);
        let (_, tally, result) = read(&data);
        assert!(result.is_err() || tally.cut.is_some(), "{compression:?}: {tally:?}");
    }
}

#[test]
fn a_header_without_data_cannot_be_read() {
    for compression in &ALL[1..] {
        let data = &compressed(*compression, lines(10).as_bytes())[..8];
        assert!(matches!(read(data).2, Err(TraceError::Io(_))), "{compression:?}");
        let nothing = compressed(*compression, b"");
        assert_eq!(message(nothing), "there is nothing in it", "{compression:?}");
    }
}

#[test]
fn broken_lines_are_counted_with_their_numbers() {
    let text = format!(
        "{}garbage\n\n# a comment\n{}x - - [now] \"GET /\" 200 1\n{}",
        line(0, "/a"),
        line(1, "/b"),
        line(2, "/c")
    );
    let (numbers, tally, result) = read(&text);
    assert!(result.is_ok());
    assert_eq!((numbers, tally.records, tally.broken), (vec![1, 5, 7], 3, 2));
    assert_eq!(tally.first_broken.iter().map(|broken| broken.number).collect::<Vec<_>>(), [2, 6]);
    assert_eq!(tally.first_broken[0].excerpt, "garbage");

    let (numbers, _, result) = read_with(text.as_bytes(), &Options { strict: true, ..Options::default() });
    assert_eq!(numbers, [1]);
    let expected = "line 2: no time in brackets, such as [01/Aug/1995:00:00:01 -0400] (`garbage`)";
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[test]
fn an_endless_line_costs_no_memory_and_one_record() {
    let endless = io::repeat(b'x').take(5_000_000);
    let start = lines(1000) + "y";
    let end = format!("\n{}", line(2000, "/end"));
    let input = BufReader::new(start.as_bytes().chain(endless).chain(end.as_bytes()));
    let (numbers, tally, result) = read_with(input, &Options::default());
    assert!(result.is_ok());
    assert_eq!((numbers.len(), numbers.last()), (1001, Some(&1002)));
    assert_eq!((tally.broken, tally.first_broken[0].number), (1, 1001));
    assert_eq!(tally.first_broken[0].reason, "it is longer than 64 KiB");
}

#[test]
fn pieces_of_any_length_make_the_same_records() {
    let text = format!("{}garbage\r\n{}", lines(50), line(60, "/end").trim_end());
    let whole = read(&text);
    for capacity in [1, 2, 7, 100, 4096] {
        let pieces = read_with(BufReader::with_capacity(capacity, text.as_bytes()), &Options::default());
        assert_eq!((&pieces.0, &pieces.1), (&whole.0, &whole.1), "{capacity}");
    }
    assert_eq!(whole.0.len(), 51, "the last line needs no end");
}

#[test]
fn world_cup_records_may_end_within_one() {
    let record = |second: u32| [&(893_971_817 + second).to_be_bytes()[..], &[0; 11], &[9, 0, 0x42, 1, 0]].concat();
    let data: Vec<u8> = (0..5000).flat_map(record).collect();
    for capacity in [3, 20, 4096] {
        let input = BufReader::with_capacity(capacity, &data[..data.len() - 7]);
        let (numbers, tally, result) = read_with(input, &Options::default());
        assert!(result.is_ok());
        assert_eq!((numbers.len(), tally.broken), (4999, 1), "{capacity}");
        assert_eq!(tally.first_broken[0].reason, "the record is cut off: it has fewer than 20 bytes");
    }
}

#[test]
fn an_empty_log_and_one_of_another_kind_say_so() {
    assert_eq!(message(""), "there is nothing in it");
    assert_eq!(message("\n\n"), "there is nothing in it");
    assert_eq!(message("time,size\n"), "there is nothing in it");
    assert!(message("<html>").starts_with("it looks like an HTML page"));
    assert!(message(compressed(Compression::Gzip, &compressed(Compression::Gzip, b"x"))).contains("compressed twice"));

    let as_json = Options { format: Some(Format::Json(columns::Columns::Guessed)), strict: false };
    assert_eq!(
        read_with(lines(30).as_bytes(), &as_json).2.unwrap_err().to_string(),
        "none of its lines is a record of the format `JSON lines`, not even line 1: it is no JSON object (`h - - \
         [01/Aug/1995:00:00:00 +0000] \"GET /0 HTTP/1.0\" 200 5`)"
    );
}

#[test]
fn a_little_disorder_is_counted_and_a_log_in_pieces_refused() {
    let slightly = line(5, "/a") + &line(3, "/b") + &line(6, "/c");
    let (numbers, tally, result) = read(slightly);
    assert!(result.is_ok());
    assert_eq!((numbers.len(), tally.order.late, tally.order.worst_ns), (3, 1, 2_000_000_000));
    assert_eq!(tally.notes(), ["records earlier than one before them: 1, by up to 2 s"]);

    let swapped: String =
        (0..100).chain([]).map(|i| line(40_000 + i, "/new")).chain((0..100).map(|i| line(i, "/old"))).collect();
    assert_eq!(
        message(swapped),
        "its lines are not in the order of their times: line 101 is 11.1 hours earlier than line 100, and 100 lines are more than \
         an hour off; put its parts together in order, the oldest first, or correct the time in line 100"
    );
}

#[test]
fn one_line_with_a_wrong_time_ahead_is_left_out() {
    for wrong in [0, 1, 50, 198] {
        let log: String = (0..200)
            .map(|i| line(if i == wrong { 80_000 } else { i }, if i == wrong { "/wrong" } else { "/right" }))
            .collect();
        let (numbers, tally, result) = read(&log);
        assert!(result.is_ok());
        assert_eq!(numbers, (1..=200).filter(|&number| number != wrong + 1).collect::<Vec<u64>>());
        assert_eq!((tally.records, tally.broken, tally.order.late), (199, 1, 0));
        assert_eq!(tally.first_broken[0].number, wrong + 1);
        assert!(tally.notes()[0].contains("hour ahead") && tally.notes()[0].contains("/wrong"), "{:?}", tally.notes());

        let strict = Options { strict: true, ..Options::default() };
        assert!(matches!(read_with(log.as_bytes(), &strict).2, Err(TraceError::Broken(_))));
    }
}

#[test]
fn fields_of_an_extended_log_may_change_within_it() {
    // The jump of the third line is not yet confirmed when the fields change.
    let log = "#Version: 1.0\n#Fields: date time sc-bytes cs-uri-stem\n\
               2024-05-01 00:00:01 1 /a\n2024-05-01 00:00:02 2 /b\n2024-05-01 09:00:00 3 /c\n\
               #Fields: time date cs-uri-stem sc-bytes\n\
               09:00:01 2024-05-01 /d 4\n";
    let mut sizes = Vec::new();
    let mut reader = Reader::open(log.as_bytes(), &Options { format: None, strict: true }).unwrap();
    assert_eq!(reader.format(), &Format::Extended);
    reader
        .read(|record| {
            sizes.push(record.size_bytes.unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(sizes, [1, 2, 3, 4]);
}

#[test]
fn date_and_time_may_stand_in_two_columns() {
    let at = |log: &str| {
        let mut at_ns = Vec::new();
        let mut reader = Reader::open(log.as_bytes(), &Options { format: None, strict: true }).unwrap();
        reader
            .read(|record| {
                at_ns.push(record.at_ns);
                ControlFlow::Continue(())
            })
            .unwrap();
        at_ns
    };
    for log in [
        "time,path\n2024-05-01 00:00:01.5,/a\n",
        "date,time,path\n2024-05-01,00:00:01.5,/a\n",
        "path;time;date\n/a;00:00:01.5;2024-05-01\n",
        "date\ttime\tpath\n01/May/2024\t00:00:01.5\t/a\n",
        "date time path\n2024-05-01 00:00:01.5 /a\n",
        "date,path\n2024-05-01T00:00:01.5Z,/a\n",
        "{\"date\":\"2024-05-01\",\"time\":\"00:00:01.5\"}\n",
        "{\"time\":\"00:00:01.5\",\"date\":\"2024-05-01\"}\n",
        // The date does not matter, because the time is complete without it.
        "date,time,path\nWed,1714521601.5,/a\n",
    ] {
        assert_eq!(at(log), [1_714_521_601_500_000_000], "{log}");
    }
    let listed = Options { format: Some("csv:date,time,path,size".parse().unwrap()), strict: true };
    assert!(read_with(&b"2024-05-01 00:00:01 /a 5\n2024-05-01 00:00:02 /b 5\n"[..], &listed).2.is_ok());
}

#[test]
fn a_pause_in_a_log_is_no_wrong_time() {
    let log: String = (0..50).map(|i| line(if i < 25 { i } else { 40_000 + 4_000 * (i - 25) / 4 }, "/")).collect();
    let (numbers, tally, result) = read(log);
    assert!(result.is_ok());
    assert_eq!((numbers, tally.broken), ((1..=50).collect(), 0));
}

#[test]
fn two_logs_mixed_are_refused_though_neither_confirms_the_other() {
    let mixed: String = (0..200).map(|i| line(if i % 5 == 4 { 40_000 + i } else { i }, "/")).collect();
    assert_eq!(
        message(mixed),
        "its lines are not in the order of their times: line 6 is 11.1 hours earlier than line 5, and 39 lines are more than an \
         hour off; put its parts together in order, the oldest first, or correct the time in line 5"
    );
}

#[test]
fn a_reader_goes_on_where_it_was_stopped() {
    let text = lines(10);
    let mut reader = Reader::open(BufReader::with_capacity(64, text.as_bytes()), &Options::default()).unwrap();
    let mut numbers = Vec::new();
    for _ in 0..4 {
        reader
            .read(|record| {
                numbers.push(record.number);
                if record.number % 4 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
    }
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_machine_that_cannot_read_on_is_no_end_of_a_log() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            // EIO: the fault is the disk's, not the log's.
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let text = lines(10);
    let (numbers, _, result) = read_with(BufReader::new(text.as_bytes().chain(Failing)), &Options::default());
    assert_eq!(numbers.len(), 10);
    assert!(matches!(result, Err(TraceError::Io(_))));
}

proptest! {
    #[test]
    fn no_log_makes_a_reader_panic(
        any in any::<Vec<u8>>(),
        head in 0_usize..8,
        format in 0_usize..7,
        capacity in 1_usize..100,
    ) {
        let heads: [&[u8]; 8] = [
            b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh9", b"\xfd7zXZ\0", b"time,size\n1,2\n", b"{\"ts\":1}\n",
            b"#Fields: time sc-bytes\n",
        ];
        let formats = [None, Some("common"), Some("world-cup"), Some("csv:time,size"), Some("csv"), Some("json"), Some("w3c")];
        let data = [heads[head], &any].concat();
        let options = Options { format: formats[format].map(|name| name.parse().unwrap()), strict: false };
        let (_, tally, result) = read_with(BufReader::with_capacity(capacity, &data[..]), &options);
        let _ = (tally.notes(), result.map_err(|error| error.to_string()));
    }
}

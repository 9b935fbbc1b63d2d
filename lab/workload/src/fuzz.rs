//! The body of the fuzz target for the log readers ([`fuzz/`](../../../../fuzz)), which accepts any bytes. An
//! ordinary test runs it on the seeds.

use std::{io::BufReader, ops::ControlFlow};

use crate::{
    rate::{Link, Rate},
    trace::{
        Compression, Format, Options, Reader, Summary, Tally,
        columns::Columns,
        decode,
        replay::{Collector, Pace, Plan},
    },
    wire::WireModel,
};

/// Reads the bytes as a log of each format. The records must be the same for any split into pieces. Every
/// record must be counted and come in the order of the log. The records must be usable for summaries and
/// replays.
pub fn logs(bytes: &[u8]) {
    let formats = [
        None,
        Some(Format::Common),
        Some(Format::WorldCup),
        Some(Format::Extended),
        Some(Format::Csv(Columns::Guessed)),
        Some(Format::Json(Columns::Guessed)),
    ];
    // Each format would decompress it once more.
    let compressed = Compression::detect(bytes) != Compression::None;
    for format in formats.into_iter().take(if compressed { 1 } else { usize::MAX }) {
        let options = Options { format, strict: false };
        let whole = read(bytes, bytes.len().max(1), &options);
        // A decompression error may come with more or fewer lines read before it.
        if !compressed {
            let piece = 1 + bytes.iter().fold(0, |sum, byte| (sum * 31 + usize::from(*byte)) % 61);
            assert_eq!(read(bytes, piece, &options), whole, "pieces of {piece}");
        }
        if options.format.is_none() && !whole.0.is_empty() {
            used(bytes, &options);
        }
        let strict = read(bytes, bytes.len().max(1), &Options { strict: true, ..options });
        if strict.1.is_ok() {
            assert_eq!(strict, whole, "what passes for whole is read alike");
            assert_eq!(whole.1.as_ref().map(|tally| (tally.broken, &tally.cut)), Ok((0, &None)));
        }
    }
    if !compressed {
        let (_, mut plain) = decode(bytes).expect("bytes can be read");
        let mut read = Vec::new();
        std::io::Read::read_to_end(&mut plain, &mut read).expect("bytes can be read");
        assert_eq!(read, bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Format>().map_err(|error| error.to_string());
    }
}

/// The numbers of the records, and the result.
fn read(bytes: &[u8], piece: usize, options: &Options) -> (Vec<u64>, Result<Tally, String>) {
    let mut numbers: Vec<u64> = Vec::new();
    let mut reader = match Reader::open(BufReader::with_capacity(piece, bytes), options) {
        Ok(reader) => reader,
        Err(error) => return (numbers, Err(error.to_string())),
    };
    let result = reader.read(|record| {
        assert!(numbers.last().is_none_or(|last| *last < record.number), "in the order of the log");
        numbers.push(record.number);
        ControlFlow::Continue(())
    });
    let tally = reader.tally().clone();
    assert_eq!(tally.records, numbers.len() as u64);
    assert!(tally.first_broken.len() as u64 <= tally.broken);
    assert!(tally.notes().iter().all(|note| !note.contains('\n')));
    (numbers, result.map(|()| tally).map_err(|error| error.to_string()))
}

/// Uses the records for a summary and a replay.
fn used(bytes: &[u8], options: &Options) {
    let Ok(mut reader) = Reader::open(bytes, options) else { return };
    let (mut summary, mut collector) = (Summary::default(), Collector::default());
    let _ = reader.read(|record| {
        summary.add(record);
        collector.add(record)
    });
    let records = reader.tally().records;
    assert_eq!(summary.records(), records);
    assert_eq!(summary.periods().map(|period| period.requests).sum::<u64>(), records);
    assert!(summary.size_at(0.5) <= summary.largest_bytes());
    assert!((0.0..=1.0).contains(&summary.bytes_in_largest(0.01)));
    let collected = collector.finish();
    assert!(collected.requests() as u64 <= records);
    let link = Link::constant(Rate::from_bits_per_second(10_000_000).expect("a rate"));
    for pace in [Pace::AsLogged, Pace::Load(0.5)] {
        let plan = Plan { pace, link: &link, wire: WireModel::KEPT_ALIVE, duration_ns: None, shares: &[], seed: 1 };
        if let Ok(replayed) = collected.replay(&plan) {
            assert!(replayed.requests.is_sorted_by_key(|request| request.at_ns));
            assert!(replayed.factor > 0.0, "{}", replayed.factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn every_seed_passes_its_target() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/logs");
        let files = fs::read_dir(folder).expect("the target has seeds");
        let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        assert!(!files.is_empty());
        for file in files {
            println!("{}", file.display());
            super::logs(&fs::read(&file).expect("a seed that can be read"));
        }
    }
}

//! A real log: the first of August 1995 at the NASA Kennedy Space Center's server, which the papers use too.
//!
//! It is not part of this repository. The tests look for `nasa-1995-08-01.log.gz` in the folder of
//! `SERPENT_TRACES`, or in `../shared/traces` beside the workspace. Where it is missing, they are skipped
//! with a message.

use std::{
    fs::File,
    io::BufReader,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use serpent_instrument::{
    replay::{Conditions, Log, LogFile, Replay},
    setting::GroupSetting,
};
use workload::{
    rate::{Link, Rate},
    trace::{Compression, Format, Options, Reader, Summary},
    wire::WireModel,
};

const NASA: &str = "nasa-1995-08-01.log.gz";

fn nasa(test: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("SERPENT_TRACES").map_or(beside, PathBuf::from).join(NASA);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: there is no {}", path.display());
    eprintln!("SKIPPED {test}: there is no {}; name the folder that holds it in SERPENT_TRACES", path.display());
    None
}

fn megabits(mbit: u64) -> Link {
    Link::constant(Rate::from_bits_per_second(mbit * 1_000_000).unwrap())
}

#[test]
fn the_nasa_log_is_read_as_others_count_it() {
    let Some(path) = nasa("the_nasa_log_is_read_as_others_count_it") else { return };
    let mut reader = Reader::open(BufReader::new(File::open(path).unwrap()), &Options::default()).unwrap();
    assert_eq!((reader.compression(), reader.format()), (Compression::Gzip, &Format::Common));
    let mut summary = Summary::default();
    reader
        .read(|record| {
            summary.add(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(reader.tally().notes().is_empty(), "{:?}", reader.tally());

    // Counted with `awk` over the same file.
    assert_eq!((summary.records(), summary.bytes(), summary.largest_bytes()), (33_996, 529_321_719, 1_269_716));
    assert_eq!(summary.with_size(), 30_891);
    let with_status: Vec<u64> = (2..=5).map(|digit| summary.with_status(digit)).collect();
    assert_eq!(with_status, [30_745, 3007, 244, 0]);
    // 00:00:01 and 14:52:01, four hours behind Greenwich: a hurricane then shut the server down.
    assert_eq!(summary.span_ns(), Some((807_249_601_000_000_000, 807_303_121_000_000_000)));
    assert_eq!(summary.period_ns(), 60_000_000_000);
    assert_eq!(summary.periods().map(|period| period.requests).sum::<u64>(), 33_996);
}

#[test]
fn the_nasa_log_is_replayed_at_a_load() {
    let Some(path) = nasa("the_nasa_log_is_replayed_at_a_load") else { return };
    let link = megabits(10);
    let groups =
        [GroupSetting::default(), GroupSetting { name: "far".to_owned(), share: 3.0, ..GroupSetting::default() }];
    let log = Log::read(&LogFile { path, ..LogFile::default() }, &groups.clone().map(|group| group.name)).unwrap();
    let conditions = Conditions {
        load: Some(0.8),
        link: &link,
        wire: WireModel::PER_CONNECTION,
        duration: Duration::from_secs(60),
        groups: &groups,
        seed: 1,
    };
    let Replay { sizes_bytes, requests, notes } = log.replay(&conditions).unwrap();
    println!("{notes:#?}");

    let wire = |size| WireModel::PER_CONNECTION.bytes_for(size) as f64;
    let load = requests.iter().map(|request| wire(request.size_bytes)).sum::<f64>() / link.capacity_at(60e9);
    // The last request may be for the largest file.
    let largest = sizes_bytes.iter().copied().max().unwrap();
    assert!((load - 0.8).abs() <= wire(largest) / link.capacity_at(60e9), "{load}");
    assert!(requests.is_sorted_by_key(|request| request.at_ns));
    assert!(requests.last().unwrap().at_ns < 60_000_000_000);
    assert!(requests.iter().all(|request| request.size_bytes == sizes_bytes[request.file as usize]));
    assert_eq!(log.replay(&conditions).unwrap().requests, requests, "a seed decides everything");
}

#[test]
fn a_nasa_log_that_was_cut_off_is_used_up_to_there() {
    let Some(path) = nasa("a_nasa_log_that_was_cut_off_is_used_up_to_there") else { return };
    let whole = std::fs::read(path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let half = dir.path().join("half.log.gz");
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();

    let link = megabits(10);
    let conditions = Conditions {
        load: Some(0.8),
        link: &link,
        wire: WireModel::PER_CONNECTION,
        duration: Duration::from_secs(60),
        groups: &[],
        seed: 1,
    };
    let replay = Replay::read(&LogFile { path: half, ..LogFile::default() }, &conditions).unwrap();
    assert!((1000..10_000).contains(&replay.requests.len()), "{}", replay.requests.len());
    let cut: Vec<&String> = replay.notes.iter().filter(|note| note.starts_with("the data ends too early")).collect();
    assert_eq!(cut.len(), 1, "{:?}", replay.notes);
}

#[test]
fn a_window_of_the_nasa_log_is_replayed_at_its_own_pace() {
    let Some(path) = nasa("a_window_of_the_nasa_log_is_replayed_at_its_own_pace") else { return };
    let link = megabits(10);
    let conditions = Conditions {
        load: None,
        link: &link,
        wire: WireModel::PER_CONNECTION,
        duration: Duration::from_secs(60),
        groups: &[],
        seed: 1,
    };
    let replay =
        Replay::read(&LogFile { path, window_s: Some((3599.0, 3659.0)), ..LogFile::default() }, &conditions).unwrap();
    // From 01:00:00 until 01:01:00 `grep` counts 24 GETs with 200 or 304.
    assert_eq!(replay.requests.len(), 24);
    assert!(replay.notes.iter().any(|note| note.contains("was not read to its end")), "{:?}", replay.notes);
}

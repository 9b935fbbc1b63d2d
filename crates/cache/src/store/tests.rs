use std::task::Context;

use http::{HeaderValue, Method, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::{
    purge::What,
    shared::{ALONE_MS, MOST_VARIANTS},
    stored::{Asking, Received, Rules},
};

const NOW_MS: u64 = 1_700_000_000_000;

fn stored(cost_us: u64) -> Stored {
    of(cost_us, &[], &[])
}

fn of(cost_us: u64, request: &[(&'static str, &'static str)], response: &[(&'static str, &'static str)]) -> Stored {
    let (mut asked, mut headers) = (HeaderMap::new(), HeaderMap::new());
    request.iter().for_each(|(name, value)| drop(asked.insert(*name, HeaderValue::from_static(value))));
    headers.insert("cache-control", HeaderValue::from_static("max-age=60"));
    response.iter().for_each(|(name, value)| drop(headers.insert(*name, HeaderValue::from_static(value))));
    let asking = Asking { method: &Method::GET, headers: &asked, is_of_user: false };
    let received = Received { asked_ms: NOW_MS, now_ms: NOW_MS };
    let stored = Stored::of(asking, StatusCode::OK, &headers, received, &Rules::default()).unwrap();
    Stored { cost_us, ..stored }
}

fn in_memory(memory_bytes: u64) -> Store {
    Store::open(StoreConfig { memory_bytes, ..StoreConfig::default() }, 0).unwrap()
}

fn on_disk(directory: &std::path::Path, memory_bytes: u64, disk_bytes: u64) -> Store {
    let directory = Some(directory.to_owned());
    Store::open(StoreConfig { memory_bytes, directory, disk_bytes, ..StoreConfig::default() }, 7).unwrap()
}

fn asks(store: &Store, key: &str) -> Fetch {
    match store.begin(key, NOW_MS) {
        Turn::Asks(fetch) => fetch,
        Turn::Follows(_) => panic!("another asks for {key}"),
    }
}

fn body(store: &Store, key: &str) -> Option<Bytes> {
    let found = store.find(key, &HeaderMap::new())?;
    match found.body {
        FoundBody::Whole(bytes) => Some(bytes),
        FoundBody::OnDisk(file) => store.read(found.entry, file),
        FoundBody::Filling(_) => panic!("{key} is not whole"),
    }
}

impl Store {
    /// Checks the invariants.
    fn check(&self) {
        let index = self.0.index.read();
        let (mut memory, mut disk) = (0, 0);
        for (id, entry) in &index.entries {
            assert!(index.slots[&entry.key].variants.contains(id));
            memory += entry.head_bytes;
            if let Body::Whole(bytes) = &entry.body {
                memory += bytes.len() as u64;
                assert!(entry.rank.is_some());
            }
            assert!(!matches!(entry.body, Body::OnDisk) || entry.file.is_some());
            disk += entry.file.as_ref().map_or(0, |file| file.bytes);
        }
        assert_eq!((index.memory_bytes, index.disk_bytes), (memory, disk));
        assert!(memory <= self.0.config.memory_bytes && disk <= self.0.config.disk_bytes);
        let variants = index.slots.values().map(|slot| slot.variants.len()).sum::<usize>();
        assert_eq!(variants, index.entries.len());
        assert_eq!(index.files.len(), index.entries.values().filter(|entry| entry.file.is_some()).count());
        assert_eq!(index.memory.len(), index.entries.values().filter(|entry| entry.rank.is_some()).count());
    }

    /// Waits until the thread of the disk has done all.
    fn done(&self) {
        while !self.0.disk.as_ref().unwrap().is_idle() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_is_stored_is_found_by_those_whose_fields_match() {
    let store = in_memory(1 << 20);
    let german = of(1, &[("accept-language", "de")], &[("vary", "accept-language")]);
    let english = of(1, &[("accept-language", "en")], &[("vary", "accept-language")]);
    asks(&store, "http://a/").whole(german, "Guten Tag".into());
    asks(&store, "http://a/").whole(english, "Hello".into());
    let found = |language: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("accept-language", HeaderValue::from_static(language));
        match store.find("http://a/", &headers)?.body {
            FoundBody::Whole(bytes) => Some(bytes),
            _ => panic!("not in memory"),
        }
    };
    assert_eq!(found("de").as_deref(), Some(&b"Guten Tag"[..]));
    assert_eq!(found("en").as_deref(), Some(&b"Hello"[..]));
    assert_eq!(found("fr"), None);
    assert_eq!(store.stats().entries, 2);
    store.check();
}

#[test]
fn clients_cannot_fill_the_store_with_variants() {
    let store = in_memory(1 << 20);
    for at in 0..100 {
        let mut asked = HeaderMap::new();
        asked.insert("user-agent", HeaderValue::from(at));
        let mut headers = HeaderMap::new();
        headers.insert("cache-control", HeaderValue::from_static("max-age=60"));
        headers.insert("vary", HeaderValue::from_static("user-agent"));
        let asking = Asking { method: &Method::GET, headers: &asked, is_of_user: false };
        let received = Received { asked_ms: NOW_MS, now_ms: NOW_MS };
        let stored = Stored::of(asking, StatusCode::OK, &headers, received, &Rules::default()).unwrap();
        asks(&store, "http://a/").whole(stored, "x".into());
        store.check();
    }
    assert_eq!(store.stats().entries, MOST_VARIANTS as u64);
}

#[test]
fn what_was_cheap_to_make_goes_first() {
    let store = in_memory(40_000);
    let large = Bytes::from(vec![0; 8000]);
    for at in 0..4 {
        asks(&store, &format!("http://a/dear/{at}")).whole(stored(1_000_000), large.clone());
    }
    for at in 0..100 {
        asks(&store, &format!("http://a/cheap/{at}")).whole(stored(1000), large.clone());
        store.check();
    }
    let there = |what: &str| (0..100).filter(|at| body(&store, &format!("http://a/{what}/{at}")).is_some()).count();
    assert_eq!(there("dear"), 4);
    assert!(there("cheap") <= 1);
}

#[tokio::test]
async fn one_asks_and_the_others_wait_for_it() {
    let store = in_memory(1 << 20);
    let first = asks(&store, "http://a/");
    let Turn::Follows(second) = store.begin("http://a/", NOW_MS) else { panic!("it asks, too") };
    let Turn::Follows(third) = store.begin("http://a/", NOW_MS) else { panic!("it asks, too") };
    let (mut writer, mut reader) = first.fill(stored(1), Some(4)).unwrap();
    assert!(second.wait().await && third.wait().await, "the head is there");
    let Some(Found { body: FoundBody::Filling(mut followed), .. }) = store.find("http://a/", &HeaderMap::new()) else {
        panic!("it is not stored")
    };
    writer.push("abcd".into());
    writer.finish(None, 5);
    for reader in [&mut reader, &mut followed] {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let frame = http_body::Body::poll_frame(std::pin::Pin::new(reader), &mut cx);
        assert!(matches!(frame, std::task::Poll::Ready(Some(Ok(frame))) if frame.data_ref().unwrap() == "abcd"));
    }
    assert_eq!(body(&store, "http://a/").unwrap(), "abcd");
    store.check();
}

#[tokio::test]
async fn those_who_wait_go_by_themselves_when_nothing_is_stored() {
    let store = in_memory(1 << 20);
    let first = asks(&store, "http://a/");
    let Turn::Follows(second) = store.begin("http://a/", NOW_MS) else { panic!("it asks, too") };
    drop(first);
    assert!(!second.wait().await);
    let first = asks(&store, "http://a/");
    let Turn::Follows(second) = store.begin("http://a/", NOW_MS) else { panic!("it asks, too") };
    first.is_not_stored(NOW_MS);
    assert!(!second.wait().await);
    let (one, other) = (store.begin("http://a/", NOW_MS + 1), store.begin("http://a/", NOW_MS + 1));
    assert!(matches!((&one, &other), (Turn::Asks(_), Turn::Asks(_))), "none waits for the other");
    drop((one, other));
    assert!(!store.is_alone("http://a/", NOW_MS + ALONE_MS));
    assert!(store.0.index.read().slots.is_empty());
}

#[test]
fn a_body_that_breaks_off_or_is_too_large_is_not_stored() {
    let config = StoreConfig { most_body_bytes: 10, ..StoreConfig::default() };
    let store = Store::open(config, 0).unwrap();
    let (mut writer, reader) = asks(&store, "http://a/").fill(stored(1), Some(4)).unwrap();
    writer.push("ab".into());
    writer.fail("as if");
    drop(reader);
    assert!(store.find("http://a/", &HeaderMap::new()).is_none());
    assert!(asks(&store, "http://a/").fill(stored(1), Some(11)).is_err());
    let (mut writer, _reader) = asks(&store, "http://a/").fill(stored(1), None).unwrap();
    (0..11).for_each(|_| writer.push("x".into()));
    writer.finish(None, 1);
    assert!(store.find("http://a/", &HeaderMap::new()).is_none());
    let (mut writer, _reader) = asks(&store, "http://a/").fill(stored(1), None).unwrap();
    (0..10).for_each(|_| writer.push("x".into()));
    writer.finish(None, 1);
    assert_eq!(body(&store, "http://a/").unwrap().len(), 10);
    assert_eq!(store.0.filling_bytes.load(Relaxed), 0);
    store.check();
}

#[test]
fn what_was_purged_does_not_come_back_by_an_answer_that_was_under_way() {
    let store = in_memory(1 << 20);
    let tagged = || of(1, &[], &[("cache-tag", "t")]);
    let by = |what| Purge { host: None, what };
    for purge in [by(What::Path("/x".into())), by(What::Prefix("/".into())), by(What::Tag("t".into()))] {
        asks(&store, "http://a/x").whole(tagged(), "old".into());
        let early = asks(&store, "http://a/x");
        let (mut writer, _reader) = asks(&store, "http://b/x").fill(tagged(), Some(3)).unwrap();
        assert_eq!(store.purge(&purge), 2, "{purge:?}");
        early.whole(tagged(), "old".into());
        writer.push("old".into());
        writer.finish(None, 1);
        assert_eq!(store.stats().entries, 0, "{purge:?}");
        asks(&store, "http://a/x").whole(tagged(), "new".into());
        assert_eq!(body(&store, "http://a/x").unwrap(), "new");
        store.invalidate("http://a/x");
        assert!(store.find("http://a/x", &HeaderMap::new()).is_none());
        store.check();
    }
    asks(&store, "http://a/x").whole(tagged(), "old".into());
    assert_eq!(store.purge(&by(What::Tag("u".into()))), 0);
    assert_eq!(store.stats().entries, 1);
}

#[test]
fn a_restart_finds_what_was_stored_and_nothing_that_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(folder.path(), 1 << 20, 1 << 20);
    for at in 0..20 {
        asks(&store, &format!("http://a/{at}")).whole(stored(1), format!("body {at}").into());
    }
    store.done();
    store.check();
    drop(store);
    let files = || {
        let folders = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path());
        let mut files: Vec<_> =
            folders.flat_map(|it| std::fs::read_dir(it).unwrap()).map(|it| it.unwrap().path()).collect();
        files.sort();
        files
    };
    let whole = files();
    assert_eq!(whole.len(), 20);
    // Torn, empty, and damaged in the head and in the body.
    let bytes = std::fs::read(&whole[0]).unwrap();
    std::fs::write(&whole[0], &bytes[..bytes.len() - 1]).unwrap();
    std::fs::write(&whole[1], b"").unwrap();
    for (file, back) in [(&whole[2], 100), (&whole[3], 1)] {
        let mut bytes = std::fs::read(file).unwrap();
        let at = bytes.len() - back;
        bytes[at] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    let again = on_disk(folder.path(), 1 << 20, 1 << 20);
    while again.stats().entries < 17 {
        std::thread::yield_now();
    }
    let found: Vec<_> = (0..20).filter_map(|at| Some((at, body(&again, &format!("http://a/{at}"))?))).collect();
    assert_eq!(found.len(), 16, "three were dropped at the start, one when it was read");
    assert!(found.iter().all(|(at, body)| *body == format!("body {at}")));
    assert!(again.stats().disk_failures >= 1);
    again.check();
}

#[test]
fn what_is_purged_before_its_file_is_read_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(folder.path(), 1 << 20, 1 << 20);
    for at in 0..3 {
        asks(&store, &format!("http://a/{at}")).whole(of(1, &[], &[("cache-tag", "t")]), "x".into());
    }
    store.done();
    let heads: Vec<_> = {
        let index = store.0.index.read();
        index.entries.values().map(|entry| entry.file.as_ref().unwrap().file).collect()
    };
    let disk = store.0.disk.clone().unwrap();
    // As a store that has not read its directory yet.
    let again = in_memory(1 << 20);
    again.0.index.write().unread = Some(Unread::default());
    again.invalidate("http://a/0");
    again.purge(&Purge { host: None, what: What::Path("/1".into()) });
    for file in heads {
        again.0.handle_found(file, 1, disk.read(file, 100).unwrap().0);
    }
    again.0.handle_all_found();
    assert_eq!(again.stats().entries, 1);
    assert!(again.find("http://a/2", &HeaderMap::new()).is_some());
}

#[test]
fn a_body_leaves_the_memory_before_its_head_does_and_the_disk_has_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(folder.path(), 60_000, 100_000);
    let large = Bytes::from(vec![1; 10_000]);
    for at in 0..9 {
        asks(&store, &format!("http://a/{at}")).whole(stored(1000), large.clone());
        store.done();
        store.check();
    }
    assert_eq!(store.stats().entries, 9, "those that the memory has no room for are on disk");
    assert!((0..9).all(|at| body(&store, &format!("http://a/{at}")).unwrap() == large));
    for at in 9..30 {
        asks(&store, &format!("http://a/{at}")).whole(stored(1000), large.clone());
        store.done();
        store.check();
    }
    assert!(store.stats().evicted > 0);
}

#[test]
fn a_disk_that_cannot_be_written_to_costs_nothing_but_its_copies() {
    let folder = tempfile::tempdir().unwrap();
    let store = on_disk(folder.path(), 1 << 20, 1 << 20);
    // Where the folder of a file should be, there is a file: as root, modes forbid nothing.
    for at in 0..=255 {
        std::fs::write(folder.path().join(format!("{at:02x}")), b"").unwrap();
    }
    asks(&store, "http://a/").whole(stored(1), "x".into());
    while store.stats().disk_failures == 0 {
        std::thread::yield_now();
    }
    assert_eq!(body(&store, "http://a/").unwrap(), "x");
    store.check();
}

#[derive(Clone, Debug)]
enum Step {
    Store { key: u8, bytes: usize, cost: u64 },
    Find(u8),
    Refresh(u8),
    Invalidate(u8),
    Break { key: u8, bytes: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20_u8, 0..3000_usize, 1..1000_u64).prop_map(|(key, bytes, cost)| Step::Store { key, bytes, cost }),
        4 => (0..20_u8).prop_map(Step::Find),
        1 => (0..20_u8).prop_map(Step::Refresh),
        1 => (0..20_u8).prop_map(Step::Invalidate),
        1 => (0..20_u8, 1..3000_u64).prop_map(|(key, bytes)| Step::Break { key, bytes }),
    ]
}

proptest! {
    #[test]
    fn bounds_hold_and_nothing_wrong_is_found(steps in prop::collection::vec(step(), 1..100)) {
        let store = in_memory(16_000);
        for step in steps {
            match step {
                Step::Store { key, bytes, cost } => {
                    asks(&store, &format!("http://a/{key}")).whole(stored(cost), vec![key; bytes].into());
                }
                Step::Find(key) => {
                    if let Some(found) = body(&store, &format!("http://a/{key}")) {
                        prop_assert!(found.iter().all(|byte| *byte == key));
                    }
                }
                Step::Refresh(key) => {
                    let key = format!("http://a/{key}");
                    if let Some(found) = store.find(&key, &HeaderMap::new()) {
                        prop_assert!(asks(&store, &key).refresh(found.entry, found.stored));
                    }
                }
                Step::Invalidate(key) => store.invalidate(&format!("http://a/{key}")),
                Step::Break { key, bytes } => {
                    let (writer, _reader) = asks(&store, &format!("http://a/{key}")).fill(stored(1), Some(bytes)).unwrap();
                    drop(writer);
                }
            }
            store.check();
        }
    }
}

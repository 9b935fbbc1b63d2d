//! Fuzz target: the records of an application's answer.

use bytes::BytesMut;

use super::records::{Decoder, Event};

/// However the bytes are cut, they have the same events, and end at the same mistake. Bytes of streams are those between
/// the headers, so there are never more than came in.
pub fn fastcgi_answers(bytes: &[u8]) {
    let whole = events([bytes]);
    for cut in [1, 7, 8, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let (start, rest) = bytes.split_at(cut.min(bytes.len()));
        assert_eq!(events([start, rest]), whole, "cut at {cut}");
    }
    assert_eq!(events(bytes.chunks(3)), whole, "in pieces of three bytes");
    let told: usize =
        whole.0.iter().map(|event| if let Event::Output(it) | Event::Errors(it) = event { it.len() } else { 0 }).sum();
    assert!(told <= bytes.len());
    if let Some(mistake) = whole.1 {
        assert!(!mistake.is_empty() && !mistake.contains('\n') && mistake.len() < 200, "{mistake:?}");
    }
}

/// The events, with neighbouring bytes of a stream put together, and the mistake behind them.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, Option<String>) {
    let (mut decoder, mut unread, mut events) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            match decoder.next(&mut unread) {
                Ok(None) => break,
                Err(mistake) => return (events, Some(mistake)),
                Ok(Some(event)) => match (events.last_mut(), event) {
                    (Some(Event::Output(last)), Event::Output(more))
                    | (Some(Event::Errors(last)), Event::Errors(more)) => {
                        last.extend_from_slice(&more);
                    }
                    (_, event) => events.push(event),
                },
            }
        }
    }
    (events, None)
}

#[test]
fn every_seed_passes_the_target() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/fastcgi_answers");
    let files: Vec<_> = std::fs::read_dir(seeds).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        fastcgi_answers(&std::fs::read(&file).unwrap());
    }
}

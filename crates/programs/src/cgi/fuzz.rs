//! Fuzz target: the answer of a program.

use http::header;

use crate::answer::{self, Head};

/// The end of a head must not depend on where an earlier search stopped. A parsed head that is written out
/// again must parse the same.
pub fn cgi_answers(bytes: &[u8]) {
    let end = answer::end(bytes, 0);
    for cut in 0..=bytes.len().min(300) {
        if let Some(found) = answer::end(&bytes[..cut], 0) {
            // A head that begins with an empty line may be recognized only with more bytes.
            assert_eq!(Some(found), end, "what comes later changes nothing");
        } else {
            assert_eq!(answer::end(bytes, cut), end, "nothing is missed behind what was seen");
        }
    }
    let head = &bytes[..end.unwrap_or(bytes.len())];
    match answer::parse(head) {
        Err(reason) => assert!(!reason.is_empty() && !reason.contains('\n') && reason.len() < 2000, "{reason:?}"),
        Ok(Head::Local(target)) => {
            let target = target.as_str();
            assert!(target.starts_with('/') && !target.starts_with("//"), "a local redirect stays here: {target:?}");
            match answer::parse(format!("Location: {target}\n\n").as_bytes()) {
                Ok(Head::Local(again)) => assert_eq!(again, target),
                other => panic!("{other:?}"),
            }
        }
        Ok(Head::Response(response)) => {
            assert!(response.status.as_u16() >= 200);
            let hop = [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE, header::TRAILER];
            assert!(hop.iter().all(|name| !response.fields.contains_key(name)));
            assert!(!response.fields.contains_key(header::CONTENT_LENGTH));
            let mut text = format!("Status: {}\n", response.status.as_u16()).into_bytes();
            if let Some(len) = response.len_bytes {
                text.extend_from_slice(format!("Content-Length: {len}\n").as_bytes());
            }
            for (name, value) in &response.fields {
                text.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
            }
            match answer::parse(&text) {
                Ok(Head::Response(again)) => {
                    assert_eq!((again.status, again.len_bytes), (response.status, response.len_bytes));
                    assert_eq!(again.fields, response.fields);
                }
                // Writing out the status and the redirect may exceed the limit of fields by one.
                Err(reason) if reason.contains("more than") => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn every_seed_passes_the_target() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/cgi_answers");
    let files: Vec<_> = std::fs::read_dir(seeds).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        cgi_answers(&std::fs::read(&file).unwrap());
    }
}

use std::future::poll_fn;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::{
    frames::Frames,
    fuzz::{Nothing, Pieces, Read, answers, read},
    *,
};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b.js>\r\nKeep-Alive: 5\r\n\
     Connection: x-hop\r\nX-Hop: 1\r\nContent-Length: 0\r\n\r\n";

fn got(text: &str) -> Option<Read> {
    // The fuzz target checks that hyper reads the same and that cuts make no difference.
    answers(text.as_bytes());
    read(text.as_bytes(), text.len().max(1), &Method::GET)
}

#[test]
fn every_seed_passes_the_fuzz_target() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/answers");
    let files: Vec<_> = std::fs::read_dir(seeds).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        answers(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn a_response_ends_where_the_standard_says() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n";
    let table: &[(&str, &str, bool)] = &[
        (OK, "ok", true),
        ("\r\n\nHTTP/1.1 200 OK\ncontent-length: 2\n\nok", "ok", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\ncontent-length: 2\r\n\r\nok", "ok", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP", "ok", false),
        ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", "", true),
        ("HTTP/1.2 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 70\r\n\r\n", "", true),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", "to the end", false),
        ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok", "ok", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok", false),
        ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok", "ok", true),
        (&format!("{chunked}\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n"), "ok", true),
        (&format!("{chunked}\r\n2  \r\nok\r\n0\r\n\r\n"), "ok", true),
        (&format!("{chunked}\r\n0\r\n\r\n"), "", true),
        // A server that sends both may have been deceived.
        (&format!("{chunked}content-length: 70\r\n\r\n2\r\nok\r\n0\r\n\r\n"), "ok", false),
    ];
    for (text, body, is_free) in table {
        let read = got(text).unwrap_or_else(|| panic!("{text:?}"));
        assert_eq!(
            (String::from_utf8(read.answer.body).unwrap().as_str(), read.is_free),
            (*body, *is_free),
            "{text:?}"
        );
        assert!(read.answer.trailers.is_empty());
    }
    let trailers = got(&format!("{chunked}\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\nx-sum: 8 \r\n\r\n")).unwrap().answer.trailers;
    assert_eq!(trailers.get_all("x-sum").iter().collect::<Vec<_>>(), ["7", "8"]);
    // A response to HEAD never has a body, whatever its fields say.
    for text in ["HTTP/1.1 200 OK\r\ncontent-length: 70\r\n\r\n", &format!("{chunked}\r\n"), "HTTP/1.1 200 OK\r\n\r\n"]
    {
        let read = read(text.as_bytes(), 5, &Method::HEAD).unwrap();
        assert!(read.answer.body.is_empty() && read.is_free);
    }
}

#[test]
fn what_is_no_response_is_refused() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    for text in [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\rHTTP/1.1 200 OK\r\n\r\n",
        "\r",
        "220 mail.example ESMTP\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 099 x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxy",
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx : 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: 1\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        &format!("{chunked}transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        &format!("{chunked}\r\nx\r\n"),
        &format!("{chunked}\r\n2\r\nok\r\n"),
        &format!("{chunked}\r\n2\r\nok\r\n0\r\nno field\r\n\r\n"),
        &format!("{chunked}\r\n2\r\nok\r\n0\r\nx: 1\r\n y\r\n\r\n"),
        &format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1024)),
        &format!("HTTP/1.1 200 OK\r\n{}\r\n", "x:\r\n".repeat(101)),
        &"\r\n".repeat(600),
    ] {
        assert!(got(text).is_none(), "{text:?}");
    }
}

#[test]
fn interim_responses_are_told_of_but_for_those_that_we_asked_for() {
    let text = format!("HTTP/1.1 100 Continue\r\n\r\n{HINTS}HTTP/1.0 102\r\n\r\nHTTP/1.1 199 \n\n{OK}");
    let read = got(&text).unwrap();
    assert_eq!(read.interims, ["103 link=</a.css>; rel=preload link=</b.js>", "102", "199"]);
    assert!(read.answer.body == b"ok" && read.is_free);
    // After a change of protocols the bytes are no longer HTTP.
    let read = got("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nHTTP/1.1 103\r\n\r\n").unwrap();
    assert_eq!((read.answer.status, read.interims.len(), read.is_free), (StatusCode::SWITCHING_PROTOCOLS, 0, false));
}

#[test]
fn interim_responses_are_neither_many_nor_large() {
    let small = "HTTP/1.1 102\r\n\r\n";
    let large = |bytes: usize| format!("HTTP/1.1 103\r\nlink: {}\r\n\r\n", "x".repeat(bytes));
    assert!(got(&format!("{}{OK}", small.repeat(1024 / small.len()))).is_some());
    assert!(got(&format!("{}{OK}", small.repeat(1024 / small.len() + 1))).is_none());
    assert!(got(&format!("{}{}{OK}", large(400), large(400))).is_some());
    assert!(got(&format!("{}{}{}{OK}", large(400), large(400), large(400))).is_none());
    let many = |count: usize| {
        let mut wire = Wire::new(Pieces::new((small.repeat(count) + OK).as_bytes(), 7), 16 * 1024);
        wire.begin(&Method::GET, |_| {}, Nothing, Coding::None);
        let mut told = 0;
        let polled = wire.poll_head(&mut Context::from_waker(std::task::Waker::noop()), &mut |_| told += 1);
        (told, matches!(polled, Poll::Ready(Ok(_))))
    };
    assert_eq!(many(MOST_INTERIMS), (MOST_INTERIMS, true));
    assert_eq!(many(MOST_INTERIMS + 1), (MOST_INTERIMS, false));
}

/// A wire with a buffer of so many bytes, and the server's end of it.
fn wire(bytes: usize) -> (Wire<DuplexStream, Frames>, DuplexStream) {
    let (near, far) = duplex(bytes);
    (Wire::new(near, 4096), far)
}

async fn answered(
    wire: &mut Wire<DuplexStream, Frames>,
    body: Frames,
    coding: Coding,
) -> Result<StatusCode, ExchangeError> {
    wire.begin(&Method::POST, |out| out.extend_from_slice(b"HEAD|"), body, coding);
    let head = poll_fn(|cx| wire.poll_head(cx, &mut drop)).await?;
    while let Some(frame) = poll_fn(|cx| wire.poll_frame(cx)).await {
        frame?;
    }
    Ok(head.status())
}

#[tokio::test]
async fn a_request_is_written_as_it_is_framed_however_little_is_taken_at_once() {
    let trailers = || {
        let mut trailers = http::HeaderMap::new();
        for value in ["7", "8"] {
            trailers.append("x-sum", http::HeaderValue::from_static(value));
        }
        Ok(Frame::trailers(trailers))
    };
    for bytes in [1, 2, 7, 4096] {
        let table = [
            (Frames::default(), Coding::None, "HEAD|"),
            (Frames::data(&["hello, ", "", "world"]), Coding::Length(12), "HEAD|hello, world"),
            // Bytes beyond the declared length are not sent.
            (Frames::data(&["hello, ", "world", "!"]).and(trailers()), Coding::Length(9), "HEAD|hello, wo"),
            (Frames::default(), Coding::Chunked { trailers: true }, "HEAD|0\r\n\r\n"),
            (
                Frames::data(&["hello, ", "world"]),
                Coding::Chunked { trailers: true },
                "HEAD|7\r\nhello, \r\n5\r\nworld\r\n0\r\n\r\n",
            ),
            (
                Frames::data(&["", "hello"]).and(trailers()),
                Coding::Chunked { trailers: true },
                "HEAD|5\r\nhello\r\n0\r\nx-sum: 7\r\nx-sum: 8\r\n\r\n",
            ),
        ];
        let (mut wire, mut server) = wire(bytes);
        // All rows are exchanges on one connection.
        for (body, coding, expected) in table {
            let serve = async {
                let mut written = vec![0; expected.len()];
                server.read_exact(&mut written).await.unwrap();
                assert_eq!(String::from_utf8(written).unwrap(), expected, "{bytes} bytes at once");
                server.write_all(OK.as_bytes()).await.unwrap();
            };
            let (status, ()) = tokio::join!(answered(&mut wire, body, coding), serve);
            assert_eq!(status.unwrap(), StatusCode::OK);
            assert!(wire.is_free() && !wire.is_over());
        }
        drop(server);
        assert!(wire.is_over());
    }
}

#[tokio::test]
async fn a_body_that_ends_too_soon_or_breaks_ends_the_exchange() {
    for (body, coding, kind) in [
        (Frames::data(&["hello"]), Coding::Length(6), io::ErrorKind::UnexpectedEof),
        (
            Frames::data(&["hello"]).and(Err(io::ErrorKind::TimedOut.into())),
            Coding::Chunked { trailers: true },
            io::ErrorKind::TimedOut,
        ),
    ] {
        let (mut wire, _server) = wire(4096);
        let broken = answered(&mut wire, body, coding).await.unwrap_err();
        assert!(matches!(&broken, ExchangeError::Request(error) if error.kind() == kind), "{broken:?}");
        assert!(!wire.is_free() && wire.unsent().is_none());
    }
}

#[tokio::test]
async fn whoever_answers_without_reading_on_is_heard() {
    let (mut wire, mut server) = wire(8);
    let serve = async move {
        server.read_exact(&mut [0; 5]).await.unwrap();
        let (_reads_no_more, mut writes) = tokio::io::split(server);
        writes.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
        writes
    };
    let (status, _server) =
        tokio::join!(answered(&mut wire, Frames::data(&["hello, world"]), Coding::Length(12)), serve);
    assert_eq!(status.unwrap(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(!wire.is_free(), "the request is not whole");
}

#[tokio::test]
async fn a_request_of_which_nothing_was_sent_comes_back() {
    let (mut wire, server) = wire(8);
    drop(server);
    let broken = answered(&mut wire, Frames::default(), Coding::None).await.unwrap_err();
    assert!(matches!(broken, ExchangeError::Closed(_)), "{broken:?}");
    assert!(wire.unsent().is_some());
}

#[tokio::test]
async fn what_nobody_asked_for_ends_a_connection() {
    let (mut wire, mut server) = wire(4096);
    assert!(!wire.is_over());
    server.write_all(OK.as_bytes()).await.unwrap();
    assert!(wire.is_over());
}

#[tokio::test]
async fn small_pieces_of_a_body_do_not_keep_what_was_read_with_them() {
    let (mut wire, mut server) = wire(1 << 20);
    wire.begin(&Method::GET, |_| {}, Frames::default(), Coding::None);
    server.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    poll_fn(|cx| wire.poll_head(cx, &mut drop)).await.unwrap();
    let mut kept = Vec::new();
    for _ in 0..100 {
        server.write_all(b"5\r\nhello\r\n").await.unwrap();
        kept.push(poll_fn(|cx| wire.poll_frame(cx)).await.unwrap().unwrap().into_data().unwrap());
    }
    assert!(kept.iter().all(Bytes::is_unique));
    // Large chunks are not copied, and the reads grow.
    let large = vec![b'x'; 1 << 19];
    server.write_all(b"80000\r\n").await.unwrap();
    server.write_all(&large).await.unwrap();
    let (mut bytes, mut largest) = (0, 0);
    while bytes < large.len() {
        let data = poll_fn(|cx| wire.poll_frame(cx)).await.unwrap().unwrap().into_data().unwrap();
        bytes += data.len();
        largest = largest.max(data.len());
    }
    assert!(largest > 64 * 1024, "{largest}");
}

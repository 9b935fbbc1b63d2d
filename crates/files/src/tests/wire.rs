//! Tests of the file origin under HTTP/1.1, byte for byte.

use std::convert::Infallible;

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// The bytes that a client reads until the connection closes, which the last request must ask for.
async fn over_http1(files: &Files, requests: &str) -> String {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let files = files.clone();
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let served = files.serve(request.method(), request.uri(), request.headers());
        async move { Ok::<_, Infallible>(served.response().await) }
    });
    let io = TokioIo::new(server);
    let connection = tokio::spawn(http1::Builder::new().serve_connection(io, service));
    client.write_all(requests.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    connection.await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn on_the_wire_head_and_304_have_no_body_and_lengths_are_right() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    let etag = fixture.get("/a.txt").await.header(ETAG).unwrap().to_owned();
    let requests = format!(
        "HEAD /a.txt HTTP/1.1\r\nhost: x\r\n\r\nGET /a.txt HTTP/1.1\r\nhost: x\r\nif-none-match: {etag}\r\n\r\n\
         GET /a.txt HTTP/1.1\r\nhost: x\r\nrange: bytes=1-3\r\nconnection: close\r\n\r\n"
    );
    let answer = over_http1(&fixture.files, &requests).await;
    let answers: Vec<_> = answer.split("HTTP/1.1 ").skip(1).map(|one| one.split_once("\r\n\r\n").unwrap()).collect();
    let [(head, none), (not_modified, nothing), (part, content)] = answers[..] else { panic!("{answer}") };
    assert!(head.starts_with("200") && head.contains("content-length: 5\r\n"), "{head}");
    assert!(not_modified.starts_with("304") && !not_modified.contains("content-length"), "{not_modified}");
    assert!(part.starts_with("206") && part.contains("content-length: 3\r\n"), "{part}");
    assert_eq!((none, nothing, content), ("", "", "ell"));
}

#[tokio::test]
async fn on_the_wire_a_file_that_shrinks_cuts_the_connection_off() {
    let fixture = Fixture::with_cache(CacheConfig { capacity_bytes: 0, ..CacheConfig::default() }, |_| {});
    fixture.write("large", vec![b'x'; 4 << 20]);
    let path = fixture.path("large");
    let uri: Uri = "/large".parse().unwrap();
    let response = fixture.files.serve(&Method::GET, &uri, &HeaderMap::new()).response().await;
    let response = std::sync::Mutex::new(Some(response));
    let service = service_fn(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let io = TokioIo::new(server);
    let connection = tokio::spawn(http1::Builder::new().serve_connection(io, service));
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // The pipe holds only 1 MiB, so when the first bytes are here, part of the 4 MiB is still unread.
    let mut answer = vec![0; 1000];
    client.read_exact(&mut answer).await.unwrap();
    fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(connection.await.unwrap().is_err(), "the server knows");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-length: 4194304"), "{head}");
    assert!(body.len() < 4 << 20 && body.bytes().all(|byte| byte == b'x'), "nothing is made up: {}", body.len());
}

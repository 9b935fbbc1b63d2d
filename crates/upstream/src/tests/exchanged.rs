//! HTTP/1.1: the forwarded message, the answer, the connection used, and what is sent again.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Wake},
};

use bodies::{ClientBody, IncomingBody};
use http_body::Body as _;
use hyper::client::conn::http1;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_used_again() {
    let peer = Peer::echo_path().await;
    let (pools, upstreams) = pools(config(vec![at(peer.address)]));
    for path in ["/a", "/b", "/c"] {
        assert_eq!(asked(&pools, get(path)).await.unwrap(), (StatusCode::OK, path.to_owned()));
    }
    assert_eq!(asked(&pools, post("/d", "body")).await.unwrap().1, "/d");
    let head = Request::head("/e").body(RequestBody::Empty).unwrap();
    assert_eq!(asked(&pools, head).await.unwrap().1, "");
    assert_eq!(asked(&pools, get("/f")).await.unwrap().1, "/f");
    assert_eq!(peer.connections(), 1);
    let stats = server_stats(&upstreams).remove(0);
    assert_eq!((stats.requests, stats.failures, stats.in_flight, stats.connections), (6, 0, 0, 1));
    assert_eq!((stats.server.to_string(), stats.health), (peer.address.to_string(), Health::Healthy));
}

#[tokio::test]
async fn to_take_what_has_come_wakes_nobody() {
    #[derive(Default)]
    struct Woken(AtomicUsize, Notify);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
            self.1.notify_one();
        }
    }
    let peer = Peer::raw(|mut stream, _| async move {
        while read_head(&mut stream).await.is_some() {
            write(&mut stream, OK).await;
        }
    })
    .await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    let mut cx = Context::from_waker(&waker);
    let mut sent = Box::pin(pools.send(get("/"), defaults()));
    let answer = loop {
        match sent.as_mut().poll(&mut cx) {
            Poll::Ready(answer) => break answer.unwrap(),
            Poll::Pending => woken.1.notified().await,
        }
    };
    let (mut body, before) = (answer.response.into_body(), woken.0.load(Relaxed));
    let frame = Pin::new(&mut body).poll_frame(&mut cx);
    let Poll::Ready(Some(Ok(frame))) = frame else { panic!("{frame:?}") };
    assert_eq!(frame.data_ref().map(|data| &data[..]), Some(&b"ok"[..]));
    assert_eq!(woken.0.load(Relaxed), before);
}

#[tokio::test]
async fn unix_sockets() {
    let peer = Near::http(|request| async move {
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        Response::new(text(host))
    });
    let (pools, _) = pools(config(vec![peer.at()]));
    let answer = pools.send(get("/"), defaults()).await.unwrap();
    assert_eq!(*answer.server, format!("unix:{}", peer.path().display()));
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "localhost");
}

#[tokio::test]
async fn what_the_upstream_sees_byte_by_byte() {
    let (seen, mut heads) = mpsc::unbounded_channel();
    let peer = Peer::raw(move |mut stream, _| {
        let seen = seen.clone();
        async move {
            while let Some(head) = read_head(&mut stream).await {
                seen.send(head).unwrap();
                write(&mut stream, OK).await;
            }
        }
    })
    .await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    let mut heard = async |request: Request<RequestBody>| {
        asked(&pools, request).await.unwrap();
        let head = heads.recv().await.unwrap();
        let (line, rest) = head.split_once("\r\n").unwrap();
        let (fields, body) = rest.split_once("\r\n\r\n").unwrap();
        let ours = |field: &&str| !field.starts_with("x-forwarded") && !field.starts_with("forwarded");
        let mut fields: Vec<_> = fields.split("\r\n").filter(ours).collect();
        fields.sort_unstable();
        format!("{line}|{}|{body}", fields.join("|"))
    };
    let host = format!("host: {}|via: 1.1 serpent", peer.address);
    let lying = |body| {
        Request::post("/x")
            .header("content-length", "3")
            .header("transfer-encoding", "chunked")
            .header("connection", "content-length")
            .body(body)
            .unwrap()
    };
    assert_eq!(heard(get("/p?q=1")).await, format!("GET /p?q=1 HTTP/1.1|{host}|"));
    assert_eq!(heard(lying(whole("hello"))).await, format!("POST /x HTTP/1.1|content-length: 5|{host}|hello"));
    assert_eq!(heard(lying(RequestBody::Empty)).await, format!("POST /x HTTP/1.1|content-length: 0|{host}|"));
    assert_eq!(
        heard(Request::get("/g").body(whole("hello")).unwrap()).await,
        format!("GET /g HTTP/1.1|content-length: 5|{host}|hello")
    );
    let absolute = get("http://shop.example/abs");
    assert_eq!(heard(absolute).await, format!("GET /abs HTTP/1.1|{host}|"));
}

/// A client, a streaming gateway, and its upstream.
pub(super) async fn front(pools: Pools, body: TestBody, method: &str) -> hyper::Result<Response<Incoming>> {
    let (near, far) = tokio::io::duplex(1024);
    let pools = Arc::new(pools);
    let service = service_fn(move |request: Request<Incoming>| {
        let pools = pools.clone();
        async move {
            let request = request.map(|body| {
                let body = ClientBody::new(IncomingBody::new(body), None);
                RequestBody::streamed(body, u64::MAX)
            });
            match pools.send(request, defaults()).await {
                Ok(answer) => Ok(answer.response),
                Err(error) => Err(io::Error::other(error)),
            }
        }
    });
    tokio::spawn(async move {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service).await;
    });
    let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri("/")
        .header("host", "shop.example")
        .header("te", "trailers")
        .header("connection", "te")
        .header("transfer-encoding", "chunked")
        .header("trailer", "x-sum, x-forwarded-for")
        .body(body)
        .unwrap();
    sender.send_request(request).await
}

pub(super) fn channel_body() -> (mpsc::Sender<Result<http_body::Frame<Bytes>, io::Error>>, TestBody) {
    let (sender, mut receiver) = mpsc::channel(4);
    let frames = std::future::poll_fn(move |cx| receiver.poll_recv(cx));
    (sender, FnBody(Box::new(frames)).boxed_unsync())
}

struct FnBody<F>(Box<F>);

impl<F> http_body::Body for FnBody<F>
where
    F: Future<Output = Option<Result<http_body::Frame<Bytes>, io::Error>>> + Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
        std::pin::Pin::new(&mut *self.0).poll(cx)
    }
}

#[tokio::test]
async fn bodies_and_trailers_are_streamed_both_ways() {
    for method in ["POST", "GET"] {
        for two in [false, true] {
            // Answers with the request's body as it arrives.
            let peer = Peer::http(|request| async move {
                let te = request.headers().get("te").cloned();
                let body = request.into_body().map_err(io::Error::other).map_frame(|mut frame| {
                    if let Some(trailers) = frame.trailers_mut() {
                        assert_eq!(trailers.len(), 1, "{trailers:?}");
                        trailers.insert("x-real-ip", http::HeaderValue::from_static("10.0.0.1"));
                    }
                    frame
                });
                let mut response = Response::new(body.boxed_unsync());
                response.headers_mut().insert("trailer", http::HeaderValue::from_static("x-sum, x-real-ip"));
                response.headers_mut().insert("x-te", te.unwrap());
                response
            })
            .await;
            let server = if two { http2(at(peer.address)) } else { at(peer.address) };
            let (pools, upstreams) = pools(config(vec![server]));
            let (sender, body) = channel_body();
            sender.send(Ok(http_body::Frame::data(Bytes::from_static(b"one,")))).await.unwrap();
            let response = front(pools, body, method).await.unwrap();
            assert_eq!(response.headers()["x-te"], "trailers");
            let mut body = response.into_body();
            // The first part returns before the last has been sent.
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one,");
            sender.send(Ok(http_body::Frame::data(Bytes::from_static(b"two")))).await.unwrap();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "two");
            let trailers = ["x-sum", "x-forwarded-for"]
                .map(|name| (http::HeaderName::from_static(name), http::HeaderValue::from_static("7")));
            sender.send(Ok(http_body::Frame::trailers(trailers.into_iter().collect()))).await.unwrap();
            drop(sender);
            let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!((trailers.len(), trailers["x-sum"].as_bytes()), (1, b"7".as_slice()), "{method} {two}");
            assert!(body.frame().await.is_none());
            until("the request is over", || server_stats(&upstreams)[0].in_flight == 0).await;
        }
    }
}

#[tokio::test]
async fn trailers_of_which_nothing_is_left_are_an_end() {
    for two in [false, true] {
        let peer = Peer::http(|request| async move {
            let whole = request.into_body().collect().await.unwrap();
            let trailers = whole.trailers().map_or(0, http::HeaderMap::len);
            let trailer = (http::header::VIA, http::HeaderValue::from_static("1.1 fred"));
            let frames = [
                http_body::Frame::data(Bytes::from(trailers.to_string())),
                http_body::Frame::trailers([trailer].into_iter().collect()),
            ];
            let (sender, body) = channel_body();
            for frame in frames {
                sender.send(Ok(frame)).await.unwrap();
            }
            let mut response = Response::new(body);
            response.headers_mut().insert("trailer", http::HeaderValue::from_static("via"));
            response
        })
        .await;
        let server = if two { http2(at(peer.address)) } else { at(peer.address) };
        let (pools, upstreams) = pools(config(vec![server]));
        for _ in 0..2 {
            let (sender, body) = channel_body();
            let trailer = (http::HeaderName::from_static("x-forwarded-for"), http::HeaderValue::from_static("7"));
            sender.send(Ok(http_body::Frame::trailers([trailer].into_iter().collect()))).await.unwrap();
            drop(sender);
            let response = front(Pools(pools.0.clone()), body, "POST").await.unwrap();
            let whole = response.into_body().collect().await.unwrap();
            assert!(whole.trailers().is_none(), "{two}");
            assert_eq!(whole.to_bytes(), "0", "{two}");
            until("the request is over", || server_stats(&upstreams)[0].in_flight == 0).await;
        }
        assert_eq!(server_stats(&upstreams)[0].failures, 0);
    }
}

#[tokio::test]
async fn a_request_that_goes_round_in_a_circle_is_stopped() {
    let peer = Peer::echo_path().await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    let through = |times: usize| {
        Request::get("/").header("via", vec!["1.1 serpent"; times].join(", ")).body(RequestBody::Empty).unwrap()
    };
    assert_eq!(asked(&pools, through(8)).await.unwrap().1, "/");
    let error = asked(&pools, through(9)).await.unwrap_err();
    assert_eq!((error.reason(), error.status()), ("loop", StatusCode::LOOP_DETECTED));
    assert_eq!(
        error.to_string(),
        "upstream `app` leads back here: by its Via, the request has come through here 9 times"
    );
}

#[tokio::test]
async fn a_client_that_breaks_off_is_not_the_upstreams_fault() {
    let peer = Peer::http(|request| async move {
        let _ = request.into_body().collect().await;
        Response::new(text("never"))
    })
    .await;
    let (pools, upstreams) = pools(config(vec![at(peer.address)]));
    let (sender, body) = channel_body();
    sender.send(Ok(http_body::Frame::data(Bytes::from_static(b"one,")))).await.unwrap();
    let asking = tokio::spawn(front(pools, body, "POST"));
    until("it is connected", || peer.connections() == 1).await;
    sender.send(Err(io::ErrorKind::BrokenPipe.into())).await.unwrap();
    assert!(asking.await.unwrap().is_err());
    until("the request is over", || server_stats(&upstreams)[0].in_flight == 0).await;
    let stats = server_stats(&upstreams).remove(0);
    assert_eq!((stats.requests, stats.failures), (1, 0));
}

#[tokio::test]
async fn an_upstream_that_reads_nothing_holds_the_client_back() {
    let go = Arc::new(Notify::new());
    let gone = go.clone();
    let peer = Peer::http(move |request| {
        let go = gone.clone();
        async move {
            go.notified().await;
            let read = request.into_body().collect().await.unwrap().to_bytes().len();
            Response::new(text(read.to_string()))
        }
    })
    .await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    let (sender, body) = channel_body();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    const PIECE: usize = 64 * 1024;
    const ALL: usize = 1024 * PIECE;
    let pouring = tokio::spawn(async move {
        while counted.load(SeqCst) < ALL {
            sender.send(Ok(http_body::Frame::data(vec![b'x'; PIECE].into()))).await.unwrap();
            counted.fetch_add(PIECE, SeqCst);
        }
    });
    let answer = tokio::spawn(front(pools, body, "POST"));
    // The transfer stops by itself, though there is more to send.
    let (mut last, mut still) = (0, 0);
    while still < 2000 {
        tokio::task::yield_now().await;
        let now = sent.load(SeqCst);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
    }
    assert!(last < ALL / 2, "{last} bytes were taken of a client that nobody listens to");
    go.notify_one();
    let body = answer.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, ALL.to_string());
    pouring.await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_the_upstream_back() {
    for two in [false, true] {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let peer = Peer::http(move |_| {
            let made = counted.clone();
            async move {
                let frames = std::future::poll_fn(move |_| {
                    let made = made.fetch_add(64 * 1024, SeqCst);
                    let more = made < 64 * 1024 * 1024;
                    std::task::Poll::Ready(more.then(|| Ok(http_body::Frame::data(vec![b'x'; 64 * 1024].into()))))
                });
                Response::new(FnBody(Box::new(frames)).boxed_unsync())
            }
        })
        .await;
        let server = if two { http2(at(peer.address)) } else { at(peer.address) };
        let (pools, _) = pools(config(vec![server]));
        let answer = pools.send(get("/"), defaults()).await.unwrap();
        let (mut last, mut still) = (0, 0);
        while still < 2000 {
            tokio::task::yield_now().await;
            let now = made.load(SeqCst);
            still = if now == last && now > 0 { still + 1 } else { 0 };
            last = now;
        }
        assert!(last < 32 * 1024 * 1024, "{last} bytes were made for a client that reads nothing");
        let whole = answer.response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 64 * 1024 * 1024);
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_nobody_a_request() {
    let peer = Peer::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        write(&mut stream, OK).await;
        // The server closes the connection although it was to be kept.
    })
    .await;
    let (pools, upstreams) = pools(UpstreamConfig { retries: 0, ..config(vec![at(peer.address)]) });
    for number in 1..=4 {
        let request = if number % 2 == 0 { post("/", "body") } else { get("/") };
        asked(&pools, request).await.unwrap();
        assert_eq!(peer.connections(), number);
        until("its end is seen", || server_stats(&upstreams)[0].connections == 0).await;
    }
    assert_eq!(server_stats(&upstreams)[0].failures, 0);
}

/// On the first connection, answers one request and closes after reading the next. On later connections,
/// answers everything.
async fn breaks_on_second() -> (Peer, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let peer = Peer::raw(move |mut stream, number| {
        let seen = noted.clone();
        async move {
            let mut answered = 0;
            while let Some(head) = read_head(&mut stream).await {
                seen.lock().push(head.split(" HTTP").next().unwrap().to_owned());
                if number == 0 && answered == 1 {
                    return;
                }
                write(&mut stream, OK).await;
                answered += 1;
            }
        }
    })
    .await;
    (peer, seen)
}

#[tokio::test]
async fn what_is_idempotent_is_sent_again_when_a_kept_connection_breaks() {
    for request in [get("/again"), Request::put("/again").body(whole("body")).unwrap()] {
        let (peer, seen) = breaks_on_second().await;
        let (pools, upstreams) = pools(config(vec![at(peer.address)]));
        asked(&pools, get("/first")).await.unwrap();
        let line = format!("{} /again", request.method());
        asked(&pools, request).await.unwrap();
        assert_eq!(*seen.lock(), ["GET /first", &line, &line]);
        let stats = upstreams.stats().remove(0);
        assert_eq!((stats.retries, stats.servers[0].failures), (1, 0));
    }
}

#[tokio::test]
async fn what_may_have_been_done_is_not_done_twice() {
    let (peer, seen) = breaks_on_second().await;
    let (pools, upstreams) = pools(UpstreamConfig { retries: 5, ..config(vec![at(peer.address)]) });
    asked(&pools, get("/first")).await.unwrap();
    assert_eq!(reason(&pools, post("/pay", "100")).await, "closed");
    assert_eq!(*seen.lock(), ["GET /first", "POST /pay"]);
    assert_eq!(server_stats(&upstreams)[0].failures, 1);
    // Without retries, nothing is sent again.
    let (peer, seen) = breaks_on_second().await;
    let (pools, _) = super::pools(UpstreamConfig { retries: 0, ..config(vec![at(peer.address)]) });
    asked(&pools, get("/first")).await.unwrap();
    assert_eq!(reason(&pools, get("/second")).await, "closed");
    assert_eq!(seen.lock().len(), 2);
}

#[tokio::test]
async fn another_server_is_tried_at_most_so_often() {
    let broken = |seen: Arc<AtomicUsize>| {
        Peer::raw(move |mut stream, _| {
            let seen = seen.clone();
            async move {
                read_head(&mut stream).await;
                seen.fetch_add(1, SeqCst);
            }
        })
    };
    let seen = Arc::new(AtomicUsize::new(0));
    let (one, two, three) = (broken(seen.clone()).await, broken(seen.clone()).await, broken(seen.clone()).await);
    let servers = vec![at(one.address), at(two.address), at(three.address)];
    let (pools, _) = pools(UpstreamConfig { retries: 1, ..config(servers) });
    assert_eq!(reason(&pools, get("/")).await, "closed");
    assert_eq!(seen.load(SeqCst), 2);
    assert_eq!(reason(&pools, post("/", "x")).await, "closed");
    assert_eq!(seen.load(SeqCst), 3);
}

#[tokio::test]
async fn nothing_is_sent_again_once_an_answer_has_begun() {
    let heads = Arc::new(AtomicUsize::new(0));
    let counted = heads.clone();
    let peer = Peer::raw(move |mut stream, _| {
        let heads = counted.clone();
        async move {
            read_head(&mut stream).await;
            heads.fetch_add(1, SeqCst);
            write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this").await;
        }
    })
    .await;
    let (pools, upstreams) = pools(UpstreamConfig { retries: 5, ..config(vec![at(peer.address)]) });
    let answer = pools.send(get("/"), defaults()).await.unwrap();
    let error = UpstreamError::of_body(answer.response.into_body().collect().await.unwrap_err());
    assert_eq!((error.reason(), error.status().as_u16()), ("closed", 502));
    assert!(error.to_string().contains(&peer.address.to_string()), "{error}");
    assert_eq!(heads.load(SeqCst), 1);
    assert_eq!(server_stats(&upstreams)[0].failures, 1);
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_whole() {
    let peer = Peer::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        write(&mut stream, "HTTP/1.1 200 OK\r\n\r\nto the end").await;
    })
    .await;
    let (pools, upstreams) = pools(config(vec![at(peer.address)]));
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "to the end");
    until("it is closed", || server_stats(&upstreams)[0].connections == 0).await;
    assert_eq!(server_stats(&upstreams)[0].failures, 0);
}

#[tokio::test]
async fn what_is_not_http_is_told_apart() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(500));
    let interims = "HTTP/1.1 102 Processing\r\n\r\n".repeat(101) + OK;
    let hints = long.replace("200 OK", "103 Early Hints") + OK;
    let table: &[(&str, &str)] = &[
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxy", "malformed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\n\r\n", "malformed"),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "switched"),
        (&long, "head_too_large"),
        (&interims, "too_many_interims"),
        (&hints, "too_many_interims"),
        (&many, "head_too_large"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nxyz", "malformed"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "malformed"),
        ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "malformed"),
        ("", "closed"),
        ("HTTP/1.1 200", "closed"),
    ];
    for (bytes, expected) in table {
        let bytes = (*bytes).to_owned();
        let peer = Peer::raw(move |mut stream, _| {
            let bytes = bytes.clone();
            async move {
                read_head(&mut stream).await;
                let _ = stream.write_all(bytes.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        })
        .await;
        let (pools, upstreams) = pools(UpstreamConfig { retries: 0, ..config(vec![at(peer.address)]) });
        assert_eq!(reason(&pools, get("/")).await, *expected);
        assert_eq!(server_stats(&upstreams)[0].failures, 1);
    }
}

/// The interim answers passed to the caller, and the answer.
async fn told(pools: &Pools, request: Request<RequestBody>) -> (Vec<String>, Result<String, &'static str>) {
    let mut told = Vec::new();
    let answer = pools
        .pass(pools.prepare(request.into(), defaults(), Instant::now()).unwrap(), &mut |interim| {
            let fields = interim.headers().iter().map(|(name, value)| format!(" {name}={}", value.to_str().unwrap()));
            told.push(interim.status().as_str().to_owned() + &fields.collect::<String>());
        })
        .await;
    let body = match answer {
        Ok(answer) => Ok(answer.response.into_body().collect().await.unwrap().to_bytes()),
        Err(error) => Err(error.reason()),
    };
    (told, body.map(|body| String::from_utf8(body.to_vec()).unwrap()))
}

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: x\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";

#[tokio::test]
async fn interim_answers_are_told_of_but_for_those_that_we_asked_for() {
    let peer = Peer::raw(|mut stream, _| async move {
        // The second request uses the same connection.
        for interims in [&format!("HTTP/1.1 100 Continue\r\n\r\n{HINTS}HTTP/1.1 102\r\n\r\n"), HINTS, ""] {
            read_head(&mut stream).await;
            write(&mut stream, &format!("{interims}{OK}")).await;
        }
        read_head(&mut stream).await;
    })
    .await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    let ok = || Ok("ok".to_owned());
    assert_eq!(told(&pools, post("/", "x")).await, (vec!["103 link=x".to_owned(), "102".to_owned()], ok()));
    assert_eq!(told(&pools, get("/")).await, (vec!["103 link=x".to_owned()], ok()));
    assert_eq!(told(&pools, get("/")).await, (vec![], ok()));
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn an_interim_answer_is_no_answer() {
    let peer = Peer::raw(|mut stream, number| async move {
        if number == 0 {
            read_head(&mut stream).await;
            write(&mut stream, OK).await;
        }
        read_head(&mut stream).await;
        write(&mut stream, HINTS).await;
        if number > 0 {
            write(&mut stream, OK).await;
            read_head(&mut stream).await;
        }
    })
    .await;
    let (pools, _) = pools(UpstreamConfig { retries: 1, ..config(vec![at(peer.address)]) });
    let hints = || "103 link=x".to_owned();
    assert_eq!(told(&pools, get("/")).await, (vec![], Ok("ok".to_owned())));
    assert_eq!(told(&pools, get("/")).await, (vec![hints(), hints()], Ok("ok".to_owned())), "it is asked again");
    assert_eq!(peer.connections(), 2);
    let broken = Peer::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        write(&mut stream, &format!("{HINTS}HTTP/1.1 1")).await;
    })
    .await;
    let (pools, _) = super::pools(UpstreamConfig { retries: 0, ..config(vec![at(broken.address)]) });
    assert_eq!(told(&pools, get("/")).await, (vec![hints()], Err("closed")));
}

#[tokio::test]
async fn a_body_that_is_not_read_to_its_end_closes_the_connection() {
    let closed = Arc::new(Notify::new());
    let told = closed.clone();
    let peer = Peer::raw(move |mut stream, _| {
        let closed = told.clone();
        async move {
            read_head(&mut stream).await;
            write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart").await;
            while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
            closed.notify_one();
        }
    })
    .await;
    let (pools, upstreams) = pools(config(vec![at(peer.address)]));
    let answer = pools.send(get("/"), defaults()).await.unwrap();
    assert_eq!(server_stats(&upstreams)[0].in_flight, 1);
    drop(answer);
    closed.notified().await;
    until("it is closed", || server_stats(&upstreams)[0].connections == 0).await;
    assert_eq!((server_stats(&upstreams)[0].in_flight, server_stats(&upstreams)[0].failures), (0, 0));
    // The same if the answer is not awaited.
    let hanging = Peer::raw(|mut stream, _| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let (pools, upstreams) = super::pools(config(vec![at(hanging.address)]));
    let sending = tokio::spawn(async move { asked(&pools, get("/")).await });
    until("it is connected", || hanging.connections() == 1).await;
    sending.abort();
    until("it is closed", || server_stats(&upstreams)[0].connections == 0).await;
    assert_eq!(server_stats(&upstreams)[0].in_flight, 0);
}

#[tokio::test]
async fn an_answer_before_the_request_is_whole_ends_the_connection() {
    let peer = Peer::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        write(&mut stream, "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let (pools, upstreams) = pools(config(vec![at(peer.address)]));
    let (_sender, body) = channel_body();
    let response = front(pools, body, "POST").await.unwrap();
    assert_eq!(response.status().as_u16(), 413);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
    until("it is closed", || server_stats(&upstreams)[0].connections == 0).await;
}

#[tokio::test]
async fn protocols_change_and_the_connection_is_passed_on() {
    let peer = Peer::raw(|mut stream, _| async move {
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.contains("upgrade: echo\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
        if head.starts_with("GET /no") {
            write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno").await;
            return;
        }
        write(&mut stream, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhi ").await;
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    })
    .await;
    let (pools, upstreams) = pools(config(vec![at(peer.address)]));
    let upgrade = |path: &str| {
        Request::get(path).header("connection", "Upgrade").header("upgrade", "echo").body(RequestBody::Empty).unwrap()
    };
    let answer = pools.send(upgrade("/yes"), defaults()).await.unwrap();
    assert_eq!(answer.response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.response.headers()["upgrade"], "echo");
    assert!(answer.response.body().is_end_stream());
    let mut stream = answer.upgraded.unwrap();
    write(&mut stream, "there").await;
    let mut echoed = [0; 8];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hi there");
    let stats = server_stats(&upstreams).remove(0);
    assert_eq!((stats.in_flight, stats.connections), (1, 1));
    drop(stream);
    until("it is closed", || server_stats(&upstreams)[0].connections == 0).await;
    assert_eq!(server_stats(&upstreams)[0].in_flight, 0);

    let answer = pools.send(upgrade("/no"), defaults()).await.unwrap();
    assert!(answer.upgraded.is_none());
    assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "no");
}

#[tokio::test]
async fn there_are_no_more_connections_than_allowed() {
    let go = Arc::new(Notify::new());
    let gone = go.clone();
    let peer = Peer::http(move |request| {
        let go = gone.clone();
        async move {
            if request.uri().path() == "/wait" {
                go.notified().await;
            }
            Response::new(text("ok"))
        }
    })
    .await;
    let most = UpstreamConfig { most_connections: std::num::NonZeroU32::new(1), ..config(vec![at(peer.address)]) };
    let (pools, upstreams) = pools(most);
    let other_thread = Pools::new(upstreams.clone());
    let pools = Arc::new(pools);
    let waiting = pools.clone();
    let waiting = tokio::spawn(async move { asked(&waiting, get("/wait")).await });
    until("it is connected", || peer.connections() == 1).await;
    assert_eq!(reason(&pools, get("/")).await, "full");
    assert_eq!(reason(&other_thread, get("/")).await, "full");
    assert_eq!(upstreams.stats()[0].unserved, 2);
    go.notify_one();
    waiting.await.unwrap().unwrap();
    // Idle connections of one thread do not lock out another.
    asked(&other_thread, get("/")).await.unwrap();
    asked(&pools, get("/")).await.unwrap();
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn the_least_busy_server_has_the_request() {
    let go = Arc::new(Notify::new());
    let server = |name: &'static str, go: Arc<Notify>| {
        Peer::http(move |request| {
            let go = go.clone();
            async move {
                if request.uri().path() == "/wait" {
                    go.notified().await;
                }
                Response::new(text(name))
            }
        })
    };
    let (one, two) = (server("one", go.clone()).await, server("two", go.clone()).await);
    let (pools, upstreams) = pools(config(vec![at(one.address), at(two.address)]));
    let pools = Arc::new(pools);
    let waiting = pools.clone();
    let waiting = tokio::spawn(async move { asked(&waiting, get("/wait")).await });
    until("one is busy", || server_stats(&upstreams).iter().any(|server| server.in_flight == 1)).await;
    let busy = server_stats(&upstreams).iter().position(|server| server.in_flight == 1).unwrap();
    for _ in 0..6 {
        assert_eq!(asked(&pools, get("/")).await.unwrap().1, ["two", "one"][busy]);
    }
    go.notify_one();
    assert_eq!(waiting.await.unwrap().unwrap().1, ["one", "two"][busy]);
    let mut seen: Vec<_> = Vec::new();
    for _ in 0..6 {
        seen.push(asked(&pools, get("/")).await.unwrap().1);
    }
    assert_eq!(seen.iter().filter(|name| *name == "one").count(), 3, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_what_is_anothers() {
    for two in [false, true] {
        let peer = Peer::http(|request| async move {
            let (path, te) = (request.uri().path().to_owned(), request.headers().get("x-mine").cloned());
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let mut response = Response::new(text([path.as_bytes(), b"|", &body].concat()));
            response.headers_mut().extend(te.map(|te| (http::HeaderName::from_static("x-mine"), te)));
            response
        })
        .await;
        let server = if two { http2(at(peer.address)) } else { at(peer.address) };
        let (pools, upstreams) = pools(config(vec![server]));
        let pools = Arc::new(pools);
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..32_usize {
            let pools = pools.clone();
            clients.spawn(async move {
                for number in 0..40_usize {
                    let mine = format!("{client}-{number}");
                    let body = mine.repeat(1 + (client * 31 + number * 17) % 3000);
                    let request = Request::post(format!("/{mine}")).header("x-mine", &mine);
                    let answer = pools.send(request.body(whole(body.clone())).unwrap(), defaults()).await.unwrap();
                    assert_eq!(answer.response.headers()["x-mine"], *mine);
                    if number % 7 == 3 {
                        continue;
                    }
                    let whole = answer.response.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(whole, format!("/{mine}|{body}"));
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        let stats = server_stats(&upstreams).remove(0);
        assert_eq!((stats.requests, stats.failures, stats.in_flight), (32 * 40, 0, 0));
    }
}

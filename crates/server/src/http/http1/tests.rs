use std::sync::Arc;

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::{frames::Frames, *};
use crate::{
    body::{IncomingBody, OriginBody, full},
    upstream::Interim,
};

const LIMITS: HeadLimits = HeadLimits { head_bytes: 500, fields: 10 };
const PATIENCE: Patience = Patience { head: Duration::from_secs(10), idle: Duration::from_secs(60) };
const GET: &str = "GET /get HTTP/1.1\r\nHost: a\r\n\r\n";

fn post(path: &str, more: &str, body: &str) -> String {
    let length =
        if more.contains("Transfer-Encoding") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{length}{more}\r\n{body}")
}

fn chunked(path: &str, body: &str) -> String {
    post(path, "Transfer-Encoding: chunked\r\n", body)
}

type Tested = Session<DuplexStream, OriginBody>;

/// Both ends of a connection that takes so many bytes at a time.
fn connected(bytes: usize) -> (DuplexStream, Tested) {
    let (client, server) = duplex(bytes);
    (client, Session::new(server, LIMITS, PATIENCE, CancellationToken::new()))
}

/// Answers everything with a body that says what was asked; what cannot be understood with the status it is refused with.
async fn serve(mut session: Tested) {
    let answer = |head: Box<Parts>, body| {
        Box::pin(async move {
            let path = head.uri.path().to_owned();
            if path == "/unread" {
                return Response::new(full("unread"));
            }
            let said = match IncomingBody::from(body).collect().await {
                Ok(body) => {
                    let trailers = body.trailers().map(|trailers| format!(" {trailers:?}")).unwrap_or_default();
                    format!("{path} {}{trailers}", String::from_utf8_lossy(&body.to_bytes()))
                }
                Err(error) => format!("{path} {:?}", error.kind()),
            };
            Response::new(full(said))
        })
    };
    let refuse = |refused: Refused| {
        let line = String::from_utf8_lossy(&refused.line).into_owned();
        let mut response = Response::new(full(if refused.is_head { String::new() } else { line }));
        *response.status_mut() = refused.status;
        response
    };
    session.serve(&Interims::default(), answer, refuse).await;
    poll_fn(|cx| session.poll_close(cx)).await;
}

/// The responses to a client that sends `sent`, in pieces of `bytes` bytes, and closes its side.
async fn got_in(sent: &str, bytes: usize) -> String {
    let (client, session) = connected(bytes);
    let (mut reader, mut writer) = tokio::io::split(client);
    let mut got = Vec::new();
    let (_, read, _) = tokio::join!(serve(session), reader.read_to_end(&mut got), async {
        writer.write_all(sent.as_bytes()).await?;
        writer.shutdown().await
    });
    read.unwrap();
    String::from_utf8(got).unwrap()
}

/// Status and body of each response, whatever pieces the bytes come in.
async fn got(sent: &str) -> Vec<String> {
    let whole = outline(&got_in(sent, 1 << 16).await);
    for bytes in [1, 2, 3, 7, 50] {
        assert_eq!(outline(&got_in(sent, bytes).await), whole, "pieces of {bytes}");
    }
    whole
}

fn outline(mut got: &str) -> Vec<String> {
    let mut found = Vec::new();
    while let Some((head, rest)) = got.split_once("\r\n\r\n") {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let close = if head.contains("connection: close") { " close" } else { "" };
        found.push(format!("{}{close}: {}", &head[9..12], &rest[..length]));
        got = &rest[length..];
    }
    assert_eq!(got, "");
    found
}

#[tokio::test]
async fn one_request_follows_the_other_whatever_their_bodies() {
    let sent = [
        GET,
        &post("/length", "", "GET / HTTP/1.1"),
        &chunked("/chunks", "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"),
        "\r\n",
        &post("/none", "", ""),
        "GET /last HTTP/1.0\r\n\r\n",
        GET,
    ]
    .concat();
    let expected = [
        "200: /get ",
        "200: /length GET / HTTP/1.1",
        "200: /chunks abcde {\"t\": \"1\"}",
        "200: /none ",
        "200: /last ",
    ];
    assert_eq!(got(&sent).await, expected);
}

#[tokio::test]
async fn a_refused_head_ends_the_connection_after_those_before_it() {
    let sent = format!("{GET}GET /\u{e9} HTTP/1.1\r\n\r\n{GET}");
    assert_eq!(got(&sent).await, ["200: /get ", "400 close: GET /é HTTP/1.1"]);
    assert_eq!(got("HEAD /  HTTP/1.1\r\n\r\n").await, ["400 close: "]);
    assert_eq!(got("GET /get HT").await, [""; 0], "one that breaks off has nobody to answer to");
}

#[tokio::test]
async fn what_is_wrong_with_a_body_ends_the_connection() {
    for body in ["\r\n", "1\n", "1\r\nab\r\n", "1\r\na\n", "0\r\n\n", "0\r\nno field\r\n\r\n"] {
        let sent = chunked("/chunks", body) + GET;
        assert_eq!(got(&sent).await, ["200: /chunks InvalidData"], "{body:?}");
    }
    let cut = post("/length", "", "all of it").replace(" it", "");
    assert_eq!(got(&cut).await, ["200: /length UnexpectedEof"]);
    let long = "x".repeat(100_000);
    assert_eq!(got(&(post("/unread", "", &long) + GET)).await, ["200: unread"], "what is left is no request");
}

#[tokio::test]
async fn the_client_says_whether_the_connection_stays() {
    let get = |version: &str, connection: &str| {
        format!("GET /a HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n")
    };
    for (version, connection, stays, said) in [
        ("1.1", "x", true, None),
        ("1.1", "x, Close", false, Some("close")),
        ("1.1", "keep-alive", true, None),
        ("1.0", "x", false, None),
        ("1.0", "x, Keep-Alive", true, Some("keep-alive")),
        ("1.0", "keep-alive, close", false, None),
    ] {
        let got = got_in(&(get(version, connection) + GET), 1 << 16).await;
        assert_eq!(got.matches("HTTP/1.").count(), if stays { 2 } else { 1 }, "{version} {connection}: {got}");
        let (head, _) = got.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/{version} 200 OK\r\n")), "{head}");
        assert_eq!(
            head.lines().find_map(|line| line.strip_prefix("connection: ")),
            said,
            "{version} {connection}: {got}"
        );
    }
}

#[tokio::test]
async fn who_waits_with_a_body_is_asked_for_it_when_somebody_wants_it() {
    let (mut client, session) = connected(1 << 16);
    let serving = tokio::spawn(serve(session));
    let head =
        |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
    client.write_all(head("/wanted").as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    client.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    // A client that sends it with the head has not waited. A body that is not wanted is not asked for.
    client.write_all(format!("ok{}ok{}", head("/sent"), head("/unread")).as_bytes()).await.unwrap();
    let mut got = String::new();
    client.read_to_string(&mut got).await.unwrap();
    assert_eq!(outline(&got), ["200: /wanted ok", "200: /sent ok", "200: unread"]);
    drop(client);
    serving.await.unwrap();
}

/// Serves with an answer that another task works out, as origins behind HTTP/2 and programs do: it reads the body, and
/// tells of each piece.
async fn serve_in_another_task(mut session: Tested, taken: tokio::sync::mpsc::UnboundedSender<usize>) {
    let answer = |_, body: Option<Upload>| {
        let (taken, mut body) = (taken.clone(), IncomingBody::from(body));
        let working = tokio::spawn(async move {
            let mut len = 0;
            while let Some(frame) = body.frame().await {
                len += frame.unwrap().into_data().unwrap().len();
                taken.send(len).unwrap();
            }
            Response::new(full(len.to_string()))
        });
        Box::pin(async move { working.await.unwrap() })
    };
    session.serve(&Interims::default(), answer, |refused| panic!("{refused:?}")).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_as_soon_as_another_task_asks_for_it() {
    let (mut client, session) = connected(1 << 16);
    let (sender, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let serving = tokio::spawn(serve_in_another_task(session, sender));
    let start = Instant::now();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    for sent in 1..=20 {
        client.write_all(b"1\r\nx\r\n").await.unwrap();
        // Only an event that comes by itself can end a wait: the clock would jump to it.
        let got = tokio::time::timeout(Duration::from_secs(3600), taken.recv()).await;
        assert_eq!(got, Ok(Some(sent)), "nobody reads the body");
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(client);
    serving.await.unwrap();
}

/// A body without bytes, which ends when it is told.
struct Until(tokio::sync::oneshot::Receiver<()>);

impl Body for Until {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.0).poll(cx).map(|_| None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_for_another_task_while_the_response_is_sent() {
    let (mut client, mut session) = connected(1 << 16);
    let (sender, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        let answer = |_, body: Option<Upload>| {
            let (taken, mut body) = (sender.clone(), IncomingBody::from(body));
            let (relay, relayed) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let mut len = 0;
                while let Some(frame) = body.frame().await {
                    len += frame.unwrap().into_data().unwrap().len();
                    taken.send(len).unwrap();
                }
                let _ = relay.send(());
            });
            // The head goes at once, the body's end when the request's body is at its end.
            std::future::ready(Response::new(Until(relayed).boxed_unsync()))
        };
        session.serve(&Interims::default(), answer, |refused| panic!("{refused:?}")).await;
    });
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").await.unwrap();
    client.read_exact(&mut [0; 15]).await.unwrap();
    for sent in 1..=5 {
        client.write_all(b"x").await.unwrap();
        let got = tokio::time::timeout(Duration::from_secs(3600), taken.recv()).await;
        assert_eq!(got, Ok(Some(sent)), "nobody reads the body");
    }
    drop(client);
    serving.await.unwrap();
}

#[tokio::test]
async fn within_a_response_no_client_is_asked_for_its_body() {
    let (mut client, mut session) = connected(1 << 16);
    let serving = tokio::spawn(async move {
        // The response has begun before the first look at the request's body.
        let answer = |_, body: Option<Upload>| std::future::ready(Response::new(body.unwrap().boxed_unsync()));
        session.serve(&Interims::default(), answer, |refused| panic!("{refused:?}")).await;
    });
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").await.unwrap();
    let mut got = vec![0; 15];
    client.read_exact(&mut got).await.unwrap();
    client.write_all(b"ok").await.unwrap();
    client.shutdown().await.unwrap();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(outline(&String::from_utf8(got).unwrap()), ["200: ok"]);
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_has_an_end() {
    for (sent, seconds, answers) in [
        ("", 10, &[][..]),
        ("GET / HT", 10, &["408 close: GET / HT"]),
        ("PRI * HTT", 10, &["408 close: PRI * HTT"]),
        (GET, 60, &["200: /get "]),
        (&format!("{GET}GET"), 10, &["200: /get ", "408 close: GET"]),
    ] {
        let (mut client, session) = connected(1 << 16);
        let start = Instant::now();
        tokio::spawn(async move {
            let mut session = session;
            if poll_fn(|cx| session.poll_protocol(cx)).await == Some(Protocol::Http1) {
                serve(session).await;
            }
        });
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), seconds, "{sent:?}");
        assert_eq!(outline(&got), answers, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_time_for_what_has_just_been_sent() {
    for (sent, ms) in [("", 2000), (GET, 50), ("GET / HT", 9000)] {
        let (mut client, server) = duplex(1 << 16);
        let drain = CancellationToken::new();
        let session = Session::new(server, LIMITS, PATIENCE, drain.clone());
        let serving = tokio::spawn({
            let drain = drain.clone();
            async move {
                // As it is in the server: the task is woken, and the session looks.
                let woken = async {
                    drain.cancelled().await;
                    std::future::pending::<()>().await;
                };
                tokio::select! { () = serve(session) => {}, () = woken => {} }
            }
        });
        client.write_all(sent.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = Instant::now();
        drain.cancel();
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        assert_eq!(start.elapsed().as_millis(), ms, "{sent:?}");
        drop(client);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn what_follows_an_upgrade_waits_for_the_answer() {
    let ask = "GET /get HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";
    assert_eq!(got(&format!("{ask}{GET}")).await, ["200: /get ", "200: /get "], "it was not made");
    let (mut client, mut session) = connected(1 << 16);
    client.write_all(format!("{ask}\u{1}not HTTP").as_bytes()).await.unwrap();
    let answer = |_, _| {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        std::future::ready(response)
    };
    session.serve(&Interims::default(), answer, |_| Response::new(full(""))).await;
    assert_eq!(session.into_parts().1, "\u{1}not HTTP");
}

/// The head of a response without its date, and what comes behind it.
async fn response(request: &str, response: Response<Frames>) -> (Vec<String>, String) {
    let (mut client, server) = duplex(1 << 16);
    let mut session = Session::new(server, LIMITS, PATIENCE, CancellationToken::new());
    client.write_all(format!("{request}Host: a\r\n\r\n").as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let what = format!("{:?}", response.headers());
    let mut response = Some(response);
    let answer = |_, _| std::future::ready(response.take().unwrap());
    session.serve(&Interims::default(), answer, |refused| panic!("{refused:?}")).await;
    drop(session);
    let mut got = String::new();
    client.read_to_string(&mut got).await.unwrap();
    let (head, body) = got.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request:?} {what:?} {got:?}"));
    let (dates, head): (Vec<_>, Vec<_>) = head.lines().map(str::to_owned).partition(|line| line.starts_with("date: "));
    assert_eq!(dates.len(), 1, "{got}");
    (head, body.to_owned())
}

#[tokio::test]
async fn a_response_is_framed_as_its_client_understands() {
    let get = "GET / HTTP/1.1\r\n";
    let old = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n";
    let head = "HEAD / HTTP/1.1\r\n";
    let welcome = "GET / HTTP/1.1\r\nTE: gzip, Trailers;q=1\r\n";
    let length = ("content-length", "2");
    let trailers = || {
        let trailers = [("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect();
        Frames::data(&["ok"]).and(Ok(Frame::trailers(trailers)))
    };
    let ok = || Frames::data(&["ok"]);
    for (asked, status, fields, body, said, sent) in [
        (get, 200, &[length][..], ok(), &["content-length: 2"][..], "ok"),
        (
            get,
            200,
            &[("x", "1"), ("transfer-encoding", "x")],
            ok(),
            &["x: 1", "transfer-encoding: chunked"],
            "2\r\nok\r\n0\r\n\r\n",
        ),
        (
            get,
            200,
            &[],
            Frames::data(&["o", "", "k"]),
            &["transfer-encoding: chunked"],
            "1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        ),
        (get, 200, &[], trailers(), &["transfer-encoding: chunked"], "2\r\nok\r\n0\r\n\r\n"),
        (welcome, 200, &[], trailers(), &["transfer-encoding: chunked"], "2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"),
        (get, 200, &[], Frames::default(), &["content-length: 0"], ""),
        (get, 204, &[length], ok(), &[], ""),
        (get, 304, &[length], ok(), &["content-length: 2"], ""),
        (get, 304, &[], Frames::default(), &[], ""),
        (head, 200, &[length], ok(), &["content-length: 2"], ""),
        (head, 200, &[], ok(), &[], ""),
        (old, 200, &[length], ok(), &["content-length: 2", "connection: keep-alive"], "ok"),
        (old, 200, &[], ok(), &[], "ok"),
        (get, 200, &[length, ("connection", "close")], ok(), &["connection: close", "content-length: 2"], "ok"),
        (get, 200, &[("date", "today")], Frames::default(), &["content-length: 0"], ""),
        (get, 200, &[("content-length", "3")], Frames::data(&["ok", "more"]), &["content-length: 3"], "okm"),
        (get, 200, &[("content-length", "3")], ok(), &["content-length: 3"], "ok"),
    ] {
        let mut answer = Response::new(body);
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            answer.headers_mut().append(*name, value.parse().unwrap());
        }
        let (mut head, body) = response(asked, answer).await;
        let version = if asked == old { "1.0" } else { "1.1" };
        assert!(head.remove(0).starts_with(&format!("HTTP/{version} {status} ")));
        assert_eq!(
            (&head[..], &*body),
            (&said.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()[..], sent),
            "{asked:?} {fields:?}"
        );
    }
}

fn hints(link: &str) -> Interim {
    let mut interim = Interim::default();
    *interim.status_mut() = StatusCode::EARLY_HINTS;
    interim.headers_mut().insert("link", link.parse().unwrap());
    interim
}

/// The responses to a client that sends all of `sent` at once, over a connection that takes a few bytes at a time. Each
/// request has two interim responses and an answer of some length; all is ready at once, or the body is read between
/// them.
async fn with_interims(sent: &str) -> Vec<String> {
    let (client, mut session) = connected(7);
    let (mut reader, mut writer) = tokio::io::split(client);
    let interims = Interims::default();
    let answer = |head: Box<Parts>, body| {
        let interims = &interims;
        Box::pin(async move {
            let (path, number) = (head.uri.path().to_owned(), interims.next());
            interims.push(number, &hints(&path));
            assert_eq!(
                IncomingBody::from(body).collect().await.unwrap().to_bytes().len(),
                if path == "/get" { 0 } else { 4 }
            );
            interims.push(number, &hints("2"));
            interims.push(number + 1, &hints("of another"));
            Response::new(full("x".repeat(3000) + &path))
        })
    };
    let mut got = String::new();
    let serving = async {
        session.serve(&interims, answer, |refused| panic!("{refused:?}")).await;
        poll_fn(|cx| session.poll_close(cx)).await;
        drop(session);
    };
    let (_, read, _) = tokio::join!(serving, reader.read_to_string(&mut got), async {
        writer.write_all(sent.as_bytes()).await?;
        writer.shutdown().await
    });
    read.unwrap();
    let parts = got.replace(&"x".repeat(3000), "").replace("HTTP/1.1 ", "\nHTTP/1.1 ");
    let part = |part: &str| {
        let (head, body) = part.split_once("\r\n\r\n").unwrap();
        let link = head.lines().find_map(|line| line.strip_prefix("link: ")).unwrap_or_default();
        format!("{} {link}{body}", &head[..3])
    };
    parts.split("\nHTTP/1.1 ").skip(1).map(part).collect()
}

#[tokio::test]
async fn interim_responses_come_between_whole_responses_and_before_their_own() {
    let expects = post("/expects", "Expect: 100-continue\r\n", "body");
    let got = with_interims(&[GET, &post("/post", "", "body"), &expects, GET].concat()).await;
    let expected = ["/get", "/post", "/expects", "/get"]
        .map(|path| [format!("103 {path}"), "103 2".to_owned(), format!("200 {path}")]);
    let got: Vec<_> = got.into_iter().filter(|part| part != "100 ").collect();
    assert_eq!(got, expected.concat());
}

#[tokio::test(start_paused = true)]
async fn an_interim_response_of_another_task_goes_out_at_once() {
    let (mut client, mut session) = connected(1 << 16);
    let interims = Arc::new(Interims::default());
    let serving = tokio::spawn({
        let interims = interims.clone();
        async move {
            let answer = |_, _| std::future::pending::<Response<OriginBody>>();
            session.serve(&interims, |head, body| Box::pin(answer(head, body)), |refused| panic!("{refused:?}")).await;
        }
    });
    client.write_all(GET.as_bytes()).await.unwrap();
    for link in ["1", "2"] {
        // By now the connection's task waits for an answer that never comes.
        tokio::time::sleep(Duration::from_millis(1)).await;
        interims.push(interims.next(), &hints(link));
        let expected = format!("HTTP/1.1 103 Early Hints\r\nlink: {link}\r\n\r\n");
        let mut got = vec![0; expected.len()];
        tokio::time::timeout(Duration::from_secs(3600), client.read_exact(&mut got))
            .await
            .expect("it is written")
            .unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), expected);
    }
    serving.abort();
}

/// Sends a byte itself as long as the body has more than three left.
fn letter_by_letter(
    transport: &mut DuplexStream,
    cx: &mut Context<'_>,
    ahead: &[u8],
    _: &mut Frames,
    left_bytes: u64,
) -> Option<Poll<io::Result<usize>>> {
    (left_bytes > 3).then(|| Pin::new(transport).poll_write(cx, &[ahead, b"d"].concat()))
}

#[tokio::test]
async fn bytes_that_are_sent_without_the_body_come_behind_the_head_and_before_the_rest() {
    for room in [1, 7, 1 << 16] {
        let (client, server) = duplex(room);
        let session: Session<_, Frames> = Session::new(server, LIMITS, PATIENCE, CancellationToken::new());
        let mut session = session.with_direct(Some(letter_by_letter));
        let serving = tokio::spawn(async move {
            let answer = |_, _| {
                let mut response = Response::new(Frames::data(&["re", "st!"]));
                response.headers_mut().insert("content-length", 8.into());
                std::future::ready(response)
            };
            session.serve(&Interims::default(), answer, |refused| panic!("{refused:?}")).await;
        });
        let (mut reader, mut writer) = tokio::io::split(client);
        let asking = tokio::spawn(async move {
            writer.write_all([GET, GET].concat().as_bytes()).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut got = String::new();
        reader.read_to_string(&mut got).await.unwrap();
        asking.await.unwrap();
        serving.await.unwrap();
        let bodies: Vec<_> =
            got.split("HTTP/1.1 200 OK\r\n").skip(1).map(|it| it.split_once("\r\n\r\n").unwrap().1).collect();
        assert_eq!(bodies, ["dddddres", "dddddres"], "{room}: no more than its length");
    }
}

/// A body whose drop can be seen.
struct Seen {
    frames: Frames,
    _there: Arc<()>,
}

impl Body for Seen {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.frames).poll_frame(cx)
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_over_before_its_connection() {
    let (mut client, server) = duplex(1 << 16);
    let mut session = Session::new(server, LIMITS, PATIENCE, CancellationToken::new());
    client.write_all(GET.as_bytes()).await.unwrap();
    let there = Arc::new(());
    let broken = || Frames::data(&["ok"]).and(Err(io::ErrorKind::TimedOut.into()));
    let answer = |_, _| std::future::ready(Response::new(Seen { frames: broken(), _there: there.clone() }));
    session.serve(&Interims::default(), answer, |refused| panic!("{refused:?}")).await;
    assert_eq!(Arc::strong_count(&there), 1, "its record is written, though the connection lingers");
    drop(session);
    let mut got = String::new();
    client.read_to_string(&mut got).await.unwrap();
    assert!(got.ends_with("\r\n\r\n2\r\nok\r\n"), "what came of it, and no end: {got}");
}

//! Against h2's client.

use std::{
    future::{Future, pending, poll_fn},
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason,
    client::{Builder, ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
    time::{Instant, timeout},
};

use super::*;

const QUIET: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(600);

/// A body of the frames that are sent to it. Their sender sees when it is dropped.
struct Fed(mpsc::Receiver<io::Result<Frame<Bytes>>>);
type Feed = mpsc::Sender<io::Result<Frame<Bytes>>>;

fn fed() -> (Feed, Fed) {
    let (feed, frames) = mpsc::channel(8);
    (feed, Fed(frames))
}

fn text(text: &'static str) -> Fed {
    let (feed, body) = fed();
    feed.try_send(Ok(Frame::data(text.into()))).unwrap();
    body
}

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx)
    }
}

struct Client {
    http: SendRequest<Bytes>,
}

impl Client {
    /// Of a server that answers so.
    async fn of<F>(answer: impl Fn(Request<Incoming>, Interims) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Response<Fed>> + Send + 'static,
    {
        Self::with(&Builder::new(), answer).await
    }

    async fn with<F>(builder: &Builder, answer: impl Fn(Request<Incoming>, Interims) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Response<Fed>> + Send + 'static,
    {
        let (near, far) = duplex(1 << 16);
        tokio::spawn(connection(far, answer));
        let (http, connection) = builder.handshake(near).await.unwrap();
        tokio::spawn(connection);
        Self { http }
    }

    fn get(&mut self) -> ResponseFuture {
        self.http.send_request(Request::new(()), true).unwrap().0
    }
}

#[expect(clippy::type_complexity, reason = "closures have no names")]
fn connection<F>(
    stream: DuplexStream,
    answer: impl Fn(Request<Incoming>, Interims) -> F + Send + 'static,
) -> Connection<
    DuplexStream,
    impl Fn(Request<Incoming>, Interims) -> F + Send + 'static,
    impl Fn(StreamTask<F, Fed>) + Send + 'static,
>
where
    F: Future<Output = Response<Fed>> + Send + 'static,
{
    let settings = Settings::new(100, 16_384, QUIET, PATIENCE);
    Connection::new(stream, &settings, answer, |stream| drop(tokio::spawn(stream)))
}

async fn said(response: &mut Response<h2::RecvStream>) -> Result<String, h2::Error> {
    let mut said = Vec::new();
    while let Some(data) = response.body_mut().data().await.transpose()? {
        let _ = response.body_mut().flow_control().release_capacity(data.len());
        said.extend_from_slice(&data);
    }
    Ok(String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn bodies_and_trailers_go_both_ways() {
    let mut client = Client::of(|request, _| async {
        assert_eq!(request.body().size_hint().exact(), Some(4));
        let collected = request.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned();
        let (feed, body) = fed();
        for data in [collected.to_bytes(), "".into(), "pong".into()] {
            feed.try_send(Ok(Frame::data(data))).unwrap();
        }
        feed.try_send(Ok(Frame::trailers(trailers.expect("there are trailers")))).unwrap();
        let mut response = Response::new(body);
        for name in ["connection", "keep-alive", "transfer-encoding", "upgrade", "x-kept"] {
            response.headers_mut().insert(name, HeaderValue::from_static("1"));
        }
        response
    })
    .await;
    let request = Request::post("/").header("content-length", 4).body(()).unwrap();
    let (response, mut stream) = client.http.send_request(request, false).unwrap();
    stream.send_data("ping".into(), false).unwrap();
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    stream.send_trailers(trailers.clone()).unwrap();
    let mut response = response.await.unwrap();
    assert_eq!(response.headers(), &HeaderMap::from_iter([("x-kept".parse().unwrap(), HeaderValue::from_static("1"))]));
    assert_eq!(said(&mut response).await.unwrap(), "pingpong");
    assert_eq!(response.body_mut().trailers().await.unwrap(), Some(trailers));
}

fn hints(link: &'static str) -> Response<()> {
    let hints = Response::builder().status(StatusCode::EARLY_HINTS).header("link", link);
    hints.header("connection", "link").body(()).unwrap()
}

#[tokio::test]
async fn interim_responses_come_before_the_answer_and_no_later() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut client = Client::of(move |_, interims| {
        let (answer, mut answered) = mpsc::channel::<()>(1);
        tell.send((interims, answer)).unwrap();
        async move {
            answered.recv().await;
            Response::new(text("whole"))
        }
    })
    .await;
    let mut response = client.get();
    let mut next = async |link: &str| {
        let interim = poll_fn(|cx| response.poll_informational(cx)).await.expect("one more").unwrap();
        assert_eq!((interim.status(), interim.headers().len()), (StatusCode::EARLY_HINTS, 1));
        assert_eq!(interim.headers()["link"], link);
    };
    // The task of the test tells of them, and the one of the stream sends them.
    let (interims, answer) = told.recv().await.unwrap();
    for link in ["</a>", "</b>"] {
        interims.push(hints(link));
        next(link).await;
    }
    interims.push(hints("</c>"));
    interims.push(hints("</d>"));
    drop(answer);
    next("</c>").await;
    next("</d>").await;
    let mut response = response.await.unwrap();
    interims.push(hints("</late>"));
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(said(&mut response).await.unwrap(), "whole");
}

#[tokio::test]
async fn a_body_is_asked_for_more_only_when_the_client_takes_what_it_gave() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let answer = move |_, _| {
        let (feed, body) = fed();
        tell.send(feed).unwrap();
        async { Response::new(body) }
    };
    let mut client = Client::with(Builder::new().initial_window_size(10), answer).await;
    let response = client.get();
    let feed = told.recv().await.unwrap();
    for _ in 0..3 {
        feed.try_send(Ok(Frame::data("0123456789abcdefghij".into()))).unwrap();
    }
    let mut response = response.await.unwrap();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(feed.max_capacity() - feed.capacity(), 1, "one is with the framing, and one waits for a window");
    drop(feed);
    assert_eq!(said(&mut response).await.unwrap().len(), 60);
}

#[tokio::test]
async fn a_client_that_resets_a_stream_has_its_answer_or_its_body_dropped() {
    for answers in [false, true] {
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut client = Client::of(move |_, _| {
            let (feed, body) = fed();
            tell.send(feed).unwrap();
            async move {
                if !answers {
                    pending::<()>().await;
                }
                Response::new(body)
            }
        })
        .await;
        let response = client.get();
        let feed = told.recv().await.unwrap();
        if answers {
            drop(response.await.unwrap());
        } else {
            drop(response);
        }
        timeout(LONG, feed.closed()).await.expect("the body is dropped");
    }
}

#[tokio::test]
async fn the_client_learns_that_a_body_breaks_off() {
    let mut client = Client::of(|_, _| {
        let (feed, body) = fed();
        feed.try_send(Ok(Frame::data("half".into()))).unwrap();
        feed.try_send(Err(io::ErrorKind::UnexpectedEof.into())).unwrap();
        async { Response::new(body) }
    })
    .await;
    let ended = match client.get().await {
        Ok(mut response) => said(&mut response).await.map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(ended.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test]
async fn a_task_that_is_dropped_resets_its_stream() {
    let (near, far) = duplex(1 << 16);
    let settings = Settings::new(100, 16_384, QUIET, PATIENCE);
    let answer = |_, _| pending::<Response<Fed>>();
    tokio::spawn(Connection::new(far, &settings, answer, drop));
    let (mut http, connection) = Builder::new().handshake::<_, Bytes>(near).await.unwrap();
    tokio::spawn(connection);
    let response = http.send_request(Request::new(()), true).unwrap().0;
    assert_eq!(response.await.unwrap_err().reason(), Some(Reason::CANCEL));
}

#[tokio::test]
async fn a_connection_that_is_to_end_answers_what_is_under_way() {
    let (near, far) = duplex(1 << 16);
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut served = connection(far, move |_, _| {
        let (feed, body) = fed();
        tell.send(feed).unwrap();
        async { Response::new(body) }
    });
    let client = async {
        let (mut http, connection) = Builder::new().handshake::<_, Bytes>(near).await.unwrap();
        let connection = tokio::spawn(connection);
        let response = http.send_request(Request::new(()), true).unwrap().0;
        (response, http, connection, told.recv().await.unwrap())
    };
    let (response, _http, connection, feed) = tokio::select! {
        client = client => client,
        ended = &mut served => panic!("{ended:?}"),
    };
    served.graceful_shutdown();
    let served = tokio::spawn(served);
    let mut response = response.await.unwrap();
    assert!(!served.is_finished());
    feed.try_send(Ok(Frame::data("whole".into()))).unwrap();
    drop(feed);
    assert_eq!(said(&mut response).await.unwrap(), "whole");
    timeout(LONG, served).await.expect("it ends").unwrap().unwrap();
    timeout(LONG, connection).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_may_be_told_to_end_before_the_client_has_greeted() {
    let (near, far) = duplex(1 << 16);
    let mut served = connection(far, |_, _| pending());
    served.graceful_shutdown();
    let served = tokio::spawn(served);
    let (_http, connection) = Builder::new().handshake::<_, Bytes>(near).await.unwrap();
    // One of them may find that the other has closed the transport.
    let _ = timeout(LONG, connection).await.expect("it ends");
    let _ = timeout(LONG, served).await.expect("it ends");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_stays_and_one_that_has_vanished_goes() {
    let (near, far) = duplex(1 << 16);
    let served = tokio::spawn(connection(far, |_, _| pending()));
    let (_http, client) = Builder::new().handshake::<_, Bytes>(near).await.unwrap();
    let mut client = std::pin::pin!(client);
    let _ = timeout(100 * QUIET, client.as_mut()).await.expect_err("it answers each ping");
    // Its end of the transport stays open, but is not read.
    let gone = Instant::now();
    timeout(LONG, served).await.expect("it ends").unwrap().unwrap();
    assert!(gone.elapsed() <= 2 * QUIET + PATIENCE, "{:?}", gone.elapsed());
}

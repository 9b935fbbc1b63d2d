//! HTTP on one connection: which protocol it speaks, and how its requests come to the pipeline.

mod client_settings;
mod date;
mod file_parts;
mod flood;
mod framed;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub(crate) mod http1;
mod lingering_close;
pub(crate) mod pools;
mod priority_updates;
pub(crate) mod settings;
pub(crate) mod tunnel;

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Body;
use http2::{Incoming, Interims};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until},
};

pub(crate) use self::file_parts::send_part;
use self::{
    framed::Framed,
    http1::{Direct, Protocol, Refused, Session},
    settings::HttpSettings,
};
use crate::{
    body::IncomingBody,
    connection::Connection,
    connection_state::{ConnectionState, Tunnel},
    gate::{GatedBody, spawn_stream},
    pipeline::{self, answer_body::AnswerBody},
};

/// How long an HTTP/2 client may take to close a connection that it was asked to leave and on which nothing is under way.
const HTTP2_GOODBYE: Duration = Duration::from_secs(2);

/// Serves a connection to its end. `protocol` is what ALPN agreed on; without it the first bytes tell. `direct` writes
/// bodies without a copy, where the connection can.
pub(crate) fn serve<S>(
    stream: S,
    protocol: Option<Protocol>,
    direct: Option<Direct<S, GatedBody<AnswerBody>>>,
    connection: Connection,
) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::new(connection);
    if protocol == Some(Protocol::Http2) {
        return serve_http2(stream, Bytes::new(), connection);
    }
    let HttpSettings { head, patience, .. } = connection.server.snapshot.load().http;
    let session = Session::new(stream, head, patience, connection.state.drain.clone()).with_direct(direct);
    serve_http1(Box::new(session), connection)
}

/// In a box whose parts stand in it once, as those of a function's would not.
fn serve_http1<S>(
    mut session: Box<Session<S, GatedBody<AnswerBody>>>,
    connection: Arc<Connection>,
) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(async move {
        let state = connection.state.clone();
        let mut drained = pin!(state.drain.cancelled());
        wake_at(drained.as_mut()).await;
        match poll_fn(|cx| session.poll_protocol(cx)).await {
            Some(Protocol::Http1) => {}
            Some(Protocol::Http2) => {
                let (stream, early) = session.into_parts();
                return serve_http2(stream, early, connection).await;
            }
            None => return poll_fn(|cx| session.poll_close(cx)).await,
        }

        let answer = |request, body| pipeline::respond(&connection, request, IncomingBody::from(body), None);
        let refuse = |Refused { status, is_head, line }| pipeline::refuse(&connection, status, is_head, line);
        session.serve(&state.interims, answer, refuse).await;
        match state.take_tunnel() {
            Some(tunnel) => {
                let Tunnel { upgraded, class, permits: _held, idle } = *tunnel;
                let (server, flow) = (connection.server.clone(), connection.flow.clone());
                drop(connection);
                let idle = idle.unwrap_or(session.idle_timeout());
                let (stream, early) = session.into_parts();
                let client = tunnel::Client::new(stream, early, flow, class);
                // The future of the tunnel is in a box, so that an idle connection is not as large as it.
                Box::pin(tunnel::run(client, *upgraded, &server.stopping, idle)).await;
            }
            None => {
                drop(connection);
                poll_fn(|cx| session.poll_close(cx)).await;
            }
        }
    })
}

/// Has the current task woken when the future is ready. A task's waker stays the same, so one registration lasts for the
/// connection's life; who is woken looks at the mark.
async fn wake_at(mut ready: Pin<&mut impl Future>) {
    poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx).is_ready())).await;
}

/// To the end of the connection, of which `early` was read already.
fn serve_http2<S>(stream: S, early: Bytes, connection: Arc<Connection>) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let snapshot = connection.server.snapshot.load_full();
    let (state, metrics, flow) = (connection.state.clone(), connection.metrics.clone(), connection.flow.clone());
    let answer = move |request: Request<Incoming>, interims| {
        let (parts, body) = request.into_parts();
        pipeline::respond(&connection, Box::new(parts), IncomingBody::new(body), Some(interims))
    };
    let stream = Framed::new(stream, early, metrics).with_flow(flow.clone(), snapshot.limits.http2_streams);
    drive_http2(stream, &snapshot.http, state, move || flow.gave_up(), answer)
}

/// Has each request answered. `gave_up`: whether the client takes nothing of a response. In a box, so that a connection
/// of HTTP/1 is not as large.
fn drive_http2<S, F, B>(
    stream: Framed<S>,
    settings: &HttpSettings,
    state: Arc<ConnectionState>,
    gave_up: impl Fn() -> bool + Send + Sync + 'static,
    answer: impl Fn(Request<Incoming>, Interims) -> F + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = io::Error> + Send + 'static,
{
    let idle_timeout = settings.patience.idle;
    let answer = move |request, interims| {
        let respond = answer(request, interims);
        async move {
            let mut response = respond.await;
            response.headers_mut().entry(header::DATE).or_insert_with(date::now);
            response
        }
    };
    // In a box, because a future may hold what is moved into it twice.
    let mut http = Box::new(http2::Connection::new(stream, &settings.http2, answer, spawn_stream));
    Box::pin(async move {
        let mut drained = pin!(state.drain.cancelled());
        wake_at(drained.as_mut()).await;
        let mut idle = pin!(sleep_until(Instant::now() + idle_timeout));
        let mut ending = false;
        let _ = poll_fn(|cx| {
            // Of a client that takes nothing of its last response no next request is waited for.
            if !ending && (state.is_closing() || gave_up() && state.idle_since().is_some()) {
                ending = true;
                idle.as_mut().reset(Instant::now() + HTTP2_GOODBYE);
                http.graceful_shutdown();
            }
            while idle.as_mut().poll(cx).is_ready() {
                let patience = if ending { HTTP2_GOODBYE } else { idle_timeout };
                let now = Instant::now();
                let due = state.idle_since().unwrap_or(now) + patience;
                if due > now {
                    idle.as_mut().reset(due);
                } else if ending {
                    return Poll::Ready(Ok(()));
                } else {
                    ending = true;
                    idle.as_mut().reset(now + HTTP2_GOODBYE);
                    http.graceful_shutdown();
                }
            }
            Pin::new(&mut *http).poll(cx)
        })
        .await;
    })
}

//! Active health checks: asks each server regularly for a page.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use http::{HeaderValue, Method, Request, StatusCode, header};
use http1::{Coding, write_field};
use http2::Unsent;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    config::ActiveChecks,
    connect::{Offer, Transport, connect, preface},
    error::{Failure, UpstreamError},
    group::Group,
    outgoing::Outgoing,
    server::Server,
    wire::Wire,
};

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("serpent/", env!("CARGO_PKG_VERSION"), " (check)"));
/// The largest head of an answer.
const MOST_HEAD_BYTES: usize = 64 * 1024;

/// Checks all servers of an upstream, forever.
pub(crate) async fn check_for_ever(group: Arc<Group>, checks: ActiveChecks) {
    let mut ticks = interval(checks.every.max(std::time::Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = JoinSet::new();
    loop {
        ticks.tick().await;
        while running.try_join_next().is_some() {}
        for server in group.all() {
            // A server whose last check still hangs is not checked again meanwhile.
            if server.state.checking.swap(true, Relaxed) {
                continue;
            }
            let checking = Checking(server);
            let (group, checks) = (group.clone(), checks.clone());
            running.spawn(async move {
                let server = &checking.0;
                let outcome = match tokio::time::timeout(checks.timeout, check(&group, server, &checks)).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(CheckError::Server(what))) => Err(what),
                    // A shortage on this machine says nothing about the server.
                    Ok(Err(CheckError::Shortage(error))) => return error.log(),
                    Err(_) => Err(format!("no answer within {:?}", checks.timeout)),
                };
                server.checked(&group.name, outcome, &checks);
            });
        }
    }
}

/// A running check. Dropping it clears the server's `checking` flag.
struct Checking(Arc<Server>);

impl Drop for Checking {
    fn drop(&mut self) {
        self.0.state.checking.store(false, Relaxed);
    }
}

/// Why a check did not pass.
enum CheckError {
    /// The server did not answer as a healthy one does.
    Server(String),
    /// The check could not be made because this machine lacks a resource.
    Shortage(UpstreamError),
}

impl From<String> for CheckError {
    fn from(what: String) -> Self {
        Self::Server(what)
    }
}

async fn check(group: &Group, server: &Server, checks: &ActiveChecks) -> Result<(), CheckError> {
    let is_unknown = server.spec.http2.is_none() && !server.spec.tls;
    let known_http2 = server.state.answers_http2_only.load(Relaxed);
    let offer = match server.spec.http2 {
        Some(true) => Offer::Http2,
        None if server.spec.tls => Offer::Any,
        None if known_http2 => Offer::Http2,
        Some(false) | None => Offer::Http1,
    };
    let path = checks.path.path_and_query().map_or("/", |path| path.as_str());
    let answered = match status(group, server, offer, path).await? {
        // Without TLS no version is agreed on, and a server of gRPC reads no HTTP/1.1.
        Err(failure) if is_unknown => {
            let other = if known_http2 { Offer::Http1 } else { Offer::Http2 };
            match status(group, server, other, path).await? {
                Ok(answered) => {
                    server.state.answers_http2_only.store(!known_http2, Relaxed);
                    Ok(answered)
                }
                Err(_) => Err(failure),
            }
        }
        answered => answered,
    };
    let status = answered.map_err(|failure| failure.to_string())?.as_u16();
    let (from, to) = checks.statuses;
    if (from..=to).contains(&status) { Ok(()) } else { Err(format!("status {status}").into()) }
}

/// The status of the answer, or why there is none. The outer error: no connection was made.
async fn status(
    group: &Group,
    server: &Server,
    offer: Offer,
    path: &str,
) -> Result<Result<StatusCode, Failure>, CheckError> {
    let preface = preface(&group.config, None);
    let made = connect(server, group.tls.as_ref(), offer, &preface, None).await;
    let (transport, http2) = made.map_err(|failure| match server.shortage(failure) {
        Ok(shortage) => CheckError::Shortage(shortage),
        Err(failure) => CheckError::Server(failure.to_string()),
    })?;
    Ok(if http2 { status_http2(transport, server, path).await } else { status_http1(transport, server, path).await })
}

async fn status_http1(transport: Transport, server: &Server, path: &str) -> Result<StatusCode, Failure> {
    let mut wire = Wire::new(transport, MOST_HEAD_BYTES);
    let write = |out: &mut Vec<u8>| {
        out.extend_from_slice(format!("GET {path} HTTP/1.1\r\n").as_bytes());
        write_field(&header::HOST, &server.host, out);
        write_field(&header::USER_AGENT, &USER_AGENT, out);
        out.extend_from_slice(b"connection: close\r\n\r\n");
    };
    wire.begin(&Method::GET, write, Outgoing::default(), Coding::None);
    match poll_fn(|cx| wire.poll_head(cx, &mut drop)).await {
        Ok(response) => Ok(response.status()),
        Err(error) => Err(Failure::of_http1(error).unwrap_or_else(|error| Failure::Closed(error.into()))),
    }
}

async fn status_http2(transport: Transport, server: &Server, path: &str) -> Result<StatusCode, Failure> {
    let scheme = if server.spec.tls { "https" } else { "http" };
    let request = Request::get(format!("{scheme}://{}{path}", server.spec.authority))
        .header(header::USER_AGENT, USER_AGENT)
        .body(Outgoing::default())
        .map_err(|error| Failure::Malformed(error.into()))?;
    let window = http2::FIRST_WINDOW_BYTES;
    let (mut sender, connection) =
        http2::connect(transport, window, window, MOST_HEAD_BYTES as u32).await.map_err(Failure::of)?;
    let closed = || Failure::Closed("it closed the connection".into());
    let (mut answering, _) = sender.send(request, None).map_err(|unsent| match unsent {
        Unsent::Over(..) => closed(),
        Unsent::Failed(error) => Failure::of(error),
    })?;
    tokio::select! {
        biased;
        answer = poll_fn(|cx| answering.poll_head(cx, &mut drop)) => answer.map(|it| it.status()).map_err(Failure::of),
        () = connection => Err(closed()),
    }
}

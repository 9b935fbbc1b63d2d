//! Active health checks: asks each server regularly for a page.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    config::ActiveChecks,
    connect::{Offer, connect, preface},
    error::UpstreamError,
    group::Group,
    server::Server,
};

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
    let offer = match server.spec.http2 {
        Some(true) => Offer::Http2,
        None if server.spec.tls => Offer::Any,
        Some(false) | None => Offer::Http1,
    };
    let preface = preface(&group.config, None);
    let made = connect(server, group.tls.as_ref(), offer, &preface, None).await;
    let (transport, http2) = made.map_err(|failure| match server.shortage(failure) {
        Ok(shortage) => CheckError::Shortage(shortage),
        Err(failure) => CheckError::Server(failure.to_string()),
    })?;
    let path = checks.path.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(if http2 {
        let scheme = if server.spec.tls { "https" } else { "http" };
        format!("{scheme}://{}{path}", server.spec.authority)
    } else {
        path.to_owned()
    })
    .header(header::USER_AGENT, concat!("serpent/", env!("CARGO_PKG_VERSION"), " (check)"));
    let empty = Empty::<Bytes>::new();
    let io = TokioIo::new(transport);
    let status = if http2 {
        let request = request.body(empty).map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), io).await.map_err(|error| error.to_string())?;
        alongside(connection, sender.send_request(request)).await
    } else {
        let request = request
            .header(header::HOST, server.host.clone())
            .header(header::CONNECTION, "close")
            .body(empty)
            .map_err(|error| error.to_string())?;
        let (mut sender, connection) = http1::handshake(io).await.map_err(|error| error.to_string())?;
        alongside(connection, sender.send_request(request)).await
    }?;
    let (from, to) = checks.statuses;
    if (from..=to).contains(&status) { Ok(()) } else { Err(format!("status {status}").into()) }
}

/// Drives a connection until the head of its response has arrived.
async fn alongside<B>(
    connection: impl Future<Output = hyper::Result<()>>,
    answer: impl Future<Output = hyper::Result<http::Response<B>>>,
) -> Result<u16, String> {
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => {
                return answer.map(|answer| answer.status().as_u16()).map_err(|error| error.to_string());
            }
            _ = &mut connection, if open => open = false,
        }
    }
}

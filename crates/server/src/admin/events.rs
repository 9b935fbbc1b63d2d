//! Server-sent events: what the page shows, pushed every second.
//!
//! A stream is bounded in time and memory. It ends shortly before its connection would be cut, when the server stops,
//! and when a reload takes its address away. The client then asks for the rest, from the last event that it has.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::channel::Channel;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    access::{self, Peer},
    live,
    problem::{Done, Problem},
};
use crate::state::ServerState;

pub(super) const PATH: &str = "/api/events";
/// Most streams at a time: some people with a few windows each.
const MOST: usize = 16;
/// A stream ends so long before its connection is cut.
const BEFORE_CUT: Duration = Duration::from_secs(5);

/// The streams of the admin address.
#[derive(Clone)]
pub(super) struct Events {
    places: Arc<Semaphore>,
    /// Changes when there is a new reading.
    readings: watch::Receiver<()>,
    /// The address is served no more.
    gone: CancellationToken,
}

impl Events {
    pub fn new(readings: watch::Receiver<()>) -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), readings, gone: CancellationToken::new() }
    }

    /// Ends all streams. New ones can begin.
    pub fn restart(&mut self) {
        std::mem::take(&mut self.gone).cancel();
    }

    /// Begins a stream on a connection that is cut at a time.
    pub fn stream<B>(
        &self,
        state: &Arc<ServerState>,
        peer: Peer,
        cut: Instant,
        request: &Request<B>,
    ) -> Done<Response<Channel<Bytes>>> {
        access::may_read(&state.snapshot.load(), peer, request.headers())?;
        // A page of another site could not read them, but hold them all.
        access::is_of_this_page(request.headers())?;
        let unavailable = |message: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, message);
        if state.stopping.is_cancelled() {
            return Err(unavailable("the server stops: ask for /api/live"));
        }
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            unavailable(&format!(
                "there are {MOST} streams of events already, and no more at a time: ask for /api/live"
            ))
        })?;
        let last_seen = request.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let mut after_s = last_seen.unwrap_or_else(|| live::after_s(request.uri().query()));
        let (mut sender, body) = Channel::new(1);
        let (state, mut readings, gone) = (state.clone(), self.readings.clone(), self.gone.clone());
        tokio::spawn(async move {
            let _place = place;
            let events = async {
                loop {
                    readings.mark_unchanged();
                    let (event, last_s) = event(&state, after_s);
                    after_s = last_s;
                    // Waits for a client that reads slowly. Then it gets what has happened meanwhile in one event.
                    if sender.send_data(event).await.is_err() || readings.changed().await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = events => {}
                () = gone.cancelled() => {}
                () = state.stopping.cancelled() => {}
                () = sleep_until(cut - BEFORE_CUT) => {}
            }
        });
        let mut response = Response::new(body);
        for (name, value) in [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
            // The next stream has a connection, and so the time, of its own.
            (header::CONNECTION, "close"),
            // nginx in between passes it on as it comes.
            (header::HeaderName::from_static("x-accel-buffering"), "no"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}

/// An event with what is newer than a time, and the time of the newest.
fn event(state: &ServerState, after_s: f64) -> (Bytes, f64) {
    let (value, last_s) = live::show(state, after_s);
    (format!("id: {last_s}\ndata: {value}\n\n").into(), last_s)
}

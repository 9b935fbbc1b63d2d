//! One attempt to send a request to one server, and its response.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use bodies::RequestBody;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http1::MOST_INTERIMS;
use http2::{Incoming, Unsent};
use tokio::{io::DuplexStream, time::Instant};

use crate::{
    error::{Failure, UpstreamError, Wait, is_unprocessed},
    group::Group,
    head::Head,
    outgoing::Outgoing,
    pool::{Connection, Stream},
    server::InFlight,
    upload::Upload,
    watch::Watch,
    wire::{ExchangeError, Interim, into_interim},
};

/// How much earlier than this server's the clock of an upstream may end the time that a client gives.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);

/// A request and its response, from the moment that it has a connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) group: Arc<Group>,
    pub(crate) server: InFlight,
    pub(crate) watch: Watch,
    pub(crate) connection: Connection,
    pub(crate) started: Instant,
    /// When the client has no more use for an answer.
    pub(crate) until: Option<Instant>,
    /// The body, while it is sent over HTTP/2.
    pub(crate) upload: Option<Upload>,
    /// HTTP/2: what becomes the body of a request for another protocol is written here.
    pub(crate) tunnel: Option<DuplexStream>,
    /// HTTP/2: how often bytes had come on the connection when the request was sent.
    pub(crate) heard: u64,
}

/// How an attempt ended without a response.
pub(crate) enum AttemptError {
    /// Nothing was written. Returns the fields, if the attempt took them, and the body.
    Unsent(Option<HeaderMap>, Outgoing),
    /// The server certainly did not process it. Returns a streamed body, if it is still whole.
    Unprocessed(UpstreamError, Option<RequestBody>),
    /// The server may have processed it. True: the connection had carried a request before, so it may have
    /// been closed for being idle.
    Unknown(UpstreamError, bool),
    /// The request must not be sent again.
    Final(UpstreamError),
}

/// The error that broke a response off.
pub(crate) enum BodyError {
    Http1(ExchangeError),
    Http2(h2::Error),
}

impl Exchange {
    /// Polls for the next frame of the response's body; `incoming` is the body of an HTTP/2 response.
    pub(crate) fn poll_frame(
        &mut self,
        incoming: Option<&mut Incoming>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match (&mut self.connection, incoming) {
            (Connection::Http1(http1), _) => {
                let polled = http1.wire.poll_frame(cx).map_err(BodyError::Http1);
                if http1.wire.take_moved() {
                    self.watch.hears();
                }
                polled
            }
            (Connection::Http2(_), Some(incoming)) => Pin::new(incoming).poll_frame(cx).map_err(BodyError::Http2),
            (Connection::Http2(_), None) => Poll::Ready(None),
        }
    }

    /// Whether an HTTP/1.1 response has ended.
    pub(crate) fn is_end(&self) -> bool {
        match &self.connection {
            Connection::Http1(http1) => http1.wire.is_end(),
            Connection::Http2(_) => true,
        }
    }

    /// The size of the rest of an HTTP/1.1 response.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.connection {
            Connection::Http1(http1) => http1.wire.size_hint(),
            Connection::Http2(_) => SizeHint::with_exact(0),
        }
    }

    /// Records success and returns the connection to its pool, after the whole response.
    pub(crate) fn finish(self) {
        let Self { server, watch, connection, .. } = self;
        server.succeeded();
        if let Connection::Http1(mut http1) = connection {
            http1.timer = Some(watch.into_timer());
            http1.put_back();
        }
    }

    /// The error for a response that broke off.
    pub(crate) fn broken_off(&self, error: BodyError) -> UpstreamError {
        if let Some(error) = self.request_error() {
            return error;
        }
        match error {
            BodyError::Http1(error) => match Failure::of_http1(error) {
                Ok(failure) => self.failed(failure),
                Err(error) => UpstreamError::Request(error),
            },
            BodyError::Http2(error) if error.is_reset() && self.client_gave_up() => UpstreamError::client_gave_up(),
            BodyError::Http2(error) => self.failed(Failure::of(error)),
        }
    }

    /// The error for an exchange in which the server was silent for too long, or whose total time is over.
    pub(crate) fn timed_out(&self, wait: Wait) -> UpstreamError {
        if wait == Wait::End && self.watch.waits_for_client() {
            // The server waited for the client as this proxy did, so it is not at fault.
            let what = "its client had not sent all of it when the total time was over";
            return UpstreamError::Request(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        if wait == Wait::End && self.client_gave_up() {
            if let Connection::Http2(stream) = &self.connection
                && stream.0.sender.heard() == self.heard
            {
                // Nothing shows that the server is still there.
                stream.0.retire();
            }
            return UpstreamError::client_gave_up();
        }
        if let Connection::Http2(stream) = &self.connection {
            // The other streams of the connection may be stuck too.
            stream.0.retire();
        }
        self.server.failed(&self.group.name, &self.group.config.passive);
        UpstreamError::TimedOut { server: self.server.name.clone(), wait, after: self.started.elapsed() }
    }

    /// Whether the time that the client gives is over. Its server may know that a moment earlier.
    fn client_gave_up(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now() + CLOCKS_DIFFER)
    }

    pub(crate) fn failed(&self, failure: Failure) -> UpstreamError {
        self.server.failed(&self.group.name, &self.group.config.passive);
        self.error(failure)
    }

    pub(crate) fn error(&self, failure: Failure) -> UpstreamError {
        UpstreamError::Failed { server: self.server.name.clone(), failure, after: self.started.elapsed() }
    }

    /// The error that broke the request's body off, if that ended the exchange.
    fn request_error(&self) -> Option<UpstreamError> {
        let state = self.watch.request.as_ref()?;
        state.error.lock().take().map(UpstreamError::Request)
    }

    /// Sends the request over HTTP/1.1 and awaits the head of the response. `interim` gets the interim
    /// responses before it.
    pub(crate) async fn attempt_http1(
        &mut self,
        head: &Head,
        fields: &HeaderMap,
        body: Outgoing,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<(Response<()>, Option<Incoming>), AttemptError> {
        let Self { connection, watch, server, .. } = self;
        let Connection::Http1(http1) = connection else { return Err(AttemptError::Unsent(None, body)) };
        http1.wire.begin(&head.method, |out| head.write(fields, &server.host, out), body, head.coding());
        // The watch begins when the first bytes are written, so these need no note.
        let mut begins = true;
        let polled = poll_fn(|cx| {
            let polled = http1.wire.poll_head(cx, interim);
            if http1.wire.take_wants_body() {
                watch.answered(true);
            }
            if http1.wire.take_moved() && !std::mem::take(&mut begins) {
                watch.hears();
            }
            or_silence(polled, watch, cx)
        });
        match polled.await {
            Ok(Ok(response)) => {
                watch.answered(response.status().is_success());
                Ok((response, None))
            }
            Ok(Err(error)) => Err(self.attempt_error(error)),
            Err(wait) => Err(AttemptError::Final(self.timed_out(wait))),
        }
    }

    /// Sends the request over HTTP/2 and awaits the head of the response. `interim` gets the interim responses before it.
    pub(crate) async fn attempt_http2(
        &mut self,
        request: Request<Outgoing>,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<(Response<()>, Option<Incoming>), AttemptError> {
        let protocol = self.tunnel.is_some().then_some("websocket");
        let Self { connection, watch, group, upload, heard, .. } = self;
        let Connection::Http2(Stream(http2)) = connection else {
            let (parts, body) = request.into_parts();
            return Err(AttemptError::Unsent(Some(parts.headers), body));
        };
        let used = http2.used.swap(true, Relaxed);
        let mut sender = http2.sender.clone();
        if protocol.is_some() {
            let mut greeted = pin!(sender.greeted());
            if let Err(wait) = poll_fn(|cx| or_silence(greeted.as_mut().poll(cx), watch, cx)).await {
                return Err(AttemptError::Final(self.timed_out(wait)));
            }
            if !http2.sender.takes_protocols() {
                return Err(AttemptError::Final(self.error(Failure::NoProtocols)));
            }
        }
        *heard = sender.heard();
        let (mut answering, sending) = match sender.send(request, protocol) {
            Ok(sent) => sent,
            Err(Unsent::Over(fields, body)) => return Err(AttemptError::Unsent(Some(fields), body)),
            Err(Unsent::Failed(error)) => return Err(self.attempt_error_http2(error, used).await),
        };
        *upload = sending.map(Upload::start);
        let (mut count, mut bytes) = (0, 0);
        let polled = poll_fn(|cx| {
            let (before, mut wants_body) = (count, false);
            let polled = answering.poll_head(cx, &mut |told| {
                count += 1;
                bytes += told.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
                // The client is asked for its body when that is read.
                if told.status() == StatusCode::CONTINUE {
                    wants_body = true;
                } else if count <= MOST_INTERIMS && bytes <= group.config.head_bytes {
                    interim(into_interim(told));
                }
            });
            if count > before {
                watch.hears();
            }
            if wants_body {
                watch.answered(true);
            }
            if count > MOST_INTERIMS || bytes > group.config.head_bytes {
                return Poll::Ready(Ok(None));
            }
            or_silence(polled.map(Some), watch, cx)
        });
        match polled.await {
            Ok(Some(Ok(response))) => {
                watch.answered(response.status().is_success());
                let (parts, incoming) = response.into_parts();
                Ok((Response::from_parts(parts, ()), Some(incoming)))
            }
            Ok(Some(Err(error))) => Err(self.attempt_error_http2(error, used).await),
            Ok(None) => Err(AttemptError::Final(self.failed(Failure::TooManyInterims))),
            Err(wait) => Err(AttemptError::Final(self.timed_out(wait))),
        }
    }

    fn attempt_error(&mut self, error: ExchangeError) -> AttemptError {
        if let Some(error) = self.request_error() {
            return AttemptError::Final(error);
        }
        let used = match &mut self.connection {
            Connection::Http1(http1) => {
                if matches!(error, ExchangeError::Closed(_))
                    && let Some(outgoing) = http1.wire.unsent()
                {
                    return AttemptError::Unsent(None, outgoing);
                }
                http1.used
            }
            Connection::Http2(_) => false,
        };
        match Failure::of_http1(error) {
            Ok(failure) => self.failed_attempt(failure, used),
            Err(error) => AttemptError::Final(UpstreamError::Request(error)),
        }
    }

    async fn attempt_error_http2(&mut self, error: h2::Error, used: bool) -> AttemptError {
        if let Some(error) = self.request_error() {
            return AttemptError::Final(error);
        }
        if error.is_reset() && self.client_gave_up() {
            return AttemptError::Final(UpstreamError::client_gave_up());
        }
        let unprocessed = is_unprocessed(&error);
        let reset = error.is_reset();
        if let Connection::Http2(stream) = &self.connection
            && !reset
        {
            // The connection is closing.
            stream.0.retire();
        }
        let failure = Failure::of(error);
        if !unprocessed {
            return self.failed_attempt(failure, used && !reset);
        }
        let body = match self.upload.take() {
            Some(upload) => upload.again().await,
            None => None,
        };
        AttemptError::Unprocessed(self.error(failure), body)
    }

    fn failed_attempt(&self, failure: Failure, used: bool) -> AttemptError {
        let closed = matches!(failure, Failure::Closed(_));
        let error = self.error(failure);
        if closed {
            AttemptError::Unknown(error, used)
        } else {
            // The answer is malformed, so the server has received the request.
            self.server.failed(&self.group.name, &self.group.config.passive);
            AttemptError::Final(error)
        }
    }
}

/// The output; or, if there is none yet, a time-out when the silence has lasted too long.
fn or_silence<T>(polled: Poll<T>, watch: &mut Watch, cx: &mut Context<'_>) -> Poll<Result<T, Wait>> {
    match polled {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => watch.poll_silence(cx, Wait::Head).map(Err),
    }
}

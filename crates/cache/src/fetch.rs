//! A request to the origin whose answer may be stored, and the requests that wait for it.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;

use crate::{
    filling::{Reader, Sink, filling},
    shared::Shared,
    stored::Stored,
};

/// The next step of a request for which the cache has no usable response.
#[derive(Debug)]
pub enum Turn {
    /// It asks the origin.
    Asks(Fetch),
    /// Another request for the same asks already.
    Follows(Follow),
}

/// Waits for the answer that another request asks for.
#[derive(Debug)]
pub struct Follow(pub(crate) watch::Receiver<bool>);

impl Follow {
    /// Returns when there is an answer. True: it may be stored, so that it is to be looked for. False: each asks by itself.
    pub async fn wait(mut self) -> bool {
        self.0.wait_for(|ready| *ready).await.is_ok()
    }
}

/// A request to the origin. If it is dropped, the requests that wait for it go by themselves.
#[derive(Debug)]
pub struct Fetch {
    shared: Arc<Shared>,
    key: Arc<str>,
    epoch: u64,
    lead: Option<watch::Sender<bool>>,
}

/// Takes the body of a response that is stored.
#[derive(Debug)]
pub struct Writer {
    sink: Sink,
    fetch: Fetch,
    stored: Arc<Stored>,
    /// `None`: it is stored only when it is whole, because its length is not known.
    entry: Option<u64>,
    reserved_bytes: u64,
    passes: bool,
    /// Whether the announced length is held as a whole.
    is_exact: bool,
}

impl Fetch {
    pub(crate) fn new(shared: Arc<Shared>, key: Arc<str>, epoch: u64, lead: Option<watch::Sender<bool>>) -> Self {
        Self { shared, key, epoch, lead }
    }

    /// Whether others wait for the answer, or may.
    pub fn leads(&self) -> bool {
        self.lead.is_some()
    }

    /// The answer may not be stored. Requests for the same do not wait for each other for some time.
    pub fn is_not_stored(mut self, now_ms: u64) {
        self.shared.handle_alone(&self.key, now_ms);
        self.land(false);
    }

    /// Stores a response that is here whole.
    pub fn whole(mut self, stored: Stored, body: Bytes) {
        if body.len() as u64 <= self.shared.config.most_body_bytes {
            self.shared.insert_whole(&self.key, self.epoch, Arc::new(stored), body);
        }
        self.land(true);
    }

    /// A stored response is still right; its head is replaced. False: it is not stored any more.
    pub fn refresh(mut self, entry: u64, stored: Arc<Stored>) -> bool {
        let done = self.shared.refresh(entry, self.epoch, stored);
        self.land(done);
        done
    }

    /// A stored response is not right any more.
    pub fn drop_entry(&self, entry: u64) {
        self.shared.drop_entry(entry);
    }

    /// Begins to store a response. `exact_bytes` is the announced length of its body. The fetch comes back if there is no room.
    ///
    /// # Errors
    /// It is too large, or there is no room.
    pub fn fill(mut self, stored: Stored, exact_bytes: Option<u64>) -> Result<(Writer, Reader), Self> {
        let most_bytes = self.shared.config.most_body_bytes;
        if exact_bytes.is_some_and(|bytes| bytes > most_bytes) || !self.shared.reserve(exact_bytes.unwrap_or(0)) {
            return Err(self);
        }
        let (sink, source) = filling(exact_bytes);
        let reader = source.read();
        let stored = Arc::new(stored);
        let entry = exact_bytes.and_then(|_| {
            let entry = self.shared.insert_filling(&self.key, self.epoch, stored.clone(), source);
            self.land(entry.is_some());
            entry
        });
        let reserved_bytes = exact_bytes.unwrap_or(0);
        let is_exact = exact_bytes.is_some();
        Ok((Writer { sink, fetch: self, stored, entry, reserved_bytes, passes: false, is_exact }, reader))
    }

    /// Lets those go that wait.
    fn land(&mut self, ready: bool) {
        if let Some(lead) = self.lead.take() {
            // Before they are woken, so that the next one does not wait for this.
            self.shared.end_flight(&self.key);
            if ready {
                let _ = lead.send(true);
            }
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.land(false);
        self.shared.end_fetch(&self.key);
    }
}

impl Writer {
    /// Takes bytes of the body.
    pub fn push(&mut self, data: Bytes) {
        if !self.is_exact && !self.passes {
            let bytes = data.len() as u64;
            let fits = self.sink.all_bytes() + bytes <= self.fetch.shared.config.most_body_bytes;
            if fits && self.fetch.shared.reserve(bytes) {
                self.reserved_bytes += bytes;
            } else {
                self.passes = true;
                self.sink.pass();
                self.fetch.land(false);
            }
        }
        self.sink.push(data);
    }

    /// Ready when more may be pushed. False: nothing is stored, and there is no reader.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.sink.poll_room(cx)
    }

    /// Whether a request reads what is written.
    pub fn is_read(&self) -> bool {
        self.sink.is_read()
    }

    /// The body is whole. `cost_us`: how long the site worked on it.
    pub fn finish(mut self, trailers: Option<HeaderMap>, cost_us: u64) {
        let whole = self.sink.end(Ok(trailers));
        match (whole, self.entry.take()) {
            (Some(body), Some(entry)) => self.fetch.shared.complete(entry, cost_us, body),
            (Some(body), None) if !self.is_exact => {
                let fetch = &mut self.fetch;
                Arc::make_mut(&mut self.stored).cost_us = cost_us;
                fetch.shared.insert_whole(&fetch.key, fetch.epoch, self.stored.clone(), body);
                fetch.land(true);
            }
            (None, Some(entry)) => self.fetch.shared.drop_entry(entry),
            (_, None) => {}
        }
    }

    /// The body broke off.
    pub fn fail(mut self, error: &str) {
        self.sink.end(Err(error.into()));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.fetch.shared.give_back(self.reserved_bytes);
        if let Some(entry) = self.entry.take() {
            self.fetch.shared.drop_entry(entry);
        }
    }
}

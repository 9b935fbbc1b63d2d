//! HTTP/1: a connection sends one response after another, so it is ranked as a whole, as the response that it is
//! sending.
//!
//! Leave is asked at the transport, by the gate, for the first of the active responses.

use std::sync::Arc;

use limits::Share;
use scheduler::JobId;

use super::response::{ActiveResponse, BodyEnd, ResponseId, Responses, TransportProgress};
use crate::uplink::{ResponseRank, Teller, driver::Driver};

/// The responses of a connection that is ranked as a whole.
#[derive(Default)]
pub(super) struct ConnectionFlow {
    /// They are sent in this order; the first one is being sent.
    pub responses: Responses,
    pub progress: TransportProgress,
}

impl ConnectionFlow {
    /// The job that asks leave for the next bytes, and that stands for the connection.
    pub fn job(&self) -> Option<JobId> {
        self.responses.first()?.job
    }

    /// In kernel mode: what to tell the kernel before the next bytes.
    pub fn poll_told(&mut self, driver: &Driver) -> Option<(Arc<Teller>, ResponseRank)> {
        let offset = self.progress.bytes;
        self.responses.first_mut()?.poll_told(offset, driver)
    }

    /// The share of the response that is being sent of its client's bytes, and how much is left of it.
    pub fn limited(&self) -> Option<(Arc<Share>, u64)> {
        self.responses.first()?.limited()
    }

    /// As [`ConnectionFlow::job`]. Ranks a response that began while responses were not ranked.
    pub fn ranked_job(&mut self, driver: &Driver) -> Option<JobId> {
        let first = self.responses.first_mut()?;
        first.rank(driver);
        first.job
    }

    /// The transport took bytes. Returns how many of them needed no leave, and the response that is out with them.
    pub fn handle_sent(&mut self, bytes: u64) -> (u64, Option<ActiveResponse>) {
        self.progress.handle_sent(bytes);
        let Some(first) = self.responses.first_mut() else { return (bytes, None) };
        first.handle_sent(bytes);
        let unranked_bytes = if first.job.is_some() { 0 } else { bytes };
        // Pipelining: the next response may follow without a flush between them.
        let is_out = first.is_out() && self.responses.len() > 1;
        (unranked_bytes, if is_out { self.responses.pop_first() } else { None })
    }

    /// The transport took all that was written. Returns the first response, if its body has ended.
    pub fn handle_flushed(&mut self) -> Option<ActiveResponse> {
        if self.responses.first()?.body_has_ended() { self.responses.pop_first() } else { None }
    }

    /// The body of a response has ended. Returns the response, if its connection is gone already.
    pub fn handle_body_end(&mut self, id: ResponseId, end: BodyEnd) -> Option<ActiveResponse> {
        let at = self.responses.handle_body_end(id, end)?;
        if self.responses.is_closed() { self.responses.remove(at) } else { None }
    }
}

//! The content of a line of the access log.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Method, StatusCode, Version};

/// The part of a line that is known only after the request was processed.
#[derive(Clone, Debug)]
pub struct Processed {
    /// The name of its class.
    pub class: Arc<str>,
    /// The user's name, if a password was checked.
    pub user: Option<Box<str>>,
    /// How long the request waited for admission.
    pub waited: Duration,
    /// The upstream server that answered.
    pub upstream: Option<Arc<str>>,
    /// How many upstream servers were asked, if any was.
    pub attempts: Option<u32>,
    /// The result of the shared cache, where the route has one.
    pub cache: Option<&'static str>,
    /// The number of its trace, where requests are traced.
    pub trace: Option<u128>,
    /// The status of a call of gRPC.
    pub grpc_status: Option<u8>,
}

/// The part of a response that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Body bytes handed over to the connection.
    pub body_bytes: u64,
    /// Whether the client got the whole response.
    pub complete: bool,
    /// The time that it took over the time that its bytes need alone at the uplink's rate, if that is known.
    pub slowdown: Option<f64>,
}

/// The content of a line.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) peer: IpAddr,
    pub(super) time: SystemTime,
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) status: StatusCode,
    pub(super) body_bytes: u64,
    pub(super) complete: bool,
    pub(super) response_time: Duration,
    pub(super) slowdown: Option<f64>,
    pub(super) processed: Processed,
    /// Host, target, referer and user agent, concatenated in this order.
    pub(super) text: Box<[u8]>,
    pub(super) ends: [u32; 4],
    /// The request line of an unparsable request, instead of method, target and version.
    pub(super) refused: Option<Box<[u8]>>,
}

impl Record {
    /// The nth of host, target, referer and user agent.
    pub(super) fn text(&self, nth: usize) -> &[u8] {
        let start = if nth == 0 { 0 } else { self.ends[nth - 1] as usize };
        &self.text[start..self.ends[nth] as usize]
    }
}

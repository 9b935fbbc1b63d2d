//! `limit` of a site or a route: how many requests a client may send.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// How many requests of one client, key or class are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The properties by which requests are counted together; empty: all are counted together.
    pub by: Box<[LimitBy]>,
    /// So many in the long run; `None`: any number.
    pub rate: Option<Rate>,
    /// So many at once, from the head of a request to the end of its response; `None`: any number.
    pub at_once: Option<NonZeroU32>,
    /// So many bytes of responses; `None`: as many as there is room for.
    pub bytes: Option<ByteRate>,
}

/// A rate of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate {
    /// So many in a second in the long run.
    pub bytes_per_second: NonZeroU64,
    /// So many without a wait, after a time without any.
    pub burst_bytes: NonZeroU64,
}

/// A rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many requests...
    pub requests: NonZeroU32,
    /// ... in this time: a second, a minute or an hour.
    pub window: Duration,
    /// So many may come at the same moment.
    pub burst: NonZeroU32,
}

/// A property by which requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitBy {
    /// The client's address; of IPv6, its network of 64 bits.
    Client,
    /// The API key. Without a key, as `Client`.
    Key,
    /// The class.
    Class,
    /// The path, without its query.
    Path,
    /// The value of the header field with this name. Without the field, as `Client`.
    Header(Box<str>),
}

//! A connection: both of its ends, and its responses.

use std::collections::VecDeque;

use scheduler::JobId;

use super::{
    receiver::Receiver,
    sender::{MeanRtt, Sender},
};
use crate::Ticket;

/// Identifies a connection. It is never reused, though its place in the table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub place: u32,
    pub generation: u32,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub generation: u32,
    pub group: u16,
    pub handshake: Handshake,
    /// The request that the client sends as soon as possible.
    pub asks: Option<u64>,
    /// Requests that may still be made on the connection.
    pub uses_left: u32,
    pub sender: Sender,
    pub receiver: Receiver,
    /// The response that the server is sending.
    pub serving: Option<Serving>,
    /// The responses that the client waits for, in order.
    pub expected: VecDeque<Expected>,
    /// Total bytes of the stream assigned to responses.
    pub promised_bytes: u64,
    pub client_gone: bool,
    /// When the last frame to the client is due.
    pub last_due_ns: u64,
    pub band: u8,
    /// The mean of the round trips when the server last looked at it.
    pub looked: Option<MeanRtt>,
    /// When the server last wrote.
    pub written_ns: u64,
    /// The earliest timers in the agenda: of the server's end and of the client's.
    pub armed: [Option<u64>; 2],
}

#[derive(Debug)]
pub(super) struct Handshake {
    pub established: bool,
    pub server_established: bool,
    pub syns: u32,
    pub syn_acks: u32,
    pub syn_ack_sent_ns: u64,
}

/// A response that a client waits for.
#[derive(Debug)]
pub(super) struct Expected {
    pub ticket: Ticket,
    pub begin: u64,
    pub end: u64,
    pub first_byte_ns: Option<u64>,
}

/// A response that the server sends.
#[derive(Debug)]
pub(super) struct Serving {
    /// Payload that the socket has not accepted yet.
    pub left_bytes: u64,
    pub job: Option<JobId>,
    /// The response waits for a grant.
    pub waiting: bool,
    /// The socket accepted less than offered; it accepts more when half of its limit is free.
    pub stalled: bool,
    /// Bytes sent since the path was last measured.
    pub unmeasured_bytes: u64,
    pub last: bool,
}

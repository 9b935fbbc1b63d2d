//! A connection: both of its ends, and the responses on it.

use std::collections::VecDeque;

use scheduler::JobId;

use super::{receiver::Receiver, sender::Sender};
use crate::Ticket;

/// Names a connection; never used for another, though its place is.
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
    /// What the client will ask as soon as it may.
    pub asks: Option<u64>,
    /// Requests that may still be made on it.
    pub uses_left: u32,
    pub sender: Sender,
    pub receiver: Receiver,
    /// The server's response under way.
    pub serving: Option<Serving>,
    /// As the client waits for them.
    pub expected: VecDeque<Expected>,
    /// Bytes of the stream promised to responses so far.
    pub promised_bytes: u64,
    pub client_gone: bool,
    /// When the last frame to the client is due.
    pub last_due_ns: u64,
    pub band: u8,
    /// The earliest of its timers that is in the agenda: of the server's end and of the client's.
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
    /// Payload that the socket has not taken.
    pub left_bytes: u64,
    pub job: Option<JobId>,
    /// It has asked for leave and has no answer.
    pub waiting: bool,
    /// The socket took less than it was offered; it takes more when half of its limit is free.
    pub stalled: bool,
    /// Bytes since the path was measured.
    pub unmeasured_bytes: u64,
    pub last: bool,
}

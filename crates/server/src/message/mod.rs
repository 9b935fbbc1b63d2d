//! The I/O around the HTTP/1.1 codec ([`http1`]) that clients' and upstreams' connections share: bytes read
//! and not yet consumed ([`inbox`]), and a message being sent ([`outgoing`]).

#[cfg(test)]
pub(crate) mod frames;
pub(crate) mod inbox;
pub(crate) mod outgoing;

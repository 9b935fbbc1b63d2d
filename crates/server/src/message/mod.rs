//! The I/O around the HTTP/1.1 codec ([`http1`]) that both sides need: bytes read and not yet consumed ([`inbox`]), and a
//! message on its way out ([`outgoing`]).

#[cfg(test)]
pub(crate) mod frames;
pub(crate) mod inbox;
pub(crate) mod outgoing;

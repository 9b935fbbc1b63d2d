//! The server from outside: a real one, in this process, spoken to over loopback.

mod admin;
mod harness;
mod heads;
mod http2;
mod lifecycle;
mod records;
mod tls;

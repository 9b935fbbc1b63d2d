//! Other systems: these options do not exist, or only in another form.

use std::io;

use super::{AsHandle, TcpInfo};

pub(super) fn tcp_info(_: impl AsHandle) -> io::Result<TcpInfo> {
    unsupported()
}

pub(super) fn unsent_bytes(_: impl AsHandle) -> io::Result<u64> {
    unsupported()
}

pub(super) fn unacked_bytes(_: impl AsHandle) -> io::Result<u64> {
    unsupported()
}

pub(super) fn set_notsent_lowat(_: impl AsHandle, _: u32) -> io::Result<()> {
    unsupported()
}

pub(super) fn notsent_lowat(_: impl AsHandle) -> io::Result<Option<u32>> {
    unsupported()
}

pub(super) fn set_congestion_control(_: impl AsHandle, _: &str) -> io::Result<()> {
    unsupported()
}

pub(super) fn congestion_control(_: impl AsHandle) -> io::Result<String> {
    unsupported()
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this socket option is known to Serpent on Linux only"))
}

//! The options on Linux.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use socket2::SockRef;

use super::tcp_info::{KERNEL_STRUCT_BYTES, TcpInfo};

/// `SIOCOUTQ` of linux/sockios.h.
const SIOCOUTQ: libc::c_ulong = 0x5411;
/// `SIOCOUTQNSD` of linux/sockios.h.
const SIOCOUTQNSD: libc::c_ulong = 0x894b;

pub(super) fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut record = [0u8; KERNEL_STRUCT_BYTES];
    let mut length = KERNEL_STRUCT_BYTES as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, so it is open; the kernel writes at most `length` bytes to
    // `record`, which has that many, and stores in `length` how many it wrote.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            record.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo::parse(&record[..length as usize]))
}

pub(super) fn unsent_bytes(socket: impl AsFd) -> io::Result<u64> {
    queue_bytes(socket, SIOCOUTQNSD)
}

pub(super) fn unacked_bytes(socket: impl AsFd) -> io::Result<u64> {
    queue_bytes(socket, SIOCOUTQ)
}

pub(super) fn set_notsent_lowat(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_notsent_lowat(bytes)
}

pub(super) fn notsent_lowat(socket: impl AsFd) -> io::Result<Option<u32>> {
    Ok(Some(SockRef::from(&socket).tcp_notsent_lowat()?).filter(|&bytes| bytes > 0))
}

pub(super) fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_congestion(socket, name)?)
}

pub(super) fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    Ok(rustix::net::sockopt::tcp_congestion(socket)?)
}

fn queue_bytes(socket: impl AsFd, request: libc::c_ulong) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed, so it is open; both requests store one int where the argument
    // points, and `bytes` is one.
    let status = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request as _, &raw mut bytes) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.max(0) as u64)
}

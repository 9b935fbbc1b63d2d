//! Changes of traffic control and of network devices, as events of a tokio runtime.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink, recv,
        socket_with,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

/// Tells that disciplines, classes or devices have changed, and not which ones. It belongs to the network namespace in which
/// it was opened, and needs no privileges.
#[derive(Debug)]
pub struct TrafficEvents {
    socket: AsyncFd<OwnedFd>,
}

/// The protocol has the number 0.
const NETLINK_ROUTE: Option<Protocol> = None;
const RTMGRP_LINK: u32 = 1;
const RTMGRP_TC: u32 = 8;

impl TrafficEvents {
    /// Begins to listen, and registers with the current runtime.
    ///
    /// # Errors
    ///
    /// The error of the operating system, for example where such sockets are forbidden.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, NETLINK_ROUTE)?;
        bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK | RTMGRP_TC))?;
        // SAFETY: the descriptor is owned, and closed only when it is dropped, which happens together with the
        // registration.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { socket })
    }

    /// Waits for a change. Cancel safe.
    ///
    /// # Errors
    ///
    /// When the runtime is shutting down.
    pub async fn changed(&self) -> io::Result<()> {
        self.socket.readable().await?.clear_ready();
        Ok(())
    }

    /// Forgets the changes up to now.
    ///
    /// # Errors
    ///
    /// The error of the socket.
    pub fn forget(&self) -> io::Result<()> {
        // Only that something came matters: what does not fit is lost.
        let mut cut_off = [0; 16];
        loop {
            match recv(self.socket.as_fd(), &mut cut_off, RecvFlags::empty()) {
                // More came than the socket holds.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

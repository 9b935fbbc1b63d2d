//! Permissions of this process, found by trying and not by reading capability sets. User namespaces, security
//! modules and older kernels all change the meaning of a capability.

use std::io;

/// The largest `SO_PRIORITY` that needs no privilege.
pub const UNPRIVILEGED_PRIORITY_MAX: u32 = 6;

/// Whether this process may set `SO_PRIORITY` above [`UNPRIVILEGED_PRIORITY_MAX`], as the kernel's bands need it.
///
/// That takes `CAP_NET_ADMIN`, or since Linux 5.17 `CAP_NET_RAW`, in the user namespace that owns the network
/// namespace.
///
/// The test uses a socket that is closed again. `Ok(false)` also where the system has no such option. An
/// error means that the test itself failed (no file descriptor left).
pub fn may_set_high_priority() -> io::Result<bool> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    match crate::socket::set_priority(&socket, UNPRIVILEGED_PRIORITY_MAX + 1) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Capabilities belong to threads: a thread without them is refused, whatever the process may do.
    #[test]
    fn a_thread_without_capabilities_may_not() {
        let may = std::thread::spawn(|| {
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, none).expect("laying capabilities down is always allowed");
            may_set_high_priority().expect("a datagram socket")
        });
        assert!(!may.join().expect("thread"));
    }

    #[test]
    fn the_answer_agrees_with_the_capabilities_held() {
        let held = rustix::thread::capabilities(None).expect("own capabilities").effective;
        if held.contains(rustix::thread::CapabilitySet::NET_ADMIN) {
            assert!(may_set_high_priority().expect("a datagram socket"));
        }
    }
}

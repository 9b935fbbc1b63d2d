//! TUN devices: a network device whose other end is a file descriptor in this process (see the kernel's
//! `Documentation/networking/tuntap.rst`).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags};

/// A TUN device of the network namespace in which it was opened. Non-blocking, closed on exec; dropping it
/// removes the device. Each read returns one IP packet that the kernel sends through the device. Each write
/// gives the kernel one received packet.
///
/// No segmentation offload is announced, so the kernel splits packets larger than the device's MTU before
/// they are read.
#[derive(Debug)]
pub struct Tun(OwnedFd);

impl Tun {
    /// Makes the device `name` in the network namespace of the calling thread. The device is down until it is
    /// set up.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the name is empty or longer than 15 bytes. Otherwise the error of
    /// the operating system: without `CAP_NET_ADMIN`, without `/dev/net/tun`, or when the name is taken.
    pub fn open(name: &str) -> io::Result<Self> {
        let mut request =
            libc::ifreq { ifr_name: device_name(name)?, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: FLAGS } };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which lives until the
        // call is over.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(fd)) }
    }

    /// Reads the next packet that the kernel sends, and returns its length. Bytes that do not fit into
    /// `packet` are cut off.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, packet)?)
    }

    /// Gives the kernel a received packet.
    ///
    /// # Errors
    ///
    /// The error of the operating system, for example when the device is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.0, packet)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Plain IP packets without an extra header.
const FLAGS: libc::c_short = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;

/// The name as the kernel expects it, with a zero at its end.
fn device_name(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        let reason = format!("`{name}` cannot be the name of a network device: it has 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let mut bytes = [0; libc::IFNAMSIZ];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_device_can_have_are_refused_before_the_kernel_is_asked() {
        for name in ["", "sixteen-letters-", "with\0zero"] {
            assert_eq!(Tun::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}

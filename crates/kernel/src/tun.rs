//! TUN devices: a network device whose other end is a file descriptor in this process (see the kernel's
//! `Documentation/networking/tuntap.rst`).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags};

/// A TUN device of the network namespace in which it was opened. Non-blocking, closed on exec; the device goes when this is
/// dropped. Each read takes one IP packet that the kernel sends through the device, each write gives it one that it receives.
///
/// No segmentation offload is announced: the kernel cuts what is larger than the device's MTU before it is read here.
#[derive(Debug)]
pub struct Tun(OwnedFd);

impl Tun {
    /// Makes the device `name` in the network namespace of the calling thread. It is down until somebody sets it up.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the name is empty or longer than 15 bytes, else what the operating system says:
    /// without `CAP_NET_ADMIN`, without `/dev/net/tun`, or when the name is taken.
    pub fn open(name: &str) -> io::Result<Self> {
        let mut request =
            libc::ifreq { ifr_name: device_name(name)?, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: FLAGS } };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which lives until the call is over.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(fd)) }
    }

    /// Takes the next packet that the kernel sends, and gives its length. What does not fit into `packet` is cut off.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, packet)?)
    }

    /// Gives the kernel a packet to receive.
    ///
    /// # Errors
    ///
    /// What the operating system says, as when the device is down.
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

/// IP packets without a header of the device's own.
const FLAGS: libc::c_short = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;

/// The name as the kernel wants it, with a zero at its end.
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

//! Where worker processes listen.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::command::wrong;

/// Longest path of a Unix socket (`sun_path`, less the NUL).
const SOCKET_PATH_BYTES: usize = 107;

/// The address of a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerAddress {
    /// A loopback port.
    Socket(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Makes the folder, or checks that it belongs to this user alone.
pub(super) fn private(folder: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("folder of sockets {}: {error}", folder.display()));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(named)?;
    // Links are not followed, because their owner could redirect them.
    let metadata = fs::symlink_metadata(folder).map_err(named)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(named(io::Error::new(ErrorKind::PermissionDenied, "it is not ours (remove it, or name another)")));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(named)?;
    }
    Ok(())
}

/// A unique path for a socket, also if other processes use the folder: `shop-gold-PID-7.socket`.
pub(super) fn socket_path(folder: &Path, upstream: &str, class: &str) -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let plain = |name: &str| -> String {
        name.chars().take(12).map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let (pid, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let path = folder.join(format!("{}-{}-{pid}-{number}.socket", plain(upstream), plain(class)));
    if path.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(wrong(format!("{} is too long for the path of a socket: name a shorter folder", path.display())));
    }
    if path.to_str().is_none() {
        return Err(wrong(format!("{} is not UTF-8: name another folder", folder.display())));
    }
    Ok(path)
}

/// An unused loopback port below the system's ephemeral range. A port of that range might be taken while a
/// process restarts.
pub(super) fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let ephemeral = range.and_then(|range| range.split_whitespace().next()?.parse::<u16>().ok()).unwrap_or(32768);
    let first = 10_000;
    let count = u64::from(ephemeral.saturating_sub(first));
    for _ in 0..count {
        let at = (u64::from(std::process::id()) * 97 + NEXT.fetch_add(1, Relaxed)) % count;
        let port = first + at as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    // No port below the range was free.
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

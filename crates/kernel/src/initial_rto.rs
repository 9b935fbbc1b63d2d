//! Sets the initial retransmission time-out of TCP (for SYN and SYN-ACK) in one network namespace.
//!
//! In the kernel it is a constant (`TCP_TIMEOUT_INIT`, the second of RFC 6298) that no sysctl, route or
//! socket option changes. But the kernel first asks BPF programs of type `sock_ops`. The program here has a
//! dozen instructions. It answers the question `BPF_SOCK_OPS_TIMEOUT_INIT` for the one namespace that it was
//! made for. It ignores all other questions, so other namespaces keep their values. It is attached to the
//! root of the control groups, and is removed when its descriptor is closed.

use std::{
    ffi::CStr,
    io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::netns::NetNs;

/// An initial time-out set for a namespace; dropping it restores the kernel's own.
#[derive(Debug)]
pub struct InitialRto {
    _link: OwnedFd,
}

impl InitialRto {
    /// Sets the initial time-out of all later TCP connections of `ns`. The unit is ticks of the kernel's
    /// clock (`CONFIG_HZ` ticks a second; `TCP_INFO` shows the resulting time).
    ///
    /// # Errors
    ///
    /// The error of the operating system: without `CAP_SYS_ADMIN`, or on a kernel before 5.15 or without
    /// `CONFIG_CGROUP_BPF`.
    pub fn set(ns: &NetNs, ticks: u32) -> io::Result<Self> {
        let program = load(&instructions(cookie(ns)?, ticks))?;
        let root = root_of_control_groups()?;
        let link = bpf(
            BPF_LINK_CREATE,
            &LinkCreate {
                prog_fd: program.as_raw_fd() as u32,
                target_fd: root.as_raw_fd() as u32,
                attach_type: BPF_CGROUP_SOCK_OPS,
                flags: 0,
            },
        )?;
        Ok(Self { _link: link })
    }
}

// From linux/bpf.h, whose numbers never change.
const BPF_PROG_LOAD: u32 = 5;
const BPF_LINK_CREATE: u32 = 28;
const BPF_PROG_TYPE_SOCK_OPS: u32 = 13;
const BPF_CGROUP_SOCK_OPS: u32 = 3;
const BPF_SOCK_OPS_TIMEOUT_INIT: i32 = 1;
const BPF_FUNC_GET_NETNS_COOKIE: i32 = 122;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination register in the lower half, source register in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The program. Its context is a `struct bpf_sock_ops`: the question and the space for the answer, 32 bits
/// each.
fn instructions(cookie: u64, ticks: u32) -> [Instruction; 12] {
    const LOAD_32: u8 = 0x61;
    const STORE_32: u8 = 0x63;
    const MOVE: u8 = 0xbf;
    const MOVE_IMMEDIATE: u8 = 0xb7;
    const LOAD_IMMEDIATE_64: u8 = 0x18;
    const JUMP_UNLESS_IMMEDIATE: u8 = 0x55;
    const JUMP_UNLESS: u8 = 0x5d;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    let op =
        |code, to: u8, from: u8, offset, immediate| Instruction { code, registers: from << 4 | to, offset, immediate };
    [
        op(MOVE, 6, 1, 0, 0),
        op(LOAD_32, 2, 6, 0, 0),
        op(JUMP_UNLESS_IMMEDIATE, 2, 0, 7, BPF_SOCK_OPS_TIMEOUT_INIT),
        op(MOVE, 1, 6, 0, 0),
        op(CALL, 0, 0, 0, BPF_FUNC_GET_NETNS_COOKIE),
        op(LOAD_IMMEDIATE_64, 3, 0, 0, cookie as u32 as i32),
        op(0, 0, 0, 0, (cookie >> 32) as u32 as i32),
        op(JUMP_UNLESS, 0, 3, 2, 0),
        op(MOVE_IMMEDIATE, 4, 0, 0, ticks.min(i32::MAX as u32) as i32),
        op(STORE_32, 6, 4, 4, 0),
        op(MOVE_IMMEDIATE, 0, 0, 0, 1),
        op(EXIT, 0, 0, 0, 0),
    ]
}

/// The attributes of `BPF_PROG_LOAD`; the kernel takes missing fields as zero.
#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

/// The attributes of `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    const LICENSE: &CStr = c"Dual MIT/GPL";
    bpf(
        BPF_PROG_LOAD,
        &ProgramLoad {
            prog_type: BPF_PROG_TYPE_SOCK_OPS,
            insn_cnt: program.len() as u32,
            insns: program.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
        },
    )
}

/// Runs a bpf(2) command that returns a new descriptor.
fn bpf<T>(command: u32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `attributes`, which is one of the two structs above,
    // made of integers without padding. The addresses in it point to data that the caller holds until this
    // returns.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands return a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A private mount of the control group hierarchy that BPF programs are attached to.
fn root_of_control_groups() -> io::Result<OwnedFd> {
    let filesystem = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(filesystem.as_fd())?;
    Ok(fsmount(filesystem.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The kernel's number of a namespace (`SO_NETNS_COOKIE`).
fn cookie(ns: &NetNs) -> io::Result<u64> {
    let socket = {
        let _inside = ns.enter()?;
        UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?
    };
    let socket: BorrowedFd = socket.as_fd();
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes to `cookie`, which has as
    // many.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

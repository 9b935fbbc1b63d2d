//! Access to the kernel: socket options, `TCP_INFO`, timers, traffic control, processes and their priority.
//!
//! This is the only crate with `unsafe`, and each block states its reason. It decides nothing: it queries the
//! kernel and returns plain structs with units in their names. Every function acts in the network namespace
//! of the calling thread.
//!
//! Everything compiles on systems other than Linux; missing features return
//! [`std::io::ErrorKind::Unsupported`].

pub mod bands;
#[cfg(target_os = "linux")]
pub mod bpf;
#[cfg(target_os = "linux")]
pub mod initial_rto;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(unix)]
pub mod process;
pub mod socket;
pub mod timer;
#[cfg(target_os = "linux")]
pub mod timer_events;
#[cfg(target_os = "linux")]
pub mod traffic_events;
#[cfg(target_os = "linux")]
pub mod tun;

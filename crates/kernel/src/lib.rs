//! What only the kernel can do: socket options, `TCP_INFO`, timers, traffic control, processes and their priority.
//!
//! The one crate with `unsafe` in it, each block with its reason. It decides nothing: it asks the kernel and answers in
//! plain structs with units in their names. Every function acts in the network namespace of the calling thread.
//!
//! On systems other than Linux everything compiles; what the system lacks answers [`std::io::ErrorKind::Unsupported`].

pub mod bands;
pub mod capabilities;
#[cfg(target_os = "linux")]
pub mod initial_rto;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(unix)]
pub mod process;
pub mod socket;
pub mod timer;
#[cfg(target_os = "linux")]
pub mod timer_events;
#[cfg(target_os = "linux")]
pub mod tun;

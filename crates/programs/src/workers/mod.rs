//! Worker processes: servers that this process starts for upstreams with a command. Each class has a pool of
//! them with its processor priority.
//!
//! - A process listens on a Unix socket in a folder that only this server's user may enter, or on a loopback
//!   port. The address stays the same over restarts.
//! - It is ready when a connection to it succeeds. A process that is not ready in time is stopped and counts
//!   as ended. Another program may take a port during a restart; sockets are safer.
//! - A process that ends is restarted after a pause. The pause is short if the process served for a while;
//!   otherwise it doubles, up to half a minute. Restarts never stop: the cause may be fixed, and every
//!   attempt is in the log.
//! - At a reload, processes with unchanged command and class stay. The successors of the others are started
//!   beside them ([`Workers::reload`]). The old ones end when the last request has released their
//!   configuration. If no successor gets ready, the reload fails and the old processes stay
//!   ([`Workers::wait_until_ready`]).
//!
//! One thread supervises all processes. It outlives [`Workers`] and ends with the last process.

mod address;
mod command;
mod keeper;
mod place;
mod set;
#[cfg(test)]
mod tests;

pub use self::{
    address::WorkerAddress,
    place::{WorkerState, WorkerStats},
    set::Workers,
};

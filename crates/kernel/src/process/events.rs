//! Waiting for the end of a [`Process`] in a tokio runtime.

use std::io;

use tokio::io::{Interest, unix::AsyncFd};

use super::{Ended, Process};

/// The end of a program as an event. Dropping it kills the program.
#[derive(Debug)]
pub struct ProcessEvents {
    process: AsyncFd<Process>,
}

impl ProcessEvents {
    /// Registers the program with the current runtime.
    ///
    /// # Errors
    ///
    /// The error of the operating system, for example when no file descriptors are left.
    pub fn new(process: Process) -> io::Result<Self> {
        // SAFETY: the process owns the descriptor and closes it only when it is dropped, which happens
        // together with the registration.
        let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }?;
        Ok(Self { process })
    }

    /// The program.
    pub fn process(&self) -> &Process {
        self.process.get_ref()
    }

    /// Waits for the end of the program. Cancel safe. Later calls give the same answer.
    ///
    /// # Errors
    ///
    /// When the runtime is shutting down.
    pub async fn ended(&mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.process.get_mut().try_wait()? {
                return Ok(ended);
            }
            self.process.readable_mut().await?.clear_ready();
        }
    }
}

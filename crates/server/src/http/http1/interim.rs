//! Interim responses (RFC 9110, section 15.2) on their way to an HTTP/1.1 client. To those of HTTP/2 hyper has no way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use http::Version;
use http1::{write_field, write_status_line};
use parking_lot::Mutex;

use crate::upstream::Interim;

/// What of them a connection's client has yet to get. There cannot be much: see [`crate::upstream`].
#[derive(Debug, Default)]
pub(in crate::http) struct Interims {
    /// There are some. To be seen without the lock, because mostly there are none.
    wait: AtomicBool,
    /// Requests that have their answer. Changes behind the lock.
    answered: AtomicU64,
    bytes: Mutex<Vec<u8>>,
}

impl Interims {
    /// A name for the request that is answered next.
    pub(in crate::http) fn next(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// One of a request's; from its answer on, it is too late.
    pub(in crate::http) fn push(&self, request: u64, interim: &Interim) {
        let mut bytes = self.bytes.lock();
        if self.answered.load(Relaxed) == request {
            write(&mut bytes, interim);
            self.wait.store(true, Relaxed);
        }
    }

    /// What is to be written now.
    pub(in crate::http) fn take(&self) -> Vec<u8> {
        if !self.wait.load(Relaxed) {
            return Vec::new();
        }
        self.wait.store(false, Relaxed);
        std::mem::take(&mut self.bytes.lock())
    }

    /// The request has its answer. What is to be written before that.
    pub(in crate::http) fn answered(&self) -> Vec<u8> {
        let mut bytes = self.bytes.lock();
        self.answered.store(self.answered.load(Relaxed) + 1, Relaxed);
        self.wait.store(false, Relaxed);
        std::mem::take(&mut bytes)
    }
}

fn write(to: &mut Vec<u8>, interim: &Interim) {
    write_status_line(Version::HTTP_11, interim.status(), to);
    for (name, value) in interim.headers() {
        write_field(name, value, to);
    }
    to.extend_from_slice(b"\r\n");
}

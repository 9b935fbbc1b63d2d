//! Wakers that are woken after a lock is released.

use std::task::Waker;

/// Wakers collected under a lock. The first one needs no allocation.
#[derive(Default)]
pub(crate) struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    pub fn extend(&mut self, waker: Option<Waker>) {
        match (&self.first, waker) {
            (_, None) => {}
            (None, waker) => self.first = waker,
            (Some(_), Some(waker)) => self.more.push(waker),
        }
    }

    /// Wakes all of them. The caller holds no lock.
    pub fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
    }
}

//! Connections that are kept between requests.
//!
//! An application such as PHP-FPM gives each connection a process, which waits for the next request of that connection
//! and accepts no other. So a kept connection must never hold a process for which a request waits. Two rules take care of
//! it, under one lock:
//! - A request takes a kept connection if there is one, and opens a new one only if there is none.
//! - While a request on a new connection has no answer, it may wait for a process. No connection is kept meanwhile.
//!
//! All routes and configurations with the same address share a pool, or they would hold processes from each other.
//! Other servers that use the same application do not know of it: they wait for as long as connections are kept, at most.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::{config::FastCgiAddress, socket::KeptSocket};

/// The pools of this process.
static POOLS: LazyLock<Mutex<HashMap<FastCgiAddress, Weak<Pool>>>> = LazyLock::new(Mutex::default);

/// The kept connections to an address.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The one that was used last stands last.
    idle: Vec<Idle>,
    /// Requests on new connections that have no answer yet.
    unanswered: usize,
    /// Whether a task closes idle connections in time.
    is_swept: bool,
}

#[derive(Debug)]
struct Idle {
    socket: KeptSocket,
    until: Instant,
}

/// The connection of a request.
#[derive(Debug)]
pub(crate) enum Connection {
    Kept(KeptSocket),
    /// None is kept: the request opens one.
    New(Unanswered),
}

/// A request on a new connection, until its answer begins.
#[derive(Debug)]
pub(crate) struct Unanswered(Arc<Pool>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.0.lock().unanswered -= 1;
    }
}

impl Pool {
    /// The pool of an address.
    pub(crate) fn of(address: &FastCgiAddress) -> Arc<Self> {
        let mut pools = POOLS.lock();
        pools.retain(|_, pool| pool.strong_count() > 0);
        if let Some(pool) = pools.get(address).and_then(Weak::upgrade) {
            return pool;
        }
        let pool = Arc::new(Self::default());
        pools.insert(address.clone(), Arc::downgrade(&pool));
        pool
    }

    /// The connection for a request: a kept one that is `usable`, or none.
    pub(crate) fn take(self: &Arc<Self>, usable: impl Fn(&KeptSocket) -> bool) -> Connection {
        let mut state = self.0.lock();
        while let Some(Idle { mut socket, until }) = state.idle.pop() {
            if Instant::now() < until && usable(&socket) && socket.is_quiet() {
                return Connection::Kept(socket);
            }
        }
        state.unanswered += 1;
        Connection::New(Unanswered(self.clone()))
    }

    /// A kept connection was found closed: the application has ended, and all the others are closed too.
    pub(crate) fn open_anew(self: &Arc<Self>) -> Unanswered {
        let mut state = self.0.lock();
        state.idle.clear();
        state.unanswered += 1;
        Unanswered(self.clone())
    }

    /// Keeps a connection for so long, unless there are `most` already. Must be called within a runtime.
    pub(crate) fn keep(self: &Arc<Self>, socket: KeptSocket, most: usize, keep_for: Duration) {
        let mut state = self.0.lock();
        if state.unanswered > 0 || state.idle.len() >= most {
            return;
        }
        state.idle.push(Idle { socket, until: Instant::now() + keep_for });
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes the connections whose time has come. Returns when the next one's comes.
    fn sweep(&self) -> Option<Instant> {
        let mut state = self.0.lock();
        let now = Instant::now();
        state.idle.retain(|idle| now < idle.until);
        let next = state.idle.iter().map(|idle| idle.until).min();
        state.is_swept = next.is_some();
        next
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.idle.len(), state.unanswered)
    }
}

async fn sweep(pool: Weak<Pool>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.sweep()) {
        sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    fn pair() -> (KeptSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (KeptSocket::Unix(ours), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_for_a_while_and_no_closed_one_is_used() {
        let pool = Arc::new(Pool::default());
        let (first, _open) = pair();
        let (second, closed) = pair();
        pool.keep(first, 2, Duration::from_secs(2));
        pool.keep(second, 2, Duration::from_secs(2));
        pool.keep(pair().0, 2, Duration::from_secs(2));
        assert_eq!(pool.counts(), (2, 0), "no more than two");
        drop(closed);
        let Connection::Kept(socket) = pool.take(|_| true) else { panic!("one is open") };
        assert_eq!(pool.counts(), (0, 0));
        pool.keep(socket, 2, Duration::from_secs(2));
        tokio::time::sleep(Duration::from_millis(1900)).await;
        assert_eq!(pool.counts(), (1, 0));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(pool.counts(), (0, 0), "it is closed without another request");
        assert!(matches!(pool.take(|_| true), Connection::New(_)));
        assert_eq!(pool.counts(), (0, 0), "the request has ended");
    }

    #[test]
    fn routes_with_the_same_address_share_their_connections() {
        let address = |path: &str| FastCgiAddress::Unix(path.into());
        let one = Pool::of(&address("/a"));
        assert!(Arc::ptr_eq(&one, &Pool::of(&address("/a"))));
        assert!(!Arc::ptr_eq(&one, &Pool::of(&address("/b"))));
    }

    proptest! {
        /// An application with few processes, each of which belongs to a connection until that is closed.
        #[test]
        fn no_process_waits_for_a_connection_while_a_request_waits_for_a_process(
            processes in 1_usize..4,
            most in 0_usize..4,
            steps in prop::collection::vec((any::<bool>(), 0_usize..8), 1..60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let pool = Arc::new(Pool::default());
                // Requests with a process, those on new connections without one, and the application's ends.
                let (mut running, mut waiting, mut ends) = (Vec::new(), std::collections::VecDeque::new(), Vec::new());
                for (arrives, which) in steps {
                    if arrives {
                        match pool.take(|_| true) {
                            // Its process answers at once.
                            Connection::Kept(socket) => running.push(socket),
                            Connection::New(unanswered) => waiting.push_back(unanswered),
                        }
                    } else if !running.is_empty() {
                        let socket = running.swap_remove(which % running.len());
                        pool.keep(socket, most, Duration::from_secs(1000));
                    }
                    while running.len() + pool.counts().0 < processes
                        && let Some(unanswered) = waiting.pop_front()
                    {
                        let (ours, theirs) = pair();
                        running.push(ours);
                        ends.push(theirs);
                        drop(unanswered);
                    }
                    let idle = pool.counts().0;
                    assert!(waiting.is_empty() || idle == 0, "{idle} processes are idle, {} requests wait", waiting.len());
                    assert!(idle <= most);
                }
            });
        }
    }
}

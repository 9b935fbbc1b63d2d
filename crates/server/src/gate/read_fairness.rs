//! The read fairness queue of a worker: requests under way go before new requests.
//!
//! After a burst, or a pause of the machine, many sockets of a worker are ready at once: clients with new requests, and
//! upstreams with responses. If they were read in the order in which they became ready, all these requests would begin
//! before the first of them is answered. So only a few clients are read from each time the runtime has looked for ready
//! sockets. Everything else that is ready by then (responses of upstreams, files, room for a client's response) goes in
//! between. For the worker's processor that is the shortest remaining work first: a request that has begun is nearer to
//! its end than one that has not. Clients are answered mostly in the order in which they came.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::metrics::WorkerMetrics;

/// Clients that are read from at a time.
pub(super) const AT_A_TIME: u32 = 2;
/// Where many clients wait, one in so many of them is read from at a time. So connections that are always ready delay
/// the others little.
const PART: usize = 8;

/// Decides which clients of one worker are read from next.
#[derive(Debug)]
pub(crate) struct ReadFairness {
    metrics: Arc<WorkerMetrics>,
    /// Turns taken since the last rest or call.
    taken: AtomicU32,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Positions below this one have their turn.
    called: u64,
    /// Connections at the positions from `called` on.
    waiting: VecDeque<Waker>,
    /// Whether no connection has to wait any more.
    is_open: bool,
    /// The task that calls waiting connections.
    caller: Option<Waker>,
}

/// The position of a connection that waits for its turn.
#[derive(Debug)]
pub(super) struct QueuePosition(u64);

impl ReadFairness {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self { metrics, taken: AtomicU32::new(0), queue: Mutex::default() }
    }

    /// Waits for a turn, which is good for one read. The connection keeps `position` between two polls. If it is
    /// dropped instead, one turn of another connection is lost.
    pub(super) fn poll_turn(&self, position: &mut Option<QueuePosition>, cx: &Context<'_>) -> Poll<()> {
        let Some(QueuePosition(number)) = *position else {
            // A worker has one thread, so the load and the store are not interrupted.
            let taken = self.taken.load(Relaxed);
            if taken < AT_A_TIME {
                self.taken.store(taken + 1, Relaxed);
                return Poll::Ready(());
            }
            let mut queue = self.queue.lock();
            if queue.is_open {
                return Poll::Ready(());
            }
            self.metrics.reads_delayed.fetch_add(1, Relaxed);
            *position = Some(QueuePosition(queue.called + queue.waiting.len() as u64));
            queue.waiting.push_back(cx.waker().clone());
            if queue.waiting.len() == 1
                && let Some(caller) = &queue.caller
            {
                caller.wake_by_ref();
            }
            return Poll::Pending;
        };
        let mut queue = self.queue.lock();
        match number.checked_sub(queue.called) {
            None => {
                *position = None;
                Poll::Ready(())
            }
            Some(ahead) => {
                if let Some(waker) = queue.waiting.get_mut(ahead as usize) {
                    waker.clone_from(cx.waker());
                }
                Poll::Pending
            }
        }
    }

    /// Gives turns to waiting connections, a few each time it is polled. It belongs into the future of
    /// `Runtime::block_on`: the runtime polls that after it has looked for ready sockets, and behind the tasks that
    /// these wake.
    pub(crate) async fn call(&self) -> Infallible {
        poll_fn(|cx| {
            let called = {
                let mut queue = self.queue.lock();
                queue.caller = Some(cx.waker().clone());
                let many = queue.waiting.len() / PART;
                let many = queue.waiting.len().min(many.max(AT_A_TIME as usize));
                if many == 0 {
                    return Poll::Pending;
                }
                queue.called += many as u64;
                self.taken.store(many as u32, Relaxed);
                let called: Vec<_> = queue.waiting.drain(..many).collect();
                if !queue.waiting.is_empty() {
                    cx.waker().wake_by_ref();
                }
                called
            };
            called.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await
    }

    /// Gives a turn to every connection from now on. At a stop, a connection that is not read from would count as idle.
    pub(crate) fn call_all(&self) {
        let called = {
            let mut queue = self.queue.lock();
            queue.is_open = true;
            queue.called += queue.waiting.len() as u64;
            std::mem::take(&mut queue.waiting)
        };
        called.into_iter().for_each(Waker::wake);
    }

    /// Whether a connection would get a turn without waiting.
    pub(super) fn is_free(&self) -> bool {
        self.taken.load(Relaxed) < AT_A_TIME
    }

    /// There was nothing to read: another connection may take this turn.
    pub(super) fn give_back(&self) {
        self.taken.store(self.taken.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// The worker has nothing to do.
    pub(crate) fn rest(&self) {
        self.taken.store(0, Relaxed);
    }
}

/// For tests of the gate.
#[cfg(test)]
impl ReadFairness {
    /// Turns taken since the last rest or call, and connections that wait for one.
    pub(super) fn taken_and_waiting(&self) -> (u32, usize) {
        (self.taken.load(Relaxed), self.queue.lock().waiting.len())
    }

    /// As if other connections had taken so many turns.
    pub(super) fn set_taken(&self, turns: u32) {
        self.taken.store(turns, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::AtomicUsize,
        task::{Context, Wake},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixStream,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn turns() -> Arc<ReadFairness> {
        Arc::new(ReadFairness::new(Arc::default()))
    }

    /// Calls as a worker's runtime does, once.
    fn call(turns: &ReadFairness, caller: &Arc<Woken>) {
        let waker = caller.clone().into();
        assert!(std::pin::pin!(turns.call()).poll(&mut Context::from_waker(&waker)).is_pending());
    }

    #[derive(Default)]
    struct Client {
        position: Option<QueuePosition>,
        woken: Arc<Woken>,
    }

    impl Client {
        fn has_turn(&mut self, turns: &ReadFairness) -> bool {
            let waker = self.woken.clone().into();
            turns.poll_turn(&mut self.position, &Context::from_waker(&waker)).is_ready()
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Relaxed)
        }
    }

    fn clients(many: usize) -> Vec<Client> {
        std::iter::repeat_with(Client::default).take(many).collect()
    }

    fn with_turn(turns: &ReadFairness, clients: &mut [Client]) -> Vec<usize> {
        clients.iter_mut().enumerate().filter_map(|(at, client)| client.has_turn(turns).then_some(at)).collect()
    }

    #[test]
    fn two_are_read_from_at_once_and_the_others_when_they_are_called_in_the_order_in_which_they_came() {
        let (turns, caller, mut clients) = (turns(), Arc::<Woken>::default(), clients(7));
        call(&turns, &caller);
        assert_eq!(with_turn(&turns, &mut clients), [0, 1]);
        clients.drain(..2);
        for called in [2, 2, 1] {
            assert_eq!(with_turn(&turns, &mut clients), [0; 0], "not before they are called");
            assert_eq!(caller.0.swap(0, Relaxed), 1, "there is somebody to be called");
            call(&turns, &caller);
            let woken: Vec<_> = clients.iter().map(Client::woken).collect();
            assert_eq!(woken.iter().sum::<usize>(), called);
            assert!(woken.is_sorted_by(|one, next| one >= next), "{woken:?}");
            assert_eq!(with_turn(&turns, &mut clients[..called]), (0..called).collect::<Vec<_>>());
            clients.drain(..called);
        }
        assert_eq!(caller.0.load(Relaxed), 0);
        assert_eq!(turns.metrics.reads_delayed.load(Relaxed), 5);
    }

    #[test]
    fn when_the_worker_had_nothing_to_do_all_begins_anew() {
        let (turns, mut clients) = (turns(), clients(4));
        assert_eq!(with_turn(&turns, &mut clients[..2]), [0, 1]);
        turns.rest();
        assert_eq!(with_turn(&turns, &mut clients[2..]), [0, 1]);
    }

    #[test]
    fn who_comes_after_few_were_called_takes_what_they_have_left() {
        let (turns, caller, mut clients) = (turns(), Arc::default(), clients(5));
        assert_eq!(with_turn(&turns, &mut clients[..3]), [0, 1]);
        call(&turns, &caller);
        assert!(clients[2].has_turn(&turns));
        assert_eq!(with_turn(&turns, &mut clients[3..]), [0]);
    }

    #[test]
    fn of_many_who_wait_a_part_is_called() {
        let (turns, caller, mut clients) = (turns(), Arc::default(), clients(82));
        assert_eq!(with_turn(&turns, &mut clients), [0, 1]);
        call(&turns, &caller);
        assert_eq!(clients.iter().map(Client::woken).sum::<usize>(), 80 / PART);
    }

    #[test]
    fn at_a_stop_nobody_waits() {
        let (turns, caller, mut clients) = (turns(), Arc::default(), clients(20));
        assert_eq!(with_turn(&turns, &mut clients[..10]), [0, 1]);
        turns.call_all();
        assert!(clients[2..10].iter().all(|client| client.woken() == 1));
        call(&turns, &caller);
        assert_eq!(with_turn(&turns, &mut clients[2..]), (0..18).collect::<Vec<_>>());
    }

    #[test]
    fn whoever_asked_last_is_woken_and_who_has_gone_holds_nobody_up() {
        let (turns, caller, mut clients) = (turns(), Arc::default(), clients(5));
        assert_eq!(with_turn(&turns, &mut clients), [0, 1]);
        let before = std::mem::take(&mut clients[3].woken);
        assert!(!clients[3].has_turn(&turns));
        clients.remove(2);
        call(&turns, &caller);
        assert_eq!((before.0.load(Relaxed), clients[2].woken()), (0, 1));
        call(&turns, &caller);
        assert!(clients[3].has_turn(&turns));
    }

    #[test]
    fn what_is_under_way_ends_before_much_that_is_new_begins() {
        const CLIENTS: usize = 64;
        let turns = turns();
        let (resting, under_way, most) = (turns.clone(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().on_thread_park(move || resting.rest()).build().unwrap();
        let work = async {
            let tasks: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let (turns, under_way, most) = (turns.clone(), under_way.clone(), most.clone());
                    tokio::spawn(async move {
                        let (mut ours, mut upstream) = UnixStream::pair().unwrap();
                        let mut position = None;
                        poll_fn(|cx| turns.poll_turn(&mut position, cx)).await;
                        most.fetch_max(under_way.fetch_add(1, Relaxed) + 1, Relaxed);
                        // The answer is there at once, as soon as the runtime looks for it.
                        upstream.write_all(b"x").await.unwrap();
                        ours.read_exact(&mut [0]).await.unwrap();
                        under_way.fetch_sub(1, Relaxed);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        };
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = work => {}
                never = turns.call() => match never {},
            }
        });
        let most = most.load(Relaxed);
        assert!((1..=CLIENTS / 4).contains(&most), "{most} of {CLIENTS} at once");
    }
}

//! Who is read from next: what is under way goes before what is new.
//!
//! After a burst, or a pause of the machine, many sockets of a worker are ready at once: clients with new requests, and upstreams
//! with responses. In the order in which they became ready, all these requests would be begun before the first of them is answered.
//! So only some clients are read from each time the runtime has looked for what is ready; whatever else is ready by then (responses
//! of upstreams, files, room in the socket of a client) goes in between. It is the shortest remaining work first, for the worker's
//! processor: a request that was begun is nearer to its end than one that was not. And who came first is answered first, mostly.

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
const AT_A_TIME: u32 = 2;
/// Where many wait, this part of them, so that nobody waits for long behind others of whom there is always one ready.
const PART: usize = 8;

/// The turns of one worker's clients.
#[derive(Debug)]
pub(crate) struct Turns {
    metrics: Arc<WorkerMetrics>,
    /// Reads since the last rest or call.
    taken: AtomicU32,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Whose ticket is lower may read.
    called: u64,
    /// Those with the tickets from `called` on.
    waiting: VecDeque<Waker>,
    /// Nobody has to wait any more.
    all: bool,
    caller: Option<Waker>,
}

/// A place among those that wait for their turn.
#[derive(Debug)]
pub(super) struct Ticket(u64);

impl Turns {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self { metrics, taken: AtomicU32::new(0), queue: Mutex::default() }
    }

    /// Ready: it is one's turn, once. `ticket` is kept in between; to lose it costs somebody else's turn, and nothing more.
    pub(super) fn poll_turn(&self, ticket: &mut Option<Ticket>, cx: &Context<'_>) -> Poll<()> {
        let Some(Ticket(number)) = *ticket else {
            // A worker has one thread: between the two nobody else comes.
            let taken = self.taken.load(Relaxed);
            if taken < AT_A_TIME {
                self.taken.store(taken + 1, Relaxed);
                return Poll::Ready(());
            }
            let mut queue = self.queue.lock();
            if queue.all {
                return Poll::Ready(());
            }
            self.metrics.reads_delayed.fetch_add(1, Relaxed);
            *ticket = Some(Ticket(queue.called + queue.waiting.len() as u64));
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
                *ticket = None;
                Poll::Ready(())
            }
            Some(place) => {
                if let Some(waker) = queue.waiting.get_mut(place as usize) {
                    waker.clone_from(cx.waker());
                }
                Poll::Pending
            }
        }
    }

    /// Calls those who wait, some of them each time it is polled. The future of `Runtime::block_on` is the place for it: that is
    /// polled when the runtime has looked for what is ready, and behind what it has found.
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

    /// Calls all, now and from now on: at a stop, when who has not been read from for a while counts as idle.
    pub(crate) fn call_all(&self) {
        let called = {
            let mut queue = self.queue.lock();
            queue.all = true;
            queue.called += queue.waiting.len() as u64;
            std::mem::take(&mut queue.waiting)
        };
        called.into_iter().for_each(Waker::wake);
    }

    /// Whether a turn is to be had at once.
    pub(super) fn is_free(&self) -> bool {
        self.taken.load(Relaxed) < AT_A_TIME
    }

    /// There was nothing to read: another client may take this turn.
    pub(super) fn give_back(&self) {
        self.taken.store(self.taken.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// The worker has nothing to do.
    pub(crate) fn rest(&self) {
        self.taken.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::atomic::AtomicUsize,
        task::{Context, Wake},
    };

    use tokio::{
        io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf},
        net::{TcpListener, TcpStream, UnixStream},
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn turns() -> Arc<Turns> {
        Arc::new(Turns::new(Arc::default()))
    }

    /// Calls as a worker's runtime does, once.
    fn call(turns: &Turns, caller: &Arc<Woken>) {
        let waker = caller.clone().into();
        assert!(std::pin::pin!(turns.call()).poll(&mut Context::from_waker(&waker)).is_pending());
    }

    #[derive(Default)]
    struct Client {
        ticket: Option<Ticket>,
        woken: Arc<Woken>,
    }

    impl Client {
        fn has_turn(&mut self, turns: &Turns) -> bool {
            let waker = self.woken.clone().into();
            turns.poll_turn(&mut self.ticket, &Context::from_waker(&waker)).is_ready()
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Relaxed)
        }
    }

    fn clients(many: usize) -> Vec<Client> {
        std::iter::repeat_with(Client::default).take(many).collect()
    }

    fn with_turn(turns: &Turns, clients: &mut [Client]) -> Vec<usize> {
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
                        let mut ticket = None;
                        poll_fn(|cx| turns.poll_turn(&mut ticket, cx)).await;
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

    /// A connection behind the gate, and its client.
    async fn connection(turns: &Arc<Turns>) -> (super::super::Gate, TcpStream) {
        let uplink = crate::uplink::Uplink::with_rate_off();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (uplink.gate(listener.accept().await.unwrap().0).in_turn(turns.clone()), client)
    }

    #[tokio::test]
    async fn a_connection_without_data_spends_no_turn() {
        let turns = turns();
        let mut connections = Vec::new();
        for _ in 0..10 {
            let (mut gate, client) = connection(&turns).await;
            // Ready to be written to, as any new connection is, and looked at.
            gate.stream().writable().await.unwrap();
            let read =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut gate).poll_read(cx, &mut ReadBuf::new(&mut [0; 8])).is_ready()));
            assert!(!read.await);
            connections.push((gate, client));
        }
        assert_eq!((turns.taken.load(Relaxed), turns.queue.lock().waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_connection_whose_data_were_all_read_spends_no_second_turn() {
        let turns = turns();
        let (mut gate, mut client) = connection(&turns).await;
        client.write_all(b"abcd").await.unwrap();
        gate.read_exact(&mut [0; 4]).await.unwrap();
        assert_eq!(turns.taken.load(Relaxed), 1);
        let mut bytes = [0; 8];
        for taken in [1, AT_A_TIME] {
            // The runtime takes the socket for readable still.
            turns.taken.store(taken, Relaxed);
            let read =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut gate).poll_read(cx, &mut ReadBuf::new(&mut bytes)).is_ready()));
            assert!(!read.await);
            assert_eq!((turns.taken.load(Relaxed), turns.queue.lock().waiting.len()), (taken, 0));
            if taken == 1 {
                client.write_all(b"efghijkl").await.unwrap();
                gate.read_exact(&mut [0; 8]).await.unwrap();
            }
        }
    }
}

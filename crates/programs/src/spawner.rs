//! Threads that start programs.
//!
//! A start blocks for about a millisecond, and until the new process gets the processor. Therefore it runs on
//! threads made for it, separately for each priority: a program that is denied the processor delays only
//! starts of the same priority. These threads never end, because a program is killed when the thread that
//! started it ends.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, LazyLock},
};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::config::Priority;

type Work = Box<dyn FnOnce() + Send>;

/// The threads that start programs of one priority.
struct Spawners {
    waiting: Mutex<VecDeque<Work>>,
    more: Condvar,
}

/// Runs `work`, which starts a program, on a thread that never ends and serves only this priority. If the
/// future is dropped before that, nothing is started. The queue is bounded only by the callers.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) async fn on_spawner<T: Send + 'static>(
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let spawners = spawners(priority)?;
    let (reply, answer) = oneshot::channel();
    let work = move || {
        if !reply.is_closed() {
            let _ = reply.send(work());
        }
    };
    spawners.waiting.lock().push_back(Box::new(work));
    spawners.more.notify_one();
    answer.await.map_err(|_| io::Error::other("the thread that starts programs has panicked"))
}

fn spawners(priority: Priority) -> io::Result<Arc<Spawners>> {
    static ALL: LazyLock<Mutex<HashMap<Priority, Arc<Spawners>>>> = LazyLock::new(Mutex::default);
    // The threads are the same for every weight, so there is one kind for all weights; they are never
    // released.
    let kind = match priority {
        Priority::CgroupWeight(_) => Priority::CgroupWeight(100),
        other => other,
    };
    let mut all = ALL.lock();
    if let Some(spawners) = all.get(&kind) {
        return Ok(spawners.clone());
    }
    let spawners = Arc::new(Spawners { waiting: Mutex::default(), more: Condvar::new() });
    for number in 0..threads() {
        let runs = spawners.clone();
        match std::thread::Builder::new().name("spawner".to_owned()).spawn(move || runs.run()) {
            Ok(_) => {}
            Err(error) if number == 0 => return Err(error),
            // Fewer threads are enough.
            Err(_) => break,
        }
    }
    Ok(all.entry(kind).or_insert(spawners).clone())
}

/// At least two threads, so that a program on a slow disk does not block all others.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().clamp(2, 4))
}

impl Spawners {
    fn run(&self) {
        loop {
            let work = {
                let mut waiting = self.waiting.lock();
                loop {
                    match waiting.pop_front() {
                        Some(work) => break work,
                        None => self.more.wait(&mut waiting),
                    }
                }
            };
            // The thread must survive a panic, because all programs that it started would die with it.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn classes_with_weights_share_their_threads() {
        let mut seen = std::collections::HashSet::new();
        for weight in 1..=30 {
            let thread = on_spawner(Priority::CgroupWeight(weight), || std::thread::current().id()).await;
            seen.insert(thread.expect("a thread"));
        }
        assert!(seen.len() <= threads(), "{} threads", seen.len());
    }

    #[tokio::test]
    async fn a_panic_does_not_end_a_thread_that_starts_programs() {
        let seen = || async {
            let mut seen = std::collections::HashSet::new();
            for _ in 0..50 {
                seen.insert(on_spawner(Priority::Nice(19), || std::thread::current().id()).await.expect("a thread"));
            }
            seen
        };
        let before = seen().await;
        for _ in 0..20 {
            let panics = on_spawner(Priority::Nice(19), || -> () { panic!("as the test wants") });
            panics.await.expect_err("it panicked");
        }
        let after: std::collections::HashSet<_> = seen().await.union(&before).copied().collect();
        assert!(after.len() <= threads(), "the same threads as before");
    }

    #[tokio::test]
    async fn who_waits_no_more_has_nothing_started() {
        // All threads of a priority that no other test uses are kept busy, so that the next work has to wait.
        let priority = Priority::Nice(18);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, mut have_begun) = tokio::sync::mpsc::unbounded_channel();
        let holding: Vec<_> = (0..4)
            .map(|_| {
                let (held, begun) = (held.clone(), begun.clone());
                let hold = move || {
                    let _ = begun.send(());
                    held.lock().recv()
                };
                tokio::spawn(on_spawner(priority, hold))
            })
            .collect();
        for _ in 0..threads() {
            have_begun.recv().await.expect("they begin");
        }
        let started = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mark = started.clone();
        let given_up = on_spawner(priority, move || mark.store(true, std::sync::atomic::Ordering::SeqCst));
        // Polled once, so that the work is in the queue.
        tokio::select! {
            biased;
            _ = given_up => panic!("nobody can do it"),
            () = std::future::ready(()) => {}
        }
        for _ in 0..4 {
            release.send(()).expect("held up");
        }
        for holding in holding {
            let _ = holding.await.expect("no panic");
        }
        on_spawner(priority, || ()).await.expect("a thread");
        assert!(!started.load(std::sync::atomic::Ordering::SeqCst));
    }
}

//! Whom a connection to a server wakes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

use parking_lot::Mutex;

/// It rang since it was last muffled.
const RANG: u8 = 1;
const MUFFLED: u8 = 2;

/// Wakes the task that uses a connection.
///
/// hyper has two ends for what passes through a connection, and one wakes the other. Here the same task has both, and sees to the
/// other one before it sleeps: a wake-up for that would be a turn of the task in which there is nothing to do. So while the task is at
/// it, the bell is muffled.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Bell {
    /// From now on it is this task that is woken.
    pub(super) fn rings_for(&self, task: &Waker) {
        let mut woken = self.task.lock();
        match &mut *woken {
            Some(woken) => woken.clone_from(task),
            None => *woken = Some(task.clone()),
        }
    }

    /// The task is at work, and will see what it is woken for until now.
    pub(super) fn muffle(&self) {
        self.state.store(MUFFLED, SeqCst);
    }

    /// The task is done. It is woken if the bell rang since it was last muffled.
    pub(super) fn open(&self) {
        if self.state.swap(0, SeqCst) & RANG != 0 {
            self.ring();
        }
    }

    /// The task is done, and will be at it again in any case.
    pub(super) fn forget(&self) {
        self.state.store(0, SeqCst);
    }

    fn ring(&self) {
        // Woken outside of the lock, since nobody knows what a waker does.
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(RANG, SeqCst) & MUFFLED == 0 {
            self.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn it_rings_once_for_what_came_while_it_was_muffled_and_for_the_last_task_alone() {
        let (first, second) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let woken = || (first.0.load(SeqCst), second.0.load(SeqCst));
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        // Nobody is there yet.
        waker.wake_by_ref();
        bell.rings_for(&first.clone().into());
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(woken(), (2, 0));

        bell.muffle();
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(woken(), (2, 0));
        bell.open();
        assert_eq!(woken(), (3, 0));
        bell.muffle();
        bell.open();
        assert_eq!(woken(), (3, 0), "nothing rang");

        // What it rang for is seen to.
        bell.muffle();
        waker.wake_by_ref();
        bell.muffle();
        bell.open();
        assert_eq!(woken(), (3, 0));

        bell.muffle();
        waker.wake_by_ref();
        bell.forget();
        bell.open();
        assert_eq!(woken(), (3, 0));

        bell.rings_for(&second.clone().into());
        waker.wake();
        assert_eq!(woken(), (3, 1));
    }
}

//! Runs work that several requests need at the same time only once.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Work in progress, by key. *Invariant*: a key is present exactly while a thread works on it. Every caller
/// that joins before the end receives the result.
pub(crate) struct SingleFlight<K, V>(Arc<Mutex<HashMap<K, Vec<oneshot::Sender<V>>>>>);

impl<K, V> SingleFlight<K, V>
where
    K: Eq + Hash + Clone + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Runs `work` on a blocking thread and returns its result. If work with this key is in progress, waits
    /// for that instead. The work runs to its end even if every caller goes away. `None` if it panicked.
    pub async fn join(&self, key: K, work: impl FnOnce() -> V + Send + 'static) -> Option<V> {
        let (sender, receiver) = oneshot::channel();
        let leads = match self.0.lock().entry(key.clone()) {
            std::collections::hash_map::Entry::Occupied(mut waiting) => {
                waiting.get_mut().push(sender);
                false
            }
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(vec![sender]);
                true
            }
        };
        if leads {
            let mut completion = Completion { lookups: Self(Arc::clone(&self.0)), key: Some(key) };
            tokio::task::spawn_blocking(move || {
                let value = work();
                for waiting in completion.end() {
                    // A caller that is gone needs no answer.
                    let _ = waiting.send(value.clone());
                }
            });
        }
        receiver.await.ok()
    }
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Removes the key when the work ends or panics, so that no caller waits forever.
struct Completion<K: Eq + Hash, V> {
    lookups: SingleFlight<K, V>,
    /// Taken when the work ends: after that the key may belong to other work.
    key: Option<K>,
}

impl<K: Eq + Hash, V> Completion<K, V> {
    fn end(&mut self) -> Vec<oneshot::Sender<V>> {
        self.key.take().and_then(|key| self.lookups.0.lock().remove(&key)).unwrap_or_default()
    }
}

impl<K: Eq + Hash, V> Drop for Completion<K, V> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    };

    use super::*;

    #[tokio::test]
    async fn those_who_come_during_the_work_share_its_result() {
        let lookups = Arc::new(SingleFlight::<u32, u32>::default());
        let runs = Arc::new(AtomicU32::new(0));
        let (release, gate) = mpsc::channel::<()>();
        let mut gate = Some(gate);
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (lookups, runs, gate) = (Arc::clone(&lookups), Arc::clone(&runs), gate.take());
                tokio::spawn(async move {
                    let work = move || {
                        gate.map(|gate| gate.recv());
                        runs.fetch_add(1, Ordering::Relaxed) + 40
                    };
                    lookups.join(1, work).await
                })
            })
            .collect();
        while lookups.0.lock().get(&1).is_none_or(|waiting| waiting.len() < 10) {
            tokio::task::yield_now().await;
        }
        assert_eq!(lookups.join(2, || 7).await, Some(7), "another key does not wait");
        release.send(()).unwrap();
        for task in tasks {
            assert_eq!(task.await.unwrap(), Some(40));
        }
        assert_eq!(lookups.join(1, || 5).await, Some(5), "what comes after the end starts anew");
    }

    #[tokio::test]
    async fn a_panic_is_told_and_leaves_nothing_behind() {
        let lookups = SingleFlight::<u32, u32>::default();
        assert_eq!(lookups.join(1, || panic!("on purpose")).await, None);
        assert!(lookups.0.lock().is_empty());
        assert_eq!(lookups.join(1, || 3).await, Some(3));
    }
}

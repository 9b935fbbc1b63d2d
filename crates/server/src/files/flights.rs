//! The same work asked for several times at once is done once.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Work under way, by key. *Invariant*: a key is here exactly as long as a thread works on it, and whoever joined
/// before the end is told the result.
pub(crate) struct Flights<K, V>(Arc<Mutex<HashMap<K, Vec<oneshot::Sender<V>>>>>);

impl<K, V> Flights<K, V>
where
    K: Eq + Hash + Clone + Send + 'static,
    V: Clone + Send + 'static,
{
    /// The result of `work`, done on a thread that may block, or of the same work if it is under way already. It is
    /// carried through even if nobody waits any more. `None` if it panicked.
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
            let mut landing = Landing { flights: Self(Arc::clone(&self.0)), key: Some(key) };
            tokio::task::spawn_blocking(move || {
                let value = work();
                for waiting in landing.end() {
                    // Who went away needs no answer.
                    let _ = waiting.send(value.clone());
                }
            });
        }
        receiver.await.ok()
    }
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Takes the key out also where the work panics, so that nobody waits for ever.
struct Landing<K: Eq + Hash, V> {
    flights: Flights<K, V>,
    /// Taken when the flight ends: after that the key may belong to another one.
    key: Option<K>,
}

impl<K: Eq + Hash, V> Landing<K, V> {
    fn end(&mut self) -> Vec<oneshot::Sender<V>> {
        self.key.take().and_then(|key| self.flights.0.lock().remove(&key)).unwrap_or_default()
    }
}

impl<K: Eq + Hash, V> Drop for Landing<K, V> {
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
        let flights = Arc::new(Flights::<u32, u32>::default());
        let runs = Arc::new(AtomicU32::new(0));
        let (release, gate) = mpsc::channel::<()>();
        let mut gate = Some(gate);
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (flights, runs, gate) = (Arc::clone(&flights), Arc::clone(&runs), gate.take());
                tokio::spawn(async move {
                    let work = move || {
                        gate.map(|gate| gate.recv());
                        runs.fetch_add(1, Ordering::Relaxed) + 40
                    };
                    flights.join(1, work).await
                })
            })
            .collect();
        while flights.0.lock().get(&1).is_none_or(|waiting| waiting.len() < 10) {
            tokio::task::yield_now().await;
        }
        assert_eq!(flights.join(2, || 7).await, Some(7), "another key does not wait");
        release.send(()).unwrap();
        for task in tasks {
            assert_eq!(task.await.unwrap(), Some(40));
        }
        assert_eq!(flights.join(1, || 5).await, Some(5), "what comes after the end starts anew");
    }

    #[tokio::test]
    async fn a_panic_is_told_and_leaves_nothing_behind() {
        let flights = Flights::<u32, u32>::default();
        assert_eq!(flights.join(1, || panic!("on purpose")).await, None);
        assert!(flights.0.lock().is_empty());
        assert_eq!(flights.join(1, || 3).await, Some(3));
    }
}

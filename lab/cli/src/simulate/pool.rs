//! Runs many simulations at once.

use std::{
    num::NonZeroUsize,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use instrument::{LabError, progress::Progress};

/// A piece of work, and its approximate part of the whole.
pub struct Task<T> {
    /// The work.
    pub what: T,
    /// The expected amount of work, in any unit.
    pub expected: f64,
    /// The name for messages.
    pub name: String,
}

/// Does all `tasks`, in their order, on `jobs` threads, and shows the progress. After an error, or when
/// `stop` is set, no new task begins.
///
/// # Errors
/// The first error of `work`; [`LabError::Interrupted`] if `stop` was set.
pub fn all<T: Sync>(
    tasks: &[Task<T>],
    jobs: NonZeroUsize,
    progress: &mut Progress,
    stop: &AtomicBool,
    work: impl Fn(&T) -> Result<(), LabError> + Sync,
) -> Result<(), LabError> {
    let jobs = jobs.get().min(tasks.len());
    let next = AtomicUsize::new(0);
    let mut first_error = None;
    thread::scope(|scope| {
        // The channel holds one result for each thread, so no thread waits for the output of the progress.
        let (ended, ends) = mpsc::sync_channel(jobs);
        for _ in 0..jobs {
            let (ended, next, work) = (ended.clone(), &next, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed)
                    && let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if ended.send((task, work(&task.what))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(ended);
        for (task, result) in ends {
            match result {
                Ok(()) => progress.one_of_many(task.expected, &task.name),
                Err(error) => {
                    next.store(tasks.len(), Ordering::Relaxed);
                    first_error.get_or_insert(error);
                }
            }
        }
    });
    match first_error {
        Some(error) => Err(error),
        None if stop.load(Ordering::Relaxed) => Err(LabError::Interrupted),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn tasks(count: u32) -> Vec<Task<u32>> {
        (0..count).map(|what| Task { what, expected: 1.0, name: what.to_string() }).collect()
    }

    fn run(
        count: u32,
        stop: &AtomicBool,
        work: impl Fn(u32) -> Result<(), LabError> + Sync,
    ) -> (Result<(), LabError>, Vec<u32>) {
        run_on(NonZeroUsize::new(3).unwrap(), count, stop, work)
    }

    fn run_on(
        jobs: NonZeroUsize,
        count: u32,
        stop: &AtomicBool,
        work: impl Fn(u32) -> Result<(), LabError> + Sync,
    ) -> (Result<(), LabError>, Vec<u32>) {
        let done = Mutex::new(Vec::new());
        let mut progress = Progress::new((0..count).map(|_| 1.0), count as usize);
        let result = all(&tasks(count), jobs, &mut progress, stop, |&number| {
            work(number)?;
            done.lock().unwrap().push(number);
            Ok(())
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        (result, done)
    }

    #[test]
    fn everything_is_done_once() {
        let (result, done) = run(100, &AtomicBool::new(false), |_| Ok(()));
        assert!(result.is_ok());
        assert_eq!(done, Vec::from_iter(0..100));
        assert!(run(0, &AtomicBool::new(false), |_| Ok(())).0.is_ok());
    }

    #[test]
    fn more_threads_than_tasks_are_not_begun() {
        let (result, done) = run_on(NonZeroUsize::MAX, 4, &AtomicBool::new(false), |_| Ok(()));
        assert!(result.is_ok() && done == [0, 1, 2, 3], "{done:?}");
    }

    #[test]
    fn after_an_error_nothing_new_is_begun() {
        let (result, done) = run(10_000, &AtomicBool::new(false), |number| match number {
            5 => Err(LabError::Request("five".to_owned())),
            _ => Ok(()),
        });
        assert_eq!(result.unwrap_err().to_string(), "five");
        assert!(done.len() < 10_000 && done.contains(&0), "{}", done.len());
    }

    #[test]
    fn a_stop_ends_it_and_keeps_what_is_done() {
        let stop = AtomicBool::new(false);
        let (result, done) = run(10_000, &stop, |number| {
            stop.fetch_or(number == 50, Ordering::Relaxed);
            Ok(())
        });
        assert!(matches!(result, Err(LabError::Interrupted)), "{result:?}");
        assert!((51..10_000).contains(&done.len()), "{}", done.len());
    }
}

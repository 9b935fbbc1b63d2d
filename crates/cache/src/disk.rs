//! Stored responses in files of a directory. One thread writes and removes them, so nothing waits for the disk; what is
//! read is read on a thread that may block.
//!
//! A file is written under another name and then renamed, and has checksums of all that it holds. It is never changed. So a
//! process that is killed, or a machine that loses its power, leaves whole files, or files that are found to be damaged.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::{
    file_format::{self, Head},
    stored::Stored,
};

/// Most bytes that wait to be written. A response beyond them stays in memory only.
const MOST_WAITING_BYTES: u64 = 64 * 1024 * 1024;
/// A file that is not yet renamed belongs to a process that is gone if it is older.
const UNFINISHED_AFTER: Duration = Duration::from_secs(600);
/// Time between two messages about a disk that fails.
const SELDOM: Duration = Duration::from_secs(10);

/// The files of a directory.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    next_file: AtomicU64,
    queue: Mutex<Queue>,
    changed: Condvar,
    pub(crate) failures: AtomicU64,
    told: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    waiting_bytes: u64,
    ends: bool,
}

#[derive(Debug)]
pub(crate) enum Job {
    Write { entry: u64, key: Arc<str>, stored: Arc<Stored>, body: Bytes },
    Remove { file: u64 },
}

/// Takes what the thread reports of its work.
pub(crate) trait DiskEvents {
    /// A file was found at the start.
    fn handle_found(&self, file: u64, file_bytes: u64, head: Head);
    /// There are no others.
    fn handle_all_found(&self);
    /// A response was written. False: it is not wanted any more, and the file is removed.
    fn handle_written(&self, entry: u64, file: u64, file_bytes: u64) -> bool;
}

impl Disk {
    /// Makes the directory if it is missing. `seed` is the number of the first new file.
    pub(crate) fn open(directory: &Path, seed: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        // A directory that cannot be written to is the operator's to mend, before it is needed.
        let probe = directory.join(format!(".probe-{}", std::process::id()));
        fs::write(&probe, b"")?;
        fs::remove_file(&probe)?;
        Ok(Self {
            directory: directory.to_owned(),
            next_file: AtomicU64::new(seed),
            queue: Mutex::default(),
            changed: Condvar::new(),
            failures: AtomicU64::new(0),
            told: Mutex::default(),
        })
    }

    /// Has a job done. False: too much waits already.
    pub(crate) fn queue(&self, job: Job) -> bool {
        let bytes = job.bytes();
        let mut queue = self.queue.lock();
        if queue.ends || (bytes > 0 && queue.waiting_bytes + bytes > MOST_WAITING_BYTES) {
            return false;
        }
        queue.waiting_bytes += bytes;
        queue.jobs.push_back(job);
        self.changed.notify_one();
        true
    }

    /// Whether all that was to be written is written.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.lock().waiting_bytes == 0
    }

    /// Jobs that wait are not done any more; files that are there stay.
    pub(crate) fn end(&self) {
        self.queue.lock().ends = true;
        self.changed.notify_one();
    }

    /// Does what is queued, until the end. Blocks.
    pub(crate) fn work(&self, told: impl Fn(&mut dyn FnMut(&dyn DiskEvents))) {
        loop {
            let job = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.ends {
                        return;
                    }
                    if let Some(job) = queue.jobs.pop_front() {
                        break job;
                    }
                    self.changed.wait(&mut queue);
                }
            };
            let bytes = job.bytes();
            match job {
                Job::Write { entry, key, stored, body } => {
                    let file = self.next_file.fetch_add(1, Relaxed);
                    match self.write(file, &key, &stored, &body) {
                        Ok(file_bytes) => {
                            let mut is_wanted = false;
                            told(&mut |told| is_wanted = told.handle_written(entry, file, file_bytes));
                            if !is_wanted {
                                self.remove(file);
                            }
                        }
                        Err(error) => self.failed(&error, "a response cannot be stored on disk; it stays in memory"),
                    }
                }
                Job::Remove { file } => self.remove(file),
            }
            self.queue.lock().waiting_bytes -= bytes;
        }
    }

    /// Finds the files that are there. Blocks.
    pub(crate) fn scan(&self, told: impl Fn(&mut dyn FnMut(&dyn DiskEvents))) {
        let (mut found, mut dropped) = (0_u64, 0_u64);
        for folder in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if self.queue.lock().ends {
                return;
            }
            let is_ours = folder.file_name().to_str().is_some_and(|name| name.len() == 2);
            if !is_ours || !folder.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                if name.ends_with(".new") {
                    let is_old = |modified: SystemTime| modified.elapsed().is_ok_and(|age| age > UNFINISHED_AFTER);
                    if entry.metadata().and_then(|it| it.modified()).is_ok_and(is_old) {
                        let _ = fs::remove_file(entry.path());
                    }
                    continue;
                }
                let Ok(file) = u64::from_str_radix(name, 16) else { continue };
                match read_head(&entry.path()) {
                    Ok((head, file_bytes)) => {
                        found += 1;
                        let mut head = Some(head);
                        told(&mut |told| {
                            if let Some(head) = head.take() {
                                told.handle_found(file, file_bytes, head);
                            }
                        });
                    }
                    Err(_) => {
                        dropped += 1;
                        self.remove(file);
                    }
                }
            }
        }
        told(&mut |told| told.handle_all_found());
        tracing::info!(directory = %self.directory.display(), found, damaged = dropped, "stored responses read");
    }

    /// Reads a file. Blocks.
    pub(crate) fn read(&self, file: u64, most_bytes: u64) -> io::Result<(Head, Bytes)> {
        file_format::read(&mut io::BufReader::with_capacity(64 * 1024, File::open(self.path(file))?), most_bytes)
    }

    /// Tells the operator of a failure, unless that was done lately.
    pub(crate) fn failed(&self, error: &io::Error, what: &str) {
        self.failures.fetch_add(1, Relaxed);
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= SELDOM) {
            *told = Some(Instant::now());
            tracing::warn!(%error, directory = %self.directory.display(), "{what}");
        }
    }

    fn write(&self, file: u64, key: &str, stored: &Stored, body: &Bytes) -> io::Result<u64> {
        let path = self.path(file);
        let unfinished = path.with_extension("new");
        let head = file_format::write(key, stored, body);
        let write = || {
            if let Some(folder) = path.parent() {
                match fs::create_dir(folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            let mut out = File::create_new(&unfinished)?;
            out.write_all(&head)?;
            out.write_all(body)?;
            fs::rename(&unfinished, &path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
        Ok((head.len() + body.len()) as u64)
    }

    fn remove(&self, file: u64) {
        // Another process may have removed it.
        let _ = fs::remove_file(self.path(file));
    }

    fn path(&self, file: u64) -> PathBuf {
        self.directory.join(format!("{:02x}", file & 0xff)).join(format!("{file:016x}"))
    }
}

impl Job {
    fn bytes(&self) -> u64 {
        match self {
            Self::Write { body, .. } => body.len() as u64 + 1,
            Self::Remove { .. } => 0,
        }
    }
}

fn read_head(path: &Path) -> io::Result<(Head, u64)> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    let (head, head_bytes) = file_format::read_head(&mut io::BufReader::new(file))?;
    if head.file_bytes(head_bytes) != file_bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((head, file_bytes))
}

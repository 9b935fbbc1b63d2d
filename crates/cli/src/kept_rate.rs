//! The rate of the uplink that was found, kept over a restart.
//!
//! A server that is to find the rate begins with what it knew when it stopped. It doubts that rate, and corrects it as one
//! that it found itself.

use std::{
    env, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use scheduler::Rate;
use server::{
    Handle,
    config::{KeepRate, UplinkConfig, UplinkRate},
};

/// Reads and writes the rate; cheap to clone.
#[derive(Clone)]
pub struct KeptRate {
    handle: Handle,
    /// Where it is kept now, and what was written there last.
    place: Arc<Mutex<Place>>,
}

#[derive(Default)]
struct Place {
    file: Option<PathBuf>,
    written: Option<Rate>,
    /// Whether a failure was logged: it would be the same every time.
    has_failed: bool,
}

const EVERY: Duration = Duration::from_secs(60);
/// A smaller change is not worth a write.
const CHANGE: f64 = 0.01;
/// The largest file that is read: a rate is shorter.
const MOST_BYTES: u64 = 64;
/// Its name in the state directory.
const NAME: &str = "uplink-rate";

impl KeptRate {
    pub fn new(handle: Handle) -> Self {
        Self { handle, place: Arc::default() }
    }

    /// Keeps the rate from now on as this configuration says.
    pub fn follow(&self, config: &UplinkConfig) {
        let file = match &config.keep {
            _ if config.rate != UplinkRate::Auto => None,
            KeepRate::Off => None,
            KeepRate::File(file) => Some(file.clone()),
            KeepRate::StateDirectory => in_state_directory(env::var_os("STATE_DIRECTORY").as_deref()),
        };
        let mut place = self.place.lock();
        if place.file != file {
            *place = Place { file, ..Place::default() };
        }
    }

    /// Begins with the rate that was kept.
    pub fn begin(&self) {
        let Some(file) = self.place.lock().file.clone() else { return };
        match read(&file) {
            Ok(Some(rate)) => {
                tracing::info!(%rate, "the uplink's rate is taken to be what it was before the restart");
                self.handle.begin_at(rate);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("the uplink's rate cannot be taken from {}: {error}; it is found anew", file.display())
            }
        }
    }

    /// Writes the rate every now and then, until the process ends.
    pub fn write_often(&self) {
        loop {
            thread::sleep(EVERY);
            self.write();
        }
    }

    /// Writes the rate, if it is known well and has changed.
    pub fn write(&self) {
        let Some(rate) = self.handle.known_rate() else { return };
        let mut place = self.place.lock();
        let Place { file: Some(file), written, has_failed } = &mut *place else { return };
        let ratio = |old: Rate| rate.bits_per_second() as f64 / old.bits_per_second() as f64;
        if written.is_some_and(|old| (ratio(old) - 1.0).abs() < CHANGE) {
            return;
        }
        match write(file, rate) {
            Ok(()) => (*written, *has_failed) = (Some(rate), false),
            Err(error) if !std::mem::replace(has_failed, true) => tracing::warn!(
                "the uplink's rate cannot be kept in {}: {error}; after a restart it is found anew. Let the server \
                 write there, name another file with `uplink.keep`, or set it to `off`",
                file.display()
            ),
            Err(_) => {}
        }
    }
}

/// The file in the first of the state directories, which systemd names with colons between them.
fn in_state_directory(directories: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let first = env::split_paths(directories?).next()?;
    first.is_absolute().then(|| first.join(NAME))
}

/// `None`: nothing was kept yet.
fn read(file: &Path) -> io::Result<Option<Rate>> {
    // Only a regular file is read: a pipe, for instance, might block.
    match fs::metadata(file) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(io::Error::other("it is no file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut text = String::new();
    fs::File::open(file)?.take(MOST_BYTES).read_to_string(&mut text)?;
    text.parse().map(Some).map_err(|error| io::Error::other(format!("it holds no rate: {error}")))
}

/// Writes it so that a reader finds the old file or the new one.
fn write(file: &Path, rate: Rate) -> io::Result<()> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(format!(".{}.new", process::id()));
    let unfinished = PathBuf::from(unfinished);
    let done = fs::write(&unfinished, format!("{rate}\n")).and_then(|()| fs::rename(&unfinished, file));
    if done.is_err() {
        // There may be nothing to remove.
        let _ = fs::remove_file(&unfinished);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rate");
        assert_eq!(read(&file).unwrap(), None);
        let rate: Rate = "9.987mbit".parse().unwrap();
        write(&file, rate).unwrap();
        assert_eq!(read(&file).unwrap(), Some(rate));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        for bad in ["", "fast", "10 apples", "1bit", &"9".repeat(1 << 20)] {
            fs::write(&file, bad).unwrap();
            assert!(read(&file).is_err(), "{} bytes", bad.len());
        }
        assert!(read(folder.path()).unwrap_err().to_string().contains("no file"));
        assert!(write(&folder.path().join("missing/rate"), rate).is_err());
    }

    #[test]
    fn the_state_directory_is_the_first_that_systemd_names() {
        let of = |text: &str| in_state_directory(Some(text.as_ref()));
        assert_eq!(of("/var/lib/serpent"), Some("/var/lib/serpent/uplink-rate".into()));
        assert_eq!(of("/var/lib/a:/var/lib/b"), Some("/var/lib/a/uplink-rate".into()));
        assert_eq!(of(""), None);
        assert_eq!(in_state_directory(None), None);
    }
}

//! Loads the file for a path. All blocking work is done in one go, on a thread that may block. Whether a file in memory
//! is unchanged, the kernel often knows without blocking.

use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{
    body::{CHUNK_BYTES, LEAST_PART_BYTES, Mirrored, Source, read_up_to},
    cache::{Cache, Entry, Key, Variant},
    content_type::ContentTypes,
    listing,
    negotiate::{Coding, Preferences},
    path::RequestPath,
    representation::{Description, Representation},
    resolve::{Node, Root, status_of},
    stamp::Stamp,
};
use crate::config::{CacheControlRule, FilesConfig};

/// A file modified less than this ago is not kept in memory. The kernel's clock for modification times ticks
/// every few milliseconds, and a second change within the same tick would go unnoticed.
const RECENT: Duration = Duration::from_millis(100);

/// How often reading is restarted because the file changed meanwhile. After that it is sent while it is read.
const READ_ATTEMPTS: u32 = 2;

/// A site's files, for use by threads that may block.
pub(crate) struct SiteFiles {
    /// The site's number in the cache.
    pub id: u32,
    /// The cache.
    pub cache: Cache,
    /// Whether dot-files are served.
    pub dot_files: bool,
    root: Root,
    index: Vec<String>,
    listing: bool,
    precompressed: bool,
    cache_control: Vec<CacheControlRule>,
    types: ContentTypes,
}

/// The result of looking up a path.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A file, in the representation that the client prefers.
    Found(Arc<Representation>),
    /// A directory, requested without its slash.
    Directory,
    /// A directory without an index: its listing.
    Listing { page: Bytes, cache_control: Option<HeaderValue> },
    /// No answer but this status.
    Refused(StatusCode),
}

/// A file that was found.
struct Found {
    /// The path below the root.
    relative: Vec<u8>,
    file: File,
    metadata: Metadata,
}

impl SiteFiles {
    /// Opens the root of a site.
    pub fn open(root: &Path, config: &FilesConfig, cache: Cache) -> io::Result<Self> {
        let FilesConfig { index, listing, dot_files, symlinks, precompressed, cache_control, mime_types } = config;
        Ok(Self {
            root: Root::open(root, *symlinks)?,
            id: cache.new_site(),
            cache,
            dot_files: *dot_files,
            index: index.clone(),
            listing: *listing,
            precompressed: *precompressed,
            cache_control: cache_control.clone(),
            types: ContentTypes::new(mime_types)?,
        })
    }

    /// Looks up a path, and keeps the file in memory if that is useful. Blocks.
    pub fn load(&self, path: &RequestPath, preferences: Preferences, key: Key) -> Outcome {
        // Taken before the first check, so that the entry is not trusted for too long.
        let checked_ns = self.cache.now_ns();
        self.root.refresh();
        let outcome = match self.find(path) {
            Ok(found) => match self.represent(path, found, preferences, &key, checked_ns) {
                Ok(representation) => return Outcome::Found(representation),
                Err(error) => {
                    tracing::warn!(path = ?key.path, %error, "a file was opened but cannot be read");
                    Outcome::Refused(Errno::from_io_error(&error).map_or(StatusCode::INTERNAL_SERVER_ERROR, status_of))
                }
            },
            Err(outcome) => outcome,
        };
        self.cache.remove(&key);
        outcome
    }

    /// Whether nothing has changed since an entry was made, as far as the kernel knows without waiting for a disk. False
    /// where it does not know. Never blocks, so that a look at a popular file once a second needs no other thread.
    pub fn is_unchanged(&self, path: &RequestPath, entry: &Entry) -> bool {
        if !self.root.is_current_in_memory() {
            return false;
        }
        let relative = match (path.directory(), self.index.first()) {
            (false, _) => path.relative().as_os_str().as_bytes().to_vec(),
            (true, Some(name)) => path.join(name),
            (true, None) => return false,
        };
        let codings = if self.precompressed { &Coding::ALL[..] } else { &[Coding::Identity] };
        codings.iter().all(|coding| {
            let name = [&relative, coding.suffix().as_bytes()].concat();
            let found = self.root.find_in_memory(as_path(&name));
            match (&entry.variants[coding.index()], found) {
                (Variant::Absent, Ok(None)) => true,
                (Variant::Known(stamp), Ok(Some(metadata))) => *stamp == Stamp::of(&metadata),
                (Variant::Loaded(kept), Ok(Some(metadata))) => kept.stamp == Stamp::of(&metadata),
                _ => false,
            }
        })
    }

    /// The file for a path: itself, or the index of a directory.
    fn find(&self, path: &RequestPath) -> Result<Found, Outcome> {
        if path.directory() {
            // This comes first, because a directory that may be passed but not read still has an index.
            for name in &self.index {
                let relative = path.join(name);
                match self.root.find(as_path(&relative)) {
                    Ok(Node::File(file, metadata)) => return Ok(Found { relative, file, metadata }),
                    Ok(Node::Directory(_) | Node::ClosedDirectory) => {}
                    Err(error) if status_of(error) == StatusCode::NOT_FOUND => {}
                    Err(error) => return Err(self.refused(path, error)),
                }
            }
        }
        match self.root.find(path.relative()) {
            Ok(Node::File(..)) if path.directory() => Err(Outcome::Refused(StatusCode::NOT_FOUND)),
            Ok(Node::File(file, metadata)) => {
                Ok(Found { relative: path.relative().as_os_str().as_bytes().to_vec(), file, metadata })
            }
            Ok(Node::Directory(_) | Node::ClosedDirectory) if !path.directory() => Err(Outcome::Directory),
            Ok(Node::Directory(fd)) if self.listing => Err(match listing::page(&self.root, fd, path, self.dot_files) {
                Ok(page) => Outcome::Listing {
                    page: page.into(),
                    cache_control: self.cache_control_for(&[path.relative()]).cloned(),
                },
                Err(error) => self.refused(path, error),
            }),
            Ok(Node::Directory(_) | Node::ClosedDirectory) => Err(Outcome::Refused(StatusCode::FORBIDDEN)),
            Err(error) => Err(self.refused(path, error)),
        }
    }

    /// Chooses among the file and its siblings, and reuses unchanged ones from memory.
    fn represent(
        &self,
        path: &RequestPath,
        found: Found,
        preferences: Preferences,
        key: &Key,
        checked_ns: u64,
    ) -> io::Result<Arc<Representation>> {
        let Found { relative, file, metadata } = found;
        let content_type = self.types.of(as_path(&relative));
        let cache_control = self.cache_control_for(&[path.relative(), as_path(&relative)]);
        let original = Stamp::of(&metadata);
        let mut files = [Some((file, metadata)), None, None, None];
        if self.precompressed {
            for coding in [Coding::Brotli, Coding::Zstd, Coding::Gzip] {
                files[coding.index()] = self.sibling(&relative, coding, &original);
            }
        }
        let varies = files[1..].iter().any(Option::is_some);
        let chosen = preferences.choose(files.each_ref().map(|file| file.as_ref().map(|(_, metadata)| metadata.len())));

        let kept = self.cache.peek(key);
        let mut variants = [const { Variant::Absent }; Coding::COUNT];
        let mut answer = None;
        for (coding, file) in Coding::ALL.into_iter().zip(files) {
            let Some((file, metadata)) = file else { continue };
            let variant = &mut variants[coding.index()];
            let stamp = Stamp::of(&metadata);
            let unchanged = kept.as_ref().and_then(|entry| match &entry.variants[coding.index()] {
                Variant::Loaded(kept) if kept.stamp == stamp && kept.varies == varies => Some(kept),
                _ => None,
            });
            if let Some(unchanged) = unchanged {
                *variant = Variant::Loaded(Arc::clone(unchanged));
                if coding == chosen {
                    answer = Some(Arc::clone(unchanged));
                }
            } else if coding == chosen {
                let content_type = content_type.clone();
                let now = SystemTime::now();
                let (source, stamp, keep) = self.read(file, metadata, now)?;
                let description = Description { coding, varies, content_type, cache_control, now };
                let representation = Arc::new(Representation::new(stamp, source, description));
                *variant = if keep { Variant::Loaded(Arc::clone(&representation)) } else { Variant::Known(stamp) };
                answer = Some(representation);
            } else {
                *variant = Variant::Known(stamp);
            }
        }
        if variants.iter().any(|variant| matches!(variant, Variant::Loaded(_))) {
            self.cache.insert(key.clone(), variants, checked_ns);
        } else {
            self.cache.remove(key);
        }
        // The original always exists, and only existing representations are chosen.
        answer.ok_or_else(|| io::Error::other("a representation was chosen that does not exist"))
    }

    /// A precompressed sibling of a file. One that is older than the original is ignored, because it was made
    /// from an earlier state.
    fn sibling(&self, relative: &[u8], coding: Coding, original: &Stamp) -> Option<(File, Metadata)> {
        let name = [relative, coding.suffix().as_bytes()].concat();
        match self.root.find(as_path(&name)) {
            Ok(Node::File(file, metadata)) if Stamp::of(&metadata).older_than(original) => {
                drop(file);
                tracing::debug!(file = %String::from_utf8_lossy(&name), "ignored: older than what it was made from");
                None
            }
            Ok(Node::File(file, metadata)) => Some((file, metadata)),
            _ => None,
        }
    }

    /// The bytes of a file or the open file, its state, and whether it may be kept in memory.
    fn read(&self, file: File, mut metadata: Metadata, now: SystemTime) -> io::Result<(Source, Stamp, bool)> {
        for _ in 0..READ_ATTEMPTS {
            let stamp = Stamp::of(&metadata);
            let reservation = if stamp.modified_within(RECENT, now) { None } else { self.cache.reserve(stamp.size) };
            let keep = reservation.is_some();
            if !keep && stamp.size > CHUNK_BYTES as u64 {
                break;
            }
            let length = usize::try_from(stamp.size).map_err(io::Error::other)?;
            let bytes = read_up_to(&file, 0, length)?;
            metadata = file.metadata()?;
            if bytes.len() == length && Stamp::of(&metadata) == stamp {
                let Some(reservation) = reservation else {
                    return Ok((Source::Memory(Bytes::from(bytes)), stamp, keep));
                };
                let bytes = reservation.fill(bytes);
                let permit = if length < LEAST_PART_BYTES { None } else { self.cache.keep_open() };
                let source = match permit {
                    Some(permit) => {
                        Source::Both(Arc::new(Mirrored { bytes, file, stamp, seen: Mutex::default(), _permit: permit }))
                    }
                    None => Source::Memory(bytes),
                };
                return Ok((source, stamp, keep));
            }
        }
        Ok((Source::File(Arc::new(file)), Stamp::of(&metadata), false))
    }

    /// The value of the first rule that matches one of the paths.
    fn cache_control_for(&self, paths: &[&Path]) -> Option<&HeaderValue> {
        let matches = |rule: &&CacheControlRule| paths.iter().any(|path| rule.pattern.is_match(path));
        self.cache_control.iter().find(matches).map(|rule| &rule.value)
    }

    fn refused(&self, path: &RequestPath, error: Errno) -> Outcome {
        let status = status_of(error);
        if status.is_server_error() {
            tracing::warn!(path = ?path.canonical(), %error, "a file cannot be opened");
        }
        Outcome::Refused(status)
    }
}

impl Drop for SiteFiles {
    fn drop(&mut self) {
        self.cache.remove_site(self.id);
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;
    use crate::config::{CacheConfig, SymlinkPolicy};

    fn site(root: &Path) -> SiteFiles {
        let files = FilesConfig {
            index: Vec::new(),
            listing: false,
            dot_files: false,
            symlinks: SymlinkPolicy::Never,
            precompressed: false,
            cache_control: Vec::new(),
            mime_types: Vec::new(),
        };
        SiteFiles::open(root, &files, Cache::new(CacheConfig::default())).unwrap()
    }

    fn memory(source: &Source) -> &[u8] {
        match source {
            Source::Memory(bytes) => bytes,
            Source::File(_) | Source::Both(_) => panic!("it should have been read"),
        }
    }

    #[test]
    fn a_file_modified_just_now_is_sent_but_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let site = site(directory.path());
        let path = directory.path().join("file");
        fs::write(&path, "content").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let read = |now| {
            let file = File::open(&path).unwrap();
            let metadata = file.metadata().unwrap();
            site.read(file, metadata, now).unwrap()
        };
        let (source, _, keep) = read(modified + RECENT - Duration::from_nanos(1));
        assert_eq!((memory(&source), keep), (&b"content"[..], false));
        let (source, _, keep) = read(modified + RECENT);
        assert_eq!((memory(&source), keep), (&b"content"[..], true));
    }

    #[test]
    fn a_file_that_changed_since_it_was_looked_at_is_read_as_it_is_now() {
        let directory = tempfile::tempdir().unwrap();
        let site = site(directory.path());
        let path = directory.path().join("file");
        fs::write(&path, "short").unwrap();
        let file = File::open(&path).unwrap();
        let before = file.metadata().unwrap();
        fs::File::options().append(true).open(&path).unwrap().write_all(b" no more").unwrap();
        let (source, stamp, _) = site.read(file, before, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(memory(&source), b"short no more");
        assert_eq!(stamp, Stamp::of(&fs::metadata(&path).unwrap()));
    }

    #[test]
    fn a_large_file_that_is_not_kept_is_not_read_beforehand() {
        let directory = tempfile::tempdir().unwrap();
        let site = site(directory.path());
        let path = directory.path().join("file");
        fs::write(&path, vec![0; CHUNK_BYTES + 1]).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let modified = metadata.modified().unwrap();
        let (source, stamp, keep) = site.read(file, metadata, modified).unwrap();
        assert!(matches!(source, Source::File(_)));
        assert_eq!((stamp.size, keep), (CHUNK_BYTES as u64 + 1, false));
    }
}

//! Loads the file for a path. All blocking work is done in one go, on a thread that may block.
//!
//! Data in the kernel's memory needs no such thread: whether a file is unchanged, and small files that were read or
//! written lately.

use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{
    body::{LEAST_PART_BYTES, Mirrored, Source, read_from_page_cache, read_up_to},
    cache::{Cache, Entry, Key, Variant},
    content_type::ContentTypes,
    listing::{self, Listing, View},
    negotiate::{Coding, Preferences},
    path::RequestPath,
    representation::{Description, Representation},
    resolve::{Node, Root, status_of},
    siblings::Siblings,
    stamp::Stamp,
};
use crate::config::{CacheControlRule, FilesConfig};

/// A file modified less than this ago is not kept in memory. The kernel's clock for modification times ticks
/// every few milliseconds, and a second change within the same tick would go unnoticed.
const RECENT: Duration = Duration::from_millis(100);

/// How often reading is restarted because the file changed meanwhile. After that it is sent while it is read.
const READ_ATTEMPTS: u32 = 2;

/// Largest file that is read on a runtime's thread. The copy of a larger one would hold up other connections.
const MOST_BYTES_AT_ONCE: u64 = 256 * 1024;

/// For so long the root is taken to be where it was, even if entries of the cache are trusted for longer.
const ROOT_TRUSTED_NS: u64 = 1_000_000_000;

/// A site's files, for use by threads that may block.
pub(crate) struct SiteFiles {
    /// The site's number in the cache.
    pub id: u32,
    /// The cache.
    pub cache: Cache,
    /// Whether dot-files are served.
    pub dot_files: bool,
    root: Root,
    /// When the root was last seen to be where its path leads, on the cache's clock.
    root_checked_ns: AtomicU64,
    siblings: Siblings,
    index: Vec<String>,
    /// Whether directories without an index are listed, unless a request comes with another answer.
    pub listing: bool,
    folders_first: bool,
    precompressed: bool,
    cache_control: Vec<CacheControlRule>,
    types: ContentTypes,
    tells_type: bool,
    server_name: Option<HeaderValue>,
}

/// The result of looking up a path.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A file, in the representation that the client prefers.
    Found(Arc<Representation>),
    /// A directory, requested without its slash.
    Directory,
    /// A directory without an index: its listing.
    Listing { listing: Arc<Listing>, cache_control: Option<HeaderValue> },
    /// No answer but this status.
    Refused(StatusCode),
}

/// A file that was found.
struct Found {
    /// The path below the root.
    relative: Vec<u8>,
    /// The file and its siblings, by coding.
    files: [Option<(File, Metadata)>; Coding::COUNT],
    read: Read,
}

/// Reads so many bytes of a file from its start, or less where it ends.
type Read = fn(&File, u64, usize) -> io::Result<Vec<u8>>;

impl SiteFiles {
    /// Opens the root of a site.
    pub fn open(root: &Path, config: &FilesConfig, cache: Cache) -> io::Result<Self> {
        let FilesConfig {
            index,
            listing,
            folders_first,
            dot_files,
            symlinks,
            precompressed,
            cache_control,
            mime_types,
            tells_type,
            server_name,
        } = config.clone();
        Ok(Self {
            root: Root::open(root, symlinks)?,
            root_checked_ns: AtomicU64::new(cache.now_ns()),
            siblings: Siblings::new(),
            id: cache.new_site(),
            cache,
            dot_files,
            index,
            listing,
            folders_first,
            precompressed,
            cache_control,
            types: ContentTypes::new(&mime_types)?,
            tells_type,
            server_name,
        })
    }

    /// Looks up a path, and keeps the file in memory if that is useful. `view`: how a directory without an index is listed;
    /// `None`: not at all. Blocks.
    pub fn load(&self, path: &RequestPath, preferences: Preferences, key: Key, view: Option<View>) -> Outcome {
        // Taken before the first check, so that the entry is not trusted for too long.
        let checked_ns = self.cache.now_ns();
        self.follow_root();
        let outcome = match self.find(path, view) {
            Ok(found) => match self.choose(path, found, preferences, &key, checked_ns) {
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

    /// As [`SiteFiles::load`], if the kernel has all in memory that is needed, and there is no choice. Never blocks.
    pub fn load_from_memory(&self, path: &RequestPath, key: &Key) -> Option<Arc<Representation>> {
        let kept = self.cache.peek(key);
        // An entry that has changed may have siblings, and is rare.
        if kept.as_ref().is_some_and(|entry| !entry.is_known_alone()) {
            return None;
        }
        let now_ns = self.cache.now_ns();
        let checked_ns = self.root_checked(now_ns)?;
        let relative = self.first_place(path)?;
        if self.precompressed {
            // A sibling that was made together with the file is seen at once.
            self.siblings_checked(&relative, now_ns, |_| false)?;
        }
        let (file, metadata) = self.root.open_in_memory(as_path(&relative))?;
        if metadata.len() > MOST_BYTES_AT_ONCE && kept.is_some() {
            return None;
        }
        let found = Found { read: read_from_page_cache, ..Found::alone(relative, file, metadata) };
        self.represent(path, found, Coding::Identity, key, checked_ns).ok()
    }

    /// When an entry was last seen to be unchanged, as far as the kernel knows without waiting for a disk: now, or when its
    /// directories were looked at. `None` where it has changed, or the kernel does not know. Never blocks, so that a look at
    /// a popular file once a second needs no other thread.
    pub fn unchanged(&self, path: &RequestPath, entry: &Entry) -> Option<u64> {
        let now_ns = self.cache.now_ns();
        let mut checked_ns = self.root_checked(now_ns)?;
        let relative = self.first_place(path)?;
        let is_alone = entry.variants[1..].iter().all(|variant| matches!(variant, Variant::Absent));
        let mut codings = if self.precompressed { &Coding::ALL[..] } else { &[Coding::Identity] };
        if is_alone
            && self.precompressed
            && let Some(siblings_ns) = self.siblings_checked(&relative, now_ns, |ns| self.cache.trusts(ns, now_ns))
        {
            checked_ns = checked_ns.min(siblings_ns);
            codings = &[Coding::Identity];
        }
        let is_unchanged = codings.iter().all(|coding| {
            let name = [&relative, coding.suffix().as_bytes()].concat();
            let found = self.root.find_in_memory(as_path(&name));
            match (&entry.variants[coding.index()], found) {
                (Variant::Absent, Ok(None)) => true,
                (Variant::Known(stamp), Ok(Some(metadata))) => *stamp == Stamp::of(&metadata),
                (Variant::Loaded(kept), Ok(Some(metadata))) => kept.stamp == Stamp::of(&metadata),
                _ => false,
            }
        });
        is_unchanged.then_some(checked_ns)
    }

    /// When the root was last seen to be where its path leads: now, or not too long ago.
    fn root_checked(&self, now_ns: u64) -> Option<u64> {
        let checked_ns = self.root_checked_ns.load(Relaxed);
        if self.cache.trusts(checked_ns, now_ns) && now_ns.saturating_sub(checked_ns) < ROOT_TRUSTED_NS {
            return Some(checked_ns);
        }
        self.root.is_current_in_memory().then(|| {
            self.root_checked_ns.store(now_ns, Relaxed);
            now_ns
        })
    }

    /// When it was last seen that a file has no siblings: now, or earlier, if `trusts` says that this will do.
    fn siblings_checked(&self, relative: &[u8], now_ns: u64, trusts: impl Fn(u64) -> bool) -> Option<u64> {
        self.siblings.none_in(&self.root, as_path(relative).parent()?, now_ns, trusts)
    }

    /// The root, for a look at a path.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// `None`: the root may have moved, as far as the kernel knows without a disk.
    pub fn root_is_known(&self) -> Option<()> {
        self.root_checked(self.cache.now_ns()).map(drop)
    }

    /// Follows the root's path. Blocks.
    pub fn follow_root(&self) {
        if self.root.refresh() {
            self.siblings.clear();
        }
    }

    /// The first place to look for a file.
    fn first_place(&self, path: &RequestPath) -> Option<Vec<u8>> {
        match path.directory() {
            false => Some(path.relative().as_os_str().as_bytes().to_vec()),
            true => self.index.first().map(|name| path.join(name)),
        }
    }

    /// The file for a path: itself, or the index of a directory.
    fn find(&self, path: &RequestPath, view: Option<View>) -> Result<Found, Outcome> {
        if path.directory() {
            // This comes first, because a directory that may be passed but not read still has an index.
            for name in &self.index {
                let relative = path.join(name);
                match self.root.find(as_path(&relative)) {
                    Ok(Node::File(file, metadata)) => return Ok(Found::alone(relative, file, metadata)),
                    Ok(Node::Directory(_) | Node::ClosedDirectory) => {}
                    Err(error) if status_of(error) == StatusCode::NOT_FOUND => {}
                    Err(error) => return Err(self.refused(path, error)),
                }
            }
        }
        match self.root.find(path.relative()) {
            Ok(Node::File(..)) if path.directory() => Err(Outcome::Refused(StatusCode::NOT_FOUND)),
            Ok(Node::File(file, metadata)) => {
                Ok(Found::alone(path.relative().as_os_str().as_bytes().to_vec(), file, metadata))
            }
            Ok(Node::Directory(_) | Node::ClosedDirectory) if !path.directory() => Err(Outcome::Directory),
            Ok(Node::Directory(fd)) => Err(match view {
                Some(view) => self.list(path, fd, view),
                None => Outcome::Refused(StatusCode::FORBIDDEN),
            }),
            Ok(Node::ClosedDirectory) => Err(Outcome::Refused(StatusCode::FORBIDDEN)),
            Err(error) => Err(self.refused(path, error)),
        }
    }

    fn list(&self, path: &RequestPath, directory: OwnedFd, view: View) -> Outcome {
        let options = listing::Options { dot_files: self.dot_files, folders_first: self.folders_first };
        match listing::list(&self.root, directory, path, options, view) {
            Ok(listing) => Outcome::Listing {
                listing: Arc::new(listing),
                cache_control: self.cache_control_for(&[path.relative()]).cloned(),
            },
            Err(error) => self.refused(path, error),
        }
    }

    /// Chooses among the file and its siblings.
    fn choose(
        &self,
        path: &RequestPath,
        mut found: Found,
        preferences: Preferences,
        key: &Key,
        checked_ns: u64,
    ) -> io::Result<Arc<Representation>> {
        let original = found.files[0].as_ref().map(|(_, metadata)| Stamp::of(metadata));
        if self.precompressed
            && let Some(original) = original
        {
            for coding in [Coding::Brotli, Coding::Zstd, Coding::Gzip] {
                found.files[coding.index()] = self.sibling(&found.relative, coding, &original);
            }
            if found.files[1..].iter().all(Option::is_none)
                && let Some(directory) = as_path(&found.relative).parent()
            {
                self.siblings.learn(&self.root, directory, checked_ns);
            }
        }
        let sizes = found.files.each_ref().map(|file| file.as_ref().map(|(_, metadata)| metadata.len()));
        self.represent(path, found, preferences.choose(sizes), key, checked_ns)
    }

    /// Makes the chosen representation, or reuses it from memory if it is unchanged.
    fn represent(
        &self,
        path: &RequestPath,
        found: Found,
        chosen: Coding,
        key: &Key,
        checked_ns: u64,
    ) -> io::Result<Arc<Representation>> {
        let Found { relative, files, read } = found;
        let content_type = self.types.of(as_path(&relative));
        let cache_control = self.cache_control_for(&[path.relative(), as_path(&relative)]);
        let varies = files[1..].iter().any(Option::is_some);
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
                let (source, stamp, keep) = self.read(file, metadata, now, kept.is_some(), read)?;
                let (tells_type, server_name) = (self.tells_type, self.server_name.as_ref());
                let description = Description {
                    coding,
                    varies,
                    content_type,
                    cache_control,
                    tells_type,
                    server_name,
                    is_kept: keep,
                    now,
                };
                let representation = Arc::new(Representation::new(stamp, source, description));
                *variant = if keep { Variant::Loaded(Arc::clone(&representation)) } else { Variant::Known(stamp) };
                answer = Some(representation);
            } else {
                *variant = Variant::Known(stamp);
            }
        }
        let is_loaded = variants.iter().any(|variant| matches!(variant, Variant::Loaded(_)));
        let waits = |answer: &Arc<Representation>| waits_for_second_request(answer.size());
        let is_remembered =
            kept.is_none() && answer.as_ref().is_some_and(|it| waits(it) && self.cache.takes(it.size()));
        if is_loaded || is_remembered {
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

    /// The bytes of a file or the open file, its state, and whether it may be kept in memory. `again`: it was asked for
    /// before.
    fn read(
        &self,
        file: File,
        mut metadata: Metadata,
        now: SystemTime,
        again: bool,
        read: Read,
    ) -> io::Result<(Source, Stamp, bool)> {
        for _ in 0..READ_ATTEMPTS {
            let stamp = Stamp::of(&metadata);
            let is_large = waits_for_second_request(stamp.size);
            let may_keep = !stamp.modified_within(RECENT, now) && (again || !is_large);
            let reservation = if may_keep { self.cache.reserve(stamp.size) } else { None };
            let keep = reservation.is_some();
            if !keep && is_large {
                break;
            }
            let length = usize::try_from(stamp.size).map_err(io::Error::other)?;
            let bytes = read(&file, 0, length)?;
            metadata = file.metadata()?;
            if bytes.len() == length && Stamp::of(&metadata) == stamp {
                let Some(reservation) = reservation else {
                    return Ok((Source::Memory(Bytes::from(bytes)), stamp, keep));
                };
                let bytes = reservation.fill(bytes);
                let permit = if is_large { self.cache.keep_open() } else { None };
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

impl Found {
    /// A file whose siblings are still to be found.
    fn alone(relative: Vec<u8>, file: File, metadata: Metadata) -> Self {
        Self { relative, files: [Some((file, metadata)), None, None, None], read: read_up_to }
    }
}

impl Drop for SiteFiles {
    fn drop(&mut self) {
        self.cache.remove_site(self.id);
    }
}

/// Whether a file of this size is sent from the file system by its first request. The second request reads it into memory.
fn waits_for_second_request(size: u64) -> bool {
    size >= LEAST_PART_BYTES as u64
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
impl SiteFiles {
    pub fn knows_siblings_in_tests(&self, directory: &Path) -> bool {
        self.siblings.none_in(&self.root, directory, self.cache.now_ns(), |_| false).is_some()
    }
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
            ..FilesConfig::default()
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
            site.read(file, metadata, now, true, read_up_to).unwrap()
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
        let (source, stamp, _) = site.read(file, before, SystemTime::UNIX_EPOCH, true, read_up_to).unwrap();
        assert_eq!(memory(&source), b"short no more");
        assert_eq!(stamp, Stamp::of(&fs::metadata(&path).unwrap()));
    }

    #[test]
    fn a_large_file_that_is_not_kept_is_not_read_beforehand() {
        let directory = tempfile::tempdir().unwrap();
        let site = site(directory.path());
        let path = directory.path().join("file");
        fs::write(&path, vec![0; LEAST_PART_BYTES]).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let modified = metadata.modified().unwrap();
        let (source, stamp, keep) = site.read(file, metadata, modified, true, read_up_to).unwrap();
        assert!(matches!(source, Source::File(_)));
        assert_eq!((stamp.size, keep), (LEAST_PART_BYTES as u64, false));
    }
}

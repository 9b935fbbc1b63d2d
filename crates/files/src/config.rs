//! The settings of a site's files, and of the cache that sites share. Every value of these types is valid.

use std::time::Duration;

/// The settings of a site's files.
#[derive(Clone, Debug)]
pub struct FilesConfig {
    /// File names tried, in this order, when a directory is asked for.
    pub index: Vec<String>,
    /// Whether a directory without an index file is listed; otherwise it answers 403.
    pub listing: bool,
    /// Whether directories stand before files in a listing, whatever its order.
    pub folders_first: bool,
    /// Whether names that start with a dot are served (`/.well-known` always is); otherwise they answer 404.
    pub dot_files: bool,
    /// The treatment of symbolic links.
    pub symlinks: SymlinkPolicy,
    /// Whether `file.br`, `file.zst` and `file.gz` are sent in place of `file` to clients that accept them.
    pub precompressed: bool,
    /// `Cache-Control` by pattern on the request path; the first that matches is sent.
    pub cache_control: Vec<CacheControlRule>,
    /// MIME types by extension, before the built-in table: (extension in lower case without dot, type).
    pub mime_types: Vec<(String, String)>,
    /// Whether a 304, which has no `Content-Type`, carries the type of its file as an extension ([`TypeOfNotModified`]).
    /// The server turns this on where `expires` needs the type.
    pub tells_type: bool,
    /// `Server` of a response with a file. A server that gives it to all responses saves the room for it here.
    pub server_name: Option<http::HeaderValue>,
}

/// The `Content-Type` that the response confirmed by a 304 has. An extension of responses.
#[derive(Clone, Debug)]
pub struct TypeOfNotModified(pub http::HeaderValue);

impl Default for FilesConfig {
    fn default() -> Self {
        Self {
            index: vec!["index.html".to_owned()],
            listing: false,
            folders_first: true,
            dot_files: false,
            symlinks: SymlinkPolicy::WithinRoot,
            precompressed: true,
            cache_control: Vec::new(),
            mime_types: Vec::new(),
            tells_type: false,
            server_name: None,
        }
    }
}

/// The treatment of symbolic links below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymlinkPolicy {
    /// A path with a symbolic link in it answers 404.
    Never,
    /// Links are followed as long as they end within the root.
    WithinRoot,
    /// Links are followed wherever they lead; the operator is responsible.
    Follow,
}

/// A `Cache-Control` value for the paths that match a glob.
#[derive(Clone, Debug)]
pub struct CacheControlRule {
    /// Compiled glob, matched against the decoded request path without its leading slash.
    pub pattern: globset::GlobMatcher,
    /// The header's value.
    pub value: http::HeaderValue,
}

/// Small hot files kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Most bytes kept; 0 turns the cache off.
    pub capacity_bytes: u64,
    /// Larger files are always read from the file system.
    pub max_file_bytes: u64,
    /// How long an entry is trusted before the file's metadata is checked again.
    pub revalidate_after: Duration,
    /// Most bytes of copies in another form, beside the files; 0: none are kept.
    pub copies_bytes: u64,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            capacity_bytes: 128 * 1024 * 1024,
            max_file_bytes: 2 * 1024 * 1024,
            revalidate_after: Duration::from_secs(1),
            copies_bytes: 32 * 1024 * 1024,
        }
    }
}

//! Static files as people expect them from nginx or Caddy: [`Files`] answers an [`http::Request`]'s head.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use serpent_files::{Cache, CacheConfig, Files, FilesConfig};
//! use http::{HeaderMap, Method, StatusCode, Uri};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("hello.txt"), "Hello")?;
//! let files = Files::open(folder.path(), &FilesConfig::default(), Cache::new(CacheConfig::default()))?;
//! let answer = files.serve(&Method::GET, &Uri::from_static("/hello.txt"), &HeaderMap::new()).response().await;
//! assert_eq!(answer.status(), StatusCode::OK);
//! assert_eq!(answer.headers()["content-length"], "5");
//! # Ok(())
//! # }
//! ```
//!
//! A request for a small hot file is answered from memory, immediately and without a system call. All other
//! requests are looked up by a thread that may block (`load`), and large files are read while they are sent
//! (`body`). A runtime thread never waits for a disk.
//!
//! The rules of serving:
//! - GET and HEAD are served; OPTIONS lists them with a 204. Other methods of HTTP answer 405, unknown ones
//!   501.
//! - A path is decoded and normalised (`path`) and opened only below the root (`resolve`).
//! - A directory without its slash answers 301; with its slash, an index file, a listing, or 403. A trailing
//!   slash after a file's name answers 404.
//! - A path answers 404 if it does not exist, is a link that the policy does not follow, or is no regular
//!   file. A file that may not be read answers 403.
//! - `file.br`, `file.zst` and `file.gz` beside `file` are sent to clients that accept them (`negotiate`). A
//!   sibling last modified in an earlier second than `file` is not, because it was made from an older state.
//!   (nginx and Caddy do not check.)
//! - Conditions are evaluated before ranges (`conditional`, `range`). HEAD has no ranges (RFC 9110, section
//!   14.2).
//! - A file that changes while it is read into memory is read again. `body` describes changes while it is
//!   sent.
//!
//! The path of a request: `path` → `cache` → (`single_flight` → `load` → `resolve`, `negotiate`, `listing`) →
//! `respond` → `conditional`, `range` → `body`.

#![forbid(unsafe_code)]

mod body;
mod buffers;
mod cache;
mod conditional;
mod config;
mod content_type;
mod copies;
mod kept;
mod listing;
mod load;
mod memory;
mod negotiate;
mod page_cache;
mod pages;
mod path;
mod place;
mod range;
mod representation;
mod resolve;
mod respond;
mod siblings;
mod single_flight;
mod stamp;
#[cfg(test)]
mod tests;

use std::{fmt, io, path::Path, pin::Pin, sync::Arc};

use http::{HeaderMap, Method, Response, StatusCode, Uri, header};

pub use self::{
    body::{CHUNK_BYTES, FileBody},
    cache::{Cache, CacheStats},
    config::{CacheConfig, CacheControlRule, FilesConfig, SymlinkPolicy, TypeOfNotModified},
    content_type::ContentTypes,
    copies::{Copies, CopyStats, Form, Original},
    kept::{precondition, whole_or_ranges, without_body},
    negotiate::{Coding, Preferences},
    pages::error_page,
    path::{PathError, RequestPath, encode_pattern_path, pattern_path},
    place::{Looked, Place},
    resolve::{Node, Root},
};
use self::{
    cache::{Key, Variant},
    listing::View,
    load::{Outcome, SiteFiles},
    single_flight::SingleFlight,
};

/// The files of one site. Clones share all state.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    site: Arc<SiteFiles>,
    /// Look-ups in progress. A request that arrives during one shares its result.
    lookups: SingleFlight<(Key, Preferences, Option<View>), Outcome>,
}

/// An answer, now or later.
pub enum Served {
    /// The answer is available.
    Ready(Response<FileBody>),
    /// The file system has to be asked. To be awaited within a tokio runtime; it may be dropped at any time.
    Later(Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>),
}

impl Files {
    /// Opens the root of a site. An error is the operator's: a root that cannot be opened, which is named, or
    /// an invalid MIME type.
    pub fn open(root: &Path, config: &FilesConfig, cache: Cache) -> io::Result<Self> {
        let site = Arc::new(SiteFiles::open(root, config, cache)?);
        Ok(Self(Arc::new(Shared { site, lookups: SingleFlight::default() })))
    }

    /// Answers a request; a request body is ignored. Never blocks.
    ///
    /// Responses have `Content-Length`, also to HEAD, where the body is empty. The body's size hint is always
    /// exact.
    pub fn serve(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Served {
        self.serve_listed(method, uri, headers, None)
    }

    /// The same. `listing` says whether directories without an index are listed, in place of the site's own setting.
    pub fn serve_listed(&self, method: &Method, uri: &Uri, headers: &HeaderMap, listing: Option<bool>) -> Served {
        let listing = listing.unwrap_or(self.0.site.listing);
        match *method {
            Method::GET => self.get(uri, headers, true, listing),
            Method::HEAD => match self.get(uri, headers, false, listing) {
                Served::Ready(response) => Served::Ready(pages::without_body(response)),
                Served::Later(later) => Served::Later(Box::pin(async { pages::without_body(later.await) })),
            },
            Method::OPTIONS => Served::Ready(pages::options()),
            Method::POST | Method::PUT | Method::DELETE | Method::PATCH | Method::TRACE | Method::CONNECT => {
                Served::Ready(pages::method_not_allowed())
            }
            _ => Served::Ready(error_page(StatusCode::NOT_IMPLEMENTED)),
        }
    }

    fn get(&self, uri: &Uri, headers: &HeaderMap, ranges: bool, listing: bool) -> Served {
        let raw = uri.path();
        if let Some(response) = self.answer_from_memory(raw, headers, ranges) {
            return Served::Ready(response);
        }
        let path = match RequestPath::parse(raw) {
            Ok(path) if path.hidden() && !self.0.site.dot_files => return refuse(StatusCode::NOT_FOUND),
            Ok(path) => path,
            Err(PathError::Invalid) => return refuse(StatusCode::BAD_REQUEST),
            Err(PathError::NoSuchName) => return refuse(StatusCode::NOT_FOUND),
        };
        let canonical = path.canonical();
        if canonical != raw
            && let Some(response) = self.answer_from_memory(&canonical, headers, ranges)
        {
            return Served::Ready(response);
        }
        let site = &self.0.site;
        site.cache.count_miss();
        let key = Key { site: site.id, path: canonical.into() };
        if let Some(representation) = site.load_from_memory(&path, &key) {
            return Served::Ready(respond::respond(&representation, headers, ranges));
        }
        self.ask_file_system(path, key, uri.query(), headers, (ranges, listing))
    }

    /// The answer, if it is in memory and fresh, or the kernel knows that nothing has changed.
    fn answer_from_memory(&self, path: &str, headers: &HeaderMap, ranges: bool) -> Option<Response<FileBody>> {
        let SiteFiles { cache, id, .. } = &*self.0.site;
        let entry = cache.get(*id, path)?;
        let chosen = match &entry.variants {
            // There are no siblings, so the client's preferences do not matter.
            [_, Variant::Absent, Variant::Absent, Variant::Absent] => Coding::Identity,
            variants => Preferences::parse(headers).choose(variants.each_ref().map(Variant::size)),
        };
        let Variant::Loaded(representation) = &entry.variants[chosen.index()] else { return None };
        if !cache.fresh(&entry) {
            let path = RequestPath::parse(path).ok()?;
            let checked_ns = self.0.site.unchanged(&path, &entry)?;
            cache.set_checked(&entry, checked_ns);
        }
        cache.count_hit();
        Some(respond::respond(representation, headers, ranges))
    }

    fn ask_file_system(
        &self,
        path: RequestPath,
        key: Key,
        query: Option<&str>,
        headers: &HeaderMap,
        (ranges, listing): (bool, bool),
    ) -> Served {
        let files = Arc::clone(&self.0);
        let preferences = Preferences::parse(headers);
        let view = (listing && path.directory()).then(|| View::of(query, headers));
        let headers = relevant(headers);
        let query = query.map(str::to_owned);
        Served::Later(Box::pin(async move {
            let site = Arc::clone(&files.site);
            let canonical = key.path.clone();
            let work = {
                let key = key.clone();
                move || site.load(&path, preferences, key, view)
            };
            match files.lookups.join((key, preferences, view), work).await {
                Some(Outcome::Found(representation)) => respond::respond(&representation, &headers, ranges),
                Some(Outcome::Directory) => pages::moved_to(&format!("{canonical}/"), query.as_deref()),
                Some(Outcome::Listing { listing, cache_control }) => {
                    let mut response = pages::listing(&listing);
                    if let Some(value) = cache_control {
                        response.headers_mut().insert(header::CACHE_CONTROL, value);
                    }
                    response
                }
                Some(Outcome::Refused(status)) => error_page(status),
                // The look-up panicked; the panic was reported where it happened.
                None => error_page(StatusCode::INTERNAL_SERVER_ERROR),
            }
        }))
    }
}

#[cfg(test)]
impl Files {
    fn knows_siblings_in_tests(&self, directory: &str) -> bool {
        self.0.site.knows_siblings_in_tests(Path::new(directory))
    }
}

impl Served {
    /// The answer, after waiting for it if necessary.
    pub async fn response(self) -> Response<FileBody> {
        match self {
            Self::Ready(response) => response,
            Self::Later(later) => later.await,
        }
    }
}

impl Variant {
    fn size(&self) -> Option<u64> {
        match self {
            Self::Absent => None,
            Self::Known(stamp) => Some(stamp.size),
            Self::Loaded(representation) => Some(representation.size()),
        }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("id", &self.0.site.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(response) => f.debug_tuple("Ready").field(response).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

fn refuse(status: StatusCode) -> Served {
    Served::Ready(error_page(status))
}

/// A copy of the headers on which the response depends; most requests have none of them.
fn relevant(headers: &HeaderMap) -> HeaderMap {
    let mut copy = HeaderMap::new();
    for name in respond::RELEVANT {
        for value in headers.get_all(&name) {
            copy.append(&name, value.clone());
        }
    }
    copy
}

//! Finds out whether a path leads to a file, a directory or nothing, without reading it.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path, pin::Pin, sync::Arc};

use http::StatusCode;

use crate::{
    Files,
    load::SiteFiles,
    path::{RequestPath, encode_segment},
    resolve::{Node, status_of},
};

/// A file, a directory or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file; also one that may not be read, and a path that is none.
    File,
    /// A directory, asked for without its slash.
    Directory,
    /// A directory with an index: the path of the index, escaped.
    Index(String),
    /// A directory without one.
    NoIndex,
    /// Nothing that is shown.
    Missing,
}

/// A [`Place`], now or later.
pub enum Looked {
    /// Known without waiting for a disk.
    Ready(Place),
    /// The file system has to be asked. To be awaited within a tokio runtime.
    Later(Pin<Box<dyn Future<Output = Place> + Send>>),
}

/// The kind of a path below the root.
enum Found {
    File,
    Directory,
    Nothing,
}

impl Files {
    /// The place that a path leads to. `index`: the names that are tried in a directory, in this order. Never blocks.
    pub fn place(&self, path: &str, index: &[String]) -> Looked {
        let site = &self.0.site;
        let path = match RequestPath::parse(path) {
            Ok(path) if path.hidden() && !site.dot_files => return Looked::Ready(Place::Missing),
            Ok(path) => path,
            Err(crate::PathError::Invalid) => return Looked::Ready(Place::File),
            Err(crate::PathError::NoSuchName) => return Looked::Ready(Place::Missing),
        };
        if let Ok(place) = site.place(&path, index, |relative| site.look_in_memory(relative)) {
            return Looked::Ready(place);
        }
        let (site, index) = (Arc::clone(site), index.to_vec());
        Looked::Later(Box::pin(async move {
            let work = move || {
                site.follow_root();
                let look = |relative: &Path| Ok::<_, std::convert::Infallible>(site.look(relative));
                let Ok(place) = site.place(&path, &index, look);
                place
            };
            // A look that has panicked, which was reported where it happened.
            tokio::task::spawn_blocking(work).await.unwrap_or(Place::File)
        }))
    }
}

impl SiteFiles {
    fn place<E>(
        &self,
        path: &RequestPath,
        index: &[String],
        look: impl Fn(&Path) -> Result<Found, E>,
    ) -> Result<Place, E> {
        if path.directory() {
            for name in index {
                let relative = path.join(name);
                if let Found::File = look(Path::new(OsStr::from_bytes(&relative)))? {
                    return Ok(Place::Index(format!("{}{}", path.canonical(), encode_segment(name.as_bytes()))));
                }
            }
        }
        Ok(match (look(path.relative())?, path.directory()) {
            (Found::File, false) => Place::File,
            (Found::Directory, false) => Place::Directory,
            (Found::Directory, true) => Place::NoIndex,
            // A file has no slash behind it.
            (Found::File, true) | (Found::Nothing, _) => Place::Missing,
        })
    }

    /// Asks the kernel's memory alone. `Err`: it does not know.
    fn look_in_memory(&self, relative: &Path) -> Result<Found, ()> {
        self.root_is_known().ok_or(())?;
        Ok(match self.root().find_in_memory(relative)? {
            Some(metadata) if metadata.is_file() => Found::File,
            Some(metadata) if metadata.is_dir() => Found::Directory,
            Some(_) | None => Found::Nothing,
        })
    }

    /// Blocks.
    fn look(&self, relative: &Path) -> Found {
        match self.root().find(relative) {
            Ok(Node::File(..)) => Found::File,
            Ok(Node::Directory(_) | Node::ClosedDirectory) => Found::Directory,
            Err(error) if status_of(error) == StatusCode::NOT_FOUND => Found::Nothing,
            // It is there, and the answer says why it is not shown.
            Err(_) => Found::File,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Cache, CacheConfig, FilesConfig};

    #[tokio::test]
    async fn a_path_leads_to_a_file_a_directory_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a b/deep")).unwrap();
        fs::create_dir(at("static")).unwrap();
        for name in ["index.php", "file.txt", "a b/index.php", "static/index.html", "static/index.php", ".env"] {
            fs::write(at(name), "").unwrap();
        }
        let files = Files::open(folder.path(), &FilesConfig::default(), Cache::new(CacheConfig::default())).unwrap();
        let index = ["index.html".to_owned(), "index.php".to_owned()];
        let to = |path: &str| Place::Index(path.to_owned());
        for (path, expected) in [
            ("/", to("/index.php")),
            ("/file.txt", Place::File),
            ("/file.txt?x", Place::Missing),
            ("/file.txt/", Place::Missing),
            ("/a%20b", Place::Directory),
            ("/a%20b/", to("/a%20b/index.php")),
            ("/a%20b/deep/..", to("/a%20b/index.php")),
            ("/a%20b/deep/", Place::NoIndex),
            ("/static/", to("/static/index.html")),
            ("/none", Place::Missing),
            ("/none/", Place::Missing),
            ("/file.txt/x", Place::Missing),
            ("/.env", Place::Missing),
            ("/file.txt%2f", Place::Missing),
            // The answer says that it is no path.
            ("/%zz", Place::File),
            ("/../x", Place::File),
        ] {
            // Once by the disk, perhaps, and once by the memory of the kernel.
            for _ in 0..2 {
                let place = match files.place(path, &index) {
                    Looked::Ready(place) => place,
                    Looked::Later(place) => place.await,
                };
                assert_eq!(place, expected, "{path}");
            }
            let site = &files.0.site;
            if let Ok(path) = RequestPath::parse(path).map_err(drop)
                && !path.hidden()
            {
                let Ok(place) =
                    site.place(&path, &index, |relative| Ok::<_, std::convert::Infallible>(site.look(relative)));
                assert_eq!(place, expected, "{path:?}");
            }
        }
    }
}

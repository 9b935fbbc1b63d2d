//! The listing of a directory as an HTML page.

use std::{
    ffi::OsStr,
    fmt::Write,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType},
    io::Errno,
};
use time::OffsetDateTime;

use super::{
    path::{RequestPath, encode_segment},
    resolve::{Node, Root},
};
use crate::config::SymlinkPolicy;

/// Most names on a page. A longer page is useless to a reader, and building it would need unbounded memory.
const MAX_NAMES: usize = 10_000;

const STYLE: &str = "html{color-scheme:light dark}\
    body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
    h1{font-size:1.3rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
    th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884}\
    td:first-child{overflow-wrap:anywhere}a{text-decoration:none}a:hover{text-decoration:underline}\
    .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}";

/// The page of an open directory at `path` below the root. Blocks.
pub(crate) fn page(root: &Root, directory: OwnedFd, path: &RequestPath, dot_files: bool) -> Result<String, Errno> {
    let (items, complete) = read(root, directory, path, dot_files)?;
    Ok(render(path.relative().as_os_str().as_bytes(), &items, complete))
}

#[derive(Debug)]
struct Item {
    name: Vec<u8>,
    directory: bool,
    size_bytes: u64,
    modified_s: i64,
}

/// The names that would be served, directories first, and whether the list is complete.
fn read(root: &Root, directory: OwnedFd, path: &RequestPath, dot_files: bool) -> Result<(Vec<Item>, bool), Errno> {
    let mut items = Vec::new();
    let mut complete = true;
    let mut names = Dir::read_from(&directory)?;
    while let Some(entry) = names.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (name.starts_with(b".") && !dot_files) {
            continue;
        }
        if items.len() == MAX_NAMES {
            complete = false;
            break;
        }
        // Files that vanished meanwhile or cannot be examined are left out.
        items.extend(look_at(root, &directory, path, name));
    }
    items.sort_by_cached_key(|item| (!item.directory, item.name.to_ascii_lowercase(), item.name.clone()));
    Ok((items, complete))
}

fn look_at(root: &Root, directory: &OwnedFd, path: &RequestPath, name: &[u8]) -> Option<Item> {
    let stat = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let item = |directory, size_bytes, modified_s| Item { name: name.to_vec(), directory, size_bytes, modified_s };
    match FileType::from_raw_mode(stat.st_mode) {
        #[allow(clippy::unnecessary_cast)] // their types differ between systems
        FileType::RegularFile => Some(item(false, stat.st_size as u64, stat.st_mtime as i64)),
        #[allow(clippy::unnecessary_cast)]
        FileType::Directory => Some(item(true, 0, stat.st_mtime as i64)),
        // Examined only through the root, so that not even the size of a file outside is revealed.
        FileType::Symlink if root.policy() != SymlinkPolicy::Never => {
            let target = path.relative().join(Path::new(OsStr::from_bytes(name)));
            match root.find(&target).ok()? {
                Node::File(_, metadata) => Some(item(false, metadata.size(), metadata.mtime())),
                Node::Directory(fd) => Some(item(true, 0, File::from(fd).metadata().ok()?.mtime())),
                Node::ClosedDirectory => None,
            }
        }
        _ => None,
    }
}

fn render(path: &[u8], items: &[Item], complete: bool) -> String {
    let mut page = String::with_capacity(1024 + items.len() * 160);
    let slash = if path.is_empty() { "" } else { "/" };
    let title = Escaped(path);
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Index of /{title}{slash}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Index of /{title}{slash}</h1>\n<table>\n\
         <thead><tr><th>Name</th><th class=\"n\">Size</th><th class=\"n\">Modified (UTC)</th></tr></thead>\n<tbody>\n"
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for item in items {
        let slash = if item.directory { "/" } else { "" };
        let (href, name) = (encode_segment(&item.name), Escaped(&item.name));
        let _ = write!(page, "<tr><td><a href=\"{href}{slash}\">{name}{slash}</a></td><td class=\"n\">");
        if !item.directory {
            write_size(&mut page, item.size_bytes);
        }
        page.push_str("</td><td class=\"n\">");
        write_date(&mut page, item.modified_s);
        page.push_str("</td></tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
    if !complete {
        let _ = writeln!(page, "<p>There are more than {MAX_NAMES} names; the others are not shown.</p>");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A name as HTML text or attribute. Invalid UTF-8 and control characters show as U+FFFD.
struct Escaped<'a>(&'a [u8]);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in String::from_utf8_lossy(self.0).chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Marks that change the writing direction could make one name look like another.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => f.write_char('\u{fffd}')?,
                control if control.is_control() => f.write_char('\u{fffd}')?,
                plain => f.write_char(plain)?,
            }
        }
        Ok(())
    }
}

fn write_size(page: &mut String, bytes: u64) {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        let _ = write!(page, "{bytes} B");
        return;
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let _ = write!(page, "{value:.1} {}", UNITS[unit]);
}

fn write_date(page: &mut String, seconds: i64) {
    // A time beyond the year 9999 is left out.
    if let Ok(date) = OffsetDateTime::from_unix_timestamp(seconds) {
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let _ = write!(page, "{year:04}-{month:02}-{day:02} {:02}:{:02}", date.hour(), date.minute());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        time::{Duration, SystemTime},
    };

    use tempfile::TempDir;

    use super::*;

    fn listing(top: &TempDir, policy: SymlinkPolicy, path: &str, dot_files: bool) -> String {
        let root = Root::open(top.path(), policy).unwrap();
        let path = RequestPath::parse(path).unwrap();
        let Node::Directory(fd) = root.find(path.relative()).unwrap() else { panic!("a directory") };
        page(&root, fd, &path, dot_files).unwrap()
    }

    /// The (href, text) of each link.
    fn links(page: &str) -> Vec<(String, String)> {
        page.split("<a href=\"")
            .skip(1)
            .map(|rest| {
                let (href, rest) = rest.split_once("\">").unwrap();
                (href.to_owned(), rest.split_once("</a>").unwrap().0.to_owned())
            })
            .collect()
    }

    fn names(page: &str) -> Vec<String> {
        links(page).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn directories_come_first_and_names_are_sorted() {
        let top = tempfile::tempdir().unwrap();
        for name in ["b", "A", "c.txt", "10", "9"] {
            fs::write(top.path().join(name), "").unwrap();
        }
        fs::create_dir(top.path().join("z")).unwrap();
        fs::create_dir(top.path().join("Y")).unwrap();
        assert_eq!(names(&listing(&top, SymlinkPolicy::Never, "/", false)), ["Y/", "z/", "10", "9", "A", "b", "c.txt"]);
        assert_eq!(links(&listing(&top, SymlinkPolicy::Never, "/z/", false)), [("../".into(), "../".into())]);
    }

    #[test]
    fn odd_names_are_escaped_and_their_links_lead_back_to_them() {
        let top = tempfile::tempdir().unwrap();
        let odd: [&[u8]; 8] = [
            b"<script>alert(1)</script>".split_at(8).0,
            b"a&b\"c'd",
            b"javascript:alert(1)",
            b"100%41 ?#",
            b"latin\xe9",
            "\u{e9}\u{202e}txt".as_bytes(),
            b"new\nline",
            b"back\\slash",
        ];
        for name in odd {
            fs::write(top.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let page = listing(&top, SymlinkPolicy::Never, "/", false);
        assert!(!page.contains("<script"));
        let links = links(&page);
        assert_eq!(links.len(), odd.len());
        let mut led_to: Vec<Vec<u8>> = links
            .iter()
            .map(|(href, _)| {
                assert!(href.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%-._~".contains(&byte)), "{href}");
                RequestPath::parse(&format!("/{href}")).unwrap().relative().as_os_str().as_bytes().to_vec()
            })
            .collect();
        led_to.sort();
        let mut all = odd.map(<[u8]>::to_vec);
        all.sort();
        assert_eq!(led_to, all);
        assert!(names(&page).contains(&"a&amp;b&quot;c&#39;d".to_owned()));
    }

    #[test]
    fn the_title_is_escaped() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("<b>")).unwrap();
        assert!(listing(&top, SymlinkPolicy::Never, "/%3Cb%3E/", false).contains("<h1>Index of /&lt;b&gt;/</h1>"));
    }

    #[test]
    fn dot_files_are_listed_only_where_they_are_served() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join(".hidden"), "").unwrap();
        assert_eq!(names(&listing(&top, SymlinkPolicy::Never, "/", false)), [""; 0]);
        assert_eq!(names(&listing(&top, SymlinkPolicy::Never, "/", true)), [".hidden"]);
    }

    #[test]
    fn links_are_listed_where_the_policy_would_follow_them() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "12345").unwrap();
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("file"), "x").unwrap();
        symlink("file", top.path().join("in")).unwrap();
        symlink(outside.path().join("secret"), top.path().join("out")).unwrap();
        symlink("nowhere", top.path().join("dangling")).unwrap();
        assert_eq!(names(&listing(&top, SymlinkPolicy::Never, "/", false)), ["file"]);
        assert_eq!(names(&listing(&top, SymlinkPolicy::WithinRoot, "/", false)), ["file", "in"]);
        assert_eq!(names(&listing(&top, SymlinkPolicy::Follow, "/", false)), ["file", "in", "out"]);
    }

    #[test]
    fn sizes_and_dates_are_shown() {
        let top = tempfile::tempdir().unwrap();
        let file = File::create(top.path().join("file")).unwrap();
        file.set_len(1536).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)).unwrap();
        let page = listing(&top, SymlinkPolicy::Never, "/", false);
        assert!(page.contains("<td class=\"n\">1.5 KiB</td><td class=\"n\">1994-11-06 08:49</td>"), "{page}");
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (10_485_760, "10.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            let mut shown = String::new();
            write_size(&mut shown, bytes);
            assert_eq!(shown, text);
        }
    }

    #[test]
    fn a_page_has_an_end() {
        let items: Vec<_> = (0..3)
            .map(|number| Item { name: vec![b'0' + number], directory: false, size_bytes: 0, modified_s: i64::MAX })
            .collect();
        assert!(render(b"", &items, false).contains("more than 10000 names"));
        assert!(!render(b"", &items, true).contains("more than"));
    }
}

//! The listing of a directory, as an HTML page or as JSON.

use std::{
    cmp::Ordering,
    ffi::OsStr,
    fmt::Write,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
};

use bytes::Bytes;
use http::{HeaderMap, header};
use rustix::{
    fs::{AtFlags, Dir, FileType},
    io::Errno,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    negotiate::parse_quality,
    path::{RequestPath, encode_segment},
    resolve::{Node, Root},
};
use crate::config::SymlinkPolicy;

/// Most names in a listing. A longer page is useless to a reader, and building it would need unbounded memory.
pub(crate) const MAX_NAMES: usize = 10_000;

const STYLE: &str = "html{color-scheme:light dark}\
    body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
    h1{font-size:1.3rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
    th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884}\
    td:first-child{overflow-wrap:anywhere}a{text-decoration:none}a:hover{text-decoration:underline}\
    th{white-space:nowrap}th a{color:inherit}\
    .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
    @media(max-width:40rem){body{margin:1rem auto;padding:0 .5rem}th,td{padding:.3rem}.t{display:none}}";

/// The order and the form in which a client asks for a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct View {
    pub sort: Sort,
    pub descending: bool,
    /// As JSON, in place of a page.
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) enum Sort {
    #[default]
    Name,
    Size,
    Time,
}

impl View {
    /// Reads `?sort=name|size|time&order=asc|desc` and `Accept`. Words that are none of these are passed over.
    pub fn of(query: Option<&str>, headers: &HeaderMap) -> Self {
        let mut view = Self { json: accepts_json(headers), ..Self::default() };
        for pair in query.unwrap_or_default().split('&') {
            match pair {
                "sort=name" => view.sort = Sort::Name,
                "sort=size" => view.sort = Sort::Size,
                "sort=time" => view.sort = Sort::Time,
                "order=asc" => view.descending = false,
                "order=desc" => view.descending = true,
                _ => {}
            }
        }
        view
    }

    /// The query that asks for this order, with its `?`, as it stands in HTML.
    fn query(self) -> &'static str {
        match (self.sort, self.descending) {
            (Sort::Name, false) => "?sort=name&amp;order=asc",
            (Sort::Name, true) => "?sort=name&amp;order=desc",
            (Sort::Size, false) => "?sort=size&amp;order=asc",
            (Sort::Size, true) => "?sort=size&amp;order=desc",
            (Sort::Time, false) => "?sort=time&amp;order=asc",
            (Sort::Time, true) => "?sort=time&amp;order=desc",
        }
    }
}

/// Whether `Accept` names JSON, and no page before it.
fn accepts_json(headers: &HeaderMap) -> bool {
    let (mut json, mut html) = (0, 0);
    for value in headers.get_all(header::ACCEPT) {
        for member in value.as_bytes().split(|byte| *byte == b',') {
            let mut parts = member.split(|byte| *byte == b';');
            let kind = parts.next().unwrap_or_default().trim_ascii();
            let Some(quality) = parse_quality(parts) else { continue };
            if kind.eq_ignore_ascii_case(b"application/json") {
                json = quality;
            } else if kind.eq_ignore_ascii_case(b"text/html") {
                html = quality;
            }
        }
    }
    json > 0 && json >= html
}

/// The part of a directory that the operator shows, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub dot_files: bool,
    /// Whether directories stand before files in every order.
    pub folders_first: bool,
}

/// A listing.
#[derive(Debug)]
pub(crate) struct Listing {
    pub text: Bytes,
    /// Whether the text is JSON, in place of HTML.
    pub json: bool,
    /// Whether it has all names.
    pub complete: bool,
}

/// The listing of an open directory at `path` below the root. Blocks.
pub(crate) fn list(
    root: &Root,
    directory: OwnedFd,
    path: &RequestPath,
    options: Options,
    view: View,
) -> Result<Listing, Errno> {
    let (mut items, complete) = read(root, directory, path, options.dot_files)?;
    sort(&mut items, view, options.folders_first);
    let text = match view.json {
        true => json(&items),
        false => page(path.relative().as_os_str().as_bytes(), &items, complete, view),
    };
    Ok(Listing { text: text.into(), json: view.json, complete })
}

#[derive(Debug)]
struct Item {
    name: Vec<u8>,
    directory: bool,
    size_bytes: u64,
    modified_s: i64,
}

/// The names that would be served, and whether the list is complete.
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
    Ok((items, complete))
}

fn sort(items: &mut [Item], view: View, folders_first: bool) {
    // By name first: the second sort keeps that order among equals.
    items.sort_by_cached_key(|item| (item.name.to_ascii_lowercase(), item.name.clone()));
    if view.descending && view.sort == Sort::Name {
        items.reverse();
    }
    items.sort_by(|a, b| {
        let folders = if folders_first { b.directory.cmp(&a.directory) } else { Ordering::Equal };
        let (first, second) = if view.descending { (b, a) } else { (a, b) };
        folders.then_with(|| match view.sort {
            Sort::Name => Ordering::Equal,
            Sort::Size => first.size_bytes.cmp(&second.size_bytes),
            Sort::Time => first.modified_s.cmp(&second.modified_s),
        })
    });
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

fn page(path: &[u8], items: &[Item], complete: bool, view: View) -> String {
    let mut page = String::with_capacity(2048 + items.len() * 160);
    let slash = if path.is_empty() { "" } else { "/" };
    let title = Escaped(path);
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Index of /{title}{slash}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Index of /{title}{slash}</h1>\n<table>\n<thead><tr>"
    );
    for (name, unit, sort, class) in [
        ("Name", "", Sort::Name, ""),
        ("Size", "", Sort::Size, " class=\"n\""),
        ("Modified", "<span class=\"t\"> (UTC)</span>", Sort::Time, " class=\"n\""),
    ] {
        let is_sorted = view.sort == sort;
        let (arrow, says) = match (is_sorted, view.descending) {
            (false, _) => ("", ""),
            (true, false) => (" \u{25b2}", " aria-sort=\"ascending\""),
            (true, true) => (" \u{25bc}", " aria-sort=\"descending\""),
        };
        // The first click shows the largest and the newest, the second one turns the order around.
        let descending = if is_sorted { !view.descending } else { sort != Sort::Name };
        let query = View { sort, descending, json: false }.query();
        let _ = write!(page, "<th{class}{says}><a href=\"{query}\">{name}{unit}{arrow}</a></th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    // Folders are shown in the same order.
    let query = if view == View::default() { "" } else { view.query() };
    if !path.is_empty() {
        let _ = writeln!(page, "<tr><td><a href=\"../{query}\">../</a></td><td></td><td></td></tr>");
    }
    for item in items {
        let (slash, query) = if item.directory { ("/", query) } else { ("", "") };
        let (href, name) = (encode_segment(&item.name), Escaped(&item.name));
        let _ = write!(page, "<tr><td><a href=\"{href}{slash}{query}\">{name}{slash}</a></td><td class=\"n\">");
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

/// An array with the fields that Caddy's listings have.
fn json(items: &[Item]) -> String {
    let items = items.iter().map(|item| {
        let slash = if item.directory { "/" } else { "" };
        let date = OffsetDateTime::from_unix_timestamp(item.modified_s).ok();
        serde_json::json!({
            "name": format!("{}{slash}", String::from_utf8_lossy(&item.name)),
            "size": item.size_bytes,
            "url": format!("./{}{slash}", encode_segment(&item.name)),
            "mod_time": date.and_then(|date| date.format(&Rfc3339).ok()),
            "is_dir": item.directory,
        })
    });
    let mut text = serde_json::Value::Array(items.collect()).to_string();
    text.push('\n');
    text
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

/// The time of day is left out on narrow screens.
fn write_date(page: &mut String, seconds: i64) {
    // A time beyond the year 9999 is left out.
    if let Ok(date) = OffsetDateTime::from_unix_timestamp(seconds) {
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (hour, minute) = (date.hour(), date.minute());
        let _ = write!(page, "{year:04}-{month:02}-{day:02}<span class=\"t\"> {hour:02}:{minute:02}</span>");
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
        view(top, policy, path, Options { dot_files, folders_first: true }, View::default())
    }

    fn view(top: &TempDir, policy: SymlinkPolicy, path: &str, options: Options, view: View) -> String {
        let root = Root::open(top.path(), policy).unwrap();
        let path = RequestPath::parse(path).unwrap();
        let Node::Directory(fd) = root.find(path.relative()).unwrap() else { panic!("a directory") };
        String::from_utf8(list(&root, fd, &path, options, view).unwrap().text.to_vec()).unwrap()
    }

    const FOLDERS_FIRST: Options = Options { dot_files: false, folders_first: true };

    /// The (href, text) of each link.
    fn links(page: &str) -> Vec<(String, String)> {
        let rows = page.split_once("<tbody>").unwrap().1;
        rows.split("<a href=\"")
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
        assert!(
            page.contains("<td class=\"n\">1.5 KiB</td><td class=\"n\">1994-11-06<span class=\"t\"> 08:49</span></td>"),
            "{page}"
        );
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
        assert!(page(b"", &items, false, View::default()).contains("more than 10000 names"));
        assert!(!page(b"", &items, true, View::default()).contains("more than"));
    }

    /// A folder `z` and files whose names, sizes and times are in three different orders.
    fn three() -> TempDir {
        let top = tempfile::tempdir().unwrap();
        for (name, size, time_s) in [("a", 20, 300), ("b", 30, 100), ("c", 10, 200)] {
            let file = File::create(top.path().join(name)).unwrap();
            file.set_len(size).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s)).unwrap();
        }
        fs::create_dir(top.path().join("z")).unwrap();
        top
    }

    fn of(query: &str) -> View {
        View::of(Some(query), &HeaderMap::new())
    }

    #[test]
    fn names_are_sorted_as_the_query_says_and_folders_stand_first_if_they_are_to() {
        let top = three();
        let shown = |query: &str, folders_first| {
            names(&view(&top, SymlinkPolicy::Never, "/", Options { dot_files: false, folders_first }, of(query)))
                .join(" ")
        };
        for (query, first, mixed) in [
            ("", "z/ a b c", "a b c z/"),
            ("sort=name&order=desc", "z/ c b a", "z/ c b a"),
            ("sort=size", "z/ c a b", "z/ c a b"),
            ("order=desc&sort=size", "z/ b a c", "b a c z/"),
            ("sort=time&order=asc", "z/ b c a", "b c a z/"),
            ("sort=time&order=desc&x", "z/ a c b", "z/ a c b"),
            ("sort=<script>&order=%64esc", "z/ a b c", "a b c z/"),
        ] {
            assert_eq!(shown(query, true), first, "{query}");
            assert_eq!(shown(query, false), mixed, "{query}");
        }
    }

    #[test]
    fn the_heads_lead_to_the_other_orders_and_folders_keep_the_one_that_is_shown() {
        let top = three();
        let shown = |query: &str| view(&top, SymlinkPolicy::Never, "/", FOLDERS_FIRST, of(query));
        let heads = |page: &str| {
            let head = page.split_once("<thead>").unwrap().1.split_once("</thead>").unwrap().0.to_owned();
            head.split("href=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0.to_owned()).collect::<Vec<_>>()
        };
        let plain = shown("");
        assert_eq!(
            heads(&plain),
            ["?sort=name&amp;order=desc", "?sort=size&amp;order=desc", "?sort=time&amp;order=desc"]
        );
        assert!(plain.contains("<a href=\"z/\">") && plain.contains("<th aria-sort=\"ascending\">"), "{plain}");
        let by_size = shown("sort=size&order=desc");
        assert_eq!(
            heads(&by_size),
            ["?sort=name&amp;order=asc", "?sort=size&amp;order=asc", "?sort=time&amp;order=desc"]
        );
        assert!(by_size.contains("<a href=\"z/?sort=size&amp;order=desc\">"), "{by_size}");
        assert!(by_size.contains("<a href=\"a\">"), "{by_size}");
    }

    #[test]
    fn json_is_for_clients_that_name_it_and_do_not_prefer_a_page() {
        let accept = |value: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, value.parse().unwrap())]);
            View::of(None, &headers).json
        };
        assert!(accept("application/json") && accept("Application/JSON;q=0.5, */*;q=0.1"));
        assert!(accept("text/html;q=0.8, application/json"));
        assert!(!accept("*/*") && !accept("application/json;q=0") && !accept("application/*"));
        assert!(!accept("text/html, application/json;q=0.9") && !View::of(None, &HeaderMap::new()).json);
    }

    #[test]
    fn json_has_names_links_sizes_and_times() {
        let top = three();
        fs::write(top.path().join("q\"<\u{e9} ?"), "").unwrap();
        let text = view(&top, SymlinkPolicy::Never, "/", FOLDERS_FIRST, View { json: true, ..View::default() });
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list[0]["name"], "z/");
        assert_eq!((&list[0]["url"], &list[0]["is_dir"]), (&"./z/".into(), &true.into()));
        assert_eq!((&list[1]["name"], &list[1]["size"]), (&"a".into(), &20.into()));
        assert_eq!(list[1]["mod_time"], "1970-01-01T00:05:00Z");
        assert_eq!((&list[4]["name"], &list[4]["url"]), (&"q\"<\u{e9} ?".into(), &"./q%22%3C%C3%A9%20%3F".into()));
    }
}

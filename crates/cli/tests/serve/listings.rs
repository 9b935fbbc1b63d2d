//! Listings of directories: by route, sorted, as JSON, in a browser.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use super::{
    access::{folder, start},
    support::{curl, serpent, site, tool},
};

/// Files whose names, sizes and times are in three different orders, a folder, and a hidden file.
fn fill(folder: &std::path::Path) {
    for (name, bytes, time_s) in
        [("a&b.txt", 200, 300), ("<b onclick=x>.txt", 3_000_000, 100), ("c.txt", 10, 200), (".hidden", 1, 1)]
    {
        let file = fs::File::create(folder.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s)).unwrap();
    }
    fs::create_dir(folder.join("folder")).unwrap();
}

/// The names that a page shows, in its order.
fn names(page: &str) -> Vec<&str> {
    let rows = page.split_once("<tbody>").unwrap_or_else(|| panic!("{page}")).1;
    let cells = rows.split("<tr><td><a href=").skip(1);
    cells.map(|cell| cell.split_once('>').unwrap().1.split_once("</a>").unwrap().0).collect()
}

#[test]
fn a_folder_is_listed_where_its_route_says_so_and_sorted_as_the_client_does() {
    let folder = folder();
    let www = folder.path().join("www");
    fill(&www.join("listed"));
    fs::create_dir(www.join("listed/closed")).unwrap();
    let serpent = start(
        folder.path(),
        "[[site]]\nroot = \"www\"\n\
         [[site.route]]\npath = \"/listed/closed/\"\nfiles = true\nlisting = false\n\
         [[site.route]]\npath = \"/listed/\"\nfiles = true\nlisting = true\n",
    );
    let ask = |more: &[&str], path: &str| curl(&[more, &[&serpent.url(path)]].concat());
    let status = |path: &str| curl(&["-o", "/dev/null", "-w", "%{http_code}", &serpent.url(path)]);
    let Some(page) = ask(&[], "/listed/") else { return };
    assert_eq!(names(&page), ["../", "closed/", "folder/", "&lt;b onclick=x&gt;.txt", "a&amp;b.txt", "c.txt"]);
    assert!(page.contains(">2.9 MiB<"), "{page}");
    for (path, expected) in
        [("/sub/", "403"), ("/listed/closed/", "403"), ("/listed", "301"), ("/listed/folder/", "200")]
    {
        assert_eq!(status(path).unwrap(), expected, "{path}");
    }
    let by_size = ask(&[], "/listed/?sort=size&order=desc").unwrap();
    assert_eq!(names(&by_size)[3..], ["&lt;b onclick=x&gt;.txt", "a&amp;b.txt", "c.txt"]);
    assert!(by_size.contains("<a href=\"folder/?sort=size&amp;order=desc\">"), "{by_size}");
    let by_time = ask(&[], "/listed/?sort=time").unwrap();
    assert_eq!(names(&by_time)[3..], ["&lt;b onclick=x&gt;.txt", "c.txt", "a&amp;b.txt"]);
    // Words of no order, and what would be text on the page if it were repeated there.
    let odd = ask(&[], "/listed/?sort='x&sort=%22%3E%3Cscript%3E&order=%00&sort=").unwrap();
    assert_eq!(names(&odd), names(&page));
    assert!(!odd.contains("script") && !odd.contains("'x"), "{odd}");
    let raw = ask(&[], "/listed/?sort=\"><script>alert(1)</script>").unwrap();
    assert!(!raw.contains("<script"), "{raw}");

    let answer = ask(&["-i", "-H", "Accept: application/json"], "/listed/?sort=size").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("content-type: application/json\r\n"), "{head}");
    // A cache keeps the two forms of one address apart, also where responses are compressed.
    for form in ["application/json", "text/html"] {
        let accept = format!("Accept: {form}");
        let head = ask(&["-I", "-H", &accept, "-H", "Accept-Encoding: gzip"], "/listed/").unwrap().to_lowercase();
        assert!(head.contains(&format!("content-type: {form}")), "{head}");
        let mut varies = head.lines().filter_map(|line| line.strip_prefix("vary:")).flat_map(|value| value.split(','));
        assert!(varies.any(|name| name.trim() == "accept"), "{head}");
    }
    let list: serde_json::Value = serde_json::from_str(body).unwrap();
    let found: Vec<_> = list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(found, ["closed/", "folder/", "c.txt", "a&b.txt", "<b onclick=x>.txt"]);
    let url = list[4]["url"].as_str().unwrap();
    assert_eq!(status(&format!("/listed/{url}")).unwrap(), "200", "{url}");
}

#[test]
fn a_huge_folder_is_listed_up_to_a_bound() {
    let folder = folder();
    let www = folder.path().join("www/listed");
    for number in 0..10_100 {
        fs::write(www.join(format!("{number:05}")), "").unwrap();
    }
    let serpent = start(folder.path(), "[[site]]\nroot = \"www\"\n[site.files]\nlisting = true\n");
    let Some(page) = curl(&[&serpent.url("/listed/?sort=size")]) else { return };
    assert_eq!(names(&page).len(), 10_001, "and the folder above");
    assert!(page.contains("more than 10000 names"), "{}", &page[page.len() - 200..]);
    let answer = curl(&["-i", "-H", "Accept: application/json", &serpent.url("/listed/")]).unwrap();
    assert!(answer.to_lowercase().contains("x-listing-truncated: 10000\r\n"));
}

#[test]
fn a_browser_shows_a_sorted_listing() {
    let folder = folder();
    fill(&folder.path().join("www/listed"));
    let serpent = start(folder.path(), "[[site]]\nroot = \"www\"\n[site.files]\nlisting = true\n");
    let Some(mut chromium) = tool("chromium") else { return };
    let profile = tempfile::tempdir().unwrap();
    let output = chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=1000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", &serpent.url("/listed/?sort=size&order=desc")])
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("aria-sort=\"descending\"") && page.contains("&lt;b onclick=x&gt;.txt</a>"), "{page}");
}

#[test]
fn listing_is_for_routes_with_files() {
    let folder = site();
    let file = folder.path().join("serpent.toml");
    fs::write(&file, "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 204\nlisting = true\n").unwrap();
    let output = serpent(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("serpent.toml:5:11") && said.contains("about files"), "{said}");
}

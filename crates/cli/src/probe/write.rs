//! Writes results back into the configuration file: windows and bounds of the probed resources, and nothing
//! else.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use toml_edit::{DocumentMut, Item, Value};

use crate::{config, values};

/// The new values of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The resource.
    pub resource: String,
    /// Its window.
    pub window: u32,
    /// Its bound.
    pub bound: Duration,
}

/// Returns the file with the changes. Everything else stays: order, comments and spaces.
pub fn edited(text: &str, changes: &[Change]) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    for change in changes {
        let resource = document
            .get_mut("admission")
            .and_then(Item::as_table_like_mut)
            .and_then(|admission| admission.get_mut("resources"))
            .and_then(Item::as_table_like_mut)
            .and_then(|resources| resources.get_mut(&change.resource))
            .filter(|resource| resource.is_table_like())
            .ok_or_else(|| format!("the resource `{}` is not where it was read", change.resource))?;
        set(resource, "window", i64::from(change.window).into());
        set(resource, "bound", values::show_duration(change.bound).into());
    }
    Ok(document.to_string())
}

/// Returns the file with a placeholder bound for every resource that has a page and no bound. It is only for
/// reading the configuration, and is never written.
pub fn with_bounds(text: &str) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let resources = document.get_mut("admission")?.as_table_like_mut()?.get_mut("resources")?.as_table_like_mut()?;
    for (_, resource) in resources.iter_mut() {
        let has = |key: &str| resource.get(key).is_some();
        if has("probe") && !has("bound") {
            set(resource, "bound", "1s".into());
        }
    }
    Some(document.to_string())
}

fn set(table: &mut Item, key: &str, mut value: Value) {
    if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
        // The white space and comments around the value stay.
        *value.decor_mut() = old.decor().clone();
        *old = value;
    } else if let Some(inline) = table.as_inline_table_mut() {
        // The space before the closing brace stays there.
        if let Some((_, last)) = inline.iter_mut().last()
            && let Some(end) = last.decor().suffix().cloned()
        {
            last.decor_mut().set_suffix("");
            value.decor_mut().set_prefix(" ");
            value.decor_mut().set_suffix(end);
        }
        inline.insert(key, value);
    } else if let Some(table) = table.as_table_like_mut() {
        table.insert(key, Item::Value(value));
    }
}

/// The changed lines, with the lines around them.
pub fn difference(old: &str, new: &str) -> String {
    let mut shown = String::new();
    for hunk in similar::TextDiff::from_lines(old, new).unified_diff().context_radius(2).iter_hunks() {
        let _ = writeln!(shown, "{}", hunk.header());
        for change in hunk.iter_changes() {
            let _ = write!(shown, "{}{}", change.tag(), change);
        }
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
    }
    shown
}

/// Replaces a file with a new text, or leaves it as it is. The new text must be a valid configuration, and
/// the file must not have changed since it was read.
pub fn save(path: &Path, old: &str, new: &str) -> Result<(), String> {
    let wrong =
        |what: &str, error: std::io::Error| format!("{what} `{}`: {error}; nothing was changed", path.display());
    config::load_text(path, new.to_owned())
        .map_err(|problems| format!("what would be written is not accepted, so nothing was changed:\n{problems}"))?;
    // A symbolic link must stay a link, so the file it points to is replaced.
    let file = fs::canonicalize(path).map_err(|error| wrong("cannot find", error))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let is = fs::metadata(&file).map_err(|error| wrong("cannot read", error))?;
    let beside = |error| wrong("cannot write a new file beside", error);
    let mut temporary = tempfile::Builder::new().prefix(".serpent-probe-").tempfile_in(folder).map_err(beside)?;
    temporary.write_all(new.as_bytes()).map_err(beside)?;
    let mine = temporary.as_file().metadata().map_err(beside)?;
    if (is.uid(), is.gid()) != (mine.uid(), mine.gid()) {
        std::os::unix::fs::fchown(temporary.as_file(), Some(is.uid()), Some(is.gid()))
            .map_err(|error| wrong("cannot keep the owner of", error))?;
    }
    temporary.as_file().set_permissions(is.permissions()).map_err(beside)?;
    temporary.as_file().sync_all().map_err(beside)?;
    let now = fs::read(&file).map_err(|error| wrong("cannot read", error))?;
    if now != old.as_bytes() {
        return Err(format!("`{}` has been changed meanwhile; nothing was changed here", path.display()));
    }
    temporary.persist(&file).map_err(|error| wrong("cannot replace", error.error))?;
    // The new file is in place. Only its survival of a power failure right now can still be at risk.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Rounds a bound for people: to whole milliseconds, or to hundredths where that would be too coarse.
pub fn rounded(bound_ns: u64) -> Duration {
    let unit = if bound_ns < 10_000_000 { 10_000 } else { 1_000_000 };
    Duration::from_nanos((bound_ns.saturating_add(unit / 2) / unit).max(1).saturating_mul(unit))
}

//! Directories for one run, called by the process that made them: what a killed process left is known, and removed.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tempfile::{Builder, TempDir};

/// Before the id of the process.
const PREFIX: &str = "serpent-lab-";

/// Makes a directory that goes when it is dropped, with these permissions (as `chmod` takes them).
pub(crate) fn directory(mode: u32) -> io::Result<TempDir> {
    let dir = Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir()?;
    // Whatever the umask says.
    fs::set_permissions(dir.path(), Permissions::from_mode(mode))?;
    Ok(dir)
}

/// Removes the directories of processes that were killed before they could do it.
pub(crate) fn remove_stale() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Somebody else's, or gone by now: not ours to insist.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed() {
        // Process ids end at 4 million.
        let left = std::env::temp_dir().join(format!("{PREFIX}4294967295-x"));
        fs::create_dir(&left).unwrap();
        let living = directory(0o700).unwrap();
        remove_stale();
        assert!(!left.exists() && living.path().exists());
        assert_eq!(fs::metadata(living.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

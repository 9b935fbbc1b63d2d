//! Temporary directories named after the process that made them, so that those of killed processes can be
//! removed.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tempfile::{Builder, TempDir};

/// The prefix of names, before the process id.
const PREFIX: &str = "serpent-lab-";

/// Makes a directory with these permissions (as in `chmod`); dropping it removes it.
pub(crate) fn directory(mode: u32) -> io::Result<TempDir> {
    let dir = Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir()?;
    // Independent of the umask.
    fs::set_permissions(dir.path(), Permissions::from_mode(mode))?;
    Ok(dir)
}

/// Removes the directories of killed processes.
pub(crate) fn remove_stale() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // The directory may belong to another user, or be gone; both are acceptable.
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

//! Finds the programs that tests start.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// The program under test.
pub const LAB: &str = env!("CARGO_BIN_EXE_serpent-lab");

/// The program `serpent`, which the program under test measures, in the same folder.
///
/// Cargo builds that program only for the tests of its own package. Here it is built once if it is missing,
/// and used as it is if it is present. `cargo test --workspace` builds it again.
pub fn serpent() -> &'static Path {
    static SERPENT: LazyLock<PathBuf> = LazyLock::new(|| {
        let serpent = Path::new(LAB).with_file_name("serpent");
        if !serpent.is_file() {
            let folder = serpent.parent().expect("a program is in a folder");
            let profile = match folder.file_name().and_then(|name| name.to_str()) {
                Some("debug") | None => "dev",
                Some(name) => name,
            };
            let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            build.args(["build", "--locked", "--package", "serpent", "--bin", "serpent", "--profile", profile]);
            build.arg("--target-dir").arg(folder.parent().expect("a profile has a folder of its own"));
            let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
            assert!(status.success() && serpent.is_file(), "`serpent` cannot be built: {status}");
        }
        serpent
    });
    &SERPENT
}

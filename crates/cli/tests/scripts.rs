//! Tests of the repository's scripts on a machine without some programs.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Programs that the script of the two-tier site itself needs. Every Debian has them.
const BASICS: &[(&str, &str)] = &[
    ("awk", "mawk"),
    ("cat", "coreutils"),
    ("dirname", "coreutils"),
    ("find", "findutils"),
    ("flock", "util-linux"),
    ("getconf", "libc-bin"),
    ("grep", "grep"),
    ("realpath", "coreutils"),
    ("setpriv", "util-linux"),
    ("sort", "coreutils"),
    ("tail", "coreutils"),
];

/// A program or other file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Makes a folder of links to the programs in this machine's PATH, except those that `without` names.
fn programs(folder: &Path, without: impl Fn(&str) -> bool) {
    fs::create_dir(folder).unwrap();
    let path = env::var_os("PATH").unwrap();
    for entry in env::split_paths(&path).filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
        let name = entry.file_name();
        if !name.to_str().is_none_or(&without) {
            // The first folder with a program wins, as in a shell.
            let _ = symlink(entry.path(), folder.join(&name));
        }
    }
}

/// Runs `site start` with these programs, with at most 5 s of processor time and 256 MiB of address space.
fn start(programs: &Path, state: &Path) -> Output {
    let script = "ulimit -t 5; ulimit -v 262144; exec bash \"$0\" start --folder \"$1\"";
    let mut bash = Command::new("/bin/bash");
    bash.args(["-c", script]).arg(repository("examples/two-tier/site")).arg(state);
    bash.env("PATH", programs).output().unwrap()
}

fn is_of_the_site(name: &str) -> bool {
    ["php", "apache2", "maria", "mysql", "my_print_defaults", "curl", "apt-get"].iter().any(|of| name.starts_with(of))
}

/// The script has a function `php`, which it must not take for the program.
#[test]
fn the_site_says_in_one_line_which_packages_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    // Debian keeps servers in `/usr/sbin`, which the script also searches.
    let elsewhere = |name: &str| Path::new("/usr/sbin").join(name).exists();
    programs(&dir.path().join("bin"), is_of_the_site);
    let output = start(&dir.path().join("bin"), &dir.path().join("state"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("site: not installed: "), "{said}");
    let packages: Vec<&str> = said.split([' ', '.']).collect();
    assert!(packages.contains(&"curl") && packages.contains(&"php-cli"), "{said}");
    for (program, package) in [("apache2", "apache2-bin"), ("mariadbd", "mariadb-server-core")] {
        assert!(elsewhere(program) || packages.contains(&package), "{said}");
    }
}

#[test]
fn the_site_says_which_package_has_a_program_that_every_debian_has() {
    let dir = tempfile::tempdir().unwrap();
    for (missing, package) in BASICS {
        let bin = dir.path().join(missing);
        programs(&bin, |name| name == *missing);
        let output = start(&bin, &dir.path().join("state"));
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = format!("site: `{missing}` is not installed; in Debian it is in the package {package}\n");
        assert_eq!((output.status.code(), said.as_str()), (Some(1), expected.as_str()));
    }
}

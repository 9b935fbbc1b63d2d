//! Tests of the wrapper between cargo and rustc: which crates it compiles with the profile, and with which
//! compiler.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use tempfile::TempDir;

const OPTIMISED: [&str; 4] = ["--crate-name", "serpent", "-C", "opt-level=3"];

/// A script in place of the compiler that prints its version or its arguments. It is written before any test
/// starts a process, because a process could hold it open.
static COMPILER: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let rustc = folder.path().join("rustc");
    fs::write(&rustc, "#!/bin/sh\ntest \"$1\" = -V && echo \"$VERSION\" && exit\necho \"$@\"\n").unwrap();
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, rustc)
});

/// Runs the wrapper with a compiler of this version. Returns the compiler's arguments and the wrapper's
/// messages.
fn told(version: &str, arguments: &[&str], into: Option<&str>) -> (String, String) {
    let (_, rustc) = &*COMPILER;
    let mut wrapper = Command::new(profile("rustc"));
    wrapper.arg(rustc).args(arguments).env("VERSION", version);
    wrapper.env_remove("PROFILE_INTO").envs(into.map(|into| ("PROFILE_INTO", into)));
    let output = wrapper.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
    (text(output.stdout), text(output.stderr))
}

fn passed_on(version: &str, arguments: &[&str], into: Option<&str>) -> String {
    let (passed, said) = told(version, arguments, into);
    assert_eq!(said, "");
    passed
}

fn profile(name: &str) -> String {
    format!("{}/../../profile/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn compiler() -> String {
    fs::read_to_string(profile("compiler")).unwrap().trim_end().to_owned()
}

#[test]
fn an_optimised_crate_is_compiled_by_the_profile() {
    let passed = passed_on(&compiler(), &OPTIMISED, None);
    let (_, used) = passed.split_once("profile-use=").unwrap();
    assert!(Path::new(used.split(' ').next().unwrap()).is_file(), "{passed}");
    assert!(passed.starts_with(&OPTIMISED.join(" ")), "{passed}");
    for level in ["2", "s", "z"] {
        let arguments = ["--crate-name", "h2", "-C", &format!("opt-level={level}"), "-C", "panic=unwind"];
        assert!(passed_on(&compiler(), &arguments, None).contains("profile-use="), "{level}");
    }
}

#[test]
fn another_compiler_could_not_read_it_and_is_left_alone_which_is_said() {
    const OTHER: &str = "rustc 1.0.0 (a59de37e9 2015-05-13)";
    assert_eq!(passed_on(OTHER, &OPTIMISED, None), OPTIMISED.join(" "));
    // The program itself is compiled once, and last.
    let program = ["--crate-name", "serpent", "src/main.rs", "--crate-type", "bin", "-C", "opt-level=3"];
    let (passed, said) = told(OTHER, &program, None);
    assert_eq!(passed, program.join(" "));
    assert!(said.contains("built without") && said.contains(&compiler()), "{said}");
}

#[test]
fn what_is_not_optimised_or_is_instrumented_already_is_left_alone() {
    for arguments in [
        &["--crate-name", "serpent", "-C", "opt-level=1"][..],
        &["-vV"],
        &["-C", "opt-level=3", "-Cpasses=sancov-module"],
        &["-C", "opt-level=3", "-Cprofile-use=mine"],
    ] {
        assert_eq!(passed_on(&compiler(), arguments, Some("counts")), arguments.join(" "));
    }
}

#[test]
fn what_is_to_count_leaves_its_counts_where_it_is_told() {
    let passed = passed_on(&compiler(), &OPTIMISED, Some("counts"));
    assert_eq!(passed, format!("{} -C profile-generate=counts", OPTIMISED.join(" ")));
}

#[test]
fn the_name_of_a_crate_follows_from_its_version_and_features_alone() {
    let passed = |metadata: &str, version: &str, feature: &str| {
        let (_, rustc) = &*COMPILER;
        let mut wrapper = Command::new(profile("rustc"));
        wrapper.arg(rustc).args(OPTIMISED).args(["-C", metadata, "--cfg", feature]);
        wrapper.env("VERSION", compiler()).env("CARGO_PKG_VERSION", version).env_remove("PROFILE_INTO");
        String::from_utf8(wrapper.output().unwrap().stdout).unwrap()
    };
    let one = passed("metadata=0123456789abcdef", "1.2.3", "feature=\"std\"");
    assert!(one.contains("metadata=1.2.3 \"std\" "), "{one}");
    assert_eq!(one, passed("metadata=fedcba9876543210", "1.2.3", "feature=\"std\""));
    assert_ne!(one, passed("metadata=0123456789abcdef", "1.2.4", "feature=\"std\""));
    assert_ne!(one, passed("metadata=0123456789abcdef", "1.2.3", "feature=\"alloc\""));
}

/// The compiler takes a profile that has other names without a warning.
#[test]
fn every_optimised_build_finds_the_counts_of_the_profile() {
    let version = Command::new("rustc").arg("-V").output().unwrap().stdout;
    if String::from_utf8(version).unwrap().trim_end() != compiler() {
        eprintln!(
            "SKIPPED: the profile is for {}, and this is another compiler: profile/train makes one for it",
            compiler()
        );
        return;
    }
    let target = tempfile::tempdir().unwrap();
    for cargo_profile in ["release", "dist"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args("rustc --locked --offline --package serpent-http1 --lib --profile".split(' ')).arg(cargo_profile);
        cargo.arg("--target-dir").arg(target.path()).args(["--", "--emit=llvm-ir"]);
        cargo.current_dir(profile("..")).env("RUSTC_WRAPPER", profile("rustc")).env_remove("PROFILE_INTO");
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let code =
            fs::read_dir(target.path().join(cargo_profile).join("deps")).unwrap().map(|entry| entry.unwrap().path());
        let code = code.filter(|path| path.extension().is_some_and(|it| it == "ll"));
        let functions: Vec<String> = code
            .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| line.starts_with("define ") && line.contains("serpent_http1"))
            .collect();
        let counted = functions.iter().filter(|line| line.contains(" !prof ")).count();
        assert!(3 * counted > functions.len(), "{cargo_profile}: counts of {counted} of {} functions", functions.len());
    }
}

//! Checks the dependencies between crates and between the files of a crate: imports run downward only, and a crate
//! depends on no other than it may use.

#[path = "doors/imports.rs"]
mod imports;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    sync::LazyLock,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use imports::{Sources, circles};

/// The workspace crates that each crate may import. A pair that is not listed is forbidden.
const DOORS: &[(&str, &[&str])] = &[
    (
        "serpent",
        &[
            "serpent-attach",
            "serpent-import",
            "serpent-recent",
            "serpent-server",
            "serpent-scheduler",
            "serpent-kernel",
            "serpent-simulator",
            "serpent-workload",
            "serpent-chart",
        ],
    ),
    (
        "serpent-server",
        &[
            "serpent-access-log",
            "serpent-acme",
            "serpent-cache",
            "serpent-scheduler",
            "serpent-kernel",
            "serpent-limits",
            "serpent-files",
            "serpent-http1",
            "serpent-http2",
            "serpent-bodies",
            "serpent-compression",
            "serpent-heads",
            "serpent-upstream",
            "serpent-drivers",
            "serpent-classify",
            "serpent-cluster",
            "serpent-programs",
            "serpent-proxy-protocol",
            "serpent-recent",
            "serpent-rewrites",
            "serpent-traces",
        ],
    ),
    ("serpent-access-log", &[]),
    ("serpent-acme", &[]),
    ("serpent-attach", &["serpent-kernel", "serpent-scheduler"]),
    ("serpent-bodies", &["serpent-http1"]),
    ("serpent-cache", &[]),
    ("serpent-compression", &[]),
    ("serpent-classify", &["serpent-files", "serpent-heads", "serpent-scheduler"]),
    ("serpent-cluster", &["serpent-scheduler"]),
    ("serpent-drivers", &["serpent-attach", "serpent-kernel", "serpent-scheduler"]),
    ("serpent-files", &[]),
    ("serpent-heads", &["serpent-http1"]),
    ("serpent-http1", &[]),
    ("serpent-http2", &[]),
    ("serpent-import", &[]),
    ("serpent-limits", &[]),
    ("serpent-names", &[]),
    ("serpent-programs", &["serpent-bodies", "serpent-files", "serpent-heads", "serpent-kernel", "serpent-names"]),
    ("serpent-proxy-protocol", &[]),
    ("serpent-recent", &[]),
    ("serpent-rewrites", &["serpent-classify"]),
    ("serpent-traces", &[]),
    (
        "serpent-upstream",
        &[
            "serpent-bodies",
            "serpent-heads",
            "serpent-http1",
            "serpent-http2",
            "serpent-names",
            "serpent-proxy-protocol",
        ],
    ),
    ("serpent-simulator", &["serpent-scheduler", "serpent-workload"]),
    // The lab imports nothing from the server that it measures: it runs `serpent` as a program.
    (
        "serpent-lab",
        &["serpent-instrument", "serpent-simulator", "serpent-workload", "serpent-chart", "serpent-scheduler"],
    ),
    ("serpent-instrument", &["serpent-workload", "serpent-chart", "serpent-kernel"]),
    ("serpent-chart", &[]),
    ("serpent-scheduler", &[]),
    ("serpent-workload", &[]),
    ("serpent-kernel", &[]),
];

/// All dependencies that the scheduler may have: crates without `std`, clock or I/O.
const SCHEDULER_MAY_USE: &[&str] = &["slab", "libm"];

/// Crates that still have circles of imports between their files. Remove a crate from here when it has none.
const STILL_IN_CIRCLES: &[&str] = &[];

/// Most lines of a file, without the tests at its end.
const MOST_LINES: usize = 600;

/// Crates that still have longer files. Remove a crate from here when it has none.
const STILL_LONG: &[&str] = &[];

/// Licences that are allowed for everything that is linked.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "0BSD",
    "CC0-1.0",
    "bzip2-1.0.6",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"))
        .other_options(["--locked".to_owned()])
        .exec()
        .expect("cargo metadata runs")
}

/// Names of a package's dependencies when it is built for use, without those of its tests.
fn built_with(package: &Package) -> BTreeSet<&str> {
    let used = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
    used.map(|dependency| dependency.name.as_str()).collect()
}

#[test]
fn every_crate_imports_only_through_its_doors() {
    let metadata = metadata();
    let doors: BTreeMap<_, _> = DOORS.iter().copied().collect();
    let members: BTreeSet<_> =
        metadata.workspace_packages().into_iter().map(|package| package.name.to_string()).collect();
    assert_eq!(
        members,
        doors.keys().map(ToString::to_string).collect(),
        "a crate that is new or gone: give it its doors here and in docs/ARCHITECTURE.md"
    );
    for package in metadata.workspace_packages() {
        // Dependencies of tests count too: a crate that needs a sibling to be tested does not stand alone.
        let siblings = package.dependencies.iter().map(|dependency| dependency.name.as_str());
        for sibling in siblings.filter(|name| members.contains(*name)) {
            assert!(
                doors[package.name.as_str()].contains(&sibling),
                "`{}` imports `{sibling}`: there is no door between them",
                package.name
            );
        }
    }
}

/// The source of each crate's library or program. A package with both has its code in the library.
static SOURCES: LazyLock<Vec<(String, Sources)>> = LazyLock::new(|| {
    let metadata = metadata();
    let read = |package: &Package| {
        let library = package.targets.iter().find(|target| target.is_lib());
        let root =
            library.or_else(|| package.targets.iter().find(|target| target.is_bin())).expect("a crate has a root");
        (package.name.to_string(), Sources::read(root.src_path.as_std_path()))
    };
    metadata.workspace_packages().into_iter().map(read).collect()
});

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let mut found = String::new();
    let mut in_circles = BTreeSet::new();
    for (name, sources) in &*SOURCES {
        let imports = sources.imports();
        for circle in circles(&imports) {
            in_circles.insert(name.clone());
            if STILL_IN_CIRCLES.contains(&name.as_str()) {
                continue;
            }
            found += &format!("\na circle of {} files in `{name}`:\n", circle.len());
            for &file in &circle {
                for (other, names) in imports[file].iter().filter(|(other, _)| circle.contains(&***other)) {
                    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                    found += &format!("  {} takes {names} from {}\n", file.display(), other.display());
                }
            }
        }
    }
    assert!(found.is_empty(), "{found}Move what both files need to a file below both.");
    for &name in STILL_IN_CIRCLES {
        assert!(in_circles.contains(name), "`{name}` is free of circles: remove it from STILL_IN_CIRCLES");
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let (mut found, mut long) = (String::new(), BTreeSet::new());
    for (name, sources) in &*SOURCES {
        for (file, lines) in sources.production_lines().filter(|&(_, lines)| lines > MOST_LINES) {
            long.insert(name.clone());
            if !STILL_LONG.contains(&name.as_str()) {
                found += &format!("{} has {lines} lines\n", file.display());
            }
        }
    }
    assert!(found.is_empty(), "more than {MOST_LINES} lines without tests; split by meaning:\n{found}");
    for &name in STILL_LONG {
        assert!(long.contains(name), "`{name}` has no long file any more: remove it from STILL_LONG");
    }
}

#[test]
fn the_scheduler_depends_on_nothing_that_could_tell_the_time_or_touch_the_world() {
    let metadata = metadata();
    let scheduler = metadata.workspace_packages().into_iter().find(|p| p.name.as_str() == "serpent-scheduler").unwrap();
    for name in built_with(scheduler) {
        assert!(SCHEDULER_MAY_USE.contains(&name), "the scheduler depends on `{name}`");
    }
    let library = fs::read_to_string(scheduler.manifest_path.with_file_name("src").join("lib.rs")).unwrap();
    assert!(library.lines().any(|line| line == "#![no_std]"));
}

#[test]
fn unsafe_code_is_in_the_kernel_crate_alone() {
    for package in metadata().workspace_packages().into_iter().filter(|p| p.name.as_str() != "serpent-kernel") {
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let root = fs::read_to_string(&target.src_path).unwrap();
            assert!(root.lines().any(|line| line == "#![forbid(unsafe_code)]"), "{} lacks the forbid", target.src_path);
        }
    }
}

/// Every package that is built for any target: its name and version.
fn cargo_tree() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--offline", "--target=all", "--edges=all", "--prefix=none", "--format={p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let named = text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
    let built: BTreeSet<String> = named.collect();
    assert!(built.len() > 100, "{}", String::from_utf8_lossy(&output.stderr));
    built
}

#[test]
fn everything_that_is_linked_may_be_given_away() {
    let metadata = metadata();
    let sound = |licence: &str| {
        // `A OR B` leaves the choice, `A AND B` does not. `/` is the old form of `OR`.
        let clean = licence.replace(['(', ')'], " ").replace('/', " OR ").replace(" WITH LLVM-exception", "");
        clean.split(" AND ").all(|part| part.split(" OR ").any(|name| LICENCES.contains(&name.trim())))
    };
    // `cargo metadata` also has the packages of optional dependencies that only weak features (`a?/b`) name.
    let built = cargo_tree();
    for package in &metadata.packages {
        if !built.contains(&format!("{} v{}", package.name, package.version)) {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("none");
        assert!(sound(licence), "`{}` {} is under {licence}", package.name, package.version);
        let source = package.source.as_ref().map_or("workspace", |source| source.repr.as_str());
        assert!(
            source == "workspace" || source.starts_with("registry+https://github.com/rust-lang/crates.io-index"),
            "`{}` comes from {source}",
            package.name
        );
    }
}

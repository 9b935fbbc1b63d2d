//! Checks the dependencies between crates: imports run downward only, and a crate depends on no other than it
//! may use.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The workspace crates that each crate may import. A pair that is not listed is forbidden.
const DOORS: &[(&str, &[&str])] = &[
    (
        "serpent",
        &[
            "serpent-server",
            "serpent-scheduler",
            "serpent-kernel",
            "serpent-simulator",
            "serpent-workload",
            "serpent-chart",
        ],
    ),
    ("serpent-server", &["serpent-scheduler", "serpent-kernel", "serpent-files", "serpent-http1"]),
    ("serpent-files", &[]),
    ("serpent-http1", &[]),
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

/// Licences that are allowed for everything that is linked.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
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

#[test]
fn everything_that_is_linked_may_be_given_away() {
    let metadata = metadata();
    let sound = |licence: &str| {
        // `A OR B` leaves the choice, `A AND B` does not. `/` is the old form of `OR`.
        let clean = licence.replace(['(', ')'], " ").replace('/', " OR ").replace(" WITH LLVM-exception", "");
        clean.split(" AND ").all(|part| part.split(" OR ").any(|name| LICENCES.contains(&name.trim())))
    };
    for package in &metadata.packages {
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

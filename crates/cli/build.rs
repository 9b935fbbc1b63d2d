//! Asks the linker for a smaller program, by some two megabytes of 22.
//!
//! Functions of equal code are put together, and the places that the loader has to adjust are written as a bitmap. Only
//! LLVM's linker can do the first. Rust brings it along for x86-64 Linux from 1.90 on, and takes it unless it is told to
//! take another. The second needs glibc 2.36 where the program runs, so it is done where the program is built with such a
//! one.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    let target = is("TARGET", "x86_64-unknown-linux-gnu") && !is("PROFILE", "debug");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let other_linker = env::var_os("RUSTC_LINKER").is_some() || flags.contains("link");
    if target && !other_linker && rust_minor_version().is_some_and(|minor| minor >= 90) {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
        if glibc_minor_version().is_some_and(|minor| minor >= 36) {
            println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// The 90 of `rustc 1.90.0`.
fn rust_minor_version() -> Option<u32> {
    first_line(Command::new(env::var_os("RUSTC")?).arg("--version"))?.split('.').nth(1)?.parse().ok()
}

/// The 36 of `ldd (Debian GLIBC 2.36-9) 2.36`.
fn glibc_minor_version() -> Option<u32> {
    first_line(Command::new("ldd").arg("--version"))?.rsplit_once(" 2.")?.1.parse().ok()
}

fn first_line(command: &mut Command) -> Option<String> {
    let text = String::from_utf8(command.output().ok()?.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

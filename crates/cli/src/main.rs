//! The binary `serpent`.

#![forbid(unsafe_code)]

/// A proxied request allocates some thirty times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    serpent::run()
}

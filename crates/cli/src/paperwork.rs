//! Shell completions and manual pages, made from the definition of the command line.

use std::{io, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;

/// Completions for a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "serpent", &mut out);
    out
}

/// The manual page of `serpent` itself.
pub fn man_page() -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut out)?;
    Ok(out)
}

/// Writes one manual page for each command into a folder, which is made if missing.
pub fn man_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}

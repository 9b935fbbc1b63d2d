//! Results, error messages, shell completions and manual pages: what a program of this repository writes to its
//! terminal, and the exit codes. `serpent` and `serpent-lab` both include this file; it needs clap alone.

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap_complete::Shell;

/// Exit code of a failure at run time.
pub const FAILURE: u8 = 1;
/// Exit code of an error in the command line or in a file that it names. clap uses the same code.
pub const USAGE: u8 = 2;

/// Prints a result. It is no failure if the reader closes the pipe early (`| head`).
pub fn print(bytes: &[u8]) -> ExitCode {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(FAILURE, &format!("error: cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes a message to standard error, and returns the exit code.
pub fn complain(code: u8, text: &str) -> ExitCode {
    // If standard error is closed, the message is lost, but the exit code remains.
    let _ = writeln!(io::stderr().lock(), "{text}");
    ExitCode::from(code)
}

/// Prints completions of a program's command line for a shell.
pub fn completions(mut program: clap::Command, shell: Shell) -> ExitCode {
    let (name, mut out) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut program, name, &mut out);
    print(&out)
}

/// Prints the manual page of a program, or writes one page for each of its commands into a folder, which is made
/// if missing.
pub fn manual(program: clap::Command, folder: Option<&Path>) -> ExitCode {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        return match clap_mangen::Man::new(program).render(&mut page) {
            Ok(()) => print(&page),
            Err(error) => complain(FAILURE, &format!("error: the manual page cannot be made: {error}")),
        };
    };
    match std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(program, folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(FAILURE, &format!("error: cannot write manual pages into `{}`: {error}", folder.display()))
        }
    }
}

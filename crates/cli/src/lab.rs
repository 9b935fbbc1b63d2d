//! `serpent lab`, `serpent simulate` and `serpent theory`: the program `serpent-lab`, which is installed separately.

use std::{env, ffi::OsString, io, os::unix::process::CommandExt as _, path::Path, process::Command};

use clap::Args;

const PROGRAM: &str = "serpent-lab";

/// The arguments for `serpent-lab`.
#[derive(Args, Debug)]
pub struct LabArgs {
    /// Arguments of `serpent-lab`; `--help` shows its help
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Replaces this process with `serpent-lab`: the one in the folder of this program, otherwise the first in
/// the folders of `PATH`. Returns only if that fails, with the reason.
pub fn run(command: Option<&str>, args: &LabArgs) -> String {
    let own = env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name(PROGRAM)).filter(|file| file.is_file());
    let program = beside.as_deref().unwrap_or(Path::new(PROGRAM));
    let error = Command::new(program).args(command).args(&args.arguments).exec();
    match error.kind() {
        io::ErrorKind::NotFound if beside.is_none() => format!(
            "`{PROGRAM}` is not installed: it is neither beside this program nor in the folders of PATH; \
             `cargo install --path lab/cli`, in the source of Serpent, installs it"
        ),
        _ => format!("`{}` cannot be started: {error}", program.display()),
    }
}

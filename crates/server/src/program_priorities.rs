//! The processor priorities of a configuration's programs.

use programs::{PriorityError, ProgramClass};

use crate::config::{ClassConfig, Config, Origin};

/// Prepares the priorities of a configuration that has programs. See [`programs::prepare`].
///
/// # Errors
/// The class whose priority may not be set, and the permission to grant.
pub(crate) fn prepare(config: &Config) -> Result<(), PriorityError> {
    prepare_classes(&config.classes.classes, are_run_by(config))
}

/// Whether a configuration runs programs: for requests, or as workers of an upstream.
pub(crate) fn are_run_by(config: &Config) -> bool {
    let cgi = config.sites.iter().flat_map(|site| &site.routes).any(|route| matches!(route.origin, Origin::Cgi(_)));
    cgi || !config.upstream_workers.is_empty()
}

/// Does the same as [`prepare`] for changed classes; `are_run`: there are programs.
pub(crate) fn prepare_classes(classes: &[ClassConfig], are_run: bool) -> Result<(), PriorityError> {
    if are_run { programs::prepare(&program_classes(classes)) } else { Ok(()) }
}

/// Puts the priorities in force. See [`programs::settle`].
pub(crate) fn settle(classes: &[ClassConfig], are_run: bool) {
    let classes = if are_run { program_classes(classes) } else { Vec::new() };
    programs::settle(&classes);
}

/// The classes as far as programs are concerned.
pub(crate) fn program_classes(classes: &[ClassConfig]) -> Vec<ProgramClass> {
    let class = |class: &ClassConfig| ProgramClass { name: class.name.clone(), priority: class.priority };
    classes.iter().map(class).collect()
}

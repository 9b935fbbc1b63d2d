//! Priorities that a test may set.

use std::fmt;

use kernel::process;

use crate::{config::Priority, priority::scheduling};

/// Whether a priority may be set here. If not, the test says that it is skipped; in CI it fails.
pub(crate) fn may(test: &str, priority: Priority) -> bool {
    let Err(refused) = process::check(scheduling(priority).0) else { return true };
    skip(test, &refused);
    false
}

/// Reports a test that cannot run here; in CI it fails.
pub(crate) fn skip(test: &str, why: &dyn fmt::Display) {
    assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: {why}");
    eprintln!("SKIPPED: {test}: {why}");
}

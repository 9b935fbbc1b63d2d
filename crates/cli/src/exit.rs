//! Exit codes.

/// Failure at run time.
pub const FAILURE: u8 = 1;
/// Error in the command line or the configuration. clap uses the same code.
pub const USAGE: u8 = 2;

//! The experiments that come with the program.

/// Names and texts of the shipped experiment files.
pub const SHIPPED: &[(&str, &str)] =
    &[("load", include_str!("../../experiments/load.toml")), ("smoke", include_str!("../../experiments/smoke.toml"))];

//! Why the uplink cannot be driven as configured.

use std::fmt;

use scheduler::{Order, share::Policy, uplink::ShareError};

use super::teller::TellError;

/// Most classes in strict order in kernel mode: where bands have no ranks within them, there are seven ranks.
pub(super) const CLASSES_MAX: usize = 7;

/// Why the uplink cannot be driven as configured. The operator can repair each of these.
#[derive(Debug)]
pub enum UplinkError {
    /// `enforce = "kernel"`, but the classifier of `serpent attach` cannot be told of responses.
    Kernel(TellError),
    /// `enforce = "kernel"` with an order that has no bands.
    NotBandable(Order),
    /// `enforce = "kernel"` with a share between classes, which bands do not have.
    ShareNotBandable(Policy),
    /// `enforce = "kernel"` with more classes than there are bands.
    TooManyClasses(usize),
    /// A line that several gateways share, and a share or reserves that keep a part of the rate for a class.
    KeptOfLine,
    /// The share between classes contradicts itself.
    Share(ShareError),
}

impl fmt::Display for UplinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(error) => write!(f, "`enforce = \"kernel\"` needs `serpent attach`: {error}"),
            Self::NotBandable(order) => write!(
                f,
                "the order `{order}` cannot be put into the kernel's bands; use `srpt` or `las` with `enforce = \"kernel\"`, or \
                 `enforce = \"server\"`"
            ),
            Self::ShareNotBandable(policy) => write!(
                f,
                "the kernel's bands keep a strict order of classes only, so that the uplink cannot be shared by `{policy}` \
                 with `enforce = \"kernel\"`; share it by `strict`, use `enforce = \"server\"`, or leave out the uplink's share"
            ),
            Self::TooManyClasses(count) => write!(
                f,
                "the kernel has bands for {CLASSES_MAX} classes in strict order, and there are {count}; use `enforce = \
                 \"server\"`, or leave out the uplink's share"
            ),
            Self::KeptOfLine => f.write_str(
                "no part of `uplink.line` can be kept for a class: a gateway could only keep a part of its own part; share the uplink \
                 by `weighted` or `strict`, or leave out the reserves of classes",
            ),
            Self::Share(error) => write!(f, "the uplink cannot be shared between the classes so: {error}"),
        }
    }
}

impl std::error::Error for UplinkError {}

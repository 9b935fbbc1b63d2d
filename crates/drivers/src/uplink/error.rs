//! Why the uplink cannot be driven as configured.

use std::fmt;

use scheduler::{Order, share::Policy, uplink::ShareError};

/// Why the uplink cannot be driven as configured. The operator can repair each of these.
#[derive(Debug)]
pub enum UplinkError {
    /// `enforce = "kernel"`, but no device has the priority bands.
    NoBands {
        /// The configured device, if any.
        device: Option<String>,
        /// Why the look-up failed, if it failed.
        cause: Option<String>,
    },
    /// `enforce = "kernel"`, but the process may not choose a band.
    NoPrivilege,
    /// `enforce = "kernel"` with an order that has no bands.
    NotBandable(Order),
    /// `enforce = "kernel"` with a share between classes, which bands do not have.
    ShareNotBandable(Policy),
    /// The share between classes contradicts itself.
    Share(ShareError),
}

impl fmt::Display for UplinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBands { device, cause } => {
                let on = device.as_deref().map(|device| format!(" on {device}")).unwrap_or_default();
                write!(f, "`enforce = \"kernel\"` needs priority bands, and there are none{on}")?;
                if let Some(cause) = cause {
                    write!(f, " ({cause})")?;
                }
                let device = device.as_deref().unwrap_or("DEV");
                write!(f, "; set them up once, as root: serpent uplink install {device} --rate RATE")
            }
            Self::NoPrivilege => f.write_str(
                "`enforce = \"kernel\"` needs the capability CAP_NET_ADMIN to choose a band; give it to the service \
                 (systemd: AmbientCapabilities=CAP_NET_ADMIN), or use `enforce = \"server\"`, which needs no privilege",
            ),
            Self::NotBandable(order) => write!(
                f,
                "the order `{order}` cannot be put into priority bands; use srpt with `enforce = \"kernel\"`, or \
                 `enforce = \"server\"`"
            ),
            Self::ShareNotBandable(policy) => write!(
                f,
                "priority bands know no classes, so that the uplink cannot be shared by `{policy}` with \
                 `enforce = \"kernel\"`; use `enforce = \"server\"`, or leave out the uplink's share"
            ),
            Self::Share(error) => write!(f, "the uplink cannot be shared between the classes so: {error}"),
        }
    }
}

impl std::error::Error for UplinkError {}

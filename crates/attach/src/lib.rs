#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod attach;
mod connections;
mod earlier;
mod error;
mod maps;
mod netlink;
mod options;
mod pins;
mod plan;
mod program;
mod relearn;
mod show;
mod sizes;
mod teller;
mod told;
mod verdict;

pub use attach::{Attached, Detached, How, attach, commands, detach};
pub use error::AttachError;
pub use options::{AttachOptions, Others, TrafficClass};
pub use relearn::{Relearned, relearn};
pub use show::{BandShown, RankShown, Shown, show};
pub use teller::{TellError, Teller};
pub use told::{Measure, Told};
pub use verdict::{Observed, Verdict};

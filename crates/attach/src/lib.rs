#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod attach;
mod connections;
mod earlier;
mod error;
mod limit;
mod maps;
mod netlink;
mod options;
mod pins;
mod plan;
mod program;
mod relearn;
mod response_rank;
mod show;
mod sizes;
mod teller;
mod verdict;

pub use attach::{Attached, Detached, How, attach, commands, detach};
pub use error::AttachError;
pub use limit::{Limit, device_towards, limit};
pub use options::{AttachOptions, Others, TrafficClass};
pub use relearn::{Relearned, relearn};
pub use response_rank::{Measure, ResponseRank};
pub use show::{BandShown, RankShown, Shown, show};
pub use teller::{TellError, Teller};
pub use verdict::{Observed, Verdict};

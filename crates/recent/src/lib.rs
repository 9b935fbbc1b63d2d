#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod by_size;
pub mod changes;
mod history;
mod last_sent;
mod slowest;

pub use self::{
    by_size::{BySize, SIZE_NAMES, SizeTotal},
    history::{ClassPoint, ClassReading, History, Point, Reading, ResourcePoint},
    last_sent::{Comparison, LastSent, OrderTimes, Orders, SentResponse, TimesByOrder},
    slowest::{Slow, Slowest},
};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod at_once;
mod bucket;
mod config;
mod limiter;
mod who;

pub use self::{
    at_once::{AtOnce, Permit},
    config::{Limit, LimitBy, Rate},
    limiter::{Limiter, Refused},
    who::Who,
};

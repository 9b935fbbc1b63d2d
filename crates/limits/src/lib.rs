#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod allowance;
mod at_once;
mod bucket;
mod config;
mod limiter;
mod who;

pub use self::{
    allowance::{Allowance, Share},
    at_once::{AtOnce, HEARD_FOR, Permit},
    config::{ByteRate, Limit, LimitBy, Rate},
    limiter::{Granted, Limiter, Refused},
    who::Who,
};

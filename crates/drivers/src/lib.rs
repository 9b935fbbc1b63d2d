#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod admission;
mod alarm;
mod config;
mod lease;
pub mod uplink;
mod wakers;

pub use self::config::{
    Adjustment, AdmissionConfig, Classes, Cutoffs, Enforce, KeepRate, NamedClass, ProbeConfig, ResourceConfig,
    UplinkConfig, UplinkRate,
};
pub use self::lease::{CellNames, LeaseAsk};

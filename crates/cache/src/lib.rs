#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod directives;
mod disk;
mod fetch;
mod file_format;
mod filling;
mod gdsf;
mod purge;
mod shared;
mod store;
mod stored;
mod vary;

pub use self::{
    fetch::{Fetch, Follow, Turn, Writer},
    filling::Reader,
    gdsf::{Gdsf, Rank},
    purge::{Purge, What, key},
    shared::{StoreConfig, StoreStats},
    store::{Found, FoundBody, Store},
    stored::{Asking, Freshness, Received, Rules, Stored, invalidates, remove_conditions},
    vary::Vary,
};

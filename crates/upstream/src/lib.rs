#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod balance;
mod body;
mod checks;
mod choice;
mod config;
mod connect;
mod ejection;
mod error;
mod exchange;
mod group;
mod head;
mod hedged;
mod outgoing;
mod outliers;
mod pool;
mod pools;
pub mod probe;
mod request;
mod send;
mod server;
mod slowest;
mod sticky;
#[cfg(test)]
mod tests;
mod upgraded;
mod upload;
mod upstreams;
mod watch;
mod websocket;
mod wire;

#[cfg(fuzzing)]
pub use self::wire::fuzz;
pub use self::{
    body::UpstreamBody,
    config::{
        ActiveChecks, Balance, CertificateFiles, HashKey, Hedge, OutlierChecks, PassiveChecks, ProxyVersion,
        StickyConfig, UpstreamAddress, UpstreamConfig, UpstreamServer,
    },
    error::{Cause, Failure, Unavailable, UpstreamError, UpstreamSetupError, Wait},
    group::NameStats,
    hedged::SecondSlot,
    pools::Pools,
    request::{Ask, Outbound, Times},
    send::{Answer, Passed, PreparedRequest},
    server::{Health, ServerChange, ServerMode},
    upgraded::Upgraded,
    upstreams::{ServerStats, UpstreamStats, Upstreams},
    wire::Interim,
};
pub use heads::ClientAddress;
pub use proxy_protocol::Ends;

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod connection;
mod forwarded;
mod join;
mod prepare;
mod rules;
mod via;

pub use self::{
    connection::remove_connection_fields,
    forwarded::{ClientAddress, ClientFields, ForwardedField, remove_client_fields, tells_of_client},
    join::join_cookies,
    prepare::{Kept, is_hop_by_hop, prepare_request, prepare_response, prepare_trailers},
    rules::HeaderRules,
    via::{passes, via},
};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod connection;
mod cookies;
mod cors;
mod early_hints;
mod expires;
mod forwarded;
mod grpc;
mod join;
mod media_type;
mod prepare;
mod priority;
mod rules;
mod via;

pub use self::{
    connection::remove_connection_fields,
    cookies::cookies,
    cors::{Cors, OriginPattern, Origins, append_vary},
    early_hints::{EarlyHints, Page},
    expires::{Expires, Freshness},
    forwarded::{ClientAddress, ClientFields, ForwardedField, remove_client_fields, tells_of_client},
    grpc::{GrpcStatus, grpc_timeout, has_grpc_type, is_grpc, set_grpc_timeout},
    join::join_cookies,
    media_type::TypePattern,
    prepare::{Kept, is_hop_by_hop, prepare_request, prepare_response, prepare_trailers},
    priority::PriorityField,
    rules::HeaderRules,
    via::{passes, via},
};

//! Traces of requests: the context that servers pass on to each other (W3C Trace Context), and spans that are sent to a
//! collector (OTLP over HTTP).
//!
//! [`Traces::begin`] decides whether a request is sampled, [`Context::pass_on`] tells the next server, and
//! [`Traces::record`] puts the spans of a request into a bounded queue. [`Traces::drive`] sends them, away from the
//! data path. Spans that the queue has no room for are dropped and counted ([`Counts`]).

#![forbid(unsafe_code)]

mod client;
mod config;
mod context;
mod exporter;
mod otlp;
mod queue;
mod span;

pub use self::{
    config::{BadEndpoint, Endpoint, Parents, TracesConfig},
    context::{Context, SpanId, TraceId},
    exporter::{Counts, OpenError, Traces},
    span::{Kind, Span, Trace, Value},
};

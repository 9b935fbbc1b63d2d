//! What the server's uplink writes at level `trace`: every decision.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

/// A line of the log. A job is its number in the driver, which is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub what: String,
    pub at_ns: u64,
    pub job: usize,
    pub bytes: u64,
    pub reason: String,
}

/// The lines written by this thread since [`Log::start`].
#[derive(Clone, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Log {
    /// Writes down what this thread does until the guard is dropped.
    pub fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = tracing_subscriber::registry().with(log.clone()).set_default();
        (log, guard)
    }

    /// What was written since this was last asked.
    pub fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == "serpent_server::uplink" && *metadata.level() == Level::TRACE {
            let mut line = Line::default();
            event.record(&mut line);
            self.lines.lock().unwrap().push(line);
        }
    }
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "at_ns" => self.at_ns = value,
            "job" => self.job = value as usize,
            "bytes" => self.bytes = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.what = format!("{value:?}"),
            "reason" => self.reason = format!("{value:?}"),
            _ => {}
        }
    }
}

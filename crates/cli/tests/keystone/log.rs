//! The log of the server's uplink at level `trace`, which has every decision.
//!
//! One subscriber for the whole process keeps the lines of each thread apart. Subscribers for single threads lose lines:
//! `tracing` remembers for each call site whether its lines are wanted. While it knows only one subscriber, it asks the
//! first thread alone, so a test without a log could say no for all others.

use std::{cell::RefCell, fmt, sync::Once};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

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
pub struct Log(());

impl Log {
    /// Writes down what each thread does. To be called before anything is done with an uplink, by each test.
    pub fn start() -> Self {
        static STARTED: Once = Once::new();
        STARTED
            .call_once(|| tracing_subscriber::registry().with(Lines).try_init().expect("the process has no other log"));
        LINES.take();
        Self(())
    }

    /// Takes the lines written since the last call.
    pub fn take(&self) -> Vec<Line> {
        LINES.take()
    }
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == "serpent_drivers::uplink::driver" && *metadata.level() == Level::TRACE {
            let mut line = Line::default();
            event.record(&mut line);
            LINES.with_borrow_mut(|lines| lines.push(line));
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

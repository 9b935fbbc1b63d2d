//! A message as a JSON object. Text from a client is escaped, so that it ends neither a line nor a field.

use std::{error::Error, fmt, time::SystemTime};

use serde_json::{Map, Value, json};
use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};
use tracing::{
    Event,
    field::{Field, Visit},
};

/// As in the access log.
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// A message with its line end. `left_out`: how many like it were not written.
pub fn line(event: &Event<'_>, time: SystemTime, left_out: u64) -> String {
    let metadata = event.metadata();
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut line = json!({
        "time": OffsetDateTime::from(time).format(TIME).unwrap_or_default(),
        "level": metadata.level().as_str().to_ascii_lowercase(),
        "target": metadata.target(),
        "message": fields.message,
        "fields": fields.others,
    });
    if left_out > 0 {
        line["left_out"] = left_out.into();
    }
    format!("{line}\n")
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A message is a text with its values put in.
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use tracing::Subscriber;
    use tracing_subscriber::{
        Layer,
        layer::{Context, SubscriberExt as _},
    };

    use super::*;

    struct Lines(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_312_000_250);
            let mut lines = self.0.lock().unwrap();
            let left_out = lines.len() as u64;
            lines.push(line(event, time, left_out));
        }
    }

    #[test]
    fn a_message_is_one_object_in_one_line_whatever_a_client_has_sent() {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Lines(lines.clone())), || {
            let error = std::io::Error::other("broken\nPRIORITY=0");
            let path = "/\"}\n{\u{1b}";
            tracing::warn!(path, bytes = 7_u64, least = -1_i64, share = 0.5, whole = true, %error, "it {}", "failed");
            tracing::error!(target: "other", "again");
        });
        let lines = lines.lock().unwrap();
        for line in &*lines {
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.chars().all(|c| c == '\n' || !c.is_control()), "{line:?}");
        }
        let read = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let fields = json!({
            "path": "/\"}\n{\u{1b}", "bytes": 7, "least": -1, "share": 0.5, "whole": true, "error": "broken\nPRIORITY=0",
        });
        let first = json!({
            "time": "2026-01-02T00:00:00.250Z", "level": "warn", "target": module_path!(), "message": "it failed",
            "fields": fields,
        });
        assert_eq!(read(&lines[0]), first);
        let second = json!({
            "time": "2026-01-02T00:00:00.250Z", "level": "error", "target": "other", "message": "again", "fields": {},
            "left_out": 1,
        });
        assert_eq!(read(&lines[1]), second);
    }
}

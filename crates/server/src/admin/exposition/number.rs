//! A number as a metric.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeMetric as _, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// Writes a number as a counter or as a gauge.
pub(super) fn encode_number(kind: MetricType, number: u64, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match kind {
        MetricType::Counter => ConstCounter::new(number).encode(encoder),
        _ => ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX)).encode(encoder),
    }
}

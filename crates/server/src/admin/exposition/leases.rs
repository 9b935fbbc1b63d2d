//! The leases of one of several gateways.

use std::fmt;

use prometheus_client::{encoding::DescriptorEncoder, metrics::MetricType};

use super::number::encode_number;
use crate::{admission::LeaseStats, uplink::LineStats};

/// Encodes the metrics of the leases of this gateway: its slots, and its part of a line.
pub(super) fn encode(
    slots: Option<&LeaseStats>,
    line: Option<LineStats>,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    if let Some(slots) = slots {
        encode_slots(slots, encoder)?;
    }
    line.map_or(Ok(()), |line| encode_line(line, encoder))
}

/// The part of a line that several gateways send through.
fn encode_line(line: LineStats, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let numbers = [
        ("line_rate_bits_per_second", "The rate of all gateways of the line together", line.whole_bits_per_second),
        ("line_gateways", "Gateways that send through the line, as far as it is known", line.gateways.into()),
        ("line_in_force", "Whether the gateway's part is leased, and not its equal part: 1 or 0", line.leased.into()),
    ];
    for (name, help, number) in numbers {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        encode_number(MetricType::Gauge, number, family)?;
    }
    Ok(())
}

/// The slots of this gateway.
fn encode_slots(leases: &LeaseStats, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let numbers = [
        ("lease_gateways", "Gateways of the site, as far as it is known", leases.gateways),
        ("lease_in_force", "Whether its slots are leased, and not its equal part: 1 or 0", leases.leased.into()),
        ("lease_leads", "Whether the gateway adjusts the windows of the site: 1 or 0", leases.leads.into()),
    ];
    for (name, help, number) in numbers {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        encode_number(MetricType::Gauge, number.into(), family)?;
    }
    let of_cells = [("lease_slots", "Slots that the gateway has"), ("lease_window", "Slots of all gateways together")];
    for (at, (name, help)) in of_cells.into_iter().enumerate() {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (of, slots, window) in &leases.cells {
            let number = [*slots, *window][at];
            encode_number(MetricType::Gauge, number.into(), family.encode_family(&[("of", &**of)])?)?;
        }
    }
    Ok(())
}

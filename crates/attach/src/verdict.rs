//! Where the queue is: on this device, or somewhere else. Only where packets wait can they be put in order.
//!
//! The device is looked at for a quarter of a second. If responses wait on it, the queue is here. If they do not, although
//! connections have data to send, then something else holds the data back. Round trips that are much longer than the
//! shortest one to the same client tell a queue behind the device from mere distance.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    connections::{self, Connection},
    netlink::Netlink,
    plan::{BANDS, LEAF_MAJOR, ROOT, Subject},
};

/// Looks at the device, and the time between them.
const LOOKS: u32 = 25;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Looks at the connections: each is a walk over all sockets.
const CONNECTION_LOOKS: u32 = 5;
/// Looks after which a device and connections without anything to send are left alone.
const IDLE_LOOKS: u32 = 5;
/// The share of looks with waiting responses from which on the queue is here. Behind a rate that is too high, packets wait
/// here too, but only for the moments in which a burst passes.
const HERE_SHARE: f64 = 0.25;

/// Where the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Responses wait on this device.
    QueueIsHere,
    /// Connections have data to send, nothing waits here, and round trips have become long: a queue stands elsewhere.
    QueueIsElsewhere,
    /// Connections have data to send, nothing waits here, and round trips are no longer than usual.
    HeldBack,
    /// No response waits for anything.
    NoQueue,
    /// No response has been seen since the device was attached.
    NoTraffic,
}

/// Measurements of the device and the servers' connections over a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// Length of the moment.
    pub over_ms: u64,
    /// How often the device was looked at.
    pub looks: u32,
    /// Looks at which responses waited on it.
    pub looks_with_waiting: u32,
    /// The rate at which packets left.
    pub sent_bits_per_second: u64,
    /// Connections with data that TCP does not send yet.
    pub connections_with_unsent_data: u32,
    /// Of them, those whose round trips take much longer than the shortest to the same client.
    pub connections_with_long_round_trips: u32,
    /// The median round trip of connections with unsent data, in microseconds.
    pub round_trip_us: Option<u32>,
    /// The median of the shortest round trips to their clients, in microseconds.
    pub shortest_round_trip_us: Option<u32>,
}

/// A round trip is long if it takes a quarter and this more than the shortest one: acknowledgements and processors have
/// delays of their own.
const LONGER_BY_US: u32 = 5_000;

/// The state of the device at one look.
struct Look {
    sent_bytes: u64,
    waits: bool,
}

impl Observed {
    /// Watches a device for a moment. The moment is shorter if nothing is under way.
    pub(crate) fn watch(netlink: &Netlink, device: i32, ports: &[u16]) -> io::Result<Self> {
        let start = Instant::now();
        let first = look(netlink, device)?;
        let mut observed = Self { looks: 1, looks_with_waiting: first.waits.into(), ..Self::default() };
        let mut last_bytes = first.sent_bytes;
        let mut seen: Vec<Vec<Connection>> = Vec::new();
        while observed.looks < LOOKS {
            if observed.looks % (LOOKS / CONNECTION_LOOKS) == 1 {
                seen.push(connections::busy(ports)?);
            }
            let has_connections = seen.iter().any(|look| !look.is_empty());
            let is_idle = observed.looks_with_waiting == 0 && !has_connections && last_bytes == first.sent_bytes;
            if is_idle && observed.looks >= IDLE_LOOKS {
                break;
            }
            thread::sleep(LOOK_EVERY);
            let look = look(netlink, device)?;
            observed.looks += 1;
            observed.looks_with_waiting += u32::from(look.waits);
            last_bytes = look.sent_bytes;
        }
        let over = start.elapsed();
        observed.over_ms = over.as_millis() as u64;
        let bits = 8.0 * last_bytes.saturating_sub(first.sent_bytes) as f64;
        observed.sent_bits_per_second = (bits / over.as_secs_f64()).round() as u64;
        observed.count(&seen);
        Ok(observed)
    }

    /// Counts the connections at the look at which most of them had unsent data.
    fn count(&mut self, looks: &[Vec<Connection>]) {
        let mut shortest: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for connection in looks.iter().flatten() {
            let shortest = shortest.entry(connection.peer).or_insert(u32::MAX);
            *shortest = (*shortest).min(connection.shortest_round_trip_us);
        }
        let unsent = |look: &[Connection]| look.iter().filter(|connection| connection.unsent_bytes > 0).count();
        let Some(most) = looks.iter().max_by_key(|look| unsent(look)) else { return };
        let with_unsent = most.iter().filter(|connection| connection.unsent_bytes > 0);
        let round_trips: Vec<(u32, u32)> =
            with_unsent.map(|connection| (connection.round_trip_us, shortest[&connection.peer])).collect();
        let are_long = round_trips.iter().filter(|&&(now, shortest)| now > shortest + shortest / 4 + LONGER_BY_US);
        self.connections_with_long_round_trips = are_long.count() as u32;
        self.connections_with_unsent_data = round_trips.len() as u32;
        self.round_trip_us = median(round_trips.iter().map(|pair| pair.0));
        self.shortest_round_trip_us = median(round_trips.iter().map(|pair| pair.1));
    }

    /// The verdict on a device that has seen so many responses.
    pub(crate) fn verdict(&self, responses: u64) -> Verdict {
        if responses == 0 {
            Verdict::NoTraffic
        } else if f64::from(self.looks_with_waiting) >= HERE_SHARE * f64::from(self.looks) {
            Verdict::QueueIsHere
        } else if self.connections_with_unsent_data == 0 {
            Verdict::NoQueue
        } else if 2 * self.connections_with_long_round_trips >= self.connections_with_unsent_data {
            Verdict::QueueIsElsewhere
        } else {
            Verdict::HeldBack
        }
    }
}

fn look(netlink: &Netlink, device: i32) -> io::Result<Look> {
    let mut look = Look { sent_bytes: 0, waits: false };
    for found in netlink.found(device, Subject::Qdisc, 0)? {
        if found.parent == ROOT {
            look.sent_bytes = found.sent_bytes;
        }
        // Band 0 is not for responses.
        let is_band = (1..BANDS).any(|band| found.handle == (LEAF_MAJOR + band + 1) << 16);
        look.waits |= is_band && found.waiting_packets > 0;
    }
    Ok(look)
}

fn median(values: impl Iterator<Item = u32>) -> Option<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

impl Verdict {
    /// The name, as in JSON and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueIsHere => "queue-is-here",
            Self::QueueIsElsewhere => "queue-is-elsewhere",
            Self::HeldBack => "held-back",
            Self::NoQueue => "no-queue",
            Self::NoTraffic => "no-traffic",
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::QueueIsHere, Self::QueueIsElsewhere, Self::HeldBack, Self::NoQueue, Self::NoTraffic];

    /// The meaning, and the remedy.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::QueueIsHere => {
                "The queue is here: responses wait on this device, and leave in the order of their ranks."
            }
            Self::QueueIsElsewhere => {
                "The queue is somewhere else: connections have data to send, nothing waits here, and round trips have become \
                 long. The rate is above that of a narrower link behind this device. Give a lower rate."
            }
            Self::HeldBack => {
                "Connections have data to send, but nothing waits here, and round trips are as short as ever. Distance, loss or \
                 the clients' own lines hold the data back. If it is one link for all clients, give a lower rate."
            }
            Self::NoQueue => {
                "No response waits at this moment. Ask while responses are slow. If it says so then, too, the delay is in the \
                 server, or its connections are in another network namespace and the rate is too high."
            }
            Self::NoTraffic => "No response was seen. Check the ports, and that responses leave by this device.",
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over_ms, looks, looks_with_waiting, .. } = self;
        write!(
            f,
            "in the last {over_ms} ms: {:.1} Mbit/s sent; responses waited here at {looks_with_waiting} of {looks} looks; {} \
             connections had unsent data",
            self.sent_bits_per_second as f64 / 1e6,
            self.connections_with_unsent_data
        )?;
        if let (Some(now), Some(shortest)) = (self.round_trip_us, self.shortest_round_trip_us) {
            let ms = |us: u32| f64::from(us) / 1e3;
            write!(f, ", with round trips of {:.1} ms (shortest {:.1} ms)", ms(now), ms(shortest))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(unsent_bytes: u32, round_trip_us: u32, shortest_round_trip_us: u32) -> Connection {
        Connection { peer: "192.0.2.1".parse().unwrap(), unsent_bytes, round_trip_us, shortest_round_trip_us }
    }

    fn verdict(looks_with_waiting: u32, connections: &[Connection]) -> Verdict {
        let mut observed = Observed { looks: 24, looks_with_waiting, ..Observed::default() };
        observed.count(&[connections.to_vec(), Vec::new()]);
        observed.verdict(1)
    }

    #[test]
    fn a_queue_is_here_if_responses_wait_here_for_a_good_part_of_the_time() {
        let slow = connection(1, 90_000, 1_000);
        assert_eq!(verdict(6, &[slow]), Verdict::QueueIsHere);
        assert_eq!(verdict(5, &[slow]), Verdict::QueueIsElsewhere, "a burst waits everywhere");
    }

    #[test]
    fn a_long_way_is_not_a_queue() {
        assert_eq!(verdict(0, &[connection(1, 110_000, 100_000)]), Verdict::HeldBack);
        assert_eq!(verdict(0, &[connection(1, 160_000, 100_000)]), Verdict::QueueIsElsewhere);
        assert_eq!(verdict(0, &[connection(1, 5_900, 1_000)]), Verdict::HeldBack, "delays of acknowledgements");
        // The connection began when the queue was there already; another one to the same client knows better.
        assert_eq!(
            verdict(0, &[connection(1, 90_000, 80_000), connection(0, 90_000, 1_000)]),
            Verdict::QueueIsElsewhere
        );
    }

    #[test]
    fn connections_without_unsent_data_say_nothing() {
        assert_eq!(verdict(0, &[connection(0, 90_000, 1_000)]), Verdict::NoQueue);
        assert_eq!(verdict(0, &[]), Verdict::NoQueue);
        assert_eq!(Observed::default().verdict(0), Verdict::NoTraffic);
    }

    #[test]
    fn a_verdict_has_one_name() {
        for verdict in Verdict::ALL {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
        }
    }
}

//! Stations of a site, and the requests that visit them.

use std::collections::{BTreeMap, BTreeSet};

use super::error::ScenarioError;
use crate::Ticket;

/// A resource of the site that all present requests share equally (processor sharing).
///
/// With `n` requests present it does [`Station::capacity`] seconds of work a second:
///
/// ```text
/// c(n) = min(n, servers) / (1 + thrash * max(0, n - knee))
/// ```
///
/// Each request gets c(n) / n of it, at most one server's worth. Up to the knee that is an ordinary station
/// of `servers` equal servers. Beyond it every further request costs all others the same amount of time, as
/// when memory becomes short, or requests compete for locks and caches. Throughput then falls without limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Number of requests that do not slow one another down. At least 1.
    pub servers: u32,
    /// Number of requests above which each further one costs capacity.
    pub knee: u32,
    /// The cost of each further one; 0 for none.
    pub thrash: f64,
}

impl Station {
    /// One server that never thrashes.
    pub const SINGLE: Self = Self { servers: 1, knee: u32::MAX, thrash: 0.0 };

    /// Seconds of work done a second with so many requests present.
    pub fn capacity(&self, present: usize) -> f64 {
        let busy = present.min(self.servers as usize) as f64;
        busy / (1.0 + self.thrash * present.saturating_sub(self.knee as usize) as f64)
    }

    pub(super) fn check(&self, number: usize) -> Result<(), ScenarioError> {
        let usable = self.servers > 0 && self.thrash.is_finite() && self.thrash >= 0.0;
        if usable { Ok(()) } else { Err(ScenarioError::Station(number)) }
    }
}

/// How much work a station does, by the number of requests present.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// As for [`Station`]: servers that slow one another down beyond a knee. A processor whose memory becomes
    /// short.
    Knee(Station),
    /// A disk. Up to the knee a larger choice of requests increases the work, up to `1 + gain`. Beyond it
    /// requests displace one another in caches and read-ahead; with very many, the fraction `floor` remains:
    ///
    /// ```text
    /// c(n) = 1 + gain * (1 - 1/n)                        for n up to the knee
    /// c(n) = c(knee) * (floor + (1 - floor) * knee / n)  beyond it
    /// ```
    Seeks {
        /// The gain from the choice among many.
        gain: f64,
        /// The number of requests with the most work. At least 1.
        knee: u32,
        /// The fraction that remains with very many.
        floor: f64,
    },
    /// A database with locks: the universal scalability law (Gunther),
    ///
    /// ```text
    /// c(n) = n / (1 + wait * (n - 1) + conflict * n * (n - 1))
    /// ```
    ///
    /// which is largest at n = sqrt((1 - wait) / conflict).
    Locks {
        /// Fraction of the work that only one request can do at a time.
        wait: f64,
        /// The cost of each pair of requests.
        conflict: f64,
    },
}

impl Curve {
    /// Seconds of work done per second with `present` requests.
    pub fn capacity(&self, present: usize) -> f64 {
        let n = present as f64;
        match *self {
            _ if present == 0 => 0.0,
            Self::Knee(station) => station.capacity(present),
            Self::Seeks { gain, knee, floor } => {
                let most = n.min(f64::from(knee));
                (1.0 + gain * (1.0 - 1.0 / most)) * (floor + (1.0 - floor) * most / n)
            }
            Self::Locks { wait, conflict } => n / (1.0 + wait * (n - 1.0) + conflict * n * (n - 1.0)),
        }
    }

    /// The number of requests, up to 1,000, with the most work; the smallest if there are several.
    pub fn best(&self) -> usize {
        (1..=1000).fold(1, |best, n| if self.capacity(n) > self.capacity(best) * (1.0 + 1e-9) { n } else { best })
    }

    pub(super) fn check(&self, number: usize) -> Result<(), ScenarioError> {
        let usable = match *self {
            Self::Knee(station) => return station.check(number),
            Self::Seeks { gain, knee, floor } => {
                gain.is_finite() && gain >= 0.0 && knee > 0 && floor > 0.0 && floor <= 1.0
            }
            Self::Locks { wait, conflict } => [wait, conflict].iter().all(|part| (0.0..=1.0).contains(part)),
        };
        if usable { Ok(()) } else { Err(ScenarioError::Station(number)) }
    }
}

/// Work that a request needs at a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visit {
    /// Number of the station.
    pub station: usize,
    /// Nanoseconds of one server.
    pub work_ns: f64,
}

/// The stations and their requests. Requests visit stations one after the other, each in its own order.
///
/// A state machine like [`crate::Model`]: times passed in never go back. Before each event at `now_ns`, the
/// caller calls [`Site::poll_end`] until it returns `None`.
///
/// ```
/// use serpent_simulator::{
///     Ticket,
///     site::{Site, Station, Visit},
/// };
///
/// let mut site = Site::new(&[Station::SINGLE])?;
/// let work = |work_ns| vec![Visit { station: 0, work_ns }];
/// site.handle_started(0, Ticket(0), work(10.0));
/// site.handle_started(0, Ticket(1), work(30.0));
/// // Both get half of the station: the first is done when each has had 10 ns.
/// assert_eq!(site.poll_timeout(), Some(20));
/// assert_eq!(site.poll_end(20), Some((Ticket(0), 20)));
/// // The other has the station for itself then.
/// assert_eq!(site.poll_end(40), Some((Ticket(1), 40)));
/// # Ok::<(), serpent_simulator::site::ScenarioError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Site {
    stations: Vec<Sharing>,
    journeys: BTreeMap<Ticket, Journey>,
    /// Requests without work.
    done: Vec<(Ticket, u64)>,
}

#[derive(Clone, Debug)]
struct Journey {
    /// The remaining visits, the next one last.
    visits: Vec<Visit>,
    /// The current station, and its key there.
    at: usize,
    key: Key,
}

/// A request at a station: the station's count of attained service when it will be done, and a number that
/// separates equal ones. Such times are never negative, so their bits have the order of their values.
type Key = (u64, u64);

/// One station under processor sharing. All present requests have had the same service since their arrival,
/// so counting the service of one is enough.
#[derive(Clone, Debug)]
struct Sharing {
    curve: Curve,
    /// Factor of the speed; 0 if it stands still.
    pace: f64,
    present: BTreeSet<(Key, Ticket)>,
    attained_ns: f64,
    now_ns: u64,
    came: u64,
    present_ns: f64,
    work_ns: f64,
}

impl Site {
    /// Idle stations.
    ///
    /// # Errors
    /// A station without a server, or whose `thrash` is negative or not a number.
    pub fn new(stations: &[Station]) -> Result<Self, ScenarioError> {
        for (number, station) in stations.iter().enumerate() {
            station.check(number)?;
        }
        let stations = stations.iter().map(|&station| Sharing::new(station)).collect();
        Ok(Self { stations, journeys: BTreeMap::new(), done: Vec::new() })
    }

    /// A request enters. A visit to a station that does not exist, or with no work to do, takes no time.
    pub fn handle_started(&mut self, now_ns: u64, ticket: Ticket, mut visits: Vec<Visit>) {
        visits.retain(|visit| visit.station < self.stations.len() && visit.work_ns > 0.0 && visit.work_ns.is_finite());
        visits.reverse();
        self.next_visit(now_ns, ticket, visits);
    }

    /// A request was given up.
    pub fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        if let Some(journey) = self.journeys.remove(&ticket) {
            self.stations[journey.at].leave(now_ns, journey.key, ticket);
        }
        self.done.retain(|(done, _)| *done != ticket);
    }

    /// Time of the next internal event, in nanoseconds. It need not be an end.
    pub fn poll_timeout(&self) -> Option<u64> {
        let done_ns = self.done.first().map(|&(_, at_ns)| at_ns);
        self.stations.iter().filter_map(Sharing::next_end_ns).chain(done_ns).min()
    }

    /// Advances to `now_ns` at most, and stops at the first request that has finished all visits: returns it
    /// and its time.
    pub fn poll_end(&mut self, now_ns: u64) -> Option<(Ticket, u64)> {
        loop {
            if !self.done.is_empty() {
                return Some(self.done.remove(0));
            }
            let ends = self.stations.iter().enumerate().filter_map(|(i, it)| Some((it.next_end_ns()?, i)));
            let (end_ns, station) = ends.min().filter(|(end_ns, _)| *end_ns <= now_ns)?;
            let ticket = self.stations[station].take_first(end_ns)?;
            let journey = self.journeys.remove(&ticket)?;
            self.next_visit(end_ns, ticket, journey.visits);
        }
    }

    /// Number of requests at a station, with the time averages of that number and of the used capacity.
    pub fn station(&mut self, now_ns: u64, station: usize) -> Option<(usize, f64, f64)> {
        let it = self.stations.get_mut(station)?;
        it.advance(now_ns);
        let elapsed_ns = now_ns.max(1) as f64;
        Some((it.present.len(), it.present_ns / elapsed_ns, it.work_ns / elapsed_ns))
    }

    /// Changes a station's curve and pace. Ignored if the station does not exist.
    ///
    /// # Errors
    /// An invalid curve, or a pace that is negative or not a number.
    pub fn handle_curve(&mut self, now_ns: u64, station: usize, curve: Curve, pace: f64) -> Result<(), ScenarioError> {
        curve.check(station)?;
        if !(pace.is_finite() && pace >= 0.0) {
            return Err(ScenarioError::Station(station));
        }
        if let Some(it) = self.stations.get_mut(station) {
            it.advance(now_ns);
            (it.curve, it.pace) = (curve, pace);
        }
        Ok(())
    }

    fn next_visit(&mut self, now_ns: u64, ticket: Ticket, mut visits: Vec<Visit>) {
        let Some(Visit { station, work_ns }) = visits.pop() else {
            self.done.push((ticket, now_ns));
            return;
        };
        let key = self.stations[station].come(now_ns, ticket, work_ns);
        self.journeys.insert(ticket, Journey { visits, at: station, key });
    }
}

impl Sharing {
    fn new(station: Station) -> Self {
        let (present_ns, work_ns) = (0.0, 0.0);
        Self {
            curve: Curve::Knee(station),
            pace: 1.0,
            present: BTreeSet::new(),
            attained_ns: 0.0,
            now_ns: 0,
            came: 0,
            present_ns,
            work_ns,
        }
    }

    fn come(&mut self, now_ns: u64, ticket: Ticket, work_ns: f64) -> Key {
        self.advance(now_ns);
        if self.present.is_empty() {
            self.attained_ns = 0.0;
        }
        self.came += 1;
        let key = ((self.attained_ns + work_ns).to_bits(), self.came);
        self.present.insert((key, ticket));
        key
    }

    fn leave(&mut self, now_ns: u64, key: Key, ticket: Ticket) {
        self.advance(now_ns);
        self.present.remove(&(key, ticket));
    }

    fn take_first(&mut self, now_ns: u64) -> Option<Ticket> {
        self.advance(now_ns);
        self.present.pop_first().map(|(_, ticket)| ticket)
    }

    fn advance(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.now_ns) as f64;
        self.now_ns = self.now_ns.max(now_ns);
        let present = self.present.len();
        if present > 0 {
            let capacity = self.capacity();
            self.attained_ns += elapsed_ns * capacity / present as f64;
            self.present_ns += elapsed_ns * present as f64;
            self.work_ns += elapsed_ns * capacity;
        }
    }

    /// When the first present request is done, without arrivals or departures before; rounded up to the
    /// nanosecond.
    fn next_end_ns(&self) -> Option<u64> {
        let ((bits, _), _) = self.present.first()?;
        let left_ns = (f64::from_bits(*bits) - self.attained_ns).max(0.0);
        let capacity = self.capacity();
        if capacity <= 0.0 {
            return None;
        }
        Some(self.now_ns.saturating_add((left_ns * self.present.len() as f64 / capacity).ceil() as u64))
    }

    fn capacity(&self) -> f64 {
        self.pace * self.curve.capacity(self.present.len())
    }
}

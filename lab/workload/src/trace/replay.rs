//! Makes the requests of a run from a log.
//!
//! A log tells which responses were sent, not which requests to make. These decisions turn one into the
//! other:
//!
//! - **Replayed requests**: GET with a 2xx or 304 response, and records without method or status, which some
//!   logs leave out. Parts of files (206) and responses without a body (204, 205) are left out. Records left
//!   out are counted by reason.
//! - **Size of a file**: an aborted transfer is logged with the bytes sent, so an object has many sizes in a
//!   log. Whole transfers agree with each other and aborted ones do not, so the most frequent size is taken,
//!   and the larger of two that are equally frequent. Records outside the window that were read count too. An
//!   object that occurs only with 304 or 0 bytes has no size, and its requests are left out. A record that
//!   names no object requests an object identified by its size.
//! - **Times**: a log to the second shows many requests at once that did not arrive at once. Each gets a
//!   uniformly random time within its second (or other tick) by the seed. The order of the log is kept.
//! - **Load**: times are scaled as in "Implementation of SRPT Scheduling in Web Servers", section 4.2.3. One
//!   factor scales all gaps between requests, so that the requested bytes are the wanted share of the link's
//!   capacity.
//! - **Clients** are assigned to groups by the groups' shares, each client to one group for the whole run,
//!   because groups differ in where their clients are. A record whose class is the name of a group belongs to
//!   that group.

use std::{collections::HashMap, fmt, ops::ControlFlow};

use rand::{RngExt, SeedableRng, distr::weighted::WeightedIndex};
use rand_chacha::ChaCha12Rng;
use rand_distr::Distribution;

use super::{MAX_DISORDER_NS, Method, Name, Record};
use crate::{rate::Link, sequence::Request, wire::WireModel};

/// Collects the records that can be replayed. [`Collector::add`] takes every record, in the order of the log.
#[derive(Debug, Default)]
pub struct Collector {
    window_ns: Option<(u64, u64)>,
    groups: Vec<String>,
    /// Time of the first record. The window is relative to it.
    origin_ns: Option<u64>,
    tick_ns: u64,
    objects: Names,
    clients: Names,
    /// Number of times that each object was sent with each size.
    sizes: HashMap<(u32, u64), u32>,
    kept: Vec<Kept>,
    logged_bytes: u64,
    left_out: LeftOut,
    /// Number of records in a row that are too far behind the window to be mere disorder.
    beyond: u32,
}

/// The requests of a log, before they get the times of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    sizes_bytes: Vec<u64>,
    /// The requests by time, counted from the beginning of the window, or from the first request.
    kept: Vec<Kept>,
    clients: u32,
    span_ns: u64,
    tick_ns: u64,
    logged_bytes: u64,
    left_out: LeftOut,
}

/// The settings by which the requests of a log become those of a run.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The change of the logged times.
    pub pace: Pace,
    /// The link to which a load refers.
    pub link: &'a Link,
    /// Bytes that a request costs on the link.
    pub wire: WireModel,
    /// Nanoseconds over which requests are sent. With a load, the run takes as many requests of the log as
    /// make this load; otherwise it takes the requests before this time. All requests if not given.
    pub duration_ns: Option<u64>,
    /// Shares of the groups. If empty, there is one group.
    pub shares: &'a [f64],
    /// Seed of the times within a tick, and of the clients' groups.
    pub seed: u64,
}

/// The change of the times of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Times are kept.
    AsLogged,
    /// Times are scaled until the requested bytes are this share of the link's capacity over the run.
    Load(f64),
}

/// The requests of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The requests, by time.
    pub requests: Vec<Request>,
    /// Factor by which the times of the log were multiplied.
    pub factor: f64,
    /// Nanoseconds over which the requests are sent. It is less than the requested duration where the log is
    /// too short.
    pub span_ns: u64,
}

/// Records that are left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Before or after the window.
    pub outside: u64,
    /// Other methods than GET.
    pub method: u64,
    /// Answers other than 2xx and 304.
    pub status: u64,
    /// Parts of files: 206.
    pub part: u64,
    /// Responses that have no body: 204 and 205.
    pub no_body: u64,
    /// Requests of objects whose size the log never tells.
    pub no_size: u64,
}

/// A request that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    at_ns: u64,
    /// Number of the object while records come in, and of the file after that.
    object: u32,
    /// Number of the client; [`UNKNOWN`] if the log does not tell it.
    client: u32,
    /// The group that the class names.
    group: Option<u16>,
}

const UNKNOWN: u32 = u32::MAX;
/// After this many records in a row beyond the window, the window is over. One such record may be a slip of
/// the clock.
const SURELY_BEYOND: u32 = 1000;
/// Largest believable response, 1 TiB. A larger number is an error of the log and counts as no size.
const MAX_SIZE_BYTES: u64 = 1 << 40;

impl Collector {
    /// Makes a collector for a window, given in nanoseconds from the first record of the log; for the whole
    /// log if not given. A record whose class is the name of one of these groups belongs to it.
    pub fn new(window_ns: Option<(u64, u64)>, groups: Vec<String>) -> Self {
        Self { window_ns, groups, tick_ns: u64::MAX, ..Self::default() }
    }

    /// Takes a record. Breaks once the window is over and no more of its records can follow.
    pub fn add(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        let origin_ns = *self.origin_ns.get_or_insert(record.at_ns);
        self.tick_ns = self.tick_ns.min(record.tick_ns.max(1));
        if let Some((from_ns, until_ns)) = self.window_ns {
            let from_ns = origin_ns.saturating_add(from_ns);
            let until_ns = origin_ns.saturating_add(until_ns);
            if !(from_ns..until_ns).contains(&record.at_ns) {
                self.left_out.outside += 1;
                if LeftOut::default().reason(record).is_none() {
                    self.learn_size(record);
                }
                let far = record.at_ns >= until_ns.saturating_add(MAX_DISORDER_NS);
                self.beyond = if far { self.beyond + 1 } else { 0 };
                return if self.beyond < SURELY_BEYOND { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
            }
            self.beyond = 0;
        }
        match self.left_out.reason(record) {
            Some(reason) => *reason += 1,
            None => self.keep(record),
        }
        ControlFlow::Continue(())
    }

    fn keep(&mut self, record: &Record<'_>) {
        let Some(object) = self.learn_size(record) else {
            self.left_out.no_size += 1;
            return;
        };
        self.logged_bytes = self.logged_bytes.saturating_add(sent_bytes(record).unwrap_or(0));
        let client = record.client.as_ref().map_or(UNKNOWN, |client| self.clients.number(client));
        let class = record.class.as_deref();
        let group = class.and_then(|class| self.groups.iter().position(|group| group.as_bytes() == class));
        self.kept.push(Kept { at_ns: record.at_ns, object, client, group: group.map(|group| group as u16) });
    }

    /// Counts the size for its object, if both are known, and returns the object's number.
    fn learn_size(&mut self, record: &Record<'_>) -> Option<u32> {
        let sent_bytes = sent_bytes(record);
        let object = match &record.object {
            Some(name) => self.objects.number(name),
            None => self.objects.number_of_size(sent_bytes?),
        };
        if let Some(size) = sent_bytes {
            *self.sizes.entry((object, size)).or_default() += 1;
        }
        Some(object)
    }

    /// Returns the requests by time, each of a file with a size.
    pub fn finish(self) -> Collected {
        let Self {
            window_ns, origin_ns, tick_ns, objects, clients, sizes, mut kept, logged_bytes, mut left_out, ..
        } = self;
        let mut best: Vec<Option<(u32, u64)>> = vec![None; objects.len()];
        for ((object, size), count) in sizes {
            let best = &mut best[object as usize];
            *best = (*best).max(Some((count, size)));
        }
        let before = kept.len();
        kept.retain(|request| best[request.object as usize].is_some());
        left_out.no_size += (before - kept.len()) as u64;

        // Files are numbered in the order of their first requests.
        let mut sizes_bytes = Vec::new();
        let mut files: Vec<Option<u32>> = vec![None; best.len()];
        for request in &mut kept {
            let object = request.object as usize;
            request.object = *files[object].get_or_insert_with(|| {
                sizes_bytes.extend(best[object].map(|(_, size)| size));
                sizes_bytes.len() as u32 - 1
            });
        }
        kept.sort_by_key(|request| request.at_ns);
        let first_ns = kept.first().map_or(0, |request| request.at_ns);
        let window_ns = window_ns.zip(origin_ns).map(|((from, _), origin)| origin.saturating_add(from));
        let start_ns = window_ns.unwrap_or(first_ns);
        for request in &mut kept {
            request.at_ns -= start_ns;
        }
        let span_ns = kept.last().map_or(0, |last| last.at_ns.saturating_add(tick_ns));
        Collected { sizes_bytes, kept, clients: clients.len() as u32, span_ns, tick_ns, logged_bytes, left_out }
    }
}

impl Collected {
    /// Sizes of the files, by their number, in bytes.
    pub fn sizes_bytes(&self) -> &[u64] {
        &self.sizes_bytes
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.kept.len()
    }

    /// Number of clients that the log names.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// Time from the beginning of the window, or from the first request, to the last request, in nanoseconds
    /// of the log.
    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// The records that were left out.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Bytes of all requests if each is answered with its whole file.
    pub fn file_bytes(&self) -> u64 {
        self.kept.iter().map(|request| self.sizes_bytes[request.object as usize]).fold(0, u64::saturating_add)
    }

    /// Makes the requests of a run. The same plan gives the same requests.
    ///
    /// # Errors
    /// If there are no requests, or if the plan holds an impossible value.
    pub fn replay(&self, plan: &Plan<'_>) -> Result<Replayed, ReplayError> {
        match plan.pace {
            Pace::Load(load) if !positive(load) => return Err(ReplayError::Load(load)),
            _ => {}
        }
        if self.kept.is_empty() {
            return Err(ReplayError::Nothing(self.left_out));
        }
        let times_ns = self.spread(plan.seed);
        let (count, factor, span_ns) = match plan.pace {
            Pace::AsLogged => self.cut(&times_ns, plan.duration_ns),
            Pace::Load(load) => self.scaled(&times_ns, load, plan),
        };
        if count == 0 {
            return Err(ReplayError::TooShort);
        }
        let groups = self.groups(plan.shares, plan.seed)?;
        let requests = self.kept.iter().zip(&times_ns).zip(groups).take(count).map(|((kept, &at_ns), group)| Request {
            at_ns: scale(at_ns, factor),
            file: kept.object,
            size_bytes: self.sizes_bytes[kept.object as usize],
            group,
        });
        Ok(Replayed { requests: requests.collect(), factor, span_ns })
    }

    /// Gives each request a time within its tick.
    fn spread(&self, seed: u64) -> Vec<u64> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut times_ns = Vec::with_capacity(self.kept.len());
        for together in self.kept.chunk_by(|a, b| a.at_ns == b.at_ns) {
            let from = times_ns.len();
            times_ns.extend(together.iter().map(|request| {
                let within = rng.random::<f64>() * self.tick_ns as f64;
                request.at_ns.saturating_add(within as u64)
            }));
            times_ns[from..].sort_unstable();
        }
        // Times in a log may be finer than its tick tells: numbers in JSON are rounded.
        times_ns.sort_unstable();
        times_ns
    }

    /// Returns the number of requests before the duration ends, the factor 1, and the time over which they
    /// are sent.
    fn cut(&self, times_ns: &[u64], duration_ns: Option<u64>) -> (usize, f64, u64) {
        let duration_ns = duration_ns.unwrap_or(u64::MAX);
        let count = times_ns.partition_point(|&at_ns| at_ns < duration_ns);
        (count, 1.0, self.span_ns.min(duration_ns))
    }

    /// Returns the number of requests that make the load over the duration, the factor that spreads them over
    /// it, and the time over which they are sent.
    fn scaled(&self, times_ns: &[u64], load: f64, plan: &Plan<'_>) -> (usize, f64, u64) {
        let wanted =
            plan.duration_ns.map_or(f64::INFINITY, |duration_ns| load * plan.link.capacity_at(duration_ns as f64));
        let mut bytes = 0.0;
        let mut count = 0;
        for request in &self.kept {
            let next = bytes + plan.wire.bytes_for(self.sizes_bytes[request.object as usize]) as f64;
            // The request that crosses the wanted bytes is taken if that brings the load nearer.
            if next > wanted && next - wanted >= wanted - bytes {
                break;
            }
            (bytes, count) = (next, count + 1);
            if bytes >= wanted {
                break;
            }
        }
        let whole = count == self.kept.len() && bytes < wanted;
        // The logged span of these requests ends at the first request that is not among them.
        let logged_ns = times_ns.get(count).copied().unwrap_or(self.span_ns).max(1);
        let span_ns = match plan.duration_ns {
            Some(duration_ns) if !whole => duration_ns,
            _ => plan.link.when_capacity_is(bytes / load) as u64,
        };
        (count, span_ns as f64 / logged_ns as f64, span_ns)
    }

    /// Returns the group of each request.
    fn groups(&self, shares: &[f64], seed: u64) -> Result<Vec<u16>, ReplayError> {
        if shares.is_empty() {
            return Ok(vec![0; self.kept.len()]);
        }
        let law = WeightedIndex::new(shares).map_err(|_| ReplayError::Shares)?;
        let stream = |stream| {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng
        };
        let mut rng = stream(1);
        let by_client: Vec<u16> = (0..self.clients).map(|_| law.sample(&mut rng) as u16).collect();
        let mut unknown = stream(2);
        let group = |kept: &Kept| match kept.group {
            Some(group) => group,
            None if kept.client == UNKNOWN => law.sample(&mut unknown) as u16,
            None => by_client[kept.client as usize],
        };
        Ok(self.kept.iter().map(group).collect())
    }

    /// Remarks on the collected requests, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "{} requests of {} clients for {} files, over {:.0} s of the log",
            self.kept.len(),
            self.clients,
            self.sizes_bytes.len(),
            self.span_ns as f64 / 1e9
        )];
        notes.extend(self.left_out.notes());
        if self.file_bytes() != self.logged_bytes {
            notes.push(format!(
                "each answer is a whole file of the size logged most often for it, also where the log has 304 or an aborted transfer: {} bytes \
                 in all, where the log has {}",
                self.file_bytes(),
                self.logged_bytes
            ));
        }
        notes
    }
}

impl LeftOut {
    /// Returns the count that a record adds to, if it is not replayed.
    fn reason(&mut self, record: &Record<'_>) -> Option<&mut u64> {
        match (record.method, record.status) {
            (Some(method), _) if method != Method::Get => Some(&mut self.method),
            (_, Some(204 | 205)) => Some(&mut self.no_body),
            (_, Some(206)) => Some(&mut self.part),
            (_, None | Some(200..=299 | 304)) => None,
            _ => Some(&mut self.status),
        }
    }

    /// The counts, a sentence for each reason that occurred.
    pub fn notes(&self) -> Vec<String> {
        let Self { outside, method, status, part, no_body, no_size } = *self;
        [
            (outside, "they lie outside the window"),
            (method, "their method is not GET"),
            (status, "their answer was neither 2xx nor 304"),
            (part, "they asked for a part of a file (206)"),
            (no_body, "their answer has no body (204, 205)"),
            (no_size, "the log never says how large the object is"),
        ]
        .into_iter()
        .filter(|&(count, _)| count > 0)
        .map(|(count, why)| format!("records left out because {why}: {count}"))
        .collect()
    }
}

/// Returns the bytes of a response that tell the size of its object.
fn sent_bytes(record: &Record<'_>) -> Option<u64> {
    record.size_bytes.filter(|size| (1..=MAX_SIZE_BYTES).contains(size) && record.status != Some(304))
}

fn positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

fn scale(at_ns: u64, factor: f64) -> u64 {
    if factor == 1.0 { at_ns } else { (at_ns as f64 * factor) as u64 }
}

/// Numbers names in the order of their first use.
#[derive(Debug, Default)]
struct Names {
    by_text: HashMap<Box<[u8]>, u32>,
    by_number: HashMap<u64, u32>,
    by_size: HashMap<u64, u32>,
}

impl Names {
    fn len(&self) -> usize {
        self.by_text.len() + self.by_number.len() + self.by_size.len()
    }

    fn number(&mut self, name: &Name<'_>) -> u32 {
        let next = self.len() as u32;
        match name {
            Name::Number(number) => *self.by_number.entry(*number).or_insert(next),
            Name::Text(text) => match self.by_text.get(text.as_ref()) {
                Some(&known) => known,
                None => {
                    self.by_text.insert(text.as_ref().into(), next);
                    next
                }
            },
        }
    }

    fn number_of_size(&mut self, size: u64) -> u32 {
        let next = self.len() as u32;
        *self.by_size.entry(size).or_insert(next)
    }
}

/// The reason why a log cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayError {
    /// The log holds no request to replay.
    Nothing(LeftOut),
    /// This number is not a load.
    Load(f64),
    /// The run ends before the first request.
    TooShort,
    /// The shares of the groups are not valid shares.
    Shares,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(left_out) => {
                f.write_str("nothing in the log can be replayed")?;
                left_out.notes().iter().try_for_each(|note| write!(f, "; {note}"))
            }
            Self::Load(load) => write!(f, "a load of {load} cannot be offered: it must be above 0"),
            Self::TooShort => f.write_str(
                "the run is over before the first request of the log: let it last longer, or scale its times",
            ),
            Self::Shares => f.write_str("the shares of the groups must be numbers from 0 on, and not all of them 0"),
        }
    }
}

impl std::error::Error for ReplayError {}

#[cfg(test)]
mod tests;

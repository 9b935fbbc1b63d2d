//! A log as requests of a run.
//!
//! What a log tells is what happened, not what to ask for, and the way from one to the other takes decisions. These are ours:
//!
//! - **What is replayed**: GET with an answer of 2xx or 304, and records without method or status, which some logs leave out.
//!   Parts of files (206) and answers without a body (204, 205) are left out. What is left out is counted by its reason.
//! - **Size of a file**: transfers that were aborted are logged with what was sent, so an object has many sizes in a log. Whole
//!   transfers agree with each other and aborted ones do not: the size logged most often is taken, the larger of two that are
//!   equally frequent. Records outside the window count too, as far as they are read. An object that is asked for with 304 or
//!   0 bytes only has no size, and its requests are left out. A record that names no object asks for one that is known by its
//!   size.
//! - **Times**: a log to the second has many requests at once that did not come at once. Each is put somewhere within its
//!   second (or whatever the log counts in), evenly and by the seed, in the order of the log.
//! - **Load**: times are stretched as "Implementation of SRPT Scheduling in Web Servers", section 4.2.3, does: the gaps
//!   between requests are all scaled by one factor, so that the bytes asked for are the wanted share of what the link can carry.
//! - **Clients** are dealt out to groups by the groups' shares, each for good, as what separates groups is where clients are. A
//!   record whose class is the name of a group belongs to it.

use std::{collections::HashMap, fmt, ops::ControlFlow};

use rand::{RngExt, SeedableRng, distr::weighted::WeightedIndex};
use rand_chacha::ChaCha12Rng;
use rand_distr::Distribution;

use super::{MAX_DISORDER_NS, Method, Name, Record};
use crate::{rate::Link, sequence::Request, wire::WireModel};

/// Gathers the records that can be replayed. Give each to [`Collector::add`], in the order of the log.
#[derive(Debug, Default)]
pub struct Collector {
    window_ns: Option<(u64, u64)>,
    groups: Vec<String>,
    /// Time of the first record, from which the window counts.
    origin_ns: Option<u64>,
    tick_ns: u64,
    objects: Names,
    clients: Names,
    /// How often each object was sent with each size.
    sizes: HashMap<(u32, u64), u32>,
    kept: Vec<Kept>,
    logged_bytes: u64,
    left_out: LeftOut,
    /// Records in a row that lie too far behind the window for disorder.
    beyond: u32,
}

/// The requests of a log, before they have times of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    sizes_bytes: Vec<u64>,
    /// By time; the times are counted from the beginning of the window, or from the first request.
    kept: Vec<Kept>,
    clients: u32,
    span_ns: u64,
    tick_ns: u64,
    logged_bytes: u64,
    left_out: LeftOut,
}

/// How the requests of a log become those of a run.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What is done to the times.
    pub pace: Pace,
    /// The link that a load is a load of.
    pub link: &'a Link,
    /// What a request costs the link.
    pub wire: WireModel,
    /// Nanoseconds over which requests are sent. With a load, as many requests of the log as make this load; otherwise those
    /// before this time. All requests if not given.
    pub duration_ns: Option<u64>,
    /// Shares of the groups; one group if empty.
    pub shares: &'a [f64],
    /// Seed of the times within a tick, and of the groups.
    pub seed: u64,
}

/// What is done to the times of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// They are kept.
    AsLogged,
    /// They are scaled until the bytes asked for are this share of what the link can carry meanwhile.
    Load(f64),
}

/// The requests of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The requests, by time.
    pub requests: Vec<Request>,
    /// What the times of the log were multiplied by.
    pub factor: f64,
    /// Nanoseconds over which they are sent, by the load or by the log. Less than asked for where the log is too short.
    pub span_ns: u64,
}

/// Records left out, by the reason.
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
    /// Answers that have no body: 204 and 205.
    pub no_body: u64,
    /// The log never says how large the object is.
    pub no_size: u64,
}

/// A request that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    at_ns: u64,
    /// Number of the object while records come in, and of the file after that.
    object: u32,
    /// Number of the client; [`UNKNOWN`] if the log does not say.
    client: u32,
    /// The group that the class names.
    group: Option<u16>,
}

const UNKNOWN: u32 = u32::MAX;
/// So many records in a row behind the window are no slip of the clock: it is over.
const SURELY_BEYOND: u32 = 1000;
/// No answer is larger, 1 TiB: a larger number is an error of the log, and counts as none.
const MAX_SIZE_BYTES: u64 = 1 << 40;

impl Collector {
    /// Gathers what lies in the window, given in nanoseconds from the first record of the log; everything if not given. Classes
    /// that have the name of one of these groups belong to it.
    pub fn new(window_ns: Option<(u64, u64)>, groups: Vec<String>) -> Self {
        Self { window_ns, groups, tick_ns: u64::MAX, ..Self::default() }
    }

    /// Takes a record. Breaks where the window is over and nothing of it can follow.
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

    /// Counts the size for its object, if both are known, and gives the object's number.
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

    /// The requests, by time, each of a file with a size.
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

        // Files are numbered in the order in which the log asks for them.
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

    /// How many requests there are.
    pub fn requests(&self) -> usize {
        self.kept.len()
    }

    /// How many clients asked, as far as the log says.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// From the beginning of the window, or the first request, to the last request, in nanoseconds of the log.
    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// What was left out.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Bytes of all requests if each is answered with its whole file.
    pub fn file_bytes(&self) -> u64 {
        self.kept.iter().map(|request| self.sizes_bytes[request.object as usize]).fold(0, u64::saturating_add)
    }

    /// The requests of a run. The same plan gives the same requests.
    ///
    /// # Errors
    /// If there are none, or if the plan asks for what cannot be.
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

    /// The times, each put somewhere within its tick.
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
        // A log may not keep to its finest tick: JSON's numbers are rounded.
        times_ns.sort_unstable();
        times_ns
    }

    /// How many requests come before the time is over, the factor, and over which time they come.
    fn cut(&self, times_ns: &[u64], duration_ns: Option<u64>) -> (usize, f64, u64) {
        let duration_ns = duration_ns.unwrap_or(u64::MAX);
        let count = times_ns.partition_point(|&at_ns| at_ns < duration_ns);
        (count, 1.0, self.span_ns.min(duration_ns))
    }

    /// As many requests as make the load over the time that there is, and the factor that spreads them over it.
    fn scaled(&self, times_ns: &[u64], load: f64, plan: &Plan<'_>) -> (usize, f64, u64) {
        let wanted =
            plan.duration_ns.map_or(f64::INFINITY, |duration_ns| load * plan.link.capacity_at(duration_ns as f64));
        let mut bytes = 0.0;
        let mut count = 0;
        for request in &self.kept {
            let next = bytes + plan.wire.bytes_for(self.sizes_bytes[request.object as usize]) as f64;
            // The one that crosses is taken if that brings the load nearer.
            if next > wanted && next - wanted >= wanted - bytes {
                break;
            }
            (bytes, count) = (next, count + 1);
            if bytes >= wanted {
                break;
            }
        }
        let whole = count == self.kept.len() && bytes < wanted;
        // They last until the first that is not among them.
        let logged_ns = times_ns.get(count).copied().unwrap_or(self.span_ns).max(1);
        let span_ns = match plan.duration_ns {
            Some(duration_ns) if !whole => duration_ns,
            _ => plan.link.when_capacity_is(bytes / load) as u64,
        };
        (count, span_ns as f64 / logged_ns as f64, span_ns)
    }

    /// The group of each request.
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

    /// What a person should know, a sentence each.
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
    /// The count that a record adds to, if it is not replayed.
    fn reason(&mut self, record: &Record<'_>) -> Option<&mut u64> {
        match (record.method, record.status) {
            (Some(method), _) if method != Method::Get => Some(&mut self.method),
            (_, Some(204 | 205)) => Some(&mut self.no_body),
            (_, Some(206)) => Some(&mut self.part),
            (_, None | Some(200..=299 | 304)) => None,
            _ => Some(&mut self.status),
        }
    }

    /// How many there are, a sentence for each reason that has any.
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

/// Bytes of an answer that tell how large its object is.
fn sent_bytes(record: &Record<'_>) -> Option<u64> {
    record.size_bytes.filter(|size| (1..=MAX_SIZE_BYTES).contains(size) && record.status != Some(304))
}

fn positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

fn scale(at_ns: u64, factor: f64) -> u64 {
    if factor == 1.0 { at_ns } else { (at_ns as f64 * factor) as u64 }
}

/// Numbers for names, in the order of their first use.
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

/// Why a log cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayError {
    /// There is no request in it.
    Nothing(LeftOut),
    /// This is no load.
    Load(f64),
    /// The run is over before the first request.
    TooShort,
    /// The shares of the groups are no shares.
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

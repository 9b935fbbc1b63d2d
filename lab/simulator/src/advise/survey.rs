//! The first reading of a log: counts, sizes and load over time.

use scheduler::bands::{BandLearner, RESPONSE_BANDS};
use workload::{
    sizes::HeavyTail,
    trace::{Method, Name, Record, Summary},
};

use super::{
    NotAdvisable, Question,
    report::{LoadFacts, LoadPeriod, LogFacts, SizeFacts, SizeShare},
    sizes::{CLASSES, Cells, bounds},
    timeline::{Span, Timeline},
};

/// Number of sizes that the learner of the cutoffs gets, as a sample of all sizes. With fewer, the learner
/// would not be stable.
const LEARNED_FROM: u32 = 10_000;
/// Most points of a curve over time.
const MAX_PERIODS: usize = 360;
/// Largest believable size, 1 TiB. A larger number is an error of the log.
const MAX_SIZE_BYTES: u64 = 1 << 40;

/// Counts over the records of a log. [`Survey::add`] takes every record, in the order of the log.
#[derive(Clone, Debug)]
pub struct Survey {
    question: Question,
    window: Window,
    logged: Counts,
    /// The same counts with assumed sizes, until the first record with a size.
    assumed: Option<Box<Counts>>,
    /// Successful responses to GET, and the number of them whose size the log does not tell.
    answers: u64,
    answers_without_size: u64,
    /// The coarsest resolution of a stamp so far.
    tick_ns: u64,
    log: LogFacts,
}

/// Counts over requests with sizes, logged or assumed.
#[derive(Clone, Debug, Default)]
struct Counts {
    summary: Summary,
    timeline: Timeline,
    cells: Cells,
    wire_bytes: u64,
}

/// The content of the log, within the window.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) question: Question,
    pub(super) window: Window,
    pub(super) sizes: Sizes,
    pub(super) span: Span,
    pub(super) timeline: Timeline,
    pub(super) tick_ns: u64,
    /// Sizes from which a request belongs to the largest 1 %, to the largest 0.1 %, and to the largest of
    /// all.
    pub(super) large_from_bytes: [u64; 3],
    pub(super) cutoffs_bytes: Vec<u64>,
    pub(super) log: LogFacts,
    pub(super) size_facts: SizeFacts,
    pub(super) load: LoadFacts,
}

/// The source of sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sizes {
    Logged,
    /// The log has no sizes: they are drawn from those of another site, always the same for an object.
    Assumed {
        seed: u64,
    },
}

/// The window of time whose records count, in nanoseconds from the first record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    of_ns: Option<(u64, u64)>,
    origin_ns: Option<u64>,
}

impl Window {
    pub(super) fn has(&mut self, at_ns: u64) -> bool {
        let origin_ns = *self.origin_ns.get_or_insert(at_ns);
        self.of_ns.is_none_or(|(from, until)| (from..until).contains(&at_ns.saturating_sub(origin_ns)))
    }
}

impl Sizes {
    /// Returns the bytes of a response's body.
    pub(super) fn of(self, record: &Record<'_>) -> u64 {
        match self {
            Self::Logged => record.size_bytes.unwrap_or(0).min(MAX_SIZE_BYTES),
            Self::Assumed { seed } if has_body(record) => {
                let share = (hash(seed, record.object.as_ref()) >> 11) as f64 / (1_u64 << 53) as f64;
                HeavyTail::WORLD_CUP.quantile(share) as u64
            }
            Self::Assumed { .. } => 0,
        }
    }
}

/// Whether the response to this request normally has a body.
fn has_body(record: &Record<'_>) -> bool {
    matches!(record.method, None | Some(Method::Get)) && matches!(record.status, None | Some(200..=203 | 206..=299))
}

/// FNV-1a with a final mixing step: an object has the same number on every machine.
fn hash(seed: u64, object: Option<&Name<'_>>) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let begun = seed.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    let hash = match object {
        None => begun,
        Some(Name::Text(text)) => text.iter().fold(begun, step),
        Some(Name::Number(number)) => number.to_le_bytes().iter().fold(begun, step),
    };
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

impl Survey {
    /// A survey that has read nothing.
    pub fn new(question: Question) -> Self {
        Self {
            window: Window { of_ns: question.part.window_ns(), origin_ns: None },
            question,
            logged: Counts::default(),
            assumed: Some(Box::default()),
            answers: 0,
            answers_without_size: 0,
            tick_ns: 0,
            log: LogFacts::default(),
        }
    }

    /// Counts one record.
    pub fn add(&mut self, record: &Record<'_>) {
        if !self.window.has(record.at_ns) {
            self.log.outside_window += 1;
            return;
        }
        self.logged.add(record, Sizes::Logged.of(record), &self.question);
        match &mut self.assumed {
            Some(_) if record.size_bytes.is_some() => self.assumed = None,
            Some(counts) => counts.add(record, Sizes::Assumed { seed: self.question.seed }.of(record), &self.question),
            None => {}
        }
        if has_body(record) {
            self.answers += 1;
            self.answers_without_size += u64::from(record.size_bytes.is_none());
        }
        self.tick_ns = self.tick_ns.max(record.tick_ns.max(1));
    }

    /// Adds a file that was read to its end: its name, its format, the number of broken lines, and remarks on
    /// the reading.
    pub fn add_file(&mut self, name: &str, format: &str, broken_lines: u64, notes: impl IntoIterator<Item = String>) {
        self.log.files.push(name.to_owned());
        if !self.log.formats.iter().any(|known| known == format) {
            self.log.formats.push(format.to_owned());
        }
        self.log.notes.extend(notes);
        self.log.broken_lines += broken_lines;
    }

    /// Returns the facts about the site, or the reason why there is no advice.
    pub(super) fn finish(self) -> Result<Site, NotAdvisable> {
        let Self { question, window, logged, assumed, answers, answers_without_size, tick_ns, mut log } = self;
        let Some((first_ns, last_ns)) = logged.summary.span_ns() else {
            return Err(NotAdvisable::Nothing { outside_window: log.outside_window });
        };
        let has_sizes = assumed.is_none();
        let sizes = if has_sizes { Sizes::Logged } else { Sizes::Assumed { seed: question.seed } };
        let Counts { summary, mut timeline, cells, wire_bytes } = assumed.map_or(logged, |counts| *counts);
        if summary.with_size() == 0 {
            return Err(NotAdvisable::NoBodies { requests: summary.records() });
        }
        timeline.put_by();
        // A stamp stands for all the time until the next stamp.
        let span = Span { from_ns: first_ns, until_ns: last_ns.saturating_add(tick_ns) };
        let peak = timeline.peak(span);
        log.requests = summary.records();
        (log.first_unix_s, log.last_unix_s) = (first_ns as f64 / 1e9, last_ns as f64 / 1e9);
        log.tick_s = tick_ns as f64 / 1e9;
        log.has_sizes = has_sizes;
        log.answers_without_size = answers_without_size as f64 / answers.max(1) as f64;
        let largest_bytes = summary.largest_bytes();
        let large_from_bytes = [0.01, 0.001].map(|share| {
            let of_sized = share * summary.records() as f64 / summary.with_size() as f64;
            summary.size_at((1.0 - of_sized).max(0.0)).saturating_add(1).min(largest_bytes)
        });
        Ok(Site {
            window: Window { origin_ns: None, ..window },
            sizes,
            span,
            tick_ns,
            large_from_bytes: [large_from_bytes[0], large_from_bytes[1], largest_bytes],
            cutoffs_bytes: cutoffs(&summary),
            log,
            size_facts: size_facts(&summary, &cells, wire_bytes),
            load: load(&question, &timeline, span, peak, wire_bytes, summary.bytes()),
            timeline,
            question,
        })
    }
}

impl Counts {
    fn add(&mut self, record: &Record<'_>, size_bytes: u64, question: &Question) {
        let wire_bytes = question.wire.bytes_for(size_bytes);
        let Record { number, at_ns, tick_ns, status, method, .. } = *record;
        let (object, client, class, size) = (None, None, None, Some(size_bytes));
        self.summary.add(&Record { number, at_ns, tick_ns, object, client, size_bytes: size, status, method, class });
        self.timeline.add(at_ns, wire_bytes);
        self.cells.add(size_bytes, wire_bytes);
        self.wire_bytes = self.wire_bytes.saturating_add(wire_bytes);
    }
}

/// Learns the cutoffs as the server does from the responses that it sends, with a sample of the log's sizes.
fn cutoffs(summary: &Summary) -> Vec<u64> {
    let mut learner = BandLearner::default();
    for i in 0..LEARNED_FROM {
        learner.handle_seen(summary.size_at((f64::from(i) + 0.5) / f64::from(LEARNED_FROM)));
    }
    learner.plan(RESPONSE_BANDS).map(|plan| plan.cutoffs().to_vec()).unwrap_or_default()
}

fn size_facts(summary: &Summary, cells: &Cells, wire_bytes: u64) -> SizeFacts {
    let records = summary.records().max(1) as f64;
    let share = |class: usize| {
        let (from_bytes, below_bytes) = bounds(class);
        let requests = cells.requests[class] as f64 / records;
        SizeShare {
            from_bytes,
            below_bytes,
            requests,
            bytes: cells.wire_bytes[class] as f64 / wire_bytes.max(1) as f64,
        }
    };
    let used = (0..CLASSES).filter(|&class| cells.requests[class] > 0);
    let (first, last) = (used.clone().min().unwrap_or(0), used.max().unwrap_or(0));
    SizeFacts {
        mean_bytes: summary.bytes() as f64 / records,
        p50_bytes: summary.size_at(0.5),
        p90_bytes: summary.size_at(0.9),
        p99_bytes: summary.size_at(0.99),
        largest_bytes: summary.largest_bytes(),
        empty: 1.0 - summary.with_size() as f64 / records,
        bytes_in_largest_percent: summary.bytes_in_largest(0.01),
        histogram: (first..=last).map(share).collect(),
    }
}

fn load(
    question: &Question,
    timeline: &Timeline,
    span: Span,
    peak: (Span, u64),
    wire_bytes: u64,
    bodies: u64,
) -> LoadFacts {
    let bytes_per_s = question.uplink.bytes_per_second();
    let (cell_ns, cells) = timeline.cells();
    let first = span.from_ns / cell_ns;
    let together = ((span.until_ns.div_ceil(cell_ns) - first) as usize).div_ceil(MAX_PERIODS).max(1) as u64;
    let mut over_time: Vec<LoadPeriod> = Vec::new();
    let period_s = (cell_ns * together) as f64 / 1e9;
    for (from_ns, cell) in cells {
        let from_ns = (first + (from_ns / cell_ns - first) / together * together) * cell_ns;
        let (from_unix_s, load) = (from_ns as f64 / 1e9, cell.wire_bytes as f64 / (bytes_per_s * period_s));
        match over_time.last_mut() {
            Some(last) if last.from_unix_s == from_unix_s => {
                last.requests += cell.requests;
                last.load += load;
            }
            _ => over_time.push(LoadPeriod { from_unix_s, requests: cell.requests, load }),
        }
    }
    let load_of = |bytes: u64, span: Span| bytes as f64 / (bytes_per_s * span.seconds());
    LoadFacts {
        mean: load_of(wire_bytes, span),
        peak: load_of(peak.1, peak.0),
        peak_from_unix_s: peak.0.from_ns as f64 / 1e9,
        peak_s: peak.0.seconds(),
        estimated: 1.0 - bodies as f64 / wire_bytes.max(1) as f64,
        period_s,
        over_time,
    }
}

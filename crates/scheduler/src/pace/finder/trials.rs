//! Tries at times how much a slow link carries, and otherwise leaves a little of it unused.
//!
//! In a trial the rate is raised in steps until the [lead](RoundTrips::leads) of the link becomes shorter. Then the link is
//! busy all the time, so what passes it is its rate. The lead becomes shorter long before a queue is as long as a sounding
//! makes it. On a slow link such a queue takes longer than TCP waits before it probes for a lost packet, and each probe
//! makes the queue longer.
//!
//! Between trials a longer lead shows that the link has become faster. Where few round trips come, no lead is seen, and the
//! [`Correction`] has to let a short queue stand, and to steer by that.

use core::ops::Range;

use crate::{
    correction::Correction,
    round_trips::{Load, RoundTrips, Slope},
    time::{Instant, MS},
    units::Rate,
};

/// The trials of a link.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    state: State,
    /// When work last waited.
    waited_at: Instant,
    /// Since when it has waited, but for short pauses.
    waits_since: Instant,
    /// In a rest, the lead while a little of the link is unused; and from when on packets may show a longer one.
    usual_ns: Option<i64>,
    compares_from: Instant,
    /// In a trial, the highest rate at which the lead did not become shorter, 0 if there is none.
    held: f64,
    /// The lead in its first step, at the known rate.
    first_ns: Option<f64>,
    /// Trials in a row that measured nothing, and those that measured the known rate.
    failed: u32,
    same: u32,
    /// How often in a row no lead was seen because no packet waited.
    unseen: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No lead is seen. It is looked for from then on.
    Blind(Instant),
    /// A little of the link is unused. The next trial begins at `until`.
    Rests { since: Instant, until: Instant },
    /// The rate is raised by `gain` with each step.
    Climbs { began: Instant, step: Instant, bits: f64, gain: f64 },
    /// The lead has become shorter than `before_ns`. Packets that are sent after `since` measure the link.
    Stands { since: Instant, until: Instant, bits: f64, before_ns: i64 },
    /// The queue of the trial is worked off.
    Shrinks(Instant),
}

/// The outcome of a turn of [`Trials`].
pub(super) enum Tried {
    /// Nothing: the correction decides.
    Nothing,
    /// To send at this rate.
    Rate(f64),
    /// To leave a little of the known rate unused.
    Rests,
    /// The link has this rate. `is_faster`: no lead became shorter at rates far above the known one.
    Measured { slope: Slope, is_faster: bool },
    /// The link has at least this rate.
    AtLeast(f64),
    /// No lead is seen any more.
    Blind,
    /// The link is far faster than was known.
    TooSlow,
}

/// The time, the link as it is known, and the measures that follow from it.
struct Turn<'a> {
    now: Instant,
    waits: bool,
    /// The rate of the link, in bits per second.
    known: f64,
    is_rough: bool,
    seen: &'a RoundTrips,
    /// A lead is shorter or longer than another if it is so by this much.
    change_ns: i64,
    /// After a change of the rate, enough packets have come back.
    settles_ns: u64,
    /// From a trial that measured nothing to the next.
    again_ns: u64,
}

/// The change of the lead that counts, as a part of a grant's time and of jitter.
const CHANGE_OF_CHUNK: f64 = 0.2;
const CHANGE_OF_LEVEL: f64 = 1.5;
/// So many changes below the lead of the first step, it counts even if it did not fall steadily.
const FAR_BELOW: f64 = 3.0;
/// With more jitter than this part of a grant's time, leads tell too little.
const LEVEL_MOST: u64 = 8;
/// A rest lasts so long that the lead of a link of which this part is unused grows by a grant; and while the rate is known
/// roughly, at least so long. That time is doubled after each trial that measured nothing.
const REST_SHOWS: f64 = 0.02;
const REST_ROUGH_NS: u64 = 500 * MS;
/// A rest while the rate is known well. It is doubled after each trial that measured the known rate, but for this part.
const REST_NS: u64 = 20_000 * MS;
const SAME: f64 = 0.005;
/// The first is doubled so many times, and the second.
const REST_ROUGH_DOUBLES: u32 = 3;
const REST_DOUBLES: u32 = 2;
/// The first gain: if the rate is known well, if it is not, and if the link is probably faster; and the largest.
const GAIN: f64 = 0.01;
const GAIN_ROUGH: f64 = 0.03;
const GAIN_FASTER: f64 = 0.1;
const GAIN_MOST: f64 = 0.2;
/// A trial begins at the known rate, or at so many times that if the link is probably faster.
const FROM_FASTER: f64 = 1.05;
/// A step lasts until the lead changes if the rate is too high by its gain, but by no more than this. It has to show so many
/// leads, and is given up after so many times the length of the longest. So is a trial with pauses.
const STEP_GAIN_MOST: f64 = 0.04;
const STEP_LEAST: usize = 5;
const STEP_MOST: u64 = 4;
const TRIAL_MOST: u64 = 3;
/// A trial ends if a queue of so many chunks shows before the rate is raised.
const QUEUE_MOST_CHUNKS: u64 = 2;
/// If no lead is shorter at so many times the known rate, the link is faster, and the gain doubles with each step. At so
/// many times that rate it is left to the estimator.
const FASTER: f64 = 1.03;
const FAR_FASTER: f64 = 2.5;
/// The link is measured for this time at least.
const STANDS_NS: u64 = 150 * MS;
/// A measurement with a larger error, or out of this range around the rate sent at, counts for nothing.
const ERROR_MOST: f64 = 0.03;
const PLAUSIBLE: Range<f64> = 0.6..1.1;
/// The rate at which a queue is worked off, as a part of the known one.
pub(super) const SHRINKS: f64 = 0.9;
/// The uplink has to be busy for so long before a trial. In one, work may pause for so long, or for the time of so many
/// grants if that is longer.
const BUSY_NS: u64 = 60 * MS;
const PAUSE_NS: u64 = 30 * MS;
const PAUSE_CHUNKS: u64 = 4;
/// The usual lead is the median of so many. It is looked for when a rest has lasted so long.
const USUAL_LEAST: usize = 5;
const USUAL_MOST: usize = 31;
const USUAL_NS: u64 = 1_000 * MS;
/// The present lead is the median of so many.
const PRESENT_LEAST: usize = 3;
const PRESENT_MOST: usize = 5;
/// If so many packets do not wait, or none does at so many times the known rate, the link saves up more than the model ever
/// has. The correction steers then, for so long. That time is doubled so many times, until a lead is seen.
const UNSEEN_LEAST: usize = 40;
const UNSEEN_FAR: f64 = 1.08;
const UNSEEN_NS: u64 = 120_000 * MS;
const UNSEEN_DOUBLES: u32 = 4;
/// A faster link shows if nine of ten leads are longer by this part of the change that counts. It takes at least so many
/// leads, over at least so long. Older ones do not count.
const LONGER: f64 = 0.7;
const LONGER_LEAST: u32 = 6;
const LONGER_NS: u64 = 100 * MS;
const LONGER_MOST_NS: u64 = 1_000 * MS;

impl<'a> Turn<'a> {
    fn new(now: Instant, waits: bool, known: f64, is_rough: bool, seen: &'a RoundTrips) -> Self {
        let chunk_ns = seen.chunk_ns(Rate::clamped(known)) as f64;
        let change_ns = (CHANGE_OF_CHUNK * chunk_ns).max(CHANGE_OF_LEVEL * seen.level_ns(now) as f64);
        let settles_ns = seen.rtt_ns() + 2 * seen.samples_ns(now);
        let again_ns = settles_ns + (chunk_ns / REST_SHOWS) as u64;
        Self { now, waits, known, is_rough, seen, change_ns: change_ns as i64, settles_ns, again_ns }
    }

    /// Whether leads are seen that tell enough.
    fn sees(&self) -> bool {
        let chunk_ns = self.seen.chunk_ns(Rate::clamped(self.known));
        self.seen.shows_leads(self.now) && LEVEL_MOST * self.seen.level_ns(self.now) < chunk_ns
    }

    fn is_busy(&self) -> bool {
        self.waits && self.seen.busy_ns(self.now) >= BUSY_NS
    }

    fn long_ns(&self) -> i64 {
        (QUEUE_MOST_CHUNKS * self.seen.chunk_ns(Rate::clamped(self.known))) as i64
    }

    fn step_ns(&self, gain: f64) -> u64 {
        self.settles_ns + (self.change_ns as f64 / gain.min(STEP_GAIN_MOST)) as u64
    }

    /// The rate while the link is measured. At `bits` its queue would stand. Here it is worked off, but so slowly that the link
    /// stays busy.
    fn stands_at(&self, since: Instant, bits: f64) -> f64 {
        let queue_ns = self.seen.lead_ns(self.now, since, 1, PRESENT_LEAST).map_or(0, |lead_ns| -lead_ns);
        bits * (1.0 - (queue_ns as f64 / STANDS_NS as f64).clamp(0.0, 1.0 - SHRINKS))
    }

    fn present_ns(&self, since: Instant) -> Option<i64> {
        self.seen.lead_ns(self.now, since, PRESENT_LEAST, PRESENT_MOST)
    }
}

impl Trials {
    pub fn new(now: Instant) -> Self {
        Self {
            state: State::Blind(now),
            waited_at: now,
            waits_since: now,
            usual_ns: None,
            compares_from: now,
            held: 0.0,
            first_ns: None,
            failed: 0,
            same: 0,
            unseen: 0,
        }
    }

    pub fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Blind(_) | State::Rests { .. })
    }

    pub fn is_blind(&self) -> bool {
        matches!(self.state, State::Blind(_))
    }

    /// `known` is the rate of the link, in bits per second.
    pub fn handle_turn(
        &mut self,
        now: Instant,
        load: Load,
        known: f64,
        is_rough: bool,
        correction: &Correction,
    ) -> Tried {
        let turn = Turn::new(now, load.waits, known, is_rough, correction.seen());
        if load.waits {
            if self.pauses(&turn) {
                self.waits_since = now;
            }
            self.waited_at = now;
        }
        match self.state {
            State::Blind(from) if now < from || !turn.is_busy() || !turn.sees() => Tried::Nothing,
            State::Blind(_) if correction.sees_long_queue() => Tried::Nothing,
            State::Blind(_) => self.rest(now, turn.again_ns),
            State::Rests { .. } if correction.sees_long_queue() => {
                self.state = State::Rests { since: now, until: now.add_ns(turn.again_ns) };
                Tried::Nothing
            }
            State::Rests { since, until } => self.wait(&turn, since.add_ns(turn.settles_ns), until),
            State::Climbs { began, step, bits, gain } => self.climb(&turn, began, step, bits, gain),
            State::Stands { since, until, bits, .. } if now < until && !self.has_paused(&turn, since) => {
                Tried::Rate(turn.stands_at(since, bits))
            }
            State::Stands { since, bits, before_ns, .. } => self.judge(&turn, since, bits, before_ns),
            State::Shrinks(until) if now < until => Tried::Rate(known * SHRINKS),
            State::Shrinks(_) if is_rough => self.rest(now, self.again_ns(&turn)),
            State::Shrinks(_) => self.rest(now, REST_NS << self.same.min(REST_DOUBLES)),
        }
    }

    fn rest(&mut self, now: Instant, for_ns: u64) -> Tried {
        (self.usual_ns, self.compares_from) = (None, now);
        self.state = State::Rests { since: now, until: now.add_ns(for_ns) };
        Tried::Rests
    }

    fn blind(&mut self, until: Instant) -> Tried {
        self.state = State::Blind(until);
        Tried::Blind
    }

    /// Leaves the link to the correction, because it saves up too much for leads to be seen.
    fn go_blind(&mut self, now: Instant) -> Tried {
        let for_ns = UNSEEN_NS << self.unseen.min(UNSEEN_DOUBLES);
        self.unseen += 1;
        self.blind(now.add_ns(for_ns))
    }

    fn begin(&mut self, now: Instant, bits: f64, gain: f64) -> Tried {
        (self.held, self.first_ns) = (0.0, None);
        self.state = State::Climbs { began: now, step: now, bits, gain };
        Tried::Rate(bits)
    }

    /// A turn in a rest whose packets show the lead since then.
    fn wait(&mut self, turn: &Turn<'_>, since: Instant, until: Instant) -> Tried {
        let (mut packets, mut waited) = (0, false);
        for lead in turn.seen.leads(turn.now, since).take(UNSEEN_LEAST) {
            (packets, waited) = (packets + 1, waited || !lead.is_bound);
        }
        if packets == UNSEEN_LEAST && !waited && self.usual_ns.is_none() {
            return self.go_blind(turn.now);
        }
        if turn.now < until {
            if turn.waits && self.is_longer(turn, since) {
                return self.begin(turn.now, turn.known * FROM_FASTER, GAIN_FASTER);
            }
            return Tried::Nothing;
        }
        if !turn.is_busy() {
            return Tried::Nothing;
        }
        if !turn.sees() {
            return self.blind(turn.now);
        }
        self.begin(turn.now, turn.known, if turn.is_rough { GAIN_ROUGH } else { GAIN })
    }

    /// Whether the lead is longer than usual.
    fn is_longer(&mut self, turn: &Turn<'_>, since: Instant) -> bool {
        let Some(usual_ns) = self.usual_ns else {
            if turn.now > self.compares_from.max(since).add_ns(USUAL_NS) {
                self.usual_ns = turn.seen.lead_ns(turn.now, since, USUAL_LEAST, USUAL_MOST);
                self.compares_from = turn.now;
                if self.usual_ns.is_some() {
                    self.unseen = 0;
                }
            }
            return false;
        };
        let longer_ns = usual_ns + (LONGER * turn.change_ns as f64) as i64;
        let (mut packets, mut longer, mut lasts_ns) = (0, 0, 0);
        // A queue in the model that is shorter than this tells nothing.
        let leads = turn.seen.leads(turn.now, self.compares_from).filter(|it| it.model_ns >= longer_ns);
        for lead in leads.take_while(|it| turn.now.ns_since(it.sent_at) <= LONGER_MOST_NS) {
            packets += 1;
            longer += u32::from(lead.is_bound || lead.ns > longer_ns);
            lasts_ns = turn.now.ns_since(lead.sent_at);
            if packets >= LONGER_LEAST && lasts_ns >= LONGER_NS {
                break;
            }
        }
        packets >= LONGER_LEAST && lasts_ns >= LONGER_NS && longer * 10 >= packets * 9
    }

    fn climb(&mut self, turn: &Turn<'_>, began: Instant, step: Instant, bits: f64, gain: f64) -> Tried {
        let (now, known) = (turn.now, turn.known);
        if let Some(before_ns) =
            turn.seen.lead_falls(now, step, turn.change_ns).or_else(|| self.is_far_below(turn, step, bits))
        {
            // The rate of the link is somewhere in the last step.
            let bits = bits / (1.0 + gain / 2.0);
            let until = now.add_ns(turn.settles_ns + STANDS_NS);
            self.state = State::Stands { since: step, until, bits, before_ns };
            return Tried::Rate(bits);
        }
        let longest_ns = turn.step_ns(GAIN);
        if self.held == 0.0 && turn.present_ns(began).is_some_and(|lead_ns| -lead_ns > turn.long_ns()) {
            // The known rate is too high. The correction works off the queue.
            return self.give_up(turn);
        }
        if self.has_paused(turn, step) {
            if now.ns_since(began) > TRIAL_MOST * longest_ns {
                return self.give_up(turn);
            }
            self.state = State::Climbs { began, step: now, bits, gain };
            return Tried::Rate(bits);
        }
        if now.ns_since(step) <= turn.step_ns(gain) || turn.seen.leads(now, step).nth(STEP_LEAST - 1).is_none() {
            return if now.ns_since(step) > STEP_MOST * longest_ns { self.give_up(turn) } else { Tried::Rate(bits) };
        }
        let is_seen = turn.seen.leads(now, step).any(|it| !it.is_bound);
        if bits > FAR_FASTER * known {
            return Tried::TooSlow;
        }
        if bits > UNSEEN_FAR * known && !is_seen && self.first_ns.is_none() {
            return self.go_blind(now);
        }
        self.held = bits;
        let lead_ns = turn.seen.lead_ns(now, step, PRESENT_LEAST, USUAL_MOST);
        self.first_ns = self.first_ns.or(lead_ns.map(|lead_ns| lead_ns as f64 * bits / known));
        let gain = if bits > FASTER * known && is_seen { (2.0 * gain).min(GAIN_MOST) } else { gain };
        self.state = State::Climbs { began, step: now, bits: bits * (1.0 + gain), gain };
        Tried::Rate(bits * (1.0 + gain))
    }

    /// Whether the lead in this step is far below that of the first: if so, that of the first.
    fn is_far_below(&self, turn: &Turn<'_>, step: Instant, bits: f64) -> Option<i64> {
        // The bytes that the link saves up take a shorter time at a higher rate.
        let first_ns = self.first_ns? * turn.known / bits;
        let lead_ns = turn.present_ns(step)? as f64;
        (lead_ns < first_ns - FAR_BELOW * turn.change_ns as f64).then_some(first_ns as i64)
    }

    /// Ends a trial in which too little was sent. The correction goes on as before it, if nothing was learned.
    fn give_up(&mut self, turn: &Turn<'_>) -> Tried {
        if self.held > turn.known {
            self.state = State::Shrinks(turn.now);
            return Tried::AtLeast(self.held);
        }
        self.failed += 1;
        self.rest(turn.now, self.again_ns(turn));
        Tried::Nothing
    }

    /// Measures the link by packets that were sent after the lead had become shorter.
    fn judge(&mut self, turn: &Turn<'_>, since: Instant, bits: f64, before_ns: i64) -> Tried {
        let (now, seen) = (turn.now, turn.seen);
        let busy_since = Instant::from_ns(now.as_ns().saturating_sub(seen.busy_ns(now)));
        let short_ns = before_ns - turn.change_ns / 2;
        let shorter = seen.leads(now, since.max(busy_since)).filter(|it| !it.is_bound && it.ns < short_ns);
        let first = shorter.last().filter(|first| now.ns_since(first.sent_at) >= STANDS_NS);
        let slope = first.and_then(|first| seen.slope_of_waiting(now, first.sent_at, self.waited_at));
        let queue_ns = turn.present_ns(since).map_or(0, |lead_ns| (short_ns - lead_ns).max(0));
        self.state = State::Shrinks(now.add_ns((queue_ns as f64 / (1.0 - SHRINKS)) as u64));
        match slope {
            Some(slope) if slope.error < ERROR_MOST * bits && PLAUSIBLE.contains(&(slope.bits / bits)) => {
                self.failed = 0;
                self.same = if (slope.bits / turn.known - 1.0).abs() < SAME { self.same + 1 } else { 0 };
                Tried::Measured { slope, is_faster: self.held > FASTER * turn.known }
            }
            _ if self.held > turn.known => Tried::AtLeast(self.held),
            _ => {
                self.failed += 1;
                Tried::Rate(turn.known * SHRINKS)
            }
        }
    }

    /// From one trial to the next while the rate is known roughly.
    fn again_ns(&self, turn: &Turn<'_>) -> u64 {
        (turn.again_ns.max(REST_ROUGH_NS) << self.failed.min(REST_ROUGH_DOUBLES)).min(REST_NS)
    }

    fn pauses(&self, turn: &Turn<'_>) -> bool {
        let chunk_ns = turn.seen.chunk_ns(Rate::clamped(turn.known));
        turn.now.ns_since(self.waited_at) > PAUSE_NS.max(PAUSE_CHUNKS * chunk_ns)
    }

    /// Whether there was a pause since then. One between two turns shows only when work waits again.
    fn has_paused(&self, turn: &Turn<'_>, since: Instant) -> bool {
        self.pauses(turn) || self.waits_since > since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn comes with each grant, so none comes in a pause.
    #[test]
    fn a_pause_between_two_turns_begins_a_step_anew() {
        let at = |ms: u64| Instant::from_ns(ms * MS);
        let correction = Correction::new(Rate::clamped(2e6), None);
        let load = |now| Load { sent_bytes: 0, room_at: now, waits: true, chunk_bytes: 1_500 };
        let turn = |trials: &mut Trials, ms| match trials.handle_turn(at(ms), load(at(ms)), 2e6, false, &correction) {
            Tried::Rate(bits) => bits,
            _ => panic!("the trial ended"),
        };
        let mut trials = Trials::new(at(0));
        trials.begin(at(0), 2e6, GAIN);
        for (ms, step_ms) in [(10, 0), (35, 0), (100, 100), (110, 100)] {
            assert_eq!(turn(&mut trials, ms), 2e6);
            let State::Climbs { step, .. } = trials.state else { panic!("{:?}", trials.state) };
            assert_eq!(step, at(step_ms), "after {ms} ms");
        }
        trials.state = State::Stands { since: at(100), until: at(300), bits: 2e6, before_ns: 0 };
        turn(&mut trials, 130);
        assert!(matches!(trials.state, State::Stands { .. }));
        turn(&mut trials, 200);
        assert!(matches!(trials.state, State::Shrinks(_)), "measured over a pause");
    }
}

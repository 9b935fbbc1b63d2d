//! Decides when an authority is asked for a certificate, or for the time of its renewal.
//!
//! A state machine without a clock: times are seconds since 1970 and come as arguments, and so does chance, a number from
//! 0 up to 1. Chance spreads renewals, so that the certificates of many servers do not fall due in the same minute.
//!
//! Pauses after failures keep within the limits of Let's Encrypt, which lets a name fail five times an hour.

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;

/// The part of its life after which a certificate is renewed where the authority does not say when, and how much of it is
/// up to chance.
const RENEW_AFTER: f64 = 0.6;
const SPREAD: f64 = 1.0 / 15.0;
/// However late an authority wants a renewal, this much of the life is left for a second attempt.
const LATEST: f64 = 0.95;

/// A new certificate is used for at least this long, or for at least this part of its life if that is less. So an
/// authority with a wrong clock or a wrong window is not asked again and again.
const LEAST_USE_S: u64 = HOUR_S;
const LEAST_USE: f64 = 0.3;

/// The pause after the first failure. It doubles with each further one: four attempts in the first hour.
const FIRST_PAUSE_S: u64 = 5 * MINUTE_S;
const LONGEST_PAUSE_S: u64 = 6 * HOUR_S;
/// Up to this part of a pause is added by chance.
const PAUSE_SPREAD: f64 = 0.25;
/// An authority that asks for more patience than this is asked again all the same.
const MOST_PATIENCE_S: u64 = 7 * 24 * HOUR_S;
/// A start waits for no longer than this after the last failure: with the first pauses, five attempts an hour.
const PAUSE_AT_START_S: u64 = 20 * MINUTE_S;

/// How often an authority is asked when to renew (RFC 9773, section 4.3).
const ASK_EVERY_S: u64 = 6 * HOUR_S;
const ASK_AT_MOST_EVERY_S: u64 = HOUR_S;
const ASK_AT_LEAST_EVERY_S: u64 = 24 * HOUR_S;

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begin_s: u64,
    pub(crate) end_s: u64,
}

/// The next step for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Obtain a certificate.
    Order,
    /// Ask the authority when to renew.
    AskWhen,
    /// Nothing before this time.
    Wait(u64),
}

/// The state of one certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewal {
    /// When the certificate is valid; `None`: there is none.
    validity: Option<Span>,
    /// When it is to be renewed.
    due_s: u64,
    /// It is used until then, whatever the authority says.
    earliest_s: u64,
    /// When the authority is asked for that time.
    ask_s: u64,
    /// Failures in a row.
    failures: u32,
    last_failure_s: u64,
    /// No attempt before.
    retry_s: u64,
}

impl Renewal {
    /// A certificate is in use. `issued_s`: it was issued now; `None`: it is from an earlier life of the process.
    pub(crate) fn handle_certificate(&mut self, validity: Span, issued_s: Option<u64>, chance: f64) {
        let life_s = validity.end_s.saturating_sub(validity.begin_s);
        let after_s = life_s as f64 * (RENEW_AFTER + chance * SPREAD);
        let least_s = LEAST_USE_S.min((life_s as f64 * LEAST_USE) as u64);
        *self = Self {
            validity: Some(validity),
            due_s: validity.begin_s + after_s as u64,
            earliest_s: issued_s.map_or(0, |issued_s| issued_s.saturating_add(least_s)),
            ..Self::default()
        };
    }

    /// Takes over failures of an earlier life of the process.
    pub(crate) fn handle_start(&mut self, failures: u32, last_failure_s: u64, retry_s: u64) {
        self.failures = failures;
        self.last_failure_s = last_failure_s;
        self.retry_s = retry_s.min(last_failure_s.saturating_add(PAUSE_AT_START_S));
    }

    /// The authority has said when to renew; without a window it does not know. `again_s`: when it wants to be asked again.
    pub(crate) fn handle_window(&mut self, window: Option<Span>, again_s: Option<u64>, now_s: u64, chance: f64) {
        let pause_s = again_s.unwrap_or(ASK_EVERY_S).clamp(ASK_AT_MOST_EVERY_S, ASK_AT_LEAST_EVERY_S);
        self.ask_s = now_s.saturating_add(pause_s);
        let (Some(validity), Some(window)) = (self.validity, window) else { return };
        if window.end_s <= window.begin_s {
            return;
        }
        let within_s = (window.end_s - window.begin_s) as f64 * chance;
        let life_s = validity.end_s.saturating_sub(validity.begin_s) as f64;
        let latest_s = validity.begin_s + (life_s * LATEST) as u64;
        self.due_s = (window.begin_s + within_s as u64).min(latest_s);
    }

    /// An attempt has failed. `patience_s`: how long the authority wants to be left alone.
    pub(crate) fn handle_failure(&mut self, now_s: u64, patience_s: Option<u64>, chance: f64) {
        let doubled = FIRST_PAUSE_S.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE_S);
        let pause_s = doubled + (doubled as f64 * PAUSE_SPREAD * chance) as u64;
        let pause_s = pause_s.max(patience_s.unwrap_or(0).min(MOST_PATIENCE_S));
        self.failures = self.failures.saturating_add(1);
        self.last_failure_s = now_s;
        self.retry_s = now_s.saturating_add(pause_s);
    }

    /// The next step at this time.
    pub(crate) fn poll(&self, now_s: u64) -> Action {
        let order_s = self.next_order_s();
        if now_s >= order_s {
            return Action::Order;
        }
        match self.validity {
            Some(_) if now_s >= self.ask_s => Action::AskWhen,
            Some(_) => Action::Wait(order_s.min(self.ask_s)),
            None => Action::Wait(order_s),
        }
    }

    /// When the authority is asked for a certificate.
    pub(crate) fn next_order_s(&self) -> u64 {
        self.due_s.max(self.retry_s).max(self.earliest_s)
    }

    /// Failures in a row, the time of the last one, and the time before which none follows.
    pub(crate) fn failures(&self) -> (u32, u64, u64) {
        (self.failures, self.last_failure_s, self.retry_s)
    }

    /// When the certificate is valid; `None`: there is none.
    pub(crate) fn validity(&self) -> Option<Span> {
        self.validity
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_S: u64 = 24 * HOUR_S;
    const NOW_S: u64 = 20_000 * DAY_S;
    const QUARTER: Span = Span { begin_s: NOW_S, end_s: NOW_S + 90 * DAY_S };

    /// The times of orders that all fail, from `now_s` on.
    fn orders(renewal: &mut Renewal, mut now_s: u64, until_s: u64, chance: f64) -> Vec<u64> {
        let mut times = Vec::new();
        while now_s < until_s {
            match renewal.poll(now_s) {
                Action::Order => {
                    times.push(now_s);
                    renewal.handle_failure(now_s, None, chance);
                }
                Action::AskWhen => renewal.handle_window(None, None, now_s, chance),
                Action::Wait(until) => {
                    assert!(until > now_s, "it comes on");
                    now_s = until;
                }
            }
        }
        times
    }

    #[test]
    fn a_site_without_a_certificate_gets_one_at_once() {
        assert_eq!(Renewal::default().poll(NOW_S), Action::Order);
    }

    #[test]
    fn a_certificate_is_renewed_when_less_than_half_of_its_life_is_left() {
        for (chance, days) in [(0.0, 54), (0.999_999, 59)] {
            let mut renewal = Renewal::default();
            renewal.handle_certificate(QUARTER, None, chance);
            assert_eq!(renewal.poll(NOW_S), Action::AskWhen);
            renewal.handle_window(None, None, NOW_S, chance);
            assert_eq!(renewal.poll(NOW_S), Action::Wait(NOW_S + ASK_EVERY_S));
            assert_eq!((renewal.next_order_s() - NOW_S) / DAY_S, days);
            assert_eq!(renewal.poll(renewal.next_order_s()), Action::Order);
        }
    }

    #[test]
    fn the_authority_says_when() {
        let mut renewal = Renewal::default();
        renewal.handle_certificate(QUARTER, None, 0.5);
        let window = Span { begin_s: NOW_S + 70 * DAY_S, end_s: NOW_S + 72 * DAY_S };
        renewal.handle_window(Some(window), Some(2 * HOUR_S), NOW_S, 0.5);
        assert_eq!(renewal.next_order_s(), NOW_S + 71 * DAY_S);
        assert_eq!(renewal.poll(NOW_S), Action::Wait(NOW_S + 2 * HOUR_S));
        // Revoked: at once.
        let past = Span { begin_s: NOW_S - 2 * DAY_S, end_s: NOW_S - DAY_S };
        renewal.handle_window(Some(past), None, NOW_S, 0.5);
        assert_eq!(renewal.poll(NOW_S), Action::Order);
        // Too late, or nonsense.
        let late = Span { begin_s: NOW_S + 100 * DAY_S, end_s: NOW_S + 200 * DAY_S };
        renewal.handle_window(Some(late), None, NOW_S, 0.5);
        assert!(renewal.next_order_s() < QUARTER.end_s);
        let before = renewal.next_order_s();
        renewal.handle_window(Some(Span { begin_s: 5, end_s: 5 }), Some(1), NOW_S, 0.5);
        assert_eq!((renewal.next_order_s(), renewal.poll(NOW_S)), (before, Action::Wait(NOW_S + HOUR_S)));
    }

    #[test]
    fn a_new_certificate_is_used_for_a_while_whatever_the_authority_says() {
        let mut renewal = Renewal::default();
        renewal.handle_certificate(QUARTER, Some(NOW_S), 0.5);
        let past = Span { begin_s: NOW_S - 2 * DAY_S, end_s: NOW_S - DAY_S };
        renewal.handle_window(Some(past), None, NOW_S, 0.5);
        assert_eq!(renewal.next_order_s(), NOW_S + HOUR_S);
        let ended = Span { begin_s: 0, end_s: 100 };
        renewal.handle_certificate(ended, Some(NOW_S), 0.5);
        assert_eq!(renewal.next_order_s(), NOW_S + 30);
    }

    #[test]
    fn failures_keep_within_five_an_hour_and_do_not_give_up() {
        let times = orders(&mut Renewal::default(), NOW_S, NOW_S + 2 * DAY_S, 0.0);
        let minutes: Vec<_> = times.iter().map(|time| (time - NOW_S) / MINUTE_S).collect();
        assert_eq!(minutes[..8], [0, 5, 15, 35, 75, 155, 315, 635]);
        assert!(minutes.last().is_some_and(|last| *last > 2 * 24 * 60 - 6 * 60), "{minutes:?}");
    }

    #[test]
    fn the_patience_that_the_authority_asks_for_is_given_within_reason() {
        let mut renewal = Renewal::default();
        renewal.handle_failure(NOW_S, Some(3 * HOUR_S), 0.0);
        assert_eq!(renewal.poll(NOW_S), Action::Wait(NOW_S + 3 * HOUR_S));
        renewal.handle_failure(NOW_S, Some(u64::MAX), 0.0);
        assert_eq!(renewal.poll(NOW_S), Action::Wait(NOW_S + MOST_PATIENCE_S));
    }

    #[test]
    fn a_start_tries_soon_but_not_at_once_after_a_failure() {
        let mut renewal = Renewal::default();
        renewal.handle_start(9, NOW_S - MINUTE_S, NOW_S + 5 * HOUR_S);
        assert_eq!(renewal.poll(NOW_S), Action::Wait(NOW_S + 19 * MINUTE_S));
        renewal.handle_start(9, NOW_S - HOUR_S, NOW_S + 5 * HOUR_S);
        assert_eq!(renewal.poll(NOW_S), Action::Order);
        renewal.handle_start(1, NOW_S - MINUTE_S, NOW_S + 4 * MINUTE_S);
        assert_eq!(renewal.poll(NOW_S), Action::Wait(NOW_S + 4 * MINUTE_S));
    }

    #[test]
    fn a_new_certificate_ends_the_failures() {
        let mut renewal = Renewal::default();
        orders(&mut renewal, NOW_S, NOW_S + DAY_S, 0.5);
        renewal.handle_certificate(QUARTER, None, 0.5);
        assert_eq!(renewal.failures(), (0, 0, 0));
    }

    proptest! {
        /// Also those who start the server again and again stay below five failures an hour.
        #[test]
        fn no_hour_has_more_than_five_failures(
            starts in proptest::collection::vec(0..6 * HOUR_S, 0..20),
            chance in 0.0..1.0f64,
        ) {
            let mut renewal = Renewal::default();
            let mut starts: Vec<_> = starts.into_iter().map(|at| NOW_S + at).collect();
            starts.sort_unstable();
            starts.push(NOW_S + 12 * HOUR_S);
            let (mut times, mut now_s) = (Vec::new(), NOW_S);
            for start_s in starts {
                times.extend(orders(&mut renewal, now_s, start_s, chance));
                let (failures, last_s, retry_s) = renewal.failures();
                renewal = Renewal::default();
                renewal.handle_start(failures, last_s, retry_s);
                now_s = now_s.max(start_s);
            }
            for (at, time) in times.iter().enumerate() {
                let within = times[at..].iter().take_while(|other| **other < time + HOUR_S).count();
                prop_assert!(within <= 5, "{within} in an hour: {times:?}");
            }
        }

        #[test]
        fn whatever_happens_a_renewal_comes_before_the_end(
            begin_s in 0..2 * NOW_S,
            life_s in 1..1000 * DAY_S,
            window in (0..4 * NOW_S, 0..4 * NOW_S),
            again_s in any::<u64>(),
            chance in 0.0..1.0f64,
        ) {
            let mut renewal = Renewal::default();
            let validity = Span { begin_s, end_s: begin_s + life_s };
            renewal.handle_certificate(validity, None, chance);
            prop_assert!(renewal.next_order_s() <= validity.end_s);
            let window = Span { begin_s: window.0, end_s: window.1 };
            renewal.handle_window(Some(window), Some(again_s), begin_s, chance);
            prop_assert!(renewal.next_order_s() <= validity.end_s);
        }
    }
}

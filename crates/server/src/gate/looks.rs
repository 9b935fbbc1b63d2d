//! When to look at what TCP tells of a connection after its last bytes.
//!
//! As a rule the round trips of a connection are worked out when it is written to or read from. On a slow link whose
//! clients keep their connections, that is seldom. So where few round trips are measured, a connection is looked at
//! when its last bytes may have been acknowledged, and then again and again until they were.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use crate::{body::Timer, uplink::driver::Driver};

/// The looks at a connection. Without a timer none is due.
#[derive(Debug, Default)]
pub(super) struct Looks {
    timed: Option<Box<Timed>>,
}

#[derive(Debug)]
struct Timed {
    timer: Timer,
    until: Instant,
}

/// No timer is set if others have measured a round trip so shortly before that looks are not due within this time.
const SOON: Duration = Duration::from_millis(50);
/// Linux counts in ticks of 4 ms when the last acknowledgement came.
const TICK: Duration = Duration::from_millis(4);
/// Bytes that were not acknowledged for so long are no longer waited for.
const LOOKS_FOR: Duration = Duration::from_secs(4);

impl Looks {
    /// Ready when a look is due, until [`Looks::handle_look`]. Bytes were sent since the last one, and take this round
    /// trip as a rule.
    pub fn poll_due(&mut self, cx: &mut Context<'_>, driver: &Driver, rtt: Duration) -> Poll<()> {
        loop {
            let Some(Timed { timer, .. }) = self.timed.as_deref_mut() else {
                if !driver.looks_within(SOON) {
                    return Poll::Pending;
                }
                let now = Instant::now();
                let timer = Timer::at(now + driver.looks_every().max(rtt + TICK));
                self.timed = Some(Box::new(Timed { timer, until: now + LOOKS_FOR }));
                continue;
            };
            ready!(timer.poll(cx));
            if driver.looks_within(Duration::ZERO) {
                return Poll::Ready(());
            }
            if !self.handle_look(driver, true) {
                return Poll::Pending;
            }
        }
    }

    /// All bytes that were sent are measured. Looks at later ones begin anew.
    pub fn handle_measured(&mut self) {
        self.timed = None;
    }

    /// The connection was looked at. Returns whether it will be again, if bytes are on their way.
    pub fn handle_look(&mut self, driver: &Driver, are_under_way: bool) -> bool {
        let now = Instant::now();
        let timed = self.timed.as_deref_mut().filter(|timed| are_under_way && now < timed.until);
        let Some(Timed { timer, .. }) = timed.filter(|_| driver.looks_within(SOON)) else {
            self.timed = None;
            return false;
        };
        timer.set(now + driver.looks_every());
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use scheduler::estimate::{RoundTrip, RttKind};

    use super::*;
    use crate::{
        gate::tests::{paced, rate_off},
        uplink::Uplink,
    };

    const RTT: Duration = Duration::from_millis(30);

    /// The time until a look is due; `None`: none is within ten seconds.
    async fn due_after(looks: &mut Looks, uplink: &Uplink) -> Option<Duration> {
        let began = Instant::now();
        let due = poll_fn(|cx| looks.poll_due(cx, uplink.driver(), RTT));
        tokio::time::timeout(Duration::from_secs(10), due).await.ok().map(|()| began.elapsed())
    }

    fn measure(uplink: &Uplink, kind: RttKind) {
        uplink.driver().handle_round_trip(RoundTrip { path: 1, ns: 30_000_000, kind, age_ns: 0 }, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_looked_at_until_its_bytes_have_arrived() {
        let (uplink, mut looks) = (paced("1mbit"), Looks::default());
        assert_eq!(due_after(&mut looks, &uplink).await, Some(RTT + TICK));
        assert!(looks.handle_look(uplink.driver(), true));
        let again = due_after(&mut looks, &uplink).await.expect("again");
        assert!((10..30).contains(&again.as_millis()), "the time of a grant: {again:?}");
        assert!(!looks.handle_look(uplink.driver(), false));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_do_not_arrive_are_given_up() {
        let (uplink, mut looks) = (paced("1mbit"), Looks::default());
        let began = Instant::now();
        while due_after(&mut looks, &uplink).await.is_some() && looks.handle_look(uplink.driver(), true) {}
        assert!((LOOKS_FOR..LOOKS_FOR + RTT).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn looks_at_later_bytes_begin_anew() {
        let (uplink, mut looks) = (paced("1mbit"), Looks::default());
        let poll_once = |looks: &mut Looks| {
            let waker = std::task::Waker::noop();
            looks.poll_due(&mut Context::from_waker(waker), uplink.driver(), RTT).is_ready()
        };
        assert!(!poll_once(&mut looks));
        looks.handle_measured();
        tokio::time::advance(2 * LOOKS_FOR).await;
        assert!(!poll_once(&mut looks), "the timer of the bytes before has no say");
        assert_eq!(due_after(&mut looks, &uplink).await, Some(RTT + TICK));
        assert!(looks.handle_look(uplink.driver(), true));
    }

    #[tokio::test(start_paused = true)]
    async fn none_is_due_while_others_measure_round_trips() {
        let (uplink, mut looks) = (paced("1mbit"), Looks::default());
        measure(&uplink, RttKind::Data);
        assert_eq!(due_after(&mut looks, &uplink).await, None, "nothing polls it again");
        measure(&uplink, RttKind::Data);
        tokio::time::advance(Duration::from_millis(60)).await;
        measure(&uplink, RttKind::LateData);
        let due = due_after(&mut looks, &uplink).await.expect("a late one does not count");
        assert!((40..60).contains(&due.as_millis()), "{due:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_link_needs_no_looks() {
        for uplink in [paced("100mbit"), rate_off()] {
            assert_eq!(due_after(&mut Looks::default(), &uplink).await, None);
        }
    }
}

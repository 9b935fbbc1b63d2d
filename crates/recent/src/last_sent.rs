//! The responses of the last time, to compare the order with others.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;

/// So many are kept: a megabyte of them. At 10 responses a second those of nearly two hours.
const MOST: usize = 65_536;

/// A response as the uplink had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentResponse {
    /// When it was ready to be sent, in nanoseconds after a moment that is the same for all.
    pub ready_ns: u64,
    /// Body bytes.
    pub body_bytes: u64,
    /// From then until its last byte was taken, in nanoseconds; `None`: it is still under way.
    pub send_ns: Option<u64>,
}

/// For each order its name, and the time of each response in seconds.
pub type TimesByOrder = Vec<(String, Vec<f64>)>;

/// The times of these responses under other orders, on a link of so many bits per second, until a moment. `sent` is in
/// the order in which the responses were ready. All are compared with the first of the orders. May take long.
pub type Orders = fn(sent: &[SentResponse], bits_per_second: u64, until_ns: u64) -> TimesByOrder;

/// The times from ready to sent under an order, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderTimes {
    /// Its name.
    pub order: String,
    /// Their mean.
    pub mean_s: f64,
    /// Their median.
    pub p50_s: f64,
    /// Their 99th percentile.
    pub p99_s: f64,
    /// The mean of the largest hundredth of the responses.
    pub largest_s: f64,
}

/// The last responses beside what they would have had under other orders. Those under way count with their time until
/// now, in all orders alike.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// How many there are.
    pub responses: usize,
    /// How many of them are under way.
    pub under_way: usize,
    /// From the first being ready until now.
    pub span_s: f64,
    /// Their mean time, as measured.
    pub mean_s: f64,
    /// The same under the first of the other orders.
    pub other_mean_s: f64,
    /// As measured.
    pub measured: OrderTimes,
    /// The times under the other orders.
    pub orders: Vec<OrderTimes>,
}

/// A response in half of the memory.
#[derive(Clone, Copy, Debug)]
struct Kept {
    ready_us: u64,
    body_bytes: u32,
    send_us: u32,
}

/// The last responses. Usable from many threads.
#[derive(Debug, Default)]
pub struct LastSent(Mutex<VecDeque<Kept>>);

impl LastSent {
    /// A response has ended. Beyond 4 GiB and an hour sizes and times are no longer told apart.
    pub fn record(&self, ready_ns: u64, body_bytes: u64, send_ns: u64) {
        let most = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let kept = Kept { ready_us: ready_ns / 1000, body_bytes: most(body_bytes), send_us: most(send_ns / 1000) };
        let mut list = self.0.lock();
        if list.len() == MOST {
            list.pop_front();
        }
        list.push_back(kept);
    }

    /// The last of those that are kept, at most so many, in the order in which they were ready.
    pub fn list(&self, most: usize) -> Vec<SentResponse> {
        let told = |kept: &Kept| SentResponse {
            ready_ns: kept.ready_us * 1000,
            body_bytes: kept.body_bytes.into(),
            send_ns: Some(u64::from(kept.send_us) * 1000),
        };
        let mut list: Vec<_> = {
            let list = self.0.lock();
            list.range(list.len().saturating_sub(most)..).map(told).collect()
        };
        list.sort_by_key(|sent| sent.ready_ns);
        list
    }
}

impl OrderTimes {
    /// Of the times of these responses.
    fn new(order: String, times_s: &[f64], sent: &[SentResponse]) -> Self {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let mut by_size: Vec<_> = (0..times_s.len()).collect();
        by_size.sort_by_key(|&at| std::cmp::Reverse(sent[at].body_bytes));
        let largest: Vec<_> = by_size.iter().take(times_s.len().div_ceil(100)).map(|&at| times_s[at]).collect();
        let mut sorted = times_s.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        Self { order, mean_s: mean(times_s), p50_s: at(0.5), p99_s: at(0.99), largest_s: mean(&largest) }
    }
}

impl Comparison {
    /// Of these responses, in the order in which they were ready, at a moment; `None`: there are none, or no other order.
    pub fn new(order: String, sent: &[SentResponse], until_ns: u64, others: TimesByOrder) -> Option<Self> {
        let first = sent.first()?;
        let until_now = |it: &SentResponse| until_ns.saturating_sub(it.ready_ns);
        let measured: Vec<_> = sent.iter().map(|it| it.send_ns.unwrap_or_else(|| until_now(it)) as f64 / 1e9).collect();
        let measured = OrderTimes::new(order, &measured, sent);
        let orders: Vec<_> = others.into_iter().map(|(order, times)| OrderTimes::new(order, &times, sent)).collect();
        Some(Self {
            responses: sent.len(),
            under_way: sent.iter().filter(|it| it.send_ns.is_none()).count(),
            span_s: until_now(first) as f64 / 1e9,
            mean_s: measured.mean_s,
            other_mean_s: orders.first()?.mean_s,
            measured,
            orders,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_told_in_the_order_in_which_they_were_ready() {
        let sent = LastSent::default();
        // Each was ready before the one that ended before it.
        for at in (0..MOST as u64 + 10).rev() {
            sent.record(at * 1000, 1, 7_000);
        }
        let ready: Vec<_> = sent.list(usize::MAX).iter().map(|sent| sent.ready_ns / 1000).collect();
        assert_eq!(ready, (0..MOST as u64).collect::<Vec<_>>());
        assert_eq!(sent.list(3).iter().map(|sent| sent.ready_ns / 1000).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(sent.list(1), [SentResponse { ready_ns: 0, body_bytes: 1, send_ns: Some(7_000) }]);
        sent.record(0, u64::MAX, u64::MAX);
        let huge = sent.list(1)[0];
        assert_eq!((huge.body_bytes, huge.send_ns), (u32::MAX.into(), Some(u64::from(u32::MAX) * 1000)));
    }

    #[test]
    fn what_is_under_way_counts_until_now() {
        let s = 1_000_000_000;
        let sent = [
            SentResponse { ready_ns: s, body_bytes: 9, send_ns: None },
            SentResponse { ready_ns: 2 * s, body_bytes: 1, send_ns: Some(s) },
        ];
        let others = vec![("fair".to_owned(), vec![4.0, 2.0]), ("fifo".to_owned(), vec![4.0, 3.0])];
        let told = Comparison::new("srpt".to_owned(), &sent, 5 * s, others).expect("there are responses");
        assert_eq!((told.responses, told.under_way, told.span_s), (2, 1, 4.0));
        assert_eq!((told.mean_s, told.other_mean_s), (2.5, 3.0));
        let times = |order: &str, mean_s, p50_s, p99_s, largest_s| OrderTimes {
            order: order.to_owned(),
            mean_s,
            p50_s,
            p99_s,
            largest_s,
        };
        assert_eq!(told.measured, times("srpt", 2.5, 1.0, 4.0, 4.0));
        assert_eq!(told.orders, [times("fair", 3.0, 2.0, 4.0, 4.0), times("fifo", 3.5, 3.0, 4.0, 4.0)]);
        assert!(Comparison::new("srpt".to_owned(), &[], 0, Vec::new()).is_none());
        assert!(Comparison::new("srpt".to_owned(), &sent, 0, Vec::new()).is_none());
    }
}

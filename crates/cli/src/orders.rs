//! The times that each order would have given the last responses, for the page of the admin address.

use recent::{SentResponse, TimesByOrder};
use scheduler::{Chunk, Order, Pacing, uplink::Settings};
use simulator::{Model, Ordered, ProcessorSharing, Ticket, advise::Policy};
use workload::{
    rate::{Link, Rate},
    sequence::Request,
    wire::WireModel,
};

/// Orders that are compared, the first with all others. The orders by distance are left out: nothing tells the
/// distances of the clients of that time.
const COMPARED: [Order; 5] = [Order::Srpt, Order::Fsp, Order::Las, Order::Fifo, Order::QuickFix];
/// Most turns of a simulated link, beside one for each response.
const MOST_TURNS: u64 = 100_000;
/// Bytes of a turn, as in the simulator.
const TURN_BYTES: u64 = simulator::ordered::QUANTUM_BYTES;

/// The time in seconds from ready to sent of each of these responses, in the order in which they were ready. They are
/// simulated on a link of so many bits per second: by fair sharing (processor sharing) first, then by other orders.
/// Responses that would be under way at `until_ns` have their time until then.
pub fn times(sent: &[SentResponse], bits_per_second: u64, until_ns: u64) -> TimesByOrder {
    let (Some(first), Some(rate)) = (sent.first(), Rate::from_bits_per_second(bits_per_second)) else {
        return Vec::new();
    };
    let (link, wire) = (Link::constant(rate), WireModel::KEPT_ALIVE);
    let end_ns = until_ns.saturating_sub(first.ready_ns);
    let requests: Vec<_> = sent
        .iter()
        .map(|it| Request {
            at_ns: it.ready_ns.saturating_sub(first.ready_ns),
            file: 0,
            size_bytes: it.body_bytes,
            group: 0,
        })
        .collect();
    let all_bytes: u64 = requests.iter().map(|it| wire.bytes_for(it.size_bytes)).sum();
    // A link that takes turns does no more of them for large responses: they get coarser.
    let chunk = Chunk::Bytes((all_bytes / MOST_TURNS).max(TURN_BYTES));
    let ordered = |order: Order, guard_stretch: Option<f64>| {
        let takes_turns = matches!(order, Order::Las | Order::QuickFix) || guard_stretch.is_some();
        let pacing = if takes_turns { Pacing { chunk, ..Pacing::EXACT } } else { Pacing::EXACT };
        Ordered::new(&link, &wire, Settings { order, guard_stretch, pacing, ..Settings::default() })
    };
    let mut all = vec![("fair".to_owned(), run(ProcessorSharing::new(&link, &wire), &requests, end_ns))];
    for order in COMPARED {
        all.push((order.to_string(), run(ordered(order, None), &requests, end_ns)));
    }
    let guarded = run(ordered(Order::Srpt, Some(Policy::GUARD_STRETCH)), &requests, end_ns);
    all.insert(2, (Policy::Guarded.name().to_owned(), guarded));
    all
}

/// The time of each request, at most until `end_ns`.
fn run(mut model: impl Model, requests: &[Request], end_ns: u64) -> Vec<f64> {
    let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
    let mut times: Vec<_> = requests.iter().map(|it| seconds(it.at_ns, end_ns)).collect();
    let mut go_on_to = |model: &mut dyn Model, now_ns| {
        while let Some(ended) = model.poll_end(now_ns) {
            let at = ended.ticket.0 as usize;
            times[at] = seconds(requests[at].at_ns, ended.end_ns.min(end_ns));
        }
    };
    for (number, request) in requests.iter().enumerate() {
        go_on_to(&mut model, request.at_ns);
        model.handle_request(request.at_ns, Ticket(number as u32), request);
    }
    while let Some(now_ns) = model.poll_timeout().filter(|&now_ns| now_ns <= end_ns) {
        go_on_to(&mut model, now_ns);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn sent(ready_ns: u64, body_bytes: u64) -> SentResponse {
        SentResponse { ready_ns, body_bytes, send_ns: None }
    }

    fn of<'a>(all: &'a TimesByOrder, order: &str) -> &'a [f64] {
        &all.iter().find(|(name, _)| name == order).unwrap_or_else(|| panic!("no {order}")).1
    }

    fn about(time: f64, expected: f64) {
        assert!((expected..expected * 1.1).contains(&time), "{time} and not {expected}");
    }

    #[test]
    fn two_responses_at_once_have_what_the_order_gives_them() {
        assert!(times(&[], 8_000_000, S).is_empty());
        // One MB a second, and some for headers.
        let all = times(&[sent(5, 1_000_000), sent(5, 100_000)], 8_000_000, 100 * S);
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["fair", "srpt", "srpt-guard-3", "fsp", "las", "fifo", "quick-fix"]);
        // Each has half of the link: the small one takes twice its time.
        about(of(&all, "fair")[1], 0.2);
        about(of(&all, "fair")[0], 1.1);
        for order in ["srpt", "fsp", "srpt-guard-3"] {
            about(of(&all, order)[1], 0.1);
            about(of(&all, order)[0], 1.1);
        }
        about(of(&all, "fifo")[1], 1.1);
        about(of(&all, "fifo")[0], 1.0);
        about(of(&all, "las")[1], 0.2);
    }

    #[test]
    fn what_is_not_sent_by_then_has_waited_until_then() {
        let all = times(&[sent(S, 10_000_000), sent(S, 100_000)], 8_000_000, 3 * S);
        for (order, times) in &all {
            assert!((times[0] - 2.0).abs() < 1e-6, "{order}: {times:?}");
        }
        about(of(&all, "srpt")[1], 0.1);
        assert!((of(&all, "fifo")[1] - 2.0).abs() < 1e-6, "it is behind the large one");
    }

    #[test]
    fn large_responses_do_not_make_it_longer() {
        let begun = std::time::Instant::now();
        let huge: Vec<_> = (0..20).map(|at| sent(at * S, 50_000_000_000)).collect();
        let all = times(&huge, 1_000_000_000, 100_000 * S);
        assert_eq!(all.len(), 7);
        // Turns of a segment each would be 700 million.
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }
}

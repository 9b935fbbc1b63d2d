//! What responses would have had under fair sharing, for the page of the admin address.

use recent::SentResponse;
use workload::{
    ideal,
    rate::{Link, Rate},
    sequence::Request,
    wire::WireModel,
};

/// The mean time from ready to sent that these responses, in the order in which they were ready, would have if all of them
/// shared a link of so many bits per second equally (processor sharing), in seconds; `None`: there are none.
pub fn mean_s(sent: &[SentResponse], bits_per_second: u64) -> Option<f64> {
    let first_ns = sent.first()?.ready_ns;
    let link = Link::constant(Rate::from_bits_per_second(bits_per_second)?);
    let request = |sent: &SentResponse| Request {
        at_ns: sent.ready_ns.saturating_sub(first_ns),
        file: 0,
        size_bytes: sent.body_bytes,
        group: 0,
    };
    let requests: Vec<_> = sent.iter().map(request).collect();
    let times_ns = ideal::ps(&requests, &link, &WireModel::KEPT_ALIVE);
    Some(times_ns.iter().sum::<f64>() / 1e9 / times_ns.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_responses_at_once_share_the_link() {
        let sent = |ready_ns, body_bytes| SentResponse { ready_ns, body_bytes, send_ns: 0 };
        assert_eq!(mean_s(&[], 8_000_000), None);
        // One MB a second. Alone, 100 KB take 0.1 s and some for headers.
        let alone = mean_s(&[sent(5, 100_000)], 8_000_000).unwrap();
        assert!((0.1..0.11).contains(&alone), "{alone}");
        // The small one takes twice its time, the large one waits for it once.
        let both = mean_s(&[sent(5, 100_000), sent(5, 1_000_000)], 8_000_000).unwrap();
        assert!((0.65..0.70).contains(&both), "{both}");
    }
}

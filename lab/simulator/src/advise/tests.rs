//! Tests with logs whose answer is known.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use workload::{
    ideal,
    rate::{Link, Rate},
    sequence::Request,
    trace::{Method, Name, Record},
    wire::WireModel,
};

use super::{
    report::{Level, Prediction, Verdict},
    *,
};

const SECOND: u64 = 1_000_000_000;
const HOUR_S: u64 = 3600;

/// An uplink of a million bytes a second, so that a byte takes a microsecond.
fn uplink() -> Rate {
    Rate::from_bits_per_second(8_000_000).unwrap()
}

/// A question with a fiftieth of that rate, for random traffic: hours of few requests.
fn slow() -> Question {
    Question { uplink: Rate::from_bits_per_second(160_000).unwrap(), ..question() }
}

/// A question that counts bodies only, so that a response costs its size.
fn question() -> Question {
    Question { wire: WireModel::BODY_ONLY, ..Question::new(uplink()) }
}

#[derive(Clone, Copy, Debug)]
struct Line {
    at_ns: u64,
    tick_ns: u64,
    size_bytes: Option<u64>,
}

fn line(at_ns: u64, size_bytes: u64) -> Line {
    Line { at_ns, tick_ns: 1, size_bytes: Some(size_bytes) }
}

fn each(lines: &[Line], mut give: impl FnMut(&Record<'_>)) {
    for (number, line) in lines.iter().enumerate() {
        give(&Record {
            number: number as u64 + 1,
            // A day in 1995.
            at_ns: 807_249_600 * SECOND + line.at_ns,
            tick_ns: line.tick_ns,
            object: Some(Name::Number(number as u64 % 100)),
            client: None,
            size_bytes: line.size_bytes,
            status: Some(200),
            method: Some(Method::Get),
            class: None,
        });
    }
}

fn plan(question: &Question, lines: &[Line]) -> Result<Plan, NotAdvisable> {
    let mut survey = Survey::new(question.clone());
    each(lines, |record| survey.add(record));
    Plan::new(survey)
}

fn advise(question: &Question, lines: &[Line]) -> Advice {
    let plan = plan(question, lines).unwrap();
    // Two batches, as two threads would have.
    let mut outcomes = Vec::new();
    for half in 0..2 {
        let mut batch = Batch::new(&plan, (0..plan.scenarios()).filter(|number| number % 2 == half));
        each(lines, |record| batch.add(record));
        outcomes.extend(batch.finish());
    }
    plan.advise(outcomes)
}

/// Random requests at a load of the slow uplink, over some minutes. One in a hundred has 200 kB, the others 1
/// to 10 kB.
fn traffic(load: f64, minutes: u64, seed: u64) -> Vec<Line> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut at_s = 0.0;
    let mut lines = Vec::new();
    while at_s < (minutes * 60) as f64 {
        let size = if rng.random_range(0..100) == 0 { 200_000 } else { rng.random_range(1_000..10_000) };
        lines.push(line((at_s * 1e9) as u64, size));
        at_s -= (1.0 - rng.random::<f64>()).ln() * (2_000.0 + 0.99 * 5_500.0) / 20_000.0 / load;
    }
    lines
}

fn mean_ms(prediction: &Prediction, policy: Policy) -> f64 {
    prediction.policies.iter().find(|of| of.policy == policy.name()).unwrap().response_ms.mean
}

#[test]
fn means_are_those_of_the_ideals_which_share_no_code_with_the_scheduler() {
    let lines = traffic(0.2, 60, 7);
    let advice = advise(&slow(), &lines);
    let busy = advice.predictions.iter().find(|prediction| (prediction.peak_load - 0.8).abs() < 1e-6).unwrap();
    let squeezed = |line: &Line| Request {
        at_ns: (line.at_ns as f64 / busy.growth) as u64,
        file: 0,
        size_bytes: line.size_bytes.unwrap(),
        group: 0,
    };
    let requests: Vec<Request> = lines.iter().map(squeezed).collect();
    let mean = |times: Vec<f64>| times.iter().sum::<f64>() / times.len() as f64 / 1e6;
    let paced = Link::constant(Rate::from_bits_per_second(159_200).unwrap());
    let fair = mean(ideal::ps(&requests, &Link::constant(slow().uplink), &WireModel::BODY_ONLY));
    let srpt = mean(ideal::srpt(&requests, &paced, &WireModel::BODY_ONLY));
    for (policy, ideal) in [(Policy::Fair, fair), (Policy::Srpt, srpt)] {
        let mean = mean_ms(busy, policy);
        assert!((mean / ideal - 1.0).abs() < 0.001, "{policy}: {mean} ms, ideally {ideal}");
    }
    assert_eq!(busy.requests, lines.len() as u64);
    assert!(fair > 1.5 * srpt, "the load is one at which the order matters: {fair} and {srpt}");
}

#[test]
fn requests_that_never_meet_take_what_they_take_alone() {
    // Half a second of work every ten seconds is 5 % of the uplink, and no response ever waits for another.
    let lines: Vec<Line> = (0..1000).map(|i| line(i * 10 * SECOND, 500_000)).collect();
    let advice = advise(&question(), &lines);
    let today = &advice.predictions[0];
    assert!((today.peak_load - 0.05).abs() < 0.001 && (advice.load.mean - 0.05).abs() < 0.001, "{today:?}");
    assert!((mean_ms(today, Policy::Fair) - 500.0).abs() < 0.01);
    for policy in Policy::ALL.into_iter().skip(1) {
        // Serpent leaves half a percent of the uplink unused.
        assert!((mean_ms(today, policy) - 500.0 / 0.995).abs() < 0.01, "{policy}");
    }
    assert_eq!(today.policies[0].slowdown.p99, 1.0);
    assert_eq!(advice.recommendation.verdict, Verdict::Nothing);
    assert!(advice.recommendation.headline.contains("would do nothing"), "{}", advice.recommendation.headline);
}

#[test]
fn who_gains_and_who_loses_is_told_request_by_request() {
    // Every minute has a response of one second and, while it is sent, ten of a hundredth of a second.
    // Computed by hand, fair sharing takes 1.1 s for the large one and 20 ms for each small one. Shortest
    // first takes 1.1 s and 10 ms, each over 0.995.
    let minute = |i: u64| {
        let small = (1..=10).map(move |n| line(i * 60 * SECOND + n * SECOND / 20, 10_000));
        std::iter::once(line(i * 60 * SECOND, 1_000_000)).chain(small)
    };
    let lines: Vec<Line> = (0..600).flat_map(minute).collect();
    let advice = advise(&question(), &lines);
    let [fair, srpt] = [0, 1].map(|policy| &advice.predictions[0].policies[policy]);
    let close = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.001, "{value}, not {expected}");
    close(fair.by_size[0].mean_ms, 20.0);
    close(fair.by_size[1].mean_ms, 1100.0);
    close(srpt.by_size[0].over_fair, 0.5 / 0.995);
    close(srpt.by_size[1].over_fair, 1.0 / 0.995);
    close(srpt.by_size[0].share, 10.0 / 11.0);
    close(srpt.by_size[0].bytes, 0.1 / 1.1);
    close(srpt.slowdown.p50, 1.0 / 0.995);
    close(fair.slowdown.p50, 2.0);
    assert_eq!((srpt.by_size[0].from_bytes, srpt.by_size[0].below_bytes), (10_000, Some(100_000)));
    assert_eq!(srpt.losers.share, 0.0, "half a percent longer is no loss");
    assert_eq!(srpt.largest[2].from_bytes, 1_000_000);
    assert_eq!(srpt.largest[2].requests, 600);
    close(srpt.mean_over_fair.value, (10.0 * 10.0 + 1100.0) / (10.0 * 20.0 + 1100.0) / 0.995);
}

#[test]
fn a_busy_site_is_told_to_schedule_and_an_idle_one_when_it_will_have_to() {
    let busy = advise(&slow(), &traffic(0.85, 30, 1));
    assert_eq!(busy.recommendation.verdict, Verdict::Worthwhile, "{:?}", busy.recommendation);
    assert_eq!(busy.recommendation.enforce, "server");

    let idle = advise(&slow(), &traffic(0.1, 60, 2));
    assert_eq!(idle.recommendation.verdict, Verdict::Nothing);
    let when = &idle.recommendation.reasons[0];
    assert!(when.starts_with("It becomes worth it at"), "{when}");
    assert!(
        idle.recommendation.heading().contains("nothing to change today")
            && idle.recommendation.configuration.is_some()
    );
    let peaks: Vec<f64> = idle.predictions.iter().map(|prediction| prediction.peak_load).collect();
    assert!(peaks.is_sorted() && (peaks[peaks.len() - 1] - 0.95).abs() < 1e-6, "{peaks:?}");
    // The mean rises with the load under every policy.
    for policy in Policy::ALL {
        assert!(idle.predictions.iter().map(|prediction| mean_ms(prediction, policy)).is_sorted(), "{policy}");
    }
}

#[test]
fn an_uplink_that_cannot_have_carried_the_log_is_refused_in_words() {
    let lines = traffic(1.5, 10, 3);
    let advice = advise(&slow(), &lines);
    assert_eq!(advice.recommendation.verdict, Verdict::Overloaded);
    assert!(
        advice.recommendation.headline.contains("times what 160kbit can carry"),
        "{}",
        advice.recommendation.headline
    );
    assert_eq!(advice.certainty.level, Level::Low);
    assert_eq!(advice.predictions.len(), 1, "no growth beyond it");
}

#[test]
fn an_overload_that_does_not_end_is_broken_off() {
    // 150,000 requests at once, on an uplink that takes minutes for each.
    let slowest = Question { uplink: Rate::from_bits_per_second(8_000).unwrap(), ..question() };
    let lines: Vec<Line> = (0..150_000).map(|i| line(i, 100_000)).collect();
    let advice = advise(&slowest, &lines);
    assert!(advice.predictions[0].overloaded && advice.predictions[0].policies.is_empty());
    assert_eq!((advice.recommendation.verdict, advice.certainty.level), (Verdict::Overloaded, Level::Low));
    assert_eq!(advice.predictions[0].most_at_once, 100_000);
}

#[test]
fn large_responses_that_suffer_are_given_a_promise() {
    // Small responses leave only a twentieth of the uplink. Under fair sharing a large one gets all of that;
    // under srpt it gets that minus the 3 % that are left unused here.
    let part = |i: u64| {
        let from_ns = i * 40 * SECOND;
        let small = (1..=3800).map(move |n| line(from_ns + n * SECOND / 95, 10_000));
        std::iter::once(line(from_ns, 300_000)).chain(small)
    };
    let lines: Vec<Line> = (0..3).flat_map(part).collect();
    let advice = advise(&Question { utilisation: 0.97, ..question() }, &lines);
    let srpt = &advice.predictions[0].policies[1];
    assert!(srpt.largest[0].requests == 3 && srpt.largest[0].over_fair > 2.0, "{:?}", srpt.largest);
    assert_eq!(srpt.losers.latest.map(|loser| loser.size_bytes), Some(300_000));
    let chosen = &advice.recommendation;
    let why = chosen.reasons.join(" ");
    assert!(chosen.order == "fsp" || chosen.guard.is_some() || why.contains("take fsp"), "{chosen:#?}");
    assert!(why.contains("would suffer"), "{why}");
}

#[test]
fn what_a_single_response_suffers_is_told_with_the_bounds_that_are_too_much() {
    // Small responses leave three tenths of the uplink. A large one takes some 167 s under fair sharing and
    // 185 s under srpt at 97 % of the rate.
    let part = |i: u64| {
        let from_ns = i * 400 * SECOND;
        let small = (1..=16_800).map(move |n| line(from_ns + n * SECOND / 70, 10_000));
        std::iter::once(line(from_ns, 50_000_000)).chain(small)
    };
    let lines: Vec<Line> = (0..3).flat_map(part).collect();
    let advice = advise(&Question { utilisation: 0.97, ..question() }, &lines);
    let srpt = &advice.predictions[0].policies[1];
    let loser = srpt.losers.latest.unwrap();
    assert!(loser.longer_ms() < 30_000.0 && loser.longer_ms() > 10_000.0, "{loser:?}");
    let why = advice.recommendation.reasons.join(" ");
    assert!(!why.contains("suffers"), "{why}");
    assert!(why.contains("no single response takes both 1.50 times as long and 30 s longer"), "{why}");
}

#[test]
fn stamps_of_a_second_are_spread_and_what_that_matters_is_measured() {
    let mut lines = traffic(0.6, 20, 4);
    let fine = advise(&slow(), &lines);
    assert_eq!(fine.spreading, None);
    for line in &mut lines {
        (line.at_ns, line.tick_ns) = (line.at_ns / SECOND * SECOND, SECOND);
    }
    let coarse = advise(&slow(), &lines);
    let spreading = coarse.spreading.as_ref().unwrap();
    let names: Vec<&str> = spreading.tried.iter().map(|tried| tried.spread.as_str()).collect();
    assert_eq!(names, ["at random, seed 1", "at random, seed 2", "at equal distances", "all at once"]);
    let means: Vec<f64> = spreading.tried.iter().map(|tried| tried.fair_mean_ms).collect();
    assert!(means[2] < means[0] && means[0] < means[3], "the more at once, the longer: {means:?}");
    assert!(coarse.certainty.reasons.iter().any(|reason| reason.contains("written to the second")), "{coarse:#?}");
    // The traffic was random before its times were cut to seconds, so random spreading finds the same mean.
    let [was, is] = [&fine, &coarse].map(|advice| mean_ms(&advice.predictions[0], Policy::Fair));
    assert!((is / was - 1.0).abs() < 0.1, "{is} ms, and {was} with exact times");
    assert_eq!(coarse.predictions, advise(&slow(), &lines).predictions, "a seed decides everything");
    let other = advise(&Question { seed: 9, ..slow() }, &lines);
    assert_ne!(other.predictions, coarse.predictions);
}

#[test]
fn without_sizes_those_of_another_site_are_assumed_and_it_says_so() {
    let mut lines = traffic(0.3, 20, 5);
    lines.iter_mut().for_each(|line| line.size_bytes = None);
    let advice = advise(&slow(), &lines);
    assert!(!advice.log.has_sizes && advice.log.answers_without_size == 1.0);
    assert_eq!(advice.certainty.level, Level::Low);
    assert!(advice.certainty.reasons[0].contains("tells no sizes"), "{:?}", advice.certainty);
    // A hundred objects, each of one size.
    assert!(advice.sizes.p50_bytes > 100 && advice.sizes.largest_bytes < 2_000_001, "{:?}", advice.sizes);
    let of_object = |seed| {
        let mut sizes = Vec::new();
        each(&lines[..200], |record| sizes.push(survey::Sizes::Assumed { seed }.of(record)));
        sizes
    };
    assert_eq!(of_object(1)[..100], of_object(1)[100..], "an object has one size");
    assert_ne!(of_object(1), of_object(2));

    // One record has a size, so the log tells sizes. The other records count as empty.
    lines[77].size_bytes = Some(5000);
    let one = self::advise(&slow(), &lines);
    assert!(one.log.has_sizes && one.sizes.largest_bytes == 5000, "{:?}", one.sizes);
}

#[test]
fn of_a_long_log_the_busiest_hours_are_simulated() {
    let day = |hour: u64| {
        traffic(if hour == 13 { 0.6 } else { 0.02 }, 60, hour)
            .into_iter()
            .map(move |l| Line { at_ns: l.at_ns + hour * HOUR_S * SECOND, ..l })
    };
    let lines: Vec<Line> = (0..24).flat_map(day).collect();
    let busiest = lines.iter().filter(|line| line.at_ns / SECOND / HOUR_S == 13).count() as u64;
    let quick = Question { quick_requests: busiest, ..slow() };
    let advice = advise(&quick, &lines);
    assert!(!advice.simulated.whole);
    assert_eq!(advice.simulated.spans_unix_s, [(807_249_600.0 + 13.0 * 3600.0, 807_249_600.0 + 14.0 * 3600.0)]);
    assert_eq!((advice.simulated.requests, advice.predictions[0].requests), (busiest, busiest));
    assert_eq!(advice.log.requests, lines.len() as u64, "facts are of the whole log");
    assert!((advice.predictions[0].load - 0.6).abs() < 0.05, "{}", advice.predictions[0].load);
    assert!(advice.certainty.reasons.iter().any(|reason| reason.contains("busiest hours")));

    let whole = plan(&Question { part: Part::Whole, ..quick.clone() }, &lines).unwrap();
    assert_eq!(whole.expected_requests(), lines.len() as u64);
    let window = Part::Window(2 * HOUR_S * SECOND, 4 * HOUR_S * SECOND);
    let window = advise(&Question { part: window, ..quick }, &lines);
    assert_eq!(window.log.requests + window.log.outside_window, lines.len() as u64);
    assert!(window.load.peak < 0.1 && window.simulated.whole, "the busy hour is outside: {:?}", window.load);
}

#[test]
fn what_lies_between_the_busiest_hours_is_no_part_of_their_load() {
    let day = |hour: u64| {
        traffic(if [3, 13].contains(&hour) { 0.6 } else { 0.02 }, 60, hour)
            .into_iter()
            .map(move |l| Line { at_ns: l.at_ns + hour * HOUR_S * SECOND, ..l })
    };
    let lines: Vec<Line> = (0..24).flat_map(day).collect();
    let busiest = lines.iter().filter(|line| [3, 13].contains(&(line.at_ns / SECOND / HOUR_S))).count() as u64;
    let advice = advise(&Question { quick_requests: busiest, ..slow() }, &lines);
    assert_eq!((advice.simulated.spans_unix_s.len(), advice.simulated.requests), (2, busiest));
    for prediction in &advice.predictions {
        let load = 0.6 * prediction.growth;
        assert!((prediction.load / load - 1.0).abs() < 0.1, "{} for {load}", prediction.load);
    }
}

#[test]
fn a_log_with_nothing_to_order_is_refused() {
    let empty: Vec<Line> = (0..10).map(|i| line(i * SECOND, 0)).collect();
    assert_eq!(plan(&question(), &empty).unwrap_err(), NotAdvisable::NoBodies { requests: 10 });
    let outside = Question { part: Part::Window(HOUR_S * SECOND, 2 * HOUR_S * SECOND), ..question() };
    assert_eq!(plan(&outside, &empty).unwrap_err(), NotAdvisable::Nothing { outside_window: 10 });
    assert!(NotAdvisable::Nothing { outside_window: 10 }.to_string().contains("counts from the first record"));
}

#[test]
fn one_request_and_requests_of_one_size_are_advised_on_too() {
    for lines in [vec![line(0, 1000)], (0..300).map(|i| line(i, 1000)).collect()] {
        let advice = advise(&question(), &lines);
        assert!(advice.predictions.iter().all(|p| p.policies.iter().all(|of| of.response_ms.mean.is_finite())));
        assert_eq!(advice.certainty.level, Level::Low);
        serde_json::to_string(&advice).unwrap();
    }
}

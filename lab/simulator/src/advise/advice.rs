//! Turns the predictions of the scenarios into advice.

use super::{
    Advice, Plan, Policy,
    batch::Outcome,
    certainty,
    plan::judged,
    report::{FORMAT, PolicyPrediction, Prediction, Recommendation, Spreading, Tried, Verdict},
    spread::Spread,
    words,
};

/// Below this load of the busiest hour, the uplink is idle nearly all of the time.
const IDLE: f64 = 0.3;
/// Gains below these are not noticed: milliseconds saved of the mean and of the 99th percentile.
const NOTICED_MS: (f64, f64) = (1.0, 10.0);
/// Ratio of the mean response time to that under fair sharing. Above `NO_GAIN` there is no gain, and above
/// `SMALL_GAIN` only a small one.
const NO_GAIN: f64 = 0.95;
const SMALL_GAIN: f64 = 0.8;
/// A guard is needed if the largest 1 % of the requests take on average this many times as long.
const LARGE_SUFFER: f64 = 1.25;
/// A guard is also needed if one request takes this many times as long and this many milliseconds longer.
const ONE_SUFFERS: (f64, f64) = (1.5, 30_000.0);
/// A guard is recommended only if it raises the mean response time by no more than this factor.
const PROMISE_COST: f64 = 1.15;
/// From this rate on, the processor time of the pacer is worth saving.
const FAST_BITS_PER_SECOND: u64 = 1_000_000_000;
/// The kernel's bands are recommended only if they raise the mean response time by no more than this factor.
const BANDS_COST: f64 = 1.1;

impl Plan {
    /// Makes the advice from the outcomes of the plan's scenarios. It takes each outcome once, in any order.
    pub fn advise(&self, mut outcomes: Vec<Outcome>) -> Advice {
        outcomes.sort_by_key(|outcome| outcome.number);
        let whole = |outcome: &&Outcome| outcome.scenario.policies.len() == Policy::ALL.len();
        let predictions: Vec<Prediction> = outcomes.iter().filter(whole).map(|o| o.prediction.clone()).collect();
        let spreading = self.spreading(&outcomes);
        let today = predictions.first();
        let growths: Vec<f64> = predictions.iter().filter(|p| !p.overloaded).map(|p| p.growth).collect();
        let judged = judged(&growths, self.site.load.peak);
        let judged = predictions.iter().find(|prediction| prediction.growth == judged).or(today);
        let question = &self.site.question;
        Advice {
            format: FORMAT,
            uplink_bits_per_second: question.uplink.bits_per_second(),
            utilisation: question.utilisation,
            seed: question.seed,
            log: self.site.log.clone(),
            sizes: self.site.size_facts.clone(),
            load: self.site.load.clone(),
            simulated: self.simulated(self.expected_requests()),
            recommendation: self.recommendation(&predictions, today, judged),
            certainty: certainty::judge(&self.site, self.spans.is_empty(), today, judged, spreading.as_ref()),
            spreading,
            predictions,
            leaves_out: leaves_out(),
        }
    }

    /// Compares the scenario that was repeated with other spreads of its times with those repetitions.
    fn spreading(&self, outcomes: &[Outcome]) -> Option<Spreading> {
        let tried = |outcome: &Outcome| {
            let [fair, srpt] = [Policy::Fair, Policy::Srpt].map(|policy| outcome.prediction.policy(policy.name()));
            let spread = match outcome.scenario.spread {
                Spread::Random(seed) => format!("at random, seed {seed}"),
                Spread::Even => "at equal distances".to_owned(),
                Spread::Together => "all at once".to_owned(),
            };
            Some(Tried { spread, fair_mean_ms: fair?.response_ms.mean, srpt_mean_ms: srpt?.response_ms.mean })
        };
        let growth = outcomes.iter().find(|o| o.scenario.policies.len() < Policy::ALL.len())?.scenario.growth;
        let alike = outcomes.iter().filter(|outcome| outcome.scenario.growth == growth);
        Some(Spreading { growth, tried: alike.filter_map(tried).collect() })
    }

    fn recommendation(
        &self,
        all: &[Prediction],
        today: Option<&Prediction>,
        judged: Option<&Prediction>,
    ) -> Recommendation {
        let site = &self.site;
        let uplink = site.question.uplink;
        let verdict = today.map_or(Verdict::Overloaded, verdict);
        let mut reasons = Vec::new();
        reasons.extend(when_it_matters(all, verdict));
        if let Some((prediction, srpt)) = judged.and_then(|judged| Some((judged, judged.policy(Policy::Srpt.name())?)))
        {
            reasons.extend(who_gains(prediction, srpt));
        }
        let ever = matches!(verdict, Verdict::Little | Verdict::Overloaded) || worthwhile(all).is_some();
        let (order, guard, why_order) = order(judged);
        let (enforce, why_enforce) = enforce(uplink.bits_per_second(), order, guard, judged);
        if ever {
            reasons.push(why_order);
            reasons.extend(why_enforce);
        }
        let configuration = || configuration(&uplink.to_string(), order, guard, enforce, &site.cutoffs_bytes);
        Recommendation {
            verdict,
            headline: headline(verdict, today, site.load.peak, uplink),
            reasons,
            order,
            guard,
            enforce,
            cutoffs_bytes: site.cutoffs_bytes.clone(),
            configuration: ever.then(configuration),
        }
    }
}

fn verdict(prediction: &Prediction) -> Verdict {
    let (Some(fair), Some(srpt)) = (prediction.policy(Policy::Fair.name()), prediction.policy(Policy::Srpt.name()))
    else {
        return Verdict::Overloaded;
    };
    let saved_ms = fair.response_ms.mean - srpt.response_ms.mean;
    let saved_p99_ms = fair.response_ms.p99 - srpt.response_ms.p99;
    let ratio = srpt.mean_over_fair.value;
    let noticed = saved_ms > NOTICED_MS.0 || saved_p99_ms > NOTICED_MS.1;
    match prediction.peak_load {
        peak if peak > 1.0 => Verdict::Overloaded,
        _ if ratio > NO_GAIN || !noticed => Verdict::Nothing,
        // The uplink is idle, so only bursts can gain, and only a large gain counts.
        peak if peak < IDLE && saved_ms < 10.0 * NOTICED_MS.0 => Verdict::Nothing,
        peak if peak < IDLE || ratio > SMALL_GAIN => Verdict::Little,
        _ => Verdict::Worthwhile,
    }
}

fn headline(verdict: Verdict, today: Option<&Prediction>, peak: f64, uplink: impl std::fmt::Display) -> String {
    let Some((fair, srpt)) =
        today.and_then(|today| Some((today.policy(Policy::Fair.name())?, today.policy(Policy::Srpt.name())?)))
    else {
        return format!(
            "More than {uplink} can carry for long: so many requests would be waiting at once that nobody would. This \
             cannot be the uplink of this log. Give its true rate."
        );
    };
    let [before, after] = words::times(fair.response_ms.mean, srpt.response_ms.mean);
    let full = words::percent(peak);
    match verdict {
        Verdict::Overloaded => format!(
            "The busiest hour of the log holds {peak:.2} times what {uplink} can carry: either this is not the uplink of this \
             log, or not all of it went this way. Give the true rate; the figures below are those of an overload."
        ),
        Verdict::Nothing => format!(
            "Scheduling would do nothing that anybody notices today: in its busiest hour the uplink is {full} full, and the \
             mean response time would go from {before} to {after}."
        ),
        Verdict::Little => format!(
            "Scheduling would do a little today: the mean response time would go from {before} to {after}, with the uplink \
             {full} full in its busiest hour."
        ),
        Verdict::Worthwhile => format!(
            "Scheduling is worth it today: the mean response time would go from {before} to {after}, with the uplink {full} \
             full in its busiest hour."
        ),
    }
}

/// Returns the prediction at the lowest load at which scheduling is worthwhile.
fn worthwhile(all: &[Prediction]) -> Option<&Prediction> {
    all.iter().find(|prediction| verdict(prediction) == Verdict::Worthwhile)
}

/// Says from which growth of the traffic on scheduling is worthwhile.
fn when_it_matters(all: &[Prediction], today: Verdict) -> Option<String> {
    if matches!(today, Verdict::Worthwhile | Verdict::Overloaded) {
        return None;
    }
    Some(match worthwhile(all) {
        Some(from) => {
            let mean = |policy: Policy| from.policy(policy.name()).map_or(0.0, |of| of.response_ms.mean);
            let [srpt, fair] = words::times(mean(Policy::Srpt), mean(Policy::Fair));
            format!(
                "It becomes worth it at {} times today's traffic (peak load {:.2}): mean {srpt} instead of {fair}.",
                words::digits(from.growth),
                from.peak_load,
            )
        }
        None => "It does not become worth it either if traffic grows until the uplink is nearly full.".to_owned(),
    })
}

fn who_gains(prediction: &Prediction, srpt: &PolicyPrediction) -> Vec<String> {
    let at = if prediction.growth == 1.0 {
        "Today".to_owned()
    } else {
        format!("At {} times today's traffic (peak load {:.2})", words::digits(prediction.growth), prediction.peak_load)
    };
    let sum = |classes: &[&super::report::SizeClass]| {
        classes.iter().fold((0.0, 0.0), |(share, bytes), class| (share + class.share, bytes + class.bytes))
    };
    let faster: Vec<_> = srpt.fine_by_size.iter().filter(|class| class.over_fair < 0.99).collect();
    let slower: Vec<_> = srpt.fine_by_size.iter().filter(|class| class.over_fair > 1.01).collect();
    let (requests, bytes) = sum(&faster);
    let mut said = vec![format!(
        "{at}, under srpt, sizes with {} of the requests and {} of the bytes become faster on average.",
        words::percent(requests),
        words::percent(bytes)
    )];
    if let Some(first) = slower.first() {
        let (requests, bytes) = sum(&slower);
        let most = slower.iter().map(|class| class.over_fair).fold(1.0, f64::max);
        said.push(format!(
            "Sizes that become slower on average begin at {} ({} of the requests, {} of the bytes); the most affected \
             class takes {} times as long.",
            words::bytes(first.from_bytes as f64),
            words::percent(requests),
            words::percent(bytes),
            words::digits(most)
        ));
    }
    if let Some(worst) = srpt.losers.latest {
        let [response, fair] = words::times(worst.response_ms, worst.fair_ms);
        said.push(format!(
            "{} of the single responses lose more than a tenth; the one that loses most time has {} and takes {response} instead of {fair}.",
            words::percent(srpt.losers.share),
            words::bytes(worst.size_bytes as f64),
        ));
    }
    said
}

/// Recommends an order and a guard, with the reason.
fn order(judged: Option<&Prediction>) -> (&'static str, Option<f64>, String) {
    let policy = |policy: Policy| judged.and_then(|judged| judged.policy(policy.name()));
    let Some(srpt) = policy(Policy::Srpt) else {
        return ("srpt", None, "srpt has the lowest mean response time that any order can have.".to_owned());
    };
    let mean = |of: &PolicyPrediction| of.response_ms.mean;
    let suffers = |of: &PolicyPrediction| {
        let (times, longer_ms) = ONE_SUFFERS;
        let one = of.losers.latest.is_some_and(|one| one.stretch() > times && one.longer_ms() > longer_ms);
        one || of.largest.first().is_some_and(|largest| largest.over_fair > LARGE_SUFFER)
    };
    let fsp = policy(Policy::Fsp);
    let cost = |of: &PolicyPrediction| words::percent((mean(of) / mean(srpt) - 1.0).max(0.0));
    if !suffers(srpt) {
        let fsp = fsp.map(|fsp| {
            format!(
                " fsp, under which hardly any response is later than under fair sharing, would cost {} of the mean.",
                cost(fsp)
            )
        });
        let largest = srpt.largest.first().map(|largest| {
            let (times, longer_ms) = ONE_SUFFERS;
            format!(
                ": the largest 1 % take {} times as long on average ({} is taken for too much), and no single response takes \
                 both {} times as long and {} longer",
                words::digits(largest.over_fair),
                words::digits(LARGE_SUFFER),
                words::digits(times),
                words::time(longer_ms)
            )
        });
        let (largest, fsp) = (largest.unwrap_or_default(), fsp.unwrap_or_default());
        return ("srpt", None, format!("srpt without a guard{largest}.{fsp}"));
    }
    let affordable = |of: &&PolicyPrediction| mean(of) <= mean(srpt) * PROMISE_COST && !suffers(of);
    if let Some(fsp) = fsp.filter(affordable) {
        let why = format!(
            "fsp rather than srpt: some large responses would suffer, and a promise to them costs only {} of the mean.",
            cost(fsp)
        );
        return ("fsp", None, why);
    }
    if let Some(guarded) = policy(Policy::Guarded).filter(affordable) {
        let why = format!(
            "srpt with a guard: some large responses would suffer, and putting them ahead after {} times their fair time \
             costs {} of the mean.",
            Policy::GUARD_STRETCH,
            cost(guarded)
        );
        return ("srpt", Some(Policy::GUARD_STRETCH), why);
    }
    let costs = [("fsp", fsp), ("a guard", policy(Policy::Guarded))];
    let costs: Vec<String> =
        costs.iter().filter_map(|(name, of)| of.map(|of| format!("{name} {}", cost(of)))).collect();
    let why = format!(
        "srpt without a guard, though some large responses would suffer: what would protect them costs too much of the mean, \
         or does not help ({}). If they matter more than the rest, take fsp.",
        costs.join(", ")
    );
    ("srpt", None, why)
}

/// Recommends the part that enforces the order, with the reason.
fn enforce(
    bits_per_second: u64,
    order: &str,
    guard: Option<f64>,
    judged: Option<&Prediction>,
) -> (&'static str, Option<String>) {
    let means =
        judged.and_then(|judged| Some((judged.policy(Policy::Banded.name())?, judged.policy(Policy::Srpt.name())?)));
    let Some(cost) = means.map(|(banded, srpt)| banded.response_ms.mean / srpt.response_ms.mean) else {
        return ("server", None);
    };
    let loses = words::percent((cost - 1.0).max(0.0));
    if order == "srpt" && guard.is_none() && bits_per_second >= FAST_BITS_PER_SECOND && cost <= BANDS_COST {
        let why = format!(
            "Enforced by the kernel's bands: at this rate they save processor time, and cost {loses} of the mean against \
             the exact order. They need `serpent attach` once; enforce = \"server\" needs nothing."
        );
        return ("kernel", Some(why));
    }
    let why = format!(
        "Enforced by the server, which needs no privileges and keeps the exact order. The kernel's bands, with borders learned \
         from these sizes, would cost {loses} of the mean."
    );
    ("server", Some(why))
}

fn configuration(rate: &str, order: &str, guard: Option<f64>, enforce: &str, cutoffs: &[u64]) -> String {
    let cutoffs = cutoffs.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let attach = format!("serpent attach DEV --rate {rate} --ports 80,443 --cutoffs {cutoffs}");
    let guard = guard.map_or("\"off\"".to_owned(), |stretch| stretch.to_string());
    let borders = match enforce {
        "kernel" => format!("# Once, as root:\n# {attach}\n"),
        _ => format!("# If you change to enforce = \"kernel\", once, as root:\n# {attach}\n"),
    };
    format!(
        "[uplink]\nrate = \"{rate}\"\norder = \"{order}\"\nenforce = \"{enforce}\"\nguard = {guard}\n{borders}\n\
         [[site]]\n# The directory to serve.\nroot = \".\"\n"
    )
}

fn leaves_out() -> Vec<String> {
    [
        "Round trips, slow start and lost packets: they add to every response under every policy, so real ratios are nearer to 1 \
         than these; the time saved at the uplink is about the same.",
        "Clients whose own line is slower than their share of the uplink, and the server's processor and disk: no order of the \
         uplink helps them.",
        "What visitors do: nobody gives up, and nobody asks for more because answers come sooner. A transfer that was broken off \
         counts with what was sent of it.",
        "Whatever else goes over the uplink and is not in the log.",
    ]
    .map(str::to_owned)
    .to_vec()
}

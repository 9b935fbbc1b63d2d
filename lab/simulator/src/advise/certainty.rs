//! Judges how certain the advice is.

use super::{
    Policy,
    report::{Certainty, Level, Prediction, Spreading},
    survey::Site,
    words,
};

/// Widths of the confidence interval, as fractions of the ratio. Up to `SURE` the ratio is certain; up to
/// `USEFUL` it is still useful.
const SURE: f64 = 0.15;
const USEFUL: f64 = 0.4;
/// Numbers of requests: heavy-tailed sizes need `MANY`, and `FEW` are too few for them.
const MANY: u64 = 20_000;
const FEW: u64 = 1_000;
/// A larger growth of the traffic makes bursts denser than real growth would.
const FAR: f64 = 5.0;
const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 24.0 * HOUR_S;

/// Collects the reasons for and against the advice.
pub(super) fn judge(
    site: &Site,
    whole: bool,
    today: Option<&Prediction>,
    judged: Option<&Prediction>,
    spreading: Option<&Spreading>,
) -> Certainty {
    let span_s = site.span.seconds();
    let mut reasons: Vec<(Level, String)> = [sizes(site), heads(site), lines(site)].into_iter().flatten().collect();
    reasons.extend(spreading.and_then(|spreading| stamps(site, spreading)));
    if span_s < DAY_S {
        let level = if span_s < HOUR_S { Level::Low } else { Level::Medium };
        reasons.push((level, format!("The log covers {}: other hours and days may differ.", duration(span_s))));
    }
    if !whole {
        let text = "Only the busiest hours were simulated: over the whole day means are lower and gains smaller. Ask for \
                    the whole log with --window whole.";
        reasons.push((Level::High, text.to_owned()));
    }
    let Some(judged) = judged.filter(|judged| !judged.overloaded) else {
        reasons.push((Level::Low, "With a rate that cannot carry the log there is nothing to predict.".to_owned()));
        return Certainty::of(reasons);
    };
    let level = match judged.requests {
        requests if requests < FEW => Level::Low,
        requests if requests < MANY => Level::Medium,
        _ => Level::High,
    };
    if level < Level::High {
        reasons.push((level, format!("Only {} requests: a few large responses decide the result.", judged.requests)));
    }
    if let Some(srpt) = judged.policy(Policy::Srpt.name()) {
        let ratio = srpt.mean_over_fair;
        let width = (ratio.high - ratio.low) / 2.0 / ratio.value.max(f64::MIN_POSITIVE);
        let text = format!(
            "The mean under srpt is {} of that under fair sharing at peak load {:.2}; from one tenth of the log to another \
             that varies so much that it may be {} to {} (95 % confidence).",
            words::digits(ratio.value),
            judged.peak_load,
            words::digits(ratio.low),
            words::digits(ratio.high)
        );
        reasons.push((by_width(width), text));
    }
    if judged.growth > FAR {
        let text = format!(
            "{} times today's traffic is made by squeezing time, which squeezes each visitor's own requests too: so many more \
             visitors would come less in bursts, and both means would be lower.",
            words::digits(judged.growth)
        );
        reasons.push((Level::Medium, text));
    }
    if today.is_some_and(|today| today.peak_load > 1.0) {
        reasons.push((Level::Low, "The log holds more than the uplink can carry.".to_owned()));
    }
    Certainty::of(reasons)
}

impl Certainty {
    /// The certainty is as high as its weakest reason. The weakest reason comes first.
    fn of(mut reasons: Vec<(Level, String)>) -> Self {
        reasons.sort_by_key(|&(level, _)| level);
        let level = reasons.first().map_or(Level::High, |&(level, _)| level);
        Self { level, reasons: reasons.into_iter().map(|(_, text)| text).collect() }
    }
}

fn by_width(width: f64) -> Level {
    match width {
        _ if width <= SURE => Level::High,
        _ if width <= USEFUL => Level::Medium,
        _ => Level::Low,
    }
}

fn sizes(site: &Site) -> Option<(Level, String)> {
    let missing = site.log.answers_without_size;
    if !site.log.has_sizes {
        let text = "The log tells no sizes. Those of the 1998 World Cup site were assumed, each object always of the same size: \
                    times of requests are yours, everything else is not. Log the bytes sent (%b) to know better.";
        return Some((Level::Low, text.to_owned()));
    }
    (missing > 0.001).then(|| {
        let level = if missing > 0.05 { Level::Medium } else { Level::High };
        let text = format!(
            "The log tells no size for {} of the answers that have one; they count as empty.",
            words::percent(missing)
        );
        (level, text)
    })
}

fn heads(site: &Site) -> Option<(Level, String)> {
    let estimated = site.load.estimated;
    let level = if estimated > 0.3 { Level::Medium } else { Level::High };
    let text = format!(
        "The log counts bodies. {} of the bytes on the uplink are heads (taken as {} bytes each) and packet headers, which \
         are estimated; connections are taken to be kept.",
        words::percent(estimated),
        site.question.wire.head_bytes
    );
    Some((level, text))
}

fn lines(site: &Site) -> Option<(Level, String)> {
    let share = site.log.broken_lines as f64 / (site.log.broken_lines + site.log.requests) as f64;
    (share > 0.01).then(|| {
        let level = if share > 0.1 { Level::Low } else { Level::Medium };
        (level, format!("{} of the lines could not be read.", words::percent(share)))
    })
}

/// Judges how much the times within a stamp matter. The effect is measured, not guessed.
fn stamps(site: &Site, spreading: &Spreading) -> Option<(Level, String)> {
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let ratios = || spreading.tried.iter().map(|tried| tried.srpt_mean_ms / tried.fair_mean_ms);
    let first = ratios().next()?;
    let (low, high) = range(&mut ratios());
    let (fair_low, fair_high) = range(&mut spreading.tried.iter().map(|tried| tried.fair_mean_ms));
    let text = format!(
        "Times are written to {}; requests were spread within that by chance (seed {}). With another seed, at equal distances, \
         and all at once, the mean under fair sharing at {} times today's traffic is {} to {}, and that under srpt is {} to \
         {} of it.",
        if site.tick_ns == 1_000_000_000 { "the second".to_owned() } else { duration(site.tick_ns as f64 / 1e9) },
        site.question.seed,
        words::digits(spreading.growth),
        words::time(fair_low),
        words::time(fair_high),
        words::digits(low),
        words::digits(high)
    );
    Some((by_width((high - low) / first), text))
}

fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 2.0 * HOUR_S => format!("{:.0} minutes", seconds / 60.0),
        _ if seconds < 2.0 * DAY_S => format!("{:.0} hours", seconds / HOUR_S),
        _ => format!("{:.0} days", seconds / DAY_S),
    }
}

//! An axis: the way its numbers are written, the positions of values on it, and its ticks.

use serde::Serialize;

/// An axis.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// Whether the axis is logarithmic. Values that are not positive are then left out.
    pub log: bool,
    /// Names instead of numbers. A value of x is then an index in this list.
    pub categories: Vec<String>,
    /// The way its numbers are written.
    pub unit: Unit,
}

/// The way numbers on an axis are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Plain numbers.
    #[default]
    Plain,
    /// Bytes, with a prefix.
    Bytes,
    /// Bits per second, with a prefix.
    BitsPerSecond,
    /// A share, in percent.
    Percent,
}

impl Axis {
    /// Formats a value for people.
    pub fn written(&self, value: f64) -> String {
        match self.categories.get(value.round() as usize) {
            Some(category) => category.clone(),
            None => written(value, self.unit),
        }
    }
}

/// An axis with a range. Positions are plain values or their logarithms, so the underlying chart is always
/// linear.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) until: f64,
    /// Positions with a line and a label.
    pub(super) ticks: Vec<f64>,
    log: bool,
}

impl Scale {
    /// A scale for `values`. With `zero` it begins at zero, unless it is logarithmic.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, zero: bool) -> Self {
        if !axis.categories.is_empty() {
            let ticks: Vec<f64> = (0..axis.categories.len()).map(|place| place as f64).collect();
            return Self { from: -0.5, until: ticks.len() as f64 - 0.5, ticks, log: false };
        }
        let drawn = values.filter(|value| value.is_finite() && (!axis.log || *value > 0.0));
        let (low, high) = drawn.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = match (low > high, axis.log) {
            (true, false) => (0.0, 1.0),
            (true, true) => (1.0, 10.0),
            (false, _) => (low, high),
        };
        if axis.log { Self::logarithmic(low, high) } else { Self::linear(if zero { low.min(0.0) } else { low }, high) }
    }

    fn linear(low: f64, high: f64) -> Self {
        let width = if high > low { high - low } else { high.abs().max(1.0) };
        let margin = width * 0.04;
        let (from, until) =
            (if low == 0.0 { 0.0 } else { low - margin }, if high > low { high } else { low + width } + margin);
        let step = nice_step(width / 6.0);
        let ticks =
            (((from / step).ceil() as i64)..=((until / step).floor() as i64)).map(|i| i as f64 * step).collect();
        Self { from, until, ticks, log: false }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let margin = ((high / low).log10() * 0.04).max(0.05);
        let (from, until) = (low.log10() - margin, high.log10() + margin);
        let decades = until - from;
        // A tick at each power of ten; at every second or third if there are many, and also between them if
        // there are few.
        let every = (decades / 8.0).ceil().max(1.0) as i64;
        let between: &[f64] = match decades {
            _ if decades < 1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            _ if decades < 2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let powers = (from.floor() as i64..=until.ceil() as i64).filter(|power| power % every == 0);
        let ticks = powers.flat_map(|power| between.iter().map(move |step| power as f64 + step.log10()));
        Self { from, until, ticks: ticks.filter(|place| (from..=until).contains(place)).collect(), log: true }
    }

    /// The position of a value. `None` if it cannot be drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.log { value.log10() } else { value };
        place.is_finite().then_some(place)
    }

    /// The position of an end of an interval or of the foot of a bar, cut off at the ends of the axis.
    pub(super) fn place_cut(&self, value: f64) -> f64 {
        let place = if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        place.clamp(self.from, self.until)
    }

    /// The label of a tick.
    pub(super) fn label(&self, place: f64, axis: &Axis) -> String {
        axis.written(if self.log { 10_f64.powf(place) } else { place })
    }
}

/// The next number above `least` that is 1, 2 or 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factor = least / power;
    power * [1.0, 2.0, 5.0].into_iter().find(|&nice| factor <= nice * (1.0 + 1e-9)).unwrap_or(10.0)
}

/// Formats a number with its unit, as short as is readable.
pub(super) fn written(value: f64, unit: Unit) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let &(scale, name) =
            steps.iter().find(|(scale, _)| value.abs() >= *scale * 0.9995).unwrap_or(&steps[steps.len() - 1]);
        format!("{} {name}", plain(value / scale))
    };
    match unit {
        Unit::Plain => plain(value),
        Unit::Bytes => scaled(&[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")]),
        Unit::BitsPerSecond => scaled(&[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")]),
        Unit::Percent => format!("{} %", plain(value * 100.0)),
    }
}

/// Formats a number with three significant digits, and with a power of ten above a hundred thousand and below
/// a thousandth.
fn plain(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude < 1e-12 {
        return "0".to_owned();
    }
    // A tick on a logarithmic axis is a computed power, which may be off in its last bit.
    let exponent = (magnitude.log10() + 1e-9).floor() as i32;
    if !(-3..=5).contains(&exponent) {
        let mantissa = value / 10_f64.powi(exponent);
        let power = superscript(exponent);
        return match (mantissa * 100.0).round() / 100.0 {
            1.0 => format!("10{power}"),
            mantissa => format!("{mantissa}×10{power}"),
        };
    }
    let text = format!("{value:.*}", (2 - exponent).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn superscript(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = |c: char| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    exponent.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis, values: &[f64], zero: bool) -> Vec<String> {
        let scale = Scale::new(&axis, values.iter().copied(), zero);
        scale.ticks.iter().map(|&tick| scale.label(tick, &axis)).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_few() {
        assert_eq!(labels(Axis::default(), &[0.5, 0.95], false), ["0.5", "0.6", "0.7", "0.8", "0.9"]);
        assert_eq!(labels(Axis::default(), &[3.0, 940.0], true), ["0", "200", "400", "600", "800"]);
        assert_eq!(labels(Axis::default(), &[], true), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_and_of_few_the_steps_between() {
        let log = || Axis { log: true, ..Axis::default() };
        assert_eq!(labels(log(), &[0.8, 12_000.0], false), ["1", "10", "100", "1000", "10000"]);
        assert_eq!(labels(log(), &[3.0, 140.0], false), ["5", "10", "20", "50", "100"]);
        assert_eq!(labels(log(), &[2.1, 6.0], false), ["2", "3", "4", "5"]);
        assert_eq!(labels(log(), &[1e-5, 1e-4], false)[0], "10⁻⁵");
        assert!(Scale::new(&log(), [0.0, -3.0].into_iter(), false).place(0.0).is_none());
    }

    #[test]
    fn values_have_their_unit() {
        assert_eq!([41.0, 1000.0, 9200.0, 2e6].map(|v| written(v, Unit::Bytes)), ["41 B", "1 kB", "9.2 kB", "2 MB"]);
        assert_eq!(written(1e7, Unit::BitsPerSecond), "10 Mbit/s");
        assert_eq!([0.995, 0.5].map(|v| written(v, Unit::Percent)), ["99.5 %", "50 %"]);
        assert_eq!([1e6, 2.5e7, 123_456.0].map(|v| written(v, Unit::Plain)), ["10⁶", "2.5×10⁷", "123456"]);
    }

    #[test]
    fn names_stand_in_the_middle_of_their_places() {
        let axis = Axis { categories: vec!["A".to_owned(), "B".to_owned()], ..Axis::default() };
        let scale = Scale::new(&axis, [].into_iter(), false);
        assert_eq!((scale.from, scale.until), (-0.5, 1.5));
        assert_eq!(labels(axis, &[], false), ["A", "B"]);
    }
}

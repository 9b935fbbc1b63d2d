//! The points of an experiment: every combination of its varied keys, each with all conditions.

use std::collections::BTreeMap;

use toml::Value;

use super::{Experiment, keys};
use crate::{LabError, record::Point, setting::Setting};

/// Most points of an experiment; more are probably a mistake.
const MOST_POINTS: usize = 10_000;

impl Experiment {
    /// The points: the named ones in their order, each with every combination of the sweep. Keys are in
    /// alphabetical order, and the last one varies fastest.
    ///
    /// A point's label is that of the named point, followed by the last part of each swept key and its value,
    /// as in `W1, load 0.8`. If two swept keys share their last part, the whole key is used. An experiment
    /// without variation has one point with the label `all`.
    pub fn points(&self) -> Result<Vec<Point>, LabError> {
        self.try_points().map_err(|wrong| LabError::Request(format!("{}: {wrong}", self.name)))
    }

    pub(super) fn try_points(&self) -> Result<Vec<Point>, String> {
        let combinations = self.combinations()?;
        let unnamed = [(String::new(), BTreeMap::new())];
        let named: Vec<(String, BTreeMap<String, Value>)> =
            self.points.iter().map(|point| (point.label.clone(), point.set.clone())).collect();
        let mut points = Vec::new();
        for (label, set) in if named.is_empty() { &unnamed[..] } else { &named[..] } {
            for combination in &combinations {
                points.push(self.point(label, set, combination)?);
            }
        }
        Ok(points)
    }

    fn point(
        &self,
        label: &str,
        set: &BTreeMap<String, Value>,
        combination: &[(&str, &Value)],
    ) -> Result<Point, String> {
        let mut labels: Vec<String> = Some(label.to_owned()).filter(|label| !label.is_empty()).into_iter().collect();
        labels.extend(combination.iter().map(|(key, value)| format!("{} {}", self.short(key), text(value))));
        let label = if labels.is_empty() { "all".to_owned() } else { labels.join(", ") };
        let wrong = |what: String| format!("point `{label}`: {what}");

        let mut table = self.setting.clone();
        let mut values = BTreeMap::new();
        for (key, value) in set.iter().map(|(key, value)| (key.as_str(), value)).chain(combination.iter().copied()) {
            keys::put(&mut table, key, value).map_err(wrong)?;
            if !matches!(value, Value::Array(_) | Value::Table(_)) {
                values.insert(key.to_owned(), text(value));
            }
        }
        Ok(Point { setting: read_setting(table).map_err(wrong)?, values, label })
    }

    /// Every combination of the sweep's values; a single empty one if nothing is swept.
    fn combinations<'a>(&'a self) -> Result<Vec<Vec<(&'a str, &'a Value)>>, String> {
        let count = self.sweep.values().map(Vec::len).try_fold(self.points.len().max(1), usize::checked_mul);
        if count.is_none_or(|count| count > MOST_POINTS) {
            return Err(format!("`sweep` makes more than {MOST_POINTS} points"));
        }
        let mut combinations = vec![Vec::new()];
        for (key, values) in &self.sweep {
            let longer = |combination: &[(&'a str, &'a Value)]| -> Vec<Vec<(&'a str, &'a Value)>> {
                values.iter().map(|value| [combination, &[(key.as_str(), value)]].concat()).collect()
            };
            combinations = combinations.iter().flat_map(|combination| longer(combination)).collect();
        }
        Ok(combinations)
    }

    /// The last part of a swept key, or the whole key if the last part is ambiguous.
    fn short<'a>(&self, key: &'a str) -> &'a str {
        let last = |key: &'a str| key.rsplit('.').next().unwrap_or(key);
        let same = self.sweep.keys().filter(|other| other.rsplit('.').next() == Some(last(key))).count();
        if same == 1 { last(key) } else { key }
    }
}

/// The keys of [`crate::setting::Intensity`].
const INTENSITIES: [&str; 3] = ["load", "pattern", "requests-per-second"];

/// Parses a setting; errors begin with the invalid key.
fn read_setting(mut table: toml::Table) -> Result<Setting, String> {
    if let Some(Value::Table(demand)) = table.get_mut("demand") {
        // Defaults, so that most experiments need not contain them.
        let kind = demand.entry("kind").or_insert_with(|| Value::String("open".to_owned())).as_str();
        let needs_intensity = matches!(kind, Some("open" | "sessions"));
        let given = INTENSITIES.iter().filter(|key| demand.contains_key(**key)).count();
        if needs_intensity && given != 1 {
            return Err(format!("`setting.demand` has to say how much is asked for: give one of {INTENSITIES:?}"));
        }
    }
    serde_path_to_error::deserialize::<_, Setting>(Value::Table(table)).map_err(|error| {
        let key = error.path().to_string();
        let what = error.into_inner().message().to_owned();
        if key == "." { what } else { format!("`setting.{key}`: {what}") }
    })
}

/// A value as text for a label.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::{DemandSetting, Intensity};

    fn experiment(text: &str) -> Experiment {
        let head = "name = 'x'\ntitle = 'y'\nsubjects = ['nginx']\n";
        Experiment::parse("x.toml", &format!("{head}{text}")).unwrap()
    }

    fn labels(text: &str) -> Vec<String> {
        experiment(text).points().unwrap().into_iter().map(|point| point.label).collect()
    }

    #[test]
    fn a_sweep_is_every_combination_in_the_order_of_the_keys() {
        assert_eq!(labels(""), ["all"]);
        assert_eq!(
            labels("[sweep]\n'link.rate' = ['10mbit', '100mbit']\n'demand.load' = [0.5, 0.7]"),
            ["load 0.5, rate 10mbit", "load 0.5, rate 100mbit", "load 0.7, rate 10mbit", "load 0.7, rate 100mbit"]
        );
        assert_eq!(
            labels("[sweep]\n'groups.0.share' = [1]\n'groups.1.share' = [2]"),
            ["groups.0.share 1, groups.1.share 2"]
        );
    }

    #[test]
    fn named_points_are_combined_with_the_sweep() {
        let text = "[sweep]\n'link.rate' = ['10mbit', '100mbit']\n[[points]]\nlabel = 'A'\n[[points]]\nlabel = 'B'\nset = { 'demand.pattern' = 'w1' }";
        assert_eq!(labels(text), ["A, rate 10mbit", "A, rate 100mbit", "B, rate 10mbit", "B, rate 100mbit"]);
        let points = experiment(text).points().unwrap();
        assert_eq!(points[3].values["demand.pattern"], "w1");
        assert_eq!(points[3].setting.link.rate.to_string(), "100mbit");
        let DemandSetting::Open { intensity, .. } = &points[3].setting.demand else { panic!() };
        assert_eq!(*intensity, Intensity::Pattern("w1".to_owned()));
    }

    #[test]
    fn what_only_the_sweep_makes_whole_may_be_left_open() {
        let text = "setting.demand.kind = 'users'\n[sweep]\n'demand.users' = [18, 36]";
        assert_eq!(labels(text), ["users 18", "users 36"]);
    }

    #[test]
    fn what_a_key_cannot_be_is_said_with_what_it_can() {
        let refused = |text: &str| {
            let head = "name = 'x'\ntitle = 'y'\nsubjects = ['nginx']\n";
            Experiment::parse("x.toml", &format!("{head}{text}")).unwrap_err().to_string()
        };
        for (text, parts) in [
            ("setting.link.colour = 'red'", &["x.toml: point `all`", "colour", "`rate`"][..]),
            ("setting.link.rate = 'fast'", &["setting.link.rate", "fast"]),
            ("setting.groups = [{ path = { rtt = 5 } }]", &["setting.groups[0].path", "rtt-ms"]),
            ("setting.demand.load = 'much'", &["setting.demand", "much"]),
            ("setting.demand.files = 9", &["setting.demand", "how much", "requests-per-second"]),
            ("setting.demand = { load = 0.5, pattern = 'w1' }", &["setting.demand", "one of"]),
            ("[sweep]\n'time.minutes' = [1]", &["point `minutes 1`", "setting.time", "`seconds`"]),
            ("[sweep]\n'groups.far.share' = [1]", &["setting.groups", "sequence"]),
        ] {
            let error = refused(text);
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
        let many = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert!(refused(&format!("[sweep]\n'a' = [{many}]\n'b' = [{many}]")).contains("more than 10000"));
    }
}

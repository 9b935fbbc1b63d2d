//! Changes of an experiment by command-line flags.

use std::collections::BTreeMap;

use clap::Args;
use toml::{Table, Value};

use super::{Experiment, keys};
use crate::{LabError, subject::Subject};

/// Changes by flags; the same as in the `quick` part of a file.
#[derive(Args, Clone, Debug, Default)]
pub struct Changes {
    /// The short form, of about a minute
    #[arg(long)]
    pub quick: bool,

    /// Seeds instead of the file's, each a run of its own for every subject, as in `1,2,3` or `1-20`
    #[arg(long, value_name = "SEED,...", value_parser = seeds)]
    // The path of the inner type is written in full so that clap takes it for an ordinary type.
    pub seeds: Option<std::vec::Vec<u64>>,

    /// Servers instead of the file's; the first is the one the others are compared with
    #[arg(long, value_name = "SUBJECT,...")]
    pub subjects: Option<String>,

    /// Change a key of the file's `setting` for all points, as in `time.seconds=20`; may be repeated
    ///
    /// A key that was varied stays at the value given; `[0.5, 0.8]` gives it other values to be varied over.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Changes {
    /// Whether nothing is changed.
    pub fn is_none(&self) -> bool {
        !self.quick && self.flags().is_empty()
    }

    /// The changes beside the short form, as they are written.
    pub fn flags(&self) -> Vec<String> {
        let seeds = self
            .seeds
            .as_ref()
            .map(|seeds| format!("--seeds {}", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",")));
        let subjects = self.subjects.as_ref().map(|subjects| format!("--subjects {subjects}"));
        let set = self.set.iter().map(|set| format!("--set {set}"));
        seeds.into_iter().chain(subjects).chain(set).collect()
    }
}

impl Experiment {
    /// Applies the changes: first the short form, if requested, then the individual flags.
    pub fn changed(mut self, changes: &Changes) -> Result<Self, LabError> {
        if changes.quick {
            self.shorten()?;
        }
        for text in &changes.set {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| LabError::Request(format!("--set {text}: write KEY=VALUE, as in `time.seconds=20`")))?;
            self.set(key.trim(), &read_value(value.trim()))
                .map_err(|wrong| LabError::Request(format!("--set {text}: {wrong}")))?;
        }
        if let Some(seeds) = &changes.seeds {
            self.seeds.clone_from(seeds);
        }
        if let Some(list) = &changes.subjects {
            let subjects = Subject::parse_list(list).map_err(|wrong| LabError::Request(wrong.to_string()))?;
            // Keeps the file's spelling of an equal subject: reports and published values refer to it.
            let in_file = |subject: &Subject| self.subjects.iter().find(|text| text.parse().as_ref() == Ok(subject));
            self.subjects = subjects
                .iter()
                .map(|subject| in_file(subject).cloned().unwrap_or_else(|| subject.to_string()))
                .collect();
        }
        self.check().map_err(|wrong| LabError::Request(format!("{}: {wrong}", self.name)))?;
        Ok(self)
    }

    fn shorten(&mut self) -> Result<(), LabError> {
        let quick = std::mem::take(&mut self.quick);
        if let Some(sweep) = quick.sweep {
            self.sweep = sweep;
        }
        if let Some(labels) = quick.points {
            self.points.retain(|point| labels.contains(&point.label));
        }
        if let Some(seeds) = quick.seeds {
            self.seeds = seeds;
        }
        if let Some(subjects) = quick.subjects {
            self.subjects = subjects;
        }
        for (key, value) in &quick.set {
            self.set(key, value).map_err(|wrong| LabError::Request(format!("{}: quick.set: {wrong}", self.name)))?;
        }
        Ok(())
    }

    /// Sets a key for all points. The key is no longer varied, unless it gets several values.
    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let wrong = |error: toml::de::Error| error.message().to_owned();
        match key {
            "seeds" => self.seeds = value.clone().try_into().map_err(wrong)?,
            "subjects" => self.subjects = value.clone().try_into().map_err(wrong)?,
            _ => {
                let varied_over_plain =
                    self.sweep.get(key).is_some_and(|values| !values.iter().any(|value| value.is_array()));
                match value {
                    Value::Array(values) if varied_over_plain => {
                        self.sweep.insert(key.to_owned(), values.clone());
                    }
                    _ => {
                        self.sweep.remove(key);
                        keys::put(&mut self.setting, key, value)?;
                    }
                }
                self.points.iter_mut().for_each(|point| drop(point.set.remove(key)));
            }
        }
        Ok(())
    }
}

/// Reads seeds and ranges of them: `7`, `1,2,3`, `1-20`, `1-3,9`.
pub fn seeds(text: &str) -> Result<Vec<u64>, String> {
    let wrong = |part: &str| format!("`{part}` is no seed: give numbers and ranges of them, as in `1,2,3` or `1-20`");
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong(part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last - first >= MOST_SEEDS {
            return Err(format!("`{part}`: a range goes up, by fewer than {MOST_SEEDS}"));
        }
        seeds.extend(first..=last);
    }
    Ok(seeds)
}

/// More seeds are probably a typing error.
const MOST_SEEDS: u64 = 10_000;

/// Parses a TOML value; other text becomes a string, so that `10mbit` needs no quotes.
fn read_value(text: &str) -> Value {
    let read = toml::from_str::<BTreeMap<String, Value>>(&format!("value = {text}"));
    match read.ok().map(|mut table| (table.remove("value"), table)) {
        // A line break could have added more keys.
        Some((Some(value), rest)) if rest.is_empty() => value,
        _ => Value::String(text.to_owned()),
    }
}

/// An experiment from flags alone, without a file.
pub(crate) fn from_flags(
    name: &str,
    title: &str,
    subjects: Vec<String>,
    seeds: Vec<u64>,
    setting: Table,
) -> Experiment {
    Experiment {
        name: name.to_owned(),
        title: title.to_owned(),
        source: String::new(),
        notes: String::new(),
        subjects,
        seeds,
        setting,
        sweep: BTreeMap::new(),
        points: Vec::new(),
        quick: super::Quick::default(),
        figures: Vec::new(),
        published: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'x'\ntitle = 'y'\nsubjects = ['nginx', 'serpent:srpt']\nsetting.time.seconds = 1800
        [sweep]\n'demand.load' = [0.5, 0.6, 0.7]
        [quick]\nset = { 'time.seconds' = 10 }\nseeds = [9]\npoints = ['B']\nsweep = { 'demand.load' = [0.8] }
        [[points]]\nlabel = 'A'\n[[points]]\nlabel = 'B'\nset = { 'time.seconds' = 99, 'link.rate' = '5mbit' }";

    fn changed(changes: &Changes) -> Result<Experiment, LabError> {
        Experiment::parse("x.toml", TEXT).unwrap().changed(changes)
    }

    fn set(set: &[&str]) -> Changes {
        Changes { set: set.iter().map(|&text| text.to_owned()).collect(), ..Changes::default() }
    }

    #[test]
    fn the_short_form_changes_what_it_names() {
        let quick = changed(&Changes { quick: true, ..Changes::default() }).unwrap();
        let points = quick.points().unwrap();
        assert_eq!((points.len(), &points[0].label[..], &quick.seeds[..]), (1, "B, load 0.8", &[9][..]));
        assert_eq!((points[0].setting.time.seconds, points[0].setting.link.rate.to_string()), (10.0, "5mbit".into()));
        assert_eq!(quick.subjects.len(), 2);
    }

    #[test]
    fn flags_go_before_the_file_and_its_short_form() {
        let flags = Changes {
            quick: true,
            seeds: Some(vec![4, 5]),
            subjects: Some("serpent:srpt,nginx,workers=2".into()),
            ..set(&["time.seconds=3"])
        };
        let changed = changed(&flags).unwrap();
        assert_eq!((changed.points().unwrap()[0].setting.time.seconds, changed.seeds), (3.0, vec![4, 5]));
        assert_eq!(changed.subjects, ["serpent:srpt", "nginx,workers=2"]);
    }

    #[test]
    fn what_is_set_is_no_longer_varied_unless_values_are_given() {
        assert_eq!(changed(&set(&["demand.load=0.9"])).unwrap().points().unwrap().len(), 2);
        assert_eq!(changed(&set(&["demand.load=[0.1, 0.2]"])).unwrap().points().unwrap().len(), 4);
        let changed = changed(&set(&["link.rate=20mbit", "seeds=[7]"])).unwrap();
        assert!(changed.points().unwrap().iter().all(|point| point.setting.link.rate.to_string() == "20mbit"));
        assert_eq!(changed.seeds, [7]);
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_name() {
        for (text, part) in
            [("time", "KEY=VALUE"), ("seeds=red", "seeds=red"), ("a..b=1", "is no key"), ("seeds=[]", "seed")]
        {
            let error = changed(&set(&[text])).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn seeds_are_numbers_and_ranges() {
        assert_eq!(seeds("7"), Ok(vec![7]));
        assert_eq!(seeds("1-3, 9"), Ok(vec![1, 2, 3, 9]));
        for text in ["", "red", "3-1", "-1", "1-", "0-18446744073709551615", "1,,2"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_toml_or_else_text() {
        assert_eq!(read_value("5"), Value::Integer(5));
        assert_eq!(read_value("10mbit"), Value::String("10mbit".into()));
        assert_eq!(read_value("'5'"), Value::String("5".into()));
        assert_eq!(read_value("{ a = 1 }").get("a"), Some(&Value::Integer(1)));
        assert_eq!(read_value("1\nx = 2"), Value::String("1\nx = 2".into()));
    }
}

//! Reads and checks an experiment file.

use std::{collections::BTreeSet, fs, path::Path};

use super::{Changes, Experiment, SHIPPED};
use crate::{LabError, subject::Subject};

/// A larger file is no experiment.
const LARGEST_FILE_BYTES: u64 = 1 << 20;

impl Experiment {
    /// Finds the shipped experiment of that name, or else a file. `./NAME` means a file with the name of a
    /// shipped experiment.
    pub fn find(name: &str) -> Result<Self, LabError> {
        if let Some((name, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Self::parse(&format!("{name} (shipped)"), text);
        }
        let path = Path::new(name);
        let about = match fs::metadata(path) {
            Ok(about) => about,
            Err(_) if !name.contains(['/', '.']) => {
                return Err(LabError::Request(format!(
                    "there is no experiment `{name}`, and no such file: `serpent-lab list` shows the experiments"
                )));
            }
            Err(error) => return Err(LabError::Io(format!("cannot read {name}"), error)),
        };
        if !about.is_file() || about.len() > LARGEST_FILE_BYTES {
            return Err(LabError::Request(format!("{name} is no experiment file: it is a TOML file of at most 1 MiB")));
        }
        let text = fs::read_to_string(path).map_err(LabError::io(format!("cannot read {name}")))?;
        Self::parse(name, &text)
    }

    /// Parses the text of a file. Errors contain `file`, the key, the problem and the allowed values.
    pub fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let read: Self = toml::from_str(text)
            .map_err(|error| LabError::Request(format!("{file}: {}", error.to_string().trim_end())))?;
        let wrong = |what: String| LabError::Request(format!("{file}: {what}"));
        read.check().map_err(wrong)?;
        read.check_parts().map_err(wrong)?;
        // Finds mistakes of the file before flags change anything.
        read.try_points().map_err(wrong)?;
        let quick = read.clone().changed(&Changes { quick: true, ..Changes::default() });
        quick
            .and_then(|quick| quick.points())
            .map_err(|error| LabError::Request(format!("{file}: its quick form: {error}")))?;
        Ok(read)
    }

    /// Checks the conditions that hold after any flags.
    pub(super) fn check(&self) -> Result<(), String> {
        let name_is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || !self.name.chars().all(name_is_plain) || self.name.starts_with('.') {
            return Err(format!(
                "`name` is `{}`: use letters, digits, `-` and `_`, for folders are called by it",
                self.name
            ));
        }
        if self.subjects.is_empty() {
            return Err("`subjects` is empty: name a server to measure, as in [\"nginx\", \"serpent:srpt\"]".to_owned());
        }
        for subject in &self.subjects {
            subject.parse::<Subject>().map_err(|error| format!("`subjects`: {error}"))?;
        }
        all_different("`subjects`", &self.subjects)?;
        if self.seeds.is_empty() {
            return Err("`seeds` is empty: at least one seed is needed".to_owned());
        }
        all_different("`seeds`", &self.seeds)?;
        for (key, values) in &self.sweep {
            if ["seeds", "subjects"].contains(&key.as_str()) {
                return Err(format!("`sweep`: `{key}` is not swept: every point has all of them"));
            }
            if values.is_empty() {
                return Err(format!("`sweep`: `{key}` has no values"));
            }
        }
        if self.points.iter().any(|point| point.label.is_empty()) {
            return Err("`points`: a point needs a label".to_owned());
        }
        all_different("`points`: labels", &self.points.iter().map(|point| &point.label).collect::<Vec<_>>())
    }

    /// Checks that parts which refer to other parts of the file refer to existing ones.
    fn check_parts(&self) -> Result<(), String> {
        let labels: Vec<&str> = self.points.iter().map(|point| point.label.as_str()).collect();
        for label in self.quick.points.iter().flatten() {
            if !labels.contains(&label.as_str()) {
                return Err(format!("`quick.points`: no point is labelled `{label}`; there are {labels:?}"));
            }
        }
        if self.quick.points.as_ref().is_some_and(Vec::is_empty) {
            return Err("`quick.points` is empty: leave it out to keep all points".to_owned());
        }
        let varied: BTreeSet<&String> =
            self.sweep.keys().chain(self.points.iter().flat_map(|point| point.set.keys())).collect();
        for figure in &self.figures {
            if let Some(over) = figure.over.as_ref().filter(|over| !varied.contains(over)) {
                return Err(format!(
                    "`figures`: `{}` is over `{over}`, which is not varied; {varied:?} are",
                    figure.title
                ));
            }
        }
        Ok(())
    }
}

fn all_different<T: Ord + std::fmt::Debug>(what: &str, list: &[T]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    match list.iter().find(|item| !seen.insert(*item)) {
        Some(twice) => Err(format!("{what}: {twice:?} is there twice")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Experiment::parse("mine.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_shipped_experiment_can_be_read_in_both_forms_and_has_its_files_name() {
        for (name, text) in SHIPPED {
            let experiment = Experiment::parse(name, text).unwrap();
            assert_eq!(experiment.name, *name);
            assert!(!experiment.points().unwrap().is_empty());
            let quick = experiment.changed(&Changes { quick: true, ..Changes::default() }).unwrap();
            assert!(!quick.points().unwrap().is_empty());
        }
    }

    #[test]
    fn every_file_in_the_folder_is_shipped() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let mut files: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        shipped.sort_unstable();
        assert_eq!(files, shipped);
    }

    #[test]
    fn a_mistake_is_told_with_file_key_and_what_is_allowed() {
        let head = "name = 'x'\ntitle = 'y'\nsubjects = ['nginx']\n";
        for (text, parts) in [
            ("name = ", &["mine.toml", "line 1"][..]),
            ("name = 'x'\ntitle = 'y'", &["missing field `subjects`"]),
            (&format!("{head}colour = 'red'"), &["line 4", "unknown field `colour`", "`seeds`"]),
            (&format!("{head}setting.link.colour = 1"), &["mine.toml", "setting.link", "`rate`"]),
            (&format!("{head}seeds = []"), &["`seeds` is empty"]),
            (&format!("{head}seeds = [1, 1]"), &["`seeds`: 1 is there twice"]),
            (&format!("{head}sweep.'demand.load' = []"), &["`demand.load` has no values"]),
            (&format!("{head}sweep.seeds = [1]"), &["`seeds` is not swept"]),
            (&format!("{head}quick.points = ['C']"), &["`quick.points`", "`C`"]),
            (&format!("{head}[[points]]\nlabel = 'A'\n[[points]]\nlabel = 'A'"), &["\"A\" is there twice"]),
            (&format!("{head}[[figures]]\ntitle = 'f'\nkind = 'pie'"), &["line 6", "`over-sweep`"]),
            (&format!("{head}[[figures]]\ntitle = 'f'\nkind = 'bars'\nover = 'a.b'"), &["`a.b`, which is not varied"]),
            ("name = '../x'\ntitle = 'y'\nsubjects = ['nginx']", &["`../x`"]),
            ("name = 'x'\ntitle = 'y'\nsubjects = ['iis']", &["`iis` is not a subject"]),
        ] {
            let error = refused(text);
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(Experiment::find("no-such-thing").unwrap_err().to_string().contains("lab list"));
        assert!(Experiment::find("./no.toml").unwrap_err().to_string().contains("./no.toml"));
        assert!(Experiment::find("/dev/null").unwrap_err().to_string().contains("no experiment file"));
    }
}

//! The output of `serpent-lab list` and `serpent-lab show`.

use super::{Changes, Experiment, SHIPPED};
use crate::{LabError, plan};

/// The shipped experiments: name, length of the short and of the full form, title, source.
pub fn list() -> Result<String, LabError> {
    let mut rows = vec![["NAME", "QUICK", "FULL", "TITLE"].map(str::to_owned)];
    for (name, text) in SHIPPED {
        let full = Experiment::parse(name, text)?;
        let quick = full.clone().changed(&Changes { quick: true, ..Changes::default() })?;
        let lengths = [length(quick.estimated_s()?), length(full.estimated_s()?)];
        let [quick, full_length] = lengths;
        rows.push([full.name, quick, full_length, full.title]);
        if !full.source.is_empty() {
            rows.push([String::new(), String::new(), String::new(), full.source]);
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut out = String::new();
    for [name, quick, full, title] in rows {
        let head = format!("{name:0$}  {quick:>1$}  {full:>2$}  ", widths[0], widths[1], widths[2]);
        out += &chart::paragraph(&head, &title);
        out.push('\n');
    }
    Ok(out)
}

/// The file of a shipped experiment, to copy and change.
pub fn show(name: &str) -> Result<&'static str, LabError> {
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text).ok_or_else(|| {
        LabError::Request(format!("there is no shipped experiment `{name}`: `serpent-lab list` shows them"))
    })
}

impl Experiment {
    /// Estimated duration in seconds.
    pub fn estimated_s(&self) -> Result<f64, LabError> {
        let each = (self.seeds.len() * self.subjects.len()) as f64;
        Ok(self.points()?.iter().map(|point| plan::estimated_s(&point.setting) * each).sum())
    }
}

fn length(seconds: f64) -> String {
    match seconds {
        ..100.0 => format!("{seconds:.0} s"),
        ..6000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_people_say_them() {
        assert_eq!(
            [59.6, 99.0, 100.0, 5999.0, 6000.0, 86_400.0].map(length),
            ["60 s", "99 s", "2 min", "100 min", "2 h", "24 h"]
        );
    }

    #[test]
    fn every_shipped_experiment_is_listed_and_shown() {
        let list = list().unwrap();
        for (name, text) in SHIPPED {
            assert!(list.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {list}");
            assert_eq!(show(name).unwrap(), *text);
        }
        assert!(show("nothing").unwrap_err().to_string().contains("lab list"));
    }
}

//! The results as text for a terminal, and as files: an HTML page and JSON.

use std::{fmt, fs, path::Path};

use chart::aligned;

use super::{page, report::Report, tables};
use crate::LabError;

/// The page in the folder of a run.
pub(super) const PAGE: &str = "report.html";
const JSON: &str = "report.json";

impl Report {
    /// Writes page and JSON into the run's folder.
    pub(super) fn write(&self, dir: &Path) -> Result<(), LabError> {
        let json = serde_json::to_string_pretty(self);
        let json = json.map_err(|error| LabError::Io("cannot write as JSON".to_owned(), error.into()))?;
        for (name, text) in [(JSON, json + "\n"), (PAGE, page::page(self)?)] {
            let file = dir.join(name);
            fs::write(&file, text).map_err(LabError::io(format!("cannot write {}", file.display())))?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}{}", page::TITLE, if self.begun.quick { " (short form)" } else { "" })?;
        writeln!(f, "repeats {}", page::SOURCE)?;
        writeln!(f, "{}", chart::command(&self.begun.command))?;
        writeln!(f, "{}", self.begun.versions.join(", "))?;
        tables::asked(self).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        for (subject, reason) in &self.failed {
            writeln!(f, "NOT MEASURED: {subject}: {reason}")?;
        }
        for table in
            std::iter::once(tables::subjects(self)).chain(tables::all(self)).filter(|table| !table.rows.is_empty())
        {
            writeln!(f, "\n{}", table.caption)?;
            aligned(f, &table)?;
        }
        let notes = tables::notes(self);
        if !notes.is_empty() {
            writeln!(f)?;
        }
        notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

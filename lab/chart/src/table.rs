//! A table, and its text form for a terminal.

use std::fmt;

/// A table. Its first column names the rows.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The caption.
    pub caption: String,
    /// The headings of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// Columns, other than the first, that hold words instead of numbers.
    pub words: &'static [usize],
}

impl Table {
    /// Whether a column holds words. Words are aligned to the left.
    pub fn is_words(&self, column: &usize) -> bool {
        *column == 0 || self.words.contains(column)
    }
}

/// Writes the table with words aligned to the left and numbers to the right.
pub fn aligned(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    let lines = || std::iter::once(&table.head).chain(&table.rows);
    let width =
        |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    for line in lines() {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let between = if column == 0 { "" } else { "  " };
            text += between;
            text += &if table.is_words(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

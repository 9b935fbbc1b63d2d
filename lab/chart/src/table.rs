//! A table, and its text form for a terminal.

use std::{fmt, ops::Range};

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

/// Columns of a text that goes elsewhere than to a terminal.
const COLUMNS: usize = 80;
/// Fewer columns are not believed.
const LEAST_COLUMNS: usize = 20;

/// Writes the table with words aligned to the left and numbers to the right. A table that is wider than the terminal, or
/// elsewhere than 80 columns, comes in parts below each other, each with the first column.
pub fn aligned(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    aligned_within(f, table, columns())
}

fn aligned_within(f: &mut fmt::Formatter<'_>, table: &Table, columns: usize) -> fmt::Result {
    let lines = || std::iter::once(&table.head).chain(&table.rows);
    let width =
        |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    for (number, part) in parts(&widths, columns).into_iter().enumerate() {
        if number > 0 {
            writeln!(f)?;
        }
        for line in lines() {
            let mut text = String::new();
            for column in std::iter::once(0).chain(part.clone()) {
                let (Some(cell), Some(&width)) = (line.get(column), widths.get(column)) else { continue };
                let between = if column == 0 { "" } else { BETWEEN };
                text += between;
                text += &if table.is_words(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
    }
    Ok(())
}

const BETWEEN: &str = "  ";

/// The columns of each part beside the first one, which all parts have.
fn parts(widths: &[usize], columns: usize) -> Vec<Range<usize>> {
    let first = widths.first().copied().unwrap_or(0);
    let (mut parts, mut begin, mut used) = (Vec::new(), 1, first);
    for (column, width) in widths.iter().enumerate().skip(1) {
        let more = BETWEEN.len() + width;
        if used + more > columns && column > begin {
            parts.push(begin..column);
            (begin, used) = (column, first);
        }
        used += more;
    }
    parts.push(begin..widths.len().max(begin));
    parts
}

/// The columns of the terminal that standard output is, or else 80.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns >= LEAST_COLUMNS).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Within<'a>(&'a Table, usize);

    impl fmt::Display for Within<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            aligned_within(f, self.0, self.1)
        }
    }

    #[test]
    fn a_table_that_is_too_wide_comes_in_parts_with_the_first_column() {
        let cells = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let table = Table {
            head: cells(&["server", "mean", "p99", "note"]),
            rows: vec![cells(&["nginx", "13.7", "100", "≥ a"]), cells(&["serpent", "7.5", "9"])],
            words: &[3],
            ..Table::default()
        };
        let whole = "server   mean  p99  note\nnginx    13.7  100  ≥ a\nserpent   7.5    9\n";
        assert_eq!(Within(&table, 80).to_string(), whole);
        assert_eq!(Within(&table, 24).to_string(), whole, "it just fits");
        let two =
            "server   mean  p99\nnginx    13.7  100\nserpent   7.5    9\n\nserver   note\nnginx    ≥ a\nserpent\n";
        assert_eq!(Within(&table, 23).to_string(), two);
        let narrow = Within(&table, 1).to_string();
        assert_eq!(narrow.matches("server").count(), 3, "a column each: {narrow}");
        assert_eq!(Within(&Table::default(), 80).to_string(), "\n");
        for columns in 16..40 {
            let text = Within(&table, columns).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
        }
    }
}

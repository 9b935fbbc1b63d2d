//! A table, and its text form for a terminal.

use std::{fmt, ops::Range};

use crate::text::columns;

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

/// Writes the table with words aligned to the left and numbers to the right. A table that is wider than the terminal,
/// or elsewhere than 80 columns, comes in parts below each other. Each part has the columns that name the rows: the
/// first one, and columns of words behind it where they leave room.
pub fn aligned(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    aligned_within(f, table, columns())
}

fn aligned_within(f: &mut fmt::Formatter<'_>, table: &Table, columns: usize) -> fmt::Result {
    let lines = || std::iter::once(&table.head).chain(&table.rows);
    let width =
        |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let is_name = |column: &usize| table.is_words(column) && taken(&widths[..=*column]) <= columns / 2;
    let names = (1..widths.len()).take_while(is_name).count() + 1;
    for (number, part) in parts(&widths, names, columns).into_iter().enumerate() {
        if number > 0 {
            writeln!(f)?;
        }
        for line in lines() {
            let mut text = String::new();
            for column in (0..names).chain(part.clone()) {
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

/// The width of several columns.
fn taken(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + BETWEEN.len() * widths.len().saturating_sub(1)
}

/// The columns of each part beside the first ones, which all parts have.
fn parts(widths: &[usize], names: usize, columns: usize) -> Vec<Range<usize>> {
    let first = taken(&widths[..names.min(widths.len())]);
    let (mut parts, mut begin, mut used) = (Vec::new(), names, first);
    for (column, width) in widths.iter().enumerate().skip(names) {
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
    #[test]
    fn words_that_name_the_rows_are_in_every_part() {
        let cells = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let table = Table {
            head: cells(&["point", "of", "a long name", "another one"]),
            rows: vec![cells(&["x", "y", "1", "2"])],
            words: &[1],
            ..Table::default()
        };
        let parts =
            "point  of  a long name\nx      y             1\n\npoint  of  another one\nx      y             2\n";
        assert_eq!(Within(&table, 24).to_string(), parts);
        assert_eq!(Within(&table, 17).to_string().matches("of").count(), 1, "they leave too little room");
    }
}

//! Text that keeps within the terminal, or elsewhere within 80 columns.

/// Columns of a text that goes elsewhere than to a terminal.
const COLUMNS: usize = 80;
/// Fewer columns are not believed.
const LEAST_COLUMNS: usize = 20;
/// How much deeper the rest of a line begins than the line itself.
const DEEPER: usize = 2;

/// The columns of the terminal that standard output is, or else 80.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns >= LEAST_COLUMNS).unwrap_or(COLUMNS)
}

/// Breaks every line that is too wide, between words; the rest of it begins two columns deeper. Other lines stay as
/// they are.
pub fn wrapped(text: &str) -> String {
    wrapped_within(text, columns())
}

fn wrapped_within(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
        if content.chars().count() <= columns {
            out += line;
        } else {
            let indent = content.chars().take_while(|&c| c == ' ').count();
            out += &joined(content.split_whitespace(), &content[..indent], indent + DEEPER, "", columns);
            out += end;
        }
    }
    out
}

/// A text as one paragraph, after `head`, under whose end all its lines begin. It has no line break at its end.
pub fn paragraph(head: &str, text: &str) -> String {
    joined(text.split_whitespace(), head, head.chars().count(), "", columns())
}

/// A command for a shell. A line that goes on in the next one ends with a backslash, so that the whole can be copied.
pub fn command(command: &str) -> String {
    joined(shell_words(command).into_iter(), "", DEEPER, " \\", columns())
}

/// Words of a command as they are written. A part in single quotes is not divided.
fn shell_words(command: &str) -> Vec<&str> {
    let mut quoted = false;
    let is_border = |c: char| {
        quoted ^= c == '\'';
        c == ' ' && !quoted
    };
    command.split(is_border).filter(|word| !word.is_empty()).collect()
}

/// Puts words into lines. `head` stands before the first, `indent` spaces before the others, and `goes_on` ends each
/// but the last. A word that is wider than a line is not divided.
fn joined<'a>(
    words: impl Iterator<Item = &'a str>,
    head: &str,
    indent: usize,
    goes_on: &str,
    columns: usize,
) -> String {
    let room = columns.saturating_sub(goes_on.len());
    let mut out = String::new();
    let (mut line, mut is_empty) = (head.to_owned(), true);
    for word in words {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > room {
            out += &line;
            out += goes_on;
            out.push('\n');
            (line, is_empty) = (" ".repeat(indent), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    out + line.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_are_broken_and_lose_no_word() {
        let long = "x".repeat(30);
        let text = format!("a  table\n    - one two three four five\n{long} b\n\nend");
        let out = wrapped_within(&text, 16);
        assert_eq!(out, format!("a  table\n    - one two\n      three four\n      five\n{long}\n  b\n\nend"));
        assert_eq!(wrapped_within(&out, 16).replace(' ', ""), out.replace(' ', ""), "nothing more to do");
    }

    #[test]
    fn a_paragraph_begins_below_its_head() {
        let text = "word ".repeat(60) + &"x".repeat(150) + " end";
        let out = paragraph("  - ", &text);
        assert_eq!(out.split_whitespace().skip(1).collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert!(out.lines().filter(|line| line.chars().count() > COLUMNS).all(|line| line.contains("xxx")), "{out}");
        assert!(out.starts_with("  - word") && out.lines().nth(1).is_some_and(|line| line.starts_with("    word")));
        assert_eq!(paragraph("Note  ", ""), "Note");
    }

    #[test]
    fn a_command_in_several_lines_is_still_that_command() {
        let given =
            "serpent-lab run load --quick --set 'groups.0.name=a  long name' --subjects nginx,serpent:srpt --out x";
        let out = command(given);
        assert!(out.lines().count() > 1 && out.lines().all(|line| line.chars().count() <= COLUMNS), "{out}");
        assert_eq!(out.replace(" \\\n ", ""), given);
        assert!(!out.ends_with('\\'));
    }
}

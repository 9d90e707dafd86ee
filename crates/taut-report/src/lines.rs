//! Lines of plain text that fit a terminal.

/// Widest line, in columns.
pub(crate) const WIDTH: usize = 100;

/// Adds a line, without blanks at its end.
pub(crate) fn line_to(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// The beginning of a line that is too long.
pub(crate) fn cut(line: &str) -> String {
    cut_to(line, WIDTH)
}

/// The same for so many columns, at least one.
pub(crate) fn cut_to(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns - 1).chain(['…']).collect()
}

/// The whole of a line: if it is too long, more lines that are indented.
pub(crate) fn fold(line: &str) -> Vec<String> {
    if line.chars().count() <= WIDTH {
        return vec![line.to_owned()];
    }
    let mut lines = wrap("  ", line);
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    // Only a word may still be too long.
    lines.iter().map(|line| cut(line)).collect()
}

/// Lines of at most [`WIDTH`] columns, broken at blanks.
pub(crate) fn wrap(indent: &str, text: &str) -> Vec<String> {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.len() > indent.len() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                lines.push(format!("{indent}{word}"));
                continue;
            }
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

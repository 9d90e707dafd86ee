//! Lines of plain text that fit a terminal.

use std::cell::Cell;

/// Widest line, in columns.
pub(crate) const WIDTH: usize = 100;
/// In less there would be a word or two in a line.
const LEAST: usize = 40;

thread_local! {
    /// What [`within`] was told. Every function that makes a line would have to hand it on otherwise.
    static COLUMNS: Cell<usize> = const { Cell::new(WIDTH) };
}

/// Has a text made for a terminal of so many columns: no line is wider, but for 40 columns and a single long word.
/// Without a number, and in a wide terminal, lines have at most 100 columns.
pub fn within<T>(columns: Option<u16>, make: impl FnOnce() -> T) -> T {
    /// Also when `make` panics.
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            COLUMNS.set(self.0);
        }
    }
    let columns = columns.map_or(WIDTH, |columns| usize::from(columns).clamp(LEAST, WIDTH));
    let _back = Back(COLUMNS.replace(columns));
    make()
}

/// How many columns a line may have.
pub(crate) fn width() -> usize {
    COLUMNS.get()
}

/// Adds a line, without blanks at its end; a row that is too wide goes on in the next line.
pub(crate) fn line_to(text: &mut String, line: &str) {
    for part in parts(line.trim_end()) {
        text.push_str(&part);
        text.push('\n');
    }
}

/// A row in lines that are broken at blanks, the others indented by four columns more: the columns of its begin stay
/// as they are.
fn parts(line: &str) -> Vec<String> {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let (mut parts, mut rest) = (Vec::new(), line.to_owned());
    while rest.chars().count() > width() {
        let own = if parts.is_empty() { indent } else { indent + 4 };
        let blanks = rest.char_indices().enumerate().filter(|(column, (_, c))| *c == ' ' && *column > own);
        let blanks: Vec<(usize, usize)> = blanks.map(|(column, (at, _))| (column, at)).collect();
        // Where the first word is too long by itself, after that.
        let fitting = blanks.iter().rfind(|(column, _)| *column <= width()).or_else(|| blanks.first());
        let Some(&(_, at)) = fitting else { break };
        let (first, others) = rest.split_at(at);
        let (first, others) = (first.trim_end().to_owned(), others.trim_start());
        rest = format!("{}{others}", " ".repeat(indent + 4));
        parts.push(first);
    }
    parts.push(rest);
    parts
}

/// The beginning of a line that is too long.
pub(crate) fn cut(line: &str) -> String {
    cut_to(line, width())
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
    if line.chars().count() <= width() {
        return vec![line.to_owned()];
    }
    let mut lines = wrap("  ", line);
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    // Only a word may still be too long.
    lines.iter().map(|line| cut(line)).collect()
}

/// A paragraph in lines that fit the terminal, whatever its own were, each after an indent.
pub fn paragraph(indent: &str, text: &str) -> String {
    wrap(indent, text).into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// Lines of at most [`width`] columns, broken at blanks.
pub(crate) fn wrap(indent: &str, text: &str) -> Vec<String> {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.len() > indent.len() {
            if line.chars().count() + 1 + word.chars().count() > width() {
                lines.push(format!("{indent}{word}"));
                continue;
            }
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> Vec<String> {
        let mut text = String::new();
        line_to(&mut text, line);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_row_goes_on_in_the_next_line_where_the_terminal_ends() {
        let line = "  name of a holder                            12.345678 s  12.3 %  17 times, the longest";
        assert_eq!(row(line), [line]);
        let narrow = within(Some(60), || row(line));
        assert_eq!(
            narrow,
            ["  name of a holder                            12.345678 s", "      12.3 %  17 times, the longest"]
        );
        // Back to what it was.
        assert_eq!((row(line).len(), width()), (1, WIDTH));
    }

    #[test]
    fn no_terminal_is_too_narrow_or_too_wide() {
        let words = "word ".repeat(40);
        for (columns, most) in [(None, 100), (Some(0), 40), (Some(1), 40), (Some(80), 80), (Some(500), 100)] {
            let lines = within(columns, || [wrap("  ", &words), fold(&words), row(&words), vec![cut(&words)]].concat());
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|widest| widest <= most && widest + 6 > most), "{columns:?}: {lines:#?}");
        }
        let words = "word\nword ".repeat(5);
        let folded = within(Some(40), || paragraph("  ", &words));
        assert_eq!(folded, format!("  {}\n  word word word\n", ["word"; 7].join(" ")));
    }

    #[test]
    fn a_word_that_is_too_long_has_a_line_of_its_own() {
        let long = "x".repeat(90);
        assert_eq!(within(Some(40), || row(&long)), [long.as_str()]);
        let folded = within(Some(40), || row(&format!("  é {long} b")));
        assert_eq!(folded, ["  é".to_owned(), format!("      {long}"), "      b".to_owned()]);
    }
}

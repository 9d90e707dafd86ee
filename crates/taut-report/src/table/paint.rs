//! Colour and line breaks. While tables are laid out a tone is marked with characters of no width;
//! at the end the marks become escape sequences, or nothing; what else would command a terminal is
//! replaced. So colour can never change the layout.

use crate::sheet::Tone;

/// "Function application" and its neighbours: invisible, no width, and of no use in a report's own text.
const MARKS: [(Tone, char, &str); 5] = [
    (Tone::Strong, '\u{2061}', "\u{1b}[1m"),
    (Tone::Good, '\u{2062}', "\u{1b}[32m"),
    (Tone::Bad, '\u{2063}', "\u{1b}[31m"),
    (Tone::Faint, '\u{2064}', "\u{1b}[2m"),
    (Tone::Code, '\u{2066}', "\u{1b}[36m"),
];
/// A blank at which no line breaks; it becomes a plain one at the end.
pub(super) const NO_BREAK: &str = "\u{a0}";
const END: char = '\u{2069}';

/// Marks each word by itself: a cell that breaks over lines must not colour its neighbours.
pub(super) fn paint(text: &str, tone: Tone) -> String {
    let clean: String = text.chars().filter(|&c| c != END && MARKS.iter().all(|(_, mark, _)| c != *mark)).collect();
    let Some((_, mark, _)) = MARKS.iter().find(|(marked, ..)| *marked == tone) else {
        return clean;
    };
    let mark_word = |word: &str| if word.is_empty() { String::new() } else { format!("{mark}{word}{END}") };
    let mark_line = |line: &str| line.split(' ').map(mark_word).collect::<Vec<_>>().join(" ");
    clean.split('\n').map(mark_line).collect::<Vec<_>>().join("\n")
}

/// Turns the marks into escape sequences, or takes them out.
pub(super) fn finish(text: &str, colour: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match MARKS.iter().find(|(_, mark, _)| *mark == c) {
            Some((_, _, escape)) if colour => out.push_str(escape),
            None if c == END && colour => out.push_str("\u{1b}[0m"),
            None if c == '\u{a0}' => out.push(' '),
            // A recording may come from anywhere, and a terminal does what such characters say.
            None if taut_event::steers(c) && !matches!(c, '\n' | END) => out.push(char::REPLACEMENT_CHARACTER),
            None if c != END => out.push(c),
            _ => {}
        }
    }
    out
}

/// A paragraph broken at blanks, each line with its own indent and a newline.
pub(super) fn wrap(text: &str, width: Option<u16>, first_indent: &str, indent: &str, tone: Tone) -> String {
    let width = width.map_or(usize::MAX, usize::from);
    let mut out = String::new();
    let (mut line, mut used) = (String::new(), first_indent.chars().count());
    let mut lead = first_indent;
    // A blank that may not break is none of these.
    for word in text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
        let long = word.chars().count() + usize::from(!line.is_empty());
        if !line.is_empty() && used + long > width {
            out.push_str(&format!("{lead}{}\n", paint(&line, tone)));
            lead = indent;
            used = indent.chars().count();
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += word.chars().count();
    }
    out.push_str(&format!("{lead}{}\n", paint(&line, tone)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_escapes_or_vanish() {
        let marked = paint("one two", Tone::Bad);
        assert_eq!(finish(&marked, false), "one two");
        assert_eq!(finish(&marked, true), "\u{1b}[31mone\u{1b}[0m \u{1b}[31mtwo\u{1b}[0m");
        assert_eq!(finish(&paint("a\u{2061}b", Tone::Plain), true), "ab");
    }

    #[test]
    fn no_text_commands_the_terminal() {
        let text = paint("a\u{1b}]0;title\u{7}b\u{9b}2Jc\r\nd", Tone::Plain);
        assert_eq!(finish(&text, true), "a\u{fffd}]0;title\u{fffd}b\u{fffd}2Jc\u{fffd}\nd");
    }

    #[test]
    fn paragraphs_break_at_blanks() {
        let text = finish(&wrap("one two three four", Some(10), "- ", "  ", Tone::Plain), false);
        assert_eq!(text, "- one two\n  three\n  four\n");
    }
}

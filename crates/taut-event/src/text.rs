use alloc::string::String;

/// A text from elsewhere as it may be printed: what steers a terminal or its reader is written out, as `\u{1b}`.
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut printable, c| {
        if steers(c) {
            printable.extend(c.escape_unicode());
        } else {
            printable.push(c);
        }
        printable
    })
}

/// Whether a character is printed as something else than itself: control characters, those that turn the direction of
/// what follows (Unicode Standard Annex 9), and those that end a line without being a control character.
pub fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(printable("\u{1b}[31m é\u{9b}1m\u{202e}a\n"), "\\u{1b}[31m é\\u{9b}1m\\u{202e}a\\u{a}");
        for c in ['\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{2066}', '\u{2069}', '\u{2028}', '\u{2029}'] {
            assert!(steers(c), "{c:?}");
        }
        // Written languages need these.
        assert!(!steers('\u{200d}') && !steers('\u{200c}') && !steers('א') && !steers('\u{a0}'));
    }
}

use std::fmt;

/// Why a text is no condition: where, what was expected there and what stood there instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError {
    /// Column of the first character at fault, counted in characters from 1.
    pub column: usize,
    /// What could have stood there.
    pub expected: String,
    /// What stands there.
    pub found: String,
    line: String,
}

impl SyntaxError {
    /// An error at a byte of the text.
    pub(super) fn new(text: &str, at: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let column = text.char_indices().take_while(|&(byte, _)| byte < at).count() + 1;
        // Shown on one line, whatever it was written with.
        let line = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { column, expected: expected.into(), found: found.into(), line }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, expected, found, line } = self;
        write!(f, "column {column}: expected {expected}, found {found}\n  {line}\n  {:>column$}", "^")
    }
}

impl std::error::Error for SyntaxError {}

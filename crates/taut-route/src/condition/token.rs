//! Text to tokens.

use std::fmt;

use super::SyntaxError;

/// A word of the language.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Token {
    /// A whole number, or a time in nanoseconds.
    Number(i64),
    Name(String),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// A token and the byte it begins at.
pub(super) type Placed = (usize, Token);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Symbol(symbol) => write!(f, "`{symbol}`"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// Longer ones first, since the first that fits is taken.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "<", ">", "!", "~", "+", "-", "*", "/", "%", "&", "|", "^", "(",
    ")", "[", "]", ",",
];
const TERNARY: [&str; 2] = ["?", ":"];

const UNITS: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9)];

/// All tokens of a text, the last one being [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, SyntaxError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c.is_ascii_digit() {
            let length = word_length(rest, true);
            tokens.push((at, Token::Number(number(text, at, &rest[..length])?)));
            at += length;
        } else if c.is_ascii_alphabetic() || c == '_' {
            let length = word_length(rest, false);
            tokens.push((at, Token::Name(rest[..length].to_owned())));
            at += length;
        } else if let Some(symbol) = SYMBOLS.iter().chain(&TERNARY).find(|symbol| rest.starts_with(**symbol)) {
            tokens.push((at, Token::Symbol(symbol)));
            at += symbol.len();
        } else {
            return Err(SyntaxError::new(
                text,
                at,
                "a number, a name or an operator",
                format!("`{}`", c.escape_debug()),
            ));
        }
    }
    tokens.push((text.len(), Token::End));
    Ok(tokens)
}

fn word_length(rest: &str, number: bool) -> usize {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || (number && (c == '.' || c == 'µ'));
    rest.find(|c: char| !part(c)).unwrap_or(rest.len())
}

/// `42`, `0x2a`, `0b101010`, `1_000`, `5ms`, `1.5s`. Hexadecimal and binary numbers are bit patterns of 64 bits.
fn number(text: &str, at: usize, word: &str) -> Result<i64, SyntaxError> {
    let wrong = |expected: &str| SyntaxError::new(text, at, expected, format!("`{word}`"));
    let plain: String = word.chars().filter(|&c| c != '_').collect();
    for (prefix, radix) in [("0x", 16), ("0b", 2)] {
        if let Some(digits) = plain.strip_prefix(prefix) {
            let bits = u64::from_str_radix(digits, radix);
            return bits.map(u64::cast_signed).map_err(|_| wrong("at most 64 bits as 0x or 0b"));
        }
    }
    let digits = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (amount, unit) = plain.split_at(digits);
    if unit.is_empty() {
        return amount.parse().map_err(|_| wrong("a whole number below 2^63, or a time such as 5ms or 1.5s"));
    }
    let (_, factor) =
        UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| wrong("a time in ns, us, ms, s or min"))?;
    let amount: f64 = amount.parse().map_err(|_| wrong("a time such as 5ms or 1.5s"))?;
    let nanos = (amount * factor).round();
    // Ten years: far from what 64 bits hold, so that sums of times are safe from overflow.
    if nanos > 315_360_000e9 { Err(wrong("a time of at most ten years")) } else { Ok(nanos as i64) }
}

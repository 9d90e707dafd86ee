//! What users write: durations, sizes, switches.

use std::io;
use std::path::Path;

use taut_record::stats::LEAST_ROUNDS;
use taut_time::Duration;

/// `10ms`, `1.5s`, `250us`, `2min`; a bare number is refused, since its unit would be a guess.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let hint = "write a number with its unit: 250us, 10ms, 1.5s, 2min, 1h";
    let number: f64 = number.parse().map_err(|_| format!("`{text}`: {hint}"))?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        // `1m30s` and the like.
        _ => return humantime::parse_duration(text).map_err(|_| format!("`{text}`: {hint}")),
    };
    let nanos = (number * seconds * 1e9).round();
    if nanos > 31_536_000e9 {
        return Err(format!("`{text}` is more than a year"));
    }
    Ok(Duration::from_nanos(nanos as u64))
}

/// A duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text)?
        .checked_sub(Duration::from_nanos(1))
        .map(|rest| rest + Duration::from_nanos(1))
        .ok_or_else(|| format!("`{text}` must be more than zero"))
}

/// `128`, `128B`, `64K`, `64KiB`, `1M`, `1MiB`, `1MB`, `1GiB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(format!("`{text}`: write bytes as 128, 128B, 64KiB, 1MiB or 1GiB")),
    };
    let number: usize =
        number.parse().map_err(|_| format!("`{text}`: write bytes as 128, 128B, 64KiB, 1MiB or 1GiB"))?;
    number
        .checked_mul(factor)
        .filter(|bytes| (1..=1 << 30).contains(bytes))
        .ok_or_else(|| format!("`{text}`: a size is between 1 byte and 1 GiB"))
}

/// `on` or `off`.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}` is neither on nor off")),
    }
}

/// A number of things, at least one, with a limit that keeps a typing error from becoming a load.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=20_000).contains(count)).ok_or_else(|| format!("`{text}`: from 1 to 20000"))
}

/// Rounds of what decides by them: a [`count`] of at least [`LEAST_ROUNDS`].
pub(crate) fn deciding_rounds(text: &str) -> Result<usize, String> {
    let why = || {
        format!(
            "`{text}`: at least {LEAST_ROUNDS}, since fewer rounds can't tell a gain from noise; for a shorter run, shorten --time"
        )
    };
    count(text).and_then(|rounds| Some(rounds).filter(|rounds| *rounds >= LEAST_ROUNDS).ok_or_else(why))
}

/// The number of a process.
pub(crate) fn process(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| format!("`{text}` is no number of a process"))
}

/// Messages per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let hint = || format!("`{text}`: messages per second, from 0.01 to 10000000");
    text.parse().ok().filter(|rate| (0.01..=1e7).contains(rate)).ok_or_else(hint)
}

/// `NAME=VALUE`.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}`: write NAME=VALUE, such as ci=15ms"))?;
    match (name.trim(), value.trim()) {
        ("", _) | (_, "") => Err(format!("`{text}`: write NAME=VALUE, such as ci=15ms")),
        (name, value) => Ok((name.to_owned(), value.to_owned())),
    }
}

/// `NAME=VALUE,VALUE,…`.
pub(crate) fn choices(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = setting(text)?;
    // A comma within parentheses belongs to the value: `credits=batch(8,2),linux-old`.
    let mut depth = 0;
    let is_between = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    let values: Vec<String> = values.split(is_between).map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err(format!("`{text}`: a value is missing between two commas"));
    }
    Ok((name, values))
}

/// No configuration is longer, in bytes.
const LONGEST_TEXT: u64 = 1 << 20;

/// The text of a file of at most 1 MiB that a user writes.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let bytes = taut_link::read_short(path, LONGEST_TEXT)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

/// Arguments as one line that a shell reads back.
pub(crate) fn shell_line<S: AsRef<str>>(arguments: impl IntoIterator<Item = S>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    let words: Vec<String> = arguments
        .into_iter()
        .map(|word| {
            let word = word.as_ref();
            if !word.is_empty() && word.chars().all(plain) {
                word.to_owned()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("16.7ms"), Ok(Duration::from_micros(16_700)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("10").is_err() && duration("ms").is_err() && duration("99999h").is_err());
        assert!(positive_duration("0ms").is_err());
    }

    #[test]
    fn sizes_know_their_units() {
        assert_eq!(size("128"), Ok(128));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert!(size("2GiB").is_err());
        assert!(size("0").is_err() && size("99999999999999999999").is_err() && size("1x").is_err());
    }

    #[test]
    fn settings_have_a_name_and_values() {
        assert_eq!(setting("ci=15ms"), Ok(("ci".to_owned(), "15ms".to_owned())));
        assert!(setting("ci").is_err() && setting("=1").is_err() && setting("ci=").is_err());
        assert_eq!(choices("ci=15ms, 30ms").unwrap().1, ["15ms", "30ms"]);
        assert_eq!(choices("credits=batch(8,2),linux-old").unwrap().1, ["batch(8,2)", "linux-old"]);
        assert!(choices("ci=15ms,,30ms").is_err());
    }

    #[test]
    fn a_shell_line_can_be_pasted() {
        assert_eq!(shell_line(["taut", "--assert", "p99<2ms", "it's"]), r"taut --assert 'p99<2ms' 'it'\''s'");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,20}") {
            let _ = (duration(&text), size(&text), rate(&text), count(&text), positive_duration(&text));
        }
    }
}

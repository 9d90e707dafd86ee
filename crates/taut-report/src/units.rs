//! Times, rates, sizes and shares in words: three significant digits and a unit.

use std::time::{Duration, UNIX_EPOCH};

use taut_record::stats::Quantile;

/// A time: `837 ns`, `28.4 µs`, `1.20 ms`, `12.0 s`.
pub fn time(nanos: u64) -> String {
    let (value, unit) = time_parts(nanos);
    format!("{value} {unit}")
}

/// What stands for the time of a message that never came.
pub const LOST: &str = "lost";

/// A figure of all messages: a time, or `lost`.
pub fn quantile(quantile: Quantile) -> String {
    quantile.time().map_or_else(|| LOST.to_owned(), time)
}

/// An interval of such figures: `27.9–29.1 µs`, `1.20 ms – lost`.
pub fn quantile_interval((low, high): (Quantile, Quantile)) -> String {
    match (low, high) {
        (Quantile::Time(low), Quantile::Time(high)) => time_interval((low, high)),
        (Quantile::Lost, Quantile::Lost) => LOST.to_owned(),
        (low, high) => format!("{} – {}", quantile(low), quantile(high)),
    }
}

/// The level of an interval: `93.75 %`.
pub fn level(level: f64) -> String {
    let percent = format!("{:.2}", level * 100.0);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// An interval of times, with the unit once where both ends share it: `27.9–29.1 µs`.
pub fn time_interval((low, high): (u64, u64)) -> String {
    let ((low_value, low_unit), (high_value, high_unit)) = (time_parts(low), time_parts(high));
    if low_unit == high_unit {
        format!("{low_value}–{high_value} {high_unit}")
    } else {
        format!("{low_value} {low_unit} – {high_value} {high_unit}")
    }
}

/// A limit that someone chose, without needless zeros: `50 ms`, `16.7 ms`.
pub fn limit(nanos: u64) -> String {
    let (value, unit) = time_parts(nanos);
    let value = if value.contains('.') { value.trim_end_matches('0').trim_end_matches('.') } else { &value };
    format!("{value} {unit}")
}

/// Bits per second: `9.41 Gbit/s`.
pub fn bit_rate(bits_per_second: f64) -> String {
    let (value, prefix) = si(bits_per_second);
    format!("{value} {prefix}bit/s")
}

/// An interval of bits per second.
pub fn bit_rate_interval((low, high): (f64, f64)) -> String {
    let ((low_value, low_prefix), (high_value, high_prefix)) = (si(low), si(high));
    if low_prefix == high_prefix {
        format!("{low_value}–{high_value} {high_prefix}bit/s")
    } else {
        format!("{low_value} {low_prefix}bit/s – {high_value} {high_prefix}bit/s")
    }
}

/// An amount of bytes, rounded: `1.23 GB`.
pub fn amount(bytes: f64) -> String {
    let (value, prefix) = si(bytes);
    format!("{value} {prefix}B")
}

/// A size that someone chose, exactly: `64 B`, `64 KiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{} B", count(bytes)),
    }
}

/// A whole number, grouped by thousands: `10,000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A share of a whole: `0.83 %`. Never rounds to all or nothing what is not.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if share <= 0.0 => "0 %".to_owned(),
        _ if share >= 1.0 => "100 %".to_owned(),
        _ if percent >= 99.95 => "> 99.9 %".to_owned(),
        _ if percent < 0.0001 => "< 0.0001 %".to_owned(),
        _ => format!("{} %", significant(percent, 3)),
    }
}

/// The same share as odds: `1 in 120`.
pub fn one_in(share: f64) -> String {
    if share <= 0.0 {
        return "none".to_owned();
    }
    let n = 1.0 / share;
    format!("1 in {}", if n < 9.95 { significant(n, 2).replace(".0", "") } else { count(n.round() as u64) })
}

/// A rate of events: `60 per second`.
pub fn per_second(rate: f64) -> String {
    let exact = if rate.fract() == 0.0 { count(rate as u64) } else { significant(rate, 3) };
    format!("{exact} per second")
}

/// A plain number to three significant digits: `0.853`, `1.04`, `12.3`.
pub fn number(value: f64) -> String {
    significant(value, 3)
}

/// A ratio of times in words: `12.0 % shorter`, `3.20 times as long`.
pub fn ratio_in_words(ratio: f64) -> String {
    match ratio {
        _ if ratio < 1.0 => format!("{} shorter", share(1.0 - ratio)),
        _ if ratio < 2.0 => format!("{} longer", share(ratio - 1.0)),
        _ => format!("{} times as long", number(ratio)),
    }
}

/// The same, ready for what it is held against: `12.0 % shorter than`, `3.20 times as long as`.
pub fn ratio_than(ratio: f64) -> String {
    format!("{} {}", ratio_in_words(ratio), if ratio < 2.0 { "than" } else { "as" })
}

/// Seconds between two points in time, rounded down: `40 s`, `3 min`, `5 h`, `12 days`.
pub fn apart(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A point in time, in UTC: `2026-08-22 14:03:11 UTC`.
pub fn date(unix_s: u64) -> String {
    /// The end of the year 9999: later ones have no such form.
    const LAST: u64 = 253_402_300_799;
    let date = UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST));
    let text = humantime::format_rfc3339_seconds(date).to_string();
    format!("{} UTC", text.trim_end_matches('Z').replace('T', " "))
}

/// The same with microseconds, from nanoseconds: `2026-08-22 14:03:11.000052 UTC`.
pub fn moment(unix_ns: u64) -> String {
    let text = date(unix_ns / 1_000_000_000);
    format!("{}.{:06} UTC", text.trim_end_matches(" UTC"), unix_ns % 1_000_000_000 / 1000)
}

fn time_parts(nanos: u64) -> (String, &'static str) {
    const UNITS: [(f64, &str); 3] = [(1e3, "µs"), (1e6, "ms"), (1e9, "s")];
    if nanos < 1000 {
        return (nanos.to_string(), "ns");
    }
    // 999,600 ns would be 1000 µs: what rounds up to the next unit is printed in it.
    let (size, unit) = UNITS.iter().find(|(size, _)| (nanos as f64) / size < 999.5).unwrap_or(&UNITS[2]);
    (significant(nanos as f64 / size, 3), unit)
}

fn si(value: f64) -> (String, &'static str) {
    const PREFIXES: [(f64, &str); 5] = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
    let (size, prefix) = PREFIXES.iter().find(|(size, _)| value / size < 999.5).unwrap_or(&PREFIXES[4]);
    (significant(value / size, 3), prefix)
}

fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let decimals = |value: f64| usize::try_from(digits - 1 - value.abs().log10().floor() as i32).unwrap_or(0);
    // Rounding may add a digit: 9.996 is 10.0, not 10.00.
    let scale = 10f64.powi(i32::try_from(decimals(value)).unwrap_or(0));
    let rounded = (value * scale).round() / scale;
    format!("{value:.*}", decimals(rounded))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        let cases = [
            (0, "0 ns"),
            (7, "7 ns"),
            (999, "999 ns"),
            (1000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (28_449, "28.4 µs"),
            (999_400, "999 µs"),
            (999_600, "1.00 ms"),
            (16_666_667, "16.7 ms"),
            (40_123_456, "40.1 ms"),
            (1_500_000_000, "1.50 s"),
            (3_600_000_000_000, "3600 s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(time(nanos), text);
        }
        assert_eq!(time_interval((27_900, 29_100)), "27.9–29.1 µs");
        assert_eq!(time_interval((900, 1_100)), "900 ns – 1.10 µs");
        assert_eq!((limit(50_000_000), limit(16_666_667)), ("50 ms".to_owned(), "16.7 ms".to_owned()));
        assert_eq!(limit(100_000_000), "100 ms");
    }

    #[test]
    fn rates_and_sizes() {
        assert_eq!(bit_rate(9.412e9), "9.41 Gbit/s");
        assert_eq!(bit_rate(0.0), "0 bit/s");
        assert_eq!(bit_rate(999.7e3), "1.00 Mbit/s");
        assert_eq!(bit_rate_interval((9.1e9, 9.5e9)), "9.10–9.50 Gbit/s");
        assert_eq!(amount(1.234e9), "1.23 GB");
        assert_eq!(
            [size(0), size(64), size(1000), size(65_536), size(1 << 20)],
            ["0 B", "64 B", "1,000 B", "64 KiB", "1 MiB"]
        );
        assert_eq!([count(7), count(999), count(10_000), count(1_234_567)], ["7", "999", "10,000", "1,234,567"]);
    }

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        let cases = [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.999_96, "> 99.9 %"),
            (0.999_5, "> 99.9 %"),
            (0.008_33, "0.833 %"),
            (1e-9, "< 0.0001 %"),
            (0.5, "50.0 %"),
        ];
        for (value, text) in cases {
            assert_eq!(share(value), text);
        }
        assert_eq!([one_in(0.0), one_in(0.5), one_in(1.0), one_in(0.008_33)], ["none", "1 in 2", "1 in 1", "1 in 120"]);
    }

    #[test]
    fn ratios_in_words() {
        let words = [0.88, 1.2, 3.2].map(ratio_in_words);
        assert_eq!(words, ["12.0 % shorter", "20.0 % longer", "3.20 times as long"]);
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_767_225_600), "2026-01-01 00:00:00 UTC");
        assert_eq!(date(u64::MAX), "9999-12-31 23:59:59 UTC");
    }

    proptest! {
        #[test]
        fn a_time_keeps_its_value_to_half_a_percent(nanos in 1..3_600_000_000_000u64) {
            let text = time(nanos);
            let (value, unit) = text.split_once(' ').unwrap();
            let size = match unit { "ns" => 1.0, "µs" => 1e3, "ms" => 1e6, "s" => 1e9, _ => unreachable!() };
            let back = value.parse::<f64>().unwrap() * size;
            prop_assert!((back / nanos as f64 - 1.0).abs() <= 0.005, "{nanos} {text}");
        }
    }
}

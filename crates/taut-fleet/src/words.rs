//! What plans say in words: times and bit rates.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

use crate::error::Error;

/// Nothing in a plan takes longer.
const LONGEST: Duration = Duration::from_secs(31_536_000);

/// `250us`, `2ms`, `1.5s`, `10min`, `6h`, `1d`.
pub(crate) fn time(text: &str) -> Result<Duration, Error> {
    let text = text.trim();
    let wrong = || Error::new(format!("`{text}`: write a number with its unit: 250us, 2ms, 1.5s, 10min, 6h"));
    let (number, unit) = parts(text);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|time| *time <= LONGEST)
        .ok_or_else(|| Error::new(format!("`{text}` is more than a year")))
}

/// `100Mbit/s`, in bits per second.
pub(crate) fn bit_rate(text: &str) -> Result<f64, Error> {
    let (number, unit) = parts(text.trim());
    let factor = match unit.trim() {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        _ => f64::NAN,
    };
    let rate = number.parse::<f64>().map_or(f64::NAN, |number| number * factor);
    let wrong = || Error::new(format!("`{}`: write bits per second, such as 100Mbit/s", text.trim()));
    Some(rate).filter(|rate| rate.is_finite()).ok_or_else(wrong)
}

fn parts(text: &str) -> (&str, &str) {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    text.split_at(digits)
}

/// A time of a plan, which is more than zero.
pub(crate) fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time = time(&text).map_err(de::Error::custom)?;
    Some(time)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| de::Error::custom(format!("`{text}` must be more than zero")))
}

/// A time of a plan that may be left out.
pub(crate) mod maybe {
    use super::{Deserializer, Duration, Serializer, positive};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        positive(deserializer).map(Some)
    }

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        // It is left out where there is none.
        serializer.collect_str(&format_args!("{}ns", time.unwrap_or_default().as_nanos()))
    }
}

pub(crate) fn within<T: PartialOrd + fmt::Display>(key: &str, value: T, least: T, most: T) -> Result<T, Error> {
    if value >= least && value <= most {
        Ok(value)
    } else {
        Err(Error::new(format!("{key} = {value}: from {least} to {most}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_units() {
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time(" 6h "), Ok(Duration::from_secs(21_600)));
        for wrong in ["", "2", "ms", "2 fortnights", "1.2.3s", "99999d", "-1s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bit_rate("1.5Gbit/s"), Ok(1.5e9));
        for wrong in ["", "1", "Mbit/s", "1MB/s"] {
            assert!(bit_rate(wrong).is_err(), "{wrong}");
        }
    }
}

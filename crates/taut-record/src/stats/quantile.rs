use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// The time at one rank among all messages, in nanoseconds. A lost message is later than every time.
///
/// In JSON a time is a number, and `Lost` is `null`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Quantile {
    /// The message came back after so many nanoseconds.
    Time(u64),
    /// The message at this rank never came back.
    Lost,
}

impl Quantile {
    /// The time in nanoseconds; `None` when it is lost.
    pub const fn time(self) -> Option<u64> {
        match self {
            Self::Time(nanos) => Some(nanos),
            Self::Lost => None,
        }
    }

    /// The time in nanoseconds, with a loss at infinity.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Time(nanos) => nanos as f64,
            Self::Lost => f64::INFINITY,
        }
    }

    /// The other way round.
    pub(super) fn from_f64(nanos: f64) -> Self {
        if nanos.is_finite() { Self::Time(nanos.round() as u64) } else { Self::Lost }
    }
}

impl From<u64> for Quantile {
    fn from(nanos: u64) -> Self {
        Self::Time(nanos)
    }
}

impl Serialize for Quantile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.time().serialize(serializer)
    }
}

/// Not by way of `Option`, for which a field that is missing would be a loss.
impl<'de> Deserialize<'de> for Quantile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeOrNull;
        impl Visitor<'_> for TimeOrNull {
            type Value = Quantile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in nanoseconds, or null for lost")
            }

            fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<Quantile, E> {
                Ok(Quantile::Time(nanos))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Quantile, E> {
                Ok(Quantile::Lost)
            }

            fn visit_none<E: de::Error>(self) -> Result<Quantile, E> {
                Ok(Quantile::Lost)
            }
        }
        deserializer.deserialize_any(TimeOrNull)
    }
}

impl JsonSchema for Quantile {
    fn schema_name() -> Cow<'static, str> {
        "Quantile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The time at one rank among all messages, in nanoseconds. A lost message is later than every \
                time: null means that the message at this rank was lost.",
            "type": ["integer", "null"],
            "format": "uint64",
            "minimum": 0,
        })
    }
}

/// The percentiles that are printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Percentile {
    /// The median.
    P50,
    /// 90 % took no longer.
    P90,
    /// 99 % took no longer.
    P99,
    /// 99.9 % took no longer.
    P999,
    /// 99.99 % took no longer.
    P9999,
}

impl Percentile {
    /// All of them, rising.
    pub const ALL: [Self; 5] = [Self::P50, Self::P90, Self::P99, Self::P999, Self::P9999];

    /// The share of the messages that took no longer, from 0 to 1.
    pub const fn share(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
            Self::P999 => 0.999,
            Self::P9999 => 0.9999,
        }
    }

    /// Messages that a sample needs, so that at least one lies at or beyond the percentile.
    pub const fn least_messages(self) -> u64 {
        match self {
            Self::P50 => 1,
            Self::P90 => 10,
            Self::P99 => 100,
            Self::P999 => 1_000,
            Self::P9999 => 10_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_loss_is_later_than_every_time() {
        assert!(Quantile::Lost > Quantile::Time(u64::MAX));
        assert!(Quantile::Time(2) > Quantile::Time(1));
        assert!(Quantile::Lost.as_f64() > Quantile::Time(u64::MAX).as_f64());
    }

    #[test]
    fn in_json_a_loss_is_null_and_a_missing_field_is_an_error() {
        #[derive(Debug, serde::Deserialize, serde::Serialize)]
        struct Of {
            p50: Quantile,
        }
        assert_eq!(json!(Of { p50: Quantile::Lost }), json!({"p50": null}));
        assert_eq!(json!(Of { p50: Quantile::Time(7) }), json!({"p50": 7}));
        let read = |value| serde_json::from_value::<Of>(value).map(|of| of.p50);
        assert_eq!(read(json!({"p50": null})).unwrap(), Quantile::Lost);
        assert_eq!(read(json!({"p50": 7})).unwrap(), Quantile::Time(7));
        assert!(read(json!({})).unwrap_err().to_string().contains("missing field `p50`"));
        assert!(read(json!({"p50": -1})).is_err());
    }
}

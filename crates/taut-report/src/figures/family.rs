use taut_record::stats::{ExponentialHistogram, SCALE};

/// Figures of one name.
#[derive(Debug)]
pub struct Family<'a> {
    /// Its name, without the tool's, the unit's and the kind's.
    pub name: &'static str,
    /// What it is, a sentence.
    pub help: String,
    /// How it behaves.
    pub kind: Kind,
    /// Of what.
    pub unit: Unit,
    /// One for each set of labels.
    pub samples: Vec<Sample<'a>>,
}

/// How figures behave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// They grow.
    Counter,
    /// They go up and down.
    Gauge,
    /// Distributions, which grow.
    Histogram,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Things, or a share.
    Plain,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

/// One figure.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Labels: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The figure.
    pub value: Value<'a>,
}

/// A figure's value.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A number.
    Number(f64),
    /// A distribution.
    Histogram(&'a ExponentialHistogram),
}

impl Family<'_> {
    /// A family of one figure without labels.
    pub fn plain(name: &'static str, help: &str, kind: Kind, unit: Unit, value: f64) -> Self {
        let samples = vec![Sample { labels: Vec::new(), value: Value::Number(value) }];
        Self { name, help: help.to_owned(), kind, unit, samples }
    }

    /// The name as Prometheus has it: with the unit, and `_total` behind what grows.
    pub(super) fn full_name(&self) -> String {
        let unit = match self.unit {
            Unit::Plain => "",
            Unit::Seconds => "_seconds",
            Unit::Bytes => "_bytes",
            Unit::BytesPerSecond => "_bytes_per_second",
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("taut_{}{unit}{total}", self.name)
    }
}

/// Bounds of the classic buckets as indices of those of a histogram: 2^(1/2) apart, from 2^-20 (0.95 µs) to 2^6 s.
pub(super) fn classic_bounds() -> impl Iterator<Item = i32> {
    let doubling = 1 << SCALE;
    (-20 * doubling..=6 * doubling).step_by(doubling as usize / 2)
}

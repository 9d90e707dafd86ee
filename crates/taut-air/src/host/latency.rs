use crate::rng::Random;
use crate::time::Nanos;

/// A time that varies: evenly distributed from `low` to `high`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Latency {
    /// At least.
    pub low: Nanos,
    /// At most.
    pub high: Nanos,
}

impl Latency {
    /// Always the same.
    pub const fn fixed(nanos: Nanos) -> Self {
        Self { low: nanos, high: nanos }
    }

    /// One of them.
    pub const fn draw(self, random: &mut Random) -> Nanos {
        random.between(self.low, self.high)
    }
}

use super::{Percentile, Quantile};

/// The figures of one round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Figures {
    /// By [`Percentile::ALL`].
    pub(super) percentiles: [Quantile; 5],
    /// Longest; lost when any message was.
    pub max: Quantile,
    /// Number of messages, lost ones included.
    pub messages: u64,
}

impl Figures {
    /// A percentile, whether or not the round has enough messages for it.
    pub const fn at(&self, percentile: Percentile) -> Quantile {
        self.percentiles[percentile as usize]
    }

    /// A percentile, if the round has enough messages for it.
    pub fn percentile(&self, percentile: Percentile) -> Option<Quantile> {
        (self.messages >= percentile.least_messages()).then(|| self.at(percentile))
    }
}

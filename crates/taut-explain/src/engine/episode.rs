/// One stretch in which the same holder had the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Episode {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Packet at its beginning, and the one that ended it.
    pub(crate) places: (u64, u64),
}

impl Episode {
    pub(crate) const fn length(&self) -> u64 {
        self.to - self.from
    }
}

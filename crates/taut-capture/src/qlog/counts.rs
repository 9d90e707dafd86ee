//! What is counted of a log, and its limits.

/// Begins each text of a sequence (RFC 7464, section 2.2).
pub(super) const SEPARATOR: u8 = 0x1e;
/// Ends each text of a sequence without separators (NDJSON).
pub(super) const NEWLINE: u8 = b'\n';
/// No event is longer, in bytes; what is before and behind them neither.
pub(super) const LONGEST: u64 = 1 << 20;

/// What there was in a log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QlogCounts {
    /// Events.
    pub events: u64,
    /// Of them packets sent or received.
    pub packets: u64,
    /// Events without a time or a name that can be read.
    pub unreadable: u64,
    /// Texts of a sequence that are no JSON, or too long.
    pub damaged: u64,
    /// Events that stand behind later ones, and were put in order.
    pub reordered: u64,
    /// Events of connections beyond those that are followed.
    pub beyond: u64,
    /// Bytes read, uncompressed.
    pub bytes: u64,
}

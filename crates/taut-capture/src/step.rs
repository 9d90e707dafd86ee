//! What one step through a file comes to, in whatever form it is.

use std::ops::Range;

use taut_time::Instant;

use crate::packet::{Ending, LinkType};

/// No record is longer; a length beyond is damage. The largest packet of Linux (BIG TCP) has 512 KiB.
pub(crate) const LONGEST: u32 = 16 << 20;

/// What stood at the reader's place.
pub(crate) enum Step {
    /// Nothing that is a packet.
    Nothing,
    Packet(Record),
    End(Ending),
}

/// A packet, but for its number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) at: Option<Instant>,
    pub(crate) link: LinkType,
    /// Where its bytes stand in the buffer.
    pub(crate) bytes: Range<usize>,
    pub(crate) original_length: u32,
    /// Of btsnoop: the record's flags.
    pub(crate) flags: u32,
    /// Packets that the capturing program says it has lost so far.
    pub(crate) lost: u64,
}

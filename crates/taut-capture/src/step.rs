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
    Packet {
        at: Option<Instant>,
        link: LinkType,
        bytes: Range<usize>,
        original_length: u32,
        /// Of btsnoop: the record's flags.
        flags: u32,
    },
    End(Ending),
}

//! Why files are not joined.

use std::fmt;

/// Fewer packets make no line.
pub(super) const LEAST: usize = 8;

/// Why two files can't be put on one timeline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotJoined {
    /// No packet of one is in the other.
    NothingInCommon,
    /// A trace has no connection of TCP of a capture; by others it is not joined.
    NoTcpInCommon,
    /// There are connections between the same ends, but no packet of one file is in the other.
    OtherPackets,
    /// They have too few packets in common.
    TooFew {
        /// So many.
        common: u64,
    },
    /// Only packets of one direction are in both.
    OneDirection,
    /// No link of Bluetooth of one is in the other.
    OtherLinks,
    /// No link of one is known to be in the other, and the sniffer has one in cipher text without its begin.
    Sealed,
    /// Several links of one may be one of the other, and each would give another offset of the clocks.
    SeveralLinks,
    /// No clock that runs evenly explains the times, not even one that was set now and then.
    NoEvenClock,
    /// Both clocks run evenly, and too differently for clocks.
    Apart {
        /// By how much the other one is faster, in parts per million.
        ppm: i64,
    },
    /// A clock was set while a capture and a trace of the same connections went on.
    ClockWasSet,
    /// A trace was recorded without the time of day and sequence numbers.
    OldRecording,
    /// A trace was recorded without what its links carried.
    NoLinksRecorded,
    /// A capture and a trace have connections between the same ends, but no packet of one is in the other.
    OtherSegments,
}

impl fmt::Display for NotJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingInCommon => f.write_str(
                "they hold no connection in common: no segment of TCP and no datagram of UDP of one is in the other (a \
                 proxy between the two places makes connections of its own)",
            ),
            Self::NoTcpInCommon => f.write_str(
                "they hold no connection of TCP in common, and a trace is joined with a capture by those or by links of \
                 Bluetooth (a proxy between the two places makes connections of its own)",
            ),
            Self::OtherPackets => f.write_str(
                "they hold connections between the same ends, but not the same packets: they were taken at other \
                 times, or a proxy between the two places makes connections of its own, or nothing in them \
                 tells one packet from the other",
            ),
            Self::TooFew { common } => {
                write!(f, "they hold only {common} packets in common, and {} are needed", LEAST)
            }
            Self::OneDirection => f.write_str(
                "only one direction of their connections is in both: then nothing tells the time on the way from the \
                 offset of the clocks",
            ),
            Self::OtherLinks => f.write_str(
                "they hold no link in common: no L2CAP PDUs of one are in the other, by their bytes or by their order",
            ),
            Self::Sealed => f.write_str(
                "the sniffer has a link in cipher text and not from its begin, so only lengths tell its PDUs, and \
                 those fit none of the log's or several; capture from before the connection opens",
            ),
            Self::SeveralLinks => f.write_str(
                "several links of one look like one of the other, as runs of the same test do, and nothing tells which \
                 one it is: each gives another offset of the clocks",
            ),
            Self::NoEvenClock => f.write_str(
                "their clocks were set too often, or run too unevenly, for one timeline, or they are of two runs that \
                 look alike: packets would arrive before they left",
            ),
            Self::Apart { ppm } => write!(
                f,
                "their clocks run too differently: the second one's by about {ppm:+} ppm, and more than 1000 is taken \
                 for no clock that runs evenly, so that its error is not known"
            ),
            Self::ClockWasSet => f.write_str("a clock was set while both went on, so one timeline can't have all of it"),
            Self::OldRecording => f.write_str(
                "the trace has no time of day and counts bytes from where it began, as older versions recorded it: nothing \
                 tells which segment is which; trace once more with this version",
            ),
            Self::NoLinksRecorded => f.write_str(
                "the trace does not have what its links of Bluetooth carried, as older versions recorded it; trace once \
                 more with this version",
            ),
            Self::OtherSegments => f.write_str(
                "they hold connections between the same ends, but no segment of one is in the other: they were taken \
                 at other times, or of another connection with the same ports",
            ),
        }
    }
}

impl std::error::Error for NotJoined {}

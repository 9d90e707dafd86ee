//! Two captures of the same connections, taken at two places, on one timeline.
//!
//! - [`Sightings`]: the segments of TCP that one file has, so many at most.
//! - `matching`: which packet of one file is which of the other; never a repetition for its original.
//! - `fit`: the clock of one file on that of the other, by causality: nothing arrives before it left.
//! - [`join()`]: both, as a report.

mod fit;
mod matching;
mod report;
mod sightings;
mod stretches;

#[cfg(test)]
mod tests;

pub use report::{ClockFit, Joined};
pub use sightings::{MOST_SIGHTINGS, Sighting, Sightings};

use std::fmt;

use taut_time::{ClockDomain, ClockMap, Duration};

use matching::Matches;
use stretches::Stretches;

/// Why two files can't be put on one timeline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotJoined {
    /// No packet of one is in the other.
    NothingInCommon,
    /// There are connections between the same ends, but no packet of one file is in the other.
    OtherPackets,
    /// They have too few packets in common.
    TooFew {
        /// So many.
        common: u64,
    },
    /// Only packets of one direction are in both.
    OneDirection,
    /// No clock that runs evenly explains the times, not even one that was set now and then.
    NoEvenClock,
}

impl fmt::Display for NotJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingInCommon => f.write_str(
                "they hold no connection in common: no segment of TCP of one is in the other (a proxy between the two \
                 places makes connections of its own)",
            ),
            Self::OtherPackets => f.write_str(
                "they hold connections between the same ends, but not the same packets: they were taken at other \
                 times, or a proxy between the two places makes connections of its own, or nothing in their headers \
                 tells one packet from the other",
            ),
            Self::TooFew { common } => {
                write!(f, "they hold only {common} packets in common, and {} are needed", stretches::LEAST)
            }
            Self::OneDirection => f.write_str(
                "only one direction of their connections is in both: then nothing tells the time on the way from the \
                 offset of the clocks",
            ),
            Self::NoEvenClock => f.write_str(
                "their clocks were set too often, or run too unevenly, for one timeline: packets would arrive before \
                 they left",
            ),
        }
    }
}

impl std::error::Error for NotJoined {}

/// Puts `other` on the timeline of `reference`.
///
/// # Errors
///
/// When they do not hold the same packets, in both directions, with clocks that a line can explain.
pub fn join(reference: &Sightings, other: &Sightings) -> Result<Joined, NotJoined> {
    let matches = Matches::between(reference, other)?;
    let stretches = Stretches::of(reference, other, &matches)?;
    let (best, fit) = stretches.longest();
    let map = fit.to_clock_map(Duration::from_nanos(other.resolution_ns.max(1)));
    Ok(report::report(reference, other, &matches, &stretches, best, fit, &map))
}

impl fit::Fit {
    /// From the clock of the other file to that of the reference.
    fn to_clock_map(self, resolution: Duration) -> ClockMap {
        // At reference time t the other clock shows t + offset + rate (t - middle).
        let faster = self.rate / (1.0 + self.rate);
        let offset = self.middle as f64 * faster - self.offset * (1.0 - faster);
        let uncertainty = Duration::from_nanos(self.uncertainty.ceil() as u64);
        let offset_ns = offset.round() as i64;
        ClockMap { domain: ClockDomain::RealTime, offset_ns, rate_ppm: faster * 1e6, uncertainty, resolution }
    }
}

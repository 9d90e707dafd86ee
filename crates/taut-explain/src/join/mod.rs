//! Two captures of the same connections, taken at two places, on one timeline.
//!
//! - [`Sightings`]: the segments of TCP and datagrams of UDP that one file has, so many at most.
//! - `matching`: which packet of one file is which of the other; never a repetition for its original.
//! - `fit`: the clock of one file on that of the other, by causality: nothing arrives before it left.
//! - `lane`, `fate`, `losses`: on which side of the second place segments were lost, and how soon the receiver
//!   acknowledged (`acknowledged`).
//! - `datagrams`: which datagrams of UDP were lost between both places.
//! - [`join()`]: both, as a report.
//! - [`TraceLog`]: a capture and a live trace of its connections, with one breakdown for both.
//! - [`join_bluetooth`]: the same for links of Bluetooth, of a host's log and a sniffer's capture, or of two hosts;
//!   [`TracedLinks`] is what a live trace saw of them.

mod acknowledged;
mod bluetooth;
mod datagrams;
mod fate;
mod fit;
mod lane;
mod losses;
mod matching;
mod named;
mod report;
mod sightings;
mod stretches;
mod traced;
mod why;

#[cfg(test)]
mod tests;

pub use bluetooth::{BluetoothWay, BluetoothWays, Crossings, HostLink, InController, OnAir, TimesOn, join_bluetooth};
pub use bluetooth::{FinishedLinks, HeldOnAir, Meanwhile, ProgramOnAir, TracedLinks};
pub use datagrams::DatagramLosses;
pub use losses::{Acknowledged, Losses};
pub use named::{Frames, Lost};
pub use report::{ClockFit, Joined, Way};
pub use sightings::{DatagramSighting, MOST_SIGHTINGS, Sighting, Sightings};
pub use traced::{ClockReading, Disagreement, HostClock, JoinedDirection, JoinedTrace, ToldBy, TraceLog, Witnessed};
pub use why::NotJoined;

use taut_time::Duration;

use matching::Matches;
use stretches::Stretches;

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

//! Two captures of a link of Bluetooth on one timeline: a host's log and a sniffer's capture, or both hosts' logs.
//!
//! - [`Crossings`]: the L2CAP PDUs that one file has, link by link, so many at most; of a sniffer the PDUs on the air,
//!   too.
//! - `align`: which PDU of one file is which of the other: by their bytes, and where those are in cipher text by their
//!   order and lengths.
//! - `pair`: which link of one file is which of the other, and what that tells of the clocks. The line through it is
//!   `fit`'s, as for TCP.
//! - `split`: what passed while the sender's controller had something.
//! - `report`: all of it.

mod air;
mod align;
mod crossings;
mod host;
mod pair;
mod pdu;
mod report;
mod split;
#[cfg(test)]
mod tests;
mod told;

pub use air::OnAir;
pub use crossings::{Crossings, HostLink};
pub use told::{BluetoothWay, BluetoothWays, InController, TimesOn};

use super::report::Joined;
use super::why::NotJoined;

/// The stretch that is joined has one in so many of the PDUs that are in both, or more.
const LEAST_SHARE: usize = 5;

/// Puts the links of `other` on the timeline of `reference`.
///
/// # Errors
///
/// When they do not hold the same PDUs, in both directions, with clocks that a line can explain.
pub fn join_bluetooth(reference: &Crossings, other: &Crossings) -> Result<Joined, NotJoined> {
    let paired = pair::Paired::between(reference, other)?;
    let (stretches, is_early) = paired.stretches(reference, other)?;
    // PDUs of two runs that look alike fit a line now and then; those of one run fit few lines.
    let all: usize = stretches.all.iter().map(|stretch| stretch.packets.len()).sum();
    let (longest, _) = stretches.longest();
    if stretches.all[longest].packets.len() * LEAST_SHARE < all + stretches.strays as usize {
        return Err(NotJoined::NoEvenClock);
    }
    Ok(report::report(reference, other, &paired, &stretches, is_early))
}

//! Periodic sending: does each message leave and arrive on time?
//!
//! Messages are sent on an absolute schedule. Of each the recording has the intended time, the sending call, what the
//! kernel did with it ([`taut_link::stamp`]), the acknowledgement, and the arrival at the peer.

mod analysis;
mod peer;
mod plan;
mod sender;
mod simulated;
#[cfg(test)]
mod tests;

use taut_link::{Error, Result, affinity};
use taut_time::Duration;

use crate::interrupt::Interrupt;
use crate::rounds;
use analysis::{Receiver, Totals};
use peer::Peer;
pub use plan::{PaceOutcome, PacePlan, PeerKind};

/// Every message of a round is kept with all its events, about 0.5 kB each, until its figures are known.
const MOST_MESSAGES: u128 = 200_000;

/// How few rounds have room for all messages of that time.
pub fn least_rounds(time: Duration, period: Duration) -> usize {
    let messages = time.as_nanos() / period.as_nanos().max(1);
    usize::try_from(messages.div_ceil(MOST_MESSAGES)).unwrap_or(usize::MAX).max(1)
}

/// Sends on schedule, round by round.
///
/// # Errors
/// The peer can't be reached, or an option or right is missing. A peer that goes away later ends
/// the run, and what there is is returned.
pub fn run(plan: &PacePlan, interrupt: &Interrupt, progress: &mut dyn FnMut(usize, usize)) -> Result<PaceOutcome> {
    if plan.period.is_zero() || plan.message_bytes == 0 {
        return Err(Error::Input("period and message size must be above zero".into()));
    }
    if plan.time.as_nanos() / plan.rounds.max(1) as u128 / plan.period.as_nanos() > MOST_MESSAGES {
        return Err(Error::Input(format!(
            "more than {MOST_MESSAGES} messages don't fit into one round: take more rounds, shorten the time or lengthen \
             the period"
        )));
    }
    if let PeerKind::Simulated(air) = &plan.peer {
        return simulated::run(plan, air, interrupt).map_err(|error| Error::Input(error.to_string()));
    }
    let peer = {
        // A peer on a thread of its own stays where that was started.
        let is_thread = matches!(plan.peer, PeerKind::Foreign(_));
        let _placed = affinity::on_core(plan.spot.peer_core.filter(|_| is_thread))?;
        Peer::new(&plan.peer)?
    };
    let receiver = Receiver {
        endpoint: peer.endpoint().to_string(),
        transport: peer.endpoint().transport().to_owned(),
        describe: peer.describe(),
        tells: !matches!(peer, Peer::Plain(_)),
    };
    let mut totals = Totals::new(plan, receiver);
    let (_, ended) = rounds::run(plan.rounds, interrupt, progress, || {
        let _placed = affinity::on_core(plan.spot.core)?;
        let (round, error) = sender::send_round(plan, &peer, interrupt)?;
        totals.add(round);
        Ok(((), error))
    })?;
    Ok(totals.finish(ended))
}

//! What is said of a cause, and what it is said with.

use taut_event::Holder;

use super::facts::Facts;
use crate::engine::{Certainty, Evidence, Found, Verdict};
use crate::words;

/// The causes with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 9] = [
    ("credit_window", &[Holder::Credits]),
    ("controller", &[Holder::ConnectionInterval, Holder::Air]),
    ("controller_buffers", &[Holder::ControllerBuffers]),
    ("interval_quantisation", &[Holder::ConnectionInterval]),
    ("phy", &[Holder::Air]),
    ("length", &[Holder::Air]),
    ("mtu", &[Holder::Air]),
    ("peer_turn", &[Holder::PeerTurn]),
    ("sending_program", &[Holder::SendingProgram]),
];

/// Those whose time a cause is.
pub(super) fn holders(cause: &str) -> &'static [Holder] {
    CAUSES.iter().find(|(name, _)| *name == cause).map_or(&[][..], |(_, holders)| holders)
}

/// More than LE 2M carries, in bits per second.
const FASTEST_BPS: f64 = 2e6;

/// A verdict, and the time that acting on it would save.
pub(super) struct Judged {
    pub(super) saved: f64,
    pub(super) verdict: Verdict,
}

pub(super) fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}

pub(super) const CLEAR: Judged = Judged { saved: 0.0, verdict: Verdict::Clear };

pub(super) fn unknown(missing: &str, ask: &str) -> Judged {
    Judged { saved: 0.0, verdict: Verdict::Unknown { missing: missing.to_owned(), ask: ask.to_owned() } }
}

impl Facts<'_> {
    pub(super) fn found(
        &self,
        cause: &str,
        saved: f64,
        summary: String,
        evidence: Vec<Evidence>,
        remedy: &str,
    ) -> Judged {
        self.found_of(cause, holders(cause), saved, summary, evidence, remedy)
    }

    /// The same where the time is that of other holders.
    pub(super) fn found_of(
        &self,
        cause: &str,
        holders: &[Holder],
        saved: f64,
        summary: String,
        evidence: Vec<Evidence>,
        remedy: &str,
    ) -> Judged {
        let mut all = Vec::from_iter(self.longest(holders));
        all.extend(evidence);
        let rate = |ns: f64| words::rate(self.half.tally.bytes, ns.max(1.0) as u64);
        let whole = self.whole_ns as f64;
        // Less than the data takes on the fastest link there is: the log's times are not those of the air.
        if saved > 0.0 && self.interval() > 0 && whole - saved >= self.bits * 1e9 / FASTEST_BPS {
            all.push(text(format!("Without it, by the model: {} instead of {}.", rate(whole - saved), rate(whole))));
        }
        if let Some((change, [with, without])) = self.gains.as_ref().and_then(|gains| gains.remedy(cause)) {
            let rate = |bps: f64| words::rate((bps / 8.0) as u64, 1_000_000_000);
            all.push(text(format!(
                "Tried in a simulated link that shows what this log shows: `{change}` gives {} instead of {}.",
                rate(with),
                rate(without)
            )));
        }
        let found = Found {
            summary,
            side: holders.first().map_or_else(String::new, |holder| holder.side().to_string()),
            certainty: Certainty::Consistent,
            cost: self.cost(holders),
            evidence: all,
            remedy: remedy.to_owned(),
        };
        Judged { saved, verdict: Verdict::Found(found) }
    }
}

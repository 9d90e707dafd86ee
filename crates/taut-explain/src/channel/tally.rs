//! What was counted of one direction of a channel.

use super::media::LATE_NS;
use super::mic::Mic;
use super::rhythm::Rhythm;
use crate::engine::Episode;
use crate::tcp::Spread;
use crate::tcp::sample::Sample;

/// Counts and times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) pdus: u64,
    pub(crate) sdus: u64,
    /// PDUs behind a loss, until an SDU was seen to end.
    pub(crate) pdus_of_unknown_sdus: u64,
    pub(crate) bytes: u64,
    pub(crate) first_place: u64,
    pub(crate) last_place: u64,
    /// Bytes of an SDU.
    pub(crate) sdu_bytes: Sample,
    /// Credits given at once.
    pub(crate) grants: Sample,
    /// Waits without credits, from the last one used to the next ones.
    pub(crate) credit_waits: Sample,
    /// The part of these in which nothing was under way: from the last packet that was through to the next credits.
    pub(crate) grant_delays: Sample,
    /// From the packet's hand-over to its completion.
    pub(crate) completions: Sample,
    /// The same, for percentiles.
    pub(crate) completion_times: Spread,
    /// Spells in which packets were there that took [`LATE_NS`] or more.
    pub(crate) late: Late,
    /// From a question that is through to its answer.
    pub(crate) answers: Spread,
    /// How long a question waited that was never answered.
    pub(crate) unanswered: Option<u64>,
    /// Whether the log lacks answers to questions.
    pub(crate) lacks_answers: bool,
    /// How long the sender waited for credits that never came.
    pub(crate) ungranted: Option<u64>,
    /// Whether packets of the log were lost meanwhile.
    pub(crate) is_lossy: bool,
    /// Time in which the controller seemed to have nothing, and may have had packets that the log does not have.
    pub(crate) hidden_ns: u64,
    /// The packet that went although no credit was left: some were not seen.
    pub(crate) overdrawn: Option<u64>,
    /// Whether too little was kept of some packets to tell whose turn it was.
    pub(crate) is_turnless: bool,
    /// Whether the log never tells when packets are through.
    pub(crate) is_blind: bool,
    /// Most bytes in the controller at once.
    pub(crate) peak_bytes: u64,
    /// Longest packet of the host controller interface.
    pub(crate) largest_packet: u16,
    /// Time on air, computed from the lengths.
    pub(crate) air_ns: u64,
    /// The same of packets that went within an interval of one of the other direction.
    pub(crate) met_ns: u64,
    /// Most credits there were.
    pub(crate) most_credits: u64,
    /// Waits for an event after one that closed with packets in the controller.
    pub(crate) queued_ns: u64,
    /// Waits for an event after one that left none.
    pub(crate) unqueued_ns: u64,
    /// What a packet was in the controller beyond the event after the next, with nothing queued before it.
    pub(crate) overdue_ns: u64,
    /// From credits that came when there were none to the next packet, where an SDU begins with it.
    pub(crate) wakes: Sample,
    /// The same where an SDU goes on: the kernel has its rest, and no program is woken.
    pub(crate) resumes: Sample,
    /// The same where a block begins.
    pub(crate) block_wakes: Sample,
    /// Bytes from one SDU that was shorter than the channel takes to the next.
    pub(crate) blocks: Sample,
    /// From a report that freed a buffer, when all were taken, to the next packet.
    pub(crate) refills: Sample,
    /// Packets that were reported through at once.
    pub(crate) reported: Sample,
    /// Reports that came less than an event after the one before.
    pub(crate) close_reports: u64,
    /// The least time from a packet's hand-over, with the controller empty, to its completion, or of what is received
    /// from one packet to the next; with its length.
    pub(crate) least_way: Option<(u16, u64)>,
    /// Packets received with credits left that came an event after the one before them, though the sender had them.
    pub(crate) cut_short: u64,
    /// Waits beyond an interval for a peripheral that may skip events.
    pub(crate) skipped_ns: u64,
    /// The longest time in which nothing was told of the channel while the controller had packets, with its frames, if
    /// no link outlives that.
    pub(crate) silence: Option<Episode>,
    /// Whether data PDUs carry a MIC, as their rhythm tells.
    pub(crate) mic: Mic,
    /// In which rhythm packets went.
    pub(crate) rhythm: Rhythm,
}

/// Late packets that were in the controller at once are one spell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    pub(crate) spells: u64,
    pub(crate) ns: u64,
    /// The end of the newest one.
    until: u64,
}

impl Tally {
    /// Whether for long enough to be told of the controller may have had packets that the log does not have.
    pub(super) fn hides_packets(&self, whole_ns: u64) -> bool {
        self.hidden_ns >= whole_ns / 20 && self.hidden_ns > 0
    }

    /// A packet was through that was in the controller from then until then.
    pub(super) fn completed(&mut self, from: u64, to: u64) {
        let took = to.saturating_sub(from);
        self.completions.add(took);
        self.completion_times.add(took);
        if took >= LATE_NS {
            let late = &mut self.late;
            late.spells += u64::from(from >= late.until);
            late.ns = late.ns.saturating_add(to.saturating_sub(from.max(late.until)));
            late.until = late.until.max(to);
        }
    }
}

//! Which acknowledgement a sender knew of when it sent, by the timestamp that it echoes; and so how
//! long ago that one had passed (RFC 7323, section 4.3).

use taut_event::Segment;

use super::half::{Half, MS};
use super::vantage::{LONGEST_LOOP, Loops};

/// So many acknowledgements back the echoed one is looked for.
const FARTHEST: u64 = 4096;
/// Data that comes sooner after other data goes with it, in nanoseconds.
const LEAST_GAP: u64 = 300_000;

impl Half {
    /// What new data tells of the loop to its sender.
    pub(super) fn follow(&mut self, at: u64, segment: &Segment, loops: &mut Loops) {
        if loops.is_at_sender(self.direction) && loops.is_by_handshake(self.direction) {
            // Nothing asks for it.
            return;
        }
        let Some(stamps) = segment.timestamps else {
            let after_gap = self.last_data.filter(|last| at > last + LEAST_GAP);
            let ack = self.acks.last().filter(|ack| ack.is_pure && after_gap.is_some_and(|last| ack.at >= last));
            if let Some(ack) = ack {
                loops.saw_reaction(self.direction, at.saturating_sub(ack.at));
            }
            return;
        };
        let before = self.echoes.end;
        let oldest = self.acks.end().saturating_sub(FARTHEST);
        let mut first = None;
        while let Some(ack) = self.acks.get(self.echoes.end.max(oldest))
            && ack.value.is_none_or(|value| value.wrapping_sub(stamps.echo) as i32 <= 0)
        {
            if first.is_none() && ack.value == Some(stamps.echo) {
                first = Some(ack.at);
            }
            self.echoes.end = self.echoes.end.max(oldest) + 1;
        }
        // Of several with the same clock the first one may have been what it had.
        let is_new = self.echoes.newest.replace(stamps.echo) != Some(stamps.echo);
        if let Some(passed) = first.filter(|_| is_new && before >= oldest) {
            loops.saw_echo(self.direction, at.saturating_sub(passed));
        }
        if let Some(ack) = self.acks.get(self.echoes.end.max(oldest)).filter(|ack| ack.is_pure && ack.rises()) {
            loops.saw_ignorance(self.direction, at.saturating_sub(ack.at));
        }
        if self.echoes.end == before || loops.is_at_sender(self.direction) {
            return;
        }
        let Some(ack) = self.acks.get(self.echoes.end - 1).filter(|ack| ack.is_pure) else { return };
        let lag = at.saturating_sub(ack.at).min(LONGEST_LOOP);
        // With nothing left in flight the sender may have waited for its program.
        let is_idle = self.next.is_none_or(|next| ack.una >= next);
        let to_sender = loops.to_sender(self.direction);
        if !is_idle || lag < to_sender + (3 * MS / 2).max(to_sender / 4) {
            self.echoes.lagged(at, lag);
        }
    }

    /// From an ACK's passing to that of what it released: the least of late.
    pub(super) fn lag(&self, at: u64, loops: &Loops) -> u64 {
        let recent = (300 * MS).max(8 * loops.round_trip());
        let lags = self.echoes.lags.iter();
        let least = lags.filter(|(then, _)| at.saturating_sub(*then) < recent).map(|&(_, lag)| lag).min();
        least.unwrap_or_else(|| loops.to_sender(self.direction))
    }
}

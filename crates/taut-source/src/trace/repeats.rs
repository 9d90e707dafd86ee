//! Whether all that a socket sent again was seen: there are kernels that run no program in some interrupts.

use taut_event::Timer;

use super::record::What;

/// What the kernel remembered of it at the last record that can be compared with.
#[derive(Debug, Default)]
pub(super) struct Repeats(Option<Remembered>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    /// Segments sent again that are neither acknowledged nor lost once more (`retrans_out`).
    pub(super) out: u32,
    /// Up to where all was sent when a loss probe was, until that is answered; else 0 (`tlp_high_seq`).
    pub(super) probe: u32,
}

impl Repeats {
    /// Whether something was sent again since, of which no record tells.
    pub(super) fn is_unseen(&mut self, what: What, timer: Option<Timer>, now: Remembered) -> bool {
        match what {
            // Both are counted only after their records. A probe that is new data is sent by the timer, too: one whose
            // timer ran at the end of a call is not known by that, and is taken for unseen.
            What::Repeat => self.0 = None,
            What::Queue if timer.is_some_and(|timer| timer != Timer::DelayedAck) => self.0 = None,
            What::Queue => {
                if let Some(before) = &mut self.0 {
                    before.out = before.out.min(now.out);
                }
            }
            What::Receive => {
                let is_new = |before: Remembered| now.out > before.out || (now.probe != 0 && now.probe != before.probe);
                return self.0.replace(now).is_some_and(is_new);
            }
            _ => {}
        }
        false
    }
}

//! Whether all that a socket sent again was seen: there are kernels that run no program in some interrupts.

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
    pub(super) fn is_unseen(&self, what: What, now: Remembered) -> bool {
        // Calls look without the socket's lock.
        let is_comparable = matches!(what, What::Queue | What::Receive | What::Repeat);
        let is_new = |before: Remembered| now.out > before.out || (now.probe != 0 && now.probe != before.probe);
        is_comparable && self.0.is_some_and(is_new)
    }

    /// What the next record is compared with; `is_probe`: what leaves may be a loss probe that is new data.
    pub(super) fn remember(&mut self, what: What, is_probe: bool, now: Remembered) {
        match what {
            // Both are counted only after their records.
            What::Repeat => self.0 = None,
            What::Queue if is_probe => self.0 = None,
            What::Queue => {
                if let Some(before) = &mut self.0 {
                    *before = Remembered { out: before.out.min(now.out), probe: now.probe };
                }
            }
            What::Receive => self.0 = Some(now),
            _ => {}
        }
    }
}

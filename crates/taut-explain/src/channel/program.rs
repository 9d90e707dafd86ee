//! What is known of the sending program besides the log: its writes, seen at its socket. With them, what the log can
//! only guess is told: whether the program had handed over more than the controller has.

use taut_event::Holder;

/// A write that takes longer waits.
const LEAST_WAIT_NS: u64 = 100_000;

/// A program at work on a channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// Bytes that it wrote and that the controller has not been given; `None`: not known. During a write it may be
    /// less than 0: packets go before the call is back.
    queued: Option<i64>,
    /// It is in a write, or its last one was refused for lack of room.
    is_waiting: bool,
    /// It has waited since then, with nothing of it in the kernel: then the kernel takes nothing for want of credits.
    refused_since: Option<u64>,
    /// Time in which it waited for room, by who held the data, in the order of [`Holder::ALL`].
    pub(crate) waited_ns: [u64; Holder::ALL.len()],
}

impl Program {
    /// Whether the kernel has more of it than it gave to the controller.
    pub(super) fn has_more(&self) -> Option<bool> {
        if self.is_waiting {
            return Some(true);
        }
        self.queued.map(|queued| queued > 0)
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The controller was given so many of its bytes.
    pub(super) fn handed_over(&mut self, bytes: u64) {
        if let Some(queued) = &mut self.queued {
            *queued = queued.saturating_sub_unsigned(bytes);
        }
    }

    /// So many bytes of it are in the kernel, from all that it wrote and all that the controller was given; `None`:
    /// nobody knows.
    pub(crate) const fn has_queued(&mut self, bytes: Option<i64>) {
        self.queued = bytes;
    }

    /// It begins to wait for room, or to write, or waits no longer.
    pub(crate) fn waits(&mut self, is_waiting: bool, at: u64) {
        if is_waiting != self.is_waiting {
            self.refused_since = Some(at).filter(|_| is_waiting && self.queued == Some(0));
        }
        self.is_waiting = is_waiting;
    }

    /// Since when it has waited although nothing of it was in the kernel; not of a write that may just be under way.
    pub(super) fn refused_since(&self, at: u64) -> Option<u64> {
        self.refused_since.filter(|since| at.saturating_sub(*since) >= LEAST_WAIT_NS)
    }

    /// The kernel took so many bytes of it.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        if let Some(queued) = &mut self.queued {
            *queued = queued.saturating_add_unsigned(bytes);
        }
    }
}

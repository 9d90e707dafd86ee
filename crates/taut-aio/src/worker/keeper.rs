//! Files that stay at hand between operations: registered with the ring for as long as operations come.
//!
//! A file whose number is closed by a system call of its own, which nobody tells the library of, is kept open by that:
//! for as long as it has operations in flight, which would keep it open too, and for two ticks beyond.

use std::ffi::c_int;

use crate::lockfree::in_flight::InFlight;
use crate::lockfree::kept::Kept;
use crate::service::COUNTED;

/// How often those who submit are counted before the count begins anew.
const MANY: u32 = 1 << 12;

/// Whether a file stays at hand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stay {
    /// No.
    No,
    /// Under this number: so many operations have arrived that were submitted on that, and in this tick it was idle
    /// last.
    Under { number: c_int, arrived: u32, idle_since: u32, listed: bool },
    /// No more, but so many operations that were submitted on that have yet to arrive.
    Owed(u32),
}

/// The files that stay.
#[derive(Debug)]
pub(crate) struct Keeper {
    kept: &'static Kept<COUNTED>,
    /// A file that stays counts as an operation: who closes it has it given back first.
    in_flight: &'static InFlight<COUNTED>,
    /// Entries that had no operation when they were listed.
    idle: Vec<u32>,
    ticks: u32,
    /// A tick is under way.
    asked: bool,
}

impl Keeper {
    pub(crate) fn new(kept: &'static Kept<COUNTED>, in_flight: &'static InFlight<COUNTED>) -> Self {
        Self { kept, in_flight, idle: Vec::new(), ticks: 0, asked: false }
    }

    /// Lets those who submit on this number know that the entry has its file; `No` where that can't be.
    pub(crate) fn keep(&self, number: c_int, identity: u64, entry: u32) -> Stay {
        // Before anybody can be told.
        self.in_flight.enter(number);
        if !self.kept.keep(number, identity, entry) {
            self.in_flight.leave(number);
            return Stay::No;
        }
        Stay::Under { number, arrived: 0, idle_since: self.ticks, listed: false }
    }

    /// An operation has arrived that was submitted on that.
    pub(crate) fn arrived(&self, stay: &mut Stay) {
        match stay {
            Stay::No => {}
            Stay::Under { number, arrived, .. } => {
                *arrived += 1;
                if *arrived >= MANY && self.kept.settle(*number, *arrived) {
                    *arrived = 0;
                }
            }
            Stay::Owed(operations) => *operations = operations.saturating_sub(1),
        }
    }

    /// The number means another file, or none.
    pub(crate) fn end(&self, stay: &mut Stay) {
        if let Stay::Under { number, arrived, .. } = *stay {
            *stay = Stay::Owed(self.kept.end(number).saturating_sub(arrived));
            self.in_flight.leave(number);
        }
    }

    /// An entry has no operation left: whether its file is to be given back now, and not some time later.
    pub(crate) fn may_go(&mut self, entry: u32, stay: &mut Stay) -> bool {
        match stay {
            Stay::No | Stay::Owed(0) => true,
            Stay::Owed(_) => false,
            Stay::Under { idle_since, listed, .. } => {
                *idle_since = self.ticks;
                if !*listed {
                    *listed = true;
                    self.idle.push(entry);
                }
                false
            }
        }
    }

    /// Begins a tick; gives the entries to look at.
    pub(crate) fn tick(&mut self) -> Vec<u32> {
        self.ticks = self.ticks.wrapping_add(1);
        self.asked = false;
        std::mem::take(&mut self.idle)
    }

    /// Whether the file of one of them is to be given back.
    pub(crate) fn look(&mut self, entry: u32, stay: &mut Stay, is_idle: bool) -> bool {
        let Stay::Under { number, arrived, idle_since, listed } = stay else { return false };
        *listed = false;
        if !is_idle {
            return false;
        }
        if self.ticks.wrapping_sub(*idle_since) >= 2 && self.kept.release(*number, *arrived) {
            self.in_flight.leave(*number);
            *stay = Stay::No;
            return true;
        }
        *listed = true;
        self.idle.push(entry);
        false
    }

    /// Whether a tick is to be asked for.
    pub(crate) fn wants_tick(&mut self) -> bool {
        !self.idle.is_empty() && !std::mem::replace(&mut self.asked, true)
    }
}

//! The BR/EDR side of a controller, and what it has at hand.

use alloc::vec::Vec;

use taut_time::Instant;

use super::procedures::{Inquirer, Pager, Scanner};
use super::setup::Setup;
use crate::bredr::{self, Acl};
use crate::pdu::advertising::Address;
use crate::rng::Random;
use crate::time::{NEVER, Nanos};

/// Lowest handle of an ACL link of BR/EDR; LE's are below.
pub(in crate::controller) const FIRST_HANDLE: u16 = 0x0100;
/// Peripherals of a piconet: logical transport addresses 1 to 7.
pub(super) const MOST_LINES: usize = 7;

/// How the BR/EDR side of a controller is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassicConfig {
    /// Whether the controller tells its host of it. Without, it is one of LE alone.
    pub on: bool,
    /// Packets that it sends.
    pub rate: bredr::Rate,
    /// Most slots that one of them takes: 1, 3 or 5.
    pub slots: u8,
    /// ACL packets that it buffers from the host (Read Buffer Size).
    pub acl_buffers: u16,
    /// Bytes of data in each.
    pub acl_size: u16,
    /// Longest time between two polls, as a central (T_poll).
    pub t_poll: Nanos,
    /// Time after data during which it polls at every turn, as a central.
    pub active: Nanos,
}

/// A link with what its manager knows.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) acl: Acl,
    pub(super) setup: Setup,
    /// Of the peer's name, as far as it has come.
    pub(super) name: Vec<u8>,
}

/// What the host has set.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    pub(super) name: Vec<u8>,
    pub(super) class: [u8; 3],
    pub(super) page_timeout: u16,
    pub(super) accept_timeout: u16,
    /// Bit 0: inquiry scan, bit 1: page scan.
    pub(super) scan: u8,
    /// Interval and window of page scan and of inquiry scan, in slots.
    pub(super) page_scan: [u16; 2],
    pub(super) inquiry_scan: [u16; 2],
    /// Interlaced or not; told, and without effect.
    pub(super) scan_types: [u8; 2],
    pub(super) voice: u16,
    pub(super) le_host: u8,
}

/// Who listens to the packet that is coming in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Listener {
    /// By its handle: lines that end move the others up.
    Line(u16),
    Pager,
    Inquirer,
    Scanner,
}

/// The BR/EDR side.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Classic {
    pub(super) lines: Vec<Line>,
    /// Who has the next turn when several may.
    pub(super) next: usize,
    /// Logical transport addresses that a peripheral may still listen to, and until when.
    pub(super) reserved: Vec<(u8, Instant)>,
    /// ACL packets in the buffers.
    pub(super) occupied: u16,
    pub(super) listening: Option<(Listener, Instant, u8)>,
    pub(super) wishes: Wishes,
    pub(super) pager: Option<Pager>,
    pub(super) inquirer: Option<Inquirer>,
    pub(super) scanner: Scanner,
}

impl Wishes {
    pub(super) fn new() -> Self {
        Self {
            name: Vec::from(*b"Tautline"),
            class: [0; 3],
            page_timeout: 0x2000,
            accept_timeout: 0x1fa0,
            scan: 0,
            page_scan: [0x0800, 0x0012],
            inquiry_scan: [0x1000, 0x0012],
            scan_types: [0; 2],
            voice: 0x0060,
            le_host: 0,
        }
    }
}

impl Classic {
    pub(in crate::controller) fn new(random: Random) -> Self {
        Self {
            lines: Vec::new(),
            next: 0,
            reserved: Vec::new(),
            occupied: 0,
            listening: None,
            wishes: Wishes::new(),
            pager: None,
            inquirer: None,
            scanner: Scanner::new(random),
        }
    }

    pub(in crate::controller) fn reset(&mut self) {
        *self = Self { scanner: self.scanner.clone().reset(), ..Self::new(Random::new(0)) };
    }

    /// Whether some link or procedure has the radio.
    pub(in crate::controller) fn is_busy(&self) -> bool {
        let has_radio = |line: &Line| line.acl.is_busy();
        self.lines.iter().any(has_radio)
            || self.pager.as_ref().is_some_and(Pager::is_busy)
            || self.inquirer.as_ref().is_some_and(Inquirer::is_busy)
            || self.scanner.is_busy()
    }

    /// When something is due.
    pub(in crate::controller) fn due(&self) -> Instant {
        let lines = self.lines.iter().map(|line| line.acl.due().min(line.setup.due()));
        let pager = self.pager.as_ref().map_or(NEVER, Pager::due);
        let inquirer = self.inquirer.as_ref().map_or(NEVER, Inquirer::due);
        lines.min().unwrap_or(NEVER).min(pager).min(inquirer).min(self.scanner.due())
    }

    pub(super) fn line(&self, handle: u16) -> Option<usize> {
        self.lines.iter().position(|line| line.acl.handle == handle && !line.acl.is_gone())
    }

    /// One for another peripheral.
    pub(super) fn free_lt_addr(&self, now: Instant) -> Option<u8> {
        let is_reserved = |lt_addr| self.reserved.iter().any(|(reserved, until)| *reserved == lt_addr && now < *until);
        let is_used = |lt_addr| self.lines.iter().any(|line| line.acl.lt_addr == lt_addr && !line.acl.is_gone());
        (1..=MOST_LINES as u8).find(|lt_addr| !is_reserved(*lt_addr) && !is_used(*lt_addr))
    }

    pub(super) fn line_with(&self, peer: Address) -> Option<usize> {
        self.lines.iter().position(|line| line.acl.peer == peer && !line.acl.is_gone())
    }
}

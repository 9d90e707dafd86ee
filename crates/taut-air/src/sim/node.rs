use taut_time::Instant;

use crate::controller::Controller;
use crate::host::Host;
use crate::role::Role;
use crate::transport::Pipe;

/// A machine: number 0 is the central, the others are peripherals.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) role: Role,
    pub(super) controller: Controller,
    pub(super) host: Host,
    /// From the host to the controller, and back.
    pub(super) down: Pipe,
    pub(super) up: Pipe,
    pub(super) due: Instant,
}

impl Node {
    pub(super) fn due(&self) -> Instant {
        self.controller.due().min(self.host.due()).min(self.down.due()).min(self.up.due())
    }
}

/// A peripheral's link; the central's own events are told with its first link.
pub(super) const fn link_of(number: usize) -> u16 {
    number.saturating_sub(1) as u16
}

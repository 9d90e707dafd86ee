use alloc::vec::Vec;

use taut_time::Instant;

use crate::role::Role;

/// An SDU that a program has read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// When its `recv` gave it.
    pub at: Instant,
    /// Whose program read it.
    pub side: Role,
    /// What was read: what one [`write`](super::AirLink::write) gave, or a part of it if that was longer than the MTU.
    pub bytes: Vec<u8>,
}

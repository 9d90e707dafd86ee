//! A host, and what it has at hand.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use super::connection::Connection;
use super::step::Setup;
use super::terms::{HostConfig, Output};
use crate::rng::Random;

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) config: HostConfig,
    pub(super) random: Random,
    pub(super) setup: Setup,
    pub(super) connections: Vec<Connection>,
    /// Buffers that are free in the controller, as far as known, and the size of each.
    pub(super) free: u16,
    pub(super) acl_size: u16,
    /// Packets that have arrived and are not handled yet.
    pub(super) rx: VecDeque<(Instant, Vec<u8>)>,
    /// Packets on their way to the driver.
    pub(super) tx: VecDeque<(Instant, Vec<u8>)>,
    pub(super) out: VecDeque<Output>,
    pub(super) due: Instant,
}

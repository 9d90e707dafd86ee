//! A controller, and what it has at hand.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use super::classic::Classic;
use super::procedures::{Advertiser, Initiator, Peer, Scanner};
use super::secrets::Security;
use super::terms::{ControllerConfig, Output};
use crate::link::Link;
use crate::pdu::advertising::Address;
use crate::phy::MIN_LENGTH;
use crate::rng::Random;
use crate::time::NEVER;

/// Lowest connection handle; the k-th connection has the k-th. Those of links that are gone are used again.
pub(crate) const FIRST_HANDLE: u16 = 0x0040;
/// Bits of all PHYs: 1M, 2M, Coded.
pub(super) const ALL_PHYS: u8 = 0b111;

/// A controller.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(super) config: ControllerConfig,
    pub(super) random: Random,
    pub(super) links: Vec<Link>,
    pub(super) out: VecDeque<Output>,
    pub(super) advertiser: Advertiser,
    pub(super) scanner: Scanner,
    pub(super) initiator: Option<Initiator>,
    /// A packet on the advertising channel is coming in for the scanner or the initiator.
    pub(super) hears: bool,
    pub(super) accept_list: Vec<Peer>,
    pub(super) random_address: Address,
    /// Payload that the host suggests for new links.
    pub(super) default_length: u16,
    /// PHYs that the host prefers for them, to send and to receive.
    pub(super) default_phys: u8,
    /// ACL packets acknowledged and not reported, by link.
    pub(super) unreported: Vec<u16>,
    /// ACL packets in the buffers or not reported.
    pub(super) occupied: u16,
    /// ACL packets for which there was no buffer, since it was made.
    pub(super) overflows: u64,
    /// The link whose packet is coming in.
    pub(super) receiving: Option<usize>,
    pub(super) classic: Classic,
    pub(super) security: Security,
    pub(super) due: Instant,
}

impl Controller {
    /// A controller just powered on. `random` decides about access addresses and advertising delays.
    pub fn new(config: ControllerConfig, random: Random) -> Self {
        Self {
            config,
            classic: Classic::new(random.fork(1)),
            security: Security::new(random.fork(2)),
            random,
            links: Vec::new(),
            out: VecDeque::new(),
            advertiser: Advertiser::new(),
            scanner: Scanner::new(),
            initiator: None,
            hears: false,
            accept_list: Vec::new(),
            random_address: [0; 6],
            default_length: MIN_LENGTH as u16,
            default_phys: ALL_PHYS,
            unreported: Vec::new(),
            occupied: 0,
            overflows: 0,
            receiving: None,
            due: NEVER,
        }
    }
}

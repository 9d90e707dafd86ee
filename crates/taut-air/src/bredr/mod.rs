//! The baseband of BR/EDR (Core Specification, Vol 2, Part B and C): packets in slots of 625 us,
//! acknowledgement, polls, and the link manager's PDUs. ACL links between a central and its
//! peripherals; no SCO, sniff mode, role switch or encryption.

mod link;
pub mod lmp;
mod packet;

pub(crate) use link::{Acl, Settings, Turn};
pub(crate) use packet::power;
pub use packet::{Body, INQUIRY, Llid, Packet, PacketType, Rate};

use crate::pdu::advertising::Address;
use crate::time::{Nanos, US};

/// A slot (Vol 2, Part B, 2.2.2). The central sends in even ones, peripherals in odd ones.
pub const SLOT: Nanos = 625 * US;
/// Channels of 1 MHz from 2402 MHz.
const CHANNELS: u64 = 79;

/// The channel of a piconet, or of a device that is paged, at a slot or a step of a train.
///
/// Pseudo-random and the same on both sides; it is *not* the selection kernel of Vol 2, Part B,
/// 2.6, whose order no figure here depends on.
pub(crate) fn hop(address: Address, slot: u64) -> u8 {
    let seed = address.iter().fold(slot, |seed, octet| seed.rotate_left(8) ^ u64::from(*octet));
    (crate::rng::Random::new(seed).next_u64() % CHANNELS) as u8
}

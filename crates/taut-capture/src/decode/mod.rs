//! From a packet to its TCP header.

mod header;
mod ip;
mod link;
mod tcp;

pub use self::header::{Ends, Skipped, TcpPacket};
use crate::packet::Packet;

/// What a packet is to who follows connections of TCP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded {
    /// A segment of TCP.
    Tcp(TcpPacket),
    /// Something else.
    Skipped(Skipped),
}

/// Finds the TCP header of a packet. No bytes make it panic.
pub fn decode(packet: &Packet<'_>) -> Decoded {
    try_decode(packet).map_or_else(Decoded::Skipped, Decoded::Tcp)
}

fn try_decode(packet: &Packet<'_>) -> Result<TcpPacket, Skipped> {
    let start = link::network_layer(packet.link, packet.bytes)?;
    let length = packet.original_length.max(packet.bytes.len() as u32) as usize - start;
    let datagram = ip::datagram(&packet.bytes[start..], length)?;
    tcp::segment(&datagram)
}

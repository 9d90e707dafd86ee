//! From a packet to its TCP or UDP header.

mod header;
mod ip;
mod link;
mod tcp;
mod tunnel;
mod udp;

pub use self::header::{Skipped, TcpPacket, UdpPacket};
use crate::packet::Packet;

/// Finds the TCP header of a packet. No bytes make it panic.
///
/// # Errors
///
/// Why a packet is not followed: it is not TCP, or its headers are not whole.
#[inline(always)]
pub fn decode<'a>(packet: &Packet<'a>) -> Result<TcpPacket<'a>, Skipped> {
    let start = link::network_layer(packet.link, packet.bytes)?;
    let length = packet.original_length.max(packet.bytes.len() as u32) as usize - start;
    let datagram = ip::datagram::<{ ip::TCP }>(&packet.bytes[start..], length)?;
    tcp::segment(&datagram)
}

/// The packet that a packet which is not TCP carries, if it is one of a tunnel: of GRE, VXLAN, Geneve, GTP or IP in IP.
/// Of tunnels within tunnels it is the innermost. Tunnels are not told apart.
pub fn tunnelled<'a>(packet: &Packet<'a>) -> Option<Packet<'a>> {
    tunnel::innermost(packet)
}

/// Finds the UDP header of a packet that is not TCP.
///
/// # Errors
///
/// Why a packet is not followed: it is not UDP either ([`Skipped::NotTcp`]), or its headers are not whole.
pub fn decode_udp<'a>(packet: &Packet<'a>) -> Result<UdpPacket<'a>, Skipped> {
    let start = link::network_layer(packet.link, packet.bytes)?;
    let length = packet.original_length.max(packet.bytes.len() as u32) as usize - start;
    udp::packet(&ip::datagram::<{ ip::UDP }>(&packet.bytes[start..], length)?)
}

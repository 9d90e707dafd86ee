//! TCP segments in IPv4 packets, parsed and built.

use std::net::SocketAddrV4;

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header, Ipv4Slice, TcpHeader, TcpOptionElement, TcpSlice};

/// Largest segment that the peer accepts: an Ethernet frame without IP or TCP options.
pub(crate) const MSS: u16 = 1460;
/// The window that the peer always grants: all that a header without window scaling can say.
pub(crate) const WINDOW: u16 = u16::MAX;

const TIME_TO_LIVE: u8 = 64;

/// What matters here of a TCP segment in an IPv4 packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddrV4,
    pub(crate) destination: SocketAddrV4,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: Flags,
    pub(crate) payload: &'a [u8],
}

/// Control bits (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Flags {
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
}

impl<'a> Segment<'a> {
    /// The segment in a packet, if it is a whole one with right checksums.
    pub(crate) fn parse(packet: &'a [u8]) -> Option<Self> {
        let ip = Ipv4Slice::from_slice(packet).ok()?;
        let header = ip.header();
        // A header with its own checksum in it sums up to zero (RFC 1071).
        let is_valid = Sum16BitWords::new().add_slice(header.slice()).ones_complement() == 0;
        if !is_valid || ip.is_payload_fragmented() || ip.payload_ip_number() != IpNumber::TCP {
            return None;
        }
        let tcp = TcpSlice::from_slice(ip.payload().payload).ok()?;
        if tcp.calc_checksum_ipv4(header.source(), header.destination()).ok()? != tcp.checksum() {
            return None;
        }
        Some(Self {
            source: SocketAddrV4::new(header.source_addr(), tcp.source_port()),
            destination: SocketAddrV4::new(header.destination_addr(), tcp.destination_port()),
            sequence: tcp.sequence_number(),
            acknowledgment: tcp.acknowledgment_number(),
            flags: Flags { syn: tcp.syn(), ack: tcp.ack(), fin: tcp.fin(), rst: tcp.rst() },
            payload: tcp.payload(),
        })
    }

    /// Sequence numbers that the segment takes up: its bytes, its SYN and its FIN.
    pub(crate) fn sequence_length(&self) -> u32 {
        // An IPv4 packet holds less than 64 KiB.
        self.payload.len() as u32 + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// The segment in an IPv4 packet. `None` when the payload is too long for one.
    pub(crate) fn to_packet(self) -> Option<Vec<u8>> {
        let mut tcp = TcpHeader::new(self.source.port(), self.destination.port(), self.sequence, WINDOW);
        let Flags { syn, ack, fin, rst } = self.flags;
        (tcp.syn, tcp.ack, tcp.fin, tcp.rst) = (syn, ack, fin, rst);
        tcp.acknowledgment_number = self.acknowledgment;
        tcp.psh = !self.payload.is_empty();
        if syn {
            tcp.set_options(&[TcpOptionElement::MaximumSegmentSize(MSS)]).ok()?;
        }
        let length = u16::try_from(tcp.header_len() + self.payload.len()).ok()?;
        let (source, destination) = (self.source.ip().octets(), self.destination.ip().octets());
        let mut ip = Ipv4Header::new(length, TIME_TO_LIVE, IpNumber::TCP, source, destination).ok()?;
        ip.header_checksum = ip.calc_header_checksum();
        tcp.checksum = tcp.calc_checksum_ipv4(&ip, self.payload).ok()?;

        let mut packet = Vec::with_capacity(ip.header_len() + usize::from(length));
        ip.write(&mut packet).ok()?;
        tcp.write(&mut packet).ok()?;
        packet.extend_from_slice(self.payload);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SEGMENT: Segment<'_> = Segment {
        source: SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 40_000),
        destination: SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 9),
        sequence: u32::MAX,
        acknowledgment: 77,
        flags: Flags { syn: true, ack: true, fin: false, rst: false },
        payload: b"tautline",
    };

    #[test]
    fn a_built_segment_parses_to_itself() {
        assert_eq!(Segment::parse(&SEGMENT.to_packet().unwrap()), Some(SEGMENT));
    }

    #[test]
    fn a_flipped_bit_makes_the_packet_invalid() {
        let packet = SEGMENT.to_packet().unwrap();
        for bit in 0..8 * packet.len() {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Segment::parse(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_payload_beyond_ipv4_is_refused() {
        let payload = vec![0; 65_530];
        assert_eq!(Segment { payload: &payload, ..SEGMENT }.to_packet(), None);
    }
}

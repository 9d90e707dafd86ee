//! What packets of the host controller interface tell of links alone, for one who follows data from place to place.

use taut_air::hci::{Boundary, PacketView};

use super::hci::{self, Record, Told};
use super::out::ACL_HEADER;
use crate::packet::Packet;

/// A packet of a link, or what an event tells of one. Adapters have a number, and links a handle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostPacket<'a> {
    /// An ACL data packet.
    Acl {
        /// The adapter, and the handle.
        link: (u16, u16),
        /// From the controller.
        is_received: bool,
        /// It begins an L2CAP PDU.
        begins: bool,
        /// Its data, as far as it was kept.
        kept: &'a [u8],
        /// How long the data was, in bytes.
        length: usize,
    },
    /// A link is there.
    Connected {
        /// The adapter, and the handle.
        link: (u16, u16),
        /// Whether the log's host is the central; `None`: not told, as on BR/EDR.
        is_central: Option<bool>,
        /// Address of the peer, last byte first.
        peer: [u8; 6],
    },
    /// A link is gone.
    Disconnected {
        /// The adapter, and the handle.
        link: (u16, u16),
    },
    /// The controller is through with packets of a link, the oldest first.
    Completed {
        /// The adapter, and the handle.
        link: (u16, u16),
        /// How many.
        packets: u16,
    },
    /// The controller began anew, without links.
    Reset {
        /// The adapter.
        adapter: u16,
    },
    /// Packets of the log were lost before this one.
    Lost,
}

/// Reads such packets one after another.
#[derive(Debug, Default)]
pub struct HostPackets {
    bytes: Vec<u8>,
    lost: u64,
}

impl HostPackets {
    /// Hands on what a packet tells; of other packets nothing.
    pub fn read(&mut self, packet: &Packet<'_>, mut each: impl FnMut(HostPacket<'_>)) {
        if !hci::is_hci(packet.link) {
            return;
        }
        let (adapter, is_received, kept) = match hci::read(packet, &mut self.bytes) {
            Record::Packet { adapter, is_received, kept } => (adapter, is_received, kept),
            Record::Restarted { adapter } => return each(HostPacket::Reset { adapter }),
            Record::Other | Record::Malformed => return,
        };
        if std::mem::replace(&mut self.lost, packet.lost) != packet.lost && packet.lost > 0 {
            each(HostPacket::Lost);
        }
        let Ok(view) = PacketView::parse(&self.bytes) else { return };
        let told = match view {
            PacketView::Acl(acl) => {
                let kept = kept.map_or(acl.data.len(), |kept| kept.saturating_sub(ACL_HEADER)).min(acl.data.len());
                return each(HostPacket::Acl {
                    link: (adapter, acl.handle),
                    is_received,
                    begins: acl.boundary != Boundary::Continuing,
                    kept: &acl.data[..kept],
                    length: acl.data.len(),
                });
            }
            // What is missing of an event would be read as zeros.
            PacketView::Event { .. } if kept.is_none() => hci::event(&view),
            PacketView::Event { .. } | PacketView::Command { .. } => return,
        };
        match told {
            Told::Connected { handle, is_central, peer, .. } => {
                each(HostPacket::Connected { link: (adapter, handle), is_central: Some(is_central), peer });
            }
            Told::ClassicConnected { handle, peer } => {
                each(HostPacket::Connected { link: (adapter, handle), is_central: None, peer });
            }
            Told::Disconnected { handle } => each(HostPacket::Disconnected { link: (adapter, handle) }),
            Told::Completed(all) => all
                .iter()
                .for_each(|(handle, packets)| each(HostPacket::Completed { link: (adapter, handle), packets })),
            Told::Reset => each(HostPacket::Reset { adapter }),
            _ => {}
        }
    }
}

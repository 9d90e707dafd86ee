use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::terms::PduKind;
use crate::hci::ACL_HEADER_BYTES;
use crate::pdu::control::ControlBytes;
use crate::pdu::{Header, Llid, Pdu};

/// What has been sent and not yet acknowledged: at most one PDU (one bit of sequence number).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum InFlight {
    #[default]
    None,
    Empty,
    Control,
    /// So many bytes of the first packet.
    Data(usize),
}

impl InFlight {
    pub(crate) const fn kind(self) -> PduKind {
        match self {
            Self::None | Self::Empty => PduKind::Empty,
            Self::Control => PduKind::Control,
            Self::Data(_) => PduKind::Data,
        }
    }
}

/// What came of a received packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Its payload is new.
    pub(crate) new: bool,
    /// It acknowledged the last PDU of an ACL packet.
    pub(crate) completed: bool,
    /// It acknowledged LL_TERMINATE_IND, which had this reason.
    pub(crate) terminated: Option<u8>,
}

/// What waits to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    control: VecDeque<ControlBytes>,
    packets: VecDeque<Packet>,
    in_flight: InFlight,
    /// PDUs in transmit descriptors, and how many were put there since they were last all free.
    staged: u16,
    round: u16,
    /// Packets at the end of the queue that the link layer has not noticed.
    unnoticed: usize,
    /// Packets and other procedures' control PDUs wait for the end of a procedure.
    held: bool,
    waiting: VecDeque<ControlBytes>,
}

/// An ACL packet of the host, part of which may have been acknowledged.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    /// First byte not acknowledged.
    offset: usize,
}

impl Packet {
    /// Whether its first byte begins an L2CAP PDU: boundary flags other than 0b01.
    fn starts(&self) -> bool {
        self.offset == ACL_HEADER_BYTES && (self.bytes[2] >> 4) & 0b11 != 0b01
    }

    const fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }
}

impl Queue {
    /// Takes a packet. `late` when the link layer doesn't look for packets now.
    pub(crate) fn push(&mut self, bytes: Vec<u8>, length: usize, slots: u16, late: bool) {
        self.packets.push_back(Packet { bytes, offset: ACL_HEADER_BYTES });
        if late || self.unnoticed > 0 {
            self.unnoticed += 1;
        }
        self.stage(slots, length);
    }

    pub(crate) fn control(&mut self, control: ControlBytes) {
        if self.held { &mut self.waiting } else { &mut self.control }.push_back(control);
    }

    /// Queues a control PDU of the procedure for which the others wait, or one that waits for nothing.
    pub(crate) fn urgent(&mut self, control: ControlBytes) {
        self.control.push_back(control);
    }

    /// From now on only [urgent](Self::urgent) control PDUs go out, behind what is in flight.
    pub(crate) fn hold(&mut self) {
        self.held = true;
        let begun = usize::from(self.in_flight == InFlight::Control);
        self.waiting.extend(self.control.drain(begun.min(self.control.len())..));
    }

    /// All goes on, behind the urgent ones.
    pub(crate) fn release(&mut self) {
        self.held = false;
        self.control.append(&mut self.waiting);
    }

    pub(crate) const fn in_flight(&self) -> InFlight {
        self.in_flight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.packets.is_empty()
    }

    /// Bytes of the first packet that have not been sent at all.
    fn unsent_of_first(&self) -> usize {
        let sent = match self.in_flight {
            InFlight::Data(length) => length,
            _ => 0,
        };
        self.packets.front().map_or(0, |packet| packet.left() - sent)
    }

    /// Whether there is data that has not been sent yet.
    pub(crate) fn has_new(&self) -> bool {
        self.packets.len() > 1 || self.unsent_of_first() > 0
    }

    /// Packets of which something has not been sent, among those noticed.
    pub(crate) fn unsent(&self) -> usize {
        let sent = usize::from(!self.packets.is_empty() && self.unsent_of_first() == 0);
        self.packets.len() - sent - self.unnoticed.min(self.packets.len() - sent)
    }

    /// Whether something would follow what is in flight.
    pub(crate) fn more(&self) -> bool {
        (self.has_new() && !self.held) || self.control.len() > usize::from(self.in_flight == InFlight::Control)
    }

    /// Payload of the next PDU that is not in flight.
    pub(crate) fn next_length(&self, length: usize) -> Option<usize> {
        let control = usize::from(self.in_flight == InFlight::Control);
        if let Some(control) = self.control.get(control) {
            return Some(control.as_slice().len());
        }
        match self.unsent_of_first() {
            0 => self.packets.get(1).map(Packet::left),
            left => Some(left),
        }
        .map(|left| left.min(length))
    }

    pub(crate) fn next_kind(&self) -> PduKind {
        if !self.control.is_empty() {
            PduKind::Control
        } else if self.packets.is_empty() || self.held {
            PduKind::Empty
        } else {
            PduKind::Data
        }
    }

    /// Whether the next data PDU has been noticed and is in a transmit descriptor.
    pub(crate) fn may_send_new(&self, slots: u16) -> bool {
        let next = usize::from(self.unsent_of_first() == 0);
        let noticed = self.packets.len() - self.unnoticed.min(self.packets.len());
        !self.held
            && (self.unnoticed == 0 || next < noticed)
            && (slots == 0 || self.staged > u16::from(matches!(self.in_flight, InFlight::Data(_))))
    }

    fn stage(&mut self, slots: u16, length: usize) {
        if slots == 0 || self.round >= slots {
            return;
        }
        let pdus: usize = self.packets.iter().map(|packet| packet.left().div_ceil(length)).sum();
        while self.round < slots && usize::from(self.staged) < pdus {
            self.staged += 1;
            self.round += 1;
        }
    }

    /// The event has closed: descriptors are filled again if all of them are free, and packets not
    /// noticed are if nothing else is left.
    pub(crate) fn refill(&mut self, slots: u16, length: usize) {
        if self.unnoticed == self.packets.len() {
            self.unnoticed = 0;
        }
        if self.staged == 0 {
            self.round = 0;
            self.stage(slots, length);
        }
    }

    /// Puts the next PDU of that kind in flight.
    pub(crate) fn take(&mut self, kind: PduKind, length: usize) {
        self.in_flight = match kind {
            PduKind::Control => InFlight::Control,
            PduKind::Data => {
                self.packets.front().map_or(InFlight::Empty, |packet| InFlight::Data(packet.left().min(length)))
            }
            PduKind::Empty | PduKind::Advertising => InFlight::Empty,
        };
    }

    /// What was taken could not be sent: a PDU never sent may be replaced by another.
    pub(crate) const fn give_back_unsent(&mut self, sent_before: bool) {
        if !sent_before {
            self.in_flight = InFlight::None;
        }
    }

    pub(crate) fn in_flight_length(&self) -> usize {
        match self.in_flight {
            InFlight::None | InFlight::Empty => 0,
            InFlight::Control => self.control.front().map_or(0, |control| control.as_slice().len()),
            InFlight::Data(length) => length,
        }
    }

    /// The PDU in flight, under `header`.
    pub(crate) fn pdu(&self, header: Header) -> Pdu {
        match self.in_flight {
            InFlight::None | InFlight::Empty => Pdu::data(header, &[]),
            InFlight::Control => Pdu::data(
                Header { llid: Llid::Control, ..header },
                self.control.front().map_or(&[], ControlBytes::as_slice),
            ),
            InFlight::Data(length) => self.packets.front().map_or_else(
                || Pdu::data(header, &[]),
                |packet| {
                    let llid = if packet.starts() { Llid::Start } else { Llid::Continuation };
                    Pdu::data(Header { llid, ..header }, &packet.bytes[packet.offset..packet.offset + length])
                },
            ),
        }
    }

    /// What is in flight arrived. Whether it was the last part of an ACL packet.
    pub(crate) fn acknowledged(&mut self) -> Acknowledged {
        match core::mem::take(&mut self.in_flight) {
            InFlight::None | InFlight::Empty => Acknowledged::Nothing,
            InFlight::Control => self.control.pop_front().map_or(Acknowledged::Nothing, Acknowledged::Control),
            InFlight::Data(length) => {
                self.staged = self.staged.saturating_sub(1);
                let Some(packet) = self.packets.front_mut() else { return Acknowledged::Nothing };
                packet.offset += length;
                if packet.left() > 0 {
                    return Acknowledged::Part;
                }
                self.packets.pop_front();
                Acknowledged::Packet
            }
        }
    }

    /// ACL packets not acknowledged.
    pub(crate) fn packets(&self) -> usize {
        self.packets.len()
    }
}

/// What an acknowledgement was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Acknowledged {
    Nothing,
    Control(ControlBytes),
    Part,
    Packet,
}

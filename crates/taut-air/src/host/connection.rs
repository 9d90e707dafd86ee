use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use super::writer::Writer;
use crate::l2cap::{Channel, Reassembly, ReceiveBuffer, SIGNALLING_CID};
use crate::time::NEVER;

/// What the kernel charges a socket for one received PDU: `skb->truesize` of a small packet on 64-bit kernels.
pub(super) const PDU_TRUESIZE: usize = 768;

/// A connection with its one channel.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) handle: u16,
    pub(crate) channel: Option<Channel>,
    pub(crate) writer: Writer,
    pub(super) reassembly: Reassembly,
    /// SDUs that wait for the program.
    pub(super) sdus: VecDeque<Vec<u8>>,
    /// Bytes that they are charged with.
    pub(super) queued: usize,
    pub(super) read_at: Instant,
    /// ACL packets that wait for buffers in the controller.
    pub(crate) packets: VecDeque<Vec<u8>>,
    pub(crate) signals: VecDeque<Vec<u8>>,
    /// Bytes that the send buffer is charged with.
    pub(crate) charged: usize,
    pub(super) identifier: u8,
}

impl Connection {
    pub(crate) fn new(handle: u16) -> Self {
        Self {
            handle,
            channel: None,
            writer: Writer::new(),
            reassembly: Reassembly::default(),
            sdus: VecDeque::new(),
            queued: 0,
            read_at: NEVER,
            packets: VecDeque::new(),
            signals: VecDeque::new(),
            charged: 0,
            identifier: 0,
        }
    }

    pub(crate) fn due(&self) -> Instant {
        self.writer.due().min(self.read_at)
    }

    pub(crate) fn has_packets(&self) -> bool {
        !self.packets.is_empty()
    }

    pub(crate) fn waits_for_credit(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.waiting() > 0 && channel.tx_credits() == 0)
    }

    /// Whether an ACL packet is data of this connection's channel.
    pub(crate) fn owns(&self, packet: &[u8]) -> bool {
        match packet {
            [2, low, high, _, _, _, _, cid_low, cid_high, ..] => {
                let word = u16::from_le_bytes([*low, *high]);
                let continuing = (word >> 12) & 0b11 == 0b01;
                word & 0xfff == self.handle
                    && (continuing || u16::from_le_bytes([*cid_low, *cid_high]) != SIGNALLING_CID)
            }
            [2, low, high, ..] => u16::from_le_bytes([*low, *high]) & 0xfff == self.handle,
            _ => false,
        }
    }

    pub(super) fn receive_buffer(&self, size: usize, overhead: usize) -> ReceiveBuffer {
        ReceiveBuffer { size, overhead, used: self.queued }
    }

    pub(super) fn charge(sdu: usize, mps: usize) -> usize {
        (sdu + 2).div_ceil(mps.max(1)) * PDU_TRUESIZE
    }
}

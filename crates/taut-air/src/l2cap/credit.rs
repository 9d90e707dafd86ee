use crate::SDU_LENGTH_BYTES;

/// When and how many credits a receiver gives back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CreditPolicy {
    /// Linux up to 6.9 (before the change "Bluetooth: L2CAP: Compute LE flow credits based on
    /// recvbuf space", ce60b9231b66): MTU / MPS + 1 credits, filled up when an SDU is complete or
    /// none is left, whether or not the program reads.
    #[default]
    LinuxOld,
    /// Linux since then: as many PDUs as the socket's receive buffer would hold, filled up after
    /// each SDU queued and each read. When the bookkeeping of the buffers alone would fill it, the
    /// old rule stands (`l2cap_publish_rx_avail`).
    LinuxRecvbuf,
    /// A fixed number, given back one by one.
    Window(u16),
    /// A window, given back `batch` credits at a time.
    Batch {
        /// Credits outstanding at most.
        window: u16,
        /// Credits given back together, 1 to `window`.
        batch: u16,
    },
}

/// What the receive buffer of the socket has to do with credits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiveBuffer {
    /// `SO_RCVBUF` as the kernel counts it, in bytes.
    pub size: usize,
    /// `sizeof(struct sk_buff)`: 232 on 64-bit kernels 6.1 and 6.12.
    pub overhead: usize,
    /// Bytes that SDUs wait with for the program, as the kernel charges them.
    pub used: usize,
}

impl CreditPolicy {
    /// Credits that a receiver wants outstanding now.
    pub(crate) fn wanted(self, mtu: usize, mps: usize, buffer: ReceiveBuffer, partial_sdu: usize) -> usize {
        let one_sdu = mtu / mps.max(1) + 1;
        match self {
            Self::LinuxOld => one_sdu,
            Self::LinuxRecvbuf => {
                let available = buffer.size.saturating_sub(buffer.used);
                let overhead = available.div_ceil(mps.max(1)).saturating_mul(buffer.overhead);
                if available == 0 {
                    0
                } else if overhead >= available {
                    one_sdu
                } else {
                    (available - overhead).saturating_sub(partial_sdu).div_ceil(mps.max(1))
                }
            }
            Self::Window(window) | Self::Batch { window, .. } => window.into(),
        }
    }

    /// Credits in the connection request or response. Linux states one SDU's worth under either
    /// rule: when it writes the request the receive buffer isn't known to the channel yet.
    pub(crate) fn initial(self, mtu: usize, mps: usize) -> usize {
        match self {
            Self::LinuxOld | Self::LinuxRecvbuf => mtu / mps.max(1) + 1,
            Self::Window(window) | Self::Batch { window, .. } => window.into(),
        }
    }

    /// After how many of its PDUs an SDU of `sdu` bytes stands still for want of a credit that never comes,
    /// when all SDUs before it were read and the buffer is empty; `None` when it comes whole. Linux reckons
    /// with what the buffer has room for besides the PDUs of the SDU that it puts together, and looks at
    /// that when the last credit is used, before it adds the PDU that used it (`l2cap_ecred_data_rcv()`).
    pub fn stands_still(self, sdu: usize, mtu: usize, mps: usize, buffer: ReceiveBuffer) -> Option<usize> {
        let pdus = (sdu + SDU_LENGTH_BYTES).div_ceil(mps.max(1));
        let mut credits = self.wanted(mtu, mps, buffer, 0);
        let mut partial = 0;
        for pdu in 0..pdus {
            if credits == 0 {
                return Some(pdu);
            }
            credits -= 1;
            if credits == 0 {
                credits = self.wanted(mtu, mps, buffer, partial);
            }
            partial += if pdu == 0 { mps.saturating_sub(SDU_LENGTH_BYTES) } else { mps };
        }
        None
    }

    /// Fewest credits worth an indication.
    pub(crate) const fn least(self) -> usize {
        match self {
            Self::Batch { batch, .. } => batch as usize,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: ReceiveBuffer = ReceiveBuffer { size: 212_992, overhead: 232, used: 0 };

    #[test]
    fn linux_windows() {
        assert_eq!(CreditPolicy::LinuxOld.wanted(672, 247, BUFFER, 0), 3);
        assert_eq!(CreditPolicy::LinuxRecvbuf.wanted(672, 247, BUFFER, 0), 52);
        // The bookkeeping of small PDUs would fill the buffer: the old rule.
        assert_eq!(CreditPolicy::LinuxRecvbuf.wanted(672, 188, BUFFER, 0), 4);
        assert_eq!(CreditPolicy::LinuxRecvbuf.wanted(672, 247, ReceiveBuffer { used: 212_992, ..BUFFER }, 0), 0);
    }

    #[test]
    fn a_buffer_without_room_for_an_sdu_stops_it_for_ever() {
        let stop = |size, sdu| CreditPolicy::LinuxRecvbuf.stands_still(sdu, 672, 247, ReceiveBuffer { size, ..BUFFER });
        // As Linux 6.12 did on the lab's radio: two of three PDUs with 4608 bytes, whole SDUs with 9216.
        assert_eq!(stop(4608, 672), Some(2));
        assert_eq!(stop(9216, 672), None);
        assert_eq!(stop(212_992, 672), None);
        // Two PDUs come all the same, and one always.
        assert_eq!((stop(4608, 492), stop(4608, 245)), (None, None));
        // Under the older rule each SDU has its credits.
        assert_eq!(CreditPolicy::LinuxOld.stands_still(672, 672, 247, ReceiveBuffer { size: 4608, ..BUFFER }), None);
    }
}

//! What passes between a host and its Bluetooth controller about links, of which data only sums are kept.

/// A link of Bluetooth, of the host whose controller was listened to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LinkKey {
    /// Number of the adapter.
    pub adapter: u16,
    /// Handle of the link (Core Specification, Vol 4, Part E, section 5.4.2).
    pub handle: u16,
    /// The peer's address, its last byte first as on the air; `None` where the link's begin was not seen.
    pub peer: Option<[u8; 6]>,
    /// Whether that host is the central; `None` where it was not told, as on BR/EDR.
    pub is_central: Option<bool>,
}

/// Something of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hci {
    /// An ACL packet with a part of an L2CAP PDU.
    Part {
        /// It begins a PDU.
        begins: bool,
        /// Bytes of data in it.
        length: u16,
        /// Bytes of the PDU that it begins, with the header of L2CAP; 0 where it does not tell.
        pdu: u32,
        /// [Sum](ByteSum) of the PDU's bytes up to the end of this part; 0 where they are not known.
        sum: u64,
    },
    /// The controller is through with the oldest packets (Number Of Completed Packets).
    Completed {
        /// ACL packets.
        packets: u16,
    },
    /// Packets are missing from the log before this.
    Lost,
}

/// A sum of bytes that come in parts, the same however they are cut: FNV-1a (Fowler, Noll, Vo), of 64 bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByteSum(u64);

impl ByteSum {
    /// Of no bytes.
    pub const NEW: Self = Self(0xcbf2_9ce4_8422_2325);

    /// One that was told by its [value](Self::value), which has to be another one than 0.
    pub const fn of_value(value: u64) -> Self {
        Self(value)
    }

    /// Takes in what comes behind.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    /// Never 0.
    pub const fn value(self) -> u64 {
        if self.0 == 0 { 1 } else { self.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_does_not_depend_on_where_the_bytes_are_cut() {
        let mut whole = ByteSum::NEW;
        whole.add(b"foobar");
        // The value that the authors of the function give.
        assert_eq!(whole.value(), 0x8594_4171_f739_67e8);
        for cut in 0..=6 {
            let mut parts = ByteSum::NEW;
            parts.add(&b"foobar"[..cut]);
            let mut parts = ByteSum::of_value(parts.value());
            parts.add(&b"foobar"[cut..]);
            assert_eq!(parts, whole, "cut behind {cut} bytes");
        }
    }
}

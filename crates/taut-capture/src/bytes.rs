//! Numbers out of bytes, in either order. Where there are too few bytes, there is no number.

/// The order of bytes in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        })
    }
}

/// In the order of the network.
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Order::Big.u16(bytes, at)
}

/// In the order of the network.
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Order::Big.u32(bytes, at)
}

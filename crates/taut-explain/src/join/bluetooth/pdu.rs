//! An L2CAP PDU at one place, and how many are kept.

/// So many L2CAP PDUs of a file are kept, of 96 bytes each.
pub(super) const MOST_PDUS: usize = 1 << 17;
/// So many PDUs on the air, of 20 bytes each.
pub(super) const MOST_AIR_PDUS: usize = 1 << 19;
/// So many links are followed, those that are over too.
pub(super) const MOST_LINKS: usize = 64;

/// An L2CAP PDU as it passed one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pdu {
    /// Its first part was handed over, or began on the air.
    pub(super) begin: u64,
    /// Its last part was.
    pub(super) last: u64,
    /// Its last part was there: it had come to the host, or ended on the air when the receiver took it. Where that is
    /// not known, when it first ended there.
    pub(super) end: u64,
    /// The controller was through with it, or the answer that acknowledged its last part ended; 0: not known.
    pub(super) done: u64,
    /// The packets of its first and its last part.
    pub(super) frames: [u64; 2],
    /// The packet that told that it was through, or acknowledged its last part.
    pub(super) done_frame: u64,
    /// Of all its bytes, with the header of L2CAP; 0: they are not known.
    pub(super) hash: u64,
    /// Bytes, with the header of L2CAP.
    pub(super) length: u32,
    /// Parts that were sent again on the air.
    pub(super) repeats: u32,
    /// Another one may have passed unseen before it.
    pub(super) is_after_hole: bool,
}

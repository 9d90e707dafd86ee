//! Where the generated programs keep things: registers, stack, and the memory of a route.

use taut_bpf::instruction::R;

/// The event's payload.
pub(super) const PAYLOAD: R = R::R6;
/// The route's memory, a value of a map.
pub(super) const MEMORY: R = R::R7;
/// Time of the event, in ns.
pub(super) const NOW: R = R::R8;
/// Bytes of the payload.
pub(super) const LENGTH: R = R::R9;

// The stack, from the frame pointer downwards; 512 bytes in all.
/// What the program was called with.
pub(super) const CONTEXT: i16 = -8;
/// Whether the event passes.
pub(super) const PASSES: i16 = -16;
/// The first of eight outputs, upwards from here.
pub(super) const OUTPUTS: i16 = PASSES - 8 * super::super::condition::MOST_OUTPUTS as i16;
/// 72 bytes for a datagram to send: up to 62 of headers, and from the 64th a number as payload; or
/// for a record of the log.
pub(super) const HEADERS: i16 = OUTPUTS - 72;
/// 32 bytes of the sender's addresses: see `incoming.rs`.
pub(super) const SENDER: i16 = HEADERS - 32;
/// Number of the event.
pub(super) const EVENT: i16 = SENDER - 8;
/// Where a datagram goes: number of the device, and what stands for its checksum.
pub(super) const DEVICE: i16 = EVENT - 8;
pub(super) const CHECKSUM: i16 = DEVICE - 8;
/// Over IPv6: sum of what is sent without its payload, and of the payload that came.
pub(super) const SENT_SUM: i16 = CHECKSUM - 8;
pub(super) const PAYLOAD_SUM: i16 = SENT_SUM - 8;
/// Values that wait for others, downwards from here.
pub(super) const WAITING: i16 = PAYLOAD_SUM;

// The memory of a route: 64-bit words after a `struct bpf_spin_lock`.
/// Offset of the counter of events.
pub(super) const COUNT: usize = 8;
/// Of those that passed.
pub(super) const PASSED: usize = 16;
/// Time of the last event.
pub(super) const LAST: usize = 24;
/// Time of the last event that passed.
pub(super) const LAST_PASSED: usize = 32;
/// Events too short.
pub(super) const SHORT: usize = 40;
/// Datagrams that could not be sent.
pub(super) const FAILED: usize = 48;
/// Records of the log that had no room.
pub(super) const LOG_LOST: usize = 56;
/// Histogram of the time in the program: 32 words, the n-th for times from 2^n ns.
pub(super) const HISTOGRAM: usize = 64;
/// Words of the histogram.
pub(super) const BUCKETS: usize = 32;
/// The second in which the last reply was sent, and the number of replies in it.
pub(super) const REPLY_SECOND: usize = HISTOGRAM + 8 * BUCKETS;
pub(super) const REPLIES: usize = REPLY_SECOND + 8;
/// The filters' words.
pub(super) const SLOTS: usize = REPLIES + 8;

/// Bytes of the memory of a route with so many words for filters.
pub const fn memory_bytes(slots: u16) -> usize {
    SLOTS + 8 * slots as usize
}

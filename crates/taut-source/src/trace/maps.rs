//! The maps that the programs share.

/// How many marks there are. A mark says that something with its index is traced, or was: who has none is let go after
/// one load, and who has one is looked up. Indexes are the lowest bits of the number of a process or thread, of the
/// address of a socket, and of a port pair; two that share one cost each other a look-up.
pub(super) const MARKS: usize = 1 << 16;
/// Sockets stand at addresses that are multiples of this power of two.
pub(super) const SOCKET_SHIFT: i32 = 6;
/// Of a thread: [`thread`](super::writer::thread).
pub(super) const THREAD_BYTES: usize = 32;

/// The index of a port pair's mark.
pub(super) const fn mark_of_pair(pair: u64) -> u32 {
    (pair >> 16 ^ pair) as u32
}

/// Numbers of the maps' descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapNumbers {
    /// Records.
    pub(super) ring: i32,
    /// Traced processes, by number.
    pub(super) targets: i32,
    /// Port pairs of traced connections as both ends see them.
    pub(super) ports: i32,
    /// Sockets that are followed, by address.
    pub(super) sockets: i32,
    /// Sockets that are not of TCP and that a call was made on, by address.
    pub(super) others: i32,
    /// Threads that made a call, until they end.
    pub(super) threads: i32,
    /// What is looked up at all.
    pub(super) marks: i32,
    /// Of each processor: the socket whose segment it takes in, and the timer that runs.
    pub(super) context: i32,
    /// Records that found no room.
    pub(super) lost: i32,
}

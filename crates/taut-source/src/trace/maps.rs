//! The maps that the programs share.

/// Of a thread: [`thread`](super::writer::thread).
pub(super) const THREAD_BYTES: usize = 32;

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

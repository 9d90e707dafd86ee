//! The maps that the programs share.

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
    /// The system call that a thread is in.
    pub(super) calls: i32,
    /// Threads that made a call: since when each is ready to run, or 0, and the socket whose segment woke it up, or 0.
    pub(super) threads: i32,
    /// Of each processor: the socket whose segment it takes in, and the timer that runs.
    pub(super) context: i32,
    /// Records that found no room.
    pub(super) lost: i32,
}

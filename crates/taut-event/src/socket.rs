/// State of one TCP socket at one moment, as its own kernel tells it (`TCP_INFO`, sock_diag(7)).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SocketState {
    /// Bytes written by the program and not yet sent for the first time.
    pub unsent_bytes: u32,
    /// Bytes sent and not yet acknowledged.
    pub in_flight_bytes: u32,
    /// Bytes received and not yet read by the program.
    pub unread_bytes: u32,
    /// Segments on their way: sent, less those acknowledged out of order or lost, and those sent again.
    pub in_flight_segments: u32,
    /// Segments that the congestion window allows in flight; 0 where it is not known.
    pub congestion_window_segments: u32,
    /// Where slow start ends, in segments.
    pub slow_start_threshold_segments: u32,
    /// The peer's receive window, from the first byte that is not acknowledged. `None` where the kernel
    /// does not tell it (before Linux 5.4).
    pub send_window_bytes: Option<u32>,
    /// Largest segment, in bytes.
    pub mss_bytes: u32,
    /// Whether the connection is being opened.
    pub is_opening: bool,
    /// Whether all is sent that ever will be, and the end (FIN), which counts as no byte.
    pub is_ended: bool,
    /// Whether losses are being repaired.
    pub recovery: Recovery,
    /// Retransmission timeouts in a row.
    pub timeouts: u8,
    /// Probes of a closed window in a row.
    pub window_probes: u8,
    /// Whether a small segment is among those on their way, as Nagle's algorithm asks
    /// (`tcp_minshall_check`); `None` where that can't be seen.
    pub small_in_flight: Option<bool>,
    /// How long pacing keeps the next segment back from now on, in ns; 0 where that can't be seen.
    pub pacing_wait_ns: u32,
    /// Bytes of those on their way that wait in the queue of this host's device; 0 where that can't be seen.
    pub device_bytes: u32,
    /// Whether the send buffer takes no more, where that can be seen.
    pub send_buffer_full: bool,
    /// Whether `TCP_NODELAY` is set, where that can be seen.
    pub no_delay: Option<bool>,
    /// Whether `TCP_CORK` is set, where that can be seen.
    pub cork: Option<bool>,
    /// Segments that the peer had twice, as it told over the whole connection (DSACK, RFC 2883); 0 where that can't be
    /// seen.
    pub duplicates: u32,
}

/// How a socket repairs losses (`enum tcp_ca_state` of linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Recovery {
    /// It does not.
    #[default]
    None,
    /// Duplicate acknowledgements told of the loss.
    Repeating,
    /// The retransmission timer ran out.
    AfterTimeout,
}

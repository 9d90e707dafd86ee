use std::io;
use std::os::fd::BorrowedFd;

use taut_time::{Duration, SendQueue};

use crate::sys;

/// How many bytes have to come before the kernel tells the program that it can read (`SO_RCVLOWAT`); 1 unless set.
///
/// # Errors
/// As getsockopt(2).
pub fn receive_low_water(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let least = sys::option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT)?;
    Ok(u32::try_from(least).unwrap_or(1))
}

/// What the kernel tells of a TCP connection (`getsockopt(TCP_INFO)`, `struct tcp_info` in linux/tcp.h).
///
/// Fields that this kernel does not have are zero.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpInfo {
    /// Largest segment this side sends, in bytes.
    pub send_mss_bytes: u32,
    /// Segments sent and not yet acknowledged.
    pub unacked_segments: u32,
    /// Of them, those that the peer acknowledged out of order (RFC 2018).
    pub sacked_segments: u32,
    /// Of them, those taken for lost.
    pub lost_segments: u32,
    /// Segments that are on their way once more.
    pub repeated_segments: u32,
    /// State of loss recovery: `enum tcp_ca_state`, 3 while losses are repeated, 4 after a timeout.
    pub congestion_state: u8,
    /// Retransmission timeouts in a row.
    pub timeouts: u8,
    /// Probes of a closed window in a row.
    pub window_probes: u8,
    /// Where slow start ends, in segments.
    pub slow_start_threshold_segments: u32,
    /// Bytes received.
    pub bytes_received: u64,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Least round-trip time seen.
    pub min_rtt: Duration,
    /// Congestion window, in segments.
    pub congestion_window_segments: u32,
    /// Segments retransmitted over the life of the connection.
    pub retransmitted_segments: u32,
    /// Bytes that wait in the socket for their first transmission.
    pub unsent_bytes: u32,
    /// Segments with data sent, retransmissions included.
    pub data_segments_out: u32,
    /// Segments with data received.
    pub data_segments_in: u32,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Time in which data was outstanding.
    pub busy_time: Duration,
    /// Time limited by the peer's receive window.
    pub receive_window_limited: Duration,
    /// Time limited by the local send buffer.
    pub send_buffer_limited: Duration,
    /// Most recent delivery rate, in bytes per second.
    pub delivery_rate_bytes_per_second: u64,
    /// The peer's receive window, counted from the first byte that is not acknowledged (SND.WND); Linux 5.4 and later.
    pub send_window_bytes: Option<u32>,
}

impl TcpInfo {
    pub(crate) fn read(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; 280];
        let length = sys::option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(Self::parse(&bytes[..length]))
    }

    /// Segments in flight as the congestion window counts them (`tcp_packets_in_flight` of net/tcp.h).
    pub const fn in_flight_segments(&self) -> u32 {
        let left = self.sacked_segments.saturating_add(self.lost_segments);
        self.unacked_segments.saturating_sub(left).saturating_add(self.repeated_segments)
    }

    /// From the bytes of a `struct tcp_info`, whatever its length: the kernel only ever appends to it.
    pub fn parse(bytes: &[u8]) -> Self {
        let u32_at =
            |offset: usize| bytes.get(offset..offset + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let u64_at =
            |offset: usize| bytes.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        let micros = |value: u64| Duration::from_micros(value);
        Self {
            send_mss_bytes: u32_at(16),
            congestion_state: bytes.get(1).copied().unwrap_or(0),
            timeouts: bytes.get(2).copied().unwrap_or(0),
            window_probes: bytes.get(3).copied().unwrap_or(0),
            unacked_segments: u32_at(24),
            sacked_segments: u32_at(28),
            lost_segments: u32_at(32),
            repeated_segments: u32_at(36),
            slow_start_threshold_segments: u32_at(76),
            bytes_received: u64_at(128),
            smoothed_rtt: micros(u32_at(68).into()),
            congestion_window_segments: u32_at(80),
            retransmitted_segments: u32_at(100),
            bytes_acked: u64_at(120),
            unsent_bytes: u32_at(144),
            min_rtt: micros(u32_at(148).into()),
            data_segments_in: u32_at(152),
            data_segments_out: u32_at(156),
            delivery_rate_bytes_per_second: u64_at(160),
            busy_time: micros(u64_at(168)),
            receive_window_limited: micros(u64_at(176)),
            send_buffer_limited: micros(u64_at(184)),
            bytes_sent: u64_at(200),
            send_window_bytes: (bytes.len() >= 232).then(|| u32_at(228)),
        }
    }

    /// The part that tells why a write may still be waiting, with what the socket holds: bytes not
    /// yet sent for the first time, and bytes not yet acknowledged, these among them.
    pub(crate) fn send_queue(&self, unsent_bytes: u32, unacknowledged_bytes: u32) -> SendQueue {
        let in_flight = unacknowledged_bytes.saturating_sub(unsent_bytes);
        SendQueue {
            unsent_bytes,
            in_flight_segments: self.unacked_segments,
            congestion_window_segments: self.congestion_window_segments,
            window_room_bytes: self.send_window_bytes.map(|window| window.saturating_sub(in_flight)),
            mss_bytes: self.send_mss_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_windows_room_is_what_is_not_in_flight() {
        let mut bytes = [0; 240];
        bytes[228..232].copy_from_slice(&10_000_u32.to_ne_bytes());
        let room = |unsent, unacknowledged| TcpInfo::parse(&bytes).send_queue(unsent, unacknowledged).window_room_bytes;
        // 9,900 bytes in flight leave 100 of the window, however few are unsent.
        assert_eq!((room(128, 10_028), room(128, 128), room(128, 20_000)), (Some(100), Some(10_000), Some(0)));
        assert_eq!(TcpInfo::parse(&bytes[..224]).send_queue(1, 2).window_room_bytes, None);
    }

    #[test]
    fn a_short_answer_of_an_old_kernel_leaves_zeroes() {
        let mut bytes = [0; 104];
        bytes[16] = 100;
        let info = TcpInfo::parse(&bytes);
        assert_eq!(info.send_mss_bytes, 100);
        assert_eq!(info.busy_time, Duration::ZERO);
    }
}

//! Software timestamps of the kernel, in both directions.
//!
//! Read Documentation/networking/timestamping.rst before working here. Two facts that the rest of Tautline relies on:
//!
//! - A TCP segment keeps one transmit timestamp, that of the last write merged into it. What
//!   happened to the earlier writes is filled in by [`taut_time::Timeline::messages`].
//! - `MSG_EOR` would give every write a timestamp of its own, but it changes what Nagle's algorithm
//!   does, so it is not used.

use std::os::fd::AsFd;

use taut_time::{ByteRange, Event, Framing, Host, Instant, Layer, What};

use crate::clock::RealtimeOffset;
use crate::{Endpoint, Error, Link, Result, message, sys};

// linux/net_tstamp.h; OPT_ID_TCP (Linux 6.2) is newer than the libc crate's list.
const TX_SOFTWARE: u32 = 1 << 1;
const RX_SOFTWARE: u32 = 1 << 3;
const SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
const OPT_TSONLY: u32 = 1 << 11;
const OPT_ID_TCP: u32 = 1 << 16;

// linux/errqueue.h
const ORIGIN_TIMESTAMPING: u8 = 4;
const SENT: u32 = 0;
const SCHEDULED: u32 = 1;
const ACKED: u32 = 2;

/// Collects what the kernel reports of the bytes sent on one link, as events with byte positions
/// counted from the moment of [`start`](Self::start).
#[derive(Debug)]
pub struct TransmitStamps {
    framing: Framing,
    /// Bytes of one message: a datagram link counts datagrams, and all of a flow have one size.
    message_bytes: u64,
    keys: [Unwrapper; 3],
}

impl TransmitStamps {
    /// Switches transmit timestamps on. All bytes sent before must be acknowledged.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the transport or the kernel has none: TCP needs Linux 6.2, Unix
    /// sockets never have any.
    pub fn start(link: &Link, message_bytes: usize) -> Result<Self> {
        let framing = link.endpoint().framing();
        let flags = match link.endpoint() {
            Endpoint::Tcp(_) => SOFTWARE | TX_SCHED | TX_SOFTWARE | TX_ACK | OPT_ID | OPT_ID_TCP | OPT_TSONLY,
            Endpoint::Udp(_) => SOFTWARE | TX_SCHED | TX_SOFTWARE | OPT_ID | OPT_TSONLY,
            Endpoint::Unix(_) | Endpoint::UnixDgram(_) => {
                return Err(Error::Unavailable("Unix sockets have no transmit timestamps".to_owned()));
            }
            Endpoint::Mqtt(_) | Endpoint::Nats(_) => {
                return Err(Error::Unavailable(
                    "transmit timestamps of a broker's messages are not read here".to_owned(),
                ));
            }
            Endpoint::L2cap(_) | Endpoint::Rfcomm(_) => {
                return Err(Error::Unavailable("transmit timestamps of Bluetooth are not read here".to_owned()));
            }
        };
        set_flags(link, flags)?;
        Ok(Self { framing, message_bytes: message_bytes as u64, keys: [Unwrapper::default(); 3] })
    }

    /// Takes what the kernel has reported since the last call and hands each as an event to `sink`.
    /// Costs 0.2 µs when there is nothing.
    ///
    /// # Errors
    /// As recvmsg(2) with `MSG_ERRQUEUE`.
    pub fn drain(&mut self, link: &Link, offset: RealtimeOffset, sink: &mut impl FnMut(Event)) -> Result<()> {
        loop {
            let received = match message::receive(link.as_fd(), &mut [], libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::io("read timestamps of", link.endpoint(), source)),
            };
            let (Some((seconds, nanoseconds)), Some((ORIGIN_TIMESTAMPING, kind, key))) =
                (received.stamp, received.extended_error)
            else {
                continue;
            };
            let (index, layer, what) = match kind {
                SENT => (0, Layer::Driver, What::Left),
                SCHEDULED => (1, Layer::Socket, What::Scheduled),
                ACKED => (2, Layer::Socket, What::Acked),
                _ => continue,
            };
            let key = self.keys[index].unwrap(key);
            let bytes = match self.framing {
                // The key of a stream is the position of the last byte of the write.
                Framing::Stream => ByteRange::new(key, key + 1),
                Framing::Datagram => ByteRange::new(key * self.message_bytes, (key + 1) * self.message_bytes),
            };
            sink(Event { at: offset.to_monotonic(seconds, nanoseconds), host: Host::Local, layer, what, bytes });
        }
    }
}

/// Switches receive timestamps on, for [`receive`].
///
/// # Errors
/// As setsockopt(2).
pub fn start_receiving(link: &Link) -> Result<()> {
    set_flags(link, SOFTWARE | RX_SOFTWARE)
}

/// Reads what is there together with the time at which the kernel took in the last of it, where the transport tells.
///
/// # Errors
/// As recvmsg(2).
pub fn receive(link: &Link, offset: RealtimeOffset, buffer: &mut [u8]) -> std::io::Result<(usize, Option<Instant>)> {
    let received = message::receive(link.as_fd(), buffer, 0)?;
    let at = received.stamp.map(|(seconds, nanoseconds)| offset.to_monotonic(seconds, nanoseconds));
    Ok((received.bytes, at))
}

fn set_flags(link: &Link, flags: u32) -> Result<()> {
    sys::set_option(link.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as i32).map_err(|source| {
        Error::Unavailable(format!(
            "{}: this kernel gives no such timestamps ({source}); TCP needs Linux 6.2",
            link.endpoint()
        ))
    })
}

/// Follows a 32-bit counter past its end. Keys of one stage come nearly in order.
#[derive(Clone, Copy, Debug, Default)]
struct Unwrapper {
    last: u64,
}

impl Unwrapper {
    fn unwrap(&mut self, key: u32) -> u64 {
        let step = key.wrapping_sub(self.last as u32) as i32;
        let key = self.last.saturating_add_signed(step.into());
        self.last = self.last.max(key);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_on_past_32_bits_and_may_step_back() {
        let mut keys = Unwrapper::default();
        assert_eq!(keys.unwrap(0x7000_0000), 0x7000_0000);
        assert_eq!(keys.unwrap(0xE000_0000), 0xE000_0000);
        assert_eq!(keys.unwrap(0x1000_0000), 0x1_1000_0000);
        assert_eq!(keys.unwrap(0x0FFF_FFFF), 0x1_0FFF_FFFF);
        assert_eq!(keys.unwrap(0x1000_0001), 0x1_1000_0001);
    }
}

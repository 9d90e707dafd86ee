//! Software timestamps of the kernel, in both directions.
//!
//! Read Documentation/networking/timestamping.rst before working here. Two facts that the rest of Tautline relies on:
//!
//! - A TCP segment keeps one transmit timestamp, that of the last write merged into it. What
//!   happened to the earlier writes is filled in by [`taut_time::Timeline::messages`].
//! - `MSG_EOR` would give every write a timestamp of its own, but it changes what Nagle's algorithm
//!   does, so it is not used.
//!
//! Of a broker's messages the stamps are those of the bytes that brought them to the broker.

use std::os::fd::AsFd;

use taut_time::{ByteRange, Event, Host, Instant, Layer, What};

use crate::clock::RealtimeOffset;
use crate::message::{RX_SOFTWARE, SOFTWARE};
use crate::{Endpoint, Error, Link, Result, message, sys};

// linux/net_tstamp.h; OPT_ID_TCP (Linux 6.2) is newer than the libc crate's list.
const TX_SOFTWARE: u32 = 1 << 1;
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
    counted: Counted,
    keys: [Unwrapper; 3],
}

/// What the kernel's keys count.
#[derive(Debug)]
enum Counted {
    /// The bytes of the flow: a key is the position of the last one of a write.
    Bytes,
    /// Datagrams; all of a flow have so many bytes.
    Datagrams(u64),
    /// The bytes of a connection to a broker.
    Packed(Packed),
}

impl TransmitStamps {
    /// Switches transmit timestamps on. All bytes sent before must be acknowledged.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the transport or the kernel has none: TCP needs Linux 6.2, Unix
    /// sockets never have any.
    pub fn start(link: &Link, message_bytes: usize) -> Result<Self> {
        const OF_ALL: u32 = SOFTWARE | TX_SCHED | TX_SOFTWARE | OPT_ID | OPT_TSONLY;
        const OF_TCP: u32 = OF_ALL | TX_ACK | OPT_ID_TCP;
        let message_bytes = message_bytes as u64;
        let (flags, counted) = match link.endpoint() {
            Endpoint::Tcp(_) => (OF_TCP, Counted::Bytes),
            Endpoint::Udp(_) => (OF_ALL, Counted::Datagrams(message_bytes)),
            Endpoint::Mqtt(_) | Endpoint::Nats(_) => {
                let Some(begin) = link.broker_bytes_sent() else {
                    return Err(Error::Unavailable(format!("{}: bytes wait for the broker", link.endpoint())));
                };
                (OF_TCP, Counted::Packed(Packed { message_bytes, begin, ..Packed::default() }))
            }
            Endpoint::Unix(_) | Endpoint::UnixDgram(_) => {
                return Err(Error::Unavailable("Unix sockets have no transmit timestamps".to_owned()));
            }
            Endpoint::L2cap(_) | Endpoint::Rfcomm(_) => {
                return Err(Error::Unavailable("transmit timestamps of Bluetooth are not read here".to_owned()));
            }
        };
        set_flags(link, flags)?;
        Ok(Self { counted, keys: [Unwrapper::default(); 3] })
    }

    /// To be called after each message: over a broker it then knows where that ends among the connection's bytes.
    pub fn sent(&mut self, link: &Link) {
        if let Counted::Packed(packed) = &mut self.counted {
            packed.sent(link.broker_bytes_sent());
        }
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
            let at = offset.to_monotonic(seconds, nanoseconds);
            let mut tell = |bytes| sink(Event { at, host: Host::Local, layer, what, bytes });
            match &mut self.counted {
                Counted::Bytes => tell(ByteRange::new(key, key + 1)),
                Counted::Datagrams(bytes) => tell(ByteRange::new(key * *bytes, (key + 1) * *bytes)),
                Counted::Packed(packed) => packed.reached(index, key).for_each(tell),
            }
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

/// Where messages end among the bytes of a connection that has more than them: headers, acknowledgements, records.
#[derive(Debug, Default)]
struct Packed {
    message_bytes: u64,
    /// Bytes that the connection had before the first that is counted.
    begin: u64,
    /// Positions behind the last byte of each message, from there on.
    ends: Vec<u64>,
    /// Messages before the next one whose own end is not known, as it had no room at once.
    unplaced: usize,
    /// Messages that have reached each stage.
    reached: [usize; 3],
}

impl Packed {
    fn sent(&mut self, connection_bytes: Option<u64>) {
        self.unplaced += 1;
        // Those before it are there when it is, as all of a segment is that has one stamp.
        if let Some(bytes) = connection_bytes {
            self.ends.extend(std::iter::repeat_n(bytes.saturating_sub(self.begin), self.unplaced));
            self.unplaced = 0;
        }
    }

    /// The messages that are in a stage now that the byte of that position is.
    fn reached(&mut self, stage: usize, position: u64) -> impl Iterator<Item = ByteRange> + use<> {
        let before = self.reached[stage];
        let more = self.ends[before..].iter().take_while(|&&end| end <= position + 1).count();
        self.reached[stage] += more;
        let bytes = self.message_bytes;
        (before as u64..(before + more) as u64).map(move |index| ByteRange::new(index * bytes, (index + 1) * bytes))
    }
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

    #[test]
    fn a_message_is_where_its_last_byte_on_the_connection_is() {
        let mut packed = Packed { message_bytes: 10, begin: 100, ..Packed::default() };
        packed.sent(Some(117));
        // Four bytes of an acknowledgement stand before the second message; the third has no room at once.
        packed.sent(Some(138));
        packed.sent(None);
        packed.sent(Some(172));
        let mut at = |stage, position| packed.reached(stage, position).map(|bytes| bytes.end).collect::<Vec<_>>();
        assert_eq!(at(0, 15), Vec::<u64>::new());
        assert_eq!(at(0, 16), [10]);
        // The acknowledgement's own stamp says nothing of a message, and one that comes again says nothing new.
        assert_eq!(at(0, 20), Vec::<u64>::new());
        assert_eq!(at(0, 16), Vec::<u64>::new());
        // One stamp for all of a segment; the stages are apart.
        assert_eq!(at(0, 71), [20, 30, 40]);
        assert_eq!(at(2, 37), [10, 20]);
    }
}

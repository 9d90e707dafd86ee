//! All that adapters and kernel say to each other (`HCI_CHANNEL_MONITOR`), with the kernel's times, as btmon reads it.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use socket2::Socket;

use super::le16;
use super::management::hci_socket;
use crate::{message, sys};

const HCI_DEV_NONE: u16 = 0xFFFF;
const HCI_CHANNEL_MONITOR: u16 = 2;
/// `struct hci_mon_hdr`: opcode, adapter, length.
const HEADER: usize = 6;
/// An ACL packet is no longer: its length has 16 bits.
const LONGEST: usize = HEADER + 4 + 0xFFFF;
/// What waits while nobody reads: some seconds of a busy link.
const QUEUE_BYTES: usize = 4 << 20;
/// `SO_MEMINFO` (socket.h), of which the last of nine numbers counts what was dropped (linux/sock_diag.h).
const SO_MEMINFO: i32 = 55;
const MEMINFO: usize = 9;

/// The monitor's channel. Needs `CAP_NET_RAW`.
#[derive(Debug)]
pub struct HciLog {
    socket: Socket,
    buffer: Vec<u8>,
}

/// One frame of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HciFrame<'a> {
    /// Number of the adapter.
    pub adapter: u16,
    /// What it is (BlueZ, doc/btsnoop-protocol.rst).
    pub opcode: u16,
    /// When the kernel handed it over or took it in: `CLOCK_REALTIME`, seconds and nanoseconds.
    pub at: (i64, i64),
    /// What follows the header.
    pub bytes: &'a [u8],
}

/// Whether this kernel has an adapter of Bluetooth. Loads no module, which opening a socket would.
pub fn has_adapter() -> bool {
    Path::new("/sys/class/bluetooth").read_dir().is_ok_and(|mut entries| entries.next().is_some())
}

impl HciLog {
    /// Begins to hear.
    ///
    /// # Errors
    /// As socket(2) and bind(2): `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` where the kernel has no Bluetooth.
    pub fn open() -> io::Result<Self> {
        let socket = hci_socket(HCI_DEV_NONE, HCI_CHANNEL_MONITOR)?;
        socket.set_nonblocking(true)?;
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // Beyond the host's limit where that is allowed (`CAP_NET_ADMIN`); else as much as is.
        if sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, QUEUE_BYTES as i32).is_err() {
            let _ = socket.set_recv_buffer_size(QUEUE_BYTES);
        }
        Ok(Self { socket, buffer: vec![0; LONGEST] })
    }

    /// The next frame that has come. Those that have no time, which tell what was there before, have that of 1970.
    pub fn next_frame(&mut self) -> Option<HciFrame<'_>> {
        let received = loop {
            match message::receive(self.socket.as_fd(), &mut self.buffer, libc::MSG_DONTWAIT) {
                Ok(received) => break received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        };
        parse(&self.buffer[..received.bytes], received.stamp.unwrap_or_default())
    }

    /// Frames for which its queue had no room so far, as far as the kernel tells.
    pub fn dropped(&self) -> u64 {
        let mut numbers = [0; 4 * MEMINFO];
        match sys::option_bytes(self.socket.as_fd(), libc::SOL_SOCKET, SO_MEMINFO, &mut numbers) {
            Ok(read) if read == numbers.len() => {
                numbers.last_chunk().map_or(0, |last| u32::from_ne_bytes(*last).into())
            }
            _ => 0,
        }
    }
}

/// `None` for what is shorter than it says.
fn parse(frame: &[u8], at: (i64, i64)) -> Option<HciFrame<'_>> {
    let length = usize::from(le16(frame, 4)?);
    let bytes = frame.get(HEADER..HEADER + length)?;
    Some(HciFrame { adapter: le16(frame, 2)?, opcode: le16(frame, 0)?, at, bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_is_as_long_as_it_says() {
        let frame = [4, 0, 1, 0, 3, 0, 7, 8, 9];
        let read = parse(&frame, (5, 6)).unwrap();
        assert_eq!(read, HciFrame { adapter: 1, opcode: 4, at: (5, 6), bytes: &[7, 8, 9] });
        assert_eq!(parse(&frame[..8], (5, 6)), None);
        assert_eq!(parse(&frame[..3], (5, 6)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(frame) = parse(&bytes, (0, 0)) {
                prop_assert!(frame.bytes.len() + HEADER <= bytes.len());
            }
        }
    }
}

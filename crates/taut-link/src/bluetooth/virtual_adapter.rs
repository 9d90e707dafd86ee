//! Adapters of the kernel whose controllers we are: `/dev/vhci` (`drivers/bluetooth/hci_vhci.c`).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::{Error, Result};

const DEVICE: &str = "/dev/vhci";
/// Packet type of the device's own requests and answers (`HCI_VENDOR_PKT`).
const VENDOR: u8 = 0xff;
/// The kind of controller asked for: a usual one (`HCI_PRIMARY`).
const PRIMARY: u8 = 0x00;
/// More than the longest packet that a kernel hands over: ACL data of up to 1024 bytes is what it sizes for.
const ROOM: usize = 4096;
/// The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// An adapter as its controller sees it: packets from and to the kernel's host, H4 indicator first.
/// It is there until this value is dropped.
#[derive(Debug)]
pub struct VirtualAdapter {
    device: File,
    index: u16,
    /// Came before the answer to the request for the adapter: its initialisation begins with registration.
    early: Option<Vec<u8>>,
}

impl VirtualAdapter {
    /// Makes the kernel have another adapter.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without the device or the right to open it.
    pub fn create() -> Result<Self> {
        let options = OFlags::NONBLOCK.bits() as i32;
        let mut device =
            OpenOptions::new().read(true).write(true).custom_flags(options).open(DEVICE).map_err(missing)?;
        let failed = |error| Error::Host { what: format!("make a virtual adapter with {DEVICE}"), error };
        device.write_all(&[VENDOR, PRIMARY]).map_err(failed)?;
        let mut early = None;
        loop {
            let mut fds = [PollFd::new(&device, PollFlags::IN)];
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            match poll(&mut fds, Some(&patience)) {
                Ok(0) => return Err(failed(io::Error::from(ErrorKind::TimedOut))),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
            let Some(packet) = read(&mut device).map_err(failed)? else { continue };
            match packet[..] {
                [VENDOR, _, low, high] => return Ok(Self { device, index: u16::from_le_bytes([low, high]), early }),
                _ => early = Some(packet),
            }
        }
    }

    /// Its number: 0 is hci0.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// The next packet from the kernel; `None` when there is none now.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(packet) = self.early.take() {
            return Ok(Some(packet));
        }
        read(&mut self.device).map_err(|error| self.error("read from", error))
    }

    /// Hands a packet to the kernel. Whether it took it: an adapter that is down takes none, and
    /// the packet is lost as on any cable to a machine that is off.
    ///
    /// # Errors
    /// When the device fails.
    pub fn write(&mut self, packet: &[u8]) -> Result<bool> {
        match self.device.write(packet) {
            Ok(_) => Ok(true),
            // hci_recv_frame() of an adapter that isn't up.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
            Err(error) => Err(self.error("write to", error)),
        }
    }

    fn error(&self, what: &str, error: io::Error) -> Error {
        Error::Host { what: format!("{what} the virtual adapter hci{}", self.index), error }
    }
}

impl AsFd for VirtualAdapter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn read(device: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut packet = vec![0; ROOM];
    loop {
        match device.read(&mut packet) {
            Ok(length) => {
                packet.truncate(length);
                return Ok(Some(packet));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn missing(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::Unavailable(format!(
            "{DEVICE} is missing: load the kernel's driver for virtual controllers, `modprobe hci_vhci`, or use a machine of \
             `cargo xtask lab`, which has it"
        )),
        ErrorKind::PermissionDenied => {
            Error::Unavailable(format!("{DEVICE} may be opened by root alone: run this with sudo"))
        }
        _ if error.raw_os_error() == Some(libc::ENODEV) => Error::Unavailable(format!(
            "{DEVICE} has no driver behind it: this kernel was built without virtual controllers (CONFIG_BT_HCIVHCI)"
        )),
        _ => Error::Host { what: format!("open {DEVICE}"), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_device_one_is_told_what_to_do() {
        for (errno, hint) in [(libc::ENOENT, "modprobe hci_vhci"), (libc::EACCES, "sudo"), (libc::ENODEV, "BT_HCIVHCI")]
        {
            let error = missing(io::Error::from_raw_os_error(errno));
            assert!(error.is_missing_right() && error.to_string().contains(hint), "{error}");
        }
    }
}

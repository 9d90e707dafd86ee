//! Links that are paired and encrypted. The kernel does it by itself when a socket asks for it
//! (`BT_SECURITY`); here is what it does not tell the socket: that it failed, why, and what to do.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockAddr, Socket};
use taut_time::Duration;

use super::heard::{Heard, Insecure};
use super::management::Management;
use super::monitor::Monitor;
use super::number::{BT_SECURITY, SOL_BLUETOOTH};
use super::{BluetoothAddress, DeviceAddress, Security};
use crate::{clock, sys};

/// Answers the kernel when it asks whether to pair with a device although there is nothing to compare
/// ("Just Works"). Newer kernels ask even where neither side can show anything (`tk_request` of
/// smp.c), and wait until their timeout if nobody answers. Whoever asked for the link has answered
/// that already. Where a number is to be compared, that is left to an agent (bluetoothctl's, say).
#[derive(Debug)]
struct Confirmer {
    /// Without the right (`CAP_NET_ADMIN`) the kernel asks others.
    management: Management,
    adapter: u16,
}

impl Confirmer {
    fn open(adapter: u16) -> Option<Self> {
        Some(Self { management: Management::open().ok()?, adapter })
    }

    /// Answers for this device, or for any.
    fn answer(&self, device: Option<DeviceAddress>) {
        while let Some(asked) = self.management.confirmation() {
            let is_meant = device.is_none_or(|device| device == asked.device);
            if asked.adapter == self.adapter && asked.is_hint && is_meant {
                self.management.confirm(asked);
            }
        }
    }
}

/// Answers for all devices that want to pair with an adapter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Confirming {
    /// Closed with this.
    _end: UnixStream,
}

impl Confirming {
    /// Begins, where that is allowed.
    pub(super) fn begin(adapter: u16) -> Option<Self> {
        let confirmer = Confirmer::open(adapter)?;
        let (end, ended) = UnixStream::pair().ok()?;
        let run = move || {
            loop {
                let mut watched = [
                    PollFd::from_borrowed_fd(confirmer.management.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN),
                ];
                let is_over = match poll(&mut watched, None) {
                    Ok(_) => !watched[1].revents().is_empty(),
                    Err(errno) => errno != rustix::io::Errno::INTR,
                };
                if is_over {
                    return;
                }
                confirmer.answer(None);
            }
        };
        thread::Builder::new().name("pairing".to_owned()).spawn(run).ok()?;
        Some(Self { _end: end })
    }
}

/// Connects, and gives up as soon as the link can't be secured. The kernel waits on: nobody tells
/// the channel that pairing failed (`smp_failure` of smp.c), until its own timeout.
///
/// # Errors
/// Those of connect(2); [`io::ErrorKind::ConnectionRefused`] with the reason when the link can't be
/// secured; `ETIMEDOUT`.
pub(super) fn connect(
    socket: &Socket,
    (address, to): (&BluetoothAddress, &SockAddr),
    timeout: Duration,
    (monitor, adapter): (&Monitor, u16),
    (peer, heard): (DeviceAddress, &mut Heard),
) -> io::Result<()> {
    let confirmer = Confirmer::open(adapter);
    let wanted = address.security.unwrap_or(Security::Low);
    socket.set_nonblocking(true)?;
    match socket.connect(to) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        result => return result.and_then(|()| socket.set_nonblocking(false)),
    }
    let begin = clock::now();
    loop {
        let left = timeout.saturating_sub(clock::now().saturating_since(begin));
        let ready = wait(socket, monitor, confirmer.as_ref(), left)?;
        if let Some(confirmer) = &confirmer {
            confirmer.answer(Some(peer));
        }
        monitor.hear(peer, heard);
        if let Some(why) = heard.insecure() {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, explain(why)));
        }
        if !ready.is_empty() {
            socket.take_error()?.map_or(Ok(()), Err)?;
            if ready.intersects(PollFlags::HUP | PollFlags::ERR) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            socket.set_nonblocking(false)?;
            return secure(socket, wanted, monitor, confirmer.as_ref(), (peer, heard));
        }
        if left.is_zero() {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
    }
}

/// Waits until an open channel's link has the security that was asked for. Newer kernels open a channel on a new
/// link before their Security Manager is there ("security requested but not available" in the log), and pair behind
/// its back; so nothing may be sent until that is done. Gives up when it takes far longer than pairing does.
fn secure(
    socket: &Socket,
    wanted: Security,
    monitor: &Monitor,
    confirmer: Option<&Confirmer>,
    (peer, heard): (DeviceAddress, &mut Heard),
) -> io::Result<()> {
    /// Some ten PDUs each way, and the encryption; and time of hosts.
    const INTERVALS: u32 = 40;
    const HOSTS: Duration = Duration::from_secs(3);
    const TICK: Duration = Duration::from_millis(20);
    let begin = clock::now();
    loop {
        let (level, _) = level(socket)?;
        if level >= wanted.level() {
            return Ok(());
        }
        if let Some(confirmer) = confirmer {
            confirmer.answer(Some(peer));
        }
        monitor.hear(peer, heard);
        if let Some(why) = heard.insecure() {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, explain(why)));
        }
        let interval = Duration::from_micros(u64::from(heard.agreed().interval.unwrap_or(0)) * 1250);
        if clock::now().saturating_since(begin) > HOSTS + INTERVALS * interval {
            let what = format!(
                "security level {} was asked for, and the kernel opened the channel with {level} (1 is low, 2 medium): its Security Manager \
                 is not there, see `dmesg | grep -i bluetooth` for missing crypto (cmac, ecdh)",
                wanted.level()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        clock::sleep(TICK);
    }
}

/// `BT_SECURITY` of a socket: the level, and the bytes of the key, 0 without one.
pub(super) fn level(socket: &Socket) -> io::Result<(u8, u8)> {
    // struct bt_security
    let mut security = [0; 2];
    sys::option_bytes(socket.as_fd(), SOL_BLUETOOTH, BT_SECURITY, &mut security)?;
    Ok((security[0], security[1]))
}

/// Waits until the connection is there or has failed, or something is heard; what of the former, nothing if neither.
fn wait(socket: &Socket, monitor: &Monitor, confirmer: Option<&Confirmer>, at_most: Duration) -> io::Result<PollFlags> {
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    let fd = socket.as_fd();
    let mut watched = vec![PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let asked = confirmer.map(|confirmer| PollFd::from_borrowed_fd(confirmer.management.as_fd(), PollFlags::IN));
    watched.extend(asked);
    watched.extend(monitor.descriptor().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    match poll(&mut watched, Some(&timeout)) {
        Ok(_) => Ok(watched[0].revents()),
        Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno.into()),
    }
}

/// A timeout of a connection that should have been secured, where nothing was heard.
pub(super) fn doubt(error: io::Error, address: &BluetoothAddress) -> io::Error {
    let is_secured = address.security.is_some_and(|security| security > Security::Low);
    if is_secured && error.raw_os_error() == Some(libc::ETIMEDOUT) {
        let what = "no answer. If the device is there, it may have refused to pair: as root (CAP_NET_RAW) the reason is told here";
        return io::Error::new(io::ErrorKind::TimedOut, what);
    }
    error
}

/// Codes of "Pairing Failed" (Bluetooth Core Specification, Vol 3, Part H, section 3.5.5) and of
/// controllers (Vol 1, Part F).
fn explain(why: Insecure) -> String {
    const PIN_OR_KEY_MISSING: u8 = 0x06;
    match why {
        Insecure::Pairing { reason, by_peer } => {
            let who = if by_peer { "the peer refused to pair" } else { "this kernel gave up pairing" };
            let (meaning, remedy) = match reason {
                0x01 => ("the passkey was not entered", "enter it at both ends in time"),
                0x02 => ("out-of-band data are missing", "pair the two with the tool that brings them"),
                0x03 => (
                    "authentication requirements",
                    "security=high and fips need somebody who compares or enters a number: pair the two devices with bluetoothctl at both ends \
                     before, or ask for security=medium",
                ),
                0x04 => ("the confirmed values differ", "pair again; somebody may be in between"),
                0x05 => (
                    "pairing not supported",
                    "make the peer pairable (bluetoothctl pairable on, btmgmt bondable on; taut serve does so when its endpoint has security=medium)",
                ),
                0x06 => ("too short a key", "allow 7 to 16 bytes at both ends"),
                0x08 => ("unspecified", "see that nobody and no agent (bluetoothctl agent) rejects it at either end"),
                0x09 => ("repeated attempts", "wait for a while before the next one"),
                0x0B => ("the Diffie-Hellman keys do not fit", "pair again; somebody may be in between"),
                _ => ("", "see btmon at both ends"),
            };
            let meaning = if meaning.is_empty() { String::new() } else { format!("{meaning}, ") };
            format!("{who} ({meaning}reason {reason:#04x}): {remedy}")
        }
        Insecure::Encryption { status: PIN_OR_KEY_MISSING } => {
            "the peer has no key for this device any more: remove the pairing at both ends (bluetoothctl remove ADDR, btmgmt unpair ADDR) and \
             connect again"
                .to_owned()
        }
        Insecure::Encryption { status } => {
            format!("the controllers could not encrypt the link (status {status:#04x}): see btmon at both ends")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_refused_and_what_to_do() {
        let high = explain(Insecure::Pairing { reason: 0x03, by_peer: false });
        assert!(high.starts_with("this kernel gave up pairing (authentication requirements, reason 0x03): "), "{high}");
        assert!(high.contains("security=medium"), "{high}");
        let refused = explain(Insecure::Pairing { reason: 0x05, by_peer: true });
        assert!(refused.starts_with("the peer refused to pair (") && refused.contains("pairable on"), "{refused}");
        assert!(explain(Insecure::Pairing { reason: 0x77, by_peer: true }).contains("(reason 0x77)"));
        assert!(explain(Insecure::Encryption { status: 6 }).contains("remove the pairing"));
        assert!(explain(Insecure::Encryption { status: 0x1A }).contains("0x1a"));
    }

    #[test]
    fn only_a_timeout_of_a_secured_link_is_doubted() {
        let address = |rest: &str| BluetoothAddress::parse(super::super::Protocol::L2cap, rest).unwrap();
        let timeout = || io::Error::from_raw_os_error(libc::ETIMEDOUT);
        let secured = address("00:11:22:33:44:55/129?security=medium");
        assert!(doubt(timeout(), &secured).to_string().contains("CAP_NET_RAW"));
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(doubt(refused, &secured).raw_os_error(), Some(libc::ECONNREFUSED));
        for rest in ["00:11:22:33:44:55/129?security=low", "00:11:22:33:44:55/129"] {
            assert_eq!(doubt(timeout(), &address(rest)).raw_os_error(), Some(libc::ETIMEDOUT));
        }
    }
}

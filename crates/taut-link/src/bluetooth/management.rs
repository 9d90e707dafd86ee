//! The kernel's management interface to adapters (`HCI_CHANNEL_CONTROL`; BlueZ's doc/mgmt-api.txt).

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket, Type};
use taut_time::Duration;

use super::{DeviceAddress, le16};
use crate::{Error, Result, clock, sys};

/// bluetooth.h; the libc crate has no names for them.
pub(super) const BTPROTO_HCI: i32 = 1;
const HCI_CHANNEL_CONTROL: u16 = 3;
const HCI_DEV_NONE: u16 = 0xFFFF;

/// Longest wait for an answer. Controllers need some hundred ms to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to turn a switch of a busy adapter.
const PAUSE: Duration = Duration::from_millis(20);

/// A switch of an adapter: the command that sets it and its bit in the settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Switch {
    /// Power.
    Powered,
    /// Connections are taken.
    Connectable,
    /// Keys of pairings are kept, which peers may insist on.
    Bondable,
    /// LE beside BR/EDR.
    Le,
    /// LE advertising.
    Advertising,
}

/// An adapter as the kernel tells of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct AdapterInfo {
    pub(super) index: u16,
    pub(super) address: DeviceAddress,
    supported: u32,
    current: u32,
}

/// An open management socket.
#[derive(Debug)]
pub(super) struct Management {
    socket: Socket,
}

/// Somebody is asked to confirm a pairing ("User Confirmation Request").
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Confirmation {
    pub(super) adapter: u16,
    pub(super) device: DeviceAddress,
    /// Kind of the address, as the kernel numbers it.
    kind: u8,
    /// There is nothing to compare: whether to pair is all that is asked.
    pub(super) is_hint: bool,
}

const READ_INDEX_LIST: u16 = 0x0003;
const READ_INFO: u16 = 0x0004;
const USER_CONFIRMATION_REPLY: u16 = 0x001C;
const USER_CONFIRMATION_REQUEST: u16 = 0x000F;
const COMMAND_COMPLETE: u16 = 0x0001;
const COMMAND_STATUS: u16 = 0x0002;
const PERMISSION_DENIED: u8 = 0x14;
const RFKILLED: u8 = 0x12;
const BUSY: u8 = 0x0A;

impl Switch {
    const fn opcode(self) -> u16 {
        match self {
            Self::Powered => 0x0005,
            Self::Connectable => 0x0007,
            Self::Bondable => 0x0009,
            Self::Le => 0x000D,
            Self::Advertising => 0x0029,
        }
    }

    const fn bit(self) -> u32 {
        match self {
            Self::Powered => 1 << 0,
            Self::Connectable => 1 << 1,
            Self::Bondable => 1 << 4,
            Self::Le => 1 << 9,
            Self::Advertising => 1 << 10,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Powered => "power",
            Self::Connectable => "connectable",
            Self::Bondable => "bondable",
            Self::Le => "LE",
            Self::Advertising => "advertising",
        }
    }
}

impl AdapterInfo {
    pub(super) const fn is_on(&self, switch: Switch) -> bool {
        self.current & switch.bit() != 0
    }

    pub(super) const fn has(&self, switch: Switch) -> bool {
        self.supported & switch.bit() != 0
    }

    /// Parses the answer to "Read Controller Information".
    fn parse(index: u16, answer: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        let address = DeviceAddress::from_wire(answer.get(..6)?.try_into().ok()?);
        Some(Self { index, address, supported: word(9)?, current: word(13)? })
    }
}

impl Confirmation {
    /// Parses an event; `None` for all others.
    fn parse(event: &[u8]) -> Option<Self> {
        // Event, adapter, length; address and its type, hint, the number to compare.
        let is_one = le16(event, 0) == Some(USER_CONFIRMATION_REQUEST);
        let device = DeviceAddress::from_wire(event.get(6..12)?.try_into().ok()?);
        let (kind, hint) = (*event.get(12)?, *event.get(13)?);
        is_one.then_some(Self { adapter: le16(event, 2)?, device, kind, is_hint: hint != 0 })
    }
}

impl AsFd for Management {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Management {
    /// The next time that somebody is asked to confirm a pairing, without waiting; other events
    /// pass by. For a socket that is used for nothing else.
    pub(super) fn confirmation(&self) -> Option<Confirmation> {
        let mut event = [0; 1024];
        loop {
            let length = rustix::net::recv(&self.socket, &mut event, RecvFlags::DONTWAIT).ok()?.0;
            if let Some(confirmation) = Confirmation::parse(&event[..length]) {
                return Some(confirmation);
            }
        }
    }

    /// Confirms; without waiting for what comes of it.
    pub(super) fn confirm(&self, asked: Confirmation) {
        let head = [USER_CONFIRMATION_REPLY, asked.adapter, 7];
        let mut packet: Vec<u8> = head.into_iter().flat_map(u16::to_le_bytes).collect();
        packet.extend_from_slice(&asked.device.to_wire());
        packet.push(asked.kind);
        // Refused when somebody else was sooner.
        let _ = self.socket.send(&packet);
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the kernel has no Bluetooth.
    pub(super) fn open() -> Result<Self> {
        let socket = hci_socket(HCI_DEV_NONE, HCI_CHANNEL_CONTROL).map_err(no_bluetooth)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(no_bluetooth)?;
        Ok(Self { socket })
    }

    /// All adapters, in the order of their numbers.
    pub(super) fn adapters(&self) -> Result<Vec<AdapterInfo>> {
        self.indices()?.into_iter().map(|index| self.adapter(index)).collect()
    }

    /// Their numbers, in order. An adapter that is being set up isn't among them.
    pub(super) fn indices(&self) -> Result<Vec<u16>> {
        let answer = self.ask(READ_INDEX_LIST, HCI_DEV_NONE, &[]).map_err(|failure| failure.error("list adapters"))?;
        let count = usize::from(le16(&answer, 0).unwrap_or(0));
        let mut indices: Vec<u16> = (0..count).filter_map(|n| le16(&answer, 2 + 2 * n)).collect();
        indices.sort_unstable();
        Ok(indices)
    }

    /// One of them.
    pub(super) fn adapter(&self, index: u16) -> Result<AdapterInfo> {
        let answer =
            self.ask(READ_INFO, index, &[]).map_err(|failure| failure.error(&format!("ask about hci{index}")))?;
        AdapterInfo::parse(index, &answer).ok_or_else(|| Failure::Short.error(&format!("ask about hci{index}")))
    }

    /// Turns a switch of an adapter.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without the right (`CAP_NET_ADMIN`) and when the radio is blocked.
    pub(super) fn set(&self, index: u16, switch: Switch, on: bool) -> Result<()> {
        let value = match (switch, on) {
            (_, false) => 0,
            // Connectable advertising, whatever the adapter's own setting.
            (Switch::Advertising, true) => 2,
            (_, true) => 1,
        };
        let turn = format!("turn {} of hci{index} {}", switch.name(), if on { "on" } else { "off" });
        // Busy is an adapter of which something else, such as the end of its setup, is under way: that ends by itself.
        let give_up = clock::now() + PATIENCE;
        loop {
            match self.ask(switch.opcode(), index, &[value]) {
                Err(Failure::Status(BUSY)) if clock::now() < give_up => clock::sleep(PAUSE),
                answer => return answer.map(drop).map_err(|failure| failure.error(&turn)),
            }
        }
    }

    /// Sends a command and waits for its answer; events of others pass by.
    fn ask(&self, opcode: u16, index: u16, parameters: &[u8]) -> std::result::Result<Vec<u8>, Failure> {
        let length = u16::try_from(parameters.len()).unwrap_or(u16::MAX);
        let mut packet: Vec<u8> = [opcode, index, length].into_iter().flat_map(u16::to_le_bytes).collect();
        packet.extend_from_slice(parameters);
        self.socket.send(&packet).map_err(Failure::Io)?;
        let mut answer = [0; 1024];
        loop {
            let bytes = match (&self.socket).read(&mut answer) {
                Ok(bytes) => &answer[..bytes],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Io(error)),
            };
            // Event, index, length; then the opcode of the command and its status.
            let is_ours = le16(bytes, 2) == Some(index) && le16(bytes, 6) == Some(opcode);
            match (le16(bytes, 0), bytes.get(8)) {
                (Some(COMMAND_COMPLETE), Some(0)) if is_ours => return Ok(bytes[9..].to_vec()),
                (Some(COMMAND_COMPLETE | COMMAND_STATUS), Some(&status)) if is_ours => {
                    return Err(Failure::Status(status));
                }
                _ => {}
            }
        }
    }
}

/// Why a command of the management interface failed.
enum Failure {
    Io(io::Error),
    Status(u8),
    Short,
}

impl Failure {
    fn error(self, what: &str) -> Error {
        match self {
            Self::Io(error) => Error::Host { what: what.to_owned(), error },
            Self::Status(PERMISSION_DENIED) => {
                Error::Unavailable(format!("{what}: only root may (CAP_NET_ADMIN); or let bluetoothctl do it before"))
            }
            Self::Status(RFKILLED) => {
                Error::Unavailable(format!("{what}: the radio is blocked; rfkill unblock bluetooth"))
            }
            Self::Status(status) => {
                let meaning = STATUSES.get(usize::from(status)).filter(|name| !name.is_empty()).copied();
                let error = io::Error::other(format!("{} (status {status:#04x})", meaning.unwrap_or("refused")));
                Error::Host { what: what.to_owned(), error }
            }
            Self::Short => {
                Error::Host { what: what.to_owned(), error: io::Error::other("an answer that is too short") }
            }
        }
    }
}

/// Status codes of mgmt-api.txt.
const STATUSES: [&str; 0x15] = [
    "",
    "unknown command",
    "not connected",
    "failed",
    "connect failed",
    "authentication failed",
    "not paired",
    "no resources",
    "timeout",
    "already connected",
    "busy",
    "rejected",
    "not supported",
    "invalid parameters",
    "disconnected",
    "not powered",
    "cancelled",
    "there is no such adapter",
    "blocked by rfkill",
    "already paired",
    "permission denied",
];

/// A raw HCI socket on an adapter's channel.
pub(super) fn hci_socket(index: u16, channel: u16) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::from(libc::AF_BLUETOOTH),
        Type::from(libc::SOCK_RAW).cloexec(),
        Some(Protocol::from(BTPROTO_HCI)),
    )?;
    // struct sockaddr_hci
    let mut address = (libc::AF_BLUETOOTH as u16).to_ne_bytes().to_vec();
    address.extend_from_slice(&index.to_ne_bytes());
    address.extend_from_slice(&channel.to_ne_bytes());
    socket.bind(&sys::socket_address(&address))?;
    Ok(socket)
}

/// The error of a socket that could not be had.
pub(super) fn no_bluetooth(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => Error::Unavailable(
            "this kernel has no Bluetooth (AF_BLUETOOTH is refused): load its modules, `modprobe rfcomm`, or use a kernel that has them"
                .to_owned(),
        ),
        _ => Error::Host { what: "open a Bluetooth socket".to_owned(), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_read_from_the_kernels_answer() {
        let mut answer = vec![0; 280];
        answer[..6].copy_from_slice(&[0x01, 0, 0x01, 0x01, 0xAA, 0]);
        answer[9..13].copy_from_slice(&0x0601_u32.to_le_bytes());
        answer[13..17].copy_from_slice(&0x0201_u32.to_le_bytes());
        let info = AdapterInfo::parse(1, &answer).unwrap();
        assert_eq!(info.address.to_string(), "00:AA:01:01:00:01");
        assert!(info.is_on(Switch::Powered) && info.is_on(Switch::Le) && !info.is_on(Switch::Advertising));
        assert!(info.has(Switch::Advertising) && !info.has(Switch::Connectable));
        assert_eq!(AdapterInfo::parse(1, &answer[..16]), None);
    }

    #[test]
    fn a_request_for_confirmation_is_read() {
        // Event, adapter, length; address, LE public; a hint; 0.
        let event = [0x0F, 0, 1, 0, 12, 0, 1, 2, 3, 4, 5, 6, 1, 1, 0, 0, 0, 0];
        let asked = Confirmation::parse(&event).unwrap();
        assert_eq!((asked.adapter, asked.kind, asked.is_hint), (1, 1, true));
        assert_eq!(asked.device.to_string(), "06:05:04:03:02:01");
        assert_eq!(Confirmation::parse(&event[..13]), None);
        assert_eq!(Confirmation::parse(&[&[0x0E], &event[1..]].concat()), None);
    }

    #[test]
    fn a_missing_right_says_what_to_do() {
        let error = Failure::Status(PERMISSION_DENIED).error("turn power of hci0 on");
        assert!(error.is_missing_right() && error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        let error = Failure::Status(0x11).error("x");
        assert_eq!(error.to_string(), "x: there is no such adapter (status 0x11)");
    }
}

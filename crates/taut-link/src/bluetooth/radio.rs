//! What an LE connection is asked to have: interval, PHY, data length. The kernel has no calls for them, so the
//! controller is asked by HCI commands of our own, and its events tell what came of it. Needs `CAP_NET_RAW`.

use std::io;

use socket2::Socket;
use taut_time::{Duration, Instant};

use super::address::interval_text;
use super::agreed::Agreed;
use super::heard::Heard;
use super::management::hci_socket;
use super::monitor::Monitor;
use super::{BluetoothAddress, DeviceAddress};
use crate::clock;

pub(super) const HCI_CHANNEL_RAW: u16 = 0;
/// Commands of the Bluetooth Core Specification, Vol 4, Part E, sections 7.8.18, 7.8.33 and 7.8.49.
const LE_CONNECTION_UPDATE: u16 = 0x2013;
const LE_SET_DATA_LENGTH: u16 = 0x2022;
const LE_SET_PHY: u16 = 0x2032;
/// Status of a command that the specification or the controller does not allow now.
const COMMAND_DISALLOWED: u8 = 0x0C;
const UNKNOWN_COMMAND: u8 = 0x01;
/// A procedure of the link layer takes effect some six events after it was asked for; with lost packets later.
const EVENTS: u32 = 40;
const PATIENCE: Duration = Duration::from_secs(1);
/// Default of the kernel (`supervision_timeout`), in units of 10 ms.
const SUPERVISION_TIMEOUT: u16 = 42;

/// One thing that is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wish {
    Interval(u16),
    /// Bit in HCI_LE_Set_PHY; number in events.
    Phy(u8, u8),
    Length(u16),
}

impl Wish {
    fn of(address: &BluetoothAddress) -> Vec<Self> {
        let interval = address.interval.map(Self::Interval);
        let phy = address.phy.map(|phy| Self::Phy(phy.bit(), phy.number()));
        [interval, phy, address.length.map(Self::Length)].into_iter().flatten().collect()
    }

    fn is_met(self, agreed: &Agreed) -> bool {
        match self {
            Self::Interval(units) => agreed.interval == Some(units),
            Self::Phy(_, number) => agreed.phys == Some([number; 2]),
            Self::Length(octets) => agreed.tx_octets == Some(octets),
        }
    }

    const fn opcode(self) -> u16 {
        match self {
            Self::Interval(_) => LE_CONNECTION_UPDATE,
            Self::Phy(..) => LE_SET_PHY,
            Self::Length(_) => LE_SET_DATA_LENGTH,
        }
    }

    fn parameters(self, handle: u16, agreed: &Agreed) -> Vec<u8> {
        let words = |words: &[u16]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        match self {
            Self::Interval(units) => {
                let latency = agreed.latency.unwrap_or(0);
                // The timeout must exceed two intervals, more so with latency (section 7.8.18):
                // four leave room for losses.
                let least = (u32::from(units) * 125 * 4 * (1 + u32::from(latency))).div_ceil(1000) as u16;
                let timeout = agreed.timeout.unwrap_or(SUPERVISION_TIMEOUT).max(least).min(3200);
                words(&[handle, units, units, latency, timeout, 0, 0])
            }
            Self::Phy(bit, _) => {
                // No lack of preference, both directions, no preferred coding.
                let mut bytes = words(&[handle]);
                bytes.extend_from_slice(&[0, bit, bit, 0, 0]);
                bytes
            }
            // As long as LE Coded needs for so many bytes; controllers take what their PHY needs.
            Self::Length(octets) => words(&[handle, octets, 17_040]),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Interval(units) => format!("a connection interval of {}", interval_text(units)),
            Self::Phy(_, number) => format!("LE {}", ["?", "1M", "2M", "Coded"][usize::from(number.min(3))]),
            Self::Length(octets) => format!("a data length of {octets} bytes"),
        }
    }
}

/// Asks the controllers for all that an address wants of the connection, and waits until it is in force.
///
/// # Errors
/// A controller refuses it, nothing came of it in time, or the right is missing.
pub(super) fn ask(
    address: &BluetoothAddress,
    device: DeviceAddress,
    (adapter, handle): (u16, u16),
    monitor: &Monitor,
    heard: &mut Heard,
) -> io::Result<()> {
    let wishes = Wish::of(address);
    if wishes.is_empty() {
        return Ok(());
    }
    let controller = hci_socket(adapter, HCI_CHANNEL_RAW)?;
    for wish in wishes {
        monitor.hear(device, heard);
        if wish.is_met(&heard.agreed()) {
            continue;
        }
        let before = heard.agreed();
        // An answer to somebody else's command is none to ours.
        heard.answer(wish.opcode());
        send(&controller, wish.opcode(), &wish.parameters(handle, &before))?;
        wait(wish, device, monitor, heard, clock::now() + patience(&before))?;
    }
    Ok(())
}

fn patience(agreed: &Agreed) -> Duration {
    let interval = Duration::from_micros(u64::from(agreed.interval.unwrap_or(0)) * 1250);
    PATIENCE + interval * EVENTS
}

fn wait(wish: Wish, device: DeviceAddress, monitor: &Monitor, heard: &mut Heard, deadline: Instant) -> io::Result<()> {
    loop {
        monitor.hear(device, heard);
        if let Some(status) = heard.answer(wish.opcode()).filter(|status| *status != 0) {
            return Err(refused(wish, status));
        }
        if wish.is_met(&heard.agreed()) {
            return Ok(());
        }
        let left = deadline.saturating_since(clock::now());
        if left.is_zero() {
            let why = match wish {
                Wish::Phy(..) => "; its host may allow LE 1M alone (`btmgmt phy` there)",
                _ => "",
            };
            let what = format!("{} was asked for, and the peer's controller did not take it up{why}", wish.name());
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        monitor.wait(left)?;
    }
}

fn refused(wish: Wish, status: u8) -> io::Error {
    let why = match (wish, status) {
        (Wish::Interval(_), COMMAND_DISALLOWED) => {
            "only the central of a connection may change its interval, and this side is the peripheral"
        }
        (_, UNKNOWN_COMMAND) => "the controller does not have that command",
        _ => "the controller refused",
    };
    io::Error::new(io::ErrorKind::Unsupported, format!("{}: {why} (status {status:#04x})", wish.name()))
}

/// Sends a command to a controller.
pub(super) fn send(controller: &Socket, opcode: u16, parameters: &[u8]) -> io::Result<()> {
    // H4 type of a command; opcode; length.
    let mut command = vec![1];
    command.extend_from_slice(&opcode.to_le_bytes());
    command.push(parameters.len() as u8);
    command.extend_from_slice(parameters);
    controller.send(&command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bluetooth::Protocol;

    #[test]
    fn an_interval_keeps_its_timeout_where_that_is_long_enough() {
        let timeout = |units, known| {
            let agreed = Agreed { timeout: known, latency: Some(0), ..Agreed::default() };
            let bytes = Wish::Interval(units).parameters(64, &agreed);
            assert_eq!(bytes.len(), 14);
            u16::from_le_bytes([bytes[8], bytes[9]])
        };
        assert_eq!(timeout(6, Some(42)), 42);
        assert_eq!(timeout(6, None), 42);
        assert_eq!(timeout(90, Some(42)), 45);
        assert_eq!(timeout(3200, Some(42)), 1600);
    }

    #[test]
    fn wishes_are_met_by_what_is_in_force() {
        let address = BluetoothAddress::parse(Protocol::L2cap, "any/0?interval=7.5ms&phy=2m&length=100").unwrap();
        let agreed = Agreed { interval: Some(6), tx_octets: Some(251), phys: Some([2, 1]), ..Agreed::default() };
        let met: Vec<bool> = Wish::of(&address).iter().map(|wish| wish.is_met(&agreed)).collect();
        assert_eq!(met, [true, false, false]);
    }

    #[test]
    fn a_refusal_says_why() {
        let error = refused(Wish::Interval(6), COMMAND_DISALLOWED).to_string();
        assert!(error.contains("7.5ms") && error.contains("only the central"), "{error}");
    }
}

//! What a controller says of itself: its version, and what bounds an LE link. Asked by HCI commands, which takes
//! `CAP_NET_RAW` and an adapter that is switched on.

use std::io::{self, Read};
use std::os::fd::AsFd;

use socket2::Socket;
use taut_time::Duration;

use super::le16;
use super::management::hci_socket;
use super::radio::{HCI_CHANNEL_RAW, send};
use crate::{Error, Result, clock, sys};

/// Commands of the Bluetooth Core Specification, Vol 4, Part E, sections 7.4.1, 7.4.5, 7.8.2, 7.8.3 and 7.8.46.
const READ_VERSION: u16 = 0x1001;
const READ_BUFFER_SIZE: u16 = 0x1005;
const LE_READ_BUFFER_SIZE: u16 = 0x2002;
const LE_READ_FEATURES: u16 = 0x2003;
const LE_READ_MAX_LENGTH: u16 = 0x202F;
/// Bits of the features (Vol 6, Part B, section 4.6).
const DATA_LENGTH: u32 = 5;
const LE_2M: u32 = 8;
const LE_CODED: u32 = 11;

/// hci.h: what a raw socket lets pass.
const SOL_HCI: i32 = 0;
const HCI_FILTER: i32 = 2;
const EVENT_PACKET: u8 = 4;
const COMMAND_COMPLETE: u8 = 0x0E;
const COMMAND_STATUS: u8 = 0x0F;
/// A controller answers in milliseconds; one that is being set up, later.
const PATIENCE: Duration = Duration::from_secs(2);

/// An adapter's controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Controller {
    /// Version of the Core Specification, as numbered there: 9 is 5.0.
    pub version: u8,
    /// Company identifier of its maker.
    pub maker: u16,
    /// Whether a PDU may have more than 27 bytes, and how many at most.
    pub most_octets: Option<u16>,
    /// LE 2M.
    pub has_2m: bool,
    /// LE Coded.
    pub has_coded: bool,
    /// Bytes of one of its buffers for what the host sends over LE, and how many it has.
    pub buffers: (u16, u16),
    /// Whether BR/EDR uses the same ones.
    pub shares_buffers: bool,
}

impl Controller {
    /// Asks it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without the right, or when the adapter is off; [`Error::Host`] where it does not answer.
    pub fn read(index: u16) -> Result<Self> {
        let failed = |error| told(index, error);
        let socket = open(index).map_err(failed)?;
        let ask = |opcode, least| ask(&socket, opcode).and_then(|values| whole(values, least)).map_err(failed);
        // The lengths of these answers: sections 7.4.1, 7.8.3, 7.8.46, 7.8.2 and 7.4.5.
        let version = ask(READ_VERSION, 8)?;
        let features = ask(LE_READ_FEATURES, 8)?;
        let has = |bit: u32| features.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        let most_octets = has(DATA_LENGTH).then(|| ask(LE_READ_MAX_LENGTH, 8)).transpose()?;
        let le = ask(LE_READ_BUFFER_SIZE, 3)?;
        let own = (le16(&le, 0).unwrap_or(0), le.get(2).copied().unwrap_or(0).into());
        // Without any for LE, those of BR/EDR serve both (section 7.8.2).
        let shares_buffers = own.0 == 0 || own.1 == 0;
        let buffers = if shares_buffers { shared(&ask(READ_BUFFER_SIZE, 7)?) } else { own };
        Ok(Self {
            version: version.first().copied().unwrap_or(0),
            maker: le16(&version, 4).unwrap_or(0),
            most_octets: most_octets.and_then(|lengths| le16(&lengths, 0)),
            has_2m: has(LE_2M),
            has_coded: has(LE_CODED),
            buffers,
            shares_buffers,
        })
    }
}

/// Nothing is told of an answer that is shorter than it has to be.
fn whole(values: Vec<u8>, least: usize) -> io::Result<Vec<u8>> {
    if values.len() < least { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(values) }
}

/// Bytes of a buffer and their number; those of synchronous data stand between.
fn shared(answer: &[u8]) -> (u16, u16) {
    (le16(answer, 0).unwrap_or(0), le16(answer, 3).unwrap_or(0))
}

fn open(index: u16) -> io::Result<Socket> {
    let socket = hci_socket(index, HCI_CHANNEL_RAW)?;
    // struct hci_ufilter: kinds of packets, two words of events, the opcode (any).
    let kinds = (1_u32 << EVENT_PACKET).to_ne_bytes();
    let events = (1_u32 << COMMAND_COMPLETE | 1 << COMMAND_STATUS).to_ne_bytes();
    let filter = [&kinds[..], &events, &[0; 8]].concat();
    sys::set_option_bytes(socket.as_fd(), SOL_HCI, HCI_FILTER, &filter)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// What a command without parameters returns, after its status.
fn ask(mut socket: &Socket, opcode: u16) -> io::Result<Vec<u8>> {
    send(socket, opcode, &[])?;
    let deadline = clock::now() + PATIENCE;
    let mut event = [0; 260];
    while clock::now() < deadline {
        let length = socket.read(&mut event)?;
        match answer(&event[..length], opcode) {
            Some(Ok(values)) => return Ok(values.to_vec()),
            Some(Err(status)) => {
                let what = format!("the controller refused the command {opcode:#06x} (status {status:#04x})");
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            // To a command of somebody else.
            None => {}
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Values or status of an event that answers this command.
fn answer(event: &[u8], opcode: u16) -> Option<std::result::Result<&[u8], u8>> {
    // H4 type, event, length; then credits and opcode, or status, credits and opcode.
    match *event.get(1)? {
        COMMAND_COMPLETE if le16(event, 4) == Some(opcode) => match *event.get(6)? {
            0 => Some(Ok(&event[7..])),
            status => Some(Err(status)),
        },
        COMMAND_STATUS if le16(event, 5) == Some(opcode) => Some(Err(*event.get(3)?)),
        _ => None,
    }
}

fn told(index: u16, error: io::Error) -> Error {
    let what = format!("ask the controller of hci{index}");
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::Unavailable(format!("{what}: only root may (CAP_NET_RAW)")),
        Some(libc::ENETDOWN) => Error::Unavailable(format!("{what}: the adapter is switched off")),
        _ => Error::Host { what, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_from_those_to_others() {
        let complete = [4, 0x0E, 7, 1, 0x02, 0x20, 0, 251, 0, 8];
        assert_eq!(answer(&complete, LE_READ_BUFFER_SIZE), Some(Ok(&[251, 0, 8][..])));
        assert_eq!(answer(&complete, LE_READ_FEATURES), None);
        assert_eq!(answer(&[4, 0x0E, 4, 1, 0x2F, 0x20, 1], LE_READ_MAX_LENGTH), Some(Err(1)));
        assert_eq!(answer(&[4, 0x0F, 4, 0x0C, 1, 0x2F, 0x20], LE_READ_MAX_LENGTH), Some(Err(0x0C)));
        for length in 0..complete.len() {
            let _ = answer(&complete[..length], LE_READ_BUFFER_SIZE);
        }
    }

    #[test]
    fn buffers_of_br_edr_are_read_past_those_of_voice() {
        // 1021 bytes, 64 of voice, 8 buffers, 1 of voice.
        assert_eq!(shared(&[0xFD, 3, 64, 8, 0, 1, 0]), (1021, 8));
    }

    #[test]
    fn a_missing_right_and_an_adapter_that_is_off_are_told_apart() {
        let told = |number| told(1, io::Error::from_raw_os_error(number)).to_string();
        assert!(told(libc::EPERM).contains("hci1: only root may") && told(libc::ENETDOWN).contains("switched off"));
        assert!(told(libc::EIO).contains("ask the controller of hci1"));
    }
}

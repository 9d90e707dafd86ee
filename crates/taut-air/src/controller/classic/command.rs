//! HCI commands of BR/EDR (Core Specification, Vol 4, Part E, 7): what a kernel's Bluetooth needs
//! for ACL links. Neither authentication nor encryption: who asks for them gets Unknown HCI Command.

use alloc::vec::Vec;

use taut_time::Instant;

use super::super::parameters::{Failure, fixed, word};
use super::super::state::Controller;
use super::manager::connection_complete;
use super::setup::Setup;
use super::state::MOST_LINES;
use crate::bredr::{Rate, SLOT, lmp};
use crate::hci::{self, command as op, event};
use crate::pdu::advertising::Address;
use crate::time::Nanos;

/// The commands that there are, with their bits in Read Local Supported Commands (octet, bit).
pub(in crate::controller) const COMMANDS: [(u16, usize, u8); 42] = [
    (op::INQUIRY, 0, 0),
    (op::INQUIRY_CANCEL, 0, 1),
    (op::CREATE_CONNECTION, 0, 4),
    (op::CREATE_CONNECTION_CANCEL, 0, 7),
    (op::ACCEPT_CONNECTION, 1, 0),
    (op::REJECT_CONNECTION, 1, 1),
    (op::CHANGE_PACKET_TYPE, 1, 6),
    (op::REMOTE_NAME, 2, 3),
    (op::READ_REMOTE_FEATURES, 2, 5),
    (op::READ_REMOTE_VERSION, 2, 7),
    (op::READ_CLOCK_OFFSET, 3, 0),
    (op::ROLE_DISCOVERY, 4, 7),
    (op::SET_EVENT_FILTER, 6, 0),
    (op::FLUSH, 6, 1),
    (op::WRITE_LOCAL_NAME, 7, 0),
    (op::READ_LOCAL_NAME, 7, 1),
    (op::READ_ACCEPT_TIMEOUT, 7, 2),
    (op::WRITE_ACCEPT_TIMEOUT, 7, 3),
    (op::READ_PAGE_TIMEOUT, 7, 4),
    (op::WRITE_PAGE_TIMEOUT, 7, 5),
    (op::READ_SCAN_ENABLE, 7, 6),
    (op::WRITE_SCAN_ENABLE, 7, 7),
    (op::READ_PAGE_SCAN_ACTIVITY, 8, 0),
    (op::WRITE_PAGE_SCAN_ACTIVITY, 8, 1),
    (op::READ_INQUIRY_SCAN_ACTIVITY, 8, 2),
    (op::WRITE_INQUIRY_SCAN_ACTIVITY, 8, 3),
    (op::READ_CLASS, 9, 0),
    (op::WRITE_CLASS, 9, 1),
    (op::READ_VOICE_SETTING, 9, 2),
    (op::WRITE_VOICE_SETTING, 9, 3),
    (op::READ_FLUSH_TIMEOUT, 9, 4),
    (op::WRITE_FLUSH_TIMEOUT, 9, 5),
    (op::READ_SUPERVISION_TIMEOUT, 11, 0),
    (op::WRITE_SUPERVISION_TIMEOUT, 11, 1),
    (op::READ_IAC_COUNT, 11, 2),
    (op::READ_IAC, 11, 3),
    (op::WRITE_IAC, 11, 4),
    (op::READ_PAGE_SCAN_TYPE, 13, 0),
    (op::WRITE_PAGE_SCAN_TYPE, 13, 1),
    (op::READ_BUFFER_SIZE, 14, 7),
    (op::READ_LE_HOST, 24, 5),
    (op::WRITE_LE_HOST, 24, 6),
];

/// The general inquiry access code.
const GIAC: [u8; 3] = [0x33, 0x8b, 0x9e];

impl Controller {
    /// LMP features (Vol 2, Part C, 3.3): packets of several slots and of EDR as they are set, LE, flushing boundaries.
    pub(in crate::controller) const fn classic_features(&self) -> [u8; 8] {
        let config = &self.config.classic;
        if !config.on {
            // LE supported, BR/EDR not.
            return [0, 0, 0, 0, 0x60, 0, 0, 0];
        }
        let (three, five) = (config.slots >= 3, config.slots >= 5);
        let two_m = config.rate.is_enhanced();
        let three_m = matches!(config.rate, Rate::ThreeDh);
        [
            three as u8 | (five as u8) << 1,
            0,
            0,
            (two_m as u8) << 1 | (three_m as u8) << 2,
            // LE supported; BR/EDR not unsupported.
            0x40 | ((two_m && three) as u8) << 7,
            (two_m && five) as u8,
            // LE and BR/EDR to one device at once; non-flushable packet boundary flag.
            0x42,
            0,
        ]
    }

    /// Commands with a Command Complete: their return parameters after the status.
    pub(in crate::controller) fn classic_complete(
        &mut self,
        opcode: u16,
        parameters: &[u8],
    ) -> Option<Result<Vec<u8>, Failure>> {
        let wishes = &mut self.classic.wishes;
        let nothing = |()| Vec::new();
        let half = |word: u16| Ok(word.to_le_bytes().to_vec());
        let set = |place: &mut u16| fixed(parameters).map(|word| *place = u16::from_le_bytes(*word)).map(nothing);
        let pair = |words: [u16; 2]| Ok(words.map(u16::to_le_bytes).as_flattened().to_vec());
        let result = match opcode {
            op::READ_BUFFER_SIZE => {
                let config = &self.config.classic;
                let [low, high] = config.acl_size.to_le_bytes();
                // No SCO.
                Ok(Vec::from([low, high, 0, config.acl_buffers as u8, 0, 0, 0]))
            }
            op::READ_CLASS => Ok(wishes.class.to_vec()),
            op::WRITE_CLASS => fixed(parameters).map(|class| wishes.class = *class).map(nothing),
            op::READ_LOCAL_NAME => {
                let mut name = wishes.name.clone();
                name.resize(248, 0);
                Ok(name)
            }
            op::WRITE_LOCAL_NAME => fixed::<248>(parameters)
                .map(|name| wishes.name = name.iter().copied().take_while(|octet| *octet != 0).collect())
                .map(nothing),
            op::READ_VOICE_SETTING => half(wishes.voice),
            op::WRITE_VOICE_SETTING => set(&mut wishes.voice),
            op::READ_IAC_COUNT => Ok(Vec::from([1])),
            op::READ_IAC => Ok([&[1][..], &GIAC].concat()),
            // The general one, with or without others.
            op::WRITE_IAC | op::SET_EVENT_FILTER => Ok(Vec::new()),
            op::READ_ACCEPT_TIMEOUT => half(wishes.accept_timeout),
            op::WRITE_ACCEPT_TIMEOUT => set(&mut wishes.accept_timeout),
            op::READ_PAGE_TIMEOUT => half(wishes.page_timeout),
            op::WRITE_PAGE_TIMEOUT => set(&mut wishes.page_timeout),
            op::READ_SCAN_ENABLE => Ok(Vec::from([wishes.scan])),
            op::WRITE_SCAN_ENABLE => match *parameters {
                [scan @ 0..=3] => {
                    wishes.scan = scan;
                    Ok(Vec::new())
                }
                _ => Err(hci::INVALID_PARAMETERS),
            },
            op::READ_PAGE_SCAN_ACTIVITY => pair(wishes.page_scan),
            op::READ_INQUIRY_SCAN_ACTIVITY => pair(wishes.inquiry_scan),
            op::WRITE_PAGE_SCAN_ACTIVITY => {
                scan_activity(parameters).map(|activity| wishes.page_scan = activity).map(nothing)
            }
            op::WRITE_INQUIRY_SCAN_ACTIVITY => {
                scan_activity(parameters).map(|activity| wishes.inquiry_scan = activity).map(nothing)
            }
            op::READ_PAGE_SCAN_TYPE => Ok(Vec::from([wishes.scan_types[0]])),
            op::WRITE_PAGE_SCAN_TYPE => {
                fixed(parameters).map(|&[kind]: &[u8; 1]| wishes.scan_types[0] = kind).map(nothing)
            }
            op::READ_LE_HOST => Ok(Vec::from([wishes.le_host, 0])),
            op::WRITE_LE_HOST => {
                fixed(parameters).map(|&[supported, _]: &[u8; 2]| wishes.le_host = supported).map(nothing)
            }
            op::INQUIRY_CANCEL => match self.classic.inquirer.take() {
                Some(_) => Ok(Vec::new()),
                None => Err(hci::COMMAND_DISALLOWED),
            },
            op::CREATE_CONNECTION_CANCEL => self.cancel(parameters),
            op::ROLE_DISCOVERY => self.of_line(parameters, |controller, index| {
                Ok(Vec::from([controller.classic.lines[index].acl.role as u8]))
            }),
            op::READ_FLUSH_TIMEOUT => self.of_line(parameters, |controller, index| {
                half((controller.classic.lines[index].acl.flush / SLOT) as u16)
            }),
            op::READ_SUPERVISION_TIMEOUT => self.of_line(parameters, |controller, index| {
                half((controller.classic.lines[index].acl.supervision / SLOT) as u16)
            }),
            op::WRITE_FLUSH_TIMEOUT => self.of_line(parameters, |controller, index| {
                controller.classic.lines[index].acl.flush = slots_of(parameters)?;
                Ok(Vec::new())
            }),
            op::WRITE_SUPERVISION_TIMEOUT => self.of_line(parameters, |controller, index| {
                controller.classic.lines[index].acl.supervision = slots_of(parameters)?;
                Ok(Vec::new())
            }),
            op::FLUSH => self.of_line(parameters, |controller, index| {
                let flushed = controller.classic.lines[index].acl.flush_all();
                controller.flushed(index, flushed);
                Ok(Vec::new())
            }),
            _ => return None,
        };
        Some(result)
    }

    /// A command whose parameters begin with a handle, which its answer repeats.
    fn of_line(
        &mut self,
        parameters: &[u8],
        answer: impl FnOnce(&mut Self, usize) -> Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Failure> {
        let handle = parameters.first_chunk::<2>().ok_or(hci::INVALID_PARAMETERS)?;
        let index = self.known(*handle)?;
        answer(self, index).map(|rest| [&handle[..], &rest].concat())
    }

    /// A connection that the host knows of.
    fn known(&self, handle: [u8; 2]) -> Result<usize, Failure> {
        let index = self.classic.line(u16::from_le_bytes(handle)).ok_or(hci::UNKNOWN_CONNECTION)?;
        if self.classic.lines[index].setup == Setup::Open { Ok(index) } else { Err(hci::UNKNOWN_CONNECTION) }
    }

    /// Commands with a Command Status.
    pub(in crate::controller) fn classic_begin(
        &mut self,
        now: Instant,
        opcode: u16,
        parameters: &[u8],
    ) -> Result<(), Failure> {
        match opcode {
            op::INQUIRY => {
                let &[a, b, c, length, most] = fixed(parameters)?;
                if [a, b, c] != GIAC || !(1..=0x30).contains(&length) {
                    return Err(hci::INVALID_PARAMETERS);
                }
                self.is_not_seeking()?;
                self.inquire(now, length, most);
            }
            op::CREATE_CONNECTION => {
                let bytes: &[u8; 13] = fixed(parameters)?;
                let peer = address(bytes);
                self.is_not_seeking()?;
                if self.classic.line_with(peer).is_some() {
                    return Err(hci::CONNECTION_EXISTS);
                }
                if self.classic.lines.len() == MOST_LINES || self.classic.free_lt_addr(now).is_none() {
                    return Err(hci::CONNECTION_LIMIT);
                }
                self.page(now, peer);
            }
            op::ACCEPT_CONNECTION => {
                // The role that the host wants is what it gets: no role switch.
                let bytes: &[u8; 7] = fixed(parameters)?;
                let index = self.asking(address(bytes))?;
                self.decide(now, index, None);
            }
            op::REJECT_CONNECTION => {
                let bytes: &[u8; 7] = fixed(parameters)?;
                if !(0x0d..=0x0f).contains(&bytes[6]) {
                    return Err(hci::INVALID_PARAMETERS);
                }
                let index = self.asking(address(bytes))?;
                self.decide(now, index, Some(bytes[6]));
            }
            op::CHANGE_PACKET_TYPE => {
                // Which packets are sent is the scenario's to say.
                let &[low, high, types @ ..]: &[u8; 4] = fixed(parameters)?;
                self.known([low, high])?;
                let front = [hci::SUCCESS, low, high];
                self.tell_host(hci::event_packet(event::PACKET_TYPE_CHANGED, &front, &types));
            }
            op::REMOTE_NAME => {
                let bytes: &[u8; 10] = fixed(parameters)?;
                let index = self.classic.line_with(address(bytes)).ok_or(hci::UNKNOWN_CONNECTION)?;
                self.ask(now, index, lmp::NAME_REQ);
            }
            op::READ_REMOTE_FEATURES | op::READ_REMOTE_VERSION | op::READ_CLOCK_OFFSET => {
                let index = self.known(*fixed(parameters)?)?;
                let opcode = match opcode {
                    op::READ_REMOTE_FEATURES => lmp::FEATURES_REQ,
                    op::READ_REMOTE_VERSION => lmp::VERSION_REQ,
                    _ => lmp::CLOCK_OFFSET_REQ,
                };
                self.ask(now, index, opcode);
            }
            op::DISCONNECT => {
                let &[low, high, reason] = fixed(parameters)?;
                let index = self.known([low, high])?;
                self.detach(now, index, reason);
            }
            _ => return Err(hci::UNKNOWN_COMMAND),
        }
        Ok(())
    }

    fn is_not_seeking(&self) -> Result<(), Failure> {
        let seeks = self.classic.pager.is_some() || self.classic.inquirer.is_some();
        if seeks { Err(hci::COMMAND_DISALLOWED) } else { Ok(()) }
    }

    /// The link whose connection the host is asked about.
    fn asking(&self, peer: Address) -> Result<usize, Failure> {
        let index = self.classic.line_with(peer).ok_or(hci::UNKNOWN_CONNECTION)?;
        match self.classic.lines[index].setup {
            Setup::Asking { .. } => Ok(index),
            _ => Err(hci::COMMAND_DISALLOWED),
        }
    }

    fn cancel(&mut self, parameters: &[u8]) -> Result<Vec<u8>, Failure> {
        let peer: Address = *fixed(parameters)?;
        if !self.stop_paging(peer) {
            return Err(hci::UNKNOWN_CONNECTION);
        }
        self.tell_host(connection_complete(hci::UNKNOWN_CONNECTION, 0, peer));
        Ok(peer.to_vec())
    }
}

fn address<const N: usize>(bytes: &[u8; N]) -> Address {
    core::array::from_fn(|at| bytes[at])
}

/// Interval and window of a scan, in slots.
fn scan_activity(parameters: &[u8]) -> Result<[u16; 2], Failure> {
    let words: &[u8; 4] = fixed(parameters)?;
    let [interval, window] = [word(words, 0), word(words, 2)];
    let sound = (0x0012..=0x1000).contains(&interval) && (0x0011..=interval).contains(&window);
    if sound { Ok([interval, window]) } else { Err(hci::INVALID_PARAMETERS) }
}

/// A time in slots, after the handle.
fn slots_of(parameters: &[u8]) -> Result<Nanos, Failure> {
    let words: &[u8; 4] = fixed(parameters)?;
    Ok(Nanos::from(word(words, 2)) * SLOT)
}

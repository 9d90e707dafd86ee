//! HCI commands (Core Specification, Vol 4, Part E, 7): what a kernel's Bluetooth needs from the LE
//! side of a controller, and from any.

use alloc::vec::Vec;

use taut_time::Instant;

use super::parameters::{Failure, fixed, word};
use super::procedures::{Advertiser, Initiator, Scanner, Stage, Target};
use super::state::{ALL_PHYS, Controller, FIRST_HANDLE};
use super::terms::Output;
use super::{classic, security};
use crate::hci::{self, command as op};
use crate::link::{Link, Wanted};
use crate::pdu::advertising::{Address, Kind};
use crate::phy::{MIN_LENGTH, Phy};
use crate::role::Role;
use crate::time::{Nanos, US};

/// The commands that there are, with their bits in Read Local Supported Commands (octet, bit).
const COMMANDS: [(u16, usize, u8); 39] = [
    (op::DISCONNECT, 0, 5),
    (op::SET_EVENT_MASK, 5, 6),
    (op::RESET, 5, 7),
    (op::READ_LOCAL_VERSION, 14, 3),
    (op::READ_LOCAL_COMMANDS, 14, 4),
    (op::READ_LOCAL_FEATURES, 14, 5),
    (op::READ_BD_ADDR, 15, 1),
    (op::LE_SET_EVENT_MASK, 25, 0),
    (op::LE_READ_BUFFER_SIZE, 25, 1),
    (op::LE_READ_LOCAL_FEATURES, 25, 2),
    (op::LE_SET_RANDOM_ADDRESS, 25, 4),
    (op::LE_SET_ADV_PARAMETERS, 25, 5),
    (op::LE_READ_ADV_TX_POWER, 25, 6),
    (op::LE_SET_ADV_DATA, 25, 7),
    (op::LE_SET_SCAN_RESPONSE_DATA, 26, 0),
    (op::LE_SET_ADV_ENABLE, 26, 1),
    (op::LE_SET_SCAN_PARAMETERS, 26, 2),
    (op::LE_SET_SCAN_ENABLE, 26, 3),
    (op::LE_CREATE_CONNECTION, 26, 4),
    (op::LE_CREATE_CONNECTION_CANCEL, 26, 5),
    (op::LE_READ_ACCEPT_LIST_SIZE, 26, 6),
    (op::LE_CLEAR_ACCEPT_LIST, 26, 7),
    (op::LE_ADD_TO_ACCEPT_LIST, 27, 0),
    (op::LE_REMOVE_FROM_ACCEPT_LIST, 27, 1),
    (op::LE_CONNECTION_UPDATE, 27, 2),
    (op::LE_READ_REMOTE_FEATURES, 27, 5),
    (op::LE_ENCRYPT, 27, 6),
    (op::LE_RAND, 27, 7),
    (op::LE_ENABLE_ENCRYPTION, 28, 0),
    (op::LE_LONG_TERM_KEY_REPLY, 28, 1),
    (op::LE_LONG_TERM_KEY_NEGATIVE_REPLY, 28, 2),
    (op::LE_READ_STATES, 28, 3),
    (op::LE_SET_DATA_LENGTH, 33, 6),
    (op::LE_READ_DEFAULT_LENGTH, 33, 7),
    (op::LE_WRITE_DEFAULT_LENGTH, 34, 0),
    (op::LE_READ_MAX_LENGTH, 35, 3),
    (op::LE_READ_PHY, 35, 4),
    (op::LE_SET_DEFAULT_PHY, 35, 5),
    (op::LE_SET_PHY, 35, 6),
];

/// Devices in the filter accept list.
const ACCEPT_LIST_SIZE: usize = 16;
/// Every combination of states and roles.
const ALL_STATES: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0xff, 0x03, 0, 0];
/// Bits of the FeatureSet (Vol 6, Part B, 4.6).
const LE_ENCRYPTION: u16 = 1 << 0;
const PERIPHERAL_FEATURE_EXCHANGE: u16 = 1 << 3;
const DATA_LENGTH_EXTENSION: u16 = 1 << 5;
const LE_2M_PHY: u16 = 1 << 8;
const LE_CODED_PHY: u16 = 1 << 11;

impl Controller {
    pub(super) fn command(&mut self, now: Instant, opcode: u16, parameters: &[u8]) {
        // What a command causes comes after its answer.
        let answer_at = self.out.len();
        let answer = match self.complete(now, opcode, parameters) {
            Some(answer) => {
                let status = answer.as_ref().map_or_else(|status| *status, |_| hci::SUCCESS);
                let mut result = Vec::from([status]);
                result.extend(answer.unwrap_or_else(|_| echoed(opcode, parameters)));
                if opcode == op::LE_CREATE_CONNECTION_CANCEL && status == hci::SUCCESS {
                    let mut parameters = [0; 18];
                    parameters[0] = hci::UNKNOWN_CONNECTION;
                    self.tell_host(hci::le_event(hci::event::LE_CONNECTION_COMPLETE, &parameters));
                }
                hci::command_complete(opcode, &result)
            }
            None => {
                let status = self.begin(now, opcode, parameters).err().unwrap_or(hci::SUCCESS);
                hci::command_status(opcode, status)
            }
        };
        self.out.insert(answer_at, Output::Host(answer));
    }

    /// FeatureSet of the link layer.
    pub(super) const fn features(&self) -> [u8; 8] {
        let length = if self.config.max_length as usize > MIN_LENGTH { DATA_LENGTH_EXTENSION } else { 0 };
        let [low, high] =
            (LE_ENCRYPTION | PERIPHERAL_FEATURE_EXCHANGE | length | LE_2M_PHY | LE_CODED_PHY).to_le_bytes();
        [low, high, 0, 0, 0, 0, 0, 0]
    }

    /// Commands with a Command Complete: their return parameters after the status.
    fn complete(&mut self, now: Instant, opcode: u16, parameters: &[u8]) -> Option<Result<Vec<u8>, Failure>> {
        let result = match opcode {
            op::RESET => {
                self.reset();
                Ok(Vec::new())
            }
            op::SET_EVENT_MASK => fixed(parameters).map(|mask| self.security.set_mask(*mask)).map(|()| Vec::new()),
            op::LE_SET_EVENT_MASK => {
                fixed(parameters).map(|mask| self.security.set_le_mask(*mask)).map(|()| Vec::new())
            }
            // Bluetooth 5.4 (0x0d), no company (0xffff).
            op::READ_LOCAL_VERSION => Ok(Vec::from([0x0d, 0, 0, 0x0d, 0xff, 0xff, 0, 0])),
            op::READ_LOCAL_COMMANDS => Ok(supported_commands().to_vec()),
            op::READ_LOCAL_FEATURES => Ok(self.classic_features().to_vec()),
            op::READ_BD_ADDR => Ok(self.config.address.to_vec()),
            op::LE_READ_BUFFER_SIZE => {
                let [low, high] = self.config.acl_size.to_le_bytes();
                Ok(Vec::from([low, high, self.config.acl_buffers.min(255) as u8]))
            }
            op::LE_READ_LOCAL_FEATURES => Ok(self.features().to_vec()),
            op::LE_READ_STATES => Ok(ALL_STATES.to_vec()),
            // 0 dBm.
            op::LE_READ_ADV_TX_POWER => Ok(Vec::from([0])),
            op::LE_READ_ACCEPT_LIST_SIZE => Ok(Vec::from([ACCEPT_LIST_SIZE as u8])),
            op::LE_CLEAR_ACCEPT_LIST => {
                self.accept_list.clear();
                Ok(Vec::new())
            }
            op::LE_ADD_TO_ACCEPT_LIST => self.accept(parameters, true).map(|()| Vec::new()),
            op::LE_REMOVE_FROM_ACCEPT_LIST => self.accept(parameters, false).map(|()| Vec::new()),
            op::LE_SET_RANDOM_ADDRESS => {
                fixed(parameters).map(|&address: &Address| self.random_address = address).map(|()| Vec::new())
            }
            op::LE_SET_ADV_PARAMETERS => self.advertising_parameters(parameters).map(|()| Vec::new()),
            op::LE_SET_ADV_DATA => {
                advertising_data(parameters).map(|data| self.advertiser.data = data).map(|()| Vec::new())
            }
            op::LE_SET_SCAN_RESPONSE_DATA => {
                advertising_data(parameters).map(|data| self.advertiser.response = data).map(|()| Vec::new())
            }
            op::LE_SET_ADV_ENABLE => self.enable_advertising(now, parameters).map(|()| Vec::new()),
            op::LE_SET_SCAN_PARAMETERS => self.scan_parameters(parameters).map(|()| Vec::new()),
            op::LE_SET_SCAN_ENABLE => self.enable_scanning(parameters).map(|()| Vec::new()),
            op::LE_CREATE_CONNECTION_CANCEL => match self.initiator.take() {
                Some(_) => Ok(Vec::new()),
                None => Err(hci::COMMAND_DISALLOWED),
            },
            op::LE_ENCRYPT => security::encrypt_block(parameters),
            op::LE_RAND => Ok(self.security.random.next_u64().to_le_bytes().to_vec()),
            op::LE_LONG_TERM_KEY_REPLY => self.key_reply(parameters),
            op::LE_LONG_TERM_KEY_NEGATIVE_REPLY => self.key_negative_reply(parameters),
            op::LE_SET_DATA_LENGTH => self.data_length(parameters),
            op::LE_READ_DEFAULT_LENGTH => Ok([self.default_length, longest_time(self.default_length)]
                .map(u16::to_le_bytes)
                .as_flattened()
                .to_vec()),
            op::LE_WRITE_DEFAULT_LENGTH => self.write_default_length(parameters).map(|()| Vec::new()),
            op::LE_READ_MAX_LENGTH => {
                let length = [self.config.max_length, longest_time(self.config.max_length)];
                Ok([length, length].as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect())
            }
            op::LE_READ_PHY => self.read_phy(parameters),
            op::LE_SET_DEFAULT_PHY => fixed(parameters)
                .map(|&[all, tx, rx]: &[u8; 3]| self.default_phys = phys(all & 1 != 0, tx) & phys(all & 2 != 0, rx))
                .map(|()| Vec::new()),
            _ => return self.classic_complete(opcode, parameters),
        };
        Some(result)
    }

    /// Commands with a Command Status, and those that are not known.
    fn begin(&mut self, now: Instant, opcode: u16, parameters: &[u8]) -> Result<(), Failure> {
        match opcode {
            op::DISCONNECT if parameters.get(1) == Some(&0) => {
                let &[low, high, reason] = fixed(parameters)?;
                self.request(u16::from_le_bytes([low, high]), Wanted::Terminate { reason })
            }
            op::LE_CONNECTION_UPDATE => {
                let words: &[u8; 14] = fixed(parameters)?;
                let (handle, interval, latency, timeout) =
                    (word(words, 0), word(words, 4), word(words, 6), word(words, 8));
                if interval == 0 || timeout == 0 || word(words, 2) > interval {
                    return Err(hci::INVALID_PARAMETERS);
                }
                // Without the connection parameters request procedure it is for the central alone.
                match self.connection(handle)?.role {
                    Role::Central => self.request(handle, Wanted::Connection { interval, latency, timeout }),
                    Role::Peripheral => Err(hci::COMMAND_DISALLOWED),
                }
            }
            op::LE_READ_REMOTE_FEATURES => {
                let words: &[u8; 2] = fixed(parameters)?;
                self.request(word(words, 0), Wanted::Features)
            }
            op::LE_SET_PHY => {
                let words: &[u8; 7] = fixed(parameters)?;
                let [all, tx, rx] = [words[2], words[3], words[4]];
                let s2 = word(words, 5) == 1;
                let wanted = Wanted::Phy { tx: phys(all & 1 != 0, tx), rx: phys(all & 2 != 0, rx), s2 };
                self.request(word(words, 0), wanted)
            }
            op::LE_CREATE_CONNECTION => self.create_connection(parameters),
            op::LE_ENABLE_ENCRYPTION => self.enable_encryption(parameters),
            _ => self.classic_begin(now, opcode, parameters),
        }
    }

    pub(super) fn connection(&mut self, handle: u16) -> Result<&mut Link, Failure> {
        let index = usize::from(handle.wrapping_sub(FIRST_HANDLE));
        self.links.get_mut(index).filter(|link| !link.is_gone()).ok_or(hci::UNKNOWN_CONNECTION)
    }

    fn request(&mut self, handle: u16, wanted: Wanted) -> Result<(), Failure> {
        self.connection(handle).map(|link| link.request(wanted))
    }

    fn accept(&mut self, parameters: &[u8], add: bool) -> Result<(), Failure> {
        let &[kind, a, b, c, d, e, f] = fixed(parameters)?;
        let peer = (random_type(kind)?, [a, b, c, d, e, f]);
        let listed = self.accept_list.iter().position(|listed| *listed == peer);
        match (add, listed) {
            (true, None) if self.accept_list.len() == ACCEPT_LIST_SIZE => return Err(hci::NO_MEMORY),
            (true, None) => self.accept_list.push(peer),
            (false, Some(at)) => {
                self.accept_list.remove(at);
            }
            (true, Some(_)) | (false, None) => {}
        }
        Ok(())
    }

    fn advertising_parameters(&mut self, parameters: &[u8]) -> Result<(), Failure> {
        let bytes: &[u8; 15] = fixed(parameters)?;
        if self.advertiser.stage != Stage::Off {
            return Err(hci::COMMAND_DISALLOWED);
        }
        let kind = match bytes[4] {
            0x00 => Kind::Connectable,
            0x01 | 0x04 => Kind::Directed,
            0x02 => Kind::Scannable,
            0x03 => Kind::Silent,
            _ => return Err(hci::UNSUPPORTED_VALUE),
        };
        // Byte 14 limits who may connect.
        if bytes[14] != 0 {
            return Err(hci::UNSUPPORTED_VALUE);
        }
        let random = random_type(bytes[5])?;
        let interval = 625 * US * Nanos::from(word(bytes, 0).clamp(0x20, 0x4000));
        self.advertiser.target = if kind == Kind::Directed {
            let mut address = [0; 6];
            address.copy_from_slice(&bytes[7..13]);
            Some(Target { peer: (random_type(bytes[6])?, address), end: None, high_duty: bytes[4] == 0x01 })
        } else {
            None
        };
        (self.advertiser.kind, self.advertiser.random, self.advertiser.interval) = (kind, random, interval);
        Ok(())
    }

    fn enable_advertising(&mut self, now: Instant, parameters: &[u8]) -> Result<(), Failure> {
        let Advertiser { stage, random, target, .. } = &mut self.advertiser;
        match *fixed(parameters)? {
            [0] => *stage = Stage::Off,
            [1] if *random && self.random_address == [0; 6] => return Err(hci::INVALID_PARAMETERS),
            [1] if *stage == Stage::Off => {
                *stage = Stage::Next(now);
                if let Some(target) = target {
                    target.end = None;
                }
            }
            [1] => {}
            _ => return Err(hci::INVALID_PARAMETERS),
        }
        Ok(())
    }

    fn scan_parameters(&mut self, parameters: &[u8]) -> Result<(), Failure> {
        let bytes: &[u8; 7] = fixed(parameters)?;
        if self.scanner.on {
            return Err(hci::COMMAND_DISALLOWED);
        }
        let active = match bytes[0] {
            0 => false,
            1 => true,
            _ => return Err(hci::INVALID_PARAMETERS),
        };
        let accept_list = match bytes[6] {
            0 => false,
            1 => true,
            _ => return Err(hci::UNSUPPORTED_VALUE),
        };
        let random = random_type(bytes[5])?;
        self.scanner = Scanner { active, random, accept_list, ..Scanner::new() };
        Ok(())
    }

    fn enable_scanning(&mut self, parameters: &[u8]) -> Result<(), Failure> {
        match *fixed(parameters)? {
            [0, _] => self.scanner.stop(),
            [1, once @ (0 | 1)] => self.scanner.start(once == 1),
            _ => return Err(hci::INVALID_PARAMETERS),
        }
        Ok(())
    }

    fn create_connection(&mut self, parameters: &[u8]) -> Result<(), Failure> {
        let bytes: &[u8; 25] = fixed(parameters)?;
        if self.initiator.is_some() {
            return Err(hci::COMMAND_DISALLOWED);
        }
        let (least, interval, latency, timeout) = (word(bytes, 13), word(bytes, 15), word(bytes, 17), word(bytes, 19));
        if least > interval || interval == 0 || timeout == 0 {
            return Err(hci::INVALID_PARAMETERS);
        }
        let peer = match bytes[4] {
            0 => {
                let mut address = [0; 6];
                address.copy_from_slice(&bytes[6..12]);
                Some((random_type(bytes[5])?, address))
            }
            1 => None,
            _ => return Err(hci::INVALID_PARAMETERS),
        };
        let random = random_type(bytes[12])?;
        self.initiator = Some(Initiator { peer, random, interval, latency, timeout, answer: None });
        Ok(())
    }

    fn data_length(&mut self, parameters: &[u8]) -> Result<Vec<u8>, Failure> {
        let bytes: &[u8; 6] = fixed(parameters)?;
        let handle = word(bytes, 0);
        self.request(handle, Wanted::Length { octets: word(bytes, 2) })?;
        Ok(handle.to_le_bytes().to_vec())
    }

    fn write_default_length(&mut self, parameters: &[u8]) -> Result<(), Failure> {
        let bytes: &[u8; 4] = fixed(parameters)?;
        let octets = word(bytes, 0);
        if !(MIN_LENGTH as u16..=251).contains(&octets) {
            return Err(hci::INVALID_PARAMETERS);
        }
        self.default_length = octets;
        Ok(())
    }

    fn read_phy(&mut self, parameters: &[u8]) -> Result<Vec<u8>, Failure> {
        let handle = word(fixed::<2>(parameters)?, 0);
        let link = self.connection(handle)?;
        let [low, high] = handle.to_le_bytes();
        Ok(Vec::from([low, high, link.tx_phy().number(), link.rx_phy().number()]))
    }

    /// As it was when it was powered on; links are gone without a word.
    pub(super) fn reset(&mut self) {
        self.classic.reset();
        self.security.reset();
        self.links.clear();
        self.unreported.clear();
        self.occupied = 0;
        self.receiving = None;
        self.advertiser = Advertiser::new();
        self.scanner = Scanner::new();
        self.initiator = None;
        self.hears = false;
        self.accept_list.clear();
        self.random_address = [0; 6];
        self.default_length = MIN_LENGTH as u16;
        self.default_phys = ALL_PHYS;
    }
}

fn supported_commands() -> [u8; 64] {
    let mut bits = [0; 64];
    for (_, octet, bit) in COMMANDS.into_iter().chain(classic::COMMANDS) {
        bits[octet] |= 1 << bit;
    }
    bits
}

/// What goes with the status of some commands, also when they failed: the handle or address that they were given.
fn echoed(opcode: u16, parameters: &[u8]) -> Vec<u8> {
    match (opcode, parameters) {
        (op::CREATE_CONNECTION_CANCEL, peer) => peer.iter().copied().chain([0; 6]).take(6).collect(),
        (op::ROLE_DISCOVERY, [low, high, ..]) => Vec::from([*low, *high, 0]),
        (op::READ_FLUSH_TIMEOUT | op::READ_SUPERVISION_TIMEOUT, [low, high, ..]) => Vec::from([*low, *high, 0, 0]),
        (op::WRITE_FLUSH_TIMEOUT | op::WRITE_SUPERVISION_TIMEOUT | op::FLUSH, [low, high, ..]) => {
            Vec::from([*low, *high])
        }
        (
            op::LE_SET_DATA_LENGTH | op::LE_LONG_TERM_KEY_REPLY | op::LE_LONG_TERM_KEY_NEGATIVE_REPLY,
            [low, high, ..],
        ) => Vec::from([*low, *high]),
        (op::LE_READ_PHY, [low, high, ..]) => Vec::from([*low, *high, 0, 0]),
        _ => Vec::new(),
    }
}

/// Whether an address type is that of random addresses. Controller-made private addresses aren't supported.
const fn random_type(kind: u8) -> Result<bool, Failure> {
    match kind {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(hci::UNSUPPORTED_VALUE),
    }
}

const fn phys(no_preference: bool, mask: u8) -> u8 {
    if no_preference { ALL_PHYS } else { mask & ALL_PHYS }
}

/// Time of the longest packet with that payload, in us: on LE Coded.
fn longest_time(octets: u16) -> u16 {
    (Phy::CodedS8.air_time(octets.into(), true) / US) as u16
}

fn advertising_data(parameters: &[u8]) -> Result<Vec<u8>, Failure> {
    let [length, data @ ..] = fixed::<32>(parameters)?;
    data.get(..usize::from(*length)).map(<[u8]>::to_vec).ok_or(hci::INVALID_PARAMETERS)
}

//! HCI commands (Core Specification, Vol 4, Part E, 7).

use alloc::vec::Vec;

use taut_time::Instant;

use super::{Advertising, Controller, FIRST_HANDLE, Initiating, Stage};
use crate::hci::{self, command as op};
use crate::link::Wanted;
use crate::time::{Nanos, US};

/// Commands that are answered, by their bit in Read Local Supported Commands (octet, bit).
const SUPPORTED: [(usize, u8); 16] = [
    (0, 5),
    (5, 6),
    (5, 7),
    (14, 3),
    (14, 5),
    (15, 1),
    (25, 0),
    (25, 1),
    (25, 2),
    (25, 5),
    (25, 7),
    (26, 1),
    (26, 4),
    (27, 2),
    (33, 6),
    (35, 6),
];

impl Controller {
    pub(super) fn command(&mut self, now: Instant, opcode: u16, parameters: &[u8]) {
        match self.complete(now, opcode, parameters) {
            Some(answer) => self.tell_host(hci::command_complete(opcode, &answer)),
            None => {
                let status = match self.begin(opcode, parameters) {
                    Ok(()) => hci::SUCCESS,
                    Err(status) => status,
                };
                self.tell_host(hci::command_status(opcode, status));
            }
        }
    }

    /// Commands with a Command Complete: their return parameters.
    fn complete(&mut self, now: Instant, opcode: u16, parameters: &[u8]) -> Option<Vec<u8>> {
        let mut answer = Vec::from([hci::SUCCESS]);
        match opcode {
            op::RESET => self.reset(),
            op::SET_EVENT_MASK | op::LE_SET_EVENT_MASK => {}
            // Bluetooth 5.4 (0x0d), no company (0xffff).
            op::READ_LOCAL_VERSION => answer.extend([0x0d, 0, 0, 0x0d, 0xff, 0xff, 0, 0]),
            op::READ_LOCAL_COMMANDS => {
                let mut commands = [0u8; 64];
                for (octet, bit) in SUPPORTED {
                    commands[octet] |= 1 << bit;
                }
                answer.extend(commands);
            }
            // LE supported, BR/EDR not.
            op::READ_LOCAL_FEATURES => answer.extend([0, 0, 0, 0, 0x60, 0, 0, 0]),
            op::READ_BD_ADDR => answer.extend(self.config.address),
            op::LE_READ_BUFFER_SIZE => {
                answer.extend(self.config.acl_size.to_le_bytes());
                answer.push(self.config.acl_buffers.min(255) as u8);
            }
            // Data packet length extension (bit 5), 2M (8), Coded (11).
            op::LE_READ_LOCAL_FEATURES => answer.extend([0x20, 0x09, 0, 0, 0, 0, 0, 0]),
            op::LE_SET_ADV_PARAMETERS => match parameters {
                [low, high, ..] if parameters.len() == 15 => {
                    let interval = u16::from_le_bytes([*low, *high]).clamp(0x20, 0x4000);
                    self.advertising_interval = 625 * US * Nanos::from(interval);
                }
                _ => answer[0] = hci::INVALID_PARAMETERS,
            },
            op::LE_SET_ADV_DATA => match parameters {
                [length @ 0..=31, data @ ..] if data.len() == 31 => {
                    self.advertising_data = data[..usize::from(*length)].to_vec();
                }
                _ => answer[0] = hci::INVALID_PARAMETERS,
            },
            op::LE_SET_ADV_ENABLE => match parameters {
                [0] => self.advertising = Advertising::Off,
                [1] => {
                    if self.advertising == Advertising::Off {
                        self.advertising = Advertising::Next(now);
                    }
                }
                _ => answer[0] = hci::INVALID_PARAMETERS,
            },
            op::LE_SET_DATA_LENGTH => {
                let handle = parameters.first_chunk().map_or(0, |handle| u16::from_le_bytes(*handle));
                match parameters {
                    [_, _, low, high, _, _] => {
                        answer[0] = self.want(handle, Wanted::Length { octets: u16::from_le_bytes([*low, *high]) });
                    }
                    _ => answer[0] = hci::INVALID_PARAMETERS,
                }
                answer.extend(handle.to_le_bytes());
            }
            _ => return None,
        }
        Some(answer)
    }

    /// Commands with a Command Status, and those that are not known.
    fn begin(&mut self, opcode: u16, parameters: &[u8]) -> Result<(), u8> {
        let word = |at: usize| {
            parameters.get(at..at + 2).map(|word| u16::from_le_bytes([word[0], word[1]])).ok_or(hci::INVALID_PARAMETERS)
        };
        let wanted = match opcode {
            op::DISCONNECT => {
                let reason = *parameters.get(2).ok_or(hci::INVALID_PARAMETERS)?;
                Wanted::Terminate { reason }
            }
            op::LE_CONNECTION_UPDATE => {
                Wanted::Connection { interval: word(4)?.max(1), latency: word(6)?, timeout: word(8)?.max(1) }
            }
            op::LE_SET_PHY => {
                let [all, tx, rx] =
                    *parameters.get(2..5).and_then(|masks| masks.first_chunk()).ok_or(hci::INVALID_PARAMETERS)?;
                let s2 = word(5)? == 1;
                Wanted::Phy { tx: if all & 1 == 1 { 0xff } else { tx }, rx: if all & 2 == 2 { 0xff } else { rx }, s2 }
            }
            op::LE_CREATE_CONNECTION => return self.create_connection(parameters),
            _ => return Err(hci::UNKNOWN_COMMAND),
        };
        match self.want(word(0)?, wanted) {
            hci::SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    fn want(&mut self, handle: u16, wanted: Wanted) -> u8 {
        let index = usize::from(handle.wrapping_sub(FIRST_HANDLE));
        match self.links.get_mut(index).filter(|link| !link.is_gone()) {
            Some(link) => {
                link.request(wanted);
                hci::SUCCESS
            }
            None => hci::UNKNOWN_CONNECTION,
        }
    }

    fn create_connection(&mut self, parameters: &[u8]) -> Result<(), u8> {
        let parameters: &[u8; 25] = parameters.try_into().map_err(|_| hci::INVALID_PARAMETERS)?;
        if self.initiating.is_some() {
            return Err(hci::COMMAND_DISALLOWED);
        }
        let word = |at: usize| u16::from_le_bytes([parameters[at], parameters[at + 1]]);
        let mut peer = [0; 6];
        peer.copy_from_slice(&parameters[6..12]);
        let (interval, latency, timeout) = (word(15), word(17), word(19));
        if interval == 0 || timeout == 0 {
            return Err(hci::INVALID_PARAMETERS);
        }
        self.initiating = Some(Initiating { peer, interval, latency, timeout, stage: Stage::Scanning });
        Ok(())
    }

    fn reset(&mut self) {
        self.links.clear();
        self.unreported.clear();
        self.occupied = 0;
        self.receiving = None;
        self.advertising = Advertising::Off;
        self.initiating = None;
    }
}

//! Encryption as the host sees it: commands and events (Core Specification, Vol 4, Part E, 7.7 and 7.8).

use alloc::vec::Vec;

use super::parameters::{Failure, fixed, word};
use super::state::Controller;
use crate::cipher::{self, Key};
use crate::hci::{self, event};
use crate::link::KeyChoice;
use crate::role::Role;

/// Bits of events in them.
const ENCRYPTION_CHANGE: u64 = 1 << 7;
const ENCRYPTION_KEY_REFRESH: u64 = 1 << 47;
const LONG_TERM_KEY_REQUEST: u64 = 1 << 4;

/// LE Encrypt.
pub(super) fn encrypt_block(parameters: &[u8]) -> Result<Vec<u8>, Failure> {
    let bytes: &[u8; 32] = fixed(parameters)?;
    let (mut key, mut block) = ([0; 16], [0; 16]);
    key.copy_from_slice(&bytes[..16]);
    block.copy_from_slice(&bytes[16..]);
    Ok(cipher::encrypt(key, block).to_vec())
}

impl Controller {
    /// LE Enable Encryption, for the central alone.
    pub(super) fn enable_encryption(&mut self, parameters: &[u8]) -> Result<(), Failure> {
        let bytes: &[u8; 28] = fixed(parameters)?;
        let (mut random, mut key) = ([0; 8], [0; 16]);
        random.copy_from_slice(&bytes[2..10]);
        key.copy_from_slice(&bytes[12..]);
        let choice = KeyChoice { random, diversifier: word(bytes, 10), key };
        let link = self.connection(word(bytes, 0))?;
        let is_begun = link.role == Role::Central && link.encrypt(choice);
        if is_begun { Ok(()) } else { Err(hci::COMMAND_DISALLOWED) }
    }

    /// LE Long Term Key Request Reply.
    pub(super) fn key_reply(&mut self, parameters: &[u8]) -> Result<Vec<u8>, Failure> {
        let [low, high, key @ ..] = fixed::<18>(parameters)?;
        let mut octets = [0; 16];
        octets.copy_from_slice(key);
        self.give_key(u16::from_le_bytes([*low, *high]), Some(octets))
    }

    /// LE Long Term Key Request Negative Reply.
    pub(super) fn key_negative_reply(&mut self, parameters: &[u8]) -> Result<Vec<u8>, Failure> {
        self.give_key(u16::from_le_bytes(*fixed(parameters)?), None)
    }

    fn give_key(&mut self, handle: u16, key: Option<Key>) -> Result<Vec<u8>, Failure> {
        if self.connection(handle)?.give_key(key) {
            Ok(handle.to_le_bytes().to_vec())
        } else {
            Err(hci::COMMAND_DISALLOWED)
        }
    }

    /// The central asks for encryption. A host that does not want to hear of it has no key (Vol 6, Part B, 5.1.3.1).
    pub(super) fn key_wanted(&mut self, index: usize, random: [u8; 8], diversifier: u16) {
        let link = &mut self.links[index];
        if self.security.le_mask & LONG_TERM_KEY_REQUEST == 0 {
            link.give_key(None);
            return;
        }
        let mut parameters = Vec::from(link.handle.to_le_bytes());
        parameters.extend(random);
        parameters.extend(diversifier.to_le_bytes());
        self.tell_host(hci::le_event(event::LE_LONG_TERM_KEY_REQUEST, &parameters));
    }

    /// Encryption Change, or Encryption Key Refresh Complete.
    pub(super) fn encryption_changed(&mut self, handle: u16, status: u8, is_refresh: bool) {
        let [low, high] = handle.to_le_bytes();
        let (bit, code) = if is_refresh {
            (ENCRYPTION_KEY_REFRESH, event::ENCRYPTION_KEY_REFRESH)
        } else {
            (ENCRYPTION_CHANGE, event::ENCRYPTION_CHANGE)
        };
        // AES-CCM (0x01), or none.
        let enabled = [(status == hci::SUCCESS).into()];
        let enabled: &[u8] = if is_refresh { &[] } else { &enabled };
        if self.security.mask & bit != 0 {
            self.tell_host(hci::event_packet(code, &[status, low, high], enabled));
        }
    }
}

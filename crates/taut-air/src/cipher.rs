//! Encryption of LE links: session key and AES-CCM (Core Specification, Vol 6, Part B, 5.1.3.1, and Part E).

use aes::Aes128;
use aes::cipher::BlockCipherEncrypt;
use ccm::Ccm;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U4, U13};

use crate::pdu::Pdu;
use crate::phy::{MAX_LENGTH, MIC_BYTES};
use crate::role::Role;

/// A key or a block in the order of HCI and the air: least significant octet first.
pub(crate) type Key = [u8; 16];

/// The security function e (Vol 3, Part H, 2.2.1), and so HCI_LE_Encrypt: AES-128 of one block.
pub(crate) fn encrypt(mut key: Key, mut block: [u8; 16]) -> [u8; 16] {
    // AES itself begins with the most significant octet.
    key.reverse();
    block.reverse();
    let mut block = block.into();
    Aes128::new(&key.into()).encrypt_block(&mut block);
    let mut result: [u8; 16] = block.into();
    result.reverse();
    result
}

/// The first octet of a header as far as it is authenticated: not NESN, SN and MD (Part E, 2.2).
const SEALED_HEADER_MASK: u8 = 0b1110_0011;

/// What a side draws for a session: its halves of the session key diversifier and of the initialisation vector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Half {
    /// SKD_C or SKD_P.
    pub(crate) skd: [u8; 8],
    /// IV_C or IV_P.
    pub(crate) iv: [u8; 4],
}

/// Both directions of an encrypted link as one side has them.
#[derive(Clone)]
pub(crate) struct Session {
    cipher: Ccm<Aes128, U4, U13>,
    iv: [u8; 8],
    /// packetCounter of the next PDU, by the role that sends it; 39 bits, which no link here lives to fill.
    counters: [u64; 2],
}

impl Session {
    /// The session of a long term key.
    pub(crate) fn new(long_term_key: Key, central: Half, peripheral: Half) -> Self {
        let mut diversifier = [0; 16];
        diversifier[..8].copy_from_slice(&central.skd);
        diversifier[8..].copy_from_slice(&peripheral.skd);
        let mut key = encrypt(long_term_key, diversifier);
        key.reverse();
        let mut iv = [0; 8];
        iv[..4].copy_from_slice(&central.iv);
        iv[4..].copy_from_slice(&peripheral.iv);
        Self { cipher: Ccm::new(&key.into()), iv, counters: [0; 2] }
    }

    /// Part E, 2.1: packetCounter with the directionBit above it, and the IV.
    fn nonce(&self, from: Role) -> [u8; 13] {
        let direction = match from {
            Role::Central => 1 << 39,
            Role::Peripheral => 0,
        };
        let mut nonce = [0; 13];
        nonce[..5].copy_from_slice(&(self.counters[from as usize] | direction).to_le_bytes()[..5]);
        nonce[5..].copy_from_slice(&self.iv);
        nonce
    }

    /// The PDU as it goes on the air, with its MIC; an empty one has none. Until [`Self::next`] the
    /// same PDU gives the same again.
    pub(crate) fn seal(&self, from: Role, clear: &Pdu) -> Pdu {
        let [first, _] = clear.header();
        let length = clear.payload().len().min(MAX_LENGTH);
        if length == 0 {
            return clear.clone();
        }
        let mut octets = [0; MAX_LENGTH + MIC_BYTES];
        octets[..length].copy_from_slice(&clear.payload()[..length]);
        let aad = [first & SEALED_HEADER_MASK];
        let mic = self.cipher.encrypt_inout_detached(&self.nonce(from).into(), &aad, (&mut octets[..length]).into());
        // CCM refuses only what is longer than its length field of two octets can tell.
        if let Ok(mic) = mic {
            octets[length..length + MIC_BYTES].copy_from_slice(&mic);
        }
        let length = length + MIC_BYTES;
        Pdu::new([first, length as u8], &octets[..length])
    }

    /// The PDU in clear text; `None` when its MIC is wrong.
    pub(crate) fn open(&self, from: Role, sealed: &Pdu) -> Option<Pdu> {
        let [first, _] = sealed.header();
        let (payload, mic) = sealed.payload().split_last_chunk::<MIC_BYTES>()?;
        let mut octets = [0; 255];
        let clear = octets.get_mut(..payload.len()).filter(|clear| !clear.is_empty())?;
        clear.copy_from_slice(payload);
        let aad = [first & SEALED_HEADER_MASK];
        let nonce = self.nonce(from).into();
        self.cipher.decrypt_inout_detached(&nonce, &aad, (&mut *clear).into(), &(*mic).into()).ok()?;
        Some(Pdu::new([first, clear.len() as u8], clear))
    }

    /// A PDU of that side with something in it has arrived: the next one is another.
    pub(crate) const fn next(&mut self, from: Role) {
        self.counters[from as usize] += 1;
    }
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample data of Vol 6, Part C, 1.
    fn sample() -> Session {
        let mut key = 0x4C68_3841_39F5_74D8_36BC_F34E_9DFB_01BF_u128.to_le_bytes();
        let central = Half { skd: 0xACBD_CEDF_E0F1_0213_u64.to_le_bytes(), iv: 0xBADC_AB24_u32.to_le_bytes() };
        let peripheral = Half { skd: 0x0213_2435_4657_6879_u64.to_le_bytes(), iv: 0xDEAF_BABE_u32.to_le_bytes() };
        let mut diversifier = [0; 16];
        diversifier[..8].copy_from_slice(&central.skd);
        diversifier[8..].copy_from_slice(&peripheral.skd);
        assert_eq!(encrypt(key, diversifier), 0x99AD_1B52_26A3_7E3E_058E_3B8E_27C2_C666_u128.to_le_bytes());
        let session = Session::new(key, central, peripheral);
        key[0] ^= 1;
        assert!(Session::new(key, central, peripheral).open(Role::Central, &start(Role::Central)).is_none());
        session
    }

    /// LL_START_ENC_RSP of either side, as it is there.
    fn start(from: Role) -> Pdu {
        match from {
            Role::Central => Pdu::new([0x0F, 5], &[0x9F, 0xCD, 0xA7, 0xF4, 0x48]),
            Role::Peripheral => Pdu::new([0x07, 5], &[0xA3, 0x4C, 0x13, 0xA4, 0x15]),
        }
    }

    #[test]
    fn the_specifications_sample_comes_out() {
        let session = sample();
        for (from, header) in [(Role::Central, 0x0F), (Role::Peripheral, 0x07)] {
            let clear = Pdu::new([header, 1], &[0x06]);
            assert_eq!(&session.seal(from, &clear)[..], &start(from)[..]);
            assert_eq!(&session.open(from, &start(from)).unwrap()[..], &clear[..]);
            // Not of the other side, and not the next one.
            assert!(session.open(from.other(), &start(from)).is_none());
            let mut later = session.clone();
            later.next(from);
            assert!(later.open(from, &start(from)).is_none());
        }
    }

    #[test]
    fn acknowledgement_bits_may_change_and_nothing_else() {
        let session = sample();
        let clear = Pdu::new([0x02, 251], &[7; 251]);
        let sealed = session.seal(Role::Central, &clear);
        assert_eq!(sealed.len(), 257);
        for first in 0..=255_u8 {
            let opened = session.open(Role::Central, &Pdu::new([first, 255], sealed.payload()));
            assert_eq!(opened.is_some(), first & !0b1_1100 == 0x02, "{first:#x}");
        }
        for at in 0..255 {
            let mut octets = sealed.payload().to_vec();
            octets[at] ^= 0x10;
            assert!(session.open(Role::Central, &Pdu::new(sealed.header(), &octets)).is_none(), "{at}");
        }
        for short in 0..=4 {
            assert!(session.open(Role::Central, &Pdu::new([0x02, short], &[0; 4][..short.into()])).is_none());
        }
        let empty = Pdu::new([0x01, 0], &[]);
        assert_eq!(session.seal(Role::Central, &empty).len(), 2);
    }
}

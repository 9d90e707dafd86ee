//! Keys of NATS: Ed25519 keys whose texts say what they are of, by the names that `async-nats` asks for.
//!
//! A text is base32 (RFC 4648, without padding) of a prefix, the key, and a CRC-16. A seed's prefix is two bytes, which
//! say that it is one and of what.

use std::fmt;

use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// Why there is no key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Error {
    /// A text of another length.
    Length,
    /// Characters that base32 has not.
    Characters,
    /// A text that was changed, or is of something else.
    Checksum,
    /// A text that is no seed.
    NoSeed,
}

/// What a key is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Of {
    /// An account, `A…`.
    Account = 0,
    /// An operator, `O…`.
    Operator = 14 << 3,
    /// A user, `U…`.
    User = 20 << 3,
}

/// A pair of a secret and a public key.
pub struct KeyPair {
    of: u8,
    pair: Ed25519KeyPair,
}

const SEED: u8 = 18 << 3;
const KEY: usize = 32;
/// Prefix, key and checksum of a seed, in base32.
const SEED_TEXT: usize = ((2 + KEY + 2) * 8).div_ceil(5);
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

impl KeyPair {
    /// The pair of a seed, `SU…` of a user.
    ///
    /// # Errors
    /// For what is no seed.
    pub fn from_seed(text: &str) -> Result<Self, Error> {
        if text.len() != SEED_TEXT {
            return Err(Error::Length);
        }
        let bytes = from_base32(text).ok_or(Error::Characters)?;
        let (bytes, checksum) = bytes.split_at(2 + KEY);
        if crc(bytes).to_le_bytes() != checksum[..2] {
            return Err(Error::Checksum);
        }
        if bytes[0] & 0xf8 != SEED {
            return Err(Error::NoSeed);
        }
        let of = (bytes[0] & 7) << 5 | bytes[1] >> 3;
        // Any 32 bytes are a seed.
        let pair = Ed25519KeyPair::from_seed_unchecked(&bytes[2..]).map_err(|_| Error::NoSeed)?;
        Ok(Self { of, pair })
    }

    /// A signature, 64 bytes.
    ///
    /// # Errors
    /// None; the one whose place this takes has pairs that can't sign.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.pair.sign(message).as_ref().to_vec())
    }

    /// The public key's text, `U…` of a user.
    pub fn public_key(&self) -> String {
        text(&[self.of], self.pair.public_key().as_ref())
    }
}

/// The text of a seed.
pub fn seed(of: Of, key: &[u8; KEY]) -> String {
    let of = of as u8;
    text(&[SEED | of >> 5, (of & 31) << 3], key)
}

fn text(prefix: &[u8], key: &[u8]) -> String {
    let mut bytes = [prefix, key].concat();
    bytes.extend(crc(&bytes).to_le_bytes());
    to_base32(&bytes)
}

/// CRC-16/XMODEM.
fn crc(bytes: &[u8]) -> u16 {
    let shifted = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| shifted(crc)))
}

fn to_base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    for five in bytes.chunks(5) {
        let mut bits = [0; 8];
        bits[3..3 + five.len()].copy_from_slice(five);
        let bits = u64::from_be_bytes(bits);
        let letters = (five.len() * 8).div_ceil(5);
        text.extend((0..letters).map(|at| char::from(LETTERS[(bits >> (35 - 5 * at)) as usize & 31])));
    }
    text
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|one| *one == letter)?;
        (bits, count) = (bits << 5 | value as u32, count + 5);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPair").field(&self.public_key()).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "a seed has 58 characters",
            Self::Characters => "a seed has the letters A to Z and the digits 2 to 7",
            Self::Checksum => "its checksum is wrong: it was changed",
            Self::NoSeed => "it is no seed, which begins with S",
        })
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 8032, section 7.1, tests 1 and 2.
    #[test]
    fn keys_and_signatures_are_those_of_the_rfc() {
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
        };
        for (secret, public, message, signature) in [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                "",
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
                "72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
        ] {
            let pair = KeyPair::from_seed(&seed(Of::User, bytes(secret)[..].try_into().unwrap())).unwrap();
            let (prefixed, found) = (from_base32(&pair.public_key()).unwrap(), pair.sign(&bytes(message)).unwrap());
            assert_eq!((prefixed[0], &prefixed[1..33]), (Of::User as u8, &bytes(public)[..]));
            assert_eq!(found, bytes(signature));
        }
    }

    #[test]
    fn letters_say_what_a_key_is_of() {
        for (of, letters) in [(Of::Account, "SA"), (Of::Operator, "SO"), (Of::User, "SU")] {
            let text = seed(of, &[7; KEY]);
            assert!(text.starts_with(letters) && text.len() == SEED_TEXT, "{text}");
            assert_eq!(KeyPair::from_seed(&text).unwrap().public_key()[..1], letters[1..]);
        }
        // The check value of this CRC.
        assert_eq!(crc(b"123456789"), 0x31c3);
        assert_eq!(to_base32(b"foobar"), "MZXW6YTBOI");
    }

    #[test]
    fn what_is_no_seed_is_refused() {
        let good = seed(Of::User, &[1; KEY]);
        let public = KeyPair::from_seed(&good).unwrap().public_key();
        let refused = |text: &str| KeyPair::from_seed(text).map(drop).unwrap_err();
        assert_eq!(refused(""), Error::Length);
        assert_eq!(refused(&public), Error::Length);
        assert_eq!(refused(&good.to_lowercase()), Error::Characters);
        assert_eq!(refused(&good.replacen("SU", "SA", 1)), Error::Checksum);
        assert_eq!(refused(&text(&[0, 0], &[1; KEY])), Error::NoSeed);
    }

    proptest! {
        #[test]
        fn base32_is_read_as_it_is_written(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "\\PC{58}") {
            prop_assert_eq!(from_base32(&to_base32(&bytes)), Some(bytes));
            let _ = KeyPair::from_seed(&text);
        }
    }
}

use crc::{CRC_24_BLE, Crc};

/// The link layer's CRC of a PDU (Core Specification, Vol 6, Part B, 3.1.1), as the three octets
/// that follow it on the air.
pub(super) fn crc24(init: u32, pdu: &[u8]) -> [u8; 3] {
    const CRC: Crc<u32> = Crc::<u32>::new(&CRC_24_BLE);
    let mut digest = CRC.digest_with_initial(init & 0xff_ffff);
    digest.update(pdu);
    let [low, middle, high, _] = digest.finalize().to_le_bytes();
    [low, middle, high]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reckoned(init: u32, pdu: &[u8]) -> [u8; 3] {
        const POLYNOMIAL: u32 = 0xda_6000;
        let mut register = (init & 0xff_ffff).reverse_bits() >> 8;
        for octet in pdu {
            register ^= u32::from(*octet);
            for _ in 0..8 {
                let carry = register & 1;
                register >>= 1;
                if carry == 1 {
                    register ^= POLYNOMIAL;
                }
            }
        }
        let [low, middle, high, _] = register.to_le_bytes();
        [low, middle, high]
    }

    proptest! {
        /// Bit by bit, as the specification has it: octets go out least significant bit first and the register most
        /// significant bit first, so a mirrored register's octets, lowest first, are those of the air.
        #[test]
        fn it_is_the_specifications(init in 0..1u32 << 24, pdu in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(crc24(init, &pdu), reckoned(init, &pdu));
        }

        #[test]
        fn any_error_of_one_or_two_bits_shows(
            pdu in proptest::collection::vec(any::<u8>(), 2..40),
            init in 0..1u32 << 24,
            a in 0..16usize,
            b in 0..16usize,
        ) {
            let mut broken = pdu.clone();
            broken[a / 8] ^= 1 << (a % 8);
            if a != b {
                broken[b / 8] ^= 1 << (b % 8);
            }
            prop_assert_ne!(crc24(init, &pdu), crc24(init, &broken));
        }

        #[test]
        fn a_pdu_with_its_crc_behind_it_leaves_nothing(
            pdu in proptest::collection::vec(any::<u8>(), 0..40),
            init in 0..1u32 << 24,
        ) {
            let whole: Vec<u8> = pdu.iter().copied().chain(crc24(init, &pdu)).collect();
            prop_assert_eq!(crc24(init, &whole), [0, 0, 0]);
        }
    }
}

//! Where a packet of MQTT ends, and whether its number is one.
//!
//! `mqtt-protocol-core` 0.7.9 takes a number of 0 (which MQTT forbids: 5.0, section 2.2.1) and panics when it makes the
//! answer, so no such packet gets to it. The fuzz target `mqtt_broker` found that.

/// Longest fixed header: a byte and a length of four.
const MOST_HEADER_BYTES: usize = 5;

/// Length of the packet at the beginning, header included; `None` while the header is not whole.
///
/// # Errors
/// The length does not end (MQTT 5.0, section 1.5.5).
pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut length = 0;
    for (index, &byte) in bytes.iter().enumerate().take(MOST_HEADER_BYTES).skip(1) {
        length |= usize::from(byte & 0x7F) << (7 * (index - 1));
        if byte & 0x80 == 0 {
            return Ok(Some(index + 1 + length));
        }
    }
    if bytes.len() >= MOST_HEADER_BYTES { Err("sent a packet that is malformed") } else { Ok(None) }
}

/// Whether a whole packet has no number, or one that may be.
pub(super) fn has_sound_number(packet: &[u8]) -> bool {
    let header = packet.iter().skip(1).take_while(|byte| **byte & 0x80 != 0).count() + 2;
    let Some((first, body)) = packet.first().zip(packet.get(header..)) else { return false };
    let at = match first >> 4 {
        // PUBLISH: behind the topic, with QoS 1 and 2.
        3 if first & 0b110 == 0 => return true,
        3 => match body {
            [high, low, ..] => 2 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => return false,
        },
        // PUBACK to UNSUBACK.
        4..=11 => 0,
        _ => return true,
    };
    body.get(at..at + 2).is_some_and(|number| number != [0, 0])
}

/// PUBREC of MQTT 5, and its reason that nobody has subscribed, which is a success (sections 3.5.2.1 and 4.3.3).
const PUBREC: u8 = 0x50;
const NO_SUBSCRIBERS: u8 = 0x10;

/// The same packet without a reason, of a PUBREC that says that nobody has subscribed: `mqtt-protocol-core` 0.7.9 takes
/// that for a refusal and would not let it be answered.
pub(super) fn plain_pubrec(packet: &[u8]) -> Option<[u8; 4]> {
    let header = packet.iter().skip(1).take_while(|byte| **byte & 0x80 != 0).count() + 2;
    match (packet.first()?, packet.get(header..)?) {
        (&PUBREC, [high, low, NO_SUBSCRIBERS, ..]) => Some([PUBREC, 2, *high, *low]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_ends_where_its_length_says() {
        assert_eq!(length(&[0x30]), Ok(None));
        assert_eq!(length(&[0x30, 0x80, 0x80]), Ok(None));
        assert_eq!(length(&[0xD0, 0]), Ok(Some(2)));
        assert_eq!(length(&[0x30, 0x80, 0x01, 7]), Ok(Some(131)));
        assert_eq!(length(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]), Ok(Some(268_435_460)));
        assert!(length(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF]).is_err());
    }

    #[test]
    fn that_nobody_has_subscribed_is_no_refusal() {
        assert_eq!(plain_pubrec(&[0x50, 3, 1, 2, 0x10]), Some([0x50, 2, 1, 2]));
        assert_eq!(plain_pubrec(&[0x50, 4, 1, 2, 0x10, 0]), Some([0x50, 2, 1, 2]));
        for other in [&[0x50_u8, 2, 1, 2][..], &[0x50, 3, 1, 2, 0x87], &[0x40, 3, 1, 2, 0x10], &[0x50], &[]] {
            assert_eq!(plain_pubrec(other), None, "{other:x?}");
        }
    }

    #[test]
    fn a_number_of_0_is_none() {
        for (packet, sound) in [
            (&[0x40_u8, 2, 0, 1][..], true),
            (&[0x40, 2, 0, 0], false),
            (&[0x62, 0x82, 0, 0, 1], true),
            (&[0x50, 1, 0], false),
            (&[0x32, 5, 0, 1, b't', 0, 0], false),
            (&[0x32, 5, 0, 1, b't', 0, 9], true),
            (&[0x34, 4, 0, 9, b't', 0], false),
            (&[0x30, 3, 0, 1, b't'], true),
            (&[0xD0, 0], true),
        ] {
            assert_eq!(has_sound_number(packet), sound, "{packet:x?}");
        }
    }
}

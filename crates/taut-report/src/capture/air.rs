use std::io::{self, Write};

use taut_air::{AirEvent, Happening, Observer, Phy, Role};
use taut_time::Instant;

use super::baseband;
use super::crc::crc24;
use super::pcapng::Pcapng;

/// LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR, <https://www.tcpdump.org/linktypes/LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR.html>.
const LINK_TYPE: u16 = 256;
/// Interfaces of the capture.
const LE: u32 = 0;
const BASEBAND: u32 = 1;
/// Access address of all advertising (Core Specification, Vol 6, Part B, 2.1.2).
const ADVERTISING_ACCESS_ADDRESS: u32 = 0x8e89_bed6;

/// Writes what an ideal sniffer beside all devices would have seen: every PDU from the first
/// advertising on, as it was sent, with a CRC that is right, whether the receiver got it or not. LE
/// is one interface of the capture, BR/EDR another.
///
/// On a link whose hosts encrypted it data stands as it was on the air, in cipher text with its MIC. Link layer control
/// PDUs stand deciphered and marked as that, with the MIC checked and taken off: Wireshark has no notion of encryption
/// here, and would take their cipher text for other opcodes and their MIC for data. The payload of a scenario with
/// `encrypted`, for which no cipher is modelled, stands in clear and marked as well, with zeros for its MIC.
pub struct AirCapture<W: Write> {
    file: Pcapng<W>,
    failed: Option<io::Error>,
}

impl<W: Write> AirCapture<W> {
    /// Begins a capture.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn begin(out: W) -> io::Result<Self> {
        let comment = "A simulated radio in virtual time, which begins in 1970: nothing of this was on the air. PDUs stand as \
            they were sent, whether the receiver got them or not.";
        Ok(Self {
            file: Pcapng::begin(out, &[(LINK_TYPE, "air"), (baseband::LINK_TYPE, "baseband")], comment)?,
            failed: None,
        })
    }

    /// Writes what is still to be written and hands the writer back.
    ///
    /// # Errors
    ///
    /// When something could not be written.
    pub fn finish(self) -> io::Result<W> {
        match self.failed {
            Some(error) => Err(error),
            None => self.file.finish(),
        }
    }

    fn packet(&mut self, at: Instant, packet: &Packet<'_>) -> io::Result<()> {
        const DEWHITENED: u16 = 0x0001;
        const DECRYPTED: u16 = 0x0008;
        const REFERENCE_ADDRESS_VALID: u16 = 0x0010;
        /// "Data, central to peripheral" and back, in the field for the type of PDU.
        const FROM_CENTRAL: u16 = 2 << 7;
        const FROM_PERIPHERAL: u16 = 3 << 7;
        // Wireshark before 4.2 can't check a data PDU's CRC and says so, unless the capture vouches for it.
        const CRC_CHECKED_AND_VALID: u16 = 0x0c00;
        const MIC_CHECKED_AND_VALID: u16 = 0x3000;
        let (phy, coding): (u16, &[u8]) = match packet.phy {
            Phy::Le1M => (0, &[]),
            Phy::Le2M => (1, &[]),
            Phy::CodedS8 => (2, &[0]),
            Phy::CodedS2 => (2, &[1]),
        };
        let mut flags = DEWHITENED | REFERENCE_ADDRESS_VALID | phy << 14;
        let mut octets = packet.octets.to_vec();
        if packet.access_address != ADVERTISING_ACCESS_ADDRESS {
            flags |= CRC_CHECKED_AND_VALID;
            flags |= if packet.from == Role::Central { FROM_CENTRAL } else { FROM_PERIPHERAL };
        }
        match packet.form {
            Form::AsSent => {}
            Form::Deciphered => flags |= DECRYPTED | MIC_CHECKED_AND_VALID,
            Form::Marked => {
                flags |= DECRYPTED;
                octets.extend([0; 4]);
                octets[1] = octets[1].saturating_add(4);
            }
        }
        let address = packet.access_address.to_le_bytes();
        // Signal and noise in dBm and address offences stay zero, and unmarked as valid: the model has none.
        let head = [rf_channel(packet.channel), 0, 0, 0];
        let crc = crc24(packet.crc_init, &octets);
        self.file.packet(LE, at.as_nanos(), &[&head, &address, &flags.to_le_bytes(), &address, coding, &octets, &crc])
    }
}

struct Packet<'a> {
    from: Role,
    channel: u8,
    access_address: u32,
    crc_init: u32,
    phy: Phy,
    form: Form,
    octets: &'a [u8],
}

/// How a packet stands in the capture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// As it was on the air, be it in clear or in cipher text.
    AsSent,
    /// Deciphered, its MIC taken off.
    Deciphered,
    /// With zeros for a MIC that was not modelled.
    Marked,
}

impl Form {
    /// The form and the octets of a PDU with what it says, and of its cipher text.
    fn of<'a>(clear: &'a [u8], mic: bool, sealed: Option<&'a [u8]>) -> (Self, &'a [u8]) {
        const CONTROL: u8 = 0b11;
        match sealed {
            Some(_) if clear.first().is_some_and(|first| first & 0b11 == CONTROL) => (Self::Deciphered, clear),
            Some(sealed) => (Self::AsSent, sealed),
            None if mic => (Self::Marked, clear),
            None => (Self::AsSent, clear),
        }
    }
}

impl<W: Write> Observer for AirCapture<W> {
    fn event(&mut self, event: &AirEvent<'_>) {
        if let Happening::Pdu { from, phy, access_address, crc_init, channel, bytes, mic, sealed, .. } = event.what
            && self.failed.is_none()
        {
            let (form, octets) = Form::of(bytes, mic, sealed);
            let packet = Packet { from, channel, access_address, crc_init, phy, form, octets };
            self.failed = self.packet(event.at, &packet).err();
        }
        if let Happening::Baseband { packet, .. } = event.what
            && self.failed.is_none()
        {
            let octets = baseband::record(packet);
            self.failed = self.file.packet(BASEBAND, event.at.as_nanos(), &[&octets]).err();
        }
    }
}

/// The place of a channel in the band, in steps of 2 MHz from 2402 MHz (Vol 6, Part B, 1.4.1).
const fn rf_channel(index: u8) -> u8 {
    match index {
        0..=10 => index + 1,
        11..=36 => index + 2,
        37 => 0,
        38 => 12,
        _ => 39,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use taut_air::{Scenario, Simulation};

    use super::*;

    #[test]
    fn every_channel_has_a_place_of_its_own() {
        let places: BTreeSet<u8> = (0..40).map(rf_channel).collect();
        assert_eq!(places, (0..40).collect());
    }

    #[test]
    fn blocks_have_their_length_at_both_ends_and_times_do_not_fall() {
        let mut capture = AirCapture::begin(Vec::new()).unwrap();
        Simulation::new(&Scenario::default(), 1).unwrap().run(500_000_000, &mut capture);
        let bytes = capture.finish().unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds, mut last) = (0, Vec::new(), 0);
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!(word(at + length - 4) as usize, length);
            kinds.push(word(at));
            if word(at) == 6 {
                let time = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
                assert!(time >= last);
                last = time;
            }
            at += length;
        }
        assert_eq!(kinds[..3], [0x0a0d_0d0a, 1, 1]);
        assert!(kinds.len() > 30 && kinds[3..].iter().all(|&kind| kind == 6));
    }

    #[test]
    fn what_can_not_be_written_is_an_error_at_the_end() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut capture = AirCapture::begin(Full(2000)).unwrap();
        Simulation::new(&Scenario::default(), 1).unwrap().run(500_000_000, &mut capture);
        assert_eq!(capture.finish().err().unwrap().kind(), io::ErrorKind::StorageFull);
    }
}

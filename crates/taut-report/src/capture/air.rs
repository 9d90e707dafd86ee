use std::io::{self, Write};

use taut_time::Instant;

use super::crc::crc24;
use super::pcapng::Pcapng;

/// LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR, <https://www.tcpdump.org/linktypes/LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR.html>.
const LINK_TYPE: u16 = 256;
const ADVERTISING_ACCESS_ADDRESS: u32 = 0x8e89_bed6;
const ADVERTISING_CRC_INIT: u32 = 0x55_5555;
/// All 37 data channels in use.
const CHANNEL_MAP: u64 = 0x1f_ffff_ffff;
/// Sleep clock accuracy of the central: 0 to 20 ppm (Vol 6, Part B, 2.3.3.1).
const SLEEP_CLOCK_ACCURACY: u8 = 7;

/// The rate and coding of a PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phy {
    /// LE 1M.
    Le1M,
    /// LE 2M.
    Le2M,
    /// LE Coded, 8 symbols a bit.
    CodedS8,
    /// LE Coded, 2 symbols a bit.
    CodedS2,
}

/// Who sends a PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sender {
    /// The device that made the connection.
    Central,
    /// The device that advertised.
    Peripheral,
}

/// What the CONNECT_IND of a connection says.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Access address of the connection.
    pub access_address: u32,
    /// Start of its CRC, 24 bits.
    pub crc_init: u32,
    /// Device address of the central, most significant octet first; a random static one.
    pub central: [u8; 6],
    /// Device address of the peripheral.
    pub peripheral: [u8; 6],
    /// Connection interval in nanoseconds. The PDU has it in units of 1.25 ms, rounded up.
    pub interval_ns: u64,
    /// Peripheral latency, in connection events.
    pub latency: u16,
    /// Supervision timeout in nanoseconds; the PDU has it in units of 10 ms, rounded up.
    pub supervision_timeout_ns: u64,
    /// Channels to hop on by, 5 to 16 (channel selection algorithm #1).
    pub hop: u8,
}

/// A PDU as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPdu<'a> {
    /// When its preamble began.
    pub at: Instant,
    /// The access address of its connection.
    pub access_address: u32,
    /// Start of its CRC.
    pub crc_init: u32,
    /// The channel, from the connection's [`Connection::data_channel`].
    pub channel: u8,
    /// Rate and coding.
    pub phy: Phy,
    /// Who sent it.
    pub sender: Sender,
    /// Header and payload. Of an encrypted link: as they were before encryption, with the MIC's room behind.
    pub octets: &'a [u8],
    /// Whether the link is encrypted. The file then marks the PDU as deciphered.
    pub encrypted: bool,
}

/// Writes what an ideal sniffer beside both devices would have seen: every PDU, with a CRC that is right, in pcapng.
pub struct AirCapture<W: Write> {
    file: Pcapng<W>,
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
        Ok(Self { file: Pcapng::begin(out, LINK_TYPE, "air", comment)? })
    }

    /// The CONNECT_IND with which the connection began; a dissector takes the CRC's start and the addresses from it.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn connect(&mut self, at: Instant, connection: &Connection) -> io::Result<()> {
        self.packet(
            at,
            Packet {
                rf_channel: rf_channel(37),
                access_address: ADVERTISING_ACCESS_ADDRESS,
                crc_init: ADVERTISING_CRC_INIT,
                phy: Phy::Le1M,
                flags: 0,
                octets: &connection.connect_ind(),
            },
        )
    }

    /// A PDU of a connection.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn pdu(&mut self, pdu: &CapturedPdu<'_>) -> io::Result<()> {
        /// "Data, central to peripheral" and back, in the field for the type of PDU.
        const FROM_CENTRAL: u16 = 2 << 7;
        const FROM_PERIPHERAL: u16 = 3 << 7;
        const DECRYPTED: u16 = 0x0008;
        // Wireshark before 4.2 can't check a data PDU's CRC and says so, unless the capture vouches for it.
        const CRC_CHECKED_AND_VALID: u16 = 0x0c00;
        let direction = match pdu.sender {
            Sender::Central => FROM_CENTRAL,
            Sender::Peripheral => FROM_PERIPHERAL,
        };
        let packet = Packet {
            rf_channel: rf_channel(pdu.channel),
            access_address: pdu.access_address,
            crc_init: pdu.crc_init,
            phy: pdu.phy,
            flags: direction | CRC_CHECKED_AND_VALID | if pdu.encrypted { DECRYPTED } else { 0 },
            octets: pdu.octets,
        };
        self.packet(pdu.at, packet)
    }

    /// Writes what is still to be written and hands the writer back.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn finish(self) -> io::Result<W> {
        self.file.finish()
    }

    fn packet(&mut self, at: Instant, packet: Packet<'_>) -> io::Result<()> {
        const DEWHITENED: u16 = 0x0001;
        const REFERENCE_ADDRESS_VALID: u16 = 0x0010;
        let (phy, coding): (u16, &[u8]) = match packet.phy {
            Phy::Le1M => (0, &[]),
            Phy::Le2M => (1, &[]),
            Phy::CodedS8 => (2, &[0]),
            Phy::CodedS2 => (2, &[1]),
        };
        let flags = packet.flags | DEWHITENED | REFERENCE_ADDRESS_VALID | phy << 14;
        let address = packet.access_address.to_le_bytes();
        // Signal and noise in dBm and address offences stay zero, and unmarked as valid: a model has none.
        let head = [packet.rf_channel, 0, 0, 0];
        let crc = crc24(packet.crc_init, packet.octets);
        self.file.packet(at.as_nanos(), &[&head, &address, &flags.to_le_bytes(), &address, coding, packet.octets, &crc])
    }
}

struct Packet<'a> {
    rf_channel: u8,
    access_address: u32,
    crc_init: u32,
    phy: Phy,
    flags: u16,
    octets: &'a [u8],
}

impl Connection {
    /// The data channel of a connection event: channel selection algorithm #1 with all channels in use (Vol 6, Part B,
    /// 4.5.8.2).
    pub fn data_channel(&self, event: u64) -> u8 {
        ((event % 37 + 1) * u64::from(self.hop) % 37) as u8
    }

    /// Connection interval in units of 1.25 ms.
    pub(super) fn interval_units(&self) -> [u8; 2] {
        units(self.interval_ns, 1_250_000)
    }

    /// Supervision timeout in units of 10 ms.
    pub(super) fn timeout_units(&self) -> [u8; 2] {
        units(self.supervision_timeout_ns, 10_000_000)
    }

    /// The advertising PDU that begins the connection (Vol 6, Part B, 2.3.3.1), with its header.
    fn connect_ind(&self) -> [u8; 36] {
        const TYPE_CONNECT_IND: u8 = 0x05;
        const BOTH_ADDRESSES_RANDOM: u8 = 0xc0;
        let mut pdu = Vec::with_capacity(36);
        pdu.extend([TYPE_CONNECT_IND | BOTH_ADDRESSES_RANDOM, 34]);
        pdu.extend(self.central.iter().rev());
        pdu.extend(self.peripheral.iter().rev());
        pdu.extend(self.access_address.to_le_bytes());
        pdu.extend(&self.crc_init.to_le_bytes()[..3]);
        // Transmit window: 1.25 ms, at once.
        pdu.extend([1, 0, 0]);
        pdu.extend(self.interval_units());
        pdu.extend(self.latency.to_le_bytes());
        pdu.extend(self.timeout_units());
        pdu.extend(&CHANNEL_MAP.to_le_bytes()[..5]);
        pdu.push(self.hop | SLEEP_CLOCK_ACCURACY << 5);
        let mut octets = [0; 36];
        octets.copy_from_slice(&pdu);
        octets
    }
}

fn units(ns: u64, unit_ns: u64) -> [u8; 2] {
    (ns.div_ceil(unit_ns).clamp(1, u16::MAX.into()) as u16).to_le_bytes()
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

    use super::*;

    const CONNECTION: Connection = Connection {
        access_address: 0x50c2_3a97,
        crc_init: 0x12_3456,
        central: [0xc0, 0, 0, 0, 0, 1],
        peripheral: [0xc0, 0, 0, 0, 0, 2],
        interval_ns: 7_500_000,
        latency: 0,
        supervision_timeout_ns: 420_000_000,
        hop: 5,
    };

    #[test]
    fn every_channel_has_a_place_of_its_own_and_hopping_reaches_all() {
        let places: BTreeSet<u8> = (0..40).map(rf_channel).collect();
        assert_eq!(places, (0..40).collect());
        let hopped: BTreeSet<u8> = (0..37).map(|event| CONNECTION.data_channel(event)).collect();
        assert_eq!(hopped, (0..37).collect());
        assert_eq!(CONNECTION.data_channel(u64::MAX), CONNECTION.data_channel(u64::MAX % 37));
    }

    #[test]
    fn the_connect_ind_has_its_parameters_in_their_units() {
        let pdu = CONNECTION.connect_ind();
        assert_eq!((pdu[1], &pdu[14..18]), (34, &[0x97, 0x3a, 0xc2, 0x50][..]));
        assert_eq!(&pdu[18..21], &[0x56, 0x34, 0x12]);
        assert_eq!((&pdu[24..26], &pdu[28..30]), (&[6, 0][..], &[42, 0][..]));
    }

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let mut capture = AirCapture::begin(Vec::new()).unwrap();
        capture.connect(Instant::from_nanos(5_000_000_007), &CONNECTION).unwrap();
        let bytes = capture.finish().unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!(word(at + length - 4) as usize, length);
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6]);
    }
}

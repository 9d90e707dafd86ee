//! Signalling of streams (AVDTP, section 8): which channel has media, and how fast its timestamps count (A2DP,
//! section 4).

/// Signalling and media (Assigned Numbers, section 2.5).
pub(super) const AVDTP_PSM: u16 = 0x19;

const ACCEPT: u8 = 2;
const COMMAND: u8 = 0;
const SET_CONFIGURATION: u8 = 3;
const RECONFIGURE: u8 = 5;
const OPEN: u8 = 6;
const START: u8 = 7;
const CLOSE: u8 = 8;
const SUSPEND: u8 = 9;
const ABORT: u8 = 10;
const MEDIA_CODEC: u8 = 7;

/// What was said of a link's stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Stream {
    /// Whether the channel that is asked for next has its media.
    pub(super) is_opened: bool,
    /// Samples a second; 0: not known.
    pub(super) hz: u32,
    /// The same as it was asked for in a configuration of the open stream.
    asked: Option<u32>,
}

impl Stream {
    /// Takes a signal. Tells whether media starts or ends with it.
    pub(super) fn signal(&mut self, bytes: &[u8]) -> bool {
        // Signals in several packets have no media codec that is known here.
        let [header, signal, body @ ..] = bytes else { return false };
        if header >> 2 & 3 != 0 {
            return false;
        }
        match (header & 3, signal & 0x3f) {
            (COMMAND, SET_CONFIGURATION) => self.hz = sampling(body.get(2..).unwrap_or_default()).unwrap_or(0),
            // It names one end only, what stays as it was may be absent, and if it is refused the stream goes on
            // (section 8.11).
            (COMMAND, RECONFIGURE) => self.asked = sampling(body.get(1..).unwrap_or_default()),
            (ACCEPT, RECONFIGURE) => self.hz = self.asked.take().unwrap_or(self.hz),
            (ACCEPT, OPEN) => self.is_opened = true,
            (ACCEPT, CLOSE | ABORT) => self.is_opened = false,
            (ACCEPT, START | SUSPEND) => return true,
            _ => {}
        }
        false
    }
}

/// Samples a second, from the capabilities that a stream was configured with; 0: not known. `None`: its codec is not
/// among them.
fn sampling(mut capabilities: &[u8]) -> Option<u32> {
    while let [category, length, rest @ ..] = capabilities {
        let (value, rest) = rest.split_at_checked((*length).into())?;
        if *category == MEDIA_CODEC {
            let rate = match *value {
                // SBC, and AAC of MPEG-2 and 4: one bit each.
                [_, 0, rates, ..] => one_of(&[48_000, 44_100, 32_000, 16_000], u32::from(rates >> 4)),
                [_, 2, _, low, high, ..] => one_of(
                    &[96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000],
                    u32::from(low) << 4 | u32::from(high >> 4),
                ),
                _ => None,
            };
            return Some(rate.unwrap_or(0));
        }
        capabilities = rest;
    }
    None
}

/// The rate whose bit is set, the first one's lowest.
fn one_of(rates: &[u32], bits: u32) -> Option<u32> {
    (bits.count_ones() == 1).then(|| rates.get(bits.trailing_zeros() as usize).copied())?
}

/// Number and timestamp of a media packet.
pub(super) fn media(bytes: &[u8]) -> Option<(u16, u32)> {
    match *bytes {
        [first, _, a, b, c, d, e, f, ..] if first >> 6 == 2 => {
            Some((u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_s_rate_is_that_of_its_codec() {
        let rate = |codec: &[u8]| {
            let mut stream = Stream::default();
            let body = [&[0x10, 3, 4, 8, 1, 0, 7, codec.len() as u8], codec].concat();
            assert!(!stream.signal(&body));
            stream.hz
        };
        assert_eq!(rate(&[0, 0, 0x21, 0x15, 2, 53]), 44_100);
        assert_eq!(rate(&[0, 0, 0x11, 0x15, 2, 53]), 48_000);
        assert_eq!(rate(&[0, 2, 0x80, 0x01, 0x00, 0, 0, 0]), 44_100);
        assert_eq!(rate(&[0, 2, 0x80, 0x00, 0x80, 0, 0, 0]), 48_000);
        // It is told anew while the stream is open, if the other end accepts that.
        let mut stream = Stream::default();
        stream.signal(&[0x10, 3, 4, 8, 1, 0, 7, 6, 0, 0, 0x11, 0x15, 2, 53]);
        stream.signal(&[0x20, 5, 4, 7, 6, 0, 0, 0x21, 0x15, 2, 53]);
        stream.signal(&[0x23, 5, 7, 0x29]);
        assert_eq!(stream.hz, 48_000);
        stream.signal(&[0x30, 5, 4, 7, 6, 0, 0, 0x21, 0x15, 2, 53]);
        stream.signal(&[0x32, 5]);
        assert_eq!(stream.hz, 44_100);
        // Without its codec, and with one that is not known.
        stream.signal(&[0x40, 5, 4, 4, 0]);
        stream.signal(&[0x42, 5]);
        assert_eq!(stream.hz, 44_100);
        stream.signal(&[0x50, 5, 4, 7, 3, 0, 0xff, 1]);
        stream.signal(&[0x52, 5]);
        assert_eq!(stream.hz, 0);
        // What a device can do is no choice; a vendor's codec; one that is cut off.
        for not in [&[0, 0, 0xff, 0xff, 2, 53][..], &[0, 0xff, 1, 2, 3], &[0, 0]] {
            assert_eq!(rate(not), 0, "{not:?}");
        }
    }
}

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

/// No command that matters here is longer.
const MOST_BYTES: usize = 672;

/// A stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Stream {
    /// The endpoints (SEID) that it has where each direction arrives; 0: not seen.
    pub(super) ends: [u8; 2],
    /// Samples a second; 0: not known.
    pub(super) hz: u32,
    /// Whether the channel that is asked for next has its media.
    is_opened: bool,
}

/// The streams of a link, in the order they were opened. No endpoint has two at once.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    asked: Vec<Asked>,
}

/// A command that waits for its answer.
#[derive(Debug)]
struct Asked {
    way: usize,
    label: u8,
    signal: u8,
    body: Vec<u8>,
}

impl Streams {
    /// Takes a signal. Tells the streams whose media starts or ends with it.
    pub(super) fn signal(&mut self, way: usize, bytes: &[u8]) -> Vec<Stream> {
        // Signals in several packets have no media codec that is known here.
        let [header, signal, body @ ..] = bytes else { return Vec::new() };
        if header >> 2 & 3 != 0 {
            return Vec::new();
        }
        let (label, kind, signal) = (header >> 4, header & 3, signal & 0x3f);
        if kind == COMMAND {
            self.asked.retain(|asked| (asked.way, asked.label) != (way, label));
            let body = body[..body.len().min(MOST_BYTES)].to_vec();
            self.asked.push(Asked { way, label, signal, body });
            return Vec::new();
        }
        // Each end numbers its own commands (section 8.4.1). One that is refused changes nothing.
        let is_it = |asked: &Asked| (asked.way, asked.label, asked.signal) == (1 - way, label, signal);
        let asked = self.asked.iter().position(is_it).map(|place| self.asked.swap_remove(place));
        if kind != ACCEPT {
            return Vec::new();
        }
        self.accepted(1 - way, signal, &asked.map(|asked| asked.body).unwrap_or_default())
    }

    /// Packets of the log were lost, perhaps answers. No rate is known any more: each stream may have been suspended,
    /// configured anew and started.
    pub(super) fn lost(&mut self) {
        self.asked.clear();
        self.all.iter_mut().for_each(|stream| stream.hz = 0);
    }

    /// The stream whose media the channel has that is asked for next.
    pub(super) fn opened(&mut self) -> Option<Stream> {
        let opened = self.all.iter_mut().find(|stream| stream.is_opened)?;
        opened.is_opened = false;
        Some(*opened)
    }

    /// The rate of the stream that has these endpoints.
    pub(super) fn hz(&self, ends: [u8; 2]) -> u32 {
        self.all.iter().find(|stream| stream.ends == ends).map_or(0, |stream| stream.hz)
    }

    /// A command is granted, of which `body` is empty if the log lacks it.
    fn accepted(&mut self, way: usize, signal: u8, body: &[u8]) -> Vec<Stream> {
        // It names the endpoint of who got it, and to configure it first also that of who sent it. None is 0.
        let there = body.first().map(|end| end >> 2).filter(|&end| end > 0);
        let is_its = |stream: &Stream| there == Some(stream.ends[way]);
        let here = body.get(1).map(|end| end >> 2).filter(|&end| end > 0);
        match (signal, there.zip(here)) {
            (SET_CONFIGURATION, Some((there, here))) => {
                let mut ends = [there; 2];
                ends[1 - way] = here;
                self.all.retain(|stream| (0..2).all(|way| stream.ends[way] != ends[way]));
                self.all.push(Stream { ends, hz: sampling(&body[2..]).unwrap_or(0), ..Stream::default() });
            }
            (RECONFIGURE, _) if self.all.iter().any(is_its) => {
                let its = self.all.iter_mut().filter(|stream| is_its(stream));
                // What stays as it was may be absent (section 8.11).
                its.for_each(|stream| stream.hz = sampling(&body[1..]).unwrap_or(stream.hz));
            }
            // Of which stream, the log lacks.
            (SET_CONFIGURATION | RECONFIGURE, _) => self.all.iter_mut().for_each(|stream| stream.hz = 0),
            (OPEN, _) => {
                let mut ends = [0; 2];
                ends[way] = there.unwrap_or(0);
                let known = there.and_then(|there| self.take(way, there));
                self.all
                    .push(Stream { is_opened: true, ..known.unwrap_or_else(|| Stream { ends, ..Stream::default() }) });
            }
            (CLOSE | ABORT, _) => drop(there.and_then(|there| self.take(way, there))),
            (START | SUSPEND, _) => return self.named(way, body),
            _ => {}
        }
        Vec::new()
    }

    fn take(&mut self, way: usize, end: u8) -> Option<Stream> {
        let place = self.all.iter().position(|stream| stream.ends[way] == end)?;
        Some(self.all.remove(place))
    }

    /// The streams of these endpoints, which start or are suspended; if one is of none that is known, it may be any.
    fn named(&self, way: usize, ends: &[u8]) -> Vec<Stream> {
        let is_of = |stream: &Stream, end: u8| stream.ends[way] == end >> 2;
        let is_known = |end: &u8| self.all.iter().any(|stream| is_of(stream, *end));
        let may_be_any = ends.is_empty() || !ends.iter().all(is_known);
        let its = |stream: &&Stream| may_be_any || ends.iter().any(|&end| is_of(stream, end));
        self.all.iter().filter(its).copied().collect()
    }
}

/// Samples a second, from the capabilities that a stream was configured with; 0: not known. `None`: its codec is not
/// among them.
fn sampling(mut capabilities: &[u8]) -> Option<u32> {
    while let [category, length, rest @ ..] = capabilities {
        // What was not kept may be the codec.
        let Some((value, rest)) = rest.split_at_checked((*length).into()) else { return Some(0) };
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

    const SBC_48: [u8; 8] = [7, 6, 0, 0, 0x11, 0x15, 2, 53];
    const SBC_44: [u8; 8] = [7, 6, 0, 0, 0x21, 0x15, 2, 53];
    /// Of message types, beside ACCEPT.
    const REJECT: u8 = 3;

    /// A command that goes one way, and its answer.
    fn asks(streams: &mut Streams, way: usize, (signal, answer): (u8, u8), body: &[u8]) -> Vec<[u8; 2]> {
        assert_eq!(streams.signal(way, &[&[0x10, signal], body].concat()), []);
        streams.signal(1 - way, &[0x10 | answer, signal]).iter().map(|stream| stream.ends).collect()
    }

    /// A stream between the endpoints 1 of who asked for it, and 2.
    fn stream(codec: &[u8]) -> Streams {
        let mut streams = Streams::default();
        asks(&mut streams, 0, (SET_CONFIGURATION, ACCEPT), &[&[2 << 2, 1 << 2, 1, 0], codec].concat());
        streams
    }

    #[test]
    fn a_stream_s_rate_is_that_of_its_codec() {
        let rate = |codec: &[u8]| stream(&[&[7, codec.len() as u8], codec].concat()).hz([2, 1]);
        assert_eq!(rate(&[0, 0, 0x21, 0x15, 2, 53]), 44_100);
        assert_eq!(rate(&[0, 0, 0x11, 0x15, 2, 53]), 48_000);
        assert_eq!(rate(&[0, 2, 0x80, 0x01, 0x00, 0, 0, 0]), 44_100);
        assert_eq!(rate(&[0, 2, 0x80, 0x00, 0x80, 0, 0, 0]), 48_000);
        // What a device can do is no choice; a vendor's codec; one that is cut off.
        for not in [&[0, 0, 0xff, 0xff, 2, 53][..], &[0, 0xff, 1, 2, 3], &[0, 0]] {
            assert_eq!(rate(not), 0, "{not:?}");
        }
    }

    #[test]
    fn a_rate_is_told_anew_while_the_stream_is_open() {
        let anew = |answer: u8, codec: &[u8]| {
            let mut streams = stream(&SBC_48);
            asks(&mut streams, 0, (RECONFIGURE, answer), &[&[2 << 2], codec].concat());
            streams.hz([2, 1])
        };
        assert_eq!((anew(REJECT, &SBC_44), anew(ACCEPT, &SBC_44)), (48_000, 44_100));
        // Without its codec; with one that is not known; and where it may have been cut off.
        assert_eq!(anew(ACCEPT, &[4, 0]), 48_000);
        assert_eq!((anew(ACCEPT, &[7, 3, 0, 0xff, 1]), anew(ACCEPT, &SBC_44[..5])), (0, 0));
        // The log lacks the command.
        let mut streams = stream(&SBC_48);
        streams.signal(1, &[0x52, RECONFIGURE]);
        assert_eq!(streams.hz([2, 1]), 0);
    }

    #[test]
    fn a_configuration_counts_when_it_is_accepted() {
        let mut streams = Streams::default();
        // Both ends ask at once, with the same label, and one is refused.
        streams.signal(0, &[&[0x10, 3, 2 << 2, 1 << 2][..], &SBC_44].concat());
        streams.signal(1, &[&[0x10, 3, 1 << 2, 2 << 2][..], &SBC_48].concat());
        streams.signal(1, &[0x12, 3]);
        streams.signal(0, &[0x13, 3, 1, 0x13]);
        assert_eq!((streams.hz([2, 1]), streams.all.len()), (44_100, 1));
        // An answer of another label, and one behind what the log lost, grant nothing.
        streams.signal(0, &[&[0x20, 5, 2 << 2][..], &SBC_48].concat());
        streams.signal(1, &[0x33, 5]);
        streams.lost();
        streams.signal(1, &[0x22, 5]);
        assert_eq!(streams.hz([2, 1]), 0);
    }

    #[test]
    fn each_stream_has_its_own_rate_and_starts_by_itself() {
        let mut streams = stream(&SBC_44);
        asks(&mut streams, 0, (SET_CONFIGURATION, ACCEPT), &[&[4 << 2, 3 << 2][..], &SBC_48].concat());
        assert_eq!((streams.hz([2, 1]), streams.hz([4, 3])), (44_100, 48_000));
        // Media is of the stream that was opened.
        asks(&mut streams, 0, (OPEN, ACCEPT), &[4 << 2]);
        assert_eq!(streams.opened().map(|stream| stream.ends), Some([4, 3]));
        assert_eq!(streams.opened(), None);
        // Who gets a command is named by its own endpoint.
        assert_eq!(asks(&mut streams, 0, (START, ACCEPT), &[4 << 2]), [[4, 3]]);
        assert_eq!(asks(&mut streams, 1, (SUSPEND, ACCEPT), &[1 << 2]), [[2, 1]]);
        assert_eq!(asks(&mut streams, 0, (START, REJECT), &[4 << 2]), [[0; 2]; 0]);
        assert_eq!(asks(&mut streams, 0, (START, ACCEPT), &[2 << 2, 4 << 2]).len(), 2);
        assert_eq!(asks(&mut streams, 0, (START, ACCEPT), &[9 << 2]).len(), 2);
        asks(&mut streams, 1, (CLOSE, ACCEPT), &[3 << 2]);
        assert_eq!((streams.hz([2, 1]), streams.hz([4, 3])), (44_100, 0));
    }

    #[test]
    fn an_endpoint_that_is_not_known_is_none() {
        // The log lacks how the stream was configured, so one of its ends is not known.
        let mut streams = Streams::default();
        asks(&mut streams, 0, (OPEN, ACCEPT), &[3 << 2]);
        assert_eq!(streams.all.len(), 1);
        for signal in [RECONFIGURE, CLOSE, ABORT, SET_CONFIGURATION] {
            for body in [&[][..], &[0], &[0, 0]] {
                asks(&mut streams, 1, (signal, ACCEPT), body);
                streams.signal(1, &[0x52, signal]);
                streams.signal(0, &[0x52, signal]);
            }
            assert!(streams.all.iter().any(|stream| stream.ends == [3, 0]), "{signal}");
        }
    }

    #[test]
    fn behind_a_loss_the_rate_of_no_stream_is_known() {
        let lost = |commands: &[u8]| {
            let mut streams = stream(&SBC_48);
            commands.iter().for_each(|&signal| drop(asks(&mut streams, 0, (signal, ACCEPT), &[2 << 2])));
            streams.lost();
            streams.hz([2, 1])
        };
        assert_eq!([lost(&[]), lost(&[OPEN]), lost(&[OPEN, START]), lost(&[OPEN, START, SUSPEND])], [0; 4]);
    }
}

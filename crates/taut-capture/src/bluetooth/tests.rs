//! What events tell of links, packet by packet.

mod hidden;

use taut_event::{Att, AttKind, Closed, Event, Flow, FlowId, L2cap, RadioLink, Sink, VantageId, What};
use taut_time::Instant;

use super::Bluetooth;
use crate::counts::Counts;
use crate::packet::{LinkType, Packet};

/// A log with the events that came of it.
struct Log {
    bluetooth: Bluetooth,
    counts: Counts,
    told: Told,
    frame: u64,
    lost: u64,
}

#[derive(Default)]
struct Told(Vec<L2cap>);

impl Sink for Told {
    fn flow(&mut self, _: FlowId, _: &Flow) {}

    fn close(&mut self, _: FlowId, _: Closed) {}

    fn event(&mut self, event: &Event) {
        if let What::L2cap(what) = event.what {
            self.0.push(what);
        }
    }
}

const NONE_HIDDEN: L2cap = L2cap::Hidden { of_link: false, of_any: false };

/// LE Connection Complete of handle 64, and Connection Complete of it.
const LE_LINK: [u8; 22] = [4, 0x3e, 19, 1, 0, 0x40, 0, 1, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 42, 0, 0];
const CLASSIC_LINK: [u8; 14] = [4, 0x03, 11, 0, 0x40, 0, 1, 2, 3, 4, 5, 6, 1, 0];

impl Log {
    fn new() -> Self {
        let (bluetooth, counts, told) = (Bluetooth::new(0), Counts::default(), Told::default());
        Self { bluetooth, counts, told, frame: 0, lost: 0 }
    }

    fn packet(&mut self, is_received: bool, bytes: &[u8]) {
        self.frame += 1;
        let packet = Packet {
            frame: self.frame,
            at: Some(Instant::from_nanos(self.frame * 1_000_000)),
            link: LinkType::BTSNOOP_H4,
            bytes,
            original_length: bytes.len() as u32,
            flags: u32::from(is_received),
            lost: self.lost,
        };
        self.bluetooth.packet(&packet, VantageId(0), &mut self.counts, &mut self.told);
    }

    fn event(&mut self, bytes: &[u8]) {
        self.packet(true, bytes);
    }

    /// A packet of the channel with that identifier.
    fn acl(&mut self, is_received: bool, continues: bool, data: &[u8]) {
        let flags = if continues { 0x10 } else { 0x20 * u8::from(is_received) };
        let head = [2, 0x40, flags, data.len() as u8, 0];
        self.packet(is_received, &[&head, data].concat());
    }

    /// This host sends a PDU of a channel.
    fn sends(&mut self) {
        self.acl(false, false, &[1, 0, 0x41, 0, 9]);
    }

    /// So many packets are through.
    fn completed(&mut self, packets: u8) {
        self.event(&[4, 0x13, 5, 1, 0x40, 0, packets, 0]);
    }

    fn link(&self) -> RadioLink {
        let mut links = self.told.0.iter().rev().filter_map(|what| match what {
            L2cap::Link(link) => Some(*link),
            _ => None,
        });
        links.next().unwrap()
    }
}

#[test]
fn the_mode_of_a_link_is_told_with_its_interval_when_data_goes() {
    let mut log = Log::new();
    log.event(&CLASSIC_LINK);
    log.sends();
    assert_eq!(log.link().sniff_ns, 0);
    // 800 slots of sniff mode; refused; active again; hold mode.
    for (event, expected) in [
        ([4, 0x14, 6, 0, 0x40, 0, 2, 0x20, 3], 500_000_000),
        ([4, 0x14, 6, 0x0c, 0x40, 0, 0, 0, 0], 500_000_000),
        ([4, 0x14, 6, 0, 0x40, 0, 0, 0x20, 3], 0),
        ([4, 0x14, 6, 0, 0x40, 0, 1, 0x20, 3], 0),
    ] {
        let before = log.link();
        log.event(&event);
        assert_eq!(log.link(), before);
        log.sends();
        assert_eq!(log.link().sniff_ns, expected, "{event:?}");
    }
    // A link that was made before the log is one of BR/EDR, if it has modes.
    let mut log = Log::new();
    log.sends();
    log.event(&[4, 0x14, 6, 0, 0x40, 0, 2, 0x20, 3]);
    assert!(log.told.0.contains(&L2cap::Classic), "{:#?}", log.told.0);
    log.sends();
    assert_eq!(log.link().sniff_ns, 500_000_000);
}

#[test]
fn the_phy_that_a_link_begins_with_is_read() {
    let mut log = Log::new();
    log.event(&LE_LINK);
    log.sends();
    assert_eq!(log.link().phy, [1, 1]);
    // Answers to LE Read PHY: of no link, and of this one.
    for (answer, expected) in [
        ([4, 0x0e, 8, 1, 0x30, 0x20, 2, 0x40, 0, 3, 3], [1, 1]),
        ([4, 0x0e, 8, 1, 0x30, 0x20, 0, 0x40, 0, 2, 3], [2, 3]),
    ] {
        log.event(&answer);
        assert_eq!(log.link().phy, expected);
    }
}

/// Of three packets the log lacks one, as where a filter left it out.
#[test]
fn more_packets_through_than_went_are_missing_from_the_log() {
    let is_lost = |log: &Log| log.told.0.contains(&L2cap::Lost);
    for (went, through, expected) in [(2, [1, 1], false), (2, [1, 2], true), (2, [2, 1], true), (2, [3, 0], true)] {
        for link in [&LE_LINK[..], &CLASSIC_LINK] {
            let mut log = Log::new();
            log.event(link);
            (0..went).for_each(|_| log.sends());
            through.iter().for_each(|&packets| log.completed(packets));
            assert_eq!(is_lost(&log), expected, "{through:?} {link:?}");
        }
    }
    // Of a link that was made before the log, the controller may have had some.
    let mut log = Log::new();
    log.sends();
    log.completed(2);
    assert!(!is_lost(&log));
    // What the log itself says it lost is told once.
    log.event(&LE_LINK);
    log.sends();
    log.lost = 1;
    log.sends();
    log.completed(2);
    assert_eq!(log.told.0.iter().filter(|what| **what == L2cap::Lost).count(), 1);
}

#[test]
fn the_rest_of_a_pdu_whose_begin_the_log_lacks_is_not_malformed() {
    let rest = |log: &mut Log| [false, true].map(|is_received| log.acl(is_received, true, &[1, 2, 3]));
    let malformed = |log: &Log| log.counts.malformed;
    // Of a link that was made before the log, until a PDU begins; and behind losses.
    let mut log = Log::new();
    rest(&mut log);
    rest(&mut log);
    log.sends();
    assert_eq!((malformed(&log), log.counts.hci_other), (0, 4));
    log.acl(false, true, &[1, 2, 3]);
    assert_eq!(malformed(&log), 1);
    log.lost = 1;
    rest(&mut log);
    assert_eq!(malformed(&log), 1);
    // From a link's begin on none is missing.
    for link in [&LE_LINK[..], &CLASSIC_LINK] {
        let mut log = Log::new();
        log.event(link);
        rest(&mut log);
        assert_eq!(malformed(&log), 2);
    }
}

/// An enhanced bearer that this host asks for: 0x40 here, 0x50 there, SDUs of 128 bytes in PDUs of 64. The response
/// comes behind one with that result, if any.
fn enhanced(first: Option<u8>) -> Log {
    let mut log = Log::new();
    log.event(&LE_LINK);
    log.acl(false, false, &[14, 0, 5, 0, 0x17, 1, 10, 0, 0x27, 0, 128, 0, 64, 0, 100, 0, 0x40, 0]);
    if let Some(result) = first {
        log.acl(true, false, &[12, 0, 5, 0, 0x18, 1, 8, 0, 0, 0, 0, 0, 0, 0, result, 0]);
    }
    log.acl(true, false, &[14, 0, 5, 0, 0x18, 1, 10, 0, 128, 0, 64, 0, 100, 0, 0, 0, 0x50, 0]);
    log
}

/// A Write Command of 125 bytes in two PDUs.
fn writes(log: &mut Log) {
    let mut sdu = [0x11; 130];
    sdu[..5].copy_from_slice(&[128, 0, 0x52, 5, 0]);
    for part in sdu.chunks(64) {
        log.acl(false, false, &[&[part.len() as u8, 0, 0x50, 0], part].concat());
    }
}

fn written(log: &Log) -> Vec<Att> {
    let of = log.told.0.iter().filter_map(|what| match what {
        L2cap::Att(att) => Some(*att),
        _ => None,
    });
    of.collect()
}

const WRITTEN: Att = Att { kind: AttKind::WriteCommand, handle: Some(5), bytes: 125 };

#[test]
fn a_value_is_as_long_as_its_sdu_says() {
    let mut log = enhanced(None);
    writes(&mut log);
    writes(&mut log);
    assert_eq!(written(&log), [WRITTEN; 2]);
}

#[test]
fn channels_that_are_pending_are_opened_by_the_next_response() {
    let opens = |first| enhanced(Some(first)).told.0.iter().any(|what| matches!(what, L2cap::Opened { .. }));
    assert!([0x0d, 0x0e, 0x0f].into_iter().all(opens));
    assert!(!opens(4) && !opens(0x0c));
}

/// After a loss payload is not read as an SDU's length and opcode; a value in one PDU shows that it is a whole one.
#[test]
fn where_sdus_begin_is_found_again_after_a_loss() {
    let mut log = enhanced(None);
    writes(&mut log);
    log.lost = 1;
    // The rest of a value whose begin was lost, and two whole ones.
    log.acl(false, false, &[66, 0, 0x50, 0].into_iter().chain([0x11; 66]).collect::<Vec<_>>());
    writes(&mut log);
    assert_eq!(written(&log), [WRITTEN]);
    log.acl(false, false, &[10, 0, 0x50, 0, 8, 0, 0x52, 5, 0, 1, 2, 3, 4, 5]);
    writes(&mut log);
    assert_eq!(written(&log), [WRITTEN, Att { bytes: 5, ..WRITTEN }, WRITTEN]);
}

fn losses(log: &Log) -> usize {
    log.told.0.iter().filter(|what| **what == L2cap::Lost).count()
}

/// PDUs that are missing without a word: an SDU would be longer than it says, or than the channel takes.
#[test]
fn an_sdu_that_can_not_be_shows_that_pdus_are_missing() {
    let last = |log: &mut Log| log.acl(false, false, &[2, 0, 0x50, 0, 0x11, 0x11]);
    let mut log = enhanced(None);
    writes(&mut log);
    // The first of three PDUs of the next value comes, and none of its others.
    let first: Vec<u8> = [64, 0, 0x50, 0, 128, 0, 0x52, 5, 0].into_iter().chain([0x11; 59]).collect();
    log.acl(false, false, &first);
    assert_eq!(losses(&log), 0);
    writes(&mut log);
    assert_eq!(losses(&log), 1, "{:?}", log.told.0);
    // The rest of one comes whose begin is missing: 0x1111 bytes are more than 128.
    let mut log = enhanced(None);
    last(&mut log);
    assert_eq!((losses(&log), written(&log).len()), (1, 0));
    // After L2CAP_CREDIT_BASED_RECONFIGURE_REQ they may be less.
    let mut log = enhanced(None);
    log.acl(false, false, &[10, 0, 5, 0, 0x19, 2, 6, 0, 0, 32, 64, 0, 0x40, 0]);
    last(&mut log);
    assert_eq!(losses(&log), 0);
}

/// The answer of a request that the log lacks is not that of the next one with the same identifier.
#[test]
fn an_identifier_that_is_used_again_is_of_the_newer_request() {
    let asks = |log: &mut Log, source: u8| {
        log.acl(false, false, &[14, 0, 5, 0, 0x14, 1, 10, 0, 0x80, 0, source, 0, 128, 0, 64, 0, 100, 0]);
    };
    let mut log = Log::new();
    log.event(&LE_LINK);
    asks(&mut log, 0x40);
    asks(&mut log, 0x41);
    log.acl(true, false, &[14, 0, 5, 0, 0x15, 1, 10, 0, 0x50, 0, 128, 0, 64, 0, 100, 0, 0, 0]);
    log.acl(true, false, &[6, 0, 0x41, 0, 4, 0, 1, 2, 3, 4]);
    let said = |wanted: fn(&L2cap) -> bool| log.told.0.iter().filter(|what| wanted(what)).count();
    assert_eq!(said(|what| matches!(what, L2cap::Asked)), 2);
    assert_eq!(said(|what| matches!(what, L2cap::Opened { .. })), 1);
    // What comes is of the channel that was opened: it ends an SDU.
    assert_eq!(said(|what| matches!(what, L2cap::Packet(acl) if acl.ends_sdu)), 1);
    assert_eq!(said(|what| matches!(what, L2cap::Ended { .. })), 1);
}

/// An exchange of the MTU may be among what was lost.
#[test]
fn a_channel_that_was_not_seen_before_a_loss_is_told_of_it() {
    let notifies = [4, 0, 4, 0, 0x1b, 3, 0, 9];
    for is_lossy in [false, true] {
        let mut log = Log::new();
        log.event(&LE_LINK);
        log.lost = u64::from(is_lossy);
        log.acl(false, false, &notifies);
        log.acl(false, false, &notifies);
        assert_eq!(losses(&log), usize::from(is_lossy));
    }
}

/// What was told last of packets that the log lacks.
fn hidden(log: &Log) -> L2cap {
    let told = log.told.0.iter().rev().find(|what| matches!(what, L2cap::Hidden { .. }));
    told.copied().unwrap_or(NONE_HIDDEN)
}

const ALL_HIDDEN: L2cap = L2cap::Hidden { of_link: true, of_any: true };

/// The controller's queue is that of the link, whatever channels its packets are of; one goes every 50 ms.
#[test]
fn packets_of_before_are_hidden_until_the_controller_is_seen_without_any() {
    for begin in [None, Some(&LE_LINK[..]), Some(&CLASSIC_LINK[..])] {
        let mut log = Log::new();
        if let Some(link) = begin {
            log.event(link);
            log.sends();
            log.completed(1);
            assert_eq!(hidden(&log), NONE_HIDDEN);
            log.lost = 1;
        }
        for _ in 0..100 {
            log.sends();
            log.frame += 48;
            log.completed(1);
            assert_eq!(hidden(&log), ALL_HIDDEN, "{begin:?}");
        }
        // It has a packet, however long: then the link is over or nearly so.
        log.sends();
        log.frame += 5_000;
        log.completed(1);
        log.frame += 900;
        log.sends();
        assert_eq!(hidden(&log), ALL_HIDDEN, "{begin:?}");
        log.completed(1);
        log.frame += 1_100;
        log.sends();
        assert_eq!(hidden(&log), NONE_HIDDEN, "{begin:?}");
        // More is through than went, after all.
        log.completed(2);
        assert_eq!((hidden(&log), log.told.0.last()), (ALL_HIDDEN, Some(&ALL_HIDDEN)), "{begin:?}");
    }
}

/// A link whose peer is out of reach goes nowhere, and has its buffers until its supervision timeout.
#[test]
fn what_a_link_without_a_sign_of_its_peer_has_may_be_hidden_longer() {
    for is_peer_heard in [false, true] {
        let mut log = Log::new();
        log.event(&LE_LINK);
        log.sends();
        log.completed(1);
        log.lost = 1;
        log.event(&[4, 0x0e, 4, 1, 0, 0, 0]);
        if is_peer_heard {
            log.acl(true, false, &[1, 0, 0x41, 0, 9]);
        }
        log.frame += 2_000;
        log.sends();
        assert_eq!(hidden(&log) == NONE_HIDDEN, is_peer_heard);
        // Another link takes the same buffers.
        log.event(&[&LE_LINK[..5], &[0x41], &LE_LINK[6..]].concat());
        log.packet(false, &[2, 0x41, 0, 5, 0, 1, 0, 0x41, 0, 9]);
        assert_eq!(hidden(&log) == L2cap::Hidden { of_link: false, of_any: true }, !is_peer_heard);
        // The first one is over.
        log.event(&[4, 0x05, 4, 0, 0x40, 0, 8]);
        assert_eq!(hidden(&log), NONE_HIDDEN);
    }
}

/// LE Read Buffer Size: two packets.
#[test]
fn a_controller_that_is_full_of_what_the_log_has_hides_nothing() {
    let mut log = Log::new();
    log.event(&[4, 0x0e, 7, 1, 0x02, 0x20, 0, 251, 0, 2]);
    log.sends();
    assert_eq!(hidden(&log), ALL_HIDDEN);
    log.sends();
    assert_eq!(hidden(&log), NONE_HIDDEN);
}

/// The link may have changed meanwhile, or be another one of the same handle.
#[test]
fn behind_a_loss_nothing_is_known_of_a_link_until_it_is_told_again() {
    let mut log = Log::new();
    log.event(&LE_LINK);
    // LE 2M, and 251 bytes.
    log.event(&[4, 0x3e, 6, 12, 0, 0x40, 0, 2, 2]);
    log.event(&[4, 0x3e, 11, 7, 0x40, 0, 251, 0, 0, 0, 251, 0, 0, 0]);
    log.sends();
    let known = log.link();
    assert_eq!((known.phy, known.length, known.interval_ns, known.from_start), ([2; 2], [251; 2], 30_000_000, true));
    log.lost = 1;
    log.sends();
    let lost = log.link();
    assert_eq!((lost.phy, lost.length, lost.interval_ns, lost.from_start), ([1; 2], [27; 2], 0, false));
    // LE Connection Update Complete: 400 ms.
    log.event(&[4, 0x3e, 10, 3, 0, 0x40, 0, 0x40, 1, 0, 0, 42, 0]);
    assert_eq!((log.link().interval_ns, log.link().from_start), (400_000_000, false));
}

/// A channel of BR/EDR from 0x40 here to 0x41 there.
fn classic_channel(log: &mut Log, psm: u8) {
    log.acl(false, false, &[8, 0, 1, 0, 2, 1, 4, 0, psm, 0, 0x40, 0]);
    log.acl(true, false, &[12, 0, 1, 0, 3, 1, 8, 0, 0x41, 0, 0x40, 0, 0, 0, 0, 0]);
    log.acl(false, false, &[8, 0, 1, 0, 4, 2, 4, 0, 0x41, 0, 0, 0]);
    log.acl(true, false, &[10, 0, 1, 0, 5, 2, 6, 0, 0x40, 0, 0, 0, 0, 0]);
    log.acl(true, false, &[8, 0, 1, 0, 4, 3, 4, 0, 0x40, 0, 0, 0]);
    log.acl(false, false, &[10, 0, 1, 0, 5, 3, 6, 0, 0x41, 0, 0, 0, 0, 0]);
}

/// A frame of RFCOMM on the channel.
fn frame(log: &mut Log, is_received: bool, bytes: &[u8]) {
    let cid = if is_received { 0x40 } else { 0x41 };
    log.acl(is_received, false, &[&[bytes.len() as u8, 0, cid, 0], bytes].concat());
}

/// A connection of RFCOMM, DLCI 10, is opened without PN in the log.
fn rfcomm(lost_before: bool) -> Log {
    let mut log = Log::new();
    log.event(&CLASSIC_LINK);
    classic_channel(&mut log, 3);
    log.lost = u64::from(lost_before);
    frame(&mut log, false, &[0x2b, 0x3f, 1, 0x9c]);
    frame(&mut log, true, &[0x2b, 0x73, 1, 0x9c]);
    log
}

fn told(log: &Log, what: L2cap) -> usize {
    log.told.0.iter().filter(|&&told| told == what).count()
}

const GOES: L2cap = L2cap::Stopped { is_stopped: false };

#[test]
fn whether_credits_were_agreed_on_is_not_known_where_the_log_may_lack_it() {
    let (whole, lossy) = (rfcomm(false), rfcomm(true));
    assert_eq!((told(&whole, GOES), told(&whole, L2cap::NotCounted)), (2, 0));
    assert_eq!((told(&lossy, GOES), told(&lossy, L2cap::NotCounted)), (0, 1));
    // Frames with the P/F bit have credits, so these were agreed on.
    let mut log = rfcomm(false);
    frame(&mut log, true, &[0x2b, 0xff, 1, 7, 0x9c]);
    assert_eq!((told(&log, L2cap::NotCounted), told(&log, L2cap::Credits { count: 7 })), (1, 1));
    // The answer to PN was lost: what it allows, and whether it does.
    let mut log = Log::new();
    log.event(&CLASSIC_LINK);
    classic_channel(&mut log, 3);
    frame(&mut log, false, &[3, 0xef, 0x15, 0x83, 17, 10, 0xf0, 0, 0, 127, 0, 0, 7, 0x9c]);
    log.lost = 1;
    frame(&mut log, false, &[0x2b, 0x3f, 1, 0x9c]);
    frame(&mut log, true, &[0x2b, 0x73, 1, 0x9c]);
    assert_eq!((told(&log, GOES), log.told.0.last()), (0, Some(&L2cap::NotCounted)));
}

/// FCoff and FCon are of all connections, MSC of one.
#[test]
fn a_connection_goes_on_when_neither_it_nor_all_are_stopped() {
    let control = |log: &mut Log, command: &[u8]| {
        let head = [3, 0xef, (command.len() as u8) << 1 | 1];
        frame(log, true, &[&head, command, &[0x9c]].concat());
    };
    let status = |log: &mut Log, is_stopped: bool| control(log, &[0xe3, 5, 0x2b, 0x8d | u8::from(is_stopped) << 1]);
    let mut log = rfcomm(false);
    let stops = |log: &Log| told(log, L2cap::Stopped { is_stopped: true });
    status(&mut log, true);
    control(&mut log, &[0x63, 1]);
    control(&mut log, &[0xa3, 1]);
    assert_eq!((stops(&log), told(&log, GOES)), (3, 2));
    status(&mut log, false);
    assert_eq!((stops(&log), told(&log, GOES)), (3, 3));
    control(&mut log, &[0x63, 1]);
    status(&mut log, false);
    assert_eq!((stops(&log), told(&log, GOES)), (5, 3));
}

/// The second channel of AVDTP has media, whether or not the log has its opening. With the identifier of the first one
/// it is the first of another link.
#[test]
fn media_is_not_taken_for_signals_behind_a_loss() {
    for (source, expected) in [(0x60, [1, 1]), (0x40, [1, 0])] {
        let mut log = Log::new();
        log.event(&CLASSIC_LINK);
        classic_channel(&mut log, 0x19);
        log.lost = 1;
        log.acl(false, false, &[8, 0, 1, 0, 2, 5, 4, 0, 0x19, 0, source, 0]);
        let count = |is_it: fn(&super::Channel) -> bool| {
            log.bluetooth.channels.iter().flatten().filter(|channel| is_it(channel)).count()
        };
        let signals = count(|channel| channel.kind == taut_event::Channel::Basic(0x19));
        let media = count(|channel| matches!(channel.kind, taut_event::Channel::Media(_)));
        assert_eq!([signals, media], expected, "{source}");
    }
}

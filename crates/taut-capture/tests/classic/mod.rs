//! Links of BR/EDR: L2CAP channels, RFCOMM on one of them, and a stream of A2DP.

use taut_event::{Channel, Direction, L2cap, Turn, What};

use super::{Hci, Kept, acl, btsnoop, event, follow, pdu};

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn signal(is_received: bool, code: u8, body: &[u8]) -> Hci {
    acl(is_received, false, &pdu(1, &[&[code, 1, body.len() as u8, 0], body].concat()))
}

/// A channel that this host asks for, whose ends agree on what they take.
fn opens(psm: u16, cids: [u16; 2], options: &[u8]) -> Vec<Hci> {
    let [here, there] = cids;
    vec![
        signal(false, 2, &words(&[psm, here])),
        // Pending at first.
        signal(true, 3, &words(&[there, here, 1, 0])),
        signal(true, 3, &words(&[there, here, 0, 0])),
        signal(false, 4, &[&words(&[there, 0])[..], &[1, 2, 0xf9, 3], options].concat()),
        signal(true, 5, &words(&[here, 0, 0])),
        signal(true, 4, &words(&[here, 0])),
        signal(false, 5, &words(&[there, 0, 0])),
    ]
}

/// A frame of RFCOMM with its check sequence.
fn frame(is_received: bool, dlci: u8, control: u8, credits: Option<u8>, information: &[u8]) -> Hci {
    let head = [dlci << 2 | 3, control, (information.len() as u8) << 1 | 1];
    let payload = [&head[..], credits.as_slice(), information, &[0x55]].concat();
    acl(is_received, false, &pdu(if is_received { 0x40 } else { 0x41 }, &payload))
}

fn link() -> Vec<Hci> {
    vec![event(0x0e, &[1, 0x05, 0x10, 0, 0xfd, 3, 64, 2, 0, 0, 0]), event(0x03, &[0, 0x40, 0, 1, 2, 3, 4, 5, 6, 1, 0])]
}

/// A connection of RFCOMM: `flow` is what is asked for and agreed to.
fn connects(flow: [u8; 2]) -> Vec<Hci> {
    let mut log = link();
    log.extend(opens(3, [0x40, 0x41], &[]));
    log.extend([
        frame(false, 0, 0x3f, None, &[]),
        frame(true, 0, 0x73, None, &[]),
        frame(false, 0, 0xef, None, &[0x83, 17, 2, flow[0], 0, 0, 0xf8, 3, 0, 7]),
        frame(true, 0, 0xef, None, &[0x81, 17, 2, flow[1], 0, 0, 100, 0, 0, 5]),
        frame(false, 2, 0x3f, None, &[]),
        frame(true, 2, 0x73, None, &[]),
    ]);
    log
}

/// With data both ways, credits, flow control and a media stream.
pub(super) fn log() -> Vec<Hci> {
    let mut log = connects([0xf0, 0xe0]);
    log.extend([
        frame(false, 2, 0xff, Some(33), b"four"),
        frame(true, 2, 0xff, Some(6), &[]),
        frame(true, 2, 0xef, None, b"answer"),
        event(0x13, &[1, 0x40, 0, 8, 0]),
    ]);
    log.extend(streams());
    log.push(event(0x05, &[0, 0x40, 0, 0x13]));
    log
}

/// A stream of A2DP with two media packets.
fn streams() -> Vec<Hci> {
    let avdtp = |is_received, bytes: &[u8]| acl(is_received, false, &pdu(if is_received { 0x44 } else { 0x45 }, bytes));
    let mut log = opens(0x19, [0x44, 0x45], &[]);
    log.extend([
        avdtp(false, &[0x10, 3, 4, 8, 1, 0, 7, 6, 0, 0, 0x11, 0x15, 2, 53]),
        avdtp(true, &[0x12, 3]),
        avdtp(false, &[0x20, 6, 4]),
        avdtp(true, &[0x22, 6]),
    ]);
    log.extend(opens(0x19, [0x46, 0x47], &[]));
    log.extend([avdtp(false, &[0x30, 7, 4]), avdtp(true, &[0x32, 7])]);
    let media = |n: u8| [0x80, 96, 0, n, 0, 0, n, 0, 0, 0, 0, 1, 1, 2, 3];
    log.extend([1, 2].map(|n| acl(false, false, &pdu(0x47, &media(n)))));
    log
}

/// What was told of the first channel of that kind, but for its packets' places.
fn told(kept: &Kept, is_it: impl Fn(Channel) -> bool) -> Vec<(Direction, L2cap)> {
    let mut flows = kept.flows.iter().filter_map(|(id, flow)| match flow.key {
        taut_event::FlowKey::L2cap(key) if is_it(key.channel) => Some(*id),
        _ => None,
    });
    let flow = flows.next().unwrap();
    let of = kept.events.iter().filter(|event| event.flow == flow);
    of.filter_map(|event| match event.what {
        What::L2cap(what) => Some((event.direction, what)),
        _ => None,
    })
    .collect()
}

#[test]
fn rfcomm_is_followed_from_its_opening() {
    use Direction::{Backward, Forward};
    let (kept, counts, _) = follow(&btsnoop(1002, &log()));
    assert_eq!((counts.malformed, counts.classic, counts.hci_cut), (0, 0, 0));
    let all = told(&kept, |kind| kind == Channel::Rfcomm(2));
    // Each end says what it takes: five frames may go at first, seven may come.
    let opened = L2cap::Opened { mtu: [100; 2], mps: [106; 2], credits: [5, 7] };
    assert!(all.contains(&(Forward, opened)), "{all:#?}");
    assert!(
        all.contains(&(Backward, L2cap::Credits { count: 33 }))
            && all.contains(&(Forward, L2cap::Credits { count: 6 }))
    );
    let bytes: Vec<_> = kept
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::L2cap(L2cap::Packet(acl)) => Some((event.direction, event.bytes.end - event.bytes.start, acl.turn)),
            _ => None,
        })
        .collect();
    // Neither heads, credits nor check sequences are the program's; credits alone are no packet of its.
    assert_eq!(bytes[..2], [(Forward, 4, Turn::Free), (Backward, 6, Turn::Free)]);
    // The multiplexer's packets are completed first.
    assert!(all.contains(&(Forward, L2cap::Completed { packets: 1 })), "{all:#?}");
}

#[test]
fn a_frame_in_several_packets_is_one() {
    let mut log = connects([0xf0, 0xe0]);
    let whole = pdu(0x41, &[&[2 << 2 | 3, 0xff, 8 << 1 | 1, 1][..], b"12345678", &[0x55]].concat());
    // The check sequence comes alone.
    log.extend([acl(false, false, &whole[..11]), acl(false, true, &whole[11..16]), acl(false, true, &whole[16..])]);
    let (kept, ..) = follow(&btsnoop(1002, &log));
    let parts: Vec<_> = kept
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::L2cap(L2cap::Packet(acl)) => Some((event.bytes.start, event.bytes.end, acl.begins_pdu, acl.ends_sdu)),
            _ => None,
        })
        .collect();
    assert_eq!(parts, [(0, 3, true, false), (3, 8, false, false), (8, 8, false, true)]);
}

#[test]
fn without_credits_the_receiver_may_stop_the_sender() {
    use Direction::Forward;
    let stops = |flow| {
        let mut log = connects(flow);
        let status = |signals| frame(true, 0, 0xef, None, &[0xe3, 5, 0x0b, signals]);
        log.extend([status(0x8f), status(0x8d), frame(true, 0, 0xef, None, &[0x63, 1])]);
        let (kept, ..) = follow(&btsnoop(1002, &log));
        let all = told(&kept, |kind| kind == Channel::Rfcomm(2));
        let of = all.into_iter().filter_map(|(way, what)| match what {
            L2cap::Stopped { is_stopped } if way == Forward => Some(is_stopped),
            _ => None,
        });
        of.collect::<Vec<_>>()
    };
    assert_eq!(stops([0, 0]), [false, true, false, true]);
    // One end does not know credits.
    assert_eq!(stops([0xf0, 0]), [false, true, false, true]);
    // With credits the bit means nothing (RFCOMM, section 6.5.3).
    assert_eq!(stops([0xf0, 0xe0]), [false; 0]);
}

#[test]
fn what_retransmits_has_a_window_that_is_not_counted() {
    let mut log = link();
    log.extend(opens(0x1001, [0x50, 0x51], &[4, 9, 3, 8, 3, 0, 8, 0, 2, 0, 4]));
    log.extend(opens(0x1003, [0x52, 0x53], &[]));
    let (kept, ..) = follow(&btsnoop(1002, &log));
    let is_counted =
        |psm| !told(&kept, |kind| kind == Channel::Basic(psm)).contains(&(Direction::Forward, L2cap::NotCounted));
    assert!(!is_counted(0x1001) && is_counted(0x1003));
    let opened = L2cap::Opened { mtu: [672, 1017], mps: [672, 1017], credits: [0; 2] };
    assert!(told(&kept, |kind| kind == Channel::Basic(0x1003)).contains(&(Direction::Forward, opened)));
}

#[test]
fn the_channel_after_open_has_the_media() {
    let (kept, ..) = follow(&btsnoop(1002, &log()));
    let all = told(&kept, |kind| kind == Channel::Media(0x46));
    assert!(all.contains(&(Direction::Forward, L2cap::Stream { hz: 48_000 })), "{all:#?}");
    let media: Vec<_> = all
        .iter()
        .filter_map(|(_, what)| match what {
            L2cap::Media { sequence, timestamp } => Some((*sequence, *timestamp)),
            _ => None,
        })
        .collect();
    assert_eq!(media, [(1, 256), (2, 512)]);
    // The first one has the signalling.
    assert!(!told(&kept, |kind| kind == Channel::Basic(0x19)).is_empty());
}

#[test]
fn a_stream_s_rate_is_told_to_its_own_channel() {
    let avdtp = |is_received, bytes: &[u8]| acl(is_received, false, &pdu(if is_received { 0x44 } else { 0x45 }, bytes));
    let mut log = link();
    log.extend(streams());
    // A second one, of other endpoints and 44.1 kHz.
    log.extend([
        avdtp(false, &[0x40, 3, 12, 12, 1, 0, 7, 6, 0, 0, 0x21, 0x15, 2, 53]),
        avdtp(true, &[0x42, 3]),
        avdtp(false, &[0x50, 6, 12]),
        avdtp(true, &[0x52, 6]),
    ]);
    log.extend(opens(0x19, [0x48, 0x49], &[]));
    log.extend([avdtp(false, &[0x60, 7, 12]), avdtp(true, &[0x62, 7])]);
    let (kept, ..) = follow(&btsnoop(1002, &log));
    let rates = |cid: u16| {
        let all = told(&kept, |kind| kind == Channel::Media(cid));
        let of = all.into_iter().filter_map(|(_, what)| match what {
            L2cap::Stream { hz } => Some(hz),
            _ => None,
        });
        of.collect::<Vec<_>>()
    };
    // With its configuration, and with its start.
    assert_eq!((rates(0x46), rates(0x48)), (vec![48_000; 2], vec![44_100; 2]));
}

#[test]
fn a_multiplexer_is_not_forgotten_before_what_it_carries() {
    let mut log = connects([0xf0, 0xe0]);
    // Channels whose opening was not seen, more than are followed at once; frames of RFCOMM between them.
    for n in 0..600_u16 {
        log.push(acl(n % 2 == 0, false, &pdu(0x100 + n, &[1])));
        log.push(frame(false, 2, 0xef, None, b"x"));
        log.push(event(0x13, &[1, 0x40, 0, 2, 0]));
    }
    let (kept, counts, _) = follow(&btsnoop(1002, &log));
    let all = told(&kept, |kind| kind == Channel::Rfcomm(2));
    let packets = all.iter().filter(|(_, what)| matches!(what, L2cap::Packet(_))).count();
    assert!(packets == 600 && counts.evicted > 0, "{packets} {counts:?}");
}

#[test]
fn links_of_both_kinds_have_their_own_buffers() {
    // Two for BR/EDR, of which data of LE takes none; without their own, links of LE share them.
    let full = |le_buffers: u8| {
        let mut log = vec![event(0x0e, &[1, 0x02, 0x20, 0, 251, 0, le_buffers])];
        log.extend(link());
        let mut notifies = acl(false, false, &pdu(4, &[0x1b, 3, 0, 9]));
        notifies.1[1] = 0x41;
        log.extend([notifies, acl(false, false, &pdu(0x60, &[1]))]);
        let (kept, ..) = follow(&btsnoop(1002, &log));
        kept.events.iter().any(|event| matches!(event.what, What::L2cap(L2cap::Buffers { in_use: 2, of: 2 })))
    };
    assert!(!full(8) && full(0));
}

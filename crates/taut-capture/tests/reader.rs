//! Files of every form, made here byte by byte: what is read of them, and how damage ends the reading.

use std::io::{Cursor, Write};

use proptest::prelude::*;
use taut_capture::{Counts, Ending, Error, Flows, LinkType, Reader};
use taut_event::{Closed, Direction, Event, Flow, FlowId, FlowKey, Segment, Sink, VantageId, What};

mod packets;

use packets::{AT, Tcp, ethernet, followed, fragment, ipv4, ipv6, pcap, pcapng};

/// Number, time, link type and bytes of each packet, and how the reading ended.
type Read = (Vec<(u64, Option<u64>, u16, Vec<u8>)>, Ending);

fn read(file: &[u8]) -> Read {
    let mut reader = Reader::new(Cursor::new(file)).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let LinkType(link) = packet.link;
        packets.push((packet.frame, packet.at.map(|at| at.as_nanos()), link, packet.bytes.to_vec()));
    }
    (packets, reader.ending().clone())
}

fn error(file: &[u8]) -> String {
    Reader::new(Cursor::new(file)).err().expect("it is refused").to_string()
}

#[test]
fn pcap_of_both_orders_and_both_units() {
    let packet = (AT, b"0123456789".to_vec());
    let whole = vec![(1, Some(AT), 101, packet.1.clone())];
    let rounded = vec![(1, Some(AT / 1000 * 1000), 101, packet.1.clone())];
    for is_big in [false, true] {
        let file = |is_nano| pcap(is_big, is_nano, 101, std::slice::from_ref(&packet));
        assert_eq!(read(&file(true)), (whole.clone(), Ending::Complete));
        assert_eq!(read(&file(false)), (rounded.clone(), Ending::Complete));
    }
}

#[test]
fn pcapng_of_two_sections_with_clocks_of_their_own() {
    let mut file = pcapng(false, &[(1, Some(9), 0), (101, Some(0x80 | 20), 0)], &[(0, AT, &b"a"[..]), (1, AT, b"bcd")]);
    file.extend(pcapng(true, &[(113, None, 3600)], &[(0, AT, b"ef")]));
    let (packets, ending) = read(&file);
    assert_eq!(ending, Ending::Complete);
    assert_eq!(packets[0], (1, Some(AT), 1, b"a".to_vec()));
    // A binary unit of about a microsecond.
    assert_eq!((packets[1].0, packets[1].2, packets[1].3.as_slice()), (2, 101, &b"bcd"[..]));
    assert!(packets[1].1.unwrap().abs_diff(AT) < 1_000);
    assert_eq!(packets[2], (3, Some(AT / 1000 * 1000 + 3_600_000_000_000), 113, b"ef".to_vec()));
}

#[test]
fn compression_is_seen_by_content() {
    let file = pcap(false, true, 101, &vec![(AT, vec![7; 100]); 50]);
    let plain = read(&file);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&file[..1000]).unwrap();
    let mut gzip = gzip.finish().unwrap();
    // Of several members, as `cat a.gz b.gz` makes it.
    let mut rest = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    rest.write_all(&file[1000..]).unwrap();
    gzip.extend(rest.finish().unwrap());
    assert_eq!(read(&gzip), plain);

    let zstd = |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    let mut frames = zstd(&file[..1000]);
    frames.extend(zstd(&file[1000..]));
    assert_eq!(read(&frames), plain);

    // Cut off in the middle of the compressed data: what came before is read.
    let (packets, ending) = read(&gzip[..gzip.len() - 20]);
    assert!(packets.len() < 50 && !packets.is_empty(), "{}", packets.len());
    assert!(matches!(ending, Ending::Truncated { .. }), "{ending:?}");
}

/// A frame gives out what it may refer to at its end alone, which is not there.
#[test]
fn a_zstd_file_cut_anywhere_gives_what_stood_before_the_cut() {
    let packets: Vec<_> = (0..3000_u32).map(|n| (AT, n.to_le_bytes().repeat(40))).collect();
    let file = pcap(false, true, 101, &packets);
    let whole = read(&file).0;
    let zstd = ruzstd::encoding::compress_to_vec(&file[..], ruzstd::encoding::CompressionLevel::Fastest);
    let mut most = 0;
    for cut in (zstd.len() / 8..zstd.len()).step_by(zstd.len() / 50).chain(zstd.len() - 9..zstd.len()) {
        let Ok(mut reader) = Reader::new(Cursor::new(&zstd[..cut])) else {
            // Its first block is not whole.
            assert_eq!(error(&zstd[..cut]), "is cut off in its header; was it still being written, or copied in part?");
            assert!(cut < zstd.len() / 2, "{cut}");
            continue;
        };
        let mut count = 0;
        while let Some(packet) = reader.next_packet().unwrap() {
            assert_eq!(packet.bytes, whole[count].3);
            count += 1;
        }
        assert!(matches!(reader.ending(), Ending::Truncated { .. }), "{cut}: {:?}", reader.ending());
        most = most.max(count);
    }
    assert!(most > 1000, "{most} of {}", whole.len());
    // Damage is another thing.
    let mut damaged = zstd;
    let middle = damaged.len() / 2;
    damaged[middle..].fill(0xff);
    let ending = Reader::new(Cursor::new(damaged)).map(|mut reader| {
        while reader.next_packet().unwrap().is_some() {}
        reader.ending().clone()
    });
    assert!(matches!(ending, Ok(Ending::Damaged { .. })), "{ending:?}");
}

#[test]
fn a_header_that_is_not_whole_is_told_as_such() {
    let headers: [(&[u8], usize); 4] = [
        (&pcap(false, true, 101, &[]), 24),
        (&pcap(true, false, 101, &[]), 24),
        (b"btsnoop\0\0\0\0\x01\0\0\x03\xe9", 16),
        (b"snoop\0\0\0\0\0\0\x02\0\0\0\x04", 16),
    ];
    for (header, length) in headers {
        for cut in 4..length {
            assert!(error(&header[..cut]).starts_with("is cut off in its header"), "{cut} of {header:?}");
        }
    }
    assert!(error(b"text").starts_with("is no capture of packets: it begins with 74 65 78 74;"));
}

/// Whoever prints an error with its sources says nothing twice.
#[test]
fn an_error_of_reading_stands_in_its_message_alone() {
    let error = Error::from(std::io::Error::other("why"));
    assert_eq!(error.to_string(), "cannot be read: why");
    assert!(std::error::Error::source(&error).is_none());
}

#[test]
fn what_is_cut_off_or_damaged_ends_the_reading_and_is_told() {
    let packets = vec![(AT, vec![1; 20]), (AT, vec![2; 20])];
    let file = pcap(false, true, 101, &packets);
    let (read_packets, ending) = read(&file[..file.len() - 1]);
    assert_eq!((read_packets.len(), ending), (1, Ending::Truncated { at: 24 + 36 }));
    let mut damaged = file;
    damaged[24 + 36 + 8..24 + 36 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let (read_packets, ending) = read(&damaged);
    assert_eq!(read_packets.len(), 1);
    assert!(matches!(ending, Ending::Damaged { at: 60, .. }), "{ending:?}");

    let mut file = pcapng(false, &[(1, None, 0)], &[(0, AT, &b"abcd"[..]), (9, AT, b"no such interface")]);
    let (packets, ending) = read(&file);
    assert_eq!(packets.len(), 1);
    assert!(matches!(&ending, Ending::Damaged { why, .. } if why.contains("interface 9, which")), "{ending:?}");
    file.truncate(60);
    assert!(matches!(read(&file).1, Ending::Truncated { .. }));
}

#[test]
fn what_is_no_capture_says_what_it_is() {
    assert!(matches!(Reader::new(Cursor::new(b"")), Err(Error::Empty)));
    assert!(error(b"btsnoop\0\0\0\0\x01\0\0\x03\xeb").contains("btmon"));
    assert!(error(b"{\"format_version\": 1}").contains("taut report"));
    let text = error(b"hello");
    assert!(text.contains("68 65 6c 6c") && text.contains("pcapng"), "{text}");
}

/// Keeps what it is told.
#[derive(Default)]
struct Kept {
    flows: Vec<Flow>,
    events: Vec<(FlowId, Direction, Segment, u64, u64)>,
    closed: Vec<Closed>,
}

impl Sink for Kept {
    fn flow(&mut self, _: FlowId, flow: &Flow) {
        self.flows.push(*flow);
    }

    fn event(&mut self, event: &Event) {
        let What::Segment(segment) = event.what else { return };
        self.events.push((event.flow, event.direction, segment, event.bytes.start, event.bytes.end));
    }

    fn close(&mut self, _: FlowId, why: Closed) {
        self.closed.push(why);
    }
}

fn follow(link: u16, packets: &[Vec<u8>], capacity: usize) -> (Kept, Counts) {
    followed(link, packets, capacity)
}

#[test]
fn positions_count_from_the_opening_and_never_wrap() {
    let isn = u32::MAX - 50;
    let client = Tcp { from: 1, to: 2, ..Tcp::default() };
    let server = Tcp { from: 2, to: 1, ..Tcp::default() };
    let syn = client.options(&[2, 4, 5, 0xb4, 3, 3, 7, 0]);
    let packets = [
        ipv4(&Tcp { seq: isn, flags: 2, window: 1000, ..syn.clone() }, 0),
        ipv4(&Tcp { seq: 77, ack: isn.wrapping_add(1), flags: 18, window: 2000, ..server.options(&[3, 3, 2, 0]) }, 0),
        ipv4(&Tcp { seq: isn.wrapping_add(1), ack: 78, flags: 24, window: 3000, ..client.clone() }, 100),
        ipv4(&Tcp { seq: 78, ack: isn.wrapping_add(101), flags: 16, window: 4000, ..server.clone() }, 0),
        // Again, and before that.
        ipv4(&Tcp { seq: isn.wrapping_add(51), ack: 78, flags: 24, window: 3000, ..client.clone() }, 50),
    ];
    let (kept, counts) = follow(101, &packets, 10);
    assert_eq!((counts.tcp, counts.flows, kept.closed.as_slice()), (5, 1, &[Closed::EndOfSource][..]));
    let FlowKey::Tcp(first, _) = kept.flows[0].key else { panic!() };
    assert_eq!((first.port, kept.flows[0].from_start), (1, true));
    let [syn, answer, data, ack, again] = kept.events.as_slice() else { panic!("{:?}", kept.events) };
    assert_eq!((syn.1, syn.2.window, syn.2.mss, syn.3), (Direction::Forward, 1000, 1460, 1));
    assert_eq!((answer.1, answer.2.window, answer.2.ack), (Direction::Backward, 2000, 1));
    assert_eq!((data.3, data.4, data.2.window, data.2.window_is_scaled), (1, 101, 3000 << 7, true));
    assert_eq!((ack.2.ack, ack.2.window), (101, 4000 << 2));
    assert_eq!((again.3, again.4), (51, 101));
}

/// tcpdump kept 68 bytes once: Linux has the scale behind that. An absent option would mean a scale of 0.
#[test]
fn an_opening_that_is_cut_within_its_options_tells_no_scale() {
    let client = Tcp { from: 1, to: 2, ..Tcp::default() }.options(&[2, 4, 5, 0xb4, 3, 3, 7, 0]);
    let server = Tcp { from: 2, to: 1, ..Tcp::default() }.options(&[2, 4, 5, 0xb4, 3, 3, 7, 0]);
    let opening = |kept: usize| {
        let [mut syn, mut answer] = [
            ipv4(&Tcp { seq: 9, flags: 2, window: 1000, ..client.clone() }, 0),
            ipv4(&Tcp { seq: 5, ack: 10, flags: 18, window: 1000, ..server.clone() }, 0),
        ];
        syn.truncate(kept);
        answer.truncate(kept);
        let ack = ipv4(&Tcp { seq: 10, ack: 6, flags: 16, window: 100, from: 1, to: 2, ..Tcp::default() }, 0);
        let (kept, counts) = follow(101, &[syn, answer, ack], 10);
        (kept.events[0].2.mss, kept.events[2].2.window_is_scaled, kept.events[2].2.window, counts.openings_cut)
    };
    assert_eq!(opening(48), (1460, true, 100 << 7, 0));
    assert_eq!(opening(44), (0, false, 100, 2));
}

#[test]
fn without_the_opening_the_scale_is_not_known() {
    let packet = ipv4(&Tcp { seq: 5, ack: 6, flags: 16, window: 100, ..Tcp::default() }, 10);
    let (kept, _) = follow(228, &[packet], 10);
    assert_eq!((kept.events[0].2.window, kept.events[0].2.window_is_scaled, kept.events[0].3), (100, false, 1));
    assert!(!kept.flows[0].from_start);
}

/// A SYN/ACK scales only if the SYN did, so it tells its own scale alone; a SYN does not (RFC 7323, section 2.2).
#[test]
fn half_an_opening_tells_what_it_can_of_the_scale() {
    let client = Tcp { from: 1, to: 2, ..Tcp::default() };
    let server = Tcp { from: 2, to: 1, ..Tcp::default() };
    let windows = |opening: Vec<u8>| {
        let packets = [
            opening,
            ipv4(&Tcp { seq: 10, ack: 6, flags: 16, window: 100, ..client.clone() }, 0),
            ipv4(&Tcp { seq: 6, ack: 10, flags: 16, window: 100, ..server.clone() }, 0),
        ];
        let (kept, _) = follow(101, &packets, 10);
        [1, 2].map(|event: usize| kept.events[event].2.window_is_scaled.then_some(kept.events[event].2.window))
    };
    let syn = |options: &[u8]| ipv4(&Tcp { seq: 9, flags: 2, window: 1000, ..client.options(options) }, 0);
    let answer = |options: &[u8]| ipv4(&Tcp { seq: 5, ack: 10, flags: 18, window: 1000, ..server.options(options) }, 0);
    assert_eq!(windows(answer(&[3, 3, 7, 0])), [None, Some(100 << 7)]);
    assert_eq!(windows(answer(&[2, 4, 5, 0xb4])), [Some(100), Some(100)]);
    assert_eq!(windows(syn(&[3, 3, 7, 0])), [None, None]);
    assert_eq!(windows(syn(&[2, 4, 5, 0xb4])), [Some(100), Some(100)]);
}

#[test]
fn a_new_opening_between_the_same_ends_is_another_connection() {
    let syn = |seq| ipv4(&Tcp { seq, flags: 2, ..Tcp::default() }, 0);
    let (kept, counts) = follow(101, &[syn(5), syn(5), syn(900)], 10);
    assert_eq!(counts.flows, 2);
    assert_eq!(kept.closed, [Closed::Replaced, Closed::EndOfSource]);
}

/// Ports used again where the capture lacks the SYN: numbers that jump both ways, or data behind both FINs.
#[test]
fn a_connection_whose_opening_was_not_captured_is_another_one() {
    let packet = |seq, ack, flags, payload| ipv4(&Tcp { seq, ack, flags, ..Tcp::default() }, payload);
    let answer = |seq, ack, flags| {
        let to = Tcp::default();
        ipv4(&Tcp { seq, ack, flags, from: to.to, to: to.from, ..Tcp::default() }, 0)
    };
    let old = [packet(5, 900, 24, 10), answer(900, 15, 16)];
    let closing = [packet(15, 900, 17, 0), answer(900, 16, 17), packet(16, 901, 16, 0)];
    let another = |more: &[Vec<u8>]| follow(101, &[&old[..], more].concat(), 10).1.flows;
    assert_eq!(another(&[packet(1 << 30, 3 << 30, 24, 10)]), 2);
    assert_eq!(another(&[&closing[..], &[packet(1 << 20, 900, 24, 10)]].concat()), 2);
    // Holes of the capture, and what is sent again, are of the same one.
    assert_eq!(another(&[packet(1 << 26, 900, 24, 10)]), 1);
    assert_eq!(another(&[&closing[..], &old[..], &closing[..]].concat()), 1);
}

#[test]
fn of_too_many_connections_the_silent_ones_are_closed() {
    let data = |from| ipv4(&Tcp { from, seq: 1, ack: 1, flags: 16, ..Tcp::default() }, 1);
    let packets: Vec<_> = (1000..1100).flat_map(|port| [data(port), data(7)]).collect();
    let (kept, counts) = follow(101, &packets, 8);
    assert_eq!((counts.flows, counts.evicted), (101, 93));
    // The one that always had something to send is the one of its port that was opened once.
    let busy = |flow: &&Flow| matches!(flow.key, FlowKey::Tcp(first, _) if first.port == 7);
    assert_eq!(kept.flows.iter().filter(busy).count(), 1);
}

#[test]
fn headers_below_tcp_are_walked() {
    let tcp = Tcp { seq: 1, ack: 1, flags: 16, ..Tcp::default() };
    let plain = ipv4(&tcp, 10);
    let one = |link, packet: Vec<u8>| {
        let (kept, counts) = follow(link, &[packet], 10);
        (kept.events.first().map(|event| event.4 - event.3), counts)
    };
    let sll = [vec![0; 14], vec![8, 0], plain.clone()].concat();
    let sll2 = [vec![8, 0], vec![0; 18], plain.clone()].concat();
    for (link, packet) in [
        (1, ethernet(&[], &plain)),
        (1, ethernet(&[0x8100], &plain)),
        (1, ethernet(&[0x88a8, 0x8100], &plain)),
        (0, [vec![2, 0, 0, 0], plain.clone()].concat()),
        (12, plain.clone()),
        (113, sll),
        (113, [vec![0; 14], vec![0x81, 0, 0, 5, 8, 0], plain.clone()].concat()),
        (1, [vec![0; 12], vec![0x88, 0x64, 0x11, 0, 0, 1, 0, 52, 0, 0x21], plain.clone()].concat()),
        (276, sll2),
        (276, [vec![0x81, 0], vec![0; 18], vec![0, 5, 8, 0], plain.clone()].concat()),
        (276, [vec![0x88, 0x47], vec![0; 18], vec![0, 1, 1, 64], plain.clone()].concat()),
        (9, [vec![0, 0x21], plain.clone()].concat()),
        (9, [vec![0xff, 3, 0, 0x21], plain.clone()].concat()),
        (50, [vec![0xff, 3, 0, 0x57], ipv6(&[], &tcp, 10)].concat()),
        (104, [vec![0x0f, 0, 8, 0], plain.clone()].concat()),
        (239, [vec![2, 0, 0, 7, 9, 0, 10, 0], vec![b'x'; 5], vec![0; 3], vec![70, 0, 9, 0], plain.clone()].concat()),
        (258, [vec![20, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], vec![0; 8], ethernet(&[], &plain)].concat()),
        (229, ipv6(&[], &tcp, 10)),
        // Hop-by-hop and destination options of eight bytes each.
        (101, ipv6(&[0, 60], &tcp, 10)),
    ] {
        assert_eq!(one(link, packet).0, Some(10), "link type {link}");
    }
    // The total length left to the device, as of a packet that it segments: what the capture says counts.
    let mut tso = plain.clone();
    tso[2..4].fill(0);
    assert_eq!(one(101, tso).0, Some(10));
    assert_eq!(one(101, fragment(&plain)).1.fragments, 1);
    assert_eq!(one(101, plain[..30].to_vec()).1.cut, 1);
    let unknown = one(147, plain.clone()).1;
    assert_eq!((unknown.unknown_link, unknown.first_unknown_link), (1, Some(147)));
    // A header in a header of its own, one without a packet, and a field without a length.
    assert_eq!(one(258, [vec![12, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0], plain.clone()].concat()).1.unknown_link, 1);
    assert_eq!(one(239, vec![2, 0, 0, 7, 8, 0, 10, 0, 1, 1, 1, 1]).1.cut, 1);
    assert_eq!(one(239, vec![2, 0, 0, 7, 0, 0, 10, 0, 1, 1, 1, 1]).1.malformed, 1);
    // A socket that is connected to itself: nothing tells one direction from the other.
    let same = Tcp { from: 7, to: 7, ..tcp };
    let mut v6 = ipv6(&[], &same, 5);
    assert_eq!(one(101, v6.clone()).0, Some(5), "one port at two hosts");
    v6[39] = 0xfd;
    for itself in [ipv4(&same, 5), v6] {
        let (length, counts) = one(101, itself);
        assert_eq!((length, counts.to_itself, counts.tcp), (None, 1, 0));
    }
    let mut malformed = plain;
    malformed[20 + 12] = 0x10;
    assert_eq!(one(101, malformed).1.malformed, 1);
}

#[test]
fn what_came_twice_is_no_hole_and_a_subflow_is_told() {
    let acknowledges = |blocks: &[[u32; 2]]| {
        let mut options = vec![1, 1, 5, (2 + 8 * blocks.len()) as u8];
        options.extend(blocks.iter().flatten().flat_map(|number| number.to_be_bytes()));
        let packets = [(1, 2), (2, 1)]
            .map(|(from, to)| ipv4(&Tcp { from, to, seq: 1000, ack: 1000, ..Tcp::default() }.options(&options), 0));
        let segment = follow(101, &packets, 1).0.events.pop().unwrap().2;
        (segment.sacked_to > segment.ack, segment.came_twice)
    };
    assert_eq!(acknowledges(&[[1100, 1200]]), (true, 0));
    assert_eq!(acknowledges(&[[900, 1000]]), (false, 100));
    assert_eq!(acknowledges(&[[700, 800]]), (false, 100));
    // A part of what is beyond came twice, and the second block says what else is there.
    assert_eq!(acknowledges(&[[1100, 1150], [1100, 1200]]), (true, 50));
    assert_eq!(acknowledges(&[[700, 800], [1100, 1200]]), (true, 100));
    // A block that ends before it begins.
    assert_eq!(acknowledges(&[[900, 800]]), (false, 0));
    for (options, is_subflow) in [(&[30, 4, 1, 1][..], true), (&[1, 1, 1, 1], false)] {
        let opening = Tcp { flags: 2, ..Tcp::default() }.options(options);
        assert_eq!(follow(101, &[ipv4(&opening, 0)], 1).0.events[0].2.is_subflow, is_subflow);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever stands in a file: no panic, an end, and no packet from nowhere.
    #[test]
    fn any_bytes_are_read_to_an_end(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        begin in 0..5_usize,
        places in prop::collection::vec((0..400_usize, any::<u8>()), 0..8),
    ) {
        let packet = (AT, ipv4(&Tcp::default(), 10));
        let mut file = match begin {
            0 => Vec::new(),
            1 => pcap(false, true, 101, &[packet.clone(), packet]),
            2 => pcap(true, false, 1, &[packet.clone(), packet]),
            3 => pcapng(false, &[(1, Some(9), 0)], &[(0, AT, &packet.1), (0, AT, &packet.1)]),
            _ => pcapng(true, &[(101, None, 5)], &[(0, AT, &packet.1)]),
        };
        file.extend(bytes);
        for (place, byte) in places {
            if let Some(at) = file.get_mut(place) {
                *at = byte;
            }
        }
        if let Ok(mut reader) = Reader::new(Cursor::new(&file)) {
            let (mut flows, mut kept) = (Flows::new(2), Kept::default());
            while let Some(packet) = reader.next_packet().unwrap() {
                prop_assert!(packet.bytes.len() <= file.len());
                flows.packet(&packet, VantageId(0), &mut kept);
            }
            flows.finish(&mut kept);
            prop_assert_eq!(kept.flows.len(), kept.closed.len());
        }
    }
}

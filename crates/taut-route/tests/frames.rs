//! Programs on a network device, given frames that are ours, nearly ours and not ours: what they let by, drop
//! and send is what a second look at the same bytes says. Over both versions of IP, in XDP and in traffic
//! control (`BPF_PROG_TEST_RUN`). What the stack itself says of such frames is in `src/net/tests/stack.rs`.

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use support::{Random, skip};
use taut_route::bpf::{AttachPoint, Hop, KernelRoute, KernelSpec, KernelTarget, Own};
use taut_route::condition::{Layout, Program};

const SOURCES: [&str; 2] = ["192.0.2.77:9000", "[2001:db8:1:2:3:4:5:77]:9000"];
const SINKS: [&str; 2] = ["192.0.2.1:7001", "[2001:db8::1]:7001"];
const SENDERS: [&str; 2] = ["192.0.2.9:40001", "[2001:db8:ffff::9]:40001"];
/// Loopback, which is what test runs come from.
/// Ethernet addresses of the device and of the sender.
const ETHERNET: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]];
const OWN: Own = Own { ethernet: ETHERNET[0], broadcast: Some(Ipv4Addr::new(192, 0, 2, 255)) };
const HOP: Hop = Hop { ifindex: 1, own: [2, 0, 0, 0, 0, 1], next: [2, 0, 0, 0, 0, 2] };

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Remainder of the sum of 16-bit words, the last one filled up, by 65535: 0 when a checksum among
/// them is right (RFC 1071).
fn remainder(parts: &[&[u8]]) -> u64 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    words.map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u64::from(low))).sum::<u64>() % 0xffff
}

/// Where things are, by the version of IP: sender's address, own one, header of UDP.
const fn places(six: bool) -> [usize; 3] {
    if six { [22, 38, 54] } else { [26, 30, 34] }
}

/// That of a datagram's pseudo header and all of UDP.
fn remainder_of_udp(frame: &[u8], six: bool) -> u64 {
    let [sender, _, udp] = places(six);
    let length = &frame[udp + 4..udp + 6];
    let end = udp + usize::from(u16::from_be_bytes([length[0], length[1]]));
    remainder(&[&frame[sender..udp], &[0, 17], length, &frame[udp..end]])
}

/// What the checksum of UDP has to be, where `frame` has none yet. 0 is not allowed, and is what is
/// left of no sum that is not 0 itself.
fn checksum_of_udp(frame: &[u8], six: bool) -> [u8; 2] {
    (0xffff - remainder_of_udp(frame, six) as u16).to_be_bytes()
}

/// A datagram in a frame, with its checksums; over IPv4 without that of UDP.
fn datagram(ethernet: [[u8; 6]; 2], from: SocketAddr, to: SocketAddr, hops: u8, payload: &[u8]) -> Vec<u8> {
    let six = from.is_ipv6();
    let udp_length = (8 + payload.len()) as u16;
    let mut frame = ethernet.concat();
    if six {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(udp_length.to_be_bytes());
        frame.extend([17, hops]);
    } else {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((udp_length + 20).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, hops, 17, 0, 0]);
    }
    frame.extend(octets(from.ip()));
    frame.extend(octets(to.ip()));
    let udp = frame.len();
    frame.extend([from.port(), to.port(), udp_length, 0].iter().flat_map(|word| word.to_be_bytes()));
    frame.extend(payload);
    if six {
        let sum = checksum_of_udp(&frame, six);
        frame[udp + 6..udp + 8].copy_from_slice(&sum);
    } else {
        let sum = 0xffff - remainder(&[&frame[14..34]]) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// The payload of a frame that is the source's, and that the stack takes.
fn taken(frame: &[u8], source: SocketAddr, place: AttachPoint) -> Option<&[u8]> {
    let six = source.is_ipv6();
    let [sender, own, udp] = places(six);
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if frame.len() < udp + 8 {
        return None;
    }
    let is_plain = if six {
        word(12) == 0x86dd && frame[14] >> 4 == 6 && frame[20] == 17 && word(60) != 0
    } else {
        word(12) == 0x0800 && frame[14] == 0x45 && word(20) & 0x3fff == 0 && frame[23] == 17
    };
    let length = usize::from(word(udp + 4));
    let of_ip = usize::from(if six { word(18) } else { word(16) });
    let agrees = length >= 8 && of_ip == length + if six { 0 } else { 20 } && udp + length <= frame.len();
    let is_ours = frame[own..udp] == octets(source.ip()) && word(udp + 2) == source.port();
    if !(is_plain && agrees && is_ours) {
        return None;
    }
    let is_to_us = frame[..6] == ETHERNET[0] || frame[0] & 1 == 1;
    let from = &frame[sender..own];
    let is_martian = if six {
        from[0] == 0xff || from == [&[0; 15][..], &[1]].concat()
    } else {
        from[0] == 127 || from[0] >> 4 == 14 || from == [0; 4] || from == [255; 4] || from == octets(source.ip())
    };
    let is_header_whole = six || remainder(&[&frame[14..34]]) == 0;
    // One that a device is to complete looks like this; in traffic control it is known that these are none.
    let pseudo = remainder(&[&frame[sender..udp], &[0, 17], &frame[udp + 4..udp + 6]]);
    let is_to_be_completed =
        place != AttachPoint::Tc && u64::from(word(udp + 6)) % 0xffff == pseudo && word(udp + 6) != 0;
    let is_whole = !six && word(udp + 6) == 0 || is_to_be_completed || remainder_of_udp(frame, six) == 0;
    (is_to_us && !is_martian && is_header_whole && is_whole).then(|| &frame[udp + 8..udp + length])
}

/// Does something to a frame that may make it another one's, or one that the stack refuses.
fn change(frame: &mut Vec<u8>, random: &mut Random, six: bool) {
    let [sender, own, udp] = places(six);
    match random.below(24) {
        0 => {
            let at = random.below(frame.len().min(64));
            frame[at] ^= 1 << random.below(8);
        }
        // What has a header of its own between IP and UDP: options, a way, a fragment; or is ICMPv6.
        1 if six => frame[20] = [0, 43, 44, 50, 51, 58, 60, 135][random.below(8)],
        1 => frame[14] = 0x46,
        2 if !six => frame[20] ^= 0x20,
        2 => frame[60..62].fill(0),
        3 => frame.truncate(14 + random.below(frame.len() - 14)),
        // Ethernet fills up what is short.
        4 | 5 => frame.resize(frame.len() + 1 + random.below(30), 0xaa),
        // Somebody else's, everybody's, many people's.
        6 => frame[..6].copy_from_slice(&[[2, 0, 0, 0, 0, 7], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]][random.below(3)]),
        7 => {
            let senders: &[IpAddr] = if six { &STRANGE_SENDERS[..5] } else { &STRANGE_SENDERS[5..] };
            frame[sender..own].copy_from_slice(&octets(senders[random.below(senders.len())]));
            complete(frame, six);
        }
        8 => {
            frame[udp..udp + 2].copy_from_slice(&[0_u16, 7, 1023, 1024, 9000][random.below(5)].to_be_bytes());
            complete(frame, six);
        }
        // Time to live.
        9 => {
            frame[if six { 21 } else { 22 }] = [0, 1, 2, 255][random.below(4)];
            complete(frame, six);
        }
        // Damage of the payload; a checksum that is wrong, and the sum of the pseudo header in its place.
        10 | 11 => {
            complete(frame, six);
            let last = frame.len() - 1;
            frame[if random.below(2) == 0 { last } else { udp + 6 }] ^= 1 << random.below(8);
        }
        12 => {
            let pseudo = remainder(&[&frame[sender..udp], &[0, 17], &frame[udp + 4..udp + 6]]) as u16;
            frame[udp + 6..udp + 8].copy_from_slice(&pseudo.to_be_bytes());
        }
        13..18 => complete(frame, six),
        _ => {}
    }
}

const STRANGE_SENDERS: [IpAddr; 13] = {
    const fn six(words: [u16; 8]) -> IpAddr {
        let [a, b, c, d, e, f, g, h] = words;
        IpAddr::V6(std::net::Ipv6Addr::new(a, b, c, d, e, f, g, h))
    }
    const fn four(bytes: [u8; 4]) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_octets(bytes))
    }
    [
        six([0; 8]),
        six([0, 0, 0, 0, 0, 0, 0, 1]),
        six([0xff02, 0, 0, 0, 0, 0, 0, 1]),
        six([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1]),
        // The source's own.
        six([0x2001, 0xdb8, 1, 2, 3, 4, 5, 0x77]),
        four([0; 4]),
        four([0, 1, 2, 3]),
        four([127, 0, 0, 1]),
        four([224, 0, 0, 1]),
        four([255; 4]),
        four([192, 0, 2, 77]),
        // All of that network, and one that is nobody's business.
        four([192, 0, 2, 255]),
        four([240, 0, 0, 1]),
    ]
};

/// Makes the checksums right.
fn complete(frame: &mut [u8], six: bool) {
    let udp = places(six)[2];
    if !six {
        frame[24..26].fill(0);
        let sum = 0xffff - remainder(&[&frame[14..34]]) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame[udp + 6..udp + 8].fill(0);
    let sum = checksum_of_udp(frame, six);
    frame[udp + 6..udp + 8].copy_from_slice(&sum);
}

/// Whether a datagram may be answered.
fn may_be_answered(asker: SocketAddr, source: SocketAddr) -> bool {
    let is_somebody = asker.ip() != source.ip() && !asker.ip().is_unspecified();
    let is_one = OWN.broadcast.map(IpAddr::V4) != Some(asker.ip());
    let is_mapped = matches!(asker.ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    !is_mapped && asker.port() >= 1024 && asker.port() != source.port() && is_somebody && is_one
}

struct Case {
    place: AttachPoint,
    reply: bool,
    output: bool,
}

fn compare(random: &mut Random, version: usize, case: &Case, frames: usize) -> Result<[usize; 3], String> {
    let [source, sink, sender] = [SOURCES, SINKS, SENDERS].map(|all| all[version].parse::<SocketAddr>().unwrap());
    let (six, [_, _, udp]) = (source.is_ipv6(), places(source.is_ipv6()));
    let layout = Layout::new([("value".to_owned(), "i64be@0".parse().unwrap())]).unwrap();
    let outputs: &[&str] = if case.output { &["value * 3 + len"] } else { &[] };
    let program = Program::parse("value % 3 != 0", outputs, &layout).unwrap();
    let target = if case.reply { KernelTarget::Reply } else { KernelTarget::To(sink) };
    let sinks = vec![(target, case.output.then_some(0))];
    let spec = KernelSpec { own: OWN, replies: u32::MAX, ..KernelSpec::new(source, sinks) };
    let mut route = KernelRoute::load(&program, spec, case.place, "t").map_err(|error| error.to_string())?;
    route.set_hop(0, Some(HOP)).unwrap();
    let (pass, drop, send) = if case.place == AttachPoint::Tc { (u32::MAX, 2, 7) } else { (2, 1, 3) };
    let (mut seen, mut lost) = ([0; 3], 0);
    for number in 0..frames {
        let longest = if random.below(4) == 0 { 1400 } else { 60 };
        let payload: Vec<u8> = (0..random.below(longest)).map(|_| random.next() as u8).collect();
        let mut frame = datagram(ETHERNET, sender, source, 64, &payload);
        change(&mut frame, random, six);
        // Test runs of traffic control take no frame without a whole header.
        if case.place == AttachPoint::Tc && frame.len() < 64 {
            continue;
        }
        let (verdict, after) = route.test_run(&frame).map_err(|error| error.to_string())?;
        let told = format!("{:?}, frame {number}: {frame:02x?}", case.place);
        let Some(payload) = taken(&frame, source, case.place) else {
            assert_eq!((verdict, &after), (pass, &frame), "{told}");
            seen[0] += 1;
            continue;
        };
        let value = payload.first_chunk().map(|bytes| i64::from_be_bytes(*bytes));
        let Some(value) = value.filter(|value| value % 3 != 0) else {
            assert_eq!(verdict, drop, "{told}");
            seen[1] += 1;
            continue;
        };
        // Who sent it, by the frame: that may have been changed too.
        let [from, own, _] = places(six);
        let ip = if six {
            IpAddr::from(*frame[from..own].first_chunk::<16>().unwrap())
        } else {
            IpAddr::from(*frame[from..own].first_chunk::<4>().unwrap())
        };
        let asker = SocketAddr::new(ip, u16::from_be_bytes([frame[udp], frame[udp + 1]]));
        let hops = frame[if six { 21 } else { 22 }];
        if hops < 2 || case.reply && !may_be_answered(asker, source) {
            lost += 1;
            assert_eq!((verdict, route.counters().unwrap().failed), (drop, lost), "{told}");
            continue;
        }
        seen[2] += 1;
        let (to, addresses) = if case.reply {
            (asker, [*frame[6..].first_chunk().unwrap(), OWN.ethernet])
        } else {
            (sink, [HOP.next, HOP.own])
        };
        let number = value.wrapping_mul(3).wrapping_add(payload.len() as i64).to_be_bytes();
        let mut expected = datagram(addresses, source, to, hops - 1, if case.output { &number } else { payload });
        if !case.output {
            // What fills it up stays.
            expected.extend(&frame[udp + 8 + payload.len()..]);
        }
        assert_eq!(verdict, send, "{told}");
        if six && !case.output && case.place == AttachPoint::Tc {
            // Traffic control carries the checksum over: one that was wrong is as wrong afterwards.
            assert_eq!(remainder_of_udp(&after, six), remainder_of_udp(&frame, six), "{told}");
            let field = after[60..62].to_vec();
            expected[60..62].copy_from_slice(&field);
        }
        assert_eq!(after, expected, "{told}");
    }
    assert!(lost > 5, "{:?}: {lost}", case.place);
    Ok(seen)
}

#[test]
fn programs_do_with_frames_what_a_second_look_says() {
    let mut random = Random(0x5eed_0004);
    for version in [0, 1] {
        for place in [AttachPoint::XdpGeneric, AttachPoint::Tc] {
            for (reply, output) in [(true, true), (true, false), (false, true), (false, false)] {
                let case = Case { place, reply, output };
                let seen = match compare(&mut random, version, &case, 1500) {
                    Ok(seen) => seen,
                    Err(error) if error.contains("CAP_BPF") => {
                        return skip("programs_do_with_frames_what_a_second_look_says", &error);
                    }
                    Err(error) => panic!("{place:?} {}: {error}", SOURCES[version]),
                };
                println!("{place:?} {}: let by, dropped, sent: {seen:?}", SOURCES[version]);
                assert!(seen.iter().all(|count| *count > 100), "{place:?}: {seen:?}");
            }
        }
    }
}

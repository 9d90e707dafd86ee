//! Datagrams of UDP, seen at two places whose clocks are known; what is lost or missing where is known.

use std::net::{IpAddr, Ipv4Addr};

use taut_event::Address;
use taut_time::Instant;

use super::scene::Random;
use crate::join::sightings::{DatagramSighting, Sightings};
use crate::join::{DatagramLosses, Joined, NotJoined, Way, join};

/// A client at the near place and servers at the far one: questions of DNS, each from a port of its own; a
/// conversation; a stream each way; and a heartbeat that is always the same.
#[derive(Clone, Debug)]
struct Talk {
    seed: u64,
    offset: i64,
    rate_ppm: f64,
    /// Least time on the way to the servers, and back.
    ways: [u64; 2],
    jitter: u64,
    /// Of a hundred datagrams so many are lost, each way.
    lost_percent: [u64; 2],
    /// Of a hundred that pass, the near file and the far one lack so many.
    holes_percent: [u64; 2],
    has_identification: bool,
    has_heartbeat: bool,
    is_translated: bool,
    /// What the far file keeps of a payload.
    kept: usize,
}

/// Of one way, what happened to its datagrams but for the heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Truth {
    near: u64,
    lost: u64,
    /// Passed, and missing in the near file, or in the far one; the latter but for answered questions.
    missing: [u64; 2],
    answered: u64,
    overtaken: u64,
    heartbeats_lost: u64,
}

struct Packet {
    /// At the place that it leaves, and the other one.
    at: [u64; 2],
    is_there: bool,
    ports: [u16; 2],
    payload: Vec<u8>,
    identification: u16,
    transaction: Option<u16>,
    is_lost: bool,
    is_missing: [bool; 2],
    is_heartbeat: bool,
}

const BEGIN: u64 = 1_700_000_000_000_000_000;

impl Talk {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(104_729) + 1);
        Self {
            seed,
            offset: (random.next() >> (8 + random.below(40))) as i64 >> 16,
            rate_ppm: random.below(200) as f64 - 100.0,
            ways: [0; 2].map(|_| 20_000 + random.of_any_size(26)),
            jitter: random.of_any_size(24),
            lost_percent: [0; 2].map(|_| random.below(20)),
            holes_percent: [0; 2],
            has_identification: random.below(2) == 0,
            has_heartbeat: false,
            is_translated: false,
            kept: 1500,
        }
    }

    fn ahead(&self, at: u64) -> i64 {
        self.offset + (self.rate_ppm / 1e6 * (at as f64 - BEGIN as f64)) as i64
    }

    fn packets(&self) -> Vec<Packet> {
        let mut random = Random(self.seed);
        let mut packets: Vec<Packet> = Vec::new();
        let mut identification = random.next() as u16;
        let rounds = 200;
        for round in 0..rounds {
            let begin = BEGIN + round * 50_000_000 + random.below(20_000_000);
            let is_edge = round < 3 || round >= rounds - 3;
            let mut send = |at: u64, is_there: bool, ports: [u16; 2], payload: Vec<u8>, transaction: Option<u16>| {
                identification = identification.wrapping_add(1).max(1);
                let way = self.ways[usize::from(!is_there)];
                let is_it = |percent: u64, random: &mut Random| !is_edge && random.below(100) < percent;
                let is_lost = is_it(self.lost_percent[usize::from(!is_there)], &mut random);
                let came = at + way + random.below(self.jitter + 1);
                let is_missing = self.holes_percent.map(|percent| is_it(percent, &mut random));
                let is_heartbeat = payload.len() == 20 && ports[1] == 7000;
                packets.push(Packet {
                    at: [at, came],
                    is_there,
                    ports,
                    payload,
                    identification: if self.has_identification && !is_heartbeat { identification } else { 0 },
                    transaction,
                    is_lost,
                    is_missing,
                    is_heartbeat,
                });
                (!is_lost).then_some(came)
            };
            // A stream each way, of which two leave soon after each other.
            for (port, is_there) in [(6000, true), (6002, false)] {
                for half in 0..2_u64 {
                    let numbers = [round * 2 + half, self.seed, u64::from(port)];
                    let payload = numbers.iter().flat_map(|number| number.to_be_bytes()).chain([0; 136]).collect();
                    let ports = if is_there { [6100, port] } else { [port, 6100] };
                    send(begin + half * 200_000, is_there, ports, payload, None);
                }
            }
            let (id, port) = (round as u16, 10_000 + round as u16);
            let question = [&id.to_be_bytes()[..], b"0123456789 a name"].concat();
            if let Some(came) = send(begin + 5_000_000, true, [port, 53], question.clone(), Some(id)) {
                send(came + 100_000, false, [53, port], [&question[..], b" is it"].concat(), Some(id));
            }
            // Short payloads that are the same all the time but for a number.
            let ask = [&round.to_be_bytes()[..], &[7; 40]].concat();
            if let Some(came) = send(begin + 7_000_000, true, [15_000, 5001], ask.clone(), None) {
                send(came + 300_000, false, [5001, 15_000], ask, None);
            }
            if self.has_heartbeat {
                send(begin + 9_000_000, true, [6100, 7000], vec![5; 20], None);
                let between = [&round.to_be_bytes()[..], &[9; 9]].concat();
                if round % 4 != 0 {
                    send(begin + 10_000_000, true, [6100, 7000], between, None);
                }
            }
        }
        packets
    }

    fn files(&self) -> (Sightings, Sightings, [Truth; 2]) {
        let packets = self.packets();
        let [mut near, mut far]: [Vec<(u64, &Packet)>; 2] = Default::default();
        let mut truths = [Truth::default(); 2];
        for packet in &packets {
            let (left, came) = if packet.is_there { (&mut near, &mut far) } else { (&mut far, &mut near) };
            // Missing where it left, and where it came.
            let missing = if packet.is_there { [0, 1] } else { [1, 0] }.map(|file| packet.is_missing[file]);
            let truth = &mut truths[usize::from(!packet.is_there)];
            truth.heartbeats_lost += u64::from(packet.is_lost && packet.is_heartbeat);
            if !missing[0] {
                left.push((packet.at[0], packet));
                truth.near += 1;
                truth.lost += u64::from(packet.is_lost && !packet.is_heartbeat);
            }
            if !packet.is_lost && !missing[1] {
                came.push((packet.at[1], packet));
            }
            if !packet.is_lost && missing != [true; 2] {
                truth.missing[0] += u64::from(missing[0]);
                truth.missing[1] += u64::from(missing[1]);
                let answer = packets.iter().filter(|other| packet.transaction.is_some() && !other.is_there);
                let has_answer = answer
                    .clone()
                    .any(|other| other.transaction == packet.transaction && !other.is_lost && !other.is_missing[0]);
                truth.answered += u64::from(packet.is_there && missing[1] && has_answer);
            }
        }
        let mut latest = std::collections::HashMap::new();
        let both = |packet: &&Packet| !packet.is_lost && packet.is_missing == [false; 2];
        let mut sent: Vec<&Packet> = packets.iter().filter(both).collect();
        sent.sort_by_key(|packet| packet.at[0]);
        for packet in sent {
            let latest = latest.entry((packet.ports, packet.is_there)).or_insert(0);
            truths[usize::from(!packet.is_there)].overtaken += u64::from(packet.at[1] < *latest);
            *latest = packet.at[1].max(*latest);
        }
        (self.file(near, |at| at, false), self.file(far, |at| at.wrapping_add_signed(self.ahead(at)), true), truths)
    }

    fn file(&self, mut seen: Vec<(u64, &Packet)>, clock: impl Fn(u64) -> u64, is_far: bool) -> Sightings {
        seen.sort_by_key(|(at, _)| *at);
        let mut file = Sightings::new();
        file.set_resolution(1);
        for (number, (at, packet)) in seen.into_iter().enumerate() {
            let end = |is_client: bool, port: u16| {
                let is_changed = is_client && is_far && self.is_translated;
                let last = if is_changed { 77 } else { 2 - u8::from(is_client) };
                Address { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port: port + u16::from(is_changed) * 999 }
            };
            let [from, to] = packet.ports;
            let kept = if is_far { packet.payload.len().min(self.kept) } else { packet.payload.len() };
            file.add_datagram(&DatagramSighting {
                at: Instant::from_nanos(clock(at)),
                frame: number as u64 + 1,
                from: end(packet.is_there, from),
                to: end(!packet.is_there, to),
                payload: packet.payload.len() as u32,
                kept: &packet.payload[..kept],
                identification: Some(packet.identification),
                transaction: packet.transaction,
            });
        }
        file
    }

    fn joined(&self) -> (Joined, [Truth; 2]) {
        let (near, far, truths) = self.files();
        let found = join(&near, &far).unwrap_or_else(|why| panic!("{why} {self:?}"));
        let wrong = (0..200).map(|part| (found.clock.offset_ns - self.ahead(BEGIN + part * 50_000_000)).unsigned_abs());
        // The offset is that in the middle.
        assert!(wrong.min().unwrap() <= found.clock.uncertainty_ns, "{self:?}\n{found:?}");
        let [least, most] = found.clock.rate_between_ppm;
        assert!((least..=most).contains(&self.rate_ppm), "{self:?}\n{found:?}");
        (found, truths)
    }
}

fn ways(found: &Joined) -> [&DatagramLosses; 2] {
    [&found.there, &found.back].map(|way: &Way| &way.datagrams)
}

#[test]
fn losses_of_datagrams_are_the_true_ones_on_each_way() {
    let mut sums = [0; 2];
    for seed in 0..40 {
        let talk =
            Talk { is_translated: seed % 4 == 3, kept: if seed % 3 == 0 { 22 } else { 1500 }, ..Talk::random(seed) };
        let (found, truths) = talk.joined();
        assert_eq!(found.connections, 0);
        assert!(found.udp_flows > 100, "{found:?}");
        for (told, truth) in ways(&found).into_iter().zip(truths) {
            // The last ones of each way may be behind the last one that came.
            assert!(truth.near - told.datagrams <= 8, "{talk:?}\n{told:?} {truth:?}");
            assert_eq!(told.between.segments, truth.lost, "{talk:?}\n{told:?} {truth:?}");
            assert_eq!((told.not_captured, told.ambiguous, told.cut_up), ([0; 2], 0, 0), "{talk:?}\n{told:?}");
            assert_eq!(told.untold, [0; 2], "{talk:?}\n{told:?}");
            assert_eq!(told.overtaken, truth.overtaken, "{talk:?}\n{told:?} {truth:?}");
            sums = [sums[0] + truth.lost, sums[1] + truth.overtaken];
        }
        let (near, far, _) = talk.files();
        let turned = join(&far, &near).unwrap();
        assert_eq!(ways(&turned), [&found.back.datagrams, &found.there.datagrams], "{talk:?}");
    }
    assert!(sums[0] > 5000 && sums[1] > 40, "{sums:?}");
}

/// What the near file lacks came all the same; what the far one lacks looks lost, unless it was answered.
#[test]
fn what_a_file_only_lacks_is_told_where_that_can_be() {
    let mut sums = [0; 3];
    for seed in 0..20 {
        let talk = Talk { lost_percent: [0; 2], holes_percent: [10, 10], ..Talk::random(seed) };
        let (found, truths) = talk.joined();
        for (told, truth) in ways(&found).into_iter().zip(truths) {
            assert_eq!(told.not_captured, [truth.missing[0], truth.answered], "{talk:?}\n{told:?} {truth:?}");
            assert_eq!(told.between.segments, truth.missing[1] - truth.answered, "{talk:?}\n{told:?} {truth:?}");
            sums = [sums[0] + truth.missing[0], sums[1] + truth.missing[1], sums[2] + truth.answered];
        }
    }
    assert!(sums.iter().all(|&sum| sum > 200), "{sums:?}");
}

/// A heartbeat without identification is always the same: between two datagrams that are told it is, elsewhere not.
#[test]
fn datagrams_that_are_equal_are_told_by_their_order_or_left_out() {
    let mut sums = [0; 3];
    for seed in 0..20 {
        let talk = Talk { has_heartbeat: true, jitter: 0, ..Talk::random(seed) };
        let (found, truths) = talk.joined();
        for (told, truth) in ways(&found).into_iter().zip(truths) {
            let heartbeats = told.between.segments - truth.lost;
            let most = truth.heartbeats_lost;
            assert!(heartbeats <= most && most <= heartbeats + told.ambiguous, "{talk:?}\n{told:?} {truth:?}");
            assert_eq!(told.not_captured, [0; 2], "{talk:?}\n{told:?}");
            sums = [sums[0] + heartbeats, sums[1] + told.ambiguous, sums[2] + told.datagrams];
        }
        // There is a remark, and no clock rests on them.
        assert!(found.remarks.iter().any(|remark| remark.contains("which is which")), "{found:?}");
    }
    assert!(sums[0] > 40 && sums[1] > 100 && sums[2] > 10_000, "{sums:?}");
}

#[test]
fn a_stream_that_was_put_together_has_no_losses() {
    let mut talk = Talk::random(3);
    (talk.lost_percent, talk.jitter, talk.has_identification) = ([0; 2], 0, false);
    let packets = talk.packets();
    // The far place has both of a pair as one, as GRO makes them.
    let (near, _, _) = talk.files();
    let mut far: Vec<(u64, Packet)> = Vec::new();
    for packet in packets {
        let at = packet.at[usize::from(packet.is_there)];
        let is_second = packet.ports[1] == 6000 && packet.payload[7] % 4 == 1;
        match far.iter_mut().rev().find(|(_, one)| one.ports == packet.ports).filter(|_| is_second) {
            Some((_, first)) => first.payload.extend(packet.payload),
            None => far.push((at, packet)),
        }
    }
    let far = talk.file(far.iter().map(|(at, packet)| (*at, packet)).collect(), |at| at, true);
    let found = join(&near, &far).unwrap();
    let told = &found.there.datagrams;
    assert_eq!((told.between.segments, told.not_captured, told.cut_up), (0, [0; 2], 398), "{told:?}");
    assert_eq!(told.datagrams, 400);
}

#[test]
fn too_little_of_a_payload_tells_nothing() {
    let (near, far, _) = Talk { kept: 15, ..Talk::random(1) }.files();
    assert!(far.seen.is_empty() && far.cut > 1000 && matches!(join(&near, &far), Err(NotJoined::NothingInCommon)));
}

/// A thousand questions, each of a flow of its own, of which every fourth is lost; every tenth of the others is missing
/// in the near file, with its answer.
fn questions(client: impl Fn(u64) -> (u8, u16), port: u16) -> [Sightings; 2] {
    let mut packets: [Vec<(u64, Address, Address, u64)>; 2] = Default::default();
    let server = Address { ip: IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), port };
    for number in 0..1000 {
        let (host, port) = client(number);
        let client = Address { ip: IpAddr::V4(Ipv4Addr::new(10, 0, (number / 200) as u8, host)), port };
        let (at, is_lost, is_missing) = (BEGIN + number * 1_000_000, number % 4 == 2, number % 40 == 5);
        if !is_missing {
            packets[0].push((at, client, server, number));
        }
        if !is_lost {
            packets[1].push((at + 400_000, client, server, number));
            packets[1].push((at + 500_000, server, client, number));
        }
        if !is_lost && !is_missing {
            packets[0].push((at + 900_000, server, client, number));
        }
    }
    packets.map(|mut packets| {
        packets.sort_by_key(|packet| packet.0);
        file_of(&packets)
    })
}

fn file_of(packets: &[(u64, Address, Address, u64)]) -> Sightings {
    let mut file = Sightings::new();
    file.set_resolution(1);
    for (index, &(at, from, to, number)) in packets.iter().enumerate() {
        file.add_datagram(&DatagramSighting {
            at: Instant::from_nanos(at),
            frame: index as u64 + 1,
            from,
            to,
            payload: 32,
            kept: &[number.to_be_bytes(); 4].concat(),
            identification: None,
            transaction: None,
        });
    }
    file
}

/// Of flows that one file has nobody knows whether they were lost or whether the other file has a filter.
#[test]
fn datagrams_of_flows_that_only_one_file_has_are_told_by_their_service_or_counted() {
    // Each client asks more than once.
    let [near, far] = questions(|number| (1, 30_000 + number as u16), 53);
    let found = join(&near, &far).unwrap();
    let told = |told: &DatagramLosses| (told.between.segments, told.untold, told.not_captured);
    assert_eq!(ways(&found).map(told), [(250, [0; 2], [25, 0]), (25, [0; 2], [0; 2])]);
    // Each client asks once; and the service has the higher port.
    let once = |number: u64| ((number % 200) as u8 + 1, 30_000_u16);
    let from_below = |number: u64| (1, 33_000 + number as u16);
    for (port, files) in [(53, questions(once, 53)), (51_820, questions(from_below, 51_820))] {
        let [near, far] = files;
        for (one, other, is_turned) in [(&near, &far, false), (&far, &near, true)] {
            let found = join(one, other).unwrap();
            let [there, back] = if is_turned { [&found.back, &found.there] } else { [&found.there, &found.back] };
            assert_eq!(told(&there.datagrams), (0, [250, 25], [0; 2]), "{port} {is_turned} {found:?}");
            assert_eq!(told(&back.datagrams), (0, [25, 0], [0; 2]), "{port} {is_turned} {found:?}");
        }
    }
}

/// Answers that are equal to their questions and come within a millisecond do not make a file have everything twice, so
/// that equal heartbeats are no copies.
#[test]
fn an_echo_is_no_copy_and_heartbeats_are_each_their_own() {
    let [one, two] = [1, 2].map(|last| Address { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port: 4000 });
    let [mut near, mut far]: [Vec<(u64, Address, Address, u64)>; 2] = Default::default();
    for number in 0..4000 {
        let at = BEGIN + number * 100_000;
        near.push((at, one, two, u64::MAX));
        if number % 2 == 1 {
            far.push((at + 400_000, one, two, u64::MAX));
        }
        if number % 200 == 0 {
            near.extend([(at + 1000, one, two, number), (at + 900_000, two, one, number)]);
            far.extend([(at + 401_000, one, two, number), (at + 500_000, two, one, number)]);
        }
    }
    let [near, far] = [near, far].map(|mut packets| {
        packets.sort_by_key(|packet| packet.0);
        file_of(&packets)
    });
    assert!(!near.is_doubled() && !far.is_doubled());
    for (one, other, is_turned) in [(&near, &far, false), (&far, &near, true)] {
        let found = join(one, other).unwrap();
        let told = ways(&found)[usize::from(is_turned)];
        // Those between the first and the last question.
        assert_eq!((told.datagrams, told.between.segments, told.ambiguous), (20, 0, 3800), "{found:?}");
        // The far file has only every second one.
        assert!(found.remarks.iter().any(|remark| remark.starts_with("2000 packets are in both")), "{found:?}");
    }
}

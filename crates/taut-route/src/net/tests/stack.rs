//! The programs beside the stack: what it refuses they refuse, and what goes in circles ends.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::super::namespace::{Namespace, packet_socket};
use super::{Cable, FOUR, Net, SIX, receive};
use crate::route::{Declaration, Route, SinkDeclaration, Wish};
use crate::run::{Counters, Engine};

const PORT: u16 = 40_001;
const ROUTE_PORT: u16 = 9000;
const WISHES: [Wish; 3] = [Wish::User, Wish::XdpGeneric, Wish::Tc];

/// A route that answers with the datagram as it came.
fn answering(at: SocketAddr, wish: Wish, replies: Option<u32>) -> Route {
    let declaration = Declaration {
        name: "t".to_owned(),
        from: format!("udp://{at}"),
        when: "true".to_owned(),
        to: vec![SinkDeclaration { sink: "reply".to_owned(), send: None }],
        place: wish,
        replies,
        ..Declaration::default()
    };
    Route::compile(&declaration).unwrap()
}

fn start(namespace: &Namespace, route: Route) -> Engine {
    namespace.inside(|| Engine::start(vec![route]).map_err(io::Error::other)).unwrap()
}

fn counters(engine: &Engine) -> Counters {
    engine.status().remove(0).counters
}

/// The counters once nothing has moved for a while.
fn settled(engine: &Engine) -> Counters {
    let (mut last, mut since) = (counters(engine), Instant::now());
    let until = Instant::now() + Duration::from_secs(20);
    while since.elapsed() < Duration::from_millis(300) {
        assert!(Instant::now() < until, "it goes on and on: {last:?}");
        std::thread::sleep(Duration::from_millis(20));
        let now = counters(engine);
        if now.events != last.events {
            (last, since) = (now, Instant::now());
        }
    }
    counters(engine)
}

/// A frame as a sensor of ours would not send it.
#[derive(Clone, Debug)]
struct Frame {
    ethernet: [u8; 6],
    from: SocketAddr,
    hops: u8,
    /// What is added to checksums that are right: of the IPv4 header, of UDP.
    wrong: [u16; 2],
    /// The checksum of UDP is the pseudo header's sum, as in a buffer whose device is to complete it; or there is none.
    half_done: bool,
    no_sum: bool,
    length: usize,
}

fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let total: u64 = words.map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u64::from(low))).sum();
    match total % 0xffff {
        0 if total > 0 => 0xffff,
        rest => rest as u16,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

impl Frame {
    /// Its bytes, with a number in the payload.
    fn bytes(&self, sensor: [u8; 6], to: SocketAddr, number: u64) -> Vec<u8> {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(payload.len() + self.length, number as u8);
        let length = (8 + payload.len()) as u16;
        let mut udp: Vec<u8> =
            [self.from.port(), to.port(), length, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        udp.extend(payload);
        let (from, target) = (octets(self.from.ip()), octets(to.ip()));
        let pseudo = sum(&[&from, &target, &[0, 17], &length.to_be_bytes()]);
        let whole = match !sum(&[&from, &target, &[0, 17], &length.to_be_bytes(), &udp]) {
            0 => 0xffff,
            sum => sum,
        };
        let field = match (self.no_sum, self.half_done) {
            (true, _) => 0,
            (_, true) => pseudo,
            _ => whole ^ self.wrong[1],
        };
        udp[6..8].copy_from_slice(&field.to_be_bytes());
        let mut frame = [self.ethernet, sensor].concat();
        if to.is_ipv4() {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, self.hops, 17, 0, 0]);
            frame.extend([from, target].concat());
            let sum = !sum(&[&frame[14..]]) ^ self.wrong[0];
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, self.hops]);
            frame.extend([from, target].concat());
        }
        frame.extend(udp);
        frame
    }
}

/// Each of the ways in which a frame can be refused or not be answered, and some that can not.
fn frames(net: Net, own: [u8; 6]) -> Vec<Frame> {
    let good = Frame {
        ethernet: own,
        from: net.sensor(PORT),
        hops: 64,
        wrong: [0; 2],
        half_done: false,
        no_sum: false,
        length: 0,
    };
    let mut all: Vec<Frame> =
        [0, 1, 2, 3, 9, 100, 511, 700, 1400].map(|length| Frame { length, ..good.clone() }).into();
    all.push(Frame { no_sum: true, ..good.clone() });
    for bit in 0..16 {
        all.extend([[1 << bit, 0], [0, 1 << bit], [1 << bit; 2]].map(|wrong| Frame { wrong, ..good.clone() }));
    }
    for ethernet in [[2, 0, 0, 0xab, 0xcd, 0xef], [0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        all.push(Frame { ethernet, ..good.clone() });
    }
    all.extend([0, 1, 2, 3, 255].map(|hops| Frame { hops, ..good.clone() }));
    let v4 = |a, b, c, d| IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    let v6 = |text: &str| IpAddr::V6(text.parse::<Ipv6Addr>().unwrap());
    let senders = if net.route.is_ipv4() {
        vec![v4(0, 0, 0, 0), v4(127, 0, 0, 1), v4(127, 9, 9, 9), v4(224, 0, 0, 1), v4(239, 1, 1, 1)]
            .into_iter()
            .chain([v4(255, 255, 255, 255), net.route])
            .collect()
    } else {
        vec![v6("::1"), v6("ff02::1"), v6("ff0e::9"), v6("::ffff:127.0.0.1"), v6("::ffff:10.0.0.1"), net.route]
    };
    all.extend(senders.into_iter().map(|ip| Frame { from: SocketAddr::new(ip, PORT), ..good.clone() }));
    // Who answers by itself, and our own port: taken, and not answered.
    all.extend([0, 7, 53, 1023, ROUTE_PORT].map(|port| Frame { from: net.sensor(port), ..good.clone() }));
    all.push(Frame { from: net.sensor(1024), ..good });
    all
}

/// What became of frames: answered ones, and the counters.
fn answered(cable: &Cable, net: Net, wish: Wish, frames: &[Frame]) -> (BTreeSet<u64>, [u64; 4]) {
    let engine = start(&cable.route, answering(net.source(), wish, None));
    let raw = raw(cable);
    let sockets: Vec<UdpSocket> = [PORT, 1024, 1023, 7, 53, ROUTE_PORT].map(|port| cable.socket(net, port)).into();
    for (number, frame) in frames.iter().enumerate() {
        let bytes = frame.bytes(cable.sensor_hop.next, net.source(), number as u64);
        rustix::net::send(&raw, &bytes, rustix::net::SendFlags::empty()).unwrap();
    }
    let counters = settled(&engine);
    let mut answers = BTreeSet::new();
    for socket in &sockets {
        socket.set_nonblocking(true).unwrap();
        while let Some((payload, from)) = receive(socket) {
            assert_eq!(from, net.source());
            answers.insert(u64::from_be_bytes(*payload.first_chunk().unwrap()));
        }
    }
    (answers, [counters.events, counters.passed, counters.short, counters.lost])
}

fn raw(cable: &Cable) -> OwnedFd {
    cable.sensor.inside(|| packet_socket(super::Netlink::open()?.device_named("sensor0")?.index)).unwrap()
}

#[test]
fn what_the_stack_refuses_is_refused_in_every_place() {
    let Some(cable) = Cable::lay("net::what_the_stack_refuses_is_refused_in_every_place") else { return };
    for net in [FOUR, SIX] {
        let frames = frames(net, cable.sensor_hop.own);
        let [user, xdp, tc] = WISHES.map(|wish| answered(&cable, net, wish, &frames));
        let told = |(answers, _): &(BTreeSet<u64>, [u64; 4])| -> Vec<String> {
            let differs = answers.symmetric_difference(&user.0);
            differs.map(|&number| format!("{:?}", frames[number as usize])).collect()
        };
        assert_eq!((told(&xdp), told(&tc)), (vec![], vec![]), "{net:?}");
        assert_eq!((xdp.1, tc.1), (user.1, user.1), "{net:?}: events, passed, short, lost");
        println!("{net:?}: {} frames, {} answered, {:?}", frames.len(), user.0.len(), user.1);
        assert!(user.0.len() >= 12 && user.0.len() < frames.len() / 2 && user.1[3] >= 6, "{user:?}");
    }
}

/// Off a cable, one with the sum of the pseudo header for a checksum is damaged. Traffic control
/// knows that it came off a cable.
#[test]
fn a_checksum_that_looks_half_done_and_is_wrong_is_told_in_traffic_control() {
    let test = "net::a_checksum_that_looks_half_done_and_is_wrong_is_told_in_traffic_control";
    let Some(cable) = Cable::lay(test) else { return };
    for net in [FOUR, SIX] {
        let frame = Frame { half_done: true, ..frames(net, cable.sensor_hop.own).remove(0) };
        let events = WISHES.map(|wish| answered(&cable, net, wish, std::slice::from_ref(&frame)).1[0]);
        // XDP can't know: the documentation says so.
        assert_eq!(events, [0, 1, 0], "{net:?}");
    }
}

/// One datagram whose sender was made up, between two routes that answer: neither's fault, and no end without a rule.
#[test]
fn a_storm_of_two_routes_that_answer_each_other_ends() {
    let Some(cable) = Cable::lay("net::a_storm_of_two_routes_that_answer_each_other_ends") else { return };
    for net in [FOUR, SIX] {
        for (wish, other_port) in WISHES.iter().flat_map(|wish| [(*wish, 9001), (*wish, ROUTE_PORT)]) {
            let here = start(&cable.route, answering(net.source(), wish, None));
            let there = start(&cable.sensor, answering(net.sensor(other_port), wish, None));
            let frame = Frame { from: net.sensor(other_port), ..frames(net, cable.sensor_hop.own).remove(0) };
            let bytes = frame.bytes(cable.sensor_hop.next, net.source(), 1);
            rustix::net::send(raw(&cable), &bytes, rustix::net::SendFlags::empty()).unwrap();
            let events = settled(&here).events + settled(&there).events;
            // With 64 hosts to pass the 64th does not answer any more; from one port to the same
            // one the first does not.
            let expected = if other_port == ROUTE_PORT { 1 } else { 64 };
            assert_eq!(events, expected, "{net:?} {wish:?} {other_port}");
        }
    }
}

#[test]
fn there_are_no_more_replies_a_second_than_allowed() {
    let Some(cable) = Cable::lay("net::there_are_no_more_replies_a_second_than_allowed") else { return };
    for wish in WISHES {
        let engine = start(&cable.route, answering(FOUR.source(), wish, Some(5)));
        let client = cable.socket(FOUR, PORT);
        let began = Instant::now();
        for number in 0..40_u64 {
            client.send_to(&number.to_be_bytes(), FOUR.source()).unwrap();
        }
        let counters = settled(&engine);
        assert_eq!((counters.events, counters.passed), (40, 40), "{wish:?}");
        let answers = std::iter::from_fn(|| receive(&client)).count() as u64;
        assert_eq!(answers + counters.lost, 40, "{wish:?}");
        // All came within a second, or two that follow each other.
        if began.elapsed() < Duration::from_secs(2) {
            assert!((5..=10).contains(&answers), "{wish:?}: {answers}");
        }
    }
}

//! The same faults through all drivers count alike, over sockets and in virtual time.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::thread;

use taut_link::wire::DATA_HEADER_BYTES;
use taut_link::{Endpoint, Link, Numbering, clock};
use taut_time::{Duration, Framing, Instant};

use super::client::EchoClient;
use super::event_loop::EventLoop;
use super::ping_pong::PingPong;
use super::plan::{EchoPlan, RunLength, WriteStyle};
use super::samples::Samples;
use super::simulated::{self, SimulatedLink};
use super::tests::plan;
use crate::engine::EngineKind;
use crate::interrupt::Interrupt;

const MESSAGE_BYTES: usize = 32;
const _: () = assert!(MESSAGE_BYTES >= DATA_HEADER_BYTES, "a message of a session has a header");
const SESSION: u64 = 7;
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// What a peer does with a message.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Answer,
    /// The reply never comes.
    Lose,
    /// It comes so many times.
    Repeat(usize),
    /// It comes so many times, before the reply to the next message: by then it has been given up.
    Hold(usize),
    /// Beside it comes one of another session.
    Stray,
}

/// A peer that does one thing after the other.
#[derive(Clone)]
struct Script {
    deeds: VecDeque<Deed>,
    held: Vec<Vec<u8>>,
}

impl Script {
    fn new(deeds: &[Deed]) -> Self {
        Self { deeds: deeds.iter().copied().collect(), held: Vec::new() }
    }

    /// What comes back when this message has come.
    fn replies(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let reply = message.to_vec();
        let mut replies = std::mem::take(&mut self.held);
        match self.deeds.pop_front().expect("no more messages than the script has") {
            Deed::Answer => replies.push(reply),
            Deed::Lose => {}
            Deed::Repeat(times) => replies.extend(vec![reply; times]),
            Deed::Hold(times) => {
                self.held = replies.drain(..).chain(vec![reply; times]).collect();
            }
            Deed::Stray => {
                let mut stray = reply.clone();
                Numbering::of_session(Framing::Datagram, SESSION + 1).mark(&mut stray, 0);
                replies.extend([stray, reply]);
            }
        }
        replies
    }
}

/// Messages, losses, late replies, duplicates, and replies that count.
type Counts = (u64, u64, u64, u64, u64);

fn counts(samples: &Samples) -> Counts {
    let replied = samples.main().messages() - samples.lost;
    (samples.sent, samples.lost, samples.late_replies, samples.duplicates, replied)
}

/// The first deed is for the warm-up: a message that is held until it is given up is all that the warm-up has time for.
fn counted(deeds: &[Deed]) -> u64 {
    deeds.len() as u64 - 1
}

fn parity_plan() -> EchoPlan {
    // Longer than a reply takes on a busy machine.
    EchoPlan { timeout: Duration::from_secs(1), message_bytes: MESSAGE_BYTES, limit: RunLength::Count(1), ..plan() }
}

/// A link to a peer behind a socket.
fn peer(framing: Framing, deeds: &[Deed]) -> Link {
    let mut script = Script::new(deeds);
    let endpoint: Endpoint = match framing {
        Framing::Datagram => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("udp://{}", socket.local_addr().unwrap());
            thread::spawn(move || {
                let mut message = [0; MESSAGE_BYTES];
                while !script.deeds.is_empty() {
                    let (bytes, from) = socket.recv_from(&mut message).unwrap();
                    script.replies(&message[..bytes]).iter().for_each(|reply| {
                        socket.send_to(reply, from).unwrap();
                    });
                }
            });
            endpoint
        }
        Framing::Stream => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
            thread::spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.set_nodelay(true).unwrap();
                let mut message = [0; MESSAGE_BYTES];
                while !script.deeds.is_empty() {
                    stream.read_exact(&mut message).unwrap();
                    for piece in pieces(script.replies(&message)) {
                        stream.write_all(&piece).unwrap();
                    }
                }
                let _ = stream.read_to_end(&mut Vec::new());
            });
            endpoint
        }
    }
    .parse()
    .unwrap();
    Link::connect(&endpoint, Duration::from_secs(10)).unwrap()
}

/// Replies of a stream in pieces that are not theirs.
fn pieces(replies: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    replies.concat().chunks(MESSAGE_BYTES * 2 / 3).map(<[u8]>::to_vec).collect()
}

fn by_ping_pong(engine: EngineKind, numbering: Numbering, deeds: &[Deed]) -> Counts {
    let (plan, link, interrupt) = (parity_plan(), peer(numbering.framing(), deeds), Interrupt::default());
    let mut ping_pong = PingPong::new(&plan, &link, numbering, engine, WriteStyle::One, &interrupt).unwrap();
    ping_pong.warm_up().unwrap();
    ping_pong.count(counted(deeds), NEVER, clock::now()).unwrap();
    counts(&ping_pong.into_samples())
}

fn by_event_loop(engine: EngineKind, numbering: Numbering, deeds: &[Deed]) -> Counts {
    let (plan, link, interrupt) = (parity_plan(), peer(numbering.framing(), deeds), Interrupt::default());
    let links = [(&link, numbering)];
    let mut events = EventLoop::new(&plan, &links, engine, &interrupt).unwrap();
    events.warm_up().unwrap();
    events.count(counted(deeds), NEVER, clock::now()).unwrap();
    counts(&events.into_samples())
}

/// The peer beyond a link of virtual time.
struct VirtualPeer {
    now: Instant,
    framing: Framing,
    script: Script,
    coming: VecDeque<(Instant, Vec<u8>)>,
}

impl SimulatedLink for VirtualPeer {
    fn now(&self) -> Instant {
        self.now
    }

    fn write(&mut self, message: &[u8]) {
        let replies = self.script.replies(message);
        let replies = if self.framing == Framing::Stream { pieces(replies) } else { replies };
        let at = self.now + Duration::from_micros(50);
        self.coming.extend(replies.into_iter().map(|reply| (at, reply)));
    }

    fn wait(&mut self, until: Instant) -> Option<(Instant, Vec<u8>)> {
        let next = self.coming.pop_front_if(|(at, _)| *at <= until);
        self.now = next.as_ref().map_or(until, |(at, _)| (*at).max(self.now));
        next
    }

    fn is_gone(&self) -> bool {
        false
    }
}

fn in_virtual_time(numbering: Numbering, deeds: &[Deed]) -> Counts {
    let (plan, interrupt) = (parity_plan(), Interrupt::default());
    let mut client = EchoClient::new(&plan, [numbering]);
    let (now, framing) = (Instant::from_nanos(1_000_000), numbering.framing());
    let mut peer = VirtualPeer { now, framing, script: Script::new(deeds), coming: VecDeque::new() };
    client.warm_up(peer.now);
    simulated::run(&mut client, &mut peer, &interrupt).unwrap();
    client.count(counted(deeds), NEVER, peer.now);
    simulated::run(&mut client, &mut peer, &interrupt).unwrap();
    counts(&client.into_samples())
}

fn assert_alike(numbering: Numbering, deeds: &[Deed], expected: Counts) {
    let measured = thread::scope(|scope| {
        let ping_pong = [EngineKind::Blocking, EngineKind::Poll].map(|engine| {
            scope.spawn(move || (format!("ping-pong, {engine}"), by_ping_pong(engine, numbering, deeds)))
        });
        let events = [EngineKind::Epoll, EngineKind::Tokio].map(|engine| {
            scope.spawn(move || (format!("event loop, {engine}"), by_event_loop(engine, numbering, deeds)))
        });
        let measured = ping_pong.into_iter().chain(events);
        let mut measured: Vec<_> = measured.map(|thread| thread.join().unwrap()).collect();
        measured.push(("virtual time".to_owned(), in_virtual_time(numbering, deeds)));
        measured
    });
    for (driver, counts) in measured {
        assert_eq!(counts, expected, "{driver}: sent, lost, late, duplicates, replied");
    }
}

#[test]
fn the_same_faults_of_datagrams_count_alike_through_all_drivers() {
    let deeds = [
        // Of the warm-up: late, twice, and in no figure.
        Deed::Hold(2),
        Deed::Answer,
        Deed::Repeat(2),
        Deed::Lose,
        Deed::Stray,
        // Late; and late and once more.
        Deed::Hold(1),
        Deed::Answer,
        Deed::Hold(2),
        Deed::Repeat(3),
        Deed::Answer,
    ];
    assert_alike(Numbering::of_session(Framing::Datagram, SESSION), &deeds, (9, 3, 2, 1 + 1 + 2, 6));
    // A plain peer knows of no sessions.
    let plain = deeds.map(|deed| if matches!(deed, Deed::Stray) { Deed::Answer } else { deed });
    assert_alike(Numbering::plain(Framing::Datagram), &plain, (9, 3, 2, 1 + 1 + 2, 6));
}

#[test]
fn the_same_faults_of_streams_count_alike_through_all_drivers() {
    let deeds = [
        Deed::Hold(1),
        Deed::Answer,
        Deed::Answer,
        Deed::Hold(1),
        Deed::Hold(1),
        Deed::Answer,
        Deed::Hold(1),
        Deed::Answer,
    ];
    for numbering in [Numbering::of_session(Framing::Stream, SESSION), Numbering::plain(Framing::Stream)] {
        assert_alike(numbering, &deeds, (7, 3, 3, 0, 4));
    }
}

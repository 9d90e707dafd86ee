//! Sockets of Bluetooth with the channel below them: who held what the program wrote.

use taut_event::{Acl, Channel, ChannelEnd, ChannelKey, L2cap, LocalKey, LocalKind, RadioLink, Turn};

use super::*;

const CHANNEL: FlowId = FlowId(1 << 15);
const PEER: [u8; 6] = [6, 5, 4, 3, 2, 1];
/// An SDU of three PDUs.
const SDU: u64 = 672;
const INTERVAL: u64 = 30;

/// A program at its socket, and the log of the host controller interface; times in milliseconds.
struct Radio {
    story: Story,
    written: u64,
    handed_over: u64,
}

impl Radio {
    /// A channel with so many credits, opened at 0, and its socket; joined where the log `is_heard`.
    fn new(credits: u16, is_heard: bool) -> Self {
        let mut trace = Trace::new(5).with_spans(10_000);
        let key = LocalKey { kind: LocalKind::L2cap, inode: 9, ends: None };
        if is_heard {
            let key = ChannelKey { adapter: 0, handle: 64, peer: Some(PEER), channel: Channel::CreditBased(0x85) };
            let flow = Flow { key: FlowKey::L2cap(key), from_start: true, coverage: Coverage::NONE };
            trace.flow(CHANNEL, &flow);
        }
        trace.flow(FLOW, &Flow { key: FlowKey::Local(key), ..flow() });
        let mut radio = Self { story: Story(trace), written: 0, handed_over: 0 };
        let link = RadioLink {
            interval_ns: INTERVAL * MS,
            is_central: Some(true),
            phy: [1; 2],
            length: [251; 2],
            from_start: true,
            ..RadioLink::default()
        };
        radio.log(0, Way::Forward, L2cap::Link(link));
        radio.log(0, Way::Forward, L2cap::Asked);
        radio.log(0, Way::Forward, L2cap::Opened { mtu: [672; 2], mps: [247; 2], credits: [credits; 2] });
        radio
    }

    fn log(&mut self, at: u64, direction: Way, what: L2cap) -> &mut Self {
        let length = match what {
            L2cap::Packet(acl) => u64::from(acl.length) - if acl.ends_sdu { 4 } else { 5 },
            _ => 0,
        };
        let from = self.handed_over;
        self.handed_over += length;
        self.story.0.event(&Event {
            at: Instant::from_nanos(at * MS),
            seen_by: VantageId(0),
            flow: CHANNEL,
            direction,
            layer: Layer::Driver,
            what: What::L2cap(what),
            bytes: ByteRange::new(from, from + length),
            who: None,
            place: 7,
        });
        self
    }

    fn socket(&mut self, at: u64, what: What, bytes: u64) -> &mut Self {
        let from = self.written;
        self.written += bytes;
        self.story.tell(at, Way::Forward, what, (from, from + bytes));
        self
    }

    /// Tells the socket's channel.
    fn joins(&mut self, at: u64, is_nonblocking: bool) -> &mut Self {
        let end = ChannelEnd {
            adapter: Some(0),
            handle: 64,
            own: [1; 6],
            peer: PEER,
            number: 0x85,
            cids: [64, 65],
            is_nonblocking,
        };
        self.socket(at, What::IsEnd(end), 0)
    }

    fn state(&mut self, at: u64, unsent_bytes: u32, send_buffer_full: bool) -> &mut Self {
        self.socket(at, What::State(SocketState { unsent_bytes, send_buffer_full, ..SocketState::default() }), 0)
    }

    /// A write that takes no time, or until `end`.
    fn writes(&mut self, at: u64, end: u64, unsent: u32) -> &mut Self {
        self.state(at, unsent, false).begins(at);
        self.state(end, 2880, false).socket(end, What::Reached(Stamp::WriteEnd), SDU)
    }

    fn begins(&mut self, at: u64) {
        self.socket(at, What::Call(Call::Begin { number: 44 }), 0);
        self.socket(at, What::Reached(Stamp::WriteBegin), 0);
    }

    fn refused(&mut self, at: u64, is_full: bool) -> &mut Self {
        self.state(at, 2880, is_full).begins(at);
        self.socket(at, What::Call(Call::End { number: 44, result: -11 }), 0)
    }

    /// Hands over an SDU.
    fn hands_over(&mut self, at: u64) -> &mut Self {
        for length in [251, 251, 184] {
            // Of 672 bytes 245, 247 and 180: as many as the sum says.
            let acl = Acl { length: length - 8, begins_pdu: true, ends_sdu: length == 184, turn: Turn::Free };
            let acl = if length == 184 { Acl { length: 672 - 2 * 238 + 4, ..acl } } else { acl };
            self.log(at, Way::Forward, L2cap::Packet(acl));
        }
        self
    }

    fn through(&mut self, at: u64) -> &mut Self {
        self.log(at, Way::Forward, L2cap::Completed { packets: 3 })
    }

    fn end(mut self, at: u64) -> TracedDirection {
        self.log(at, Way::Forward, L2cap::Ended { tells_completions: true });
        self.story.0.close(CHANNEL, Closed::EndOfSource);
        let direction = self.story.end(at);
        let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
        assert_eq!(sum, direction.span_ns, "{direction:#?}");
        direction
    }
}

fn ns(direction: &TracedDirection, holder: Holder) -> u64 {
    direction.breakdown.iter().find(|held| held.holder == holder.name()).map_or(0, |held| held.held_ns)
}

fn found(direction: &TracedDirection) -> Vec<&str> {
    let is_found = |on: &&crate::VerdictOn| matches!(on.verdict, Verdict::Found(_));
    direction.verdicts.iter().filter(is_found).map(|on| on.cause.as_str()).collect()
}

fn evidence(direction: &TracedDirection) -> String {
    let texts = direction.verdicts.iter().flat_map(|on| match &on.verdict {
        Verdict::Found(found) => found.evidence.iter().map(|seen| seen.text.clone()).collect(),
        _ => Vec::new(),
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// Credits for one SDU at a time, which come 60 ms after it is through; the program writes `late` ms after that, or has
/// always more to write.
fn window_of_one(late: Option<u64>) -> TracedDirection {
    let mut radio = Radio::new(3, true);
    radio.writes(1, 1, 0).joins(1, true);
    let mut at = 1;
    for _ in 0..20 {
        radio.hands_over(at);
        if late.is_none() {
            radio.refused(at, false);
        }
        radio.through(at + 20).log(at + 80, Way::Forward, L2cap::Credits { count: 3 });
        at += 80 + late.unwrap_or(0);
        radio.writes(at, at, 0);
    }
    radio.end(at)
}

#[test]
fn a_program_that_has_more_waits_for_credits_and_one_that_has_not_does_not() {
    let busy = window_of_one(None);
    assert_eq!(found(&busy)[0], "credit_window", "{busy:#?}");
    assert_eq!(ns(&busy, Holder::SendingProgram), MS);
    assert!(ns(&busy, Holder::Credits) > 1100 * MS, "{busy:#?}");
    assert_eq!((busy.transport.as_str(), busy.writes, busy.refused_writes), ("l2cap", 21, 20));
    let told = evidence(&busy);
    assert!(told.contains("20 more were refused (EAGAIN), 20 of them with room"), "{told}");
    let waited: u64 = busy.waited.iter().map(|held| held.held_ns).sum();
    assert_eq!((waited, busy.waited[0].holder.as_str()), (20 * 80 * MS, "credits"));
    // The same channel and the same log but for a program that is late: from the grant on the time is its own.
    let late = window_of_one(Some(400));
    assert!(ns(&late, Holder::SendingProgram) >= 20 * 400 * MS, "{late:#?}");
    assert_eq!(found(&late)[0], "sending_program");
    assert!(late.waited.is_empty());
}

/// What the log alone takes for a wait for credits is the program's own: it writes before any come.
#[test]
fn a_program_that_writes_while_there_are_no_credits_held_the_data_until_then() {
    let mut radio = Radio::new(3, true);
    radio.writes(1, 1, 0).joins(1, true).hands_over(1).through(21);
    radio.writes(500, 500, 0).log(600, Way::Forward, L2cap::Credits { count: 3 }).hands_over(600).through(620);
    let direction = radio.end(620);
    assert_eq!(ns(&direction, Holder::SendingProgram), (1 + 500 - 21) * MS, "{direction:#?}");
    assert_eq!(ns(&direction, Holder::Credits), 100 * MS);
}

/// The channel was open before, and nobody saw its credits: those that come while the kernel takes nothing of the
/// program, with nothing of it left to send, tell that there were none.
fn opened_before(unsent: u32) -> TracedDirection {
    let mut radio = Radio::new(3, true);
    radio.log(0, Way::Forward, L2cap::NotCounted);
    radio.log(0, Way::Forward, L2cap::Link(RadioLink { phy: [1; 2], length: [251; 2], ..RadioLink::default() }));
    radio.writes(1, 1, unsent).joins(1, true);
    let mut at = 1;
    for _ in 0..20 {
        radio.hands_over(at).state(at + 1, unsent, false).begins(at + 1);
        radio.through(at + 20).log(at + 100, Way::Forward, L2cap::Credits { count: 3 });
        at += 100;
        radio.state(at, 0, false).socket(at, What::Reached(Stamp::WriteEnd), SDU);
    }
    radio.end(at)
}

#[test]
fn credits_of_a_channel_that_was_open_before_are_learned_from_what_the_kernel_refuses() {
    let direction = opened_before(0);
    assert_eq!(found(&direction)[0], "credit_window", "{direction:#?}");
    assert!(ns(&direction, Holder::Credits) > 1500 * MS, "{direction:#?}");
    let told = evidence(&direction);
    assert!(told.contains("3 at once (median)"), "{told}");
    // With something of it left in the kernel it may wait for anything.
    let other = opened_before(2880);
    assert_eq!(ns(&other, Holder::Credits), 0, "{other:#?}");
    assert!(ns(&other, Holder::NotKnown) > 1500 * MS);
    let waited: u64 = other.waited.iter().map(|held| held.held_ns).sum();
    assert!(waited > 1500 * MS, "{waited} {other:#?}");
    let told = [evidence(&other), other.remarks.join(" ")].concat();
    assert!(told.contains("Of the program's 21 writes"), "{told}");
}

/// Two channels that a socket may be an end of: nobody can tell which.
#[test]
fn a_socket_that_fits_two_channels_goes_with_neither() {
    let told = |is_other| {
        let mut radio = Radio::new(3, true);
        if is_other {
            let key = ChannelKey { adapter: 0, handle: 64, peer: Some(PEER), channel: Channel::CreditBased(0x85) };
            let flow = Flow { key: FlowKey::L2cap(key), from_start: true, coverage: Coverage::NONE };
            radio.story.0.flow(FlowId(CHANNEL.0 + 1), &flow);
        }
        radio.writes(1, 1, 0).joins(1, true).hands_over(1).through(20);
        radio.end(30).channel.is_some()
    };
    assert_eq!((told(false), told(true)), (true, false));
}

#[test]
fn a_controller_that_takes_no_more_is_known_by_what_the_kernel_keeps_back() {
    let mut radio = Radio::new(1000, true);
    radio.writes(1, 1, 0).joins(1, true).hands_over(1);
    let mut at = 1;
    for _ in 0..20 {
        // It takes three packets, as nothing says but that there are no more.
        radio.writes(at + 1, at + 1, 2880).refused(at + 1, true);
        radio.through(at + 60).hands_over(at + 60);
        at += 60;
    }
    let direction = radio.end(at);
    let (buffers, queue) = (ns(&direction, Holder::ControllerBuffers), ns(&direction, Holder::HciQueue));
    assert!(buffers > 900 * MS && queue == 0, "{direction:#?}");
    assert_eq!(direction.refused_with_room, 0);
}

#[test]
fn a_call_that_waits_on_a_socket_that_does_not_want_to_is_told() {
    let of = |is_nonblocking| {
        let mut radio = Radio::new(3, true);
        radio.writes(1, 1, 0).joins(1, is_nonblocking).hands_over(1).through(21);
        for n in 1..5 {
            let at = 100 * n;
            radio.state(at, 0, false).begins(at);
            radio.log(at + 60, Way::Forward, L2cap::Credits { count: 3 });
            radio
                .state(at + 60, 0, false)
                .socket(at + 60, What::Reached(Stamp::WriteEnd), SDU)
                .hands_over(at + 60)
                .through(at + 80);
        }
        radio.end(480)
    };
    let (waits, wants) = (of(true), of(false));
    assert_eq!((waits.waited_writes, wants.waited_writes), (4, 4));
    assert!(evidence(&waits).contains("non-blocking") && evidence(&waits).contains("sendto()"), "{waits:#?}");
    assert!(!evidence(&wants).contains("non-blocking"));
    assert_eq!(waits.waited.iter().map(|held| held.held_ns).sum::<u64>(), 4 * 60 * MS);
}

/// Without the log the calls tell that the buffer was full, and of no part below it.
#[test]
fn without_the_log_the_socket_is_known_by_its_calls() {
    let mut radio = Radio::new(3, false);
    radio.writes(1, 1, 0).joins(1, true);
    for n in 1..10 {
        radio.refused(50 * n, true).writes(50 * n + 40, 50 * n + 40, 2880);
    }
    let direction = radio.end(500);
    assert_eq!(found(&direction), ["send_buffer"], "{direction:#?}");
    assert!(direction.channel.is_none() && direction.to.contains("PSM 0x0085"), "{}", direction.to);
}

/// A channel of which no socket is an end belongs to another program.
#[test]
fn a_channel_of_another_program_is_not_told() {
    let mut radio = Radio::new(3, true);
    radio.hands_over(1).through(20).log(20, Way::Forward, L2cap::Ended { tells_completions: true });
    radio.story.0.close(CHANNEL, Closed::EndOfSource);
    let traced = radio.story.0.finish(Instant::from_nanos(50 * MS));
    assert_eq!((traced.directions, traced.connections, traced.span_ns), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_told_each_nanosecond_has_one_holder(
        steps in prop::collection::vec((0_u8..12, 0_u64..40), 0..80),
        joins in 0_usize..10,
    ) {
        let mut radio = Radio::new(3, true);
        radio.writes(1, 1, 0);
        let mut at = 1;
        for (index, (step, pause)) in steps.into_iter().enumerate() {
            at += pause;
            if index == joins {
                radio.joins(at, true);
            }
            match step {
                0 => radio.writes(at, at + pause, 0),
                1 => radio.writes(at, at, 2880),
                2 => radio.refused(at, pause % 2 == 0),
                3 => radio.socket(at, What::Gap, 0),
                4 => radio.log(at, Way::Forward, L2cap::Lost),
                5 => radio.log(at, Way::Forward, L2cap::Credits { count: pause as u16 }),
                6 => radio.log(at, Way::Forward, L2cap::Buffers { in_use: pause as u16, of: 20 }),
                7 if pause < 10 => radio.log(at, Way::Forward, L2cap::NotCounted),
                7 if pause < 20 => radio.log(at, Way::Forward, L2cap::Stopped { is_stopped: pause % 2 == 0 }),
                7 => {
                    let link = RadioLink { interval_ns: pause * MS, phy: [pause as u8; 2], ..RadioLink::default() };
                    radio.log(at, Way::Forward, L2cap::Link(link))
                }
                8 | 9 => radio.through(at),
                _ => radio.hands_over(at),
            };
        }
        let direction = radio.end(at + 50);
        let waited: u64 = direction.waited.iter().map(|held| held.held_ns).sum();
        prop_assert!(waited <= direction.span_ns);
    }
}

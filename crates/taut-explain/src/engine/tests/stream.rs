//! A program that writes more often than a round trip, and how much of it Nagle's algorithm held.

use std::collections::VecDeque;

use super::*;

/// With timestamps.
const FULL: u64 = MSS - 12;
const ROUND_TRIP: u64 = 62_000;

/// One write of so many bytes each 10 ms.
struct Stream {
    write: u64,
    /// A part of a segment waits while another one is out.
    is_held: bool,
    is_at_receiver: bool,
}

/// A segment, and when it was sent.
#[derive(Clone, Copy)]
struct Sent {
    at: u64,
    bytes: ByteRange,
    /// When the newest acknowledgement that its sender had came there.
    had: u64,
    is_pushed: bool,
}

/// The sender's socket.
#[derive(Default)]
struct Socket {
    queued: u64,
    next: u64,
    una: u64,
    small: u64,
    had: u64,
    sent: Vec<Sent>,
    /// On their way, or their acknowledgements.
    out: VecDeque<(u64, u64)>,
}

impl Socket {
    fn send(&mut self, at: u64, len: u64) {
        self.queued -= len;
        let bytes = ByteRange::new(self.next, self.next + len);
        self.next += len;
        self.sent.push(Sent { at, bytes, had: self.had, is_pushed: self.queued == 0 });
        self.out.push_back((at + ROUND_TRIP, self.next));
    }

    /// Whole segments, and the rest unless that has to wait.
    fn push(&mut self, at: u64, is_held: bool) {
        while self.queued >= FULL {
            self.send(at, FULL);
        }
        if self.queued > 0 && !(is_held && self.small > self.una) {
            self.send(at, self.queued);
            self.small = self.next;
        }
    }
}

impl Stream {
    /// What is told of it, and the share of the time in which something was waiting.
    fn seen(&self) -> (Direction, f64) {
        let mut socket = Socket { next: 1, una: 1, had: 50_000, ..Socket::default() };
        let (mut waited, mut then) = (0, 0);
        for turn in 0..300 {
            let at = 100_000 + turn * 10_000;
            while let Some((came, end)) = socket.out.pop_front_if(|(came, _)| *came <= at) {
                waited += if socket.queued > 0 { came - then } else { 0 };
                (then, socket.una, socket.had) = (came, end, came);
                socket.push(came + 20, self.is_held);
            }
            waited += if socket.queued > 0 { at - then } else { 0 };
            then = at;
            socket.queued += self.write;
            socket.push(at, self.is_held);
        }
        let span = socket.sent.last().unwrap().at - socket.sent[0].at;
        (self.told(&socket.sent), waited as f64 / span as f64)
    }

    fn told(&self, sent: &[Sent]) -> Direction {
        let mut talk = Talk::new(true);
        let clock = |at: u64| (at / 1_000) as u32 + 7;
        // From the sender to the place of the capture, and from there back.
        let way = if self.is_at_receiver { ROUND_TRIP / 2 } else { 0 };
        talk.stamped(0, FORWARD, SegmentFlags::SYN, 0, (7, 0));
        talk.stamped(ROUND_TRIP - 2 * way, BACKWARD, SegmentFlags::SYN, 0, (clock(ROUND_TRIP / 2), 7));
        talk.stamped(ROUND_TRIP + 20, FORWARD, 0, 0, (clock(ROUND_TRIP), clock(ROUND_TRIP / 2)));
        // An acknowledgement leaves half a round trip before it is with the sender.
        let left = |came: u64| clock(came - ROUND_TRIP / 2);
        let mut events = Vec::new();
        for part in sent {
            events.push((part.at + way, FORWARD, part));
            events.push((part.at + ROUND_TRIP - way, BACKWARD, part));
        }
        events.sort_by_key(|event| event.0);
        for (at, direction, part) in events {
            if direction == FORWARD {
                let flags = if part.is_pushed { SegmentFlags::PSH } else { 0 };
                talk.stamped_range(at, FORWARD, flags, part.bytes, 1, (clock(part.at), left(part.had)));
            } else {
                let stamps = (left(part.at + ROUND_TRIP), clock(part.at));
                talk.stamped_range(at, BACKWARD, 0, ByteRange::new(1, 1), part.bytes.end, stamps);
            }
        }
        talk.forward()
    }
}

#[test]
fn what_fills_up_to_whole_segments_was_held_as_well() {
    for is_at_receiver in [false, true] {
        for write in [200, 860, 1_200] {
            let (direction, truth) = Stream { write, is_held: true, is_at_receiver }.seen();
            let held = share(&direction, Holder::Nagle);
            assert!(
                (held - truth).abs() < 0.1,
                "{held} of {truth}: {write} {is_at_receiver} {:#?}",
                direction.breakdown
            );
            assert_eq!(faults(&direction), ["nagle_delayed_ack"], "{direction:#?}");
        }
    }
}

#[test]
fn what_is_not_held_is_the_programs() {
    for is_at_receiver in [false, true] {
        for write in [200, 860, 1_200] {
            let (direction, truth) = Stream { write, is_held: false, is_at_receiver }.seen();
            assert_eq!((faults(&direction), truth), (Vec::new(), 0.0), "{direction:#?}");
            assert!(share(&direction, Holder::SendingProgram) > 0.9, "{direction:#?}");
        }
    }
}

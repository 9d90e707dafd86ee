//! Lost records, and what comes after them and before a socket's own next one.

use super::*;

/// Any function that is not the one of delayed acknowledgements.
const OTHER_TIMER: u64 = 0x711e;

/// A record of no socket, with so many lost before it.
fn bare(what: What, socket: u64, lost: u64) -> Made {
    let mut made = Made::new(what, socket);
    made.0.truncate(HEADER as usize);
    made.long(at::LOST, lost);
    made
}

fn gaps(heard: &Heard) -> usize {
    heard.events.iter().filter(|(_, what, _)| *what == Happened::Gap).count()
}

#[test]
fn records_that_were_lost_are_told_to_each_connection_once() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    for _ in 0..2 {
        let mut back = call(What::Return, 48, 48);
        tell(&mut follower, &mut heard, back.long(at::LOST, 3));
    }
    assert_eq!(heard.events.iter().filter(|(_, what, _)| *what == Happened::Gap).count(), 1);
}

/// What happened to a connection after its last record may be what was lost.
#[test]
fn records_that_were_lost_last_are_told_at_the_end() {
    for (lost, gaps) in [(3, 1), (0, 0)] {
        let (mut follower, mut heard) = (follower(), Heard::default());
        tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
        for _ in 0..2 {
            follower.end(lost, Instant::from_nanos(9), &mut heard);
        }
        assert_eq!(heard.events.iter().filter(|(_, what, _)| *what == Happened::Gap).count(), gaps, "{lost}");
    }
}

#[test]
fn a_segment_that_leaves_its_device_tells_nothing_then() {
    for lost in [0, 3] {
        let (mut follower, mut heard) = (follower(), Heard::default());
        let started = |seq: u32, lost: u64| {
            let mut started = bare(What::Started, CLIENT, lost);
            started.segment(seq, 500, 40, 0);
            started
        };
        tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
        let mut queue = Made::new(What::Queue, CLIENT);
        tell(&mut follower, &mut heard, queue.set(Known::WriteSeq, 140).segment(100, 500, 40, 0));
        tell(&mut follower, &mut heard, &started(100, 0));
        let mut queue = Made::new(What::Queue, CLIENT);
        queue.set(Known::WriteSeq, 180).set(Known::SndNxt, 140).set(Known::PacketsOut, 1).segment(140, 500, 40, 0);
        tell(&mut follower, &mut heard, &queue);
        assert_eq!(heard.state().device_bytes, 40);
        let before = heard.events.len();
        tell(&mut follower, &mut heard, &started(140, lost));
        assert_eq!(heard.events.len() - before, usize::from(lost == 0), "{:?}", &heard.events[before..]);
        // It has left all the same.
        let mut back = call(What::Return, 80, 80);
        back.set(Known::SndNxt, 180).set(Known::PacketsOut, 2).long(at::LOST, lost);
        tell(&mut follower, &mut heard, &back);
        assert_eq!((gaps(&heard), heard.state().device_bytes), (usize::from(lost > 0), 0));
    }
}

#[test]
fn waits_of_a_reader_tell_nothing_then() {
    for (lost, told) in [(0, 4), (3, 0)] {
        let (mut follower, mut heard) = (follower(), Heard::default());
        let mut read = Made::new(What::Call, CLIENT);
        tell(&mut follower, &mut heard, read.number(libc::SYS_read, 0));
        let mut receive = Made::new(What::Receive, CLIENT);
        tell(&mut follower, &mut heard, receive.segment(500, 100, 8, 300));
        tell_other(&mut follower, &mut heard, &other(What::SocketCall, 5, 0, libc::SYS_recvfrom, 0, &[]));
        let ready = other(What::SocketReady, 0, 0, 0, 0, &[(Known::ReceiveQueued, 1)]);
        tell_other(&mut follower, &mut heard, &ready);
        let before = heard.events.len();
        let mut ran = bare(What::Ran, 0, lost);
        tell(&mut follower, &mut heard, ran.long(at::RESULT, 70_000));
        let mut polled = bare(What::Polled, 1_000, lost);
        tell(&mut follower, &mut heard, polled.long(at::NS, 1_700).long(at::RESULT, 1));
        // Of two sockets, each of the two waits.
        assert_eq!(heard.events.len() - before, told, "{:?}", &heard.events[before..]);
    }
}

#[test]
fn the_queue_of_a_connection_is_told_after_the_gap() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    let mut other = Made::new(What::Queue, SERVER);
    tell(&mut follower, &mut heard, other.long(at::LOST, 3).segment(500, 100, 0, 9));
    assert_eq!(gaps(&heard), 0);
    let queue = Listening { waiting: 2, backlog: 1 };
    follower.listens(CLIENT, queue, Instant::from_nanos(5), false, &mut heard);
    let last: Vec<Happened> = heard.events.iter().rev().take(2).map(|(_, what, _)| *what).collect();
    assert_eq!(last, [Happened::Listens(queue), Happened::Gap]);
    let mut back = call(What::Return, 0, 0);
    tell(&mut follower, &mut heard, back.long(at::LOST, 3));
    assert_eq!(gaps(&heard), 1, "told once");
}

/// What the kernel remembers of repeats, as the records of one connection show it.
struct Remembering {
    follower: Follower,
    heard: Heard,
    /// Up to where data has left.
    sent: u64,
}

impl Remembering {
    fn new() -> Self {
        let (mut follower, mut heard) = (follower(), Heard::default());
        tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
        Self { follower, heard, sent: 100 }
    }

    fn told(&mut self, what: What, out: u64, probe: u64) {
        self.record(what, out, probe, 0, 0);
    }

    /// A segment of so many new bytes leaves, sent by a timer, or by none (0).
    fn leaves(&mut self, bytes: u32, out: u64, probe: u64, timer: u64) {
        self.record(What::Queue, out, probe, timer, bytes);
        self.sent += u64::from(bytes);
    }

    fn record(&mut self, what: What, out: u64, probe: u64, timer: u64, bytes: u32) {
        let mut made = Made::new(what, CLIENT);
        made.set(Known::RetransOut, out).set(Known::TlpHighSeq, probe).long(at::TIMER, timer);
        made.set(Known::SndNxt, self.sent).set(Known::WriteSeq, self.sent + u64::from(bytes));
        tell(&mut self.follower, &mut self.heard, made.segment(self.sent as u32, 500, bytes, 100));
    }

    fn gaps(&self) -> usize {
        gaps(&self.heard)
    }
}

/// The kernel sends again and tells of it, or no program runs at that moment; what it remembers of that shows with the
/// next segment that comes.
#[test]
fn what_was_sent_again_unseen_is_a_gap() {
    for (is_seen, expected) in [(true, 0), (false, 2)] {
        let mut connection = Remembering::new();
        connection.told(What::Receive, 1, 0);
        // The acknowledgement is worked in, and two more are sent again, the second after the first is counted.
        connection.leaves(0, 0, 0, DELACK);
        for out in [0, 1] {
            if is_seen {
                connection.told(What::Repeat, out, 0);
            }
        }
        for out in [2, 2, 1, 0] {
            connection.told(What::Receive, out, 0);
        }
        // A probe, and what leaves meanwhile.
        if is_seen {
            connection.told(What::Repeat, 0, 0);
        }
        connection.leaves(0, 0, 140, 0);
        for probe in [140, 140, 0] {
            connection.told(What::Receive, 0, probe);
        }
        // One that sends what is new is no repeat.
        connection.leaves(80, 0, 0, OTHER_TIMER);
        connection.told(What::Receive, 0, 180);
        assert_eq!(connection.gaps(), expected, "{is_seen}");
    }
}

#[test]
fn the_first_of_two_repeats_was_unseen() {
    let mut connection = Remembering::new();
    connection.told(What::Receive, 0, 0);
    connection.told(What::Repeat, 1, 0);
    connection.told(What::Receive, 2, 0);
    assert_eq!(connection.gaps(), 1);
}

/// The queue's record is there, and the one that says what it was is not.
#[test]
fn a_repeat_by_a_timer_may_be_unseen() {
    let mut connection = Remembering::new();
    connection.told(What::Receive, 0, 0);
    connection.leaves(0, 0, 0, OTHER_TIMER);
    connection.told(What::Receive, 1, 0);
    assert_eq!(connection.gaps(), 1);
}

#[test]
fn two_probes_up_to_the_same_byte_are_two() {
    let mut connection = Remembering::new();
    for probe in [140, 140, 140] {
        connection.told(What::Receive, 0, probe);
    }
    connection.leaves(0, 0, 0, 0);
    connection.told(What::Receive, 0, 140);
    assert_eq!(connection.gaps(), 1);
}

#[test]
fn what_was_sent_again_within_a_gap_is_no_second_one() {
    let mut connection = Remembering::new();
    connection.told(What::Receive, 0, 0);
    let mut back = Made::new(What::Receive, CLIENT);
    back.set(Known::RetransOut, 1).set(Known::SndNxt, 100).set(Known::WriteSeq, 100).long(at::LOST, 3);
    tell(&mut connection.follower, &mut connection.heard, back.segment(100, 500, 0, 100));
    connection.told(What::Receive, 1, 0);
    assert_eq!(connection.gaps(), 1);
    connection.told(What::Receive, 2, 0);
    assert_eq!(connection.gaps(), 2);
}

/// The queue's record of what is sent again tells nothing by itself: the wait before it would have another holder.
#[test]
fn the_wait_before_an_unseen_repeat_is_in_the_gap() {
    let mut connection = Remembering::new();
    connection.leaves(40, 0, 0, 0);
    connection.told(What::Receive, 0, 0);
    connection.leaves(40, 0, 0, 0);
    let before = connection.heard.events.len();
    let mut again = Made::new(What::Queue, CLIENT);
    again.set(Known::SndNxt, 180).set(Known::WriteSeq, 180).long(at::TIMER, OTHER_TIMER).segment(140, 500, 40, 100);
    tell(&mut connection.follower, &mut connection.heard, &again);
    assert_eq!(connection.heard.events.len(), before);
    connection.told(What::Receive, 0, 180);
    assert_eq!(connection.heard.events[before].1, Happened::Gap);
}

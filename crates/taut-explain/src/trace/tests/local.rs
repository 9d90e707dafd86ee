//! Unix sockets, sockets of UDP and pipes: who holds what, from their calls.

use taut_event::{LocalKey, LocalKind};

use super::*;

/// Calls of a kind, each with the states that its source tells.
struct Calls(Story);

impl Calls {
    fn on(kind: LocalKind) -> Self {
        let mut trace = Trace::new(5).with_spans(10_000);
        let key = LocalKey { kind, inode: 7, ends: None };
        trace.flow(FLOW, &Flow { key: FlowKey::Local(key), ..flow() });
        Self(Story(trace))
    }

    fn state(&mut self, at: u64, unread: u32, is_full: bool) {
        self.0.state(at, SocketState { unread_bytes: unread, send_buffer_full: is_full, ..SocketState::default() });
    }

    /// A write that comes back then, from what is full or not.
    fn write(&mut self, begin: u64, end: u64, is_full: bool) -> &mut Self {
        self.state(begin, 0, false);
        self.0.stamp(begin, Stamp::WriteBegin, (0, 0));
        self.state(end, 0, is_full);
        self.0.stamp(end, Stamp::WriteEnd, (0, 64));
        self
    }

    fn refused(&mut self, at: u64) -> &mut Self {
        self.state(at, 0, true);
        self.0.stamp(at, Stamp::WriteBegin, (0, 0));
        self.state(at, 0, true);
        self.0.tell(at, Way::Forward, What::Call(Call::End { number: 1, result: -11 }), (0, 0));
        self
    }

    fn ready(&mut self, at: u64) -> &mut Self {
        self.0.stamp(at, Stamp::Received, (0, 0));
        self.state(at, 1, false);
        self
    }

    /// A read that begins with something there or not, and takes all.
    fn read(&mut self, begin: u64, end: u64, unread: u32) -> &mut Self {
        self.state(begin, unread, false);
        self.0.tell(begin, Way::Backward, What::Call(Call::Begin { number: 0 }), (0, 0));
        if unread == 0 && end > begin {
            self.ready(end);
        }
        self.got(end)
    }

    fn got(&mut self, at: u64) -> &mut Self {
        self.0.stamp(at, Stamp::Read, (0, 8));
        self.state(at, 0, false);
        self.0.tell(at, Way::Backward, What::Call(Call::End { number: 0, result: 8 }), (0, 0));
        self
    }

    /// What it sends and what it receives.
    fn end(self, at: u64) -> [Option<TracedDirection>; 2] {
        let traced = self.0.0.finish(Instant::from_nanos(at * MS));
        assert_eq!((traced.connections, traced.others), (0, 1));
        traced.worst.iter().for_each(assert_is_drawn);
        let of = |is_outgoing| traced.worst.iter().find(|one| one.is_outgoing == is_outgoing).cloned();
        [of(true), of(false)]
    }
}

#[test]
fn a_write_into_what_is_full_waits_for_the_other_end() {
    for (kind, holder, cause) in [
        (LocalKind::Unix, "receiving_program", "receiving_program"),
        (LocalKind::Pipe, "receiving_program", "receiving_program"),
        (LocalKind::Udp, "send_buffer", "send_buffer"),
    ] {
        let mut calls = Calls::on(kind);
        (0..10).for_each(|round| _ = calls.write(100 * round, 100 * round + 60, true));
        let [Some(sent), None] = calls.end(1000) else { panic!() };
        // Nothing tells whether it is still there after its last call.
        assert_eq!(held_ms(&sent), [(holder, 600.0), ("sending_program", 360.0)]);
        assert_eq!((found(&sent), sent.transport.as_str(), sent.bytes), (vec![cause], kind.name(), 640));
        // One that takes as long although there is room was the program's own time.
        let mut calls = Calls::on(kind);
        (0..10).for_each(|round| _ = calls.write(100 * round, 100 * round + 60, false));
        let [Some(sent), None] = calls.end(1000) else { panic!() };
        assert_eq!((held_ms(&sent), found(&sent)), (vec![("sending_program", 960.0)], vec![]));
    }
}

#[test]
fn a_refused_write_waits_until_it_is_tried_again() {
    let mut calls = Calls::on(LocalKind::Unix);
    calls.write(0, 0, true).refused(10).write(250, 250, false);
    let [Some(sent), None] = calls.end(300) else { panic!() };
    assert_eq!(held_ms(&sent), [("receiving_program", 240.0), ("sending_program", 10.0)]);
    assert_eq!((found(&sent), sent.refused_writes), (vec!["receiving_program"], 1));
}

#[test]
fn a_write_that_fails_in_the_end_has_waited_as_well() {
    let mut calls = Calls::on(LocalKind::Unix);
    calls.write(0, 0, false);
    calls.0.stamp(10, Stamp::WriteBegin, (0, 0));
    calls.state(300, 0, true);
    calls.0.tell(300, Way::Forward, What::Call(Call::End { number: 1, result: -32 }), (0, 0));
    let [Some(sent), None] = calls.end(300) else { panic!() };
    assert_eq!(held_ms(&sent), [("receiving_program", 290.0), ("sending_program", 10.0)]);
    assert_eq!((found(&sent), sent.refused_writes), (vec!["receiving_program"], 0));
}

#[test]
fn what_comes_and_is_not_read_waits_for_the_program_and_an_answer_is_the_peers_turn() {
    let story = |wait: u64| {
        let mut calls = Calls::on(LocalKind::Unix);
        for round in 0..10 {
            let at = 100 * round;
            calls.write(at, at, false).ready(at + 20).read(at + 20 + wait, at + 20 + wait, 1);
        }
        calls.end(1000)
    };
    let [Some(sent), Some(received)] = story(40) else { panic!() };
    assert_eq!(held_ms(&received), [("peer_turn", 560.0), ("receiving_program", 400.0)]);
    assert_eq!((found(&received), received.bytes), (vec!["receiving_program"], 80));
    // From the answer on it is this program's turn.
    assert_eq!(held_ms(&sent), [("sending_program", 760.0), ("peer_turn", 200.0)]);
    let [_, Some(received)] = story(0) else { panic!() };
    assert_eq!((held_ms(&received), found(&received)), (vec![("peer_turn", 920.0)], vec![]));
}

#[test]
fn a_read_that_waits_is_the_peers_turn_to_the_end_of_the_trace() {
    let mut calls = Calls::on(LocalKind::Udp);
    calls.write(0, 0, false).read(1, 50, 0);
    calls.state(60, 0, false);
    calls.0.tell(60, Way::Backward, What::Call(Call::Begin { number: 0 }), (0, 0));
    let [Some(sent), Some(received)] = calls.end(500) else { panic!() };
    assert_eq!(held_ms(&received), [("peer_turn", 500.0)]);
    // A time without a write is one turn: that of who is waited for in the end.
    assert_eq!(held_ms(&sent), [("peer_turn", 500.0)]);
}

/// Nobody told when it came: a writer outside of the trace, or a kernel without the tracepoint.
#[test]
fn what_is_found_at_a_read_came_at_an_unknown_time() {
    let mut calls = Calls::on(LocalKind::Pipe);
    (0..10).for_each(|round| _ = calls.read(100 * round, 100 * round, 1));
    let [None, Some(received)] = calls.end(1000) else { panic!() };
    assert_eq!((held_ms(&received), found(&received)), (vec![("not_known", 900.0)], vec![]));
}

#[test]
fn after_lost_records_nothing_is_clear() {
    let mut calls = Calls::on(LocalKind::Unix);
    calls.write(0, 0, false).ready(10).read(12, 12, 1);
    calls.0.tell(50, Way::Forward, What::Gap, (0, 0));
    calls.write(70, 70, false);
    let [Some(sent), Some(received)] = calls.end(100) else { panic!() };
    assert_eq!(held_ms(&sent), [("not_known", 60.0), ("peer_turn", 10.0)]);
    for direction in [sent, received] {
        assert!(direction.verdicts.iter().all(|on| matches!(on.verdict, Verdict::Unknown { .. })), "{direction:#?}");
    }
}

proptest! {
    #[test]
    fn the_parts_add_up_for_any_calls(
        events in prop::collection::vec((0_u64..20, any::<bool>(), any_what(), 0_u64..100), 1..80),
        kind in prop_oneof![Just(LocalKind::Unix), Just(LocalKind::Udp), Just(LocalKind::Pipe)],
    ) {
        let mut calls = Calls::on(kind);
        calls.write(0, 0, false).ready(0).got(0);
        let mut at = 0;
        for (pause, is_forward, what, byte) in events {
            at += pause;
            calls.0.tell(at, if is_forward { Way::Forward } else { Way::Backward }, what, (byte, byte + 10));
        }
        let directions = calls.end(at + 5);
        for direction in directions.iter().flatten() {
            prop_assert_eq!(direction.breakdown.iter().map(|held| held.held_ns).sum::<u64>(), direction.span_ns);
        }
        prop_assert_eq!(directions.iter().flatten().count(), 2);
    }
}

/// A write that is refused shows that the socket is non-blocking: a long one had no processor, or copied for long.
#[test]
fn writes_of_a_socket_that_refuses_them_do_not_wait_for_room() {
    for kind in [LocalKind::Unix, LocalKind::Pipe, LocalKind::Udp] {
        let mut calls = Calls::on(kind);
        calls.refused(0);
        (1..10).for_each(|round| _ = calls.write(100 * round, 100 * round + 60, true));
        let [sent, _] = calls.end(960);
        let sent = sent.unwrap();
        assert_eq!((sent.writes, sent.waited_writes, sent.refused_writes), (9, 0, 1));
        let holder = if kind == LocalKind::Udp { "send_buffer" } else { "receiving_program" };
        assert_eq!(held_ms(&sent), [("sending_program", 860.0), (holder, 100.0)]);
    }
}

/// It has waited for as long as the program lets it (`SO_SNDTIMEO`).
#[test]
fn a_write_that_is_refused_after_a_while_has_waited_for_room() {
    let mut calls = Calls::on(LocalKind::Unix);
    calls.write(0, 60, true);
    calls.0.stamp(100, Stamp::WriteBegin, (0, 0));
    calls.state(200, 0, true);
    calls.0.tell(200, Way::Forward, What::Call(Call::End { number: 1, result: -11 }), (0, 0));
    calls.write(200, 260, true);
    let [sent, _] = calls.end(260);
    let sent = sent.unwrap();
    assert_eq!(
        (sent.waited_writes, held_ms(&sent)),
        (3, vec![("receiving_program", 220.0), ("sending_program", 40.0)])
    );
}

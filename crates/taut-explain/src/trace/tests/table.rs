//! Each cause on each story: found (F), clear (.), or not known (?).

use super::*;
use crate::trace::finding::of_sockets;

/// A story, and what is said of it: of what the traced program sends, in the order of the causes, which is
/// nagle_delayed_ack, cork, receiving_program, receive_window, send_buffer, loss, handshake_repeated, pacing,
/// congestion_window, device_queue; then of what it receives: receiving_program, processor, accept_late.
struct Case {
    story: &'static str,
    traced: Traced,
    says: &'static str,
}

/// Where data stands for so many of 50 ms in a state, twenty times, and what comes back waits as long to be read.
fn held(state: SocketState, ms: u64, unread_ms: u64) -> Traced {
    waited(20, 50, state, ms, unread_ms, false)
}

fn waited(times: u64, turn_ms: u64, state: SocketState, ms: u64, unread_ms: u64, has_gap: bool) -> Traced {
    told(Story::new(), times, turn_ms, state, ms, unread_ms, has_gap, 0)
}

/// What comes back waits for 40 ms, for so many of which its reader is ready to run.
fn starved(coverage: Coverage, ready_ms: u64) -> Traced {
    let mut story = Story(Trace::new(5).with_spans(10_000));
    story.0.flow(FLOW, &Flow { coverage, ..flow() });
    told(story, 20, 50, quiet(), 2, 40, false, ready_ms)
}

/// A connection that waits to be accepted for so long; then it has a turn.
fn taken_late(ms: u64) -> Traced {
    let mut story = Story::new();
    story.tell(0, Way::Backward, What::Awaits, (0, 0)).state(0, quiet());
    story.tell(ms, Way::Backward, What::Accepted, (0, 0)).state(ms, quiet());
    story.stamp(50, Stamp::WriteBegin, (0, 0)).state(50, quiet());
    story.stamp(50, Stamp::Scheduled, (0, 48)).state(50, on_the_way(0));
    story.stamp(50, Stamp::WriteEnd, (0, 48)).state(50, on_the_way(0));
    story.stamp(60, Stamp::Received, (0, 8)).state(60, SocketState { unread_bytes: 8, ..quiet() });
    story.stamp(60, Stamp::Read, (0, 8)).state(60, quiet());
    story.0.finish(Instant::from_nanos(60 * MS))
}

#[expect(clippy::too_many_arguments, reason = "each is a number of the story")]
fn told(
    mut story: Story,
    times: u64,
    turn_ms: u64,
    state: SocketState,
    ms: u64,
    unread_ms: u64,
    has_gap: bool,
    ready_ms: u64,
) -> Traced {
    for round in 0..times {
        let (at, bytes) = (round * turn_ms, (round * 48, round * 48 + 48));
        story.stamp(at, Stamp::WriteBegin, (bytes.0, bytes.0)).state(at, state);
        if state.is_opening && state.timeouts > 0 {
            story.stamp(at + 1, Stamp::Repeated, (0, 0)).state(at + 1, state);
        }
        story.stamp(at + ms, Stamp::Scheduled, bytes).state(at + ms, on_the_way(0));
        story.stamp(at + ms, Stamp::WriteEnd, bytes).state(at + ms, on_the_way(0));
        if has_gap {
            story.tell(at + ms, Way::Forward, What::Gap, (0, 0));
        }
        let read = at + turn_ms - 2;
        let answer = (round * 8, round * 8 + 8);
        story.stamp(read - unread_ms, Stamp::Received, answer);
        story.state(read - unread_ms, SocketState { unread_bytes: 8, ..quiet() });
        if ready_ms > 0 {
            let ran = What::Task(Task::Ran { waited_ns: ready_ms * MS });
            story.tell(read, Way::Backward, ran, (0, 0));
        }
        story.stamp(read, Stamp::Read, answer).state(read, quiet());
    }
    story.0.finish(Instant::from_nanos(times * turn_ms * MS))
}

fn cases() -> Vec<Case> {
    let case = |story, traced, says| Case { story, traced, says };
    let unsent = SocketState { unsent_bytes: 48, ..quiet() };
    let nagle = on_the_way(48);
    let cork = SocketState { cork: Some(true), ..nagle };
    let closed = SocketState { send_window_bytes: Some(0), ..unsent };
    let full = SocketState { unsent_bytes: 9_000, in_flight_bytes: 14_480, in_flight_segments: 10, ..quiet() };
    let window = SocketState { send_window_bytes: Some(14_480), congestion_window_segments: 100, ..full };
    let buffer = SocketState { unsent_bytes: 0, send_buffer_full: true, ..window };
    let repeating = SocketState { recovery: Recovery::Repeating, ..full };
    let timed_out = SocketState { timeouts: 1, ..full };
    let unanswered = SocketState { is_opening: true, timeouts: 1, ..on_the_way(0) };
    let paced = SocketState { unsent_bytes: 9_000, pacing_wait_ns: 40_000_000, ..quiet() };
    let queued = SocketState { device_bytes: 14_480, ..full };
    let rest_of_queue = SocketState { unsent_bytes: 0, ..queued };
    let rest = SocketState { no_delay: Some(true), ..nagle };
    vec![
        case("a small write behind another one", held(nagle, 40, 0), "F............"),
        case("the same with TCP_NODELAY", held(rest, 40, 0), "............."),
        case(
            "behind a whole segment",
            held(SocketState { small_in_flight: Some(false), ..nagle }, 40, 0),
            ".............",
        ),
        case("corked", held(cork, 40, 0), ".F..........."),
        case("corked, nothing unsent", held(SocketState { unsent_bytes: 0, ..cork }, 40, 0), "............."),
        case("the window is closed", held(closed, 40, 0), "..F.........."),
        case(
            "nothing to send into a closed window",
            held(SocketState { unsent_bytes: 0, ..closed }, 40, 0),
            ".............",
        ),
        case("flight as large as the window", held(window, 40, 0), "...F........."),
        case(
            "a segment of room",
            held(SocketState { send_window_bytes: Some(16_000), ..window }, 40, 0),
            ".............",
        ),
        case("the send buffer is full", held(buffer, 40, 0), "....F........"),
        case("it is not full", held(SocketState { send_buffer_full: false, ..buffer }, 40, 0), "............."),
        case("repeating what was lost", held(repeating, 40, 0), ".....F......."),
        case("waiting for a time-out", held(timed_out, 40, 0), ".....F......."),
        case("a first segment that is sent again", held(unanswered, 40, 0), "......F......"),
        case("one that is answered", held(SocketState { timeouts: 0, ..unanswered }, 40, 0), "............."),
        case("paced", held(paced, 40, 0), ".......F....."),
        case("the congestion window is full", held(full, 40, 0), "........F...."),
        case("and the device keeps all of it", held(queued, 40, 0), ".........F..."),
        case("all is sent, and the device keeps it", held(rest_of_queue, 40, 0), ".........F..."),
        case(
            "the device keeps none of it",
            held(SocketState { device_bytes: 0, ..rest_of_queue }, 40, 0),
            ".............",
        ),
        case("the same for 3 ms of 500", waited(20, 500, full, 3, 0, false), "............."),
        case("answers wait 40 ms to be read", held(quiet(), 2, 40), "..........F.."),
        case("its reader is ready for all of that", starved(Coverage::of(&[Kind::Tasks]), 60), "...........F."),
        case("its reader is ready for half of that", starved(Coverage::of(&[Kind::Tasks]), 20), "..........FF."),
        case("nobody saw when its reader was ready", starved(Coverage::NONE, 0), "..........F?."),
        case("it is accepted after 40 ms of 60", taken_late(40), "............F"),
        case("it is accepted at once", taken_late(0), "............."),
        case("answers are read at once", held(quiet(), 2, 0), "............."),
        case("records were lost", waited(20, 50, quiet(), 2, 0, true), "?????????????"),
        case("records were lost, and Nagle's algorithm held", waited(20, 50, nagle, 40, 0, true), "F????????????"),
    ]
}

fn letter(verdict: &Verdict) -> char {
    match verdict {
        Verdict::Found(_) => 'F',
        Verdict::Clear => '.',
        Verdict::Unknown { .. } => '?',
    }
}

#[test]
fn each_cause_stands_where_it_must_and_nowhere_else() {
    let columns: Vec<(&str, bool)> = of_sockets(Way::Forward)
        .map(|cause| (cause, true))
        .chain(of_sockets(Way::Backward).map(|cause| (cause, false)))
        .collect();
    let mut wrong = String::new();
    let mut said = vec![String::new(); columns.len()];
    for Case { story, traced, says } in cases() {
        let on = |is_outgoing| traced.worst.iter().find(|direction| direction.is_outgoing == is_outgoing).unwrap();
        let all = on(true).verdicts.len() + on(false).verdicts.len();
        assert_eq!(all, columns.len(), "a cause without a column");
        let verdict = |&(cause, is_outgoing): &(&str, bool)| {
            letter(&on(is_outgoing).verdicts.iter().find(|on| on.cause == cause).unwrap().verdict)
        };
        let letters: String = columns.iter().map(verdict).collect();
        if letters != says {
            wrong += &format!("{story}: {letters}, not {says}\n");
        }
        said.iter_mut().zip(letters.chars()).for_each(|(said, letter)| said.push(letter));
    }
    assert!(wrong.is_empty(), "{wrong}");
    for ((cause, _), said) in columns.iter().zip(said) {
        assert!("F.?".chars().all(|letter| said.contains(letter)), "{cause} is never one of F.?: {said}");
    }
}

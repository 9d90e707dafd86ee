//! Each detector on each story: found (F), clear (.), or not known (?).

use super::*;
use crate::engine::detect;

/// A story, and what each detector says of it, in the order of [`CAUSES`].
struct Case {
    story: &'static str,
    direction: Direction,
    says: &'static str,
}

const CAUSES: [&str; 13] = [
    "nagle_delayed_ack",
    "cork",
    "receive_window",
    "receiving_program",
    "send_buffer",
    "loss",
    "handshake_repeated",
    "path_queue",
    "slow_start_after_idle",
    "slow_start",
    "congestion_window",
    "peer_turn",
    "sending_program",
];

fn talked(mut talk: Talk, tell: impl FnOnce(&mut Talk)) -> Direction {
    tell(&mut talk);
    talk.forward()
}

/// A full segment and its rest, so much later.
fn corked(wait: u64) -> Direction {
    talked(Talk::open(1_000), |talk| {
        let mut at = 2_000;
        for _ in 0..10 {
            talk.send(at, FORWARD, MSS);
            talk.ack(at + 1_000, BACKWARD);
            talk.send(at + wait, FORWARD, 300);
            talk.ack(at + wait + 1_000, BACKWARD);
            at += wait + 5_000;
        }
    })
}

/// Ten times a window of 20 segments, read as it fills or half a second later.
fn read(late: bool) -> Direction {
    talked(Talk::open(4_000), |talk| {
        let mut at = 5_000;
        for _ in 0..10 {
            (0..20).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
            if late {
                talk.window = 0;
                talk.ack(at + 4_000, BACKWARD);
                talk.window = 1 << 20;
                at += 500_000;
            }
            talk.ack(at + 4_000, BACKWARD);
            at += 4_030;
        }
        talk.send(at, FORWARD, MSS);
        talk.ack(at + 4_000, BACKWARD);
    })
}

/// Requests of one segment; the peer and the program take so long.
fn turns(peer: u64, own: u64) -> Direction {
    talked(Talk::open(4_000), |talk| {
        let mut at = 10_000;
        for _ in 0..20 {
            talk.send(at, FORWARD, 200);
            talk.send(at + 4_000 + peer, BACKWARD, 400);
            talk.ack(at + 4_010 + peer, FORWARD);
            at += 4_010 + peer + own;
        }
    })
}

/// The words of the peer's turn.
fn told(direction: &Direction) -> String {
    match verdict(direction, "peer_turn") {
        Verdict::Found(found) => found.evidence.iter().map(|seen| seen.text.as_str()).collect::<Vec<_>>().join(" "),
        other => format!("{other:?}"),
    }
}

#[test]
fn answers_as_long_as_a_timer_are_named_and_what_else_has_one_is_said() {
    let timed = told(&turns(41_000, 1_000));
    assert!(timed.contains("40 ms, Linux's delayed ACK") && timed.contains("can't be told here"), "{timed}");
    let quick = told(&turns(30_000, 1_000));
    assert!(quick.contains("20 answers") && !quick.contains("delayed ACK"), "{quick}");
    // As long in the middle, and by chance.
    let varied = talked(Talk::open(4_000), |talk| {
        let mut at = 10_000;
        for turn in 0..20 {
            let peer = 22_000 + turn * 2_000;
            talk.send(at, FORWARD, 200);
            talk.send(at + 4_000 + peer, BACKWARD, 400);
            talk.ack(at + 4_010 + peer, FORWARD);
            at += 5_000 + peer;
        }
    });
    assert!(!told(&varied).contains("delayed ACK"), "{}", told(&varied));
}

fn level(rest: u64) -> Direction {
    talked(Talk::open(20_000), |talk| {
        for round in 0..60 {
            let at = 20_040 + round * 20_000;
            if round > 0 {
                talk.ack(at - 30, BACKWARD);
            }
            (0..19).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
            talk.send(at + 19, FORWARD, MSS + rest);
        }
    })
}

fn paused(after: impl Fn(u64) -> u64) -> Direction {
    talked(Talk::open(50_000), |talk| {
        bulk(talk, 50_040, 50_000, 6, |round| 10 << round);
        talk.ack(350_010, BACKWARD);
        bulk(talk, 2_000_000, 50_000, 5, after);
    })
}

fn queued(queue: u64) -> Direction {
    talked(Talk::open(5_000), |talk| {
        let mut at = 5_040;
        for round in 0..40 {
            let flight = 10 + round;
            (0..flight).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
            at += 5_000 + flight * queue;
            talk.ack(at - 30, BACKWARD);
        }
    })
}

fn opened(repeated: bool) -> Direction {
    talked(Talk::new(true), |talk| {
        let syn = Segment { flags: SegmentFlags(SegmentFlags::SYN), mss: 1460, ..Segment::default() };
        let begin = if repeated { 0 } else { 1_000_000 };
        talk.event(begin, FORWARD, syn, ByteRange::new(1, 1));
        if repeated {
            talk.event(1_000_000, FORWARD, syn, ByteRange::new(1, 1));
        }
        let answer = Segment { flags: SegmentFlags(SegmentFlags::SYN | SegmentFlags::ACK), ack: 1, ..syn };
        talk.event(1_010_000, BACKWARD, answer, ByteRange::new(1, 1));
        talk.ack(1_010_020, FORWARD);
        talk.send(1_010_100, FORWARD, 100);
        talk.ack(1_020_100, BACKWARD);
    })
}

/// Only one direction was captured.
fn blind() -> Direction {
    talked(Talk::new(false), |talk| (0..50).for_each(|turn| talk.send(turn * 10_000, FORWARD, 500)))
}

/// Begun amid the connection.
fn amid() -> Direction {
    talked(Talk::new(false), |talk| {
        talk.ack(0, FORWARD);
        talk.ack(10, BACKWARD);
        bulk(talk, 20_000, 20_000, 20, |_| 20);
    })
}

fn cases() -> Vec<Case> {
    let case = |story, direction, says| Case { story, direction, says };
    let window = |window: u64| {
        talked(Talk::open_with(20_000, (window * MSS) as u32), |talk| bulk(talk, 20_040, 20_000, 50, |_| 20))
    };
    vec![
        case("second write held for a delayed ACK", requests(false), "F..........FF"),
        case("both writes at once", requests(true), "...........FF"),
        case("rest of a write after 200 ms", corked(203_000), ".F..........F"),
        case("rest of a write after 150 ms", corked(150_000), "............F"),
        case("flight as large as the window", window(20), "..F.........."),
        case("flight far below the window", window(700), "..........F.."),
        case("window closed for half a second", read(true), "...F........."),
        case("window never closed", read(false), ".........FF.F"),
        case("level flight, nothing waiting behind", level(700), "....?........"),
        case("level flight, more waiting behind", level(0), "..........F.."),
        case("one loss in five rounds", lossy(false), ".....F....F.."),
        case("the same, with packets not captured", lossy(true), ".....?....F.."),
        case("SYN sent twice", opened(true), "......F......"),
        case("SYN sent once", opened(false), "............."),
        case("round trip grows with the flight", queued(1_000), ".......F....."),
        case("round trip stays while the flight grows", queued(0), "..........F.."),
        case("flight small again after a pause", paused(|round| 10 << round), "........FF..F"),
        case("flight as large as before the pause", paused(|_| 320), ".........FF.F"),
        case("the peer takes 30 ms", turns(30_000, 0), "...........F."),
        case("the program takes 30 ms", turns(0, 30_000), "...........FF"),
        case("one direction captured", blind(), "?????????????"),
        case("capture begun amid the connection", amid(), "..?...?...F.."),
    ]
}

fn letter(direction: &Direction, cause: &str) -> char {
    match verdict(direction, cause) {
        Verdict::Found(_) => 'F',
        Verdict::Clear => '.',
        Verdict::Unknown { .. } => '?',
    }
}

#[test]
fn each_detector_stands_where_it_must_and_nowhere_else() {
    let known: Vec<&str> = detect::causes().map(|(cause, _)| cause).collect();
    // Those of channels have a table of their own, and those of UDP, DNS, BR/EDR and the air have stories.
    let others = crate::channel::CAUSES.into_iter().chain(crate::udp::CAUSES).chain(crate::dns::CAUSES);
    let classic = crate::channel::CLASSIC_CAUSES.into_iter().filter(|(cause, _)| *cause == "rfcomm_credits");
    let others = others.chain(classic).chain(crate::sniffer::CAUSES);
    let others = others.map(|(cause, _)| cause).filter(|cause| !CAUSES.contains(cause));
    let columns: Vec<&str> = CAUSES.into_iter().chain(others).collect();
    assert_eq!(known, columns, "a detector without a column");
    let mut wrong = String::new();
    let mut said = [const { String::new() }; CAUSES.len()];
    for Case { story, direction, says } in cases() {
        let letters: String = CAUSES.iter().map(|cause| letter(&direction, cause)).collect();
        if letters != says {
            wrong += &format!("{story}: {letters}, not {says}\n");
        }
        said.iter_mut().zip(letters.chars()).for_each(|(said, letter)| said.push(letter));
    }
    assert!(wrong.is_empty(), "{wrong}");
    for (cause, said) in CAUSES.iter().zip(said) {
        // A level flight alone never tells the send buffer from the congestion window.
        let wanted = if *cause == "send_buffer" { ".?" } else { "F.?" };
        assert!(wanted.chars().all(|letter| said.contains(letter)), "{cause} is never one of {wanted}: {said}");
    }
}

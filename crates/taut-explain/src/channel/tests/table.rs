//! Each detector on each story: found (F), clear (.), or not known (?).

use super::links::{few, slow};
use super::*;
use crate::channel::CAUSES;

/// A story, and what each detector says of it, in the order of [`CAUSES`]: credit_window, controller,
/// controller_buffers, interval_quantisation, phy, length, mtu, peer_turn, sending_program.
struct Case {
    story: &'static str,
    direction: Direction,
    says: &'static str,
}

/// A busy link of 7.5 ms: SDUs of so many bytes go in packets of their own, as many in an event as are given.
fn bulk(bytes: u16, per_event: u64, change: impl FnOnce(&mut RadioLink)) -> Direction {
    let interval = 15 * MS / 2;
    let mut talk = Talk::new(coc(), interval, 60_000, 40);
    talk.link(MS, change);
    let send = |talk: &mut Talk, at: u64| {
        let acl = Acl { length: bytes + 6, begins_pdu: true, ends_sdu: true, turn: Turn::Free };
        talk.say(at, Way::Forward, L2cap::Packet(acl));
    };
    let mut at = 8 * MS;
    (0..2 * per_event).for_each(|_| send(&mut talk, at));
    for _ in 0..60 {
        let anchor = talk.anchor(at);
        for n in 1..=per_event {
            let through = anchor + n * (interval - MS / 5) / per_event;
            talk.completed(through);
            send(&mut talk, through + 1000);
        }
        at = anchor + interval - MS / 10;
    }
    talk.forward()
}

/// What the peer sends, in the log of the receiving host.
fn heard(from_start: bool) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    talk.link(MS, |link| (link.from_start, link.length) = (from_start, [100; 2]));
    (0..30).for_each(|n| talk.comes(n * 1_000 * MS, Turn::Free));
    talk.engine.finish().worst.swap_remove(0)
}

fn blind() -> Direction {
    let mut talk = Talk::new(coc(), 30 * MS, 1000, 8);
    (0..200).for_each(|n| talk.send(31 * MS + n * 10 * MS, Turn::Free));
    talk.ended_with(60_000 * MS, false)
}

fn cases() -> Vec<Case> {
    let case = |story, direction, says| Case { story, direction, says };
    vec![
        case("window of three PDUs", rounds(3, 3), "F..F....."),
        case("window never used up", rounds(60, 3), "...F....F"),
        case("one packet in an event that has room for twelve", backlog(1), ".F.FF...."),
        case("twelve in such an event", backlog(12), "....F...."),
        case("two buffers, both filled at each event", twos(2), "..FF....."),
        case("twenty buffers, two of them filled", twos(20), "...F....."),
        case("a peripheral that may skip 30 events", slow(30, true), "...F....F"),
        case("one that skips none", slow(0, true), ".F.F....F"),
        case("LE 1M, whole packets", bulk(245, 3, |_| {}), "....F...."),
        case("LE 2M, whole packets", bulk(245, 5, |link| link.phy = [2; 2]), "...F....."),
        // Ten exchanges leave a part of each event unused: with 15 ms the links that show the same carry 4.5 % more.
        case("data PDUs of 27 bytes", bulk(245, 1, |link| link.length = [27; 2]), "...FFF..."),
        case("SDUs of 40 bytes", bulk(40, 12, |link| link.phy = [2; 2]), "......F.."),
        case("the peer answers after 60 ms", questions(60 * MS), "...F...F."),
        case("the peer answers at once", questions(MS / 10), "...F....."),
        case("notifications with pauses of 60 ms", notifications(60 * MS), "...F....F"),
        case("two packets", few(2), ".?.??.?.."),
        case("in the log of the receiving host", heard(true), ".????????"),
        case("the same, begun late", heard(false), ".????????"),
        case("no Number Of Completed Packets", blind(), "?????????"),
        case("opening not in the log", unopened(), "???????.?"),
    ]
}

fn letter(direction: &Direction, cause: &str) -> char {
    match &direction.verdicts.iter().find(|on| on.cause == cause).expect("all causes are told").verdict {
        Verdict::Found(_) => 'F',
        Verdict::Clear => '.',
        Verdict::Unknown { .. } => '?',
    }
}

#[test]
fn each_detector_stands_where_it_must_and_nowhere_else() {
    let mut wrong = String::new();
    let mut said = [const { String::new() }; CAUSES.len()];
    for Case { story, direction, says } in cases() {
        assert_eq!(direction.verdicts.len(), CAUSES.len(), "a detector without a column");
        let letters: String = CAUSES.iter().map(|(cause, _)| letter(&direction, cause)).collect();
        if letters != says {
            wrong += &format!("{story}: {letters}, not {says}\n");
        }
        said.iter_mut().zip(letters.chars()).for_each(|(said, letter)| said.push(letter));
    }
    assert!(wrong.is_empty(), "{wrong}");
    for ((cause, _), said) in CAUSES.iter().zip(said) {
        assert!("F.?".chars().all(|letter| said.contains(letter)), "{cause} is never one of F.?: {said}");
    }
}

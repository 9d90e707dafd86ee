use proptest::prelude::*;
use taut_event::{Direction, LeHeader, LePdu};
use taut_time::Instant;

use super::align::align;
use super::pdu::Pdu;
use super::split::{Stay, split};
use super::*;
use crate::join::report::Joined;
use crate::join::why::NotJoined;

/// PDUs that are all different, or of which only lengths are known.
fn pdus(lengths: &[u8], is_sealed: bool) -> Vec<Pdu> {
    let of = |(number, length): (usize, &u8)| Pdu {
        hash: if is_sealed { 0 } else { number as u64 + 1 },
        length: 12 + u32::from(*length),
        ..Pdu::default()
    };
    lengths.iter().enumerate().map(of).collect()
}

/// Those that a file has, with what they are; behind one that it lacks the next one says so.
fn kept(all: &[Pdu], lost: &[bool]) -> (Vec<Pdu>, Vec<usize>) {
    let (mut kept, mut numbers, mut has_hole) = (Vec::new(), Vec::new(), false);
    for (number, pdu) in all.iter().enumerate() {
        if lost.get(number).copied().unwrap_or(false) {
            has_hole = true;
            continue;
        }
        kept.push(Pdu { is_after_hole: std::mem::take(&mut has_hole), ..*pdu });
        numbers.push(number);
    }
    (kept, numbers)
}

fn rarely() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(prop::bool::weighted(0.05), 200)
}

proptest! {
    #[test]
    fn all_that_both_have_are_found_by_their_bytes_whatever_each_lacks(
        lengths in prop::collection::vec(0..4_u8, 1..200), ours in rarely(), theirs in rarely(),
    ) {
        let all = pdus(&lengths, false);
        let ((one, one_is), (other, other_is)) = (kept(&all, &ours), kept(&all, &theirs));
        let found = align(&one, &other, true);
        for [a, b] in &found.pairs {
            prop_assert_eq!(one_is[*a as usize], other_is[*b as usize]);
        }
        let common = one_is.iter().filter(|number| other_is.contains(number)).count();
        prop_assert_eq!(found.pairs.len(), common);
    }

    #[test]
    fn of_cipher_text_none_is_taken_for_another_from_the_begin_on(
        lengths in prop::collection::vec(0..4_u8, 1..200), ours in rarely(), theirs in rarely(),
    ) {
        let ((one, one_is), (other, other_is)) =
            (kept(&pdus(&lengths, false), &ours), kept(&pdus(&lengths, true), &theirs));
        let first_lost = ours.iter().zip(&theirs).position(|(one, other)| *one || *other).unwrap_or(lengths.len());
        let found = align(&one, &other, true);
        for [a, b] in &found.pairs {
            prop_assert_eq!(one_is[*a as usize], other_is[*b as usize]);
        }
        prop_assert!(found.pairs.len() >= first_lost.min(lengths.len()), "{} {}", found.pairs.len(), first_lost);
    }

    #[test]
    fn the_parts_of_the_time_add_up_and_any_pdus_are_joined_or_refused(
        ops in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..300),
    ) {
        let files = [made(&ops, 0), made(&ops, 5_000_000)];
        for (reference, other) in [(&files[0], &files[1]), (&files[1], &files[0]), (&files[0], &files[0])] {
            let Ok(joined) = join_bluetooth(reference, other) else { continue };
            for way in &joined.bluetooth.as_ref().unwrap().ways {
                let Some(split) = way.in_controller else { continue };
                prop_assert_eq!(split.parts().iter().map(|(_, ns)| ns).sum::<u64>(), split.held_ns);
            }
        }
    }
}

/// A file of a host's link and of one on the air, by any bytes.
fn made(ops: &[(u8, u8, u8)], ahead: u64) -> Crossings {
    let mut file = Crossings::new();
    file.connected((0, 1), Some(true), [1; 6]);
    file.air_link(7, Some([[2; 6], [1; 6]]));
    let mut at = 1_000_000_000 + ahead;
    for (frame, &(kind, wait, value)) in ops.iter().enumerate() {
        at += u64::from(wait) * 10_000;
        let place = (Instant::from_nanos(at), frame as u64 + 1);
        let payload = [value % 9, 0, 4, 0, value, value, value, value, value, value, value, value, value];
        let payload = &payload[..4 + usize::from(value % 9)];
        let way = if kind & 8 == 0 { Direction::Forward } else { Direction::Backward };
        match kind & 7 {
            0 | 1 => file.acl(place, (0, 1), kind & 8 != 0, kind & 16 == 0, payload, payload.len()),
            2 => file.completed(place, (0, 1), u16::from(value & 3)),
            3 if kind & 0xf0 == 0xf0 => file.lost(),
            3 if kind & 0xf0 == 0xe0 => file.reset(0),
            _ => {
                let length = if kind & 32 == 0 { payload.len() as u8 } else { 0 };
                let header = LeHeader {
                    is_control: kind & 0xc0 == 0xc0,
                    continues: value & 16 != 0,
                    sn: value & 32 != 0,
                    nesn: value & 64 != 0,
                    md: value & 128 != 0,
                    length,
                };
                let pdu = LePdu {
                    header: (wait != 0).then_some(header),
                    hash: value.into(),
                    air_ns: 100_000,
                    phy: 1,
                    begins_event: kind & 16 != 0,
                    is_after_hole: wait == 1,
                    unseen_events: u16::from(wait == 2),
                };
                let on_air = OnAir { payload: &payload[..length.into()], is_deciphered: false };
                file.air_pdu(place, 7, way, &pdu, on_air);
            }
        }
    }
    file.finish();
    file
}

/// A log of a central's host, which is 3 ms ahead, and the air: each 10 ms a PDU is handed over, and 15 ms later on the
/// air with one that comes back; a millisecond behind its acknowledgement the controller tells so. The log lacks
/// some hand-overs, and its clock is set an hour ahead.
fn conversation(lacks: impl Fn(u32) -> bool, step_at: u64) -> [Crossings; 2] {
    made_on(&[1], false, lacks, step_at, [3_600_000, 0])
}

/// The same, with the log's link on each of these handles alike.
fn conversation_on(handles: &[u16], lacks: impl Fn(u32) -> bool, step_at: u64) -> [Crossings; 2] {
    made_on(handles, false, lacks, step_at, [3_600_000, 0])
}

/// The same with clocks that are set by so many milliseconds: the log's and the sniffer's.
fn stepped(lacks: impl Fn(u32) -> bool, step_at: u64, steps: [i64; 2]) -> [Crossings; 2] {
    made_on(&[1], false, lacks, step_at, steps)
}

/// With the log's link on each of these handles, and clocks that are set; if so, the other end is of the same host.
fn made_on(
    handles: &[u16],
    has_both_ends: bool,
    lacks: impl Fn(u32) -> bool,
    step_at: u64,
    steps: [i64; 2],
) -> [Crossings; 2] {
    const MS: u64 = 1_000_000;
    let [of_log, of_air] = steps.map(|step| step * MS as i64);
    let clock = |at: u64, step: i64| if at > step_at { at.wrapping_add_signed(step) } else { at };
    let [mut host, mut air] = [Crossings::new(), Crossings::new()];
    handles.iter().for_each(|&handle| host.connected((0, handle), Some(true), [1; 6]));
    if has_both_ends {
        host.connected((1, 1), Some(false), [2; 6]);
    }
    air.air_link(7, Some([[2; 6], [1; 6]]));
    let payload = |number: u32, way: u8| [&[9, 0, 4, 0][..], &number.to_le_bytes(), &[way; 5]].concat();
    let mut log: Vec<(u64, u32, u8)> = Vec::new();
    for number in 0..300 {
        let begin = 1000 * MS + u64::from(number) * 10 * MS;
        let on_air = begin + 15 * MS;
        for (way, at) in [(Direction::Forward, on_air), (Direction::Backward, on_air + MS)] {
            let is_back = way == Direction::Backward;
            let payload = payload(number, u8::from(is_back));
            let header = LeHeader {
                is_control: false,
                continues: false,
                sn: number % 2 == 1,
                nesn: (number % 2 == 1) != is_back,
                md: false,
                length: payload.len() as u8,
            };
            let pdu = LePdu {
                header: Some(header),
                hash: number * 2 + u32::from(is_back),
                air_ns: 200_000,
                phy: 1,
                begins_event: !is_back,
                is_after_hole: false,
                unseen_events: 0,
            };
            let place = (Instant::from_nanos(clock(at, of_air)), u64::from(number) * 2 + u64::from(is_back) + 1);
            air.air_pdu(place, 7, way, &pdu, OnAir { payload: &payload, is_deciphered: false });
        }
        if !lacks(number) {
            log.push((begin, number, 0));
        }
        log.extend([(on_air + 2 * MS, number, 1), (on_air + 2 * MS + 200_000, number, 2)]);
        if has_both_ends {
            log.extend([(begin, number, 3), (on_air + MS, number, 4), (on_air + 3 * MS, number, 5)]);
        }
    }
    log.sort_unstable();
    for (frame, (at, number, kind)) in log.into_iter().enumerate() {
        let at = clock(at, of_log) + 3 * MS;
        let place = (Instant::from_nanos(at), frame as u64 + 1);
        match kind {
            3 => host.acl(place, (1, 1), false, true, &payload(number, 1), 13),
            4 => host.acl(place, (1, 1), true, true, &payload(number, 0), 13),
            5 => host.completed(place, (1, 1), 1),
            _ => {}
        }
        for &handle in handles.iter().filter(|_| kind < 3) {
            match kind {
                2 => host.completed(place, (0, handle), 1),
                way => host.acl(place, (0, handle), way == 1, true, &payload(number, way), 13),
            }
        }
    }
    host.finish();
    air.finish();
    [host, air]
}

/// The way of what the log's host sends, of both orders of the files.
fn sent(files: &[Crossings; 2]) -> [(Joined, BluetoothWay); 2] {
    [[0, 1], [1, 0]].map(|[one, two]| {
        let joined = join_bluetooth(&files[one], &files[two]).unwrap();
        assert!(!joined.bluetooth.as_ref().unwrap().is_told_early, "{joined:?}");
        let way = joined.bluetooth.as_ref().unwrap().ways.iter().find(|way| way.sender.is_some()).cloned();
        (joined, way.unwrap())
    })
}

/// From acknowledgement to report it is a millisecond.
fn is_soon(joined: &Joined, way: &BluetoothWay) -> bool {
    let (told, error) = (way.to_report.as_ref().unwrap(), joined.clock.uncertainty_ns + 10);
    let is_right = |ns: i64| ns.abs_diff(1_000_000) <= error;
    let late = way.in_controller.unwrap().reported_late_ns;
    is_right(told.least_ns) && is_right(told.most_ns) && late <= told.count * (1_000_000 + error)
}

#[test]
fn a_step_of_the_clock_is_no_time_of_the_controller() {
    for (joined, way) in sent(&conversation(|_| false, u64::MAX)) {
        assert!(is_soon(&joined, &way) && way.to_report.as_ref().unwrap().count >= 299, "{joined:?}");
        assert!(!joined.remarks.iter().any(|remark| remark.contains("left out")), "{joined:?}");
    }
    for part in 0..10 {
        for (joined, way) in sent(&conversation(|_| false, 3_000_000_000 + part * 1_000_000)) {
            assert!(joined.clock.uncertainty_ns < 20_000_000, "{part} {joined:?}");
            assert!(joined.clock.steps == 1 && is_soon(&joined, &way), "{part} {joined:?}");
            // What comes is at the host 0.8 ms after its end on the air, whatever its clock shows.
            let came = joined.bluetooth.as_ref().unwrap().ways.iter().find_map(|way| way.to_host.as_ref()).unwrap();
            assert!(came.most_ns - came.least_ns < 1000, "{part} {joined:?}");
            let left_out = joined.remarks.iter().any(|remark| remark.contains("reports of the controller are not of"));
            let count = way.to_report.as_ref().unwrap().count;
            assert!(count > 190 && (left_out || count == way.pdus), "{part} {joined:?}");
        }
    }
}

#[test]
fn of_links_that_are_copies_one_is_joined_and_that_is_said() {
    let is_copy = |remark: &String| remark.starts_with("1 × a link of one file has the same PDUs");
    for (joined, _) in sent(&conversation_on(&[1, 2], |_| false, u64::MAX)) {
        assert_eq!((joined.connections, joined.remarks.iter().filter(|remark| is_copy(remark)).count()), (1, 1));
    }
    for (joined, way) in sent(&conversation(|_| false, u64::MAX)) {
        assert!(!joined.remarks.iter().any(is_copy), "{joined:?}");
        assert_eq!(way.link, (0, 1));
    }
}

/// As with two adapters of one host, one of which is connected to the other.
#[test]
fn both_ends_of_a_link_may_be_of_one_host() {
    for (joined, _) in sent(&made_on(&[1], true, |_| false, u64::MAX, [0, 0])) {
        let ways = &joined.bluetooth.as_ref().unwrap().ways;
        assert_eq!((joined.connections, ways.len()), (2, 4), "{joined:?}");
        assert_eq!(ways.iter().filter(|way| way.in_controller.is_some()).count(), 2, "{joined:?}");
        // Each end tells one of the clock's bounds better than the other.
        let [(alone, _), _] = sent(&made_on(&[1], false, |_| false, u64::MAX, [0, 0]));
        assert!(joined.clock.uncertainty_ns < alone.clock.uncertainty_ns, "{joined:?} {alone:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_shows_no_time_again() {
    let mut steps = 0;
    for (by, part) in [-1000, -1500, 1000].into_iter().flat_map(|by| (0..10).map(move |part| (by, part))) {
        for of in [[by, 0], [0, by]] {
            for (joined, way) in sent(&stepped(|_| false, 3_000_000_000 + part * 1_000_000, of)) {
                assert!(joined.clock.steps == 1 && is_soon(&joined, &way), "{of:?} {part} {joined:?}");
                steps += 1;
                // All that are sent, and all that come, take the same time.
                let ways = &joined.bluetooth.as_ref().unwrap().ways;
                let came = ways.iter().find_map(|way| way.to_host.as_ref()).unwrap();
                for told in [way.to_air.as_ref(), way.to_acknowledgement.as_ref(), Some(came)].into_iter().flatten() {
                    assert!(told.most_ns - told.least_ns < 1000, "{of:?} {part} {joined:?}");
                }
                assert!(ways.iter().all(|way| way.pdus > 190 && way.missing <= 3), "{of:?} {part} {joined:?}");
                assert!(way.in_controller.unwrap().held_ns > 1_900_000_000, "{of:?} {part} {joined:?}");
                assert_eq!(joined.first_frames.iter().filter(|frame| **frame < 5).count(), 2, "{joined:?}");
            }
        }
    }
    assert_eq!(steps, 120);
}

#[test]
fn packets_without_a_time_are_told() {
    let [mut host, air] = conversation(|_| false, u64::MAX);
    host.timeless();
    let joined = join_bluetooth(&air, &host).unwrap();
    assert!(joined.remarks.iter().any(|remark| remark.starts_with("1 packet of links has no time")), "{joined:?}");
}

#[test]
fn an_answer_before_its_pdu_is_no_acknowledgement() {
    const MS: u64 = 1_000_000;
    let mut air = Crossings::new();
    air.air_link(7, Some([[2; 6], [1; 6]]));
    let mut say = |frame: u64, at: u64, way: Direction, header: LeHeader| {
        let payload = [9, 0, 4, 0, frame as u8, 1, 2, 3, 4, 5, 6, 7, 8];
        let pdu = LePdu { header: Some(header), hash: frame as u32, air_ns: 200_000, phy: 1, ..LePdu::default() };
        let on_air = OnAir { payload: &payload[..header.length.into()], is_deciphered: false };
        air.air_pdu((Instant::from_nanos(at), frame), 7, way, &pdu, on_air);
    };
    for (number, answer) in [(0, 11), (1, 15), (2, 31), (3, 41)] {
        let (sn, nesn) = (number % 2 == 1, number % 2 == 0);
        let sent = LeHeader { sn, nesn: sn, length: 13, ..LeHeader::default() };
        say(2 * number + 1, (10 + 10 * number) * MS, Direction::Forward, sent);
        say(2 * number + 2, answer * MS, Direction::Backward, LeHeader { sn, nesn, ..LeHeader::default() });
    }
    air.finish();
    let done: Vec<(u64, u64)> = air.links[0].ways[0].iter().map(|pdu| (pdu.done, pdu.done_frame)).collect();
    let known = |number: u64| ((11 + 10 * number) * MS + 200_000, 2 * number + 2);
    assert_eq!(done, [known(0), (0, 0), known(2), known(3)]);
}

#[test]
fn what_a_log_lacks_is_counted_and_no_report_behind_it_is_used() {
    for (joined, way) in sent(&conversation(|number| number == 100 || number == 150, u64::MAX)) {
        assert!((way.not_in_log, way.pdus) == (2, 298) && is_soon(&joined, &way), "{joined:?}");
        assert_eq!(way.to_report.as_ref().unwrap().count, 100, "{joined:?}");
        assert!(joined.remarks.iter().any(|remark| remark.starts_with("2 L2CAP PDUs on the air")), "{joined:?}");
    }
}

#[test]
fn an_event_that_ends_although_the_next_pdu_is_there_was_closed_early_and_one_that_it_misses_was_not() {
    use super::air::Slot;
    const MS: u64 = 1_000_000;
    let slot = |at: u64, marks: u16| Slot { at, air_ns: 100_000, marks };
    let event = |at: u64| {
        let answer = Slot::BACKWARD | Slot::ACKNOWLEDGES;
        [slot(at, Slot::BEGINS | Slot::DATA), slot(at + 250_000, answer)]
    };
    let slots: Vec<Slot> = [10, 40, 70].into_iter().flat_map(|at| event(at * MS)).collect();
    let stay = |from: u64, event: u64| Stay {
        from,
        last: event * MS,
        acknowledged: event * MS + 350_000,
        reported: event * MS + 400_000,
    };
    // The second one is there before the first event, the third one comes after the second event.
    let told = split(&slots, 0, &[stay(10 * MS, 10), stay(10 * MS, 40), stay(50 * MS, 70)], |_| {});
    assert_eq!(told.on_air_ns, 3 * 350_000);
    assert_eq!(told.closed_early_ns, 30 * MS - 350_000);
    assert_eq!(told.waits_for_event_ns, 20 * MS);
    // Of the first one the second one was still to be sent, and the capture ends with the third one's answer.
    assert_eq!((told.repeats_ns, told.reported_late_ns, told.pdus), (0, 50_000, 3));
}

/// The same exchange once or more often, each time as a link of its own, which begins at these milliseconds: as the
/// central's host and as the peripheral's has it. A PDU takes between 2 and 3 ms.
fn runs(central: &[u64], peripheral: &[u64]) -> [Crossings; 2] {
    const MS: u64 = 1_000_000;
    let file = |is_central: bool, begins: &[u64]| {
        let mut file = Crossings::new();
        let mut frame = 0;
        for (run, begin) in begins.iter().enumerate() {
            let handle = (0, run as u16 + 1);
            file.connected(handle, Some(is_central), [1; 6]);
            for number in 0..100_u32 {
                let is_sent = (number % 2 == 0) == is_central;
                let way = 2 * MS + u64::from(number * 7919 % 1000) * 1000;
                let at = (begin + 20 * u64::from(number)) * MS + if is_sent { 0 } else { way };
                let payload = [&[9, 0, 4, 0][..], &number.to_le_bytes(), &[7; 5]].concat();
                frame += 1;
                file.acl((Instant::from_nanos(at), frame), handle, !is_sent, true, &payload, 13);
            }
        }
        file.finish();
        file
    };
    [file(true, central), file(false, peripheral)]
}

#[test]
fn of_two_runs_that_look_alike_none_is_taken_for_the_other() {
    let offset = |[central, peripheral]: [Crossings; 2]| {
        join_bluetooth(&central, &peripheral).map(|joined| (joined.clock.offset_ns, joined.matched_packets))
    };
    let (alone, pdus) = offset(runs(&[1000], &[1000])).unwrap();
    assert!(alone.abs() < 2_000_000 && pdus == 100, "{alone} {pdus}");
    assert_eq!(offset(runs(&[1000, 11_000], &[11_000])), Err(NotJoined::SeveralLinks));
    // Where both have both, only one clock explains all.
    let (both, pdus) = offset(runs(&[1000, 11_000], &[1000, 11_000])).unwrap();
    assert!(both.abs() < 2_000_000 && pdus == 200, "{both} {pdus}");
}

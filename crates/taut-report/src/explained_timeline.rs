//! What stands of a capture and a trace on one timeline in the text on captures, and its lanes.

use taut_event::Holder;
use taut_explain::join::{ClockFit, JoinedDirection, JoinedTrace, Witnessed};

use crate::explained_file::holder_alone;
use crate::explained_joined::rate;
use crate::found::breakdown;
use crate::lane::Lane;
use crate::lines::{fold, wrap};
use crate::units;

/// Rows of a breakdown, stretches and differences in the short form.
const ROWS: usize = 5;
const STRETCHES: usize = 1;
const DIFFERENCES: usize = 3;
/// Less of the time is no difference worth a line.
const LEAST_SHARE: f64 = 0.01;
/// Clocks of two machines are rarely nearer to each other, and an error above this could hide that they are two.
const ONE_CLOCK_NS: u64 = 20_000;

/// At most 100 columns wide. Without all details only the first direction.
pub(crate) fn lines(joined: &JoinedTrace, is_full: bool) -> Vec<String> {
    let mut lines = outdented(&format!("JOINED {}", clock(joined)));
    lines.extend(wrap("  ", &error(joined)));
    lines.extend(joined.remarks.iter().flat_map(|remark| wrap("  ", remark)));
    let shown = if is_full { joined.directions.len() } else { joined.directions.len().min(1) };
    for direction in &joined.directions[..shown] {
        lines.extend(one(direction, joined, is_full));
    }
    match joined.directions.len() {
        0 => {
            let text =
                "The directions that the capture reports are of no connection that was traced; --top reports more.";
            lines.extend(wrap("  ", text));
        }
        all if all > shown => {
            lines.push(format!("{} more on this timeline; --full shows them.", units::count((all - shown) as u64)));
        }
        _ => {}
    }
    lines
}

fn outdented(text: &str) -> Vec<String> {
    let mut lines = wrap("  ", text);
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    lines
}

/// `By its host's time of day slow.events is 3.20 ms ahead of slow.pcap's clock, ± 80.0 µs, …`
fn clock(joined: &JoinedTrace) -> String {
    let JoinedTrace { reference, trace, clock, .. } = joined;
    let offset = clock.offset_ns.unsigned_abs();
    let side = if clock.offset_ns < 0 { "behind" } else { "ahead of" };
    let offset = match offset {
        0 => format!("is that of {reference}"),
        _ => format!("is {} {side} {reference}'s", units::time(offset)),
    };
    let rate = if joined.is_by_time_of_day { String::new() } else { format!(", and {}", rate(clock)) };
    let connections = match joined.connections {
        1 => "1 connection".to_owned(),
        count => format!("{} connections", units::count(count)),
    };
    let segments = match joined.matched_packets {
        1 => "1 segment".to_owned(),
        count => format!("{} segments", units::count(count)),
    };
    format!(
        "{trace}'s time of day {offset}, ± {}{rate}; by {segments} of {connections} that both have.",
        units::time(clock.uncertainty_ns)
    )
}

fn error(joined: &JoinedTrace) -> String {
    if joined.is_by_time_of_day {
        return "The error is that of reading the traced host's clocks.".to_owned();
    }
    let ClockFit { offset_ns, uncertainty_ns, .. } = joined.clock;
    let is_one = uncertainty_ns <= ONE_CLOCK_NS && offset_ns.unsigned_abs() <= uncertainty_ns;
    let is_one = if is_one { " Both have one clock as far as that tells, as on one machine." } else { "" };
    format!(
        "The error is what no packet contradicts: from the traced socket to the capture and back it takes {} at \
         least.{is_one}",
        units::time(joined.clock.least_round_trip_ns)
    )
}

/// `10.0.0.1:4000 > 10.0.0.2:80, python3 (4711): 4.99 s on one timeline`
pub(crate) fn title(direction: &JoinedDirection) -> String {
    let JoinedDirection { from, to, sender, receiver, span_ns, .. } = direction;
    let sender = sender.as_deref().map_or_else(String::new, |program| format!(", from {program}"));
    let receiver = receiver.as_deref().map_or_else(String::new, |program| format!(", to {program}"));
    format!("{from} > {to}{sender}{receiver}: {} on one timeline", units::time(*span_ns))
}

fn one(direction: &JoinedDirection, joined: &JoinedTrace, is_full: bool) -> Vec<String> {
    let JoinedDirection { span_ns, captured_ns, traced_ns, told, .. } = direction;
    let mut lines = fold(&title(direction));
    lines.extend(breakdown(&direction.breakdown, *span_ns, if is_full { usize::MAX } else { ROWS }));
    let whole = (*span_ns).max(1) as f64;
    let share = |ns: u64| units::share(ns as f64 / whole);
    let JoinedTrace { reference, trace, .. } = joined;
    lines.extend(wrap(
        "  ",
        &format!(
            "{reference} has {} of it, {trace} {}. Both say the same for {}; {trace} is believed for {}, {reference} for \
             {}; nobody knows {}.",
            share(*captured_ns),
            share(*traced_ns),
            share(told.both_ns),
            share(told.trace_ns),
            share(told.capture_ns),
            share(told.nobody_ns)
        ),
    ));
    lines.extend(differences(direction, joined, is_full));
    let seen = direction.longest.iter().filter(|one| is_full || is_to_act(&one.holder));
    let stretches = seen.take(if is_full { usize::MAX } else { STRETCHES });
    lines.extend(stretches.flat_map(|one| wrap("  ", &witnessed(one, longest_of(direction, one)))));
    lines.extend(direction.remarks.iter().flat_map(|remark| wrap("  ", remark)));
    lines
}

/// Whether a holder is one that somebody may do something about, and not just somebody's turn.
fn is_to_act(holder: &str) -> bool {
    let turns = [Holder::SendingProgram, Holder::PeerTurn, Holder::Delivery, Holder::NotKnown];
    turns.iter().all(|turn| turn.name() != holder)
}

/// The longest stretch of its holder, between packets or not.
fn longest_of(direction: &JoinedDirection, one: &Witnessed) -> u64 {
    let of_holder = direction.breakdown.iter().find(|held| held.holder == one.holder);
    of_holder.and_then(|held| held.longest.first()).map_or(0, |stall| stall.held_ns)
}

fn witnessed(one: &Witnessed, longest_ns: u64) -> String {
    let frames = match one.frames {
        [0, _] | [_, 0] => String::new(),
        [first, last] => format!(" Wireshark: frame.number in {{{first}..{last}}}"),
    };
    let seen = if one.seen.is_empty() { String::new() } else { format!(" {}", one.seen) };
    let (holder, time) = (holder_alone(&one.holder), units::time(one.held_ns));
    if longest_ns > one.held_ns {
        let longest = units::time(longest_ns);
        return format!(
            "Longest between two captured packets, {holder}: {time} ({longest} where the capture lacks one).{seen}{frames}"
        );
    }
    format!("Longest, {holder}: {time}.{seen}{frames}")
}

fn differences(direction: &JoinedDirection, joined: &JoinedTrace, is_full: bool) -> Vec<String> {
    let whole = direction.span_ns.max(1) as f64;
    let JoinedTrace { reference, trace, .. } = joined;
    let shown = direction.disagreements.iter().filter(|one| is_full || one.held_ns as f64 >= LEAST_SHARE * whole);
    let told = shown.take(if is_full { usize::MAX } else { DIFFERENCES }).map(|one| {
        format!(
            "{reference}: {}, {trace}: {}, for {} ({}); booked as {}.",
            holder_alone(&one.captured),
            holder_alone(&one.traced),
            units::time(one.held_ns),
            units::share(one.held_ns as f64 / whole),
            holder_alone(&one.holder)
        )
    });
    told.flat_map(|line| wrap("  ", &line)).collect()
}

/// The directions that have a picture, in the group given.
pub(crate) fn lanes<'a>(group: (usize, &'a str), joined: &'a JoinedTrace) -> impl Iterator<Item = Lane<'a>> {
    joined.directions.iter().filter_map(move |direction| {
        Some(Lane {
            group,
            ends: [&direction.from, &direction.to],
            who: " (captured and traced)".to_owned(),
            begin_ns: direction.begin_ns,
            span_ns: direction.span_ns,
            verdicts: &[],
            picture: direction.picture.as_ref()?,
            has_frames: true,
        })
    })
}

#[cfg(test)]
mod tests {
    use taut_explain::join::{ClockFit, Disagreement, ToldBy};
    use taut_explain::{Held, Stall};

    use super::*;

    fn joined() -> JoinedTrace {
        let held = |holder: Holder, held_ns: u64| Held {
            holder: holder.name().to_owned(),
            side: String::new(),
            held_ns,
            share: held_ns as f64 / 1e9,
            episodes: 2,
            longest: Vec::new(),
        };
        let direction = JoinedDirection {
            from: "10.0.0.1:4000".to_owned(),
            to: "10.0.0.2:80".to_owned(),
            sender: Some("python3 (4711)".to_owned()),
            span_ns: 1_000_000_000,
            captured_ns: 900_000_000,
            traced_ns: 1_000_000_000,
            breakdown: vec![held(Holder::SendBuffer, 800_000_000), held(Holder::PeerTurn, 200_000_000)],
            told: ToldBy { both_ns: 200_000_000, trace_ns: 800_000_000, capture_ns: 0, nobody_ns: 0 },
            disagreements: vec![Disagreement {
                captured: "send_buffer_or_congestion".to_owned(),
                traced: "send_buffer".to_owned(),
                holder: "send_buffer".to_owned(),
                held_ns: 800_000_000,
            }],
            longest: vec![Witnessed {
                holder: "send_buffer".to_owned(),
                begin_ns: 0,
                held_ns: 500_000_000,
                frames: [3, 9],
                seen: "python3 (4711), thread 4711, had written 48 bytes; let go by an ACK.".to_owned(),
            }],
            ..JoinedDirection::default()
        };
        let clock = ClockFit {
            offset_ns: -3_200_000,
            uncertainty_ns: 80_000,
            least_round_trip_ns: 150_000,
            rate_between_ppm: [-1.0, 1.0],
            ..ClockFit::default()
        };
        let (reference, trace) = ("a.pcap".to_owned(), "a.events".to_owned());
        let directions = vec![direction.clone(), direction];
        JoinedTrace {
            reference,
            trace,
            connections: 1,
            matched_packets: 40,
            clock,
            directions,
            ..JoinedTrace::default()
        }
    }

    fn told(joined: &JoinedTrace, is_full: bool) -> String {
        let lines = lines(joined, is_full);
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
        lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn offset_holders_differences_and_places_are_told() {
        let text = told(&joined(), false);
        for part in [
            "JOINED a.events's time of day is 3.20 ms behind a.pcap's, ± 80.0 µs, and runs as fast as far as these tell",
            "by 40 segments of 1 connection that both have. The error is what no packet contradicts",
            "10.0.0.1:4000 > 10.0.0.2:80, from python3 (4711): 1.00 s on one timeline",
            "a.pcap has 90.0 % of it, a.events 100 %. Both say the same for 20.0 %; a.events is believed for 80.0 %",
            "a.pcap: send buffer or congestion window, a.events: send buffer, for 800 ms (80.0 %); booked as send buffer.",
            "Longest, send buffer: 500 ms. python3 (4711), thread 4711, had written 48 bytes; let go by an ACK. \
             Wireshark: frame.number in {3..9}",
            "1 more on this timeline; --full shows them.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(told(&joined(), true).matches("on one timeline").count(), 2);
    }

    #[test]
    fn a_longer_stretch_that_has_no_packets_is_told_too() {
        let mut longer = joined();
        let stall = |held_ns| Stall { begin_ns: 0, held_ns, frames: [0, 9] };
        longer.directions[0].breakdown[0].longest = vec![stall(500_000_000)];
        assert!(told(&longer, false).contains("Longest, send buffer: 500 ms. python3"));
        longer.directions[0].breakdown[0].longest = vec![stall(700_000_000)];
        let text = told(&longer, false);
        let part =
            "Longest between two captured packets, send buffer: 500 ms (700 ms where the capture lacks one). python3";
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn long_ends_are_told_in_full_with_all_that_follows() {
        let mut long = joined();
        let end = |last: &str| format!("[2001:db8:1111:2222:3333:4444:5555:{last}]:54321");
        (long.directions[0].from, long.directions[0].to) = (end("6666"), end("ffff"));
        long.matched_packets = 1;
        let text = told(&long, false);
        let title = format!("{} > {}, from python3 (4711): 1.00 s on one timeline", end("6666"), end("ffff"));
        assert!(text.contains(&title) && text.contains("by 1 segment of 1 connection"), "{text}");
    }

    #[test]
    fn one_clock_is_told_only_where_two_would_be_seen() {
        let says = |offset_ns, uncertainty_ns| {
            let clock = ClockFit { offset_ns, uncertainty_ns, ..ClockFit::default() };
            told(&JoinedTrace { clock, ..joined() }, false).contains("one clock")
        };
        assert!(says(1750, 4280) && !says(5000, 4280) && !says(8_950_000, 10_700_000));
    }

    #[test]
    fn a_clock_by_the_time_of_day_says_so() {
        let by_time =
            JoinedTrace { is_by_time_of_day: true, clock: ClockFit::default(), directions: vec![], ..joined() };
        let text = told(&by_time, false);
        assert!(
            text.contains("time of day is that of a.pcap, ± 0 ns; by 40") && text.contains("reading the traced"),
            "{text}"
        );
        assert!(text.contains("--top reports more"), "{text}");
    }
}

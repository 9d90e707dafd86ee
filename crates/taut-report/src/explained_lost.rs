//! What stands of losses and acknowledgements in the text on joined captures.

use taut_explain::join::{DatagramLosses, Frames, Losses, Lost, Way};

use crate::units;

/// So many frames of each kind stand in the text.
const MOST_NAMED: usize = 4;

/// Of the way from one file's place to that of the other.
pub(crate) fn lines(from: &str, to: &str, way: &Way) -> Vec<String> {
    let Way { losses, acknowledged, datagrams, .. } = way;
    let mut lines = Vec::new();
    if losses.segments > 0 {
        lines.push(lost(from, to, losses));
    }
    let [near, far] = losses.not_captured;
    if near + far > 0 {
        lines.push(format!(
            "Not lost, but missing in the files: {} that passed {from}, {} that passed {to}. A repetition behind such \
             a hole may be told wrong.",
            segments(near),
            segments(far)
        ));
    }
    if acknowledged.segments > 0 {
        let [least, median, p99, most] =
            [acknowledged.least_ns, acknowledged.median_ns, acknowledged.p99_ns, acknowledged.most_ns].map(units::time);
        let [data, answer] = acknowledged.slowest_frames;
        lines.push(format!(
            "The receiver acknowledged {} {least} at least after they came to {to}, {median} (median), {p99} (p99), \
             {most} at most (frame {data}, acknowledged by {answer}).",
            segments(acknowledged.segments)
        ));
    }
    lines.extend(of_datagrams(from, to, datagrams));
    lines
}

fn of_datagrams(from: &str, to: &str, told: &DatagramLosses) -> Vec<String> {
    let count =
        |count: u64| if count == 1 { "1 datagram".to_owned() } else { format!("{} datagrams", units::count(count)) };
    let mut lines = Vec::new();
    let [untold_near, untold_far] = told.untold;
    if told.datagrams > 0 {
        let all = count(told.datagrams);
        let what = match told.between.segments {
            0 => " none was lost".to_owned(),
            _ => format!(": {}", one((&told.between, format!("lost between {from} and {to}")))),
        };
        let overtaken = match told.overtaken {
            0 => String::new(),
            some => format!("; {} overtaken by a later one", units::count(some)),
        };
        let of = if untold_near > 0 { " that can be told" } else { "" };
        lines.push(format!("Of {all} of UDP on this way{of}{what}{overtaken}."));
    }
    if untold_near + untold_far > 0 {
        lines.push(format!(
            "Not told is what became of datagrams of flows that only one file has, or of which no way is known: {} at \
             {from}, which may be lost, {} at {to}.",
            count(untold_near),
            count(untold_far)
        ));
    }
    let [near, far] = told.not_captured;
    if near + far > 0 {
        lines.push(format!(
            "Not lost, but missing in the files: {} that passed {from}, {} that passed {to}.",
            count(near),
            count(far)
        ));
    }
    if told.ambiguous > 0 {
        lines.push(format!("{} on this way are equal to others, and nothing tells which came.", count(told.ambiguous)));
    }
    if told.cut_up > 0 {
        lines.push(format!(
            "What became of {} can't be told: their service's are cut up or put together on the way (offload).",
            count(told.cut_up)
        ));
    }
    lines
}

fn lost(from: &str, to: &str, losses: &Losses) -> String {
    let all = segments(losses.segments);
    let kinds = [
        (&losses.between, format!("lost between {from} and {to}")),
        (&losses.beyond, format!("lost beyond {to}")),
        (&losses.beyond_or_needless, format!("lost beyond {to}, or repeated needlessly (the receiver does not tell)")),
        (&losses.needless, "repeated needlessly, as they had arrived".to_owned()),
    ];
    let told: Vec<String> = kinds.into_iter().filter(|(lost, _)| lost.segments > 0).map(one).collect();
    match told.is_empty() {
        true => format!("Of {all} on this way none was lost or repeated."),
        false => format!("Of {all} on this way: {}.", told.join("; ")),
    }
}

fn one((lost, what): (&Lost, String)) -> String {
    let frames: Vec<String> = lost.first.iter().take(MOST_NAMED).map(frame).collect();
    let more = if lost.segments > frames.len() as u64 { ", …" } else { "" };
    format!("{} {what} ({}{more})", units::count(lost.segments), frames.join(", "))
}

fn frame(frames: &Frames) -> String {
    match (frames.near_frame, frames.far_frame) {
        (Some(near), Some(far)) => format!("frame {near}, there {far}"),
        (Some(near), None) => format!("frame {near}"),
        (None, far) => format!("there {}", far.unwrap_or(0)),
    }
}

fn segments(count: u64) -> String {
    if count == 1 { "1 segment".to_owned() } else { format!("{} segments", units::count(count)) }
}

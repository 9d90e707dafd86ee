//! Who held the data of a direction, and when, to be drawn; and its tracks of the Perfetto trace viewer.
//!
//! The two directions between the same two ends are the tracks of one process, a slice for each stretch of one holder.
//! Times are in microseconds from the beginning of what was looked at, with the nanoseconds behind the point.

use serde_json::{Value, json};
use taut_explain::{Picture, Span, Verdict, VerdictOn};

use crate::{perfetto, units};

/// One direction, to be drawn.
pub(crate) struct Lane<'a> {
    /// Of several files the one that it is in, and its name; an empty name is not told.
    pub(crate) group: (usize, &'a str),
    /// Who sends, and to whom.
    pub(crate) ends: [&'a str; 2],
    /// What else to call it by.
    pub(crate) who: String,
    pub(crate) begin_ns: u64,
    pub(crate) span_ns: u64,
    pub(crate) verdicts: &'a [VerdictOn],
    pub(crate) picture: &'a Picture,
    /// Whether its stretches name packets of a file.
    pub(crate) has_frames: bool,
}

/// All of them as one JSON trace.
pub(crate) fn render<'a>(lanes: impl Iterator<Item = Lane<'a>>) -> String {
    let mut processes: Vec<(usize, [&str; 2])> = Vec::new();
    let mut names = Vec::new();
    let mut events: Vec<(u64, Value)> = Vec::new();
    for (track, lane) in lanes.enumerate() {
        let mut ends = lane.ends;
        ends.sort_unstable();
        let (number, group) = lane.group;
        let process = processes.iter().position(|known| *known == (number, ends)).unwrap_or_else(|| {
            processes.push((number, ends));
            let [one, other] = ends;
            let name = if group.is_empty() { format!("{one}, {other}") } else { format!("{group}: {one}, {other}") };
            names.push(named("process_name", processes.len(), 0, &name));
            processes.len() - 1
        });
        let track = Track { process: process + 1, thread: track + 1, has_frames: lane.has_frames };
        names.push(named("thread_name", track.process, track.thread, &lane.title()));
        events.extend(lane.verdicts.iter().filter_map(|on| match &on.verdict {
            Verdict::Found(found) => {
                let seen: Vec<&str> = found.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
                let args = json!({"summary": found.summary, "evidence": seen, "change": found.remedy});
                let name = format!("FOUND {}", on.cause);
                Some((lane.begin_ns, track.event("i", &name, lane.begin_ns, &args)))
            }
            _ => None,
        }));
        events.extend(lane.picture.spans.iter().map(|span| (span.begin_ns, track.slice(span))));
    }
    events.sort_by_key(|&(at, _)| at);
    perfetto::trace(names.into_iter().chain(events.into_iter().map(|(_, event)| event)))
}

/// What the picture lacks, in a sentence; nothing where it lacks nothing.
pub(crate) fn left_out<'a>(lanes: impl Iterator<Item = Lane<'a>>) -> Option<String> {
    let (mut count, mut ns, mut whole) = (0_u64, 0_u64, 0_u64);
    for Lane { picture, span_ns, .. } in lanes {
        count += picture.left_out;
        ns = ns.saturating_add(picture.left_out_ns);
        whole = whole.saturating_add(span_ns);
    }
    (count > 0).then(|| {
        format!(
            "the {} shortest stretches are not drawn, {} of {}; fewer directions (--top) leave room for more",
            units::count(count),
            units::time(ns),
            units::time(whole)
        )
    })
}

impl Lane<'_> {
    fn title(&self) -> String {
        let [from, to] = self.ends;
        let title = format!("{from} > {to}{}", self.who);
        match self.picture.left_out {
            0 => title,
            count => format!("{title} ({} short stretches not drawn)", units::count(count)),
        }
    }
}

fn named(what: &str, process: usize, thread: usize, name: &str) -> Value {
    json!({"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}})
}

/// Where the slices of one direction go.
#[derive(Clone, Copy)]
struct Track {
    process: usize,
    thread: usize,
    has_frames: bool,
}

impl Track {
    fn event(self, phase: &str, name: &str, at: u64, args: &Value) -> Value {
        let mut event = json!({
            "ph": phase, "cat": "holder", "name": name, "pid": self.process, "tid": self.thread,
            "ts": at as f64 / 1000.0, "args": args,
        });
        if phase == "i" {
            // Of this track only.
            event["s"] = json!("t");
        }
        event
    }

    fn slice(self, span: &Span) -> Value {
        let [first, last] = span.frames;
        let mut args = json!({"side": span.holder.side().to_string()});
        if self.has_frames {
            args["wireshark"] = json!(format!("frame.number in {{{first}..{last}}}"));
        }
        let mut slice = self.event("X", &span.holder.to_string(), span.begin_ns, &args);
        slice["dur"] = json!(span.held_ns as f64 / 1000.0);
        slice
    }
}

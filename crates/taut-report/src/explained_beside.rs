//! What a trace of the same host decides of a capture's connections: a capture leaves some holders open that the
//! kernel's own state tells apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::Holder;
use taut_explain::trace::TracedDirection;
use taut_explain::{Direction, Held, Verdict};

use crate::explained_file::ExplainedFile;
use crate::explained_recorded::ExplainedTrace;
use crate::lines::wrap;
use crate::units;

/// Less of a direction's time is no question.
const LEAST_SHARE: f64 = 0.01;
/// What takes so much of what is open is the answer.
const CLEARLY: f64 = 0.8;
/// Where one saw so many times as many bytes, both saw other parts.
const OTHER_PART: u64 = 2;

const CONGESTION: &[Holder] =
    &[Holder::CongestionWindow, Holder::SlowStart, Holder::AfterIdle, Holder::Pacing, Holder::PathQueue];

/// A direction of a connection that both a capture and a trace of its sender have. Each has its own time: the clock of
/// a trace runs from the start of the host, and neither it nor its count of bytes tells which segment is which.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Beside {
    /// The capture.
    pub capture: String,
    /// What `taut trace --events` wrote.
    pub trace: String,
    /// Address and port of the sender, which was traced.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// Bytes that the capture has of it, and the trace.
    pub bytes: [u64; 2],
    /// How long the capture has it, and the trace.
    pub span_ns: [u64; 2],
    /// What the capture leaves open, with what the trace has.
    pub decided: Vec<Decided>,
    /// What limits that, a sentence each.
    pub remarks: Vec<String>,
}

/// Something that a capture leaves open.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Decided {
    /// The holder in the capture's breakdown.
    pub captured: String,
    /// Its share of the capture's time, 0 to 1.
    pub captured_share: f64,
    /// What it may be, by the trace; the most first.
    pub traced: Vec<Answer>,
    /// The holder that it is; absent if it is several, or the trace has none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Time that the trace has.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Answer {
    /// The holder; `congestion_window` has all of congestion control.
    pub holder: String,
    /// Its time.
    pub held_ns: u64,
    /// Its share of the trace's time, 0 to 1.
    pub share: f64,
}

/// All directions of captures whose sender was traced, in the order of the captures.
pub fn beside(files: &[ExplainedFile], traces: &[ExplainedTrace]) -> Vec<Beside> {
    let mut all = Vec::new();
    for file in files {
        for direction in &file.explanation.worst {
            for trace in traces {
                let is_it = |traced: &&TracedDirection| {
                    traced.is_outgoing
                        && traced.transport == "tcp"
                        && (&traced.from, &traced.to) == (&direction.from, &direction.to)
                };
                let traced: Vec<&TracedDirection> = trace.trace.result.worst.iter().filter(is_it).collect();
                // Of several with the same ends nothing tells which one was captured.
                if let [traced] = traced[..] {
                    all.push(one(&file.file, direction, &trace.file, traced));
                }
            }
        }
    }
    all
}

fn one(capture: &str, direction: &Direction, trace: &str, traced: &TracedDirection) -> Beside {
    let questions = [
        (Holder::SendBufferOrCongestion, &[&[Holder::SendBuffer][..], CONGESTION][..]),
        (Holder::Nagle, &[&[Holder::Nagle]]),
    ];
    let is_open = |holder: Holder| holder != Holder::Nagle || has_range(direction);
    let mut decided: Vec<Decided> = questions
        .into_iter()
        .filter(|(holder, _)| is_open(*holder))
        .filter_map(|(holder, answers)| {
            let held = row(&direction.breakdown, holder).filter(|held| held.share >= LEAST_SHARE)?;
            Some(decide(held, answers.iter().map(|holders| sum(traced, holders)).collect()))
        })
        .collect();
    // Of what is not known all that the trace has may be the answer.
    if let Some(held) = row(&direction.breakdown, Holder::NotKnown).filter(|held| held.share >= LEAST_SHARE) {
        let known = traced.breakdown.iter().filter(|held| held.holder != Holder::NotKnown.name());
        decided.push(decide(held, known.map(answer).collect()));
    }
    let [least, most] = [direction.bytes.min(traced.bytes), direction.bytes.max(traced.bytes)];
    let other_part = (most > least.saturating_mul(OTHER_PART)).then(|| {
        "Capture and trace have other parts of the connection, so what one has may not hold for the other.".to_owned()
    });
    Beside {
        capture: capture.to_owned(),
        trace: trace.to_owned(),
        from: direction.from.clone(),
        to: direction.to.clone(),
        bytes: [direction.bytes, traced.bytes],
        span_ns: [direction.span_ns, traced.span_ns],
        decided,
        remarks: other_part.into_iter().collect(),
    }
}

/// Whether the time of Nagle's algorithm has limits only: when the program wrote, the capture does not tell.
fn has_range(direction: &Direction) -> bool {
    direction.verdicts.iter().any(|on| match &on.verdict {
        Verdict::Found(found) => on.cause == "nagle_delayed_ack" && found.cost.between_ns[0] < found.cost.between_ns[1],
        _ => false,
    })
}

fn row(breakdown: &[Held], holder: Holder) -> Option<&Held> {
    breakdown.iter().find(|held| held.holder == holder.name())
}

fn answer(held: &Held) -> Answer {
    Answer { holder: held.holder.clone(), held_ns: held.held_ns, share: held.share }
}

/// Under the name of the first of them.
fn sum(traced: &TracedDirection, holders: &[Holder]) -> Answer {
    let rows = || holders.iter().filter_map(|&holder| row(&traced.breakdown, holder));
    Answer {
        holder: holders.first().map_or_else(String::new, |holder| holder.name().to_owned()),
        held_ns: rows().map(|held| held.held_ns).sum(),
        share: rows().map(|held| held.share).sum(),
    }
}

fn decide(held: &Held, mut traced: Vec<Answer>) -> Decided {
    traced.retain(|answer| answer.held_ns > 0);
    traced.sort_by_key(|answer| std::cmp::Reverse(answer.held_ns));
    let whole: u64 = traced.iter().map(|answer| answer.held_ns).sum();
    let first = traced.first().filter(|first| first.held_ns as f64 >= CLEARLY * whole as f64);
    let answer = first.filter(|first| first.share >= LEAST_SHARE).map(|first| first.holder.clone());
    Decided { captured: held.holder.clone(), captured_share: held.share, traced, answer }
}

/// At most 100 columns wide.
pub(crate) fn lines(beside: &Beside) -> Vec<String> {
    let Beside { capture, trace, from, to, bytes, span_ns, decided, remarks } = beside;
    let ([captured, traced], [for_captured, for_traced]) = (bytes.map(units::size), span_ns.map(units::time));
    let mut told = vec![format!(
        "BESIDE {from} > {to}: {capture} has {captured} in {for_captured}, {trace} has {traced} in {for_traced}, on a \
         clock of its own."
    )];
    told.extend(decided.iter().map(|decided| {
        let Decided { captured, captured_share, traced, answer } = decided;
        let all: Vec<String> = traced
            .iter()
            .take(4)
            .map(|answer| format!("{} {}", name(&answer.holder), units::share(answer.share)))
            .collect();
        let open = format!("{capture} leaves open: {}, {} of its time", name(captured), units::share(*captured_share));
        match (answer, all.is_empty()) {
            (_, true) => format!("{open}. {trace} has nothing of that."),
            (Some(answer), _) => format!("{open}. {trace}: {} ({} of its own time).", name(answer), all.join(", ")),
            (None, _) => format!("{open}. {trace}: {} of its own time.", all.join(", ")),
        }
    }));
    if decided.is_empty() {
        told.push(format!("{capture} leaves nothing open that {trace} would decide."));
    }
    told.extend(remarks.iter().cloned());
    let mut lines: Vec<String> = told.iter().flat_map(|line| wrap("  ", line)).collect();
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    lines
}

/// In words.
fn name(holder: &str) -> String {
    match holder {
        "congestion_window" => "congestion control".to_owned(),
        _ => Holder::ALL
            .into_iter()
            .find(|known| known.name() == holder)
            .map_or_else(|| holder.to_owned(), |known| known.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: Holder, share: f64) -> Held {
        let held_ns = (share * 1e10) as u64;
        Held { holder: holder.name().to_owned(), side: String::new(), held_ns, share, episodes: 1, longest: Vec::new() }
    }

    fn traced(breakdown: Vec<Held>) -> TracedDirection {
        let mut json = serde_json::json!({
            "from": "10.0.0.1:4000", "to": "10.0.0.2:80", "is_outgoing": true, "bytes": 1000, "writes": 1,
            "held_writes": 1, "longest_held_ns": 0, "refused_writes": 0, "repeated_segments": 0, "begin_ns": 0,
            "span_ns": 10_000_000_000_u64, "breakdown": breakdown, "verdicts": [], "remarks": []
        });
        json["released"] = serde_json::to_value(taut_explain::trace::Releases::default()).unwrap();
        serde_json::from_value(json).unwrap()
    }

    fn captured(breakdown: Vec<Held>) -> Direction {
        Direction {
            from: "10.0.0.1:4000".into(),
            to: "10.0.0.2:80".into(),
            bytes: 900,
            breakdown,
            ..Direction::default()
        }
    }

    fn decided(breakdown: Vec<Held>, by: Vec<Held>) -> Beside {
        one("a.pcap", &captured(breakdown), "a.events", &traced(by))
    }

    fn told(beside: &Beside) -> String {
        lines(beside).join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_trace_tells_the_send_buffer_from_the_congestion_window() {
        let open = || vec![held(Holder::SendBufferOrCongestion, 0.83), held(Holder::Delivery, 0.17)];
        let by_buffer = decided(open(), vec![held(Holder::SendBuffer, 0.7), held(Holder::SlowStart, 0.02)]);
        assert_eq!(by_buffer.decided[0].answer.as_deref(), Some("send_buffer"));
        let text = told(&by_buffer);
        assert!(text.contains("83.0 % of its time. a.events: send buffer (send buffer 70.0 %"), "{text}");
        let pacing =
            vec![held(Holder::Pacing, 0.3), held(Holder::CongestionWindow, 0.4), held(Holder::SendBuffer, 0.1)];
        assert_eq!(decided(open(), pacing).decided[0].answer.as_deref(), Some("congestion_window"));
        let both = decided(open(), vec![held(Holder::SendBuffer, 0.4), held(Holder::CongestionWindow, 0.3)]);
        assert_eq!((both.decided[0].answer.as_deref(), both.decided[0].traced.len()), (None, 2));
        let none = decided(open(), vec![held(Holder::SendingProgram, 1.0)]);
        assert!(none.decided[0].answer.is_none() && told(&none).contains("nothing of that."));
    }

    #[test]
    fn what_a_capture_does_not_leave_open_is_not_decided() {
        let clear = decided(vec![held(Holder::Nagle, 0.9)], vec![held(Holder::Nagle, 0.9)]);
        assert!(clear.decided.is_empty() && told(&clear).contains("leaves nothing open"));
        let dark = decided(vec![held(Holder::NotKnown, 0.9)], vec![held(Holder::Nagle, 0.9)]);
        assert_eq!(dark.decided[0].answer.as_deref(), Some("nagle"));
        assert!(lines(&dark).iter().all(|line| line.chars().count() <= 100));
        let mut more = captured(vec![]);
        more.bytes = 5000;
        assert_eq!(one("a", &more, "b", &traced(vec![])).remarks.len(), 1);
    }
}

//! Explained captures for the Perfetto trace viewer: who held the data of each direction, and when.
//!
//! The two directions between the same two ends are the tracks of one process, a slice for each stretch of one holder.
//! Times are in microseconds from the first packet of the file, with the nanoseconds behind the point.

use serde_json::{Value, json};
use taut_explain::{Direction, Picture, Span, Verdict};

use crate::explained::ExplainDocument;
use crate::explained_file::ExplainedFile;
use crate::{perfetto, units};

/// What was drawn of the directions that the document reports, as one JSON trace.
pub fn render(document: &ExplainDocument) -> String {
    let several = document.files.len() > 1;
    let mut processes: Vec<(usize, [&str; 2])> = Vec::new();
    let mut names = Vec::new();
    let mut events: Vec<(u64, Value)> = Vec::new();
    for (track, (file, direction, picture)) in drawn(document).enumerate() {
        let mut ends = [direction.from.as_str(), direction.to.as_str()];
        ends.sort_unstable();
        let of_file = document.files.iter().position(|other| std::ptr::eq(other, file)).unwrap_or_default();
        let process = processes.iter().position(|known| *known == (of_file, ends)).unwrap_or_else(|| {
            processes.push((of_file, ends));
            let [one, other] = ends;
            let name = if several { format!("{}: {one}, {other}", file.file) } else { format!("{one}, {other}") };
            names.push(named("process_name", processes.len(), 0, &name));
            processes.len() - 1
        });
        let track = Track { process: process + 1, thread: track + 1 };
        names.push(named("thread_name", track.process, track.thread, &title(direction, picture)));
        events.extend(direction.verdicts.iter().filter_map(|on| match &on.verdict {
            Verdict::Found(found) => {
                let seen: Vec<&str> = found.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
                let args = json!({"summary": found.summary, "evidence": seen, "change": found.remedy});
                let name = format!("FOUND {}", on.cause);
                Some((direction.begin_ns, track.event("i", &name, direction.begin_ns, &args)))
            }
            _ => None,
        }));
        events.extend(picture.spans.iter().map(|span| (span.begin_ns, track.slice(span))));
    }
    events.sort_by_key(|&(at, _)| at);
    perfetto::trace(names.into_iter().chain(events.into_iter().map(|(_, event)| event)))
}

/// What the picture lacks, in a sentence; nothing where it lacks nothing.
pub fn left_out(document: &ExplainDocument) -> Option<String> {
    let (count, ns) = drawn(document).fold((0_u64, 0_u64), |(count, ns), (.., picture)| {
        (count + picture.left_out, ns.saturating_add(picture.left_out_ns))
    });
    let whole = drawn(document).fold(0_u64, |sum, (_, direction, _)| sum.saturating_add(direction.span_ns));
    (count > 0).then(|| {
        format!(
            "the {} shortest stretches are not drawn, {} of {}; fewer directions (--top) leave room for more",
            units::count(count),
            units::time(ns),
            units::time(whole)
        )
    })
}

fn drawn(document: &ExplainDocument) -> impl Iterator<Item = (&ExplainedFile, &Direction, &Picture)> {
    let directions = document.files.iter().flat_map(|file| file.explanation.worst.iter().map(move |one| (file, one)));
    directions.filter_map(|(file, direction)| Some((file, direction, direction.picture.as_ref()?)))
}

fn title(direction: &Direction, picture: &Picture) -> String {
    let title = format!("{} > {}", direction.from, direction.to);
    match picture.left_out {
        0 => title,
        count => format!("{title} ({} short stretches not drawn)", units::count(count)),
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
        let args = json!({
            "side": span.holder.side().to_string(),
            "wireshark": format!("frame.number in {{{first}..{last}}}"),
        });
        let mut slice = self.event("X", &span.holder.to_string(), span.begin_ns, &args);
        slice["dur"] = json!(span.held_ns as f64 / 1000.0);
        slice
    }
}

#[cfg(test)]
mod tests {
    use taut_event::Holder;
    use taut_explain::Explanation;
    use taut_record::Ended;

    use super::*;

    fn document(from: &str, picture: Picture) -> ExplainDocument {
        let direction = |from: &str, to: &str, picture: Picture| Direction {
            from: from.to_owned(),
            to: to.to_owned(),
            span_ns: 50_000,
            picture: Some(picture),
            ..Direction::default()
        };
        let worst = vec![direction(from, "b", picture.clone()), direction("b", from, picture)];
        let file = ExplainedFile {
            file: "x.pcap".to_owned(),
            packets: 9,
            tcp_packets: 9,
            udp_packets: 0,
            hci_packets: 0,
            air_packets: 0,
            bytes: 900,
            remarks: Vec::new(),
            explanation: Explanation { worst, directions: 2, ..Explanation::default() },
        };
        ExplainDocument {
            format_version: 1,
            command: "explain".to_owned(),
            command_line: "taut explain x.pcap".to_owned(),
            ended: Ended::Complete,
            files: vec![file],
            joined: Vec::new(),
            difference: None,
        }
    }

    fn span(holder: Holder, begin_ns: u64, held_ns: u64) -> Span {
        Span { holder, begin_ns, held_ns, frames: [3, 7] }
    }

    #[test]
    fn both_directions_are_tracks_of_one_process_and_slices_keep_their_nanoseconds() {
        let spans = vec![span(Holder::SendingProgram, 1_001, 2_000), span(Holder::Nagle, 3_001, 40_000_003)];
        let name = "10.0.0.1:4 \"</script>\u{1}";
        let trace = render(&document(name, Picture { spans, left_out: 3, left_out_ns: 7_000 }));
        let trace: Value = serde_json::from_str(&trace).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let names = events.iter().filter(|event| event["ph"] == "M");
        let names: Vec<_> = names.map(|event| (&event["name"], event["args"]["name"].as_str().unwrap())).collect();
        assert_eq!(names.iter().filter(|(what, _)| *what == "process_name").count(), 1);
        assert!(names.iter().any(|(_, name)| *name == "10.0.0.1:4 \"</script>\u{1} > b (3 short stretches not drawn)"));
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(slices.len(), 4);
        assert!(slices.windows(2).all(|pair| pair[0]["ts"].as_f64() <= pair[1]["ts"].as_f64()));
        let nagle = slices.iter().find(|slice| slice["name"] == "Nagle's algorithm").unwrap();
        assert_eq!((nagle["ts"].as_f64(), nagle["dur"].as_f64()), (Some(3.001), Some(40_000.003)));
        assert_eq!(nagle["args"]["wireshark"], "frame.number in {3..7}");
        assert_eq!(nagle["args"]["side"], "sender");
    }

    #[test]
    fn what_is_not_drawn_is_told() {
        let cut = document("a", Picture { spans: Vec::new(), left_out: 1_500, left_out_ns: 20_000 });
        let told = left_out(&cut).unwrap();
        assert!(told.starts_with("the 3,000 shortest stretches are not drawn, 40.0 µs of 100 µs"), "{told}");
        assert_eq!(left_out(&document("a", Picture::default())), None);
    }
}

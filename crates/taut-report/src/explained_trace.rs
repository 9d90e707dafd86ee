//! Explained captures for the Perfetto trace viewer: who held the data of each direction, and when.
//!
//! The two directions between the same two ends are the tracks of one process, a slice for each stretch of one holder.
//! Times are in microseconds from the first packet of the file, with the nanoseconds behind the point.

use crate::explained::ExplainDocument;
use crate::explained_file::ExplainedFile;
use crate::lane::{self, Lane};
use crate::{explained_timeline, traced_trace};

/// What was drawn of the directions that the document reports, as one JSON trace.
pub fn render(document: &ExplainDocument) -> String {
    lane::render(lanes(document))
}

/// What the picture lacks, in a sentence; nothing where it lacks nothing.
pub fn left_out(document: &ExplainDocument) -> Option<String> {
    lane::left_out(lanes(document))
}

fn lanes(document: &ExplainDocument) -> impl Iterator<Item = Lane<'_>> {
    let several = document.files.len() + document.traces.len() > 1;
    let files = document.files.iter().enumerate();
    let files = files.flat_map(move |(number, file)| of_file((number, if several { &file.file } else { "" }), file));
    let traces = document.traces.iter().zip(document.files.len()..);
    let traces = traces.flat_map(move |(traced, number)| {
        traced_trace::lanes((number, if several { &traced.file } else { "" }), &traced.trace)
    });
    let joined = document.joined_traces.iter().zip(document.files.len() + document.traces.len()..);
    files
        .chain(traces)
        .chain(joined.flat_map(|(joined, number)| explained_timeline::lanes((number, &joined.trace), joined)))
}

/// The directions of one file that have a picture, in the group given.
pub(crate) fn of_file<'a>(group: (usize, &'a str), file: &'a ExplainedFile) -> impl Iterator<Item = Lane<'a>> {
    file.explanation.worst.iter().filter_map(move |direction| {
        Some(Lane {
            group,
            ends: [&direction.from, &direction.to],
            who: String::new(),
            begin_ns: direction.begin_ns,
            span_ns: direction.span_ns,
            verdicts: &direction.verdicts,
            picture: direction.picture.as_ref()?,
            has_frames: true,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use taut_event::Holder;
    use taut_explain::{Direction, Explanation, Picture, Span};
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
            traces: Vec::new(),
            joined: Vec::new(),
            joined_traces: Vec::new(),
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

//! Events of a recording, looked at again by the detectors of this version.

use taut_explain::{Finding, nagle};
use taut_record::{MOST_EVENTS, Observed, Recording, Row, TuneRow};
use taut_report::{Document, ExplainedAgain};
use taut_time::Duration;

use crate::findings;

/// What of a recording can't be: where, and what is wrong there.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Misfit {
    pub(crate) at: String,
    pub(crate) message: String,
}

/// The document with the findings that this Tautline makes of its events. All that rests on
/// something else stands as it is: facts of links, remedies that were run.
///
/// # Errors
///
/// The first event that can't be, or a row that is not there.
pub(crate) fn explain_again(document: Document) -> Result<Document, Misfit> {
    let recording = &document.recording;
    let (mut fresh, mut paths, mut rounds, mut events) = (Vec::new(), Vec::new(), 0, 0);
    let dropped: Vec<&str> =
        recording.observed.iter().filter(|part| part.dropped_rounds > 0).map(|part| part.on.as_str()).collect();
    for (number, part) in recording.observed.iter().enumerate() {
        let misfit = |at: String, message: String| Misfit { at: format!("observed[{number}]{at}"), message };
        let mut timelines = Vec::new();
        for (index, round) in part.rounds.iter().enumerate() {
            let bad = |message: String| misfit(format!(".rounds[{index}].events"), message);
            timelines.push(round.timeline().map_err(|error| bad(error.to_string()))?);
            events += round.count();
            if events > MOST_EVENTS {
                return Err(bad(format!("a recording has at most {MOST_EVENTS} events")));
            }
        }
        let row = recording.results.get(part.row);
        let row = row.ok_or_else(|| misfit(".row".to_owned(), format!("there is no results[{}]", part.row)))?;
        // The same path may have been measured twice, and of one all is needed.
        if dropped.contains(&part.on.as_str()) {
            continue;
        }
        let found = nagle::find(&timelines, &context(part));
        match row {
            Row::Echo(_) => fresh.extend(found),
            // What the one placement shows the other shows again.
            Row::Pace(_) if recording.command == "pace" && !fresh.is_empty() => {}
            Row::Pace(_) => fresh.extend(found),
            Row::Tune(_) => fresh.extend(findings::of_tuned(&tuned(recording, number), &part.on, found)),
            _ => return Err(misfit(".row".to_owned(), format!("results[{}] has no events", part.row))),
        }
        paths.push(part.on.clone());
        rounds += part.rounds.len() as u64;
    }
    if paths.is_empty() {
        return Ok(document);
    }
    let again = ExplainedAgain {
        by: env!("CARGO_PKG_VERSION").to_owned(),
        rounds,
        not_again: (recording.observed.len() - paths.len()) as u64,
    };
    let is_of_events = |finding: &Finding| {
        paths.contains(&finding.on) && [nagle::CAUSE, findings::SETTING_HELPS].contains(&finding.cause.as_str())
    };
    fresh.extend(document.findings.into_iter().filter(|finding| !is_of_events(finding)));
    Ok(Document { explained_again: Some(again), ..Document::new(document.recording, fresh) })
}

fn context(part: &Observed) -> nagle::Context {
    nagle::Context {
        on: part.on.clone(),
        nagle: part.nagle,
        min_rtt: Duration::from_nanos(part.min_rtt_ns),
        several_writes: part.several_writes,
    }
}

/// The rows of a tuned path: from its base up to the next path.
fn tuned(recording: &Recording, number: usize) -> Vec<&TuneRow> {
    let first = recording.observed[number].row;
    let others = recording.observed.iter().map(|part| part.row).filter(|&row| row > first);
    let end = others.min().unwrap_or(recording.results.len()).min(recording.results.len());
    let rows = recording.results[first..end].iter();
    rows.map_while(|row| if let Row::Tune(row) = row { Some(&**row) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording of format 2: a pace whose writes waited for delayed acknowledgements.
    fn recorded() -> Document {
        Document::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/pace-2.json")).unwrap()
    }

    #[test]
    fn what_is_found_again_is_what_was_found() {
        let document = recorded();
        assert_eq!(document.findings.len(), 1);
        let again = explain_again(document.clone()).unwrap();
        assert_eq!(again.findings, document.findings);
        assert_eq!(again.explained_again.as_ref().map(|again| (again.rounds, again.not_again)), Some((2, 0)));
        // It does not rest on what was found then.
        let forgotten = Document { findings: Vec::new(), ..document.clone() };
        assert_eq!(explain_again(forgotten).unwrap().findings, document.findings);
        // Nor does what is no longer found stay.
        let mut prompt = document;
        prompt.recording.observed[0].nagle = false;
        assert_eq!(explain_again(prompt).unwrap().findings, []);
    }

    #[test]
    fn a_recording_of_format_1_is_shown_as_it_always_was() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/pace-1.json");
        let document = explain_again(Document::read(path).unwrap()).unwrap();
        let text = include_str!("../tests/recordings/pace-1.txt");
        assert_eq!(taut_report::table::render(&document, taut_report::table::Style::default()), text);
        let written: serde_json::Value = serde_json::from_str(&document.to_json()).unwrap();
        let read: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(written, read);
    }

    #[test]
    fn where_events_were_left_out_the_findings_stay() {
        let mut document = recorded();
        document.recording.observed[0].dropped_rounds = 1;
        document.recording.observed[0].nagle = false;
        let again = explain_again(document.clone()).unwrap();
        assert_eq!((again.findings, again.explained_again), (document.findings, None));
    }

    #[test]
    fn what_can_not_be_is_an_error_with_its_place() {
        let broken = |edit: fn(&mut Observed)| {
            let mut document = recorded();
            edit(&mut document.recording.observed[0]);
            let Misfit { at, message } = explain_again(document).unwrap_err();
            format!("{at}: {message}")
        };
        assert_eq!(broken(|part| part.row = 7), "observed[0].row: there is no results[7]");
        assert_eq!(
            broken(|part| part.rounds[1].events = "i00,0,128 b099999999999999999999".to_owned()),
            "observed[0].rounds[1].events: event 2: a field is no number, or is missing"
        );
        assert_eq!(
            broken(|part| part.rounds[0].events = "b00 ".repeat(MOST_EVENTS + 1)),
            "observed[0].rounds[0].events: event 65537: there are too many"
        );
        let too_many = broken(|part| part.rounds = vec![part.rounds[0].clone(); 1000]);
        assert!(too_many.ends_with("].events: a recording has at most 65536 events"), "{too_many}");
    }

    /// Events in any order, with any numbers that can be: nothing is found, or something, and nothing panics.
    #[test]
    fn events_that_make_no_sense_do_no_harm() {
        let words =
            ["i00,0,128", "q10;4294967295;4294967295;0;-;0", "l29000000000000000000", "a1-1,9000,9000000000000000000"];
        let mut seed = 1_u64;
        for _ in 0..200 {
            let mut document = recorded();
            for round in &mut document.recording.observed[0].rounds {
                let mut all: Vec<&str> = round.events.split(' ').chain(words).collect();
                for index in (1..all.len()).rev() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    all.swap(index, (seed >> 33) as usize % (index + 1));
                }
                round.events = all.join(" ");
            }
            let _ = explain_again(document);
        }
    }
}

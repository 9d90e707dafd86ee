//! Explained captures as a page: the verdict, who held the data and when, and what was seen, for each direction.

use taut_explain::Direction;
use taut_record::Ended;

use super::held::{breakdown, card, found, lanes, lines, list, unknown};
use super::page::{Page, code, push, sentence};
use super::traced;
use crate::explained::{ExplainDocument, dark, headline, nothing_found, title};
use crate::explained_file::ExplainedFile;
use crate::lane::Lane;
use crate::{explained_joined, explained_over_all, explained_timeline, explained_trace, units};

/// The document as one HTML page. The time of directions is drawn where the engine was asked for their pictures.
pub fn render_explained(document: &ExplainDocument) -> String {
    let mut page = Page::new("taut explain");
    header(&mut page, document);
    for (index, file) in document.files.iter().enumerate() {
        // A path has no end of its own on a narrow screen; its last part tells it from others.
        let name = file.file.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&file.file);
        page.begin_section(&format!("file{}", index + 1), name);
        push!(page.body, "<p class=\"lead\">{}</p>", sentence(&headline(file)));
        let over_all = [explained_over_all::short(&file.explanation), explained_over_all::full(&file.explanation)];
        list(&mut page, "", over_all.iter().flatten().map(String::as_str));
        let drawn: Vec<Lane<'_>> = explained_trace::of_file((0, ""), file).collect();
        lanes(&mut page, &drawn, "since the first packet");
        for (place, direction) in file.explanation.worst.iter().enumerate() {
            one_direction(&mut page, place + 1, direction);
        }
        list(&mut page, "", file.remarks.iter().map(String::as_str));
        page.end_section();
    }
    for (index, traced) in document.traces.iter().enumerate() {
        traced::section(&mut page, &format!("trace{}", index + 1), &traced.file, &traced.trace);
        list(&mut page, "", traced.remarks.iter().map(String::as_str));
    }
    if let Some(difference) = &document.difference {
        lines(&mut page, "difference", "What changed", &difference.to_lines());
    }
    for (index, joined) in document.joined.iter().enumerate() {
        let told = explained_joined::lines(joined, true);
        lines(&mut page, &format!("joined{}", index + 1), "Both ends on one timeline", &told);
    }
    for (index, joined) in document.joined_traces.iter().enumerate() {
        let id = format!("timeline{}", index + 1);
        lines(&mut page, &id, "Captured and traced, on one timeline", &explained_timeline::lines(joined, true));
        let drawn: Vec<Lane<'_>> = explained_timeline::lanes((0, ""), joined).collect();
        if !drawn.is_empty() {
            page.begin_section(&format!("{id}-lanes"), "Its lanes");
            lanes(&mut page, &drawn, "since the begin of the timeline");
            page.end_section();
        }
    }
    page.finish()
}

fn header(page: &mut Page, document: &ExplainDocument) {
    push!(page.body, "<header><p class=\"brand\">Tautline</p><h1>taut explain</h1>");
    if document.ended == Ended::Interrupted {
        push!(page.body, "<p class=\"partial\" role=\"alert\">PARTIAL: interrupted</p>");
    }
    let several = document.files.len() + document.traces.len() > 1;
    let files = document.files.iter().map(|file| (&file.file, answer(file)));
    let traces = document.traces.iter().map(|traced| (&traced.file, traced::answer(&traced.trace)));
    for (name, answer) in files.chain(traces) {
        let on = if several { format!("{name}: ") } else { String::new() };
        push!(page.body, "<p class=\"answer\">{}</p>", sentence(&format!("{on}{answer}")));
    }
    push!(page.body, "{}</header>", code(&document.command_line));
}

/// The verdict on a file in a sentence: that on its worst direction.
fn answer(file: &ExplainedFile) -> String {
    let Some(worst) = file.explanation.worst.first() else {
        return "No data is in it that could be explained.".to_owned();
    };
    match found(&worst.verdicts).first() {
        None => nothing_found(worst),
        Some((_, found)) => {
            let summary = found.summary.trim_end_matches('.');
            let told = format!("{summary}. It takes {} of the time.", units::share(found.cost.share));
            let before = dark(worst).filter(|_| found.cost.share < 0.5);
            before.map_or_else(|| told.clone(), |dark| format!("{dark} {told}"))
        }
    }
}

fn one_direction(page: &mut Page, place: usize, direction: &Direction) {
    push!(page.body, "<h3>[{place}] {}</h3>", sentence(&title(direction)));
    let found = found(&direction.verdicts);
    if found.is_empty() {
        push!(page.body, "<p>{}</p>", sentence(&nothing_found(direction)));
    } else if let Some(dark) = dark(direction) {
        push!(page.body, "<p>{}</p>", sentence(&dark));
    }
    found.iter().for_each(|(cause, found)| card(page, cause, found));
    breakdown(page, &direction.breakdown, true);
    unknown(page, &direction.verdicts);
    list(page, "What the capture lacks", direction.remarks.iter().map(String::as_str));
}

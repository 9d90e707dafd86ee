//! Live traces as a page: the verdict, who held the data and when, and what was seen, for each direction.

use taut_explain::trace::TracedDirection;
use taut_record::Ended;

use super::held::{breakdown, card, found, lanes, lines, list, unknown};
use super::page::{Page, code, escape, push, sentence};
use crate::lane::Lane;
use crate::traced::{TraceDocument, UNSEEN, nothing_found, title};
use crate::traced_worst::{self, Rows};
use crate::{traced_trace, units};

/// The document as one HTML page. The time of directions is drawn where the trace was asked for their pictures.
pub fn render_traced(document: &TraceDocument) -> String {
    let mut page = Page::new("taut trace");
    push!(page.body, "<header><p class=\"brand\">Tautline</p><h1>taut trace</h1>");
    if document.facts.ended == Ended::Interrupted {
        push!(page.body, "<p class=\"partial\" role=\"alert\">PARTIAL: interrupted</p>");
    }
    push!(page.body, "<p class=\"answer\">{}</p>", sentence(&answer(document)));
    push!(page.body, "{}</header>", code(&document.facts.command_line));
    section(&mut page, "trace", &document.facts.traced, document);
    page.finish()
}

/// The verdict on a trace in a sentence: that on its worst direction.
pub(super) fn answer(document: &TraceDocument) -> String {
    let Some(worst) = document.result.worst.first() else { return document.nothing().unwrap_or_default().to_owned() };
    match found(&worst.verdicts).first() {
        None => nothing_found(worst).to_owned(),
        Some((_, found)) => {
            let summary = found.summary.trim_end_matches('.');
            format!("{summary}. It takes {} of the time.", units::share(found.cost.share))
        }
    }
}

/// All that is told of a trace, below a heading.
pub(super) fn section(page: &mut Page, id: &str, heading: &str, document: &TraceDocument) {
    page.begin_section(id, heading);
    push!(page.body, "<p class=\"lead\">{}</p>", sentence(&document.head()));
    list(page, "", document.nothing().into_iter());
    let drawn: Vec<Lane<'_>> = traced_trace::lanes((0, ""), document).collect();
    lanes(page, &drawn, "since the trace's first event");
    for (place, direction) in document.result.worst.iter().enumerate() {
        one_direction(page, place + 1, direction);
    }
    table(page, &traced_worst::threads(&document.result));
    table(page, &traced_worst::waits(&document.result, document.facts.clock));
    let unseen = document.facts.remarks.iter().map(String::as_str).chain([UNSEEN]);
    list(page, "What was not seen, or is told elsewhere", unseen);
    page.end_section();
    if let Some(trial) = &document.facts.trial {
        lines(page, &format!("{id}-trial"), "What was tried", &trial.lines());
    }
}

fn one_direction(page: &mut Page, place: usize, direction: &TracedDirection) {
    push!(page.body, "<h3>[{place}] {}</h3>", sentence(&title(direction)));
    let found = found(&direction.verdicts);
    if found.is_empty() {
        push!(page.body, "<p>{}</p>", sentence(nothing_found(direction)));
    }
    found.iter().for_each(|(cause, found)| card(page, cause, found));
    breakdown(page, &direction.breakdown, false);
    unknown(page, &direction.verdicts);
    list(page, "What was missed", direction.remarks.iter().map(String::as_str));
}

/// Rows below their heading, if there are any.
fn table<const N: usize>(page: &mut Page, table: &Rows<N>) {
    if table.rows.is_empty() {
        return;
    }
    push!(page.body, "<h3>{}</h3><div class=\"scroll\" tabindex=\"0\"><table><thead><tr>", escape(table.heading));
    table.columns.iter().for_each(|column| push!(page.body, "<th scope=\"col\">{}</th>", escape(column)));
    push!(page.body, "</tr></thead><tbody>");
    for row in &table.rows {
        for (place, cell) in row.iter().map(|cell| sentence(cell)).enumerate() {
            let cell =
                if place == 0 { format!("<tr><th scope=\"row\">{cell}</th>") } else { format!("<td>{cell}</td>") };
            page.body.push_str(&cell);
        }
        page.body.push_str("</tr>");
    }
    push!(page.body, "</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use taut_event::Holder;
    use taut_explain::{Picture, Span};

    use super::*;

    /// A name that would run if it were not escaped, wherever it stands.
    const HOSTILE: &str = "</script><script>document.title='ran'</script><img src=x onerror=\"alert(1)\">{{js}}";

    fn document(is_drawn: bool) -> TraceDocument {
        let found = json!({
            "cause": "nagle_delayed_ack", "verdict": "found", "summary": HOSTILE, "side": "sender",
            "certainty": "seen", "evidence": [{"text": HOSTILE, "frames": null}], "remedy": HOSTILE,
            "cost": {"held_ns": 40_000_000, "between_ns": [40_000_000, 40_000_000], "share": 0.4, "episodes": 2},
        });
        let unknown = json!({"cause": "loss", "verdict": "unknown", "missing": "events were missed", "ask": HOSTILE});
        let stall = json!({"begin_ns": 0, "held_ns": 40_000_000, "frames": [0, 0]});
        let held = json!({"holder": "nagle", "side": "sender", "held_ns": 40_000_000, "share": 0.4, "episodes": 2,
            "longest": [stall]});
        let direction = json!({
            "from": HOSTILE, "to": "127.0.0.1:1", "is_outgoing": true, "thread": 7, "program": HOSTILE, "bytes": 64,
            "writes": 2, "held_writes": 1, "median_held_ns": null, "longest_held_ns": 1, "refused_writes": 0,
            "released": {"call": 0, "ack_by_delayed_ack_timer": 0, "ack_on_arrival": 0, "ack_by_program": 0,
                "ack_not_seen": 0, "write_timer": 0, "pacing_timer": 0, "other": 0},
            "repeated_segments": 0, "begin_ns": 0, "span_ns": 100_000_000, "breakdown": [held],
            "verdicts": [found, unknown], "remarks": [HOSTILE],
        });
        let whole = json!({
            "format_version": 2, "command": "trace", "command_line": HOSTILE, "ended": {"how": "interrupted"},
            "traced": HOSTILE, "records": 9, "lost_records": 0, "missing_hooks": [], "remarks": [HOSTILE],
            "span_ns": 100_000_000, "connections": 1, "directions": 1, "totals": [], "causes": [],
            "worst": [direction], "start_ns": 5_000,
            "clock": {"begin": {"at_ns": 0, "time_of_day_ahead_ns": 1_000_000_000_000_000_000_u64, "uncertainty_ns": 1},
                "end": {"at_ns": 9, "time_of_day_ahead_ns": 1_000_000_000_000_000_000_u64, "uncertainty_ns": 1}},
            "threads": {
                "worst": [{"thread": 7, "program": HOSTILE, "held_ns": 60_000_000, "receiving_program_ns": 40_000_000,
                    "processor_ns": 2_000_000, "sending_program_ns": 18_000_000}],
                "others": 3,
                "of_others": {"held_ns": 1, "receiving_program_ns": 1, "processor_ns": 0, "sending_program_ns": 0},
                "no_thread": {"held_ns": 5, "receiving_program_ns": 5, "processor_ns": 0, "sending_program_ns": 0},
            },
            "waits": [{"begin_ns": 2_500_000, "held_ns": 40_000_000, "holder": "nagle", "side": "sender",
                "from": HOSTILE, "to": "127.0.0.1:1", "transport": "tcp", "is_outgoing": true, "bytes": [16, 64],
                "thread": 7, "program": HOSTILE}],
        });
        let mut document: TraceDocument = serde_json::from_value(whole).unwrap();
        let span = |holder, begin_ns, held_ns| Span { holder, begin_ns, held_ns, frames: [0, 0] };
        let spans = vec![span(Holder::Nagle, 0, 40_000_000), span(Holder::PeerTurn, 40_000_000, 60_000_000)];
        document.result.worst[0].picture = is_drawn.then_some(Picture { spans, left_out: 2, left_out_ns: 5 });
        document
    }

    #[test]
    fn lanes_findings_and_what_was_missed_are_in_the_page_and_names_stay_text() {
        let html = render_traced(&document(true));
        assert_eq!(html.matches("<script").count(), 3, "the data, uPlot and ours");
        assert!(!html.contains("<img") && html.contains("PARTIAL"));
        // Packets have no numbers here.
        assert!(!html.contains("its frames") && html.contains("What was missed") && html.contains("What was not seen"));
        assert!(html.find("class=\"card\"").unwrap() < html.find("<table>").unwrap());
        let data = html.split("<script type=\"application/json\" id=\"charts\">").nth(1).unwrap();
        let charts: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(charts[0]["kind"], "lanes");
        assert_eq!(charts[0]["lanes"][0]["spans"], json!([[0, 40_000_000, 1], [40_000_000, 60_000_000, 0]]));
        assert_eq!(charts[0]["since"], "since the trace's first event");
        assert!(charts[0]["lanes"][0]["label"].as_str().unwrap().contains(", sent by </script>"));
        assert!(html.contains("The 2 shortest stretches are not drawn"));
    }

    #[test]
    fn threads_and_waits_are_in_the_page_and_in_the_full_text() {
        let document = document(false);
        let html = render_traced(&document);
        for cell in ["<td>42.0&nbsp;ms</td>", "3 others", "no thread known", "<td>bytes 16 to 63</td>"] {
            assert!(html.replace('\u{a0}', "&nbsp;").contains(cell), "{cell}: {html}");
        }
        let text = document.to_text(true);
        let row = |begin: &str| text.lines().find(|line| line.trim_start().starts_with(begin)).unwrap_or_default();
        let columns = |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).count();
        assert_eq!((columns(row("no thread known")), columns(row("3 others"))), (4, 4), "{text}");
        // The time of day is the one of a log: 10^18 ns after 1970, 5 µs and 2.5 ms.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wait = "40.0 ms at 0.002500 s (2001-09-09 01:46:40.002505 UTC): Nagle's algorithm (sender)";
        assert!(words.contains(wait), "{words}");
        assert!(!document.to_text(false).contains("Longest waits"));
    }

    #[test]
    fn without_pictures_and_without_data_it_is_still_a_page() {
        let without = render_traced(&document(false));
        assert!(!without.contains("class=\"chart\"") && without.contains("Nagle"), "tables need no picture");
        let mut nothing = document(false);
        nothing.result.worst.clear();
        assert!(render_traced(&nothing).contains("No data over sockets or pipes was seen"));
    }
}

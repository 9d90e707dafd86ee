//! Text for a terminal or a file: tables by kind of row, then findings in words, then the host.

mod brief;
mod grid;
mod letters;
mod mesh;
mod paint;

use crate::sheet::{
    Groups, Sheet, Tone, air_sheets, check_sheets, commands, crowd_sheets, echo_sheets, floor_sheets, host_sheets,
    pace_sheets, published_sheets, route_sheets, stream_sheets, tune_sheets,
};
use crate::{Document, MeshDocument, prose, units};
use paint::{paint, wrap};

/// How the text is to look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Style {
    /// Whether the terminal shows colour.
    pub colour: bool,
    /// Columns of the terminal; without a limit every figure is printed.
    pub width: Option<u16>,
}

/// The document as text, with a newline at the end.
pub fn render(document: &Document, style: Style) -> String {
    let groups = Groups::of(&document.recording);
    let mut out = String::new();
    if let Some(partial) = prose::partial(&document.recording) {
        out.push_str(&format!("{}\n\n", paint(&partial, Tone::Bad)));
    }
    let sheets = [
        published_sheets(&groups.published),
        host_sheets(&groups.watch, &groups.setting),
        echo_sheets(&groups.echo),
        pace_sheets(&groups.pace),
        stream_sheets(&groups.stream),
        crowd_sheets(&groups.crowd),
        route_sheets(&groups.route),
        tune_sheets(&groups.tune),
        air_sheets(&groups.air, &groups.air_changes),
        floor_sheets(&groups.floor),
        check_sheets(&groups.check),
    ];
    let several_commands = commands(sheets.iter().flatten().flat_map(|sheet| &sheet.about)).len() > 1;
    for group in sheets {
        for sheet in &group {
            out.push_str(&grid::render(sheet, style.width));
            out.push('\n');
        }
        if several_commands {
            out.push_str(&repeating(&group));
        }
    }
    out.push_str(&findings(document, style.width));
    out.push_str(&host(document, style.width));
    paint::finish(&out, style.colour)
}

/// The answer of a survey in at most 25 lines: what the connections of the host lose, worst first and with what to
/// change; how it is set; how fast its paths are; what is missing; and where all of it stands.
pub fn brief(document: &Document, style: Style, report: &str) -> String {
    paint::finish(&brief::render(document, style.width, report), style.colour)
}

/// What a document says of a published experiment, without the tables of its repetition.
pub fn published(document: &Document, style: Style) -> String {
    let partial = prose::partial(&document.recording).map(|partial| format!("{}\n", paint(&partial, Tone::Bad)));
    let rows: Vec<_> = Groups::of(&document.recording).published;
    let mut text = partial.unwrap_or_default();
    for (row, sheet) in rows.iter().zip(published_sheets(&rows)) {
        text.push_str(&grid::render(&sheet, style.width));
        let took = units::time(document.recording.duration_ns);
        text.push_str(&wrap(&format!("Took {took}. At length: {}", row.command), style.width, "", "  ", Tone::Faint));
    }
    paint::finish(&text, style.colour)
}

/// What a mesh came to: a matrix of each work, then who is beyond a threshold, worst first, and what failed.
pub fn mesh(document: &MeshDocument, style: Style) -> String {
    paint::finish(&mesh::render(document, style.width), style.colour)
}

/// Sheets that belong to no document.
pub(crate) fn render_sheets(sheets: &[Sheet], style: Style) -> String {
    let text: Vec<String> = sheets.iter().map(|sheet| grid::render(sheet, style.width)).collect();
    paint::finish(&text.join("\n"), style.colour)
}

/// What repeats a group of sheets. A command is one line however long it is, so that it can be copied.
fn repeating(sheets: &[Sheet]) -> String {
    let commands = commands(sheets.iter().flat_map(|sheet| &sheet.about));
    let lines: String =
        commands.iter().map(|shared| paint(&format!("command: {}", shared.what), Tone::Faint) + "\n").collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

fn findings(document: &Document, width: Option<u16>) -> String {
    let again = prose::explained_again(document).map(|again| wrap(&again, width, "", "", Tone::Faint));
    if document.findings.is_empty() {
        return again.map_or_else(String::new, |again| again + "\n");
    }
    let mut out = format!("{}\n{}", paint("Findings", Tone::Strong), again.unwrap_or_default());
    for (i, finding) in document.findings.iter().enumerate() {
        let number = format!("{}. ", i + 1);
        let summary = format!("{} [{}]", finding.summary, finding.cause);
        out.push_str(&wrap(&summary, width, &number, "   ", Tone::Strong));
        out.push_str(&wrap(&format!("On {}: {}.", finding.on, prose::cost(finding)), width, "   ", "   ", Tone::Plain));
        for evidence in &finding.evidence {
            out.push_str(&wrap(evidence, width, "   · ", "     ", Tone::Faint));
        }
        out.push_str(&wrap(&finding.remedy, width, "   → ", "     ", Tone::Good));
        if let Some(proof) = &finding.proof {
            // One line however long it is, so that it can be copied.
            out.push_str(&format!("     {}\n", paint(&proof.command, Tone::Faint)));
        }
    }
    out.push('\n');
    out
}

fn host(document: &Document, width: Option<u16>) -> String {
    let host = &document.recording.host;
    let facts: Vec<String> = prose::host(host)
        .into_iter()
        .map(
            |(name, fact)| {
                if ["kernel", "processor", "rights"].contains(&name) { fact } else { format!("{name} {fact}") }
            },
        )
        .collect();
    let floor: Vec<String> = prose::floor(host).into_iter().map(|(name, cost)| format!("{name} {cost}")).collect();
    wrap(&facts.join("; "), width, "Host: ", "      ", Tone::Faint)
        + &wrap(&floor.join("; "), width, "Floor: ", "       ", Tone::Faint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn survey_in_full() {
        insta::assert_snapshot!(render(&synthetic::survey(), Style::default()));
    }

    #[test]
    fn survey_on_a_narrow_terminal() {
        let text = render(&synthetic::survey(), Style { colour: false, width: Some(80) });
        let wrapped = text.lines().filter(|line| !line.starts_with("command:"));
        let widest = wrapped.map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn no_width_is_too_small() {
        for width in [0, 1, 7, 20, 40, 60, 100, 140, u16::MAX] {
            let text = render(&synthetic::survey(), Style { colour: true, width: Some(width) });
            assert!(text.contains("Nagle"), "{width}");
        }
    }

    #[test]
    fn colour_adds_nothing_but_escapes() {
        let coloured = render(&synthetic::survey(), Style { colour: true, width: Some(80) });
        let mut plain = String::new();
        let mut parts = coloured.split('\u{1b}');
        plain.push_str(parts.next().unwrap());
        for part in parts {
            plain.push_str(part.split_once('m').unwrap().1);
        }
        assert_ne!(plain, coloured);
        assert_eq!(plain, render(&synthetic::survey(), Style { colour: false, width: Some(80) }));
    }

    #[test]
    fn limits_that_nothing_exceeded_take_one_sentence() {
        use taut_record::Row;
        let mut document = synthetic::survey();
        document.recording.results.truncate(4);
        for row in &mut document.recording.results {
            let Row::Echo(row) = row else { panic!("a round trip") };
            row.exceed.iter_mut().for_each(|exceed| (exceed.count, exceed.share) = (0, 0.0));
        }
        let text = render(&document, Style::default());
        assert!(!text.contains("Replies later than a limit"), "{text}");
        assert!(text.contains("  No reply of 63,041 came later than 50 µs.\n"), "{text}");
        let open = "  tcp://192.0.2.7:7600: at 60 per second none of 3,004 messages came later than 16.7 ms.\n";
        assert!(text.contains(open), "{text}");
    }

    #[test]
    fn more_messages_than_fit_are_no_reason_to_stop() {
        use taut_record::Row;
        let mut document = synthetic::survey();
        for row in &mut document.recording.results {
            let Row::Echo(row) = row else { continue };
            row.sent = u64::MAX;
            row.exceed.iter_mut().for_each(|exceed| (exceed.count, exceed.share) = (0, 0.0));
        }
        assert!(render(&document, Style::default()).contains("No reply of 18,446,744,073,709,551,615 came later"));
    }

    #[test]
    fn of_a_peer_that_tells_nothing_nothing_is_said_to_be_lost() {
        use taut_record::Row;
        let mut document = synthetic::survey();
        document.recording.results.retain(|row| matches!(row, Row::Pace(_)));
        document.recording.results.truncate(1);
        let lost = |document: &Document| {
            let text = render(document, Style::default());
            let line = text.lines().find(|line| line.trim_start().starts_with("lost")).unwrap().to_owned();
            line.split_whitespace().last().unwrap().to_owned()
        };
        assert_eq!(lost(&document), "0");
        let Row::Pace(row) = &mut document.recording.results[0] else { panic!("not periodic") };
        (row.clock_uncertainty_ns, row.delivery_ns) = (None, None);
        assert_eq!(lost(&document), "–");
    }

    #[test]
    fn cases_share_tables_evenly_where_there_is_no_room_for_all() {
        let mut document = synthetic::survey();
        let paces: Vec<_> = document.recording.results.drain(..).skip(4).take(2).collect();
        document.recording.results = paces.iter().cycle().take(7).cloned().collect();
        let per_table = |width| -> Vec<usize> {
            let text = render(&document, Style { colour: false, width });
            let heads = text.lines().filter(|line| line.starts_with("figure "));
            heads.map(|line| line.split_whitespace().count() - 1).collect()
        };
        assert_eq!(per_table(None), [7]);
        assert_eq!(per_table(Some(240)), [7]);
        // By letter.
        assert_eq!(per_table(Some(140)), [7]);
        assert_eq!(per_table(Some(80)), [3, 3, 1]);
        let html = crate::html::render(&document);
        assert_eq!(html.matches("<th scope=\"col\">figure</th>").count(), 2);
        assert_eq!(html.matches("<caption><strong>Periodic sending</strong>").count(), 1);
    }

    #[test]
    fn names_without_room_are_letters_with_a_legend() {
        use taut_record::Row;
        let long = |n: usize| format!("unix:/run/user/1000/a-directory-of-{n}/with-a-long-name/taut.sock");
        let mut document = synthetic::survey();
        document.recording.results.retain(|row| matches!(row, Row::Echo(_)));
        for (n, row) in document.recording.results.iter_mut().enumerate() {
            let Row::Echo(row) = row else { continue };
            row.endpoint = long(n);
        }
        let text = render(&document, Style { colour: false, width: Some(80) });
        for (letter, n) in [('A', 0), ('B', 1), ('C', 2), ('D', 3)] {
            // Twice: round trips, and those later than a limit.
            assert_eq!(text.matches(&format!("\n{letter}  {}, ", long(n))).count(), 2, "{text}");
            assert!(
                text.lines().any(|line| line.starts_with(&format!("{letter}  ")) && line.contains(" µs")),
                "{text}"
            );
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80 || line.starts_with("command: ")), "{text}");
        // Where there is room, each is called by its name.
        let wide = render(&document, Style { colour: false, width: Some(250) });
        assert!(!wide.contains("\nA  ") && wide.contains(&format!("\n{}, ", long(0))), "{wide}");
        let narrow = render(&synthetic::survey(), Style { colour: false, width: Some(80) });
        assert!(!narrow.contains("\nA  "), "{narrow}");
    }

    #[test]
    fn a_document_of_one_command_does_not_repeat_it() {
        let mut document = synthetic::survey();
        assert!(render(&document, Style::default()).contains("\ncommand: taut stream tcp"));
        document.recording.results.truncate(1);
        assert!(!render(&document, Style::default()).contains("command:"));
    }

    #[test]
    fn what_is_partial_says_so_first() {
        use taut_record::Ended;
        let mut document = synthetic::survey();
        document.recording.ended = Ended::Interrupted;
        assert!(render(&document, Style::default()).starts_with("PARTIAL: interrupted\n"));
        document.recording.ended = Ended::PeerGone("connection reset".to_owned());
        assert!(render(&document, Style::default()).starts_with("PARTIAL: the peer went away: connection reset\n"));
    }
}

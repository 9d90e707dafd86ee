//! Text for a terminal or a file: tables by kind of row, then findings in words, then the host.

mod grid;
mod paint;

use crate::sheet::{
    Groups, Sheet, Tone, check_sheets, echo_sheets, floor_sheets, pace_sheets, stream_sheets, tune_sheets,
};
use crate::{Document, prose};
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
        echo_sheets(&groups.echo),
        pace_sheets(&groups.pace),
        stream_sheets(&groups.stream),
        tune_sheets(&groups.tune),
        floor_sheets(&groups.floor),
        check_sheets(&groups.check),
    ];
    for sheet in sheets.iter().flatten() {
        out.push_str(&grid::render(sheet, style.width));
        out.push('\n');
    }
    out.push_str(&findings(document, style.width));
    out.push_str(&host(document, style.width));
    paint::finish(&out, style.colour)
}

/// Sheets that belong to no document.
pub(crate) fn render_sheets(sheets: &[Sheet], style: Style) -> String {
    let text: Vec<String> = sheets.iter().map(|sheet| grid::render(sheet, style.width)).collect();
    paint::finish(&text.join("\n"), style.colour)
}

fn findings(document: &Document, width: Option<u16>) -> String {
    if document.findings.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", paint("Findings", Tone::Strong));
    for (i, finding) in document.findings.iter().enumerate() {
        let number = format!("{}. ", i + 1);
        let summary = format!("{} [{}]", finding.summary, finding.cause);
        out.push_str(&wrap(&summary, width, &number, "   ", Tone::Strong));
        out.push_str(&wrap(&format!("On {}: {}.", finding.on, prose::cost(finding)), width, "   ", "   ", Tone::Plain));
        for evidence in &finding.evidence {
            out.push_str(&wrap(evidence, width, "   · ", "     ", Tone::Faint));
        }
        out.push_str(&wrap(&finding.remedy, width, "   → ", "     ", Tone::Good));
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
        let widest = text.lines().map(|line| line.chars().count()).max();
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
    fn what_is_partial_says_so_first() {
        use taut_measure::recording::Ended;
        let mut document = synthetic::survey();
        document.recording.ended = Ended::Interrupted;
        assert!(render(&document, Style::default()).starts_with("PARTIAL: interrupted\n"));
        document.recording.ended = Ended::PeerGone("connection reset".to_owned());
        assert!(render(&document, Style::default()).starts_with("PARTIAL: the peer went away: connection reset\n"));
    }
}

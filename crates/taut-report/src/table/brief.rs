//! The answer of a survey, on one screen.

use taut_explain::Finding;
use taut_record::{EchoRow, Placement, PlacementKind, SettingVerdict, StreamRow};

use super::paint::{NO_BREAK, paint, wrap};
use crate::lines::WIDTH;
use crate::sheet::{Groups, Tone};
use crate::{Document, prose, units, watched};

/// So many lines at most.
const HEIGHT: usize = 25;
/// What begins a paragraph, and how far the lines after it are set in.
const MARGIN: usize = 13;
/// One frame at 60 Hz, the limit by which late frames are told.
const FRAME_NS: u64 = 16_700_000;

/// The answer, with its tones still marked.
pub(super) fn render(document: &Document, width: Option<u16>, report: &str) -> String {
    let width = width.map_or(WIDTH, |width| usize::from(width).clamp(40, WIDTH)) as u16;
    let paragraph = |name: &str, text: &str, tone: Tone| -> Vec<String> {
        let (first, others) = (format!("{name:<MARGIN$}"), " ".repeat(MARGIN));
        wrap(text, Some(width), &first, &others, tone).lines().map(ToOwned::to_owned).collect()
    };
    let recording = &document.recording;
    let groups = Groups::of(recording);
    let mut head = Vec::new();
    if let Some(partial) = prose::partial(recording) {
        head.extend(wrap(&partial, Some(width), "", "  ", Tone::Bad).lines().map(ToOwned::to_owned));
        // Why each part failed may be long, and is in the report.
        head.truncate(3);
    }
    match groups.watch.first() {
        Some(row) => {
            let tone = if row.losses.is_empty() { Tone::Plain } else { Tone::Strong };
            head.extend(paragraph("connections", &watched::sentence(row), tone));
            head.extend(row.remarks.iter().take(1).flat_map(|remark| paragraph("", remark, Tone::Faint)));
        }
        None => head.extend(paragraph("connections", "not looked at", Tone::Faint)),
    }
    let mut tail = Vec::new();
    let mut add = |name: &str, text: Option<String>| {
        tail.extend(text.into_iter().flat_map(|text| paragraph(name, &text, Tone::Plain)));
    };
    add("settings", settings(&groups));
    let kinds = kinds(&groups);
    add("round trips", round_trips(&groups, &kinds));
    add("60 a second", frames(&groups));
    add("throughput", throughput(&groups, &kinds));
    add("missing", missing(&groups));
    add("report", Some(report.to_owned()));
    let room = HEIGHT.saturating_sub(head.len() + tail.len());
    let mut lines = head;
    lines.extend(findings(&document.findings, width, room));
    lines.extend(tail);
    // On a narrow terminal the tail alone may be too long; where the report lies is always told.
    if lines.len() > HEIGHT {
        let last = lines.pop();
        lines.truncate(HEIGHT - 1);
        lines.extend(last);
    }
    lines.join("\n") + "\n"
}

/// As many of the findings as there is room for, the worst first.
fn findings(findings: &[Finding], width: u16, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, finding) in findings.iter().enumerate() {
        let head = format!("{}. {}: {}, {}.", index + 1, finding.cause, prose::cost(finding), finding.on);
        let advice = format!("{} → {}", finding.summary, finding.remedy);
        let mut more = wrap(&head, Some(width), "  ", "     ", Tone::Strong);
        more += &wrap(&advice, Some(width), "     ", "     ", Tone::Plain);
        let left = findings.len() - index;
        let reserved = usize::from(left > 1);
        if lines.len() + more.lines().count() + reserved > room {
            let more = format!("  {left} more: see the report.");
            lines.extend((lines.len() < room).then(|| paint(&more, Tone::Faint)));
            break;
        }
        lines.extend(more.lines().map(ToOwned::to_owned));
    }
    lines
}

fn settings(groups: &Groups<'_>) -> Option<String> {
    let of = |verdict| groups.setting.iter().filter(move |row| row.verdict == verdict);
    if groups.setting.is_empty() {
        return None;
    }
    let costly: Vec<String> = of(SettingVerdict::Costs)
        .map(|row| {
            let remedy = row.remedy.as_deref().unwrap_or_default();
            format!("{} = {}: {} → {remedy}.", row.name, row.value, row.found)
        })
        .collect();
    let names = |verdict| of(verdict).map(|row| row.name.as_str()).collect::<Vec<_>>().join(", ");
    let (clear, unknown) = (names(SettingVerdict::Clear), names(SettingVerdict::Unknown));
    let mut text = costly;
    text.extend((!clear.is_empty()).then(|| format!("No limit was met of {clear}.")));
    text.extend((!unknown.is_empty()).then(|| format!("Not known: {unknown}.")));
    Some(text.join(" "))
}

/// The placements of the rows, in the order in which each line gives its figures.
fn kinds(groups: &Groups<'_>) -> Vec<PlacementKind> {
    let placements = groups.echo.iter().map(|row| kind(row.placement.as_ref()));
    let placements = placements.chain(groups.stream.iter().map(|row| kind(row.placement.as_ref())));
    let mut kinds = Vec::new();
    placements.for_each(|kind| {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    });
    kinds
}

fn kind(placement: Option<&Placement>) -> PlacementKind {
    placement.map(|placement| placement.kind).unwrap_or_default()
}

/// `tcp 12.8 µs, 49.2 µs; udp …`, a figure for each placement; of several endpoints of one name the first.
fn by_placement<R>(
    rows: &[(String, PlacementKind, R)],
    kinds: &[PlacementKind],
    tell: impl Fn(&R) -> String,
) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, ..) in rows {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let figures = |name: &str| {
        let of_kind = kinds.iter().filter_map(|kind| rows.iter().find(|(other, at, _)| other == name && at == kind));
        of_kind.map(|(.., row)| tell(row).replace(' ', NO_BREAK)).collect::<Vec<_>>().join(", ")
    };
    names.iter().map(|name| format!("{name} {}", figures(name))).collect::<Vec<_>>().join("; ")
}

/// ` (p50; same core, two cores)`
fn legend(what: &str, kinds: &[PlacementKind]) -> String {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    format!(" ({what}{})", kinds.join(", "))
}

fn round_trips(groups: &Groups<'_>, kinds: &[PlacementKind]) -> Option<String> {
    let rows: Vec<_> = groups
        .echo
        .iter()
        .filter(|row| row.rate_hz.is_none())
        .filter_map(|row| Some((row.transport.clone(), kind(row.placement.as_ref()), row.rtt_ns?.p50)))
        .collect();
    let text = by_placement(&rows, kinds, |p50| units::quantile(*p50));
    (!rows.is_empty()).then(|| text + &legend("p50; ", kinds))
}

/// Frames that came late, of each transport over all placements.
fn frames(groups: &Groups<'_>) -> Option<String> {
    let mut sums: Vec<(&str, u64, u64)> = Vec::new();
    let paced: Vec<&&EchoRow> = groups.echo.iter().filter(|row| row.rate_hz.is_some()).collect();
    for row in paced {
        let Some(late) = row.exceed.iter().find(|exceed| exceed.over_ns == FRAME_NS) else { continue };
        match sums.iter_mut().find(|(name, ..)| *name == row.transport) {
            Some((_, count, sent)) => {
                (*count, *sent) = (count.saturating_add(late.count), sent.saturating_add(row.sent))
            }
            None => sums.push((&row.transport, late.count, row.sent)),
        }
    }
    let tell = |(name, late, sent): &(&str, u64, u64)| {
        let late = if *late == 0 { "none".to_owned() } else { units::count(*late) };
        format!("{name} {late} of {}", units::count(*sent))
    };
    let parts: Vec<String> = sums.iter().map(tell).collect();
    (!parts.is_empty()).then(|| format!("later than {}: {}", units::limit(FRAME_NS), parts.join("; ")))
}

fn throughput(groups: &Groups<'_>, kinds: &[PlacementKind]) -> Option<String> {
    let name = |row: &StreamRow| format!("{} {}", row.transport, row.direction);
    let rows: Vec<_> =
        groups.stream.iter().map(|row| (name(row), kind(row.placement.as_ref()), row.throughput_bps)).collect();
    let text = by_placement(&rows, kinds, |bps| units::bit_rate(*bps));
    (!rows.is_empty()).then(|| text + &legend("", kinds))
}

fn missing(groups: &Groups<'_>) -> Option<String> {
    let missing: Vec<&str> = groups.check.iter().filter(|row| !row.works).map(|row| row.what.as_str()).collect();
    let all = groups.check.len();
    (!missing.is_empty()).then(|| format!("{} of {all} checks (`taut doctor`): {}", missing.len(), missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::paint::finish;
    use super::*;
    use crate::synthetic;

    fn brief(document: &Document, width: Option<u16>) -> String {
        finish(&render(document, width, "taut report survey.json"), false)
    }

    #[test]
    fn a_survey_fits_a_screen_and_names_the_worst_first() {
        let mut document = synthetic::survey();
        insta::assert_snapshot!(brief(&document, None));
        // Whatever was found, and however narrow the terminal is.
        let finding = document.findings[0].clone();
        document.findings.extend(vec![finding; 40]);
        document.recording.ended = taut_record::Ended::Failed("a part: ".repeat(200));
        for width in [None, Some(10), Some(60), Some(100), Some(200)] {
            let text = brief(&document, width);
            assert!(text.lines().count() <= HEIGHT, "{width:?}\n{text}");
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{width:?}\n{text}");
            assert!(width < Some(60) && width.is_some() || text.contains(" more: see the report."), "{text}");
        }
    }

    #[test]
    fn a_document_without_anything_says_so() {
        let mut document = synthetic::survey();
        (document.recording.results, document.findings) = (Vec::new(), Vec::new());
        let text = brief(&document, None);
        assert_eq!(text, "connections  not looked at\nreport       taut report survey.json\n");
    }
}

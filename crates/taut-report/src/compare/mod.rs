//! Two documents held against each other: the same rows before and after a change.
//!
//! Rows are matched by what was measured (workload, kind of link, placement, engine, size, rate, setting),
//! not by address. A verdict comes from the intervals across rounds: where they overlap, the two cannot be
//! told apart. The intervals are as wide as the number of figures asks: of all that are held against each
//! other in one report none may be told apart by chance in more than 5 % of the reports (Bonferroni).
//!
//! Two recordings were not measured in turn, so what moves a machine for longer than a round is in the difference
//! and not in the intervals. The assumption: between the two it moves no further than within either of them
//! ([`taut_record::stats::moved`]). By so much, and by 1 % at least, the intervals have to lie apart. What changes
//! a machine for longer than a recording lasts can't be told from a change of what was measured, whatever the rule.

mod bursts;
mod figure;
mod pair;
#[cfg(test)]
mod virtual_time;

use serde_json::{Value, json};

use crate::html::{Spread, SpreadRow, add_spread, sheet_tables};
use crate::sheet::{Cell, Column, Line, Note, Sheet, Tone};
use crate::table::{Style, render_sheets};
use crate::{Document, html, units};
use figure::{Change, Compared};
use pair::{Pair, comparisons, pair_up};

/// A comparison in all the forms in which it is wanted.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// For a terminal.
    pub text: String,
    /// One self-contained page.
    pub html: String,
    /// One object for `--json`.
    pub json: Value,
}

/// Holds two documents against each other.
pub fn render_comparison(before: &Document, after: &Document, style: Style) -> Comparison {
    let pairs = pair_up(&before.recording, &after.recording);
    let remarks = remarks(before, after, &pairs);
    let sheets = [sheet(before, after, &pairs, &remarks)];
    Comparison {
        text: render_sheets(&sheets, style),
        html: page(&sheets, &pairs),
        json: data(before, after, &pairs, &remarks),
    }
}

fn sheet(before: &Document, after: &Document, pairs: &[Pair<'_>], remarks: &[String]) -> Sheet {
    let columns = vec![
        Column::text("measured"),
        Column::text("figure"),
        Column::figure("before"),
        Column::figure("after"),
        Column::figure("ratio"),
        Column::figure("interval").when_wide(1),
        Column::text("verdict"),
    ];
    let mut sheet = Sheet { heading: "Before and after".to_owned(), columns, ..Sheet::default() };
    let name = |document: &Document| {
        let recording = &document.recording;
        format!("{} ({})", recording.command_line, units::date(recording.started_unix_s))
    };
    sheet.context = format!("before: {}; after: {}", name(before), name(after));
    for (label, figures) in told(pairs) {
        for (i, compared) in figures.iter().enumerate() {
            let label = if i == 0 { Cell::toned(label, Tone::Strong) } else { Cell::empty() };
            sheet.lines.push(Line { cells: cells(label, compared), continues: i > 0 });
        }
    }
    sheet.notes = remarks.iter().map(|remark| Note::toned(remark, Tone::Faint)).collect();
    sheet
}

/// The pairs that have both sides, with their figures.
fn told<'a>(pairs: &'a [Pair<'_>]) -> impl Iterator<Item = (&'a String, Vec<Compared>)> {
    let of = comparisons(pairs);
    pairs.iter().filter_map(move |pair| Some((&pair.label, pair.figures(of)?)))
}

fn cells(label: Cell, compared: &Compared) -> Vec<Cell> {
    let interval = compared.ratio_interval.map(|(low, high)| format!("{}–{}", units::number(low), units::number(high)));
    vec![
        label,
        Cell::new(compared.figure),
        Cell::new(compared.words(compared.before)),
        Cell::new(compared.words(compared.after)),
        compared.ratio.map_or_else(Cell::none, |ratio| Cell::new(units::number(ratio)).strong()),
        interval.map_or_else(Cell::none, |interval| Cell::toned(interval, Tone::Faint)),
        Cell::toned(compared.verdict_in_words(), compared.tone()),
    ]
}

/// What makes the two less than equal, and what stands in one of them only.
fn remarks(before: &Document, after: &Document, pairs: &[Pair<'_>]) -> Vec<String> {
    let (old, new) = (&before.recording.host, &after.recording.host);
    let facts = [
        ("kernel", &old.kernel, &new.kernel),
        ("processor", &old.processor, &new.processor),
        ("Tautline", &old.tautline, &new.tautline),
        ("congestion control", &old.tcp_congestion_control, &new.tcp_congestion_control),
    ];
    let differing = facts.iter().filter(|(_, old, new)| old != new);
    let mut remarks: Vec<String> =
        differing.map(|(what, old, new)| format!("Not the same {what}: {old} before, {new} after.")).collect();
    let partial = [("before", before), ("after", after)].map(|(which, document)| {
        crate::prose::partial(&document.recording).map(|partial| format!("The recording {which} is {partial}."))
    });
    remarks.extend(partial.into_iter().flatten());
    let only = pairs.iter().flat_map(Pair::only_in_one);
    remarks.extend(only.map(|(which, what)| format!("Only {which}: {what}.")));
    let of = comparisons(pairs);
    let changes: Vec<Change> = told(pairs).flat_map(|(_, figures)| figures).map(|compared| compared.change).collect();
    if changes.contains(&Change::NoInterval) {
        let text = "A verdict needs five rounds or more on both sides, and one on p99 a hundred messages in each.";
        remarks.push(text.to_owned());
    }
    let scatters = |compared: Compared| compared.drift.is_some();
    if told(pairs).flat_map(|(_, figures)| figures).any(scatters) {
        let apart = match seconds_apart(before, after) {
            0 => String::new(),
            seconds => format!(" ({} apart)", units::apart(seconds)),
        };
        remarks.push(format!(
            "Not measured in turn{apart}: a change is told where the intervals lie further apart than the figure moved within \
             either recording. What changes the machine for longer looks like a change, too; taut echo A B measures in turn."
        ));
    }
    if of > 1 {
        remarks.push(format!(
            "{of} figures are held against each other: the intervals are so wide that of equal ones none is told apart with at \
             least 95 % probability."
        ));
    }
    let needed = changes.iter().filter_map(|change| match change {
        Change::TooFewRounds(needed) => Some(*needed),
        _ => None,
    });
    if let Some(needed) = needed.max() {
        remarks
            .push(format!("A verdict on one of {of} figures takes {needed} rounds on both sides (--rounds {needed})."));
    }
    remarks
}

/// Seconds between the beginnings of two recordings.
const fn seconds_apart(before: &Document, after: &Document) -> u64 {
    before.recording.started_unix_s.abs_diff(after.recording.started_unix_s)
}

fn page(sheets: &[Sheet], pairs: &[Pair<'_>]) -> String {
    let mut page = html::Page::new("taut compare");
    let compared: Vec<(String, Compared)> = told(pairs)
        .flat_map(|(label, figures)| {
            figures.into_iter().map(move |figure| (format!("{label}: {}", figure.figure), figure))
        })
        .collect();
    let rows = compared.iter().filter_map(|(label, compared)| {
        let ratio = compared.ratio?;
        Some(SpreadRow {
            label: label.clone(),
            middle: ratio,
            interval: compared.ratio_interval,
            dots: Vec::new(),
            words: format!("ratio {}: {}", units::number(ratio), compared.verdict_in_words()),
        })
    });
    let spread = Spread { unit: "ratio", axis: "after over before", mark: Some(1.0), rows: rows.collect() };
    let told_apart = compared.iter().filter(|(_, compared)| compared.differs()).count();
    html::comparison_header(&mut page, &format!("{told_apart} of {} figures differ beyond the noise.", compared.len()));
    page.begin_section("compare", "Before and after");
    let caption = "Left of 1 is less than before. An interval that holds 1 cannot be told apart from no change.";
    add_spread(&mut page, "After over before.", caption, &spread);
    sheet_tables(&mut page, sheets);
    page.end_section();
    page.finish()
}

fn data(before: &Document, after: &Document, pairs: &[Pair<'_>], remarks: &[String]) -> Value {
    let name = |document: &Document| {
        let recording = &document.recording;
        json!({"command_line": recording.command_line, "started_unix_s": recording.started_unix_s, "host": recording.host})
    };
    let of = comparisons(pairs);
    let rows = pairs.iter().filter_map(|pair| {
        let figures: Vec<Value> = pair.figures(of)?.iter().map(Compared::data).collect();
        Some(json!({"measured": pair.label, "figures": figures}))
    });
    let only = |which: &str| -> Vec<String> {
        let only = pairs.iter().flat_map(Pair::only_in_one);
        only.filter(|(side, _)| *side == which).map(|(_, what)| what).collect()
    };
    json!({
        "format_version": taut_record::FORMAT_VERSION,
        "command": "compare",
        "before": name(before),
        "after": name(after),
        "seconds_apart": seconds_apart(before, after),
        "results": rows.collect::<Vec<Value>>(),
        "only_before": only("before"),
        "only_after": only("after"),
        "remarks": remarks,
    })
}

#[cfg(test)]
mod tests {
    use taut_record::stats::Quantile;
    use taut_record::{EchoRow, Row};

    use super::*;
    use crate::synthetic;

    /// The first rows of the survey: few enough figures for a verdict with five rounds.
    fn survey() -> Document {
        let mut document = synthetic::survey();
        document.recording.results.truncate(2);
        document
    }

    /// The same with all echo and stream figures scaled.
    fn scaled(percent: u64) -> Document {
        let mut document = survey();
        for row in &mut document.recording.results {
            match row {
                Row::Echo(row) => {
                    for summary in row.rtt_ns.iter_mut().chain(&mut row.response_ns) {
                        let scale = |figure: &mut Quantile| {
                            *figure = figure.time().map_or(Quantile::Lost, |ns| Quantile::Time(ns * percent / 100));
                        };
                        [&mut summary.p50, &mut summary.p99].into_iter().for_each(scale);
                        for (low, high) in summary.p50_ci.iter_mut().chain(&mut summary.p99_ci) {
                            [low, high].into_iter().for_each(scale);
                        }
                    }
                    for round in &mut row.rounds {
                        for ns in [&mut round.p50_ns, &mut round.p99_ns].into_iter().flatten() {
                            *ns = *ns * percent / 100;
                        }
                    }
                }
                Row::Stream(row) => {
                    let by = percent as f64 / 100.0;
                    row.throughput_bps *= by;
                    row.throughput_bps_ci = row.throughput_bps_ci.map(|(low, high)| (low * by, high * by));
                }
                _ => {}
            }
        }
        document
    }

    #[test]
    fn what_did_not_change_cannot_be_told_apart() {
        let compared = render_comparison(&synthetic::survey(), &synthetic::survey(), Style::default());
        let verdicts =
            compared.json["results"].as_array().unwrap().iter().flat_map(|row| row["figures"].as_array().unwrap());
        let mut count = 0;
        for figure in verdicts {
            assert_ne!(figure["verdict"], "less", "{figure}");
            assert_ne!(figure["verdict"], "more", "{figure}");
            assert_eq!(figure["before"], figure["after"], "{figure}");
            // What falls on a lost message has no number, and so no ratio.
            assert!(figure["ratio"] == 1.0 || figure["after"].is_null(), "{figure}");
            count += 1;
        }
        assert!(count > 15, "{count}");
        // The p99 of 120 paced messages has none across rounds of 24; and five rounds are too few for so many figures.
        let remarks: Vec<&str> =
            compared.json["remarks"].as_array().unwrap().iter().map(|remark| remark.as_str().unwrap()).collect();
        assert!(remarks[0].starts_with("A verdict needs five rounds"), "{remarks:?}");
        assert!(remarks[1].starts_with("Not measured in turn: "), "{remarks:?}");
        assert!(remarks[2].ends_with("with at least 95 % probability."), "{remarks:?}");
        assert!(remarks[3].ends_with("takes 7 rounds on both sides (--rounds 7)."), "{remarks:?}");
        assert_eq!(remarks.len(), 4);
    }

    /// Two recordings of equal things, all figures drawn anew: with so many figures, five of a
    /// hundred reports may tell one apart.
    #[test]
    fn of_many_equal_figures_one_is_seldom_told_apart() {
        let mut seed = 1_u64;
        let mut draw = move || {
            // Numerical Recipes' 64-bit LCG, the upper half.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1_000_000 + (seed >> 40) % 100_000
        };
        let mut empty = synthetic::survey();
        let Some(Row::Echo(row)) = empty.recording.results.drain(..).next() else { panic!("not an echo") };
        let mut drawn = |rounds: usize| {
            let of = |at: usize| {
                let mut row = EchoRow { engine: format!("{at}"), curve: Vec::new(), ..(*row).clone() };
                row.rounds = vec![row.rounds[0]; rounds];
                for round in &mut row.rounds {
                    (round.p50_ns, round.p99_ns) = (Some(draw()), Some(draw()));
                }
                Row::Echo(Box::new(row))
            };
            let mut document = empty.clone();
            document.recording.results = (0..12).map(of).collect();
            document
        };
        for rounds in [5, 7, 9, 20] {
            let told_apart = (0..200).filter(|_| {
                let pairs = (drawn(rounds), drawn(rounds));
                let pairs = pair_up(&pairs.0.recording, &pairs.1.recording);
                told(&pairs).flat_map(|(_, figures)| figures).any(|compared| compared.differs())
            });
            let told_apart = told_apart.count();
            // 5 % of 200 and three standard deviations.
            assert!(told_apart <= 19, "{rounds} rounds: {told_apart} of 200");
        }
    }

    /// As of an engine that starved, or of too few messages.
    #[test]
    fn a_figure_that_only_one_side_has_is_told() {
        let mut starved = survey();
        let Row::Echo(row) = &mut starved.recording.results[0] else { panic!("not an echo") };
        row.rtt_ns = None;
        let only = |json: &Value, which: &str| -> Vec<String> {
            json[which].as_array().unwrap().iter().map(|only| only.as_str().unwrap().to_owned()).collect()
        };
        let Comparison { json, text, .. } = render_comparison(&survey(), &starved, Style::default());
        let told = only(&json, "only_before");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].ends_with(": round trip p50") && told[1].ends_with(": round trip p99"), "{told:?}");
        assert!(only(&json, "only_after").is_empty() && text.contains(&format!("Only before: {}.", told[1])), "{text}");
        let json = render_comparison(&starved, &survey(), Style::default()).json;
        assert_eq!((only(&json, "only_before").len(), only(&json, "only_after")), (0, told));
    }

    #[test]
    fn what_loses_more_is_not_shorter() {
        let mut lossy = scaled(50);
        let Row::Echo(row) = &mut lossy.recording.results[0] else { panic!("not an echo") };
        row.lost = row.sent * 2 / 5;
        let times = row.rtt_ns.as_mut().unwrap();
        (times.lost, times.p99, times.max) = (row.lost, Quantile::Lost, Quantile::Lost);
        times.p99_ci = Some((Quantile::Lost, Quantile::Lost));
        let compared = render_comparison(&survey(), &lossy, Style::default());
        let figures = compared.json["results"][0]["figures"].as_array().unwrap();
        let told: Vec<_> = figures.iter().map(|figure| (&figure["figure"], &figure["verdict"])).collect();
        assert_eq!(told[0], (&json!("lost"), &json!("more")));
        assert_eq!(told[1], (&json!("round trip p50"), &json!("losses_differ")));
        assert_eq!(told[2], (&json!("round trip p99"), &json!("losses_differ")));
        assert_eq!((&figures[0]["after"], &figures[2]["after"]), (&json!(0.4), &Value::Null));
        // From there back: the losses are gone, which is what has changed.
        let compared = render_comparison(&lossy, &survey(), Style::default());
        let figures = compared.json["results"][0]["figures"].as_array().unwrap();
        assert_eq!((&figures[0]["verdict"], &figures[1]["verdict"]), (&json!("less"), &json!("losses_differ")));
    }

    #[test]
    fn a_change_beyond_the_noise_is_told() {
        let compared = render_comparison(&survey(), &scaled(50), Style::default());
        insta::assert_snapshot!(compared.text);
        let first = &compared.json["results"][0]["figures"][0];
        assert_eq!((&first["figure"], &first["verdict"]), (&json!("round trip p50"), &json!("less")));
        assert!(compared.html.contains("50.0 % shorter"));
    }

    #[test]
    fn the_time_between_is_told() {
        let mut later = survey();
        later.recording.started_unix_s += 190;
        let compared = render_comparison(&survey(), &later, Style::default());
        assert_eq!(compared.json["seconds_apart"], 190);
        assert!(compared.text.contains("Not measured in turn (3 min apart):"), "{}", compared.text);
    }

    #[test]
    fn a_change_within_the_noise_is_not() {
        let compared = render_comparison(&survey(), &scaled(98), Style::default());
        let first = &compared.json["results"][0]["figures"][0];
        assert_eq!(first["verdict"], "cannot_tell_apart");
    }

    #[test]
    fn only_what_was_measured_alike_is_compared() {
        use taut_record::Counted;
        let changes: [fn(&mut Row) -> bool; 4] = [
            |row| {
                if let Row::Stream(row) = row {
                    row.counted = Counted::Acknowledged;
                    true
                } else {
                    false
                }
            },
            |row| {
                if let Row::Pace(row) = row {
                    row.peer = "another peer".to_owned();
                    true
                } else {
                    false
                }
            },
            |row| {
                if let Row::Echo(row) = row {
                    row.peer_acks = "prompt".to_owned();
                    true
                } else {
                    false
                }
            },
            |row| {
                if let Row::Echo(row) = row {
                    row.timeout_ns /= 2;
                    true
                } else {
                    false
                }
            },
        ];
        for change in changes {
            let mut unlike = synthetic::survey();
            let changed = unlike.recording.results.iter_mut().filter_map(|row| change(row).then_some(())).count();
            let compared = render_comparison(&synthetic::survey(), &unlike, Style::default()).json;
            for only in ["only_before", "only_after"] {
                assert_eq!(compared[only].as_array().unwrap().len(), changed, "{compared}");
            }
            assert!(changed > 0);
        }
    }

    #[test]
    fn what_stands_in_one_document_only_is_named() {
        let (mut before, mut after) = (synthetic::survey(), synthetic::survey());
        before.recording.results.truncate(2);
        after.recording.results.remove(0);
        after.recording.results.truncate(1);
        after.recording.host.kernel = "6.13".to_owned();
        let compared = render_comparison(&before, &after, Style::default());
        let json = compared.json;
        assert_eq!(json["results"].as_array().unwrap().len(), 1);
        assert_eq!(json["only_before"].as_array().unwrap().len(), 1);
        assert_eq!(json["only_after"], json!([]));
        assert!(compared.text.contains("Not the same kernel: 6.12.1-synthetic before, 6.13 after."));
        assert!(compared.text.contains("Only before: echo over unix"));
    }

    #[test]
    fn fewer_than_five_rounds_allow_no_verdict() {
        let mut before = synthetic::survey();
        if let Row::Echo(row) = &mut before.recording.results[0] {
            row.rtt_ns.as_mut().unwrap().p50_ci = None;
        }
        let compared = render_comparison(&before, &scaled(50), Style::default());
        assert_eq!(compared.json["results"][0]["figures"][0]["verdict"], "no_interval");
        assert!(compared.text.contains("A verdict needs five rounds or more on both sides, and one on p99"));
    }
}

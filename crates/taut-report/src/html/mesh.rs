//! A mesh as a page: a picture of all pairs, then those that are named.

use taut_fleet::{Cell, Matrix, MeshOutcome, WorkOutcome};

use super::page::{Page, code, escape, push, sentence};
use crate::mesh_words;
use crate::meshed::MeshDocument;

/// A square of more hosts would be finer than a screen.
const MOST_DRAWN: usize = 256;
/// Rows of the table of pairs.
const MOST_TOLD: usize = 500;

/// The document as one HTML page.
pub fn render_mesh(document: &MeshDocument) -> String {
    let mut page = Page::new("taut mesh");
    push!(page.body, "<header><p class=\"brand\">Tautline</p><h1>taut mesh</h1>");
    if let Some(told) = document.ended_early() {
        push!(page.body, "<p class=\"partial\" role=\"alert\">{}</p>", sentence(&told));
    }
    push!(page.body, "<p class=\"answer\">{}</p>", sentence(&document.head()));
    push!(page.body, "{}</header>", code(&document.command_line));
    for (number, work) in document.outcome.works.iter().enumerate() {
        page.begin_section(&format!("work-{}", number + 1), &mesh_words::work(work));
        push!(page.body, "<p class=\"lead\">{}</p>", sentence(&mesh_words::usual(work)));
        if document.outcome.hosts.len() <= MOST_DRAWN {
            picture(&mut page, &document.outcome, work);
        }
        table(&mut page, &document.outcome, work);
        page.end_section();
    }
    let failures = document.failures(MOST_TOLD);
    if !failures.is_empty() {
        page.begin_section("failures", "What failed");
        page.body.push_str("<ul>");
        failures.iter().for_each(|told| push!(page.body, "<li>{}</li>", sentence(told)));
        page.body.push_str("</ul>");
        page.end_section();
    }
    page.finish()
}

/// A square for each pair: the further from what is usual the darker, and those beyond a threshold in another colour.
fn picture(page: &mut Page, outcome: &MeshOutcome, work: &WorkOutcome) {
    let matrix = Matrix::of(outcome, work);
    let hosts = matrix.hosts.len();
    let cell = (640 / hosts.max(1)).clamp(4, 36);
    let name = |at: usize| outcome.hosts[matrix.hosts[at]].name.as_str();
    let longest = (0..hosts).map(|at| name(at).chars().count()).max().unwrap_or(0).min(24);
    // Names need some 7 units for each character at this size, and none are written where they would overlap.
    let has_names = cell >= 10;
    let margin = if has_names { longest * 7 + 12 } else { 4 };
    let side = margin + hosts * cell + 4;
    let title = format!("{}, {} of each pair", mesh_words::work(work), work.figure);
    push!(
        page.body,
        "<figure><figcaption><strong>{}</strong> Who asks on the left, who answers above. Darker is further from what \
         is usual; orange is beyond a threshold; a cross was not measured.</figcaption>\
         <svg class=\"mesh\" viewBox=\"0 0 {side} {side}\" width=\"{side}\" role=\"img\" aria-label=\"{}\" \
         style=\"max-width:100%;height:auto\">",
        escape(&title),
        escape(&title)
    );
    for at in 0..hosts {
        let middle = margin + at * cell + cell / 2;
        if has_names {
            let short: String = name(at).chars().take(24).collect();
            push!(
                page.body,
                "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\" dominant-baseline=\"middle\" font-size=\"11\" \
                 fill=\"currentColor\">{}</text>\
                 <text transform=\"translate({middle} {}) rotate(-90)\" dominant-baseline=\"middle\" \
                 font-size=\"11\" fill=\"currentColor\">{}</text>",
                margin - 6,
                escape(&short),
                margin - 6,
                escape(&short)
            );
        }
        for (column, found) in matrix.rows[at].iter().enumerate() {
            let (x, y) = (margin + column * cell, margin + at * cell);
            square(page, outcome, work, *found, (x, y, cell - 1));
        }
    }
    page.body.push_str("</svg></figure>");
}

fn square(
    page: &mut Page,
    outcome: &MeshOutcome,
    work: &WorkOutcome,
    cell: Cell<'_>,
    (x, y, side): (usize, usize, usize),
) {
    let (pair, fill, opacity) = match cell {
        Cell::Empty => return,
        Cell::Missing(pair) => (pair, "var(--rule)", 1.0),
        Cell::Pair(pair) if !pair.misses.is_empty() => (pair, "var(--bad)", 1.0),
        Cell::Pair(pair) => (pair, "var(--series0)", darkness(mesh_words::distance(work.figure, pair))),
    };
    let said = pair.measured.as_ref().map_or_else(
        || "not measured".to_owned(),
        |found| {
            format!(
                "{} {}, {} of {} lost",
                work.figure,
                mesh_words::of_pair(work.figure, found),
                found.lost,
                found.sent
            )
        },
    );
    push!(
        page.body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" style=\"fill:{fill};fill-opacity:{opacity:.2}\">\
         <title>{}: {}</title></rect>",
        escape(&mesh_words::ends(outcome, pair)),
        escape(&said)
    );
    if matches!(cell, Cell::Missing(_)) {
        let (right, bottom) = (x + side, y + side);
        push!(
            page.body,
            "<path d=\"M{x} {y}L{right} {bottom}M{right} {y}L{x} {bottom}\" style=\"stroke:var(--bad)\"/>"
        );
    }
}

/// From what is usual to sixteen times that; of a throughput, to a sixteenth.
fn darkness(distance: f64) -> f64 {
    (0.2 + distance.max(1.0).log2() / 5.0).min(1.0)
}

fn table(page: &mut Page, outcome: &MeshOutcome, work: &WorkOutcome) {
    let worst = work.worst();
    let Some(warn) = &work.warn else { return };
    if worst.is_empty() {
        push!(page.body, "<p>{}</p>", sentence(&format!("No pair is beyond {warn}.")));
        return;
    }
    push!(
        page.body,
        "<div class=\"scroll\" tabindex=\"0\"><table><caption><strong>Pairs beyond {}</strong> worst first</caption>\
         <thead><tr><th scope=\"col\">pair</th><th scope=\"col\">what</th><th scope=\"col\">why</th></tr></thead><tbody>",
        escape(warn)
    );
    for &number in worst.iter().take(MOST_TOLD) {
        let pair = &work.pairs[number];
        let misses: Vec<String> = pair.misses.iter().map(|miss| sentence(&mesh_words::miss(pair, miss))).collect();
        let why: Vec<String> = mesh_words::explained(work, pair).iter().map(|told| sentence(told)).collect();
        push!(
            page.body,
            "<tr><th scope=\"row\" class=\"t bad\">{}</th><td class=\"t\">{}</td><td class=\"t\">{}</td></tr>",
            escape(&mesh_words::ends(outcome, pair)),
            misses.join("<br>"),
            why.join("<br>")
        );
    }
    page.body.push_str("</tbody></table></div>");
    if worst.len() > MOST_TOLD {
        push!(page.body, "<p>Only the worst {MOST_TOLD} of {} are here; the JSON has all.</p>", worst.len());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::{self, Style};

    /// A name that would run if it were not escaped, wherever it stands.
    const HOSTILE: &str = "</title><script>alert(1)</script>\u{1b}[31m";

    fn document(hosts: usize) -> MeshDocument {
        let host = |number: usize| json!({"name": if number == 0 { HOSTILE.to_owned() } else { format!("host-{number}") }, "address": "10.0.0.1"});
        let pair = |near: usize, far: usize| {
            let slow = (near, far) == (1, 2);
            let ns = if slow { 40_000_000 } else { 50_000 };
            let times = json!({"min": ns, "mean": ns, "p50": ns, "p90": ns, "p99": ns, "p999": ns, "p9999": ns,
                "max": ns, "count": 100, "lost": 0, "p50_ci": null, "p99_ci": null});
            let misses = if slow {
                json!([{"threshold": "p50 > 2ms", "figure": "p50", "value": ns, "usual": 50_000}])
            } else {
                json!([])
            };
            let explained = slow.then(|| {
                json!({"begin_ns": 1, "end_ns": 2, "layer": "medium", "layer_share": 0.99,
                "delivery_p50_ns": 20_000_000, "messages": 300, "lost": 0, "findings":
                [{"cause": "nagle_delayed_ack", "summary": HOSTILE, "remedy": "Set TCP_NODELAY."}]})
            });
            json!({"near": near, "far": far, "begin_ns": 0, "end_ns": 1, "reached": {"how": "measured"},
                "measured": {"rtt_ns": times, "sent": 100, "lost": 0}, "misses": misses, "times_usual": ns as f64 / 50_000.0,
                "explained": explained})
        };
        let mut pairs: Vec<_> = (0..hosts)
            .flat_map(|near| (near + 1..hosts).map(move |far| (near, far)))
            .map(|(a, b)| pair(a, b))
            .collect();
        pairs[0]["reached"] = json!({"how": "failed", "why": "x"});
        pairs[0]["measured"] = json!(null);
        serde_json::from_value(json!({
            "format_version": 3, "command": "mesh", "command_line": "taut mesh run m.toml", "file": "m.toml", "tautline": "0.1.0",
            "started_unix_s": 0, "duration_ns": 5_000_000_000_u64, "ended": {"how": "complete"},
            "hosts": (0..hosts).map(host).collect::<Vec<_>>(),
            "works": [{"work": "echo", "transport": "udp", "warn": "p50 > 2ms", "alone_on_host": false, "alone_in_rack": false,
                "figure": "p50", "usual": [{"between": "hosts", "figure": "p50", "value": 50_000.0, "pairs": 9}], "pairs": pairs}],
        }))
        .unwrap()
    }

    #[test]
    fn a_page_has_a_square_for_each_pair_and_names_stay_text() {
        let html = render_mesh(&document(6));
        assert_eq!(html.matches("<rect").count(), 15);
        assert_eq!(html.matches("var(--bad);fill-opacity").count(), 1);
        assert!(!html.contains("<script>alert") && html.contains("&lt;script&gt;"));
        assert!(html.contains("nagle_delayed_ack") && html.contains("What failed"));
    }

    #[test]
    fn that_a_run_failed_and_what_did_is_told_and_counted() {
        let mut value = serde_json::to_value(document(8)).unwrap();
        value["ended"] = json!({"how": "failed", "why": "the NATS server was away for 600s: \u{1b}[2J<b>"});
        let pairs = value["works"][0]["pairs"].as_array_mut().unwrap();
        for pair in &mut pairs[8..20] {
            pair["reached"] = json!({"how": "failed", "why": "no result came before the run failed"});
            pair["failures"] = json!({"times": 3, "why": "no result came before the run failed"});
            (pair["measured"], pair["misses"]) = (json!(null), json!([]));
        }
        pairs[20]["failures"] = json!({"times": 2, "why": "its peer was gone"});
        let document: MeshDocument = serde_json::from_value(value).unwrap();
        let style = Style { colour: false, width: None };
        let text = table::mesh(&document, style).replace("\n  ", " ");
        let html = render_mesh(&document);
        for told in [
            "15 of 28 measurements between 8 hosts in 5.00 s; 13 failed; 1 beyond a threshold",
            "PARTIAL: the run failed: the NATS server was away for 600s: ",
            "What was measured until then is here.",
            "FAILED 12 pairs: ",
            " (3 times) and 4 more, echo udp: no result came before the run failed",
            ", echo udp: x",
            "FAILED before it was measured host-3 > host-6 (2 times), echo udp: its peer was gone",
        ] {
            assert!(text.contains(told), "{told}: {text}");
            assert!(html.replace("&gt;", ">").replace('\u{a0}', " ").contains(told), "{told}: {html}");
        }
        assert!(!text.contains('\u{1b}') && !html.contains("<b>"), "{text}");
        // What failed for one reason stands in one sentence, and what most did first.
        assert_eq!(text.matches("FAILED").count(), 3, "{text}");
        assert!(text.find("12 pairs") < text.find("echo udp: x"), "{text}");
    }

    #[test]
    fn the_text_fits_however_many_hosts_there_are() {
        for hosts in [3, 6, 13, 64, 150, 201] {
            let document = document(hosts);
            for width in [None, Some(60), Some(140)] {
                let text = table::mesh(&document, Style { colour: false, width });
                let most = usize::from(width.unwrap_or(100));
                let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
                assert!(longest.chars().count() <= most, "{hosts} hosts, {width:?}: {longest}");
                assert!(
                    text.contains("host-1 > host-2: p50 40.0 ms, 800 times the usual 50.0 µs (`p50 > 2ms`)")
                        || width == Some(60),
                    "{text}"
                );
                assert!(!text.contains('\u{1b}'), "{text}");
                let has_square = text.contains(if hosts <= 12 { " 50.0µs" } else { "····" });
                assert_eq!(has_square, hosts <= 200, "{text}");
            }
        }
    }
}

//! Links in virtual time: throughput by interval, ledgers as bars, and connection events as a picture.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use taut_explain::air::{LINES, Line};
use taut_record::{AirExcerpt, AirRow};

use super::chart::{Chart, Spread, SpreadRow, add, add_spread};
use super::page::{Page, escape, push};
use crate::sheet::{air_labels, in_words};
use crate::units;

/// Kinds of PDU, in the order in which the style sheet and the script number them.
const KINDS: [&str; 5] = ["data", "credit", "signalling", "control", "empty"];

pub(super) fn charts(page: &mut Page, rows: &[&AirRow]) {
    let labels: Vec<String> = names(rows);
    let by_interval = by_interval(rows);
    if by_interval.is_none() && rows.len() > 1 {
        add_throughputs(page, rows, &labels);
    }
    add(page, by_interval);
    ledgers(page, rows, &labels);
    pictures(page, rows, &labels);
}

/// What sets each run apart, or the scenario's name.
fn names(rows: &[&AirRow]) -> Vec<String> {
    let name =
        |label: crate::sheet::Label| if rows.len() > 1 && !label.detail.is_empty() { label.detail } else { label.name };
    air_labels(rows).each.into_iter().map(name).collect()
}

/// Throughput and what whole exchanges would allow, by connection interval; a curve for each
/// combination of what else was varied.
fn by_interval(rows: &[&AirRow]) -> Option<Chart> {
    let others = |row: &AirRow| in_words(&row.set.iter().filter(|set| set.name != "ci").cloned().collect::<Vec<_>>());
    let mut curves: Vec<(String, Vec<&AirRow>)> = Vec::new();
    for row in rows {
        let name = others(row);
        match curves.iter_mut().find(|(other, _)| *other == name) {
            Some((_, curve)) => curve.push(row),
            None => curves.push((name, vec![row])),
        }
    }
    let several = curves.len() > 1;
    let mut series = Vec::new();
    for (name, mut curve) in curves {
        curve.sort_by_key(|row| row.ci_ns);
        curve.dedup_by_key(|row| row.ci_ns);
        if curve.len() < 2 {
            continue;
        }
        let x: Vec<u64> = curve.iter().map(|row| row.ci_ns).collect();
        let of = |what: &str| if several && !name.is_empty() { format!("{what}, {name}") } else { what.to_owned() };
        let y: Vec<f64> = curve.iter().map(|row| row.throughput_bps.max(1.0)).collect();
        series.push(json!({"label": of("throughput"), "x": x, "y": y}));
        let y: Vec<f64> = curve.iter().map(|row| row.quantised_limit_bps.max(1.0)).collect();
        series.push(json!({"label": of("limit of whole exchanges"), "x": x, "y": y}));
    }
    (!series.is_empty()).then(|| Chart {
        title: "Throughput by connection interval.".to_owned(),
        caption: "The limit counts whole exchanges in each connection event, every PDU full.".to_owned(),
        data: json!({
            "kind": "scaling", "x": "connection interval", "y": "throughput", "xunit": "ns", "unit": "bps", "series": series,
        }),
    })
}

fn add_throughputs(page: &mut Page, rows: &[&AirRow], labels: &[String]) {
    let row = |(row, label): (&&AirRow, &String)| SpreadRow {
        label: label.clone(),
        middle: row.throughput_bps.max(1.0),
        interval: None,
        dots: vec![row.limit_bps],
        words: format!("{}, limit {}", units::bit_rate(row.throughput_bps), units::bit_rate(row.limit_bps)),
    };
    let rows = rows.iter().zip(labels).map(row).collect();
    let spread = Spread { unit: "bps", axis: "throughput", mark: None, rows };
    add_spread(
        page,
        "Throughput of each run.",
        "The bar is the throughput, the dot the limit of the channel.",
        &spread,
    );
}

fn ledgers(page: &mut Page, rows: &[&AirRow], labels: &[String]) {
    page.body.push_str("<h3>Where the air time went</h3>");
    legend(page, |line| rows.iter().any(|row| row.ledger_ns.get(line.name).is_some_and(|&ns| ns > 0)));
    for (row, label) in rows.iter().zip(labels) {
        let parts = LINES.iter().enumerate().filter_map(|(i, line)| {
            let share = *row.ledger_ns.get(line.name).filter(|&&ns| ns > 0)? as f64 / row.duration_ns.max(1) as f64;
            let title = format!("{} {}: {}", line.words, units::share(share), line.meaning);
            Some(format!("<i class=\"air{i}\" style=\"flex-grow:{share:.6}\" title=\"{}\"></i>", escape(&title)))
        });
        let bar: String = parts.collect();
        push!(
            page.body,
            "<p class=\"ledger-label\">{}</p><div class=\"ledger\" aria-hidden=\"true\">{bar}</div>",
            escape(label)
        );
    }
}

fn legend(page: &mut Page, shown: impl Fn(&Line) -> bool) {
    page.body.push_str("<ul class=\"stages\">");
    for (i, line) in LINES.iter().enumerate().filter(|(_, line)| shown(line)) {
        push!(page.body, "<li title=\"{}\"><i class=\"air{i}\"></i>{}</li>", escape(line.meaning), line.words);
    }
    page.body.push_str("</ul>");
}

fn pictures(page: &mut Page, rows: &[&AirRow], labels: &[String]) {
    let drawn: Vec<_> =
        rows.iter().zip(labels).filter_map(|(row, label)| Some((row, label, row.excerpt.as_ref()?))).collect();
    if drawn.is_empty() {
        return;
    }
    page.body.push_str(
        "<h3>Connection events</h3><p class=\"lead\">A row for each connection event, from its anchor to the next: above, what \
        the central sent; below, what the peripheral did; behind, while nothing was on the air, who held the data. Drag to zoom, \
        double-click to go back.</p><ul class=\"stages\">",
    );
    for (i, kind) in KINDS.iter().enumerate() {
        push!(page.body, "<li><i class=\"pdu{i}\"></i>{kind}</li>");
    }
    page.body.push_str("</ul>");
    let holders: BTreeSet<&str> = drawn
        .iter()
        .flat_map(|(.., excerpt)| excerpt.events.iter().flat_map(|event| &event.idle))
        .map(|idle| idle.holder.as_str())
        .collect();
    legend(page, |line| holders.contains(line.name));
    for (row, label, excerpt) in drawn {
        add(page, Some(picture(row, label, excerpt)));
    }
}

fn picture(row: &AirRow, label: &str, excerpt: &AirExcerpt) -> Chart {
    let event = |event: &taut_record::AirEventExcerpt| {
        let pdus = event.pdus.iter().map(|pdu| {
            let kind = KINDS.iter().position(|kind| *kind == pdu.kind).unwrap_or(KINDS.len() - 1);
            json!([
                pdu.start_ns,
                pdu.duration_ns,
                u8::from(pdu.sender == "peripheral"),
                kind,
                pdu.payload_bytes,
                u8::from(pdu.more_data) | u8::from(pdu.retransmission) << 1 | u8::from(!pdu.received) << 2,
                pdu.what,
            ])
        });
        let idle = event.idle.iter().map(|idle| json!([idle.start_ns, idle.duration_ns, Line::place(&idle.holder)]));
        json!({
            "number": event.number, "at": event.anchor_ns, "closed": event.closed,
            "pdus": pdus.collect::<Vec<Value>>(), "idle": idle.collect::<Vec<Value>>(),
        })
    };
    let events: Vec<Value> = excerpt.events.iter().map(event).collect();
    let lines: Vec<&str> = LINES.iter().map(|line| line.words).collect();
    Chart {
        title: format!("{label}."),
        caption: excerpt.what.clone(),
        data: json!({"kind": "air", "span": row.ci_ns, "kinds": KINDS, "lines": lines, "events": events}),
    }
}

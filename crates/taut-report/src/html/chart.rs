//! Data of the charts, computed here so that the script only draws.

use serde_json::{Value, json};
use taut_record::stats::Losses;
use taut_record::{CrowdRow, EchoRow, MessageExcerpt, PaceRow, RouteRow};

use super::page::Page;
use crate::{stages, units};

/// A chart for the script.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) caption: String,
    pub(crate) data: Value,
}

/// Rows of dots with their middle and interval, on one axis.
pub(crate) struct Spread {
    /// `ns`, `bps` or `ratio`.
    pub(crate) unit: &'static str,
    pub(crate) axis: &'static str,
    /// A value to draw a line at.
    pub(crate) mark: Option<f64>,
    pub(crate) rows: Vec<SpreadRow>,
}

pub(crate) struct SpreadRow {
    pub(crate) label: String,
    pub(crate) middle: f64,
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) dots: Vec<f64>,
    /// The figures in words, for the hover.
    pub(crate) words: String,
}

impl Spread {
    pub(crate) fn data(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let interval = row.interval.map(|(low, high)| [low, high]);
                json!({"label": row.label, "middle": row.middle, "interval": interval, "dots": row.dots, "words": row.words})
            })
            .collect();
        json!({"kind": "spread", "unit": self.unit, "axis": self.axis, "mark": self.mark, "rows": rows})
    }
}

/// Times of messages by percentile, of which some never came.
pub(crate) struct Curve<'a> {
    points: &'a [(f64, u64)],
    losses: Losses,
    timeout_ns: u64,
}

impl<'a> From<&'a EchoRow> for Curve<'a> {
    fn from(row: &'a EchoRow) -> Self {
        Self { points: &row.curve, losses: row.losses(), timeout_ns: row.timeout_ns }
    }
}

impl<'a> From<&'a RouteRow> for Curve<'a> {
    fn from(row: &'a RouteRow) -> Self {
        Self { points: &row.curve, losses: row.losses(), timeout_ns: row.timeout_ns }
    }
}

/// Time by percentile, of all messages of all rounds. A loss stands at infinity, so the curve ends
/// at the share that came back.
pub(crate) fn percentiles(rows: &[Curve<'_>], labels: &[String]) -> Option<Chart> {
    let series = series(rows, labels, |points| {
        let (x, y): (Vec<f64>, Vec<f64>) = points.iter().map(|&(q, ns)| (-(1.0 - q).log10(), ns)).unzip();
        json!({"x": x, "y": y})
    })?;
    Some(Chart {
        title: "Time by percentile, all rounds pooled.".to_owned(),
        caption: "Each labelled step to the right leaves a tenth as many messages beyond it. A lost message stands at \
            infinity: where messages were lost, the curve ends before."
            .to_owned(),
        data: json!({"kind": "percentiles", "series": series}),
    })
}

/// Share of the messages later than a time. Losses hold the curve up to the right edge.
pub(crate) fn exceedance(rows: &[Curve<'_>], labels: &[String]) -> Option<Chart> {
    let latest = rows.iter().filter(|row| row.losses.lost > 0).map(|row| row.timeout_ns as f64).fold(0.0, f64::max);
    let mut series = series(rows, labels, |points| {
        let (x, y): (Vec<f64>, Vec<f64>) = points.iter().map(|&(q, ns)| (ns, 1.0 - q)).unzip();
        json!({"x": x, "y": y})
    })?;
    for (series, row) in series.iter_mut().zip(rows.iter().filter(|row| !row.points.is_empty())) {
        // All are later than a moment before the first one: without that, times that are all the same were no line.
        let first = row.points.first().map_or(1.0, |&(_, ns)| ns.max(1) as f64);
        series["x"].as_array_mut()?.insert(0, json!(first * 0.999));
        series["y"].as_array_mut()?.insert(0, json!(1.0));
        if row.losses.lost > 0 {
            let share = row.losses.share();
            let last = row.points.last().map_or(1.0, |&(_, ns)| ns as f64);
            series["x"].as_array_mut()?.extend([json!(last * 1.001), json!(latest)]);
            series["y"].as_array_mut()?.extend([json!(share), json!(share)]);
        }
    }
    Some(Chart {
        title: "Share of the messages later than a time, all rounds pooled.".to_owned(),
        caption: "Lost messages count as later than every time: they hold a curve up to the right edge.".to_owned(),
        data: json!({"kind": "exceedance", "series": series}),
    })
}

/// Points of the curve as share of all messages, and time.
fn series(rows: &[Curve<'_>], labels: &[String], shape: impl Fn(&[(f64, f64)]) -> Value) -> Option<Vec<Value>> {
    let series = rows.iter().zip(labels).filter(|(row, _)| !row.points.is_empty()).map(|(row, label)| {
        // A logarithmic axis has no 0.
        let points: Vec<(f64, f64)> = row.points.iter().map(|&(q, ns)| (q, ns.max(1) as f64)).collect();
        let mut series = shape(&points);
        series["label"] = json!(label);
        series
    });
    let series: Vec<Value> = series.collect();
    (!series.is_empty()).then_some(series)
}

/// Round trip by active links, as in the published experiment.
pub(crate) fn by_active(rows: &[&CrowdRow]) -> Option<Chart> {
    let points = rows.iter().filter_map(|row| {
        let p50 = row.rtt_ns?.p50.time()? as f64;
        Some(Point { engine: &row.engine, at: row.active, of: row.connections, value: p50 })
    });
    let series = scaling(points, |connections| format!("{} connections", units::count(connections as u64)))?;
    Some(Chart {
        title: "Median round trip by active connections.".to_owned(),
        caption:
            "One message on each active connection at once, until all are answered. Where many are active, all of them \
            wait for the one processor of the server; what sets the engines apart is what it costs to find the few."
                .to_owned(),
        data: json!({"kind": "scaling", "x": "active connections", "y": "p50", "series": series}),
    })
}

/// CPU time of a message by open links.
pub(crate) fn by_connections(rows: &[&CrowdRow]) -> Option<Chart> {
    let points = rows.iter().filter_map(|row| {
        let value = row.cpu_ns_per_message?;
        Some(Point { engine: &row.engine, at: row.connections, of: row.active, value })
    });
    let series = scaling(points, |active| format!("{} active", units::count(active as u64)))?;
    Some(Chart {
        title: "CPU time of a message by connections.".to_owned(),
        caption:
            "The same few are active whatever the number of connections: a level line means that idle connections cost \
            nothing at a wake-up."
                .to_owned(),
        data: json!({"kind": "scaling", "x": "connections", "y": "CPU time per message", "series": series}),
    })
}

struct Point<'a> {
    engine: &'a str,
    at: usize,
    /// What is the same along a curve.
    of: usize,
    value: f64,
}

/// Curves of at least two points, one for each engine and each `of`, which is named where there are several.
fn scaling<'a>(points: impl Iterator<Item = Point<'a>>, of: impl Fn(usize) -> String) -> Option<Vec<Value>> {
    let mut curves: Vec<Vec<Point<'_>>> = Vec::new();
    for point in points {
        match curves.iter_mut().find(|curve| (curve[0].engine, curve[0].of) == (point.engine, point.of)) {
            Some(curve) => curve.push(point),
            None => curves.push(vec![point]),
        }
    }
    curves.retain(|curve| curve.len() > 1);
    let several = curves.iter().any(|curve| curve[0].of != curves[0][0].of);
    let series = curves.iter_mut().map(|curve| {
        curve.sort_unstable_by_key(|point| point.at);
        let (x, y): (Vec<usize>, Vec<f64>) = curve.iter().map(|point| (point.at, point.value)).unzip();
        let Point { engine, of: fixed, .. } = curve[0];
        let label = if several { format!("{engine}, {}", of(fixed)) } else { engine.to_owned() };
        json!({"label": label, "x": x, "y": y})
    });
    let series: Vec<Value> = series.collect();
    (!series.is_empty()).then_some(series)
}

/// Messages as bars from their intended time on, cut by the layer that held them. Charts of one
/// page share their scale, so that they can be held against each other.
pub(crate) fn timelines(rows: &[&PaceRow], labels: &[String]) -> Vec<Chart> {
    /// More bars than this would be thinner than a line.
    const MOST: usize = 200;
    let drawn = || rows.iter().zip(labels).filter(|(row, _)| !row.excerpt.is_empty());
    let ends = drawn().flat_map(|(row, _)| row.excerpt.iter().take(MOST)).map(|message| {
        let last = stages::parts_of_excerpt(message).last().map_or(message.intended, |part| part.end);
        last.max(message.acked.unwrap_or(last))
    });
    let span = ends.max().unwrap_or(1).max(1);
    let most = drawn().map(|(row, _)| row.excerpt.len().min(MOST)).max().unwrap_or(1);
    let chart = |(row, label): (&&PaceRow, &String)| {
        let message = |message: &MessageExcerpt| {
            let parts = stages::parts_of_excerpt(message);
            let parts: Vec<Value> = parts.iter().map(|part| json!([part.stage as u8, part.start, part.end])).collect();
            json!({"intended": message.intended, "parts": parts, "acked": message.acked})
        };
        let messages: Vec<Value> = row.excerpt.iter().take(MOST).map(message).collect();
        Chart {
            title: format!("{label}."),
            caption: format!("The first {} messages of the last round.", messages.len()),
            data: json!({"kind": "timeline", "span": span, "most": most, "messages": messages}),
        }
    };
    drawn().map(chart).collect()
}

pub(crate) fn add_spread(page: &mut Page, title: &str, caption: &str, spread: &Spread) {
    if !spread.rows.is_empty() {
        page.chart(title, caption, spread.data());
    }
}

pub(super) fn add(page: &mut Page, chart: Option<Chart>) {
    if let Some(chart) = chart {
        page.chart(&chart.title, &chart.caption, chart.data);
    }
}

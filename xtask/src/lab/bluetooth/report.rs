//! The report of the experiments: one page of HTML that loads nothing, with charts as SVG.

use std::fmt::Write as _;

use serde_json::Value;

use super::latency;

/// A line of a chart: its name and points.
type Line = (String, Vec<(f64, f64)>);

/// The room of a chart in its own units, and the margins for its numbers.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
/// Told apart without red and green (Okabe and Ito).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#b5a800"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}th,td{padding:.2rem .6rem;text-align:right;\
border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}.missed{color:#a00000;font-weight:600}\
pre{background:#f5f5f5;padding:.6rem;overflow-x:auto;font-size:13px}svg{max-width:100%;height:auto}";

/// The page: `object` is what `--json` prints, `rows` the latencies with their curves.
pub(super) fn page(object: &Value, rows: &[&latency::Row]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>cargo xtask lab bluetooth</title><style>{STYLE}</style><h1>Bluetooth on Debian's kernels, in virtual time</h1>\
         <p>Kernels in virtual machines, controllers and radio simulated: <code>cargo xtask lab bluetooth</code>. An instruction \
         takes 1 ns there, so what hosts compute is too cheap; the air is exact.</p>"
    );
    let results = object["results"].as_array().map_or(&[][..], Vec::as_slice);
    if !results.is_empty() {
        throughput(&mut page, results);
        patterns(&mut page, results);
    }
    bars(&mut page, object);
    if !rows.is_empty() {
        latencies(&mut page, rows);
    }
    findings(&mut page, object);
    page.push_str("</html>\n");
    page
}

fn throughput(page: &mut String, results: &[Value]) {
    page.push_str("<h2>Throughput by connection interval</h2>");
    let mut lines: Vec<Line> = Vec::new();
    for (figure, suffix) in [("throughput_bps", ""), ("model_bps", ", model")] {
        for row in results.iter().filter(|row| is_whole(row)) {
            let name = format!("Linux {}{suffix}", text(&row["kernel"]));
            let point = (number(&row["ci_ns"]) / 1e6, number(&row[figure]) / 1e3);
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
    }
    lines.iter_mut().for_each(|(_, points)| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let axes = Axes { x: "connection interval, ms (logarithmic)", y: "kb/s", log_x: true, log_y: false };
    page.push_str(&chart(&axes, &lines));
    let head = ["kernel", "interval, ms", "block", "kernel, kb/s", "model, kb/s", "672 x 8 / (2 CI)", "same events"];
    let body = results.iter().map(|row| {
        let formula = row["formula_bps"].as_f64().map_or_else(|| "-".to_owned(), |bps| format!("{:.1}", bps / 1e3));
        let mut cells =
            vec![text(&row["release"]), (number(&row["ci_ns"]) / 1e6).to_string(), row["block_bytes"].to_string()];
        cells.extend(["throughput_bps", "model_bps"].map(|name| format!("{:.1}", number(&row[name]) / 1e3)));
        cells.extend([formula, row["events_same"].to_string()]);
        (cells, missed(row))
    });
    table(page, &head, body);
}

fn bars(page: &mut String, object: &Value) {
    let rows = object["published_program"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return;
    }
    page.push_str("<h2>The published program's blocks</h2>");
    for bar in object["bars"].as_array().into_iter().flatten() {
        let (class, verdict) = if bar["met"] == true { ("", "met") } else { (" class=\"missed\"", "missed") };
        let [value, low, high] = ["value", "low", "high"].map(|name| number(&bar[name]) * 100.0);
        let _ = write!(
            page,
            "<p{class}>l2cat's blocks of 4096 bytes lose {value:.1} % on the published link (scenario paper-000, 7.5 ms, Linux 5.10); \
             published: {low:.0} to {high:.0} %: {verdict}.</p>"
        );
    }
    let head = ["scenario", "program", "bytes of a write", "kb/s", "events around a block's end"];
    let body = rows.iter().map(|row| {
        let rate = format!("{:.1}", number(&row["throughput_bps"]) / 1e3);
        let block = row["block_bytes"].to_string();
        (vec![text(&row["scenario"]), text(&row["program"]), block, rate, escape(&text(&row["pattern"]))], Vec::new())
    });
    table(page, &head, body);
}

fn patterns(page: &mut String, results: &[Value]) {
    page.push_str(
        "<h2>PDUs and credits</h2><p>Eight connection events: <code>&gt;</code> from the peripheral, <code>&lt;</code> from the \
         central, lengths of data PDUs in bytes, credits with +. Under it what btmon reads from the central's packets.</p>",
    );
    for row in results {
        let btmon = &row["btmon"];
        let request: Vec<String> = btmon["request"].as_array().into_iter().flatten().map(text).collect();
        let _ = write!(
            page,
            "<h3>Linux {}, {} ms, blocks of {}</h3><pre>kernel  {}\nmodel   {}\n\nbtmon   {}\n        then credits {} in {} packets; \
             complaints: {}</pre>",
            escape(&text(&row["kernel"])),
            number(&row["ci_ns"]) / 1e6,
            row["block_bytes"],
            escape(&text(&row["pattern"])),
            escape(&text(&row["model_pattern"])),
            escape(&request.join("\n        ")),
            escape(&btmon["first_credits"].to_string()),
            btmon["credit_packets"],
            escape(&btmon["complaints"].to_string()),
        );
    }
}

fn latencies(page: &mut String, rows: &[&latency::Row]) {
    page.push_str(
        "<h2>Latency by kind of link</h2><p>32 bytes there and back, 1000 times, over five links one after the other. TCP and UDP \
         stay in the guest: what they have of a network is its two stacks. RFCOMM and L2CAP go over the simulated radio.</p>",
    );
    let name = |row: &latency::Row| {
        let medium = if row.lossy { ", losses" } else { "" };
        format!("{}, Linux {}{medium}", row.link, row.kernel.name())
    };
    let head = [
        "ms",
        "p10",
        "p20",
        "p30",
        "p40",
        "p50",
        "p60",
        "p70",
        "p80",
        "p90",
        "&gt;50 ms",
        "&gt;100",
        "&gt;200",
        "&gt;300",
        "lost",
    ];
    let body = rows.iter().map(|row| {
        let mut cells = vec![escape(&name(row))];
        cells.extend(
            (1..10)
                .map(|tenths| row.decile_ns(tenths))
                .map(|ns| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6))),
        );
        cells.extend([50, 100, 200, 300].map(|limit| format!("{:.1} %", row.over(limit) * 100.0)));
        cells.push(row.echo["lost"].to_string());
        (cells, row.missed.clone())
    });
    table(page, &head, body);
    page.push_str("<h3>Share of the echoes that took longer</h3>");
    let on_air = rows.iter().filter(|row| !matches!(row.link, "tcp" | "udp"));
    let newest = rows.last().map(|row| row.kernel);
    let lines: Vec<Line> = on_air
        .filter(|row| Some(row.kernel) == newest)
        .map(|row| {
            let points = row.curve().filter(|(quantile, _)| *quantile < 1.0);
            (name(row), points.map(|(quantile, ns)| (ns as f64 / 1e6, (1.0 - quantile) * 100.0)).collect())
        })
        .collect();
    let axes = Axes { x: "ms (logarithmic)", y: "% (logarithmic)", log_x: true, log_y: true };
    page.push_str(&chart(&axes, &lines));
}

fn findings(page: &mut String, object: &Value) {
    for finding in object["findings"].as_array().into_iter().flatten() {
        let evidence: String = finding["evidence"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|line| format!("<li>{}</li>", escape(&text(line))))
            .collect();
        let [summary, cause, on, remedy] =
            ["summary", "cause", "on", "remedy"].map(|name| escape(&text(&finding[name])));
        let _ = write!(
            page,
            "<h2>{summary}</h2><p><code>{cause}</code> on {on}</p><ul>{evidence}</ul><p>What helps: {remedy}.</p>"
        );
    }
}

fn table(page: &mut String, head: &[&str], body: impl Iterator<Item = (Vec<String>, Vec<String>)>) {
    page.push_str("<table><thead><tr>");
    head.iter().for_each(|name| {
        let _ = write!(page, "<th>{name}</th>");
    });
    page.push_str("</tr></thead><tbody>");
    for (cells, missed) in body {
        page.push_str("<tr>");
        cells.iter().for_each(|cell| {
            let _ = write!(page, "<td>{cell}</td>");
        });
        page.push_str("</tr>");
        if !missed.is_empty() {
            let (span, missed) = (cells.len(), escape(&missed.join("; ")));
            let _ = write!(page, "<tr><td class=\"missed\" colspan=\"{span}\">missed: {missed}</td></tr>");
        }
    }
    page.push_str("</tbody></table>");
}

struct Axes {
    x: &'static str,
    y: &'static str,
    log_x: bool,
    log_y: bool,
}

/// From values to a place between 0 and 1.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let low = if log { values.clone().fold(f64::INFINITY, f64::min) } else { 0.0 };
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        Self { low, high: if high > low { high } else { low + 1.0 }, log }
    }

    fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Five values at even distances.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..5).map(|step| f64::from(step) / 4.0).map(|at| {
            if self.log { self.low * (self.high / self.low).powf(at) } else { self.low + at * (self.high - self.low) }
        })
    }
}

fn chart(axes: &Axes, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points.iter()).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    if points().next().is_none() {
        return String::new();
    }
    let x = Scale::over(points().map(|point| point.0), axes.log_x);
    let y = Scale::over(points().map(|point| point.1), axes.log_y);
    let across = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
    let down = |value: f64| HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by {}\" font-size=\"11\" font-family=\"sans-serif\">",
        axes.y, axes.x
    );
    for value in x.ticks() {
        let (at, foot) = (across(value), HEIGHT - BOTTOM);
        let _ = write!(svg, "<path d=\"M{at:.1} {TOP}V{foot}\" stroke=\"#e0e0e0\"/>");
        let _ = write!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", foot + 15.0, short(value));
    }
    for value in y.ticks() {
        let at = down(value);
        let _ = write!(svg, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#e0e0e0\"/>", WIDTH - RIGHT);
        let _ =
            write!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 6.0, at + 4.0, short(value));
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    let _ = write!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", HEIGHT - 6.0, axes.x);
    let _ = write!(svg, "<text x=\"4\" y=\"10\">{}</text>", axes.y);
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dashes = if name.ends_with("model") || index >= COLOURS.len() { " stroke-dasharray=\"5 4\"" } else { "" };
        let path: Vec<String> = points
            .iter()
            .filter(|(x, y)| *x > 0.0 && *y > 0.0)
            .map(|(x, y)| format!("{:.1},{:.1}", across(*x), down(*y)))
            .collect();
        let path = path.join(" ");
        let _ =
            write!(svg, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>");
        let (from, at) = (WIDTH - RIGHT + 10.0, TOP + 10.0 + 16.0 * index as f64);
        let _ = write!(svg, "<path d=\"M{from} {}h18\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>", at - 4.0);
        let _ = write!(svg, "<text x=\"{}\" y=\"{at}\">{}</text>", from + 22.0, escape(name));
    }
    svg.push_str("</svg>");
    svg
}

fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn is_whole(row: &Value) -> bool {
    row["block_bytes"].as_u64().is_some_and(|bytes| bytes % 672 == 0)
}

fn missed(row: &Value) -> Vec<String> {
    row["missed"].as_array().into_iter().flatten().map(text).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lab::kernel::Series;

    #[test]
    fn a_page_has_all_parts_and_loads_nothing() {
        let result = |ci_ns: u64, bps: f64| {
            json!({ "kernel": "5.10", "release": "5.10.0-32", "ci_ns": ci_ns, "block_bytes": 67_200, "throughput_bps": bps,
                    "model_bps": bps, "formula_bps": bps, "events_same": 1000, "pattern": ">251 <+3", "model_pattern": ">251",
                    "btmon": { "request": ["MTU: 672"], "first_credits": [3], "credit_packets": 9, "complaints": [] },
                    "missed": ["<bad>"] })
        };
        let object = json!({
            "results": [result(7_500_000, 358_400.0), result(50_000_000, 53_760.0)],
            "bars": [{ "value": 0.062, "low": 0.08, "high": 0.16, "met": false }],
            "published_program": [{ "scenario": "paper-000", "program": "l2cat", "block_bytes": 4096, "throughput_bps": 312_100.0,
                                    "pattern": ">70 >251 | -" }],
            "findings": [{ "cause": "baseband_retransmission", "summary": "late", "on": "rfcomm", "evidence": ["seen"],
                           "remedy": "less" }],
        });
        let echo = json!({ "rtt_ns": { "p50": 6_250_000 }, "curve": [[0.0, 6_000_000], [0.1, 6_100_000], [0.9, 7_000_000],
            [0.999, 90_000_000]], "exceed": [{ "over_ns": 50_000_000, "share": 0.01 }], "lost": 0 });
        let row = latency::Row {
            kernel: Series::V6_12,
            lossy: true,
            link: "rfcomm",
            echo,
            ended: json!({ "how": "complete" }),
            missed: Vec::new(),
        };
        let page = page(&object, &[&row]);
        for part in [
            "358.4",
            "6.2 %",
            "312.1",
            "&gt;70 &gt;251 | -",
            "missed: &lt;bad&gt;",
            "&gt;251 &lt;+3",
            "MTU: 672",
            "6.100",
            "1.0 %",
            "seen",
            "polyline",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("NaN,") && !page.contains("src=") && !page.contains("http"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2);
    }

    #[test]
    fn a_scale_goes_from_end_to_end() {
        let log = Scale::over([1.0, 100.0].into_iter(), true);
        assert_eq!((log.place(1.0), log.place(10.0), log.place(100.0)), (0.0, 0.5, 1.0));
        let linear = Scale::over([50.0, 100.0].into_iter(), false);
        assert_eq!((linear.place(0.0), linear.place(50.0)), (0.0, 0.5));
    }
}

//! A section for each workload: charts first, then the same tables as the text, then what repeats them.

use taut_explain::Stage;
use taut_record::stats::{self, Interval};
use taut_record::{CrowdRow, EchoRow, PaceRow, RouteRow, StreamRow, TuneRow};

use super::air;
use super::chart::{
    Chart, Curve, Spread, SpreadRow, add, add_spread, by_active, by_connections, exceedance, percentiles, timelines,
};
use super::page::{Page, code, escape, push, sentence};
use crate::sheet::{
    self, About, Cell, Groups, Line, Sheet, Tone, echo_labels, ledger_shares, pace_labels, pace_stages, ratio_interval,
    route_groups, route_heading, route_labels, stream_labels, tune_labels,
};
use crate::units;

pub(super) fn all(page: &mut Page, groups: &Groups<'_>) {
    let (floor, check) = (sheet::floor_sheets(&groups.floor), sheet::check_sheets(&groups.check));
    section(page, &PUBLISHED, &sheet::published_sheets(&groups.published), |_| {});
    section(page, &LIVE, &sheet::host_sheets(&groups.watch, &groups.setting), |_| {});
    section(page, &ECHO, &sheet::echo_sheets(&groups.echo), |page| echo(page, &groups.echo));
    section(page, &PACE, &sheet::pace_sheets(&groups.pace), |page| pace(page, &groups.pace));
    section(page, &STREAM, &sheet::stream_sheets(&groups.stream), |page| stream(page, &groups.stream));
    section(page, &CROWD, &sheet::crowd_sheets(&groups.crowd), |page| crowd(page, &groups.crowd));
    section(page, &ROUTE, &sheet::route_sheets(&groups.route), |page| route(page, &groups.route));
    section(page, &TUNE, &sheet::tune_sheets(&groups.tune), |page| tune(page, &groups.tune));
    let air = sheet::air_sheets(&groups.air, &groups.air_changes);
    section(page, &AIR, &air, |page| air::charts(page, &groups.air));
    section(page, &DOCTOR, &[floor, check].into_iter().flatten().collect::<Vec<_>>(), |_| {});
}

struct Words {
    id: &'static str,
    heading: &'static str,
    lead: &'static str,
}

const PUBLISHED: Words =
    Words { id: "published", heading: "A published experiment", lead: "Its figures beside those measured here." };
const LIVE: Words = Words {
    id: "live",
    heading: "This host",
    lead: "What its live connections lose and to what, and the settings that bear on it.",
};
const ECHO: Words =
    Words { id: "echo", heading: "Round trips", lead: "From sending a message to its reply, never halved." };
const PACE: Words =
    Words { id: "pace", heading: "Periodic sending", lead: "Does each message leave and arrive on time?" };
const STREAM: Words = Words { id: "stream", heading: "Throughput", lead: "Bits per second that arrived." };
const CROWD: Words = Words {
    id: "crowd",
    heading: "Many connections, few active",
    lead: "What each way of waiting costs a server that has to find the few.",
};
const ROUTE: Words = Words {
    id: "route",
    heading: "Direct path",
    lead: "From a sensor's datagram or edge to its last sink, by where the condition runs.",
};
const TUNE: Words =
    Words { id: "tune", heading: "Settings tried", lead: "Each in turn with the path as it is, round by round." };
const AIR: Words = Words {
    id: "air",
    heading: "LE link in virtual time",
    lead: "A model of the link layer, the channel and both hosts; nothing of this was on the air.",
};
const DOCTOR: Words =
    Words { id: "doctor", heading: "What this host can do", lead: "Its own cost, and what works here." };

fn section(page: &mut Page, words: &Words, sheets: &[Sheet], charts: impl FnOnce(&mut Page)) {
    if sheets.is_empty() {
        return;
    }
    page.begin_section(words.id, words.heading);
    push!(page.body, "<p class=\"lead\">{}</p>", words.lead);
    charts(page);
    sheet_tables(page, sheets);
    page.end_section();
}

/// Of a sheet of cases next to one another: what they are figures of, and six cases.
const MOST_COLUMNS: usize = 8;

/// Sheets as tables, with their notes and commands.
pub(crate) fn sheet_tables(page: &mut Page, sheets: &[Sheet]) {
    for sheet in sheets {
        for (i, columns) in sheet.tables(|columns| columns.len() <= MOST_COLUMNS).iter().enumerate() {
            table(&mut page.body, sheet, columns, i == 0);
        }
        for note in &sheet.notes {
            push!(page.body, "<p class=\"note{}\">{}</p>", class(note.tone), sentence(&note.text));
        }
        about(&mut page.body, &sheet.about);
    }
}

fn echo(page: &mut Page, rows: &[&EchoRow]) {
    let labels = echo_labels(rows).in_full();
    curves(page, rows.iter().copied(), &labels);
    let spread = rows.iter().zip(&labels).filter_map(|(row, label)| {
        let dots: Vec<f64> = row.rounds.iter().filter_map(|round| round.p50_ns).map(|ns| ns as f64).collect();
        let (middle, interval) = (stats::median(&dots)?, stats::interval(&dots).map(Interval::ends));
        let ends = interval.map(|(low, high)| units::time_interval((low as u64, high as u64)));
        let ends = ends.map_or_else(String::new, |ends| format!(", interval {ends}"));
        let words = format!("p50 {}{ends}", units::time(middle as u64));
        Some(SpreadRow { label: label.clone(), middle, interval, dots, words })
    });
    let spread = Spread { unit: "ns", axis: "p50", mark: None, rows: spread.collect() };
    add_spread(
        page,
        "Median of each round.",
        "A dot for each independent round; the bar is their interval. Bars that overlap \
        cannot be told apart.",
        &spread,
    );
}

fn pace(page: &mut Page, rows: &[&PaceRow]) {
    let labels = pace_labels(rows).in_full();
    let charts = timelines(rows, &labels);
    if !charts.is_empty() {
        page.body.push_str(
            "<h3>Where each message waited</h3><p class=\"lead\">A bar for each message, from its intended time \
            until it was read. Drag to zoom, double-click to go back.</p>",
        );
        legend(&mut page.body, rows, true);
        page.body.push_str("<div class=\"beside\">");
        charts.into_iter().for_each(|chart| add(page, Some(chart)));
        page.body.push_str("</div>");
    }
    let mut with_ledger = rows.iter().zip(&labels).filter(|(row, _)| !row.ledger_ns.is_empty()).peekable();
    if with_ledger.peek().is_some() {
        page.body.push_str("<h3>Where the time of all messages went</h3>");
        legend(&mut page.body, rows, false);
    }
    for (row, label) in with_ledger {
        let parts = ledger_shares(row).into_iter().map(|(name, share)| {
            let stage =
                Stage::ALL.iter().position(|stage| stage.name() == name).map_or_else(String::new, |i| i.to_string());
            let title = format!("{name} {}", units::share(share));
            format!("<i class=\"stage{stage}\" style=\"flex-grow:{share:.6}\" title=\"{}\"></i>", escape(&title))
        });
        let bar: String = parts.collect();
        push!(
            page.body,
            "<p class=\"ledger-label\">{}</p><div class=\"ledger\" aria-hidden=\"true\">{bar}</div>",
            escape(label)
        );
    }
}

fn legend(body: &mut String, rows: &[&PaceRow], with_ack: bool) {
    body.push_str("<ul class=\"stages\">");
    for (i, stage) in pace_stages(rows) {
        push!(body, "<li><i class=\"stage{i}\"></i>{}</li>", stage.name());
    }
    body.push_str(if with_ack { "<li><i class=\"ack\"></i>acknowledged</li></ul>" } else { "</ul>" });
}

fn stream(page: &mut Page, rows: &[&StreamRow]) {
    let spread = rows.iter().zip(stream_labels(rows).in_full()).map(|(row, label)| {
        let ci = row.throughput_bps_ci;
        let rounds = ci.map_or_else(String::new, |ci| format!(", rounds {}", units::bit_rate_interval(ci)));
        SpreadRow {
            label,
            middle: row.throughput_bps,
            interval: ci,
            dots: row.rounds.iter().map(|round| round.throughput_bps).collect(),
            words: format!("{}{rounds}", units::bit_rate(row.throughput_bps)),
        }
    });
    let spread = Spread { unit: "bps", axis: "throughput", mark: None, rows: spread.collect() };
    add_spread(
        page,
        "Throughput of each round.",
        "A dot for each independent round; the bar is their interval.",
        &spread,
    );
}

fn crowd(page: &mut Page, rows: &[&CrowdRow]) {
    add(page, by_active(rows));
    add(page, by_connections(rows));
}

fn route(page: &mut Page, rows: &[&RouteRow]) {
    for rows in route_groups(rows) {
        let labels = route_labels(&rows).in_full();
        let curves: Vec<Curve<'_>> = rows.iter().copied().map(Curve::from).collect();
        // There may be several groups, of other figures over other things.
        let what = format!("{}, {}.", route_heading(&rows), rows[0].over);
        for chart in [percentiles(&curves, &labels), exceedance(&curves, &labels)] {
            add(page, chart.map(|chart| Chart { title: format!("{what} {}", chart.title), ..chart }));
        }
    }
}

/// Time by percentile, and share later than a time.
fn curves<'a, R: 'a>(page: &mut Page, rows: impl Iterator<Item = &'a R>, labels: &[String])
where
    Curve<'a>: From<&'a R>,
{
    let curves: Vec<Curve<'_>> = rows.map(Curve::from).collect();
    add(page, percentiles(&curves, labels));
    add(page, exceedance(&curves, labels));
}

fn tune(page: &mut Page, rows: &[&TuneRow]) {
    let tried = rows.iter().zip(tune_labels(rows).in_full()).filter(|(row, _)| row.setting != "base");
    let spread = tried.filter_map(|(row, label)| {
        let ratio = row.p50_ratio?;
        let interval =
            row.p50_ratio_ci.map_or_else(String::new, |ci| format!(", {}", ratio_interval(ci, row.p50_ratio_level)));
        let words = format!("ratio {}{interval}", units::number(ratio));
        Some(SpreadRow { label, middle: ratio, interval: row.p50_ratio_ci, dots: Vec::new(), words })
    });
    let spread = Spread {
        unit: "ratio",
        axis: "median with the setting over median without",
        mark: Some(1.0),
        rows: spread.collect(),
    };
    add_spread(
        page,
        "What each setting does to the median.",
        "Left of 1 is shorter. An interval that holds 1 cannot be told apart \
        from no effect.",
        &spread,
    );
}

fn table(body: &mut String, sheet: &Sheet, shown: &[usize], with_caption: bool) {
    let columns = || shown.iter().map(|&i| &sheet.columns[i]);
    // A few columns drawn over the whole page would be hard to follow across.
    let few = shown.len() <= 4 && columns().skip(1).all(|column| column.numeric || column.title.is_empty());
    let class = match shown.len() {
        _ if few => " class=\"few\"",
        9.. => " class=\"wide\"",
        _ => "",
    };
    push!(body, "<div class=\"scroll\" tabindex=\"0\"><table{class}>");
    if with_caption {
        push!(body, "<caption><strong>{}</strong> {}</caption>", escape(&sheet.heading), escape(&sheet.context));
    }
    body.push_str("<thead><tr>");
    for column in columns() {
        let class = if column.numeric { " class=\"n\"" } else { "" };
        push!(body, "<th scope=\"col\"{class}>{}</th>", escape(&column.title).replace('\n', "<br>"));
    }
    body.push_str("</tr></thead><tbody>");
    // The first column that bears a name heads the line; where lines continue a row it spans them.
    let name = sheet.columns.iter().position(|column| !column.title.is_empty()).unwrap_or(0);
    for (i, line) in sheet.lines.iter().enumerate() {
        let class = if line.continues { " class=\"continues\"" } else { "" };
        push!(body, "<tr{class}>");
        let span = 1 + sheet.lines[i + 1..].iter().take_while(|line| line.continues).count();
        for &column in shown {
            cell(body, sheet, line, column, (column == name).then_some(span));
        }
        body.push_str("</tr>");
    }
    body.push_str("</tbody></table></div>");
}

/// A cell; one that heads a row spans so many lines.
fn cell(body: &mut String, sheet: &Sheet, line: &Line, column: usize, heads: Option<usize>) {
    let cell = &line.cells[column];
    let classes = format!("{}{}", if sheet.columns[column].numeric { "n" } else { "t" }, class(cell.tone));
    match heads {
        None => push!(body, "<td class=\"{classes}\">{}</td>", content(cell)),
        Some(_) if line.continues => {}
        Some(span) => {
            let span = if span > 1 { format!(" rowspan=\"{span}\"") } else { String::new() };
            push!(body, "<th scope=\"row\"{span} class=\"{classes}\">{}</th>", content(cell));
        }
    }
}

fn content(cell: &Cell) -> String {
    match (cell.tone, cell.text.as_str(), cell.detail.as_str()) {
        (_, "", _) => String::new(),
        (Tone::Code, text, _) => code(text),
        (_, text, "") => escape(text),
        (_, text, detail) => format!("{}<small>{}</small>", escape(text), escape(detail)),
    }
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain | Tone::Code => "",
        Tone::Strong => " strong",
        Tone::Good => " good",
        Tone::Bad => " bad",
        Tone::Faint => " faint",
    }
}

/// What repeats the rows, and the options they were measured with.
fn about(body: &mut String, about: &[About]) {
    let (commands, options) = (sheet::commands(about), sheet::options(about));
    if commands.is_empty() {
        return;
    }
    body.push_str("<dl class=\"commands\">");
    for shared in commands {
        let rows = if about.len() == 1 { "to repeat" } else { &shared.rows };
        push!(body, "<div><dt>{}</dt><dd>{}</dd></div>", escape(rows), code(&shared.what));
    }
    body.push_str("</dl>");
    if options.is_empty() {
        return;
    }
    body.push_str("<details class=\"options\"><summary>socket options in force</summary><dl>");
    for shared in options {
        push!(body, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&shared.rows), escape(&shared.what));
    }
    body.push_str("</dl></details>");
}

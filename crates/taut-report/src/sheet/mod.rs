//! Sheets: a document's rows as headings, columns and cells in words, for text and HTML alike. One file for each kind of row.

mod about;
mod air;
mod check;
mod crowd;
mod echo;
mod exceed;
mod floor;
mod label;
mod pace;
mod route;
mod stream;
mod tune;

use taut_explain::Stage;
use taut_measure::recording::{
    AirChangeRow, AirRow, CheckRow, CrowdRow, EchoRow, FloorRow, LossComparison, ObserverCost, PaceRow, Placement,
    Recording, Round, RouteRow, Row, StreamRow, TuneRow, Verdict,
};
use taut_measure::stats::{Percentile, Quantile, Summary, narrowest};

use crate::units;

pub(crate) use about::{About, commands, options};
pub(crate) use air::in_words;
pub(crate) use label::{
    Label, air_labels, connections, crowd_labels, echo_labels, links, nagle, pace_labels, route_labels, stream_labels,
    tune_labels,
};
pub(crate) use route::heading as route_heading;

/// A table with all that belongs to it.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) heading: String,
    /// What all its rows share.
    pub(crate) context: String,
    pub(crate) columns: Vec<Column>,
    /// Columns from here on are cases next to one another. Where there is no room for all, they go into several tables,
    /// each with the columns before.
    pub(crate) cases_from: Option<usize>,
    pub(crate) lines: Vec<Line>,
    /// Sentences below the table.
    pub(crate) notes: Vec<Note>,
    /// What repeats each row, and the options it was measured with.
    pub(crate) about: Vec<About>,
}

#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) numeric: bool,
    pub(crate) room: Room,
}

/// What becomes of a column where there is little room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Room {
    /// Always stays.
    Always,
    /// Left out, the highest number first.
    WhenWide(u8),
    /// Moves below the table, as a list.
    Below,
}

/// One line of a sheet. A line that starts no row of its own continues the row above.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) cells: Vec<Cell>,
    pub(crate) continues: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// What may stand on a line of its own, less prominently.
    pub(crate) detail: String,
    pub(crate) tone: Tone,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Strong,
    Good,
    Bad,
    Faint,
    /// To be copied as it stands.
    Code,
}

#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// A document's rows by kind, in the order in which they were measured.
#[derive(Default)]
pub(crate) struct Groups<'a> {
    pub(crate) echo: Vec<&'a EchoRow>,
    pub(crate) pace: Vec<&'a PaceRow>,
    pub(crate) stream: Vec<&'a StreamRow>,
    pub(crate) crowd: Vec<&'a CrowdRow>,
    pub(crate) route: Vec<&'a RouteRow>,
    pub(crate) tune: Vec<&'a TuneRow>,
    pub(crate) air: Vec<&'a AirRow>,
    pub(crate) air_changes: Vec<&'a AirChangeRow>,
    pub(crate) floor: Vec<&'a FloorRow>,
    pub(crate) check: Vec<&'a CheckRow>,
}

impl<'a> Groups<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Self {
        let mut groups = Self::default();
        for row in &recording.results {
            match row {
                Row::Echo(row) => groups.echo.push(row),
                Row::Pace(row) => groups.pace.push(row),
                Row::Stream(row) => groups.stream.push(row),
                Row::Crowd(row) => groups.crowd.push(row),
                Row::Route(row) => groups.route.push(row),
                Row::Tune(row) => groups.tune.push(row),
                Row::Air(row) => groups.air.push(row),
                Row::AirChange(row) => groups.air_changes.push(row),
                Row::Floor(row) => groups.floor.push(row),
                Row::Check(row) => groups.check.push(row),
            }
        }
        groups
    }
}

pub(crate) fn echo_sheets(rows: &[&EchoRow]) -> Vec<Sheet> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut sheets = vec![echo::sheet(rows)];
    exceed::add_echo(&mut sheets, rows);
    sheets
}

pub(crate) fn pace_sheets(rows: &[&PaceRow]) -> Vec<Sheet> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut sheets = pace::sheets(rows);
    exceed::add_pace(&mut sheets, rows);
    sheets
}

pub(crate) fn stream_sheets(rows: &[&StreamRow]) -> Vec<Sheet> {
    if rows.is_empty() { Vec::new() } else { vec![stream::sheet(rows)] }
}

pub(crate) fn crowd_sheets(rows: &[&CrowdRow]) -> Vec<Sheet> {
    if rows.is_empty() { Vec::new() } else { vec![crowd::sheet(rows)] }
}

pub(crate) fn route_sheets(rows: &[&RouteRow]) -> Vec<Sheet> {
    route_groups(rows).iter().map(|rows| route::sheet(rows)).collect()
}

/// Rows of one kind: what the events went over, and whether a turn was timed or all from edge to edge.
pub(crate) fn route_groups<'a>(rows: &[&'a RouteRow]) -> Vec<Vec<&'a RouteRow>> {
    let mut groups: Vec<Vec<&RouteRow>> = Vec::new();
    for row in rows {
        let is_alike = |group: &&mut Vec<&RouteRow>| {
            group[0].over == row.over && group[0].loop_ns.is_some() == row.loop_ns.is_some()
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

pub(crate) fn tune_sheets(rows: &[&TuneRow]) -> Vec<Sheet> {
    if rows.is_empty() { Vec::new() } else { tune::sheets(rows) }
}

pub(crate) fn air_sheets(rows: &[&AirRow], changes: &[&AirChangeRow]) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    if !changes.is_empty() {
        sheets.push(air::changes(changes));
    }
    if !rows.is_empty() {
        sheets.extend([air::links(rows), air::ledger(rows)]);
    }
    sheets
}

pub(crate) fn floor_sheets(rows: &[&FloorRow]) -> Vec<Sheet> {
    if rows.is_empty() { Vec::new() } else { vec![floor::sheet(rows)] }
}

pub(crate) fn check_sheets(rows: &[&CheckRow]) -> Vec<Sheet> {
    if rows.is_empty() { Vec::new() } else { vec![check::sheet(rows)] }
}

/// Share of the time in each layer, in the order of the layers; names that no stage bears stand last.
pub(crate) fn ledger_shares(row: &PaceRow) -> Vec<(&str, f64)> {
    let whole = row.ledger_ns.iter().map(|(_, ns)| ns).sum::<u64>().max(1) as f64;
    let place = |name: &str| Stage::ALL.iter().position(|stage| stage.name() == name).unwrap_or(Stage::ALL.len());
    let mut shares: Vec<(&str, f64)> =
        row.ledger_ns.iter().map(|(name, ns)| (name.as_str(), *ns as f64 / whole)).collect();
    shares.sort_by_key(|(name, _)| place(name));
    shares
}

impl Sheet {
    /// Columns of each table that the sheet becomes: all in one, unless cases next to one another do not fit. Then they are
    /// spread evenly.
    pub(crate) fn tables(&self, fits: impl Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
        let Some(first) = self.cases_from else {
            return vec![(0..self.columns.len()).collect()];
        };
        let cases: Vec<usize> = (first..self.columns.len()).collect();
        let spread = |tables: usize| -> Vec<Vec<usize>> {
            let each = cases.len().div_ceil(tables).max(1);
            cases.chunks(each).map(|cases| (0..first).chain(cases.iter().copied()).collect()).collect()
        };
        let mut spreads = (1..=cases.len()).map(spread);
        spreads.find(|tables| tables.iter().all(|columns| fits(columns))).unwrap_or_else(|| spread(usize::MAX))
    }
}

impl Column {
    pub(crate) fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: false, room: Room::Always }
    }

    pub(crate) fn figure(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: true, room: Room::Always }
    }

    /// A column for one row of the recording, its label broken into lines.
    pub(crate) fn series(label: &Label) -> Self {
        Self::figure(label.to_string().replace(", ", "\n"))
    }

    pub(crate) fn when_wide(self, rank: u8) -> Self {
        Self { room: Room::WhenWide(rank), ..self }
    }

    pub(crate) fn below(self) -> Self {
        Self { room: Room::Below, ..self }
    }
}

impl Line {
    pub(crate) fn new(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), continues: false }
    }

    pub(crate) fn continuing(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), continues: true }
    }
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), detail: String::new(), tone }
    }

    pub(crate) fn label(label: &Label) -> Self {
        Self { detail: label.detail.clone(), ..Self::toned(&label.name, Tone::Strong) }
    }

    pub(crate) fn empty() -> Self {
        Self::new("")
    }

    /// Stands where a figure is not known or would not mean anything.
    pub(crate) fn none() -> Self {
        Self::toned("–", Tone::Faint)
    }

    pub(crate) fn time(nanos: Option<u64>) -> Self {
        nanos.map_or_else(Self::none, |nanos| Self::new(units::time(nanos)))
    }

    /// A figure of all messages, which may be that of a lost one.
    pub(crate) fn quantile(quantile: Option<Quantile>) -> Self {
        match quantile {
            Some(Quantile::Lost) => Self::toned(units::LOST, Tone::Bad),
            time => Self::time(time.and_then(Quantile::time)),
        }
    }

    /// A percentile of all messages, if there are enough of them.
    pub(crate) fn percentile(summary: Option<&Summary>, percentile: Percentile) -> Self {
        Self::quantile(summary.and_then(|summary| summary.percentile(percentile)))
    }

    /// The longest of all.
    pub(crate) fn max(summary: Option<&Summary>) -> Self {
        Self::quantile(summary.map(|summary| summary.max))
    }

    pub(crate) fn interval(interval: Option<(Quantile, Quantile)>) -> Self {
        interval.map_or_else(Self::none, |interval| Self::toned(units::quantile_interval(interval), Tone::Faint))
    }

    /// A number of mishaps: any is bad.
    pub(crate) fn mishaps(count: u64) -> Self {
        Self::toned(units::count(count), if count > 0 { Tone::Bad } else { Tone::Plain })
    }

    pub(crate) fn strong(self) -> Self {
        let tone = if self.tone == Tone::Bad { Tone::Bad } else { Tone::Strong };
        Self { tone, ..self }
    }
}

impl Note {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

pub(crate) const fn tone_of(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Shorter => Tone::Good,
        Verdict::Longer => Tone::Bad,
        Verdict::CannotTellApart | Verdict::NotAvailable | Verdict::TooFewRounds | Verdict::LossesDiffer => Tone::Faint,
    }
}

/// `interval 0.85 to 0.91 (98.4 %)`, the level in brackets where it is known.
pub(crate) fn ratio_interval((low, high): (f64, f64), level: Option<f64>) -> String {
    let level = level.map_or_else(String::new, |level| format!(" ({})", units::share(level)));
    format!("interval {} to {}{level}", units::number(low), units::number(high))
}

/// `2.10 µs (1.90 µs to 2.40 µs)`.
pub(crate) fn observer_cost(cost: ObserverCost) -> String {
    let signed = |ns: i64| format!("{}{}", if ns < 0 { "-" } else { "" }, units::time(ns.unsigned_abs()));
    let interval =
        cost.p50_ci.map_or_else(String::new, |(low, high)| format!(" ({} to {})", signed(low), signed(high)));
    signed(cost.p50_ns) + &interval
}

/// `too few rounds to tell (7 needed)`.
pub(crate) fn too_few_rounds(needed: Option<usize>) -> String {
    let needed = needed.map_or_else(String::new, |needed| format!(" ({needed} needed)"));
    format!("too few rounds to tell{needed}")
}

/// Two shares of lost messages, and whether they allow to say which is shorter.
pub(crate) fn loss_note(label: &Label, losses: &LossComparison) -> Note {
    let share = |share: f64| if share > 0.0 { units::share(share) } else { "none".to_owned() };
    let (mine, other) = (share(losses.lost_share), share(losses.lost_share_of_other));
    let with = &losses.with;
    if losses.differs {
        let text = format!("{label}: loses {mine}, {with} {other}; which is shorter is left open where losses differ.");
        return Note::toned(text, Tone::Bad);
    }
    Note::new(format!("{label}: loses {mine}, {with} {other}, which can be chance."))
}

/// What the intervals of a table are, once for all rows: the number of their rounds and the level.
pub(crate) fn across_rounds(intervals: impl Iterator<Item = (usize, Option<f64>)>) -> Option<Note> {
    let mut known: Vec<(usize, f64)> = intervals.filter_map(|(rounds, level)| Some((rounds, level?))).collect();
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    known.dedup();
    let &(rounds, level) = known.first()?;
    let (cut, of_cut) = narrowest(rounds, level - 1e-9);
    let what = match cut {
        _ if known.len() > 1 || (of_cut - level).abs() > 1e-6 => {
            "an interval that covers the median with at least".to_owned()
        }
        0 => format!("the range of {rounds} rounds, which covers the median with"),
        _ => {
            format!(
                "the range of {rounds} rounds without the {cut} smallest and {cut} largest, which covers the median with"
            )
        }
    };
    Some(Note::toned(format!("Across rounds: {what} {} probability.", units::level(level)), Tone::Faint))
}

/// Why a peer of this host was not placed.
pub(crate) fn not_placed(label: &Label, placement: Option<&Placement>) -> Option<Note> {
    let why = placement?.why_free.as_ref()?;
    Some(Note::new(format!("{label}: {why}.")))
}

/// A round that did not come to its end, of all rounds with what each has of messages or bytes.
pub(crate) fn cut_short(label: &Label, rounds: impl Iterator<Item = (bool, u64)>, what: &str) -> Option<Note> {
    let (whole, partial): (Vec<_>, Vec<_>) = rounds.partition(|(complete, _)| *complete);
    let amount = units::count(partial.first()?.1);
    let text = format!(
        "{label}: a round was cut short after {amount} {what}, which are in no interval and no comparison; {} are whole.",
        whole.len()
    );
    Some(Note::toned(text, Tone::Bad))
}

/// Rounds that are in the intervals.
pub(crate) fn whole_rounds(rounds: &[Round]) -> usize {
    rounds.iter().filter(|round| round.complete && round.sent > 0).count()
}

//! Sheets: a document's rows as headings, columns and cells in words, for text and HTML alike. One
//! file for each kind of row.

mod about;
mod air;
mod check;
mod crowd;
mod echo;
mod exceed;
mod floor;
mod form;
mod label;
mod pace;
mod published;
mod remark;
mod route;
mod setting;
mod stream;
mod tune;
mod watch;

use taut_record::{
    AirChangeRow, AirRow, CheckRow, CrowdRow, EchoRow, FloorRow, PaceRow, PublishedRow, Recording, RouteRow, Row,
    SettingRow, StreamRow, TuneRow, WatchRow,
};

pub(crate) use about::{About, commands, options};
pub(crate) use air::in_words;
pub(crate) use form::{Cell, Column, Line, Note, Room, Sheet, Tone};
pub(crate) use label::{
    Label, air_labels, connections, crowd_labels, echo_labels, links, nagle, pace_labels, route_labels, stream_labels,
    tune_labels,
};
pub(crate) use remark::{
    across_rounds, cut_short, ledger_shares, loss_note, not_placed, observer_cost, pace_stages, ratio_interval,
    tone_of, too_few_rounds, whole_rounds,
};
pub(crate) use route::heading as route_heading;

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
    pub(crate) watch: Vec<&'a WatchRow>,
    pub(crate) setting: Vec<&'a SettingRow>,
    pub(crate) published: Vec<&'a PublishedRow>,
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
                Row::Watch(row) => groups.watch.push(row),
                Row::Setting(row) => groups.setting.push(row),
                Row::Published(row) => groups.published.push(row),
            }
        }
        groups
    }
}

/// What the connections of the host lose, and how the host is set.
pub(crate) fn host_sheets(watched: &[&WatchRow], settings: &[&SettingRow]) -> Vec<Sheet> {
    let mut sheets: Vec<Sheet> = watched.iter().map(|row| watch::sheet(row)).collect();
    if !settings.is_empty() {
        sheets.push(setting::sheet(settings));
    }
    sheets
}

pub(crate) fn published_sheets(rows: &[&PublishedRow]) -> Vec<Sheet> {
    rows.iter().map(|row| published::sheet(row)).collect()
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

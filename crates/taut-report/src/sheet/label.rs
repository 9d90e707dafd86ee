//! Names for rows: the endpoint with whatever sets the row apart from the others, and in words what all rows share.

use std::fmt;

use taut_record::{AirRow, CrowdRow, EchoRow, PaceRow, Placement, RouteRow, StreamRow, TuneRow};

use crate::units;

/// What a row is called: its endpoint or setting, and what sets it apart from others of that name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) detail: String,
}

impl Label {
    /// What a row is held against, told apart from the row where both have one name: the first of that name is meant.
    pub(crate) fn other(&self, with: &str) -> String {
        let is_namesake = self.to_string().rsplit_once(NUMBER).is_some_and(|(name, _)| name == with);
        if is_namesake { format!("{with}{NUMBER}1") } else { with.to_owned() }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.detail.is_empty() { "" } else { ", " };
        write!(f, "{}{between}{}", self.name, self.detail)
    }
}

/// A label for each row, and what all of them share.
pub(crate) struct Labels {
    pub(crate) each: Vec<Label>,
    pub(crate) shared: String,
}

impl Labels {
    pub(crate) fn in_full(&self) -> Vec<String> {
        self.each.iter().map(ToString::to_string).collect()
    }
}

pub(crate) fn echo_labels(rows: &[&EchoRow]) -> Labels {
    labels(rows, |row| {
        let mut traits = vec![
            format!("{} messages", units::size(row.message_bytes)),
            format!("{} engine", row.engine),
            row.rate_hz.map_or_else(|| "closed loop".to_owned(), units::per_second),
            row.writes.clone(),
            links(row.connections),
            row.nagle.map_or("", nagle).to_owned(),
        ];
        traits.push(format!("peer acknowledges: {}", row.peer_acks));
        traits.push(placement(row.placement.as_ref()).to_owned());
        (row.endpoint.clone(), traits)
    })
}

pub(crate) fn pace_labels(rows: &[&PaceRow]) -> Labels {
    labels(rows, |row| {
        let traits = vec![
            row.nagle.map_or("no Nagle", nagle).to_owned(),
            format!("{} messages", units::size(row.message_bytes)),
            format!("one every {}", units::limit(row.period_ns)),
            format!("peer: {}", row.peer),
            placement(row.placement.as_ref()).to_owned(),
        ];
        (row.endpoint.clone(), traits)
    })
}

pub(crate) fn stream_labels(rows: &[&StreamRow]) -> Labels {
    labels(rows, |row| {
        let traits = vec![
            row.direction.clone(),
            links(row.connections),
            format!("{} writes", units::size(row.block_bytes)),
            placement(row.placement.as_ref()).to_owned(),
        ];
        (row.endpoint.clone(), traits)
    })
}

pub(crate) fn crowd_labels(rows: &[&CrowdRow]) -> Labels {
    labels(rows, |row| {
        let core =
            |who: &str, core: Option<usize>| core.map_or_else(String::new, |core| format!("{who} on processor {core}"));
        let traits = vec![
            format!("{} active", units::count(row.active as u64)),
            connections(row.connections),
            format!("{} messages", units::size(row.message_bytes)),
            row.endpoint.clone(),
            core("server", row.server_core),
            core(if row.client_spins { "spinning client" } else { "client" }, row.client_core),
            // Where both are on processors, these say it.
            if row.server_core.is_some() { String::new() } else { placement(row.placement.as_ref()).to_owned() },
        ];
        (row.engine.clone(), traits)
    })
}

pub(crate) fn route_labels(rows: &[&RouteRow]) -> Labels {
    let is_one_each = rows.iter().all(|row| row.routes == 1);
    labels(rows, |row| {
        let thread = |who: &str, core: Option<usize>, fifo: Option<u8>| {
            let core = core.map(|core| format!(" on processor {core}"));
            let fifo = fifo.map(|priority| format!(" in SCHED_FIFO at {priority}"));
            if core.is_none() && fifo.is_none() {
                return String::new();
            }
            [Some(who.to_owned()), core, fifo].into_iter().flatten().collect()
        };
        let traits = vec![
            if row.sinks == 1 { "1 sink".to_owned() } else { format!("{} sinks", row.sinks) },
            match row.routes {
                1 if is_one_each => String::new(),
                1 => "1 route".to_owned(),
                routes => format!("{routes} routes"),
            },
            row.over.clone(),
            if row.gap_ns == 0 { String::new() } else { format!("{} between events", units::limit(row.gap_ns)) },
            thread("spinning sensor", row.sensor_core, row.sensor_fifo),
            thread("user space", row.route_core, row.route_fifo),
        ];
        (row.path.clone(), traits)
    })
}

pub(crate) fn tune_labels(rows: &[&TuneRow]) -> Labels {
    labels(rows, |row| {
        let placed = placement(row.placement.as_ref()).to_owned();
        (row.setting.clone(), vec![row.endpoint.clone(), row.measured.clone(), placed])
    })
}

pub(crate) fn air_labels(rows: &[&AirRow]) -> Labels {
    let set =
        |row: &AirRow| row.set.iter().map(|set| format!("{}={}", set.name, set.value)).collect::<Vec<_>>().join(", ");
    labels(rows, |row| {
        let mac = if row.encrypted { "encrypted" } else { "not encrypted" };
        let traits = vec![
            set(row),
            if row.links == 1 { String::new() } else { links(row.links) },
            format!("LE {}", row.phy),
            mac.to_owned(),
            format!("{} of virtual time", units::limit(row.duration_ns)),
            format!("seed {}", row.seed),
        ];
        (row.scenario.clone(), traits)
    })
}

/// On which processors both ends ran, in words; none in virtual time.
pub(crate) fn placement(placement: Option<&Placement>) -> &'static str {
    placement.map_or("", |placement| placement.kind.name())
}

/// State of Nagle's algorithm.
pub(crate) const fn nagle(on: bool) -> &'static str {
    if on { "Nagle on" } else { "Nagle off" }
}

/// `1 link`, `3 links`.
pub(crate) fn links(connections: usize) -> String {
    if connections == 1 { "1 link".to_owned() } else { format!("{connections} links") }
}

/// `10,000 connections`.
pub(crate) fn connections(count: usize) -> String {
    format!("{} connections", units::count(count as u64))
}

fn labels<R>(rows: &[&R], name: impl Fn(&R) -> (String, Vec<String>)) -> Labels {
    let named: Vec<(String, Vec<String>)> = rows.iter().map(|row| name(row)).collect();
    let width = named.first().map_or(0, |(_, traits)| traits.len());
    // A trait that some rows can't have sets none of them apart.
    let values = |i: usize| named.iter().map(move |(_, traits)| traits[i].as_str()).filter(|value| !value.is_empty());
    let is_shared = |&i: &usize| values(i).all(|value| Some(value) == values(i).next());
    let (shared, apart): (Vec<usize>, Vec<usize>) = (0..width).partition(is_shared);
    let label = |(name, traits): &(String, Vec<String>)| {
        let apart = apart.iter().map(|&i| traits[i].as_str()).filter(|value| !value.is_empty());
        Label { name: name.clone(), detail: apart.collect::<Vec<_>>().join(", ") }
    };
    let shared: Vec<&str> = shared.into_iter().filter_map(|i| values(i).next()).collect();
    Labels { each: numbered(named.iter().map(label).collect()), shared: shared.join(", ") }
}

/// Before the number of a row that nothing sets apart from another: of an endpoint that was named twice.
const NUMBER: &str = ", no. ";

/// Numbers those that are alike, from 1.
fn numbered(mut labels: Vec<Label>) -> Vec<Label> {
    let names: Vec<String> = labels.iter().map(ToString::to_string).collect();
    for (index, label) in labels.iter_mut().enumerate() {
        let alike = |others: &[String]| others.iter().filter(|&other| *other == names[index]).count();
        let (all, before) = (alike(&names), alike(&names[..index]));
        if all > 1 {
            let numbered = format!("{}{NUMBER}{}", label.detail, before + 1);
            label.detail = numbered.trim_start_matches(", ").to_owned();
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_nothing_sets_apart_are_numbered() {
        let rows = [("a", "same core"), ("a", "two cores"), ("a", "same core"), ("b", "same core")];
        let name = |&(name, placed): &(&str, &str)| (name.to_owned(), vec![placed.to_owned()]);
        let labels = labels(&rows.iter().collect::<Vec<_>>(), |row| name(row));
        assert_eq!(labels.in_full(), ["a, same core, no. 1", "a, two cores", "a, same core, no. 2", "b, same core"]);
        let held_against = |row: usize| labels.each[row].other("a, same core");
        assert_eq!([1, 2, 3].map(held_against), ["a, same core", "a, same core, no. 1", "a, same core"]);
    }
}

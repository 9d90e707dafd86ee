use taut_measure::recording::{Recording, Row};
use taut_measure::stats::{Losses, Percentile, Quantile, Summary};

use super::figure::{Compared, Figure, Kind};
use crate::sheet::{connections, links, nagle};
use crate::units;

/// The same thing measured in two recordings, or in one of them only.
pub(super) struct Pair<'a> {
    pub(super) label: String,
    before: Option<&'a Row>,
    after: Option<&'a Row>,
}

/// Matches rows by what was measured; of several alike, the first with the first.
pub(super) fn pair_up<'a>(before: &'a Recording, after: &'a Recording) -> Vec<Pair<'a>> {
    let mut unmatched: Vec<(String, &Row)> = labelled(after).collect();
    let mut pairs: Vec<Pair<'_>> = labelled(before)
        .map(|(label, before)| {
            let found = unmatched.iter().position(|(other, _)| *other == label);
            Pair { label, before: Some(before), after: found.map(|i| unmatched.remove(i).1) }
        })
        .collect();
    pairs.extend(unmatched.into_iter().map(|(label, after)| Pair { label, before: None, after: Some(after) }));
    pairs
}

fn labelled(recording: &Recording) -> impl Iterator<Item = (String, &Row)> {
    recording.results.iter().filter_map(|row| Some((label(row)?, row)))
}

impl Pair<'_> {
    /// The figures of both, when both are there. Losses come first: where they differ, times are no fair comparison.
    pub(super) fn figures(&self) -> Option<Vec<Compared>> {
        let (before, after) = (figures(self.before?), figures(self.after?));
        let lost = losses(self.before?).zip(losses(self.after?));
        let lost = lost.and_then(|(before, after)| Compared::of_losses(before, after));
        let compared = before.iter().filter_map(|before| {
            let after = after.iter().find(|after| after.name == before.name)?;
            Compared::new(before, after)
        });
        let compared = compared.map(|compared| match &lost {
            Some(lost) if lost.differs() => compared.beside_unlike_losses(),
            _ => compared,
        });
        Some(lost.into_iter().chain(compared).collect())
    }

    pub(super) fn only_in(&self) -> Option<&'static str> {
        match (self.before, self.after) {
            (Some(_), None) => Some("before"),
            (None, Some(_)) => Some("after"),
            _ => None,
        }
    }
}

/// What was measured, in words that are the same in every recording of it. The base of settings tried is 1 by definition.
fn label(row: &Row) -> Option<String> {
    match row {
        Row::Echo(row) => {
            let pace = row.rate_hz.map_or_else(|| "closed loop".to_owned(), units::per_second);
            let (size, links) = (units::size(row.message_bytes), links(row.connections));
            let (transport, engine, writes) = (&row.transport, &row.engine, &row.writes);
            let nagle = comma_nagle(row.nagle);
            Some(format!("echo over {transport}, {size}, {engine}, {writes}, {links}, {pace}{nagle}"))
        }
        Row::Pace(row) => {
            let (size, period) = (units::size(row.message_bytes), units::limit(row.period_ns));
            Some(format!("pace over {}, {size} every {period}{}", row.transport, comma_nagle(row.nagle)))
        }
        Row::Stream(row) => {
            let (block, links) = (units::size(row.block_bytes), links(row.connections));
            Some(format!("stream {} over {}, {block} writes, {links}", row.direction, row.transport))
        }
        Row::Crowd(row) => {
            let (links, active) = (connections(row.connections), units::count(row.active as u64));
            Some(format!("crowd over {}, {links}, {active} active, {}", row.transport, row.engine))
        }
        Row::Route(row) if row.loop_ns.is_some() => Some(format!("turn {} over {}", row.path, row.over)),
        Row::Route(row) => {
            Some(format!("route {} over {}, {} sinks, {} routes", row.path, row.over, row.sinks, row.routes))
        }
        Row::Tune(row) if row.setting != "base" => Some(format!("{} with {}", row.measured, row.setting)),
        Row::Air(row) => {
            let set: Vec<String> = row.set.iter().map(|set| format!(", {}={}", set.name, set.value)).collect();
            Some(format!("air {}{}", row.scenario, set.concat()))
        }
        Row::AirChange(_) => None,
        Row::Floor(row) => Some(format!("floor: {}", row.what)),
        Row::Tune(_) | Row::Check(_) => None,
    }
}

fn comma_nagle(on: Option<bool>) -> String {
    on.map_or_else(String::new, |on| format!(", {}", nagle(on)))
}

fn figures(row: &Row) -> Vec<Figure> {
    let figures = match row {
        Row::Echo(row) if row.rate_hz.is_some() => times(["response p50", "response p99"], row.response_ns.as_ref()),
        Row::Echo(row) => times(["round trip p50", "round trip p99"], row.rtt_ns.as_ref()),
        Row::Pace(row) => {
            let mut figures = times(["delivery p50", "delivery p99"], row.delivery_ns.as_ref());
            figures.extend(times(["held p50", "held p99"], row.hold_ns.as_ref()));
            figures
        }
        Row::Stream(row) => vec![Some(Figure {
            name: "throughput",
            kind: Kind::Throughput,
            value: row.throughput_bps,
            interval: row.throughput_bps_ci,
        })],
        Row::Crowd(row) => {
            let mut figures = times(["round trip p50", "round trip p99"], row.rtt_ns.as_ref());
            figures.push(row.cpu_ns_per_message.map(|value| Figure {
                name: "CPU per message",
                kind: Kind::Time,
                value,
                interval: row.cpu_ns_per_message_ci,
            }));
            figures
        }
        Row::Route(row) if row.loop_ns.is_some() => times(["turn p50", "turn p99"], row.loop_ns.as_ref()),
        Row::Route(row) => times(["edge to edge p50", "edge to edge p99"], row.edge_to_edge_ns.as_ref()),
        Row::Tune(row) => vec![row.p50_ratio.map(|value| Figure {
            name: "ratio to base",
            kind: Kind::Ratio,
            value,
            interval: row.p50_ratio_ci,
        })],
        Row::Air(row) => {
            // A run in virtual time has no noise: the same seed gives the same figure, so its interval is the figure itself.
            let exact = |name, kind, value: f64| Some(Figure { name, kind, value, interval: Some((value, value)) });
            let mut figures = vec![exact("throughput", Kind::Throughput, row.throughput_bps)];
            if let Some(latency) = &row.sdu_latency_ns {
                figures.push(exact("SDU p50", Kind::Time, latency.p50.as_f64()));
                figures.push(exact("SDU p99", Kind::Time, latency.p99.as_f64()));
            }
            figures
        }
        Row::Floor(row) => times(["p50", "p99"], Some(&row.ns)),
        Row::AirChange(_) | Row::Check(_) => Vec::new(),
    };
    figures.into_iter().flatten().collect()
}

/// Messages that never came, where a row knows of its own.
fn losses(row: &Row) -> Option<Losses> {
    match row {
        Row::Echo(row) => Some(row.losses()),
        Row::Pace(row) => Some(Losses { lost: row.lost, messages: row.messages }),
        Row::Crowd(row) => Some(Losses { lost: row.lost, messages: row.sent }),
        Row::Route(row) => Some(row.losses()),
        Row::Stream(_) | Row::Tune(_) | Row::Air(_) | Row::AirChange(_) | Row::Floor(_) | Row::Check(_) => None,
    }
}

fn times([p50, p99]: [&'static str; 2], summary: Option<&Summary>) -> Vec<Option<Figure>> {
    let Some(summary) = summary else {
        return Vec::new();
    };
    let figure = |name, percentile, interval: Option<(Quantile, Quantile)>| {
        Some(Figure {
            name,
            kind: Kind::Time,
            value: summary.percentile(percentile)?.as_f64(),
            interval: interval.map(|(low, high)| (low.as_f64(), high.as_f64())),
        })
    };
    vec![figure(p50, Percentile::P50, summary.p50_ci), figure(p99, Percentile::P99, summary.p99_ci)]
}

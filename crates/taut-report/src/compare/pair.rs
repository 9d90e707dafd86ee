use taut_record::stats::{Losses, MOST_FALSE, Percentile, Quantile, Summary};
use taut_record::{Counted, Placement, PlacementKind, Recording, Round, Row};

use super::bursts::together;
use super::figure::{Compared, Figure, Kind, Sample};
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

/// How many figures of all pairs may be told apart by chance.
pub(super) fn comparisons(pairs: &[Pair<'_>]) -> usize {
    pairs.iter().map(Pair::comparisons).sum()
}

fn labelled(recording: &Recording) -> impl Iterator<Item = (String, &Row)> {
    recording.results.iter().filter_map(|row| Some((label(row)?, row)))
}

impl Pair<'_> {
    /// The figures of both, when both are there, as one of so many `comparisons`. Losses come
    /// first: where they differ, times are no fair comparison.
    pub(super) fn figures(&self, comparisons: usize) -> Option<Vec<Compared>> {
        let by_chance = MOST_FALSE / comparisons.max(1) as f64;
        let (before, after) = (figures(self.before?), figures(self.after?));
        let lost = losses(self.before?).zip(losses(self.after?));
        let together = together(&losses_of_rounds(self.before?)).max(together(&losses_of_rounds(self.after?)));
        let lost = lost.and_then(|(before, after)| Compared::of_losses(before, after, together, by_chance));
        let compared = before.iter().filter_map(|before| {
            let after = after.iter().find(|after| after.name == before.name)?;
            Compared::new(before, after, by_chance)
        });
        let compared = compared.map(|compared| match &lost {
            Some(lost) if lost.differs() => compared.beside_unlike_losses(),
            _ => compared,
        });
        Some(lost.into_iter().chain(compared).collect())
    }

    /// How many of its figures may be told apart by chance.
    fn comparisons(&self) -> usize {
        let (Some(before), Some(after)) = (self.before, self.after) else { return 0 };
        let (of_before, of_after) = (figures(before), figures(after));
        let scatter = |before: &&Figure| {
            let after = of_after.iter().find(|after| after.name == before.name);
            before.sample.scatters() && after.is_some_and(|after| after.sample.scatters())
        };
        let lost = losses(before).zip(losses(after)).is_some_and(|(before, after)| before.lost + after.lost > 0);
        of_before.iter().filter(scatter).count() + usize::from(lost)
    }

    /// What only one of the two has, and which (`before`, `after`): all of it, or figures that the other side has
    /// not taken, as a percentile of too few messages.
    pub(super) fn only_in_one(&self) -> Vec<(&'static str, String)> {
        let (before, after) = match (self.before, self.after) {
            (Some(before), Some(after)) => (figures(before), figures(after)),
            (Some(_), None) => return vec![("before", self.label.clone())],
            (None, Some(_)) => return vec![("after", self.label.clone())],
            (None, None) => return Vec::new(),
        };
        let lacks = |figures: &[Figure], name: &str| figures.iter().all(|figure| figure.name != name);
        let alone = |which, figures: &[Figure], others: &[Figure]| -> Vec<(&'static str, String)> {
            let alone = figures.iter().filter(|figure| lacks(others, figure.name));
            alone.map(|figure| (which, format!("{}: {}", self.label, figure.name))).collect()
        };
        [alone("before", &before, &after), alone("after", &after, &before)].concat()
    }
}

/// What was measured, in words that are the same in every recording of it. The base of settings
/// tried is 1 by definition.
fn label(row: &Row) -> Option<String> {
    match row {
        Row::Echo(row) => {
            let pace = row.rate_hz.map_or_else(|| "closed loop".to_owned(), units::per_second);
            let (size, links) = (units::size(row.message_bytes), links(row.connections));
            let (transport, engine, writes) = (&row.transport, &row.engine, &row.writes);
            let nagle = comma_nagle(row.nagle);
            let placed = comma_placed(row.placement.as_ref());
            // The usual goes without saying.
            let acks = match row.peer_acks.as_str() {
                acks if acks == "prompt" || acks == "delayed" || acks.starts_with("us=") => {
                    format!(", peer's acks {acks}")
                }
                _ => String::new(),
            };
            let timeout = match row.timeout_ns {
                1_000_000_000 => String::new(),
                other => format!(", lost after {}", units::limit(other)),
            };
            let more = format!("{nagle}{placed}{acks}{timeout}");
            Some(format!("echo over {transport}, {size}, {engine}, {writes}, {links}, {pace}{more}"))
        }
        Row::Pace(row) => {
            let (size, period) = (units::size(row.message_bytes), units::limit(row.period_ns));
            let (nagle, placed) = (comma_nagle(row.nagle), comma_placed(row.placement.as_ref()));
            let (transport, peer) = (&row.transport, &row.peer);
            Some(format!("pace over {transport}, {size} every {period}{nagle}{placed}, peer: {peer}"))
        }
        Row::Stream(row) => {
            let (block, links) = (units::size(row.block_bytes), links(row.connections));
            // What a kernel takes or acknowledges is another thing than what a program receives.
            let counted = match row.counted {
                Counted::Received => "",
                Counted::Acknowledged => ", as acknowledged",
                Counted::Taken => ", as taken",
            };
            let placed = comma_placed(row.placement.as_ref());
            let (direction, transport) = (&row.direction, &row.transport);
            Some(format!("stream {direction} over {transport}, {block} writes, {links}{placed}{counted}"))
        }
        Row::Crowd(row) => {
            let (links, active) = (connections(row.connections), units::count(row.active as u64));
            // Recordings from before there were placements have the processors, too.
            let placed = match (row.client_core, row.server_core) {
                (Some(client), Some(server)) if client == server => ", same core",
                (Some(_), Some(_)) => ", two cores",
                _ => "",
            };
            Some(format!("crowd over {}, {links}, {active} active, {}{placed}", row.transport, row.engine))
        }
        Row::Route(row) if row.loop_ns.is_some() => Some(format!("turn {} over {}", row.path, row.over)),
        Row::Route(row) => {
            Some(format!("route {} over {}, {} sinks, {} routes", row.path, row.over, row.sinks, row.routes))
        }
        Row::Tune(row) if row.setting != "base" => {
            Some(format!("{} with {}{}", row.measured, row.setting, comma_placed(row.placement.as_ref())))
        }
        Row::Air(row) => {
            let set: Vec<String> = row.set.iter().map(|set| format!(", {}={}", set.name, set.value)).collect();
            Some(format!("air {}{}", row.scenario, set.concat()))
        }
        Row::AirChange(_) => None,
        Row::Floor(row) => Some(format!("floor: {}", row.what)),
        Row::Tune(_) | Row::Check(_) | Row::Watch(_) | Row::Setting(_) | Row::Published(_) => None,
    }
}

/// Rows from before there were placements are like those that are not placed.
fn comma_placed(placement: Option<&Placement>) -> String {
    match placement.map(|placement| placement.kind) {
        None | Some(PlacementKind::Free) => String::new(),
        Some(kind) => format!(", {}", kind.name()),
    }
}

fn comma_nagle(on: Option<bool>) -> String {
    on.map_or_else(String::new, |on| format!(", {}", nagle(on)))
}

fn figures(row: &Row) -> Vec<Figure> {
    let figures = match row {
        Row::Echo(row) if row.rate_hz.is_some() => {
            times(["response p50", "response p99"], row.response_ns.as_ref(), of_rounds(&row.rounds))
        }
        Row::Echo(row) => times(["round trip p50", "round trip p99"], row.rtt_ns.as_ref(), of_rounds(&row.rounds)),
        Row::Pace(row) => {
            let mut figures = times(["delivery p50", "delivery p99"], row.delivery_ns.as_ref(), Vec::new());
            figures.extend(times(["held p50", "held p99"], row.hold_ns.as_ref(), Vec::new()));
            figures
        }
        Row::Stream(row) => vec![Some(Figure {
            name: "throughput",
            kind: Kind::Throughput,
            value: row.throughput_bps,
            sample: match row.throughput_bps_ci {
                Some(_) => Sample::Rounds(
                    row.rounds.iter().filter(|round| round.complete).map(|round| round.throughput_bps).collect(),
                ),
                None => Sample::None,
            },
        })],
        Row::Crowd(row) => {
            let rounds = row.rounds.iter().map(|round| [round.p50_ns, round.p99_ns]).collect();
            let mut figures = times(["round trip p50", "round trip p99"], row.rtt_ns.as_ref(), rounds);
            figures.push(row.cpu_ns_per_message.map(|value| Figure {
                name: "CPU per message",
                kind: Kind::Time,
                value,
                sample: match row.cpu_ns_per_message_ci {
                    Some(_) => Sample::Rounds(row.rounds.iter().filter_map(|round| round.cpu_ns_per_message).collect()),
                    None => Sample::None,
                },
            }));
            figures
        }
        Row::Route(row) if row.loop_ns.is_some() => {
            times(["turn p50", "turn p99"], row.loop_ns.as_ref(), of_rounds(&row.rounds))
        }
        Row::Route(row) => {
            let names = ["edge to edge p50", "edge to edge p99"];
            times(names, row.edge_to_edge_ns.as_ref(), of_rounds(&row.rounds))
        }
        Row::Tune(row) => vec![row.p50_ratio.map(|value| Figure {
            name: "ratio to base",
            kind: Kind::Ratio,
            value,
            sample: row.p50_ratio_ci.map_or(Sample::None, |ends| Sample::Interval(ends, row.p50_ratio_level)),
        })],
        Row::Air(row) => {
            let exact = |name, kind, value: f64| Some(Figure { name, kind, value, sample: Sample::Exact });
            let mut figures = vec![exact("throughput", Kind::Throughput, row.throughput_bps)];
            if let Some(latency) = &row.sdu_latency_ns {
                figures.push(exact("SDU p50", Kind::Time, latency.p50.as_f64()));
                figures.push(exact("SDU p99", Kind::Time, latency.p99.as_f64()));
            }
            figures
        }
        Row::Floor(row) => times(["p50", "p99"], Some(&row.ns), Vec::new()),
        Row::AirChange(_) | Row::Check(_) | Row::Watch(_) | Row::Setting(_) | Row::Published(_) => Vec::new(),
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
        Row::Stream(_)
        | Row::Tune(_)
        | Row::Air(_)
        | Row::AirChange(_)
        | Row::Floor(_)
        | Row::Check(_)
        | Row::Watch(_)
        | Row::Setting(_)
        | Row::Published(_) => None,
    }
}

/// The same of each whole round, where they are known.
fn losses_of_rounds(row: &Row) -> Vec<Losses> {
    let rounds = match row {
        Row::Echo(row) => row.rounds.as_slice(),
        Row::Route(row) => row.rounds.as_slice(),
        _ => &[],
    };
    let whole = rounds.iter().filter(|round| round.complete);
    whole.map(|round| Losses { lost: round.lost, messages: round.sent }).collect()
}

/// p50 and p99 of each whole round; `None` for a lost one.
fn of_rounds(rounds: &[Round]) -> Vec<[Option<u64>; 2]> {
    let whole = rounds.iter().filter(|round| round.complete && round.sent > 0);
    whole.map(|round| [round.p50_ns, round.p99_ns]).collect()
}

/// Two figures with those of each round, or with what the summary tells of them.
fn times(names: [&'static str; 2], summary: Option<&Summary>, rounds: Vec<[Option<u64>; 2]>) -> Vec<Option<Figure>> {
    let Some(summary) = summary else {
        return Vec::new();
    };
    let figure = |at: usize, percentile, interval: Option<(Quantile, Quantile)>| {
        let of_round = |round: &[Option<u64>; 2]| round[at].map_or(f64::INFINITY, |ns| ns as f64);
        let sample = match interval {
            None => Sample::None,
            Some((low, high)) if rounds.is_empty() => Sample::Interval((low.as_f64(), high.as_f64()), summary.ci_level),
            Some(_) => Sample::Rounds(rounds.iter().map(of_round).collect()),
        };
        Some(Figure { name: names[at], kind: Kind::Time, value: summary.percentile(percentile)?.as_f64(), sample })
    };
    vec![figure(0, Percentile::P50, summary.p50_ci), figure(1, Percentile::P99, summary.p99_ci)]
}

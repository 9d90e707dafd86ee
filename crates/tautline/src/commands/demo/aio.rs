use taut_link::descriptors;
use taut_measure::crowd::{self, CrowdPlan};
use taut_measure::placement;
use taut_record::{CrowdRow, FigureUnit, PublishedFigure, PublishedRow, Row};
use taut_report::units;
use taut_serve::crowd::CrowdEngine;
use taut_time::Duration;

use super::experiment::{Experiment, figure_of_ours};
use super::published::published;
use crate::commands::crowd::{own_server, two_cores};
use crate::findings;

const ENGINES: [CrowdEngine; 3] = [CrowdEngine::Poll, CrowdEngine::Epoll, CrowdEngine::AioSignal];
const CONNECTIONS: usize = 10_000;
const ROUNDS: usize = 5;
/// What all of it is expected to take.
const ALL: Duration = Duration::from_secs(45);

pub(super) fn measure(experiment: &mut Experiment) -> anyhow::Result<()> {
    let there = published()?.aio;
    let connections = descriptors::most_connections().min(CONNECTIONS);
    let active: Vec<usize> = [1, 10, 100, 1000].into_iter().filter(|active| *active <= connections).collect();
    let of = |what: &[usize]| what.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let names = ENGINES.map(CrowdEngine::name).join(",");
    let command = format!("taut connections --connections {connections} --active {} --engines {names}", of(&active));
    let plan = CrowdPlan {
        server: own_server()?,
        engines: ENGINES.to_vec(),
        connections,
        active: active.clone(),
        by_connections: Vec::new(),
        rounds: ROUNDS,
        time: Duration::from_millis(150),
        timeout: Duration::from_secs(2),
        spot: placement::of_threads(Some(two_cores()), None)?.swap_remove(0),
        command: format!("{command} --rounds {ROUNDS} --time 150ms"),
    };
    let mut progress = experiment.progress("a server with many connections", Duration::ZERO, ALL, ALL);
    let outcome = crowd::run(&plan, &experiment.interrupt, &mut progress)?;
    experiment.goes_on(outcome.ended);
    experiment.findings.extend(findings::of_crowd(&outcome.rows));
    let (few, many) = (active[0], active[active.len() - 1]);
    let mut figures = Vec::new();
    for (engine, words) in [
        (CrowdEngine::Poll, Some(there.poll_growth)),
        (CrowdEngine::AioSignal, Some(there.aio_growth)),
        (CrowdEngine::Epoll, None),
    ] {
        figures.extend(figures_of(&outcome.rows, engine, [few, many], words.as_deref()));
    }
    for active in active.iter().copied() {
        let name = format!("network AIO to poll, {} active", units::count(active as u64));
        let ratio = ratio(
            median(&outcome.rows, CrowdEngine::AioSignal, active),
            median(&outcome.rows, CrowdEngine::Poll, active),
        );
        figures.push(figure_of_ours(name, FigureUnit::Number, None, ratio));
    }
    experiment.published = Some(PublishedRow {
        experiment: "POSIX network AIO".to_owned(),
        there: there.there,
        here: format!(
            "32 bytes over {} connections on loopback, p50; AIO with a signal is libtautaio's, on an unmodified kernel",
            units::count(connections as u64)
        ),
        figures,
        meaning: "With few active connections poll pays for looking through the idle ones, and completions do not. With many, \
                  all of them wait for the server's one processor, and the round trip grows with any engine."
            .to_owned(),
        command,
    });
    experiment.rows.extend(outcome.rows.into_iter().map(|row| Row::Crowd(Box::new(row))));
    Ok(())
}

fn median(rows: &[CrowdRow], engine: CrowdEngine, active: usize) -> Option<f64> {
    let row = rows.iter().find(|row| row.engine == engine.name() && row.active == active)?;
    row.rtt_ns?.p50.time().map(|ns| ns as f64)
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?.max(1.0))
}

/// The round trips of an engine with few and with many active, and how it grew.
fn figures_of(
    rows: &[CrowdRow],
    engine: CrowdEngine,
    [few, many]: [usize; 2],
    growth: Option<&str>,
) -> [PublishedFigure; 3] {
    let name = if engine == CrowdEngine::AioSignal { "network AIO" } else { engine.name() };
    let at = |active| {
        let of = format!("{name}: round trip, {} active", units::count(active as u64));
        figure_of_ours(of, FigureUnit::Ns, None, median(rows, engine, active))
    };
    let grown = ratio(median(rows, engine, many), median(rows, engine, few));
    let of = format!("{name}: how it grows from {few} to {} active", units::count(many as u64));
    [at(few), at(many), figure_of_ours(of, FigureUnit::Number, growth, grown)]
}

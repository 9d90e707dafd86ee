//! Many links, few of them active: what does it cost a server to find the few?
//!
//! The engine under test drives a server process, the crowd host ([`taut_serve::crowd`]), which answers every
//! message with itself. The client holds all links and sends one message on each of `active` of
//! them, drawn at random; when all replies are in, it draws again. Each round of each engine has a
//! host and links of its own, one host at a time, and begins with a roll call: one message on every
//! link. A link that gets no answer there never will, which is what starvation means here.

mod client;
mod plan;
mod results;
mod side;

use taut_link::affinity::on_core;
use taut_link::{Error, Fault, Result, clock, descriptors};
use taut_time::Duration;

use crate::interrupt::Interrupt;
use crate::rounds::turns;
use client::{Crowd, Ending};
use plan::Case;
pub use plan::{CrowdOutcome, CrowdPlan, HostedBy, MESSAGE_BYTES};
use results::{Cell, Results};
use side::Side;
use taut_record::Ended;
use taut_serve::crowd::CrowdEngine;

/// Exchanges of a cell that do not count: they bring caches and the processor's clock up. At most so many, in at most
/// this time, and at least one.
const WARM_UP_EXCHANGES: usize = 8;
const WARM_UP_TIME: Duration = Duration::from_millis(20);
/// Exchanges of a cell that are made however long they take.
const LEAST_EXCHANGES: usize = 3;

/// Measures all engines, interleaved round by round. An engine that can't be set up, or that
/// starves links, has rows that say so, and the others go on.
///
/// # Errors
/// The plan makes no sense, or nothing could be measured at all.
pub fn run(plan: &CrowdPlan, interrupt: &Interrupt, progress: &mut dyn FnMut(usize, usize)) -> Result<CrowdOutcome> {
    let cases = cases(plan)?;
    let largest = cases.iter().map(|case| case.connections).max().unwrap_or(0);
    descriptors::make_room(largest)?;
    let _placed = on_core(plan.spot.core)?;
    let mut results = Results::new(plan, &cases);
    let mut first_error = None;
    let mut ended = Ended::Complete;
    let engines = plan.engines.len();
    let steps = plan.rounds * cases.len() * engines;
    'rounds: for round in 0..plan.rounds {
        for (at, case) in cases.iter().enumerate() {
            for (index, turn) in turns(round, engines).enumerate() {
                if interrupt.is_set() {
                    break 'rounds;
                }
                progress((round * cases.len() + at) * engines + index, steps);
                if results.is_out(turn) {
                    continue;
                }
                match measure(plan, plan.engines[turn], case, &mut results, round, interrupt) {
                    Ok(cells) => results.add(at, turn, round, cells),
                    Err(_) if interrupt.is_set() => break 'rounds,
                    Err(error)
                        if error.is_peer_gone() && matches!(plan.server, HostedBy::At(_)) && results.has_figures() =>
                    {
                        ended = Ended::PeerGone(error.to_string());
                        break 'rounds;
                    }
                    Err(error) => {
                        results.put_out(turn, error.to_string());
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
    }
    if interrupt.is_set() {
        ended = Ended::Interrupted;
    }
    match first_error {
        Some(error) if results.is_empty() => Err(error),
        _ => Ok(CrowdOutcome { rows: results.rows(), ended }),
    }
}

/// The cases of a plan, without repetitions.
fn cases(plan: &CrowdPlan) -> Result<Vec<Case>> {
    let (Some(&first), false) = (plan.active.first(), plan.engines.is_empty()) else {
        return Err(Error::Input("a crowd has an engine and a number of active connections, at least".into()));
    };
    let mut cases = vec![Case { connections: plan.connections, active: without_repetitions(&plan.active) }];
    for connections in without_repetitions(&plan.by_connections) {
        if connections != plan.connections {
            cases.push(Case { connections, active: vec![first] });
        }
    }
    for case in &cases {
        if let Some(active) = case.active.iter().find(|&&active| active > case.connections) {
            let connections = case.connections;
            return Err(Error::Input(format!("of {connections} connections {active} can't be active")));
        }
    }
    Ok(cases)
}

fn without_repetitions(values: &[usize]) -> Vec<usize> {
    let mut kept = Vec::new();
    values.iter().for_each(|value| {
        if !kept.contains(value) {
            kept.push(*value)
        }
    });
    kept
}

/// One engine in one round: a host, its links, and a cell for each number of active ones. Cells that an interrupt cut
/// short, or that a starved one precedes, are missing.
fn measure(
    plan: &CrowdPlan,
    engine: CrowdEngine,
    case: &Case,
    results: &mut Results<'_>,
    round: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Cell>> {
    let mut side = Side::start(plan, engine, case.connections, interrupt)?;
    results.note_placement(side.is_placed(plan));
    let crowd = Crowd::connect(side.endpoint(), case.connections, plan.client_spins(), interrupt);
    // A host that died says why, which is worth more than that nobody listens.
    let mut crowd = match crowd {
        Ok(Some(crowd)) => crowd,
        Ok(None) => return Ok(Vec::new()),
        Err(error) if error.fault() == Fault::Peer => return Err(side.wait_ready(interrupt).err().unwrap_or(error)),
        Err(error) => return Err(error),
    };
    side.wait_ready(interrupt)?;
    let (answered, ending) = crowd.roll_call(plan.timeout, interrupt)?;
    if ending == Ending::Interrupted {
        return Ok(Vec::new());
    }
    if ending == Ending::Silent {
        let usage = side.usage()?;
        return Ok(vec![Cell::starved(case.connections, answered, usage)]);
    }
    let mut cells = Vec::with_capacity(case.active.len());
    for &active in &case.active {
        // The same draws for every engine of a round.
        crowd.seed((round as u64) << 32 | active as u64);
        let cell = exchange(plan, &side, &mut crowd, active, interrupt)?;
        let over = cell.is_starved() || interrupt.is_set();
        cells.push(cell);
        if over {
            break;
        }
    }
    Ok(cells)
}

/// One cell: exchanges until the time is up. What an interrupt left half done does not count.
fn exchange(plan: &CrowdPlan, side: &Side, crowd: &mut Crowd, active: usize, interrupt: &Interrupt) -> Result<Cell> {
    let mut cell = Cell::default();
    let warm_by = clock::now() + WARM_UP_TIME;
    for _ in 0..WARM_UP_EXCHANGES {
        let (answered, ending) = crowd.exchange(active, plan.timeout, interrupt)?;
        if ending == Ending::Silent {
            return Ok(Cell::starved(active, answered, side.usage()?));
        }
        if clock::now() >= warm_by {
            break;
        }
    }
    let before = side.usage()?;
    let end = clock::now() + plan.time;
    while cell.exchanges < LEAST_EXCHANGES || clock::now() < end {
        match crowd.exchange(active, plan.timeout, interrupt)? {
            (_, Ending::Interrupted) => break,
            (answered, Ending::Silent) => {
                cell.lose(active, answered);
                break;
            }
            (_, Ending::Whole) => cell.note(crowd.times()),
        }
    }
    cell.finish(before, side.usage()?);
    Ok(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan(engines: &[CrowdEngine], active: &[usize], by_connections: &[usize]) -> CrowdPlan {
        CrowdPlan {
            server: HostedBy::At("tcp://127.0.0.1:9".parse().unwrap()),
            engines: engines.to_vec(),
            connections: 100,
            active: active.to_vec(),
            by_connections: by_connections.to_vec(),
            rounds: 5,
            time: Duration::from_millis(1),
            timeout: Duration::from_secs(2),
            spot: crate::placement::Spot::default(),
            command: "taut connections".to_owned(),
        }
    }

    #[test]
    fn every_case_is_tried_once() {
        let case = |connections, active: &[usize]| Case { connections, active: active.to_vec() };
        let found = cases(&plan(&[CrowdEngine::Epoll], &[5, 1, 5], &[10, 100, 10, 1000])).unwrap();
        assert_eq!(found, [case(100, &[5, 1]), case(10, &[5]), case(1000, &[5])]);
    }

    #[test]
    fn a_plan_without_sense_is_refused() {
        let epoll = [CrowdEngine::Epoll];
        for wrong in [plan(&[], &[1], &[]), plan(&epoll, &[], &[]), plan(&epoll, &[101], &[]), plan(&epoll, &[5], &[4])]
        {
            assert!(matches!(cases(&wrong), Err(Error::Input(_))), "{wrong:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error() {
        let nobody = plan(&[CrowdEngine::Epoll, CrowdEngine::Poll], &[1], &[]);
        let error = run(&nobody, &Interrupt::default(), &mut |_, _| {}).unwrap_err();
        assert_eq!(error.fault(), Fault::Peer, "{error}");
    }

    #[test]
    fn a_silent_server_does_not_keep_the_user() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let silent =
            CrowdPlan { server: HostedBy::At(endpoint.parse().unwrap()), ..plan(&[CrowdEngine::Epoll], &[1], &[]) };
        let interrupt = Interrupt::default();
        let user = interrupt.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            user.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let began = std::time::Instant::now();
        let outcome = run(&silent, &interrupt, &mut |_, _| {}).unwrap();
        assert_eq!(outcome.ended, Ended::Interrupted);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

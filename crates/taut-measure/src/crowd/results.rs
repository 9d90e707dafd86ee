//! What has been measured so far, and the rows that it makes.

use taut_link::wire::Usage;
use taut_time::Duration;

use super::plan::{Case, CrowdPlan, HostedBy, MESSAGE_BYTES};
use crate::verdict::compare;
use taut_record::stats::{Distribution, Interval, Quantile, Rounds, interval, median};
use taut_record::{Comparison, CpuComparison, CrowdRound, CrowdRow, Starvation};
use taut_serve::crowd::CrowdEngine;

/// One engine with one number of active links in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    times: Distribution,
    pub(super) exchanges: usize,
    sent: u64,
    lost: u64,
    cpu: Duration,
    threads: u32,
    rss_bytes: u64,
}

impl Cell {
    /// Links that never got an answer, in the roll call or before anything counted.
    pub(super) fn starved(asked: usize, answered: usize, usage: Usage) -> Self {
        let mut cell = Self::default();
        cell.lose(asked, answered);
        cell.finish(usage, usage);
        cell
    }

    /// An exchange in which all were answered.
    pub(super) fn note(&mut self, times: &[Duration]) {
        self.times.extend(times.iter().copied());
        self.exchanges += 1;
        self.sent += times.len() as u64;
    }

    /// An exchange in which some were not. The times of the others would be those of the lucky
    /// ones, so they do not count.
    pub(super) const fn lose(&mut self, asked: usize, answered: usize) {
        self.sent += asked as u64;
        self.lost += (asked - answered) as u64;
    }

    pub(super) fn finish(&mut self, before: Usage, after: Usage) {
        self.cpu = after.cpu.saturating_sub(before.cpu);
        self.threads = after.threads;
        self.rss_bytes = after.rss_bytes;
    }

    pub(super) const fn is_starved(&self) -> bool {
        self.lost > 0
    }

    /// CPU time of the host for each message; `None` when it did not answer all, or was asked nothing.
    fn cpu_ns_per_message(&self) -> Option<f64> {
        (self.lost == 0 && self.sent > 0).then(|| self.cpu.as_nanos() as f64 / self.sent as f64)
    }
}

/// All cells, by case, number of active links, engine and round.
pub(super) struct Results<'a> {
    plan: &'a CrowdPlan,
    cases: &'a [Case],
    engines: Vec<Engine>,
    /// Whether every host was where it should have been.
    is_placed: bool,
}

/// What is known of one engine.
struct Engine {
    /// By case and number of active links.
    series: Vec<Vec<Series>>,
    starved: Option<Starvation>,
    why_not: Option<String>,
}

/// The rounds of one engine with one number of active links.
#[derive(Clone, Debug, Default)]
struct Series {
    rounds: Vec<Option<CrowdRound>>,
    /// Of rounds in which links starved only the messages lost.
    times: Rounds,
}

impl Series {
    fn add(&mut self, round: usize, cell: &Cell) {
        if cell.is_starved() {
            let mut lost = Distribution::new();
            lost.record_lost(cell.lost);
            self.times.add_partial(&lost);
        } else {
            self.times.add(&cell.times);
        }
        self.rounds.resize(self.rounds.len().max(round + 1), None);
        self.rounds[round] = Some(self::round(cell));
    }

    /// Rounds that were measured.
    fn measured(&self) -> impl Iterator<Item = &CrowdRound> {
        self.rounds.iter().flatten()
    }
}

impl<'a> Results<'a> {
    pub(super) fn new(plan: &'a CrowdPlan, cases: &'a [Case]) -> Self {
        let empty = |case: &Case| vec![Series::default(); case.active.len()];
        let engine = |_| Engine { series: cases.iter().map(empty).collect(), starved: None, why_not: None };
        Self { plan, cases, engines: plan.engines.iter().map(engine).collect(), is_placed: true }
    }

    /// Whether an engine takes no part any more.
    pub(super) fn is_out(&self, engine: usize) -> bool {
        self.engines[engine].starved.is_some() || self.engines[engine].why_not.is_some()
    }

    pub(super) const fn note_placement(&mut self, is_placed: bool) {
        self.is_placed &= is_placed;
    }

    pub(super) fn put_out(&mut self, engine: usize, why: String) {
        self.engines[engine].why_not = Some(why);
    }

    pub(super) fn add(&mut self, case: usize, engine: usize, round: usize, cells: Vec<Cell>) {
        for (active, cell) in cells.into_iter().enumerate() {
            if cell.is_starved() {
                self.engines[engine].starved = Some(Starvation {
                    connections: self.cases[case].connections as u64,
                    asked: cell.sent,
                    answered: cell.sent - cell.lost,
                    waited_ns: nanos(self.plan.timeout),
                    threads: cell.threads,
                });
            }
            self.engines[engine].series[case][active].add(round, &cell);
        }
    }

    /// Whether there is anything to tell: a figure, or that an engine starves.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_figures() && self.engines.iter().all(|engine| engine.starved.is_none())
    }

    pub(super) fn has_figures(&self) -> bool {
        let series = self.engines.iter().flat_map(|engine| engine.series.iter().flatten());
        series.flat_map(Series::measured).any(|round| round.exchanges > 0)
    }

    /// The rows, by case, number of active links and engine. What an interrupt left unmeasured has none.
    pub(super) fn rows(&self) -> Vec<CrowdRow> {
        let mut rows = Vec::new();
        for (case, of) in self.cases.iter().enumerate() {
            for active in 0..of.active.len() {
                rows.extend((0..self.engines.len()).filter_map(|engine| self.row(case, active, engine)));
            }
        }
        rows
    }

    fn row(&self, case: usize, active: usize, engine: usize) -> Option<CrowdRow> {
        let Engine { starved, why_not, .. } = &self.engines[engine];
        let series = &self.engines[engine].series[case][active];
        let rounds: Vec<CrowdRound> = series.measured().copied().collect();
        if rounds.is_empty() && starved.is_none() && why_not.is_none() {
            return None;
        }
        let cpu: Vec<f64> = rounds.iter().filter_map(|round| round.cpu_ns_per_message).collect();
        let across = interval(&cpu);
        let placement = self.plan.spot.told(self.is_placed);
        let (HostedBy::Own { listen: endpoint, .. } | HostedBy::At(endpoint)) = &self.plan.server;
        Some(CrowdRow {
            endpoint: endpoint.to_string(),
            transport: endpoint.transport().to_owned(),
            command: self.plan.command.clone(),
            engine: self.plan.engines[engine].to_string(),
            connections: self.cases[case].connections,
            active: self.cases[case].active[active],
            message_bytes: MESSAGE_BYTES as u64,
            rtt_ns: series.times.summary().filter(|times| times.count > 0),
            cpu_ns_per_message: median(&cpu),
            cpu_ns_per_message_ci: across.map(Interval::ends),
            cpu_ns_per_message_ci_level: across.map(|across| across.level),
            threads: rounds.iter().map(|round| round.threads).max(),
            rss_bytes: rounds.iter().map(|round| round.rss_bytes).max(),
            exchanges: rounds.iter().map(|round| round.exchanges).sum(),
            sent: rounds.iter().map(|round| round.sent).sum(),
            lost: rounds.iter().map(|round| round.lost).sum(),
            timeout_ns: nanos(self.plan.timeout),
            starved: *starved,
            why_not: why_not.clone(),
            rounds,
            compared: self.compared(case, active, engine),
            cpu_compared: self.cpu_compared(case, active, engine),
            client_core: placement.core,
            server_core: placement.peer_core,
            placement: Some(placement),
            client_spins: self.plan.client_spins(),
        })
    }

    /// The median round trip against that of the first engine.
    fn compared(&self, case: usize, active: usize, engine: usize) -> Option<Comparison> {
        let medians = |engine: usize| -> Vec<Option<u64>> {
            self.engines[engine].series[case][active].rounds.iter().map(|round| round.as_ref()?.p50_ns).collect()
        };
        if engine == 0 {
            return None;
        }
        let compared = compare(&medians(engine), &medians(0), self.plan.comparisons())?;
        Some(compared.with(self.plan.engines[0].to_string()))
    }

    /// The CPU time of a message against that of the bare io_uring where it is there, else of the first engine.
    fn cpu_compared(&self, case: usize, active: usize, engine: usize) -> Option<CpuComparison> {
        let base = self.plan.engines.iter().position(|&engine| engine == CrowdEngine::Uring).unwrap_or(0);
        // In picoseconds: ratios are of whole numbers.
        let costs = |engine: usize| -> Vec<Option<u64>> {
            let cost = |round: &CrowdRound| round.cpu_ns_per_message.map(|ns| (ns * 1e3) as u64);
            self.engines[engine].series[case][active].rounds.iter().map(|round| cost(round.as_ref()?)).collect()
        };
        if engine == base {
            return None;
        }
        let compared = compare(&costs(engine), &costs(base), self.plan.comparisons())?;
        Some(CpuComparison {
            with: self.plan.engines[base].to_string(),
            ratio: compared.ratio.middle,
            ratio_ci: compared.ratio.interval,
            ratio_level: Some(compared.ratio.level),
            verdict: compared.verdict,
            rounds_needed: compared.rounds_needed,
        })
    }
}

fn round(cell: &Cell) -> CrowdRound {
    let times = Some(&cell.times).filter(|_| !cell.is_starved());
    let at = |q: f64| times.and_then(|times| times.quantile(q)).and_then(Quantile::time);
    CrowdRound {
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        max_ns: at(1.0),
        cpu_ns_per_message: cell.cpu_ns_per_message(),
        threads: cell.threads,
        rss_bytes: cell.rss_bytes,
        exchanges: cell.exchanges as u64,
        sent: cell.sent,
        lost: cell.lost,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use taut_record::Verdict;
    use taut_serve::crowd::CrowdEngine::{Epoll, GlibcAio, Poll, Uring};

    fn usage(cpu_us: u64) -> Usage {
        Usage { cpu: Duration::from_micros(cpu_us), threads: 3, rss_bytes: 4096 }
    }

    /// Two exchanges with one message each, which took so long, and so much CPU time in all.
    fn cell(rtt_us: u64, cpu_us: u64) -> Cell {
        let mut cell = Cell::default();
        (0..2).for_each(|_| cell.note(&[Duration::from_micros(rtt_us)]));
        cell.finish(usage(1000), usage(1000 + cpu_us));
        cell
    }

    #[test]
    fn each_engine_is_held_against_the_first_and_its_cost_against_uring() {
        // Two engines against the first, by round trip and by CPU time: four verdicts.
        let rounds = taut_record::stats::rounds_needed(4);
        let plan = CrowdPlan { rounds, ..plan(&[Poll, Epoll, Uring], &[1], &[]) };
        let cases = [Case { connections: 100, active: vec![1] }];
        let mut results = Results::new(&plan, &cases);
        assert!(results.is_empty());
        for round in 0..rounds {
            results.add(0, 0, round, vec![cell(1000, 2000)]);
            results.add(0, 1, round, vec![cell(100, 40)]);
            results.add(0, 2, round, vec![cell(100, 20)]);
        }
        let rows = results.rows();
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].cpu_ns_per_message, rows[0].sent, rows[0].exchanges), (Some(1_000_000.0), 16, 16));
        let compared = |row: &CrowdRow| row.compared.clone().map(|other| (other.with, other.verdict));
        assert_eq!(compared(&rows[0]), None);
        assert_eq!(compared(&rows[1]), Some(("poll".to_owned(), Verdict::Shorter)));
        let cost = |row: &CrowdRow| row.cpu_compared.clone().map(|other| (other.with, other.ratio));
        assert_eq!(cost(&rows[0]), Some(("uring".to_owned(), 100.0)));
        assert_eq!(cost(&rows[1]), Some(("uring".to_owned(), 2.0)));
        assert_eq!(cost(&rows[2]), None);
    }

    #[test]
    fn an_engine_that_starves_has_rows_without_times_and_is_out() {
        let plan = plan(&[GlibcAio, Epoll], &[1, 10], &[]);
        let cases = [Case { connections: 100, active: vec![1, 10] }];
        let mut results = Results::new(&plan, &cases);
        results.add(0, 0, 0, vec![Cell::starved(100, 20, usage(1))]);
        assert!(results.is_out(0) && !results.is_out(1) && !results.has_figures() && !results.is_empty());
        let rows = results.rows();
        assert_eq!(rows.len(), 2, "a row for each number of active links, and none for what was not tried yet");
        assert!(rows.iter().all(|row| row.rtt_ns.is_none() && row.cpu_ns_per_message.is_none()));
        assert_eq!((rows[0].sent, rows[0].lost, rows[1].sent), (100, 80, 0));
        let starved = rows[1].starved.unwrap();
        assert_eq!((starved.asked, starved.answered, starved.threads), (100, 20, 3));
    }

    #[test]
    fn what_came_before_a_starved_exchange_counts_no_more_and_earlier_rounds_do() {
        let plan = plan(&[Epoll], &[1], &[]);
        let cases = [Case { connections: 100, active: vec![1] }];
        let mut results = Results::new(&plan, &cases);
        results.add(0, 0, 0, vec![cell(100, 20)]);
        let mut broken = cell(5, 20);
        broken.lose(1, 0);
        results.add(0, 0, 1, vec![broken]);
        let row = results.rows().remove(0);
        let times = row.rtt_ns.unwrap();
        assert!(times.count == 2 && times.min > Some(50_000), "{times:?}");
        assert_eq!((row.sent, row.lost), (5, 1));
        assert_eq!((row.rounds[0].p50_ns.is_some(), row.rounds[1].p50_ns), (true, None));
    }

    #[test]
    fn an_engine_that_can_not_be_had_says_why() {
        let plan = plan(&[Uring], &[1], &[]);
        let cases = [Case { connections: 100, active: vec![1] }];
        let mut results = Results::new(&plan, &cases);
        results.put_out(0, "no".to_owned());
        assert!(results.is_out(0) && results.is_empty());
        assert_eq!(results.rows()[0].why_not.as_deref(), Some("no"));
    }
}

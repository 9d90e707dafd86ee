use taut_link::{Error, clock};
use taut_record::FORMAT_VERSION;
use taut_report::figures::{RouteCounts, RouteIntervalDocument, Span, route_families};
use taut_route::run::Status;
use taut_time::{Duration, Instant};

use crate::figures::{ExportArgs, Exports, due, interval, unix_ns};

/// What routes at work tell, interval by interval.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Figures")]
pub(super) struct RouteFiguresArgs {
    /// Tell what the routes did in intervals of this length, from 500ms to 1h, by one of the three below
    #[arg(long, value_name = "TIME", value_parser = interval, conflicts_with = "detach")]
    every: Option<Duration>,
    #[command(flatten)]
    exports: ExportArgs,
}

impl RouteFiguresArgs {
    /// Opens what is asked for; `None` if nothing is.
    pub(super) fn open(&self) -> anyhow::Result<Option<RouteFigures>> {
        let ExportArgs { jsonl, prometheus, otlp } = &self.exports;
        let is_told = jsonl.is_some() || prometheus.is_some() || otlp.is_some();
        let every = match (self.every, is_told) {
            (None, false) => return Ok(None),
            (Some(every), true) => every,
            (None, true) => {
                let text = "--jsonl, --prometheus and --otlp tell of intervals: add --every, such as --every 10s";
                return Err(Error::Input(text.into()).into());
            }
            (Some(_), false) => {
                let text = "--every tells by --jsonl, --prometheus or --otlp: add one of them";
                return Err(Error::Input(text.into()).into());
            }
        };
        let (now, unix) = (clock::now(), unix_ns());
        let mut exports = Exports::open(&self.exports)?;
        exports.sums(route_families(&[]), None);
        Ok(Some(RouteFigures {
            exports,
            every,
            begin: (now, unix),
            began: (now, unix),
            due: now + every,
            number: 0,
            before: Vec::new(),
        }))
    }

    /// Whether lines go to stdout.
    pub(super) fn take_stdout(&self) -> bool {
        self.exports.take_stdout()
    }
}

/// Where figures of routes go, and what has been told.
pub(super) struct RouteFigures {
    exports: Exports,
    every: Duration,
    begin: (Instant, u64),
    began: (Instant, u64),
    due: Instant,
    number: u64,
    before: Vec<RouteCounts>,
}

impl RouteFigures {
    /// Tells, if an interval is over.
    pub(super) fn look(&mut self, status: impl FnOnce() -> Vec<Status>) {
        let now = clock::now();
        if now >= self.due {
            self.tell(&status());
            self.due = due(self.begin.0, self.every, now);
        }
    }

    /// Tells what there is of the last interval. Whether all that was told has left.
    pub(super) fn finish(mut self, last: &[Status]) -> bool {
        self.tell(last);
        self.exports.close()
    }

    fn tell(&mut self, status: &[Status]) {
        let (now, unix) = (clock::now(), unix_ns());
        let counts: Vec<RouteCounts> = status.iter().map(counts).collect();
        let since = |count: &RouteCounts| count.since(self.before.iter().find(|before| before.name == count.name));
        let document = RouteIntervalDocument {
            format_version: FORMAT_VERSION,
            command: "route run".to_owned(),
            interval: self.number,
            began_unix_ns: self.began.1,
            duration_ns: u64::try_from(now.saturating_since(self.began.0).as_nanos()).unwrap_or(u64::MAX),
            lines_lost: self.exports.lines_lost(),
            results: counts.iter().map(since).collect(),
        };
        self.exports.line(|| document.to_json());
        let span = Span { begin_unix_ns: self.begin.1, end_unix_ns: unix.max(self.begin.1) };
        self.exports.sums(route_families(&counts), Some(span));
        (self.began, self.before) = ((now, unix), counts);
        self.number += 1;
    }
}

fn counts(status: &Status) -> RouteCounts {
    let counters = &status.counters;
    RouteCounts {
        name: status.name.clone(),
        runs: status.runs.clone(),
        events: counters.events,
        passed: counters.passed,
        dropped: counters.dropped,
        short: counters.short,
        lost: counters.lost,
        log_lost: counters.log_lost,
        masked: counters.masked,
    }
}

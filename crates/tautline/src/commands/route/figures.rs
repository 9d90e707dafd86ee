use taut_record::FORMAT_VERSION;
use taut_report::figures::{RouteCounts, RouteIntervalDocument, route_families};
use taut_route::run::Status;

use crate::figures::Beat;

/// What routes at work tell, interval by interval.
pub(super) struct RouteFigures {
    beat: Beat,
    before: Vec<RouteCounts>,
}

impl RouteFigures {
    pub(super) const fn new(beat: Beat) -> Self {
        Self { beat, before: Vec::new() }
    }

    /// Tells, if an interval is over.
    pub(super) fn look(&mut self, status: impl FnOnce() -> Vec<Status>) {
        if taut_link::clock::now() >= self.beat.due() {
            self.tell(&status());
        }
    }

    /// Tells what there is of the last interval. Whether all that was told has left.
    pub(super) fn finish(mut self, last: &[Status]) -> bool {
        self.tell(last);
        self.beat.close()
    }

    fn tell(&mut self, status: &[Status]) {
        let counts: Vec<RouteCounts> = status.iter().map(counts).collect();
        let since = |count: &RouteCounts| count.since(self.before.iter().find(|before| before.name == count.name));
        let results = counts.iter().map(since).collect();
        let line = |head: crate::figures::Head| {
            let document = RouteIntervalDocument {
                format_version: FORMAT_VERSION,
                command: "route run".to_owned(),
                interval: head.interval,
                began_unix_ns: head.began_unix_ns,
                duration_ns: head.duration_ns,
                lines_lost: head.lines_lost,
                results,
            };
            document.to_json()
        };
        self.beat.tell(line, route_families(&counts));
        self.before = counts;
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

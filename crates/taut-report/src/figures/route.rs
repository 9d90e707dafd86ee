use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::family::{Family, Kind, Sample, Unit, Value};

/// What routes did in one interval: an object a line of `taut route run --jsonl`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RouteIntervalDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `route run`.
    pub command: String,
    /// Number of the interval, from 0.
    pub interval: u64,
    /// Its begin by the wall clock, in nanoseconds since 1970-01-01 UTC.
    pub began_unix_ns: u64,
    /// How long it took, by a clock that nobody sets.
    pub duration_ns: u64,
    /// Lines before this one that could not be written.
    pub lines_lost: u64,
    /// The routes at work, each with what it did in this interval.
    pub results: Vec<RouteCounts>,
}

/// What a route did.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct RouteCounts {
    /// Its name.
    pub name: String,
    /// Where it runs: `xdp-native`, `xdp-generic`, `tc`, `hardirq`, `kthread` or `user`.
    pub runs: String,
    /// Events taken: those evaluated and those too short.
    pub events: u64,
    /// Events that passed.
    pub passed: u64,
    /// Events that did not pass.
    pub dropped: u64,
    /// Events too short for the fields, or lines that are no number.
    pub short: u64,
    /// Events that never reached the route, as far as the kernel tells, and sendings that failed.
    pub lost: u64,
    /// Records of the log that had no room.
    pub log_lost: u64,
    /// Times that too many events came and the kernel module masked the source for a while.
    pub masked: u64,
}

impl RouteIntervalDocument {
    /// One JSON object in one line.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        serde_json::to_string(self).expect("an interval is JSON") + "\n"
    }
}

impl RouteCounts {
    /// What was added since an earlier count of the same route. One that began anew has begun at 0.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|before| before.events <= self.events) else { return self.clone() };
        Self {
            name: self.name.clone(),
            runs: self.runs.clone(),
            events: self.events.saturating_sub(before.events),
            passed: self.passed.saturating_sub(before.passed),
            dropped: self.dropped.saturating_sub(before.dropped),
            short: self.short.saturating_sub(before.short),
            lost: self.lost.saturating_sub(before.lost),
            log_lost: self.log_lost.saturating_sub(before.log_lost),
            masked: self.masked.saturating_sub(before.masked),
        }
    }
}

/// What routes did since they began.
pub fn route_families(routes: &[RouteCounts]) -> Vec<Family<'static>> {
    type Count = fn(&RouteCounts) -> u64;
    let all: [(&'static str, &str, Count); 7] = [
        ("route_events", "Events taken.", |route| route.events),
        ("route_passed", "Events that passed.", |route| route.passed),
        ("route_dropped", "Events that did not pass.", |route| route.dropped),
        ("route_short", "Events too short for the fields, or lines that are no number.", |route| route.short),
        ("route_lost", "Events that never reached the route, and sendings that failed.", |route| route.lost),
        ("route_log_lost", "Records of the log that had no room.", |route| route.log_lost),
        ("route_masked", "Times that too many events came and the source was masked.", |route| route.masked),
    ];
    let family = |(name, help, count): (_, &str, Count)| {
        let sample = |route: &RouteCounts| Sample {
            labels: vec![("route", route.name.clone()), ("runs", route.runs.clone())],
            value: Value::Number(count(route) as f64),
        };
        let samples = routes.iter().map(sample).collect();
        Family { name, help: help.to_owned(), kind: Kind::Counter, unit: Unit::Plain, samples }
    };
    all.into_iter().map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn counts_are_since_the_last_interval_and_sums_since_the_begin() {
        let counts = |events, passed| RouteCounts { name: "r\"".to_owned(), events, passed, ..RouteCounts::default() };
        let later = counts(10, 4);
        assert_eq!(later.since(None), later);
        assert_eq!(later.since(Some(&counts(7, 4))), counts(3, 0));
        // Stopped and begun anew under its name.
        assert_eq!(later.since(Some(&counts(11, 9))), later);
        let text = text(&route_families(&[later]));
        assert!(text.contains("\ntaut_route_events_total{route=\"r\\\"\",runs=\"\"} 10\n"), "{text}");
        assert!(text.contains("\ntaut_route_passed_total{route=\"r\\\"\",runs=\"\"} 4\n"), "{text}");
    }
}

use std::collections::BTreeMap;

use crate::figures::{Family, Kind, Sample, Unit, Value};
use crate::watched::WatchDocument;
use taut_record::WatchedPlace;

/// More are not told apart: each is a series in the collector's memory.
const MOST_SERIES: usize = 1000;

/// What a watch came to so far.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    series: BTreeMap<Labels, Lost>,
    intervals: u64,
    looks: u64,
    work_ns: u64,
    connections: u64,
    /// Lost by what found no series.
    other_ns: u64,
    grade: u8,
    counted: BTreeMap<Labels, Counted>,
    /// Counted of what found no series.
    other: Counted,
}

/// Who loses, and to what, without numbers of processes: a program that starts anew is the same series.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Labels {
    cause: String,
    program: String,
    side: String,
    service: String,
}

#[derive(Debug, Default)]
struct Lost {
    total_ns: u64,
    /// In the last interval.
    connections: u64,
    worst_share: f64,
}

/// What the kernel counted.
#[derive(Debug, Default)]
struct Counted {
    events: u64,
    lost_ns: u64,
}

impl From<&WatchedPlace> for Labels {
    fn from(place: &WatchedPlace) -> Self {
        Self {
            cause: place.cause.clone(),
            program: place.program.clone().unwrap_or_default(),
            side: place.side.clone(),
            service: place.service.clone(),
        }
    }
}

impl WatchMetrics {
    /// Takes the next interval.
    pub fn add(&mut self, document: &WatchDocument) {
        self.intervals += 1;
        self.grade = document.grade;
        self.looks += u64::from(document.looks) + u64::from(document.suspect_looks);
        self.work_ns += document.work_ns;
        self.connections = document.connections;
        for lost in self.series.values_mut() {
            (lost.connections, lost.worst_share) = (0, 0.0);
        }
        for loss in &document.losses {
            let labels = Labels::from(&loss.place);
            if self.series.len() >= MOST_SERIES && !self.series.contains_key(&labels) {
                self.other_ns += loss.lost_ns;
                continue;
            }
            let lost = self.series.entry(labels).or_default();
            lost.total_ns += loss.lost_ns;
            lost.connections += loss.connections;
            lost.worst_share = lost.worst_share.max(loss.worst_share);
        }
        // Of what is only shown on, there is nothing to add.
        for count in document.counted.iter().filter(|count| count.events > 0) {
            let labels = Labels::from(&count.place);
            if self.counted.len() >= MOST_SERIES && !self.counted.contains_key(&labels) {
                self.other.add(count.events, count.lost_ns);
                continue;
            }
            self.counted.entry(labels).or_default().add(count.events, count.lost_ns);
        }
    }

    /// The figures.
    pub fn families(&self) -> Vec<Family<'_>> {
        use Kind::{Counter, Gauge};
        use Unit::{Plain, Seconds};
        let mut families = vec![
            Family::plain("connections", "TCP connections that were there.", Gauge, Plain, self.connections as f64),
            Family::plain("intervals", "Intervals that were watched.", Counter, Plain, self.intervals as f64),
            Family::plain("looks", "Looks at sockets.", Counter, Plain, self.looks as f64),
            Family::plain("work", "Processor time that looking took.", Counter, Seconds, seconds(self.work_ns)),
        ];
        let help = format!("Time lost by what came after the first {MOST_SERIES} series.");
        families.push(Family::plain("other_lost", &help, Counter, Seconds, seconds(self.other_ns)));
        let mut each = |name, help: &str, kind, unit, value: &dyn Fn(&Lost) -> f64| {
            let sample =
                |(labels, lost): (&Labels, &Lost)| Sample { labels: labels.told(), value: Value::Number(value(lost)) };
            let samples = self.series.iter().map(sample).collect();
            families.push(Family { name, help: help.to_owned(), kind, unit, samples });
        };
        let help = "Time that connections lost, all of one program, service and cause together.";
        each("lost", help, Counter, Seconds, &|lost| seconds(lost.total_ns));
        let help = "Connections that lost time in the last interval.";
        each("losing_connections", help, Gauge, Plain, &|lost| lost.connections as f64);
        let help = "The part of the last interval that the worst of them lost, from 0 to 1.";
        each("worst_share", help, Gauge, Plain, &|lost| lost.worst_share);
        let help = "1: by looks alone; 2: the kernel counted as well.";
        families.push(Family::plain("watch_grade", help, Gauge, Plain, f64::from(self.grade)));
        let help = format!("Events counted of what came after the first {MOST_SERIES} series.");
        families.push(Family::plain("other_events", &help, Counter, Plain, self.other.events as f64));
        let help = format!("Time counted of what came after the first {MOST_SERIES} series.");
        families.push(Family::plain("other_counted_lost", &help, Counter, Seconds, seconds(self.other.lost_ns)));
        let mut each = |name, help: &str, unit, value: &dyn Fn(&Counted) -> f64| {
            let sample =
                |(labels, of): (&Labels, &Counted)| Sample { labels: labels.told(), value: Value::Number(value(of)) };
            let samples = self.counted.iter().map(sample).collect();
            families.push(Family { name, help: help.to_owned(), kind: Counter, unit, samples });
        };
        let help = "Segments and handshakes sent again, connections refused and reset, each counted by the kernel.";
        each("events", help, Plain, &|of| of.events as f64);
        let help = "Time until what was lost was sent again, as the kernel counted it; a look may have met it, too.";
        each("counted_lost", help, Seconds, &|of| seconds(of.lost_ns));
        families
    }
}

impl Counted {
    const fn add(&mut self, events: u64, lost_ns: u64) {
        self.events += events;
        self.lost_ns += lost_ns;
    }
}

impl Labels {
    fn told(&self) -> Vec<(&'static str, String)> {
        let Self { cause, program, side, service } = self.clone();
        vec![("cause", cause), ("program", program), ("side", side), ("service", service)]
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::text as told;
    use taut_record::{WatchedCount, WatchedLoss};

    fn interval(losses: Vec<WatchedLoss>) -> WatchDocument {
        WatchDocument {
            format_version: 1,
            command: "watch".to_owned(),
            grade: 1,
            at_unix_ms: 0,
            span_ns: 2_000_000_000,
            connections: 7,
            looks: 10,
            suspect_looks: 5,
            look_period_ns: 20_000_000,
            work_ns: 20_000_000,
            losses,
            ended: Vec::new(),
            counted: Vec::new(),
            remarks: Vec::new(),
        }
    }

    fn loss(program: &str, pid: i32, service: &str) -> WatchedLoss {
        let place = WatchedPlace {
            cause: "nagle_delayed_ack".to_owned(),
            program: Some(program.to_owned()),
            pid: Some(pid),
            side: "client".to_owned(),
            service: service.to_owned(),
        };
        WatchedLoss {
            place,
            summary: String::new(),
            remedy: String::new(),
            connections: 2,
            worst_local: String::new(),
            worst_peer: String::new(),
            worst_peer_program: None,
            worst_share: 0.5,
            worst_look_period_ns: 20_000_000,
            lost_ns: 1_500_000_000,
            total_lost_ns: 9_000_000_000,
            stands_ns: 9_000_000_000,
            is_new: false,
        }
    }

    #[test]
    fn losses_add_up_over_intervals_and_processes_and_end() {
        let mut metrics = WatchMetrics::default();
        metrics.add(&interval(vec![loss("app", 1, "10.0.0.1:80"), loss("app", 2, "10.0.0.1:80")]));
        metrics.add(&interval(vec![loss("app", 3, "10.0.0.1:80")]));
        let labels = r#"{cause="nagle_delayed_ack",program="app",side="client",service="10.0.0.1:80"}"#;
        let text = told(&metrics.families());
        for line in [
            format!("taut_lost_seconds_total{labels} 4.5"),
            format!("taut_losing_connections{labels} 2"),
            format!("taut_worst_share{labels} 0.5"),
            "taut_connections 7".to_owned(),
            "taut_looks_total 30".to_owned(),
            "taut_work_seconds_total 0.04".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        metrics.add(&interval(Vec::new()));
        let text = told(&metrics.families());
        assert!(text.contains(&format!("taut_losing_connections{labels} 0\n")), "{text}");
        assert!(text.contains(&format!("taut_lost_seconds_total{labels} 4.5\n")), "{text}");
    }

    #[test]
    fn a_name_ends_no_label_and_series_have_an_end() {
        let mut metrics = WatchMetrics::default();
        metrics.add(&interval(vec![loss("a\"} 1\nb\\", 1, "x")]));
        assert!(told(&metrics.families()).contains(r#"program="a\"} 1\nb\\","#), "{}", told(&metrics.families()));
        for port in 0..MOST_SERIES + 4 {
            metrics.add(&interval(vec![loss("app", 1, &format!("10.0.0.1:{port}"))]));
        }
        assert_eq!(metrics.series.len(), MOST_SERIES);
        assert!(
            told(&metrics.families()).contains("taut_other_lost_seconds_total 7.5\n"),
            "{}",
            told(&metrics.families())
        );
    }

    #[test]
    fn what_the_kernel_counted_adds_up_by_itself() {
        let count = |service: &str, events, lost_ns| WatchedCount {
            place: loss("app", 1, service).place,
            summary: String::new(),
            remedy: String::new(),
            events,
            lost_ns,
            total_events: 99,
            total_lost_ns: 99,
            longest_ns: 99,
            first_ago_ns: 0,
            last_ago_ns: 0,
            last_local: String::new(),
            last_peer: String::new(),
            is_new: false,
        };
        let mut metrics = WatchMetrics::default();
        let interval = |counted| WatchDocument { grade: 2, counted, ..interval(Vec::new()) };
        metrics.add(&interval(vec![count("10.0.0.1:80", 2, 500_000_000)]));
        metrics.add(&interval(vec![count("10.0.0.1:80", 1, 250_000_000), count("10.0.0.1:81", 0, 0)]));
        let labels = r#"{cause="nagle_delayed_ack",program="app",side="client",service="10.0.0.1:80"}"#;
        let text = told(&metrics.families());
        for line in [
            format!("taut_events_total{labels} 3"),
            format!("taut_counted_lost_seconds_total{labels} 0.75"),
            "taut_watch_grade 2".to_owned(),
            "taut_other_events_total 0".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(!text.contains("10.0.0.1:81"), "{text}");
        metrics.add(&interval((0..MOST_SERIES + 4).map(|port| count(&format!("x:{port}"), 1, 100_000_000)).collect()));
        // Of those without a series nothing is left out.
        let text = told(&metrics.families());
        for line in ["taut_other_events_total 5", "taut_other_counted_lost_seconds_total 0.5"] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}

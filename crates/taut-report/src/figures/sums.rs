use taut_record::stats::{Distribution, ExponentialHistogram, Percentile, Quantile, Summary};
use taut_record::{Ended, PlacementKind};

use super::family::{Family, Kind, Sample, Unit, Value};
use super::interval::{IntervalDocument, IntervalRow};
use super::otlp::Span;

/// What all intervals of a run came to. It takes about 64 KB for each row, however long the run lasts.
#[derive(Debug)]
pub struct IntervalSums {
    series: Vec<Series>,
    intervals: u64,
    failed: u64,
    span: Span,
}

/// The times of one row.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowTimes<'a> {
    /// Round trips.
    pub round_trip: Option<&'a Distribution>,
    /// Responses, in an open loop.
    pub response: Option<&'a Distribution>,
    /// Deliveries.
    pub delivery: Option<&'a Distribution>,
}

/// Who is measured: what the labels tell.
#[derive(Debug, Eq, PartialEq)]
struct Who {
    endpoint: String,
    engine: Option<String>,
    placement: Option<&'static str>,
}

#[derive(Debug)]
struct Series {
    who: Who,
    round_trip: ExponentialHistogram,
    response: ExponentialHistogram,
    delivery: ExponentialHistogram,
    messages: Option<u64>,
    lost: Option<u64>,
    bytes: Option<u64>,
    lost_bytes: Option<u64>,
    /// Intervals in which it was not measured to the end.
    failed: u64,
    last: IntervalRow,
}

impl IntervalSums {
    /// Nothing, from that time on by the wall clock, in nanoseconds since 1970.
    pub fn since(begin_unix_ns: u64) -> Self {
        let span = Span { begin_unix_ns, end_unix_ns: begin_unix_ns };
        Self { series: Vec::new(), intervals: 0, failed: 0, span }
    }

    /// Adds an interval with the times of its rows.
    pub fn add(&mut self, interval: &IntervalDocument, times: &[RowTimes<'_>]) {
        self.intervals += 1;
        self.failed += u64::from(matches!(interval.ended, Ended::PeerGone(_) | Ended::Failed(_)));
        let end = interval.began_unix_ns.saturating_add(interval.duration_ns);
        // A wall clock may be set back.
        self.span.end_unix_ns = end.max(self.span.end_unix_ns);
        let nothing = std::iter::repeat(&RowTimes { round_trip: None, response: None, delivery: None });
        for (row, times) in interval.results.iter().zip(times.iter().chain(nothing)) {
            let series = self.series(row);
            let mut enter = |into: fn(&mut Series) -> &mut ExponentialHistogram, times: Option<&Distribution>| {
                if let Some(times) = times {
                    into(series).add(times);
                }
            };
            enter(|series| &mut series.round_trip, times.round_trip);
            enter(|series| &mut series.response, times.response);
            enter(|series| &mut series.delivery, times.delivery);
            let add = |sum: &mut Option<u64>, more: Option<u64>| {
                if let Some(more) = more {
                    *sum = Some(sum.unwrap_or(0).saturating_add(more));
                }
            };
            add(&mut series.messages, row.messages);
            add(&mut series.lost, row.lost);
            add(&mut series.bytes, row.bytes);
            add(&mut series.lost_bytes, row.lost_bytes);
            // What the user cut short has not failed.
            series.failed += u64::from(!row.complete && interval.ended != Ended::Interrupted);
            series.last = row.clone();
        }
    }

    fn series(&mut self, row: &IntervalRow) -> &mut Series {
        // As JSON has it.
        let placement = row.placement.map(|kind| match kind {
            PlacementKind::Free => "free",
            PlacementKind::SameCore => "same_core",
            PlacementKind::TwoCores => "two_cores",
        });
        let who = Who { endpoint: row.endpoint.clone(), engine: row.engine.clone(), placement };
        let at = self.series.iter().position(|series| series.who == who).unwrap_or_else(|| {
            self.series.push(Series {
                who,
                round_trip: ExponentialHistogram::new(),
                response: ExponentialHistogram::new(),
                delivery: ExponentialHistogram::new(),
                messages: None,
                lost: None,
                bytes: None,
                lost_bytes: None,
                failed: 0,
                last: IntervalRow::default(),
            });
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    /// From when to when it was added up.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// The sums, and of the last interval what has no sum.
    pub fn families(&self) -> Vec<Family<'_>> {
        let mut families = vec![
            Family::plain(
                "intervals",
                "Intervals that were measured.",
                Kind::Counter,
                Unit::Plain,
                self.intervals as f64,
            ),
            Family::plain(
                "failed_intervals",
                "Intervals in which something could not be measured.",
                Kind::Counter,
                Unit::Plain,
                self.failed as f64,
            ),
            Family::plain(
                "last_interval_end_timestamp",
                "End of the last interval, in seconds since 1970.",
                Kind::Gauge,
                Unit::Seconds,
                self.span.end_unix_ns as f64 / 1e9,
            ),
        ];
        let has = |histogram: &ExponentialHistogram| histogram.count() + histogram.lost() > 0;
        self.each(
            &mut families,
            "round_trip",
            "From the sending of a message to its reply.",
            Kind::Histogram,
            |series| has(&series.round_trip).then_some(Value::Histogram(&series.round_trip)),
        );
        let help = "From the time at which a message was to be sent to its reply.";
        self.each(&mut families, "response", help, Kind::Histogram, |series| {
            has(&series.response).then_some(Value::Histogram(&series.response))
        });
        let help = "From the time at which a message was to be sent to its arrival.";
        self.each(&mut families, "delivery", help, Kind::Histogram, |series| {
            has(&series.delivery).then_some(Value::Histogram(&series.delivery))
        });
        for (name, help, summary) in LAST {
            self.last(&mut families, name, help, summary);
        }
        let number = |value: Option<u64>| value.map(|value| Value::Number(value as f64));
        let help = "Messages sent, with those that were planned and never sent.";
        self.each(&mut families, "messages", help, Kind::Counter, |series| number(series.messages));
        let help = "Messages that never came back, or never arrived.";
        self.each(&mut families, "lost_messages", help, Kind::Counter, |series| number(series.lost));
        let help = "Bytes that arrived.";
        self.each(&mut families, "received", help, Kind::Counter, |series| number(series.bytes));
        let help = "Bytes that were sent and never arrived.";
        self.each(&mut families, "lost", help, Kind::Counter, |series| number(series.lost_bytes));
        self.each(&mut families, "stream", "Throughput of the last interval.", Kind::Gauge, |series| {
            series.last.throughput_bps.map(|bps| Value::Number(bps / 8.0))
        });
        let help = "Intervals in which this was not measured to the end.";
        self.each(&mut families, "unfinished_intervals", help, Kind::Counter, |series| number(Some(series.failed)));
        families.retain(|family| !family.samples.is_empty());
        families
    }

    fn each<'a>(
        &'a self,
        families: &mut Vec<Family<'a>>,
        name: &'static str,
        help: &str,
        kind: Kind,
        value: impl Fn(&'a Series) -> Option<Value<'a>>,
    ) {
        let unit = match name {
            "round_trip" | "response" | "delivery" => Unit::Seconds,
            "received" | "lost" => Unit::Bytes,
            "stream" => Unit::BytesPerSecond,
            _ => Unit::Plain,
        };
        let sample = |series: &'a Series| Some(Sample { labels: series.who.labels(), value: value(series)? });
        let samples = self.series.iter().filter_map(sample).collect();
        families.push(Family { name, help: help.to_owned(), kind, unit, samples });
    }

    /// Percentiles of the last interval as the recording has them: exact to three digits, whatever buckets there are.
    fn last<'a>(
        &'a self,
        families: &mut Vec<Family<'a>>,
        name: &'static str,
        help: &str,
        summary: fn(&IntervalRow) -> Option<&Summary>,
    ) {
        let mut samples = Vec::new();
        for series in &self.series {
            let Some(summary) = summary(&series.last) else { continue };
            let mut enter = |quantile: String, value: Quantile| {
                let mut labels = series.who.labels();
                labels.push(("quantile", quantile));
                samples.push(Sample { labels, value: Value::Number(value.as_f64() / 1e9) });
            };
            for percentile in Percentile::ALL {
                if let Some(value) = summary.percentile(percentile) {
                    enter(percentile.share().to_string(), value);
                }
            }
            enter("1".to_owned(), summary.max);
        }
        families.push(Family { name, help: help.to_owned(), kind: Kind::Gauge, unit: Unit::Seconds, samples });
    }
}

/// Percentiles of the last interval: name, what it is, and where it stands.
type Last = (&'static str, &'static str, fn(&IntervalRow) -> Option<&Summary>);
const LAST: [Last; 3] = [
    ("last_round_trip", "Percentiles of the last interval's round trips; infinite where one was lost.", |row| {
        row.rtt_ns.as_ref()
    }),
    ("last_response", "Percentiles of the last interval's responses; infinite where one was lost.", |row| {
        row.response_ns.as_ref()
    }),
    ("last_delivery", "Percentiles of the last interval's deliveries; infinite where one was lost.", |row| {
        row.delivery_ns.as_ref()
    }),
];

impl Who {
    fn labels(&self) -> Vec<(&'static str, String)> {
        let mut labels = vec![("endpoint", self.endpoint.clone())];
        labels.extend(self.engine.clone().map(|engine| ("engine", engine)));
        labels.extend(self.placement.map(|placement| ("placement", placement.to_owned())));
        labels
    }
}

#[cfg(test)]
mod tests {
    use taut_time::Duration;

    use super::super::{otlp, protobuf, text};
    use super::*;

    fn interval(number: u64, results: Vec<IntervalRow>) -> IntervalDocument {
        IntervalDocument {
            format_version: 1,
            command: "echo".to_owned(),
            interval: number,
            began_unix_ns: number * 1_000_000_000,
            duration_ns: 1_000_000_000,
            ended: Ended::Complete,
            lines_lost: 0,
            results,
        }
    }

    fn row(endpoint: &str, times: &Distribution) -> IntervalRow {
        IntervalRow {
            endpoint: endpoint.to_owned(),
            engine: Some("blocking".to_owned()),
            placement: Some(PlacementKind::SameCore),
            complete: true,
            messages: Some(times.messages()),
            lost: Some(times.lost()),
            rtt_ns: times.summary(),
            ..IntervalRow::default()
        }
    }

    #[test]
    fn intervals_add_up_and_the_last_ones_percentiles_stand_beside_them() {
        let mut times: Distribution = (1..=98).map(Duration::from_micros).collect();
        times.record_lost(2);
        let mut sums = IntervalSums::since(0);
        for number in 0..3 {
            let times = RowTimes { round_trip: Some(&times), ..RowTimes::default() };
            sums.add(&interval(number, vec![row("tcp://a:1", times.round_trip.unwrap())]), &[times]);
        }
        // Its peer is away.
        let away =
            IntervalRow { messages: Some(0), lost: Some(0), complete: false, rtt_ns: None, ..row("tcp://a:1", &times) };
        let away = IntervalDocument { ended: Ended::PeerGone("gone".to_owned()), ..interval(3, vec![away]) };
        let labels = r#"{endpoint="tcp://a:1",engine="blocking",placement="same_core""#;
        let before = text(&sums.families());
        sums.add(&away, &[]);
        let after = text(&sums.families());
        for (text, line) in [
            (&before, "taut_intervals_total 3".to_owned()),
            (&before, format!("taut_messages_total{labels}}} 300")),
            (&before, format!("taut_lost_messages_total{labels}}} 6")),
            (&before, format!("taut_round_trip_seconds_count{labels}}} 300")),
            (&before, format!("taut_round_trip_seconds_bucket{labels},le=\"64\"}} 294")),
            (&before, format!("taut_last_round_trip_seconds{labels},quantile=\"0.99\"}} +Inf")),
            (&before, format!("taut_unfinished_intervals_total{labels}}} 0")),
            (&after, "taut_failed_intervals_total 1".to_owned()),
            (&after, format!("taut_unfinished_intervals_total{labels}}} 1")),
            (&after, format!("taut_messages_total{labels}}} 300")),
            (&after, "taut_last_interval_end_timestamp_seconds 4".to_owned()),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        let p50 = format!("taut_last_round_trip_seconds{labels},quantile=\"0.5\"}} 0.00005");
        assert!(before.contains(&p50) && !after.contains("taut_last_round_trip_seconds"), "{before}{after}");
        assert!(!before.contains("taut_response") && !before.contains("taut_stream"), "{before}");
    }

    #[test]
    fn nothing_measured_is_no_family_of_its_own_and_no_form_is_empty() {
        let sums = IntervalSums::since(7);
        let families = sums.families();
        assert_eq!(families.len(), 3);
        assert!(!protobuf(&families).is_empty());
        assert!(otlp(&families, sums.span()).contains("\"taut.intervals\""));
    }
}

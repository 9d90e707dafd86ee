use std::fmt::Write;

use taut_record::stats::ExponentialHistogram;

use super::family::{Family, Kind, Value, classic_bounds};

/// Of [`text`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Figures in the text format of Prometheus (version 0.0.4). Histograms are classic ones: with few buckets, which grow
/// by 2^(1/2). A lost message is longer than every bound.
pub fn text(families: &[Family<'_>]) -> String {
    let mut text = String::new();
    for family in families {
        let name = family.full_name();
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string never fails.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in &family.samples {
            match sample.value {
                Value::Number(value) => line(&mut text, &name, &sample.labels, None, &number(value)),
                Value::Histogram(histogram) => classic(&mut text, &name, &sample.labels, histogram),
            }
        }
    }
    text
}

fn classic(text: &mut String, name: &str, labels: &[(&str, String)], histogram: &ExponentialHistogram) {
    let bucket = format!("{name}_bucket");
    for index in classic_bounds() {
        let bound = number(ExponentialHistogram::bound_s(index));
        line(text, &bucket, labels, Some(&bound), &histogram.count_to(index).to_string());
    }
    let messages = (histogram.count() + histogram.lost()).to_string();
    line(text, &bucket, labels, Some("+Inf"), &messages);
    line(text, &format!("{name}_sum"), labels, None, &number(histogram.sum_s()));
    line(text, &format!("{name}_count"), labels, None, &messages);
}

fn line(text: &mut String, name: &str, labels: &[(&str, String)], bound: Option<&str>, value: &str) {
    text.push_str(name);
    let labels = labels.iter().map(|(label, value)| (*label, value.as_str()));
    for (index, (label, value)) in labels.chain(bound.map(|bound| ("le", bound))).enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        let _ = write!(text, "{before}{label}=\"{}\"", escaped(value));
    }
    if text.ends_with('"') {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// Programs name themselves: nothing of it may end the label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use taut_record::stats::Distribution;
    use taut_time::Duration;

    use super::super::family::{Sample, Unit};
    use super::*;

    #[test]
    fn a_histogram_has_rising_buckets_and_its_losses_beyond_them() {
        let mut times: Distribution =
            [Duration::ZERO, Duration::from_micros(54), Duration::from_secs(100)].into_iter().collect();
        times.record_lost(2);
        let mut histogram = ExponentialHistogram::new();
        histogram.add(&times);
        let labels = vec![("endpoint", "a\"} 1\nb\\".to_owned())];
        let samples = vec![Sample { labels, value: Value::Histogram(&histogram) }];
        let help = "Round trips.".to_owned();
        let family = Family { name: "round_trip", help, kind: Kind::Histogram, unit: Unit::Seconds, samples };
        let text = text(&[family]);
        let label = r#"endpoint="a\"} 1\nb\\""#;
        let name = "taut_round_trip_seconds";
        for line in [
            "# TYPE taut_round_trip_seconds histogram".to_owned(),
            format!("{name}_bucket{{{label},le=\"0.00000095367431640625\"}} 1"),
            format!("{name}_bucket{{{label},le=\"0.00006103515625\"}} 2"),
            format!("{name}_bucket{{{label},le=\"64\"}} 2"),
            format!("{name}_bucket{{{label},le=\"+Inf\"}} 5"),
            format!("{name}_count{{{label}}} 5"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert_eq!(text.lines().count(), 2 + 53 + 3);
    }

    #[test]
    fn numbers_are_such_that_prometheus_reads() {
        let family = |value| [Family::plain("x", "X.", Kind::Gauge, Unit::Plain, value)];
        assert_eq!(text(&family(f64::INFINITY)), "# HELP taut_x X.\n# TYPE taut_x gauge\ntaut_x +Inf\n");
        assert!(text(&family(4.5)).ends_with("\ntaut_x 4.5\n"));
        assert!(text(&family(f64::NAN)).ends_with("\ntaut_x NaN\n"));
    }
}

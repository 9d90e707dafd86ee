use serde_json::{Value as Json, json};
use taut_record::stats::{ExponentialHistogram, SCALE};

use super::family::{Family, Kind, Sample, Unit, Value};

/// From when to when figures were added up, in nanoseconds since 1970 UTC.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// When everything was 0.
    pub begin_unix_ns: u64,
    /// The end of the last interval.
    pub end_unix_ns: u64,
}

/// Figures as an `ExportMetricsServiceRequest` of OpenTelemetry in JSON (OTLP/HTTP). Distributions are exponential
/// histograms of what came back: these have no place for what is longer than every time, so losses are sums of their
/// own. All is cumulative: a request that is lost takes no figure with it.
pub fn otlp(families: &[Family<'_>], span: Span) -> String {
    let metrics: Vec<Json> = families.iter().map(|family| metric(family, span)).collect();
    json!({
        "resourceMetrics": [{
            "resource": { "attributes": [attribute("service.name", "taut")] },
            "scopeMetrics": [{
                "scope": { "name": "taut", "version": env!("CARGO_PKG_VERSION") },
                "metrics": metrics,
            }],
        }],
    })
    .to_string()
}

/// How many figures a receiver that accepted the rest refuses, and why (`ExportMetricsPartialSuccess`), from the body
/// of its answer; `None` if it took all.
pub fn refused_by_otlp(body: &[u8]) -> Option<String> {
    // It may come in chunks (RFC 9112, section 7.1), and is short enough for one.
    let begin = body.iter().position(|&byte| byte == b'{')?;
    let end = body.iter().rposition(|&byte| byte == b'}')?;
    let answer: Json = serde_json::from_slice(body.get(begin..=end)?).ok()?;
    let partial = answer.get("partialSuccess")?;
    // A 64-bit number is a string in the JSON of Protocol Buffers, and some write a number.
    let rejected = partial.get("rejectedDataPoints")?;
    let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).filter(|&rejected| rejected > 0)?;
    let why = partial.get("errorMessage").and_then(Json::as_str).unwrap_or("it does not say why");
    // Of what others send, a line.
    let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
    Some(format!("{rejected} figures refused: {why}"))
}

fn metric(family: &Family<'_>, span: Span) -> Json {
    let points: Vec<Json> = family.samples.iter().map(|sample| point(sample, family.kind, span)).collect();
    let unit = match family.unit {
        Unit::Plain => "",
        Unit::Seconds => "s",
        Unit::Bytes => "By",
        Unit::BytesPerSecond => "By/s",
    };
    const CUMULATIVE: u8 = 2;
    let (kind, data) = match family.kind {
        Kind::Counter => {
            ("sum", json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points }))
        }
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Histogram => {
            ("exponentialHistogram", json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points }))
        }
    };
    json!({ "name": format!("taut.{}", family.name), "description": family.help, "unit": unit, kind: data })
}

fn point(sample: &Sample<'_>, kind: Kind, span: Span) -> Json {
    let attributes: Vec<Json> = sample.labels.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut point = json!({ "attributes": attributes, "timeUnixNano": span.end_unix_ns.to_string() });
    let mut enter = |key: &str, value: Json| point[key] = value;
    if kind != Kind::Gauge {
        enter("startTimeUnixNano", json!(span.begin_unix_ns.to_string()));
    }
    match sample.value {
        Value::Number(value) => enter("asDouble", double(value)),
        Value::Histogram(histogram) => {
            enter("count", json!(histogram.count().to_string()));
            enter("sum", double(histogram.sum_s()));
            enter("scale", json!(SCALE));
            enter("zeroCount", json!(histogram.zeros().to_string()));
            enter("positive", positive(histogram));
        }
    }
    point
}

/// All buckets from the first to the last in which something is. OpenTelemetry gives a bucket the number of its lower
/// bound, which is one less.
fn positive(histogram: &ExponentialHistogram) -> Json {
    let mut counts: Vec<String> = Vec::new();
    let mut first = None;
    for (index, count) in histogram.buckets() {
        let first = *first.get_or_insert(index);
        counts.resize((index - first) as usize, "0".to_owned());
        counts.push(count.to_string());
    }
    json!({ "offset": first.unwrap_or(1) - 1, "bucketCounts": counts })
}

fn attribute(name: &str, value: &str) -> Json {
    json!({ "key": name, "value": { "stringValue": value } })
}

/// A `double` in the JSON of Protocol Buffers, where what is no number is a string.
fn double(value: f64) -> Json {
    match value {
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value if value.is_nan() => json!("NaN"),
        value => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use taut_record::stats::Distribution;
    use taut_time::Duration;

    use super::*;

    const SPAN: Span = Span { begin_unix_ns: 5, end_unix_ns: 9 };

    #[test]
    fn buckets_are_without_gaps_and_numbered_by_their_lower_bound() {
        let mut times: Distribution = [Duration::ZERO, Duration::from_millis(999)].into_iter().collect();
        times.extend([Duration::from_millis(1040)]);
        times.record_lost(4);
        let mut histogram = ExponentialHistogram::new();
        histogram.add(&times);
        let samples = vec![Sample { labels: vec![("endpoint", "e".to_owned())], value: Value::Histogram(&histogram) }];
        let help = String::new();
        let family = Family { name: "round_trip", help, kind: Kind::Histogram, unit: Unit::Seconds, samples };
        let all: Json = serde_json::from_str(&otlp(&[family], SPAN)).unwrap();
        let metric = &all["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        assert_eq!((&metric["name"], &metric["unit"]), (&json!("taut.round_trip"), &json!("s")));
        let point = &metric["exponentialHistogram"]["dataPoints"][0];
        assert_eq!((&point["count"], &point["zeroCount"], &point["scale"]), (&json!("3"), &json!("1"), &json!(6)));
        assert_eq!((&point["startTimeUnixNano"], &point["timeUnixNano"]), (&json!("5"), &json!("9")));
        // (2^(-1/64), 1] is number 0 for Prometheus and -1 here; 1.04 lies in (2^(3/64), 2^(4/64)].
        assert_eq!(point["positive"], json!({ "offset": -1, "bucketCounts": ["1", "0", "0", "0", "1"] }));
    }

    #[test]
    fn an_empty_histogram_and_what_is_no_number_are_written() {
        let histogram = ExponentialHistogram::new();
        assert_eq!(positive(&histogram), json!({ "offset": 0, "bucketCounts": [] }));
        assert_eq!(double(f64::INFINITY), json!("Infinity"));
        let text = otlp(&[Family::plain("x", "", Kind::Counter, Unit::Plain, 2.0)], SPAN);
        let all: Json = serde_json::from_str(&text).unwrap();
        let sum = &all["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["sum"];
        assert_eq!((&sum["isMonotonic"], &sum["dataPoints"][0]["asDouble"]), (&json!(true), &json!(2.0)));
    }

    #[test]
    fn what_a_receiver_refuses_is_told_and_nothing_else() {
        let refused = refused_by_otlp(br#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"no\nroom"}}"#);
        assert_eq!(refused.as_deref(), Some("3 figures refused: noroom"));
        let refused = refused_by_otlp(br#"{"partialSuccess":{"rejectedDataPoints":1}}"#);
        assert_eq!(refused.as_deref(), Some("1 figures refused: it does not say why"));
        let refused = refused_by_otlp(b"2c\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"2\"}}\r\n0\r\n\r\n");
        assert_eq!(refused.as_deref(), Some("2 figures refused: it does not say why"));
        for body in
            ["", "{}", "}{", r#"{"partialSuccess":{}}"#, r#"{"partialSuccess":{"rejectedDataPoints":0}}"#, "[1]"]
        {
            assert_eq!(refused_by_otlp(body.as_bytes()), None, "{body}");
        }
    }
}

use taut_record::stats::{ExponentialHistogram, SCALE};

use super::family::{Family, Kind, Sample, Value, classic_bounds};

/// Of [`protobuf`], as Prometheus asks for it.
pub const MEDIA_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Where native histograms count what is longer than every number: the bucket behind that of the largest one.
const BEYOND: i32 = (1024 << SCALE) + 1;

/// Figures as messages of `io.prometheus.client.MetricFamily`, each behind its length: the format in which Prometheus
/// scrapes native histograms. Those have the classic buckets as well, for who wants them. A lost message is longer than
/// every bound.
pub fn protobuf(families: &[Family<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families {
        let mut one = Message::default();
        one.bytes(1, family.full_name().as_bytes());
        one.bytes(2, family.help.as_bytes());
        // MetricType
        one.varint(
            3,
            match family.kind {
                Kind::Counter => 0,
                Kind::Gauge => 1,
                Kind::Histogram => 4,
            },
        );
        for sample in &family.samples {
            one.bytes(4, &metric(sample, family.kind).0);
        }
        varint(&mut bytes, one.0.len() as u64);
        bytes.extend(one.0);
    }
    bytes
}

fn metric(sample: &Sample<'_>, kind: Kind) -> Message {
    let mut metric = Message::default();
    for (name, value) in &sample.labels {
        let mut pair = Message::default();
        pair.bytes(1, name.as_bytes());
        pair.bytes(2, value.as_bytes());
        metric.bytes(1, &pair.0);
    }
    match sample.value {
        Value::Number(value) => {
            let mut number = Message::default();
            number.double(1, value);
            metric.bytes(if kind == Kind::Counter { 3 } else { 2 }, &number.0);
        }
        Value::Histogram(value) => metric.bytes(7, &histogram(value).0),
    }
    metric
}

fn histogram(value: &ExponentialHistogram) -> Message {
    let mut message = Message::default();
    let messages = value.count() + value.lost();
    message.varint(1, messages);
    message.double(2, value.sum_s());
    let bounds = classic_bounds().map(|index| (ExponentialHistogram::bound_s(index), value.count_to(index)));
    for (bound, count) in bounds.chain([(f64::INFINITY, messages)]) {
        let mut bucket = Message::default();
        bucket.varint(1, count);
        bucket.double(2, bound);
        message.bytes(3, &bucket.0);
    }
    message.signed(5, i64::from(SCALE));
    // Below a nanosecond there is nothing but 0.
    message.double(6, 1e-10);
    message.varint(7, value.zeros());
    let buckets: Vec<(i32, u64)> =
        value.buckets().chain(Some((BEYOND, value.lost())).filter(|&(_, lost)| lost > 0)).collect();
    // Stretches of buckets: how many are left out before each, the first from 0, and how many there are.
    let mut spans: Vec<(i32, u64)> = Vec::new();
    let mut next = 0;
    for &(index, _) in &buckets {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        next = index + 1;
    }
    for (offset, length) in spans {
        let mut span = Message::default();
        span.signed(1, i64::from(offset));
        span.varint(2, length);
        message.bytes(12, &span.0);
    }
    let mut before = 0;
    for (_, count) in buckets {
        message.signed(13, count.wrapping_sub(before).cast_signed());
        before = count;
    }
    message
}

/// A message of Protocol Buffers that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, field: u64, value: u64) {
        varint(&mut self.0, field << 3);
        varint(&mut self.0, value);
    }

    /// `sint64`: the sign is in the lowest bit.
    fn signed(&mut self, field: u64, value: i64) {
        self.varint(field, ((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn double(&mut self, field: u64, value: f64) {
        varint(&mut self.0, field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        varint(&mut self.0, field << 3 | 2);
        varint(&mut self.0, value.len() as u64);
        self.0.extend(value);
    }
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::super::family::Unit;
    use super::*;

    /// By hand, from the `.proto` file of Prometheus.
    #[test]
    fn a_gauge_is_the_bytes_of_the_definition() {
        let labels = vec![("a", "b".to_owned())];
        let samples = vec![Sample { labels, value: Value::Number(1.0) }];
        let family = Family { name: "x", help: "X".to_owned(), kind: Kind::Gauge, unit: Unit::Plain, samples };
        let expected = [
            &[34, 0x0A, 6][..],
            b"taut_x",
            &[0x12, 1, b'X', 0x18, 1],
            &[0x22, 19, 0x0A, 6, 0x0A, 1, b'a', 0x12, 1, b'b', 0x12, 9, 0x09],
            &1.0_f64.to_le_bytes(),
        ];
        assert_eq!(protobuf(&[family]), expected.concat());
    }

    #[test]
    fn numbers_are_shortened_and_signs_are_in_the_lowest_bit() {
        let mut message = Message::default();
        message.varint(1, 300);
        message.signed(2, -1);
        message.signed(2, 64);
        message.signed(2, i64::MIN);
        assert_eq!(message.0[..9], [8, 0xAC, 2, 16, 1, 16, 0x80, 1, 16]);
        assert_eq!(message.0[9..], [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]);
    }
}

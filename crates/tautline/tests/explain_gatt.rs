//! `taut explain` of what goes over attributes, in logs made here byte by byte.

mod support;

use serde_json::Value;
use support::{parse, taut, text};

/// 1970-01-01 in microseconds since the year 0.
const UNIX_EPOCH_US: u64 = 0x00dc_ddb3_0f2f_8000;
const MS: u64 = 1000;

/// A log of a client on a link of 30 ms, in btsnoop 1002.
struct Log {
    bytes: Vec<u8>,
    /// In microseconds.
    at: u64,
}

impl Log {
    fn new() -> Self {
        let mut log = Self { bytes: b"btsnoop\0\0\0\0\x01\0\0\x03\xea".to_vec(), at: 0 };
        // LE Connection Complete: handle 0x40, central, 24 units of 1.25 ms.
        log.record(3, &[4, 0x3e, 19, 1, 0, 0x40, 0, 0, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 0x2a, 0, 0]);
        // LE Data Length Change: 251 bytes both ways.
        log.record(3, &[4, 0x3e, 11, 7, 0x40, 0, 251, 0, 0x48, 8, 251, 0, 0x48, 8]);
        log
    }

    fn record(&mut self, flags: u32, packet: &[u8]) {
        let length = packet.len() as u32;
        for word in [length, length, flags, 0] {
            self.bytes.extend(word.to_be_bytes());
        }
        self.bytes.extend((UNIX_EPOCH_US + self.at).to_be_bytes());
        self.bytes.extend(packet);
    }

    fn att(&mut self, is_received: bool, pdu: &[u8]) {
        let length = pdu.len() as u16;
        let mut packet = vec![2, 0x40, if is_received { 0x20 } else { 0 }];
        packet.extend((length + 4).to_le_bytes());
        packet.extend(length.to_le_bytes());
        packet.extend([4, 0]);
        packet.extend(pdu);
        self.record(u32::from(is_received), &packet);
        if !is_received {
            // Through after a millisecond.
            self.at += MS;
            self.record(3, &[4, 0x13, 5, 1, 0x40, 0, 1, 0]);
        }
    }

    fn asks(&mut self, question: &[u8], after_us: u64, answer: &[u8]) {
        let at = self.at;
        self.att(false, question);
        self.at = at + after_us;
        self.att(true, answer);
    }

    fn mtu(&mut self, mtu: u16) {
        let [low, high] = mtu.to_le_bytes();
        self.asks(&[2, low, high], 30 * MS, &[3, low, high]);
    }

    /// Handle 3 is of the heart rate, 6 of another type.
    fn discovers(&mut self) {
        self.asks(&[8, 1, 0, 0xff, 0xff, 3, 0x28], 30 * MS, &[9, 7, 2, 0, 0x10, 3, 0, 0x37, 0x2a]);
        let mut long = vec![9, 21, 5, 0, 8, 6, 0];
        long.extend((1..=16).rev());
        self.asks(&[8, 4, 0, 0xff, 0xff, 3, 0x28], 30 * MS, &long);
    }

    fn explain(&self, options: &[&str]) -> std::process::Output {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("client.btsnoop");
        std::fs::write(&path, &self.bytes).unwrap();
        let output = taut().arg("explain").args(options).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    }

    /// What went over handles, in either direction.
    fn gatt(&self) -> Vec<Value> {
        let document = parse(&self.explain(&["--json"]));
        let directions = document["files"][0]["worst"].as_array().unwrap().clone();
        directions.into_iter().map(|direction| direction["channel"]["gatt"].clone()).filter(Value::is_object).collect()
    }
}

fn write_requests(log: &mut Log, count: u64, turn_us: u64, pause_us: u64, value: usize) {
    for n in 0..count {
        let mut request = vec![0x12, 6, 0];
        request.extend(vec![n as u8; value]);
        log.asks(&request, turn_us, &[0x13]);
        log.at += pause_us;
    }
}

#[test]
fn write_requests_that_wait_for_their_answers_are_limited_by_their_turn_and_by_a_small_mtu() {
    let mut log = Log::new();
    log.discovers();
    write_requests(&mut log, 50, 60 * MS, 100, 20);
    let gatt = &log.gatt()[0];
    assert_eq!((&gatt["att_mtu_bytes"], &gatt["is_mtu_exchanged"]), (&Value::from(23), &Value::Bool(false)));
    let it = &gatt["handles"][0];
    assert_eq!(it["uuid"], "01020304-0506-0708-090a-0b0c0d0e0f10");
    assert_eq!((&it["kind"], &it["count"], &it["bytes"]), (&"write_request".into(), &50.into(), &1000.into()));
    assert_eq!((&it["turn_p50_ns"], &it["turn_p99_ns"]), (&60_000_000.into(), &60_000_000.into()));
    assert_eq!(it["intervals_per_turn"], 2.0);
    assert_eq!(it["limits"], serde_json::json!(["turn", "mtu"]));
    let rate = it["bits_per_second"].as_f64().unwrap();
    let truth = 8.0 * 1000.0 / (50.0 * 0.060 + 49.0 * 0.0001);
    assert!((rate - truth).abs() < 2.0, "{rate} {truth}");
    let full = text(&log.explain(&["--full"]).stdout);
    for part in
        ["ATT MTU 23 (the least", "0x0006", "write req.", "turn, mtu", "2.0 connection intervals", "Write Commands"]
    {
        assert!(full.contains(part), "{part} in {full}");
    }
    assert!(full.lines().all(|line| line.chars().count() <= 100), "{full}");
}

#[test]
fn a_program_that_pauses_limits_and_a_large_mtu_does_not() {
    let mut log = Log::new();
    log.mtu(247);
    write_requests(&mut log, 50, 60 * MS, 500 * MS, 244);
    let gatt = &log.gatt()[0];
    assert_eq!((&gatt["att_mtu_bytes"], &gatt["is_mtu_exchanged"]), (&Value::from(247), &Value::Bool(true)));
    assert_eq!(gatt["handles"][0]["limits"], serde_json::json!(["program"]));
}

#[test]
fn notifications_indications_reads_and_errors_are_told_apart_by_handle() {
    let mut log = Log::new();
    log.discovers();
    for n in 0..20_u8 {
        log.at += 30 * MS;
        log.att(true, &[0x1b, 3, 0, 1, n]);
        log.asks(&[0x0a, 6, 0], 31 * MS, &[0x0b, 1, 2, 3, 4]);
        if n % 4 == 0 {
            log.asks(&[0x12, 6, 0, 1], 32 * MS, &[0x01, 0x12, 6, 0, 3]);
            let at = log.at;
            log.att(true, &[0x1d, 6, 0, 9]);
            log.at = at + 2 * MS;
            log.att(false, &[0x1e]);
        }
    }
    let mut rows: Vec<(String, u64, u64, u64, u64)> = Vec::new();
    for gatt in log.gatt() {
        for it in gatt["handles"].as_array().unwrap() {
            let number = |name: &str| it[name].as_u64().unwrap();
            let kind = it["kind"].as_str().unwrap().to_owned();
            rows.push((kind, number("handle"), number("count"), number("bytes"), number("errors")));
        }
    }
    rows.sort();
    let expected = [
        ("indication", 6, 5, 5, 0),
        ("notification", 3, 20, 40, 0),
        ("read", 6, 20, 80, 0),
        ("write_request", 6, 5, 5, 5),
    ];
    assert_eq!(
        rows,
        expected.map(|(kind, handle, count, bytes, errors)| (kind.to_owned(), handle, count, bytes, errors))
    );
    let named = log.gatt().iter().any(|gatt| gatt["handles"][0]["name"] == "Heart Rate");
    assert!(named, "{:?}", log.gatt());
}

#[test]
fn more_handles_than_are_followed_are_counted() {
    let mut log = Log::new();
    for handle in 1..=140_u16 {
        let [low, high] = handle.to_le_bytes();
        log.at += MS;
        log.att(false, &[0x52, low, high, 1]);
    }
    let gatt = &log.gatt()[0];
    assert_eq!((gatt["handles"].as_array().unwrap().len(), &gatt["beyond"]), (128, &Value::from(12)));
    let full = text(&log.explain(&["--full"]).stdout);
    assert!(full.contains("12 PDUs are of further handles") && full.contains("116 more are in --json"), "{full}");
}

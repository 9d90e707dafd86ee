//! `taut explain` of what an ideal sniffer beside the simulator's radio would have seen, held against what the
//! simulator itself knows of each PDU and each connection event.

mod support;

use serde_json::Value;
use support::{parse, taut, text};
use taut_air::{AirEvent, Happening, Observer, Purpose, Role, Scenario, Simulation};
use taut_report::capture::AirCapture;

/// What the simulator knows, by side: central, peripheral.
#[derive(Debug, Default, PartialEq)]
struct Truth {
    data: [u64; 2],
    empty: [u64; 2],
    repeated: [u64; 2],
    air_ns: [u64; 2],
    events: u64,
}

/// Counts, and writes the capture.
struct Both {
    truth: Truth,
    capture: AirCapture<Vec<u8>>,
}

impl Observer for Both {
    fn event(&mut self, event: &AirEvent<'_>) {
        self.capture.event(event);
        let truth = &mut self.truth;
        match event.what {
            Happening::EventBegins { .. } => truth.events += 1,
            Happening::Pdu { from, purpose, retransmission, duration, .. } => {
                let side = usize::from(from == Role::Peripheral);
                match purpose {
                    Purpose::Advertising => {}
                    Purpose::Empty => truth.empty[side] += 1,
                    _ if retransmission => truth.repeated[side] += 1,
                    _ => {
                        truth.data[side] += 1;
                        truth.air_ns[side] += duration;
                    }
                }
            }
            _ => {}
        }
    }
}

fn air(settings: &[(&str, &str)], seed: u64) -> (Truth, Vec<u8>) {
    let mut scenario = Scenario::default();
    for (name, value) in settings {
        scenario.set(name, value).unwrap();
    }
    let capture = AirCapture::begin(Vec::new()).unwrap();
    let mut both = Both { truth: Truth::default(), capture };
    Simulation::new(&scenario, seed).unwrap().run(2_000_000_000, &mut both);
    (both.truth, both.capture.finish().unwrap())
}

fn explain(file: &[u8], options: &[&str]) -> std::process::Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("air.pcapng");
    std::fs::write(&path, file).unwrap();
    let output = taut().arg("explain").args(options).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn directions(file: &[u8]) -> Vec<Value> {
    let document = parse(&explain(file, &["--json"]));
    document["files"][0]["worst"].as_array().unwrap().clone()
}

fn share(direction: &Value, holder: &str) -> f64 {
    let held = direction["breakdown"].as_array().unwrap().iter().find(|held| held["holder"] == holder);
    held.map_or(0.0, |held| held["share"].as_f64().unwrap())
}

#[test]
fn what_is_counted_is_what_was_on_the_air() {
    for settings in [
        &[][..],
        &[("ci", "7.5ms")],
        &[("ci", "50ms"), ("phy", "2m")],
        &[("length", "27")],
        &[("encrypted", "true")],
        &[("per", "0.05")],
    ] {
        let (truth, file) = air(settings, 7);
        let mut told = Truth::default();
        for direction in directions(&file) {
            let side = usize::from(direction["from"].as_str().unwrap().starts_with("peripheral"));
            let count = |value: &Value| value.as_u64().unwrap();
            let facts = &direction["air"];
            told.data[side] = count(&direction["segments"]);
            told.repeated[side] = count(&direction["repeated_segments"]);
            told.empty[side] = count(&facts["empty_pdus"]);
            told.air_ns[side] = count(&facts["air_ns"]);
            told.events = count(&facts["events"]);
            assert!(facts["is_interval_told"].as_bool().unwrap() && count(&facts["unseen_pdus"]) == 0, "{facts}");
            let parts = direction["breakdown"].as_array().unwrap().iter().map(|held| count(&held["held_ns"]));
            assert_eq!(parts.sum::<u64>(), count(&direction["span_ns"]));
        }
        assert_eq!(told, truth, "{settings:?}");
    }
}

#[test]
fn losses_are_found_where_there_are_some_and_only_there() {
    for (settings, is_lossy) in [(&[("per", "0.2")][..], true), (&[][..], false)] {
        let (_, file) = air(settings, 3);
        let all = directions(&file);
        let is_found = |direction: &Value| {
            let verdicts = direction["verdicts"].as_array().unwrap();
            verdicts.iter().any(|on| on["cause"] == "loss" && on["verdict"] == "found")
        };
        assert_eq!(all.iter().any(is_found), is_lossy, "{all:?}");
        let most = all.iter().map(|direction| share(direction, "loss_recovery")).fold(0.0, f64::max);
        assert_eq!(most > 0.0, is_lossy, "{most}");
    }
}

#[test]
fn the_text_fits_and_names_what_a_sniffer_can_not_see() {
    let (_, file) = air(&[], 7);
    let short = text(&explain(&file, &[]).stdout);
    for part in ["1 link", "interval ", "LE 1M", "CAN'T TELL sending_host", "btmon -w"] {
        assert!(short.contains(part), "{part} in {short}");
    }
    assert!(short.lines().count() <= 15 && short.lines().all(|line| line.chars().count() <= 100), "{short}");
    let full = text(&explain(&file, &["--full"]).stdout);
    for part in ["connection events of", "empty ones", "Access address 0x"] {
        assert!(full.contains(part), "{part} in {full}");
    }
}

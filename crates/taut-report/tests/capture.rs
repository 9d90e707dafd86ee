//! Captures of a simulated radio, read by tshark: its dissectors must have nothing to complain of.

#[path = "../../taut-air/tests/hosts/mod.rs"]
mod hosts;

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use hosts::{CENTRAL, Hosts, MS, PERIPHERAL, SIDES, SUCCESS};
use taut_air::hci::command as op;
use taut_air::{Counters, Observer, Role, Scenario, Simulation};
use taut_report::capture::{AirCapture, HostCapture};

fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-Y", filter, "-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

const COMPLAINTS: &str =
    "_ws.malformed || _ws.expert.severity >= 0x00400000 || btle.crc.incorrect || btle.crc.indeterminate";
const FRAME: &[&str] = &["frame.number"];

fn tshark_is_missing(test: &str) -> bool {
    if Command::new("tshark").arg("--version").output().is_ok() {
        return false;
    }
    let line = format!("SKIPPED: {test}: tshark is missing");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("TAUT_SKIP_LOG") {
        writeln!(OpenOptions::new().append(true).create(true).open(log).unwrap(), "{line}").unwrap();
    }
    true
}

fn scenario(set: &[(&str, &str)]) -> Scenario {
    let mut scenario = Scenario::default();
    set.iter().for_each(|(name, value)| scenario.set(name, value).unwrap());
    scenario
}

fn capture(path: &Path, scenario: &Scenario) -> Counters {
    let mut capture = AirCapture::begin(fs::File::create(path).unwrap()).unwrap();
    let outcome = Simulation::new(scenario, 7).unwrap().run(1_000_000_000, &mut capture);
    capture.finish().unwrap();
    outcome.counters
}

#[test]
fn the_air_reads_without_complaint_at_every_rate() {
    if tshark_is_missing("the_air_reads_without_complaint_at_every_rate") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for phy in ["1m", "2m", "s2", "s8"] {
        for encrypted in ["false", "true"] {
            let path = directory.path().join(format!("{phy}-{encrypted}.pcapng"));
            let counters = capture(&path, &scenario(&[("phy", phy), ("encrypted", encrypted), ("ci", "100ms")]));
            let complaints = tshark(&path, COMPLAINTS, &["frame.number", "_ws.col.Info", "_ws.expert.message"]);
            assert!(complaints.is_empty(), "{phy} {encrypted}: {complaints:#?}");
            let data =
                tshark(&path, "btl2cap.cid >= 0x40 && !btl2cap.cmd_code", &["btl2cap.length", "btl2cap.le_sdu_length"]);
            assert_eq!(data.len() as u64, counters.data_pdus, "{phy} {encrypted}");
            assert_eq!(data[..3], ["247\t672", "247\t", "180\t"], "{phy} {encrypted}");
            let whole = tshark(&path, "btl2cap.le_sdu.reassembled.length == 672", FRAME);
            assert!(
                whole.len() as u64 <= counters.sdus_written && whole.len() as u64 + 2 >= counters.sdus_read * 6 / 7
            );
        }
    }
}

#[test]
fn cipher_text_stays_cipher_text_and_reads_without_complaint() {
    if tshark_is_missing("cipher_text_stays_cipher_text_and_reads_without_complaint") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("encrypted.pcapng");
    let capture = Rc::new(RefCell::new(AirCapture::begin(fs::File::create(&path).unwrap()).unwrap()));
    let mut hosts = Hosts::new(&[]);
    let watching = Rc::clone(&capture);
    hosts.watch = Some(Box::new(move |event| watching.borrow_mut().event(event)));
    let handles = hosts.connect(6);
    // The beginning of a frame of a channel that there is not, L2CAP's header and all.
    let frame = [16, 0, 0x44, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    for key in [[7; 16], [8; 16]] {
        SIDES.into_iter().for_each(|number| hosts.send_data(number, handles, &frame));
        hosts.pass(50 * MS);
        assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], key), SUCCESS);
        hosts.pass(80 * MS);
        assert!(hosts.key_wanted().is_some());
        hosts.reply(handles[PERIPHERAL], key);
        hosts.pass(80 * MS);
    }
    SIDES.into_iter().for_each(|number| hosts.send_data(number, handles, &frame));
    hosts.ok(CENTRAL, op::LE_READ_REMOTE_FEATURES, &handles[CENTRAL]);
    hosts.pass(50 * MS);
    drop(hosts);
    Rc::into_inner(capture).unwrap().into_inner().finish().unwrap();

    let complaints = tshark(&path, COMPLAINTS, &["frame.number", "_ws.col.Info", "_ws.expert.message"]);
    assert!(complaints.is_empty(), "{complaints:#?}");
    // Only what was sent before there was a key is dissected.
    assert_eq!(tshark(&path, "btl2cap.cid == 0x44", &["btl2cap.length"]), ["16", "16"]);
    // LL_ENC_REQ, LL_ENC_RSP, LL_START_ENC_REQ, LL_START_ENC_RSP twice; LL_PAUSE_ENC_REQ and
    // LL_PAUSE_ENC_RSP; features.
    let control = tshark(&path, "btle.control_opcode", &["btle.control_opcode", "btle_rf.flags"]);
    let expected = "3 4 5 6* 6* 10* 11* 11 3 4 5 6* 6* 8* 9*";
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let told = |line: &String| {
        let (opcode, flags) = line.split_once('\t').unwrap();
        // Deciphered, MIC checked and valid.
        let is_sealed = number(flags) & 0x3008 == 0x3008;
        format!("{}{}", number(opcode), if is_sealed { "*" } else { "" })
    };
    assert_eq!(control.iter().map(told).collect::<Vec<_>>().join(" "), expected);
    // Data after them is longer by its MIC and says nothing of what it is.
    let sealed = tshark(&path, "btle.length == 24", &["btle.data_header.llid", "btle_rf.flags"]);
    assert!(
        sealed.len() == 4 && sealed.iter().all(|line| number(line.split_once('\t').unwrap().1) & 8 == 0),
        "{sealed:?}"
    );
}

#[test]
fn losses_show_as_repetitions_and_nothing_else() {
    if tshark_is_missing("losses_show_as_repetitions_and_nothing_else") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lossy.pcapng");
    let counters = capture(&path, &scenario(&[("per", "0.1"), ("ci", "30ms")]));
    assert!(counters.retransmissions > 5);
    assert!(tshark(&path, "_ws.malformed || btle.crc.incorrect", FRAME).is_empty());
}

#[test]
fn both_hosts_read_without_complaint() {
    if tshark_is_missing("both_hosts_read_without_complaint") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for side in [Role::Central, Role::Peripheral] {
        let path = directory.path().join(format!("{}.btsnoop", side.name()));
        let mut capture = HostCapture::begin(fs::File::create(&path).unwrap(), side).unwrap();
        let outcome = Simulation::new(&scenario(&[]), 7).unwrap().run(1_000_000_000, &mut capture);
        capture.finish().unwrap();
        let complaints = tshark(
            &path,
            "_ws.malformed || _ws.expert.severity >= 0x00600000",
            &["frame.number", "_ws.col.Info", "_ws.expert.message"],
        );
        assert!(complaints.is_empty(), "{side:?}: {complaints:#?}");
        let credits = tshark(&path, "btl2cap.cmd_code == 0x16", FRAME).len() as u64;
        assert!(credits > 0 && credits <= outcome.counters.credit_packets, "{side:?}");
        assert!(!tshark(&path, "bthci_evt.code == 0x13", FRAME).is_empty(), "{side:?}");
    }
}

//! Captures of a simulated radio, read by tshark: its dissectors must have nothing to complain of.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use taut_report::capture::{AirCapture, CapturedPdu, Connection, HostCapture, Phy, Sender, Towards};
use taut_time::Instant;

const CONNECTION: Connection = Connection {
    access_address: 0x50c2_3a97,
    crc_init: 0xa1_b2c3,
    central: [0xc0, 0, 0, 0, 0, 1],
    peripheral: [0xc0, 0, 0, 0, 0, 2],
    interval_ns: 7_500_000,
    latency: 0,
    supervision_timeout_ns: 420_000_000,
    hop: 5,
};

const SIGNALLING: u16 = 5;
const CHANNEL: u16 = 0x40;
const LLID_CONTINUATION: u8 = 1;
const LLID_START: u8 = 2;

/// L2CAP frames of a channel that is opened and carries an SDU of 672 octets in three PDUs, and the credits for it.
fn frames() -> Vec<(Sender, Vec<u8>)> {
    let frame = |channel: u16, payload: &[u8]| {
        let mut frame = (payload.len() as u16).to_le_bytes().to_vec();
        frame.extend(channel.to_le_bytes());
        frame.extend(payload);
        frame
    };
    // LE_CREDIT_BASED_CONNECTION_REQ: SPSM 0xfe, channel, MTU 672, MPS 247, credits 3; its answer; FLOW_CONTROL_CREDIT_IND.
    let request = [0x14, 1, 10, 0, 0xfe, 0, 0x40, 0, 0xa0, 2, 247, 0, 3, 0];
    let response = [0x15, 1, 10, 0, 0x40, 0, 0xa0, 2, 247, 0, 3, 0, 0, 0];
    let credit = [0x16, 2, 4, 0, 0x40, 0, 3, 0];
    let mut sdu = vec![0xa0, 2];
    sdu.extend((0..672).map(|i| i as u8));
    let mut frames =
        vec![(Sender::Central, frame(SIGNALLING, &request)), (Sender::Peripheral, frame(SIGNALLING, &response))];
    frames.extend(sdu.chunks(247).map(|part| (Sender::Peripheral, frame(CHANNEL, part))));
    frames.push((Sender::Central, frame(SIGNALLING, &credit)));
    frames
}

fn capture(path: &Path, phy: Phy, encrypted: bool) {
    let mut capture = AirCapture::begin(fs::File::create(path).unwrap()).unwrap();
    capture.connect(Instant::from_nanos(0), &CONNECTION).unwrap();
    let mut at = 2_500_000;
    for (event, (sender, frame)) in frames().into_iter().enumerate() {
        let empty = vec![LLID_CONTINUATION, 0];
        let mut data = vec![LLID_START, frame.len() as u8 + if encrypted { 4 } else { 0 }];
        data.extend(frame);
        data.extend(if encrypted { &[0; 4][..] } else { &[] });
        let (central, peripheral) = if sender == Sender::Central { (data, empty) } else { (empty, data) };
        let (sequence, expected) = (event as u8 & 1, (event as u8 + 1) & 1);
        for (sender, mut octets, next) in
            [(Sender::Central, central, sequence), (Sender::Peripheral, peripheral, expected)]
        {
            octets[0] |= sequence << 3 | next << 2;
            let pdu = CapturedPdu {
                at: Instant::from_nanos(at),
                access_address: CONNECTION.access_address,
                crc_init: CONNECTION.crc_init,
                channel: CONNECTION.data_channel(event as u64),
                phy,
                sender,
                octets: &octets,
                encrypted,
            };
            capture.pdu(&pdu).unwrap();
            at += 2_500_000;
        }
    }
    capture.finish().unwrap();
}

fn tshark(path: &Path, arguments: &[&str]) -> Vec<String> {
    let output = Command::new("tshark").arg("-r").arg(path).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

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

#[test]
fn the_air_reads_without_complaint_at_every_rate() {
    if tshark_is_missing("the_air_reads_without_complaint_at_every_rate") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for phy in [Phy::Le1M, Phy::Le2M, Phy::CodedS8, Phy::CodedS2] {
        for encrypted in [false, true] {
            let path = directory.path().join(format!("{phy:?}-{encrypted}.pcapng"));
            capture(&path, phy, encrypted);
            let complaints = tshark(&path, &["-Y", "_ws.malformed || _ws.expert || btle.crc.incorrect"]);
            assert!(complaints.is_empty(), "{phy:?} {encrypted}: {complaints:#?}");
            assert_eq!(tshark(&path, &[]).len(), 13, "{phy:?}");
            let fields = ["-T", "fields", "-e", "btl2cap.length", "-e", "btl2cap.cid"];
            let lengths: Vec<String> =
                tshark(&path, &fields).into_iter().filter(|line| line.ends_with("\t0x0040")).collect();
            assert_eq!(lengths, ["247\t0x0040", "247\t0x0040", "180\t0x0040"], "{phy:?} {encrypted}");
            let of_the_sdu = tshark(&path, &["-Y", "btl2cap.le_sdu.reassembled.length == 672"]);
            assert_eq!(of_the_sdu.len(), 1, "{phy:?} {encrypted}");
        }
    }
}

#[test]
fn a_host_side_reads_without_complaint() {
    if tshark_is_missing("a_host_side_reads_without_complaint") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.btsnoop");
    let mut capture = HostCapture::begin(fs::File::create(&path).unwrap()).unwrap();
    capture.connected(Instant::from_nanos(0), 0x40, Sender::Peripheral, &CONNECTION).unwrap();
    for (i, (sender, frame)) in frames().into_iter().enumerate() {
        let mut packet = vec![2, 0x40, 0x20];
        packet.extend((frame.len() as u16).to_le_bytes());
        packet.extend(frame);
        let towards = if sender == Sender::Central { Towards::Host } else { Towards::Controller };
        capture.packet(Instant::from_nanos(1_000_000 * i as u64), towards, &packet).unwrap();
        if towards == Towards::Controller {
            // Number Of Completed Packets: one handle, one packet.
            let at = Instant::from_nanos(1_000_000 * i as u64 + 500_000);
            capture.packet(at, Towards::Host, &[4, 0x13, 5, 1, 0x40, 0, 1, 0]).unwrap();
        }
    }
    capture.finish().unwrap();
    let complaints = tshark(&path, &["-Y", "_ws.malformed || _ws.expert"]);
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert_eq!(tshark(&path, &["-Y", "hci_h4.direction == 0x00 && bthci_acl"]).len(), 4);
    assert_eq!(tshark(&path, &["-Y", "bthci_evt.code == 0x13"]).len(), 4);
}

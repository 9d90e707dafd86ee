//! The files that the pages name, as captures, logs and programs of this size and kind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::requests::{capture, requests};
use crate::support::{taut, text};

/// Captures that the pages name.
const CAPTURES: [&str; 8] = [
    "slow.pcap",
    "slow.pcapng",
    "capture.pcap",
    "before.pcap",
    "names.pcap",
    "voice.pcap",
    "sender.pcap",
    "receiver.pcap",
];
/// A packet in a log of QUIC.
const QLOG: &str = r#"{"qlog_version": "0.3", "trace": {"vantage_point": {"type": "client"}}}
{"time": 1, "name": "transport:packet_sent", "data": {"header": {"packet_type": "1RTT", "packet_number": 1}, "frames": [{"frame_type": "stream", "stream_id": 0, "length": 10}]}}
"#;

/// In a directory of their own.
pub(super) fn files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    for name in CAPTURES {
        write(name, &capture());
    }
    write("after.pcap", &requests(false));
    write("server.qlog", QLOG.as_bytes());
    write("tests.sh", b"#!/bin/sh\nsleep 0.2\n");
    fs::set_permissions(directory.path().join("tests.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let plans = fs::read_to_string(root().join("docs/mesh.md")).unwrap();
    let plan = plans.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    write("mesh.toml", plan.as_bytes());
    for (from, to) in [("examples/check", "examples/check"), ("examples/web/site", "site")] {
        let to = directory.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-r").arg(root().join(from)).arg(to).status().unwrap();
        assert!(copied.success());
    }
    // A link as its hosts and a sniffer see it.
    let mut radio = taut();
    radio.args(["air", "run", "paper-000", "--time", "2s", "--pcapng", "sniffer.pcapng", "--btsnoop", "."]);
    let made = radio.current_dir(directory.path()).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    for (log, name) in [("central", "host.btsnoop"), ("central", "slow.btsnoop")] {
        fs::copy(directory.path().join(format!("{log}.btsnoop")), directory.path().join(name)).unwrap();
    }
    fs::copy(directory.path().join("sniffer.pcapng"), directory.path().join("air.pcapng")).unwrap();
    let mut trace = taut();
    trace.args(["trace", "--events", "slow.events", "--for", "1s", "--"]).arg(env!("CARGO_BIN_EXE_taut"));
    let made = trace.args(["demo", "--for", "1s"]).current_dir(directory.path()).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    directory
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

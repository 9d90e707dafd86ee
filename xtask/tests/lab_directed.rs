//! An adapter that advertises connects all the same: Linux takes the peripheral's role then, by
//! directed advertising at a device that waits for it.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{Lab, complaints, note_skipped};

/// hci1 advertises; hci0 listens for what is directed at it (mgmt's Add Device, "allow incoming connection").
const SCRIPT: &str = "
taut air attach two-nodes --set ci=15ms --on --btsnoop $OUT --pcapng $OUT/air.pcapng >/tmp/radio & radio=$!
until grep -q hci1 /tmp/radio; do sleep 0.1; done
sleep 1
l2test -r -i hci0 -P 131 -V le_public -b 672 >$OUT/l2test 2>&1 &
btmgmt --index 0 add-device -t 1 -a 1 00:AA:01:01:00:00 >$OUT/btmgmt 2>&1 </dev/null & sleep 2
taut stream 'l2cap://00:AA:01:00:00:00/131?adapter=hci1' --plain --direction up --time 1s --rounds 1 --json >$OUT/stream.json || exit 10
sleep 3
kill -INT $radio; wait $radio
exit 0
";

#[test]
fn an_adapter_that_advertises_connects_as_the_peripheral() {
    let test = "an_adapter_that_advertises_connects_as_the_peripheral";
    for tool in ["btmgmt", "l2test", "btmon"] {
        if !Path::new("/usr/bin").join(tool).exists() {
            return note_skipped(test, &format!("{tool} is missing: apt-get install bluez"));
        }
    }
    let Some(lab) = Lab::ready(test) else { return };
    let out = lab.path("out");
    let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--module", "hci_vhci", "--out"]);
    command.arg(&out).args(["--file", "/usr/bin/btmgmt", "--file", "/usr/bin/l2test"]);
    let output = command.args(["--", "sh", "-c", SCRIPT]).output().unwrap();
    let told = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_default();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}{}{}", told("l2test"), told("btmgmt"));
    let stream: Value = serde_json::from_str(&told("stream.json")).unwrap();
    assert!(stream["results"][0]["bytes"].as_u64() > Some(20_000), "{stream}");

    for side in ["central", "peripheral"] {
        assert_eq!(complaints(&out.join(format!("{side}.btsnoop"))), [""; 0], "{side}");
    }
    let listing = Command::new("btmon").arg("--read").arg(out.join("peripheral.btsnoop")).output().unwrap();
    let listing = String::from_utf8_lossy(&listing.stdout);
    let (_, connected) = listing.split_once("LE Connection Complete (0x01)").expect("a connection");
    assert!(listing.contains("Connectable directed - ADV_DIRECT_IND"), "{listing}");
    assert!(connected.lines().take(4).any(|line| line.contains("Role: Peripheral")), "{connected}");
    lab.assert_nothing_is_left();
}

//! Encrypted links between two virtual controllers: real kernels pair by themselves, the air carries
//! cipher text, recordings say what is in force, and what can't be had is refused with what to do.

mod support;

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::{Lab, complaints, note_skipped};

/// The server on 129 wants encryption, that on 131 does not. Who connects is the central; each side wants it once.
const SCRIPT: &str = "
for direction in up down; do
    taut stream @peer --direction $direction --time 1s --rounds 2 --json >$OUT/$direction.json || exit 10
done
taut serve 'l2cap://any/131?adapter=hci1' >$OUT/plain & server=$!
until grep -q listening $OUT/plain; do sleep 0.1; done
open='l2cap://00:AA:01:01:00:00/131?adapter=hci0'
taut echo $open'&security=medium' --count 20 --rounds 1 --json >$OUT/asked.json || exit 12
taut echo $open'&security=high' --count 20 --rounds 1 2>$OUT/high && exit 13
# Nothing is left to connect with: the next link begins anew, and in clear text.
sleep 5
taut echo $open --count 20 --rounds 1 --json >$OUT/open.json || exit 14
kill -INT $server; wait $server
exit 0
";

fn secured(kernel: &str, test: &str) {
    for tool in ["btmon", "tshark"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return note_skipped(test, &format!("{tool} is missing: apt-get install bluez tshark"));
        }
    }
    let Some(lab) = Lab::ready(test) else { return };
    let out = lab.path("out");
    let mut command = lab.command(&["pair", "--kernel", kernel, "--icount", "--ci", "15ms", "--capture"]);
    command.args(["--peer", "security=medium", "--out"]).arg(&out);
    let output = command.args(["--", "sh", "-c", SCRIPT]).output().unwrap();
    let told = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_default();
    assert!(output.status.success(), "{kernel}: {}{}", String::from_utf8_lossy(&output.stderr), told("high"));

    let row = |name: &str| serde_json::from_str::<Value>(&told(&format!("{name}.json"))).unwrap()["results"][0].clone();
    let has = |row: &Value, option: &str| row["options"].as_array().unwrap().iter().any(|is| is == option);
    for name in ["up", "down", "asked"] {
        let row = row(name);
        for option in ["security_level=2", "encryption_key_bytes=16", "encrypted=1"] {
            assert!(has(&row, option), "{kernel} {name}: {option}: {row}");
        }
    }
    for name in ["up", "down"] {
        let row = row(name);
        assert!(row["bytes"].as_u64() > Some(20_000) && row["lost_bytes"] == 0, "{kernel} {name}: {row}");
    }
    let open = row("open");
    assert!(has(&open, "security_level=1") && !has(&open, "encrypted=1"), "{kernel}: {open}");
    let high = told("high");
    assert!(high.contains("reason 0x03") && high.contains("security=medium"), "{kernel}: {high}");

    for side in ["central", "peripheral"] {
        assert_eq!(complaints(&out.join(format!("{side}.btsnoop"))), [""; 0], "{kernel} {side}");
    }
    let tshark = |filter: &str, field: &str| {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(out.join("air.pcapng")).args(["-Y", filter, "-T", "fields", "-e", field]);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // Where both sides ask for features at once tshark takes the answers for out of order, encrypted or not.
    let complaints = "(_ws.malformed || _ws.expert.severity >= 0x00400000 || btle.crc.incorrect || btle.crc.indeterminate) && !(btle.control_opcode == 9)";
    assert_eq!(tshark(complaints, "_ws.expert.message"), [""; 0], "{kernel}");
    // LL_ENC_REQ, LL_ENC_RSP, LL_START_ENC_REQ, LL_START_ENC_RSP of both sides.
    let started = tshark("btle.control_opcode >= 3 && btle.control_opcode <= 6", "btle.control_opcode");
    assert_eq!(started[..5], ["0x03", "0x04", "0x05", "0x06", "0x06"], "{kernel}");
    lab.assert_nothing_is_left();
}

#[test]
fn linux_5_10_pairs_and_encrypts_by_itself() {
    secured("5.10", "linux_5_10_pairs_and_encrypts_by_itself");
}

#[test]
fn linux_6_12_pairs_and_encrypts_by_itself() {
    secured("6.12", "linux_6_12_pairs_and_encrypts_by_itself");
}

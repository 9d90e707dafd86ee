//! The check list and the script of docs/raspberry-pi.md, between two simulated controllers under stock kernels.

mod support;

use std::fs;

use serde_json::Value;
use support::Lab;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/raspberry-pi/paper-000.sh");

/// Both ends in one guest, each on an adapter of its own.
const BOTH: &str = "
taut air attach paper-000 --on --json >/tmp/radio &
radio=$!
until [ -s /tmp/radio ]; do sleep 0.1; done
taut doctor --ble --json >$OUT/doctor.json || exit 10
ADAPTER=hci1 sh /root/paper-000.sh serve >/tmp/serve &
server=$!
until grep -q listening /tmp/serve; do sleep 0.1; done
TIME=4s OUT=$OUT/figures sh /root/paper-000.sh measure 00:AA:01:01:00:00 >$OUT/told || exit 11
kill -INT $server
wait $server
sh /root/paper-000.sh 2>$OUT/usage && exit 12
kill -INT $radio
wait $radio || true
";

fn check<'a>(doctor: &'a Value, what: &str) -> &'a Value {
    let rows = doctor["results"].as_array().unwrap();
    rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("no check {what}: {doctor:#}"))
}

#[test]
fn the_script_for_two_boards_repeats_what_was_published() {
    let Some(lab) = Lab::ready("the_script_for_two_boards_repeats_what_was_published") else { return };
    let mut command = lab.command(&["run", "--kernel", "5.10", "--icount", "--module", "hci_vhci"]);
    command.args(["--timeout", "30m", "--out"]).arg(lab.path("out"));
    let output = command.args(["--file", &format!("{SCRIPT}:/root/paper-000.sh"), "--", "sh", "-c", BOTH]).output();
    let output = output.unwrap();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let read = |name: &str| fs::read_to_string(lab.path("out").join(name)).unwrap();

    let doctor: Value = serde_json::from_str(&read("doctor.json")).unwrap();
    let found = |what: &str| {
        let row = check(&doctor, what);
        assert_eq!(row["works"], true, "{row:#}");
        row["found"].as_str().unwrap().to_owned()
    };
    assert_eq!((found("Bluetooth of this kernel").as_str(), found("adapters").as_str()), ("there", "2"));
    for adapter in ["hci0", "hci1"] {
        assert!(found(&format!("LE of {adapter}")).ends_with(" is on"), "{doctor:#}");
        assert_eq!(found(&format!("LE packets of {adapter}")), "up to 251 bytes");
        // As the scenario has them.
        assert_eq!(found(&format!("LE buffers of {adapter}")), "8 of 251 bytes");
        assert!(found(&format!("LE PHYs of {adapter}")).starts_with("1M, 2M"), "{doctor:#}");
        assert!(found(&format!("controller of {adapter}")).starts_with("Bluetooth "), "{doctor:#}");
    }
    assert!(found("enhanced credit based channels (ECRED)").starts_with("off"), "{doctor:#}");
    // The published rule.
    assert_eq!(check(&doctor, "credits of L2CAP over LE")["works"], false);

    // Interval, rate, published.
    let told = read("told");
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["interval", "kbit/s", "published"], "{told}");
    let rate = |interval: &str| -> f64 {
        let row = rows.iter().find(|row| row[0] == interval).unwrap_or_else(|| panic!("{interval}: {told}"));
        row[1].parse().unwrap()
    };
    // Of the two published rates that the scenario reproduces; the hosts are a kernel of this machine's.
    for (interval, published) in [("50ms", 52.0), ("7.5ms", 224.8)] {
        let ratio = rate(interval) / published;
        assert!((0.8..1.5).contains(&ratio), "{interval}: {ratio}: {told}");
    }
    assert!(rate("112.5ms") < rate("50ms") && rate("12.5ms") < rate("7.5ms"), "{told}");
    assert_eq!(rows.len(), 7, "{told}");
    let recording: Value = serde_json::from_str(&read("figures/7.5ms.json")).unwrap();
    let row = &recording["results"][0];
    assert_eq!((&row["block_bytes"], &row["direction"]), (&4096.into(), &"down".into()), "{row:#}");
    assert!(row["options"].to_string().contains("connection_interval_us=7500"), "{row:#}");
    assert!(read("usage").contains("paper-000.sh measure ADDRESS"), "{}", read("usage"));
}

#[test]
fn doctor_names_what_is_missing() {
    let Some(lab) = Lab::ready("doctor_names_what_is_missing") else { return };
    // A kernel with Bluetooth, and no adapter; then adapters that nobody has switched on.
    let script = "
taut doctor --ble --json >$OUT/none.json; [ $? = 4 ] || exit 10
taut air attach two-nodes --json >/tmp/radio &
radio=$!
until [ -s /tmp/radio ]; do sleep 0.1; done
taut doctor --ble --json >$OUT/off.json || exit 11
kill -INT $radio
wait $radio || true
";
    let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--module", "hci_vhci", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(lab.path("out").join(name)).unwrap()).unwrap()
    };
    let lacks = |document: &Value, what: &str, found: &str, remedy: &str| {
        let row = check(document, what);
        assert_eq!(row["works"], false, "{row:#}");
        assert!(row["found"].as_str().unwrap().ends_with(found), "{row:#}");
        assert!(row["remedy"].as_str().unwrap().contains(remedy), "{row:#}");
    };
    lacks(&read("none.json"), "adapters", "none", "dtoverlay=disable-bt");
    lacks(&read("off.json"), "LE of hci0", " is off", "bluetoothctl power on");
    assert_eq!(check(&read("off.json"), "adapters")["found"], "2");
}

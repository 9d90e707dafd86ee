//! BR/EDR on the controllers of `taut air attach`: RFCOMM and L2CAP under real kernels, the paper's
//! table with its tail, and stock tools at both ends.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{Lab, note_skipped};

/// 32-byte echoes over RFCOMM at basic rate: the published median is 7.94 ms.
fn rfcomm(test: &str, kernel: &str) {
    let Some(lab) = Lab::ready(test) else { return };
    let mut command = lab.command(&["pair", "--kernel", kernel, "--icount", "--type", "rfcomm"]);
    command.args(["--scenario", "scenarios/paper-003.toml", "--capture", "--out"]).arg(lab.path("out"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = command.args(["--", "taut", "echo", "@peer", "--count", "100", "--rounds", "2", "--json"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{kernel}: {}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let echo = &document["results"][0];
    assert_eq!((&echo["sent"], &echo["lost"]), (&100.into(), &0.into()), "{kernel}: {echo}");
    let p50 = echo["rtt_ns"]["p50"].as_u64().unwrap();
    assert!((6_000_000..=8_500_000).contains(&p50), "{kernel}: {p50}");
    let over = echo["exceed"].as_array().unwrap().iter().find(|row| row["over_ns"] == 50_000_000).unwrap();
    assert_eq!(over["count"], 0, "{kernel}: {echo}");
    for side in ["central", "peripheral"] {
        assert_eq!(
            support::complaints(&lab.path(&format!("out/{side}.btsnoop"))),
            Vec::<String>::new(),
            "{kernel} {side}"
        );
    }
}

#[test]
fn rfcomm_echoes_take_what_the_paper_says_on_linux_5_10() {
    rfcomm("rfcomm_echoes_take_what_the_paper_says_on_linux_5_10", "5.10");
}

#[test]
fn rfcomm_echoes_take_what_the_paper_says_on_linux_6_1() {
    rfcomm("rfcomm_echoes_take_what_the_paper_says_on_linux_6_1", "6.1");
}

#[test]
fn losses_make_a_tail_whose_cause_is_named() {
    let Some(lab) = Lab::ready("losses_make_a_tail_whose_cause_is_named") else { return };
    let html = lab.path("report.html");
    let mut command = lab.command(&["bluetooth", "--kernel", "6.12", "--only", "latency", "--json", "--html"]);
    let output = command.arg(&html).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |link: &str, medium: &str| {
        let rows = document["latency"].as_array().unwrap();
        rows.iter()
            .find(|row| row["link"] == link && row["medium"] == medium)
            .unwrap_or_else(|| panic!("{link} {medium}"))
    };
    let late = |row: &Value| {
        let rows = row["exceed"].as_array().unwrap();
        rows.iter().find(|row| row["over_ns"] == 50_000_000).unwrap()["count"].as_u64().unwrap()
    };
    assert_eq!(late(row("rfcomm", "clean")), 0, "{document:#}");
    assert!(late(row("rfcomm", "lossy")) > 0, "{document:#}");
    let p50 = |link: &str| row(link, "clean")["rtt_ns"]["p50"].as_u64().unwrap();
    let medians = ["tcp", "l2cap-bredr", "rfcomm"].map(p50);
    // Both wait for the same polls; which of the two is a step of the histogram later is chance.
    assert!(medians[0] < medians[1] && medians[1] <= medians[2] + medians[2] / 50, "{medians:?}");
    let finding = &document["findings"][0];
    assert_eq!(finding["cause"], "baseband_retransmission", "{document:#}");
    assert!(finding["evidence"].as_array().unwrap().len() >= 3);
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && page.contains("baseband_retransmission"), "{page}");
}

/// Stock tools at both ends, over RFCOMM and over L2CAP.
#[test]
fn stock_tools_talk_to_each_other() {
    let test = "stock_tools_talk_to_each_other";
    let Some(lab) = Lab::ready(test) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--module", "hci_vhci", "--timeout", "10m"]);
    for program in ["/usr/bin/l2test", "/usr/bin/rctest"] {
        if !Path::new(program).exists() {
            note_skipped(test, &format!("{program} is missing: apt-get install bluez"));
            return;
        }
        command.args(["--file", program]);
    }
    command.arg("--file").arg(root.join("scenarios/two-nodes.toml")).arg("--out").arg(lab.path("out"));
    let script = r#"
await() { until grep -q "$1" "$2" 2>/dev/null; do sleep 0.1; done; }
taut air attach two-nodes.toml --set bredr.on=true --json >/tmp/radio &
await adapters /tmp/radio
# Adapters are switched on by our server.
taut serve 'rfcomm://any/9?adapter=hci0' 'rfcomm://any/9?adapter=hci1' >/tmp/serve &
await listening /tmp/serve
rctest -r -i hci1 -P 5 >/tmp/r 2>&1 &
l2test -r -i hci1 -P 4113 -I 672 -b 672 >/tmp/l 2>&1 &
sleep 1
rctest -s -i hci0 -P 5 -b 500 -N 40 -L 10 00:AA:01:01:00:00 || exit 10
l2test -s -i hci0 -P 4113 -b 600 -N 40 -g 3000 00:AA:01:01:00:00 || exit 11
"#;
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert_eq!(output.status.code(), Some(0), "{text}");
}

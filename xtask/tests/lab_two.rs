//! Two stock kernels, each in a machine of its own, on one simulated radio: whose rule of credits counts,
//! pages that go from the one to the other and into a browser, and what becomes of a pair when it can't be.

mod support;
#[allow(dead_code, reason = "what it has for reports is not needed here")]
#[path = "../../crates/taut-report/tests/webdriver/mod.rs"]
mod webdriver;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Lab, note_skipped};

/// Both directions of a link between 6.12 and 5.10.
const STREAMS: &str = "
for direction in up down; do
    taut stream @peer --direction $direction --time 2s --rounds 1 --json >$OUT/$direction.json || exit 1
done
";

#[test]
fn the_receivers_rule_of_credits_counts() {
    let Some(lab) = Lab::ready("the_receivers_rule_of_credits_counts") else { return };
    let mut command = lab.command(&["pair", "--kernel", "6.12", "--peer-kernel", "5.10", "--ci", "50ms", "--capture"]);
    // With more credits than buffers 5.10 may send more than its controller takes: where packets of two priorities go
    // at once, it counts on more free buffers than there are (`hci_sched_le`, net/bluetooth/hci_core.c; right since
    // 6.11).
    command.args(["--set", "peripheral.acl_buffers=64"]);
    let output = command.arg("--out").arg(lab.path("out")).args(["--", "sh", "-c", STREAMS]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let told = |direction: &str| fs::read_to_string(lab.path("out").join(format!("{direction}.json")));
    // What did not come to its end says why in its report.
    let reports = || ["up", "down"].map(|direction| told(direction).unwrap_or_default()).join("\n");
    assert!(output.status.success(), "{}: {stderr}\n{}", output.status, reports());
    let row = |direction: &str| serde_json::from_str::<Value>(&told(direction).unwrap()).unwrap()["results"][0].clone();
    let (up, down) = (row("up"), row("down"));
    // 5.10 receives: one SDU of 672 bytes in two intervals, however fast the sender is; 6.12 receives: a window.
    let [slow, fast] = [&up, &down].map(|row| row["throughput_bps"].as_f64().unwrap());
    assert!(slow <= 1.05 * 672.0 * 8.0 / 0.1 && fast > 2.0 * slow, "{slow} {fast}: {up} {down}");
    for option in ["credit_rule=rcvbuf", "peer_credit_rule=sdu", "connection_interval_us=50000"] {
        assert!(up["options"].as_array().unwrap().iter().any(|is| is == option), "{option}: {up}");
    }
    for file in ["air.pcapng", "central.btsnoop", "peripheral.btsnoop"] {
        assert!(fs::metadata(lab.path("out").join(file)).unwrap().len() > 10_000, "{file}");
    }
    assert!(stderr.contains("radio: {\"lateness_ns\"") && stderr.contains("\"packets_overflowed\":0"), "{stderr}");
    lab.assert_nothing_is_left();
}

/// In the peer's machine. On a busy host a request takes seconds to come over the radio after its channel has.
const SERVE: &str =
    "taut web /root/site --idle 20s --on 'l2cap://any/225?adapter=hci0' --on 'rfcomm://any/5?adapter=hci0'";
/// Pages over either link, here at a port of its own; it ends when somebody has connected to the last one.
const FETCH: &str = "
: @peer
taut pipe listen:tcp://10.0.2.15:8080 'l2cap://00:AA:01:01:00:00/225?adapter=hci0' --json >$OUT/l2cap.json 2>$OUT/l2cap.log &
l2cap=$!
# There is one link to a channel of RFCOMM at a time.
taut pipe listen:tcp://10.0.2.15:8081 'rfcomm://00:AA:01:01:00:00/5?adapter=hci0' --clients 1 --json >$OUT/rfcomm.json 2>$OUT/rfcomm.log &
rfcomm=$!
sleep 1
curl -sS --fail http://10.0.2.15:8080/data.bin >$OUT/l2cap.bin || exit 1
curl -sS --fail http://10.0.2.15:8081/data.bin >$OUT/rfcomm.bin || exit 2
echo fetched
nc -l -p 8082 </dev/null
kill -INT $l2cap $rfcomm
wait $l2cap || exit 3
wait $rfcomm || exit 4
";
const FETCHED: &str =
    "return fetch('/data.bin').then((answer) => answer.arrayBuffer()).then((bytes) => [...new Uint8Array(bytes)]);";

/// Three ports that are free now.
fn free_ports() -> [u16; 3] {
    let listeners = [0; 3].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

#[test]
fn a_browser_shows_a_page_of_another_kernel_over_either_radio() {
    let test = "a_browser_shows_a_page_of_another_kernel_over_either_radio";
    let Some(lab) = Lab::ready(test) else { return };
    let Some(curl) =
        ["/usr/bin/curl", "/usr/local/bin/curl"].into_iter().find(|path| fs::exists(path).unwrap_or(false))
    else {
        return note_skipped(test, "no curl");
    };
    let browser = match webdriver::Browser::start() {
        Ok(browser) => browser,
        Err(why) => return note_skipped(test, &why),
    };
    let site = lab.path("site");
    fs::create_dir(&site).unwrap();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/web/site")).unwrap().flatten() {
        fs::copy(entry.path(), site.join(entry.file_name())).unwrap();
    }
    // No multiple of an SDU, and longer than what the sockets on the way hold.
    let data: Vec<u8> = (0..40_001_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(site.join("data.bin"), &data).unwrap();

    let ports = free_ports();
    let mut command =
        lab.command(&["pair", "--kernel", "6.1", "--peer-kernel", "6.12", "--type", "rfcomm", "--ci", "15ms"]);
    command.args(["--beside", SERVE, "--file", curl, "--file"]).arg(format!("{}:/root/site", site.display()));
    for (port, guest) in ports.iter().zip([8080, 8081, 8082]) {
        command.arg("--forward").arg(format!("{port}:{guest}"));
    }
    command.arg("--out").arg(lab.path("out")).args(["--", "sh", "-c", FETCH]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    if lines.next().transpose().unwrap().as_deref() == Some("fetched") {
        for port in &ports[..2] {
            browser.post("/url", json!({"url": format!("http://127.0.0.1:{port}/index.html")}));
            assert_eq!(browser.run("return document.querySelector('h1').textContent"), "Hello from BLE HTTP!");
            assert_eq!(browser.run("return getComputedStyle(document.body).maxWidth"), "640px", "with its style sheet");
            let fetched: Vec<u8> = serde_json::from_value(browser.run(FETCHED)).unwrap();
            assert!(fetched == data, "{} bytes", fetched.len());
        }
        drop(TcpStream::connect(("127.0.0.1", ports[2])));
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let told = |name: &str| fs::read_to_string(lab.path("out").join(name)).unwrap_or_default();
    assert!(output.status.success(), "{stderr}\n{}\n{}", told("l2cap.log"), told("rfcomm.log"));
    for (kind, peer) in [("l2cap", "l2cap#"), ("rfcomm", "rfcomm#")] {
        assert!(fs::read(lab.path("out").join(format!("{kind}.bin"))).unwrap() == data, "{stderr}");
        assert!(
            stderr.lines().any(|line| line.contains(peer) && line.contains("\"GET /data.bin\" 200 40001 B")),
            "{stderr}"
        );
        let summary: Value = serde_json::from_str(&told(&format!("{kind}.json"))).unwrap();
        // Its two downloads and the page went through; all that was asked had left when a link was closed.
        assert!(summary["bytes_b_to_a"].as_u64() > Some(2 * data.len() as u64), "{summary}");
        assert_eq!(
            (&summary["undelivered_a_to_b"], &summary["unconfirmed_a_to_b"]),
            (&json!(0), &json!(0)),
            "{summary}"
        );
    }
    lab.assert_nothing_is_left();
}

#[test]
fn a_pair_that_hangs_or_breaks_ends_and_says_why() {
    let Some(lab) = Lab::ready("a_pair_that_hangs_or_breaks_ends_and_says_why") else { return };
    let pair = |options: &[&str], command: &[&str]| {
        let mut run = lab.command(&["pair", "--kernel", "6.1", "--peer-kernel", "6.1"]);
        let output = run.args(options).arg("--").args(command).output().unwrap();
        lab.assert_nothing_is_left();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // A peer that is switched off under the command.
    let (code, stderr) = pair(&["--beside", "sleep 3; reboot -f"], &["sh", "-c", ": @peer; sleep 1000"]);
    assert!(code == Some(125) && stderr.contains("the peer's machine ended before its time"), "{code:?} {stderr}");
    // A command that does not end.
    let began = Instant::now();
    let (code, stderr) = pair(&["--timeout", "30s"], &["sh", "-c", ": @peer; sleep 1000"]);
    assert!(code == Some(124) && stderr.contains("time is up after 30s"), "{code:?} {stderr}");
    assert!(began.elapsed() >= Duration::from_secs(30));
    // One that names no peer.
    let (code, stderr) = pair(&[], &["true"]);
    assert!(code == Some(125) && stderr.contains("names no @peer"), "{code:?} {stderr}");
}

#[test]
fn a_pair_goes_with_the_lab() {
    let Some(lab) = Lab::ready("a_pair_goes_with_the_lab") else { return };
    let mut command = lab.command(&["pair", "--kernel", "6.12", "--peer-kernel", "6.12"]);
    let mut child = command.args(["--", "sh", "-c", ": @peer; sleep 1000"]).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(280);
    while lab.guests() < 2 {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "two machines never ran");
        thread::sleep(Duration::from_millis(100));
    }
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    lab.assert_nothing_is_left();
}

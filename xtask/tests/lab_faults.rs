//! What becomes of a transfer when the link below it fails: an end, an exit code that says so, and
//! a report of what there was.

mod support;

use std::fs;

use serde_json::Value;
use support::Lab;

fn run(lab: &Lab, arguments: &[&str], script: &str) -> (String, impl Fn(&str) -> Value) {
    let out = lab.path("out");
    let mut command = lab.command(&["pair", "--kernel", "6.12", "--icount", "--ci", "15ms", "--out"]);
    let output = command.arg(&out).args(arguments).args(["--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let told = format!("{stdout}{stderr}");
    let read = move |name: &str| {
        let text = fs::read_to_string(out.join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    };
    (told, read)
}

/// A report of a run that broke: why, and what there was.
fn assert_partial(document: &Value, key: &str) {
    assert_eq!(document["ended"]["how"], "peer_gone", "{document}");
    assert!(document["ended"]["why"].as_str().is_some_and(|why| why.contains("l2cap://")), "{document}");
    assert!(document["results"][0][key].as_u64() > Some(10_000), "{key}: {document}");
}

/// The process ids of `taut` in a pair's guest: the radio is the first, the server the second.
const PROCESSES: &str = "
    processes() { pidof taut | tr ' ' '\\n' | sort -n; }
    radio=$(processes | head -n 1); server=$(processes | sed -n 2p)";

#[test]
fn losses_stalls_and_a_killed_peer_end_clearly() {
    let Some(lab) = Lab::ready("losses_stalls_and_a_killed_peer_end_clearly") else { return };
    let script = format!(
        "{PROCESSES}
        taut stream @peer --time 2s --rounds 2 --json >$OUT/lossy; echo lossy $?
        ( sleep 5; kill -STOP $radio; sleep 15; kill -CONT $radio ) &
        taut stream @peer --direction down --time 8s --rounds 1 --json >$OUT/stalled; echo stalled $?
        wait
        linked() {{ ls /sys/class/bluetooth | grep -q hci0:; }}
        while linked; do sleep 0.5; done
        ( until linked; do sleep 0.5; done; sleep 4; kill -KILL $server ) &
        taut stream @peer --direction down --time 25s --rounds 1 --json >$OUT/killed; echo killed $?"
    );
    let (told, read) = run(&lab, &["--set", "per=0.2"], &script);
    assert!(told.contains("lossy 0\nstalled 1\nkilled 1\n"), "{told}");
    // What is lost on the air is sent again: slower, and nothing else.
    let lossy = read("lossy");
    assert_eq!(lossy["ended"]["how"], "complete", "{lossy}");
    let bps = lossy["results"][0]["throughput_bps"].as_f64().unwrap();
    assert!((100_000.0..650_000.0).contains(&bps), "{lossy}");
    let stalled = read("stalled");
    assert_partial(&stalled, "bytes");
    assert_partial(&read("killed"), "bytes");
}

#[test]
fn a_link_that_is_lost_for_good_ends_by_its_supervision_timeout() {
    let Some(lab) = Lab::ready("a_link_that_is_lost_for_good_ends_by_its_supervision_timeout") else { return };
    // Some thousand packets into it the air goes dead, and stays so.
    let radio = ["--set", "burst.enter=0.0005", "--set", "burst.exit=0", "--set", "burst.per=1"];
    let script = "taut stream @peer --time 20s --rounds 1 --json >$OUT/lost; echo lost $?; dmesg | tail -n 3";
    let (told, read) = run(&lab, &radio, script);
    assert!(told.contains("lost 1\n"), "{told}");
    let lost = read("lost");
    assert_partial(&lost, "unconfirmed_bytes");
    // The default of the scenario is some hundred milliseconds; nobody waited for patience to run out.
    assert!(lost["duration_ns"].as_u64() < Some(15_000_000_000), "{lost}");
}

#[test]
fn an_adapter_that_is_removed_ends_the_transfer_with_a_report() {
    let Some(lab) = Lab::ready("an_adapter_that_is_removed_ends_the_transfer_with_a_report") else { return };
    let script = format!(
        "{PROCESSES}
        ( sleep 5; kill -KILL $radio ) &
        taut stream @peer --time 20s --rounds 1 --json >$OUT/removed; echo removed $?; ls /sys/class/bluetooth"
    );
    let (told, read) = run(&lab, &[], &script);
    assert!(told.contains("removed 1\n") && !told.contains("hci0\n"), "{told}");
    assert_partial(&read("removed"), "unconfirmed_bytes");
}

//! `taut air`: the published link, its ledger and findings, the way to its limit, and captures that
//! other programs read.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{causes, has, parse, run, run_json, skip, taut, text};

/// The published intervals.
const INTERVALS: &str = "ci=112.5ms,50ms,25ms,12.5ms,7.5ms";

fn scenario(name: &str) -> String {
    format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

fn rows(document: &Value) -> &[Value] {
    document["results"].as_array().unwrap()
}

fn bps(row: &Value) -> f64 {
    row["throughput_bps"].as_f64().unwrap()
}

fn assert_ledger_is_whole(row: &Value) {
    let ledger: BTreeMap<String, u64> = serde_json::from_value(row["ledger_ns"].clone()).unwrap();
    assert_eq!(ledger.values().sum::<u64>(), row["duration_ns"].as_u64().unwrap(), "{ledger:?}");
}

#[test]
fn the_published_figures_from_one_scenario() {
    let document = run_json(&format!("air sweep {} --vary {INTERVALS} --time 60s", scenario("paper-000")));
    let rows = rows(&document);
    let intervals: Vec<u64> = rows.iter().map(|row| row["ci_ns"].as_u64().unwrap()).collect();
    assert_eq!(intervals, [112_500_000, 50_000_000, 25_000_000, 12_500_000, 7_500_000]);
    for row in rows {
        assert_ledger_is_whole(row);
        assert_eq!(row["duration_ns"], 60_000_000_000_u64);
        assert!(bps(row) < row["limit_bps"].as_f64().unwrap());
        let expected = 60_000_000_000 / row["ci_ns"].as_u64().unwrap();
        assert!(row["connection_events"].as_u64().unwrap().abs_diff(expected) <= 2, "{row}");
        assert_eq!(row["counters"]["sdus_damaged"], 0);
        assert_eq!(
            (&row["mtu_bytes"], &row["mps_bytes"], &row["initial_credits"]),
            (&672.into(), &247.into(), &3.into())
        );
    }
    let [at_112, at_50, .., at_7] = rows else { panic!("{} rows", rows.len()) };
    let (at_112, at_50, at_7) = (bps(at_112), bps(at_50), bps(at_7));
    assert!((at_7 / 224_800.0 - 1.0).abs() < 0.05, "{at_7} at 7.5 ms");
    assert!((at_50 / 52_000.0 - 1.0).abs() < 0.10, "{at_50} at 50 ms");
    // Published are 1.9 and, from 112.5 to 7.5 ms, 8.3. With controllers that treat all intervals
    // alike a block takes the same number of intervals at both, so the rates have the ratio of the
    // intervals: what that implies stands in the scenario.
    assert!((at_50 / at_112 / 2.25 - 1.0).abs() < 0.01, "{} from 112.5 to 50 ms", at_50 / at_112);
    assert!((at_7 / at_112 / 8.3 - 1.0).abs() < 0.25, "{} from 112.5 to 7.5 ms", at_7 / at_112);
    assert!(causes(&document).contains(&"credit_window"), "{:?}", causes(&document));
}

#[test]
fn every_remedy_gives_what_its_finding_says() {
    let document = run_json("air run paper-000 --time 2s");
    let findings = document["findings"].as_array().unwrap();
    assert!(causes(&document).contains(&"credit_window") && causes(&document).contains(&"phy"));
    for finding in findings {
        let proof = &finding["proof"];
        let (before, after) = (proof["before_bps"].as_f64().unwrap(), proof["after_bps"].as_f64().unwrap());
        assert_eq!(before, bps(&rows(&document)[0]));
        assert!(after > before, "{finding}");
        let output = Command::new("sh").arg("-c").arg(shell_line(proof["command"].as_str().unwrap())).output().unwrap();
        assert_eq!(bps(&rows(&parse(&output))[0]), after, "{proof}");
    }
    let gain = |finding: &Value| finding["proof"]["after_bps"].as_f64().unwrap();
    assert!(findings.windows(2).all(|pair| gain(&pair[0]) >= gain(&pair[1])));
}

/// A printed command, with our program and as JSON.
fn shell_line(command: &str) -> String {
    format!("{} {} --json", env!("CARGO_BIN_EXE_taut"), command.strip_prefix("taut ").unwrap())
}

#[test]
fn what_binds_is_named_and_what_does_not_is_not() {
    for (set, named, not_named) in [
        ("length=27", "length", "loss"),
        ("per=0.05", "loss", "length"),
        ("sender.acl_buffers=1", "buffers", "loss"),
        ("packets_per_event=1", "event_length", "loss"),
        ("ci=9.75ms", "interval_quantisation", "credit_window"),
    ] {
        let document = run_json(&format!("air run saturate --time 2s --set {set}"));
        let causes = causes(&document);
        assert!(causes.contains(&named) && !causes.contains(&not_named), "{set}: {causes:?}");
    }
}

#[test]
fn tuning_reaches_the_limit_on_both_phys_and_tells_the_way() {
    let document = run_json(&format!("air tune {}", scenario("paper-000")));
    let rows = rows(&document);
    let links: Vec<&Value> = rows.iter().filter(|row| row["workload"] == "air").collect();
    let [base, on_1m, on_2m] = links[..] else { panic!("{} links", links.len()) };
    assert!(bps(on_1m) >= 744_000.0 && on_1m["phy"] == "1m", "{}", bps(on_1m));
    assert!(bps(on_2m) >= 1_307_000.0 && on_2m["phy"] == "2m", "{}", bps(on_2m));
    assert!([base, on_1m, on_2m].iter().all(|row| row["mtu_bytes"] == 672));
    let kept: Vec<&Value> = rows.iter().filter(|row| row["kept"] == true).collect();
    assert!(kept.len() >= 3, "{kept:#?}");
    // Each change goes on from the one before, and the last one's command gives the link that was reached.
    let mut before = bps(base);
    for change in &kept {
        assert_eq!(change["before_bps"].as_f64().unwrap(), before);
        assert!(bps(change) > before);
        before = bps(change);
    }
    assert_eq!(before, bps(on_2m));
    let last = kept.last().unwrap()["command"].as_str().unwrap();
    let output = Command::new("sh").arg("-c").arg(shell_line(last)).output().unwrap();
    assert_eq!(bps(&parse(&output)["results"][0]), before);
}

#[test]
fn what_is_to_be_kept_stays() {
    let document = run_json("air tune paper-000 --keep mtu,ci,phy --time 2s");
    for change in rows(&document).iter().filter(|row| row["workload"] == "air_change") {
        for set in change["set"].as_array().unwrap() {
            let name = set["name"].as_str().unwrap();
            assert!(!["ci", "phy", "receiver.mtu"].contains(&name), "{name}");
        }
    }
}

#[test]
fn a_saturated_link_reaches_its_limit() {
    let row = &run_json(&format!("air run {} --set phy=2m --set length=251", scenario("saturate")))["results"][0];
    let share = bps(row) / row["quantised_limit_bps"].as_f64().unwrap();
    assert!((0.99..1.01).contains(&share), "{share}");
    assert_ledger_is_whole(row);
}

#[test]
fn two_parameters_make_a_grid() {
    let document = run_json("air sweep saturate --vary phy=1m,2m --vary length=27,251 --time 1s");
    let set = |row: &Value| {
        let set = row["set"].as_array().unwrap().iter();
        set.map(|set| format!("{}={}", set["name"].as_str().unwrap(), set["value"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let points: Vec<Vec<String>> = rows(&document).iter().map(set).collect();
    assert_eq!(
        points,
        [["phy=1m", "length=27"], ["phy=1m", "length=251"], ["phy=2m", "length=27"], ["phy=2m", "length=251"]]
    );
    assert!(rows(&document).windows(2).all(|pair| bps(&pair[0]) != bps(&pair[1])));
    rows(&document).iter().for_each(assert_ledger_is_whole);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let go = |name: &str, seed: u32| {
        std::fs::create_dir(at(name)).unwrap();
        let path = at(name);
        let document = run_json(&format!(
            "air run paper-000 --time 1s --set per=0.02 --seed {seed} --pcapng {0}/air.pcapng --btsnoop {0} --perfetto {0}/trace.json",
            path.display()
        ));
        let files = ["air.pcapng", "central.btsnoop", "peripheral.btsnoop", "trace.json"];
        (
            document["results"].clone(),
            document["findings"].clone(),
            files.map(|file| std::fs::read(path.join(file)).unwrap()),
        )
    };
    let (first, again, other) = (go("first", 7), go("again", 7), go("other", 8));
    assert!(first == again);
    assert!(first.2.iter().zip(&other.2).all(|(one, other)| one != other));
}

#[test]
fn other_programs_read_the_captures() {
    if !has("tshark") {
        return skip("other_programs_read_the_captures", "tshark is missing");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let document = run_json(&format!(
        "air run {} --time 10s --seed 7 --pcapng {1}/x.pcapng --btsnoop {1} --html {1}/x.html",
        scenario("paper-000"),
        path.display()
    ));
    let counters = &document["results"][0]["counters"];
    let count = |file: &str, filter: &str| tshark(&path.join(file), filter, &["frame.number"]).len() as u64;
    for file in ["x.pcapng", "central.btsnoop", "peripheral.btsnoop"] {
        let complaints =
            tshark(&path.join(file), "_ws.malformed || _ws.expert.severity >= 0x00600000", &["_ws.expert.message"]);
        assert!(complaints.is_empty(), "{file}: {complaints:?}");
    }
    assert_eq!(count("x.pcapng", "btle.crc.incorrect"), 0);
    assert_eq!(count("x.pcapng", "btl2cap.cid >= 0x40 && !btl2cap.cmd_code"), counters["data_pdus"].as_u64().unwrap());
    assert_eq!(count("x.pcapng", "btl2cap.cmd_code == 0x14"), 1);
    let whole = count("x.pcapng", "btl2cap.le_sdu.reassembled.length == 672");
    let blocks = count("x.pcapng", "btl2cap.le_sdu_length == 64");
    // SDUs of one PDU are not put together from several; the last ones may be under way.
    assert!((whole + blocks).abs_diff(counters["sdus_read"].as_u64().unwrap()) <= 2, "{whole} + {blocks}");
    // The SDU length of the first PDU is 672 = 0x02a0, in little endian.
    let first =
        tshark(&path.join("x.pcapng"), "btl2cap.le_sdu_length == 672", &["btl2cap.length", "btl2cap.le_sdu_length"]);
    assert!(first.iter().all(|line| line == "247\t672"));
    assert!(std::fs::read_to_string(path.join("x.html")).unwrap().contains("\"kind\":\"air\""));
}

fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn the_picture_is_around_the_stutter() {
    let document = run_json("air run paper-000");
    let excerpt = &document["results"][0]["excerpt"];
    assert!(excerpt["what"].as_str().unwrap().contains("half sent"), "{excerpt}");
    let events = excerpt["events"].as_array().unwrap();
    assert_eq!(events.len(), 40);
    let ci = document["results"][0]["ci_ns"].as_u64().unwrap();
    let ns = |value: &Value| value.as_u64().unwrap();
    let mut short = 0;
    for event in events {
        let mut free_from = 0;
        for pdu in event["pdus"].as_array().unwrap() {
            assert!(ns(&pdu["start_ns"]) >= free_from, "one PDU on the air at a time: {event}");
            free_from = ns(&pdu["start_ns"]) + ns(&pdu["duration_ns"]);
            short += u32::from(pdu["kind"] == "data" && ns(&pdu["payload_bytes"]) == 70);
            if ns(&pdu["payload_bytes"]) == 251 {
                // With the pause behind it 2.238 ms, as published.
                assert_eq!(ns(&pdu["duration_ns"]) + 150_000, 2_238_000);
            }
        }
        assert!(free_from <= ci);
        let idle: u64 = event["idle"].as_array().unwrap().iter().map(|idle| ns(&idle["duration_ns"])).sum();
        assert!(idle < ci, "{event}");
    }
    assert!(short > 0);
    // Two PDUs (the block's last 64 bytes and the first of the next SDU), none, one; after the two, 4.161 ms unused.
    let data = |event: &Value| -> Vec<u64> {
        let pdus = event["pdus"].as_array().unwrap().iter();
        pdus.filter(|pdu| pdu["kind"] == "data").map(|pdu| ns(&pdu["payload_bytes"])).collect()
    };
    let stutter = events.windows(3).find(|three| data(&three[0]) == [70, 251] && data(&three[1]).is_empty());
    let [two, none, then] = stutter.expect("a stutter") else { unreachable!() };
    assert_eq!(data(then).first(), Some(&251));
    let last = two["pdus"].as_array().unwrap().last().unwrap();
    let unused = ci - ns(&last["start_ns"]) - ns(&last["duration_ns"]);
    assert!(unused.abs_diff(4_161_000) <= 2_000, "{unused}");
    let held = none["idle"].as_array().unwrap().iter().map(|idle| (ns(&idle["duration_ns"]), idle["holder"].as_str()));
    assert_eq!(held.max().unwrap().1, Some("controller_buffer"));
}

#[test]
fn the_other_workloads_run_over_a_simulated_link() {
    let echo = || run_json("echo air:paper-000?ci=15ms air:paper-000?ci=100ms&seed=3 --count 200");
    let document = echo();
    // A message waits for an anchor on its way there and on its way back.
    for (row, ci_ns) in rows(&document).iter().zip([15_000_000.0, 100_000_000.0]) {
        let p50 = row["rtt_ns"]["p50"].as_f64().unwrap();
        assert!((ci_ns..3.0 * ci_ns).contains(&p50), "{p50}");
        assert_eq!((&row["sent"], &row["lost"], &row["transport"]), (&200.into(), &0.into(), &"air".into()));
        assert_eq!(row["rounds"].as_array().unwrap().len(), 5);
    }
    assert_eq!(echo()["results"], document["results"], "the same seed gives the same run");

    let open = &run_json("echo air:paper-000 --rate 60 --time 5s")["results"][0];
    assert_eq!((&open["sent"], &open["send_lateness_ns"]["max"]), (&300.into(), &0.into()));
    assert_eq!(open["response_ns"], open["rtt_ns"], "virtual time stands still for the sender");

    let lossy = &run_json("echo air:paper-000?per=0.3 --count 300 --timeout 40ms")["results"][0];
    let figure = |key: &str| lossy[key].as_u64().unwrap();
    assert!(figure("lost") > 0 && figure("late_replies") <= figure("lost"));
    assert_eq!(figure("lost") + lossy["rtt_ns"]["count"].as_u64().unwrap(), 300);

    let pace = &run_json("pace air:saturate?ci=7.5ms --time 5s")["results"][0];
    assert_eq!((&pace["messages"], &pace["lost"]), (&500.into(), &0.into()));
    let mean = pace["receiver_gap_ns"]["mean"].as_f64().unwrap();
    assert!((mean / 10e6 - 1.0).abs() < 0.01, "{mean}");
    assert!(pace["delivery_ns"]["max"].as_u64().unwrap() < 16_000_000, "{pace}");

    let stream = &run_json("stream air:saturate --time 20s")["results"][0];
    let link = &run_json("air run saturate --time 20s")["results"][0];
    assert!((bps(stream) / bps(link) - 1.0).abs() < 0.02, "{} and {}", bps(stream), bps(link));
}

#[test]
fn an_error_in_a_scenario_points_at_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    for (content, place) in [
        ("[link]\nci = \"soon\"\n", ":2:6: "),
        ("[link]\nci = \"15ms\"\n\n[both]\nspeed = 3\n", ":5:1: "),
        ("[link\n", ":1:"),
    ] {
        std::fs::write(&path, content).unwrap();
        let output = run(&format!("air run {}", path.display()));
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("s.toml{place}")), "{error}");
    }
}

#[test]
fn every_wrong_line_says_what_to_write() {
    for (line, code, says) in [
        ("air", 2, "sweep"),
        ("air run --set ci", 2, "NAME=VALUE"),
        ("air run --set speed=1", 2, "there are: ci, phy"),
        ("air run --set ci=7.6ms", 2, "multiple of 125us"),
        ("air run --time 0s", 2, "more than zero"),
        ("air run nowhere.toml", 2, "paper-000, saturate"),
        ("air sweep", 2, "--vary"),
        ("air sweep --vary ci=7.5ms,,10ms", 2, "between two commas"),
        ("air sweep --vary ci=7.5ms --vary phy=1m --vary length=27", 2, "two parameters"),
        ("air tune --keep speed", 2, "speed"),
        ("echo air:paper-000?ci", 2, "air:SCENARIO"),
        ("echo air:paper-000?speed=1", 2, "speed"),
        ("echo air:paper-000 tcp://127.0.0.1:9", 2, "two commands"),
        ("echo air:paper-000 --engine epoll", 2, "--engine"),
        ("pace air:paper-000 --nagle on", 2, "--nagle"),
        ("stream air:paper-000 --connections 2", 2, "--connections"),
        ("air run --pcapng /nowhere/x", 2, "/nowhere"),
    ] {
        let output = run(line);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "taut {line}: {error}");
        assert!(error.contains(says), "taut {line}: {error}");
        assert!(output.stdout.is_empty(), "taut {line}");
    }
}

#[test]
fn parameters_are_listed_with_their_values() {
    let listed = text(&run("air parameters").stdout);
    for line in ["ci = 7.5ms  (link)", "mtu = 672  (side)", "per = 0  (medium)"] {
        assert!(listed.lines().any(|other| other == line), "{line}\n{listed}");
    }
}

#[test]
fn an_interrupted_run_prints_what_it_has() {
    let child = taut()
        .args(["air", "run", "--time", "8000h", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Long enough to have begun; however long it takes to get there, the run does not end by itself.
    std::thread::sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "interrupted");
    let row = &rows(&document)[0];
    assert!(row["duration_ns"].as_u64().unwrap() > 0);
    assert_ledger_is_whole(row);
}

#[test]
fn without_virtual_controllers_attach_says_what_to_do() {
    if Path::new("/dev/vhci").exists() {
        skip("without_virtual_controllers_attach_says_what_to_do", "this machine has /dev/vhci");
        return;
    }
    let output = run("air attach");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("modprobe hci_vhci") && output.stdout.is_empty());
    // What can't be is refused before anything is opened.
    let output = run("air attach --set ci=soon");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

//! Captures that others made, for other purposes: the test data of wireshark and tcpdump, of Debian's source packages.
//! None may panic, hang or print a breakdown that does not add up. `cargo test --test explain_strangers -- --nocapture`
//! prints the table of verdicts.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::text;

/// Each is read in milliseconds; this is for a busy machine.
const SECONDS: &str = "60";
/// The exit code of what can't be had here.
const NOT_HERE: i32 = 77;

/// Where they are: fetched now, when they are not there yet.
fn captures() -> Result<PathBuf, String> {
    let xtask = Path::new(env!("CARGO_BIN_EXE_taut")).with_file_name("xtask");
    if !xtask.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--locked", "--package", "xtask"]).status();
        assert!(built.unwrap().success(), "xtask does not build");
    }
    let output = Command::new(xtask).arg("captures").output().unwrap();
    let error = text(&output.stderr);
    if output.status.code() == Some(NOT_HERE) {
        return Err(error.trim().lines().last().unwrap_or("they can't be had").to_owned());
    }
    assert!(output.status.success(), "{error}");
    Ok(text(&output.stdout).trim().into())
}

/// What came of a capture, in words, and what was wrong with it.
fn judged(path: &Path) -> (String, Vec<String>) {
    let mut command = Command::new("timeout");
    command.args([SECONDS, env!("CARGO_BIN_EXE_taut"), "explain", "--json", "--top", "1000"]);
    let output = command.arg(path).output().unwrap();
    let error = text(&output.stderr);
    match output.status.code() {
        Some(0) => {
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            let faults = faults(&document["files"][0]);
            (verdict(&document["files"][0]), faults)
        }
        Some(2) => {
            // What it is, or where it is damaged, in one line; nothing is printed as if it were known.
            let begin = format!("taut: {}: ", path.display());
            let is_clear = error.starts_with(&begin) && error.lines().count() == 1 && output.stdout.is_empty();
            let faults = if is_clear { Vec::new() } else { vec![format!("no clear error: {error}")] };
            let what = error.trim().trim_start_matches(&begin).split([':', ';']).next().unwrap_or_default();
            (format!("refused, as it {what}"), faults)
        }
        code => (format!("code {code:?}"), vec![format!("ended with {:?}: {error}", output.status)]),
    }
}

fn verdict(file: &Value) -> String {
    let worst = file["worst"].as_array().unwrap();
    let Some(first) = worst.first() else {
        let remark = file["remarks"][0].as_str().unwrap_or("no remark");
        return format!("nothing to explain: {}", remark.split([';', '.', ',']).next().unwrap_or_default());
    };
    let mut found = Vec::new();
    for on in first["verdicts"].as_array().unwrap().iter().filter(|on| on["verdict"] == "found") {
        let (cause, share) = (on["cause"].as_str().unwrap(), on["cost"]["share"].as_f64().unwrap());
        found.push(format!("{cause} {:.1} %", share * 100.0));
    }
    let directions = file["directions"].as_u64().unwrap();
    let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
    let plural = if directions == 1 { "" } else { "s" };
    format!("{directions} direction{plural}; of the worst one: {found}")
}

/// Each nanosecond of each direction has one holder.
fn faults(file: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for direction in file["worst"].as_array().unwrap() {
        let held = direction["breakdown"].as_array().unwrap().iter().map(|held| held["held_ns"].as_u64().unwrap());
        let (sum, span) = (held.sum::<u64>(), direction["span_ns"].as_u64().unwrap());
        if sum != span {
            faults.push(format!("{} > {}: {sum} ns of {span} ns", direction["from"], direction["to"]));
        }
    }
    let (shown, all) = (file["worst"].as_array().unwrap().len() as u64, file["directions"].as_u64().unwrap());
    if shown != all {
        faults.push(format!("{shown} of {all} directions are shown"));
    }
    faults
}

#[test]
fn captures_of_others_are_explained_or_refused() {
    const TEST: &str = "captures_of_others_are_explained_or_refused";
    if !support::has("timeout") {
        return support::skip(TEST, "needs timeout, of coreutils");
    }
    let directory = match captures() {
        Ok(directory) => directory,
        Err(why) => return support::skip(TEST, &why),
    };
    let (mut wrong, mut kinds) = (Vec::new(), BTreeMap::<String, u32>::new());
    for package in ["tcpdump", "wireshark"] {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(directory.join(package)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() > 100, "{} of {package}", files.len());
        for path in files {
            let (verdict, faults) = judged(&path);
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            println!("{package:9} {name:52} {verdict}");
            wrong.extend(faults.into_iter().map(|fault| format!("{package} {name}: {fault}")));
            let kind = match verdict.split_once("of the worst one: ") {
                Some((_, cause)) => format!("explained: {}", cause.split([' ', ',']).next().unwrap_or_default()),
                None => verdict.split(':').next().unwrap_or_default().to_owned(),
            };
            *kinds.entry(kind).or_default() += 1;
        }
    }
    for (kind, count) in &kinds {
        println!("{count:>5} {kind}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The truth of a few, by hand from their packets.
    let holds = |name: &str, part: &str| {
        let (verdict, _) = judged(&directory.join(name));
        assert!(verdict.contains(part), "{name}: {verdict}");
    };
    // A route reflector's second update leaves 0.2 ms after the delayed ACK of its first, 45 ms later.
    holds("tcpdump/bgp-rt-prefix.pcap", "nagle_delayed_ack");
    // The first question is asked again after 5.0 s, and answered.
    holds("wireshark/dns+icmp.pcapng.gz", "dns_retry");
    // An identification of IKE is sent once more after 10 s.
    holds("wireshark/ikev1-certs.pcap", "udp_no_answer");
}

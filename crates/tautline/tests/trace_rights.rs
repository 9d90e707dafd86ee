//! What is told with fewer rights than root's: by two capabilities the same, and by none, from samples, the same cause
//! where it comes again and again. Where the kernel lets nobody trace, or without root, which has rights to give away,
//! these are skipped.

mod support;
mod trace_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;
use support::{has, is_root, parse, skip, taut, text};
use tempfile::TempDir;
use trace_support::{adds_up, found, may_trace, sent_to};

/// User and group that own nothing.
const NOBODY: &str = "65534";

/// A copy of `taut` where any user reaches it.
fn for_anybody() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("taut");
    fs::copy(taut().get_program(), &program).unwrap();
    (directory, program)
}

/// Begins a command line of a user with these capabilities and no other.
fn with_only(capabilities: Option<&str>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    if let Some(capabilities) = capabilities {
        command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
    }
    command
}

/// Whether the test can run: there are rights, and they can be given away.
fn can_run(test: &str, capabilities: Option<&str>) -> bool {
    if !is_root() || !has("setpriv") {
        skip(test, "takes root and setpriv(1), to give the rights away");
        return false;
    }
    let output = with_only(capabilities).arg("true").output().unwrap();
    if !output.status.success() {
        skip(test, text(&output.stderr).trim());
        return false;
    }
    may_trace(test)
}

#[test]
fn an_ordinary_user_with_two_capabilities_traces_what_root_would() {
    const NAME: &str = "an_ordinary_user_with_two_capabilities_traces_what_root_would";
    const BOTH: &str = "+bpf,+perfmon";
    if !can_run(NAME, Some(BOTH)) {
        return;
    }
    let (_directory, program) = for_anybody();
    let traced = |capabilities: &str, command: &[&str]| {
        let mut trace = with_only(Some(capabilities));
        trace.arg(&program).args(["trace", "--json", "--top", "50", "--"]).args(command).output().unwrap()
    };
    let output = traced(BOTH, &[program.to_str().unwrap(), "demo", "--for", "3s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    adds_up(&document);
    assert_eq!(document["lost_records"], 0);
    let of_root = parse(&taut().args(["trace", "--json", "--", "true"]).output().unwrap());
    assert_eq!(document["missing_hooks"], of_root["missing_hooks"]);
    let worst = &document["worst"][0];
    assert_eq!((&worst["is_outgoing"], found(worst).first()), (&true.into(), Some(&"nagle_delayed_ack")), "{worst:#}");
    assert!(worst["program"].as_str().unwrap().starts_with("taut ("), "{worst:#}");
    // Either one is not enough, and that is said with what gives both.
    for one in BOTH.split(',') {
        let output = traced(one, &["true"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{one}: {told}");
        assert!(told.contains("setcap cap_bpf,cap_perfmon+ep"), "{told}");
    }
}

/// What `taut demo --explain` tells of the client that it stages: the causes of what it sends, the first one first.
fn explained(mut command: Command, case: &str) -> Vec<String> {
    let output = command.args(["demo", "--explain", "--json", "--case", case]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    let objects: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [staged, explained, _]: [Value; 3] = objects.try_into().unwrap();
    let (port, explained) = (staged["staged"]["port"].as_u64().unwrap() as u16, &explained["explained"]);
    let Some(sockets) = explained["sockets"].as_array() else {
        return found(sent_to(explained, port)).into_iter().map(str::to_owned).collect();
    };
    let server = format!("127.0.0.1:{port}");
    let client = sockets.iter().find(|socket| socket["peer"] == server.as_str());
    let suspicions = client.unwrap_or_else(|| panic!("{explained:#}"))["suspicions"].as_array().unwrap().iter();
    suspicions.map(|suspicion| suspicion["cause"].as_str().unwrap().to_owned()).collect()
}

/// Both ways of looking at a case at once: they wait for most of their time.
fn both_ways(program: &Path, case: &str) -> [Vec<String>; 2] {
    let mut without_rights = with_only(None);
    without_rights.arg(program);
    thread::scope(|scope| {
        let sampled = scope.spawn(|| explained(without_rights, case));
        [explained(taut(), case), sampled.join().unwrap()]
    })
}

#[test]
fn samples_without_any_right_name_the_cause_that_a_trace_names() {
    if !can_run("samples_without_any_right_name_the_cause_that_a_trace_names", None) {
        return;
    }
    // A buffer that is full of what is not read is a small window as well as a program that does not read.
    let cases = [
        ("nagle", &["nagle_delayed_ack"][..]),
        ("slow-reader", &["receive_window", "receiving_program"]),
        ("cork", &["cork"]),
    ];
    let (_directory, program) = for_anybody();
    thread::scope(|scope| {
        for (case, expected) in cases {
            let program = &program;
            scope.spawn(move || {
                let ways = both_ways(program, case);
                let [traced, sampled] = &ways;
                for causes in &ways {
                    let is_expected = causes.first().is_some_and(|first| expected.contains(&first.as_str()));
                    assert!(is_expected, "{case}: traced {traced:?}, sampled {sampled:?}");
                }
                // What comes first in one has its part in the other.
                let is_told = traced.contains(&sampled[0]) && sampled.contains(&traced[0]);
                assert!(is_told, "{case}: traced {traced:?}, sampled {sampled:?}");
            });
        }
    });
}

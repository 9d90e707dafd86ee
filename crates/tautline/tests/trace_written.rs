//! What `taut trace` writes, and what becomes of the rest where that fails. Where the kernel does not let this user
//! trace, these are skipped.

#[path = "support/mod.rs"]
mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use support::{Serve, taut, text};
use trace_support::may_trace;

/// A trace can't be repeated, so what can't be written takes nothing else with it.
#[test]
fn a_full_disk_costs_what_should_be_on_it_and_nothing_else() {
    if !may_trace("a_full_disk_costs_what_should_be_on_it_and_nothing_else") {
        return;
    }
    let serve = Serve::start("tcp://127.0.0.1:0");
    let paced = format!(
        "exec {} pace {} --peer-ack delayed --time 1s --rounds 1 >/dev/null 2>&1",
        env!("CARGO_BIN_EXE_taut"),
        serve.endpoints[0]
    );
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let run = |option: &str, share: &str| {
        let limit = format!("nagle_delayed_ack={share}");
        let options = ["trace", option, "/dev/full", "--fail-on", &limit, "--html"];
        taut().args(options).arg(&page).args(["--", "sh", "-c", &paced]).output().unwrap()
    };
    for (option, share, code) in
        [("--events", "1%", 3), ("--events", "100%", 1), ("--perfetto", "1%", 3), ("--perfetto", "100%", 1)]
    {
        let output = run(option, share);
        let (told, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{option} {share}: {error}");
        assert!(told.contains("FOUND nagle_delayed_ack"), "{told}");
        // The shell became that program.
        assert!(told.contains(", taut (") && !told.contains(", sh ("), "{told}");
        assert_eq!(error.matches("write /dev/full: ").count(), 1, "{error}");
        assert_eq!(error.contains("no longer recorded"), option == "--events", "{error}");
        assert!(std::fs::read_to_string(&page).unwrap().contains("nagle_delayed_ack"));
        std::fs::remove_file(&page).unwrap();
    }
}

#[test]
fn what_was_recorded_is_there_when_the_trace_is_killed() {
    if !may_trace("what_was_recorded_is_there_when_the_trace_is_killed") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.events");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = ["trace", "--port", &port.to_string(), "--events"];
    let mut trace = taut().args(options).arg(&path).stderr(Stdio::null()).spawn().unwrap();
    // Traffic until it stands in the file; a trace takes a moment to begin.
    let has_events = || std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\nb> "));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while !has_events() && std::time::Instant::now() < until {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"something").unwrap();
        listener.accept().unwrap().0.read_exact(&mut [0; 9]).unwrap();
        sleep(Duration::from_millis(50));
    }
    trace.kill().unwrap();
    trace.wait().unwrap();
    let output = taut().arg("explain").arg(&path).output().unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(told.contains(&format!("port {port}")) && told.contains("The file is cut off"), "{told}");
    assert!(told.contains(" > 127.0.0.1:"), "{told}");
}

#[test]
fn a_pipe_is_no_place_for_a_recording() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let output = taut().args(["trace", "--events"]).arg(&path).args(["--", "echo", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("fifo is a pipe: name a file"), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("ran"));
}

#[test]
fn a_process_whose_name_turns_what_follows_is_printed_without_turning() {
    if !may_trace("a_process_whose_name_turns_what_follows_is_printed_without_turning") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("a\u{202e}b");
    std::fs::write(&program, "#!/bin/sh\nread line\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut child = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
    let output = taut().args(["trace", "--for", "100ms", "--pid", &child.id().to_string()]).output().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    let told = [text(&output.stdout), text(&output.stderr)].concat();
    assert!(told.contains("a\\u{202e}b (") && !told.contains('\u{202e}'), "{told}");
}

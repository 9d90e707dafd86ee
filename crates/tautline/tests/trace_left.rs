//! What `taut trace` says of programs beyond the traced one: processes that it leaves behind, and its peer. Where the
//! kernel lets nobody trace, it is skipped.

mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{parse, taut, text};
use trace_support::{Traced, may_trace};

fn remarks(script: &str) -> String {
    let output = taut().args(["trace", "--json", "--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    parse(&output)["remarks"].to_string()
}

#[test]
fn what_a_program_leaves_behind_is_named() {
    if !may_trace("what_a_program_leaves_behind_is_named") {
        return;
    }
    // Each ends by itself.
    let of_daemon = remarks("sleep 2 </dev/null >/dev/null 2>&1 & sleep 0.3");
    assert!(of_daemon.contains("1 process that it forked goes on") && of_daemon.contains("sleep ("), "{of_daemon}");
    assert!(of_daemon.contains("taut trace --pid "), "{of_daemon}");
    let of_another = remarks("sleep 0.2 & wait");
    assert!(!of_another.contains("that it forked"), "{of_another}");
}

/// What is traced is this process, which reads what another one writes now and then.
fn read_what_comes(trace: impl FnOnce(u16) -> Traced) -> (u32, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Forked before, or it would be traced, too.
    let script = format!(
        "read line; exec 3<>/dev/tcp/127.0.0.1/{port}; for i in 1 2 3 4 5; do printf x >&3; sleep 0.05; done; printf . >&3; cat <&3"
    );
    let mut peer = Command::new("bash");
    peer.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut peer = peer.spawn().unwrap();
    let traced = trace(port);
    peer.stdin.take().unwrap().write_all(b"\n").unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut letter = [0];
    while letter != *b"." {
        stream.read_exact(&mut letter).unwrap();
    }
    let document = traced.finish();
    drop(stream);
    peer.wait().unwrap();
    (peer.id(), document)
}

#[test]
fn who_waits_for_its_peer_is_told_where_to_look() {
    if !may_trace("who_waits_for_its_peer_is_told_where_to_look") {
        return;
    }
    let received = |document: &Value| -> Value {
        let all = document["worst"].as_array().unwrap();
        let found = all.iter().find(|one| one["is_outgoing"] == false && one["transport"] == "tcp");
        found.unwrap_or_else(|| panic!("{document:#}")).clone()
    };
    let (peer, document) = read_what_comes(|_| Traced::of(&["--pid", &std::process::id().to_string()]));
    let direction = received(&document);
    // It is for the end that sends to act.
    let row = &direction["breakdown"][0];
    assert_eq!((row["holder"].as_str(), row["side"].as_str()), (Some("peer_turn"), Some("sender")), "{direction:#}");
    let remarks = document["remarks"].to_string();
    assert!(remarks.contains(&format!("bash ({peer}), on this host: `taut trace --pid {peer}`")), "{remarks}");
    // Both ends are in this one.
    let (_, document) = read_what_comes(Traced::start);
    assert!(!document.to_string().contains("is seen at that end only"), "{document:#}");
}

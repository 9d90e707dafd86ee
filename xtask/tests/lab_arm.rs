//! The kernel of a machine as a Raspberry Pi 4 is: what stands on its instructions does what it does elsewhere.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Lab, cargo};

const KERNEL: &str = "6.12-arm64";

/// A sender whose writes Nagle's algorithm holds for delayed ACKs, and the same without the algorithm.
const TRACE: &str = "
    taut serve tcp://127.0.0.1:9100 >/dev/null &
    sleep 1
    for nagle in on off; do
        taut trace --json -- taut pace tcp://127.0.0.1:9100 --peer-ack delayed --nagle $nagle --time 2s \
            --rounds 1 >$OUT/$nagle 2>$OUT/$nagle.stderr || cat $OUT/$nagle.stderr >&2
    done";

fn document(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_program_is_traced() {
    let Some(lab) = Lab::with_kernel("a_program_is_traced", KERNEL) else { return };
    let mut command = lab.command(&["run", "--kernel", KERNEL, "--icount", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", TRACE]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [held, free] = ["on", "off"].map(|nagle| document(&lab.path("out").join(nagle)));
    let found = |trace: &Value| {
        let causes = trace["causes"].as_array().unwrap().iter();
        causes.filter(|cause| cause["cause"] == "nagle_delayed_ack").any(|cause| cause["found"] != 0)
    };
    assert!(found(&held) && !found(&free), "{held:#}{free:#}");
    assert_eq!((&held["lost_records"], &held["missing_hooks"]), (&0.into(), &Value::Array(Vec::new())), "{held:#}");
    let worst = &held["worst"][0];
    let (writes, by_timer) = (&worst["held_writes"], &worst["released"]["ack_by_delayed_ack_timer"]);
    assert!(writes.as_u64().unwrap() > 150 && by_timer.as_u64().unwrap() > 100, "{worst:#}");
}

#[test]
fn every_engine_answers_a_crowd() {
    let Some(lab) = Lab::with_kernel("every_engine_answers_a_crowd", KERNEL) else { return };
    let script = "taut connections --connections 50 --active 7 --engines poll,epoll,tokio,uring,aio-signal,aio-suspend,\
                  aio-wait --rounds 1 --time 20ms --json >$OUT/crowd";
    let mut command = lab.command(&["run", "--kernel", KERNEL, "--icount", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let crowd = document(&lab.path("out/crowd"));
    let rows = crowd["results"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    for row in rows {
        assert_eq!((&row["why_not"], &row["lost"]), (&Value::Null, &0.into()), "{row}");
        assert!(row["sent"].as_u64().unwrap() >= 3 * row["active"].as_u64().unwrap(), "{row}");
    }
}

/// Programs of tests as built for it, by package and target; `lib` is that of a library's own tests.
fn programs(wanted: &[(&str, &str)]) -> Vec<PathBuf> {
    let mut build = cargo();
    // As `cargo xtask test --arm` builds all of them.
    build.args(["test", "--locked", "--workspace", "--exclude", "xtask", "--no-run", "--message-format", "json"]);
    build.args(["--target", "aarch64-unknown-linux-gnu"]);
    build.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc");
    build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let path = |&(package, target): &(&str, &str)| {
        let is_it = |message: &&Value| {
            let (kind, name) = (&message["target"]["kind"][0], &message["target"]["name"]);
            let is_target = if target == "lib" { kind == "lib" } else { kind == "test" && name == target };
            let manifest = message["manifest_path"].as_str().unwrap_or_default();
            is_target && message["profile"]["test"] == true && manifest.ends_with(&format!("/{package}/Cargo.toml"))
        };
        messages
            .iter()
            .find(is_it)
            .and_then(|message| message["executable"].as_str())
            .expect("the tests' program")
            .into()
    };
    wanted.iter().map(path).collect()
}

/// What `qemu-user` can't: programs of eBPF are compiled for that machine, and io_uring is that kernel's.
#[test]
fn routes_and_aio_pass_their_own_tests() {
    let Some(lab) = Lab::with_kernel("routes_and_aio_pass_their_own_tests", KERNEL) else { return };
    let wanted = [
        ("taut-bpf", "lib"),
        ("taut-route", "lib"),
        ("taut-route", "frames"),
        ("taut-route", "differential"),
        ("taut-aio", "lib"),
        ("taut-aio", "alone"),
    ];
    // With the C library that they are linked to.
    let libraries = "/usr/aarch64-linux-gnu/lib";
    // In virtual time: some of them have a few milliseconds for what an emulated processor may take long to do.
    let mut command = lab.command(&["run", "--kernel", KERNEL, "--icount", "--memory", "1024", "--timeout", "20m"]);
    for name in ["ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libm.so.6"] {
        command.args(["--file", &format!("{libraries}/{name}:/lib/{name}")]);
    }
    let mut script = ": >skipped\nexport LD_LIBRARY_PATH=/lib TAUT_SKIP_LOG=/root/skipped\n".to_owned();
    for (number, program) in programs(&wanted).iter().enumerate() {
        command.args(["--file", &format!("{}:/bin/tests-{number}", program.display())]);
        script += &format!("tests-{number}\n");
    }
    script += "sed 's/^/SKIPPED /' skipped";
    let output = command.args(["--", "sh", "-ec", &script]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.matches("test result: ok.").count(), wanted.len(), "{stdout}");
    // A guest has no packet filter; all else has to have run.
    let skipped: Vec<&str> = stdout.lines().filter(|line| line.starts_with("SKIPPED ")).collect();
    assert!(skipped.iter().all(|line| line.contains("no nftables")), "{skipped:#?}");
}

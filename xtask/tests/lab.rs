//! The lab itself: what a command in a guest prints, returns and leaves; and how a guest ends that
//! doesn't end by itself.

mod support;

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::Lab;

const KERNELS: [&str; 4] = ["5.10", "6.1", "6.1-rt", "6.12"];

#[test]
fn a_command_runs_on_each_kernel() {
    let Some(lab) = Lab::ready("a_command_runs_on_each_kernel") else { return };
    for kernel in KERNELS {
        let script = "uname -r; taut --version; pwd; echo trouble >&2; cat data; mkdir $OUT/sub; \
                      head -c 100000 /dev/zero >$OUT/sub/zeroes; exit 42";
        let data = lab.file("data", b"first\nlast \xFF\0");
        let mut command = lab.command(&["run", "--kernel", kernel, "--file"]);
        let output = command.arg(&data).arg("--out").arg(lab.path("out")).args(["--", "sh", "-c", script]);
        let output = output.output().unwrap();

        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(42), "{kernel}: {stderr}");
        // 6.1.0-56-rt-amd64 of 6.1-rt.
        let (number, flavour) = kernel.split_once('-').unwrap_or((kernel, ""));
        let release = String::from_utf8_lossy(output.stdout.split(|byte| *byte == b'\n').next().unwrap()).into_owned();
        assert!(release.starts_with(&format!("{number}.")) && release.contains(flavour), "{kernel}: {release}");
        let version = format!("\ntaut {}\n/root\n", env!("CARGO_PKG_VERSION"));
        let end = [version.as_bytes(), b"first\nlast \xFF\0"].concat();
        assert!(output.stdout.ends_with(&end), "{kernel}: {}", String::from_utf8_lossy(&output.stdout));
        assert!(stderr.ends_with("trouble\n"), "{kernel}: {stderr}");
        assert_eq!(fs::read(lab.path("out/sub/zeroes")).unwrap(), vec![0; 100_000]);
        fs::remove_dir_all(lab.path("out")).unwrap();
    }
    lab.assert_nothing_is_left();
}

#[test]
fn virtual_time_does_not_follow_the_hosts() {
    let Some(lab) = Lab::ready("virtual_time_does_not_follow_the_hosts") else { return };
    // An hour's sleep passes at once, and a busy loop takes the instructions that it has.
    let script =
        "sleep 3600; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cat /proc/uptime; date; dmesg | cut -c16-";
    let run = || {
        let output = lab.command(&["run", "--kernel", "6.1", "--icount", "--", "sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let (uptime, rest) = stdout.split_once(' ').unwrap();
        (uptime.parse::<f64>().unwrap(), rest.split_once('\n').unwrap().1.to_owned())
    };
    let ((first, its_log), (second, other_log)) = (run(), run());
    assert!(first > 3600.0, "{first}");
    // A host that is stopped in between moves some timer interrupts, by much less than this.
    assert!((first - second).abs() < 0.05, "{first} and {second} s");
    assert!(its_log.starts_with("Thu Jan  1 01:00:0"), "{its_log}");
    let different = its_log.lines().zip(other_log.lines()).find(|(one, other)| one != other);
    assert_eq!(different, None);
}

#[test]
fn machines_that_start_where_one_has_booted_are_alike_and_apart() {
    let Some(lab) = Lab::ready("machines_that_start_where_one_has_booted_are_alike_and_apart") else { return };
    let booted = lab.path("booted");
    fs::create_dir(&booted).unwrap();
    let run = |script: &str| {
        let mut command = lab.command(&["run", "--kernel", "6.1", "--icount", "--out"]);
        command.arg(lab.path("out")).args(["--", "sh", "-c", script]).env("TAUT_LAB_BOOTED", &booted);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), stderr)
    };
    // The time, chance, and what the one before has left: nothing.
    let script = "cat /proc/uptime /proc/sys/kernel/random/uuid; ls /root /out; echo it\\'s >/root/left; cp /root/left $OUT; exit 7";
    let first = run(script);
    assert_eq!(first.0, Some(7), "{first:?}");
    assert!(first.1.ends_with("/out:\n\n/root:\n"), "{first:?}");
    assert_eq!(fs::read(lab.path("out/left")).unwrap(), b"it's\n");
    assert_eq!(run(script), first);
    // Another command on the same machine; one that panics is told as ever.
    let other = run("uname -r; echo trouble >&2; echo c >/proc/sysrq-trigger");
    assert_eq!(other.0, Some(125), "{other:?}");
    assert!(
        other.1.starts_with("6.1.") && other.2.contains("gave up while the command ran: Kernel panic"),
        "{other:?}"
    );
    let saved = fs::read_dir(&booted).unwrap().flatten().filter(|entry| entry.path().extension().is_none());
    assert_eq!(saved.count(), 1);
    lab.assert_nothing_is_left();
}

#[test]
fn a_program_brings_its_libraries_and_a_module_what_it_needs() {
    let Some(lab) = Lab::ready("a_program_brings_its_libraries_and_a_module_what_it_needs") else { return };
    // This test itself is a dynamic program.
    let program = std::env::current_exe().unwrap();
    let mut command = lab.command(&["run", "--kernel", "6.1", "--module", "rfcomm", "--file"]);
    command.arg(format!("{}:/opt/program", program.display()));
    let output = command.args(["--", "sh", "-c", "/opt/program --list && grep -c bluetooth /proc/modules"]).output();
    let output = output.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("a_program_brings_its_libraries"), "{stdout}");

    let output = lab.command(&["run", "--kernel", "6.1", "--module", "nonesuch", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no module `nonesuch`"));
}

#[test]
fn a_hang_is_ended() {
    let Some(lab) = Lab::ready("a_hang_is_ended") else { return };
    let script = "echo before; while true; do :; done";
    let output =
        lab.command(&["run", "--kernel", "6.1", "--timeout", "15s", "--", "sh", "-c", script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{stderr}");
    assert!(stderr.contains("time is up after 15s"), "{stderr}");
    lab.assert_nothing_is_left();
}

#[test]
fn a_kernel_that_panics_is_told_from_a_command_that_failed() {
    let Some(lab) = Lab::ready("a_kernel_that_panics_is_told_from_a_command_that_failed") else { return };
    let script = "echo before; echo c >/proc/sysrq-trigger";
    let output = lab.command(&["run", "--kernel", "6.1", "--", "sh", "-c", script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "before\n");
    assert!(stderr.contains("gave up while the command ran: Kernel panic - not syncing: sysrq"), "{stderr}");
    lab.assert_nothing_is_left();
}

#[test]
fn the_guest_ends_with_the_lab_however_that_ends() {
    let Some(lab) = Lab::ready("the_guest_ends_with_the_lab_however_that_ends") else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut command = lab.command(&["run", "--kernel", "6.1", "--", "sleep", "1000"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(|| lab.guests() == 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), (signal != Signal::KILL).then_some(130), "{signal:?}");
        wait_for(|| lab.guests() == 0);
    }
}

/// Waits for something that comes soon, or fails.
fn wait_for(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(120), "it did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

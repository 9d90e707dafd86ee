//! What `taut trace` is held to, on stock kernels: tests of `crates/tautline` in a guest, in virtual time. The truth
//! table of causes has the kernel's own emulation of a network there.

mod support;

use support::{Lab, test_program};

fn agrees(test: &str, kernel: &str) {
    let Some(lab) = Lab::ready(test) else { return };
    let file = |program: &std::path::Path, place: &str| format!("{}:/bin/{place}", program.display());
    let causes = file(&test_program("trace_causes"), "trace-causes");
    let [ip, tc] = ["ip", "tc"].map(|name| {
        let places = ["/usr/sbin", "/sbin", "/usr/bin"].map(|place| std::path::Path::new(place).join(name));
        let place = places.into_iter().find(|place| place.is_file());
        file(&place.expect("xtask test installs iproute2"), name)
    });
    let script = "mkdir -p /var/run; TAUT_PROGRAM=$(command -v taut) TMPDIR=/tmp trace-causes --nocapture each_cause";
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--memory", "1024", "--timeout", "40m"]);
    command.args(["--module", "sch_netem", "--module", "sch_tbf", "--file", &causes, "--file", &ip, "--file", &tc]);
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}{stderr}");
    let skipped = format!("{stdout}{stderr}").contains("SKIPPED");
    assert!(stdout.contains("ok. 1 passed; 0 failed") && !skipped, "{stdout}{stderr}");
    assert_eq!(stdout.matches(" ms held; cured ").count(), 11, "{stdout}");
}

#[test]
fn eleven_causes_are_named_on_linux_5_10() {
    agrees("eleven_causes_are_named_on_linux_5_10", "5.10");
}

#[test]
fn eleven_causes_are_named_on_linux_6_1() {
    agrees("eleven_causes_are_named_on_linux_6_1", "6.1");
}

#[test]
fn eleven_causes_are_named_on_linux_6_12() {
    agrees("eleven_causes_are_named_on_linux_6_12", "6.12");
}

/// Its own timestamps beside those of a trace, of 99 in 100 messages.
#[test]
fn pace_and_a_trace_of_it_agree_on_linux_6_12() {
    let Some(lab) = Lab::ready("pace_and_a_trace_of_it_agree_on_linux_6_12") else { return };
    let program = format!("{}:/bin/trace-pace", test_program("trace_pace").display());
    let script = "export TAUT_VIRTUAL_TIME=1 TAUT_PROGRAM=$(command -v taut) TMPDIR=/tmp; \
                  trace-pace --nocapture a_receiver";
    let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--timeout", "20m", "--file", &program]);
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}{stderr}");
    let skipped = format!("{stdout}{stderr}").contains("SKIPPED");
    assert!(stdout.contains("ok. 1 passed; 0 failed") && !skipped, "{stdout}{stderr}");
    // Three stages with Nagle's algorithm and without.
    assert_eq!(stdout.matches(" ns of ").count(), 6, "{stdout}");
}

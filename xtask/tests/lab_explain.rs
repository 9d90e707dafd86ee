//! `taut explain` held against stock kernels: `crates/tautline/tests/explain_lab.rs` in a guest, in virtual time.

mod support;

use support::{Lab, test_program};

fn agrees(test: &str, kernel: &str) {
    let Some(lab) = Lab::ready(test) else { return };
    let file = |program: &std::path::Path, place: &str| format!("{}:/bin/{place}", program.display());
    let explain = file(&test_program("explain_lab"), "explain-lab");
    let ip = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].into_iter().map(std::path::Path::new).find(|ip| ip.is_file());
    let ip = file(ip.expect("xtask test installs iproute2"), "ip");
    let script = "mkdir -p /var/run; TAUT_PROGRAM=$(command -v taut) TMPDIR=/tmp explain-lab --nocapture";
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--memory", "1024", "--timeout", "20m"]);
    command.args(["--module", "tun", "--file", &explain, "--file", &ip, "--", "sh", "-c", script]);
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(
        stdout.contains("ok. 2 passed; 0 failed") && !stdout.to_lowercase().contains("skipped"),
        "{stdout}{stderr}"
    );
}

#[test]
fn captures_are_explained_as_linux_5_10_has_it() {
    agrees("captures_are_explained_as_linux_5_10_has_it", "5.10");
}

#[test]
fn captures_are_explained_as_linux_6_1_has_it() {
    agrees("captures_are_explained_as_linux_6_1_has_it", "6.1");
}

#[test]
fn captures_are_explained_as_linux_6_12_has_it() {
    agrees("captures_are_explained_as_linux_6_12_has_it", "6.12");
}

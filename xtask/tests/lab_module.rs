//! The kernel module where its parts meet: on two processors, in the host's time, with keyboards,
//! LEDs and chips of the kernel's own drivers; on PREEMPT_RT, and on the debug kernel where that is.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use support::{COMPLAINTS, DEBUG_KERNEL, Lab, test_program};

/// What takes locks of others, comes and goes, or has to end: nothing whose result depends on how fast the guest is.
const TESTS: &str = "a_key keys_light leds_on a_descriptor what_is a_program_that an_edge hundred_times";
/// Calls one after another, with anything in them: where all locks may sleep, they are taken otherwise.
const CALLS: &str = "the_control";
/// What `lab_route.rs` has on the other kernels.
const RANDOM: &str = "random_programs";
/// Of these, what counts edges of both kinds: on PREEMPT_RT two that come before their thread runs are one.
const BOTH_EDGES: &str = "a_chip too_long what_reading after_readers";

/// Runs tests of the module on two processors; the kernel's log has to stay clean.
fn run(lab: &Lab, kernel: &str, tests: &str, passed: u32, more: &str) {
    let program = format!("{}:/bin/module-tests", test_program("module").display());
    // kmemleak names itself at its start and counts what it found, which `more` looks at.
    let log = "dmesg | grep -v 'kmemleak: '";
    let script = format!("TAUT_MODULE_TESTS=1 module-tests {tests}\n{more}\n! {log} | grep -E '{COMPLAINTS}'");
    let mut command = lab.command(&["run", "--kernel", kernel, "--cpus", "2", "--memory", "1024", "--timeout", "60m"]);
    for module in ["taut_gpio_sim", "taut_path", "uinput", "leds-gpio"] {
        command.args(["--module", module]);
    }
    let Output { status, stdout, stderr } =
        command.args(["--file", &program, "--", "sh", "-ec", &script]).output().unwrap();
    let stdout = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{kernel}: {stdout}\n{}", String::from_utf8_lossy(&stderr));
    assert!(stdout.contains(&format!("ok. {passed} passed; 0 failed")), "{kernel}: {stdout}");
    lab.assert_nothing_is_left();
}

#[test]
fn it_stands_two_processors() {
    let Some(lab) = Lab::with_modules("it_stands_two_processors") else { return };
    for kernel in ["6.1", "6.12"] {
        run(&lab, kernel, &format!("{TESTS} {BOTH_EDGES}"), 16, "");
    }
}

#[test]
fn it_stands_two_processors_in_real_time() {
    let Some(lab) = Lab::with_modules("it_stands_two_processors_in_real_time") else { return };
    run(&lab, "6.1-rt", &format!("{TESTS} {CALLS} {RANDOM}"), 12, "uname -v | grep PREEMPT_RT");
}

/// The compiler takes it, sparse(1) does not.
#[test]
fn what_sparse_warns_of_is_not_built() {
    let Some(lab) = Lab::with_modules("what_sparse_warns_of_is_not_built") else { return };
    let sources = lab.path("kernel/spotted");
    fs::create_dir_all(&sources).unwrap();
    let code = "#include <linux/module.h>\nstatic const char __user *text;\nstatic int __init spotted_init(void)\n\
                {\n\treturn text && *text;\n}\nmodule_init(spotted_init);\nMODULE_DESCRIPTION(\"Reads what is the \
                user's\");\nMODULE_LICENSE(\"GPL\");\n";
    fs::write(sources.join("Kbuild"), "obj-m := spotted.o\n").unwrap();
    fs::write(sources.join("spotted.c"), code).unwrap();
    let mut command = lab.command(&["run", "--kernel", "6.1-rt", "--module-source"]);
    let output = command.arg(&sources).args(["--", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("with warnings") && stderr.contains("noderef"), "{stderr}");
}

/// lockdep goes silent after its first report, whose ever that is.
#[test]
fn the_debug_kernel_has_nothing_to_report() {
    let Some(lab) = Lab::with_debug_kernel("the_debug_kernel_has_nothing_to_report") else { return };
    let more = r"grep -q 'debug_locks: *1' /proc/lockdep_stats
# What is found twice, some seconds apart, is no allocation that is on its way.
for turn in 1 2; do sleep 6; echo scan >/sys/kernel/debug/kmemleak; done
cat /sys/kernel/debug/kmemleak >leaks
cat leaks
# A line that is held while its chip goes away leaves its label: gpiod_free_commit() drops that only where the chip is.
[ $(grep -c '^unreferenced object' leaks) = $(grep -c ' desc_set_label' leaks) ]";
    run(&lab, DEBUG_KERNEL, &format!("{TESTS} {CALLS} {BOTH_EDGES} {RANDOM}"), 18, more);
}

#[test]
fn the_debug_kernel_finds_what_it_is_for() {
    let Some(lab) = Lab::with_debug_kernel("the_debug_kernel_finds_what_it_is_for") else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/faulty");
    // lockdep has one report only, so each of its has a kernel of its own. The compiler puts functions into others.
    for (fault, report) in [
        ("freed sleep leak", "KASAN: slab-use-after-free in faulty_"),
        ("nesting", "Invalid wait context"),
        ("order", "possible circular locking dependency"),
    ] {
        let script = format!(
            "for fault in {fault}; do insmod /lib/modules/*/updates/faulty.ko fault=$fault; rmmod faulty; done
for turn in 1 2; do sleep 6; echo scan >/sys/kernel/debug/kmemleak; done
cat /sys/kernel/debug/kmemleak; dmesg"
        );
        let mut command = lab.command(&["run", "--kernel", DEBUG_KERNEL, "--memory", "1024", "--module-source"]);
        let output = command.arg(&source).args(["--timeout", "20m", "--", "sh", "-c", &script]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let has = |what: &str| {
            assert!(stdout.contains(what), "no `{what}`: {stdout}\n{}", String::from_utf8_lossy(&output.stderr))
        };
        has(report);
        if fault.contains("leak") {
            has("sleeping function called from invalid context");
            has("unreferenced object");
        }
    }
}

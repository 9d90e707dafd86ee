//! The kernel module where its parts meet: on two processors, in the host's time, with keyboards and LEDs of the input core.

mod support;

use support::{COMPLAINTS, Lab, module_tests};

/// What takes locks of others, or has to end: nothing whose result depends on how fast the guest is.
const TESTS: &str = "a_key keys_light too_long a_descriptor";

#[test]
fn keys_and_leds_meet_on_two_processors() {
    let Some(lab) = Lab::with_modules("keys_and_leds_meet_on_two_processors") else { return };
    let program = format!("{}:/bin/module-tests", module_tests().display());
    for kernel in ["6.1", "6.12"] {
        let script = format!("TAUT_MODULE_TESTS=1 module-tests {TESTS}\n! dmesg | grep -E '{COMPLAINTS}'");
        let mut command = lab.command(&["run", "--kernel", kernel, "--cpus", "2", "--timeout", "20m"]);
        command.args(["--module", "taut_gpio_sim", "--module", "taut_path", "--module", "uinput", "--file", &program]);
        let output = command.args(["--", "sh", "-ec", &script]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{kernel}: {stdout}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains("test result: ok. 5 passed; 0 failed"), "{kernel}: {stdout}");
    }
    lab.assert_nothing_is_left();
}

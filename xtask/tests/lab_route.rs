//! The kernel module on the kernels that it is for: `crates/taut-route/tests/module.rs` in a guest with the
//! simulated chip, the program itself beside it, and the kernel's log, which has to stay clean. In virtual time.

mod support;

use support::{COMPLAINTS, Lab, test_program};

const KERNELS: [&str; 2] = ["6.1", "6.12"];

fn run(lab: &Lab, kernel: &str, more: &[&str], script: &str) -> String {
    let script = format!("{script}\n! dmesg | grep -E '{COMPLAINTS}'");
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--timeout", "20m"]);
    command.args(["--module", "taut_gpio_sim", "--module", "taut_path"]).args(more);
    let output = command.args(["--", "sh", "-ec", &script]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{kernel}: {stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

#[test]
fn the_module_does_what_it_promises() {
    let Some(lab) = Lab::with_modules("the_module_does_what_it_promises") else { return };
    let program = format!("{}:/bin/module-tests", test_program("module").display());
    for kernel in KERNELS {
        let stdout = run(
            &lab,
            kernel,
            &["--module", "uinput", "--module", "leds-gpio", "--file", &program],
            "TAUT_MODULE_TESTS=1 module-tests",
        );
        assert!(stdout.contains("test result: ok. 24 passed; 0 failed"), "{kernel}: {stdout}");
    }
    lab.assert_nothing_is_left();
}

#[test]
fn what_dkms_installs_works() {
    let Some(lab) = Lab::with_modules("what_dkms_installs_works") else { return };
    let script = r#"
insmod taut_path.ko
taut route run --name edges --from gpio:taut-gpio-sim/3 --when 'value == 0' --to gpio:taut-gpio-sim/5 --detach
echo '3 1000 100000' >/sys/kernel/debug/taut_gpio_sim/run
taut route stop edges
rmmod taut_path
! dmesg | grep -E 'WARNING|BUG|Oops|Call Trace'"#;
    for kernel in KERNELS {
        let out = lab.path(&format!("dkms-{kernel}"));
        let output = lab.command(&["dkms", "--kernel", kernel, "--out"]).arg(&out).output().unwrap();
        assert!(output.status.success(), "{kernel}: {}", String::from_utf8_lossy(&output.stderr));
        let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--module", "taut_gpio_sim", "--file"]);
        let output = command.arg(out.join("taut_path.ko")).args(["--", "sh", "-ec", script]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{kernel}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains("hardirq  events 1000  passed 500  dropped 500"), "{kernel}: {stdout}");
    }
}

#[test]
fn a_route_is_set_to_work_looked_at_and_stopped() {
    let Some(lab) = Lab::with_modules("a_route_is_set_to_work_looked_at_and_stopped") else { return };
    let script = r#"
route="--from gpio:taut-gpio-sim/3 --to gpio:taut-gpio-sim/5 --to led:taut-sim"
taut route check $route --when 'value == 0' --log edges.jsonl
taut route run --name edges $route --when 'value == 0' --log edges.jsonl --detach
echo '3 1000 100000' >/sys/kernel/debug/taut_gpio_sim/run
taut route list
! rmmod taut_path 2>/dev/null
taut route stats --json
taut route stop edges
echo logged $(grep -c '"value":0' edges.jsonl)
# One whose holder is killed ends with it.
taut route run --name edges $route --place kthread --detach
kill -9 $(pidof taut)
until rmmod taut_path; do sleep 0.01; done
# Without the module the same route runs in user space, and says why.
taut route check $route
taut route run --name edges $route --detach
taut route list
taut route stop edges"#;
    for kernel in KERNELS {
        let stdout = run(&lab, kernel, &[], script);
        let has = |text: &str| assert!(stdout.contains(text), "{kernel}: no `{text}` in {stdout}");
        has("runs in hardirq, else kthread: ");
        has("edges.jsonl is written from the module's log of 8192 records");
        has("logged 500\n");
        has(r#""runs": "hardirq""#);
        has("edges  hardirq  events 1000  passed 500  dropped 500  short 0  lost 0");
        has("lacks for the kernel: the kernel module (modprobe taut_path");
        has("runs in user: ");
    }
}

#[test]
fn the_bench_has_the_kernels_paths() {
    let Some(lab) = Lab::with_modules("the_bench_has_the_kernels_paths") else { return };
    let script =
        "taut route bench --over gpio --rounds 2 --edges 200 --period 500us --samples 20 --json >$OUT/bench.json";
    let out = lab.path("out");
    run(&lab, "6.12", &["--out", out.to_str().unwrap()], script);
    let bench: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("bench.json")).unwrap()).unwrap();
    let rows = bench["results"].as_array().unwrap();
    let p50 = |path: &str, key: &str| {
        let row = rows.iter().find(|row| row["path"] == path && !row[key].is_null());
        row.unwrap_or_else(|| panic!("no {key} of {path} in {bench}"))[key]["p50"].as_f64().unwrap()
    };
    // Instructions, not time: they are the same on every host.
    let (hardirq, c) = (p50("hardirq", "edge_to_edge_ns"), p50("hardirq-c", "edge_to_edge_ns"));
    assert!(hardirq <= 2.0 * c, "a program takes {hardirq}, C {c}");
    assert!(p50("kthread", "edge_to_edge_ns") >= 4.0 * hardirq);
    assert!(p50("naive", "loop_ns") >= 100.0 * p50("hardirq-c", "loop_ns"));
    for row in rows.iter().filter(|row| row["path"].as_str().is_some_and(|path| path.starts_with("hardirq"))) {
        assert_eq!(row["lost"], 0, "{row}");
    }
}

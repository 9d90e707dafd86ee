//! The user path on GPIO lines, input devices and LEDs, under real kernels: the simulated chip
//! makes edges and counts outputs.

mod support;

use std::fs;

use serde_json::Value;
use support::Lab;

const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Edges of the third run, faster than user space can take them up.
const FLOOD: u64 = 20_000;

const SCRIPT: &str = r#"
set -e
modprobe evdev
sim=/sys/kernel/debug/taut_gpio_sim
# What the kernel does when it has just booted takes the one processor for longer than its queue of edges lasts.
sleep 5
route() { name=$1; shift; taut route run --detach --name $name "$@"; }
# Stops a route when it has been quiet for long enough to count what was lost.
stop() { sleep 1; taut route stop $1 --json >$OUT/$1.json; }

for by in cdev sysfs; do
    route $by --from "gpio:taut-gpio-sim/3?by=$by" --when 'value == 0' --to "gpio:taut-gpio-sim/5?by=$by"
    echo "3 1000 200000" >$sim/run
    cat $sim/counts >$OUT/$by.counts
    stop $by
done
for edge in rising falling; do
    route $edge --from "gpio:taut-gpio-sim/3?edge=$edge" --when 'value == 0' --to led:taut-sim
    echo "3 1000 200000" >$sim/run
    stop $edge
done
for by in cdev sysfs; do
    route flood-$by --from "gpio:taut-gpio-sim/3?by=$by" --to "gpio:taut-gpio-sim/5"
    echo "3 20000 4000" >$sim/run
    stop flood-$by
done
# Levels of 400 us do not outlast 1 ms, which the kernel rounds up to a tick of 4 ms; those of 40 ms do.
route bounce --from "gpio:taut-gpio-sim/3?debounce=1ms" --when 'since_last > 0' --to file:/dev/null
echo "3 20 400000" >$sim/run
echo "3 10 40000000" >$sim/run
stop bounce

# A key of the machine's keyboard, pressed and let go twice; another one; both ways to name the device.
node=/dev/input/$(ls /sys/class/input | grep -m1 event)
name=$(cat /sys/class/input/${node##*/}/device/name)
route key --from "input:$name/key/30" --when 'value == 1' --to led:taut-sim --to file:key.txt --send 'count'
route node --from "input:$node/1/0x30" --to file:/dev/null
now='\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
key() { printf "$now\\001\\000\\$1\\000\\00$2\\000\\000\\000$now\\0\\0\\0\\0\\0\\0\\0\\0" >$node; }
key 036 1; key 036 0; key 060 1; key 060 0; key 036 1; key 036 0
stop key
stop node
cat key.txt >$OUT/key.txt

route held --from gpio:taut-gpio-sim/3 --to file:/dev/null
set +e
taut route run --from gpio:taut-gpio-sim/3 --to file:- 2>$OUT/held; echo $? >>$OUT/held
taut route run --from gpio:taut-gpio-sim/32 --to file:- 2>$OUT/offset; echo $? >>$OUT/offset
stop held
ip link set lo up
taut route check --from udp://127.0.0.1:9100 --to reply --to udp://127.0.0.1:7001 --json >$OUT/several.json
taut route check --from udp://127.0.0.1:9100 --to reply --json >$OUT/one.json
taut route bench --over gpio --rounds 2 --edges 200 --samples 20 --json >$OUT/bench.json
"#;

#[test]
fn edges_keys_and_leds_in_user_space() {
    let Some(lab) = Lab::ready("edges_keys_and_leds_in_user_space") else { return };
    for kernel in KERNELS {
        let out = lab.path("out");
        let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--module", "taut_gpio_sim", "--out"]);
        let output = command.arg(&out).args(["--", "sh", "-c", SCRIPT]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kernel}: {stderr}");
        let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
        let json = |name: &str| -> Value { serde_json::from_str(&read(&format!("{name}.json"))).unwrap() };
        let counters = |name: &str| {
            let counters = json(name)["results"][0]["counters"].clone();
            ["events", "passed", "lost"].map(|counter| counters[counter].as_u64().unwrap())
        };

        // Both interfaces give the same, and every output reaches the line.
        for by in ["cdev", "sysfs"] {
            assert_eq!(counters(by), [1000, 500, 0], "{kernel} {by}");
            assert!(read(&format!("{by}.counts")).contains("outputs 500\n"), "{kernel} {by}");
        }
        assert_eq!(counters("rising"), [500, 0, 0], "{kernel}");
        assert_eq!(counters("falling"), [500, 500, 0], "{kernel}");
        // What it could not take up it knows of, to the last edge.
        for by in ["cdev", "sysfs"] {
            let [events, _, lost] = counters(&format!("flood-{by}"));
            assert_eq!(events + lost, FLOOD, "{kernel} {by}: {events} events, {lost} lost");
        }
        let [_, _, lost] = counters("flood-sysfs");
        assert!(lost > 0, "{kernel}: 4 us are too long to lose any");
        assert_eq!(counters("bounce")[0], 10, "{kernel}");

        assert_eq!((counters("key"), counters("node")), ([4, 2, 0], [2, 2, 0]), "{kernel}");
        assert_eq!(read("key.txt"), "1\n3\n", "{kernel}");
        assert!(read("held").contains("is held by taut-") && read("held").ends_with("4\n"), "{}", read("held"));
        assert!(read("offset").contains("lines 0 to 31") && read("offset").ends_with("2\n"), "{}", read("offset"));

        // One sink is XDP's; several need tcx, which 6.1 has not and says so.
        let (one, several) = (json("one")["results"][0].clone(), json("several")["results"][0].clone());
        assert_eq!(one["runs"][0].as_str().unwrap().split('-').next(), Some("xdp"), "{kernel}: {one:#}");
        match kernel {
            "6.1" => {
                assert_eq!(several["runs"][0], "user", "{several:#}");
                assert!(several["lacks"].to_string().contains("Linux 6.6 (tcx"), "{several:#}");
            }
            _ => assert_eq!(several["runs"][0], "tc", "{several:#}"),
        }

        let rows = json("bench")["results"].as_array().unwrap().clone();
        let p50 = |path: &str, of: &str| {
            let row = rows.iter().find(|row| row["path"] == path && !row[of].is_null());
            row.unwrap_or_else(|| panic!("{kernel}: no {of} of {path}"))[of]["p50"].as_u64().unwrap()
        };
        for of in ["loop_ns", "edge_to_edge_ns"] {
            for kept in ["kept-open", "cdev"] {
                assert!(p50("naive", of) > 2 * p50(kept, of), "{kernel} {of} {kept}");
            }
        }
        for row in rows.iter().filter(|row| row["path"] != "naive") {
            assert_eq!(row["lost"], 0, "{kernel}: {row:#}");
        }
        fs::remove_dir_all(out).unwrap();
    }
    lab.assert_nothing_is_left();
}

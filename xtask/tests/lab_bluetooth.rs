//! Bluetooth endpoints on real kernels: `taut` at both ends of two virtual adapters (BlueZ's
//! btvirt, without air time) in one guest, in virtual time.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{Lab, note_skipped};

/// Two adapters; then what follows.
const ADAPTERS: &str = "
modprobe hci_vhci
btvirt -l2 >/tmp/btvirt 2>&1 &
until [ -e /sys/class/bluetooth/hci1 ]; do sleep 0.1; done
await() { until grep -q \"$1\" \"$2\" 2>/dev/null; do sleep 0.1; done; }
";

/// The guest's script with btvirt and what else it needs of the host's programs; `None`, loudly,
/// where they are missing.
fn run(lab: &Lab, test: &str, kernel: &str, programs: &[&str], script: &str) -> Option<(i32, String)> {
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--timeout", "15m", "--out"]);
    command.arg(lab.path("out"));
    for program in programs.iter().chain(&["/usr/bin/btvirt"]) {
        if !Path::new(program).exists() {
            note_skipped(test, &format!("{program} is missing: apt-get install bluez bluez-test-tools"));
            return None;
        }
        command.args(["--file", program]);
    }
    let output = command.args(["--", "sh", "-c", &format!("{ADAPTERS}{script}")]).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Some((output.status.code().unwrap(), text))
}

fn recording(lab: &Lab, name: &str) -> Value {
    let text =
        fs::read_to_string(lab.path(&format!("out/{name}.json"))).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

fn options(row: &Value) -> Vec<&str> {
    row["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

/// Workloads over both kinds of link, on one kernel; virtual time is cheap as long as it is idle.
fn workloads(test: &str, kernel: &str, ways: &[&str]) {
    let Some(lab) = Lab::ready(test) else { return };
    let script = "
taut serve 'l2cap://any/129?adapter=hci1' 'rfcomm://any/3?adapter=hci1' >/tmp/serve &
await listening /tmp/serve
cat /tmp/serve
for place in l2cap://00:AA:01:01:00:01/129 rfcomm://00:AA:01:01:00:01/3; do
    kind=${place%%:*}
    taut echo $place --count 60 --rounds 2 --json >$OUT/$kind-echo.json || exit 10
    taut echo $place --rate 100 --engine poll --time 1s --rounds 2 --json >$OUT/$kind-rate.json || exit 11
    taut pace $place --time 600ms --rounds 2 --json >$OUT/$kind-pace.json || exit 12
    for way in $WAYS; do
        taut stream $place --direction $way --time 100ms --rounds 2 --json >$OUT/$kind-$way.json || exit 13
    done
done
kill -INT %2 && wait %2 && tail -n 1 /tmp/serve
";
    let script = format!("WAYS='{}'\n{script}", ways.join(" "));
    let Some((code, text)) = run(&lab, test, kernel, &[], &script) else { return };
    assert_eq!(code, 0, "{kernel}: {text}");
    let listening =
        "listening on l2cap://00:AA:01:01:00:01/129?adapter=hci1 rfcomm://00:AA:01:01:00:01/3?adapter=hci1\n";
    assert!(text.starts_with(listening), "{text}");
    // Two rounds of each command over each kind.
    let served = format!("served {} clients (0 refused, 0 broke the protocol)", 2 * 2 * (3 + ways.len()));
    assert!(text.contains(&served), "{text}");

    for kind in ["l2cap", "rfcomm"] {
        let row = |name: &str| recording(&lab, &format!("{kind}-{name}"))["results"][0].clone();
        let echo = row("echo");
        assert_eq!((&echo["sent"], &echo["lost"]), (&60.into(), &0.into()), "{kernel} {kind}");
        // There is no air time, and yet a way through two stacks.
        let p50 = echo["rtt_ns"]["p50"].as_u64().unwrap();
        assert!((10_000..10_000_000).contains(&p50), "{kernel} {kind}: {p50}");
        assert_eq!((&row("rate")["sent"], &row("rate")["lost"]), (&100.into(), &0.into()), "{kernel} {kind}");
        assert_eq!(row("pace")["lost"], 0, "{kernel} {kind}");
        assert_eq!(row("pace")["delivery_ns"]["count"], row("pace")["send_call_ns"]["count"], "{kernel} {kind}");
        for way in ways {
            let stream = row(way);
            assert_eq!(stream["lost_bytes"], 0, "{kernel} {kind} {way}");
            let rounds = stream["rounds"].as_array().unwrap();
            assert_eq!(rounds.len(), 2, "{kernel} {kind} {way}");
            assert!(
                rounds.iter().all(|round| round["bytes"].as_u64() > Some(20_000)),
                "{kernel} {kind} {way}: {rounds:?}"
            );
        }
    }
    // btvirt's buffers hold 192 bytes, of which L2CAP's header takes 4; 672 bytes are four such PDUs.
    let l2cap = recording(&lab, "l2cap-echo");
    let l2cap = options(&l2cap["results"][0]);
    let expected = [
        "rcv_mtu=672",
        "snd_mtu=672",
        "rcv_mps=188",
        "snd_mps=188",
        "credits_granted=4",
        "credits_received=4",
        "connection_interval_us=50000",
    ];
    assert!(expected.iter().all(|option| l2cap.contains(option)), "{kernel}: {l2cap:?}");
    let rfcomm = recording(&lab, "rfcomm-echo");
    assert!(options(&rfcomm["results"][0]).contains(&"frame_bytes=1016"), "{kernel}: {rfcomm:?}");
}

#[test]
fn all_workloads_run_on_linux_5_10() {
    workloads("all_workloads_run_on_linux_5_10", "5.10", &["both"]);
}

#[test]
fn all_workloads_run_on_linux_6_1() {
    workloads("all_workloads_run_on_linux_6_1", "6.1", &["both"]);
}

#[test]
fn all_workloads_run_on_linux_6_12() {
    workloads("all_workloads_run_on_linux_6_12", "6.12", &["up", "down", "both"]);
}

#[test]
fn parameters_of_an_endpoint_take_effect() {
    let test = "parameters_of_an_endpoint_take_effect";
    let Some(lab) = Lab::ready(test) else { return };
    let script = "
taut serve 'l2cap://any/0?adapter=hci1&mtu=2048' 'l2cap://any/4097?adapter=hci1&type=bredr&mtu=1000' >/tmp/serve &
await listening /tmp/serve
set -- $(sed 's/?[^ ]*//g; s/listening on//' /tmp/serve)
# The PSM that the kernel picked is one that is free to use on LE.
[ ${1##*/} -ge 128 ] || exit 9
taut echo \"$1?mtu=512&rcvbuf=40000&security=low\" --size 1800 --count 20 --rounds 1 --json >$OUT/le.json || exit 10
taut echo \"$2?adapter=hci0&type=bredr&mtu=900\" --count 20 --rounds 1 --json >$OUT/bredr.json || exit 11
taut echo l2cap://00:AA:01:00:00:00/129?adapter=hci9 2>&1 && exit 12
taut serve l2cap://00:00:00:00:00:01/129 2>&1 && exit 13
exit 0
";
    let Some((code, text)) = run(&lab, test, "6.12", &[], script) else { return };
    assert_eq!(code, 0, "{text}");
    let le = recording(&lab, "le");
    let le = options(&le["results"][0]);
    let expected = ["rcv_mtu=512", "snd_mtu=2048", "rcvbuf=80000", "security_level=1"];
    assert!(expected.iter().all(|option| le.contains(option)), "{le:?}");
    let bredr = recording(&lab, "bredr");
    let bredr = options(&bredr["results"][0]);
    assert!(["rcv_mtu=900", "snd_mtu=1000"].iter().all(|option| bredr.contains(option)), "{bredr:?}");
    assert!(
        text.contains("there is no adapter hci9; there are: hci0 (00:AA:01:00:00:00), hci1 (00:AA:01:01:00:01)"),
        "{text}"
    );
    assert!(text.contains("no adapter here has the address 00:00:00:00:00:01"), "{text}");
}

#[test]
fn a_stock_receiver_takes_what_is_sent_and_a_lost_peer_is_told() {
    let test = "a_stock_receiver_takes_what_is_sent_and_a_lost_peer_is_told";
    let Some(lab) = Lab::ready(test) else { return };
    let script = "
taut serve 'l2cap://any/129?adapter=hci1' >/tmp/serve & serve=$!
await listening /tmp/serve
l2test -r -i hci1 -P 131 -V le_public -b 672 >$OUT/l2test 2>&1 &
sleep 1
taut stream l2cap://00:AA:01:01:00:01/131 --plain --time 100ms --rounds 1 --json >$OUT/plain.json || exit 10
taut echo l2cap://00:AA:01:01:00:01/129 --rate 100 --engine poll --time 60s --rounds 1 --json >$OUT/lost.json & echo=$!
sleep 20
kill -KILL $serve
wait $echo
[ $? = 1 ] || exit 11
";
    let Some((code, text)) = run(&lab, test, "6.1", &["/usr/bin/l2test"], script) else { return };
    assert_eq!(code, 0, "{text}");
    let heard = fs::read_to_string(lab.path("out/l2test")).unwrap();
    assert!(heard.contains("Disconnect: Success"), "{heard}");
    assert_eq!(recording(&lab, "plain")["ended"]["how"], "complete");
    let lost = recording(&lab, "lost");
    assert_eq!(lost["ended"]["how"], "peer_gone", "{lost}");
    // What was measured before is there.
    assert!(lost["results"][0]["sent"].as_u64() > Some(100), "{lost}");
}

#[test]
fn adapters_are_put_back_as_they_were() {
    let test = "adapters_are_put_back_as_they_were";
    let Some(lab) = Lab::ready(test) else { return };
    let script = "
btmon -w $OUT/trace >/dev/null & monitor=$!
sleep 1
taut serve 'l2cap://any/129?adapter=hci1' >/tmp/serve & serve=$!
await listening /tmp/serve
taut echo l2cap://00:AA:01:01:00:01/129 --count 10 --rounds 2 --json >/dev/null || exit 10
kill -INT $serve
wait $serve || exit 11
sleep 1
kill $monitor
wait $monitor
exit 0
";
    let Some((code, text)) = run(&lab, test, "6.1", &["/usr/bin/btmon"], script) else { return };
    assert_eq!(code, 0, "{text}");
    // The trace is a stock tool's, and so is what reads it.
    let output = std::process::Command::new("btmon").arg("-r").arg(lab.path("out/trace")).output().unwrap();
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let commands: Vec<String> = listing
        .lines()
        .zip(listing.lines().skip(1))
        .filter_map(|(line, value)| {
            let name = line.strip_prefix("@ MGMT Command: Set ")?.split(" (").next()?.to_owned();
            let adapter = line.rsplit('[').next()?.split(']').next()?;
            let value = value.rsplit("(0x0").next()?.trim_end_matches(')');
            Some(format!("{adapter} {name} {value}"))
        })
        .collect();
    // Each on its adapter: on in the one order, off in the other. Rounds change nothing.
    let of = |adapter: &str| commands.iter().filter(|line| line.starts_with(adapter)).cloned().collect::<Vec<_>>();
    for adapter in ["hci0", "hci1"] {
        let turned = of(adapter);
        let (on, off) = turned.split_at(turned.len() / 2);
        let name = |line: &String| line.rsplit_once(' ').map(|(name, _)| name.to_owned());
        let (on_names, mut off_names): (Vec<_>, Vec<_>) =
            (on.iter().map(name).collect(), off.iter().map(name).collect());
        off_names.reverse();
        assert!(!on.is_empty() && on_names == off_names, "{commands:?}");
        assert!(
            on.iter().all(|line| !line.ends_with(" 0")) && off.iter().all(|line| line.ends_with(" 0")),
            "{commands:?}"
        );
    }
    assert!(of("hci1").iter().any(|line| line.contains("Advertising")), "{commands:?}");
}

//! Stock tools as peers of ours over the controllers of `taut air attach`, each as the one that
//! connects and the one that listens: l2cat and l2test over LE, l2test and rctest over BR/EDR.
//! btmon has to understand all that both sides' controllers saw, and `taut explain` tells of each
//! channel in both sides' logs who held its data.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{Lab, note_skipped};

/// Two adapters that are on, the second to be connected to; then what follows.
const RADIO: &str = r#"
await() { until grep -qs "$1" "$2"; do sleep 0.1; done; }
size() { stat -c %s "$1" 2>/dev/null || echo 0; }
# Reads of a receiver of BlueZ's that dumps what it gets, and whether it was told of the end.
dumped() { echo $(basename $1) $(grep -c "Rec.* bytes" $1); grep -q Disconnect $1 && echo $(basename $1)-end told; }
A0=00:AA:01:00:00:00 A1=00:AA:01:01:00:00
taut air attach two-nodes --set ci=15ms $SETTINGS --on --btsnoop $OUT --json >/tmp/radio & radio=$!
await adapters /tmp/radio
# Frames of l2test and rctest, and what one of them reads.
FRAMES=40 BYTES=600
"#;

/// Each log of a host, with all its directions.
const EXPLAIN: &str = "for side in central peripheral; do
    taut explain --top 64 --json $OUT/$side.btsnoop >$OUT/$side.explained || exit 15
done";

/// Runs the script and gives the lines `name value` that it printed, and what each host's log is explained by.
fn run(
    test: &str,
    kernel: &str,
    settings: &str,
    programs: &[&str],
    script: &str,
) -> Option<(BTreeMap<String, String>, Logs)> {
    let lab = Lab::ready(test)?;
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--module", "hci_vhci", "--l2cat"]);
    for program in programs.iter().chain(&["/usr/bin/btmon"]) {
        if !Path::new(program).exists() {
            note_skipped(test, &format!("{program} is missing: apt-get install bluez"));
            return None;
        }
        command.args(["--file", program]);
    }
    let script = format!("SETTINGS='{settings}'\n{RADIO}{script}\nkill -INT $radio; wait $radio\n{EXPLAIN}");
    let output = command.arg("--out").arg(lab.path("out")).args(["--", "sh", "-c", &script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{kernel}: {stdout}{stderr}");
    for side in ["central", "peripheral"] {
        assert_eq!(
            support::complaints(&lab.path(&format!("out/{side}.btsnoop"))),
            Vec::<String>::new(),
            "{kernel} {side}"
        );
    }
    let told: BTreeMap<String, String> =
        stdout.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    eprintln!("{kernel}: {told:?}\n{stderr}");
    Some((told, Logs(["central", "peripheral"].map(|side| directions(&lab.path(&format!("out/{side}.explained")))))))
}

/// The logs of the central's and of the peripheral's host as `taut explain --json` has them.
struct Logs([Vec<Value>; 2]);

impl Logs {
    /// What one side has sent on a channel, by its own log, after the other side's has been found to have as many
    /// bytes of it. Of several channels with this name the first.
    fn sent(&self, side: usize, channel: &str) -> &Value {
        let of = |log: usize, end: &str| {
            let is_it = |row: &&Value| {
                row[end] == "hci0" && ["from", "to"].iter().any(|end| row[*end].to_string().contains(channel))
            };
            self.0[log].iter().find(is_it).unwrap_or_else(|| panic!("{channel} in log {log}: {:#?}", self.0[log]))
        };
        let (sent, received) = (of(side, "from"), of(1 - side, "to"));
        assert_eq!(sent["bytes"], received["bytes"], "{channel}: {sent:#} {received:#}");
        sent
    }
}

/// The share of a direction that a holder has.
fn share(direction: &Value, holder: &str) -> f64 {
    let rows = direction["breakdown"].as_array().unwrap();
    rows.iter().find(|row| row["holder"] == holder).map_or(0.0, |row| row["share"].as_f64().unwrap())
}

/// The directions of a log, in each of which all time is somebody's.
fn directions(explained: &Path) -> Vec<Value> {
    let text = fs::read_to_string(explained).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let directions = document["files"][0]["worst"].as_array().unwrap().clone();
    for direction in &directions {
        let held = direction["breakdown"].as_array().unwrap().iter().map(|row| row["held_ns"].as_u64().unwrap());
        assert_eq!(held.sum::<u64>(), direction["span_ns"].as_u64().unwrap(), "{direction:#}");
        eprintln!("{} > {}: {} bytes", direction["from"], direction["to"], direction["bytes"]);
        for row in direction["breakdown"].as_array().unwrap() {
            eprintln!("    {} {}", row["holder"], row["share"]);
        }
    }
    directions
}

fn number(told: &BTreeMap<String, String>, name: &str) -> u64 {
    told.get(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {told:?}"))
}

/// l2cat and l2test over LE.
fn over_le(test: &str, kernel: &str) -> Option<Logs> {
    let script = r#"
head -c 20000 /dev/urandom >/tmp/data

# l2cat listens: it serves cat, which answers; and takes what comes.
l2cat serve --no-advertise --bind $A1 133 cat &
( sleep 600 | l2cat listen --no-advertise --bind $A1 134 >/tmp/heard ) &
sleep 1
taut echo "l2cap://$A1/133?adapter=hci0" --plain --count 60 --rounds 2 --json >$OUT/echo || exit 10
grep -q '"lost": 0,' $OUT/echo && echo echoed all
taut pipe file:/tmp/data "l2cap://$A1/134?adapter=hci0" || exit 11
sleep 2; cmp /tmp/data /tmp/heard && echo l2cat-listens same

# l2cat connects, to an echo of ours, and keeps its input open until all is back.
taut pipe "listen:l2cap://$A1/136?adapter=hci1" exec:cat & pipe=$!
sleep 1
( cat /tmp/data; sleep 20 ) | l2cat connect --bind $A0 $A1 136 >/tmp/back
cmp /tmp/data /tmp/back && echo l2cat-connects same
kill -INT $pipe; wait $pipe

# l2test listens: it receives from us, and sends to us.
l2test -d -i hci1 -P 137 -V le_public -b $BYTES >/tmp/l2test-receives 2>&1 &
l2test -w -i hci1 -P 138 -V le_public -b $BYTES -N $FRAMES -g 3000 >/tmp/l2test-w 2>&1 &
sleep 1
taut stream "l2cap://$A1/137?adapter=hci0" --plain --time 500ms --rounds 1 --json >$OUT/stream || exit 12
# Not 2 s, at which the kernel ends a connection without channels.
sleep 4; dumped /tmp/l2test-receives
taut pipe --idle 5s "l2cap://$A1/138?adapter=hci0" file:/tmp/from-w
echo l2test-listens-and-sends $(size /tmp/from-w)

# l2test connects: it sends to us, and receives from us.
taut pipe "listen:l2cap://$A1/139?adapter=hci1" file:/tmp/from-s --once & pipe=$!
sleep 1
l2test -s -i hci0 -P 139 -V le_public -b $BYTES -N $FRAMES -g 5000 $A1 >/tmp/l2test-s 2>&1 || exit 13
wait $pipe
echo l2test-connects-and-sends $(size /tmp/from-s)
taut pipe "listen:l2cap://$A1/140?adapter=hci1" "exec:head -c 12000 /dev/zero" --once & pipe=$!
sleep 1
l2test -u -i hci0 -P 140 -V le_public -b $BYTES $A1 >/tmp/l2test-u 2>&1
wait $pipe && echo l2test-connects-and-receives $?
"#;
    let (told, logs) = run(test, kernel, "", &["/usr/bin/l2test"], script)?;
    assert_eq!(told.get("echoed").map(String::as_str), Some("all"), "{told:?}");
    for name in ["l2cat-listens", "l2cat-connects"] {
        assert_eq!(told.get(name).map(String::as_str), Some("same"), "{kernel} {name}: {told:?}");
    }
    // Half a second of 672-byte SDUs, one every other interval of 15 ms or faster.
    assert!(number(&told, "l2test-receives") > 10 && told.contains_key("l2test-receives-end"), "{kernel}: {told:?}");
    for name in ["l2test-listens-and-sends", "l2test-connects-and-sends"] {
        assert_eq!(number(&told, name), 40 * 600, "{kernel} {name}");
    }
    assert_eq!(number(&told, "l2test-connects-and-receives"), 0, "{kernel}");
    for (side, channel, bytes) in
        [(0, "PSM 0x0086 ", 20_000), (0, "PSM 0x0088 ", 20_000), (0, "PSM 0x008b ", 24_000), (1, "PSM 0x008a ", 24_000)]
    {
        let sent = logs.sent(side, channel);
        assert_eq!(sent["bytes"], bytes, "{kernel} {sent:#}");
    }
    Some(logs)
}

/// l2test and rctest over BR/EDR.
#[test]
fn stock_tools_talk_to_ours_over_bredr() {
    let script = r#"
for kind in l2cap rfcomm; do
    case $kind in
    l2cap) tool="l2test" ports="4113 4115 4117 4119" options="&type=bredr" ;;
    rfcomm) tool="rctest" ports="5 6 7 8" options="" ;;
    esac
    set -- $ports
    # It listens: it receives from us, and sends to us.
    $tool -d -i hci1 -P $1 -b $BYTES >/tmp/$tool-receives 2>&1 &
    $tool -w -i hci1 -P $2 -b $BYTES -N $FRAMES -L 10 >/tmp/$tool-w 2>&1 &
    sleep 1
    taut stream "$kind://$A1/$1?adapter=hci0$options" --plain --time 500ms --rounds 1 --json >$OUT/stream || exit 10
    sleep 4; dumped /tmp/$tool-receives
    taut pipe --idle 5s "$kind://$A1/$2?adapter=hci0$options" file:/tmp/$kind-w
    echo $tool-listens-and-sends $(size /tmp/$kind-w)
    # It connects: it sends to us, and receives from us.
    taut pipe "listen:$kind://$A1/$3?adapter=hci1$options" file:/tmp/$kind-s --once & pipe=$!
    sleep 1
    $tool -s -i hci0 -P $3 -b $BYTES -N $FRAMES -L 10 $A1 >/tmp/$tool-s 2>&1 &
    wait $pipe
    echo $tool-connects-and-sends $(size /tmp/$kind-s)
    taut pipe "listen:$kind://$A1/$4?adapter=hci1$options" "exec:head -c 12000 /dev/zero" --once & pipe=$!
    sleep 1
    $tool -u -i hci0 -P $4 -b $BYTES $A1 >/tmp/$tool-u 2>&1 &
    wait $pipe && echo $tool-connects-and-receives $?
done
"#;
    let programs = ["/usr/bin/l2test", "/usr/bin/rctest"];
    let settings = "--set bredr.on=true";
    let Some((told, logs)) = run("stock_tools_talk_to_ours_over_bredr", "6.12", settings, &programs, script) else {
        return;
    };
    for tool in ["l2test", "rctest"] {
        for role in ["listens-and-sends", "connects-and-sends"] {
            assert_eq!(number(&told, &format!("{tool}-{role}")), 40 * 600, "{tool} {role}");
        }
        assert_eq!(number(&told, &format!("{tool}-connects-and-receives")), 0, "{tool}");
        assert!(number(&told, &format!("{tool}-receives")) > 10, "{tool}: {told:?}");
        assert!(told.contains_key(&format!("{tool}-receives-end")), "{tool}: {told:?}");
    }
    for channel in ["PSM 0x1015 ", "RFCOMM channel 7 "] {
        // What a controller holds without saying why may be the air.
        assert!(share(logs.sent(0, channel), "air") > 0.9, "{channel}");
    }
}

#[test]
fn stock_tools_talk_to_ours_over_le_on_linux_5_10() {
    let Some(logs) = over_le("stock_tools_talk_to_ours_over_le_on_linux_5_10", "5.10") else { return };
    // Before 6.10 the kernel grants credits for one SDU at a time.
    let sent = logs.sent(0, "PSM 0x008b ");
    assert!(share(sent, "credits") > 0.7, "{sent:#}");
}

#[test]
fn stock_tools_talk_to_ours_over_le_on_linux_6_12() {
    let Some(logs) = over_le("stock_tools_talk_to_ours_over_le_on_linux_6_12", "6.12") else { return };
    // The rule is another one there.
    let sent = logs.sent(0, "PSM 0x008b ");
    assert!(share(sent, "air") > share(sent, "credits"), "{sent:#}");
}

//! `taut pipe` over Bluetooth between two adapters of a stock kernel: what goes in comes out, both ways, for messages
//! of every length about the MTU; what is cut off by a kill is a prefix; blocks that are no multiple of the MTU leave
//! no tails on the air; and what a kernel throws away, because its credits let the peer send on, ends the pipe.

mod support;

use std::fs;

use serde_json::Value;
use support::Lab;

/// What is sent: about the MTU of 672 bytes, and longer than what the sockets on the way hold.
const SIZES: &[usize] = &[1, 671, 672, 673, 4096, 30_011, 100_001];
/// The client that is killed sends this one.
const KILLED: usize = 400_001;
/// What goes to a program that does not read for 30 s: more than all buffers on the way to it have.
const SLOW: usize = 200_001;

fn data(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// An echo behind one adapter; at the other one client after another, whose input comes in blocks of 997 bytes.
fn script(any: &str, sizes: &[usize]) -> String {
    let to = any.replace("any", "00:AA:01:01:00:00");
    let sizes = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    format!(
        "
: @peer
taut pipe 'listen:{any}?adapter=hci1' exec:cat --json >$OUT/server.json 2>$OUT/server.log &
server=$!
sleep 2
client() {{ dd bs=997 if=/root/$1 2>/dev/null | timeout -s KILL $2 taut pipe stdio: '{to}?adapter=hci0' --linger 3s --json; }}
for size in {sizes}; do
    client $size 120 >$OUT/$size.back 2>$OUT/$size.json || echo \"client of $size: code $?\" >&2
done
client {KILLED} 3 >$OUT/killed.back 2>/dev/null
sleep 4
kill -INT $server
wait $server
"
    )
}

/// A program that does not read for 30 s, and a client that waits for it.
fn slow_script() -> String {
    format!(
        "
taut pipe 'listen:l2cap://any/227?adapter=hci1' \"exec:sh -c 'sleep 30; exec cat'\" --once --json >$OUT/slow.json 2>$OUT/slow.log &
slow=$!
sleep 2
timeout -s KILL 120 taut pipe stdio: 'l2cap://00:AA:01:01:00:00/227?adapter=hci0' --linger 31s </root/{SLOW} >$OUT/slow.back
wait $slow
echo code $? >$OUT/slow.code
"
    )
}

/// Plays it, and holds what came back against what was sent and the accounts.
fn run(lab: &Lab, kind: &str, kernel: &str, any: &str, sizes: &[usize]) {
    let mut command = lab.command(&["pair", "--kernel", kernel, "--icount", "--ci", "15ms", "--capture", "--out"]);
    command.arg(lab.path("out"));
    if kind == "rfcomm" {
        command.args(["--type", "rfcomm"]);
    }
    let mut script = script(any, sizes);
    if kind == "l2cap" {
        script += &slow_script();
    }
    for size in sizes.iter().chain([&KILLED, &SLOW]) {
        let file = lab.file(&size.to_string(), &data(*size));
        command.arg("--file").arg(format!("{}:/root/{size}", file.display()));
    }
    let output = command.args(["--", "sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let read = |name: &str| fs::read(lab.path("out").join(name)).unwrap_or_default();
    let told = String::from_utf8_lossy(&read("server.log")).into_owned();
    assert!(output.status.success(), "{stderr}\n{told}");
    for &size in sizes {
        let back = read(&format!("{size}.back"));
        assert!(back == data(size), "{size}: {} bytes came back\n{stderr}\n{told}", back.len());
        let account: Value = serde_json::from_slice(&read(&format!("{size}.json"))).unwrap();
        let sums = ["bytes_a_to_b", "bytes_b_to_a", "undelivered_a_to_b", "undelivered_b_to_a"]
            .map(|key| account[key].as_u64());
        assert_eq!(sums, [Some(size as u64), Some(size as u64), Some(0), Some(0)], "{account}");
    }
    let back = read("killed.back");
    assert!(back.len() < KILLED && data(KILLED).starts_with(&back), "{} bytes came back to the killed", back.len());
    let server: Value = serde_json::from_slice(&read("server.json")).unwrap();
    assert_eq!(server["pipes_total"], sizes.len() as u64 + 1, "{server}");
    // Who closes a channel after all of it came is no failure.
    let pipes = server["pipes"].as_array().unwrap();
    assert!(pipes[..sizes.len()].iter().all(|pipe| pipe["failed"] == false && pipe["ended_by"] == "a"), "{server}");
    let killed = &pipes[sizes.len()];
    assert!(killed["b_to_a"]["bytes"].as_u64().unwrap() >= back.len() as u64, "{killed}");
    assert!(killed["a_to_b"]["bytes"].as_u64().unwrap() <= KILLED as u64, "{killed}");
}

/// What became of [`SLOW`] bytes for a program that does not read: what came back, and the account of its pipe.
fn slow(lab: &Lab) -> (Vec<u8>, Value, String) {
    let read = |name: &str| fs::read(lab.path("out").join(name)).unwrap();
    (
        read("slow.back"),
        serde_json::from_slice(&read("slow.json")).unwrap(),
        String::from_utf8(read("slow.code")).unwrap(),
    )
}

/// Lengths of the SDUs that a host has sent on dynamic channels with credits, from its btsnoop (Core Specification,
/// Vol 3, Part A, 3.4.3: the first K-frame of an SDU begins with its length; 2.1.1: CIDs from 0x0040 on).
fn sdus(capture: &[u8]) -> Vec<usize> {
    let (mut rest, mut sdus) = (&capture[16..], Vec::new());
    let (mut frame, mut missing) = (Vec::new(), 0_usize);
    while rest.len() > 24 {
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let (length, flags) = (word(4) as usize, word(8));
        let packet = &rest[24..24 + length];
        rest = &rest[24 + length..];
        // Sent, and ACL data (Vol 4, Part A, 2).
        if flags & 1 != 0 || packet[0] != 2 {
            continue;
        }
        let is_begin = packet[2] >> 4 & 3 != 1;
        if is_begin {
            frame.clear();
        }
        frame.extend_from_slice(&packet[5..]);
        let [low, high, cid_low, cid_high, payload @ ..] = frame.as_slice() else { continue };
        if payload.len() < usize::from(u16::from_le_bytes([*low, *high])) {
            continue;
        }
        if u16::from_le_bytes([*cid_low, *cid_high]) >= 0x40 {
            if missing == 0 {
                missing = usize::from(u16::from_le_bytes([payload[0], payload[1]]));
                sdus.push(missing);
                missing -= payload.len() - 2;
            } else {
                missing -= payload.len();
            }
        }
        frame.clear();
    }
    sdus
}

fn no_tails(lab: &Lab, sizes: &[usize]) {
    let sent = sdus(&fs::read(lab.path("out/central.btsnoop")).unwrap());
    // In the order of the clients; the first of each is whole unless there is no more, and only the
    // last of a burst may be shorter.
    let largest = 672;
    let mut at = 0;
    for &size in sizes {
        let (begin, mut bytes) = (at, 0);
        while bytes < size {
            bytes += sent[at];
            at += 1;
        }
        assert_eq!(bytes, size, "SDUs of two clients in one");
        let client = &sent[begin..at];
        // The first block comes when nothing is under way, and is not held back.
        let short = client.iter().filter(|sdu| **sdu < largest).count();
        println!("{size} bytes in blocks of 997: {} SDUs, {short} of them short: {client:?}", client.len());
        assert!(short <= 2, "{size} bytes: {client:?}");
    }
}

#[test]
fn pipes_over_l2cap_lose_nothing_and_leave_no_tails_on_linux_6_12() {
    let Some(lab) = Lab::ready("pipes_over_l2cap_lose_nothing_and_leave_no_tails_on_linux_6_12") else { return };
    run(&lab, "l2cap", "6.12", "l2cap://any/225", SIZES);
    no_tails(&lab, SIZES);
    // Credits are given for room in the buffer: the client waits.
    let (back, account, _) = slow(&lab);
    assert!(back == data(SLOW), "{} bytes came back: {account}", back.len());
    assert_eq!(account["lost_messages_a_to_b"], 0, "{account}");
}

/// Linux 5.10 has a write that must not wait wait for credits; while it did nothing was read, and
/// what came was thrown away.
#[test]
fn pipes_over_l2cap_lose_nothing_on_linux_5_10_or_say_so() {
    let Some(lab) = Lab::ready("pipes_over_l2cap_lose_nothing_on_linux_5_10_or_say_so") else { return };
    let sizes = [673, 100_001];
    run(&lab, "l2cap", "5.10", "l2cap://any/225", &sizes);
    no_tails(&lab, &sizes);
    // Credits come back whether there was room or not: all that was sent is either there or
    // counted, and what is there is the beginning.
    let (back, account, code) = slow(&lab);
    let whole = back.len() / 672;
    assert!(back.len() == whole * 672 && data(SLOW).starts_with(&back), "{} bytes came back: {account}", back.len());
    let lost = account["lost_messages_a_to_b"].as_u64().unwrap();
    assert_eq!(whole as u64 + lost, SLOW.div_ceil(672) as u64, "{account}");
    assert!(account["why"].as_str().unwrap().contains("threw") && code.trim() == "code 1", "{account} {code}");
}

#[test]
fn pipes_over_rfcomm_lose_nothing_on_linux_6_1() {
    let Some(lab) = Lab::ready("pipes_over_rfcomm_lose_nothing_on_linux_6_1") else { return };
    run(&lab, "rfcomm", "6.1", "rfcomm://any/7", SIZES);
}

/// The kernel takes a link down 2 s after its last channel was closed, and that takes the controllers an interval. A
/// channel that is asked for meanwhile went down with it: "Software caused connection abort".
#[test]
fn a_pipe_that_begins_while_the_last_link_goes_down_is_connected() {
    let Some(lab) = Lab::ready("a_pipe_that_begins_while_the_last_link_goes_down_is_connected") else { return };
    let script = "
: @peer
taut pipe 'listen:l2cap://any/227?adapter=hci1' exec:cat --json >$OUT/server.json 2>$OUT/server.log &
server=$!
sleep 2
taut pipe listen:tcp://127.0.0.1:8080 'l2cap://00:AA:01:01:00:00/227?adapter=hci0' --linger 10s --json >$OUT/client.json 2>$OUT/client.log &
client=$!
sleep 2
for delay in 2.4 2.8 3.2 3.6; do
    echo one | nc 127.0.0.1 8080
    sleep $delay
    echo two | nc 127.0.0.1 8080
    sleep 10
done
kill -INT $client
wait $client
kill -INT $server
wait $server
";
    let mut command = lab.command(&["pair", "--kernel", "6.1", "--icount", "--ci", "800ms", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let told = fs::read_to_string(lab.path("out").join("client.log")).unwrap_or_default();
    assert!(output.status.success(), "{stderr}\n{told}");
    assert_eq!(stdout, "one\ntwo\n".repeat(4), "{stderr}\n{told}");
    let account: Value = serde_json::from_slice(&fs::read(lab.path("out").join("client.json")).unwrap()).unwrap();
    assert_eq!((&account["pipes_total"], &account["pipes_failed"]), (&8.into(), &0.into()), "{account}");
    lab.assert_nothing_is_left();
}

//! Bluetooth LE under real kernels, tuned and explained: `taut tune l2cap://` raises throughput as
//! far as the radio carries, and each finding stands where its trap is and nowhere else.
//!
//! Figures are of virtual time (`--icount`) and a simulated radio, and so the same on every machine.

mod support;

use std::fs;

use serde_json::Value;
use support::Lab;

/// Application bits per second that LE 1M and 2M carry at most, without encryption: data PDUs of
/// 251 bytes, each with the empty one that acknowledges it, in SDUs without end (`taut_air::Limit`;
/// 782.8 and 1375.6 kb/s in SDUs of 672 bytes).
const LIMIT_1M: f64 = 800_500.0;
const LIMIT_2M: f64 = 1_419_300.0;

/// Runs a shell's script beside a pair of adapters, and gives the files that it wrote.
fn pair(lab: &Lab, arguments: &[&str], script: &str) -> impl Fn(&str) -> Value {
    let out = lab.path("out");
    let mut command = lab.command(&["pair", "--icount", "--timeout", "30m", "--out"]);
    let output = command.arg(&out).args(arguments).args(["--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    move |name| {
        let text = fs::read_to_string(out.join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    }
}

fn causes(document: &Value) -> Vec<&str> {
    document["findings"].as_array().unwrap().iter().map(|finding| finding["cause"].as_str().unwrap()).collect()
}

fn bps(document: &Value) -> f64 {
    document["results"][0]["throughput_bps"].as_f64().unwrap()
}

fn options(row: &Value) -> Vec<&str> {
    row["options"].as_array().unwrap().iter().map(|option| option.as_str().unwrap()).collect()
}

fn check<'a>(doctor: &'a Value, what: &str) -> &'a Value {
    let rows = doctor["results"].as_array().unwrap();
    rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("no check {what}"))
}

/// The best throughput of all settings that a test allows.
fn best(tune: &Value, allowed: impl Fn(&str) -> bool) -> f64 {
    let rows = tune["results"].as_array().unwrap().iter();
    let rows = rows.filter(|row| allowed(row["setting"].as_str().unwrap()));
    rows.filter_map(|row| row["throughput_bps"].as_f64()).fold(0.0, f64::max)
}

#[test]
fn on_linux_5_10_one_sdu_at_a_time_is_explained_and_tuned_away() {
    let Some(lab) = Lab::ready("on_linux_5_10_one_sdu_at_a_time_is_explained_and_tuned_away") else { return };
    let script = "
        taut doctor --json >$OUT/doctor
        taut stream @peer --direction down --block 67200 --time 3s --rounds 1 --json >$OUT/whole
        taut stream '@peer&interval=7.5ms' --direction down --block 4096 --time 2s --rounds 1 --json >$OUT/tail
        taut echo '@peer&interval=50ms' --count 20 --rounds 1 --engine epoll --rate 8 --json >$OUT/slow
        taut tune @peer --time 400ms --json >$OUT/tune";
    let read = pair(&lab, &["--kernel", "5.10", "--ci", "50ms"], script);

    let doctor = read("doctor");
    for trap in ["blocking recv() of L2CAP", "non-blocking send() of L2CAP", "credits of L2CAP over LE"] {
        assert_eq!(check(&doctor, trap)["works"], false, "{doctor}");
    }
    let whole = read("whole");
    assert!((bps(&whole) / 53_760.0 - 1.0).abs() < 0.05, "{whole}");
    assert_eq!(causes(&whole), ["credit_window_one_sdu", "interval_default"], "{whole}");
    assert!(whole["findings"][0]["evidence"].to_string().contains("before 6.10"), "{whole}");
    // The interval is short now, and each block ends in an SDU of 64 bytes.
    let tail = read("tail");
    assert_eq!(causes(&tail), ["partial_sdu_tail", "credit_window_one_sdu"], "{tail}");
    let slow = read("slow");
    assert_eq!(causes(&slow), ["interval_default"], "{slow}");
    // epoll without epoll_pwait2: no message later than a millisecond.
    let lateness = &slow["results"][0]["send_lateness_ns"];
    assert!(lateness["count"] == 20 && lateness["max"].as_u64() < Some(1_000_000), "{slow}");

    let tune = read("tune");
    assert!((bps(&tune) / 53_760.0 - 1.0).abs() < 0.05, "{tune}");
    // With the interval of 50 ms, and with 7.5 ms.
    assert!(best(&tune, |setting| !setting.contains("interval")) >= 160_000.0, "{tune}");
    assert!(
        best(&tune, |setting| setting.contains("7.5ms") && !setting.contains("new connection")) >= 540_000.0,
        "{tune}"
    );
    let settled = tune["results"].as_array().unwrap().iter().find(|row| row["place"] == "all that helped").unwrap();
    assert!(settled["apply"].as_str().unwrap().contains("BT_RCVMTU"), "{settled}");
    assert_eq!(tune["findings"][0]["cause"], "credit_window_one_sdu");
    assert!(tune["findings"][0]["proof"]["after_bps"].as_f64() >= Some(540_000.0), "{tune}");
}

#[test]
fn on_linux_6_12_the_air_is_filled_on_both_phys() {
    let Some(lab) = Lab::ready("on_linux_6_12_the_air_is_filled_on_both_phys") else { return };
    let script = "
        taut doctor --json >$OUT/doctor
        taut stream @peer --block 4096 --time 2s --rounds 1 --json >$OUT/wide
        taut serve --json 'l2cap://00:AA:01:01:00:00/131?adapter=hci1' >$OUT/served & server=$!
        until [ -s $OUT/served ]; do sleep 0.05; done
        taut echo l2cap://00:AA:01:01:00:00/131?adapter=hci0 --count 5 --rounds 1 --json >$OUT/echo
        kill -INT $server; wait $server; sed -i 1d $OUT/served
        ! taut echo '@peer&security=medium' --count 2 --json 2>$OUT/insecure
        taut tune @peer --time 300ms --json >$OUT/tune";
    let read = pair(&lab, &["--kernel", "6.12", "--ci", "50ms"], script);

    let doctor = read("doctor");
    for trap in ["blocking recv() of L2CAP", "non-blocking send() of L2CAP", "credits of L2CAP over LE"] {
        assert_eq!(check(&doctor, trap)["works"], true, "{doctor}");
    }
    let wide = read("wide");
    assert_eq!(causes(&wide), Vec::<&str>::new(), "{wide}");
    // The side that accepts knows what was negotiated too.
    let served = read("served");
    let accepted = &served["served"]["last_link"];
    for fact in [
        "rcv_mtu=672",
        "rcv_mps=247",
        "snd_mps=247",
        "credits_granted=3",
        "connection_interval_us=50000",
        "credit_rule=rcvbuf",
    ] {
        assert!(accepted.as_array().unwrap().iter().any(|told| told == fact), "{fact}: {served}");
    }

    // The guest's kernel lacks what encryption needs, and opens the channel all the same.
    let insecure = fs::read_to_string(lab.path("out/insecure")).unwrap();
    assert!(insecure.contains("security level 2 was asked for"), "{insecure}");

    let tune = read("tune");
    assert!(best(&tune, |setting| !setting.contains("2m")) >= 0.95 * LIMIT_1M, "{tune}");
    assert!(best(&tune, |_| true) >= 0.95 * LIMIT_2M, "{tune}");
    let settled = tune["results"].as_array().unwrap().iter().find(|row| row["place"] == "all that helped").unwrap();
    assert!(options(settled).contains(&"phy=2m_tx+2m_rx"), "{settled}");
}

#[test]
fn short_pdus_disable_the_newer_rule_and_a_link_without_extension_is_named() {
    let test = "short_pdus_disable_the_newer_rule_and_a_link_without_extension_is_named";
    let Some(lab) = Lab::ready(test) else { return };
    // The first connection is made with this side's limits alone: the peripheral asks its own back.
    let script = "
        cd /sys/kernel/debug/bluetooth
        echo 24 >hci1/conn_min_interval; echo 40 >hci1/conn_max_interval
        echo 6 >hci0/conn_min_interval; echo 6 >hci0/conn_max_interval
        taut stream @peer --block 67200 --time 3s --rounds 1 --json >$OUT/back
        taut stream '@peer&interval=50ms' --block 67200 --time 3s --rounds 1 --json >$OUT/short";
    let radio = ["--kernel", "6.12", "--ci", "50ms", "--set", "both.acl_size=192", "--set", "length=27"];
    let read = pair(&lab, &radio, script);
    let back = read("back");
    assert!(causes(&back).contains(&"interval_put_back"), "{back}");
    let short = read("short");
    assert!(causes(&short).contains(&"credit_window_small_mps"), "{short}");
    assert!(causes(&short).contains(&"data_length_not_in_force"), "{short}");
}

/// The newer rule gives credits for the receive buffer: few for a small one, enough for one of 32 KiB; and never
/// those of a whole SDU for 4608 bytes, so that the channel stands still, which is told within two seconds.
#[test]
fn a_small_receive_buffer_is_named_and_a_large_one_is_not() {
    let Some(lab) = Lab::ready("a_small_receive_buffer_is_named_and_a_large_one_is_not") else { return };
    // The kernel doubles what is asked for.
    let script = "
        at=l2cap://00:AA:01:01:00:00
        taut serve \"$at/131?adapter=hci1&rcvbuf=4608\" \"$at/132?adapter=hci1&rcvbuf=16384\" \"$at/133?adapter=hci1&rcvbuf=2304\" >/tmp/serve & server=$!
        until grep -qs listening /tmp/serve; do sleep 0.1; done
        taut stream \"$at/131?adapter=hci0\" --block 67200 --time 3s --rounds 1 --json >$OUT/small
        taut stream \"$at/132?adapter=hci0\" --block 67200 --time 3s --rounds 1 --json >$OUT/large
        sleep 4
        cut -d' ' -f1 /proc/uptime >/tmp/began
        ! taut stream \"$at/133?adapter=hci0\" --block 67200 --time 20s --rounds 1 --json >$OUT/still_up
        sleep 4
        ! taut stream '@peer&rcvbuf=2304' --direction down --block 67200 --time 20s --rounds 1 --json >$OUT/still_down
        echo \"[$(cat /tmp/began), $(cut -d' ' -f1 /proc/uptime)]\" >$OUT/took
        kill -INT $server; wait $server";
    let read = pair(&lab, &["--kernel", "6.12", "--ci", "15ms"], script);
    let (small, large) = (read("small"), read("large"));
    assert!(options(&small["results"][0]).contains(&"peer_rcvbuf=9216"), "{small}");
    assert_eq!(causes(&small), ["credit_window_small_buffer"], "{small}");
    assert!(small["findings"][0]["evidence"].to_string().contains("9216 bytes"), "{small}");
    assert!(options(&large["results"][0]).contains(&"peer_rcvbuf=32768"), "{large}");
    assert_eq!(causes(&large), Vec::<&str>::new(), "{large}");
    assert!(bps(&small) < 0.25 * bps(&large), "{small} {large}");
    for (name, whose) in [("still_up", "the peer"), ("still_down", "this side")] {
        let still = read(name);
        assert_eq!(causes(&still), ["credit_window_below_sdu"], "{still}");
        let evidence = still["findings"][0]["evidence"].to_string();
        assert!(
            evidence.contains(&format!("{whose} is 4608 bytes")) && evidence.contains("after 2 of them"),
            "{still}"
        );
        assert_eq!(still["ended"]["how"], "peer_gone", "{still}");
        assert!(still["ended"]["why"].as_str().unwrap().contains("SO_RCVBUF"), "{still}");
    }
    // Both together, with 4 s between them and the time to connect.
    let took = read("took");
    assert!(took[1].as_f64().unwrap() - took[0].as_f64().unwrap() < 20.0, "{took}");
}

/// What is told only as a connection begins was heard by the program that had it begin and by its server, by no other.
#[test]
fn a_link_that_was_up_before_is_told_by_a_server_that_heard_it_begin_and_else_named() {
    let test = "a_link_that_was_up_before_is_told_by_a_server_that_heard_it_begin_and_else_named";
    let Some(lab) = Lab::ready(test) else { return };
    let script = "
        at=l2cap://00:AA:01:01:00:00/131
        taut echo @peer --rate 5 --time 6s --rounds 1 --engine poll --json >$OUT/first & first=$!
        until ls /sys/class/bluetooth | grep -q hci0:; do sleep 0.1; done
        sleep 1
        taut echo @peer --count 3 --rounds 1 --json >$OUT/second
        taut serve $at?adapter=hci1 >/tmp/serve & server=$!
        until grep -qs listening /tmp/serve; do sleep 0.1; done
        taut echo $at?adapter=hci0 --count 3 --rounds 1 --json >$OUT/unheard
        wait $first; kill -INT $server; wait $server";
    let read = pair(&lab, &["--kernel", "6.12", "--ci", "15ms"], script);
    let agreed = ["connection_interval_us=15000", "supervision_timeout_ms=420", "tx_octets=251", "rx_octets=251"];
    for name in ["first", "second"] {
        let recording = read(name);
        let options = options(&recording["results"][0]);
        assert!(agreed.iter().all(|fact| options.contains(fact)), "{name}: {options:?}");
        assert!(!options.iter().any(|option| option.contains("not heard")), "{name}: {options:?}");
    }
    let unheard = read("unheard");
    let options = options(&unheard["results"][0]);
    for fact in ["connection_interval", "data_lengths", "phys"] {
        assert!(options.contains(&format!("{fact}=not heard: link was up before").as_str()), "{options:?}");
    }
    assert!(!options.iter().any(|option| option.contains("_us=") || option.contains("octets=")), "{options:?}");
    // The channel itself was opened later.
    for fact in ["rcv_mps=247", "peer_credit_rule=rcvbuf"] {
        assert!(options.contains(&fact), "{fact}: {options:?}");
    }
}

/// A peer that sends before it has answered. Linux does that now and then when a program sends as
/// soon as it has accepted; here the peer is no kernel but the packets that one would send, so that
/// it does it always. It has a random address, too.
#[test]
fn what_a_peer_sends_before_its_answer_is_told() {
    let Some(lab) = Lab::ready("what_a_peer_sends_before_its_answer_is_told") else { return };
    let script = r#"
with_peer() {
    taut air attach two-nodes --h4 peripheral=unix:/run/$1 --json >/tmp/$1 & radio=$!
    until [ -S /run/$1 ]; do sleep 0.1; done
    (
        # HCI_Reset, LE Set Random Address, LE Set Advertising Parameters, LE Set Advertising Enable.
        printf '\x01\x03\x0c\x00'
        printf '\x01\x05\x20\x06\x00\x00\x01\x01\xaa\xc0'
        printf '\x01\x06\x20\x0f\xa0\x00\xa0\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00'
        printf '\x01\x0a\x20\x01\x01'
        # The channel has been asked for 3 s later.
        until grep -q adapters /tmp/$1; do sleep 0.1; done
        sleep 3
        # An SDU of five octets, and the LE Credit Based Connection Response, with as many credits as the test needs.
        [ $1 = prompt ] || printf '\x02\x40\x00\x0b\x00\x07\x00\x40\x00\x05\x00hello'
        printf '\x02\x40\x00\x12\x00\x0e\x00\x05\x00\x15\x01\x0a\x00\x40\x00\xa0\x02\xf7\x00\xff\x7f\x00\x00'
        [ $1 = early ] || printf '\x02\x40\x00\x0b\x00\x07\x00\x40\x00\x05\x00hello'
        sleep 10
    ) | taut pipe stdio: unix:/run/$1 >/tmp/events &
    until grep -q adapters /tmp/$1; do sleep 0.1; done
    taut stream 'l2cap://C0:AA:01:01:00:00/129?adapter=hci0&type=random' --plain --time 500ms --rounds 1 --json >$OUT/$1 || exit 10
    kill -INT $radio
    wait
}
with_peer early
with_peer prompt
"#;
    let out = lab.path("out");
    let mut command =
        lab.command(&["run", "--icount", "--timeout", "15m", "--kernel", "6.12", "--module", "hci_vhci", "--out"]);
    let output = command.arg(&out).args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [early, prompt] = ["early", "prompt"]
        .map(|name| -> Value { serde_json::from_slice(&fs::read(out.join(name)).unwrap()).unwrap() });
    assert_eq!(causes(&early), ["data_before_response"], "{early}");
    assert!(options(&early["results"][0]).contains(&"data_before_response=1"), "{early}");
    assert_eq!(causes(&prompt), Vec::<&str>::new(), "{prompt}");
}

/// What tuning changes for its trials is as before when it is over, also after Ctrl-C and with a
/// peer that is none of ours; and stays with `--keep`.
#[test]
fn what_is_tried_is_put_back_unless_it_is_to_be_kept() {
    let Some(lab) = Lab::ready("what_is_tried_is_put_back_unless_it_is_to_be_kept") else { return };
    let script = "
        limits() { echo $1 $(cd /sys/kernel/debug/bluetooth; cat hci[01]/conn_m[ai][xn]_interval); }
        limits before
        taut tune @peer --time 1s --json >$OUT/stopped & tune=$!
        sleep 12; kill -INT $tune; wait $tune; echo code $?
        sleep 1; limits stopped
        taut stream @peer --time 1s --rounds 1 --json >$OUT/after
        l2cat serve --no-advertise --bind 00:AA:01:01:00:00 134 dd of=/dev/null bs=64k 2>/dev/null & cat=$!
        # Once a peer has gone it asks this kernel for more without an end, and the host has to compute all of that.
        mkdir /tmp/groups; mount -t cgroup2 none /tmp/groups; echo +cpu >/tmp/groups/cgroup.subtree_control
        mkdir /tmp/groups/peer; echo 5000 100000 >/tmp/groups/peer/cpu.max; echo $cat >/tmp/groups/peer/cgroup.procs
        sleep 1
        taut tune 'l2cap://00:AA:01:01:00:00/134?adapter=hci0' --plain --time 100ms --json >$OUT/plain || exit 11
        kill $cat
        limits plain
        taut tune @peer --time 100ms --keep --json >$OUT/kept || exit 12
        limits kept
        taut stream @peer --time 1s --rounds 1 --json >$OUT/thereafter";
    let out = lab.path("out");
    let mut command =
        lab.command(&["pair", "--icount", "--timeout", "30m", "--kernel", "5.10", "--ci", "50ms", "--l2cat", "--out"]);
    let output = command.arg(&out).args(["--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    let told =
        |name: &str| stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default();
    // In 1.25 ms: 50 ms and 7.5 ms on both adapters.
    for name in ["before", "stopped", "plain"] {
        assert_eq!(told(name), "40 40 40 40", "{name}: {stdout}{stderr}");
    }
    assert_eq!(told("kept"), "6 6 6 6", "{stdout}{stderr}");
    let read = |name: &str| -> Value {
        let text = fs::read_to_string(out.join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    };
    assert_eq!(read("stopped")["ended"]["how"], "interrupted", "{}", read("stopped"));
    // What the server was told to receive with is as before, too.
    let after = read("after");
    for option in ["snd_mtu=672", "connection_interval_us=50000", "peer_rcvbuf=212992"] {
        assert!(options(&after["results"][0]).contains(&option), "{option}: {after}");
    }
    let thereafter = read("thereafter");
    let kept = options(&thereafter["results"][0]);
    assert!(kept.contains(&"connection_interval_us=7500") && !kept.contains(&"snd_mtu=672"), "{thereafter}");
    // A peer that can't be told gets what this side alone can do: the interval, as this is the central.
    let plain = read("plain");
    let settings: Vec<&str> =
        plain["results"].as_array().unwrap().iter().filter_map(|row| row["setting"].as_str()).collect();
    assert!(settings.iter().any(|setting| setting.contains("interval=7.5ms")), "{settings:?}");
    assert!(!settings.iter().any(|setting| setting.contains("mtu=")), "{settings:?}");
    assert!(best(&plain, |_| true) > bps(&plain), "{plain}");
}

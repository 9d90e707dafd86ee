//! `taut explain` of a host's log and a sniffer's capture of its link, and of the logs of both hosts, against what the
//! simulator itself knows of each packet.

mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{parse, taut, text};
use taut_air::{AirEvent, CloseReason, Happening, Observer, Purpose, Reception, Role, Scenario, Simulation};
use taut_report::capture::{AirCapture, HostCapture};

/// An L2CAP PDU of the sender's, as the simulator has it: its hand-over, its first transmission, the acknowledgement
/// of its last part that its sender heard.
#[derive(Clone, Copy, Debug, Default)]
struct Passage {
    handed_over: u64,
    on_air: u64,
    last: u64,
    acknowledged: u64,
}

/// What the simulator knows of what the sender's host sends.
struct Truth {
    sender: Role,
    /// Bytes of ACL data handed over, with the times, and of each begin of an L2CAP PDU.
    handed_over: Vec<(u64, u64)>,
    begins: Vec<(u64, u64)>,
    bytes: u64,
    /// Parts on the air: first byte, end, begin of the first transmission, heard acknowledgement.
    parts: Vec<(u64, u64, u64, u64)>,
    on_air: u64,
    repeats: u64,
    pending: Option<bool>,
    /// Ends of events that the sender closed although it had more, with the begin of the next one.
    closed_early: Vec<(u64, u64)>,
    closing: Option<u64>,
    /// The newest of them may have been for a PDU that is sent again.
    is_unsure: bool,
}

impl Truth {
    fn new(sender: Role) -> Self {
        Self {
            sender,
            handed_over: Vec::new(),
            begins: Vec::new(),
            bytes: 0,
            parts: Vec::new(),
            on_air: 0,
            repeats: 0,
            pending: None,
            closed_early: Vec::new(),
            closing: None,
            is_unsure: false,
        }
    }

    fn event(&mut self, event: &AirEvent<'_>) {
        let at = event.at.as_nanos();
        match event.what {
            Happening::HciSent { side, to_host: false, bytes: [2, _, flags, _, _, data @ ..] }
                if side == self.sender =>
            {
                if flags >> 4 & 3 != 1 {
                    self.begins.push((self.bytes, at));
                }
                self.bytes += data.len() as u64;
                self.handed_over.push((self.bytes, at));
            }
            Happening::EventBegins { .. } => {
                if let Some(from) = self.closing.take() {
                    self.closed_early.push((from, at));
                    self.is_unsure = true;
                }
            }
            Happening::EventEnds { reason, .. } => {
                let limits = [
                    CloseReason::EventLength,
                    CloseReason::PacketLimit,
                    CloseReason::Descriptors,
                    CloseReason::OtherLink,
                ];
                self.closing = limits.contains(&reason).then_some(at);
            }
            Happening::Pdu { from, duration, bytes, sn, nesn, retransmission, reception, purpose, .. } => {
                if purpose == Purpose::Advertising {
                    return;
                }
                let is_data = bytes[1] > 0 && bytes[0] & 3 != 3;
                if from != self.sender {
                    if let (Some(pending), Reception::Received) = (self.pending, reception)
                        && nesn != pending
                    {
                        self.parts.last_mut().unwrap().3 = at + duration;
                        self.pending = None;
                    }
                } else if is_data && retransmission {
                    self.repeats += 1;
                    // What was waited for then was a repetition.
                    if std::mem::take(&mut self.is_unsure) {
                        self.closed_early.pop();
                    }
                } else if is_data {
                    self.is_unsure = false;
                    let begin = self.on_air;
                    self.on_air += u64::from(bytes[1]);
                    self.parts.push((begin, self.on_air, at, 0));
                    self.pending = Some(sn);
                }
            }
            _ => {}
        }
    }

    /// The PDUs that were acknowledged.
    fn passages(&self) -> Vec<Passage> {
        let mut passages = Vec::new();
        for (number, &(begin, handed_over)) in self.begins.iter().enumerate() {
            let end = self.begins.get(number + 1).map_or(self.bytes, |next| next.0);
            let first = self.parts.iter().find(|part| part.0 == begin);
            let last = self.parts.iter().find(|part| part.1 == end);
            if let (Some(first), Some(last)) = (first, last)
                && last.3 > 0
            {
                passages.push(Passage { handed_over, on_air: first.2, last: last.2, acknowledged: last.3 });
            }
        }
        passages
    }

    /// How often the controller had been empty when the host handed something over.
    fn begins(&self) -> u64 {
        let (mut to, mut count) = (0, 0);
        for it in self.passages() {
            count += u64::from(it.handed_over > to);
            to = to.max(it.acknowledged);
        }
        count
    }

    /// How long the sender had something to send while an event was closed early.
    fn closed_early_ns(&self) -> u64 {
        let passages = self.passages();
        let held = |from: u64| passages.iter().any(|it| it.handed_over <= from && it.last > from);
        self.closed_early.iter().filter(|(from, _)| held(*from)).map(|(from, to)| to - from).sum()
    }
}

struct All {
    truth: Truth,
    air: AirCapture<Vec<u8>>,
    hosts: [HostCapture<Vec<u8>>; 2],
}

impl Observer for All {
    fn event(&mut self, event: &AirEvent<'_>) {
        self.truth.event(event);
        self.air.event(event);
        self.hosts.iter_mut().for_each(|host| host.event(event));
    }
}

/// The files of one run: logs of both hosts, and the sniffer's capture.
struct Run {
    truth: Truth,
    sender: Role,
    directory: tempfile::TempDir,
}

const HOSTS: [&str; 2] = ["central.btsnoop", "peripheral.btsnoop"];

impl Run {
    /// The clocks of the central's and the peripheral's log are moved; the sniffer's is true.
    fn new(settings: &[(String, String)], seed: u64, clocks: [Clock; 2]) -> Self {
        let mut scenario = Scenario::default();
        settings.iter().for_each(|(name, value)| scenario.set(name, value).unwrap());
        let of_sender = settings.iter().find(|(name, _)| name == "sender").map(|(_, value)| value.as_str());
        let sender = if of_sender == Some("central") { Role::Central } else { Role::Peripheral };
        let hosts = [Role::Central, Role::Peripheral].map(|side| HostCapture::begin(Vec::new(), side).unwrap());
        let air = AirCapture::begin(Vec::new()).unwrap();
        let mut all = All { truth: Truth::new(sender), air, hosts };
        Simulation::new(&scenario, seed).unwrap().run(1_500_000_000, &mut all);
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("air.pcapng"), all.air.finish().unwrap()).unwrap();
        for ((host, name), clock) in all.hosts.into_iter().zip(HOSTS).zip(clocks) {
            let log = moved(&host.finish().unwrap(), clock);
            std::fs::write(directory.path().join(name), log).unwrap();
        }
        Self { truth: all.truth, sender, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn senders_log(&self) -> PathBuf {
        self.path(HOSTS[usize::from(self.sender == Role::Peripheral)])
    }

    fn receivers_log(&self) -> PathBuf {
        self.path(HOSTS[usize::from(self.sender == Role::Central)])
    }
}

/// A clock that shows `offset_ns` more at the simulation's begin, and gains.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    offset_ns: i64,
    gains_ppm: f64,
}

impl Clock {
    fn ahead(self, at: f64) -> f64 {
        self.offset_ns as f64 + at * self.gains_ppm / 1e6
    }
}

/// 1970-01-01 in microseconds since the year 0.
const UNIX_EPOCH_US: u64 = 0x00dc_ddb3_0f2f_8000;

/// A log of another clock. Times of a log are whole microseconds.
fn moved(log: &[u8], clock: Clock) -> Vec<u8> {
    records(log, |_, record| {
        let at = u64::from_be_bytes(record[16..24].try_into().unwrap()) - UNIX_EPOCH_US;
        let ns = at as f64 * 1e3;
        let moved = UNIX_EPOCH_US as i64 + at as i64 + (clock.ahead(ns) / 1e3).round() as i64;
        record[16..24].copy_from_slice(&moved.to_be_bytes());
        true
    })
}

/// The log with its records changed, or without those for which `change` is false.
fn records(log: &[u8], mut change: impl FnMut(usize, &mut Vec<u8>) -> bool) -> Vec<u8> {
    let mut to = log[..16].to_vec();
    let (mut at, mut number) = (16, 0);
    while at < log.len() {
        let length = u32::from_be_bytes(log[at + 4..at + 8].try_into().unwrap()) as usize;
        let mut record = log[at..at + 24 + length].to_vec();
        if change(number, &mut record) {
            to.extend(record);
        }
        at += 24 + length;
        number += 1;
    }
    to
}

fn explain(files: &[&Path], options: &[&str]) -> std::process::Output {
    taut().arg("explain").args(options).args(files).output().unwrap()
}

fn joined(files: &[&Path]) -> Value {
    let output = explain(files, &["--join", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    parse(&output)["joined"][0].clone()
}

/// Random numbers (Steele, Lea, Flood 2014: SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn of<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[(self.next() % values.len() as u64) as usize]
    }

    fn scenario(&mut self) -> Vec<(String, String)> {
        let set = [
            ("ci", self.of(&["7.5ms", "15ms", "30ms", "50ms"])),
            ("phy", self.of(&["1m", "2m"])),
            ("length", self.of(&["27", "123", "251"])),
            ("encrypted", self.of(&["true", "false"])),
            ("sender", self.of(&["central", "peripheral"])),
            ("receiver.credits", self.of(&["linux-old", "linux-recvbuf", "window(10)"])),
            ("sender.nocp", self.of(&["each", "next-event", "batch(2)"])),
            ("packets_per_event", self.of(&["0", "0", "1", "3"])),
            ("transport", self.of(&["uart(3000000)", "uart(921600)", "usb(125us)"])),
            ("per", self.of(&["0", "0", "0.02", "0.1"])),
        ];
        set.iter().filter(|(name, value)| (*name, *value) != ("packets_per_event", "0")).map(owned).collect()
    }

    fn clock(&mut self) -> Clock {
        let offset_ns = (self.next() % 4_000_000_000) as i64 + 1_000_000_000;
        Clock { offset_ns, gains_ppm: (self.next() % 400) as f64 - 200.0 }
    }
}

fn owned((name, value): &(&str, &str)) -> (String, String) {
    ((*name).to_owned(), (*value).to_owned())
}

fn settings(set: &[(&str, &str)]) -> Vec<(String, String)> {
    set.iter().map(owned).collect()
}

/// The direction of the sender's host.
fn sent(joined: &Value) -> &Value {
    let ways = joined["bluetooth"]["ways"].as_array().unwrap();
    ways.iter().filter(|way| way["to_air"].is_object()).max_by_key(|way| way["pdus"].as_u64()).unwrap()
}

/// How far the fitted line is off at both ends of what it was fitted to, and in the middle; and what is said.
fn error(joined: &Value, truth: impl Fn(f64) -> f64, begin: u64) -> (f64, f64) {
    let number = |name: &str| joined["clock"][name].as_f64().unwrap();
    let span = number("span_ns");
    let middle = begin as f64 + span / 2.0;
    let off = |at: f64| (number("offset_ns") + number("rate_ppm") / 1e6 * (at - middle) - truth(at)).abs();
    let most = [begin as f64, middle, begin as f64 + span].into_iter().map(off).fold(0.0, f64::max);
    (most, number("uncertainty_ns"))
}

/// Times of the file's clock are read off the joined report as little as can be: where the first PDU stands.
fn first_at(run: &Run) -> u64 {
    run.truth.begins.first().unwrap().1
}

#[test]
fn in_drawn_cases_the_error_holds_the_truth_and_waits_and_split_are_the_simulators() {
    let mut draw = Draw(11);
    for case in 0..16 {
        let set = draw.scenario();
        let clock = draw.clock();
        let run = Run::new(&set, case, [clock; 2]);
        let told = joined(&[&run.path("air.pcapng"), &run.senders_log()]);
        let what = format!("case {case} {set:?} {clock:?}");
        let (off, said) = error(&told, |at| clock.ahead(at), first_at(&run));
        // What is fitted may begin with the peer's first PDU, by a little earlier than the sender's.
        let lead = 0.5e9 * clock.gains_ppm.abs() / 1e6;
        assert!(off <= said + lead + 2_000.0, "{what}: {off} {said}");
        let way = sent(&told);
        let passages = run.truth.passages();
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(number(&way["pdus"]) >= 0.9 * passages.len() as f64, "{what}: {way} {}", passages.len());
        let median = |of: fn(&Passage) -> u64| {
            let mut all: Vec<u64> = passages.iter().map(of).collect();
            all.sort_unstable();
            all[(all.len() - 1) / 2] as f64
        };
        for (name, truth) in [
            ("to_air", median(|it| it.on_air - it.handed_over)),
            ("to_acknowledgement", median(|it| it.acknowledged - it.handed_over)),
        ] {
            let own = number(&way[name]["median_ns"]);
            assert!((own - truth).abs() <= said + 0.02 * truth + 10_000.0, "{what}: {name} {own} {truth} {said}");
        }
        let repeats = way["repeats"].as_u64().unwrap();
        assert!(
            repeats.abs_diff(run.truth.repeats) <= 1 + run.truth.repeats / 20,
            "{what}: {repeats} {}",
            run.truth.repeats
        );
        let split = &way["in_controller"];
        let held = number(&split["held_ns"]);
        let parts = split.as_object().unwrap().iter().filter(|(name, _)| name.ends_with("_ns") && *name != "held_ns");
        assert_eq!(parts.map(|(_, ns)| ns.as_u64().unwrap()).sum::<u64>(), split["held_ns"].as_u64().unwrap());
        let early = number(&split["closed_early_ns"]);
        let truth = run.truth.closed_early_ns() as f64;
        println!("{what}: off {off:.0} of {said:.0}; held {held:.0}, closed early {early:.0}, truth {truth:.0}");
        // Each time that it began, the clock's error moves.
        let tolerance = 0.02 * held + said * run.truth.begins() as f64;
        assert!((early - truth).abs() <= tolerance, "{what}: {early} {truth} {held} {tolerance}");
    }
}

#[test]
fn both_hosts_logs_are_joined_whatever_their_clocks_show() {
    let mut draw = Draw(5);
    for case in 0..8 {
        let set = draw.scenario();
        let clocks = [draw.clock(), draw.clock()];
        let run = Run::new(&set, case, clocks);
        let told = joined(&[&run.path(HOSTS[0]), &run.path(HOSTS[1])]);
        let (off, said) = error(&told, |at| clocks[1].ahead(at) - clocks[0].ahead(at), first_at(&run));
        assert!(off <= said + 0.5e9 * 400.0 / 1e6 + 4_000.0, "case {case} {set:?} {clocks:?}: {off} {said}");
        assert_eq!(told["bluetooth"]["by_bytes"], told["matched_packets"]);
        assert!(told["bluetooth"]["ways"][0]["end_to_end"]["count"].as_u64().unwrap() > 0, "{told}");
    }
}

#[test]
fn the_receivers_log_tells_how_long_it_took_from_the_air_to_its_host_in_either_order() {
    let clock = Clock { offset_ns: 700_000_000, gains_ppm: 15.0 };
    let run = Run::new(&settings(&[("ci", "30ms"), ("transport", "usb(125us)")]), 3, [clock; 2]);
    let sent = run.truth.passages().len() as u64;
    let files = [run.path("air.pcapng"), run.receivers_log()];
    for [one, other] in [[0, 1], [1, 0]] {
        let told = joined(&[&files[one], &files[other]]);
        let ways = told["bluetooth"]["ways"].as_array().unwrap();
        let way = ways.iter().find(|way| way["to_host"].is_object()).unwrap();
        assert!(way["pdus"].as_u64().unwrap() + 2 >= sent, "{way} {sent}");
        // Polled each 125 us, and with the controller's own time a little longer.
        let said = told["clock"]["uncertainty_ns"].as_i64().unwrap();
        let [least, most] = ["least_ns", "most_ns"].map(|name| way["to_host"][name].as_i64().unwrap());
        assert!(least >= -said && most <= 1_000_000 + said, "{way} {said}");
    }
}

#[test]
fn a_file_joined_with_itself_has_no_offset() {
    let run = Run::new(&[], 3, [Clock::default(); 2]);
    for name in ["air.pcapng", HOSTS[0], HOSTS[1]] {
        let told = joined(&[&run.path(name), &run.path(name)]);
        assert_eq!((&told["is_same_place"], &told["clock"]["offset_ns"]), (&Value::Bool(true), &Value::from(0)));
    }
}

#[test]
fn files_of_different_links_are_refused_with_a_reason() {
    let (one, other) = (Run::new(&[], 3, [Clock::default(); 2]), Run::new(&[], 4, [Clock::default(); 2]));
    let output = explain(&[&one.path(HOSTS[0]), &one.path(HOSTS[1])], &["--join"]);
    assert!(output.status.success());
    let log = std::fs::read(one.path(HOSTS[0])).unwrap();
    // The same length and order, but other bytes.
    let others = records(&log, |_, record| {
        if record[24] == 2 {
            record[33..].iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        true
    });
    std::fs::write(other.path("others.btsnoop"), others).unwrap();
    for partner in [one.path("air.pcapng"), one.path(HOSTS[1])] {
        let files = [other.path("others.btsnoop"), partner];
        let output = explain(&[&files[0], &files[1]], &["--join"]);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains("no link in common"), "{}", text(&output.stderr));
        let output = explain(&[&files[0], &files[1]], &["--json"]);
        assert!(output.status.success() && parse(&output)["joined"].is_null());
    }
}

#[test]
fn records_that_the_log_lost_only_leave_their_pdus_out() {
    let clock = Clock { offset_ns: 2_000_000_000, gains_ppm: 20.0 };
    let run = Run::new(&settings(&[("ci", "30ms")]), 3, [clock; 2]);
    let log = std::fs::read(run.senders_log()).unwrap();
    let whole = joined(&[&run.path("air.pcapng"), &run.senders_log()]);
    let mut draw = Draw(9);
    // Lost without a word, as by a filter of packets.
    let holey = records(&log, |number, record| number < 40 || record[24] != 2 || !draw.next().is_multiple_of(20));
    std::fs::write(run.senders_log(), holey).unwrap();
    let told = joined(&[&run.path("air.pcapng"), &run.senders_log()]);
    let (off, said) = error(&told, |at| clock.ahead(at), first_at(&run));
    assert!(off <= said + 50_000.0, "{off} {said}");
    let count = |told: &Value| told["matched_packets"].as_u64().unwrap();
    assert!(count(&told) * 10 > count(&whole) * 8 && count(&told) < count(&whole), "{told}");
}

#[test]
fn one_direction_alone_is_joined_by_what_the_controller_reports_or_refused() {
    let run = Run::new(&settings(&[("ci", "30ms")]), 3, [Clock::default(); 2]);
    let log = std::fs::read(run.senders_log()).unwrap();
    let is_acl = |record: &[u8]| record[24] == 2;
    let is_received = |record: &[u8]| record[11] & 1 == 1;
    // What the host sends, and the controller's reports.
    let sent_only = records(&log, |_, record| !(is_acl(record) && is_received(record)));
    std::fs::write(run.path("sent.btsnoop"), sent_only).unwrap();
    let told = joined(&[&run.path("sent.btsnoop"), &run.path("air.pcapng")]);
    assert!(sent(&told)["to_report"].is_object(), "{told}");
    // And without these.
    let silent = records(&log, |_, record| !(is_acl(record) && is_received(record)) && record[24..26] != [4, 0x13]);
    std::fs::write(run.path("silent.btsnoop"), silent).unwrap();
    let output = explain(&[&run.path("silent.btsnoop"), &run.path("air.pcapng")], &["--join"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("only one direction"), "{}", text(&output.stderr));
}

#[test]
fn of_cipher_text_order_and_length_tell_from_the_links_begin_on_and_nothing_without_it() {
    let clock = Clock { offset_ns: 1_500_000_000, gains_ppm: -35.0 };
    let run = Run::new(&settings(&[("ci", "30ms"), ("encrypted", "true")]), 3, [clock; 2]);
    let air = sealed(&std::fs::read(run.path("air.pcapng")).unwrap(), 0);
    std::fs::write(run.path("sealed.pcapng"), air).unwrap();
    let told = joined(&[&run.path("sealed.pcapng"), &run.senders_log()]);
    let (off, said) = error(&told, |at| clock.ahead(at), first_at(&run));
    assert!(off <= said + 50_000.0, "{off} {said}");
    let count = |value: &Value| value.as_u64().unwrap();
    assert!(count(&told["bluetooth"]["by_bytes"]) < count(&told["matched_packets"]) / 10, "{told}");
    assert!(count(&told["matched_packets"]) > 100);
    // From the middle on nothing tells which is which: the same lengths come again and again.
    let late = sealed(&std::fs::read(run.path("air.pcapng")).unwrap(), 60);
    std::fs::write(run.path("late.pcapng"), late).unwrap();
    let output = explain(&[&run.path("late.pcapng"), &run.senders_log()], &["--join"]);
    assert!(!output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("cipher text"), "{}", text(&output.stderr));
}

/// The sniffer's capture as one without the key has it: from this packet on, and the payload of data that was
/// encrypted scrambled.
fn sealed(capture: &[u8], from: usize) -> Vec<u8> {
    const DECRYPTED: u8 = 8;
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    let mut to = Vec::new();
    let mut draw = Draw(1);
    let (mut at, mut packets) = (0, 0);
    while at < capture.len() {
        let length = word(at + 4) as usize;
        let mut block = capture[at..at + length].to_vec();
        at += length;
        if block[..4] == 6_u32.to_le_bytes() {
            packets += 1;
            if packets <= from {
                continue;
            }
            let packet = 28;
            let is_data = block[packet + 14] & 3 != 3;
            if block[packet + 8] & DECRYPTED != 0 && is_data {
                block[packet + 8] &= !DECRYPTED;
                let payload = usize::from(block[packet + 15]);
                // Not the length of the PDU, which is in clear text on the air as well.
                block[packet + 16..packet + 16 + payload].iter_mut().for_each(|byte| *byte = draw.next() as u8);
            }
        }
        to.extend(block);
    }
    to
}

#[test]
fn the_text_names_waits_and_split_in_100_columns() {
    let run = Run::new(&settings(&[("ci", "30ms"), ("packets_per_event", "2")]), 3, [Clock::default(); 2]);
    let output = explain(&[&run.senders_log(), &run.path("air.pcapng")], &[]);
    let told = text(&output.stdout);
    for part in [
        "JOINED",
        "L2CAP PDUs of 1 link",
        "from hand-over to the first transmission",
        "The controller had",
        "event closed early",
        "for the next event",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
}

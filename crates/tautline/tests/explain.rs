//! `taut explain` as it is run: files and standard input, the verdict's form, thresholds, errors, Ctrl-C.

#[path = "explain_support/numbered.rs"]
mod numbered;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../taut-capture/tests/packets/mod.rs"]
mod packets;
#[path = "explain_support/requests.rs"]
mod requests;
mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use packets::files::{Zipped, snoop, zip};
use packets::udp::{dns, udp};
use packets::{Tcp, ethernet, ipv4, pcap};
use requests::{MS, capture, explain, file, packets_of, requests};
use serde_json::Value;
use support::{parse, taut, text, tracks};

#[test]
fn a_verdict_is_short_and_names_cause_evidence_and_cure() {
    let directory = tempfile::tempdir().unwrap();
    let output = explain(&file(directory.path(), "trace.pcap", &capture()), &[]);
    let verdict = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(verdict.lines().count() <= 15, "{verdict}");
    assert!(verdict.lines().all(|line| line.chars().count() <= 100), "{verdict}");
    for part in [
        "FOUND nagle_delayed_ack",
        "frame.number in {",
        "CHANGE",
        "TCP_NODELAY",
        "seen at the sender",
        "10.0.15.160:4000",
    ] {
        assert!(verdict.contains(part), "no `{part}` in\n{verdict}");
    }
    // The rows of the breakdown add up to the direction's time.
    let micros = |line: &str| -> Option<u64> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let seconds =
            words.windows(2).find(|pair| pair[1] == "s" && pair[0].len() == 8 && pair[0].as_bytes()[1] == b'.')?[0];
        seconds.replace('.', "").parse().ok()
    };
    let rows: u64 = verdict.lines().filter_map(micros).sum();
    let document: Value = parse(&explain(&directory.path().join("trace.pcap"), &["--json"]));
    assert_eq!(rows, document["files"][0]["worst"][0]["span_ns"].as_u64().unwrap() / 1000, "{verdict}");
}

#[test]
fn all_details_stand_below_the_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "trace.pcap", &capture());
    let (short, full) = (text(&explain(&path, &[]).stdout), text(&explain(&path, &["--full"]).stdout));
    assert!(full.starts_with(&short), "{full}");
    assert!(full.contains("Not there: ") && full.contains("Longest, Nagle's algorithm"), "{full}");
    assert!(full.lines().all(|line| line.chars().count() <= 100), "{full}");
}

#[test]
fn two_captures_tell_what_changed() {
    let directory = tempfile::tempdir().unwrap();
    let before = file(directory.path(), "before.pcap", &requests(true));
    let after = file(directory.path(), "after.pcap", &requests(false));
    let diff = |one: &Path, other: &Path, more: &[&str]| {
        taut().args(["explain", "--diff"]).arg(one).arg(other).args(more).output().unwrap()
    };
    let change = |one: &Path, other: &Path| parse(&diff(one, other, &["--json"]))["difference"].clone();
    let cured = text(&diff(&before, &after, &[]).stdout);
    assert!(cured.contains("GONE nagle_delayed_ack: it had up to 8") && !cured.contains("NEW"), "{cured}");
    assert!(cured.lines().all(|line| line.chars().count() <= 100), "{cured}");
    assert!(!cured.contains("FOUND") && text(&diff(&before, &after, &["--full"]).stdout).contains("FOUND"));
    assert_eq!(change(&before, &after)["holders"][0]["holder"], "nagle");
    assert_eq!(change(&after, &before)["causes"][0]["change"], "new");
    // A capture held against itself has no change.
    let same = change(&before, &before);
    assert_eq!(same["causes"][0]["change"], "stays");
    for held in same["holders"].as_array().unwrap() {
        assert_eq!(held["before"], held["after"]);
    }
    for wrong in [&[&before][..], &[&before, &after, &after][..]] {
        let output = taut().args(["explain", "--diff"]).args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--diff takes two captures"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_threshold_that_is_missed_is_code_3() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "trace.pcap", &capture());
    let missed = explain(&path, &["--fail-on", "nagle_delayed_ack=1%"]);
    assert_eq!(missed.status.code(), Some(3));
    assert!(text(&missed.stderr).contains("nagle_delayed_ack has 8"), "{}", text(&missed.stderr));
    assert!(text(&missed.stdout).contains("FOUND"));
    let met = explain(&path, &["--fail-on", "nagle_delayed_ack=99%", "--fail-on", "loss=0%"]);
    assert_eq!(met.status.code(), Some(0), "{}", text(&met.stderr));
}

/// A gate that can't see says so, and what can't be told is not "nothing".
#[test]
fn what_a_capture_can_not_tell_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let whole = capture();
    let none = explain(&file(directory.path(), "none.pcap", &whole[..24]), &["--fail-on", "loss=1%"]);
    assert_eq!(none.status.code(), Some(0));
    assert!(text(&none.stderr).contains("no data in it, so loss can't be told"), "{}", text(&none.stderr));
    let packets: Vec<_> = (0..9_u32)
        .map(|number| {
            let tcp = Tcp { seq: 1 + number * 100, ack: 1, flags: 24, ..Tcp::default() };
            (1_700_000_000_000_000_000 + u64::from(number) * 10 * MS, ipv4(&tcp, 100))
        })
        .collect();
    let path = file(directory.path(), "oneway.pcap", &pcap(false, true, 101, &packets));
    let told = text(&explain(&path, &[]).stdout);
    assert!(!told.contains("FOUND"), "{told}");
    assert!(told.contains("CAN'T TELL what holds the data back: 13 of 13"), "{told}");
    assert!(told.contains("RTT not known"), "{told}");
}

#[test]
fn the_same_packets_say_the_same_from_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "trace", &capture());
    let named = parse(&explain(&path, &["--json"]));
    let piped = taut().args(["explain", "-", "--json"]).stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
    let piped = parse(&piped);
    assert_eq!(named["files"][0]["worst"], piped["files"][0]["worst"]);
    assert_eq!((piped["files"][0]["file"].as_str(), piped["files"][0]["packets"].as_u64()), (Some("-"), Some(103)));
    // Each file has a verdict of its own.
    let both = parse(&taut().arg("explain").args([&path, &path]).arg("--json").output().unwrap());
    assert_eq!(both["files"][0]["worst"], both["files"][1]["worst"]);
}

/// The same packets 0.4 ms away, on a clock that is so far ahead: what goes there is late, what comes left earlier.
fn seen_afar(ahead: i64) -> Vec<u8> {
    afar(ahead, packets_of(true))
}

fn afar(ahead: i64, packets: Vec<(u64, Vec<u8>)>) -> Vec<u8> {
    let moved = |(at, bytes): (u64, Vec<u8>)| {
        // The destination's port is 80 on the way there.
        let way = if bytes[22..24] == 80_u16.to_be_bytes() { 400_000 } else { -400_000 };
        (at.wrapping_add_signed(ahead + way), bytes)
    };
    let mut packets: Vec<_> = packets.into_iter().map(moved).collect();
    packets.sort_by_key(|(at, _)| *at);
    pcap(false, true, 101, &packets)
}

fn join(files: &[&Path], more: &[&str]) -> Output {
    taut().arg("explain").args(files).args(more).output().unwrap()
}

#[test]
fn two_captures_of_one_path_are_put_on_one_timeline() {
    let directory = tempfile::tempdir().unwrap();
    let near = file(directory.path(), "near.pcap", &capture());
    for ahead in [0, 3_200_000, -7_000_000_000, 86_400_000_000_000] {
        let far = file(directory.path(), "far.pcap", &seen_afar(ahead));
        let document = parse(&join(&[&near, &far], &["--join", "--json"]));
        let joined = &document["joined"][0];
        let clock = &joined["clock"];
        let (offset, error) = (clock["offset_ns"].as_i64().unwrap(), clock["uncertainty_ns"].as_u64().unwrap());
        assert!(offset.abs_diff(ahead) <= error && (390_000..600_000).contains(&error), "{joined}");
        assert_eq!(joined["matched_packets"], 103);
        assert_eq!((&joined["there"]["packets"], &joined["back"]["packets"]), (&62.into(), &41.into()));
        for way in ["there", "back"] {
            let least = joined[way]["least_ns"].as_i64().unwrap();
            assert!(least.abs_diff(400_000) <= error, "{joined}");
            assert!(
                joined[way]["most_beyond_ns"].as_u64() <= joined[way]["beyond_uncertainty_ns"].as_u64(),
                "{joined}"
            );
        }
        let [losses, acknowledged] = ["losses", "acknowledged"].map(|what| &joined["there"][what]);
        // 40 pieces of requests and the SYN; a first piece waits 42 ms, and each second one for the answer.
        assert_eq!((&losses["segments"], &losses["repeated"]), (&41.into(), &0.into()), "{losses}");
        assert_eq!(losses["between"]["segments"], 0);
        assert_eq!(acknowledged["most_ns"], 41_200_000, "{acknowledged}");
        assert_eq!((&joined["first_frames"], &joined["connections"]), (&serde_json::json!([1, 1]), &1.into()));
        let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
        assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    }
    let far = file(directory.path(), "far.pcap", &seen_afar(3_200_000));
    // By itself, too; the verdicts on the files stay as they are.
    let told = text(&join(&[&near, &far], &[]).stdout);
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("far.pcap's clock is 3.20 ms ahead of") && words.contains("103 packets"), "{told}");
    assert!(told.starts_with(&text(&explain(&near, &[]).stdout)), "{told}");
    assert!(text(&join(&[&far, &near], &[]).stdout).contains("behind"));
    assert!(!text(&join(&[&near, &far], &["--diff"]).stdout).contains("JOINED"));
}

/// What the server acknowledges though its file does not have it was not lost.
#[test]
fn joined_files_tell_losses_from_holes() {
    let directory = tempfile::tempdir().unwrap();
    let near = file(directory.path(), "near.pcap", &capture());
    let mut packets = packets_of(true);
    let first_piece = packets[15].clone();
    assert_eq!(packets[15].1[22..24], [0, 80]);
    packets.remove(15);
    let far = file(directory.path(), "far.pcap", &afar(0, packets));
    let holed = parse(&join(&[&near, &far], &["--json"]))["joined"][0]["there"]["losses"].clone();
    assert_eq!((&holed["between"]["segments"], &holed["not_captured"]), (&0.into(), &serde_json::json!([0, 1])));
    // The same packet once more at the near place, before anything acknowledges it.
    let mut twice = packets_of(true);
    let (at, mut bytes) = first_piece;
    bytes[4..6].copy_from_slice(&9999_u16.to_be_bytes());
    twice.insert(16, (at + 10_000, bytes));
    let near = file(directory.path(), "near.pcap", &pcap(false, true, 101, &twice));
    let far = file(directory.path(), "far.pcap", &seen_afar(0));
    let output = join(&[&near, &far], &[]);
    let words = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Of 42 segments on this way: 1 lost between"), "{words}");
    assert!(words.contains("(frame 17)") && words.contains("The receiver acknowledged"), "{words}");
}

#[test]
fn the_same_capture_twice_has_no_offset() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "trace.pcap", &capture());
    let joined = parse(&join(&[&path, &path], &["--json"]))["joined"][0].clone();
    assert_eq!((&joined["is_same_place"], &joined["clock"]["offset_ns"]), (&true.into(), &0.into()), "{joined}");
    assert!(text(&join(&[&path, &path], &[]).stdout).contains("the same packets at the same times"));
}

#[test]
fn captures_that_can_not_be_joined_say_why_if_they_must_be() {
    let directory = tempfile::tempdir().unwrap();
    let near = file(directory.path(), "near.pcap", &capture());
    let names = file(directory.path(), "names.pcap", &questions());
    let requests: Vec<_> = packets_of(true).into_iter().filter(|(_, bytes)| bytes[22..24] == [0, 80]).collect();
    let oneway = file(directory.path(), "oneway.pcap", &pcap(false, true, 101, &requests));
    for (other, says) in [(&names, "no connection in common"), (&oneway, "only one direction")] {
        let output = join(&[&near, other], &["--join"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(says) && error.contains("near.pcap"), "{error}");
        let alone = join(&[&near, other], &["--json"]);
        assert!(alone.status.success() && parse(&alone)["joined"].is_null(), "{}", text(&alone.stderr));
    }
    assert!(text(&join(&[&near, &oneway], &["--full"]).stdout).contains("is not joined with"));
    let one = join(&[&near], &["--join"]);
    assert!(text(&one.stderr).contains("--join takes two captures or more"), "{}", text(&one.stderr));
}

/// Where a terminal is narrower, and where nobody says how wide it is.
#[test]
fn text_is_as_wide_as_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let [slow, names] = [("slow.pcap", capture()), ("names.pcap", questions())].map(|(name, bytes)| {
        let path = file(directory.path(), name, &bytes);
        path.display().to_string()
    });
    let told = |columns: &str, more: &[&str]| {
        let output = taut().env("COLUMNS", columns).arg("explain").args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let words = |told: &str| told.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for more in [&[slow.as_str()][..], &[&slow, "--full"], &[&names, &slow], &["--diff", &slow, &names]] {
        let wide = told("", more);
        for (columns, most) in [("60", 60), ("80", 80), ("300", 100)] {
            let narrow = told(columns, more);
            let widest = narrow.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= most, "{columns} {more:?}: {widest}");
            // Nothing is lost, but for the begin of a path.
            let (narrow, wide) = (words(&narrow), words(&wide));
            let lost = wide.iter().filter(|word| !narrow.contains(word) && !word.contains('/')).count();
            assert_eq!(lost, 0, "{columns} {more:?}: {narrow:?} {wide:?}");
        }
    }
}

/// As a file, and as standard input that is one.
#[test]
fn a_capture_in_an_archive_says_the_same_and_which_file_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let files = [Zipped::stored("a/slow.pcap", &capture()), Zipped::stored("short.pcap", b"")];
    let archive = file(directory.path(), "report.zip", &zip(&files));
    let output = explain(&archive, &[]);
    let verdict = text(&output.stdout);
    assert!(verdict.contains("FOUND nagle_delayed_ack"), "{verdict}{}", text(&output.stderr));
    assert!(verdict.lines().next().unwrap().contains("report.zip (a/slow.pcap): 103 packets"), "{verdict}");
    assert!(text(&explain(&archive, &["--full"]).stdout).contains("not read: short.pcap"));
    let input = std::fs::File::open(&archive).unwrap();
    let piped = taut().args(["explain", "-"]).stdin(input).output().unwrap();
    assert_eq!(text(&piped.stdout).replace("- (", "report.zip (").lines().nth(1), verdict.lines().nth(1));
    let none = explain(&file(directory.path(), "none.zip", &zip(&[Zipped::stored("bugreport.txt", b"x")])), &[]);
    let error = text(&none.stderr);
    assert_eq!(none.status.code(), Some(2));
    assert!(error.contains("it holds bugreport.txt") && error.contains("HCI snoop log"), "{error}");
}

#[test]
fn a_capture_of_solaris_snoop_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let packets: Vec<_> = packets_of(true).into_iter().map(|(at, bytes)| (at, ethernet(&[], &bytes))).collect();
    let output = explain(&file(directory.path(), "slow.snoop", &snoop(4, 2, &packets)), &[]);
    assert!(text(&output.stdout).contains("FOUND nagle_delayed_ack"), "{}", text(&output.stdout));
}

/// The first server of resolv.conf is dead: each name takes 5 s.
fn questions() -> Vec<u8> {
    let begin = 1_700_000_000_000_000_000;
    let client = |port| (std::net::Ipv4Addr::new(10, 0, 0, 5), port);
    let server = |last| (std::net::Ipv4Addr::new(10, 0, 0, last), 53);
    let mut packets = Vec::new();
    for n in 0..4_u16 {
        let (at, name) = (begin + u64::from(n) * 8_000 * MS, format!("host{n}.example.com"));
        let ask = dns(n, false, &name, 1);
        packets.push((at, udp(client(4000 + n), server(1), &ask)));
        packets.push((at + 5_005 * MS, udp(client(5000 + n), server(2), &ask)));
        packets.push((at + 5_017 * MS, udp(server(2), client(5000 + n), &dns(n, true, &name, 1))));
    }
    pcap(false, true, 101, &packets)
}

#[test]
fn a_dead_server_of_dns_is_named_with_what_it_costs() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "dns.pcap", &questions());
    let output = explain(&path, &["--fail-on", "dns_retry=1%"]);
    let verdict = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{verdict}{}", text(&output.stderr));
    for says in [
        "12 packets in 29.0 s, 1 flow, 1 direction with data",
        "10.0.0.5 > DNS 10.0.0.1, 10.0.0.2: 8 questions in 29.0 s, 4 answers, 4 asked again",
        "no answer, asked again (path)",
        "FOUND dns_retry (69.0 %, path): 4 of 8 DNS questions",
        "frame.number in {1..2}",
        "10.0.0.1 answered 0 of 4",
        "timeout:1",
    ] {
        assert!(verdict.contains(says), "{says}: {verdict}");
    }
    assert!(verdict.lines().all(|line| line.chars().count() <= 100) && verdict.lines().count() <= 15, "{verdict}");
    let full = text(&explain(&path, &["--full"]).stdout);
    assert!(full.contains("10.0.0.1: 4 questions, 0 answers, 4 unanswered."), "{full}");
    let document = parse(&explain(&path, &["--json"]));
    assert_eq!(document["files"][0]["udp_packets"], 12);
    let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&document));
}

#[test]
fn what_json_prints_fits_the_schema() {
    let directory = tempfile::tempdir().unwrap();
    let document = parse(&explain(&file(directory.path(), "trace.pcap", &capture()), &["--json"]));
    let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut wrong = document;
    wrong["files"][0]["worst"][0]["span_ns"] = "long".into();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn an_interrupted_reading_gives_the_verdict_so_far() {
    let mut child = taut()
        .args(["explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&capture()).unwrap();
    // The pipe stays open: nothing more comes, and it is not the end.
    while rustix::io::ioctl_fionread(&stdin).unwrap() > 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let verdict = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{verdict}{}", text(&output.stderr));
    assert!(verdict.starts_with("PARTIAL: interrupted\n") && verdict.contains("FOUND nagle_delayed_ack"), "{verdict}");
}

#[test]
fn the_trace_has_a_track_for_each_direction_as_long_as_its_breakdown_says() {
    let directory = tempfile::tempdir().unwrap();
    let capture = file(directory.path(), "trace.pcap", &capture());
    let path = directory.path().join("trace.json");
    let output = explain(&capture, &["--json", "--perfetto", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let trace = std::fs::read_to_string(&path).unwrap();
    let tracks = tracks(&serde_json::from_str(&trace).unwrap());
    let document = parse(&output);
    let worst = document["files"][0]["worst"].as_array().unwrap();
    assert_eq!((worst.len(), tracks.len()), (2, 2));
    for (direction, slices) in worst.iter().zip(tracks.values()) {
        assert!(slices.windows(2).all(|pair| pair[0].1 == pair[1].0), "{slices:?}");
        let whole: u64 = slices.iter().map(|(begin, end)| end - begin).sum();
        assert_eq!(
            (slices[0].0, whole),
            (direction["begin_ns"].as_u64().unwrap(), direction["span_ns"].as_u64().unwrap())
        );
    }
    assert!(trace.contains("FOUND nagle_delayed_ack") && trace.contains("Nagle's algorithm"), "{trace}");
    // The verdict is the same without it.
    let without = parse(&explain(&capture, &["--json"]));
    assert_eq!(without["files"], document["files"]);
}

#[test]
fn a_limit_on_a_holder_is_code_3_and_names_the_direction() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "trace.pcap", &capture());
    let missed = explain(&path, &["--assert", "held(nagle)<1%", "--assert", "longest(nagle)<1s"]);
    assert_eq!(missed.status.code(), Some(3));
    let told = text(&missed.stderr);
    assert!(told.contains("`held(nagle)<1%` does not hold: it is 8") && told.contains("10.0.15.160:4000 > "), "{told}");
    assert!(!told.contains("longest"), "{told}");
    let cured = explain(&file(directory.path(), "cured.pcap", &requests(false)), &["--assert", "held(nagle)<1%"]);
    assert_eq!(cured.status.code(), Some(0), "{}", text(&cured.stderr));
    let none = explain(&file(directory.path(), "none.pcap", &capture()[..24]), &["--assert", "held(nagle)<1%"]);
    assert!(text(&none.stderr).contains("`held(nagle)<1%` can't be told"), "{}", text(&none.stderr));
    let typo = explain(&path, &["--assert", "held(nagel)<1%"]);
    assert!(!typo.status.success() && text(&typo.stderr).contains("there are handshake, "), "{}", text(&typo.stderr));
}

#[test]
fn a_page_has_the_verdict_and_the_lanes() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "<b>trace.pcap", &capture());
    let page = directory.path().join("page.html");
    let output = explain(&path, &["--html", page.to_str().unwrap()]);
    assert!(output.status.success() && text(&output.stdout).contains("FOUND"), "{}", text(&output.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("nagle_delayed_ack") && html.contains("\"kind\":\"lanes\"") && html.contains("held-nagle"));
    assert!(html.contains("&lt;b&gt;trace.pcap") && !html.contains("<b>trace"));
}

/// Stories of several connections: nothing goes beyond a terminal's width.
#[test]
fn no_line_is_wider_than_100_columns() {
    let directory = tempfile::tempdir().unwrap();
    let mut two = packets_of(true);
    // The same talk from another port.
    for (at, mut bytes) in packets_of(true) {
        // The client's port, in either direction.
        let port = if bytes[20..22] == 4000_u16.to_be_bytes() { 21 } else { 23 };
        bytes[port] ^= 1;
        two.push((at + 5 * MS, bytes));
    }
    two.sort_by_key(|(at, _)| *at);
    let stories =
        [("held.pcap", capture()), ("cured.pcap", requests(false)), ("two.pcap", pcap(false, true, 101, &two))];
    for (name, bytes) in stories {
        let path = file(directory.path(), &format!("{}{name}", "long".repeat(40)), &bytes);
        for more in [&[][..], &["--full"]] {
            let told = text(&explain(&path, more).stdout);
            assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
            let verdict = told.lines().take_while(|line| !line.is_empty());
            assert!(more.len() == 1 || verdict.count() <= 15, "{told}");
        }
        let told = text(&explain(&path, &[]).stdout);
        assert_eq!(told.contains("ALL 4 directions: nagle_delayed_ack "), name == "two.pcap", "{told}");
    }
}

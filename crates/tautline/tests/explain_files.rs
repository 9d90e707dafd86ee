//! What `taut explain` reads and writes: files that are no captures, names of all kinds, results that would overwrite
//! something, and what is left out or put in order.

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../taut-capture/tests/packets/mod.rs"]
mod packets;
#[path = "explain_support/requests.rs"]
mod requests;
mod support;

use std::fs::File;

use packets::pcap;
use requests::{MS, capture, explain, file, packets_of};
use support::{parse, taut, text};

#[test]
fn what_can_not_be_explained_says_why_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| file(directory.path(), name, bytes);
    for (path, code, says) in [
        (file("empty", b""), 2, "empty"),
        (file("text", b"What is this?"), 2, "no capture of packets"),
        (file("hci.log", b"btsnoop\0\0\0\0\x01\0\0\x03\xeb"), 2, "another version or type"),
        (directory.path().join("nowhere"), 2, "nowhere"),
        (directory.path().to_owned(), 2, "directory"),
    ] {
        let output = explain(&path, &[]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(says) && error.contains(path.to_str().unwrap()), "{error}");
        assert!(output.stdout.is_empty());
    }
    let cut = capture();
    let output = explain(&file("cut.pcap", &cut[..cut.len() - 5]), &[]);
    assert!(text(&output.stdout).contains("cut off in the record at byte"), "{}", text(&output.stdout));
    // From a pipe, too; and nothing is said twice.
    let header = taut().args(["explain", "-"]).stdin(File::open(file("header.pcap", &cut[..10])).unwrap()).output();
    assert!(text(&header.unwrap().stderr).contains("-: is cut off in its header"));
    let damaged = explain(&file("damaged.zst", &[&[0x28, 0xb5, 0x2f, 0xfd][..], &[0xff; 64]].concat()), &[]);
    let error = text(&damaged.stderr);
    assert_eq!((damaged.status.code(), error.matches("damaged: ").count()), (Some(1), 1), "{error}");
    let none = explain(&file("none.pcap", &cut[..24]), &[]);
    assert!(text(&none.stdout).contains("No data over TCP"), "{}", text(&none.stdout));
    assert!(none.status.success());
}

/// The same packets in GRE over IPv4, of which so many bytes are kept.
fn in_a_tunnel(kept: usize) -> Vec<u8> {
    let wrapped = packets_of(true).into_iter().map(|(at, inner)| {
        let mut packet = vec![0x45, 0];
        packet.extend((24 + inner.len() as u16).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, 47, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 8, 0]);
        packet.extend(inner);
        packet.truncate(kept);
        (at, packet)
    });
    pcap(false, true, 101, &wrapped.collect::<Vec<_>>())
}

#[test]
fn a_capture_of_a_tunnel_says_the_same_and_is_joined() {
    let directory = tempfile::tempdir().unwrap();
    let plain = file(directory.path(), "capture.pcap", &capture());
    let tunnel = file(directory.path(), "tunnel.pcap", &in_a_tunnel(usize::MAX));
    let of = |path| parse(&explain(path, &["--json"]))["files"][0].clone();
    let (expected, told) = (of(&plain), of(&tunnel));
    assert!(expected["worst"][0]["bytes"].as_u64() > Some(1000), "{expected:#}");
    assert_eq!(told["worst"], expected["worst"]);
    let remark = told["remarks"][0].as_str().unwrap();
    assert!(remark.starts_with("103 packets came in tunnels"), "{remark}");
    let joined = parse(&taut().args(["explain", "--join", "--json"]).args([&plain, &tunnel]).output().unwrap());
    assert_eq!(joined["joined"][0]["matched_packets"], 103, "{joined:#}");
    let cut = text(&explain(&file(directory.path(), "cut.pcap", &in_a_tunnel(60)), &[]).stdout);
    let words = cut.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("in a tunnel, capture at least 256 bytes of each"), "{cut}");
}

#[test]
fn a_link_type_that_is_not_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (link, says) in [(127, "(127: Wi-Fi in monitor mode"), (227, "(227: CAN)"), (147, "(147).")] {
        let output = explain(&file(directory.path(), "other.pcap", &pcap(false, true, link, &packets_of(true))), &[]);
        let told = text(&output.stdout);
        assert!(told.contains("103 packets are of a link type that is not read") && told.contains(says), "{told}");
    }
}

/// A pipe can't be read again, so what can't be written takes nothing else with it.
#[test]
fn what_can_not_be_written_is_an_error_and_all_else_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let capture = file(directory.path(), "trace.pcap", &capture());
    let page = directory.path().join("page.html");
    for (limit, code) in [("held(nagle)<100%", 1), ("held(nagle)<1ns", 3)] {
        let options = ["--perfetto", "/dev/full", "--assert", limit, "--html", page.to_str().unwrap()];
        let output = explain(&capture, &options);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains("write /dev/full"), "{error}");
        assert!(text(&output.stdout).contains("nagle_delayed_ack"), "{}", text(&output.stdout));
        std::fs::remove_file(&page).unwrap();
    }
}

#[test]
fn a_capture_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "held.pcap", &capture());
    let link = directory.path().join("link.pcap");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for out in [path.as_ref(), link.as_path()] {
        for option in ["--html", "--perfetto"] {
            let refused = explain(&path, &[option, out.to_str().unwrap()]);
            assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
            assert!(std::fs::read(&path).unwrap() == capture(), "{option}");
        }
    }
    let page = directory.path().join("page");
    let page = page.to_str().unwrap();
    assert_eq!(explain(&path, &["--html", page, "--perfetto", page]).status.code(), Some(2));
}

#[test]
fn a_file_for_results_is_never_called_dash() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "held.pcap", &capture());
    let path = path.to_str().unwrap();
    let explained = |option| ["explain", path, option];
    let named = |options: &[&str]| taut().current_dir(&directory).args(options).output().unwrap();
    for refused in [
        named(&[&explained("--html")[..], &["-"]].concat()),
        named(&[&explained("--perfetto")[..], &["-"]].concat()),
        named(&explained("--model=-")),
        named(&["trace", "--html", "-", "--", "true"]),
        named(&["trace", "--events", "-", "--", "true"]),
    ] {
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains("stdout has the results") && refused.stdout.is_empty(), "{error}");
        assert!(!directory.path().join("-").exists());
    }
}

/// As an argument, as what is joined, and in errors.
#[test]
fn a_name_that_steers_a_terminal_is_printed_without_steering() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "a\u{1b}[31m\u{9b}1m\n\u{202e}.pcap", &capture());
    let empty = file(directory.path(), "b\u{1b}]0;x\u{7}", b"");
    let is_plain = |bytes: &[u8]| {
        let told = text(bytes);
        let steers = told.chars().find(|&c| c.is_control() && c != '\n' || c == '\u{202e}');
        assert_eq!(steers, None);
        told
    };
    for more in [&[][..], &["--full"], &["--json"], &["--fail-on", "nagle_delayed_ack=1%"]] {
        let output = explain(&path, more);
        is_plain(&output.stderr);
        assert!(is_plain(&output.stdout).contains("u{1b}[31m"), "{}", text(&output.stdout));
    }
    is_plain(&taut().args(["explain", "--join"]).args([&path, &path]).output().unwrap().stdout);
    is_plain(&taut().args(["explain", "--diff"]).args([&path, &path]).output().unwrap().stdout);
    for path in [&empty, &directory.path().join("\u{1b}nowhere")] {
        let output = explain(path, &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(is_plain(&output.stderr).contains("u{1b}"), "{}", text(&output.stderr));
    }
}

/// A file of events that was made elsewhere, by whomever.
#[test]
fn what_a_foreign_trace_says_does_not_steer_and_a_newer_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let facts = |version: u32| {
        format!(
            "{{\"format_version\":{version},\"command\":\"trace\",\"command_line\":\"taut\",\"ended\":{{\"how\":\"complete\"}},\
             \"traced\":\"a\u{202e}b\",\"records\":1,\"lost_records\":0,\"missing_hooks\":[],\"remarks\":[\"c\u{2028}d\"]}}"
        )
    };
    let events = |version: u32| {
        format!(
            "taut-events 1\nf 0 1ff - tcp 1.1.1.1:1 1.1.1.1:2\nb> 0 0 7 0 0\ns> 0 5 7 0 9\nm {}\np 7 \"e\u{2066}f\"\n. 9\n",
            facts(version)
        )
    };
    let path = file(directory.path(), "x.events", events(2).as_bytes());
    let page = directory.path().join("page.html");
    for more in [&["--full"][..], &["--json"], &["--html", page.to_str().unwrap()]] {
        let output = explain(&path, more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let page = std::fs::read_to_string(&page).unwrap_or_default();
        for told in [text(&output.stdout), page] {
            assert!(!told.contains(['\u{202e}', '\u{2028}', '\u{2066}']), "{told}");
        }
        assert!(text(&output.stdout).contains("u{202e}b"), "{}", text(&output.stdout));
        assert!(text(&output.stdout).contains("e\\u{2066}f") || more == ["--json"], "{}", text(&output.stdout));
    }
    let newer = file(directory.path(), "newer.events", events(1000).as_bytes());
    let output = explain(&newer, &[]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
    assert!(error.contains("newer.events has format version 1000, but this Tautline reads up to "), "{error}");
}

/// A socket that is connected to itself, as by chance of a port on loopback: both directions look alike.
#[test]
fn a_connection_of_a_socket_with_itself_is_not_explained() {
    let directory = tempfile::tempdir().unwrap();
    let itself = packets_of(true).into_iter().map(|(at, mut bytes)| {
        let (address, port) = (bytes[12..16].to_vec(), bytes[20..22].to_vec());
        bytes[16..20].copy_from_slice(&address);
        bytes[22..24].copy_from_slice(&port);
        (at, bytes)
    });
    let path = file(directory.path(), "itself.pcap", &pcap(false, true, 101, &itself.collect::<Vec<_>>()));
    let output = explain(&path, &["--fail-on", "loss=1%"]);
    let told = text(&output.stdout);
    assert!(output.status.success() && text(&output.stderr).contains("can't be told"), "{}", text(&output.stderr));
    assert!(!told.contains("FOUND") && told.contains("103 packets are of connections that have the same"), "{told}");
}

/// Events of a log of QUIC behind later ones, and behind a line's end.
#[test]
fn what_is_done_with_a_logs_events_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let head = r#"{"qlog_version": "0.3", "trace": {"vantage_point": {"type": "client"}}}"#;
    let event = |time: u32| {
        format!(
            "\n{{\"time\": {time}, \"name\": \"transport:packet_sent\", \"data\": {{\"header\": {{\"packet_type\": \
             \"1RTT\", \"packet_number\": {time}}}, \"frames\": [{{\"frame_type\": \"stream\", \"stream_id\": 0, \
             \"length\": 10}}]}}}}"
        )
    };
    let log = |times: &mut dyn Iterator<Item = u32>| format!("{head}{}", times.map(event).collect::<String>());
    let span = |name: &str, text: String| {
        let document = parse(&explain(&file(directory.path(), name, text.as_bytes()), &["--json"]));
        let (file, remarks) = (&document["files"][0], document["files"][0]["remarks"].to_string());
        (file["packets"].as_u64().unwrap(), file["span_ns"].as_u64(), remarks)
    };
    let ordered = span("a.sqlog", log(&mut (0..900)));
    let turned = span("b.sqlog", log(&mut (0..900).rev()));
    assert_eq!((ordered.0, ordered.1), (900, Some(899 * MS)));
    assert_eq!((turned.0, turned.1), (900, Some(899 * MS)));
    assert!(!ordered.2.contains("order of time") && turned.2.contains("899 events stand behind later"), "{}", turned.2);
    let refused = explain(&file(directory.path(), "c.sqlog", log(&mut (0..3000).rev()).as_bytes()), &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("not in the order of time"), "{}", text(&refused.stderr));
}

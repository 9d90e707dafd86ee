//! What `taut web` refuses, and whom it drops.

mod support;
mod web_support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{run, text};
use web_support::{Web, ask, get};

/// A page from elsewhere whose own name leads here gets nothing (DNS rebinding).
#[test]
fn only_hosts_that_were_told_are_answered() {
    let web = Web::start("--host Sensor.example");
    web.file("page.html", b"private");
    let status = |line: &str, host: &str| {
        let answer = ask(&web, format!("{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).remove(0);
        assert_eq!(answer.body == b"private", answer.status == 200, "{line} {host}");
        (answer.status, text(&answer.body))
    };
    let page = "GET /page.html HTTP/1.1";
    for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:9", "192.0.2.7", "[::1]:8080", "sensor.EXAMPLE:80"] {
        assert_eq!(status(page, host).0, 200, "{host}");
    }
    for (line, host) in [
        (page, "evil.example"),
        (page, "evil.example:8080"),
        (page, "localhost.evil.example"),
        ("GET http://evil.example/page.html HTTP/1.1", "localhost"),
    ] {
        let (status, said) = status(line, host);
        assert_eq!(status, 421, "{line} {host}");
        assert!(said.contains("--host NAME"), "{said}");
    }
}

#[test]
fn nothing_outside_of_the_directory_is_served() {
    let web = Web::start("--listing");
    web.file("page.html", b"page");
    web.file(".hidden", b"SECRET");
    web.file(".git/config", b"SECRET");
    fs::write(web.outside("secret"), "SECRET").unwrap();
    symlink("../secret", web.path("up")).unwrap();
    symlink(web.outside("secret"), web.path("absolute")).unwrap();
    symlink("..", web.path("parent")).unwrap();
    symlink("/dev/zero", web.path("zero")).unwrap();
    let status = Command::new("mkfifo").arg(web.path("fifo")).status().unwrap();
    assert!(status.success());
    for (target, status) in [
        ("/../secret", 404),
        ("/%2e%2e/secret", 404),
        ("/.%2e/secret", 404),
        ("/sub/../../secret", 404),
        ("/..%2fsecret", 400),
        ("/..%5csecret", 404),
        ("/%252e%252e/secret", 404),
        ("//etc/passwd", 400),
        ("/page.html%00", 400),
        ("/page.html%00.png", 400),
        ("/%", 400),
        ("/up", 404),
        ("/absolute", 404),
        ("/parent/secret", 404),
        ("/parent/", 404),
        ("/zero", 404),
        ("/fifo", 404),
        ("/.hidden", 404),
        ("/.git/config", 404),
        ("/page.html/", 404),
        ("/page.html/x", 404),
        ("http://x/../secret", 404),
        ("*", 400),
        ("secret", 400),
    ] {
        let answer = get(&web, target, "");
        assert_eq!(answer.status, status, "{target}");
        assert!(!text(&answer.body).contains("SECRET") && !text(&answer.body).contains("root:"), "{target}");
    }
    let long = format!("/{}", "a".repeat(300));
    assert_eq!(get(&web, &long, "").status, 414);
    assert_eq!(get(&web, &"/abcdefg".repeat(600), "").status, 414);
    assert_eq!(get(&web, "/page.html", "").body, b"page");
    let log = web.stop().log;
    for says in [
        "a symbolic link out of the directory",
        "neither file nor directory",
        "an encoded slash or NUL",
        "a name that begins with a dot",
    ] {
        assert!(log.contains(says), "{says}: {log}");
    }
}

#[test]
fn requests_that_can_be_read_in_two_ways_are_refused() {
    let web = Web::start("");
    web.file("page.html", b"page");
    web.file("secret.html", b"SECRET");
    // What a second reader would take for a request of its own.
    let smuggled = "GET /secret.html HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunk = format!("0\r\n\r\n{smuggled}");
    for (what, request) in [
        (
            "CL and TE",
            format!(
                "GET /page.html HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}",
                chunk.len()
            ),
        ),
        (
            "TE and CL",
            format!(
                "GET /page.html HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{chunk}"
            ),
        ),
        ("TE", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}")),
        ("odd TE", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n{chunk}")),
        ("TE in HTTP/1.0", format!("GET /page.html HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}")),
        (
            "two CL",
            format!(
                "GET /page.html HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{smuggled}",
                smuggled.len()
            ),
        ),
        ("signed CL", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n{smuggled}")),
        (
            "content",
            format!("GET /page.html HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
        ),
        ("bare LF", format!("GET /page.html HTTP/1.1\nHost: x\n\n{smuggled}")),
        ("one bare LF", format!("GET /page.html HTTP/1.1\r\nHost: x\nX: y\r\n\r\n{smuggled}")),
        ("LF first", format!("\nGET /page.html HTTP/1.1\r\nHost: x\r\n\r\n{smuggled}")),
        ("bare CR", format!("GET /page.html HTTP/1.1\r\nHost: x\rX: y\r\n\r\n{smuggled}")),
        ("obs-fold", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nX: a\r\n Content-Length: 9\r\n\r\n{smuggled}")),
        ("space before colon", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n{smuggled}")),
        ("NUL", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n{smuggled}")),
        ("NUL in the target", format!("GET /page.html\0 HTTP/1.1\r\nHost: x\r\n\r\n{smuggled}")),
        ("two hosts", format!("GET /page.html HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n{smuggled}")),
        ("no host", format!("GET /page.html HTTP/1.1\r\n\r\n{smuggled}")),
        ("odd host", format!("GET /page.html HTTP/1.1\r\nHost: x y\r\n\r\n{smuggled}")),
        ("no version", format!("GET /page.html\r\n\r\n{smuggled}")),
        ("HTTP/2 by prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("rubbish", format!("\x16\x03\x01\x02\r\n\r\n{smuggled}")),
    ] {
        let answers = ask(&web, request.as_bytes());
        let expected: &[u16] = match what {
            "content" => &[413],
            // To an HTTP/2 client no answer can be read.
            "HTTP/2 by prior knowledge" => &[],
            _ => &[400],
        };
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, expected, "{what}: one answer at most, and the connection is closed");
    }
    assert_eq!(get(&web, "/page.html", "").body, b"page");
    let ended = web.stop();
    assert!(!ended.log.contains("GET /secret.html"), "{}", ended.log);
    assert!(ended.log.contains("refused: a line of the request ends in LF without CR"), "{}", ended.log);
    assert!(ended.served["malformed"].as_u64() >= Some(10), "{}", ended.served);
}

#[test]
fn a_head_has_a_size() {
    let web = Web::start("");
    web.file("page.html", b"page");
    let before = web.memory_kib();
    let megabytes = "x".repeat(10 << 20);
    for request in [
        format!("GET /page.html HTTP/1.1\r\nHost: x\r\nX: {megabytes}\r\n\r\n"),
        format!("GET /{megabytes} HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET /page.html HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(200)),
        format!("GET /page.html HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(1 << 20)),
    ] {
        let statuses: Vec<u16> = ask(&web, request.as_bytes()).iter().map(|answer| answer.status).collect();
        assert!(statuses == [431] || statuses == [414], "{} bytes: {statuses:?}", request.len());
    }
    assert!(web.memory_kib() < before + 8192, "{} KiB, {before} before", web.memory_kib());
    assert_eq!(get(&web, "/page.html", "").body, b"page");
    assert!(web.stop().log.contains("refused: "));
}

/// More slow clients than places: those who are served are the quick ones, however many slow ones come.
#[test]
fn slow_clients_hold_nobody_up() {
    let web = Web::start("--max-clients 8 --idle 2s");
    web.file("page.html", b"page");
    let mut slow: Vec<_> = (0..40).map(|_| web.connect()).collect();
    let end = Instant::now() + Duration::from_secs(4);
    let mut served = 0;
    while Instant::now() < end {
        for stream in &mut slow {
            // Those that were dropped come again.
            if stream.write_all(b"X").is_err() {
                *stream = web.connect();
            }
        }
        assert_eq!(get(&web, "/page.html", "").status, 200);
        served += 1;
        thread::sleep(Duration::from_millis(50));
    }
    drop(slow);
    let ended = web.stop();
    assert!(ended.served["evicted"].as_u64() > Some(0), "{}", ended.served);
    assert_eq!(ended.served["by_status"]["200"], served, "{}", ended.served);
    assert!(ended.log.contains("its place was wanted"), "{}", ended.log);
}

#[test]
fn a_request_that_does_not_become_whole_ends_its_connection() {
    let web = Web::start("--idle 500ms");
    let (mut silent, mut slow) = (web.connect(), web.connect());
    slow.write_all(b"GET / HTTP/1.1\r\nHos").unwrap();
    for stream in [&mut silent, &mut slow] {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
    let ended = web.stop();
    assert_eq!(ended.served["timed_out"], 1, "the silent one broke nothing: {}", ended.served);
    assert!(ended.log.contains("no whole request within 500ms"), "{}", ended.log);
}

#[test]
fn a_client_that_takes_nothing_is_dropped() {
    let web = Web::start("--stall 500ms");
    web.file("large", &vec![7; 32 << 20]);
    let mut stream = web.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    web.wait_for_log("took nothing for 500ms");
    let ended = web.stop();
    assert_eq!(ended.served["stalled"], 1, "{}", ended.served);
    assert!(ended.log.contains("\"GET /large\" 200 ") && ended.log.contains(" unfinished "), "{}", ended.log);
}

#[test]
fn when_all_places_are_in_use_the_next_one_is_told() {
    let web = Web::start("--max-clients 2");
    web.file("large", &vec![7; 32 << 20]);
    let mut busy = [web.connect(), web.connect()];
    for stream in &mut busy {
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        // Its answer has begun.
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    let answers = ask(&web, b"");
    assert_eq!((answers[0].status, answers[0].field("retry-after")), (503, Some("1")));
    drop(busy);
    assert_eq!(web.stop().served["refused"], 1);
}

#[test]
fn wrong_lines_are_usage_errors() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().display();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (line, code, says) in [
        (format!("web {there}/none"), 2, "give a directory"),
        (format!("web {}", file.display()), 2, "give a directory"),
        (format!("web {there} --on udp://127.0.0.1:0"), 2, "pages go over streams"),
        (format!("web {there} --on http://x"), 2, "tcp://HOST:PORT"),
        (format!("web {there} --listen-fd"), 2, "no sockets were passed"),
        (format!("web {there} --max-head 0"), 2, "between 1 byte"),
        (format!("web {there} --idle 5"), 2, "unit"),
    ] {
        let output = run(&line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{line}: {}", text(&output.stderr));
    }
}

//! `taut web` over its command line: what is served, what is refused, and how it ends.

mod support;
mod web_support;
#[allow(dead_code, reason = "what it has for reports is not needed here")]
#[path = "../../taut-report/tests/webdriver/mod.rs"]
mod webdriver;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use support::{has, run, skip, taut, text};
use web_support::{Answer, Web, ask, get};

#[test]
fn files_come_as_they_are_over_tcp_and_unix() {
    let web = Web::start("");
    let bytes = web.file("data.bin", &web_support::noise(300_000));
    web.file("index.html", b"<!DOCTYPE html><p>\xC3\xA4");
    web.file("sub/index.html", b"sub");
    if !has("curl") {
        return skip("files_come_as_they_are_over_tcp_and_unix", "no curl");
    }
    let tcp = format!("http://{}", web.tcp());
    let socket = web.unix().display().to_string();
    for (path, contents) in [
        ("/data.bin", bytes.as_slice()),
        ("/", b"<!DOCTYPE html><p>\xC3\xA4"),
        ("/index.html", b"<!DOCTYPE html><p>\xC3\xA4"),
        ("/sub/", b"sub"),
    ] {
        for arguments in [
            vec![format!("{tcp}{path}")],
            vec!["--unix-socket".to_owned(), socket.clone(), format!("http://localhost{path}")],
        ] {
            let output = Command::new("curl").args(["-sS", "--fail"]).args(&arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            assert!(output.stdout == contents, "{arguments:?}: {} bytes", output.stdout.len());
        }
    }
    // Twice over one connection, and the redirect of a directory.
    let url = format!("{tcp}/sub?q=1");
    let output = Command::new("curl").args(["-sSLv", &url, &format!("{tcp}/data.bin")]).output().unwrap();
    assert_eq!(output.stdout, [b"sub".as_slice(), &bytes].concat());
    let told = text(&output.stderr);
    assert!(told.to_lowercase().contains("location: /sub/?q=1"), "{told}");
    assert!(told.to_lowercase().contains("re-using existing connection"), "{told}");
}

#[test]
fn heads_say_what_comes() {
    let web = Web::start("");
    web.file("page.html", b"<p>page");
    web.file("data.bin", b"0123456789");
    let answer = get(&web, "/page.html", "");
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"<p>page".as_slice()));
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.field("accept-ranges"), Some("bytes"));
    assert_eq!(answer.field("cache-control"), Some("no-cache"));
    assert!(
        answer.field("etag").is_some() && answer.field("last-modified").is_some() && answer.field("date").is_some()
    );
    let head = ask(&web, b"HEAD /page.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").remove(0);
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("7"), 0));
    assert_eq!(head.field("etag"), answer.field("etag"));
    for (method, status) in [("POST", 405), ("DELETE", 405), ("OPTIONS", 405), ("PUT", 405), ("BREW", 405)] {
        let request = format!("{method} /page.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = ask(&web, request.as_bytes()).remove(0);
        assert_eq!((answer.status, answer.field("allow")), (status, Some("GET, HEAD")), "{method}");
    }
    let old = Web::start("--max-age 1h");
    old.file("x", b"x");
    assert_eq!(get(&old, "/x", "").field("cache-control"), Some("max-age=3600"));
}

#[test]
fn a_part_and_what_is_known_already() {
    let web = Web::start("");
    web.file("data.bin", b"0123456789");
    web.age("data.bin");
    let whole = get(&web, "/data.bin", "");
    let (tag, modified) = (whole.field("etag").unwrap().to_owned(), whole.field("last-modified").unwrap().to_owned());
    for (fields, status, body, range) in [
        ("Range: bytes=2-4\r\n".to_owned(), 206, "234", Some("bytes 2-4/10")),
        ("Range: bytes=-3\r\n".to_owned(), 206, "789", Some("bytes 7-9/10")),
        ("Range: bytes=2-3,5-6\r\n".to_owned(), 200, "0123456789", None),
        ("Range: bytes=2-4\r\nRange: bytes=5-6\r\n".to_owned(), 200, "0123456789", None),
        ("Range: bytes=10-\r\n".to_owned(), 416, "416 Range Not Satisfiable\n", Some("bytes */10")),
        (format!("Range: bytes=2-4\r\nIf-Range: {modified}\r\n"), 206, "234", Some("bytes 2-4/10")),
        ("Range: bytes=2-4\r\nIf-Range: \"other\"\r\n".to_owned(), 200, "0123456789", None),
        (format!("If-None-Match: {tag}\r\n"), 304, "", None),
        (format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {modified}\r\n"), 200, "0123456789", None),
        (format!("If-Modified-Since: {modified}\r\n"), 304, "", None),
        ("If-Match: \"other\"\r\n".to_owned(), 412, "412 Precondition Failed\n", None),
        (format!("If-None-Match: {tag}\r\nRange: bytes=2-4\r\n"), 304, "", None),
    ] {
        let answer = get(&web, "/data.bin", &fields);
        assert_eq!(
            (answer.status, text(&answer.body).as_str(), answer.field("content-range")),
            (status, body, range),
            "{fields}"
        );
        if status == 304 {
            assert_eq!(answer.field("etag"), Some(tag.as_str()));
        }
    }
    // Another content is another thing.
    web.file("data.bin", b"abcdefghij");
    assert_eq!(get(&web, "/data.bin", &format!("If-None-Match: {tag}\r\n")).status, 200);
}

#[test]
fn compressed_files_go_to_those_who_take_them() {
    let web = Web::start("");
    web.file("a.css", b"plain");
    web.age("a.css");
    assert_eq!(get(&web, "/a.css", "").field("vary"), None);
    for ending in ["br", "gz", "zst"] {
        web.file(&format!("a.css.{ending}"), ending.as_bytes());
    }
    for (accepts, coding, body) in [
        ("gzip, deflate, br, zstd", Some("br"), "br"),
        ("gzip", Some("gzip"), "gz"),
        ("gzip;q=0.5, zstd;q=0.8", Some("zstd"), "zst"),
        ("identity", None, "plain"),
        ("br;q=0", None, "plain"),
    ] {
        let answer = get(&web, "/a.css", &format!("Accept-Encoding: {accepts}\r\n"));
        assert_eq!((answer.field("content-encoding"), text(&answer.body).as_str()), (coding, body), "{accepts}");
        assert_eq!(answer.field("vary"), Some("accept-encoding"));
        assert_eq!(answer.field("content-type"), Some("text/css; charset=utf-8"));
    }
    let [plain, packed] = ["", "Accept-Encoding: br\r\n"].map(|fields| get(&web, "/a.css", fields));
    assert_ne!(plain.field("etag"), packed.field("etag"));
    let again = format!("Accept-Encoding: br\r\nIf-None-Match: {}\r\n", packed.field("etag").unwrap());
    assert_eq!(get(&web, "/a.css", &again).status, 304);
    assert_eq!(get(&web, "/a.css", "Accept-Encoding: identity;q=0\r\n").status, 406);
    // Made of what the file was before.
    web.file("a.css", b"newer");
    for ending in ["br", "gz", "zst"] {
        web.age(&format!("a.css.{ending}"));
    }
    let stale = get(&web, "/a.css", "Accept-Encoding: br\r\n");
    assert_eq!((stale.field("content-encoding"), stale.body.as_slice()), (None, b"newer".as_slice()));
}

#[test]
fn a_page_has_the_time_in_it_and_nothing_is_evaluated() {
    let web = Web::start("");
    web.file("index.tmpl.html", b"<p>Time is {{time}}, $(id) `id` {{id}} <!--#exec cmd=\"id\" --></p>");
    let before = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    for path in ["/", "/index.html"] {
        let answer = get(&web, path, "");
        let page = text(&answer.body);
        let time = page.strip_prefix("<p>Time is ").unwrap().split(',').next().unwrap();
        assert!(*time >= *before && time.len() == before.len() && time.ends_with('Z'), "{page}");
        assert!(page.ends_with(", $(id) `id` {{id}} <!--#exec cmd=\"id\" --></p>"), "{page}");
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        assert_eq!((answer.field("etag"), answer.field("last-modified")), (None, None));
        assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    }
    assert_eq!(get(&web, "/index.tmpl.html", "").status, 404, "the template itself");
    web.file("index.html", b"the file goes first");
    assert_eq!(get(&web, "/", "").body, b"the file goes first");
}

#[test]
fn a_listing_is_there_when_it_is_asked_for() {
    let web = Web::start("");
    web.file("sub/a.txt", b"a");
    assert_eq!(get(&web, "/sub/", "").status, 404);
    let web = Web::start("--listing");
    web.file("sub/a&b.txt", b"a");
    web.file("sub/.hidden", b"a");
    web.file("sub/deep/x", b"a");
    symlink("/etc/passwd", web.path("sub/link")).unwrap();
    let page = text(&get(&web, "/sub/", "").body);
    assert!(page.contains("<a href=\"a%26b.txt\">a&amp;b.txt</a> (1 bytes)"), "{page}");
    assert!(page.contains("<a href=\"deep/\">deep/</a>"), "{page}");
    assert!(!page.contains("hidden") && !page.contains("link"), "{page}");
    assert_eq!(get(&web, "/sub/a%26b.txt", "").body, b"a");
}

#[test]
fn answers_that_have_begun_are_finished_at_the_end() {
    let web = Web::start("");
    let bytes = web.file("large", &web_support::noise(16 << 20));
    let mut stream = web.connect();
    let mut idle = web.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut first = vec![0; 1000];
    stream.read_exact(&mut first).unwrap();
    let address = web.tcp();
    let ending = thread::spawn(move || web.stop());
    // The idle one is closed, nobody new is let in, and the answer goes on.
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
    }
    stream.read_to_end(&mut first).unwrap();
    let answer = Answer::parse(&mut first.as_slice()).unwrap();
    assert!(answer.body == bytes, "{} bytes", answer.body.len());
    let ended = ending.join().unwrap();
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.served["requests"], 1);
    assert_eq!(ended.served["bytes_out"].as_u64(), Some(bytes.len() as u64));
    assert!(ended.log.contains("\"GET /large\" 200 16777216 B "), "{}", ended.log);
}

#[test]
fn a_file_that_becomes_shorter_is_not_made_up_for() {
    let web = Web::start("");
    web.file("large", &vec![7; 64 << 20]);
    let mut stream = web.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    fs::OpenOptions::new().write(true).open(web.path("large")).unwrap().set_len(1 << 20).unwrap();
    let mut rest = Vec::new();
    // An end or a reset, both of which are short of what was promised.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 60 << 20, "{}", rest.len());
    web.wait_for_log("unfinished");
}

#[test]
fn a_log_line_is_one_line() {
    let web = Web::start("");
    get(&web, "/%0d%0aforged", "");
    get(&web, "/a\"b\\c\u{1b}[31m", "");
    get(&web, &format!("/{}", "y".repeat(2000)), "");
    let log = web.stop().log;
    assert!(log.lines().all(|line| line.starts_with("20") && line.len() < 500), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
    let quiet = Web::start("--quiet");
    get(&quiet, "/", "");
    assert_eq!(quiet.stop().log, "");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let web = Web::start("");
    for name in ["a", "b", "c"] {
        web.file(name, name.repeat(1000).as_bytes());
    }
    let requests: String =
        ["a", "none", "b", "c"].map(|name| format!("GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n")).concat();
    let answers = ask(&web, requests.as_bytes());
    let got: Vec<(u16, Option<u8>)> =
        answers.iter().map(|answer| (answer.status, answer.body.first().copied())).collect();
    assert_eq!(got, [(200, Some(b'a')), (404, Some(b'4')), (200, Some(b'b')), (200, Some(b'c'))]);
}

#[test]
fn sockets_of_a_service_manager_are_served_and_it_is_told() {
    if !has("systemd-socket-activate") {
        return skip("sockets_of_a_service_manager_are_served_and_it_is_told", "no systemd-socket-activate");
    }
    let port = support::free_port();
    let web = Web::start_passed(port);
    web.file("page.html", b"page");
    // The program begins with the first client.
    assert_eq!(get(&web, "/page.html", "").body, b"page");
    assert!(
        web.told().contains("READY=1") && web.told().contains(&format!("STATUS=listening on tcp://127.0.0.1:{port}")),
        "{}",
        web.told()
    );
    let ended = web.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(ended.told.contains("STOPPING=1"), "{}", ended.told);
}

/// What the browser got, byte by byte.
const FETCHED: &str =
    "return fetch('PATH').then((answer) => answer.arrayBuffer()).then((bytes) => [...new Uint8Array(bytes)]);";

#[test]
fn a_browser_shows_the_page() {
    match webdriver::Browser::start() {
        Ok(browser) => Sample::serve().is_shown_by(&browser, |web| web.tcp()),
        Err(why) => skip("a_browser_shows_the_page", &why),
    }
}

/// A browser that knows TCP, a server that knows a Unix socket, and a pipe between them.
#[test]
fn a_browser_shows_the_page_through_a_pipe() {
    let test = "a_browser_shows_the_page_through_a_pipe";
    if !run("pipe --help").status.success() {
        return skip(test, "this taut has no pipe");
    }
    if !has("curl") {
        return skip(test, "no curl");
    }
    let sample = Sample::serve();
    let front = SocketAddr::from(([127, 0, 0, 1], support::free_port()));
    let (listen, connect) = (format!("listen:tcp://{front}"), format!("unix:{}", sample.web.unix().display()));
    let _pipe = Ended(taut().args(["pipe", &listen, &connect]).spawn().unwrap());
    support::wait_for_tcp(front);
    let output = Command::new("curl").args(["-sS", "--fail", &format!("http://{front}/data.bin")]).output().unwrap();
    assert!(output.stdout == sample.bytes, "{} bytes, {}", output.stdout.len(), text(&output.stderr));
    match webdriver::Browser::start() {
        Ok(browser) => sample.is_shown_by(&browser, |_| front),
        Err(why) => skip(test, &why),
    }
}

/// A program that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The page of `examples/web`, and bytes that can be told from any others.
struct Sample {
    web: Web,
    bytes: Vec<u8>,
}

impl Sample {
    fn serve() -> Self {
        let web = Web::start("");
        let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/web/site");
        for entry in fs::read_dir(site).unwrap().flatten() {
            fs::copy(entry.path(), web.path(&entry.file_name().to_string_lossy())).unwrap();
        }
        let bytes = web.file("data.bin", &web_support::noise(100_000));
        Self { web, bytes }
    }

    fn is_shown_by(&self, browser: &webdriver::Browser, at: impl Fn(&Web) -> SocketAddr) {
        browser.post("/url", json!({"url": format!("http://{}/index.html", at(&self.web))}));
        assert_eq!(browser.run("return document.querySelector('h1').textContent"), "Hello from BLE HTTP!");
        let time = browser.run("return document.querySelector('p').textContent");
        let time = time.as_str().and_then(|text| text.strip_prefix("Time is ")).unwrap_or_else(|| panic!("{time}"));
        let age = std::time::SystemTime::now().duration_since(humantime::parse_rfc3339(time).unwrap()).unwrap();
        assert!(age < Duration::from_secs(120), "{time}");
        assert_eq!(browser.run("return getComputedStyle(document.body).maxWidth"), "640px", "with its style sheet");
        let fetched: Vec<u8> = serde_json::from_value(browser.run(&FETCHED.replace("PATH", "/data.bin"))).unwrap();
        assert!(fetched == self.bytes, "{} bytes", fetched.len());
    }
}

#[test]
fn the_units_are_valid_and_shut_in() {
    let test = "the_units_are_valid_and_shut_in";
    if !has("systemd-analyze") {
        return skip(test, "no systemd-analyze");
    }
    let directory = tempfile::tempdir().unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let [service, socket] = ["taut-web.service", "taut-web.socket"].map(|name| {
        let unit = fs::read_to_string(units.join(name)).unwrap();
        let path = directory.path().join(name);
        fs::write(&path, unit.replace("/usr/bin/taut", env!("CARGO_BIN_EXE_taut"))).unwrap();
        path
    });
    let verified = Command::new("systemd-analyze").arg("verify").args([&service, &socket]).output().unwrap();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    let arguments = ["security", "--offline=yes", "--threshold=10", "--no-pager"];
    let safe = Command::new("systemd-analyze").args(arguments).arg(&service).output().unwrap();
    assert!(safe.status.success(), "exposed by more than 1.0: {}", text(&safe.stdout));
    // What the service is started with is understood.
    let unit = fs::read_to_string(&service).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let options = start.split_once(" web ").unwrap().1.replace("/srv/www", &directory.path().display().to_string());
    let output = run(&format!("web {options}"));
    assert!(text(&output.stderr).contains("no sockets were passed"), "{}", text(&output.stderr));
}

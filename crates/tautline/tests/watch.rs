//! `taut watch` beside connections whose losses are known.

mod support;

use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::terminal::Terminal;
use support::{has, is_root, run, skip, taut, text};

fn pair() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    (listener, client, server)
}

fn watch(port: u16, more: &[&str]) -> Command {
    let mut command = taut();
    command.args(["watch", "--port", &port.to_string()]).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap)
}

fn losses(line: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(line).unwrap();
    document["losses"].as_array().unwrap().clone()
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_loss_begins_stands_and_ends() {
    let (_listener, mut client, server) = pair();
    let port = server.local_addr().unwrap().port();
    // What waits to be read needs no right to be seen.
    client.write_all(b"unread").unwrap();
    let mut child = watch(port, &["--json", "--every", "1s"]).spawn().unwrap();
    let mut server = Some(server);
    let (mut begins, mut stood, mut ended) = (0, 0, None);
    for line in lines(&mut child) {
        let document: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (document["command"].as_str(), document["format_version"].as_u64()),
            (Some("watch"), Some(taut_record::FORMAT_VERSION.into()))
        );
        for loss in losses(&line) {
            assert_eq!((loss["cause"].as_str(), loss["side"].as_str()), (Some("unread"), Some("server")), "{loss:#}");
            assert_eq!(loss["service"], format!("127.0.0.1:{port}"));
            assert_eq!(loss["pid"].as_u64(), Some(u64::from(std::process::id())));
            // Of the interval in which it was read at last, it stood for as long as that took.
            assert!(server.is_none() || loss["worst_share"].as_f64().unwrap() > 0.5, "{loss:#}");
            assert!(loss["lost_ns"].as_u64() <= loss["total_lost_ns"].as_u64());
            assert!(loss["total_lost_ns"].as_u64() <= loss["stands_ns"].as_u64(), "one connection: {loss:#}");
            begins += u32::from(loss["is_new"] == true);
            stood = loss["stands_ns"].as_u64().unwrap();
        }
        if stood >= 2_000_000_000
            && let Some(mut server) = server.take()
        {
            let mut bytes = [0; 6];
            server.read_exact(&mut bytes).unwrap();
            // It stays open, and nothing waits any more.
            std::mem::forget(server);
        }
        if let Some(one) = document["ended"].as_array().unwrap().first() {
            ended = Some(one.clone());
            interrupt(&child);
        }
    }
    assert!(child.wait().unwrap().success(), "a watch without an end of its own is whole when its user ends it");
    let ended = ended.expect("it ends");
    assert_eq!((begins, ended["cause"].as_str(), ended["episodes"].as_u64()), (1, Some("unread"), Some(1)));
    assert_eq!(ended["stood_ns"].as_u64(), Some(stood));
}

#[test]
fn a_small_write_that_nagle_holds_is_told_with_its_client_and_none_with_nodelay() {
    if !is_root() {
        return skip("a_small_write_that_nagle_holds_is_told_with_its_client", "root reads the options of others");
    }
    for no_delay in [false, true] {
        let (_listener, mut client, mut server) = pair();
        let address = server.local_addr().unwrap();
        client.set_nodelay(no_delay).unwrap();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut request = [0; 8];
                while server.read_exact(&mut request).is_ok() && server.write_all(b"answer").is_ok() {}
            });
            scope.spawn(|| {
                let mut answer = [0; 6];
                while !end.load(Ordering::Relaxed) {
                    client.write_all(b"head").unwrap();
                    client.write_all(b"body").unwrap();
                    client.read_exact(&mut answer).unwrap();
                    if no_delay {
                        std::thread::sleep(Duration::from_millis(40));
                    }
                }
                client.shutdown(std::net::Shutdown::Both).unwrap();
            });
            let output = watch(address.port(), &["--json", "--for", "4s"]).output().unwrap();
            end.store(true, Ordering::Relaxed);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let all: Vec<Value> = text(&output.stdout).lines().flat_map(losses).collect();
            let nagle: Vec<&Value> = all.iter().filter(|loss| loss["cause"] == "nagle_delayed_ack").collect();
            assert_eq!(nagle.is_empty(), no_delay, "{all:#?}");
            for loss in nagle {
                assert_eq!((loss["side"].as_str(), loss["remedy"].as_str()), (Some("client"), Some("set TCP_NODELAY")));
                assert_eq!(loss["service"], address.to_string());
            }
        });
    }
}

#[test]
fn one_interval_is_a_table_and_nothing_lost_is_said() {
    let (_listener, mut client, server) = pair();
    let port = server.local_addr().unwrap().port();
    let table = |output: std::process::Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
        table
    };
    let idle = table(watch(port, &["--once", "--every", "500ms"]).output().unwrap());
    assert!(idle.contains("2 connections; nothing loses time that a look can see"), "{idle}");
    client.write_all(b"unread").unwrap();
    let lost = table(watch(port, &["--once", "--every", "500ms"]).output().unwrap());
    assert!(lost.contains("1 loss\n") && lost.contains("unread") && lost.contains("server at 127.0.0.1"), "{lost}");
    drop(server);
}

#[test]
fn connections_that_are_open_and_idle_lose_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut open: Vec<_> =
        (0..20).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0)).collect();
    // One that was used before, and has nothing left to do.
    open[0].0.write_all(b"read").unwrap();
    open[0].1.read_exact(&mut [0; 4]).unwrap();
    let output = watch(address.port(), &["--json", "--every", "1s", "--for", "3s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.lines().count() >= 3, "{said}");
    for line in said.lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        assert_eq!((losses(line).len(), document["connections"].as_u64()), (0, Some(40)), "{document:#}");
        assert!(document["ended"].as_array().unwrap().is_empty(), "{document:#}");
        // How often it looked stands beside the verdict.
        assert!(document["look_period_ns"].as_u64().is_some_and(|period| period >= 20_000_000), "{document:#}");
    }
    let log = watch(address.port(), &["--for", "2s"]).output().unwrap();
    assert_eq!(log.status.code(), Some(0));
    assert!(text(&log.stdout).ends_with(": nothing lost time that a look can see.\n"), "{}", text(&log.stdout));
    assert_eq!(text(&log.stdout).lines().count(), 1, "{}", text(&log.stdout));
}

/// A queue takes one more than its backlog; the client that comes then sends its SYN again and again.
#[test]
fn an_accept_queue_that_overflows_is_named_at_both_ends_and_one_with_room_is_not() {
    for has_room in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, if has_room { 16 } else { 1 }).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        let late = std::thread::spawn(move || TcpStream::connect_timeout(&address, Duration::from_secs(30)));
        let accepted: Vec<_> = (0..if has_room { 3 } else { 0 }).map(|_| listener.accept().unwrap().0).collect();
        let output = watch(address.port(), &["--json", "--once", "--every", "3s"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let losses = losses(&text(&output.stdout));
        let of = |cause: &str| losses.iter().find(|loss| loss["cause"] == cause);
        if has_room {
            assert!(losses.is_empty(), "{losses:#?}");
        } else {
            let queue = of("accept_queue").unwrap_or_else(|| panic!("{losses:#?}"));
            let (side, service) = (queue["side"].as_str(), queue["service"].as_str());
            assert_eq!((side, service), (Some("server"), Some(&*address.to_string())), "{queue:#}");
            assert!(queue["worst_share"].as_f64().unwrap() > 0.9, "{queue:#}");
            assert_eq!(queue["remedy"], "accept sooner, or a larger backlog (listen(2) and net.core.somaxconn)");
            let client = of("handshake_repeated").unwrap_or_else(|| panic!("{losses:#?}"));
            assert_eq!((client["side"].as_str(), client["connections"].as_u64()), (Some("client"), Some(1)));
            assert!(of("not_accepted").is_some_and(|loss| loss["connections"] == 2), "{losses:#?}");
            assert!(losses.iter().all(|loss| loss["worst_look_period_ns"].as_u64() > Some(0)), "{losses:#?}");
        }
        // Nobody is left waiting.
        drop(waiting);
        drop(listener);
        drop((late.join().unwrap(), accepted));
    }
}

#[test]
fn a_log_tells_what_begins_and_the_end_sums_up() {
    let (_listener, mut client, server) = pair();
    let port = server.local_addr().unwrap().port();
    client.write_all(b"unread").unwrap();
    let output = watch(port, &["--for", "2s", "--every", "1s"]).output().unwrap();
    let log = text(&output.stdout);
    assert_eq!(log.matches("begins: unread at ").count(), 1, "{log}");
    assert!(log.split_whitespace().collect::<Vec<_>>().join(" ").contains("of the time, by a look every "), "{log}");
    assert!(log.contains("Watched for 2.") && log.contains("The longest time lost comes first:"), "{log}");
    assert!(log.contains("CHANGE see what the program does meanwhile."), "{log}");
    // Ended before its time, it says so.
    let mut child = watch(port, &["--for", "1h"]).spawn().unwrap();
    let mut lines = lines(&mut child);
    assert!(lines.next().unwrap().contains("begins: unread"));
    interrupt(&child);
    assert!(lines.any(|line| line == "PARTIAL: interrupted"));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(server);
}

#[test]
fn a_terminal_has_a_screen_of_its_own_and_its_old_one_back_at_the_end() {
    on_a_terminal(60, 12);
}

#[test]
fn a_terminal_with_hardly_any_room_does_not_scroll() {
    on_a_terminal(20, 6);
}

fn on_a_terminal(columns: u16, rows: u16) {
    let (_listener, mut client, server) = pair();
    let port = server.local_addr().unwrap().port();
    client.write_all(b"unread").unwrap();
    let mut seen = Terminal::new(columns, rows).start(watch(port, &["--every", "500ms"]), &[]);
    // The first table, whatever of it fits.
    assert!(seen.read_until(": all look"), "{}", seen.text);
    interrupt(&seen.child);
    let (code, seen) = seen.end();
    assert_eq!(code, Some(0), "{seen:?}");
    let (before, after) = seen.split_once("\x1b[?1049l").expect("the old screen comes back");
    assert!(before.starts_with("\x1b[?1049h") && after.contains("Watched for"), "{seen:?}");
    for screen in before.split("\x1b[H").skip(2) {
        let lines: Vec<&str> = screen.split('\n').map(|line| line.split('\x1b').next().unwrap()).collect();
        let fits = |line: &&str| line.chars().count() <= usize::from(columns);
        assert!(lines.len() <= usize::from(rows) && lines.iter().all(fits), "{lines:?}");
    }
    drop(server);
}

#[test]
fn without_rights_it_watches_and_says_what_is_missing() {
    if !is_root() {
        return skip("without_rights_it_watches_and_says_what_is_missing", "needs root to give it up");
    }
    let (_listener, mut client, server) = pair();
    let port = server.local_addr().unwrap().port();
    client.write_all(b"unread").unwrap();
    // A copy where another user reaches it.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("taut");
    std::fs::copy(env!("CARGO_BIN_EXE_taut"), &program).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = std::os::unix::process::CommandExt::uid(&mut Command::new(&program), 65_534)
        .args(["watch", "--once", "--every", "500ms", "--port", &port.to_string()])
        .output()
        .unwrap();
    let table = text(&output.stdout);
    assert!(table.contains("unread") && table.contains("a program that is not seen"), "{table}");
    assert!(table.contains("The options of 2 connections can't be looked at") && table.contains("as root"), "{table}");
}

#[test]
fn the_unit_is_valid_and_starts_what_is_understood() {
    if !has("systemd-analyze") {
        return skip("the_unit_is_valid_and_starts_what_is_understood", "no systemd-analyze");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/taut-watch.service");
    let unit = std::fs::read_to_string(file).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let service = directory.path().join("taut-watch.service");
    // The man page is not installed here.
    let here = unit.replace("/usr/bin/taut", env!("CARGO_BIN_EXE_taut")).replace("Documentation=", "#");
    std::fs::write(&service, here).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&service).output().unwrap();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/taut ")).unwrap();
    assert!(run(&format!("{start} --once --every 500ms")).status.success());
}

#[test]
fn a_collector_reads_what_was_lost_so_far() {
    if !is_root() {
        return skip("a_collector_reads_what_was_lost_so_far", "root reads the options of others");
    }
    let mut demo = taut().args(["demo", "--for", "60s"]).stdout(Stdio::null()).spawn().unwrap();
    let mut watch = taut();
    watch.args(["watch", "--prometheus", "0", "--every", "500ms"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut line = String::new();
    let mut stderr = BufReader::new(watch.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("taut: metrics at ").unwrap_or_else(|| panic!("{line}")).to_owned();
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/metrics"), "{url}");
    // Programs of the same name that other tests have started may be among them.
    let lost = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("taut_lost_seconds_total{"));
        let ours = lines.filter(|line| line.contains("nagle_delayed_ack") && line.contains("program=\"taut\""));
        let all: Vec<f64> = ours.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>())
    };
    // Two figures, of which the later one is larger.
    let mut seen = Vec::new();
    for _ in 0..300 {
        let text = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        if let Some(lost) = lost(&text).filter(|lost| seen.last() != Some(lost)) {
            seen.push(lost);
        }
        if seen.len() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    interrupt(&watch);
    assert!(watch.wait().unwrap().success());
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert!(seen.len() == 2 && 0.0 < seen[0] && seen[0] < seen[1], "{seen:?}");
}

#[test]
fn what_can_not_be_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = run(&format!("watch --prometheus {}", taken.local_addr().unwrap()));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("listen on 127.0.0.1:"), "{}", text(&output.stderr));
    for line in ["watch --prometheus here", "watch --once --prometheus 0"] {
        assert_eq!(run(line).status.code(), Some(2), "{line}");
    }
    for line in ["watch --every 1ms", "watch --threshold 3", "watch --once --for 1s", "watch --port 0"] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
    }
    assert!(text(&run("watch --every 1ms").stderr).contains("an interval has from 500ms to 1h"));
}

//! `taut route`: the same results in the kernel and in user space, routes that outlive their command and end with their
//! process, and messages that say what is missing.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{has, is_root, parse, skip, taut, text};
use tempfile::TempDir;

/// A network namespace with a loopback device, and a directory in which routes are kept track of.
struct Place {
    namespace: String,
    directory: TempDir,
}

impl Place {
    /// `None` where it can't be made.
    fn make(test: &str) -> Option<Self> {
        if !is_root() || !has("ip") {
            skip(test, "needs root and iproute2");
            return None;
        }
        // Names of tests may begin alike, and tests may share a process.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("taut-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let place = Self { namespace, directory: tempfile::tempdir().unwrap() };
        let ip =
            |arguments: &[&str]| Command::new("ip").args(arguments).stderr(Stdio::null()).status().unwrap().success();
        if !ip(&["netns", "add", &place.namespace]) {
            skip(test, "network namespaces are not permitted here");
            return None;
        }
        assert!(ip(&["-n", &place.namespace, "link", "set", "lo", "up"]));
        Some(place)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(env!("CARGO_BIN_EXE_taut")).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.directory.path());
        command
    }

    fn route(&self, arguments: &[&str]) -> Output {
        self.command().arg("route").args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.route(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        parse(&output)
    }

    fn detach(&self, arguments: &[&str]) {
        let output = self.route(&[&["run", "--detach"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }

    /// A socket in the namespace.
    fn socket(&self, address: &str) -> UdpSocket {
        let inside = || {
            let namespace = File::open(format!("/run/netns/{}", self.namespace)).unwrap();
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .unwrap();
            UdpSocket::bind(address).unwrap()
        };
        let socket = std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.route(&["stop", "--all"]);
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

fn receive(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = [0; 256];
    socket.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec())
}

#[test]
fn kernel_and_user_space_give_the_same() {
    let Some(place) = Place::make("kernel_and_user_space_give_the_same") else { return };
    compare(&place, "127.0.0.1");
}

#[test]
fn kernel_and_user_space_give_the_same_over_ipv6() {
    let test = "kernel_and_user_space_give_the_same_over_ipv6";
    let Some(place) = Place::make(test) else { return };
    if has_ipv6(test) {
        compare(&place, "[::1]");
    }
}

fn compare(place: &Place, host: &str) {
    let (source, client_address) = (format!("{host}:9100"), format!("{host}:0"));
    let from = format!("udp://{source}");
    // Datagrams of a sensor: level, flags, and some of them too short.
    let datagrams: Vec<Vec<u8>> = (0..60_u8)
        .map(|i| {
            let level = i32::from(i) * 37 % 50 - 25;
            let mut bytes = vec![i, i ^ 0x55];
            bytes.extend((level as i16).to_be_bytes());
            bytes.extend(vec![7; usize::from(i % 5)]);
            bytes.truncate(if i % 11 == 3 { 3 } else { bytes.len() });
            bytes
        })
        .collect();
    let mut results = Vec::new();
    for kind in ["xdp-generic", "tc", "user"] {
        place.detach(&[
            "--name",
            kind,
            "--place",
            kind,
            "--from",
            &from,
            "--field",
            "level=i16be@2",
            "--when",
            "hysteresis(average(level, 3), -5, 5) || level / (level % 3) > u8[1] >> 3",
            "--to",
            "reply",
            "--send",
            "smooth(level, 2) * 1000 + len * 7 + delta(u8[0])",
        ]);
        let client = place.socket(&client_address);
        client.connect(&source).unwrap();
        let mut answers = Vec::new();
        for datagram in &datagrams {
            client.send(datagram).unwrap();
            // The next one comes when this one has been seen.
            let deadline = Instant::now() + Duration::from_secs(5);
            let seen = u64::from(datagram[0]) + 1;
            while place.json(&["stats", kind])["results"][0]["counters"]["events"] != seen {
                assert!(Instant::now() < deadline, "{kind}: event {seen} was not counted");
            }
        }
        while let Some(answer) = receive(&client) {
            answers.push(answer);
        }
        let stopped = place.json(&["stop", kind]);
        let counters = stopped["results"][0]["counters"].clone();
        assert_eq!(stopped["results"][0]["runs"], kind);
        let counts = ["events", "passed", "dropped", "short", "lost"].map(|name| counters[name].as_u64().unwrap());
        assert_eq!(counts[0], 60);
        assert_eq!(counts[1], answers.len() as u64, "{counters}");
        assert!(counts[1] > 5 && counts[2] > 5 && counts[3] == 6 && counts[4] == 0, "{counters}");
        results.push((counts, answers));
    }
    assert_eq!(results[0], results[2], "xdp-generic and user");
    assert_eq!(results[1], results[2], "tc and user");
}

#[test]
fn a_route_outlives_its_command_and_ends_with_its_process() {
    let Some(place) = Place::make("a_route_outlives_its_command_and_ends_with_its_process") else { return };
    place.detach(&[
        "--name",
        "fan",
        "--from",
        "udp://127.0.0.1:9100",
        "--when",
        "value == 0",
        "--to",
        "udp://127.0.0.1:7001",
        "--to",
        "udp://127.0.0.1:7002",
    ]);
    let (first, second) = (place.socket("127.0.0.1:7001"), place.socket("127.0.0.1:7002"));
    let client = place.socket("127.0.0.1:0");
    client.send_to(&[0; 12], "127.0.0.1:9100").unwrap();
    assert_eq!((receive(&first), receive(&second)), (Some(vec![0; 12]), Some(vec![0; 12])));
    let list = place.json(&["list"]);
    assert_eq!(list["results"][0]["name"], "fan");
    assert_eq!(list["results"][0]["runs"], "tc");
    // The name is taken.
    let again = place.route(&["run", "--name", "fan", "--from", "timer:1s"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("at work already"), "{}", text(&again.stderr));
    // Killed, it leaves nothing behind: a socket at the source gets what the program took before.
    let pid = list["results"][0]["pid"].as_u64().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let source = place.socket("127.0.0.1:9100");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        client.send_to(&[0; 12], "127.0.0.1:9100").unwrap();
        if receive(&source).is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "the program stayed after its process was killed");
    }
    assert_eq!(place.json(&["list"])["results"].as_array().unwrap().len(), 0);
    assert_eq!(place.route(&["stop", "fan"]).status.code(), Some(2));
}

fn has_ipv6(test: &str) -> bool {
    let has = std::path::Path::new("/proc/net/if_inet6").exists();
    if !has {
        skip(test, "no IPv6 here");
    }
    has
}

#[test]
fn ipv6_fans_out_in_the_kernel() {
    let Some(place) = Place::make("ipv6_fans_out_in_the_kernel") else { return };
    if !has_ipv6("ipv6_fans_out_in_the_kernel") {
        return;
    }
    let (from, first, second) = ("udp://[::1]:9100", "udp://[::1]:7001", "udp://[::1]:7002");
    let route = ["--from", from, "--when", "value == 6", "--to", "reply", "--to", first, "--to", second, "--send"];
    place.detach(&[&["--name", "six"], &route[..], &["value + len"]].concat());
    let client = place.socket("[::1]:0");
    let sockets = [place.socket("[::1]:7001"), place.socket("[::1]:7002")];
    for value in [5_i64, 6] {
        client.send_to(&value.to_be_bytes(), "[::1]:9100").unwrap();
    }
    let answer = Some(14_i64.to_be_bytes().to_vec());
    assert_eq!(sockets.each_ref().map(receive), [answer.clone(), answer.clone()]);
    assert_eq!((receive(&client), receive(&client)), (answer, None));
    let status = &place.json(&["stop", "six"])["results"][0];
    assert_eq!((&status["runs"], &status["counters"]["passed"]), (&"tc".into(), &1.into()), "{status:#}");
    assert!(status["why"][0].as_str().unwrap().contains("UDP over IPv6"), "{status:#}");
}

#[test]
fn both_versions_of_ip_on_one_route_run_in_user_space_and_say_so() {
    let test = "both_versions_of_ip_on_one_route_run_in_user_space_and_say_so";
    let Some(place) = Place::make(test) else { return };
    if !has_ipv6(test) {
        return;
    }
    let route = ["--from", "udp://[::1]:9100", "--to", "reply", "--to", "udp://127.0.0.1:7001"];
    place.detach(&[&["--name", "both"], &route[..]].concat());
    let (client, sink) = (place.socket("[::1]:0"), place.socket("127.0.0.1:7001"));
    client.send_to(b"datagram", "[::1]:9100").unwrap();
    let datagram = Some(b"datagram".to_vec());
    assert_eq!((receive(&client), receive(&sink)), (datagram.clone(), datagram));
    let status = &place.json(&["stop", "both"])["results"][0];
    assert_eq!((&status["runs"], &status["counters"]["passed"]), (&"user".into(), &1.into()));
    assert!(status["lacks"][0].as_str().unwrap().contains("one version of IP"), "{status:#}");
    // What has to run in the kernel does not run elsewhere instead.
    let refused = place.route(&[&["run", "--place", "kernel"], &route[..]].concat());
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused.stderr).contains("one version of IP"), "{}", text(&refused.stderr));
}

#[test]
fn a_serial_line_is_read_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let end = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&end).unwrap();
        rustix::pty::unlockpt(&end).unwrap();
        let name = rustix::pty::ptsname(&end, Vec::new()).unwrap().into_string().unwrap();
        (File::from(end), name)
    };
    let ((mut sensor, sensor_name), (mut display, display_name)) = (open(), open());
    let mut child = taut()
        .args(["route", "run", "--from", &format!("tty:{sensor_name}?baud=115200"), "--when", "value > 3"])
        .args(["--to", &format!("tty:{display_name}"), "--send", "value * 2"])
        .env("XDG_RUNTIME_DIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says so when it is at work; what comes before could be echoed.
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("runs in user"), "{said}");
    sensor.write_all(b"1\r\n5\n9\n").unwrap();
    let mut shown = String::new();
    while shown.lines().count() < 2 || !shown.ends_with('\n') {
        let mut bytes = [0; 64];
        let length = display.read(&mut bytes).unwrap();
        shown.push_str(&text(&bytes[..length]));
    }
    // Raw: no carriage return has been added.
    assert_eq!(shown, "10\n18\n");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        (&["--from", "gpio:no-such-chip/1"][..], "no GPIO chip of that label"),
        (&["--from", "timer:1s", "--to", "gpio:no-such-chip/1"], "no GPIO chip of that label"),
        (&["--from", "timer:1s", "--to", "led:no-such-led"], "no LED of that name"),
        (&["--from", "input:no such device/key/1"], "input device"),
    ] {
        let output =
            taut().args(["route", "run"]).args(arguments).env("XDG_RUNTIME_DIR", directory.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn lines_go_in_and_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = taut()
        .args(["route", "run", "--from", "lines:-", "--when", "value > 3", "--to", "file:-", "--send", "value * 2"])
        .env("XDG_RUNTIME_DIR", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"1\n5\nno number\n-7\n9").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.starts_with("10\n18\n"), "{printed}");
    assert!(printed.contains("events 5  passed 2  dropped 2  short 1  lost 0"), "{printed}");
    assert!(text(&output.stderr).contains("runs in user"), "{}", text(&output.stderr));
}

/// A route whose stdout nobody reads ends with the first signal, whatever it writes there.
#[test]
fn who_does_not_read_stdout_keeps_no_route_alive() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("numbers");
    // More than a pipe takes.
    std::fs::write(&input, "123456\n".repeat(50_000)).unwrap();
    let from = format!("lines:{}", input.display());
    let sinks: [&[&str]; 2] =
        [&["--from", &from, "--to", "file:-"], &["--from", "timer:10us", "--to", "file:/dev/null", "--log", "-"]];
    for arguments in sinks {
        let mut child = taut()
            .args(["route", "run"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut full = 0;
        // A pipe takes 64 KiB by default; a page may not be used up.
        while full < 60_000 {
            assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ended");
            full = rustix::io::ioctl_fionread(&stdout).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?}");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let asked = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if asked.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("{arguments:?} goes on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A route whose lines nobody takes, at stdout or at a socket, keeps neither another route of the
/// process from its events nor the process from ending with Ctrl-C.
#[test]
fn a_route_that_waits_for_its_reader_holds_up_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    // More than a pipe or a socket takes.
    std::fs::write(place("numbers"), "123456\n".repeat(100_000)).unwrap();
    // Nobody accepts.
    let _listener = std::os::unix::net::UnixListener::bind(place("silent")).unwrap();
    for sink in ["file:-".to_owned(), format!("unix:{}", place("silent"))] {
        let (numbers, other) = (place("numbers"), place("other"));
        let routes = format!(
            "[[route]]\nname = 'waits'\nfrom = 'lines:{numbers}'\nto = ['{sink}']\n\
             [[route]]\nname = 'other'\nfrom = 'timer:1ms'\nto = ['file:{other}']\n"
        );
        std::fs::write(place("routes.toml"), routes).unwrap();
        let mut child = taut()
            .args(["route", "run", &place("routes.toml")])
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _unread = child.stdout.take().unwrap();
        let told = || std::fs::metadata(&other).map_or(0, |file| file.len());
        let goes_on = |from: u64| {
            let begin = Instant::now();
            while told() <= from {
                assert!(begin.elapsed() < Duration::from_secs(30), "{sink}: the other route stands still");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        goes_on(0);
        std::thread::sleep(Duration::from_millis(500));
        goes_on(told());
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let asked = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if asked.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("{sink}: it goes on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_file(&other).unwrap();
    }
}

/// The reader of a pipe that is slow gets all that came from a source that can wait.
#[test]
fn lines_wait_for_the_reader_of_stdout() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("numbers");
    std::fs::write(&input, "123456\n".repeat(50_000)).unwrap();
    let mut child = taut()
        .args(["route", "run", "--from", &format!("lines:{}", input.display()), "--to", "file:-"])
        .env("XDG_RUNTIME_DIR", directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut printed = String::new();
    stdout.read_to_string(&mut printed).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(printed.lines().filter(|line| *line == "123456").count(), 50_000);
}

/// One process that is stopped neither hides the routes of another nor keeps them.
#[test]
fn a_stopped_process_hides_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let route = |arguments: &[&str]| {
        let mut command = taut();
        command.arg("route").args(arguments).env("XDG_RUNTIME_DIR", directory.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    for name in ["aa", "bb"] {
        let output = route(&["run", "--detach", "--name", name, "--from", "timer:1s", "--to", "file:/dev/null"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let listed = parse(&route(&["list", "--json"]));
    let first = listed["results"].as_array().unwrap().iter().find(|one| one["name"] == "aa").unwrap();
    let pid = rustix::process::Pid::from_raw(first["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let listed = route(&["list"]);
    let stopped = route(&["stop", "bb"]);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(listed.status.code(), Some(1));
    assert!(text(&listed.stdout).starts_with("bb "), "{}", text(&listed.stdout));
    assert!(text(&listed.stderr).contains("is its process stopped?"), "{}", text(&listed.stderr));
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
}

#[test]
fn check_explains_and_tries() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("routes.toml");
    std::fs::write(
        &path,
        "[[route]]\nname = 'a'\nfrom = 'udp://127.0.0.1:9100'\nwhen = 'rise(level > 3)'\nfields = { level = 'u8@1' }\n\
         to = ['reply', { sink = 'file:/tmp/x', send = 'level' }]\n",
    )
    .unwrap();
    let output = taut()
        .args(["route", "check", "--json", "--try", "hex:0005", "--try", "hex:0006@5ms", "--try", "hex:00"])
        .arg(&path)
        .output()
        .unwrap();
    let document = parse(&output);
    let route = &document["results"][0];
    let verdicts: Vec<&str> = route["tries"].as_array().unwrap().iter().filter_map(|t| t["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["passed", "dropped", "short"], "{route:#}");
    assert_eq!(route["tries"][0]["sent"], serde_json::json!([null, 5]));
    assert_eq!(route["runs"], serde_json::json!(["user"]));
    assert!(route["lacks"][0].as_str().unwrap().contains("not file:/tmp/x"), "{route:#}");
}

#[test]
fn what_is_wrong_is_a_usage_error_with_the_column() {
    for (arguments, says) in [
        (&["--from", "udp://127.0.0.1:9100", "--when", "value = 0"][..], "column 7"),
        (&["--from", "i2c:x/1"], "is no source"),
        (&["--from", "timer:1s", "--to", "i2c:x/1"], "is no sink"),
        (&["--from", "gpio:x/1?edge=up"], "column 15: expected both or rising or falling"),
        (&["--from", "timer:1s", "--field", "x"], "NAME=FORM@OFFSET"),
        (&["/nonexistent/routes.toml"], "read /nonexistent/routes.toml"),
    ] {
        let output = taut().args(["route", "check"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn bench_measures_every_path() {
    if !is_root() {
        return skip("bench_measures_every_path", "needs root");
    }
    let arguments = ["route", "bench", "--rounds", "2", "--events", "100", "--others", "3", "--json"];
    let output = taut().args(arguments).output().unwrap();
    if output.status.code() == Some(4) {
        return skip("bench_measures_every_path", &text(&output.stderr));
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    let schema = serde_json::from_slice(&taut().args(["generate", "schema"]).output().unwrap().stdout).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document), "{document:#}");
    let rows = document["results"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["path"] == "tc" && row["routes"] == 4), "{document:#}");
    let started =
        |until: &str| rows.iter().filter(|row| row["what"].as_str().is_some_and(|what| what.contains(until))).count();
    assert_eq!((started("in the kernel"), started("at work")), (2, 2), "{document:#}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(started("taking a datagram"), if cores > 1 { 2 } else { 0 }, "{document:#}");
    // Without the simulated chip it says so.
    let has_gpio = rows.iter().any(|row| !row["loop_ns"].is_null());
    assert!(has_gpio || text(&output.stderr).contains("GPIO lines skipped"), "{}", text(&output.stderr));
    for (path, sinks) in [("naive", 1), ("kept-open", 1), ("xdp", 1), ("naive", 4), ("kept-open", 4), ("tc", 4)] {
        let row = rows.iter().find(|row| row["path"] == path && row["sinks"] == sinks && row["routes"] == 1);
        let row = row.unwrap_or_else(|| panic!("{path} with {sinks} sinks is missing"));
        assert_eq!(row["sent"], 200);
        let came = row["edge_to_edge_ns"]["count"].as_u64().unwrap_or(0);
        assert_eq!(came + row["lost"].as_u64().unwrap(), 200, "{row:#}");
        // The kernel's paths lose nothing here, and take some time.
        if !["naive", "kept-open"].contains(&path) {
            assert!(row["lost"] == 0 && row["edge_to_edge_ns"]["p50"].as_u64().unwrap() > 500, "{row:#}");
        }
    }
}

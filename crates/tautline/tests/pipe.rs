//! `taut pipe` as users run it: its standard streams, its account, its exit codes, and being a service.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{parse, taut, text};

/// A listening pipe, and where it listens.
fn listening(arguments: &[&str]) -> (Child, String) {
    let mut child =
        taut().arg("pipe").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("taut starts");
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let endpoint = line.trim().strip_prefix("taut: listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    // What follows is read too, so that it never waits for us.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (child, endpoint)
}

fn end(child: Child, signal: Signal) -> std::process::Output {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn stdin_goes_in_and_the_answer_comes_out() {
    let mut child = taut()
        .args(["pipe", "stdio:", "exec:tr a-z A-Z"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "HELLO\n"));
    assert!(text(&output.stderr).contains("a to b 6 bytes; b to a 6 bytes"), "{}", text(&output.stderr));
}

#[test]
fn the_account_of_a_listening_pipe_is_one_object() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let (child, endpoint) = listening(&[&format!("listen:unix:{}", path.display()), "exec:cat", "--json"]);
    assert_eq!(endpoint, format!("unix:{}", path.display()));
    for bytes in [10, 1000] {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(&vec![7; bytes]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert_eq!(back, vec![7; bytes]);
    }
    std::thread::sleep(Duration::from_millis(200));
    let output = end(child, Signal::SIGINT);
    let object = parse(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((&object["bytes_a_to_b"], &object["bytes_b_to_a"]), (&1010.into(), &1010.into()));
    assert_eq!(
        (&object["ended_by"], &object["pipes_total"], &object["pipes_failed"]),
        (&"signal".into(), &2.into(), &0.into())
    );
    assert_eq!(object["pipes"][0]["ended_by"], "a");
    assert_eq!(object["pipes"][1]["exit_b"], 0);
    assert!(!path.exists(), "the socket's file goes with the pipe");
}

#[test]
fn exit_codes_tell_whose_fault_it_was() {
    let code = |arguments: &[&str]| taut().arg("pipe").args(arguments).output().unwrap().status.code();
    assert_eq!(code(&["exec:true", "exec:true"]), Some(0));
    assert_eq!(code(&["stdio:", "exec:no-such-program"]), Some(2));
    assert_eq!(code(&["stdio:", "http://example:1"]), Some(2));
    assert_eq!(code(&["stdio:", "stdio:"]), Some(2));
    assert_eq!(code(&["stdio:"]), Some(2));
    assert_eq!(code(&["--config", "/no/such/file"]), Some(2));
    assert_eq!(code(&["stdio:", &format!("tcp://127.0.0.1:{}", support::free_port())]), Some(1));
}

#[test]
fn a_file_of_pipes_is_at_work_until_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("pipes.toml");
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let lines = format!(
        "[[pipe]]\na = \"listen:unix:{}\"\nb = \"exec:cat\"\n[[pipe]]\na = \"listen:unix:{}\"\nb = \"unix:{}\"\n",
        one.display(),
        two.display(),
        one.display()
    );
    std::fs::write(&config, lines).unwrap();
    let (child, _) = listening(&["--config", config.to_str().unwrap(), "--json"]);
    let mut client = UnixStream::connect(&two).unwrap();
    client.write_all(b"through both").unwrap();
    let mut back = [0; 12];
    client.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"through both");
    let output = end(child, Signal::SIGTERM);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(parse(&output)["pipes_total"], 2);

    std::fs::write(&config, "[[pipe]]\na = 'stdio:'\nb = 'tcp://h:1'\nretries = 1\n").unwrap();
    let output = taut().args(["pipe", "--config", config.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("retries"), "{}", text(&output.stderr));
}

#[test]
fn a_service_manager_is_told_and_its_sockets_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The shell has the process' number and the socket's place, as systemd sets both.
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "LISTEN_PID=$$ exec \"$0\" pipe --listen-fd --once listen:tcp://127.0.0.1:1 exec:cat 3<&0 0</dev/null",
    ]);
    command
        .arg(env!("CARGO_BIN_EXE_taut"))
        .env("LISTEN_FDS", "1")
        .env("NOTIFY_SOCKET", directory.path().join("notify"));
    command.stdin(std::os::fd::OwnedFd::from(listener)).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut buffer = [0; 64];
    let length = manager.recv(&mut buffer).unwrap();
    assert!(buffer[..length].starts_with(b"READY=1\n"), "{}", buffer[..length].escape_ascii());
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    client.read_exact(&mut back).unwrap();
    drop(client);
    let length = manager.recv(&mut buffer).unwrap();
    assert_eq!((&back, buffer[..length].trim_ascii()), (b"hello", &b"STOPPING=1"[..]));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_passes_is_captured_for_wireshark() {
    let directory = tempfile::tempdir().unwrap();
    let (path, capture) = (directory.path().join("x"), directory.path().join("x.pcapng"));
    let server = UnixListener::bind(&path).unwrap();
    let answer = std::thread::spawn(move || {
        let mut far = server.accept().unwrap().0;
        let mut question = [0; 18];
        far.read_exact(&mut question).unwrap();
        far.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        question
    });
    let mut child = taut()
        .args(["pipe", "--quiet", "--tee", capture.to_str().unwrap(), "stdio:", &format!("unix:{}", path.display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stdout).ends_with("hi"));
    assert_eq!(&answer.join().unwrap(), b"GET / HTTP/1.0\r\n\r\n");
    if !support::has("tshark") {
        return support::skip("pipe::what_passes_is_captured_for_wireshark", "tshark is not installed");
    }
    let output = std::process::Command::new("tshark")
        .args([
            "-r",
            capture.to_str().unwrap(),
            "-d",
            "tcp.port==1,http",
            "-T",
            "fields",
            "-e",
            "http.request.uri",
            "-e",
            "http.response.code",
        ])
        .output()
        .unwrap();
    let fields: Vec<String> = text(&output.stdout).split_whitespace().map(str::to_owned).collect();
    assert_eq!(fields, ["/", "200"], "{}", text(&output.stderr));
}

#[test]
fn the_units_are_well_formed() {
    if !support::has("systemd-analyze") {
        return support::skip("pipe::the_units_are_well_formed", "systemd-analyze is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let units = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(units).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.starts_with("taut-pipe") {
            continue;
        }
        // The program is where it was built, and manual pages are not installed yet.
        let unit = std::fs::read_to_string(entry.path()).unwrap();
        let unit = unit.replace("/usr/bin/taut", env!("CARGO_BIN_EXE_taut")).replace("Documentation=man:taut(1)\n", "");
        std::fs::write(directory.path().join(&name), unit).unwrap();
        names.push(name);
    }
    assert_eq!(names.len(), 3, "{names:?}");
    let output = std::process::Command::new("systemd-analyze")
        .arg("verify")
        .args(&names)
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

//! `taut trace` of unmodified programs at work: the trace ends, the program goes on, the parts add up, and nothing is
//! found. The same with a mistake in them is named, by a server in Node.js, one in Go, a static one in C, and one of
//! gRPC on tokio.

#[path = "trace_support/grpc.rs"]
mod grpc;
mod support;
mod trace_support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::go::go;
use support::ssh::{Keys, SERVER};
use support::{free_port, has, is_root, skip, wait_for_tcp};
use tempfile::TempDir;
use trace_support::{Traced, has_gap, may_trace};

/// User and group that own nothing.
const NOBODY: u32 = 65534;
/// From the beginning of a trace to the name of what is wrong.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// What is held in what a healthy program sends. Programs may be slow to read.
const CAUSES: [&str; 8] = [
    "nagle_delayed_ack",
    "cork",
    "receiving_program",
    "receive_window",
    "send_buffer",
    "loss",
    "pacing",
    "congestion_window",
];

/// A program that listens at a port, ended when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// `{}` in the arguments is the port.
    fn start(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], port: u16) -> Self {
        let arguments = arguments.iter().map(|argument| argument.replace("{}", &port.to_string()));
        let mut command = Command::new(program);
        Self::of(command.args(arguments), port)
    }

    fn of(command: &mut Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_tcp(([127, 0, 0, 1], port).into());
        Self { child, port }
    }

    /// What a trace says of it while something is asked of it. It goes on afterwards.
    fn traced(&mut self, load: impl FnOnce(u16)) -> Value {
        let trace = Traced::of(&["--pid", &self.child.id().to_string()]);
        load(self.port);
        let document = trace.finish();
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
        document
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the program sends by TCP.
fn sent(document: &Value) -> Vec<&Value> {
    let all = document["worst"].as_array().unwrap().iter();
    let sent: Vec<&Value> = all.filter(|one| one["transport"] == "tcp" && one["is_outgoing"] == true).collect();
    assert!(!sent.is_empty(), "{document:#}");
    sent
}

fn held(directions: &[&Value], holder: Option<&str>) -> f64 {
    let cells = directions.iter().flat_map(|direction| direction["breakdown"].as_array().unwrap());
    let wanted = cells.filter(|held| holder.is_none_or(|holder| held["holder"] == holder));
    wanted.map(|held| held["held_ns"].as_u64().unwrap() as f64).sum()
}

fn found(document: &Value) -> Vec<&str> {
    let verdicts = sent(document).into_iter().flat_map(|direction| direction["verdicts"].as_array().unwrap());
    verdicts.filter(|on| on["verdict"] == "found").map(|on| on["cause"].as_str().unwrap()).collect()
}

/// Nothing is found in what a healthy program sends, and nearly all of its time has a holder.
fn is_healthy(document: &Value) {
    let (found, sent) = (found(document), sent(document));
    // A kernel that waits too long for an acknowledgement on a busy machine does send again (RFC 8985, section 7).
    let is_repeated = sent.iter().any(|direction| direction["repeated_segments"].as_u64() > Some(0));
    let is_wrong = |cause: &&str| found.contains(cause) && (*cause != "loss" || !is_repeated);
    assert!(!CAUSES.iter().any(is_wrong), "{found:?} {document:#}");
    let unknown = held(&sent, Some("not_known")) / held(&sent, None);
    // A thread that wakes up in the middle of another one's program has its own left out by the kernel.
    let most = if sent.iter().any(|direction| has_gap(direction)) { 0.25 } else { 0.02 };
    assert!(unknown < most, "{unknown} {document:#}");
}

fn run(program: impl AsRef<Path>, arguments: &[&str]) {
    let output = Command::new(program.as_ref()).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {text}", program.as_ref().display());
}

/// Whether the test can run: it may trace, and the programs are there.
fn can_run(test: &str, programs: &[&str]) -> bool {
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        skip(test, &format!("{missing} is not installed"));
        return false;
    }
    may_trace(test)
}

#[test]
fn redis() {
    if !can_run("redis", &["redis-server", "redis-benchmark"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--port", "{}", "--save", "", "--bind", "127.0.0.1", "--dir", directory.path().to_str().unwrap()];
    let mut server = Server::start("redis-server", &arguments, free_port());
    is_healthy(&server.traced(|port| {
        run("redis-benchmark", &["-p", &port.to_string(), "-n", "3000", "-c", "4", "-q", "-t", "set,get"]);
    }));
}

#[test]
fn nginx_and_curl() {
    if !can_run("nginx_and_curl", &["nginx", "curl"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (root, port) = (directory.path().display(), free_port());
    fs::write(directory.path().join("page"), vec![b'x'; 20_000]).unwrap();
    let settings = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/errors; events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}/1; proxy_temp_path {root}/2; fastcgi_temp_path {root}/3; \
         uwsgi_temp_path {root}/4; scgi_temp_path {root}/5; \
         server {{ listen 127.0.0.1:{port}; root {root}; }} }}"
    );
    let path = directory.path().join("nginx.conf");
    fs::write(&path, settings).unwrap();
    let mut server = Server::start("nginx", &["-e", "stderr", "-c", path.to_str().unwrap()], port);
    is_healthy(&server.traced(|port| {
        run("curl", &["-sf", "-o", "/dev/null", &format!("http://127.0.0.1:{port}/page?[1-300]")]);
    }));
}

#[test]
fn mosquitto() {
    if !can_run("mosquitto", &["mosquitto", "mosquitto_sub", "mosquitto_pub"]) {
        return;
    }
    let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
    let path = directory.path().join("conf");
    fs::write(&path, format!("listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")).unwrap();
    let mut server = Server::start("mosquitto", &["-c", path.to_str().unwrap()], port);
    is_healthy(&server.traced(|port| {
        let port = port.to_string();
        let mut subscriber = Command::new("mosquitto_sub");
        subscriber.args(["-p", &port, "-t", "a", "-C", "100", "-W", "20"]).stdout(Stdio::null());
        let mut subscriber = subscriber.spawn().unwrap();
        sleep(Duration::from_millis(300));
        run("mosquitto_pub", &["-p", &port, "-t", "a", "-m", "hello", "--repeat", "100", "--repeat-delay", "0.01"]);
        assert!(subscriber.wait().unwrap().success());
    }));
}

#[test]
fn postgresql() {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    let Some(programs) = programs.filter(|programs| programs.join("pgbench").is_file()).max() else {
        return skip("postgresql", "it is not installed");
    };
    if !can_run("postgresql", &[]) {
        return;
    }
    let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    let as_nobody = |program: &str| {
        let mut command = Command::new(programs.join(program));
        command.current_dir(directory.path()).env("HOME", directory.path());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut initdb = as_nobody("initdb");
    initdb.args(["--no-sync", "--auth=trust", "--username=owner", "--locale=C", "-D"]).arg(&data);
    assert!(initdb.output().unwrap().status.success());
    let mut postgres = as_nobody("postgres");
    postgres.arg("-D").arg(&data).args([
        "-p",
        &port.to_string(),
        "-c",
        "fsync=off",
        "-c",
        "listen_addresses=127.0.0.1",
    ]);
    postgres.arg("-k").arg(directory.path());
    let mut server = Server::of(&mut postgres, port);
    let select = directory.path().join("select.sql");
    fs::write(&select, "select sum(n) from generate_series(1, 100) n;\n").unwrap();
    let port = port.to_string();
    let ready = Instant::now() + Duration::from_secs(20);
    while !as_nobody("pg_isready").args(["-h", "127.0.0.1", "-p", &port]).output().unwrap().status.success() {
        assert!(Instant::now() < ready, "the server does not answer");
        sleep(Duration::from_millis(100));
    }
    let document = server.traced(|_| {
        let mut pgbench = as_nobody("pgbench");
        pgbench.args(["-h", "127.0.0.1", "-p", &port, "-U", "owner", "-n", "-c", "2", "-t", "300", "-f"]).arg(&select);
        let output = pgbench.arg("postgres").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    // It answers to an immediate shutdown, its children go with it.
    let _ =
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.child.id() as i32), nix::sys::signal::Signal::SIGQUIT);
    let _ = server.child.wait();
    is_healthy(&document);
}

#[test]
fn ssh() {
    if !may_trace("ssh") {
        return;
    }
    let Some(keys) = Keys::new("ssh", &["127.0.0.1"]) else { return };
    let arguments = keys.arguments();
    let mut server = Server::start(SERVER, &arguments.each_ref().map(String::as_str), keys.port);
    let mut document = server.traced(|_| {
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 20000 /dev/zero; sleep 0.05; done";
        let options = keys.options();
        let words = options.iter().map(String::as_str).chain(["127.0.0.1", script]);
        run("ssh", &words.collect::<Vec<_>>());
    });
    // sshd sets TCP_NODELAY when the session begins, and what it writes while keys are exchanged may be held. The
    // session takes half a second at least.
    let session = document["span_ns"].as_u64().unwrap() - 500_000_000;
    for direction in sent(&document) {
        let held = direction["breakdown"].as_array().unwrap().iter().filter(|held| held["holder"] == "nagle");
        for stretch in held.flat_map(|held| held["longest"].as_array().unwrap()) {
            assert!(stretch["begin_ns"].as_u64().unwrap() < session, "{document:#}");
        }
    }
    for direction in document["worst"].as_array_mut().unwrap() {
        let verdicts = direction["verdicts"].as_array_mut().unwrap();
        verdicts.retain(|on| on["cause"] != "nagle_delayed_ack");
    }
    is_healthy(&document);
}

/// Asks for an answer of 64 bytes, which the server writes in two parts, for a time.
fn ask(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let end = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < end {
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        sleep(Duration::from_millis(5));
    }
}

/// A server that answers in two writes: with Nagle's algorithm that is named, without it nothing is.
fn is_named_until_it_is_cured(start: impl FnMut(&str, u16) -> Server) {
    is_named_until_it_is_cured_for(ask, start);
}

/// The same for a client of another protocol.
fn is_named_until_it_is_cured_for(ask: fn(u16), mut start: impl FnMut(&str, u16) -> Server) {
    let mut sick = start("nagle", free_port());
    let begin = Instant::now();
    let document = sick.traced(ask);
    let named_after = begin.elapsed();
    assert!(named_after < NAMED_WITHIN, "{named_after:?}");
    assert!(found(&document).contains(&"nagle_delayed_ack"), "{document:#}");
    assert!(held(&sent(&document), Some("nagle")) > 0.5 * held(&sent(&document), None), "{document:#}");
    is_healthy(&start("nodelay", free_port()).traced(ask));
}

#[test]
fn node() {
    if !can_run("node", &["node"]) {
        return;
    }
    const PROGRAM: &str = "require('net').createServer(socket => { socket.setNoDelay(process.argv[1] == 'nodelay'); \
                           socket.on('error', () => {}); socket.on('data', () => { socket.write(Buffer.alloc(16)); \
                           setImmediate(() => socket.write(Buffer.alloc(48))) }) }).listen(+process.argv[2], \
                           '127.0.0.1')";
    is_named_until_it_is_cured(|how, port| Server::start("node", &["-e", PROGRAM, how, "{}"], port));
}

#[test]
fn a_go_binary() {
    let Some(go) = go() else { return skip("a_go_binary", "go is not installed") };
    if !can_run("a_go_binary", &[]) {
        return;
    }
    const PROGRAM: &str = r#"package main
import ("net"; "os")
func main() {
    listener, _ := net.Listen("tcp", "127.0.0.1:" + os.Args[2])
    for {
        connection, _ := listener.Accept()
        connection.(*net.TCPConn).SetNoDelay(os.Args[1] == "nodelay")
        go func() {
            question := make([]byte, 1)
            for {
                if _, err := connection.Read(question); err != nil { return }
                connection.Write(make([]byte, 16))
                connection.Write(make([]byte, 48))
            }
        }()
    }
}
"#;
    let directory = tempfile::tempdir().unwrap();
    let program = built(&directory, "server.go", PROGRAM, |source, program| {
        let mut command = Command::new(&go);
        command.args(["build", "-o"]).arg(program).arg(source).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        // Its own library is built with the first one.
        command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go")).env("HOME", directory.path());
        command
    });
    is_named_until_it_is_cured(|how, port| Server::start(&program, &[how, "{}"], port));
}

#[test]
fn a_static_binary_of_musl() {
    if !can_run("a_static_binary_of_musl", &["musl-gcc"]) {
        return;
    }
    const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = !strcmp(arguments[1], "nodelay");
    struct sockaddr_in own = {AF_INET, htons(atoi(arguments[2])), {htonl(INADDR_LOOPBACK)}};
    char answer[64] = {0}, question;
    bind(listener, (struct sockaddr *)&own, sizeof own);
    listen(listener, 9);
    for (;;) {
        int connection = accept(listener, 0, 0);
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        while (read(connection, &question, 1) == 1) {
            if (write(connection, answer, 16) != 16 || write(connection, answer, 48) != 48) break;
        }
        close(connection);
    }
}
"#;
    let directory = tempfile::tempdir().unwrap();
    let program = built(&directory, "server.c", PROGRAM, |source, program| {
        let mut command = Command::new("musl-gcc");
        command.args(["-static", "-O1", "-o"]).arg(program).arg(source);
        command
    });
    is_named_until_it_is_cured(|how, port| Server::start(&program, &[how, "{}"], port));
}

/// How the server of gRPC has its connections, and its port.
const GRPC: &str = "TAUT_TEST_GRPC";

/// Does nothing but in the process that the test below starts.
#[test]
fn the_grpc_server_that_is_traced() {
    let Ok(role) = std::env::var(GRPC) else { return };
    let (how, port) = role.split_once(' ').unwrap();
    grpc::serve(port.parse().unwrap(), how == "nodelay");
}

#[test]
fn a_grpc_server_on_tokio() {
    if !can_run("a_grpc_server_on_tokio", &[]) {
        return;
    }
    is_named_until_it_is_cured_for(grpc::call, |how, port| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(GRPC, format!("{how} {port}")).args(["--exact", "the_grpc_server_that_is_traced"]);
        Server::of(&mut command, port)
    });
}

fn built(directory: &TempDir, name: &str, text: &str, compiler: impl FnOnce(&Path, &Path) -> Command) -> PathBuf {
    let (source, program) = (directory.path().join(name), directory.path().join("server"));
    fs::write(&source, text).unwrap();
    let output = compiler(&source, &program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

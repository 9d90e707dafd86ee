//! `taut watch` with grade 2: what falls between two looks is counted in the kernel, and nothing where nothing fell.
//! Where the kernel does not let this user have programs, these are skipped.
#![expect(unsafe_code, reason = "rustix and nix have no wrapper for filters of sockets")]

mod support;
mod trace_support;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{has, is_root, skip, taut, text};
use trace_support::loaded::{are_gone_soon, are_loaded, programs_of};

/// Whether the kernel takes the programs here; else the test is skipped.
fn may_count(test: &str) -> bool {
    let output = taut().args(["watch", "--once", "--grade", "2", "--every", "500ms", "--port", "1"]).output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(4) => {
            skip(test, text(&output.stderr).trim());
            false
        }
        code => panic!("{code:?}: {}", text(&output.stderr)),
    }
}

fn pair() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    (listener, client, server)
}

/// Has the kernel drop whatever comes for this socket, as if the path had lost it, or drop nothing any more.
fn lose(socket: &TcpStream, is_lost: bool) {
    // BPF_RET | BPF_K: of each segment nothing is kept.
    let mut drop_all = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut drop_all };
    let option = if is_lost { libc::SO_ATTACH_FILTER } else { libc::SO_DETACH_FILTER };
    let (value, length) = (&raw const program, size_of_val(&program) as libc::socklen_t);
    // SAFETY: the program and its one instruction outlive the call, which is told the program's length.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value.cast(), length) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A watch of one port that has begun; killed when dropped.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watched {
    fn start(address: SocketAddr, grade: &str) -> Self {
        let port = address.port().to_string();
        let mut watch = taut();
        watch.args(["watch", "--json", "--every", "500ms", "--port", &port, "--grade", grade]).stdout(Stdio::piped());
        let mut child = watch.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut watched = Self { child, lines };
        let begin = watched.interval();
        assert_eq!(begin["grade"].to_string(), grade, "{begin:#}");
        assert_eq!(begin["counted"], Value::Array(Vec::new()), "{begin:#}");
        watched
    }

    fn interval(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// The first interval with something counted, if one of the next four has.
    fn counted(&mut self) -> Option<Value> {
        (0..4).map(|_| self.interval()).find(|interval| interval["counted"] != Value::Array(Vec::new()))
    }
}

/// The only thing that was counted.
fn only<'a>(interval: &'a Value, cause: &str) -> &'a Value {
    let counted = interval["counted"].as_array().unwrap();
    assert_eq!(counted.len(), 1, "{interval:#}");
    assert_eq!(counted[0]["cause"], cause, "{interval:#}");
    &counted[0]
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of:#}"))
}

/// A segment that is lost for a moment takes a fifth of a second, in which all that a look sees is a segment that is on
/// its way.
#[test]
fn a_segment_lost_between_two_looks_is_counted_with_its_time_and_without_a_loss_nothing_is() {
    if !may_count("a_segment_lost_between_two_looks_is_counted_with_its_time_and_without_a_loss_nothing_is") {
        return;
    }
    for (grade, is_lost) in [("2", true), ("2", false), ("1", true)] {
        let (_listener, mut client, mut server) = pair();
        let address = server.local_addr().unwrap();
        let mut watched = Watched::start(address, grade);
        let mut bytes = [0; 100];
        // So that it knows the way.
        for _ in 0..10 {
            client.write_all(&bytes).unwrap();
            server.read_exact(&mut bytes).unwrap();
            server.write_all(&bytes).unwrap();
            client.read_exact(&mut bytes).unwrap();
        }
        // And that the other end has an acknowledgement, which would be lost as well.
        sleep(Duration::from_millis(100));
        let begin = Instant::now();
        if is_lost {
            lose(&server, true);
        }
        client.write_all(&bytes).unwrap();
        sleep(Duration::from_millis(100));
        if is_lost {
            lose(&server, false);
        }
        server.read_exact(&mut bytes).unwrap();
        let took = begin.elapsed();
        let counted = watched.counted();
        let Some(interval) = counted else {
            assert!(grade == "1" || !is_lost, "{took:?}");
            continue;
        };
        assert!(grade == "2" && is_lost, "{interval:#}");
        let loss = only(&interval, "loss");
        assert_eq!((loss["side"].as_str(), loss["service"].as_str()), (Some("client"), Some(&*address.to_string())));
        assert_eq!(loss["pid"].as_u64(), Some(std::process::id().into()), "{loss:#}");
        // All of them within the same stall.
        let lost = Duration::from_nanos(number(loss, "total_lost_ns"));
        assert!(Duration::from_millis(100) < lost && lost < took, "{lost:?} of {took:?}: {loss:#}");
        assert_eq!(loss["longest_ns"], loss["total_lost_ns"], "{loss:#}");
        assert!(number(loss, "total_events") > 0 && loss["is_new"] == true, "{loss:#}");
        // Since when, to the moment.
        let since = Duration::from_nanos(number(loss, "first_ago_ns"));
        assert!(since <= begin.elapsed(), "{since:?} ago: {loss:#}");
        assert_eq!(loss["last_local"], client.local_addr().unwrap().to_string());
        // A look has seen nothing of it, or the same.
        let found = interval["losses"].as_array().unwrap();
        assert!(found.iter().all(|found| found["cause"] == "loss"), "{interval:#}");
    }
}

#[test]
fn a_connection_that_is_refused_or_reset_is_counted_with_its_program_and_one_that_ends_is_not() {
    if !may_count("a_connection_that_is_refused_or_reset_is_counted_with_its_program_and_one_that_ends_is_not") {
        return;
    }
    let (listener, client, server) = pair();
    let address = listener.local_addr().unwrap();
    let mut watched = Watched::start(address, "2");
    // Both ends close, one after the other.
    drop((client, server));
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"never read").unwrap();
    let (server, _) = listener.accept().unwrap();
    assert!((0..2).all(|_| watched.interval()["counted"] == Value::Array(Vec::new())));
    // What it has not read makes its end a reset.
    drop(server);
    let reset = watched.counted().expect("a reset");
    let reset = only(&reset, "reset");
    assert_eq!((number(reset, "total_events"), number(reset, "total_lost_ns")), (1, 0), "{reset:#}");
    assert_eq!((reset["side"].as_str(), reset["pid"].as_u64()), (Some("client"), Some(std::process::id().into())));
    drop((listener, client));
    drop(watched);
    let mut watched = Watched::start(address, "2");
    for _ in 0..50 {
        assert!(TcpStream::connect(address).is_err());
    }
    let mut refused = watched.counted().expect("refused connections");
    // An interval may end in the midst of them, and several do on a busy machine.
    while number(only(&refused, "refused"), "total_events") < 50 {
        refused = watched.counted().expect("the rest of them");
    }
    let refused = only(&refused, "refused");
    assert_eq!(number(refused, "total_events"), 50, "{refused:#}");
    assert_eq!((&refused["service"], refused["side"].as_str()), (&address.to_string().into(), Some("client")));
    assert_eq!(refused["pid"].as_u64(), Some(std::process::id().into()), "{refused:#}");
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(refused["program"], name.trim_end(), "{refused:#}");
}

/// A program that closes while the other end still sends has its own kernel refuse that, which the kernel takes for an
/// end by a reset as well.
#[test]
fn what_comes_for_a_closed_connection_is_no_reset_of_the_other_end() {
    if !may_count("what_comes_for_a_closed_connection_is_no_reset_of_the_other_end") {
        return;
    }
    let (listener, client, mut server) = pair();
    let mut watched = Watched::start(listener.local_addr().unwrap(), "2");
    // So that the end of the client is still under way when the server's data come.
    lose(&server, true);
    drop(client);
    server.write_all(b"late").unwrap();
    let causes = |interval: Value| {
        let counted = interval["counted"].as_array().unwrap().clone();
        counted.into_iter().map(|one| one["cause"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // What the filter takes from the server is sent again to it and by it.
    let found: Vec<String> = (0..3).flat_map(|_| causes(watched.interval())).collect();
    assert!(found.iter().all(|cause| cause == "loss"), "{found:?}");
}

/// A queue takes one more than its backlog; the client that comes then sends its SYN again after a second.
#[test]
fn a_handshake_that_is_repeated_is_counted_with_the_time_that_it_waited() {
    if !may_count("a_handshake_that_is_repeated_is_counted_with_the_time_that_it_waited") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut watched = Watched::start(address, "2");
    let waiting = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    let late = std::thread::spawn(move || TcpStream::connect_timeout(&address, Duration::from_secs(30)));
    let counted = watched.counted().expect("a repeated handshake");
    let repeated = only(&counted, "handshake_repeated");
    let (events, lost) = (number(repeated, "total_events"), number(repeated, "total_lost_ns"));
    assert!(events == 1 && (900_000_000..1_500_000_000).contains(&lost), "{repeated:#}");
    assert_eq!(
        (repeated["side"].as_str(), repeated["pid"].as_u64()),
        (Some("client"), Some(std::process::id().into()))
    );
    drop(waiting);
    drop(listener);
    drop(late.join().unwrap());
}

#[test]
fn without_rights_it_is_grade_1_and_says_what_gives_more() {
    if !is_root() {
        return skip("without_rights_it_is_grade_1_and_says_what_gives_more", "needs root to give it up");
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("taut");
    std::fs::copy(taut().get_program(), &program).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let watch = |command: &mut Command, more: &[&str]| {
        command.args(["watch", "--json", "--once", "--every", "500ms", "--port", "1"]).args(more).output().unwrap()
    };
    let nobody = || {
        let mut command = Command::new(&program);
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        command
    };
    let output = watch(&mut nobody(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let remarks = document["remarks"].to_string();
    assert_eq!(document["grade"], 1, "{document:#}");
    assert!(remarks.contains("Grade 1: ") && remarks.contains("setcap cap_bpf,cap_perfmon,"), "{remarks}");
    // Who asks for no more is told of no more.
    let asked: Value = serde_json::from_str(&text(&watch(&mut nobody(), &["--grade", "1"]).stdout)).unwrap();
    assert!(asked["grade"] == 1 && !asked["remarks"].to_string().contains("Grade"), "{asked:#}");
    let refused = watch(&mut nobody(), &["--grade", "2"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(4), 0), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("no grade 2: That takes root, or `sudo setcap"),
        "{}",
        text(&refused.stderr)
    );
    const NAME: &str = "two_capabilities_give_grade_2";
    if !has("setpriv") {
        return skip(NAME, "takes setpriv(1)");
    }
    if may_count(NAME) {
        let mut with_two = Command::new("setpriv");
        with_two.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        with_two.args(["--inh-caps", "+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon"]).arg(&program);
        let output = watch(&mut with_two, &[]);
        let document: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!(document["grade"], 2, "{document:#}{}", text(&output.stderr));
    }
}

#[test]
fn a_watch_that_is_killed_leaves_no_program_in_the_kernel() {
    const NAME: &str = "a_watch_that_is_killed_leaves_no_program_in_the_kernel";
    if !is_root() {
        return skip(NAME, "root is told which programs are in the kernel");
    }
    if !may_count(NAME) {
        return;
    }
    let watched = Watched::start("127.0.0.1:1".parse().unwrap(), "2");
    let programs = programs_of(watched.child.id());
    assert_eq!(programs.len(), 3, "{programs:?}");
    are_loaded(&programs);
    // By SIGKILL.
    drop(watched);
    are_gone_soon(&programs);
    let watched = Watched::start("127.0.0.1:1".parse().unwrap(), "1");
    assert!(programs_of(watched.child.id()).is_empty());
}

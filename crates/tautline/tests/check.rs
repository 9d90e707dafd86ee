//! The gate: a server that loses `TCP_NODELAY` turns it red with the cause; the same server with it never does.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::Value;
use support::{Serve, is_root, long, parse, run, skip, taut, text};
use tempfile::TempDir;

const SIZE: usize = 64;

/// The server under test, in a process of its own: this test program once more, told where to listen. It answers each
/// request of 64 bytes with two writes and reads the next one, so without `TCP_NODELAY` the second write waits for the
/// peer's delayed ACK.
#[test]
fn server() {
    let port: Option<u16> = env::var("CHECK_SERVER_PORT").ok().map(|port| port.parse().unwrap());
    let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).unwrap();
    if port.is_some() {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap()));
        }
    }
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    thread::spawn(move || answer(listener.accept().unwrap().0));
    let (request, mut reply) = ([7; SIZE], [0; SIZE]);
    client.write_all(&request).unwrap();
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply, request);
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(env::var("CHECK_SERVER_NODELAY").is_ok()).unwrap();
    let mut request = [0; SIZE];
    while stream.read_exact(&mut request).is_ok() {
        if stream.write_all(&request[..16]).is_err() || stream.write_all(&request[16..]).is_err() {
            return;
        }
    }
}

struct Gate {
    directory: TempDir,
    port: u16,
}

impl Gate {
    /// With what stands in the file after the server's port.
    fn new(rest: &str) -> Self {
        // Free now, and of a range that the kernel does not give away soon again.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let gate = Self { directory: tempfile::tempdir().unwrap(), port };
        let head =
            format!("[workload]\ncommand = 'echo'\nendpoint = 'tcp://127.0.0.1:{port}'\nplain = true\nsize = {SIZE}\n");
        fs::write(gate.file(), format!("{head}{rest}")).unwrap();
        gate
    }

    fn file(&self) -> PathBuf {
        self.path("taut.toml")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, nodelay: bool, more: &[&str]) -> Command {
        let mut command = taut();
        command.arg("check").arg(self.file()).args(more).arg("--").arg(env::current_exe().unwrap());
        command.args(["--exact", "server"]).env("CHECK_SERVER_PORT", self.port.to_string());
        if nodelay {
            command.env("CHECK_SERVER_NODELAY", "1");
        }
        command
    }

    fn run(&self, nodelay: bool, more: &[&str]) -> Output {
        self.command(nodelay, more).output().unwrap()
    }

    /// Nothing listens any more.
    fn is_over(&self) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if TcpStream::connect(("127.0.0.1", self.port)).is_err() {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

const SHORT: &str =
    "time = '500ms'\n[limits]\nassert = ['p50<20ms']\n[findings]\nforbid = ['nagle_delayed_ack']\ntime = '500ms'\n";

#[test]
fn a_server_that_loses_nodelay_turns_it_red_with_the_cause() {
    let gate = Gate::new(&SHORT.replace("500ms", "1s"));
    let junit = gate.path("report.xml");
    let red = gate.run(false, &["--github", "--junit", junit.to_str().unwrap()]);
    let told = text(&red.stdout);
    assert_eq!(red.status.code(), Some(3), "{told}{}", text(&red.stderr));
    assert!(told.contains("FAILED  limit p50<20ms: ") && told.contains("and so it was when measured again"), "{told}");
    assert!(told.contains("FAILED  finding nagle_delayed_ack: it has "), "{told}");
    assert!(told.contains("FOUND nagle_delayed_ack (") && told.contains("TCP_NODELAY"), "{told}");
    let errors: Vec<&str> = told.lines().filter(|line| line.starts_with("::error file=")).collect();
    assert!(errors.len() == 2 && errors[0].contains("nagle_delayed_ack"), "{told}");
    let report = fs::read_to_string(junit).unwrap();
    assert!(report.contains("failures=\"2\" errors=\"0\" skipped=\"0\""), "{report}");
    assert!(gate.is_over(), "the server still listens");
}

/// 20 times, 100 with `CHECK_RUNS=100`: with `TCP_NODELAY` there is nothing that could turn it red.
#[test]
fn the_same_server_with_nodelay_is_never_red() {
    let runs: usize = env::var("CHECK_RUNS").map_or(20, |runs| runs.parse().unwrap());
    let gate = Gate::new(&SHORT.replace("500ms", "250ms"));
    let mut passed = 0;
    for number in 0..runs {
        let green = gate.run(true, &["--json"]);
        assert_eq!(green.status.code(), Some(0), "run {number}: {}{}", text(&green.stdout), text(&green.stderr));
        let document = parse(&green);
        let outcomes: Vec<&str> = of(&document, "outcome");
        assert!(!outcomes.contains(&"failed"), "run {number}: {document:#}");
        passed += usize::from(outcomes[0] == "passed");
    }
    // Rounds of 50 ms, in which a busy machine may take the processor away for most of the time: then it can't be told.
    assert!(passed * 2 > runs, "the limit was seen to hold in {passed} of {runs} runs only");
    assert!(gate.is_over());
}

fn of<'a>(document: &'a Value, key: &str) -> Vec<&'a str> {
    document["checks"].as_array().unwrap().iter().map(|check| check[key].as_str().unwrap()).collect()
}

/// Without the rights of a trace the cause comes from samples.
#[test]
fn without_rights_samples_name_the_cause() {
    if !is_root() {
        return skip("without_rights_samples_name_the_cause", "as another user all tests are of this kind");
    }
    let gate = Gate::new(&SHORT.replace("500ms", "1s"));
    let line = gate.command(false, &["--json"]);
    let mut command = Command::new("setpriv");
    // Only what a trace needs is missing.
    command.args(["--bounding-set=-bpf,-sys_admin,-perfmon", "--inh-caps=-bpf,-sys_admin,-perfmon"]);
    command.arg(line.get_program()).args(line.get_args()).stdin(Stdio::null());
    let red = command.env("CHECK_SERVER_PORT", gate.port.to_string()).output().unwrap();
    let document = parse(&red);
    assert_eq!(red.status.code(), Some(3), "{document:#}");
    assert_eq!(document["causes"][0]["cause"], "nagle_delayed_ack", "{document:#}");
    assert_eq!(document["causes"][0]["seen_by"], "sockets", "{document:#}");
}

#[test]
fn a_server_that_does_not_start_or_ends_is_an_error_with_its_words() {
    let gate = Gate::new(SHORT);
    let file = gate.file();
    let with = |server: &[&str]| taut().arg("check").arg(&file).args(["--json", "--"]).args(server).output().unwrap();
    let gone = with(&["sh", "-c", "echo no licence; exit 7"]);
    let document = parse(&gone);
    assert_eq!(gone.status.code(), Some(1));
    let why = document["ended"]["why"].as_str().unwrap();
    assert!(why.contains("exit status: 7") && why.contains("no licence"), "{why}");
    let why = text(&with(&["/nowhere/server"]).stdout);
    assert!(why.contains("/nowhere/server can't be started"), "{why}");
    // It never listens, and it has a child that ignores the wish: time enough to get there on a busy machine.
    let silent = gate.path("silent");
    fs::write(&file, fs::read_to_string(&file).unwrap() + "[server]\nready_within = '3s'\n").unwrap();
    let script = format!("trap '' TERM; (trap '' TERM; echo $BASHPID >{}; sleep 60) & sleep 60", silent.display());
    let begin = Instant::now();
    let late = with(&["bash", "-c", &script]);
    assert!(text(&late.stdout).contains("takes no connection at tcp://127.0.0.1:"), "{}", text(&late.stdout));
    assert!(begin.elapsed() < Duration::from_secs(15));
    let child = fs::read_to_string(silent).unwrap();
    assert!(has_ended(child.trim()), "{child} still runs");
}

/// Or is a zombie that nobody has waited for. What is killed ends when it has its turn on a processor.
fn has_ended(pid: &str) -> bool {
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        let state = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
        if state.is_empty() || state.contains(") Z ") {
            return true;
        }
        if Instant::now() > give_up {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_server_ends_with_the_gate_whether_interrupted_or_killed() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    for (signal, code) in [(Signal::SIGINT, Some(130)), (Signal::SIGTERM, Some(130)), (Signal::SIGKILL, None)] {
        let gate = Gate::new("time = '30s'\n[limits]\nassert = ['p50<20ms']\n");
        let mut running = gate.command(true, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while TcpStream::connect(("127.0.0.1", gate.port)).is_err() {
            assert!(running.try_wait().unwrap().is_none(), "it ended before");
            thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(running.id() as i32), signal).unwrap();
        assert_eq!(running.wait().unwrap().code(), code, "{signal}");
        assert!(gate.is_over(), "{signal}: the server still listens");
    }
}

/// Of several placements each limit has a check, which names its row and its limit once.
#[test]
fn no_row_is_told_twice() {
    let gate = Gate::new("");
    let endpoint = format!("tcp://127.0.0.1:{}", gate.port);
    let rest = "[limits]\nassert = ['p50<1ns', 'p50<100s']\n";
    let work = format!("[workload]\ncommand = 'echo'\nendpoint = '{endpoint}'\ntime = '200ms'\n{rest}");
    fs::write(gate.file(), work).unwrap();
    let mut command = taut();
    command.args(["check", "--json"]).arg(gate.file()).arg("--").arg(env!("CARGO_BIN_EXE_taut"));
    let red = command.args(["serve", &endpoint]).output().unwrap();
    assert_eq!(red.status.code(), Some(3), "{}{}", text(&red.stdout), text(&red.stderr));
    let document = parse(&red);
    let (names, details) = (of(&document, "name"), of(&document, "detail"));
    let told: Vec<String> = names.iter().zip(&details).map(|(name, detail)| format!("{name}: {detail}")).collect();
    let failed: Vec<&String> = told.iter().filter(|check| check.contains("p50<1ns")).collect();
    assert!(!failed.is_empty() && told.len() == 2 * failed.len(), "{told:#?}");
    for check in failed {
        assert_eq!((check.matches(&endpoint).count(), check.matches("p50<1ns").count()), (1, 1), "{check}");
        assert!(check.contains(": it is ") && check.ends_with(", and so it was when measured again"), "{check}");
    }
}

/// The slower the answers, the fewer there are: too few for a percentile is no excuse for those.
#[test]
fn answers_that_are_few_as_they_are_slow_miss_a_limit() {
    let gate = Gate::new("time = '1s'\n[limits]\nassert = ['p99<20ms']\n");
    let red = gate.run(false, &[]);
    let told = text(&red.stdout);
    assert_eq!(red.status.code(), Some(3), "{told}{}", text(&red.stderr));
    assert!(told.contains("FAILED  limit p99<20ms: ") && told.contains("it takes 100"), "{told}");
}

/// What can't be written is said, and the gate is as red as before.
#[test]
fn a_report_that_cannot_be_written_changes_no_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let [file, gone] = ["a.toml", "gone"].map(|name| directory.path().join(name));
    let command = format!("['sh', '-c', 'rmdir {}; exit 1']", gone.display());
    fs::write(&file, format!("[trace]\ncommand = {command}\n[findings]\nforbid = ['cork']\n")).unwrap();
    fs::create_dir(&gone).unwrap();
    let red = run(&format!("check {} --junit {}", file.display(), gone.join("report.xml").display()));
    if red.status.code() == Some(4) {
        return skip("a_report_that_cannot_be_written_changes_no_verdict", "no right to trace");
    }
    assert_eq!(red.status.code(), Some(3), "{}{}", text(&red.stdout), text(&red.stderr));
    assert!(text(&red.stdout).contains("FAILED  command sh"), "{}", text(&red.stdout));
    assert!(text(&red.stderr).contains("report.xml"), "{}", text(&red.stderr));
}

/// A server that is there already would be measured instead.
#[test]
fn an_endpoint_that_is_taken_is_refused() {
    let gate = Gate::new(SHORT);
    let _other = TcpListener::bind(("127.0.0.1", gate.port)).unwrap();
    let refused = gate.run(true, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("before the server is started"), "{}", text(&refused.stdout));
}

/// One whose queue is full is there, and keeps nobody.
#[test]
fn a_unix_socket_with_many_who_wait_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let [file, path] = ["a.toml", "s"].map(|name| directory.path().join(name));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let work = format!("[workload]\ncommand = 'echo'\nendpoint = 'unix:{}'\n", path.display());
    fs::write(&file, format!("{work}[limits]\nassert = ['p50<1s']\n")).unwrap();
    let refused = run(&format!("check {} -- sleep 100", file.display()));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("before the server is started"), "{}", text(&refused.stdout));
}

/// A baseline of its own is no change; of a server ten times as slow it is one.
#[test]
fn a_baseline_is_compared() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let directory = tempfile::tempdir().unwrap();
    let [file, before] = ["a.toml", "before.json"].map(|name| directory.path().join(name));
    let head = format!(
        "[workload]\ncommand = 'echo'\nendpoint = '{}'\nplace = 'same-core'\nrounds = 7\ntime = '1s'\n",
        server.endpoint(0)
    );
    fs::write(&file, format!("{head}[limits]\nassert = ['p50<1s']\n")).unwrap();
    let first = run(&format!("check {} --record {}", file.display(), before.display()));
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stdout));
    let baseline = format!("{head}[baseline]\nfile = '{}'\n", before.display());
    fs::write(&file, &baseline).unwrap();
    let mut recording: Value = serde_json::from_str(&fs::read_to_string(&before).unwrap()).unwrap();
    // As if it had taken a hundredth of the time.
    for round in recording["results"][0]["rounds"].as_array_mut().unwrap() {
        for key in ["p50_ns", "p99_ns"] {
            round[key] = (round[key].as_u64().unwrap() / 100).into();
        }
    }
    let times = &mut recording["results"][0]["rtt_ns"];
    for key in ["p50", "p99"] {
        times[key] = (times[key].as_u64().unwrap() / 100).into();
        let interval = format!("{key}_ci");
        for end in times[&interval].as_array_mut().unwrap() {
            *end = (end.as_u64().unwrap() / 100).into();
        }
    }
    fs::write(&before, recording.to_string()).unwrap();
    let red = run(&format!("check {} --json", file.display()));
    let document = parse(&red);
    assert_eq!(red.status.code(), Some(3), "{document:#}");
    let checks = document["checks"].as_array().unwrap();
    let failed = checks.iter().find(|check| check["outcome"] == "failed").unwrap();
    assert!(failed["kind"] == "baseline" && failed["name"].as_str().unwrap().ends_with("round trip p50"), "{failed}");
}

#[test]
fn a_command_is_traced_and_its_causes_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    // On a busy machine segments are sent again on loopback, too.
    let gate = |command: &str| {
        let text = format!("[trace]\ncommand = {command}\n[findings]\nforbid = ['nagle_delayed_ack', 'cork']\n");
        fs::write(&file, text).unwrap();
        run(&format!("check {} --json", file.display()))
    };
    let program = env!("CARGO_BIN_EXE_taut");
    let staged = gate(&format!("['{program}', 'demo', '--for', '3s']"));
    let document = parse(&staged);
    if staged.status.code() == Some(4) {
        assert_eq!(of(&document, "outcome"), ["unknown"; 3]);
        return skip("a_command_is_traced_and_its_causes_checked", "no right to trace");
    }
    assert_eq!(staged.status.code(), Some(3), "{document:#}");
    let outcomes = of(&document, "outcome");
    assert_eq!(outcomes[..2], ["passed", "failed"], "{document:#}");
    // There are kernels that run no program in an interrupt that comes amid another one (docs/trace.md).
    let is_missed = document["checks"][2]["detail"].as_str().unwrap().starts_with("events were missed");
    assert_eq!(outcomes[2], if is_missed { "unknown" } else { "passed" }, "{document:#}");
    assert_eq!(document["causes"][0]["cause"], "nagle_delayed_ack");
    let cured = gate(&format!("['{program}', 'demo', '--cured', '--for', '3s']"));
    assert_eq!(cured.status.code(), Some(0), "{}", text(&cured.stdout));
    // One that does its work once only: a second look that sees nothing acquits nobody.
    let once = directory.path().join("once");
    let script = format!("mkdir {} && {program} demo --for 3s", once.display());
    let once = gate(&format!("['sh', '-c', '{script}']"));
    let document = parse(&once);
    assert_eq!(
        (once.status.code(), &of(&document, "outcome")[..2]),
        (Some(3), &["passed", "failed"][..]),
        "{document:#}"
    );
    let detail = document["checks"][1]["detail"].as_str().unwrap();
    assert!(detail.ends_with("a second look saw nothing: the command failed then"), "{detail}");
    let failed = gate("['false']");
    assert_eq!(failed.status.code(), Some(3));
    assert_eq!(of(&parse(&failed), "outcome")[0], "failed");
}

#[test]
fn a_file_that_is_wrong_is_a_usage_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    let missing = run(&format!("check {}", file.display()));
    assert!(missing.status.code() == Some(2) && text(&missing.stderr).contains("cannot read"));
    fs::write(&file, "[workload]\ncommand = 'echo'\nendpoint = 'tcp://127.0.0.1:1'\nsiez = 1\n").unwrap();
    let wrong = run(&format!("check {}", file.display()));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("line 4: workload.siez: `taut echo` has no option --siez"),
        "{}",
        text(&wrong.stderr)
    );
    fs::write(&file, [0xff, 0xfe, 0]).unwrap();
    assert_eq!(run(&format!("check {}", file.display())).status.code(), Some(2));
    let endless = run("check /dev/zero");
    assert_eq!(endless.status.code(), Some(2));
    assert!(text(&endless.stderr).contains("longer than 1048576 bytes"), "{}", text(&endless.stderr));
    let baseline = directory.path().join("before.json").display().to_string();
    let plan = "[workload]\ncommand = 'echo'\nendpoint = 'tcp://127.0.0.1:1'\n[baseline]\nfile = ";
    for (name, says) in [(baseline.as_str(), "cannot read"), ("/dev/zero", "longer than")] {
        fs::write(&file, format!("{plan}'{name}'\n")).unwrap();
        let missing = run(&format!("check {}", file.display()));
        let error = text(&missing.stderr);
        assert!(missing.status.code() == Some(2) && error.contains("[baseline]: ") && error.contains(says), "{error}");
    }
    // Nobody there, and no server to start.
    fs::write(&file, "[workload]\ncommand = 'echo'\nendpoint = 'tcp://127.0.0.1:1'\n[limits]\nassert = ['p50<1s']\n")
        .unwrap();
    let nobody = run(&format!("check {}", file.display()));
    assert!(
        nobody.status.code() == Some(1) && text(&nobody.stdout).contains("NOT CHECKED"),
        "{}",
        text(&nobody.stdout)
    );
}

/// The file that the documentation begins with does what it says.
#[test]
fn the_example_is_a_gate() {
    if !long() && Command::new("python3").arg("--version").output().is_err() {
        return skip("the_example_is_a_gate", "there is no python3");
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/check");
    let at = |line: &[&str]| taut().current_dir(&examples).arg("check").args(line).output().unwrap();
    let green = at(&["taut.toml"]);
    assert_eq!(green.status.code(), Some(0), "{}{}", text(&green.stdout), text(&green.stderr));
    let red = at(&["taut.toml", "--", "python3", "server.py", "--nagle"]);
    assert_eq!(red.status.code(), Some(3), "{}", text(&red.stdout));
    assert!(text(&red.stdout).contains("FOUND nagle_delayed_ack"), "{}", text(&red.stdout));
}

/// What a runner does with the Action: its one step, in bash, with the inputs in the environment.
#[test]
fn the_action_turns_a_build_red_with_the_cause() {
    const ACTION: &str = include_str!("../../../packaging/action/action.yml");
    let step = ACTION.split_once("  steps:\n").unwrap().1;
    let value =
        |key: &str| step.lines().find_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key)).unwrap();
    assert_eq!((value("shell: "), value("FILE: ")), ("bash", "${{ inputs.file }}"));
    assert_eq!(step.matches("run: ").count(), 1, "{step}");
    let bin = Path::new(env!("CARGO_BIN_EXE_taut")).parent().unwrap();
    let path =
        env::join_paths([bin.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap()))).unwrap();
    let server = env::current_exe().unwrap();
    for (nodelay, code) in [(false, 3), (true, 0)] {
        let gate = Gate::new(&format!("{SHORT}[server]\ncommand = ['{}', '--exact', 'server']\n", server.display()));
        let mut runner = Command::new("bash");
        runner.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", value("run: ")]).env("PATH", &path);
        runner.env("FILE", gate.file()).env("RUNNER_TEMP", gate.directory.path());
        runner.env("CHECK_SERVER_PORT", gate.port.to_string());
        if nodelay {
            runner.env("CHECK_SERVER_NODELAY", "1");
        }
        let output = runner.output().unwrap();
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{told}{}", text(&output.stderr));
        let has_cause =
            told.lines().any(|line| line.starts_with("::error file=") && line.contains("nagle_delayed_ack"));
        assert_eq!(has_cause, !nodelay, "{told}");
        assert!(fs::read_to_string(gate.path("taut-check.xml")).unwrap().contains("<testsuite"), "{told}");
    }
}

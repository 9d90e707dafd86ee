//! Where a block of a page runs: a directory with the files that it names, a network of its own, and nobody at the
//! keyboard but Ctrl-C.
#![allow(dead_code, reason = "each of those who share it uses a part of it")]

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

/// What takes longer hangs: a block takes some seconds, and several times as long on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Made in every network before the block's own lines: what the pages take as given. The addresses are of another
/// host, and port 7 has an echo server (RFC 862).
const NETWORK: &str = "ip link set lo up; ip address add 10.0.0.2/32 dev lo; mount -t tmpfs tmpfs /run\n";
/// In the place of `taut`: Ctrl-C where a command does not end by itself, and notes. What runs in the background is
/// left alone, which has SIGINT ignored in a shell without job control.
const TAUT: &str = r#"#!/bin/bash
echo "began $*" >>"$PAGE_LOG"
if [ -n "$(trap -p INT)" ]; then
    "$PAGE_TAUT" "$@"
else
    # A check ends by itself.
    case "$1" in check) time=120 ;; *) time=$PAGE_TIME ;; esac
    timeout --foreground --preserve-status --signal INT --kill-after 90 "$time" "$PAGE_TAUT" "$@"
fi
code=$?
case "$code $*" in
    0\ * | 130\ *) exit 0 ;;
    # What a reader wants to know is whether it holds.
    3\ *--assert* | 3\ *--fail-on* | 3\ check*) exit 0 ;;
esac
echo "failed with $code: $*" >>"$PAGE_LOG"
exit "$code"
"#;

/// Waits until there is a connection of TCP in this network.
const UNTIL_CONNECTED: &str = "until grep -q ' 01 ' /proc/net/tcp; do sleep 0.1; done\n";

/// The files, made once, and the programs in the place of those that the pages call.
pub(super) struct Stage {
    files: TempDir,
    bin: TempDir,
    /// Seconds before Ctrl-C.
    time: u32,
}

/// What came of a block.
pub(super) struct Played {
    /// What is wrong with it; nothing where that is nothing.
    pub(super) complaint: Option<String>,
    /// How often `taut` was started.
    pub(super) began: usize,
    /// What it and all others printed.
    pub(super) told: String,
}

impl Stage {
    /// With these files in each directory; Ctrl-C comes after so many seconds.
    pub(super) fn new(files: TempDir, time: u32) -> Self {
        let bin = tempfile::tempdir().unwrap();
        for (name, text) in [("taut", TAUT), ("sudo", "#!/bin/sh\nexec \"$@\"\n")] {
            let path = bin.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { files, bin, time }
    }

    /// Runs a block to its end.
    pub(super) fn play(&self, text: &str) -> Played {
        let work = tempfile::tempdir().unwrap();
        let place = work.path().join("work");
        copy(self.files.path(), &place);
        let (log, told) = (work.path().join("log"), work.path().join("told"));
        let mut group = Group(self.start(&script(text), &place, &log, &told));
        let code = group.wait();
        drop(group);
        let (log, told) = (read(&log), read(&told));
        let began = log.lines().filter(|line| line.starts_with("began ")).count();
        let failed: Vec<&str> = log.lines().filter(|line| line.starts_with("failed ")).collect();
        let complaint = match code {
            Some(0) if failed.is_empty() => None,
            Some(code) => Some(format!("code {code}, {failed:?}\n{told}")),
            None => Some(format!("not at its end after {LIMIT:?}\n{log}\n{told}")),
        };
        Played { complaint, began, told }
    }

    fn start(&self, script: &str, place: &Path, log: &Path, told: &Path) -> Child {
        let output = OpenOptions::new().create(true).append(true).open(told).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--propagation", "private", "bash", "-c", script]).current_dir(place);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.bin.path().display()));
        command.env("PAGE_LOG", log).env("PAGE_TAUT", env!("CARGO_BIN_EXE_taut")).env("HOME", place);
        command.env("PAGE_TOLD", told).env("PAGE_TIME", self.time.to_string());
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).process_group(0);
        command.spawn().unwrap()
    }
}

/// The block as bash runs it: with a server, a slow program and time where a reader has them.
fn script(text: &str) -> String {
    let mut script = format!("set -e -o pipefail\n{NETWORK}");
    if ["9100", "10.0.0.2", "127.0.0.1:7 "].iter().any(|peer| text.contains(peer)) && !text.contains("taut serve") {
        let echo = "\"$PAGE_TAUT\" pipe listen:tcp://127.0.0.1:7 exec:cat >/dev/null 2>&1 &";
        let both = "tcp://127.0.0.1:9100 udp://127.0.0.1:9100 tcp://10.0.0.2:9100";
        let serve = format!("\"$PAGE_TAUT\" serve {both} >\"$PAGE_LOG.serve\" 2>&1 &");
        let _ = writeln!(script, "{serve}\n{echo}");
        // However long that takes on a busy machine.
        script.push_str("until grep -qs '^listening' \"$PAGE_LOG.serve\"; do sleep 0.1; done\n");
        script.push_str(&until_listening(7));
    }
    let text = if text.contains("4711") || text.contains("--pid PID") {
        script.push_str("\"$PAGE_TAUT\" demo >/dev/null 2>&1 & SLOW=$!\nsleep 1\n");
        script.push_str(UNTIL_CONNECTED);
        text.replace("4711", "$SLOW").replace("--pid PID", "--pid $SLOW")
    } else {
        text.to_owned()
    };
    for line in text.lines() {
        // Comments first: one may end in `&`.
        let code = line.split(" #").next().unwrap_or_default().trim_end();
        // A reader types the next line in a moment.
        let is_started = code.ends_with('&') && !code.ends_with("&&");
        if is_started && tells_when_up(code) {
            script.push_str("UP=$(grep -c '^listening' \"$PAGE_TOLD\" || true)\n");
        }
        script.push_str(if is_started { code } else { line });
        script.push_str(if is_started { " sleep 1\n" } else { "\n" });
        if is_started {
            script.push_str(&until_up(code));
        }
    }
    script
}

/// Whether it says so when it listens.
fn tells_when_up(code: &str) -> bool {
    ["taut serve ", "taut web "].iter().any(|begin| code.starts_with(begin))
}

/// Waits until what was started in the background is up, where that can be told: a reader would see it.
fn until_up(code: &str) -> String {
    if tells_when_up(code) {
        let count = "$(grep -c '^listening' \"$PAGE_TOLD\" || true)";
        // One that never says so is waited for in vain, and what comes next tells why.
        return format!("for _ in {{1..300}}; do [ \"{count}\" -gt \"$UP\" ] && break; sleep 0.1; done\n");
    }
    let port = code.split_once("taut pipe listen:tcp://").and_then(|(_, address)| {
        let (_, rest) = address.split(' ').next()?.rsplit_once(':')?;
        rest.parse::<u16>().ok()
    });
    let broker = code.strip_prefix("mosquitto -p ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    port.or(broker).map(until_listening).unwrap_or_default()
}

/// Waits until somebody listens at a port of TCP in this network, which no connection has to find out.
fn until_listening(port: u16) -> String {
    format!("until grep -q ':{port:04X} 00000000:0000 0A ' /proc/net/tcp; do sleep 0.1; done\n")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place: PathBuf = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// All that a block started; ended when dropped.
struct Group(Child);

impl Group {
    fn wait(&mut self) -> Option<i32> {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status.code().unwrap_or(-1));
            }
            thread::sleep(Duration::from_millis(50));
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id() as i32);
        // It may have ended, all of it.
        let _ = killpg(group, Signal::SIGTERM);
        thread::sleep(Duration::from_millis(200));
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[test]
fn what_fails_in_a_block_is_told() {
    if !super::support::is_root() {
        return super::support::skip("what_fails_in_a_block_is_told", "a network of its own takes root");
    }
    let stage = Stage::new(tempfile::tempdir().unwrap(), 3);
    let told = |text: &str| stage.play(text).complaint.unwrap_or_default();
    assert!(told("taut echo 127.0.0.1 --siez 3\n").contains("--siez"));
    assert!(told("taut explain none.pcap &\nsleep 1\n").contains("none.pcap"), "in the background, too");
    assert!(told("false\n").contains("code 1"));
    assert!(told("taut serve &\ntaut explain - <none; true\n").contains("none"));
    let fine = stage.play("sudo taut --version >a && test -s a\ntaut serve & # and so on &\ntaut echo 127.0.0.1\n");
    assert_eq!((fine.complaint, fine.began), (None, 3));
}

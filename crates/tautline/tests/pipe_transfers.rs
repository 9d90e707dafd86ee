//! Seeded transfers between our own stdin and stdout and every kind that they go with, in which either side or the pipe
//! itself is ended at any time: what arrives is a prefix of what was sent, and what the pipe tells at its end is true.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::taut;

/// How many when `TAUT_PIPE_TRANSFERS` does not say; as it is for those in one process, a tenth of it.
const USUAL: u64 = 70;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Tcp,
    ListenTcp,
    Unix,
    ListenUnix,
    Exec,
    ExecPty,
    File,
}

const ALL: [Kind; 7] =
    [Kind::Tcp, Kind::ListenTcp, Kind::Unix, Kind::ListenUnix, Kind::Exec, Kind::ExecPty, Kind::File];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// Both sides do all they want to.
    Whole,
    /// The pipe is killed.
    Killed,
    /// The pipe is asked to end.
    Interrupted,
    /// The far side closes, or the program is killed with the pipe where there is none.
    FarGone,
}

/// The same numbers from the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = [10, 3_000, 300_000][self.below(3) as usize];
        // Without what a terminal's line discipline could take for something else, raw or not.
        (0..self.below(most)).map(|_| b'a' + self.below(26) as u8).collect()
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&mut &*socket).read(buffer),
            Self::Unix(socket) => (&mut &*socket).read(buffer),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Tcp(socket) => (&mut &*socket).write_all(bytes),
            Self::Unix(socket) => (&mut &*socket).write_all(bytes),
        }
    }

    fn shut(&self, how: Shutdown) {
        // It may be gone already.
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(how),
            Self::Unix(socket) => socket.shutdown(how),
        };
    }
}

enum Waiting {
    Tcp(TcpListener),
    Unix(UnixListener),
    Nobody,
}

/// The pipe, its far side where it has one, and the rest of what it says.
fn start(kind: Kind, directory: &Path) -> (Child, Option<Socket>, BufReader<std::process::ChildStderr>) {
    let path = directory.join("x");
    let (to, waiting) = match kind {
        Kind::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            (format!("tcp://{}", listener.local_addr().unwrap()), Waiting::Tcp(listener))
        }
        Kind::Unix => (format!("unix:{}", path.display()), Waiting::Unix(UnixListener::bind(&path).unwrap())),
        Kind::ListenTcp => ("listen:tcp://127.0.0.1:0".to_owned(), Waiting::Nobody),
        Kind::ListenUnix => (format!("listen:unix:{}", path.display()), Waiting::Nobody),
        Kind::Exec => ("exec:cat".to_owned(), Waiting::Nobody),
        Kind::ExecPty => ("exec-pty:cat".to_owned(), Waiting::Nobody),
        Kind::File => (format!("file:{}", path.display()), Waiting::Nobody),
    };
    let mut command = taut();
    command.args(["pipe", "stdio:", &to, "--json", "--linger", "200ms"]);
    let listens = matches!(kind, Kind::ListenTcp | Kind::ListenUnix);
    if listens {
        command.arg("--once");
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("taut starts");
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    if listens {
        stderr.read_line(&mut line).unwrap();
    }
    let far = match (kind, waiting) {
        (_, Waiting::Tcp(listener)) => Some(Socket::Tcp(listener.accept().unwrap().0)),
        (_, Waiting::Unix(listener)) => Some(Socket::Unix(listener.accept().unwrap().0)),
        (Kind::ListenTcp, _) => {
            let to = line.trim().strip_prefix("taut: listening on tcp://").unwrap_or_else(|| panic!("{line}"));
            Some(Socket::Tcp(TcpStream::connect(to).unwrap()))
        }
        (Kind::ListenUnix, _) => Some(Socket::Unix(UnixStream::connect(&path).unwrap())),
        _ => None,
    };
    (child, far, stderr)
}

/// Whether a program takes SIGINT itself, or has ended (`SigBlk` and `SigCgt` of proc_pid_status(5)).
fn minds_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let minded =
        status.lines().filter_map(|line| line.strip_prefix("SigBlk:").or_else(|| line.strip_prefix("SigCgt:")));
    let mut sets = minded.map(|set| u64::from_str_radix(set.trim(), 16).unwrap());
    sets.any(|set| set & 1 << (Signal::SIGINT as u32 - 1) != 0) || status.contains("State:\tZ")
}

fn transfer(kind: Kind, seed: u64) {
    let mut random = Random(seed);
    let (sent, answer) = (random.bytes(), random.bytes());
    let end = [End::Whole, End::Whole, End::Killed, End::Interrupted, End::FarGone][random.below(5) as usize];
    // Of a terminal the end is not told, so that a program at it would not end by itself; and it
    // holds less than it echoes.
    let sent = if kind == Kind::ExecPty { sent[..sent.len().min(2000)].to_vec() } else { sent };
    let (pause, reads) = (Duration::from_micros(random.below(20_000)), random.below(200_000) as usize);
    let what = format!("{kind:?}, {end:?}, TAUT_SEED={seed}, {} bytes there, {} back", sent.len(), answer.len());
    let directory = tempfile::tempdir().unwrap();
    let (mut child, far, mut stderr) = start(kind, directory.path());
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut came, mut back, mut said) = (Vec::new(), Vec::new(), String::new());
    let status = thread::scope(|scope| {
        let (sent, answer, far) = (&sent, &answer, &far);
        // Whoever is gone is not written to any more.
        scope.spawn(move || stdin.write_all(sent).is_ok());
        scope.spawn(|| stdout.read_to_end(&mut back).unwrap());
        scope.spawn(|| stderr.read_to_string(&mut said).unwrap());
        if let Some(far) = far {
            scope.spawn(move || {
                let _ = far.write_all(answer);
                if end != End::FarGone {
                    far.shut(Shutdown::Write);
                }
            });
            let came = &mut came;
            scope.spawn(move || {
                let mut buffer = vec![0; 50_000];
                while let Ok(bytes @ 1..) = far.read(&mut buffer) {
                    came.extend_from_slice(&buffer[..bytes]);
                    if end == End::FarGone && came.len() > reads {
                        break;
                    }
                }
                if end == End::FarGone {
                    far.shut(Shutdown::Both);
                }
            });
        }
        let pid = Pid::from_raw(child.id() as i32);
        if matches!(end, End::Killed | End::Interrupted) {
            thread::sleep(pause);
            // A program that has only just been started knows of no signals yet: they end it without a word.
            while end == End::Interrupted && !minds_interrupts(child.id()) {
                thread::sleep(Duration::from_millis(1));
            }
            kill(pid, if end == End::Killed { Signal::SIGKILL } else { Signal::SIGINT }).unwrap();
        }
        child.wait().unwrap()
    });
    // A program gives back what it is sent; a file keeps it.
    let answer = match kind {
        Kind::Exec | Kind::ExecPty => &sent,
        Kind::File => &Vec::new(),
        _ => &answer,
    };
    match kind {
        Kind::File => came = std::fs::read(directory.path().join("x")).unwrap_or_default(),
        Kind::Exec | Kind::ExecPty => came = back.clone(),
        _ => {}
    }
    assert!(sent.starts_with(&came), "{what}: {} bytes came that are no prefix", came.len());
    assert!(answer.starts_with(&back), "{what}: {} bytes came back that are no prefix", back.len());
    if end == End::Killed {
        return;
    }
    let account: Value = said
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("{what}: no account: {status:?} {said}"));
    let bytes = |key: &str| account[key].as_u64().unwrap() as usize;
    assert!(came.len() <= bytes("bytes_a_to_b") && bytes("bytes_a_to_b") <= sent.len(), "{what}: {account}");
    assert!(back.len() <= bytes("bytes_b_to_a") && bytes("bytes_b_to_a") <= answer.len(), "{what}: {account}");
    let undelivered = bytes("undelivered_a_to_b") + bytes("undelivered_b_to_a");
    if end == End::Whole || end == End::FarGone && far.is_none() {
        assert_eq!((came.len(), back.len(), undelivered), (sent.len(), answer.len(), 0), "{what}: {account}");
        assert!(status.success(), "{what}: {status:?} {account}");
    }
}

#[test]
fn what_goes_through_stdin_and_stdout_is_a_prefix_and_the_account_is_true() {
    let number = |name: &str| std::env::var(name).ok().and_then(|count| count.parse::<u64>().ok());
    let count = number("TAUT_PIPE_TRANSFERS").map_or(USUAL, |count| count / 10);
    let first = number("TAUT_SEED").unwrap_or(1);
    for seed in first..first + count {
        transfer(ALL[seed as usize % ALL.len()], seed);
    }
}

//! Seeded transfers with random sizes, pauses, half-closes, resets and kills on both sides: what
//! arrives is a prefix of what was sent, and the account tells the truth about the rest.

mod support;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use support::{PATIENCE, Random, Running};
use taut_pipe::{Options, PipeReport};

/// How many when `TAUT_PIPE_TRANSFERS` does not say.
const USUAL: u64 = 400;

/// A side that does not end in good order has nothing to wait for after so much silence.
const KILLED_AFTER: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// Says that it is done, and reads until the other one is.
    Whole,
    /// Closes without reading any more.
    Kill,
    /// Closes so that the other side gets a reset.
    Reset,
}

/// What one side does.
#[derive(Clone, Debug)]
struct Script {
    seed: u64,
    writes: Vec<(usize, Duration)>,
    end: End,
    /// Bytes after which it does not read any more but ends.
    reads: usize,
    read_size: usize,
}

impl Script {
    fn new(random: &mut Random) -> Self {
        let count = random.below(6);
        let writes = (0..count)
            .map(|_| {
                let most = [100, 5_000, 200_000][random.below(3) as usize];
                let pause = if random.below(3) == 0 { random.below(2000) } else { 0 };
                (1 + random.below(most) as usize, Duration::from_micros(pause))
            })
            .collect();
        let end = [End::Whole, End::Whole, End::Whole, End::Kill, End::Reset][random.below(5) as usize];
        let reads = if end == End::Whole { usize::MAX } else { random.below(150_000) as usize };
        Self { seed: random.next(), writes, end, reads, read_size: 1 + random.below(70_000) as usize }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn set_patience(&self, reading: Duration) {
        match self {
            Self::Tcp(socket) => {
                socket.set_read_timeout(Some(reading)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)))
            }
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(reading)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)))
            }
        }
        .unwrap();
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&mut &*socket).read(buffer),
            Self::Unix(socket) => (&mut &*socket).read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&mut &*socket).write(bytes),
            Self::Unix(socket) => (&mut &*socket).write(bytes),
        }
    }

    fn shut(&self, how: Shutdown) {
        // It may be gone already.
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(how),
            Self::Unix(socket) => socket.shutdown(how),
        };
    }

    fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            SockRef::from(socket).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }
}

/// What one side saw.
#[derive(Debug, Default)]
struct Seen {
    sent: u64,
    received: u64,
    /// Whether the other side's end was read: all that came was.
    to_the_end: bool,
    /// Whether this side did all it wanted to.
    sent_all: bool,
}

/// Plays one side; `theirs` is what the other one sends.
fn play(socket: &Socket, script: &Script, theirs: u64) -> Seen {
    let is_whole = script.end == End::Whole;
    socket.set_patience(if is_whole { PATIENCE } else { KILLED_AFTER });
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let (mut random, mut sent) = (Random::new(script.seed), 0);
            for (length, pause) in &script.writes {
                thread::sleep(*pause);
                let bytes = random.bytes(*length);
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    match socket.write(rest) {
                        Ok(written) => {
                            sent += written as u64;
                            rest = &rest[written..];
                        }
                        Err(_) => return (sent, false),
                    }
                }
            }
            if is_whole {
                socket.shut(Shutdown::Write);
            }
            (sent, true)
        });
        let mut expected = Random::new(theirs);
        let (mut received, mut to_the_end) = (0, false);
        let mut buffer = vec![0; script.read_size];
        while (received as usize) < script.reads {
            match socket.read(&mut buffer) {
                Ok(0) => {
                    to_the_end = true;
                    break;
                }
                Ok(bytes) => {
                    for (at, byte) in buffer[..bytes].iter().enumerate() {
                        let expected = expected.next() as u8;
                        assert_eq!(*byte, expected, "byte {} is not the one that was sent", received + at as u64);
                    }
                    received += bytes as u64;
                }
                Err(error) => {
                    let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    assert!(!is_late || !is_whole, "nothing came and no end for {PATIENCE:?}");
                    to_the_end = !is_late;
                    break;
                }
            }
        }
        if !is_whole {
            if script.end == End::Reset {
                socket.reset_on_close();
            }
            if script.end == End::Kill {
                // Wakes the writer, which may wait for room.
                socket.shut(Shutdown::Both);
            } else {
                socket.shut(Shutdown::Read);
            }
        }
        let (sent, sent_all) = writer.join().unwrap();
        Seen { sent, received, to_the_end, sent_all }
    })
}

/// Holds what the two sides saw against the account.
fn judge(a: &Seen, b: &Seen, scripts: [&Script; 2], summary: &PipeReport) {
    let whole = scripts.iter().all(|script| script.end == End::Whole);
    for (from, to, account, reader) in
        [(a, b, &summary.accounts[0], scripts[1]), (b, a, &summary.accounts[1], scripts[0])]
    {
        assert!(to.received <= account.bytes, "more arrived than was given to the kernel: {to:?} {account:?}");
        assert!(account.bytes + account.undelivered <= from.sent, "more is told than was sent: {from:?} {account:?}");
        if to.to_the_end {
            assert!(
                to.received >= account.bytes - account.unconfirmed,
                "less arrived than is told: {to:?} {account:?}"
            );
        }
        if account.undelivered > 0 {
            assert!(summary.failed, "bytes were left, and that is no failure?");
        }
        if whole {
            assert_eq!((to.received, account.undelivered, account.unconfirmed), (from.sent, 0, 0), "{reader:?}");
            assert!(from.sent_all && to.to_the_end);
        }
    }
    if whole {
        assert!(!summary.failed, "{summary:?}");
    }
}

fn transfers(kinds: (&str, &str), seeds: impl Iterator<Item = u64>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    enum Server {
        Tcp(TcpListener),
        Unix(UnixListener),
    }
    let (server, b) = if kinds.1 == "tcp" {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let b = format!("tcp://{}", listener.local_addr().unwrap());
        (Server::Tcp(listener), b)
    } else {
        (Server::Unix(UnixListener::bind(path.join("b")).unwrap()), format!("unix:{}", path.join("b").display()))
    };
    let a = if kinds.0 == "tcp" {
        "listen:tcp://127.0.0.1:0".to_owned()
    } else {
        format!("listen:unix:{}", path.join("a").display())
    };
    let running = Running::start(&a, &b, Options::default());
    for seed in seeds {
        let mut random = Random::new(seed);
        let scripts = [Script::new(&mut random), Script::new(&mut random)];
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let client = match kinds.0 {
                "tcp" => Socket::Tcp(TcpStream::connect(support::port(&running.endpoints[0])).unwrap()),
                _ => Socket::Unix(UnixStream::connect(path.join("a")).unwrap()),
            };
            let far = match &server {
                Server::Tcp(listener) => Socket::Tcp(listener.accept().unwrap().0),
                Server::Unix(listener) => Socket::Unix(listener.accept().unwrap().0),
            };
            let [of_a, of_b] = &scripts;
            let (seen_a, seen_b) = thread::scope(|scope| {
                // Each drops its socket when it is done, as a process that ends does.
                let near = scope.spawn(move || play(&client, of_a, of_b.seed));
                let far = scope.spawn(move || play(&far, of_b, of_a.seed));
                (near.join().unwrap(), far.join().unwrap())
            });
            judge(&seen_a, &seen_b, [of_a, of_b], &running.next());
        }));
        assert!(attempt.is_ok(), "{kinds:?} with seed {seed}: {scripts:?}");
    }
}

#[test]
fn what_arrives_is_a_prefix_and_the_account_is_true() {
    let count = std::env::var("TAUT_PIPE_TRANSFERS").ok().and_then(|count| count.parse().ok()).unwrap_or(USUAL);
    let first = std::env::var("TAUT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let kinds = [("tcp", "tcp"), ("tcp", "unix"), ("unix", "tcp"), ("unix", "unix")];
    thread::scope(|scope| {
        for (index, kinds) in (0..).zip(kinds) {
            // As many numbers for each pair, none twice.
            scope.spawn(move || transfers(kinds, (first + index..first + count).step_by(4)));
        }
    });
}

//! Seeded transfers with random sizes, pauses, half-closes, resets and kills on both sides, through
//! every pair of kinds that a host has by itself: what arrives is a prefix of what was sent (of
//! messages: some of them, whole, in order and none twice), and the account tells the truth about
//! the rest. (`transfers.rs` has many clients at one pipe; L2CAP and RFCOMM need a lab.)

mod support;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::far::{Far, Kind, meet, prepare, refusal};
use support::tls::Certificates;
use support::{PATIENCE, Random, Running, plan};
use taut_pipe::framing::Framing;
use taut_pipe::{Account, Options, PipeReport};

/// How many when `TAUT_PIPE_TRANSFERS` does not say.
const USUAL: u64 = 700;
/// A side that does not end in good order has nothing to wait for after so much silence; nor has
/// one of messages, whose end nobody tells.
const SILENCE: Duration = Duration::from_millis(20);
const WORKERS: usize = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// Does all it wants to, and reads until the other one is done.
    Whole,
    /// Closes without reading any more; a program is killed.
    Kill,
    /// Closes so that the other side gets a reset, where the kind has one.
    Reset,
}

/// What one side does.
#[derive(Debug)]
struct Script {
    /// What it writes, and the pause before each.
    writes: Vec<(Vec<u8>, Duration)>,
    end: End,
    /// Bytes after which it does not read any more but ends.
    reads: u64,
    read_size: usize,
}

/// Of messages there have to be some: clients of sockets of messages are known by what they send.
fn script(random: &mut Random, kind: Kind, other: Kind) -> Script {
    let of_messages = kind.has_messages() || other.has_messages();
    let is_slow = [kind, other].iter().any(|kind| matches!(kind, Kind::Tty | Kind::ExecPty));
    let count = if of_messages { 1 + random.below(40) } else { random.below(6) };
    let writes = (0..count).map(|number| {
        let pause = if random.below(3) == 0 { random.below(2000) } else { 0 };
        let bytes = if of_messages {
            // Without newlines, and no two the same.
            let length = random.below(1400) as usize;
            let mut message = format!("{number:06}").into_bytes();
            message.extend(random.bytes(length).into_iter().map(|byte| byte.max(b' ')));
            message
        } else {
            let most = [100, 5_000, if is_slow { 20_000 } else { 200_000 }][random.below(3) as usize];
            let length = 1 + random.below(most) as usize;
            random.bytes(length)
        };
        (bytes, Duration::from_micros(pause))
    });
    let writes = writes.collect();
    let end = [End::Whole, End::Whole, End::Whole, End::Kill, End::Reset][random.below(5) as usize];
    let end = if kind == Kind::File { End::Whole } else { end };
    let reads = if end == End::Whole { u64::MAX } else { random.below(if of_messages { 20_000 } else { 150_000 }) };
    Script { writes, end, reads, read_size: 1 + random.below(70_000) as usize }
}

/// What one side saw.
#[derive(Debug, Default)]
struct Seen {
    sent: u64,
    sent_messages: u64,
    /// Whether this side did all it wanted to.
    sent_all: bool,
    received: u64,
    received_messages: u64,
    /// Whether all that came was read.
    to_the_end: bool,
}

/// Holds what arrives against what was sent.
struct Checker<'a> {
    expected: &'a Script,
    framing: Framing,
    /// Whether messages arrive, or a stream made of them.
    is_stream: bool,
    of_messages: bool,
    may_be_cut: bool,
    is_cut: bool,
    next: usize,
    partial: Vec<u8>,
    bytes: u64,
    messages: u64,
}

impl Checker<'_> {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.of_messages && !self.is_stream {
            return self.message(bytes);
        }
        self.partial.extend_from_slice(bytes);
        if !self.of_messages {
            // A prefix of all that was written.
            while let Some((write, _)) = self.expected.writes.get(self.next) {
                let there = self.partial.len().min(write.len());
                assert!(self.partial[..there] == write[..there], "byte {} or before is another one", self.bytes);
                if there < write.len() {
                    return;
                }
                self.partial.drain(..there);
                self.next += 1;
            }
            assert!(self.partial.is_empty(), "more arrived than was sent");
            return;
        }
        while let Some((from, to, after)) = frame(&self.partial, self.framing) {
            let message = self.partial[from..to].to_vec();
            self.partial.drain(..after);
            self.message(&message);
        }
    }

    fn message(&mut self, message: &[u8]) {
        assert!(!self.is_cut, "a message after one that was cut off");
        // Of a line that was being written when its sender went, nobody knows that it was to be longer.
        let cut = self.may_be_cut
            && self.expected.writes[self.next..]
                .iter()
                .any(|(write, _)| write.len() > message.len() && write.starts_with(message));
        if cut {
            (self.is_cut, self.messages) = (true, self.messages + 1);
            return;
        }
        let number: usize = std::str::from_utf8(&message[..6]).unwrap().parse().unwrap();
        assert!(number >= self.next, "message {number} comes twice, or after {}", self.next);
        let expected = &self.expected.writes[number].0;
        let same = expected.iter().zip(message).take_while(|(a, b)| a == b).count();
        let (sent, came) = (expected.len(), message.len());
        assert!(expected == message, "message {number} of {sent} bytes is another one from byte {same} of {came} on");
        self.next = number + 1;
        self.messages += 1;
    }

    /// Whether nothing is missing.
    fn has_all(&self) -> bool {
        if self.of_messages {
            self.messages == self.expected.writes.len() as u64
        } else {
            self.next == self.expected.writes.len()
        }
    }
}

/// Where the first whole message begins and ends on a stream, and where the next one begins.
fn frame(bytes: &[u8], framing: Framing) -> Option<(usize, usize, usize)> {
    match framing {
        Framing::Line => bytes.iter().position(|byte| *byte == b'\n').map(|end| (0, end, end + 1)),
        _ => {
            let length = u32::from_be_bytes(*bytes.first_chunk::<4>()?) as usize;
            (bytes.len() >= 4 + length).then_some((4, 4 + length, 4 + length))
        }
    }
}

fn framed(message: &[u8], framing: Framing) -> Vec<u8> {
    match framing {
        Framing::Line => [message, b"\n"].concat(),
        _ => [&(message.len() as u32).to_be_bytes()[..], message].concat(),
    }
}

/// What both sides know of each other.
struct Stage<'a> {
    kinds: [Kind; 2],
    scripts: [&'a Script; 2],
    framing: Framing,
    /// Has received all that the other one sends.
    has_all: [AtomicBool; 2],
    /// Does nothing more.
    is_over: [AtomicBool; 2],
    /// The pipe has ended, so that nothing more comes.
    has_ended: AtomicBool,
}

impl Stage<'_> {
    fn is_whole(&self) -> bool {
        self.scripts.iter().all(|script| script.end == End::Whole)
    }

    fn of_messages(&self) -> bool {
        self.kinds.iter().any(|kind| kind.has_messages())
    }

    /// Whether the last message of a side may be a part of one.
    fn may_be_cut(&self, me: usize) -> bool {
        self.framing == Framing::Line && !self.kinds[me].has_messages() && self.scripts[me].end != End::Whole
    }

    /// Whether a side must not say that it is done before the other one has all: the pipe would end for both.
    fn ends_for_both(&self) -> bool {
        !self.kinds.iter().all(|kind| kind.halves())
    }

    /// What a side writes, as it goes to its end.
    fn writes(&self, me: usize) -> impl Iterator<Item = (Vec<u8>, Duration)> {
        let is_framed = self.of_messages() && !self.kinds[me].has_messages();
        let framing = self.framing;
        let form = move |bytes: &[u8]| if is_framed { framed(bytes, framing) } else { bytes.to_vec() };
        self.scripts[me].writes.iter().map(move |(bytes, pause)| (form(bytes), *pause))
    }

    fn checker(&self, me: usize) -> Checker<'_> {
        Checker {
            expected: self.scripts[1 - me],
            framing: self.framing,
            is_stream: !self.kinds[me].has_messages(),
            of_messages: self.of_messages(),
            may_be_cut: self.may_be_cut(1 - me),
            is_cut: false,
            next: 0,
            partial: Vec::new(),
            bytes: 0,
            messages: 0,
        }
    }
}

fn write_all(far: &Far, stage: &Stage<'_>, me: usize, begun: &AtomicBool) -> Seen {
    let (kind, mut seen) = (stage.kinds[me], Seen::default());
    for (bytes, pause) in stage.writes(me) {
        thread::sleep(if kind.is_udp() { pause.max(Duration::from_micros(50)) } else { pause });
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match far.write(rest) {
                Ok(written) => {
                    seen.sent += written as u64;
                    rest = &rest[written..];
                }
                Err(_) => {
                    begun.store(true, Ordering::Release);
                    return seen;
                }
            }
        }
        seen.sent_messages += 1;
        begun.store(true, Ordering::Release);
    }
    seen.sent_all = true;
    begun.store(true, Ordering::Release);
    // Where the other side may be cut off by it, all wait for each other first.
    if stage.scripts[me].end == End::Whole && kind.halves() && !(stage.is_whole() && stage.ends_for_both()) {
        far.finish();
    }
    seen
}

/// Reads to this side's end; whether all that came was read.
fn read_all(far: &Far, stage: &Stage<'_>, me: usize, checker: &mut Checker<'_>) -> bool {
    let (kind, script) = (stage.kinds[me], stage.scripts[me]);
    let is_whole = script.end == End::Whole;
    let waits_for_all = stage.is_whole() && stage.ends_for_both();
    let mut buffer = vec![0; if kind.has_messages() { 70_000 } else { script.read_size }];
    let mut has_met = false;
    let mut silent_since = Instant::now();
    while checker.bytes < script.reads || kind.answers_only() && checker.bytes == 0 {
        if waits_for_all && !has_met && checker.has_all() {
            stage.has_all[me].store(true, Ordering::Release);
            wait_for(&stage.has_all[1 - me]);
            has_met = true;
            if !kind.halves() {
                return true;
            }
            far.finish();
        }
        let had_ended = stage.has_ended.load(Ordering::Acquire);
        let knows_none = kind.answers_only() && checker.bytes == 0;
        match far.read(&mut buffer, SILENCE) {
            Ok(0) => return true,
            Ok(bytes) => {
                silent_since = Instant::now();
                checker.take(&buffer[..bytes]);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                // Messages have no end. What came before the pipe's is there by now.
                if had_ended && kind.has_messages() {
                    return is_whole;
                }
                if !is_whole && !knows_none {
                    return false;
                }
                assert!(silent_since.elapsed() < PATIENCE, "nothing came and no end for {PATIENCE:?}");
            }
            // Of what was sent to somebody who has gone, not of what came.
            Err(error) if kind.has_messages() && error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return true,
        }
    }
    false
}

fn wait_for(what: &AtomicBool) {
    let begin = Instant::now();
    while !what.load(Ordering::Acquire) {
        assert!(begin.elapsed() < PATIENCE, "the other side has not got all in {PATIENCE:?}");
        thread::sleep(Duration::from_micros(200));
    }
}

fn play(far: Far, stage: &Stage<'_>, me: usize) -> Seen {
    let mut checker = stage.checker(me);
    let begun = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(&far, stage, me, &begun));
        if stage.of_messages() && !stage.kinds[me].answers_only() {
            wait_for(&begun);
        }
        let to_the_end = read_all(&far, stage, me, &mut checker);
        // Without halves, who has read to the end can't write any more either.
        if stage.scripts[me].end != End::Whole || !stage.kinds[me].halves() {
            far.cancel(stage.scripts[me].end == End::Reset);
        }
        Seen {
            to_the_end,
            received: checker.bytes,
            received_messages: checker.messages,
            ..writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
    });
    drop(far);
    stage.is_over[me].store(true, Ordering::Release);
    seen
}

/// Makes a pipe of two kinds, plays both sides, and gives what they saw and the account.
fn transfer(stage: &Stage<'_>, tls: &Certificates) -> ([Seen; 2], PipeReport) {
    let directory = tempfile::tempdir().unwrap();
    let content = stage.writes(0).flat_map(|(bytes, _)| bytes).collect::<Vec<u8>>();
    let content = if stage.kinds[0] == Kind::File { content.as_slice() } else { &[] };
    let (to_a, waiting_a) = prepare(stage.kinds[0], directory.path(), "a", content);
    let (to_b, waiting_b) = prepare(stage.kinds[1], directory.path(), "b", &[]);
    let mixed = stage.kinds[0].has_messages() != stage.kinds[1].has_messages();
    // A file is at its end at once, and a pseudoterminal that is closed forgets what was not read from it.
    let hangs_up = stage.kinds[0] == Kind::File && matches!(stage.kinds[1], Kind::Tty | Kind::ExecPty);
    let options = Options {
        framing: if mixed { stage.framing } else { Framing::None },
        once: stage.kinds.iter().any(|kind| kind.listens()),
        linger: if hangs_up { 50 * SILENCE } else { 2 * SILENCE },
        tls: tls.files("server", true),
        ..Options::default()
    };
    let running = Running::start(&to_a, &to_b, options);
    let directory = &directory;
    let waiting = [waiting_a, waiting_b];
    let begin = Instant::now();
    let (summary, seen) = thread::scope(|scope| {
        let mut index = 0;
        let sides = [0, 1].into_iter().zip(waiting).map(|(me, waiting)| {
            let (kind, place, endpoints) = (stage.kinds[me], index, running.endpoints.as_slice());
            index += usize::from(kind.listens());
            scope.spawn(move || match kind {
                Kind::File => of_file(stage, me, directory.path()),
                _ => meet(kind, waiting, endpoints, place, tls, &stage.has_ended)
                    .map_or_else(Seen::default, |far| play(far, stage, me)),
            })
        });
        let sides: Vec<_> = sides.collect();
        // Who sends messages can't say that it has gone: the pipe is asked to end.
        let is_unseen = |me: usize| stage.kinds[me].has_messages() && stage.scripts[me].end != End::Whole;
        let of_both = stage.kinds.iter().all(|kind| kind.has_messages() || *kind == Kind::File);
        let (mut summary, mut is_asked) = (None, false);
        while summary.is_none() || !sides.iter().all(|side| side.is_finished()) {
            if summary.is_none() {
                summary = running.ended.recv_timeout(Duration::from_millis(1)).ok();
                stage.has_ended.store(summary.is_some(), Ordering::Release);
            } else {
                thread::sleep(Duration::from_millis(1));
            }
            let is_over = [0, 1].map(|me| stage.is_over[me].load(Ordering::Acquire));
            let is_unseen = (0..2).any(|me| is_over[me] && is_unseen(me)) || of_both && is_over[0] && is_over[1];
            if is_unseen && !is_asked {
                thread::sleep(SILENCE);
                running.ask_to_stop();
                is_asked = true;
            }
            let broke = sides.iter().any(|side| side.is_finished()) && begin.elapsed() > 2 * PATIENCE;
            assert!(!broke, "the pipe does not end in {PATIENCE:?}");
        }
        (
            summary.unwrap(),
            sides
                .into_iter()
                .map(|side| side.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<_>>(),
        )
    });
    let mut seen = seen.into_iter();
    let mut seen = [seen.next().unwrap(), seen.next().unwrap()];
    if stage.kinds[1] == Kind::File {
        // All that was given to a file is in it.
        let mut checker = stage.checker(1);
        // There is none when the other side was gone before it was opened.
        checker.take(&std::fs::read(directory.path().join("b")).unwrap_or_default());
        seen[1] = Seen {
            received: checker.bytes,
            received_messages: checker.messages,
            to_the_end: true,
            sent_all: true,
            ..Seen::default()
        };
    }
    (seen, summary)
}

/// What a file does: it is read from at once, or takes all there is.
fn of_file(stage: &Stage<'_>, me: usize, directory: &std::path::Path) -> Seen {
    if me == 0 {
        stage.has_all[0].store(true, Ordering::Release);
        stage.is_over[0].store(true, Ordering::Release);
        let (sent, sent_messages) = stage.writes(0).fold((0, 0), |(sum, n), (bytes, _)| (sum + bytes.len(), n + 1));
        return Seen { sent: sent as u64, sent_messages, sent_all: true, to_the_end: true, ..Seen::default() };
    }
    let is_framed = stage.of_messages();
    let length = |bytes: &Vec<u8>| if is_framed { framed(bytes, stage.framing).len() } else { bytes.len() };
    let expected: usize = stage.scripts[0].writes.iter().map(|(bytes, _)| length(bytes)).sum();
    let is_there = || std::fs::metadata(directory.join("b")).is_ok_and(|file| file.len() >= expected as u64);
    let begin = Instant::now();
    while !is_there() && (stage.is_whole() || !stage.is_over[0].load(Ordering::Acquire)) {
        assert!(begin.elapsed() < PATIENCE, "not all has come to the file in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
    stage.has_all[1].store(true, Ordering::Release);
    stage.is_over[1].store(true, Ordering::Release);
    Seen::default()
}

/// Holds what the two sides saw against the account.
fn judge(stage: &Stage<'_>, seen: &[Seen; 2], summary: &PipeReport) {
    for from in [0, 1] {
        judge_direction(stage, from, &seen[from], &seen[1 - from], &summary.accounts[from], summary);
    }
    if stage.is_whole() {
        assert!(!summary.failed, "nothing went wrong, and that is a failure? {summary:?}");
    }
}

fn judge_direction(stage: &Stage<'_>, me: usize, from: &Seen, to: &Seen, account: &Account, summary: &PipeReport) {
    let (source, sink) = (stage.kinds[me], stage.kinds[1 - me]);
    let what = format!("{source:?} to {sink:?}: {from:?} {to:?} {account:?}");
    if me == 1 && (source == Kind::File || sink == Kind::File) {
        // There is no such direction, or what comes is given to nobody.
        assert!(account.bytes == 0 && to.received == 0 && account.undelivered <= from.sent, "{what}");
        return;
    }
    // The lengths or newlines of messages on a stream are the pipe's own.
    let own = if source.has_messages() && !sink.has_messages() { 4 * from.sent_messages } else { 0 };
    assert!(to.received <= account.bytes, "more arrived than was given to the kernel: {what}");
    assert!(account.bytes + account.undelivered <= from.sent + own, "more is told than was sent: {what}");
    // What is in a pseudoterminal when one of its sides is closed may be lost in the kernel, which
    // tells nobody. A Unix datagram socket forgets what it has received when it sends to a peer
    // that has gone (net/unix/af_unix.c, unix_dgram_disconnected).
    let forgets = matches!(sink, Kind::Tty | Kind::ExecPty)
        || matches!(sink, Kind::UnixDgram | Kind::ListenUnixDgram) && !to.sent_all;
    if to.to_the_end && !forgets {
        assert!(to.received + account.unconfirmed >= account.bytes, "less arrived than is told: {what}");
    }
    if account.undelivered > 0 || account.lost_messages > 0 {
        assert!(summary.failed, "something was left, and that is no failure? {what}");
    }
    if stage.of_messages() {
        assert!(to.received_messages <= account.messages, "{what}");
        let most = from.sent_messages + u64::from(stage.may_be_cut(me));
        assert!(account.messages + account.lost_messages <= most, "{what}");
    }
    if stage.is_whole() {
        assert!(from.sent_all, "{what}");
        assert_eq!((account.undelivered, account.unconfirmed, account.lost_messages), (0, 0, 0), "{what}");
        assert_eq!(to.received, account.bytes, "{what}");
        if stage.of_messages() {
            assert_eq!(to.received_messages, from.sent_messages, "{what}");
        } else {
            assert_eq!(to.received, from.sent, "{what}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for a in Kind::ALL {
        for b in Kind::ALL {
            let (to_a, _waiting_a) = prepare(a, directory.path(), "a", b"x");
            let (to_b, _waiting_b) = prepare(b, directory.path(), "b", b"");
            let result = plan(&to_a, &to_b, Options::default()).check();
            match refusal(a, b) {
                Some(hint) => assert!(result.unwrap_err().to_string().contains(hint), "{a:?} and {b:?}"),
                None => result.unwrap_or_else(|error| panic!("{a:?} and {b:?}: {error}")),
            }
            for name in ["a", "b"] {
                let _ = std::fs::remove_file(directory.path().join(name));
            }
        }
    }
}

#[test]
fn what_arrives_was_sent_and_the_account_is_true_through_every_pair() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = Certificates::new();
    let number = |name: &str| std::env::var(name).ok().and_then(|count| count.parse::<u64>().ok());
    let count = number("TAUT_PIPE_TRANSFERS").unwrap_or(USUAL);
    let first = number("TAUT_SEED").unwrap_or(1);
    let pairs: Vec<[Kind; 2]> = Kind::ALL
        .into_iter()
        .flat_map(|a| Kind::ALL.map(|b| [a, b]))
        .filter(|[a, b]| refusal(*a, *b).is_none())
        .collect();
    let (next, failures) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    // One seed is one transfer, whatever the others are.
                    let kinds = pairs[seed as usize % pairs.len()];
                    if let Err(what) = one(kinds, seed, &tls) {
                        failures.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

/// One transfer; what it was when it failed.
fn one(kinds: [Kind; 2], seed: u64, tls: &Certificates) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut scripts = [script(&mut random, kinds[0], kinds[1]), script(&mut random, kinds[1], kinds[0])];
    if kinds[1] == Kind::File {
        // Only written to.
        scripts[1].writes.clear();
    }
    let stage = Stage {
        kinds,
        scripts: [&scripts[0], &scripts[1]],
        framing: if seed.is_multiple_of(2) { Framing::Length } else { Framing::Line },
        has_all: [const { AtomicBool::new(false) }; 2],
        is_over: [const { AtomicBool::new(false) }; 2],
        has_ended: AtomicBool::new(false),
    };
    let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (seen, summary) = transfer(&stage, tls);
        judge(&stage, &seen, &summary);
    }));
    let sizes = |script: &Script| script.writes.iter().map(|(bytes, _)| bytes.len()).collect::<Vec<_>>();
    attempt.map_err(|panic| {
        let why = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        let side = |me: usize| (kinds[me], scripts[me].end, scripts[me].reads, sizes(&scripts[me]));
        format!("TAUT_SEED={seed} TAUT_PIPE_TRANSFERS=1: {:?} and {:?}: {why}", side(0), side(1))
    })
}

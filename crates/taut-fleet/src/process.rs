//! Commands that are running, each in a process group of its own, so that the user's Ctrl-C is ours to handle.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::NamedTempFile;

/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(10);
/// From a signal that ends it to the next, harder one.
const GRACE: Duration = Duration::from_secs(1);
/// From the end of its stdin to the first signal: over there it takes some round trips.
const STDIN_GRACE: Duration = Duration::from_secs(3);
/// No document of a pair is longer, in bytes. Who writes more is ended.
const LONGEST: u64 = 16 << 20;
/// Of what a command said last.
const LAST_WORDS: u64 = 4 << 10;

/// A command, which ends with the value. Its output is in files: who forks to stay (an ssh(1) that others share) keeps
/// no pipe open that we read to its end.
pub(crate) struct Running {
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
    /// Since when its stdin is closed, if it had one.
    closed: Option<Instant>,
    ended: bool,
    /// It could not be ended.
    given_up: bool,
}

/// How a wait ended.
pub(crate) enum Waited<T> {
    /// With what was waited for.
    Done(T),
    /// The time was over.
    TooLong,
    /// The user has no patience.
    Stopped,
}

/// What a command left.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) last_words: String,
}

impl Running {
    /// Starts words as a command; its stdin is given.
    pub(crate) fn start(words: &[String], stdin: Stdio) -> io::Result<Self> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        };
        let (stdout, stderr) = (NamedTempFile::new()?, NamedTempFile::new()?);
        let mut command = Command::new(program);
        command.args(arguments).stdin(stdin).stdout(stdout.reopen()?).stderr(stderr.reopen()?).process_group(0);
        Ok(Self { child: command.spawn()?, stdout, stderr, closed: None, ended: false, given_up: false })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Also when it writes too much; it is ended then.
    pub(crate) fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> io::Result<Waited<Done>> {
        self.wait_unless(limit, &|| stop.load(Ordering::Relaxed))
    }

    /// The same, for what is to stop for other reasons than a flag.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub(crate) fn wait_unless(&mut self, limit: Duration, stops: &dyn Fn() -> bool) -> io::Result<Waited<Done>> {
        let waited = self.until(limit, stops, Self::has_ended)?;
        Ok(match waited {
            Waited::TooLong => Waited::TooLong,
            Waited::Stopped => Waited::Stopped,
            Waited::Done(status) => {
                let stdout = text_of(self.stdout.path())?;
                Waited::Done(Done { status, stdout, last_words: self.last_words() })
            }
        })
    }

    /// Waits for a line of its stdout that means something, or its end.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub(crate) fn wait_for_line<T>(
        &mut self,
        limit: Duration,
        stop: &AtomicBool,
        read: impl Fn(&str) -> Option<T>,
    ) -> io::Result<Waited<Option<T>>> {
        let mut stdout = File::open(self.stdout.path())?;
        // What has been read and is no whole line yet.
        let mut rest = Vec::new();
        self.until(limit, &|| stop.load(Ordering::Relaxed), |running| {
            let has_ended = running.has_ended()?.is_some();
            stdout.by_ref().take(LONGEST).read_to_end(&mut rest)?;
            let whole = rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            let lines = String::from_utf8_lossy(&rest[..whole]).into_owned();
            rest.drain(..whole);
            let found = lines.lines().find_map(&read);
            Ok(if found.is_some() || has_ended { Some(found) } else { None })
        })
    }

    fn until<T>(
        &mut self,
        limit: Duration,
        stops: &dyn Fn() -> bool,
        mut look: impl FnMut(&mut Self) -> io::Result<Option<T>>,
    ) -> io::Result<Waited<T>> {
        let begin = Instant::now();
        loop {
            if self.is_too_loud()? {
                self.end_if_too_loud();
                return Err(io::Error::other(format!("it wrote more than {} MiB, and was ended", LONGEST >> 20)));
            }
            if let Some(found) = look(self)? {
                return Ok(Waited::Done(found));
            }
            if stops() {
                return Ok(Waited::Stopped);
            }
            if begin.elapsed() >= limit {
                return Ok(Waited::TooLong);
            }
            thread::sleep(LOOK);
        }
    }

    fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.ended = status.is_some();
        Ok(status)
    }

    /// Whether its output fills the disk.
    fn is_too_loud(&self) -> io::Result<bool> {
        let length = |file: &NamedTempFile| file.as_file().metadata().map(|about| about.len());
        Ok(length(&self.stdout)?.max(length(&self.stderr)?) > LONGEST)
    }

    /// Ends it without more ado if its output fills the disk.
    pub(crate) fn end_if_too_loud(&mut self) {
        if !self.ended && self.is_too_loud().unwrap_or(false) {
            self.signal(Signal::KILL);
        }
    }

    /// The last line that it wrote to stderr, or how it ended.
    pub(crate) fn last_words(&mut self) -> String {
        let text = end_of(self.stderr.path()).unwrap_or_default();
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        line.unwrap_or_else(|| match self.has_ended() {
            Ok(Some(status)) => format!("it ended with {status} and said nothing"),
            _ => "it said nothing".to_owned(),
        })
    }

    /// How it ended, if it has: with code 0, or with its last words.
    pub(crate) fn end(&mut self) -> Option<Result<(), String>> {
        let status = self.has_ended().ok()??;
        Some(if status.success() { Ok(()) } else { Err(self.last_words()) })
    }

    /// Closes its stdin, at which a server ends by itself.
    pub(crate) fn close_stdin(&mut self) {
        if self.child.stdin.take().is_some() {
            self.closed = Some(Instant::now());
        }
    }

    /// Whether it ends by itself in this time.
    fn ends_within(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !matches!(self.has_ended(), Ok(Some(_)) | Err(_)) {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Ends it with its group, by its stdin first where it has one. Whether it has ended: no signal of ours reaches
    /// what runs as another user (`sudo`), and that is not waited for any longer.
    pub(crate) fn finish(&mut self) -> bool {
        if self.ended || self.given_up {
            return self.ended;
        }
        self.close_stdin();
        let left = self.closed.map(|at| (at + STDIN_GRACE).saturating_duration_since(Instant::now()));
        let mut has_ended = left.is_some_and(|left| self.ends_within(left));
        for signal in [Signal::TERM, Signal::KILL] {
            if !has_ended {
                self.signal(signal);
                has_ended = self.ends_within(GRACE);
            }
        }
        self.given_up = !has_ended;
        has_ended
    }

    /// The number of its process group.
    pub(crate) fn group(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        // It may have ended meanwhile, or be another user's.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish();
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, stdin: Stdio) -> Running {
        Running::start(&["sh", "-c", script].map(str::to_owned), stdin).unwrap()
    }

    #[test]
    fn a_command_is_waited_for_and_heard() {
        let never = AtomicBool::new(false);
        let long = Duration::from_secs(30);
        let waited = start("echo out; echo err >&2; exit 3", Stdio::null()).wait(long, &never).unwrap();
        let Waited::Done(done) = waited else { panic!("it ends") };
        assert_eq!((done.status.code(), done.stdout.as_str(), done.last_words.as_str()), (Some(3), "out\n", "err"));
        let begin = Instant::now();
        let short = Duration::from_millis(50);
        assert!(matches!(start("sleep 30", Stdio::null()).wait(short, &never).unwrap(), Waited::TooLong));
        let stopped = AtomicBool::new(true);
        assert!(matches!(start("sleep 30", Stdio::null()).wait(long, &stopped).unwrap(), Waited::Stopped));
        assert!(begin.elapsed() < Duration::from_secs(20));
        assert!(Running::start(&["/nowhere/at/all".to_owned()], Stdio::null()).is_err());
    }

    #[test]
    fn a_server_ends_with_its_stdin_and_so_do_the_children_of_one_that_does_not() {
        let never = AtomicBool::new(false);
        let long = Duration::from_secs(30);
        let mut server = start("echo noise; echo port 7; cat >/dev/null", Stdio::piped());
        let port = |line: &str| line.strip_prefix("port ").map(str::to_owned);
        let Waited::Done(found) = server.wait_for_line(long, &never, port).unwrap() else { panic!("it says so") };
        assert_eq!(found.as_deref(), Some("7"));
        let begin = Instant::now();
        drop(server);
        // Its child has the same group, and its number is free again when it is gone.
        let mut stubborn = start("sleep 30 & echo $!; wait", Stdio::null());
        let number = |line: &str| line.parse::<i32>().ok();
        let Waited::Done(Some(child)) = stubborn.wait_for_line(long, &never, number).unwrap() else {
            panic!("a number")
        };
        drop(stubborn);
        let child = Pid::from_raw(child).unwrap();
        while rustix::process::test_kill_process(child).is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn who_fills_the_disk_is_ended() {
        let never = AtomicBool::new(false);
        let long = Duration::from_secs(30);
        let begin = Instant::now();
        let error = start("yes", Stdio::null()).wait(long, &never).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("it wrote more than 16 MiB, and was ended"));
        let mut server = start("yes >&2", Stdio::piped());
        while server.end().is_none() {
            server.end_if_too_loud();
            thread::sleep(LOOK);
            assert!(begin.elapsed() < long);
        }
    }

    #[test]
    fn who_is_told_by_his_stdin_has_his_time_also_if_it_is_closed_before() {
        let directory = tempfile::tempdir().unwrap();
        let done = directory.path().join("done");
        // Ended by a signal it would not get to its end.
        let script = format!("cat >/dev/null; sleep 0.5; touch {}", done.display());
        let mut server = start(&script, Stdio::piped());
        server.close_stdin();
        assert!(server.finish());
        assert!(done.exists() && matches!(server.end(), Some(Ok(()))));
    }
}

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
/// From the wish that it ends to the next, harder one.
const GRACE: Duration = Duration::from_secs(1);
/// No document of a pair is longer, in bytes.
const LONGEST: u64 = 16 << 20;
/// Of what a command said last.
const LAST_WORDS: u64 = 4 << 10;

/// A command, which ends with the value. Its output is in files: who forks to stay (an ssh(1) that others share) keeps
/// no pipe open that we read to its end.
pub(crate) struct Running {
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
    ended: bool,
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
        Ok(Self { child: command.spawn()?, stdout, stderr, ended: false })
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self, limit: Duration, stop: &AtomicBool) -> io::Result<Waited<Done>> {
        let waited = self.until(limit, stop, |running| running.has_ended())?;
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
    pub(crate) fn wait_for_line<T>(
        &mut self,
        limit: Duration,
        stop: &AtomicBool,
        read: impl Fn(&str) -> Option<T>,
    ) -> io::Result<Waited<Option<T>>> {
        self.until(limit, stop, |running| {
            let has_ended = running.has_ended()?.is_some();
            let text = text_of(running.stdout.path())?;
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let found = whole.lines().find_map(&read);
            Ok(if found.is_some() || has_ended { Some(found) } else { None })
        })
    }

    fn until<T>(
        &mut self,
        limit: Duration,
        stop: &AtomicBool,
        mut look: impl FnMut(&mut Self) -> io::Result<Option<T>>,
    ) -> io::Result<Waited<T>> {
        let begin = Instant::now();
        loop {
            if let Some(found) = look(self)? {
                return Ok(Waited::Done(found));
            }
            if stop.load(Ordering::Relaxed) {
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

    /// The last line that it wrote to stderr, or how it ended.
    pub(crate) fn last_words(&mut self) -> String {
        let text = end_of(self.stderr.path()).unwrap_or_default();
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        line.unwrap_or_else(|| match self.has_ended() {
            Ok(Some(status)) => format!("it ended with {status} and said nothing"),
            _ => "it said nothing".to_owned(),
        })
    }

    /// How it ended, if it has.
    pub(crate) fn end(&mut self) -> Option<String> {
        matches!(self.has_ended(), Ok(Some(_))).then(|| self.last_words())
    }

    /// Closes its stdin, at which a server ends by itself.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

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
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let waits_for_stdin = self.child.stdin.is_some();
        self.close_stdin();
        if waits_for_stdin && self.ends_within(GRACE) {
            return;
        }
        let group = Pid::from_child(&self.child);
        // Any of it may have ended meanwhile.
        let _ = kill_process_group(group, Signal::TERM);
        if !self.ends_within(GRACE) {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
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
}

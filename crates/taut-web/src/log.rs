//! A line for each request, and for each client that was refused, written by a thread of its own: a
//! reader that stands still costs lines, which are counted, and holds no client up.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use taut_time::Duration;

/// One line.
#[derive(Debug)]
pub struct Entry {
    /// When the request began to be answered, or was refused.
    pub at: SystemTime,
    /// Address of the client where it has one, else the kind of link with the connection's number.
    pub peer: String,
    /// What happened.
    pub what: What,
}

/// What a line tells.
#[derive(Debug)]
pub enum What {
    /// A request was answered.
    Answered {
        /// Its method, as the client wrote it.
        method: String,
        /// Its target, as the client wrote it.
        target: String,
        /// Status of the answer.
        status: u16,
        /// Bytes of the answer's content that went to the link.
        bytes: u64,
        /// Whether that was all of it.
        whole: bool,
        /// From the whole head of the request to the last byte of the answer handed over.
        took: Duration,
        /// Why something was refused.
        note: Option<&'static str>,
    },
    /// A client was refused or dropped before its request was whole.
    Refused {
        /// Why.
        why: String,
    },
}

/// Characters of a target or method that are shown.
const SHOWN: usize = 256;
/// Lines that wait for the writer.
const WAITING: usize = 1024;
/// How long the end waits for the writer: a reader that stands still must not keep the server alive.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How often it looks for room in the queue then.
const LOOK: Duration = Duration::from_millis(10);

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", humantime::format_rfc3339_millis(self.at), self.peer)?;
        match &self.what {
            What::Answered { method, target, status, bytes, whole, took, note } => {
                let end = if *whole { "" } else { " unfinished" };
                let took = took.as_secs_f64() * 1e3;
                write!(f, "\"{} {}\" {status} {bytes} B{end} {took:.3} ms", shown(method), shown(target))?;
                note.map_or(Ok(()), |note| write!(f, " ({note})"))
            }
            What::Refused { why } => write!(f, "refused: {}", shown(why)),
        }
    }
}

/// What a client wrote, unable to end the line, to colour a terminal or to pretend that a quotation is over.
fn shown(text: &str) -> String {
    let plain = |c: char| (c.is_ascii_graphic() && !matches!(c, '"' | '\\')) || c == ' ';
    let mut characters = text.chars();
    let mut shown = String::new();
    for c in characters.by_ref().take(SHOWN) {
        if plain(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    if characters.next().is_some() {
        shown.push_str("...");
    }
    shown
}

/// Where lines go.
#[derive(Clone, Debug, Default)]
pub struct Log(Option<Arc<Writer>>);

#[derive(Debug)]
struct Writer {
    sender: SyncSender<Option<Entry>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lost: AtomicU64,
    /// Lines that were taken and are not written yet.
    unwritten: Arc<AtomicU64>,
}

impl Log {
    /// No log.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Writes lines to `output`.
    pub fn to(output: impl Write + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::sync_channel(WAITING);
        let unwritten = Arc::<AtomicU64>::default();
        let left = Arc::clone(&unwritten);
        let thread = thread::spawn(move || write_all(&receiver, output, &left));
        Self(Some(Arc::new(Writer { sender, thread: Mutex::new(Some(thread)), lost: AtomicU64::new(0), unwritten })))
    }

    /// Takes a line, unless too many wait already.
    pub fn take(&self, entry: Entry) {
        let Some(writer) = &self.0 else { return };
        writer.unwritten.fetch_add(1, Ordering::Relaxed);
        if writer.sender.try_send(Some(entry)).is_err() {
            writer.unwritten.fetch_sub(1, Ordering::Relaxed);
            writer.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that were lost.
    pub fn lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |writer| writer.lost.load(Ordering::Relaxed))
    }

    /// Waits until all that was taken is written, but no more than two seconds: what a reader that
    /// stands still has not let through by then is lost, and its thread is left behind.
    pub fn finish(&self) {
        let Some(writer) = &self.0 else { return };
        let Some(thread) = writer.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let begun = Instant::now();
        let mut is_told = false;
        while !thread.is_finished() && begun.elapsed() < LAST_LINES {
            // Refused while the queue is full, and when nobody is there any more.
            is_told = is_told || writer.sender.try_send(None).is_ok();
            thread::sleep(LOOK);
        }
        if thread.is_finished() {
            // A writer that panicked has written what it could.
            let _ = thread.join();
        }
        writer.lost.fetch_add(writer.unwritten.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn write_all(lines: &Receiver<Option<Entry>>, mut output: impl Write, unwritten: &AtomicU64) {
    while let Ok(Some(entry)) = lines.recv() {
        // Whoever closed the log does not want it; the server goes on.
        let _ = output.write_all(format!("{entry}\n").as_bytes());
        unwritten.fetch_sub(1, Ordering::Relaxed);
    }
    let _ = output.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_not_write_lines_of_its_own() {
        let text = shown("/a\"\r\n2026 evil\u{1b}[31m\u{202e}\\");
        assert_eq!(text, "/a\\\"\\r\\n2026 evil\\u{1b}[31m\\u{202e}\\\\");
        assert_eq!(shown(&"a".repeat(300)).len(), SHOWN + 3);
    }

    #[test]
    fn a_log_that_nobody_reads_loses_lines_and_counts_them() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                // Until the test lets go.
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (release, stuck) = mpsc::channel();
        let log = Log::to(Stuck(stuck));
        let all = WAITING as u64 + 100;
        for _ in 0..all {
            let entry =
                Entry { at: SystemTime::UNIX_EPOCH, peer: "x".into(), what: What::Refused { why: String::new() } };
            log.take(entry);
        }
        // One may have been taken out of the queue before it stood still.
        assert!((99..=100).contains(&log.lost()), "{}", log.lost());
        // It still stands, and is not waited for; what it has not written is lost.
        log.finish();
        assert_eq!(log.lost(), all);
        drop(release);
    }

    #[test]
    fn the_last_lines_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = Log::to(std::fs::File::create(&path).unwrap());
        for _ in 0..WAITING / 2 {
            let what = What::Refused { why: String::new() };
            log.take(Entry { at: SystemTime::UNIX_EPOCH, peer: "x".into(), what });
        }
        log.finish();
        assert_eq!((std::fs::read_to_string(&path).unwrap().lines().count(), log.lost()), (WAITING / 2, 0));
    }
}

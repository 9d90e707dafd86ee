use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use taut_event::{Call, Closed, Event, Flow, FlowId, FlowKey, Listening, Sink, Task, What};
use taut_time::Instant;

use super::line::{
    CLOSINGS, LARGEST, LONGEST, MARK, MOST_FLOWS, MOST_NAMES, RELEASES, STAMPS, VERSION, arrow, bits, word_of,
};
use super::state::Numbers;
use super::{channel, link};

/// Writes what a live trace reports, as it comes. It stops at a limit, and at the first error.
#[derive(Debug)]
pub struct Recorder<W> {
    to: W,
    /// Time of the event before.
    at: u64,
    /// Flows that are open, each with its last state.
    open: HashMap<u32, Numbers>,
    names: usize,
    bytes: u64,
    limit: u64,
    is_full: bool,
    failed: Option<io::Error>,
    line: String,
}

impl<W: Write> Recorder<W> {
    /// Begins a file that holds events up to so many bytes; a few lines come behind them.
    pub fn new(to: W, limit: u64) -> Self {
        let mut recorder = Self {
            to,
            at: 0,
            open: HashMap::new(),
            names: 0,
            bytes: 0,
            limit,
            is_full: false,
            failed: None,
            line: String::new(),
        };
        recorder.line.push_str(MARK);
        recorder.line.push_str(VERSION);
        recorder.put();
        recorder
    }

    /// Facts of the trace so far, as a JSON object in one line; the last ones count. One beyond 1 MiB is left out.
    pub fn facts(&mut self, json: &str) {
        if json.len() as u64 + 8 < LONGEST && !json.contains('\n') {
            let _ = write!(self.line, "m {json}");
            self.put();
        }
    }

    /// The program of a thread; of 65,536 threads at most.
    pub fn name(&mut self, thread: u32, program: &str) {
        if self.names < MOST_NAMES && program.len() < 4096 {
            self.names += 1;
            // A string is always JSON.
            let _ = write!(self.line, "p {thread} {}", serde_json::Value::from(program));
            self.put();
        }
    }

    /// Whether events were left out for want of room.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The first error of all that was written so far; after it nothing more is written.
    pub const fn error(&self) -> Option<&io::Error> {
        self.failed.as_ref()
    }

    /// Hands on all lines so far, so that they are there even if the program is killed. An error is kept.
    pub fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.flush().err();
        }
    }

    /// Ends the file. The trace lasted until `end`.
    ///
    /// # Errors
    ///
    /// The first one of all that was written.
    pub fn finish(mut self, end: Instant) -> io::Result<W> {
        let _ = write!(self.line, ". {}", end.as_nanos());
        self.put();
        match self.failed {
            Some(error) => Err(error),
            None => self.to.flush().map(|()| self.to),
        }
    }

    /// Writes the line out.
    fn put(&mut self) {
        self.line.push('\n');
        if self.failed.is_none() {
            self.failed = self.to.write_all(self.line.as_bytes()).err();
        }
        self.bytes += self.line.len() as u64;
        self.line.clear();
    }

    /// Whether one more event has room. The first that has not is the last line of events.
    fn has_room(&mut self) -> bool {
        if !self.is_full && self.bytes >= self.limit {
            self.is_full = true;
            self.line.push('x');
            self.put();
        }
        !self.is_full
    }

    /// The rest of an event's line; `false` for what live traces do not report.
    fn what(&mut self, event: &Event) -> bool {
        let Event { what, bytes, flow, .. } = event;
        let line = &mut self.line;
        // Writing to a string does not fail.
        let _ = match what {
            What::Reached(_) => write!(line, " {} {}", bytes.start, bytes.len()),
            What::Call(Call::Begin { number }) => write!(line, " {number}"),
            What::Call(Call::End { number, result }) => write!(line, " {number} {result}"),
            What::Task(Task::Ran { waited_ns } | Task::Polled { waited_ns } | Task::TimedOut { waited_ns }) => {
                write!(line, " {waited_ns}")
            }
            What::Task(_) | What::Gap | What::Awaits | What::Accepted | What::IsPath => Ok(()),
            What::Released(release) => match word_of(&RELEASES, release) {
                Some(word) => write!(line, " {word}"),
                None => return false,
            },
            What::Listens(Listening { waiting, backlog }) => write!(line, " {waiting} {backlog}"),
            What::Hci(what) => {
                link::write_event(what, line);
                Ok(())
            }
            What::L2cap(what) => return channel::write_event(what, *bytes, line),
            What::IsEnd(end) => {
                channel::write_end(end, line);
                Ok(())
            }
            What::State(state) => {
                let now = Numbers::of(state);
                let Some(before) = self.open.insert(flow.0, now) else { return false };
                if now != before {
                    line.push(' ');
                    now.write(before, line);
                }
                Ok(())
            }
            _ => return false,
        };
        true
    }
}

fn letter(what: &What) -> Option<char> {
    Some(match what {
        What::Reached(stamp) => return word_of(&STAMPS, stamp),
        What::Call(Call::Begin { .. }) => 'c',
        What::Call(Call::End { .. }) => 'C',
        What::Task(Task::Slept) => 'w',
        What::Task(Task::Woken) => 'k',
        What::Task(Task::Ran { .. }) => 't',
        What::Task(Task::Polled { .. }) => 'u',
        What::Task(Task::TimedOut { .. }) => 'v',
        What::State(_) => 'q',
        What::Released(_) => 'o',
        What::Gap => 'g',
        What::L2cap(_) => 'h',
        What::Hci(_) => 'y',
        What::Listens(_) => 'j',
        What::Awaits => 'W',
        What::Accepted => 'A',
        What::IsPath => 'M',
        What::IsEnd(_) => 'n',
        _ => return None,
    })
}

impl<W: Write> Sink for Recorder<W> {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        if id.0 >= MOST_FLOWS || !self.has_room() {
            return;
        }
        let start = if flow.from_start { 's' } else { '-' };
        let _ = write!(self.line, "f {} {:x} {start} ", id.0, bits(flow.coverage));
        let _ = match flow.key {
            FlowKey::Tcp(own, peer) => write!(self.line, "tcp {own} {peer}"),
            FlowKey::L2cap(key) => {
                self.line.push_str("channel");
                channel::write_key(&key, &mut self.line);
                Ok(())
            }
            FlowKey::Link(key) => {
                self.line.push_str("link");
                link::write_key(&key, &mut self.line);
                Ok(())
            }
            FlowKey::Local(key) => match key.ends {
                Some((own, peer)) => write!(self.line, "{} {} {own} {peer}", key.kind.name(), key.inode),
                None => write!(self.line, "{} {}", key.kind.name(), key.inode),
            },
            _ => return self.line.clear(),
        };
        self.open.insert(id.0, Numbers::default());
        self.put();
    }

    fn event(&mut self, event: &Event) {
        let (Some(letter), at) = (letter(&event.what), event.at.as_nanos().min(LARGEST)) else { return };
        if !self.open.contains_key(&event.flow.0) || !self.has_room() {
            return;
        }
        let step = at.cast_signed() - self.at.cast_signed();
        let _ = write!(self.line, "{letter}{} {} {step} ", arrow(event.direction), event.flow.0);
        let _ = match event.who {
            Some(task) => write!(self.line, "{}", task.0),
            None => write!(self.line, "-"),
        };
        if !self.what(event) {
            return self.line.clear();
        }
        self.at = at;
        self.put();
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        if self.open.remove(&id.0).is_some() && self.has_room() {
            let _ = write!(self.line, "z {} {}", id.0, word_of(&CLOSINGS, &why).unwrap_or("over"));
            self.put();
        }
    }
}

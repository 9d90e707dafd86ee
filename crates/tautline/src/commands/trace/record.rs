//! `--events`: what the trace saw, in a file that `taut explain` takes.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use taut_capture::Recorder;
use taut_event::{Closed, Event, Flow, FlowId, Sink};
use taut_explain::trace::Trace;
use taut_link::Error;
use taut_report::TraceFacts;
use taut_time::{Duration, Instant};

use crate::output;

/// A file has no more than this, in bytes: some ten million events.
const LIMIT: u64 = 1 << 30;
/// Between two lines of facts, for a file whose end is never written.
const FACTS: Duration = Duration::from_secs(1);

/// Refuses what is no file to write into; `/dev/null` and its like are.
pub(super) fn refuse_pipes(path: &Path) -> anyhow::Result<()> {
    // What is not there yet becomes a file, and what can't be looked at can't be opened either.
    let Ok(kind) = fs::metadata(path).map(|about| about.file_type()) else { return Ok(()) };
    if kind.is_file() || kind.is_char_device() {
        return Ok(());
    }
    let what = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_dir() => "a directory",
        () => "no regular file",
    };
    let text = format!("--events: {} is {what}: name a file, which `taut explain` reads later", path.display());
    Err(Error::Input(text).into())
}

/// A file that is being written.
pub(super) struct Recording {
    path: PathBuf,
    recorder: Recorder<BufWriter<File>>,
    due: Instant,
}

impl Recording {
    pub(super) fn start(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
        let recorder = Recorder::new(BufWriter::with_capacity(1 << 20, file), LIMIT);
        Ok(Self { path: path.to_owned(), recorder, due: Instant::default() })
    }

    /// Writes out all lines every second, with what is known so far. `false`, and said, once something could not be
    /// written.
    pub(super) fn tick(&mut self, now: Instant, facts: impl FnOnce() -> TraceFacts) -> bool {
        if now >= self.due {
            self.due = now + FACTS;
            self.facts(&facts());
            self.recorder.flush();
        }
        match self.recorder.error() {
            Some(error) => {
                let path = output::shown(&self.path);
                anstream::eprintln!("taut: write {path}: {error}; the trace goes on, and is no longer recorded");
                false
            }
            None => true,
        }
    }

    fn facts(&mut self, facts: &TraceFacts) {
        // Keys are strings and nothing else can fail.
        self.recorder.facts(&serde_json::to_string(facts).unwrap_or_default());
    }

    /// Ends the file with the facts, the programs of threads, and when the trace ended.
    pub(super) fn finish(
        mut self,
        facts: &TraceFacts,
        programs: impl Iterator<Item = (u32, String)>,
        end: Instant,
    ) -> anyhow::Result<()> {
        self.facts(facts);
        programs.for_each(|(thread, program)| self.recorder.name(thread, &program));
        if self.recorder.is_full() {
            anstream::eprintln!(
                "taut: {} holds the first {} MiB of events, and no more is written of a trace",
                output::shown(&self.path),
                LIMIT >> 20
            );
        }
        let finished = self.recorder.finish(end).and_then(|file| file.into_inner().map_err(io::Error::from));
        finished.map(drop).with_context(|| format!("write {}", self.path.display()))
    }
}

/// What takes the events of the trace.
pub(super) struct Both<'a> {
    pub(super) trace: &'a mut Trace,
    pub(super) recording: Option<&'a mut Recording>,
}

impl Sink for Both<'_> {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        self.trace.flow(id, flow);
        if let Some(recording) = &mut self.recording {
            recording.recorder.flow(id, flow);
        }
    }

    fn event(&mut self, event: &Event) {
        self.trace.event(event);
        if let Some(recording) = &mut self.recording {
            recording.recorder.event(event);
        }
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.trace.close(id, why);
        if let Some(recording) = &mut self.recording {
            recording.recorder.close(id, why);
        }
    }
}

use std::path::Path;

use taut_link::{Error, clock};
use taut_report::figures::{Family, Span};
use taut_time::{Duration, Instant};

use super::args::{ExportArgs, interval};
use super::exports::Exports;
use super::intervals::{due, unix_ns};

/// For commands that are at work anyway: what they did, interval by interval.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Figures")]
pub(crate) struct BeatArgs {
    /// Tell what was done in intervals of this length, from 500ms to 1h, by one of the three below
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
    #[command(flatten)]
    exports: ExportArgs,
}

impl BeatArgs {
    /// Opens what is asked for; `None` if nothing is. `families` are those of nothing done.
    pub(crate) fn open(&self, families: Vec<Family<'_>>) -> anyhow::Result<Option<Beat>> {
        let ExportArgs { jsonl, prometheus, otlp } = &self.exports;
        let is_told = jsonl.is_some() || prometheus.is_some() || otlp.is_some();
        let every = match (self.every, is_told) {
            (None, false) => return Ok(None),
            (Some(every), true) => every,
            (None, true) => {
                let text = "--jsonl, --prometheus and --otlp tell of intervals: add --every, such as --every 10s";
                return Err(Error::Input(text.into()).into());
            }
            (Some(_), false) => {
                let text = "--every tells by --jsonl, --prometheus or --otlp: add one of them";
                return Err(Error::Input(text.into()).into());
            }
        };
        let mut exports = Exports::open(&self.exports)?;
        exports.sums(families, None);
        let (now, unix) = (clock::now(), unix_ns());
        let (begin, due) = ((now, unix), now + every);
        Ok(Some(Beat { exports, every, begin, began: begin, due, number: 0 }))
    }

    /// The file to which lines go.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.exports.jsonl.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// Whether lines go to stdout.
    pub(crate) fn take_stdout(&self) -> bool {
        self.exports.take_stdout()
    }
}

/// Where figures of intervals go, and when the next are due.
#[derive(Debug)]
pub(crate) struct Beat {
    exports: Exports,
    every: Duration,
    begin: (Instant, u64),
    began: (Instant, u64),
    due: Instant,
    number: u64,
}

/// What every line begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) interval: u64,
    pub(crate) began_unix_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) lines_lost: u64,
}

impl Beat {
    /// When the interval is over.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Tells an interval that is over, and begins the next.
    pub(crate) fn tell(&mut self, line: impl FnOnce(Head) -> String, families: Vec<Family<'_>>) {
        let (now, unix) = (clock::now(), unix_ns());
        let head = Head {
            interval: self.number,
            began_unix_ns: self.began.1,
            duration_ns: u64::try_from(now.saturating_since(self.began.0).as_nanos()).unwrap_or(u64::MAX),
            lines_lost: self.exports.lines_lost(),
        };
        self.exports.line(|| line(head));
        // A wall clock may be set back.
        let span = Span { begin_unix_ns: self.begin.1, end_unix_ns: unix.max(self.begin.1) };
        self.exports.sums(families, Some(span));
        (self.began, self.number) = ((now, unix), self.number + 1);
        self.due = due(self.begin.0, self.every, now);
    }

    /// Whether all that was told has left.
    pub(crate) fn close(self) -> bool {
        self.exports.close()
    }
}

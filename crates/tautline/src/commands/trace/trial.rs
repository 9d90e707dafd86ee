//! `--try`: an option on the live sockets, in turn with spans without it.

use std::collections::HashSet;
use std::time::Duration;

use taut_event::Holder;
use taut_explain::trace::{Trace, Written};
use taut_report::{TRIAL_PAIRS, Trial, TrialPair, TrialSlice, Tried, trial_outcome};
use taut_source::{Settings, Trying};
use taut_time::Instant;

/// What can be tried.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Choice {
    /// Set `TCP_NODELAY`, which turns Nagle's algorithm off
    Nodelay,
}

impl Choice {
    const fn tried(self) -> Tried {
        match self {
            Self::Nodelay => Tried::NoDelay,
        }
    }
}

/// A trial that goes on.
pub(super) struct Running {
    choice: Choice,
    trying: Trying,
    port: Option<u16>,
    slice: Duration,
    /// Begin of the span.
    begin: Instant,
    /// When it is to end.
    due: Instant,
    /// The option was just set or cleared, which may take long among many sockets: the span begins with what is
    /// read next.
    is_set_up: bool,
    /// Spans that are over, in the order of time.
    done: Vec<TrialSlice>,
    before: Written,
    most: Settings,
}

impl Running {
    /// Begins with a span as the sockets are.
    pub(super) fn start(choice: Choice, port: Option<u16>, whole: Duration, begin: Instant) -> anyhow::Result<Self> {
        let slice = whole / (2 * TRIAL_PAIRS);
        Ok(Self {
            choice,
            trying: Trying::open()?,
            port,
            slice,
            begin,
            due: begin + slice,
            is_set_up: false,
            done: Vec::new(),
            before: Written::default(),
            most: Settings::default(),
        })
    }

    /// When to read the trace next, at the latest.
    pub(super) const fn due(&self) -> Instant {
        if self.is_set_up { self.begin } else { self.due }
    }

    /// Without and with, with and without, …: what drifts is in both alike.
    fn is_with(slice: usize) -> bool {
        matches!(slice % 4, 1 | 2)
    }

    /// Ends a span that is over, and begins the next one. To be called after each reading of the trace.
    pub(super) fn go_on(&mut self, now: Instant, trace: &Trace, processes: &HashSet<i32>) -> anyhow::Result<()> {
        if std::mem::take(&mut self.is_set_up) {
            (self.begin, self.due, self.before) = (now, now + self.slice, trace.written());
            return Ok(());
        }
        if now < self.due || self.is_over() {
            return Ok(());
        }
        let written = trace.written();
        let span = written.since(&self.before);
        self.done.push(TrialSlice {
            span_ns: u64::try_from(now.saturating_since(self.begin).as_nanos()).unwrap_or(u64::MAX),
            writes: span.writes,
            held_ns: span.held_by(Holder::Nagle),
        });
        self.trying.clear();
        self.is_set_up = true;
        if !self.is_over() && Self::is_with(self.done.len()) {
            let settings = self.trying.set(processes, self.port)?;
            self.most = Settings {
                set: self.most.set.max(settings.set),
                had: self.most.had.max(settings.had),
                corked: self.most.corked.max(settings.corked),
                refused: self.most.refused.max(settings.refused),
            };
        }
        Ok(())
    }

    /// Whether all spans are over.
    pub(super) fn is_over(&self) -> bool {
        self.done.len() >= 2 * TRIAL_PAIRS as usize
    }

    /// Puts everything back. A span that was not to its end counts for nothing.
    pub(super) fn finish(mut self) -> Trial {
        self.trying.clear();
        let pairs: Vec<TrialPair> = self
            .done
            .chunks_exact(2)
            .enumerate()
            .map(|(number, two)| match Self::is_with(2 * number) {
                true => TrialPair { without: two[1], with: two[0] },
                false => TrialPair { without: two[0], with: two[1] },
            })
            .collect();
        Trial {
            option: self.choice.tried(),
            sockets: self.most.set as u64,
            had: self.most.had as u64,
            corked: self.most.corked as u64,
            refused: self.most.refused as u64,
            stuck: self.trying.stuck() as u64,
            slice_ns: u64::try_from(self.slice.as_nanos()).unwrap_or(u64::MAX),
            outcome: trial_outcome(self.most.set as u64, &pairs),
            pairs,
        }
    }
}

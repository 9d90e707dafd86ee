//! `--try`: an option on the live sockets, in turn with spans without it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use taut_event::{Address, Holder};
use taut_explain::trace::{Trace, Written};
use taut_report::{TRIAL_PAIRS, Trial, TrialPair, TrialSlice, Tried, trial_outcome};
use taut_source::{Change, Settings, Trying};
use taut_time::Instant;

/// What can be tried.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Choice {
    /// Set `TCP_NODELAY`, which turns Nagle's algorithm off
    Nodelay,
    /// Clear `TCP_CORK` where the program never does
    Uncork,
}

impl Choice {
    const fn change(self) -> Change {
        match self {
            Self::Nodelay => Change::NoDelay,
            Self::Uncork => Change::Uncork,
        }
    }

    const fn tried(self) -> Tried {
        match self {
            Self::Nodelay => Tried::NoDelay,
            Self::Uncork => Tried::Uncork,
        }
    }

    /// Whose time it may save. What is uncorked may wait for Nagle's algorithm then, which is no gain.
    const fn holders(self) -> &'static [Holder] {
        match self {
            Self::Nodelay => &[Holder::Nagle],
            Self::Uncork => &[Holder::Cork, Holder::Nagle],
        }
    }

    /// What is done, for whoever sees it done.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::Nodelay => "sets TCP_NODELAY",
            Self::Uncork => "clears TCP_CORK",
        }
    }
}

type Ends = (Address, Address);

/// What `sock_diag` and the trace both name it by.
const fn ends(local: SocketAddr, peer: SocketAddr) -> Ends {
    (Address { ip: local.ip(), port: local.port() }, Address { ip: peer.ip(), port: peer.port() })
}

/// A trial that goes on.
pub(super) struct Running {
    choice: Choice,
    trying: Trying,
    /// Connections whose cork was forgotten, as the first span showed, with how often they were seen corked.
    forgotten: Option<HashMap<Ends, u64>>,
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
            trying: Trying::open(choice.change())?,
            forgotten: None,
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
            // What was corked before the change has been read by now.
            let seen = trace.corks();
            for (ends, states) in self.forgotten.iter_mut().flatten() {
                *states = seen.get(ends).map_or(0, |corked| corked.states);
            }
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
            held_ns: self.choice.holders().iter().map(|&holder| span.held_by(holder)).sum(),
        });
        self.leave_recorked(trace, self.done.len() - 1);
        self.trying.clear();
        self.is_set_up = true;
        if !self.is_over() && Self::is_with(self.done.len()) {
            let forgotten = self.forgotten.get_or_insert_with(|| {
                let corks = trace.corks().into_iter().filter(|(_, corked)| corked.is_forgotten);
                corks.map(|(ends, corked)| (ends, corked.states)).collect()
            });
            let is_forgotten = |local, peer| forgotten.contains_key(&ends(local, peer));
            let settings = self.trying.set(processes, self.port, is_forgotten)?;
            self.most = Settings {
                set: self.most.set.max(settings.set),
                had: self.most.had.max(settings.had),
                corked: self.most.corked.max(settings.corked),
                refused: self.most.refused.max(settings.refused),
            };
        }
        Ok(())
    }

    /// A connection that was corked again while it had the change: its program does that itself, so a cork of ours
    /// could stay where the program wants none.
    fn leave_recorked(&mut self, trace: &Trace, slice: usize) {
        if !Self::is_with(slice) || self.is_set_up {
            return;
        }
        let Some(forgotten) = &mut self.forgotten else { return };
        let seen = trace.corks();
        forgotten.retain(|&(own, peer), states| {
            let is_again = seen.get(&(own, peer)).is_some_and(|corked| corked.states > *states);
            if is_again {
                self.trying.leave((own.ip, own.port).into(), (peer.ip, peer.port).into());
            }
            !is_again
        });
    }

    /// Whether all spans are over.
    pub(super) fn is_over(&self) -> bool {
        self.done.len() >= 2 * TRIAL_PAIRS as usize
    }

    /// Puts everything back. A span that was not to its end counts for nothing.
    pub(super) fn finish(mut self, trace: &Trace) -> Trial {
        self.leave_recorked(trace, self.done.len());
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
            slice_ns: u64::try_from(self.slice.as_nanos()).unwrap_or(u64::MAX),
            outcome: trial_outcome(self.most.set as u64, &pairs),
            pairs,
        }
    }
}

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use taut_fleet::{AgentCounts, AgentTally};
use taut_link::clock;
use taut_record::FORMAT_VERSION;
use taut_report::figures::{AgentIntervalDocument, agent_families};

use crate::figures::{Beat, Head};

/// What an agent at work tells, interval by interval. It has a thread of its own, since a reader that stands still must
/// not hold up the agent.
pub(super) struct AgentFigures {
    beat: Beat,
    agent: String,
    tally: Arc<AgentTally>,
    before: AgentCounts,
}

impl AgentFigures {
    pub(super) fn new(beat: Beat, agent: String, tally: Arc<AgentTally>) -> Self {
        Self { beat, agent, tally, before: AgentCounts::default() }
    }

    /// Tells until the channel's other end is gone, and then what there is of the last interval. Whether all that was
    /// told has left.
    pub(super) fn run(mut self, end: &Receiver<()>) -> bool {
        loop {
            let left = self.beat.due().saturating_since(clock::now());
            match end.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => self.tell(),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.tell();
        self.beat.close()
    }

    fn tell(&mut self) {
        let now = self.tally.so_far();
        let (agent, before) = (&self.agent, &self.before);
        let line = |head: Head| {
            let document = AgentIntervalDocument {
                interval: head.interval,
                began_unix_ns: head.began_unix_ns,
                duration_ns: head.duration_ns,
                lines_lost: head.lines_lost,
                agent: agent.clone(),
                ..AgentIntervalDocument::between(FORMAT_VERSION, before, &now)
            };
            document.to_json()
        };
        self.beat.tell(line, agent_families(&now));
        self.before = now;
    }
}

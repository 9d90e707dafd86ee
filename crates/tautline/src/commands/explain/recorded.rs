//! What `taut trace --events` wrote, explained by the same ledger as the trace itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use indicatif::ProgressBar;
use taut_capture::{Ending, Recorded};
use taut_event::{Closed, Event, Flow, FlowId, Sink};
use taut_explain::join::{TraceLog, TracedLinks};
use taut_explain::trace::Trace;
use taut_link::Error;
use taut_measure::Interrupt;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{ExplainedFile, ExplainedTrace, TraceDocument, TraceFacts};

use crate::joining::{OnTimelines, Seen};
use crate::output;

/// A file that is open, and not read yet.
pub(super) struct Recording {
    pub(super) name: String,
    pub(super) from: Recorded<'static>,
    pub(super) bar: ProgressBar,
    /// Bytes read so far.
    pub(super) done: Arc<AtomicU64>,
}

/// What is asked of it.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// So many directions are reported.
    pub(super) top: usize,
    /// How many stretches are drawn, if any.
    pub(super) spans: Option<usize>,
    /// It is an error if it can't be joined with a capture.
    pub(super) must_be_joined: bool,
}

/// What takes the events: the ledger of the trace, and what is held against captures.
struct All<'a> {
    trace: Trace,
    logs: Vec<TraceLog<'a>>,
    links: Option<TracedLinks>,
}

impl Sink for All<'_> {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        self.trace.flow(id, flow);
        self.logs.iter_mut().for_each(|log| log.flow(id, flow));
        self.links.iter_mut().for_each(|links| links.flow(id, flow));
    }

    fn event(&mut self, event: &Event) {
        self.trace.event(event);
        self.logs.iter_mut().for_each(|log| log.event(event));
        self.links.iter_mut().for_each(|links| links.event(event));
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.trace.close(id, why);
        self.logs.iter_mut().for_each(|log| log.close(id, why));
        self.links.iter_mut().for_each(|links| links.close(id, why));
    }
}

impl Recording {
    /// Explains it, and puts it on the timelines of captures that have its connections or links.
    pub(super) fn explain(
        self,
        Asked { top, spans, must_be_joined }: Asked,
        interrupt: &Interrupt,
        (seen, captures): (&[Seen], &[ExplainedFile]),
        remark: impl Fn(&Ending) -> Option<String>,
    ) -> anyhow::Result<(ExplainedTrace, OnTimelines)> {
        let Self { name: file, from, bar, done } = self;
        let trace = Trace::new(top);
        let trace = match spans {
            Some(spans) => trace.with_spans(spans),
            None => trace,
        };
        let spans = spans.unwrap_or(output::SPANS);
        let captures = || seen.iter().zip(captures);
        let logs = captures().map(|(seen, file)| TraceLog::new(seen.internet(), &file.explanation, spans)).collect();
        let has_bluetooth = |seen: &Seen| !seen.bluetooth().is_empty();
        let links = seen.iter().any(has_bluetooth).then(TracedLinks::default);
        let mut all = All { trace, logs, links };
        let end =
            from.read(&mut all, || bar.set_position(done.load(Ordering::Relaxed))).with_context(|| file.clone())?;
        bar.finish_and_clear();
        if let Some(found) = end.facts.as_deref().and_then(TraceFacts::newer_format) {
            return Err(Error::Input(format!(
                "{file} has format version {found}, but this Tautline reads up to {FORMAT_VERSION}: use a newer one"
            ))
            .into());
        }
        let facts = end.facts.as_deref().and_then(TraceFacts::from_json);
        let mut remarks: Vec<String> = remark(&end.ending).into_iter().collect();
        if facts.is_none() {
            remarks.push("The file does not tell what was traced and what was lost.".to_owned());
        } else if end.at.is_none() {
            remarks.push("What is said of records and losses is up to a second older than the last event.".to_owned());
        }
        if end.is_full {
            remarks
                .push("The trace saw more than the file has room for; what came after that is not in it.".to_owned());
        }
        // Of events that are not all there the time after the last one is not known.
        let until = end.at.filter(|_| !end.is_full).unwrap_or_default();
        let mut result = all.trace.finish(until);
        result.name_programs(|thread| end.programs.get(&thread).cloned());
        let facts = facts.unwrap_or_else(|| TraceFacts {
            format_version: FORMAT_VERSION,
            command: "trace".to_owned(),
            command_line: "taut trace".to_owned(),
            ended: Ended::Interrupted,
            traced: "a trace".to_owned(),
            records: None,
            lost_records: None,
            missing_hooks: Vec::new(),
            clock: None,
            remarks: Vec::new(),
            trial: None,
        });
        let trace = TraceDocument { facts, result };
        let mut explained = ExplainedTrace { file, bytes: end.bytes, remarks, trace };
        let mut joined = OnTimelines::default();
        if interrupt.is_set() {
            return Ok((explained, joined));
        }
        let clock = explained.trace.facts.clock;
        if let Some(links) = all.links.map(|links| links.finish(until, clock.as_ref())).filter(|all| !all.is_empty()) {
            for (seen, reference) in captures().filter(|(seen, _)| has_bluetooth(seen)) {
                let on_timeline = links.join(seen.bluetooth(), &end.programs);
                joined.links(on_timeline, &reference.file, &explained.file);
            }
        }
        for (log, (_, reference)) in all.logs.into_iter().zip(captures()) {
            let on_timeline = log.join(until, clock.as_ref(), &end.programs);
            joined.trace(on_timeline, &reference.file, &explained.file);
        }
        joined.told(&mut explained, must_be_joined)?;
        Ok((explained, joined))
    }
}

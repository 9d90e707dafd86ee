//! What was found so far, while the trace goes on: lines at the end of a terminal, drawn anew each second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use taut_explain::trace::Trace;
use taut_report::{traced_so_far, within};
use taut_source::trace::Tracer;
use taut_time::Instant;

use super::names::Names;
use crate::{output, run};

/// From one picture to the next.
const EACH: Duration = Duration::from_secs(1);

pub(super) struct Live {
    bar: ProgressBar,
    what: String,
    begun: Instant,
    due: Instant,
}

impl Live {
    /// `None` where nobody looks, or a command that is traced has the terminal.
    pub(super) fn start(what: &str, has_command: bool, now: Instant) -> Option<Self> {
        if has_command || !run::has_bars() {
            return None;
        }
        let bar = ProgressBar::new_spinner();
        // A constant template: it can't be wrong.
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Some(Self { bar, what: what.to_owned(), begun: now, due: now + EACH })
    }

    pub(super) fn go_on(&mut self, now: Instant, trace: &Trace, tracer: &Tracer, names: &Names) {
        if now < self.due {
            return;
        }
        self.due = now + EACH;
        let with_name =
            |thread: Option<u32>| thread.and_then(|thread| tracer.process_of(thread)).map(|pid| names.of(pid));
        let found: Vec<_> = trace.so_far().into_iter().map(|found| (with_name(found.thread), found)).collect();
        let found: Vec<_> = found.into_iter().map(|(program, found)| (found, program)).collect();
        let span = u64::try_from(now.saturating_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        let counts = [tracer.records(), tracer.lost()];
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).ok().map(|size| size.ws_col);
        let text = within(columns.filter(|&columns| columns > 0), || traced_so_far(&self.what, span, counts, &found));
        self.bar.set_message(output::printable_lines(text.trim_end()));
        self.bar.tick();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

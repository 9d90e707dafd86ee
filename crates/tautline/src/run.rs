//! What surrounds every measurement: the user's Ctrl-C, the progress bar, the recording's head.

use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anstream::{AutoStream, ColorChoice};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use taut_link::{Endpoint, clock};
use taut_measure::{Interrupt, floor, host_facts};
use taut_record::{Ended, FORMAT_VERSION, HostFacts, Recording, Row};
use taut_time::Instant;

use crate::kept::Kept;
use crate::{exit, input};

/// Says of which endpoints others may read the user name and password on their way.
pub(crate) fn warn_of_open_logins<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) {
    endpoints.into_iter().filter_map(Endpoint::open_login).for_each(|text| anstream::eprintln!("taut: {text}"));
}

/// A command that measures, from its start to its recording.
pub(crate) struct Run {
    command: &'static str,
    started_unix_s: u64,
    began: Instant,
    host: HostFacts,
    pub(crate) interrupt: Interrupt,
    /// Events that go into the recording.
    pub(crate) kept: Kept,
    bar: ProgressBar,
}

impl Run {
    /// Measures the floor, listens for Ctrl-C, and sets up the progress bar.
    pub(crate) fn start(command: &'static str) -> anyhow::Result<Self> {
        let interrupt = interrupt_on_signals()?;
        let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let began = clock::now();
        let host = host_facts(floor::quick());
        Ok(Self { command, started_unix_s, began, host, interrupt, kept: Kept::default(), bar: progress_bar() })
    }

    /// Shows how far the work is, in percent of one part of several. Drawn between rounds only, never while measuring.
    pub(crate) fn progress(&self, what: &str, part: usize, parts: usize) -> impl FnMut(usize, usize) + use<> {
        let bar = self.bar.clone();
        tell_line(what);
        bar.set_message(what.to_owned());
        bar.set_length(100 * parts as u64);
        move |done, of| bar.set_position((100 * part + 100 * done / of.max(1)) as u64)
    }

    /// The same by the time that parts are expected to take: what lies before this one, itself, and all of them. It
    /// tells the time left as well.
    pub(crate) fn progress_in_time(
        &self,
        what: &str,
        before: Duration,
        part: Duration,
        all: Duration,
    ) -> impl FnMut(usize, usize) + use<> {
        let (bar, what) = (self.bar.clone(), what.to_owned());
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        bar.set_length(millis(all));
        let told = move |gone: Duration| format!("{what}, {} s left", all.saturating_sub(gone).as_secs_f64().ceil());
        tell_line(&told(before));
        let show = move |done: usize, of: usize| {
            let gone = before + part.mul_f64((done as f64 / of.max(1) as f64).min(1.0));
            bar.set_message(told(gone));
            bar.set_position(millis(gone));
        };
        show(0, 1);
        show
    }

    /// The recording of what was measured.
    pub(crate) fn finish(self, ended: Ended, results: Vec<Row>) -> Recording {
        self.bar.finish_and_clear();
        Recording {
            format_version: FORMAT_VERSION,
            command: self.command.to_owned(),
            command_line: command_line(),
            started_unix_s: self.started_unix_s,
            duration_ns: u64::try_from(clock::now().saturating_since(self.began).as_nanos()).unwrap_or(u64::MAX),
            ended,
            host: self.host,
            results,
            observed: self.kept.observed,
        }
    }
}

/// Set by Ctrl-C and Ctrl-\\, SIGTERM, and the end of the terminal unless that is ignored, as under nohup(1). A second
/// one while the first is being honoured ends the process at once; but a shell and the kernel both tell of the end of a
/// terminal.
pub(crate) fn interrupt_on_signals() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::default();
    for signal in [SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, exit::Code::Interrupted as i32, interrupt.flag())?;
    }
    set_by_signals(interrupt)
}

/// As [`interrupt_on_signals`]; but a second one changes nothing, since what was changed of others is put back first.
pub(crate) fn interrupt_on_signals_patiently() -> anyhow::Result<Interrupt> {
    set_by_signals(Interrupt::default())
}

fn set_by_signals(interrupt: Interrupt) -> anyhow::Result<Interrupt> {
    let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
    for signal in [SIGINT, SIGQUIT, SIGTERM].into_iter().chain(hang_up) {
        signal_hook::flag::register(signal, interrupt.flag())?;
    }
    Ok(interrupt)
}

/// By the mask of `SigIgn` (proc_pid_status(5)), in which SIGHUP is the lowest bit.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// From now on the end of stdin is an interrupt.
pub(crate) fn end_with_stdin(interrupt: &Interrupt) {
    let flag = interrupt.flag();
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        // What comes there means nothing, and is not kept.
        let _ = io::copy(&mut stdin, &mut io::sink());
        flag.store(true, Ordering::Relaxed);
    });
}

/// The command line as it was given, ready to be pasted.
pub(crate) fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    input::shell_line(std::iter::once("taut".to_owned()).chain(arguments))
}

/// Whether stderr is a terminal that shows bars. With NO_COLOR or TERM=dumb it is read line by line.
pub(crate) fn has_bars() -> bool {
    let stderr = io::stderr();
    stderr.is_terminal() && AutoStream::choice(&stderr) != ColorChoice::Never
}

/// What is being done, for who reads a terminal line by line.
fn tell_line(what: &str) {
    if io::stderr().is_terminal() && !has_bars() {
        anstream::eprintln!("taut: {what}");
    }
}

pub(crate) fn progress_bar() -> ProgressBar {
    if !has_bars() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    // A constant template: it can't be wrong.
    if let Ok(style) = ProgressStyle::with_template("{msg:34} [{bar:40}] {percent:>3} %") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

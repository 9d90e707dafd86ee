use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use taut_link::clock;
use taut_record::stats::{Distribution, Quantile};
use taut_report::{paragraph, units};
use taut_serve::{Mistake, Staged};

use super::super::{sockets, trace};
use crate::exit::Code;
use crate::{output, run};

/// A slow program, staged.
#[derive(Debug, clap::Args)]
#[group(id = "staged")]
pub(super) struct Args {
    /// What is wrong
    #[arg(long, value_enum, default_value_t = Case::Nagle)]
    case: Case,
    /// Leave the mistake out
    #[arg(long)]
    cured: bool,
    /// How long it runs
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = crate::input::positive_duration)]
    time: Duration,
    /// Trace it from within for 5 s, print what is found, and end; without the rights, `taut sockets` looks at it
    #[arg(long, conflicts_with = "time")]
    explain: bool,
    /// Print JSON objects, one a line, instead of text
    #[arg(long)]
    json: bool,
}

/// What can be staged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Case {
    /// Two small writes and a read: 40 ms for each request
    Nagle,
    /// A server that reads late
    SlowReader,
    /// A client that sets TCP_CORK and forgets it: 200 ms for each request
    Cork,
}

impl Case {
    const fn mistake(self) -> Mistake {
        match self {
            Self::Nagle => Mistake::TwoWrites,
            Self::SlowReader => Mistake::SlowReader,
            Self::Cork => Mistake::Cork,
        }
    }

    /// What one of the times is, in the plural.
    const fn unit(self) -> &'static str {
        match self {
            Self::Nagle | Self::Cork => "requests of 64 bytes",
            Self::SlowReader => "writes of 16 KiB",
        }
    }

    /// What is wrong, and what mends it.
    const fn mistake_in_words(self) -> &'static str {
        match self {
            Self::Nagle => {
                "the client hands over each request with two writes, of 16 and 48 bytes, and waits for the answer. \
                 Nagle's algorithm holds the second one until the first is acknowledged, and the server's kernel \
                 delays that acknowledgement by about 40 ms. The cure: TCP_NODELAY, or one write."
            }
            Self::SlowReader => {
                "the server reads 16 KiB every 50 ms, into a receive buffer of 16 KiB. The client would send 16 KiB \
                 every 5 ms. The cure: to read at once."
            }
            Self::Cork => {
                "the client sets TCP_CORK and never clears it, so with each request the kernel waits 200 ms for more \
                 to send. The cure: to clear TCP_CORK at the end of each request."
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Nagle => "nagle",
            Self::SlowReader => "slow-reader",
            Self::Cork => "cork",
        }
    }
}

/// How long the answer takes.
const EXPLAIN_TIME: Duration = Duration::from_secs(5);
/// Before the answer: the first acknowledgements of a connection are prompt.
const WARM_UP: Duration = Duration::from_secs(1);
const LOOK_PERIOD: Duration = Duration::from_millis(50);

impl Args {
    fn head(&self, pid: u32, port: u16) -> String {
        let what = if self.cured { "a program without its mistake" } else { "a slow program" };
        let staged = format!("STAGED: {what}. Its client and server are in process {pid} and talk over loopback.");
        let mut text = paragraph("", &staged);
        if !self.explain {
            let time = humantime::format_duration(self.time);
            text.push_str(&paragraph(
                "",
                &format!("It runs for {time}; Ctrl-C ends it. From another terminal, find out what holds the data:"),
            ));
            for line in lines(self.case, pid, port) {
                text.push_str(&format!("  {line}\n"));
            }
        }
        text
    }

    /// What its user would complain about.
    fn symptom(&self, times: &Distribution) -> String {
        let (Some(Quantile::Time(median)), Some(figures)) = (times.quantile(0.5), times.figures()) else {
            return format!("No {} so far.\n", self.case.unit());
        };
        let most = figures.max.time().map_or_else(String::new, |max| format!(", {} at most", units::time(max)));
        let count = units::count(times.messages());
        format!("{count} {} so far: {} each (median){most}.\n", self.case.unit(), units::time(median))
    }

    fn was_staged(&self) -> String {
        let case = match self.case {
            Case::Nagle => String::new(),
            other => format!(" --case {}", other.name()),
        };
        if self.cured {
            return paragraph("", &format!("What was staged: the program of `taut demo{case}`, without its mistake."));
        }
        let mistake = paragraph("", &format!("What was staged: {}", self.case.mistake_in_words()));
        format!("{mistake}Without it: taut demo{case} --cured --explain\n")
    }
}

/// What to try on it.
fn lines(case: Case, pid: u32, port: u16) -> Vec<String> {
    let mut lines = vec![
        "taut watch --for 10s".to_owned(),
        format!("taut sockets --pid {pid}"),
        format!("sudo taut trace --pid {pid} --for 5s"),
    ];
    if case == Case::Nagle {
        lines.push(format!("sudo taut trace --pid {pid} --try nodelay"));
    }
    lines.push(format!("sudo tcpdump -i lo -U -w - -c 200 port {port} | taut explain -"));
    lines
}

/// Says what is found: from the kernel's events, or without the rights from samples.
fn explain(pid: i32, is_json: bool) -> anyhow::Result<Code> {
    let (text, explained) = match trace::measure(&trace::Args::of_process(pid, EXPLAIN_TIME))? {
        Ok(trace::Measured { document, .. }) => {
            (output::fitted(|| document.to_text(false)), serde_json::to_value(&document)?)
        }
        Err(Code::Missing) => match sockets::measure(&sockets::Args::of_process(pid, EXPLAIN_TIME))? {
            Ok(document) => (output::fitted(|| document.to_text(false)), serde_json::to_value(&document)?),
            Err(code) => return Ok(code),
        },
        Err(code) => return Ok(code),
    };
    output::print(&if is_json { format!("{}\n", json!({ "explained": explained })) } else { text })?;
    Ok(Code::Ok)
}

pub(super) fn run(args: &Args) -> anyhow::Result<Code> {
    let interrupt = run::interrupt_on_signals()?;
    let mut staged = Staged::start(args.case.mistake(), args.cured).context("stage a client and a server")?;
    let (pid, port) = (std::process::id(), staged.address().port());
    if args.json {
        let told = json!({
            "staged": { "case": args.case.name(), "cured": args.cured, "pid": pid, "port": port, "commands": lines(args.case, pid, port) }
        });
        output::print(&format!("{told}\n"))?;
    } else {
        output::print(&output::fitted(|| args.head(pid, port)))?;
    }
    let begin = clock::now();
    let end = begin + if args.explain { WARM_UP } else { args.time };
    let mut times = Distribution::new();
    let mut wait_until = |end, times: &mut Distribution| -> anyhow::Result<()> {
        loop {
            staged.take_times(|time| times.record(time)).context("the staged connection")?;
            if clock::now() >= end || interrupt.is_set() {
                return Ok(());
            }
            clock::sleep_until((clock::now() + LOOK_PERIOD).min(end));
        }
    };
    wait_until(end, &mut times)?;
    let mut code = Code::Ok;
    if args.explain && !interrupt.is_set() {
        if !args.json {
            output::print(&args.symptom(&times))?;
        }
        code = explain(pid.cast_signed(), args.json)?;
        wait_until(clock::now(), &mut times)?;
    }
    let time_ns = u64::try_from(clock::now().saturating_since(begin).as_nanos()).unwrap_or(u64::MAX);
    drop(staged);
    let is_partial = interrupt.is_set() && code == Code::Ok;
    if args.json {
        let median = times.quantile(0.5).and_then(Quantile::time);
        let told = json!({
            "ended": {
                "requests": times.messages(), "median_ns": median, "time_ns": time_ns, "interrupted": is_partial
            }
        });
        output::print(&format!("{told}\n"))?;
    } else {
        let mut text = if args.explain { String::new() } else { args.symptom(&times) };
        text.push_str(&output::fitted(|| args.was_staged()));
        output::print(&text)?;
    }
    Ok(if is_partial { Code::Interrupted } else { code })
}

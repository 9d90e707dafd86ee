//! What `taut pipe` says: lines while it works, the account at the end, and the capture.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use taut_link::broker::BrokerAccount;
use taut_link::{Fault, clock};
use taut_pipe::{Account, EndedBy, Observer, OpenPipes, PipeReport, Plan, Which};
use taut_record::FORMAT_VERSION;
use taut_report::capture::StreamCapture;
use taut_report::figures::{PipeCounts, PipeIntervalDocument, WayCounts};
use taut_time::Instant;

use super::broker::Told;
use crate::exit::Code;
use crate::figures::{Beat, Head};
use crate::output;

/// As many pipes stand one by one in the account; of all there are the sums.
const LISTED: usize = 1000;

pub(super) struct Teller {
    capture: Option<StreamCapture<BufWriter<File>>>,
    quiet: bool,
    json: bool,
    listens: bool,
    endpoints: Vec<String>,
    sums: [Account; 2],
    figures: Option<Beat>,
    /// What has been told by these.
    told: PipeCounts,
    pipes: u64,
    failed: u64,
    last: Vec<PipeReport>,
    /// For what is told of brokers.
    plans: Vec<Plan>,
    has_broker: bool,
    /// Messages over a broker are missing or were dropped, of any pipe.
    has_losses: bool,
    brokers: Vec<Told>,
}

impl Teller {
    pub(super) fn new(
        plans: &[Plan],
        tee: Option<&Path>,
        quiet: bool,
        json: bool,
        listens: bool,
        figures: Option<Beat>,
    ) -> anyhow::Result<Self> {
        let capture = tee.map(|path| {
            let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
            StreamCapture::begin(BufWriter::new(file)).with_context(|| format!("write {}", path.display()))
        });
        let capture = capture.transpose()?;
        let (sums, last, endpoints) = ([Account::default(); 2], Vec::new(), Vec::new());
        let told = PipeCounts::default();
        let has_broker = plans.iter().flat_map(|plan| &plan.sides).any(|side| side.address.has_broker());
        Ok(Self {
            capture,
            quiet,
            json,
            listens,
            endpoints,
            sums,
            figures,
            told,
            pipes: 0,
            failed: 0,
            last,
            plans: plans.to_vec(),
            has_broker,
            has_losses: false,
            brokers: Vec::new(),
        })
    }

    pub(super) fn listening(&mut self, endpoints: Vec<String>) {
        if !self.quiet {
            anstream::eprintln!("taut: listening on {}", endpoints.join(" "));
        }
        self.endpoints = endpoints;
    }

    /// The account of all.
    pub(super) fn finish(mut self, on_stdio: bool) -> anyhow::Result<Code> {
        self.tell(&OpenPipes::default());
        let is_told = self.figures.is_none_or(Beat::close);
        if let Some(capture) = self.capture {
            capture.finish().context("write the capture")?;
        }
        let last = self.last.last();
        // Of one that listens the end is ours; its pipes' ends stand with them.
        let ended_by = if self.listens && self.pipes != 1 {
            EndedBy::Signal
        } else {
            last.map_or(EndedBy::Signal, |last| last.ended_by)
        };
        if self.json {
            let object = json!({
                "format_version": FORMAT_VERSION,
                "command": "pipe",
                "listening": self.endpoints,
                "ended_by": ended_by.name(),
                "why": last.map_or("we were asked to end", |last| last.why.as_str()),
                "bytes_a_to_b": self.sums[0].bytes,
                "bytes_b_to_a": self.sums[1].bytes,
                "undelivered_a_to_b": self.sums[0].undelivered,
                "undelivered_b_to_a": self.sums[1].undelivered,
                "unconfirmed_a_to_b": self.sums[0].unconfirmed,
                "unconfirmed_b_to_a": self.sums[1].unconfirmed,
                "lost_messages_a_to_b": self.sums[0].lost_messages,
                "lost_messages_b_to_a": self.sums[1].lost_messages,
                "pipes_total": self.pipes,
                "pipes_failed": self.failed,
                "pipes": self.last.iter().map(object).collect::<Vec<_>>(),
                "brokers": self.brokers.iter().map(Told::to_json).collect::<Vec<_>>(),
                "findings": self.brokers.iter().flat_map(|told| &told.findings).collect::<Vec<_>>(),
            });
            // Where stdout is an end of the pipe, it is not ours.
            if on_stdio {
                anstream::eprintln!("{object}");
            } else {
                output::print(&format!("{object}\n"))?;
            }
        }
        let code = match last {
            _ if !is_told => Code::Failed,
            Some(last) if !self.listens || self.pipes == 1 => code(last, self.listens),
            _ => Code::Ok,
        };
        // Whichever of the pipes it was, and however the last one ended.
        let says_nothing = matches!(code, Code::Ok | Code::Interrupted);
        Ok(if self.has_losses && says_nothing { Code::Failed } else { code })
    }
}

impl Teller {
    /// Tells what was carried in the interval that ends now.
    fn tell(&mut self, open: &OpenPipes) {
        let Some(figures) = &mut self.figures else { return };
        let way = |at: usize| {
            let (ended, open) = (&self.sums[at], &open.accounts[at]);
            WayCounts {
                bytes: ended.bytes + open.bytes,
                messages: ended.messages + open.messages,
                lost_messages: ended.lost_messages + open.lost_messages,
                undelivered_bytes: ended.undelivered,
                unconfirmed_bytes: ended.unconfirmed,
            }
        };
        let counts = PipeCounts { open: open.count, ended: self.pipes, failed: self.failed, ways: [way(0), way(1)] };
        let since = counts.since(&self.told);
        let line = |head: Head| {
            let document = PipeIntervalDocument {
                format_version: FORMAT_VERSION,
                command: "pipe".to_owned(),
                interval: head.interval,
                began_unix_ns: head.began_unix_ns,
                duration_ns: head.duration_ns,
                lines_lost: head.lines_lost,
                pipes_open: since.open,
                pipes_ended: since.ended,
                pipes_failed: since.failed,
                a_to_b: since.ways[0],
                b_to_a: since.ways[1],
            };
            document.to_json()
        };
        figures.tell(line, counts.families());
        self.told = counts;
    }
}

fn code(summary: &PipeReport, listens: bool) -> Code {
    match (summary.fault, summary.ended_by) {
        (Some(Fault::Input), _) => Code::Usage,
        (Some(_), _) => Code::Failed,
        // What is missing is, however it ended.
        _ if summary.brokers.iter().flatten().any(BrokerAccount::has_losses) => Code::Failed,
        (None, EndedBy::Signal) if listens => Code::Ok,
        (None, EndedBy::Signal) => Code::Interrupted,
        (None, _) if summary.failed => Code::Failed,
        (None, _) => Code::Ok,
    }
}

fn object(summary: &PipeReport) -> Value {
    let account = |account: &Account| {
        json!({
            "bytes": account.bytes,
            "spliced_bytes": account.spliced,
            "writes": account.writes,
            "messages": account.messages,
            "lost_messages": account.lost_messages,
            "undelivered_bytes": account.undelivered,
            "unconfirmed_bytes": account.unconfirmed,
        })
    };
    json!({
        "pipe": summary.pipe,
        "a": summary.names[0],
        "b": summary.names[1],
        "duration_ns": u64::try_from(summary.duration.as_nanos()).unwrap_or(u64::MAX),
        "ended_by": summary.ended_by.name(),
        "why": summary.why,
        "failed": summary.failed,
        "a_to_b": account(&summary.accounts[0]),
        "b_to_a": account(&summary.accounts[1]),
        "exit_a": summary.exits[0],
        "exit_b": summary.exits[1],
    })
}

fn line(summary: &PipeReport) -> String {
    // An end that could not be opened: nothing has moved, and why says which.
    if summary.fault.is_some() {
        return format!("pipe {}: {}", summary.pipe, summary.why);
    }
    let by = match summary.ended_by {
        EndedBy::A => format!("{} ended it", summary.names[0]),
        EndedBy::B => format!("{} ended it", summary.names[1]),
        EndedBy::IdleLimit => "its idle limit ended it".to_owned(),
        EndedBy::TimeLimit => "its time limit ended it".to_owned(),
        EndedBy::Signal => "a signal ended it".to_owned(),
    };
    let way = |account: &Account| {
        let mut text = format!("{} bytes", account.bytes);
        for (count, what) in [
            (account.undelivered, "bytes not delivered"),
            (account.unconfirmed, "bytes not confirmed"),
            (account.lost_messages, "messages lost"),
        ] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    };
    let exit = |code: &Option<i32>| match code {
        Some(code) if *code < 0 => format!("; ended by signal {}", -code),
        Some(code) if *code > 0 => format!("; exit code {code}"),
        _ => String::new(),
    };
    let [to_b, to_a] = &summary.accounts;
    format!(
        "pipe {}: {by} ({}) after {:.3} s; a to b {}; b to a {}{}{}",
        summary.pipe,
        summary.why,
        summary.duration.as_secs_f64(),
        way(to_b),
        way(to_a),
        exit(&summary.exits[0]),
        exit(&summary.exits[1]),
    )
}

impl Observer for Teller {
    fn opened(&mut self, pipe: u64, names: [&str; 2]) {
        // Who is with a broker is heard of from then on.
        if !self.quiet && (self.listens && !self.json || self.has_broker) {
            anstream::eprintln!("taut: pipe {pipe}: {} and {}", names[0], names[1]);
        }
    }

    fn note(&mut self, text: &str) {
        anstream::eprintln!("taut: {text}");
    }

    fn wants_bytes(&self) -> bool {
        self.capture.is_some()
    }

    fn bytes(&mut self, pipe: u64, from: Which, at: Instant, bytes: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.bytes(pipe, from == Which::A, clock::RealtimeOffset::read().to_realtime(at), bytes);
        }
    }

    fn next_look(&self) -> Option<Instant> {
        self.figures.as_ref().map(Beat::due)
    }

    fn look(&mut self, open: &OpenPipes) {
        self.tell(open);
    }

    fn ended(&mut self, summary: PipeReport) {
        if !self.quiet && !self.json || summary.fault.is_some() {
            anstream::eprintln!("taut: {}", line(&summary));
        }
        for (end, account) in summary.brokers.iter().enumerate() {
            let told = account.as_ref().map(|account| Told::of(&self.plans[summary.plan], end, account));
            if let Some(told) = &told
                && !self.quiet
                && !self.json
            {
                told.lines().iter().for_each(|line| anstream::eprintln!("taut: {line}"));
            }
            self.brokers.extend(told);
        }
        if self.brokers.len() > LISTED {
            self.brokers.drain(..self.brokers.len() - LISTED);
        }
        self.pipes += 1;
        self.failed += u64::from(summary.failed);
        self.has_losses |= summary.brokers.iter().flatten().any(BrokerAccount::has_losses);
        for (sum, account) in self.sums.iter_mut().zip(&summary.accounts) {
            sum.bytes += account.bytes;
            sum.messages += account.messages;
            sum.undelivered += account.undelivered;
            sum.unconfirmed += account.unconfirmed;
            sum.lost_messages += account.lost_messages;
        }
        if self.last.len() == LISTED {
            self.last.remove(0);
        }
        self.last.push(summary);
    }
}

//! The commands that compare, each with the same thing under two names.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::bench::process::{Server, Transport};
use crate::bench::setting::Setting;
use crate::bench::taut::{Serving, Taut};

/// A command that compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Alike {
    /// `taut echo` of one endpoint twice
    Echo2,
    /// `taut echo` of one endpoint four times
    Echo4,
    /// `taut tune` over TCP: the settings that can't act on one write and one read
    TuneTcp,
    /// The same over a Unix socket
    TuneUnix,
    /// `taut report` of two recordings of one echo
    Report,
    /// `taut connections` of one engine twice
    Crowd,
    /// `taut route bench` of one path twice
    Route,
    /// Two `taut pipe` of one kind before one server
    Pipe,
    /// `taut report` of two recordings of one stream
    Stream,
}

/// Settings of which none can act on an echo over loopback: what is written is one segment that nothing
/// is held back for. The peer's settings are none of them, as they cost it a call more at each read.
const IDLE: [&str; 3] = ["nodelay", "quickack", "busy_poll=50"];
/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// What the runs need: a server, two pipes that lead to it, a place for files.
pub(super) struct Stage<'a> {
    pub(super) taut: &'a Taut,
    pub(super) serving: Serving,
    pipes: Vec<(Server, String)>,
    directory: TempDir,
}

impl<'a> Stage<'a> {
    pub(super) fn set_up(setting: &'a Setting) -> Result<Self> {
        let taut = &setting.taut;
        let directory = tempfile::tempdir()?;
        let unix = format!("unix:{}", directory.path().join("s").display());
        let serving = taut.serve_on(&["tcp://127.0.0.1:0", "udp://127.0.0.1:0", &unix])?;
        let to = serving.endpoint(Transport::Tcp)?.to_owned();
        let pipes = (0..2).map(|_| taut.pipe_to(&to)).collect::<Result<_>>()?;
        Ok(Self { taut, serving, pipes, directory })
    }

    pub(super) fn tcp(&self) -> Result<&str> {
        self.serving.endpoint(Transport::Tcp)
    }

    /// One of the pipes.
    pub(super) fn pipe(&self, index: usize) -> &str {
        &self.pipes[index].1
    }

    /// What `taut report` says of recordings of two commands.
    pub(super) fn report(&self, arguments: [&[&str]; 2]) -> Result<Value> {
        let files = ["before.json", "after.json"].map(|name| self.directory.path().join(name));
        for (file, arguments) in files.iter().zip(arguments) {
            std::fs::write(file, self.taut.run(arguments, LIMIT)?.to_string())?;
        }
        let text = |file: &Path| file.display().to_string();
        self.taut.run(&["report", &text(&files[0]), &text(&files[1])], LIMIT)
    }

    /// The verdicts on two recordings of one command.
    fn reported(&self, arguments: &[&str]) -> Result<Vec<bool>> {
        let object = self.report([arguments; 2])?;
        let rows = object["results"].as_array().context("taut report compares nothing")?;
        let figures = rows.iter().filter_map(|row| row["figures"].as_array()).flatten();
        // On a busy machine a round may have too few messages for a p99; the other figures are held apart all the same.
        let verdicts = figures.map(|figure| &figure["verdict"]).filter(|verdict| *verdict != "no_interval");
        let verdicts: Vec<&Value> = verdicts.collect();
        told_apart(&verdicts)
    }
}

impl Alike {
    pub(super) const ALL: [Self; 9] = [
        Self::Echo2,
        Self::Echo4,
        Self::TuneTcp,
        Self::TuneUnix,
        Self::Report,
        Self::Crowd,
        Self::Route,
        Self::Pipe,
        Self::Stream,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Echo2 => "echo2",
            Self::Echo4 => "echo4",
            Self::TuneTcp => "tune-tcp",
            Self::TuneUnix => "tune-unix",
            Self::Report => "report",
            Self::Crowd => "crowd",
            Self::Route => "route",
            Self::Pipe => "pipe",
            Self::Stream => "stream",
        }
    }

    /// Runs it once: of each verdict whether it tells the same thing apart.
    pub(super) fn verdicts(self, stage: &Stage<'_>) -> Result<Vec<bool>> {
        let tcp = stage.tcp()?;
        match self {
            Self::Echo2 => compared(&stage.taut.run(&["echo", tcp, tcp, "--time", "300ms"], LIMIT)?),
            Self::Echo4 => compared(&stage.taut.run(&["echo", tcp, tcp, tcp, tcp, "--time", "200ms"], LIMIT)?),
            Self::TuneTcp => tuned(&stage.taut.run(&["tune", tcp, "--time", "10ms"], LIMIT)?),
            Self::TuneUnix => {
                let unix = stage.serving.endpoint_of("unix:")?;
                tuned(&stage.taut.run(&["tune", unix, "--time", "10ms"], LIMIT)?)
            }
            Self::Report => stage.reported(&["echo", tcp, "--time", "200ms"]),
            Self::Crowd => {
                let line = "crowd --engines epoll,epoll --connections 50 --active 5 --time 20ms";
                compared(&stage.taut.run_anywhere(&line.split(' ').collect::<Vec<_>>(), LIMIT)?)
            }
            Self::Route => {
                let line = "route bench --over udp --sinks 1 --others 0 --events 200 --path kept-open,kept-open";
                compared(&stage.taut.run_anywhere(&line.split(' ').collect::<Vec<_>>(), LIMIT)?)
            }
            Self::Pipe => {
                let line = ["echo", stage.pipe(0), stage.pipe(1), "--time", "300ms"];
                compared(&stage.taut.run(&line, LIMIT)?)
            }
            Self::Stream => stage.reported(&["stream", tcp, "--time", "200ms"]),
        }
    }
}

/// The verdicts that rows bear on themselves.
pub(super) fn compared(object: &Value) -> Result<Vec<bool>> {
    let rows = object["results"].as_array().context("no results")?;
    let verdicts = rows.iter().flat_map(|row| [&row["compared"]["verdict"], &row["cpu_compared"]["verdict"]]);
    told_apart(&verdicts.filter(|verdict| !verdict.is_null()).collect::<Vec<_>>())
}

/// The verdicts on settings that can't act. What can't be had on this host or is in force already was not tried.
fn tuned(object: &Value) -> Result<Vec<bool>> {
    let rows = object["results"].as_array().context("no results")?;
    let tried = rows
        .iter()
        .filter(|row| row["verdict"] != "not_available" && IDLE.iter().any(|&name| row["setting"] == name))
        .map(|row| &row["verdict"]);
    told_apart(&tried.collect::<Vec<_>>())
}

/// Of each verdict whether it tells apart. One that tells nothing would prove nothing, and is an error.
fn told_apart(verdicts: &[&Value]) -> Result<Vec<bool>> {
    ensure!(!verdicts.is_empty(), "the command gave no verdict");
    verdicts
        .iter()
        .map(|verdict| match verdict.as_str().unwrap_or_default() {
            "cannot_tell_apart" => Ok(false),
            "shorter" | "longer" | "less" | "more" => Ok(true),
            other => bail!("the command gave the verdict `{other}`, which says nothing of the two"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn verdicts_are_read_from_rows_and_settings() {
        let echo = json!({"results": [{"compared": null}, {"compared": {"verdict": "cannot_tell_apart"}},
            {"compared": {"verdict": "longer"}, "cpu_compared": {"verdict": "shorter"}}]});
        assert_eq!(compared(&echo).unwrap(), [false, true, true]);
        let tune = json!({"results": [{"setting": "base", "verdict": "cannot_tell_apart"},
            {"setting": "nodelay", "verdict": "shorter"}, {"setting": "quickack", "verdict": "cannot_tell_apart"},
            {"setting": "busy_poll=50", "verdict": "not_available"}, {"setting": "engine spin", "verdict": "shorter"}]});
        assert_eq!(tuned(&tune).unwrap(), [true, false]);
    }

    #[test]
    fn a_run_without_a_verdict_proves_nothing() {
        assert!(compared(&json!({"results": [{"compared": null}]})).is_err());
        let few = json!({"results": [{"compared": {"verdict": "too_few_rounds"}}]});
        assert!(compared(&few).unwrap_err().to_string().contains("too_few_rounds"));
    }
}

use taut_measure::{doctor, floor};
use taut_record::{CheckRow, Ended, FloorRow, Row};
use taut_report::Document;
use taut_source::Owners;
use taut_source::trace::{Error, Scope, Tracer};

use crate::exit::Code;
use crate::output::OutputArgs;
use crate::run::Run;

/// This host: what the tool itself costs here, what of Tautline works, and what is missing and why
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut doctor --json       for a report of what does not work
  sudo taut doctor --ble   can this host have a Bluetooth LE link, and what bounds it?")]
pub(crate) struct Args {
    /// What a Bluetooth LE link needs, and no more: the kernel, the adapters, and what their controllers
    /// say of their features, buffers and PHYs (as root). Exit code 4 if no adapter here can have one
    #[arg(long)]
    ble: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let run = Run::start("doctor")?;
    if args.ble {
        let ble = doctor::ble();
        let recording = run.finish(Ended::Complete, ble.rows.into_iter().map(Row::Check).collect());
        let code = args.output.emit(&Document::new(recording, Vec::new()))?;
        return Ok(if ble.is_possible { code } else { Code::Missing });
    }
    let rows = rows();
    let recording = run.finish(Ended::Complete, rows);
    args.output.emit(&Document::new(recording, Vec::new()))
}

/// Floor and checks, for this command and the survey.
pub(crate) fn rows() -> Vec<Row> {
    // First, while the process has one thread: without root the foreign peer's trial needs that.
    let mut checks = doctor::checks();
    checks.extend([live_traces(), sockets_of_others()]);
    let floor = floor::rows().into_iter().map(|row: FloorRow| Row::Floor(Box::new(row)));
    floor.chain(checks.into_iter().map(Row::Check)).collect()
}

/// Whether the programs of a trace load here; nothing is traced.
fn live_traces() -> CheckRow {
    let (works, found, remedy) = match Tracer::start(Scope::Processes) {
        Ok(tracer) if tracer.missing().is_empty() => (true, "all hooks are there".to_owned(), None),
        Ok(tracer) => (true, format!("less is told without {}", tracer.missing().join(", ")), None),
        Err(error) => {
            let remedy = match &error {
                error if error.is_missing_right() => {
                    "run as root, or setcap cap_bpf,cap_perfmon+ep on taut; taut sockets and taut watch need no right"
                }
                Error::Namespace => "run it outside of the container, or trace a port: --port",
                _ => "a kernel from 5.10 on with BTF (CONFIG_DEBUG_INFO_BTF)",
            };
            (false, error.to_string(), Some(remedy.to_owned()))
        }
    };
    CheckRow { what: "live traces".to_owned(), works, needed_for: "taut trace".to_owned(), found, remedy }
}

/// Options that sock_diag(7) does not list are read from a descriptor of the other process (pidfd_getfd(2)).
fn sockets_of_others() -> CheckRow {
    let hidden = Owners::read(None).hidden;
    let processes = if hidden == 1 { "1 process" } else { &format!("{hidden} processes") };
    let remedy = if rustix::process::geteuid().is_root() {
        "root sees all but what a security module, a namespace or a container keeps from it"
    } else {
        "run as root, or setcap cap_sys_ptrace,cap_dac_read_search+ep on taut"
    };
    CheckRow {
        what: "sockets of other users".to_owned(),
        works: hidden == 0,
        needed_for: "taut watch, taut sockets: whose they are, TCP_NODELAY, TCP_CORK".to_owned(),
        found: if hidden == 0 { "seen".to_owned() } else { format!("those of {processes} are hidden") },
        remedy: (hidden > 0).then(|| remedy.to_owned()),
    }
}

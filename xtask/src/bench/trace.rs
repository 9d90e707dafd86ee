//! What `taut trace` and `taut watch` cost those who are looked at, and those who are not: round trips of 32 B over
//! loopback with one of them beside, and alone.

use std::ffi::CStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use taut_bpf::Assembler;
use taut_bpf::instruction::R;
use taut_bpf::sys::{ProgramKind, Purpose, raw_tracepoint};

use super::comparison::{Bar, Comparison, Ratio, both, outcome};
use super::outcome::{Outcome, median};
use super::process::{Cores, Transport};
use super::setting::Setting;
use super::taut::{self, Taut};

/// Times the round trip alone. Both of its ends are traced, and each waits for the other one all the time: more events
/// for what is done there are not.
const TRACED: Bar = Bar::AtMost(1.8);
/// Of a program that is not the one that is traced.
const OTHERS: Bar = Bar::AtMost(1.1);
/// An event may take so long.
const EVENT_NS: f64 = 300.0;

/// Exit code of a command that had not all its time.
const INTERRUPTED: i32 = 130;

/// What stands beside the round trips.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Beside {
    Trace,
    TraceOfAnother,
    /// Programs that do nothing, at the tracepoints that no trace can do without: less than this none can cost.
    Empty,
    /// By looks alone.
    Watch,
    /// The kernel counts as well.
    WatchThatCounts,
    Nothing,
}

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let case = |beside: Beside, case: &str, bar| {
        let comparison = Comparison {
            case: case.to_owned(),
            peer: "alone",
            quantity: "rtt_p50_ns",
            unit: ("µs", 1000.0),
            ratio: Ratio::OfPeer,
            bar,
            rounds: Vec::new(),
        };
        (beside, comparison)
    };
    let mut cases = [
        case(Beside::Trace, "both ends traced", TRACED),
        case(Beside::TraceOfAnother, "another program traced", OTHERS),
        case(Beside::Empty, "six empty programs", Bar::None),
        case(Beside::Watch, "the host watched, grade 1", Bar::None),
        case(Beside::WatchThatCounts, "the host watched, grade 2", Bar::None),
        case(Beside::Nothing, "nothing (control)", Bar::None),
    ];
    let mut event_ns = Vec::new();
    for round in 0..setting.rounds {
        for (beside, case) in &mut cases {
            let mut records = None;
            let with = || {
                let (rtt, per_round_trip) = beside.round_trip(setting)?;
                records = per_round_trip;
                anyhow::Ok(rtt)
            };
            let alone = || Ok(Beside::Nothing.round_trip(setting)?.0);
            let (with, alone) = both(round, with, alone)?;
            case.rounds.push((with, alone));
            event_ns.extend(records.map(|records| (with - alone) / records));
        }
    }
    let mut outcome = outcome(&cases.map(|(_, case)| case));
    let each = median(&event_ns);
    let is_met = each <= EVENT_NS;
    outcome.text += &format!(
        "\nan event of the traced ends takes {each:.0} ns, median of {} rounds; bar <= {EVENT_NS:.0} ns: {}",
        event_ns.len(),
        if is_met { "met" } else { "MISSED" }
    );
    outcome.met = outcome.met.map(|met| met && is_met);
    Ok(outcome)
}

impl Beside {
    /// The median round trip, in ns, and how many events of it the trace had.
    fn round_trip(self, setting: &Setting) -> Result<(f64, Option<f64>)> {
        // On one processor, which never sleeps: the shortest round trip, of which a trace takes the largest share.
        let core = setting.cores.server;
        let taut = Taut::new(setting.taut.file().to_owned(), Cores { client: core, server: core });
        let serving = taut.serve()?;
        let endpoint = serving.endpoint(Transport::Tcp)?;
        let port = endpoint.rsplit_once(':').context("an endpoint without a port")?.1;
        let mut other = None;
        let _empty = (self == Self::Empty).then(empty_programs).transpose()?;
        let looker = match self {
            Self::Trace => Some(Looker::start(setting, &["trace", "--json", "--port", port])?),
            Self::TraceOfAnother => {
                let sleeper = other.insert(Ended(Command::new("sleep").arg("1000").spawn()?));
                Some(Looker::start(setting, &["trace", "--json", "--pid", &sleeper.0.id().to_string()])?)
            }
            Self::Watch => Some(Looker::start(setting, &["watch", "--grade", "1", "--for", "1h"])?),
            Self::WatchThatCounts => Some(Looker::start(setting, &["watch", "--grade", "2", "--for", "1h"])?),
            Self::Empty | Self::Nothing => None,
        };
        let time = format!("{}ms", setting.time.as_millis());
        let arguments = ["echo", endpoint, "--size", "32", "--time", &time, "--rounds", "1", "--place", "free"];
        let object = taut.run(&arguments, setting.time + Duration::from_secs(30))?;
        let rtt = taut::number(&object, "/results/0/rtt_ns/p50")?;
        let told = looker.map(Looker::end).transpose()?;
        let per_round_trip = told.filter(|_| self == Self::Trace).map(|told| per_round_trip(&told)).transpose()?;
        Ok((rtt, per_round_trip))
    }
}

/// Those that docs/trace.md says are required.
const NEEDED: [&CStr; 6] =
    [c"sys_enter", c"sys_exit", c"tcp_probe", c"net_dev_queue", c"tcp_retransmit_skb", c"inet_sock_set_state"];

/// Attached until they are dropped.
fn empty_programs() -> Result<Vec<OwnedFd>> {
    let attach = |tracepoint: &CStr| {
        let mut code = Assembler::default();
        code.constant(R::R0, 0);
        code.exit();
        let program = taut_bpf::load(ProgramKind::RawTracepoint, &code.finish(), Purpose::default(), "empty")?;
        anyhow::Ok(raw_tracepoint(program.as_fd(), Some(tracepoint))?)
    };
    NEEDED.into_iter().map(attach).collect()
}

/// Records of one round trip: each writes once at both ends.
fn per_round_trip(trace: &Value) -> Result<f64> {
    let directions = trace["worst"].as_array().context("the trace has no directions")?;
    let writes = directions.iter().filter_map(|one| one["writes"].as_f64()).fold(0.0, f64::max);
    let records = taut::number(trace, "/records")?;
    if writes < 1.0 {
        bail!("the trace saw no writes");
    }
    Ok(records / writes)
}

/// Ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that looks at others, until it is asked for what it saw.
struct Looker(Ended);

impl Looker {
    fn start(setting: &Setting, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(setting.taut.file());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Ended(command.spawn().context("cannot run taut")?);
        if arguments[0] == "trace" {
            // It says so once its programs are in the kernel.
            let mut line = String::new();
            BufReader::new(child.0.stderr.take().context("no stderr")?).read_line(&mut line)?;
            if !line.contains("tracing") {
                bail!("`taut {}`: {}", arguments.join(" "), line.trim());
            }
        }
        Ok(Self(child))
    }

    /// What it says in the end, if that is JSON.
    fn end(mut self) -> Result<Value> {
        let child = &mut self.0.0;
        let pid = Pid::from_child(child);
        kill_process(pid, Signal::INT)?;
        let mut text = String::new();
        child.stdout.take().context("no stdout")?.read_to_string(&mut text)?;
        let status = child.wait()?;
        if !status.success() && status.code() != Some(INTERRUPTED) {
            bail!("a looker failed: {status}: {}", text.trim());
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_counted_for_each_round_trip() {
        let trace = json!({"records": 1200, "worst": [{"writes": 100}, {"writes": 0}, {"writes": 99}]});
        assert_eq!(per_round_trip(&trace).unwrap(), 12.0);
        assert!(per_round_trip(&json!({"records": 1, "worst": [{"writes": 0}]})).is_err());
        assert!(per_round_trip(&json!({})).is_err());
    }
}

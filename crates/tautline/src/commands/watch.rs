use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taut_explain::watch::{Episode, Total};
use taut_link::{Error, clock};
use taut_record::{Ended, FORMAT_VERSION, WatchedPlace};
use taut_report::figures::Span;
use taut_report::{EndedLoss, WatchDocument, WatchMetrics, watch_summary};
use taut_source::counting::Counter;

use crate::exit::Code;
use crate::figures::{ExportArgs, Exports, interval};
use crate::host_watch::{HostWatch, Interval, nanos};
use crate::{output, run};

/// Watch all TCP connections of this host: which lose time now, to what, and since when
///
/// In a terminal it shows a table, renewed after each interval; else it prints a line or two whenever a loss begins or
/// ends, which suits a journal. It needs no right, changes nothing, and takes about one percent of a processor at most.
/// What waits is looked at 50 times a second, all else as often as that allows. The options of other users' programs
/// take root: without them, waits for Nagle's algorithm are not told. Where that is allowed (root, or CAP_BPF and
/// CAP_PERFMON), the kernel counts as well what falls between two looks: segments and handshakes sent again, with the
/// time they took, and refused and reset connections.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo taut watch                    the whole host, until Ctrl-C
  taut watch --once --json           one interval, for scripts
  sudo taut watch --for 10m > losses.log
  taut watch --port 5432 --threshold 20
  sudo taut watch --prometheus 9465  sums for a collector, at http://127.0.0.1:9465/metrics
  taut watch --grade 1               looks alone: nothing is loaded into the kernel

docs/watch.md says what is seen, and has a systemd unit; `taut trace` explains what `taut watch` finds.")]
pub(crate) struct Args {
    /// Only connections with this port at either end
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Stop after this time
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME", value_parser = humantime::parse_duration,
          conflicts_with = "once")]
    time: Option<Duration>,
    /// One interval only
    #[arg(long, conflicts_with = "prometheus")]
    once: bool,
    /// Length of an interval, from 500ms to 1h
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    every: Duration,
    /// Tell what takes this part of a connection's time, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(5..=100))]
    threshold: u8,
    /// 1: looks alone. 2: the kernel also counts losses between two looks. Default: 2 where that is allowed, else 1
    #[arg(long, value_name = "GRADE", value_parser = clap::value_parser!(u8).range(1..=2))]
    grade: Option<u8>,
    /// Print one JSON object a line, for each interval
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exports: ExportArgs,
}

/// The looks at the suspicious ones take at most this part of a processor, and the search for programs as much again.
/// All together takes three of them: a little less than 1 %.
const MOST_WORK: u32 = 330;

/// What collectors read.
struct Metrics {
    sums: WatchMetrics,
    exports: Exports,
    begin_unix_ns: u64,
}

impl Metrics {
    fn open(args: &ExportArgs) -> anyhow::Result<Self> {
        let (sums, mut exports) = (WatchMetrics::default(), Exports::open(args)?);
        exports.sums(sums.families(), None);
        Ok(Self { sums, exports, begin_unix_ns: 1_000_000 * unix_ms() })
    }

    fn add(&mut self, document: &WatchDocument) {
        self.sums.add(document);
        self.exports.line(|| document.to_json());
        let end_unix_ns = (1_000_000 * document.at_unix_ms).max(self.begin_unix_ns);
        self.exports.sums(self.sums.families(), Some(Span { begin_unix_ns: self.begin_unix_ns, end_unix_ns }));
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    if args.json && args.exports.take_stdout() {
        return Err(Error::Input("--json and --jsonl - both write to stdout: leave one out".into()).into());
    }
    let interrupt = run::interrupt_on_signals()?;
    // First, so that it misses nothing that the first look sees.
    let (counter, why) = match counter(args.grade) {
        Ok(counter) => (counter, None),
        Err(why) if args.grade.is_some() => {
            anstream::eprintln!("taut: no grade 2: {why}");
            return Ok(Code::Missing);
        }
        Err(why) => (None, Some(format!("Grade 1: losses between two looks are not counted. {why}"))),
    };
    let grade = Grade { number: 1 + u8::from(counter.is_some()), why };
    let mut watch = HostWatch::begin(args.port, MOST_WORK, f64::from(args.threshold) / 100.0)?.with(counter);
    let mut metrics = Metrics::open(&args.exports)?;
    let mut screen = Screen::open(&args, &grade)?;
    let begin = watch.from();
    let end = args.time.map(|time| begin + time);
    let mut remarks = Vec::new();
    loop {
        let now = clock::now();
        watch.look(now)?;
        let from = watch.from();
        let is_over = interrupt.is_set() || end.is_some_and(|end| now >= end);
        let to = from + args.every;
        if now >= to || is_over {
            // What is left of an interval is one as well, if it has enough looks for a verdict.
            let document = document(watch.interval(now)?, &grade);
            metrics.add(&document);
            screen.show(&document)?;
            remarks = document.remarks;
        }
        if is_over || args.once && watch.from() > begin || !metrics.exports.are_wanted() {
            break;
        }
        let next = watch.due().min(watch.from() + args.every);
        clock::sleep_until(end.map_or(next, |end| next.min(end)));
    }
    let watched = watch.from().saturating_since(begin);
    screen.close()?;
    let is_whole = !metrics.exports.are_wanted() || metrics.exports.close();
    // A watch without an end of its own is complete when its user ends it.
    let is_partial = interrupt.is_set() && (args.once || args.time.is_some());
    if !args.json && !args.once && !args.exports.take_stdout() {
        let ended = if is_partial { Ended::Interrupted } else { Ended::Complete };
        let (totals, counted) = watch.finish();
        let totals: Vec<EndedLoss> = totals.into_iter().map(total).collect();
        output::print(&output::fitted(|| watch_summary(ended, nanos(watched), &totals, &counted, &remarks)))?;
    }
    Ok(match (is_whole, is_partial) {
        (false, _) => Code::Failed,
        (true, true) => Code::Interrupted,
        (true, false) => Code::Ok,
    })
}

/// How much is looked at.
struct Grade {
    number: u8,
    /// Why it is not more, where that was not asked for.
    why: Option<String>,
}

/// Has the kernel count, where that is wanted.
///
/// # Errors
/// Why it does not, with what to do.
fn counter(grade: Option<u8>) -> Result<Option<Counter>, String> {
    if grade == Some(1) {
        return Ok(None);
    }
    Counter::start().map(Some).map_err(|error| {
        if error.is_missing_right() {
            // A line with these two alone would take the others away.
            "That takes root, or `sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep` on the program."
                .to_owned()
        } else {
            format!("That takes a kernel from 5.10 on with BTF: {error}.")
        }
    })
}

/// Where the intervals go.
enum Screen {
    Json,
    /// They are lines of `--jsonl`.
    Silent,
    /// One interval as a table.
    Table,
    /// What begins and ends.
    Log,
    /// The alternate screen of a terminal, drawn anew each time.
    Live,
}

const TO_ALTERNATE: &str = "\x1b[?1049h\x1b[?25l";
const FROM_ALTERNATE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

impl Screen {
    fn open(args: &Args, grade: &Grade) -> anyhow::Result<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Ok(match args {
            Args { json: true, .. } => Self::Json,
            _ if args.exports.take_stdout() => Self::Silent,
            Args { once: true, .. } => Self::Table,
            _ if std::io::stdout().is_terminal() && !is_dumb => {
                output::print(&format!("{TO_ALTERNATE}{HOME}taut watch: the first interval takes a moment"))?;
                Self::Live
            }
            _ => {
                anstream::eprintln!("taut: watching; Ctrl-C ends it");
                match &grade.why {
                    Some(why) => anstream::eprintln!("  {why}"),
                    None => anstream::eprintln!("  Grade {}.", grade.number),
                }
                Self::Log
            }
        })
    }

    fn show(&mut self, document: &WatchDocument) -> anyhow::Result<()> {
        let text = match self {
            Self::Json => document.to_json(),
            Self::Silent => return Ok(()),
            Self::Table => output::fitted(|| document.to_table(None)),
            Self::Log => output::fitted(|| document.to_log()),
            Self::Live => {
                let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
                let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
                let columns = size.map_or(usize::MAX, |size| size.ws_col.into());
                let rows = size.map_or(usize::MAX, |size| size.ws_row.into());
                let table = document.to_table(size.map(|size| [size.ws_col, size.ws_row]));
                // One line more than the terminal has would scroll the first one away.
                let lines: Vec<String> = table
                    .lines()
                    .take(rows)
                    .map(|line| line.chars().take(columns).chain(CLEAR_LINE.chars()).collect())
                    .collect();
                format!("{HOME}{}{CLEAR_BELOW}", lines.join("\r\n"))
            }
        };
        output::print(&text)
    }

    fn close(&mut self) -> anyhow::Result<()> {
        if matches!(self, Self::Live) {
            *self = Self::Log;
            output::print(FROM_ALTERNATE)?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if matches!(self, Self::Live) {
            let _ = std::io::stdout().write_all(FROM_ALTERNATE.as_bytes());
        }
    }
}

fn document(Interval { row, ended, counted }: Interval, grade: &Grade) -> WatchDocument {
    WatchDocument {
        format_version: FORMAT_VERSION,
        command: "watch".to_owned(),
        grade: grade.number,
        at_unix_ms: unix_ms(),
        span_ns: row.span_ns,
        connections: row.connections,
        looks: row.looks,
        suspect_looks: row.suspect_looks,
        look_period_ns: row.look_period_ns,
        work_ns: row.work_ns,
        losses: row.losses,
        ended: ended.into_iter().map(over).collect(),
        counted,
        remarks: row.remarks.into_iter().chain(grade.why.clone()).collect(),
    }
}

fn over(episode: Episode<WatchedPlace>) -> EndedLoss {
    let (stood_ns, lost_ns) = (nanos(episode.stood()), nanos(episode.lost));
    EndedLoss { place: episode.key, stood_ns, lost_ns, episodes: 1 }
}

fn total(total: Total<WatchedPlace>) -> EndedLoss {
    let (stood_ns, lost_ns) = (nanos(total.stood), nanos(total.lost));
    EndedLoss { place: total.key, stood_ns, lost_ns, episodes: total.episodes }
}

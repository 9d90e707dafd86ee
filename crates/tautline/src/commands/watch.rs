use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taut_explain::socket::{Account, Suspicion, holder, suspicions};
use taut_explain::watch::{Episode, Total, Watch};
use taut_link::{Error, clock};
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::figures::Span;
use taut_report::{EndedLoss, WatchDocument, WatchMetrics, WatchedLoss, WatchedPlace, watch_summary};
use taut_source::{Sampler, Seen, State};
use taut_time::Instant;

use crate::account::account;
use crate::exit::Code;
use crate::figures::{ExportArgs, Exports, interval};
use crate::{output, run};

/// Watch all TCP connections of this host: which lose time now, to what, and since when
///
/// In a terminal it shows a table, renewed after each interval; else it prints a line or two whenever a loss begins or
/// ends, which suits a journal. It needs no right, changes nothing, loads nothing into the kernel, and takes about one
/// percent of a processor at most. What waits is looked at 50 times a second, all else as often as that allows. The
/// options of other users' programs take root: without them, waits for Nagle's algorithm are not told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo taut watch                    the whole host, until Ctrl-C
  taut watch --once --json           one interval, for scripts
  sudo taut watch --for 10m > losses.log
  taut watch --port 5432 --threshold 20
  sudo taut watch --prometheus 9465  sums for a collector, at http://127.0.0.1:9465/metrics

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
    /// Print one JSON object a line, for each interval
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exports: ExportArgs,
}

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(20);
/// The looks at all take at most this part of a processor, and those at the suspicious ones as much again; so does the
/// search for programs.
const MOST_WORK: u32 = 250;

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
    let mut sampler = Sampler::new(None, args.port, holder)?.within(MOST_WORK);
    // The first one goes through /proc and reads the options of all: it is no part of an interval.
    sampler.look(clock::now())?;
    sampler.settle();
    let mut metrics = Metrics::open(&args.exports)?;
    let mut screen = Screen::open(&args)?;
    let mut watch = Watch::default();
    let begin = clock::now();
    let end = args.time.map(|time| begin + time);
    let mut from = begin;
    let (mut all_due, mut suspects_due) = (begin, begin);
    let mut work = Work::default();
    loop {
        let now = clock::now();
        let before = clock::thread_cpu();
        let cost = || clock::thread_cpu().saturating_sub(before);
        if now >= all_due {
            sampler.look(now)?;
            all_due = now + PERIOD.max(cost() * MOST_WORK);
            suspects_due = now + PERIOD;
        } else if now >= suspects_due {
            sampler.look_at_suspects(now)?;
            work.suspect_looks += 1;
            suspects_due = now + PERIOD.max(cost() * MOST_WORK);
        }
        let is_over = interrupt.is_set() || end.is_some_and(|end| now >= end);
        let to = from + args.every;
        if now >= to || is_over {
            // What is left of an interval is one as well, if it has enough looks for a verdict.
            let document = document(&sampler, &mut watch, (from, now), &args, &work);
            sampler.restart();
            work = Work { spent: cost(), ..Work::default() };
            from = now;
            metrics.add(&document);
            screen.show(&document)?;
        } else {
            work.spent += cost();
        }
        if is_over || args.once && from > begin || !metrics.exports.are_wanted() {
            break;
        }
        let next = all_due.min(suspects_due).min(from + args.every);
        clock::sleep_until(end.map_or(next, |end| next.min(end)));
    }
    screen.close()?;
    let is_whole = !metrics.exports.are_wanted() || metrics.exports.close();
    // A watch without an end of its own is complete when its user ends it.
    let is_partial = interrupt.is_set() && (args.once || args.time.is_some());
    if !args.json && !args.once && !args.exports.take_stdout() {
        let ended = if is_partial { Ended::Interrupted } else { Ended::Complete };
        let totals: Vec<EndedLoss> = watch.finish().0.into_iter().map(total).collect();
        output::print(&watch_summary(ended, nanos(from.saturating_since(begin)), &totals))?;
    }
    Ok(match (is_whole, is_partial) {
        (false, _) => Code::Failed,
        (true, true) => Code::Interrupted,
        (true, false) => Code::Ok,
    })
}

/// What looking took, in one interval.
#[derive(Default)]
struct Work {
    spent: Duration,
    suspect_looks: u32,
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
    fn open(args: &Args) -> anyhow::Result<Self> {
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
                Self::Log
            }
        })
    }

    fn show(&mut self, document: &WatchDocument) -> anyhow::Result<()> {
        let text = match self {
            Self::Json => document.to_json(),
            Self::Silent => return Ok(()),
            Self::Table => document.to_table(None),
            Self::Log => document.to_log(),
            Self::Live => {
                let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
                let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
                let columns = size.map_or(usize::MAX, |size| size.ws_col.into());
                let rows = size.map_or(usize::MAX, |size| size.ws_row.into());
                let table = document.to_table(size.map(|size| size.ws_row));
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

/// One suspicion of one connection.
struct Loss<'a> {
    seen: &'a Seen,
    suspicion: Suspicion,
    share: f64,
}

fn document(
    sampler: &Sampler,
    watch: &mut Watch<WatchedPlace>,
    (from, to): (Instant, Instant),
    args: &Args,
    work: &Work,
) -> WatchDocument {
    let mut places: BTreeMap<WatchedPlace, Vec<Loss<'_>>> = BTreeMap::new();
    let (mut connections, mut without_options) = (0, 0);
    for seen in sampler.seen() {
        connections += u64::from(seen.last.state != State::Listen);
        let is_told = seen.options.is_some() || seen.last.inode == 0 || seen.last.state != State::Established;
        without_options += u64::from(!is_told);
        for suspicion in suspicions(&weighed(seen)) {
            let share = suspicion.time.as_secs_f64() / seen.span.as_secs_f64();
            if share >= 0.999 * f64::from(args.threshold) / 100.0 {
                places.entry(place(sampler, seen, suspicion.cause)).or_default().push(Loss { seen, suspicion, share });
            }
        }
    }
    let changes = watch.interval(from, to, places.iter().map(|(place, losses)| (place.clone(), sum(losses))));
    let mut losses: Vec<WatchedLoss> = places
        .iter()
        .filter_map(|(place, losses)| {
            let episode = watch.standing(place)?;
            Some(loss(sampler, place, losses, episode, changes.begun.contains(place)))
        })
        .collect();
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.lost_ns));
    WatchDocument {
        format_version: FORMAT_VERSION,
        command: "watch".to_owned(),
        at_unix_ms: unix_ms(),
        span_ns: nanos(to.saturating_since(from)),
        connections,
        looks: sampler.looks(),
        suspect_looks: work.suspect_looks,
        work_ns: nanos(work.spent),
        losses,
        ended: changes.ended.into_iter().map(ended).collect(),
        remarks: remarks(sampler, without_options, watch.forgotten()),
    }
}

/// Suspicious ones are looked at more often, so their samples count by the time that they stand for.
fn weighed(seen: &Seen) -> Account {
    let plain = account(seen);
    let weigh = |time: Duration| {
        let share = time.as_secs_f64() / seen.span.as_secs_f64().max(f64::MIN_POSITIVE);
        (share * f64::from(seen.samples)).round() as u32
    };
    let unaccepted_samples = if plain.unaccepted_samples > 0 { weigh(seen.unaccepted) } else { 0 };
    Account { unread_samples: weigh(seen.unread), unaccepted_samples, ..plain }
}

fn place(sampler: &Sampler, seen: &Seen, cause: &str) -> WatchedPlace {
    let is_server = seen.last.state == State::Listen || sampler.listens_at(seen.last.local);
    WatchedPlace {
        cause: cause.to_owned(),
        program: seen.owner.as_ref().map(|owner| owner.name.clone()),
        pid: seen.owner.as_ref().map(|owner| owner.pid),
        side: if is_server { "server" } else { "client" }.to_owned(),
        service: if is_server { seen.last.local } else { seen.last.peer }.to_string(),
    }
}

fn sum(losses: &[Loss<'_>]) -> Duration {
    losses.iter().fold(Duration::ZERO, |sum, loss| sum + loss.suspicion.time)
}

fn loss(
    sampler: &Sampler,
    place: &WatchedPlace,
    losses: &[Loss<'_>],
    episode: &Episode<WatchedPlace>,
    is_new: bool,
) -> WatchedLoss {
    let worst = losses.iter().max_by(|one, other| one.share.total_cmp(&other.share));
    let suspicion = worst.map(|worst| worst.suspicion);
    let end = |of: fn(&Seen) -> String| worst.map(|worst| of(worst.seen)).unwrap_or_default();
    let peer = worst.and_then(|worst| sampler.peer_of(worst.seen));
    WatchedLoss {
        place: place.clone(),
        summary: suspicion.map(|one| one.summary.to_owned()).unwrap_or_default(),
        remedy: suspicion.map(|one| one.remedy.to_owned()).unwrap_or_default(),
        connections: losses.len() as u64,
        worst_local: end(|seen| seen.last.local.to_string()),
        worst_peer: end(|seen| seen.last.peer.to_string()),
        worst_peer_program: peer.map(|peer| format!("{} ({})", peer.name, peer.pid)),
        worst_share: worst.map_or(0.0, |worst| worst.share.min(1.0)),
        lost_ns: nanos(sum(losses)),
        total_lost_ns: nanos(episode.lost),
        stands_ns: nanos(episode.stood()),
        is_new,
    }
}

fn ended(episode: Episode<WatchedPlace>) -> EndedLoss {
    let (stood_ns, lost_ns) = (nanos(episode.stood()), nanos(episode.lost));
    EndedLoss { place: episode.key, stood_ns, lost_ns, episodes: 1 }
}

fn total(total: Total<WatchedPlace>) -> EndedLoss {
    let (stood_ns, lost_ns) = (nanos(total.stood), nanos(total.lost));
    EndedLoss { place: total.key, stood_ns, lost_ns, episodes: total.episodes }
}

fn remarks(sampler: &Sampler, without_options: u64, forgotten: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if without_options > 0 {
        let connections = if without_options == 1 { "1 connection" } else { &format!("{without_options} connections") };
        remarks.push(format!(
            "The options of {connections} can't be looked at, so waits for Nagle's algorithm or TCP_CORK are not told \
             there: run it as root."
        ));
    }
    let lost = u64::try_from(sampler.forgotten()).unwrap_or(u64::MAX).saturating_add(forgotten);
    if lost > 0 {
        remarks.push(format!("{lost} connections or losses are left out: more than are kept."));
    }
    remarks
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Error};
use taut_measure::placement::{self, Spot, Wish};
use taut_measure::stream::Direction;
use taut_measure::tune::radio::{self, RadioPlan};
use taut_measure::tune::{self, TunePlan, TuneWorkload};
use taut_record::stats::LEAST_ROUNDS;
use taut_record::{Ended, Row};
use taut_report::Document;
use taut_time::Duration;

use super::stream::default_block;
use crate::exit::Code;
use crate::output::OutputArgs;
use crate::run::{self, Run};
use crate::{findings, input};

/// Try the settings that could shorten a path, one against the base in turn, and say which did
///
/// Each round opens new links and measures the base and every setting, beginning with another one each time. What
/// stands out then is measured again in fresh rounds, from which alone its figures are: a setting counts as shorter
/// or longer only when both times the whole interval across rounds lies on the same side, the second time by more
/// than 1 %. What is in force already is not tried. The timeline that is explained comes from trials of its own.
///
/// On one host the system decides where both ends run, and single processors are among the settings. With
/// --place both ends are placed instead, and the verdicts hold for that placement, which the table names.
///
/// A stream over Bluetooth LE is tuned step by step: the receiver's MTU and buffer, the connection interval, PHY,
/// data length and the size of writes are tried on top of what has helped so far, until nothing helps any more.
/// `taut serve` changes its side meanwhile; of any other peer only what one side can change is tried. All is put
/// back at the end, and the lines that make it last are printed. Changing interval, PHY and length needs root here.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut tune tcp://10.0.0.2:9100 --workload write-write-read
  taut tune udp://10.0.0.2:9100 --size 64 --rounds 11
  taut tune l2cap://00:11:22:33:44:55/129 --direction down --least-interval 15ms")]
pub(crate) struct Args {
    /// The peer: `taut serve`, or with --plain any echo server
    #[arg(value_name = "ENDPOINT")]
    endpoint: Endpoint,
    /// What you care about: echo, write-write-read, pace, stream [default: echo; stream over Bluetooth LE]
    #[arg(long, value_name = "NAME", value_parser = ["echo", "write-write-read", "pace", "stream"])]
    workload: Option<String>,
    /// Bytes of one message, or of one write of a stream [default: 32, 128 for write-write-read and
    /// pace, 128KiB for stream]
    #[arg(long, value_name = "SIZE", value_parser = input::size)]
    size: Option<usize>,
    /// Bytes of the first of two writes
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = input::size)]
    split: usize,
    /// Time between messages of pace
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = input::positive_duration)]
    period: Duration,
    /// How the server acknowledges in the base: system, prompt, delayed, us=N
    #[arg(long, value_name = "HOW", default_value = "system")]
    peer_ack: AckPolicy,
    /// The peer is any server that echoes (for pace and stream: that reads)
    #[arg(long)]
    plain: bool,
    /// Where both ends run when the peer is a `taut serve` on this host: same-core, two-cores, both (a
    /// table each, so twice the time), or free, which is wherever the system puts them [default: free]
    #[arg(long, value_name = "WHERE")]
    place: Option<Wish>,
    /// Independent repetitions of each setting, 5 or more, and again as many of each that stands
    /// out [default: 7; 5 over Bluetooth LE]
    #[arg(long, value_name = "N", value_parser = input::deciding_rounds)]
    rounds: Option<usize>,
    /// Time of one setting in one round [default: 200ms, 500ms for pace, 16 connection intervals or
    /// 500ms over Bluetooth LE]
    #[arg(long, value_name = "TIME", value_parser = input::positive_duration)]
    time: Option<Duration>,
    /// Which way: up (to the peer) or down
    #[arg(long, value_name = "WAY", default_value = "up", value_parser = direction, help_heading = "Streams over Bluetooth LE")]
    direction: Direction,
    /// Shortest connection interval that may be asked for; with the one in force, it stays as it is
    #[arg(long, value_name = "TIME", default_value = "7.5ms", value_parser = interval, help_heading = "Streams over Bluetooth LE")]
    least_interval: u16,
    /// Leave what helped in force: the adapters' limits of the interval, and what the server receives with
    #[arg(long, help_heading = "Streams over Bluetooth LE")]
    keep: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    if args.workload.as_deref().unwrap_or("stream") == "stream" && args.endpoint.has_radio() {
        if args.place.is_some() {
            return Err(Error::Input("--place is not for streams over Bluetooth LE: leave it out".into()).into());
        }
        return run_radio(&args);
    }
    if args.keep || args.direction != Direction::Up || args.least_interval != SHORTEST_INTERVAL {
        return Err(
            Error::Input("--direction, --least-interval and --keep are for streams over Bluetooth LE".into()).into()
        );
    }
    let mut plan = args.plan()?;
    run::warn_of_open_logins([&plan.endpoint]);
    let mut run = Run::start("tune")?;
    let wish = Some(args.place.unwrap_or(Wish::Free));
    let work = match plan.workload {
        TuneWorkload::Echo { .. } | TuneWorkload::WriteWriteRead { .. } => Work::Echo,
        TuneWorkload::Pace { .. } => Work::Collect,
        TuneWorkload::Stream { .. } => Work::Sink,
    };
    let spots = placement::of_peers(wish, None, &[&plan.endpoint], work, plan.plain, &run.interrupt)?;
    let spots = spots.into_iter().next().unwrap_or_default();
    let of = spots.len();
    let (mut rows, mut findings, mut ended) = (Vec::new(), Vec::new(), Ended::Complete);
    for (done, spot) in spots.into_iter().enumerate() {
        plan.spot = spot;
        let mut progress = run.progress("tune", done, of);
        match tune::run(&plan, &run.interrupt, &mut progress) {
            Ok(outcome) => {
                findings.extend(findings::of_tune(&outcome, rows.len(), &mut run.kept));
                rows.extend(outcome.rows.into_iter().map(|row| Row::Tune(Box::new(row))));
                ended = outcome.ended;
            }
            Err(error) if rows.is_empty() => return Err(error.into()),
            Err(error) => ended = Ended::PeerGone(error.to_string()),
        }
        if ended != Ended::Complete {
            break;
        }
    }
    args.output.emit(&Document::new(run.finish(ended, rows), findings))
}

fn run_radio(args: &Args) -> anyhow::Result<Code> {
    if args.direction == Direction::Both {
        return Err(Error::Input("tune one direction after the other: up or down".into()).into());
    }
    let plan = RadioPlan {
        endpoint: args.endpoint.clone(),
        direction: args.direction,
        block_bytes: args.size.unwrap_or_else(|| default_block(&args.endpoint)),
        plain: args.plain,
        rounds: args.rounds.unwrap_or(RADIO_ROUNDS),
        time: args.time,
        least_interval: args.least_interval,
        keep: args.keep,
        command: run::command_line(),
    };
    if plan.plain && plan.direction == Direction::Down {
        return Err(Error::Input("a plain server can only be sent to: leave --plain out, or tune `up`".into()).into());
    }
    let run = Run::start("tune")?;
    let outcome = {
        let mut progress = run.progress("tune", 0, 1);
        radio::run(&plan, &run.interrupt, &mut progress)?
    };
    let findings = findings::of_radio_tune(&plan, &outcome);
    let rows = outcome.rows.into_iter().map(|row| Row::Tune(Box::new(row))).collect();
    args.output.emit(&Document::new(run.finish(outcome.ended, rows), findings))
}

fn direction(text: &str) -> Result<Direction, String> {
    [Direction::Up, Direction::Down]
        .into_iter()
        .find(|direction| direction.name() == text)
        .ok_or_else(|| format!("`{text}`: up or down"))
}

/// In units of 1.25 ms.
fn interval(text: &str) -> Result<u16, String> {
    let time = input::positive_duration(text)?;
    let units = time.as_nanos() / 1_250_000;
    let fits = time.as_nanos().is_multiple_of(1_250_000) && (u128::from(SHORTEST_INTERVAL)..=3200).contains(&units);
    if fits {
        Ok(units as u16)
    } else {
        Err(format!("`{text}`: a connection interval is a multiple of 1.25ms from 7.5ms to 4s"))
    }
}

/// 7.5 ms in units of 1.25 ms.
const SHORTEST_INTERVAL: u16 = 6;
const RADIO_ROUNDS: usize = LEAST_ROUNDS;
const ROUNDS: usize = 7;

impl Args {
    fn plan(&self) -> anyhow::Result<TunePlan> {
        let size = |default| self.size.unwrap_or(default);
        let workload = match self.workload.as_deref().unwrap_or("echo") {
            "write-write-read" => {
                let rest = size(128)
                    .checked_sub(self.split)
                    .filter(|&rest| rest > 0)
                    .ok_or_else(|| Error::Input("--split must be shorter than the message".into()))?;
                TuneWorkload::WriteWriteRead { first: self.split, rest }
            }
            "pace" if self.plain => {
                return Err(Error::Input(
                    "a plain server does not tell when messages arrive: tune pace needs taut serve".into(),
                )
                .into());
            }
            "pace" => TuneWorkload::Pace { bytes: size(128), period: self.period },
            "stream" => TuneWorkload::Stream { block: size(default_block(&self.endpoint)) },
            _ => TuneWorkload::Echo { bytes: size(32) },
        };
        let time = if matches!(workload, TuneWorkload::Pace { .. }) { 500 } else { 200 };
        Ok(TunePlan {
            endpoint: self.endpoint.clone(),
            workload,
            acks: self.peer_ack,
            plain: self.plain,
            spot: Spot::default(),
            rounds: self.rounds.unwrap_or(ROUNDS),
            time: self.time.unwrap_or_else(|| Duration::from_millis(time)),
            command: run::command_line(),
        })
    }
}

use taut_link::wire::AckPolicy;
use taut_link::{Endpoint, Error};
use taut_measure::recording::Row;
use taut_measure::tune::{self, TunePlan, TuneWorkload};
use taut_report::Document;
use taut_time::Duration;

use super::stream::default_block;
use crate::exit::Code;
use crate::output::OutputArgs;
use crate::run::{self, Run};
use crate::{findings, input};

/// Try the settings that could shorten a path, one against the base in turn, and say which did
///
/// Each round opens new links and measures the base and every setting, beginning with another one each time. A setting
/// counts as shorter or longer only when the whole interval across rounds (all of up to eight rounds, all but the outermost
/// of more) is more than 1 % away from the base.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut tune tcp://10.0.0.2:9100 --workload write-write-read
  taut tune udp://10.0.0.2:9100 --size 64 --rounds 11")]
pub(crate) struct Args {
    /// The peer: `taut serve`, or with --plain any echo server
    #[arg(value_name = "ENDPOINT")]
    endpoint: Endpoint,
    /// What you care about: echo, write-write-read, pace, stream
    #[arg(long, value_name = "NAME", default_value = "echo",
          value_parser = ["echo", "write-write-read", "pace", "stream"])]
    workload: String,
    /// Bytes of one message, or of one write of a stream [default: 32, 128 for write-write-read and pace, 128KiB for stream]
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
    /// Independent repetitions of each setting
    #[arg(long, value_name = "N", default_value = "7", value_parser = input::count)]
    rounds: usize,
    /// Time of one setting in one round [default: 200ms, 500ms for pace]
    #[arg(long, value_name = "TIME", value_parser = input::positive_duration)]
    time: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let plan = args.plan()?;
    let run = Run::start("tune")?;
    let outcome = {
        let mut progress = run.progress("tune", 0, 1);
        tune::run(&plan, &run.interrupt, &mut progress)?
    };
    let findings = findings::of_tune(&outcome);
    let rows = outcome.rows.into_iter().map(|row| Row::Tune(Box::new(row))).collect();
    args.output.emit(&Document { recording: run.finish(outcome.ended, rows), findings })
}

impl Args {
    fn plan(&self) -> anyhow::Result<TunePlan> {
        let size = |default| self.size.unwrap_or(default);
        let workload = match self.workload.as_str() {
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
            rounds: self.rounds,
            time: self.time.unwrap_or_else(|| Duration::from_millis(time)),
            command: run::command_line(),
        })
    }
}

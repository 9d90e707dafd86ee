use anyhow::Context;
use taut_link::wire::Work;
use taut_link::{Endpoint, Error, affinity};
use taut_measure::Interrupt;
use taut_measure::crowd::{self, CrowdPlan, HostedBy};
use taut_measure::placement::{self, Spot, Wish};
use taut_record::stats::usual_rounds;
use taut_record::{PlacementKind, Row};
use taut_report::Document;
use taut_serve::crowd::CrowdEngine;
use taut_time::{Duration, Framing};

use super::crowd_host;
use crate::assertion::AssertArgs;
use crate::exit::Code;
use crate::output::OutputArgs;
use crate::run::{self, Run};
use crate::{findings, input};

/// Many connections, few of them active: what does each way of waiting cost a server?
///
/// The engine under test drives a server process of its own, which sends every message back. We
/// hold all connections, send 32 bytes on each of a few drawn at random, wait for all replies, and
/// draw again. Printed are the round trip, and of the server CPU time for each message, threads and
/// memory. Without an ENDPOINT the servers run here, on loopback; with the ENDPOINT of a `taut
/// serve` they run there. Engines are interleaved; every round has new servers and connections.
///
/// Engines: poll, epoll, tokio, uring (io_uring as it is); over libtautaio aio-signal, aio-suspend (over all
/// connections) and aio-wait (aio_waitcomplete); glibc-aio (the C library's POSIX AIO as it comes: beyond 20
/// connections it starves them) and glibc-aio-threads (the same with a thread for each connection).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut connections --html connections.html                 10,000 of them, 1 to 1,000 active
  taut connections --engines poll,aio-signal,glibc-aio     the interface of <aio.h>, ours and glibc's
  taut connections --active 10 --by-connections 100,1000   what does a wake-up cost, by connections?
  taut connections tcp://10.0.0.2:9100 --engines epoll,uring --connections 2000")]
pub(crate) struct Args {
    /// The peer, a `taut serve` on tcp:// or unix: [default: servers of our own on 127.0.0.1]
    #[arg(value_name = "ENDPOINT")]
    endpoint: Option<Endpoint>,
    /// Connections to one server
    #[arg(long, value_name = "N", default_value = "10000", value_parser = input::count)]
    connections: usize,
    /// How many of them are active at once [default: 1,10,100,1000, as far as there are connections]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = input::count)]
    active: Vec<usize>,
    /// How the server waits; each is held against the first
    #[arg(
        long,
        value_name = "ENGINE,…",
        value_delimiter = ',',
        default_value = "poll,epoll,uring,aio-signal,aio-wait"
    )]
    engines: Vec<CrowdEngine>,
    /// Further numbers of connections, each with the first number of active ones
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = input::count)]
    by_connections: Vec<usize>,
    /// Independent repetitions, each with new servers and connections [default: as many as verdicts
    /// on the whole table take, 12 for that of all defaults]
    #[arg(long, value_name = "N", value_parser = input::count)]
    rounds: Option<usize>,
    /// Time of one engine with one number of active connections in one round, at least three exchanges
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = input::positive_duration)]
    time: Duration,
    /// After which silence messages count as lost
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = input::positive_duration)]
    timeout: Duration,
    /// Put the client on this processor [default: the second one, where both ends are placed]
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Put our own servers on this processor [default: another one than the client's]
    #[arg(long, value_name = "N", conflicts_with_all = ["endpoint", "place"])]
    server_cpu: Option<usize>,
    /// Where both ends run when the servers are ours or those of a `taut serve` on this host: same-core,
    /// two-cores, or free, which is wherever the system puts them [default: two-cores; free of a peer elsewhere]
    #[arg(long, value_name = "WHERE")]
    place: Option<Wish>,
    #[command(flatten)]
    thresholds: AssertArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut plan = args.plan()?;
    let run = Run::start("crowd")?;
    plan.spot = args.spot(&run.interrupt)?;
    let outcome = {
        let mut progress = run.progress("connections", 0, 1);
        crowd::run(&plan, &run.interrupt, &mut progress)?
    };
    let findings = findings::of_crowd(&outcome.rows);
    let missed = outcome.rows.iter().fold(false, |missed, row| {
        let on = format!("{}, {} of {} active", row.engine, row.active, row.connections);
        args.thresholds.are_missed(&on, row.rtt_ns.as_ref(), row.lost, row.sent) || missed
    });
    let rows = outcome.rows.into_iter().map(|row| Row::Crowd(Box::new(row))).collect();
    let code = args.output.emit(&Document::new(run.finish(outcome.ended, rows), findings))?;
    Ok(if code == Code::Ok && missed { Code::ThresholdMissed } else { code })
}

impl Args {
    fn active(&self) -> Vec<usize> {
        if !self.active.is_empty() {
            return self.active.clone();
        }
        [1, 10, 100, 1000].into_iter().filter(|&active| active <= self.connections).collect()
    }

    /// Where the client and the servers are put.
    fn spot(&self, interrupt: &Interrupt) -> anyhow::Result<Spot> {
        let Some(endpoint) = &self.endpoint else {
            let spot = placement::of_threads(Some(self.place.unwrap_or_else(two_cores)), self.cpu)?.swap_remove(0);
            return Ok(match (spot.core, self.server_cpu) {
                (Some(core), Some(server)) => Spot::on(core, server),
                (_, server) => Spot { peer_core: server.or(spot.peer_core), ..spot },
            });
        };
        let spots = placement::of_peers(self.place, self.cpu, &[endpoint], Work::Echo, false, interrupt)?;
        let mut spots = spots.into_iter().flatten().collect::<Vec<_>>();
        // Of both the usual one.
        let usual = spots.iter().position(|spot| spot.kind == PlacementKind::TwoCores).unwrap_or(0);
        Ok(spots.swap_remove(usual))
    }

    fn plan(&self) -> anyhow::Result<CrowdPlan> {
        if self.place == Some(Wish::Both) {
            let text =
                "a crowd has one table for all engines: run it with --place same-core and with --place two-cores";
            return Err(Error::Input(text.into()).into());
        }
        let server = match &self.endpoint {
            Some(endpoint) if endpoint.framing() == Framing::Datagram => {
                let text = format!("{endpoint}: a crowd is one of streams: write tcp://HOST:PORT or unix:PATH");
                return Err(Error::Input(text).into());
            }
            Some(endpoint) => HostedBy::At(endpoint.clone()),
            None => own_server()?,
        };
        let mut plan = CrowdPlan {
            server,
            engines: self.engines.clone(),
            connections: self.connections,
            active: self.active(),
            by_connections: self.by_connections.clone(),
            rounds: 0,
            time: self.time,
            timeout: self.timeout,
            spot: Spot::default(),
            command: run::command_line(),
        };
        plan.rounds = self.rounds.unwrap_or_else(|| usual_rounds(plan.comparisons()));
        Ok(plan)
    }
}

/// Servers of our own.
pub(crate) fn own_server() -> anyhow::Result<HostedBy> {
    let program = crowd_host::program().context("find the program itself")?;
    Ok(HostedBy::Own { program, listen: "tcp://127.0.0.1:0".parse()? })
}

/// The placement that a crowd has when nobody says which: what a server costs is to be told apart
/// from what its clients do.
pub(crate) fn two_cores() -> Wish {
    if affinity::allowed_cores().len() < 2 { Wish::Free } else { Wish::TwoCores }
}

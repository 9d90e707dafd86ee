use taut_link::wire::{AckPolicy, Work};
use taut_link::{SocketOption, foreign};
use taut_measure::echo;
use taut_measure::pace::{self, PacePlan, PeerKind};
use taut_measure::placement::{self, Spot};
use taut_record::{FigureUnit, PaceRow, PublishedRow, Row};
use taut_time::Duration;

use super::experiment::{Experiment, figure, figure_of_ours};
use super::published::published;
use crate::findings;
use crate::local_server::LocalServer;

/// The ACK delay that explains the published figures.
const FOREIGN_DELAY: Duration = Duration::from_millis(56);
/// Of each case.
const TIME: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;

pub(super) fn measure(experiment: &mut Experiment) -> anyhow::Result<()> {
    let there = published()?.nagle;
    // First, while the process has one thread: without root its namespace can only be made then.
    let foreign = foreign::ForeignHost::start(foreign::AckTimer::after(FOREIGN_DELAY)).map(drop);
    let server = LocalServer::start(&["tcp://127.0.0.1:0".to_owned()])?;
    let linux = || PeerKind::Server { endpoint: server.endpoints[0].clone(), acks: AckPolicy::Delayed };
    let linux_spot = experiment.apart(&server.endpoints[0], Work::Collect)?;
    let (on, off) = match &foreign {
        Ok(()) => {
            let spot = placement::of_threads(None, None)?.pop().unwrap_or_default();
            let peer = || PeerKind::Foreign(foreign::AckTimer::after(FOREIGN_DELAY));
            (pace(experiment, 0, peer(), &spot, true)?, pace(experiment, 1, peer(), &spot, false)?)
        }
        Err(_) => (None, pace(experiment, 1, linux(), &linux_spot, false)?),
    };
    let delayed = pace(experiment, 2, linux(), &linux_spot, true)?;
    let gap = |row: &Option<PaceRow>| row.as_ref()?.sender_gap_ns?.mean.map(|ns| ns as f64);
    let packed = |row: &Option<PaceRow>| row.as_ref()?.messages_per_segment;
    let here = match &foreign {
        Ok(()) => {
            "the same over loopback to an emulated receiver that acknowledges after 56 ms, and to a Linux one with \
                   delayed ACKs"
                .to_owned()
        }
        Err(error) => format!(
            "the same over loopback to a Linux receiver with delayed ACKs; one that acknowledges after 56 ms can't be \
             emulated here ({error})"
        ),
    };
    experiment.published = Some(PublishedRow {
        experiment: "Nagle's algorithm and real-time sending".to_owned(),
        there: there.there,
        here,
        figures: vec![
            figure("mean gap between segments, Nagle on", FigureUnit::Ns, there.mean_gap_on_ms * 1e6, gap(&on)),
            figure("messages a segment, Nagle on", FigureUnit::Number, there.messages_per_segment_on, packed(&on)),
            figure("mean gap between segments, Nagle off", FigureUnit::Ns, there.mean_gap_off_ms * 1e6, gap(&off)),
            figure_of_ours("mean gap, Nagle on, to Linux with delayed ACKs", FigureUnit::Ns, None, gap(&delayed)),
            figure_of_ours("messages a segment, likewise", FigureUnit::Number, None, packed(&delayed)),
        ],
        meaning:
            "The gap is the receiver's ACK delay: Nagle's algorithm holds small writes until the segment before is \
                  acknowledged, and TCP_NODELAY on the sending socket ends that."
                .to_owned(),
        command: "taut pace --emulate-delack 56ms --nagle on --time 60s".to_owned(),
    });
    Ok(())
}

fn pace(
    experiment: &mut Experiment,
    part: u32,
    peer: PeerKind,
    spot: &Spot,
    nagle: bool,
) -> anyhow::Result<Option<PaceRow>> {
    if experiment.interrupt.is_set() {
        return Ok(None);
    }
    let nagle_word = if nagle { "on" } else { "off" };
    let command = match &peer {
        PeerKind::Server { endpoint, acks } => {
            format!("taut serve {endpoint} & taut pace {endpoint} --nagle {nagle_word} --peer-ack {acks} --time 4s")
        }
        _ => format!("taut pace --emulate-delack 56ms --nagle {nagle_word} --time 4s"),
    };
    let plan = PacePlan {
        peer,
        message_bytes: 128,
        period: Duration::from_millis(10),
        time: TIME,
        rounds: ROUNDS,
        options: vec![SocketOption::Nodelay(!nagle)],
        exceed: Vec::new(),
        spot: spot.clone(),
        fifo: false,
        command,
    };
    let mut progress = experiment.progress("128 bytes every 10 ms", TIME * part, TIME, TIME * 3);
    let mut outcome = pace::run(&plan, &experiment.interrupt, &mut progress)?;
    outcome.row.observer = echo::observer_cost(&experiment.interrupt).unwrap_or_default();
    let found = findings::of_pace(&mut outcome, experiment.rows.len(), &mut experiment.kept);
    experiment.findings.extend(found);
    experiment.rows.push(Row::Pace(Box::new(outcome.row.clone())));
    experiment.goes_on(outcome.ended);
    Ok(Some(outcome.row))
}

use taut_link::wire::{AckPolicy, Work};
use taut_measure::echo::{self, EchoPlan, EchoSubject, RunLength, WriteStyle};
use taut_measure::engine::EngineKind;
use taut_record::{EchoRow, FigureUnit, PublishedRow, Row};
use taut_time::Duration;

use super::experiment::{Experiment, figure, figure_of_ours};
use super::published::published;
use crate::findings;
use crate::local_server::LocalServer;

const ROUNDS: usize = 5;
/// The published number.
const ECHOES: u64 = 1000;
/// Of each link at 60 a second.
const FRAMES: Duration = Duration::from_secs(3);
/// What the echoes are expected to take.
const ECHO_TIME: Duration = Duration::from_secs(1);
const FRAME: Duration = Duration::from_micros(16_700);

pub(super) fn measure(experiment: &mut Experiment) -> anyhow::Result<()> {
    let there = published()?.latency;
    let server = LocalServer::start(&["tcp://127.0.0.1:0", "udp://127.0.0.1:0"].map(ToOwned::to_owned))?;
    let all = ECHO_TIME + FRAMES * 2;
    let mut progress = experiment.progress("1,000 echoes", Duration::ZERO, ECHO_TIME, all);
    let echoes = echo(experiment, &server, RunLength::Count(ECHOES), None, &mut progress)?;
    let mut progress = experiment.progress("60 a second", ECHO_TIME, FRAMES * 2, all);
    let frames = echo(experiment, &server, RunLength::Time(FRAMES), Some(60.0), &mut progress)?;
    let mut figures = Vec::new();
    for (index, link) in there.links.iter().enumerate() {
        let row = echoes.iter().find(|row| row.transport == *link);
        let times = row.and_then(|row| row.rtt_ns);
        let late = |limit: Duration| row.and_then(|row| late(row, limit));
        let lost = row.map(|row| row.lost as f64 / row.sent.max(1) as f64);
        let p50 = times.and_then(|times| times.p50.time()).map(|ns| ns as f64);
        let p90 = times.and_then(|times| times.p90.time()).map(|ns| ns as f64);
        let at = |figures: &[f64], scale: f64| figures.get(index).copied().unwrap_or(f64::NAN) * scale;
        let named = |what: &str| format!("{link}: {what}");
        figures.push(figure(named("p50"), FigureUnit::Ns, at(&there.p50_ms, 1e6), p50));
        figures.push(figure(named("p90"), FigureUnit::Ns, at(&there.p90_ms, 1e6), p90));
        let (over_50, over_100) = (late(Duration::from_millis(50)), late(Duration::from_millis(100)));
        let published = &there.late_over_50_ms_pct;
        figures.push(figure(named("later than 50 ms"), FigureUnit::Share, at(published, 0.01), over_50));
        let published = &there.late_over_100_ms_pct;
        figures.push(figure(named("later than 100 ms"), FigureUnit::Share, at(published, 0.01), over_100));
        figures.push(figure(named("lost after 1 s"), FigureUnit::Share, at(&there.timeout_pct, 0.01), lost));
    }
    for row in &frames {
        let name = format!("{}: frames at 60 a second that came later than 16.7 ms", row.transport);
        figures.push(figure_of_ours(name, FigureUnit::Share, None, late(row, FRAME)));
    }
    experiment.published = Some(PublishedRow {
        experiment: "Latency of wireless and wired links".to_owned(),
        there: there.there,
        here: "the same over loopback, which has no radio: RFCOMM takes two adapters".to_owned(),
        figures,
        meaning:
            "The tail decides, and not the mean: at 60 frames a second, 1.6 % late frames are one each second. Losses \
                  count as later than every limit, so the shares can't rise with the limit, as those published do."
                .to_owned(),
        command: "taut echo HOST udp://HOST --rate 60, with `taut serve` on HOST, over your own link".to_owned(),
    });
    Ok(())
}

fn late(row: &EchoRow, limit: Duration) -> Option<f64> {
    row.exceed.iter().find(|exceed| u128::from(exceed.over_ns) == limit.as_nanos()).map(|exceed| exceed.share)
}

fn echo(
    experiment: &mut Experiment,
    server: &LocalServer,
    limit: RunLength,
    rate_hz: Option<f64>,
    progress: &mut dyn FnMut(usize, usize),
) -> anyhow::Result<Vec<EchoRow>> {
    if experiment.interrupt.is_set() {
        return Ok(Vec::new());
    }
    let list: Vec<String> = server.endpoints.iter().map(ToString::to_string).collect();
    let list = list.join(" ");
    let command = match rate_hz {
        Some(rate) => format!("taut serve {list} & taut echo {list} --size 32 --rate {rate} --time 3s"),
        None => format!("taut serve {list} & taut echo {list} --size 32 --count {ECHOES}"),
    };
    let mut subjects = Vec::new();
    for endpoint in &server.endpoints {
        subjects.push(EchoSubject {
            endpoint: endpoint.clone(),
            // A schedule is waited for beside the replies.
            engine: if rate_hz.is_some() { EngineKind::Epoll } else { EngineKind::Blocking },
            options: Vec::new(),
            acks: AckPolicy::System,
            writes: WriteStyle::One,
            spot: experiment.apart(endpoint, Work::Echo)?,
            observe: false,
            command: command.clone(),
        });
    }
    let plan = EchoPlan {
        rounds: ROUNDS,
        limit,
        rate_hz,
        timeout: Duration::from_secs(1),
        exceed: vec![FRAME, Duration::from_millis(50), Duration::from_millis(100)],
        message_bytes: 32,
        connections: 1,
        plain: false,
    };
    let outcome = echo::run(&plan, &subjects, &experiment.interrupt, progress)?;
    let found = findings::of_echo(&outcome, experiment.rows.len(), &mut experiment.kept);
    experiment.findings.extend(found);
    experiment.goes_on(outcome.ended);
    let rows: Vec<EchoRow> = outcome.rows.into_iter().flatten().collect();
    experiment.rows.extend(rows.iter().cloned().map(|row| Row::Echo(Box::new(row))));
    Ok(rows)
}

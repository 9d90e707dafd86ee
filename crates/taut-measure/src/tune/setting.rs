use taut_link::SocketOption;
use taut_link::wire::AckPolicy;

use super::{TunePlan, TuneWorkload};
use crate::echo::WriteStyle;
use crate::engine::EngineKind;
use crate::placement;

/// One way to run the workload.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) name: String,
    /// Where it is set.
    pub(super) place: &'static str,
    /// The line that puts it in force.
    pub(super) apply: Option<String>,
    pub(super) options: Vec<SocketOption>,
    pub(super) acks: AckPolicy,
    pub(super) engine: EngineKind,
    pub(super) writes: WriteStyle,
    pub(super) core: Option<usize>,
}

/// Processors that are tried at most: on a larger machine the first ones stand for all.
const CORES: usize = 4;

/// The base, and then every setting that could help this workload on this endpoint.
pub(super) fn all(plan: &TunePlan) -> Vec<Setting> {
    let base = base(plan);
    let mut settings = vec![base.clone()];
    settings.extend(socket_options(plan, &base));
    settings.extend(ways_to_write(plan, &base));
    settings.extend(peer_acks(plan, &base));
    if matches!(plan.workload, TuneWorkload::Echo { .. } | TuneWorkload::WriteWriteRead { .. }) {
        settings.extend(EngineKind::ALL.into_iter().filter(|&engine| engine != base.engine).map(|engine| Setting {
            name: format!("engine {engine}"),
            place: "the program",
            apply: Some(format!(
                "taut echo --engine {engine}; in a program: wait with {engine} instead of a blocking read"
            )),
            engine,
            ..base.clone()
        }));
    }
    settings.extend(placement::allowed_cores().into_iter().take(CORES).map(|core| Setting {
        name: format!("core {core}"),
        place: "the program",
        apply: Some(format!("taskset -c {core} PROGRAM, or sched_setaffinity(2)")),
        core: Some(core),
        ..base.clone()
    }));
    settings
}

fn base(plan: &TunePlan) -> Setting {
    Setting {
        name: "base".to_owned(),
        place: "nothing set",
        apply: None,
        options: Vec::new(),
        acks: plan.acks,
        engine: EngineKind::Blocking,
        writes: match plan.workload {
            TuneWorkload::WriteWriteRead { first, .. } => WriteStyle::Two { first },
            _ => WriteStyle::One,
        },
        core: None,
    }
}

fn socket_options(plan: &TunePlan, base: &Setting) -> Vec<Setting> {
    let mut options = vec![SocketOption::Nodelay(true), SocketOption::Quickack(true), SocketOption::BusyPoll(50)];
    if matches!(plan.workload, TuneWorkload::Pace { .. } | TuneWorkload::Stream { .. }) {
        options.push(SocketOption::NotsentLowat(16 * 1024));
    }
    if matches!(plan.workload, TuneWorkload::Stream { .. }) {
        options.push(SocketOption::SendBuffer(4 << 20));
    }
    options
        .into_iter()
        .filter(|option| option.applies_to(&plan.endpoint))
        .map(|option| Setting {
            name: match option {
                SocketOption::Nodelay(_) | SocketOption::Quickack(_) => option.name().to_owned(),
                _ => option.to_string(),
            },
            place: "this socket",
            apply: Some(option.line_of_code()),
            options: vec![option],
            ..base.clone()
        })
        .collect()
}

/// Two writes as one: only where a message takes two.
fn ways_to_write(plan: &TunePlan, base: &Setting) -> Vec<Setting> {
    let TuneWorkload::WriteWriteRead { first, .. } = plan.workload else { return Vec::new() };
    let way = |name: &str, apply: &str, writes| Setting {
        name: name.to_owned(),
        place: "the program",
        apply: Some(apply.to_owned()),
        writes,
        ..base.clone()
    };
    let mut ways =
        vec![way("one writev", "writev(fd, (struct iovec[]){head, body}, 2);", WriteStyle::Vectored { first })];
    let cork = SocketOption::Cork(true);
    if cork.applies_to(&plan.endpoint) {
        let apply = format!("{} around the writes, and 0 after them", cork.line_of_code().trim_end_matches(';'));
        ways.push(way("cork", &apply, WriteStyle::Corked { first }));
    }
    ways
}

fn peer_acks(plan: &TunePlan, base: &Setting) -> Vec<Setting> {
    if plan.plain || !plan.endpoint.acknowledges() {
        return Vec::new();
    }
    let peer = |name: &str, apply: String, acks| Setting {
        name: name.to_owned(),
        place: "the peer's socket",
        apply: Some(apply),
        acks,
        ..base.clone()
    };
    let quickack = format!("{} after each read", SocketOption::Quickack(true).line_of_code().trim_end_matches(';'));
    vec![
        peer("peer: quickack", quickack, AckPolicy::Prompt),
        peer(
            "peer: delack_max_us=8000",
            SocketOption::DelackMaxUs(8000).line_of_code(),
            AckPolicy::DelayedAtMost(8000),
        ),
    ]
}

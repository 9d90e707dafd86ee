use taut_link::wire::AckPolicy;
use taut_link::{SocketOption, affinity};

use super::plan::{TunePlan, TuneWorkload};
use crate::echo::WriteStyle;
use crate::engine::EngineKind;
use taut_record::{PlacementKind, fact};

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

/// Every setting that could help this workload on this endpoint; the base is none of them.
pub(super) fn all(plan: &TunePlan) -> Vec<Setting> {
    let base = base(plan);
    let mut settings = socket_options(plan, &base);
    settings.extend(ways_to_write(plan, &base));
    settings.extend(peer_acks(plan, &base));
    settings.extend(around_a_broker(plan, &base));
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
    // Where both ends have their processors already there is none to try.
    let is_placed = plan.spot.kind != PlacementKind::Free;
    let cores = affinity::allowed_cores().into_iter().take(if is_placed { 0 } else { CORES });
    settings.extend(cores.map(|core| Setting {
        name: format!("core {core}"),
        place: "the program",
        apply: Some(format!("taskset -c {core} PROGRAM, or sched_setaffinity(2)")),
        core: Some(core),
        ..base.clone()
    }));
    settings
}

/// Nothing set.
pub(super) fn base(plan: &TunePlan) -> Setting {
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

impl Setting {
    /// Why it can't act: what it sets is so already in the base, whose socket has these options `in_force`.
    pub(super) fn is_in_force(&self, plan: &TunePlan, in_force: &[String], allowed_cores: &[usize]) -> Option<String> {
        let is_on = |option: &SocketOption| fact(in_force, option.name()) == Some(&option.value().to_string());
        if self.core.is_some_and(|core| allowed_cores == [core]) {
            return Some("in force already: this is the only processor that the program may use".to_owned());
        }
        if !self.options.is_empty() && self.options.iter().all(is_on) {
            return Some("in force already: the socket has it without being asked".to_owned());
        }
        let is_of_the_peer = plan.acks != AckPolicy::System && self.place == PEER && self.acks == plan.acks;
        is_of_the_peer.then(|| format!("in force already: the base has --peer-ack {}", plan.acks))
    }
}

const PEER: &str = "the peer's socket";

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
        place: PEER,
        apply: Some(apply),
        acks,
        ..base.clone()
    };
    let quickack = format!("{} after each read", SocketOption::Quickack(true).line_of_code().trim_end_matches(';'));
    let mut acks = vec![peer("peer: quickack", quickack, AckPolicy::Prompt)];
    // One connection to a broker serves all clients: its timer is nobody's to choose.
    if !plan.endpoint.has_broker() {
        let line = SocketOption::DelackMaxUs(8000).line_of_code();
        acks.push(peer("peer: delack_max_us=8000", line, AckPolicy::DelayedAtMost(8000)));
    }
    acks
}

/// What lets go the packets that a broker holds until they are acknowledged, without touching the broker.
fn around_a_broker(plan: &TunePlan, base: &Setting) -> Option<Setting> {
    let (nodelay, quickack) = (SocketOption::Nodelay(true), SocketOption::Quickack(true));
    let lines = format!(
        "{} and {} after each read, in all clients of the broker",
        nodelay.line_of_code().trim_end_matches(';'),
        quickack.line_of_code().trim_end_matches(';')
    );
    plan.endpoint.has_broker().then(|| Setting {
        name: "nodelay, quickack at both ends".to_owned(),
        place: "both sockets",
        apply: Some(lines),
        options: vec![nodelay, quickack],
        acks: if plan.plain { base.acks } else { AckPolicy::Prompt },
        ..base.clone()
    })
}

#[cfg(test)]
mod tests {
    use taut_time::Duration;

    use super::*;

    fn plan(acks: AckPolicy) -> TunePlan {
        TunePlan {
            endpoint: "tcp://127.0.0.1:9".parse().unwrap(),
            workload: TuneWorkload::Echo { bytes: 32 },
            acks,
            plain: false,
            spot: crate::placement::Spot::default(),
            rounds: 5,
            time: Duration::from_millis(1),
            command: String::new(),
        }
    }

    /// Names of those that could not act.
    fn out(acks: AckPolicy, in_force: &[&str], cores: &[usize]) -> Vec<String> {
        let in_force: Vec<String> = in_force.iter().map(|&option| option.to_owned()).collect();
        let settings = all(&plan(acks)).into_iter();
        let out = settings.filter(|setting| setting.is_in_force(&plan(acks), &in_force, cores).is_some());
        out.map(|setting| setting.name).collect()
    }

    #[test]
    fn what_is_in_force_is_not_tried() {
        let first = affinity::allowed_cores()[0];
        let none: [String; 0] = [];
        assert_eq!(out(AckPolicy::System, &["nodelay=0", "busy_poll=0"], &[first, first + 1]), none);
        assert_eq!(out(AckPolicy::System, &["nodelay=1", "busy_poll=0"], &[first, first + 1]), ["nodelay"]);
        assert_eq!(out(AckPolicy::System, &["busy_poll=50"], &[first, first + 1]), ["busy_poll=50"]);
        assert_eq!(out(AckPolicy::System, &[], &[first]), [format!("core {first}")]);
        assert_eq!(out(AckPolicy::Prompt, &[], &[first, first + 1]), ["peer: quickack"]);
    }
}

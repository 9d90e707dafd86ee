//! Scenarios of `taut-air` that show what the log shows.
//!
//! What the log says is taken over ([`known`]). What it leaves open is searched, one parameter after another: when the
//! link layers take up late packets, how many PDUs they put into an event, the way between hosts and controllers, when
//! completed packets are reported, the time that the receiver takes to answer with credits, the program's time, and the
//! share of packets that must be sent again. Each candidate is run, and its run followed as a log by the same rules;
//! the nearest in all figures ([`Shape`]) stand. There may be several that are about as near: a log does not tell them
//! apart.

use taut_air::controller::Completion;
use taut_air::host::Latency;
use taut_air::transport::Transport;
use taut_air::{Nanos, Pickup, Scenario};

use super::facts::Facts;
use super::gains::Fitted;
use super::known::{USB, USUAL_BUFFERS, known, transport};
use super::replay::replay;
use super::shape::Shape;

/// The scenario is the log's link if it carries its rate to within this part.
const NEAR: f64 = 0.15;
/// What assumes more has to be nearer by this much.
const MORE: f64 = 1.0;
/// So many scenarios stand for the log at most.
const MOST_STANDING: usize = 4;
/// Beyond the nearest one by more than this part of its distance and this much, another does not stand for the log.
const BEYOND: (f64, f64) = (0.15, 4.0);
/// Nor beyond it by this much: it would have less than 5 % of the nearest one's weight.
const MOST_BEYOND: f64 = 6.0;
/// Where chance begins in each run.
pub(super) const SEED: u64 = 1;
/// No more are run.
const MOST_RUNS: usize = 300;
/// Packets that a controller with few buffers takes: Intel's AX200 (`taut_air::controller::PROFILES`).
const FEW_BUFFERS: u16 = 3;
/// All that is open is settled so many times at most: what fits one may not fit any more after another.
const MOST_PASSES: usize = 3;

/// Virtual time of a run: enough events for the rhythm of blocks over events to repeat, and enough SDUs where a link is
/// as slow as the log's.
pub(super) fn duration(facts: &Facts<'_>) -> Nanos {
    const SDUS: f64 = 16.0;
    const LONGEST: f64 = 10e9;
    const PACKETS: u64 = 600;
    let slow = SDUS * facts.limit.sdu as f64 * 8e9 / facts.rate().max(1.0);
    let usual = (80 * facts.interval()).clamp(1_000_000_000, 4_000_000_000);
    // A fast link shows its rhythm sooner.
    let fast = PACKETS.saturating_mul(facts.whole_ns) / facts.half.tally.packets.max(1);
    usual.min(fast.max(20 * facts.interval()).max(500_000_000)).max(slow.min(LONGEST) as Nanos)
}

/// Virtual time of the runs that tell what a link carries with a remedy and without: as long as the log's, so that
/// a few SDUs more or less do not count, and not longer than four seconds.
pub(super) fn told_duration(facts: &Facts<'_>) -> Nanos {
    const LONGEST: Nanos = 4_000_000_000;
    duration(facts).max(facts.whole_ns.min(LONGEST))
}

/// The scenarios that show what the log shows, the nearest first; none where the log lacks what it takes, or no
/// scenario carries its rate.
pub(super) fn fit(facts: &Facts<'_>) -> Vec<Fitted> {
    let Some(base) = known(facts) else { return Vec::new() };
    let mut search = Search { facts, seen: Shape::of(facts), tried: Vec::new() };
    // What a link layer does with packets that come late changes all else: from each of its ways.
    let mut best: Option<usize> = None;
    for group in starts(facts, &base) {
        let group: Vec<usize> = group.into_iter().filter_map(|start| search.run(start)).collect();
        let nearest = group.into_iter().min_by(|&a, &b| search.distance(a).total_cmp(&search.distance(b)));
        let Some(start) = nearest else { continue };
        // What is settled first may stand in the way of the rest: in another order, too.
        let ends = [search.nearest(start, &OPEN[1..]), search.nearest(start, &OTHERWISE)];
        let [one, other] = ends.map(|end| search.distance(end));
        let at = if other < one { ends[1] } else { ends[0] };
        if best.is_none_or(|best| search.distance(at) < search.distance(best) - MORE) {
            best = Some(at);
        }
    }
    let Some(mut best) = best else { return Vec::new() };
    for _ in 0..MOST_PASSES {
        let before = best;
        best = search.nearest(best, &OPEN);
        if best == before {
            break;
        }
    }
    best = search.nearest(best, &[finer_losses]);
    let least = search.distance(best);
    let mut standing: Vec<Fitted> = search.tried.into_iter().flatten().collect();
    standing.retain(|fitted| fitted.distance <= least + (least * BEYOND.0 + BEYOND.1).min(MOST_BEYOND));
    standing.retain(|fitted| (fitted.rate / facts.rate()).ln().abs() <= NEAR);
    standing.sort_by(|a, b| a.distance.total_cmp(&b.distance));
    let mut apart: Vec<Fitted> = Vec::new();
    for fitted in standing {
        if apart.len() < MOST_STANDING && apart.iter().all(|other| differ(&other.scenario, &fitted.scenario)) {
            apart.push(fitted);
        }
    }
    apart
}

/// Where the search begins: what changes all else, in groups, from the nearest of each of which it goes on.
fn starts(facts: &Facts<'_>, base: &Scenario) -> Vec<Vec<Scenario>> {
    let mut groups: Vec<Vec<Scenario>> = pickups(facts, base).iter().map(|start| transports(facts, start)).collect();
    if !facts.half.is_sent_here() {
        let sender = base.sender;
        let few = |nocp: Completion| {
            let few = |scenario: &Scenario| {
                with(scenario, |all| {
                    let sender = all.side_mut(sender);
                    (sender.acl_buffers, sender.nocp) = (FEW_BUFFERS, nocp);
                })
            };
            pickups(facts, base).iter().map(few).collect()
        };
        groups.extend([few(Completion::Each), few(Completion::NextEvent)]);
    }
    groups
}

/// What a scenario assumes beyond the usual counts as so much distance: what assumes less explains more.
fn assumed(scenario: &Scenario, is_sent_here: bool) -> f64 {
    let sender = scenario.side(scenario.sender);
    let is_limited = f64::from(u8::from(sender.packets_per_event.is_some()));
    let is_lossy = f64::from(u8::from(scenario.loss.per > 0.0));
    let way = match sender.transport {
        Transport::Uart { baud } if baud < 2_000_000 => 2.0,
        Transport::Uart { .. } => 1.0,
        Transport::None | Transport::Usb { .. } => 0.0,
    };
    let buffers = match sender.acl_buffers {
        _ if is_sent_here => 0.0,
        USUAL_BUFFERS => 0.0,
        FEW_BUFFERS => 3.0,
        _ => 4.0,
    };
    // Of the sender's reports the receiver's log has nothing.
    let reports = f64::from(u8::from(!is_sent_here && sender.nocp != Completion::Each));
    8.0 * is_limited + 3.0 * is_lossy + way + buffers + 1.5 * reports
}

/// Whether two scenarios differ in what their remedies depend on most.
fn differ(a: &Scenario, b: &Scenario) -> bool {
    let of = |all: &Scenario| {
        let (sender, receiver) = (all.side(all.sender), all.side(all.sender.other()));
        let is_slow = matches!(sender.transport, Transport::Uart { baud } if baud < 2_000_000);
        let controller = (sender.packets_per_event, sender.nocp, sender.acl_buffers, is_slow);
        (sender.pickup, receiver.pickup, controller, all.loss.per > 0.0)
    };
    of(a) != of(b)
}

struct Search<'a> {
    facts: &'a Facts<'a>,
    seen: Shape,
    /// `None`: it cannot be. The scenario is kept beside, to be known again.
    tried: Vec<Option<Fitted>>,
}

impl Search<'_> {
    /// Runs a scenario unless it was; where it is among those tried.
    fn run(&mut self, scenario: Scenario) -> Option<usize> {
        let known = self.tried.iter().position(|tried| tried.as_ref().is_some_and(|its| its.scenario == scenario));
        if known.is_some() {
            return known;
        }
        if self.tried.len() >= MOST_RUNS {
            return None;
        }
        let ran = replay(&scenario, self.facts.way, &self.facts.link, SEED, duration(self.facts));
        let fitted = ran.map(|(channel, outcome)| {
            let ran = Facts::new(&channel, self.facts.way);
            let shape = Shape::of(&ran);
            let distance = self.seen.distance(&shape) + assumed(&scenario, self.facts.half.is_sent_here());
            Fitted { scenario, bps: outcome.throughput_bps, rate: ran.rate(), distance }
        });
        self.tried.push(fitted);
        self.tried.last()?.as_ref()?;
        Some(self.tried.len() - 1)
    }

    fn distance(&self, at: usize) -> f64 {
        self.tried[at].as_ref().map_or(f64::INFINITY, |fitted| fitted.distance)
    }

    /// Settles what is open, one after another.
    fn nearest(&mut self, mut at: usize, open: &[Open]) -> usize {
        for open in open {
            let Some(scenario) = self.tried[at].as_ref().map(|fitted| fitted.scenario.clone()) else { continue };
            for other in open(self.facts, &scenario) {
                let Some(other) = self.run(other) else { continue };
                if self.distance(other) < self.distance(at) - MORE {
                    at = other;
                }
            }
        }
        at
    }
}

type Open = fn(&Facts<'_>, &Scenario) -> Vec<Scenario>;

/// What the log leaves open, with what it may have been instead.
const OPEN: [Open; 8] = [pickups, per_events, transports, losses, answers, reports, programs, encryptions];
/// The same in another order, but for [`pickups`]: first what the log tells most of, last what may stand for all else.
const OTHERWISE: [Open; 7] = [reports, encryptions, programs, answers, transports, losses, per_events];

fn with(scenario: &Scenario, change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut other = scenario.clone();
    change(&mut other);
    other
}

/// A link layer may take up what comes while an event is open only in the next one: it has told by the MD bit that
/// nothing follows (Vol 6, Part B, section 4.5.6).
fn pickups(_: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let ways = [[false, false], [true, false], [false, true]];
    let pickup = |late: bool| if late { Pickup::AfterAck } else { Pickup::AtOnce };
    let with = |[sender, receiver]: [bool; 2]| {
        with(scenario, |all| {
            let from = all.sender;
            all.side_mut(from).pickup = pickup(sender);
            all.side_mut(from.other()).pickup = pickup(receiver);
        })
    };
    ways.into_iter().map(with).collect()
}

fn per_events(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    // In a packet of the host there may be several PDUs.
    let pdus = u64::from(facts.half.tally.largest_packet).div_ceil(facts.limit.length as u64).max(1);
    let fits = facts.interval() / facts.limit.cycle(facts.limit.length).max(1);
    let mut all = vec![1, 2, 3, facts.per_interval * pdus];
    all.retain(|&most| most > 0 && most < fits);
    all.dedup();
    let sender = scenario.sender;
    let most = |most: Option<u16>| with(scenario, |all| all.side_mut(sender).packets_per_event = most);
    std::iter::once(None).chain(all.into_iter().map(|most| u16::try_from(most).ok())).map(most).collect()
}

/// The time from the last packet to its credits, which the receiver's log has.
fn answers(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let sender = scenario.sender;
    let is_sent_here = facts.half.is_sent_here();
    let known = facts.half.tally.credit_waits.median().filter(|_| !is_sent_here).map(|answer| answer.min(scenario.ci));
    let refill = facts.half.tally.refills.median().map(|refill| refill.min(scenario.ci));
    let unknown = || [0, 800_000, 1_800_000, 3_000_000].into_iter().chain(refill).collect();
    let all: Vec<Nanos> = known.map_or_else(unknown, |answer| vec![answer]);
    let with = |&answer: &Nanos| {
        with(scenario, |all| {
            all.side_mut(sender.other()).host.rx = Latency::fixed(answer);
            if !is_sent_here {
                // Hosts alike: a wake-up takes about as long as the way through the kernel and back.
                all.side_mut(sender).host.rx = Latency::fixed(answer);
                all.side_mut(sender).host.wakeup = Latency::fixed(2 * answer);
            }
        })
    };
    all.iter().map(with).collect()
}

/// Reports may be of each packet at once, of two, or in the next event of all that went in the one before.
fn reports(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let sender = scenario.sender;
    let with = |nocp: Completion| with(scenario, |all| all.side_mut(sender).nocp = nocp);
    let mut all = vec![Completion::Each, Completion::NextEvent];
    if scenario.side(sender).acl_buffers >= 2 && !facts.half.is_sent_here() {
        all.push(Completion::Batch(2));
    }
    all.into_iter().map(with).collect()
}

/// Whether PDUs carry a MIC shows where the log has the start of encryption, or in the rhythm of packets.
fn encryptions(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let other = with(scenario, |all| all.encrypted = !all.encrypted);
    if facts.link.is_encrypted { Vec::new() } else { vec![other] }
}

fn transports(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let with = |transport: Transport| {
        with(scenario, |all| (all.central.transport, all.peripheral.transport) = (transport, transport))
    };
    let usual = [USB, Transport::Uart { baud: 3_000_000 }, Transport::Uart { baud: 921_600 }];
    usual.into_iter().chain(transport(facts)).map(with).collect()
}

/// How long the program takes for a block, and how long its blocks are where the log does not tell; of the sender's
/// host and controller the receiver's log has nothing.
fn programs(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let sender = scenario.sender;
    if facts.half.is_sent_here() {
        let host = &scenario.side(sender).host;
        let (work, block, mtu) = (host.block_work.low, u64::from(host.block), u64::from(facts.half.limits.mtu));
        let of = |work: Nanos, block: u64| {
            with(scenario, |all| {
                let host = &mut all.side_mut(sender).host;
                host.block_work = Latency::fixed(work.min(200_000_000));
                host.block = u32::try_from(block).unwrap_or(host.block);
            })
        };
        let works = [0, work, 2_000_000, 7_000_000, 20_000_000, 60_000_000];
        let mut all: Vec<_> = works.into_iter().map(|work| of(work, block)).collect();
        if facts.half.tally.blocks.count() == 0 {
            all.extend([2, 6].map(|sdus| of(work * sdus * mtu / block.max(1), sdus * mtu)));
        }
        return all;
    }
    let works = [0, 3_000_000, 20_000_000].into_iter();
    let works = works.map(|work| with(scenario, |all| all.side_mut(sender).host.block_work = Latency::fixed(work)));
    let buffers = [FEW_BUFFERS, USUAL_BUFFERS, 64]
        .into_iter()
        .map(|of| with(scenario, |all| all.side_mut(sender).acl_buffers = of));
    works.chain(buffers).collect()
}

/// A loss costs an exchange, and two in a row end the event (Vol 6, Part B, section 4.5.6).
fn losses(_: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    [0.0, 0.01, 0.03, 0.08, 0.2].into_iter().map(|per| with(scenario, |all| all.loss.per = per)).collect()
}

fn finer_losses(_: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let of = |part: f64| with(scenario, |all| all.loss.per *= part);
    if scenario.loss.per > 0.0 { vec![of(0.7), of(1.4)] } else { Vec::new() }
}

//! The link of a direction as a scenario of `taut-air`, from what the log tells of it.
//!
//! What the log says is taken over: interval, latency, PHY, lengths (LE Connection Complete, PHY Update, Data Length
//! Change), MTU, MPS and credits (L2CAP, Vol 3, Part A, sections 4.22 and 10.1), and the controller's buffers (LE Read
//! Buffer Size). What it does not say is fitted, in this order, until the scenario carries the log's rate: the
//! time that
//! the receiver takes to answer with credits, how many packets its controller puts into an event, and the share of
//! packets that must be sent again.

use taut_air::controller::Completion;
use taut_air::host::Latency;
use taut_air::l2cap::CreditPolicy;
use taut_air::transport::Transport;
use taut_air::{Nanos, Pickup, Role, Scenario, Simulation};
use taut_event::Holder;

use super::facts::Facts;
use super::model;

/// So many packets show a rhythm.
const LEAST_PACKETS: u64 = 40;
/// The scenario is the log's link if it carries its rate to within this part.
const NEAR: f64 = 0.15;
/// What assumes more has to be nearer by this part.
const MORE: f64 = 0.01;
/// A longer way than this lies between a host and a controller: hardly a mistake of the log's clock.
const LEAST_WAY_NS: u64 = 400_000;

/// Virtual time of a run: enough events for the rhythm of blocks over events to repeat.
fn duration(interval: Nanos) -> Nanos {
    (100 * interval).clamp(1_000_000_000, 6_000_000_000)
}

/// Bits a second that a scenario carries; `None`: it cannot be.
pub(super) fn rate(scenario: &Scenario) -> Option<f64> {
    let outcome = Simulation::new(scenario, 1).ok()?.run(duration(scenario.ci), &mut ());
    (outcome.duration_ns > 0 && outcome.disconnected.is_none()).then_some(outcome.throughput_bps)
}

/// The scenario that carries what the log shows, with its rate; `None` where the log lacks what it takes, or
/// none does.
pub(super) fn fit(facts: &Facts<'_>) -> Option<(Scenario, f64)> {
    let base = known(facts)?;
    let seen = facts.bits * 1e9 / (facts.whole_ns as f64 - facts.ns(Holder::Handshake)).max(1.0);
    let far = |rate: f64| (rate / seen).ln().abs();
    let mut best: Option<(Scenario, f64)> = None;
    // What a link layer does with packets that come late changes all else: from each of its ways.
    for start in std::iter::once(base.clone()).chain(pickups(&base)) {
        let Some(found) = nearest(facts, start, &far) else { continue };
        if best.as_ref().is_none_or(|(_, other)| far(found.1) < far(*other) - MORE) {
            best = Some(found);
        }
    }
    let (mut scenario, mut carried) = best?;
    if carried > seen * 1.02 {
        (scenario, carried) = with_loss(scenario, carried, seen);
    }
    (far(carried) <= NEAR).then_some((scenario, carried))
}

/// What the log leaves open is settled one after another, and once more where an earlier one now looks different.
fn nearest(facts: &Facts<'_>, mut scenario: Scenario, far: &impl Fn(f64) -> f64) -> Option<(Scenario, f64)> {
    let mut carried = rate(&scenario)?;
    for _ in 0..2 {
        for open in OPEN {
            for other in open(facts, &scenario) {
                let Some(rate) = rate(&other) else { continue };
                if far(rate) < far(carried) - MORE {
                    (scenario, carried) = (other, rate);
                }
            }
        }
    }
    Some((scenario, carried))
}

type Open = fn(&Facts<'_>, &Scenario) -> Vec<Scenario>;

/// What the log leaves open, with what it may have been instead.
const OPEN: [Open; 4] = [per_events, answers, reports, transports];

fn with(scenario: &Scenario, change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut other = scenario.clone();
    change(&mut other);
    other
}

fn per_events(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let sender = scenario.sender;
    let all = packets_per_event(facts).into_iter();
    all.map(|most| with(scenario, |all| all.side_mut(sender).packets_per_event = Some(most))).collect()
}

/// A link layer may take up what comes while an event is open only in the next one: it has told by the MD bit that
/// nothing follows (Vol 6, Part B, section 4.5.6).
fn pickups(scenario: &Scenario) -> [Scenario; 2] {
    [scenario.sender, scenario.sender.other()]
        .map(|role| with(scenario, |all| all.side_mut(role).pickup = Pickup::AfterAck))
}

/// The time from the last packet to its credits, which the receiver's log has.
fn answers(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let sender = scenario.sender;
    let is_sent_here = facts.half.is_sent_here();
    let known = facts.half.tally.credit_waits.median().filter(|_| !is_sent_here).map(|answer| answer.min(scenario.ci));
    let all = known.map_or_else(|| vec![1_500_000, 3_000_000], |answer| vec![answer]);
    let with = |&answer: &Nanos| {
        with(scenario, |all| {
            all.side_mut(sender.other()).host.rx = Latency::fixed(answer);
            if !is_sent_here {
                // Hosts alike: a wake-up takes about as long as the way through the kernel and back.
                all.side_mut(sender).host.wakeup = Latency::fixed(2 * answer);
            }
        })
    };
    all.iter().map(with).collect()
}

/// Where reports are an interval apart, they may be of what is through at once, or of all that went in the
/// event before.
fn reports(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let is_open = facts.half.is_sent_here() && facts.half.tally.reported.count() > 0 && is_apart(facts);
    let sender = scenario.sender;
    let all = is_open.then(|| with(scenario, |all| all.side_mut(sender).nocp = Completion::NextEvent));
    all.into_iter().collect()
}

fn transports(facts: &Facts<'_>, scenario: &Scenario) -> Vec<Scenario> {
    let with = |transport: Transport| {
        with(scenario, |all| (all.central.transport, all.peripheral.transport) = (transport, transport))
    };
    transport(facts).map(with).into_iter().collect()
}

/// Whether reports of completed packets hardly ever come within one event.
fn is_apart(facts: &Facts<'_>) -> bool {
    let tally = &facts.half.tally;
    tally.close_reports * 20 < tally.reported.count()
}

/// So many packets lost that the rate is what was seen, for want of another reason. A loss costs an exchange, and
/// two in
/// a row end the event (Vol 6, Part B, section 4.5.6).
fn with_loss(scenario: Scenario, carried: f64, seen: f64) -> (Scenario, f64) {
    const STEPS: u32 = 6;
    const MOST: f64 = 0.4;
    let (mut low, mut high) = (0.0, MOST);
    let mut best = (scenario.clone(), carried);
    for _ in 0..STEPS {
        let mut lossy = scenario.clone();
        lossy.loss.per = f64::midpoint(low, high);
        let Some(rate) = rate(&lossy) else {
            high = lossy.loss.per;
            continue;
        };
        if rate > seen {
            low = lossy.loss.per
        } else {
            high = lossy.loss.per
        }
        if (rate - seen).abs() < (best.1 - seen).abs() {
            best = (lossy, rate);
        }
    }
    best
}

/// What goes in an event, where the log shows that it ended although there was more.
fn packets_per_event(facts: &Facts<'_>) -> Option<u16> {
    let tally = &facts.half.tally;
    let fits = facts.interval() / facts.limit.cycle(facts.limit.length).max(1);
    // In a packet of the host there may be several PDUs.
    let pdus = u64::from(tally.largest_packet).div_ceil(facts.limit.length as u64).max(1);
    let most = facts.per_interval * pdus;
    let is_seen = if facts.half.is_sent_here() {
        tally.queued_ns as f64 > 0.1 * facts.whole_ns as f64
    } else {
        facts.is_cut_short()
    };
    (is_seen && most > 0 && most < fits).then(|| u16::try_from(most).ok()).flatten()
}

/// What the log says.
fn known(facts: &Facts<'_>) -> Option<Scenario> {
    let (half, tally) = (facts.half, &facts.half.tally);
    let is_enough = tally.packets >= LEAST_PACKETS && tally.sdus > 0 && facts.link.from_start && facts.interval() > 0;
    if !is_enough || !half.knows_credits() || half.limits.credits == 0 || half.limits.mps < 23 {
        return None;
    }
    let role = if facts.link.is_central? == half.is_sent_here() { Role::Central } else { Role::Peripheral };
    let mut scenario = Scenario {
        ci: facts.interval(),
        latency: facts.link.latency,
        phy: model::phy(&facts.link, facts.way.index()),
        length: facts.limit.length as u16,
        encrypted: facts.link.is_encrypted,
        sender: role,
        ..Scenario::default()
    };
    let receiver = scenario.side_mut(role.other());
    receiver.acl_size = half.limits.mps.saturating_add(4).clamp(27, 1024);
    receiver.host.mtu = half.limits.mtu;
    receiver.host.mps = Some(half.limits.mps.min(half.limits.mtu));
    receiver.host.credits = credits(facts);
    let sender = scenario.side_mut(role);
    // What arrives is as long as the link's PDUs, whatever the sender's host handed over.
    let packet = if half.is_sent_here() { tally.largest_packet } else { half.limits.mps.saturating_add(4) };
    sender.acl_size = packet.clamp(27, 1024);
    if half.is_sent_here() && half.buffers > 0 {
        sender.acl_buffers = half.buffers;
    }
    sender.nocp = completion(facts);
    sender.host.wakeup = Latency::fixed(tally.wakes.median().unwrap_or(0).min(20_000_000));
    let wake = tally.wakes.median().unwrap_or(0);
    let whole = 8 * u64::from(half.limits.mtu);
    let block = tally.blocks.median().unwrap_or(whole).max(1);
    sender.host.block = u32::try_from(block).unwrap_or(u32::MAX).min(1 << 30);
    let work = match tally.block_wakes.median() {
        Some(work) => work.saturating_sub(wake),
        // What the program took besides its wake-ups, as far as nothing else was waited for.
        None => {
            let woken = tally.wakes.count() as f64 * wake as f64;
            ((facts.ns(Holder::SendingProgram) - woken).max(0.0) * block as f64 / tally.bytes.max(1) as f64) as u64
        }
    };
    if half.is_sent_here() {
        sender.host.block_work = Latency::fixed(work.min(200_000_000));
    }
    if let (false, Some(transport)) = (half.is_sent_here(), transport(facts)) {
        (scenario.central.transport, scenario.peripheral.transport) = (transport, transport);
    }
    scenario.check().ok()?;
    Some(scenario)
}

/// The rule by which credits came. Linux states MTU / MPS + 1 at first, and fills up to what the receive buffer holds
/// since 6.10; others give theirs back as many at a time as was seen.
fn credits(facts: &Facts<'_>) -> CreditPolicy {
    let (limits, tally) = (facts.half.limits, &facts.half.tally);
    let first = u64::from(limits.credits);
    let is_linux = first == u64::from(limits.mtu / limits.mps) + 1;
    match (is_linux, tally.grants.median()) {
        (true, _) if tally.most_credits > 2 * first => CreditPolicy::LinuxRecvbuf,
        (true, Some(grant)) if grant > 1 || first <= 2 => CreditPolicy::LinuxOld,
        (_, grant) => {
            let batch = grant.unwrap_or(1).clamp(1, first) as u16;
            CreditPolicy::Batch { window: limits.credits, batch }
        }
    }
}

/// When the controller tells of completed packets, which it may do for several at once (Vol 4, Part E,
/// section 7.7.19).
fn completion(facts: &Facts<'_>) -> Completion {
    let reported = &facts.half.tally.reported;
    match (reported.median(), reported.max()) {
        (Some(many @ 2..), most) if many == most && many <= u64::from(facts.half.buffers) => {
            Completion::Batch(many as u16)
        }
        (_, 2..) if is_apart(facts) => Completion::NextEvent,
        (Some(many @ 2..), _) if many <= u64::from(facts.half.buffers) => Completion::Batch(many as u16),
        _ => Completion::Each,
    }
}

/// Shorter packets tell nothing of the way between host and controller.
const LEAST_TELLING: u16 = 100;
/// Bits a second of a usual UART.
const BAUDS: [u32; 8] = [115_200, 230_400, 460_800, 921_600, 1_500_000, 2_000_000, 3_000_000, 4_000_000];

/// The way between host and controller: the least time that a packet took, beyond its time on air, is that of
/// its bytes.
/// What arrives in another rhythm than the air's had to wait for the packet before it on that way: an exchange
/// with its
/// two inter frame spaces cannot be shorter (Vol 6, Part B, section 4.1), but for what other packets on that way take.
fn transport(facts: &Facts<'_>) -> Option<Transport> {
    // The events on the same way take as long as a short packet.
    let (length, least) = facts.half.tally.least_way.filter(|&(length, _)| length >= LEAST_TELLING)?;
    let on_air = model::air_ns(length, &facts.link, facts.way.index());
    let way = if facts.half.is_sent_here() {
        let way = least.saturating_sub(on_air);
        Some(way).filter(|&way| (LEAST_WAY_NS..facts.interval() / 2).contains(&way))
    } else {
        Some(least).filter(|&least| least < on_air - on_air / 32 || least > on_air + on_air / 20)
    }?;
    // Header of the packet, and with it ten bits a byte; a little is the clock's.
    let bits = (u64::from(length) + 5) * 10;
    let seen = bits * 980_000_000 / way.max(1);
    BAUDS.into_iter().find(|&baud| u64::from(baud) >= seen).map(|baud| Transport::Uart { baud })
}

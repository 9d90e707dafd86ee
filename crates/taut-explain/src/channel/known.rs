//! The link of a direction as a scenario of `taut-air`, as far as the log tells it: interval, latency, PHY, lengths (LE
//! Connection Complete, PHY Update, Data Length Change), MTU, MPS and credits (L2CAP, Vol 3, Part A, sections 4.22 and
//! 10.1), and the controller's buffers (LE Read Buffer Size).

use taut_air::controller::Completion;
use taut_air::host::Latency;
use taut_air::l2cap::CreditPolicy;
use taut_air::transport::Transport;
use taut_air::{Role, Scenario};
use taut_event::Holder;

use super::facts::Facts;
use super::model;

/// So many packets show a rhythm: of a controller that takes an SDU's PDUs one in an event, seconds bring only few.
const LEAST_PACKETS: u64 = 4;
/// A longer way than this lies between a host and a controller: hardly a mistake of the log's clock.
const LEAST_WAY_NS: u64 = 400_000;

/// A program's block has so many SDUs, where no shorter one shows its end.
pub(super) const MANY_SDUS: u64 = 100;

/// The usual way between a host and a controller: a microframe of high-speed USB.
pub(super) const USB: Transport = Transport::Usb { delay: 125_000 };

/// Packets that a usual controller takes, where the log is not its own host's: of those whose buffers are published
/// (`taut_air::controller::PROFILES`) one has three, and most have eight.
pub(super) const USUAL_BUFFERS: u16 = 8;

/// What the log lacks for a scenario, or why there is none for such a channel.
pub(super) fn lacks(facts: &Facts<'_>) -> Option<&'static str> {
    let (half, tally) = (facts.half, &facts.half.tally);
    Some(match () {
        () if half.is_classic => "the channel is of BR/EDR; only LE is modelled",
        // A model of what it was on the whole says nothing of each of its parts.
        () if half.uses.all().count() > 1 => "the link changed (interval, PHY, lengths) while data went",
        () if !facts.is_link_known() && tally.is_lossy => {
            "packets are missing from the log, and perhaps a change of the link's interval, PHY or lengths"
        }
        () if !facts.is_link_known() => {
            "the log lacks the link's begin, or packets since: its interval and PHY are not known"
        }
        () if !half.knows_credits() || half.limits.credits == 0 || half.limits.mps < 23 => {
            "it is no channel with credits (ATT has none), or the log lacks its opening"
        }
        () if facts.is_both_ways() => "data goes both ways, and only one direction is modelled",
        () if tally.packets < LEAST_PACKETS => "fewer than four packets went",
        // The first one may be under way for seconds.
        () if tally.sdus == 0 && tally.bytes > u64::from(half.limits.mtu) => "no SDU is seen to end",
        () => return None,
    })
}

/// What the log says.
pub(super) fn known(facts: &Facts<'_>) -> Option<Scenario> {
    let (half, tally) = (facts.half, &facts.half.tally);
    if lacks(facts).is_some() {
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
    (scenario.central.transport, scenario.peripheral.transport) = (USB, USB);
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
    if !half.is_sent_here() {
        sender.acl_buffers = USUAL_BUFFERS;
    }
    sender.nocp = completion(facts);
    // The host's way to a packet after a report, and what its program takes besides after credits.
    // Where the controller's buffers were never full and no SDU waited for credits, half of a program's wake-up is the
    // kernel's. Where no program was seen to be woken, that takes about as long as the kernel's way.
    let kernel = tally.refills.median().or_else(|| tally.resumes.median());
    let wake = tally.wakes.median().or_else(|| kernel.map(|kernel| kernel.saturating_mul(2))).unwrap_or(0);
    let refill = kernel.unwrap_or(wake / 2).min(10_000_000);
    sender.host.rx = Latency::fixed(refill);
    sender.host.wakeup = Latency::fixed(wake.saturating_sub(refill).min(20_000_000));
    let block = tally.blocks.median().unwrap_or_else(|| MANY_SDUS * u64::from(half.limits.mtu)).max(1);
    sender.host.block = u32::try_from(block).unwrap_or(u32::MAX).min(1 << 30);
    // What the program took besides its wake-ups, as far as nothing else was waited for.
    let woken = tally.wakes.count() as f64 * wake as f64;
    let rest = (facts.ns(Holder::SendingProgram) - woken).max(0.0) * block as f64 / tally.bytes.max(1) as f64;
    let work = tally.block_wakes.median().map_or(0, |work| work.saturating_sub(wake)).max(rest as u64);
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

/// Whether reports of completed packets hardly ever come within one event.
fn is_apart(facts: &Facts<'_>) -> bool {
    let tally = &facts.half.tally;
    tally.close_reports * 20 < tally.reported.count()
}

/// Shorter packets tell nothing of the way between host and controller.
const LEAST_TELLING: u16 = 100;
/// Bits a second of a usual UART.
const BAUDS: [u32; 8] = [115_200, 230_400, 460_800, 921_600, 1_500_000, 2_000_000, 3_000_000, 4_000_000];

/// The way between host and controller: the least time that a packet took, beyond its time on air, is that of its
/// bytes. What arrives in another rhythm than the air's had to wait for the packet before it on that way: an exchange
/// with its two inter frame spaces cannot be shorter (Vol 6, Part B, section 4.1), but for what other packets on that
/// way take.
pub(super) fn transport(facts: &Facts<'_>) -> Option<Transport> {
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

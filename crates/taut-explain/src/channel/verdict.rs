//! Causes of an L2CAP channel. Each is weighed by the time that the transfer would take less without it, from the
//! link's model; docs/explain-bluetooth.md has the formulas with their reasons.

use taut_air::{Limit, Phy};
use taut_event::{Coverage, Direction as Way, Holder, Kind};

use super::facts::Facts;
use super::gain::gains;
use super::gains::Gains;
use super::judged::{CAUSES, CLEAR, Judged, holders, text, unknown};
use super::{Channel, model};
use crate::engine::{Verdict, VerdictOn, is_enough};
use crate::words;

/// What waits for an event of the link.
const WAITS: [Holder; 3] = [Holder::ConnectionInterval, Holder::Credits, Holder::ControllerBuffers];

/// Less of the time is not worth a word.
const LEAST_SAVED: f64 = 0.02;
/// Of events that close early: less is within what the model does not know.
const LEAST_EARLY: f64 = 0.05;
/// Fewer packets say nothing of a rate.
const LEAST_PACKETS: u64 = 20;

/// What each cause comes to: what was found first, what would save most time before the rest; and the scenarios that
/// show what the log shows.
pub(super) fn verdicts(channel: &Channel, way: Way, is_modelled: bool) -> (Vec<VerdictOn>, Option<Gains>) {
    let mut facts = Facts::new(channel, way);
    if is_modelled && !facts.half.tally.is_blind {
        facts.gains = gains(&facts);
    }
    let judges: [fn(&Facts<'_>) -> Judged; 9] =
        [credits, controller, buffers, interval, phy, length, mtu, peer_turn, sending_program];
    let mut all: Vec<(f64, VerdictOn)> = CAUSES
        .iter()
        .zip(judges)
        .map(|((cause, _), judge)| {
            let Judged { saved, verdict } = if facts.half.tally.is_blind {
                unknown("when packets were through (Number Of Completed Packets)", "log all events of the controller")
            } else {
                judge(&facts)
            };
            let is_hidden = facts.way == Way::Backward && 2.0 * facts.ns(Holder::NotKnown) > facts.whole_ns as f64;
            let verdict = match verdict {
                Verdict::Clear if is_hidden && (*cause != "credit_window" || facts.half.knows_credits()) => {
                    unknown("who held most of the time", AT_SENDER).verdict
                }
                verdict => verdict,
            };
            (saved, VerdictOn { cause: (*cause).to_owned(), verdict })
        })
        .collect();
    reweigh(&facts, &mut all);
    all.sort_by(|(a, on_a), (b, on_b)| rank(on_a).cmp(&rank(on_b)).then(b.total_cmp(a)));
    (all.into_iter().map(|(_, on)| on).collect(), facts.gains)
}

/// Where scenarios show what the log shows, the order is that of what the remedies give in them; the log's own evidence
/// counts beside, by how far they are from it.
fn reweigh(facts: &Facts<'_>, all: &mut [(f64, VerdictOn)]) {
    let Some(gains) = &facts.gains else { return };
    let doubt = gains.doubt();
    for (saved, on) in
        all.iter_mut().filter(|(_, on)| matches!(on.verdict, Verdict::Found(_)) && on.cause != "peer_turn")
    {
        let by_model = gains.saved(&on.cause) * facts.whole_ns as f64;
        *saved = doubt * *saved + (1.0 - doubt) * by_model;
    }
}

const fn rank(on: &VerdictOn) -> u8 {
    match on.verdict {
        Verdict::Found(_) => 0,
        Verdict::Unknown { .. } => 1,
        Verdict::Clear => 2,
    }
}

/// The link's begin may lie before the log, or behind a loss that is settled by now.
const FROM_BEGIN: &str = "begin the log before the link is made, and lose nothing of it";
/// LE Read Buffer Size is asked when the adapter is switched on.
const FROM_POWER_ON: &str = "begin the log before the adapter is switched on (`bluetoothctl power off`, then `on`)";
const AT_SENDER: &str = "log on the sending host";

const LOSES_NONE: &str = "log again without losses: to a fast disk, with less traffic beside";

/// Where credits are needed and their number is not known: why.
fn without_credits(facts: &Facts<'_>) -> Option<Judged> {
    let tally = &facts.half.tally;
    facts.half.lacks_credits().then(|| match tally.overdrawn {
        _ if tally.is_lossy => unknown("what the log lost, perhaps credits", LOSES_NONE),
        Some(_) => unknown("some of the credits: more PDUs went than they allow", LOSES_NONE),
        None => unknown("the channel's opening, with its credits", FROM_BEGIN),
    })
}

/// Where the controller may have had packets that the log lacks, nobody can tell what else there was to wait for.
fn clear_unless_hidden(facts: &Facts<'_>) -> Judged {
    match facts.half.tally.hides_packets(facts.whole_ns) {
        true => unknown("whether the controller had packets that the log lacks", FROM_BEGIN),
        false => CLEAR,
    }
}

fn credits(facts: &Facts<'_>) -> Judged {
    if let Some(unknown) = without_credits(facts) {
        return unknown;
    }
    let tally = &facts.half.tally;
    let held = facts.ns(Holder::Credits);
    let saved = facts.saved_of(held, facts.by_buffers());
    if !is_told(facts, "credit_window", saved, LEAST_SAVED) || !(enough(facts, &[Holder::Credits]) || facts.is_near()) {
        return clear_unless_hidden(facts);
    }
    let median = tally.credit_waits.median().unwrap_or_default();
    // Each log that ends amid a transfer ends with such a wait.
    let last = tally.ungranted.filter(|&ns| ns > 3 * median);
    let mut evidence = Vec::from_iter(last.map(|ns| {
        let amid = match facts.half.has_more() {
            _ if facts.half.is_amid_sdu() => "an SDU was under way",
            Some(true) => "the program had more to send",
            Some(false) => "the program had nothing more to send",
            None => "whether the program had more to send, the log does not tell",
        };
        text(format!("After the last was used none came any more, for {}; {amid}.", words::time(ns)))
    }));
    let at_first = match facts.half.limits.credits {
        0 => String::new(),
        credits => format!("{credits} at first, then "),
    };
    if tally.credit_waits.count() > 0 {
        evidence.push(text(format!(
            "{} the credits ran out, for {} (median); {at_first}{} at once (median).",
            words::times(tally.credit_waits.count()),
            words::time(median),
            tally.grants.median().unwrap_or_default()
        )));
    }
    let delay = tally.grant_delays.median().unwrap_or_default();
    // Credits of the peer come with an event in which it sends.
    let event = match facts.half.is_sent_here() {
        true => 2 * facts.channel.half(facts.way.reverse()).listens_ns(&facts.link),
        false => facts.interval(),
    };
    // Credits may wait in the peer's controller behind its own data.
    let is_late = !facts.is_both_ways() && event > 0 && delay > (event + event / 4).max(LEAST_LATE_NS);
    if is_late {
        evidence.push(text(format!("All had arrived {} before new ones came (median).", words::time(delay))));
    }
    let summary = match (is_late, facts.is_link_known()) {
        (true, _) => "The receiver's credits ran out, and it gave new ones late: its program reads slowly",
        (_, false) => "The receiver's credits ran out",
        (_, true) => "The receiver's credits ran out: its window is small for this interval",
    };
    let remedy = match is_late {
        true => READS_SLOWLY,
        false => LARGER_WINDOW,
    };
    facts.found("credit_window", saved, summary.to_owned(), evidence, remedy)
}

/// A host gives credits again within this.
const LEAST_LATE_NS: u64 = 30_000_000;

const READS_SLOWLY: &str = "On the receiver: look at what its program does between two reads. A larger window helps only \
                            if it reads as fast as data comes.";
const LARGER_WINDOW: &str = "On the receiver: a larger window. A kernel that computes credits from the receive buffer \
                             (Linux 6.10, 6.1.93, 6.8.12) does it by itself; on an older one a larger receiving MTU \
                             (BT_RCVMTU) does.";

fn enough(facts: &Facts<'_>, holders: &[Holder]) -> bool {
    let longest = holders.iter().filter_map(|&holder| facts.half.breakdown.get(holder)?.worst.first());
    is_enough(&facts.cost(holders), longest.map(crate::engine::Episode::length).max().unwrap_or(0))
}

/// Whether the link's figures are known well enough to reckon with.
fn is_modelled(facts: &Facts<'_>) -> bool {
    facts.is_link_known() && (facts.half.tally.packets >= LEAST_PACKETS || facts.gains.is_some())
}

/// Whether a cause that would save so much is worth a word: by what the log says itself, or by what its remedy gives.
fn is_told(facts: &Facts<'_>, cause: &str, saved: f64, least: f64) -> bool {
    saved >= least * facts.whole_ns as f64 || facts.is_gain(cause, holders(cause), least)
}

/// Why they are not.
fn unknown_model(facts: &Facts<'_>) -> Judged {
    match () {
        () if facts.is_link_known() => unknown("enough packets to reckon with", "log a longer transfer"),
        () if facts.half.tally.is_lossy => {
            unknown("what the log lost, perhaps a change of the link's interval, PHY or lengths", LOSES_NONE)
        }
        () => unknown("the link's interval and PHY", FROM_BEGIN),
    }
}

/// From the receiver's side: a sender's link layer that has more says so by the MD bit, and the event goes on (Vol 6,
/// Part B, section 4.5.6). Where packets come one event after another though there is room, the sender's controller had
/// no more, or did not go on.
fn controller_there(facts: &Facts<'_>) -> Judged {
    // Of a sender that never showed more than went, nobody knows whether it had any.
    let is_gain = || facts.half.tally.cut_short > 0 && facts.is_gain("controller", holders("controller"), LEAST_EARLY);
    if !is_modelled(facts) || !facts.is_cut_short() && !is_gain() {
        return unknown("what the sender's controller had", AT_SENDER);
    }
    let saved = (facts.whole_ns as f64 - facts.takes(facts.carries()).max(facts.by_credits())).max(0.0);
    if !is_told(facts, "controller", saved, LEAST_EARLY) {
        return unknown("what the sender's controller had", AT_SENDER);
    }
    let evidence = vec![text(format!(
        "{} of {} packets came an event after the one before, with credits left; at most {} within an interval of {}.",
        facts.half.tally.cut_short,
        facts.half.tally.packets,
        facts.per_interval,
        words::time(facts.interval())
    ))];
    facts.found(
        "controller",
        saved,
        "Events brought less than they have room for, though the sender had more and credits: its controller closes them \
         early or has too few buffers, or packets are repeated"
            .to_owned(),
        evidence,
        "Log on the sending host: its controller's buffers show there. A sniffer's capture tells closed events from \
         repeats.",
    )
}

fn controller(facts: &Facts<'_>) -> Judged {
    if !facts.half.is_sent_here() {
        return controller_there(facts);
    }
    if facts.half.tally.is_lossy {
        return unknown("what the log lost, perhaps completed packets", LOSES_NONE);
    }
    if !is_modelled(facts) {
        return unknown_model(facts);
    }
    let saved = facts.beyond_model().min(facts.whole_ns as f64 - facts.by_credits());
    let tally = &facts.half.tally;
    let is_queued = tally.queued_ns as f64 > 0.5 * saved;
    let waited = (tally.queued_ns + tally.overdue_ns) as f64;
    let is_room = !(facts.is_both_ways() && facts.per_interval >= facts.fits());
    let is_seen = waited > 0.5 * saved && is_room && saved >= LEAST_EARLY * facts.whole_ns as f64;
    // A link that carried all it can while it was busy leaves its controller no part in it, unless a scenario that is
    // the log's in nearly everything gains most by another controller.
    let is_open = saved > 0.0 || facts.gains.as_ref().is_some_and(|gains| gains.is_close_and_most("controller"));
    let may_be = is_open && facts.is_gain("controller", holders("controller"), LEAST_EARLY);
    if !is_seen && !may_be {
        return CLEAR;
    }
    let evidence = vec![text(format!(
        "At most {} packets of up to {} bytes went within an interval of {}, which has room for {} exchanges of {} \
         bytes.",
        facts.per_interval,
        tally.largest_packet,
        words::time(facts.interval()),
        facts.fits(),
        facts.limit.length
    ))];
    let summary = match is_queued || may_be {
        true => {
            "The link carried less than its interval has room for, while packets waited in the controller: events \
             were closed early, packets repeated, or other links had the radio"
        }
        false => {
            "Packets stayed in the controller for several events, each by itself: they were repeated, or other links \
             had the radio"
        }
    };
    facts.found(
        "controller",
        saved,
        summary.to_owned(),
        evidence,
        "A sniffer's capture tells which. Against repeats: less distance or interference. Against short events: a \
         longer connection event, newer firmware, another adapter.",
    )
}

fn buffers(facts: &Facts<'_>) -> Judged {
    if !facts.half.is_sent_here() {
        return unknown("what the sender's controller had", AT_SENDER);
    }
    if facts.half.tally.is_lossy {
        return unknown("what the log lost, perhaps completed packets", LOSES_NONE);
    }
    if facts.half.buffers == 0 && facts.ns(Holder::ControllerBuffers) == 0.0 {
        // While the controller had packets the host may have kept others back for want of buffers.
        let in_controller = facts.ns(Holder::ConnectionInterval) + facts.ns(Holder::Air);
        // Where the program is seen, what it kept back would have been booked to them.
        if in_controller < LEAST_SAVED * facts.whole_ns as f64 || facts.half.has_more().is_some() {
            return CLEAR;
        }
        return unknown("how many packets the controller takes at once", FROM_POWER_ON);
    }
    let saved = facts.saved_of(facts.ns(Holder::ControllerBuffers), facts.by_credits());
    if !is_told(facts, "controller_buffers", saved, LEAST_SAVED)
        || !(enough(facts, &[Holder::ControllerBuffers]) || facts.is_near())
    {
        return CLEAR;
    }
    let evidence = vec![text(format!("The controller takes {} packets of LE at once.", facts.half.buffers))];
    facts.found(
        "controller_buffers",
        saved,
        "All buffers of the sender's controller were taken, though an event has room for more".to_owned(),
        evidence,
        "Another adapter, or another firmware: the host can't change its controller's buffers.",
    )
}

fn interval(facts: &Facts<'_>) -> Judged {
    let quantised = quantised(facts);
    let skipped = facts.half.tally.skipped_ns as f64;
    if skipped < LEAST_SAVED * facts.whole_ns as f64 || skipped <= quantised.saved {
        return quantised;
    }
    let interval = words::time(facts.interval());
    let evidence = vec![text(format!(
        "The interval is {interval}, and the peripheral may skip {} events in a row.",
        facts.link.latency
    ))];
    facts.found("interval_quantisation", skipped, SKIPPED.to_owned(), evidence, LISTENS)
}

pub(crate) const SKIPPED: &str =
    "The peripheral need not listen to each connection event: what goes to it waits until it does";
pub(crate) const LISTENS: &str = "A peripheral latency of 0 while data goes: a connection parameter update, or \
                                  conn_latency in the central's debugfs before connecting.";

/// What another interval would save.
fn quantised(facts: &Facts<'_>) -> Judged {
    if !is_modelled(facts) {
        return unknown_model(facts);
    }
    let now = facts.interval();
    let whole = facts.whole_ns as f64;
    let rate = |other: u64| facts.carried_by(&facts.limit, other);
    // Waits for an event last so much of an interval; the link itself carries what whole exchanges allow.
    let waits = facts.ns(Holder::Credits) + facts.half.tally.unqueued_ns as f64 + facts.ns(Holder::ControllerBuffers);
    let waits = waits + facts.beyond_model().min(facts.half.tally.queued_ns as f64);
    let saved = |other: u64| {
        let less = waits * (1.0 - other as f64 / now as f64);
        let link = (facts.takes(rate(now)) - facts.takes(rate(other))) * facts.busy_share();
        (less + link).min(whole - facts.takes(rate(other)))
    };
    let best = model::USUAL_NS.into_iter().filter(|&other| other != now).max_by(|&a, &b| saved(a).total_cmp(&saved(b)));
    let is_told = |best: u64| is_told(facts, "interval_quantisation", saved(best), LEAST_SAVED);
    let Some(best) = best.filter(|&best| is_told(best)) else { return CLEAR };
    let evidence = vec![text(format!(
        "The interval is {}; with {} waits for an event would take less.",
        words::time(now),
        words::time(best)
    ))];
    // Credits and buffers come with events, too: where they had nearly all waits, these are what it costs.
    let own = holders("interval_quantisation");
    let is_own = facts.cost(own).share >= LEAST_SAVED;
    facts.found_of(
        "interval_quantisation",
        if is_own { own } else { &WAITS },
        saved(best),
        "The connection interval cuts the flow: what misses an event waits for the next one".to_owned(),
        evidence,
        "Another interval: conn_min_interval and conn_max_interval in the central's debugfs before connecting, or a \
         connection parameter update.",
    )
}

fn phy(facts: &Facts<'_>) -> Judged {
    if facts.limit.phy == Phy::Le2M {
        return CLEAR;
    }
    if !is_modelled(facts) {
        return unknown_model(facts);
    }
    let saved = facts.saved_by(Limit { phy: Phy::Le2M, ..facts.limit }, facts.interval());
    if !is_told(facts, "phy", saved, LEAST_SAVED) {
        return CLEAR;
    }
    facts.found(
        "phy",
        saved,
        format!(
            "The link is busy, and takes twice or more the time on LE {} that it would on LE 2M",
            phy_name(facts.limit.phy)
        ),
        Vec::new(),
        "LE 2M, where both controllers have it and the distance allows it (LE Set PHY).",
    )
}

pub(super) const fn phy_name(phy: Phy) -> &'static str {
    match phy {
        Phy::Le1M => "1M",
        Phy::Le2M => "2M",
        Phy::CodedS2 | Phy::CodedS8 => "Coded",
    }
}

fn length(facts: &Facts<'_>) -> Judged {
    if facts.limit.length >= 251 {
        return CLEAR;
    }
    if !is_modelled(facts) {
        return unknown_model(facts);
    }
    let saved = facts.saved_by(Limit { length: 251, ..facts.limit }, facts.interval());
    if !is_told(facts, "length", saved, LEAST_SAVED) {
        return CLEAR;
    }
    facts.found(
        "length",
        saved,
        format!("Data PDUs carry {} bytes at most: headers and pauses take the air", facts.limit.length),
        Vec::new(),
        "Data length extension to 251 bytes (LE Set Data Length), where both controllers have it.",
    )
}

fn mtu(facts: &Facts<'_>) -> Judged {
    if facts.half.tally.sdus == 0 {
        return unknown("the lengths of SDUs", "log the packets whole");
    }
    if !is_modelled(facts) {
        return unknown_model(facts);
    }
    const LONG: usize = 4096;
    // Where an SDU is a PDU, that is as long.
    let mps = if facts.limit.header > 0 { facts.limit.mps } else { LONG };
    let saved = facts.saved_by(Limit { sdu: LONG, mps, ..facts.limit }, facts.interval());
    // Of whole PDUs only the headers of L2CAP would be fewer.
    let is_whole = facts.limit.pdus().last() == Some(facts.limit.length);
    let (least, what) = match is_whole {
        true => (LEAST_EARLY, "fill their PDUs, of which headers take a part each time"),
        false => (LEAST_SAVED, "leave PDUs partly empty"),
    };
    if !is_told(facts, "mtu", saved, least) {
        return CLEAR;
    }
    facts.found(
        "mtu",
        saved,
        format!("SDUs of {} bytes {what}", facts.limit.sdu),
        Vec::new(),
        "Longer SDUs: a larger MTU of the receiver (BT_RCVMTU; of GATT the ATT MTU), or one that fills whole PDUs.",
    )
}

/// Where too little of the packets was kept to read what they ask and answer.
fn without_turns(facts: &Facts<'_>) -> Option<Judged> {
    let ask = "log the packets whole";
    facts
        .half
        .tally
        .is_turnless
        .then(|| unknown("what the packets of ATT ask and answer: too little of them was kept", ask))
}

fn peer_turn(facts: &Facts<'_>) -> Judged {
    if let Some(unknown) = without_turns(facts) {
        return unknown;
    }
    if !enough(facts, &[Holder::PeerTurn]) {
        return clear_unless_hidden(facts);
    }
    let answers = &facts.half.tally.answers;
    let median = answers.median().unwrap_or_default();
    // Each log that ends amid a transfer ends with such a wait.
    let unanswered = facts.half.tally.unanswered.filter(|&ns| !facts.half.tally.lacks_answers && ns > 3 * median);
    let mut evidence = Vec::from_iter(unanswered.map(|ns| {
        text(format!("The last request was never answered: {} until its link or the log ended.", words::time(ns)))
    }));
    evidence.extend(
        answers
            .median()
            .filter(|&median| median > 0)
            .map(|median| text(format!("{} answers took {} (median).", answers.count(), words::time(median)))),
    );
    facts.found(
        "peer_turn",
        facts.saved_of(facts.ns(Holder::PeerTurn), 0.0),
        "Nothing could be sent before the peer answered, or asked the next question".to_owned(),
        evidence,
        "Write without response (ATT Write Command) or notify instead of writing and indicating; ask for more at once; \
         look at what the peer does before it answers.",
    )
}

fn sending_program(facts: &Facts<'_>) -> Judged {
    if let Some(unknown) = without_credits(facts) {
        return unknown;
    }
    if let Some(unknown) = without_turns(facts) {
        return unknown;
    }
    if !enough(facts, &[Holder::SendingProgram]) {
        let needs = Coverage::of(&[Kind::AclPackets]);
        let sees = facts.half.is_sent_here() && facts.channel.flow.coverage.lacks(needs).is_empty();
        return match sees {
            true => clear_unless_hidden(facts),
            false => unknown("when the peer's host handed data over", AT_SENDER),
        };
    }
    let saved = facts.saved_of(facts.ns(Holder::SendingProgram), 0.0);
    facts.found(
        "sending_program",
        if facts.way == Way::Forward { saved } else { 0.0 },
        "The sending host handed nothing over, though there were credits and room".to_owned(),
        Vec::new(),
        "Nothing in the radio helps; look at what the sending program does meanwhile.",
    )
}

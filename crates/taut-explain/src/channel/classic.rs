//! Channels of BR/EDR: who holds the data, and why.
//!
//! There are no connection events, and the log does not tell which packets the controllers use on the air. While
//! the controller has packets of the channel, it and the air hold the data. Else the receiver's credits do, or the
//! sending program; where other channels have taken all of the controller's buffers, nobody can tell whether the
//! program had anything.

use taut_event::{Channel as Kind, Direction as Way, FlowKey, Holder};

use super::media::LATE_NS;
use super::{Channel, Half};
use crate::engine::{Certainty, Cost, Evidence, Found, Verdict, VerdictOn, is_enough};
use crate::words;

/// The causes with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 3] = [
    ("rfcomm_credits", &[Holder::RfcommCredits]),
    ("controller", &[Holder::Air]),
    ("sending_program", &[Holder::SendingProgram]),
];

/// Signals of AVDTP, and media, which is paced (Assigned Numbers, section 2.5).
const AVDTP_PSM: u16 = 0x19;

/// Less of the time with a queue in the controller is no queue.
const LEAST_QUEUED: f64 = 0.05;

/// The link's begin may lie before the log, or behind a loss that is settled by now.
const FROM_BEGIN: &str = "begin the log before the link is made, and lose nothing of it";
const LOSES_NONE: &str = "log again without losses";
const AT_SENDER: &str = "log on the sending host";

const FASTER: &str = "Enhanced data rates and packets of 5 slots, where both controllers have them; less distance or \
                      interference; no inquiry, scan or other link meanwhile; of Wi-Fi on the same chip, 5 GHz.";
const CLEARER: &str = "Less distance or interference; no inquiry, scan or other link meanwhile; of Wi-Fi on the same \
                       chip, 5 GHz.";
const AWAKE: &str = "Leave sniff mode while data goes, or have a shorter sniff interval: the power saving of this host \
                     or of the peer asks for it (Exit Sniff Mode, Sniff Mode, link policy).";

impl Half {
    /// Who holds, and whether several packets wait in the controller.
    pub(super) fn holder_classic(&self) -> (Holder, bool) {
        if let Some(has_more) = self.has_more() {
            return self.holder_seen_classic(has_more);
        }
        let holder = match self.in_controller() {
            1.. => return (Holder::Air, self.in_controller() > 1),
            0 if self.hides() => Holder::NotKnown,
            0 if self.is_dry() => Holder::RfcommCredits,
            0 if self.lacks_credits() || self.is_full() || !self.is_sent_here() => Holder::NotKnown,
            0 if self.hides_any() => Holder::NotKnown,
            0 => Holder::SendingProgram,
        };
        (holder, false)
    }

    /// The same where the program's writes are seen.
    fn holder_seen_classic(&self, has_more: bool) -> (Holder, bool) {
        let holder = match self.in_controller() {
            1.. => return (Holder::Air, self.in_controller() > 1),
            0 if self.is_dry() => Holder::RfcommCredits,
            0 if !has_more => Holder::SendingProgram,
            0 if self.lacks_credits() => Holder::NotKnown,
            0 if self.is_full() => Holder::ControllerBuffers,
            0 => Holder::HciQueue,
        };
        (holder, false)
    }
}

/// Time that is held, and what that comes to.
type Judged = (u64, Verdict);

struct Facts<'a> {
    channel: &'a Channel,
    half: &'a Half,
    whole_ns: u64,
}

fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}

fn unknown(missing: &str, ask: &str) -> Judged {
    (0, Verdict::Unknown { missing: missing.to_owned(), ask: ask.to_owned() })
}

/// What each cause comes to, what was found first.
pub(super) fn verdicts(channel: &Channel, way: Way) -> Vec<VerdictOn> {
    let half = channel.half(way);
    let facts = Facts { channel, half, whole_ns: half.breakdown.total_ns() };
    let judges: [fn(&Facts<'_>) -> Judged; 3] = [credits, controller, sending_program];
    let mut all: Vec<(u64, VerdictOn)> = CAUSES
        .iter()
        .zip(judges)
        .map(|((cause, _), judge)| {
            let (held, verdict) = match judge {
                _ if half.tally.is_blind => unknown(
                    "when packets were through (Number Of Completed Packets)",
                    "log all events of the controller",
                ),
                judge => judge(&facts),
            };
            (held, VerdictOn { cause: (*cause).to_owned(), verdict })
        })
        .collect();
    all.sort_by_key(|(held, on)| {
        let rank = match on.verdict {
            Verdict::Found(_) => 0,
            Verdict::Unknown { .. } => 1,
            Verdict::Clear => 2,
        };
        (rank, std::cmp::Reverse(*held))
    });
    all.into_iter().map(|(_, on)| on).collect()
}

impl Facts<'_> {
    fn ns(&self, holder: Holder) -> u64 {
        self.half.breakdown.ns(holder)
    }

    fn enough(&self, holder: Holder) -> bool {
        let longest = self.half.breakdown.get(holder).and_then(|cell| cell.worst.first());
        is_enough(&self.all_of(holder), longest.map_or(0, crate::engine::Episode::length))
    }

    /// All of a holder's time.
    fn all_of(&self, holder: Holder) -> Cost {
        self.half.breakdown.cost(&[holder], self.whole_ns)
    }

    /// So much of a holder's time, where the rest of it is as it should be.
    fn part_of(&self, holder: Holder, ns: u64, episodes: u64) -> Cost {
        let all = self.all_of(holder);
        let held_ns = ns.min(all.held_ns);
        let share = all.share * held_ns as f64 / all.held_ns.max(1) as f64;
        Cost { held_ns, between_ns: [held_ns; 2], share, episodes }
    }

    /// Of the air's time that in which packets that were late were in the controller, beyond what is usual.
    fn beyond_the_usual(&self) -> Cost {
        let tally = &self.half.tally;
        let late = tally.late;
        // Where that is late itself, nothing of it is as it should be.
        let usual = tally.completions.median().filter(|&usual| usual < LATE_NS).unwrap_or_default();
        self.part_of(Holder::Air, late.ns.saturating_sub(usual.saturating_mul(late.spells)), late.spells)
    }

    fn found(
        &self,
        holder: Holder,
        (held, cost): (u64, Cost),
        summary: &str,
        mut more: Vec<Evidence>,
        remedy: &str,
    ) -> Judged {
        more.insert(0, self.half.breakdown.longest_seen(&[holder]));
        let found = Found {
            summary: summary.to_owned(),
            side: holder.side().to_string(),
            certainty: Certainty::Consistent,
            cost,
            evidence: more,
            remedy: remedy.to_owned(),
        };
        (held, Verdict::Found(found))
    }

    fn kind(&self) -> Option<Kind> {
        match self.channel.flow.key {
            FlowKey::L2cap(key) => Some(key.channel),
            _ => None,
        }
    }

    /// The interval of sniff mode, where packets waited as that makes them: in active mode a packet goes within a few
    /// slots, in sniff mode at the next anchor point (Core Specification, Vol 2, Part B, section 8.7), which is half of
    /// the interval off on average. The mode is that in which the last one went.
    fn sniff(&self) -> Option<u64> {
        let waited = self.half.tally.completions.median()?;
        Some(self.channel.link.sniff_ns).filter(|&interval| interval > 0 && (interval / 8..=interval).contains(&waited))
    }

    /// What is held by nobody else, unless packets were hidden for long.
    fn clear(&self) -> Judged {
        match self.half.tally.hides_packets(self.whole_ns) {
            true => unknown("whether the controller had packets that the log lacks", FROM_BEGIN),
            false => (0, Verdict::Clear),
        }
    }

    /// Why credits, or what else may hold back, can't be told.
    fn without_credits(&self) -> Option<Judged> {
        let tally = &self.half.tally;
        self.half.lacks_credits().then(|| match self.kind() {
            _ if tally.is_lossy => unknown("what the log lost, perhaps credits", LOSES_NONE),
            Some(Kind::Basic(_) | Kind::Media(_)) => {
                unknown("the window of the channel's retransmission mode, which is not followed", AT_SENDER)
            }
            _ if tally.overdrawn.is_some() => {
                unknown("some of the credits: more frames went than they allow", LOSES_NONE)
            }
            Some(Kind::Rfcomm(_)) => unknown("what was agreed on of credits (PN)", FROM_BEGIN),
            _ => unknown("the channel's opening, with its credits", FROM_BEGIN),
        })
    }
}

fn credits(facts: &Facts<'_>) -> Judged {
    if let Some(unknown) = facts.without_credits() {
        return unknown;
    }
    if !facts.enough(Holder::RfcommCredits) {
        return facts.clear();
    }
    let tally = &facts.half.tally;
    let mut evidence = Vec::from_iter(tally.ungranted.map(|ns| {
        text(format!(
            "After the last credit was used none came any more, for {}; whether the program \
             had more to send, the log does not tell.",
            words::time(ns)
        ))
    }));
    if facts.half.knows_credits() {
        evidence.push(text(format!(
            "{} the credits ran out, for {} (median); {} at first, then {} at once (median).",
            words::times(tally.credit_waits.count()),
            words::time(tally.credit_waits.median().unwrap_or_default()),
            facts.half.limits.credits,
            tally.grants.median().unwrap_or_default()
        )));
    } else {
        evidence.push(text("The receiver said that it takes nothing (FC bit of MSC, or FCoff).".to_owned()));
    }
    facts.found(
        Holder::RfcommCredits,
        (facts.ns(Holder::RfcommCredits), facts.all_of(Holder::RfcommCredits)),
        "The receiver gave no credits of RFCOMM, so nothing could be sent",
        evidence,
        "On the receiver: read sooner; Linux gives credits when its program reads, and none while the socket's receive \
         buffer is full (SO_RCVBUF). A larger window, where the stack has one: Linux gives 7 at first and up to 40.",
    )
}

fn controller(facts: &Facts<'_>) -> Judged {
    if !facts.half.is_sent_here() {
        return unknown("what the sender's controller had", AT_SENDER);
    }
    let tally = &facts.half.tally;
    if tally.is_lossy {
        return unknown("what the log lost, perhaps completed packets", LOSES_NONE);
    }
    let is_media = matches!(facts.kind(), Some(Kind::Media(_)));
    let is_queue = tally.queued_ns as f64 >= LEAST_QUEUED * facts.whole_ns as f64 && facts.enough(Holder::Air);
    let is_late = tally.completions.max() >= LATE_NS;
    let (air, sniff) = (facts.ns(Holder::Air), facts.sniff());
    let late = if sniff.is_some() { facts.all_of(Holder::Air) } else { facts.beyond_the_usual() };
    if !(if is_media { is_late } else { is_queue || is_late && is_enough(&late, tally.completions.max()) }) {
        return (0, Verdict::Clear);
    }
    let mut evidence = vec![text(format!(
        "From hand-over to Number Of Completed Packets: {} (median), {} at most; up to {} bytes in the controller.",
        words::time(tally.completions.median().unwrap_or_default()),
        words::time(tally.completions.max()),
        tally.peak_bytes
    ))];
    if let Some(interval) = sniff {
        evidence.push(text(format!(
            "In sniff mode (Mode Change) the link's ends meet every {}, and what comes in between waits for that.",
            words::time(interval)
        )));
    } else {
        evidence.push(text(format!(
            "While it had packets they went at {}; the best of BR/EDR is 723 kbit/s with DH5, 1449 with 2-DH5, 2178 \
             with 3-DH5.",
            words::rate(tally.bytes, air.max(1))
        )));
    }
    let buffers = facts.half.buffers;
    if buffers > 0 && facts.half.most_in_controller >= buffers.into() {
        evidence.push(text(format!("Its {buffers} buffers were all taken at times.")));
    }
    // That a packet takes its time on the air is no fault.
    let all = facts.all_of(Holder::Air);
    let cost = match () {
        () if is_media => facts.part_of(Holder::Air, tally.queued_ns, all.episodes),
        () if is_queue => all,
        () => late,
    };
    let (summary, remedy) = match () {
        () if sniff.is_some() => ("Packets waited in the controller for an anchor point of sniff mode", AWAKE),
        () if is_media => (
            "Media waited in the controller longer than a sink's buffer lasts: packets were repeated, or others had \
             the radio",
            FASTER,
        ),
        () if is_queue => ("Packets queued in the controller: the link carried no more", FASTER),
        () => ("A packet waited long in the controller: it was repeated, or others had the radio", CLEARER),
    };
    facts.found(Holder::Air, (tally.queued_ns, cost), summary, evidence, remedy)
}

fn sending_program(facts: &Facts<'_>) -> Judged {
    if let Some(unknown) = facts.without_credits() {
        return unknown;
    }
    if !facts.half.is_sent_here() {
        return unknown("when the peer's host handed data over", AT_SENDER);
    }
    match facts.kind() {
        Some(Kind::Media(_)) => return late_media(facts),
        Some(Kind::Basic(AVDTP_PSM)) if !facts.channel.link.from_start => {
            return unknown("whether the channel has signals or media of AVDTP", FROM_BEGIN);
        }
        _ => {}
    }
    if !facts.enough(Holder::SendingProgram) {
        return facts.clear();
    }
    facts.found(
        Holder::SendingProgram,
        (facts.ns(Holder::SendingProgram), facts.all_of(Holder::SendingProgram)),
        "The sending host handed nothing over, though it might send",
        Vec::new(),
        "Nothing in the radio helps; look at what the sending program does meanwhile, and whether it waits for an \
         answer.",
    )
}

/// Media is paced: that nothing is handed over for a while is no fault, unless it comes late.
fn late_media(facts: &Facts<'_>) -> Judged {
    let media = &facts.half.media;
    let worst = media.latest();
    if worst.late_ns < LATE_NS {
        return match media.knows_rate() {
            true => (0, Verdict::Clear),
            false if facts.half.tally.is_lossy => {
                unknown("what the log lost, perhaps another sampling rate of the stream", LOSES_NONE)
            }
            false => unknown("the stream's sampling rate (AVDTP Set Configuration)", FROM_BEGIN),
        };
    }
    let evidence = Evidence {
        text: format!(
            "{} of {} media packets were handed over more than {} later than their timestamps allow; the worst by {}.",
            media.late(),
            media.packets(),
            words::time(LATE_NS),
            words::time(worst.late_ns)
        ),
        frames: Some([worst.place; 2]),
    };
    facts.found(
        Holder::SendingProgram,
        (media.late_ns(), facts.part_of(Holder::SendingProgram, media.late_ns(), media.times_late())),
        "Media was handed over late: the encoder or the program that feeds it fell behind",
        vec![evidence],
        "Look at the sending host: its load, the priority of the audio server and encoder, suspended clocks. The radio \
         had nothing to send.",
    )
}

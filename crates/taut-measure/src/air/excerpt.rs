use std::collections::VecDeque;

use taut_air::{AirEvent, Happening, Observer, Purpose, Reception, Role};

use crate::recording::{AirEventExcerpt, AirExcerpt, AirIdle, AirPdu};

/// Keeps some connection events of a run's first link for drawing: those around the first SDU that is shorter than others,
/// which is where a block ends; without such a one, the first events.
#[derive(Debug)]
pub struct Excerpt {
    /// Events wanted.
    most: usize,
    stage: Stage,
    events: VecDeque<Seen>,
    /// Kept in case that no short SDU comes.
    first: Vec<Seen>,
    /// SDUs written and not yet wholly on the air: number, bytes, bytes left.
    sdus: VecDeque<(u64, usize, usize)>,
    longest_sdu: usize,
    /// What the last data PDU of either side carried, for its repetition.
    last: [String; 2],
    seen: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Before,
    Looking,
    Found,
    Done,
}

/// A connection event with everything up to the next anchor.
#[derive(Clone, Debug, Default)]
struct Seen {
    number: u64,
    anchor: u64,
    closed: String,
    pdus: Vec<AirPdu>,
    /// Begin and end since the run began, and holder; may reach over the next anchor.
    idle: Vec<(u64, u64, &'static str)>,
}

/// Events kept before the one that is looked for.
const LEAD: usize = 4;
/// Events at the start that are not typical yet.
const WARM_UP: usize = 24;
/// After so many events nothing is looked for any more.
const PATIENCE: usize = 2000;

impl Excerpt {
    /// An excerpt of at most that many events.
    pub fn of(most: usize) -> Self {
        Self {
            most: most.max(1),
            stage: Stage::Before,
            events: VecDeque::new(),
            first: Vec::new(),
            sdus: VecDeque::new(),
            longest_sdu: 0,
            last: [String::new(), String::new()],
            seen: 0,
        }
    }

    /// What was kept.
    pub fn finish(self) -> Option<AirExcerpt> {
        let found = matches!(self.stage, Stage::Found | Stage::Done);
        let (what, mut events) = if found {
            ("Around the end of a block, where an SDU is shorter than the others.", Vec::from(self.events))
        } else if self.first.is_empty() {
            ("The first connection events.", Vec::from(self.events))
        } else {
            ("The first connection events.", self.first)
        };
        events.truncate(self.most + 1);
        let anchors: Vec<u64> = events.iter().map(|event| event.anchor).collect();
        let idle: Vec<(u64, u64, &str)> = events.iter().flat_map(|event| event.idle.iter().copied()).collect();
        // The last anchor ends the event before it.
        let kept = events.into_iter().zip(anchors.iter().skip(1)).map(|(event, &next)| AirEventExcerpt {
            number: event.number,
            anchor_ns: event.anchor,
            closed: event.closed,
            idle: cut(&idle, event.anchor, next),
            pdus: event.pdus,
        });
        let events: Vec<AirEventExcerpt> = kept.collect();
        (!events.is_empty()).then(|| AirExcerpt { what: what.to_owned(), events })
    }

    fn begins(&mut self, at: u64, counter: u16) {
        if self.stage == Stage::Found && self.events.len() > self.most {
            self.stage = Stage::Done;
        }
        if self.stage == Stage::Done {
            return;
        }
        if self.stage == Stage::Looking {
            if self.first.len() <= self.most {
                self.first.extend(self.events.back().cloned());
            }
            while self.events.len() > LEAD {
                // A span that goes on is told when it is over, and then belongs to the latest event.
                self.events.pop_front();
            }
            if self.seen > PATIENCE {
                self.stage = Stage::Done;
                self.events.clear();
                return;
            }
        }
        self.seen += 1;
        self.events.push_back(Seen { number: counter.into(), anchor: at, ..Seen::default() });
    }

    fn idle(&mut self, at: u64, what: &Happening<'_>) {
        let last = if self.stage == Stage::Done { self.events.back().map(|event| event.anchor) } else { None };
        if let Happening::Span { category, duration } = *what
            && category.is_idle()
            && last.is_none_or(|last| at < last)
            && let Some(event) = self.events.back_mut()
        {
            event.idle.push((at, at + duration, category.name()));
        }
    }

    fn pdu(&mut self, at: u64, pdu: Heard<'_>) {
        let what = self.what(&pdu);
        let Some(event) = self.events.back_mut() else { return };
        let kind = match pdu.purpose {
            Purpose::Payload(_) => "data",
            Purpose::Signalling if credits(pdu.bytes).is_some() => "credit",
            Purpose::Signalling => "signalling",
            Purpose::Control | Purpose::Advertising => "control",
            Purpose::Empty => "empty",
        };
        event.pdus.push(AirPdu {
            start_ns: at.saturating_sub(event.anchor),
            duration_ns: pdu.duration,
            sender: pdu.from.name().to_owned(),
            kind: kind.to_owned(),
            payload_bytes: pdu.bytes.len().saturating_sub(2) as u64,
            more_data: pdu.md,
            retransmission: pdu.retransmission,
            received: pdu.reception == Reception::Received,
            what,
        });
    }

    /// What a PDU carries, in words. Follows the bytes of the SDUs.
    fn what(&mut self, pdu: &Heard<'_>) -> String {
        let what = match pdu.purpose {
            Purpose::Payload(_) if pdu.retransmission => self.last[pdu.from as usize].clone(),
            Purpose::Payload(bytes) => {
                let Some((number, whole, left)) = self.sdus.front_mut() else { return format!("{bytes} B") };
                let from = *whole - *left;
                *left = left.saturating_sub(bytes);
                let text = format!("SDU {number} of {whole} B, bytes {from} to {}", from + bytes);
                if *left == 0 {
                    let short = *whole < self.longest_sdu;
                    self.sdus.pop_front();
                    if short && self.stage == Stage::Looking && self.seen > WARM_UP {
                        self.stage = Stage::Found;
                    }
                }
                text
            }
            Purpose::Signalling => match credits(pdu.bytes) {
                Some(1) => "1 credit".to_owned(),
                Some(credits) => format!("{credits} credits"),
                None => "L2CAP signalling".to_owned(),
            },
            Purpose::Control => "link layer control".to_owned(),
            Purpose::Empty => "acknowledges".to_owned(),
            Purpose::Advertising => "advertising".to_owned(),
        };
        if matches!(pdu.purpose, Purpose::Payload(_)) {
            self.last[pdu.from as usize].clone_from(&what);
        }
        what
    }
}

/// A PDU as it was told.
struct Heard<'a> {
    from: Role,
    duration: u64,
    bytes: &'a [u8],
    md: bool,
    retransmission: bool,
    reception: Reception,
    purpose: Purpose,
}

/// The credits of an L2CAP_FLOW_CONTROL_CREDIT_IND (Vol 3, Part A, 4.24) in a data PDU.
fn credits(pdu: &[u8]) -> Option<u16> {
    match *pdu.get(2..)? {
        [8, 0, 5, 0, 0x16, _, 4, 0, _, _, low, high] => Some(u16::from_le_bytes([low, high])),
        _ => None,
    }
}

/// Idle spans within an event, from its anchor on.
fn cut(idle: &[(u64, u64, &str)], anchor: u64, next: u64) -> Vec<AirIdle> {
    let within = idle.iter().filter(|(from, to, _)| *from < next && *to > anchor);
    let part = |&(from, to, holder): &(u64, u64, &str)| {
        let (from, to) = (from.max(anchor), to.min(next));
        AirIdle { start_ns: from - anchor, duration_ns: to - from, holder: holder.to_owned() }
    };
    within.map(part).collect()
}

impl Observer for Excerpt {
    fn event(&mut self, event: &AirEvent<'_>) {
        let at = event.at.as_nanos();
        if event.link != 0 {
            return;
        }
        if self.stage == Stage::Done {
            // A span is told when it is over: this one may have begun within the excerpt.
            self.idle(at, &event.what);
            return;
        }
        match event.what {
            Happening::MeasurementBegins => self.stage = Stage::Looking,
            Happening::SduWritten { sequence, bytes, .. } => {
                self.sdus.push_back((sequence, bytes, bytes));
                self.longest_sdu = self.longest_sdu.max(bytes);
            }
            _ if self.stage == Stage::Before => {}
            Happening::EventBegins { counter, .. } => self.begins(at, counter),
            Happening::EventEnds { reason, .. } => {
                if let Some(event) = self.events.back_mut() {
                    reason.name().clone_into(&mut event.closed);
                }
            }
            Happening::Pdu { from, duration, bytes, md, retransmission, reception, purpose, .. } => {
                self.pdu(at, Heard { from, duration, bytes, md, retransmission, reception, purpose });
            }
            _ => self.idle(at, &event.what),
        }
    }
}

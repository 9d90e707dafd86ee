use std::collections::VecDeque;

use taut_air::{AirEvent, Happening, Observer, Purpose, Reception, Role};

use taut_record::{AirEventExcerpt, AirExcerpt, AirIdle, AirPdu};

/// Keeps some connection events of a run's first link for drawing. Looked for is a stutter: an
/// event without data although an SDU is half sent. Without one, the first SDU that is shorter than
/// others, which is where a block ends; without that, the first events.
#[derive(Debug)]
pub struct Excerpt {
    /// Events wanted.
    most: usize,
    measuring: bool,
    open: Option<Seen>,
    seen: usize,
    stutter: Window,
    block_end: Window,
    first: Window,
    /// SDUs written and not yet wholly on the air: number, bytes, bytes left.
    sdus: VecDeque<(u64, usize, usize)>,
    longest_sdu: usize,
    /// A short SDU went out in the open event.
    short: bool,
    /// What the last data PDU of either side carried, for its repetition.
    last: [String; 2],
}

/// Events around what was looked for.
#[derive(Debug, Default)]
struct Window {
    found: bool,
    events: VecDeque<Seen>,
}

/// A connection event with everything up to the next anchor.
#[derive(Clone, Debug, Default)]
struct Seen {
    number: u64,
    anchor: u64,
    closed: String,
    pdus: Vec<AirPdu>,
    /// Begin and end since the run began, and holder. Told at its end, so a span may have begun in an event before.
    idle: Vec<(u64, u64, &'static str)>,
}

/// Events kept before the one that is looked for.
const LEAD: usize = 4;
/// Events at the start that are not typical yet.
const WARM_UP: usize = 24;
/// After so many events nothing is looked for any more.
const PATIENCE: usize = 100_000;
/// Events kept behind the last one shown, since a span is told when it is over.
const TAIL: usize = 2;

impl Window {
    fn push(&mut self, event: &Seen, most: usize) {
        if self.is_full(most) {
            return;
        }
        self.events.push_back(event.clone());
        if !self.found && self.events.len() > LEAD {
            self.events.pop_front();
        }
    }

    fn is_full(&self, most: usize) -> bool {
        self.found && self.events.len() >= most + TAIL
    }
}

impl Excerpt {
    /// An excerpt of at most that many events.
    pub fn of(most: usize) -> Self {
        Self {
            most: most.max(1),
            measuring: false,
            open: None,
            seen: 0,
            stutter: Window::default(),
            block_end: Window::default(),
            first: Window { found: true, ..Window::default() },
            sdus: VecDeque::new(),
            longest_sdu: 0,
            short: false,
            last: [String::new(), String::new()],
        }
    }

    /// What was kept.
    pub fn finish(self) -> Option<AirExcerpt> {
        let (what, window) = if self.stutter.found {
            ("Around an event without data although an SDU was half sent.", self.stutter)
        } else if self.block_end.found {
            ("Around the end of a block, where an SDU is shorter than the others.", self.block_end)
        } else {
            ("The first connection events.", self.first)
        };
        let anchors: Vec<u64> = window.events.iter().map(|event| event.anchor).collect();
        let idle: Vec<(u64, u64, &str)> = window.events.iter().flat_map(|event| event.idle.iter().copied()).collect();
        // The last anchor ends the event before it.
        let events = window.events.into_iter().zip(anchors.into_iter().skip(1)).take(self.most);
        let events: Vec<AirEventExcerpt> = events
            .map(|(event, next)| AirEventExcerpt {
                number: event.number,
                anchor_ns: event.anchor,
                closed: event.closed,
                idle: cut(&idle, event.anchor, next),
                pdus: event.pdus,
            })
            .collect();
        (!events.is_empty()).then(|| AirExcerpt { what: what.to_owned(), events })
    }

    fn is_done(&self) -> bool {
        self.seen > PATIENCE || self.stutter.is_full(self.most)
    }

    fn begins(&mut self, at: u64, counter: u16) {
        let next = Seen { number: counter.into(), anchor: at, ..Seen::default() };
        if let Some(event) = self.open.replace(next) {
            let is_typical = self.seen > WARM_UP;
            let half_sent = self.sdus.front().is_some_and(|(_, whole, left)| left < whole);
            let without_data = event.pdus.iter().all(|pdu| pdu.kind != "data");
            self.stutter.found |= is_typical && half_sent && without_data;
            self.block_end.found |= is_typical && self.short;
            for window in [&mut self.stutter, &mut self.block_end, &mut self.first] {
                window.push(&event, self.most);
            }
        }
        self.short = false;
        self.seen += 1;
    }

    fn idle(&mut self, at: u64, what: &Happening<'_>) {
        if let Happening::Span { category, duration } = *what
            && category.is_idle()
            && let Some(event) = &mut self.open
        {
            event.idle.push((at, at + duration, category.name()));
        }
    }

    fn pdu(&mut self, at: u64, pdu: Heard<'_>) {
        let what = self.what(&pdu);
        let Some(event) = &mut self.open else { return };
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
                    self.short |= short;
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
        if event.link != 0 || self.is_done() {
            return;
        }
        match event.what {
            Happening::MeasurementBegins => self.measuring = true,
            Happening::SduWritten { sequence, bytes, .. } => {
                self.sdus.push_back((sequence, bytes, bytes));
                self.longest_sdu = self.longest_sdu.max(bytes);
            }
            _ if !self.measuring => {}
            Happening::EventBegins { counter, .. } => self.begins(at, counter),
            Happening::EventEnds { reason, .. } => {
                if let Some(event) = &mut self.open {
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

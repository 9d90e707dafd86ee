//! What goes over which attribute of ATT: how much, how fast, and how long its turns take.

use taut_event::{Att, AttKind, AttUuid, Characteristic, Direction as Way, Holder, RadioLink};

use super::Half;
use super::names::name;
use crate::engine::{GattFacts, GattHandle};
use crate::tcp::Spread;

/// So many handles of a bearer are followed, each kind of PDU by itself.
const MOST_HANDLES: usize = 128;
/// So many types of attributes are remembered.
const MOST_NAMES: usize = 256;
/// In force until another one is agreed on (Core Specification, Vol 3, Part F, section 3.2.8; Part G, section 5.2.1).
const LEAST_MTU: u16 = 23;
/// Opcode of a request to exchange the MTU.
const MTU_REQUEST: u8 = 0x02;
/// Header of L2CAP before a PDU.
const L2CAP_HEADER: u16 = 4;
/// A share of the time that limits.
const MOST: f64 = 0.5;

/// The attributes of a bearer.
#[derive(Debug, Default)]
pub(super) struct Gatt {
    handles: Vec<Used>,
    names: Vec<Characteristic>,
    /// PDUs of handles beyond those that are followed, by direction.
    beyond: [u64; 2],
    /// Turns of such handles, by direction: of requests, and of indications.
    beyond_turns: [[Turns; 2]; 2],
    /// The longest PDU that each side takes, as it said in a request that has no answer yet.
    offered: [Option<u16>; 2],
    /// As both agreed on.
    agreed: Option<u16>,
    /// Whether they did so with a request that is not in the log, which may have said less than the answer.
    is_agreed_unseen: bool,
    /// The longest PDU with a value, of both directions.
    longest: u16,
    /// The questions that wait for their answers, by the direction they went. A request and an indication may be open
    /// at once (Core Specification, Vol 3, Part F, section 3.3.2).
    asked: [[Option<Asked>; 2]; 2],
}

/// A question.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Its place, if it is followed.
    place: Option<usize>,
    /// It is of a handle beyond those that are.
    is_beyond: bool,
    at: u64,
    /// Its opcode; `None`: none of those that have a name here.
    opcode: Option<u8>,
}

/// The opcodes of questions that have a name of their own (Core Specification, Vol 3, Part F, section 3.4.8).
const NAMED: [u8; 5] = [MTU_REQUEST, 0x0a, 0x0c, 0x12, 0x16];

const fn opcode(kind: AttKind) -> Option<u8> {
    let [mtu, read, read_blob, write, prepare_write] = NAMED;
    match kind {
        AttKind::MtuRequest { .. } => Some(mtu),
        AttKind::ReadRequest => Some(read),
        AttKind::ReadBlobRequest => Some(read_blob),
        AttKind::WriteRequest => Some(write),
        AttKind::PrepareWriteRequest => Some(prepare_write),
        _ => None,
    }
}

impl Asked {
    /// Whether an error names this question.
    fn is_it(&self, of: u8) -> bool {
        self.opcode.map_or_else(|| !NAMED.contains(&of), |opcode| opcode == of)
    }
}

/// Of [`Gatt::asked`].
const REQUEST: usize = 0;
const INDICATION: usize = 1;

/// The ATT MTU.
#[derive(Clone, Copy, Debug)]
struct Mtu {
    bytes: u16,
    /// Whether the log has what sets it.
    is_said: bool,
    /// Or may it be larger.
    is_known: bool,
}

/// From the first to the last one, and in which of this time one was under way.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    first: u64,
    last: u64,
    busy_ns: u64,
}

impl Turns {
    fn add(&mut self, from: u64, to: u64) {
        if self.busy_ns == 0 {
            self.first = from;
        }
        self.last = to;
        self.busy_ns = self.busy_ns.saturating_add(to.saturating_sub(from));
    }

    /// How long one was under way between two moments, as if that were spread evenly over all of the time.
    fn within(&self, first: u64, last: u64) -> u64 {
        let (from, to) = (self.first.max(first), self.last.min(last));
        let share = to.saturating_sub(from) as f64 / self.last.saturating_sub(self.first).max(1) as f64;
        (self.busy_ns as f64 * share) as u64
    }
}

/// One kind of PDU over one handle.
#[derive(Debug)]
struct Used {
    way: usize,
    kind: Kind,
    handle: u16,
    count: u64,
    bytes: u64,
    longest: u16,
    /// PDUs with all the room of the ATT MTU that was in force, though a data PDU on the air had more.
    full: u64,
    first: u64,
    last: u64,
    turns: Spread,
    busy_ns: u64,
    errors: u64,
    unanswered: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Read,
    WriteRequest,
    PrepareWrite,
    WriteCommand,
    Notification,
    Indication,
}

impl Kind {
    const fn of(kind: AttKind) -> Option<Self> {
        match kind {
            AttKind::ReadRequest | AttKind::ReadBlobRequest => Some(Self::Read),
            AttKind::WriteRequest => Some(Self::WriteRequest),
            AttKind::PrepareWriteRequest => Some(Self::PrepareWrite),
            AttKind::WriteCommand => Some(Self::WriteCommand),
            AttKind::Notification => Some(Self::Notification),
            AttKind::Indication => Some(Self::Indication),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::WriteRequest => "write_request",
            Self::PrepareWrite => "prepare_write_request",
            Self::WriteCommand => "write_command",
            Self::Notification => "notification",
            Self::Indication => "indication",
        }
    }

    /// Bytes of a PDU that are not of the value.
    const fn header(self) -> u16 {
        match self {
            Self::Read => 1,
            Self::PrepareWrite => 5,
            _ => 3,
        }
    }

    const fn takes_turns(self) -> bool {
        !matches!(self, Self::WriteCommand | Self::Notification)
    }
}

impl Gatt {
    pub(super) fn named(&mut self, named: Characteristic) {
        if let Some(known) = self.names.iter_mut().find(|known| known.handle == named.handle) {
            *known = named;
        } else if self.names.len() < MOST_NAMES {
            self.names.push(named);
        }
    }

    /// Packets of the log were lost.
    pub(super) fn lost(&mut self) {
        self.asked = Default::default();
    }

    /// The MTU at the end. `channel` is that of an enhanced bearer's channel, which is its MTU (Part G, section 5.3.1);
    /// 0: it is none.
    fn mtu(&self, half: &Half, link: &RadioLink, channel: u16) -> Mtu {
        let is_from_begin = link.from_start && !half.tally.is_lossy && !self.is_agreed_unseen;
        let said = Some(channel).filter(|&channel| channel > 0).or(self.agreed);
        let least = said.unwrap_or(LEAST_MTU);
        // What is longer was agreed on where the log does not have it.
        let is_known = (said.is_some() || is_from_begin) && self.longest <= least;
        Mtu { bytes: least.max(self.longest), is_said: said.is_some(), is_known }
    }

    /// Whether a PDU of so many bytes has all the room of the ATT MTU in force, and a data PDU on the air has more, or
    /// the MTU is the least one.
    fn is_full(&self, bytes: u16, way: usize, (link, channel): (&RadioLink, u16)) -> bool {
        let said = Some(channel).filter(|&channel| channel > 0).or(self.agreed);
        let Some(mtu) = said.or_else(|| link.from_start.then_some(LEAST_MTU)) else { return false };
        let length = if link.from_start { link.length[way] } else { 0 };
        bytes >= mtu && (mtu == LEAST_MTU || mtu.saturating_add(L2CAP_HEADER) < length)
    }

    /// A PDU on a link. `channel` is the MTU of an enhanced bearer's channel; 0: it is none.
    pub(super) fn att(&mut self, at: u64, way: usize, att: &Att, bearer: (&RadioLink, u16)) {
        let header = match att.kind {
            AttKind::ReadResponse => Kind::Read.header(),
            kind => Kind::of(kind).map_or(0, Kind::header),
        };
        let bytes = att.bytes.saturating_add(header);
        self.longest = self.longest.max(bytes);
        let value = (att.bytes, self.is_full(bytes, way, bearer));
        match att.kind {
            AttKind::MtuRequest { mtu } => {
                self.offered[way] = Some(mtu);
                self.asks(way, REQUEST, Asked { place: None, is_beyond: false, at, opcode: opcode(att.kind) });
            }
            AttKind::MtuResponse { mtu } => {
                // The lesser one of what both said (Part F, section 3.4.2.2).
                match self.offered[1 - way].take() {
                    Some(offered) => self.agreed = Some(offered.min(mtu).max(LEAST_MTU)),
                    None => self.is_agreed_unseen = true,
                }
                self.asked[1 - way][REQUEST] = None;
            }
            AttKind::OtherRequest => self.asks(way, REQUEST, Asked { place: None, is_beyond: false, at, opcode: None }),
            AttKind::OtherResponse | AttKind::ReadResponse | AttKind::WriteResponse => {
                self.answered(at, 1 - way, REQUEST, Some(value));
            }
            AttKind::Confirmation => self.answered(at, 1 - way, INDICATION, Some(value)),
            AttKind::Error { of, .. } => {
                if of == MTU_REQUEST {
                    self.offered[1 - way] = None;
                }
                if self.asked[1 - way][REQUEST].is_some_and(|asked| asked.is_it(of)) {
                    self.answered(at, 1 - way, REQUEST, None);
                }
            }
            kind => {
                let (Some(kind), Some(handle)) = (Kind::of(kind), att.handle) else { return };
                let place = self.used(way, kind, handle, at);
                let is_beyond = place.is_none();
                if let Some(place) = place {
                    let used = &mut self.handles[place];
                    used.count += 1;
                    used.last = at;
                    if kind != Kind::Read {
                        used.takes(value);
                    }
                }
                if kind.takes_turns() {
                    let transaction = if kind == Kind::Indication { INDICATION } else { REQUEST };
                    self.asks(way, transaction, Asked { place, is_beyond, at, opcode: opcode(att.kind) });
                }
            }
        }
    }

    /// A question in the place of one that has no answer yet: that one has none in the log.
    fn asks(&mut self, way: usize, transaction: usize, asked: Asked) {
        let before = self.asked[way][transaction].replace(asked);
        if let Some(place) = before.and_then(|before| before.place) {
            self.handles[place].unanswered += 1;
        }
    }

    /// With so many bytes of a value, and whether it is full; `None`: an answer that says why not.
    fn answered(&mut self, at: u64, way: usize, transaction: usize, value: Option<(u16, bool)>) {
        let Some(Asked { place, is_beyond, at: since, .. }) = self.asked[way][transaction].take() else { return };
        if is_beyond {
            self.beyond_turns[way][transaction].add(since, at);
        }
        let Some(used) = place.map(|place| &mut self.handles[place]) else { return };
        let took = at.saturating_sub(since);
        used.turns.add(took);
        used.busy_ns = used.busy_ns.saturating_add(took);
        used.errors += u64::from(value.is_none());
        used.last = at;
        if let (Kind::Read, Some(value)) = (used.kind, value) {
            used.takes(value);
        }
    }

    fn used(&mut self, way: usize, kind: Kind, handle: u16, at: u64) -> Option<usize> {
        let is_it = |used: &Used| (used.way, used.kind, used.handle) == (way, kind, handle);
        let known = self.handles.iter().position(is_it);
        if known.is_none() && self.handles.len() == MOST_HANDLES {
            self.beyond[way] += 1;
            return None;
        }
        Some(known.unwrap_or_else(|| {
            let (turns, first, last) = (Spread::default(), at, at);
            let (count, bytes, longest, full, busy_ns, errors, unanswered) = (0, 0, 0, 0, 0, 0, 0);
            let new = Used {
                way,
                kind,
                handle,
                count,
                bytes,
                longest,
                full,
                first,
                last,
                turns,
                busy_ns,
                errors,
                unanswered,
            };
            self.handles.push(new);
            self.handles.len() - 1
        }))
    }

    /// What went over handles in a direction, the most bytes first. `channel` is the MTU of an enhanced bearer's
    /// channel; 0: it is none.
    pub(super) fn facts(&self, way: Way, half: &Half, link: &RadioLink, channel: u16) -> Option<GattFacts> {
        let mut handles: Vec<&Used> = self.handles.iter().filter(|used| used.way == way.index()).collect();
        let beyond = self.beyond[way.index()];
        if handles.is_empty() && beyond == 0 {
            return None;
        }
        handles.sort_by_key(|used| std::cmp::Reverse((used.bytes, used.count)));
        let mtu = self.mtu(half, link, channel);
        let handles = handles.into_iter().map(|used| self.handle(used, half, link, mtu)).collect();
        let Mtu { bytes, is_said, is_known } = mtu;
        Some(GattFacts { att_mtu_bytes: bytes, is_mtu_exchanged: is_said, is_mtu_known: is_known, handles, beyond })
    }

    fn handle(&self, used: &Used, half: &Half, link: &RadioLink, mtu: Mtu) -> GattHandle {
        let uuid = self.names.iter().find(|named| named.handle == used.handle).map(|named| named.uuid);
        let span = used.last - used.first;
        // What was not counted took time, too, and what the log lacks.
        let is_whole = half.tally.pdus_of_unknown_sdus == 0 && !half.tally.is_lossy;
        let rate = (span > 0 && is_whole).then(|| (used.bytes as f64 * 8e9 / span as f64) as u64);
        let intervals =
            |ns: u64| (link.interval_ns > 0 && !half.tally.is_lossy).then(|| ns as f64 / link.interval_ns as f64);
        let is_open =
            |asked: &&Asked| asked.place.is_some_and(|place| std::ptr::eq(&raw const self.handles[place], used));
        let open = self.asked[used.way].iter().flatten().filter(is_open).count() as u64;
        let turn_p50_ns = used.turns.median();
        GattHandle {
            handle: used.handle,
            uuid: uuid.map(|uuid| uuid.to_string()),
            name: uuid.and_then(|uuid| match uuid {
                AttUuid::Short(short) => name(short).map(str::to_owned),
                AttUuid::Long(_) => None,
            }),
            kind: used.kind.name().to_owned(),
            count: used.count,
            bytes: used.bytes,
            longest_bytes: used.longest,
            bits_per_second: rate,
            turn_p50_ns,
            turn_p99_ns: used.turns.at((used.turns.count() * 99).div_ceil(100).max(1)),
            intervals_per_turn: turn_p50_ns.and_then(intervals),
            errors: used.errors,
            unanswered: used.unanswered + open,
            limits: if is_whole { self.limits(used, half, mtu, span) } else { Vec::new() },
        }
    }

    /// What limits it, the first one most.
    fn limits(&self, used: &Used, half: &Half, mtu: Mtu, span: u64) -> Vec<String> {
        /// Fewer PDUs have no rate.
        const LEAST: u64 = 8;
        let mut limits = Vec::new();
        if used.count < LEAST || span == 0 {
            return limits;
        }
        let share_of = |ns: u64, whole: u64| ns as f64 / whole.max(1) as f64;
        if used.kind.takes_turns() {
            // One request at a time goes over a bearer, and one indication: each waits for those of other handles too.
            let is_indication = |used: &Used| used.kind == Kind::Indication;
            let turns = self.handles.iter().filter(|other| {
                other.way == used.way && other.kind.takes_turns() && is_indication(other) == is_indication(used)
            });
            let beyond = self.beyond_turns[used.way][usize::from(is_indication(used))];
            let others = beyond.within(used.first, used.last);
            let meanwhile = turns.map(|other| other.turns_taken().within(used.first, used.last)).sum::<u64>() + others;
            let is_busy = share_of(meanwhile, span) >= MOST;
            limits.push(if is_busy { "turn" } else { "program" }.to_owned());
        } else {
            let held = |holders: &[Holder]| holders.iter().map(|&holder| half.breakdown.ns(holder)).sum::<u64>();
            let whole = half.breakdown.total_ns();
            let link = held(&[Holder::ConnectionInterval, Holder::ControllerBuffers, Holder::Air]);
            if share_of(held(&[Holder::SendingProgram, Holder::PeerTurn]), whole) >= MOST {
                limits.push("program".to_owned());
            } else if share_of(link, whole) >= MOST {
                limits.push("link".to_owned());
            }
        }
        let is_full = 2 * used.full >= used.count;
        if mtu.is_known && is_full && limits.first().is_none_or(|limit| limit != "program") {
            limits.push("mtu".to_owned());
        }
        limits
    }
}

impl Used {
    const fn turns_taken(&self) -> Turns {
        Turns { first: self.first, last: self.last, busy_ns: self.busy_ns }
    }

    fn takes(&mut self, (bytes, is_full): (u16, bool)) {
        self.bytes += u64::from(bytes);
        self.longest = self.longest.max(bytes);
        self.full += u64::from(is_full);
    }
}

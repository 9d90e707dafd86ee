//! What passed while the sender's controller had packets: on the air, for the next event, for repetitions, …
//!
//! From the hand-over of a PDU to its acknowledgement the controller has something to send; from then to its report to
//! the host it is only late. On the air's side each moment belongs to a PDU or to what lies between two.

use taut_event::Direction;

use super::air::Slot;
use super::told::InController;

/// The inter frame space, and an empty PDU on LE 1M, in nanoseconds, as the sniffer's ledger has them.
const IFS_NS: u64 = 150_000;
const EMPTY_NS: u64 = 80_000;

/// A PDU in the controller: on the air's clock its hand-over, its acknowledgement, and the report of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) from: u64,
    /// Its last part began on the air.
    pub(super) last: u64,
    pub(super) acknowledged: u64,
    pub(super) reported: u64,
}

/// What a moment was for one direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Its PDU, or the answer to it.
    OnAir,
    /// From a PDU that was sent again to the end of its last repetition's answer.
    Repeats,
    /// Of an event, but neither of these.
    InEvent,
    /// Between two events, the first of which had time for more or not. Its sender's last PDU in it began then.
    Between {
        has_room: bool,
        last_chance: u64,
    },
    NotKnown,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    from: u64,
    to: u64,
    state: State,
}

/// The air as one direction of a link has it, without gaps.
fn parts(slots: &[Slot], way: usize) -> Vec<Part> {
    let is_own = |slot: &Slot| slot.has(Slot::BACKWARD) == (way == Direction::Backward.index());
    // What the direction sends next.
    let mut next_air = vec![0_u32; slots.len()];
    let mut next = 0;
    for (number, slot) in slots.iter().enumerate().rev() {
        if is_own(slot) && slot.has(Slot::DATA) && !slot.has(Slot::REPEAT) {
            next = slot.air_ns;
        }
        next_air[number] = next;
    }
    let mut parts: Vec<Part> = Vec::with_capacity(2 * slots.len());
    let mut sent = Sent::default();
    let mut last_chance = 0;
    let mut end = slots.first().map_or(0, |slot| slot.at);
    for (number, slot) in slots.iter().enumerate() {
        let at = slot.at.max(end);
        let is_data = is_own(slot) && slot.has(Slot::DATA);
        let is_repeat = is_data && slot.has(Slot::REPEAT);
        if at > end {
            let state = match (slot.has(Slot::HOLE), slot.has(Slot::BEGINS)) {
                (true, _) => State::NotKnown,
                _ if sent.is_pending && sent.is_repeated => State::Repeats,
                (_, true) => {
                    let needs = 3 * IFS_NS + EMPTY_NS + u64::from(next_air[number]);
                    State::Between { has_room: at - end >= needs, last_chance }
                }
                _ if sent.is_pending => State::OnAir,
                // The inter frame space before it.
                _ if is_data && at - end <= 2 * IFS_NS => State::OnAir,
                _ => State::InEvent,
            };
            parts.push(Part { from: end, to: at, state });
        }
        if slot.has(Slot::BEGINS) {
            last_chance = 0;
        }
        let to = slot.end().max(at);
        if is_own(slot) {
            last_chance = slot.at;
        }
        if let (true, Some(since)) = (is_repeat, sent.since) {
            // Its sender had not heard an acknowledgement, even if the sniffer had.
            let known = parts[since..].iter_mut().filter(|part| part.state != State::NotKnown);
            known.for_each(|part| part.state = State::Repeats);
            (sent.is_pending, sent.is_repeated) = (true, true);
        }
        let state = match () {
            () if is_data && !is_repeat => State::OnAir,
            () if is_repeat || sent.is_pending && sent.is_repeated => State::Repeats,
            () if sent.is_pending && !is_own(slot) => State::OnAir,
            () => State::InEvent,
        };
        parts.push(Part { from: at, to, state });
        match () {
            () if is_data && !is_repeat => {
                sent = Sent { since: Some(parts.len()), is_pending: true, is_repeated: false }
            }
            () if is_own(slot) && !is_data => sent = Sent::default(),
            () if !is_own(slot) && slot.has(Slot::ACKNOWLEDGES) => sent.is_pending = false,
            () => {}
        }
        end = to;
    }
    parts
}

/// The newest PDU with data.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// What follows its first transmission begins with this part.
    since: Option<usize>,
    /// It is not acknowledged.
    is_pending: bool,
    is_repeated: bool,
}

/// What a controller did with what its host had handed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Doing {
    OnAir,
    Repeats,
    WaitsForEvent,
    ClosedEarly,
    InEvent,
    ReportsLate,
    NotKnown,
}

/// A time in which it did one of these.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Moment {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) what: Doing,
}

/// Adds up what passed from each hand-over on, and tells each part of it by `each`, in order.
pub(super) fn split(slots: &[Slot], way: usize, stays: &[Stay], mut each: impl FnMut(Moment)) -> InController {
    let mut told = InController::default();
    let parts = parts(slots, way);
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return told };
    let window = [first.from, last.to];
    let mut add = |told: &mut InController, moment: Moment| {
        *told.of(moment.what) += moment.to - moment.from;
        if moment.from < moment.to {
            each(moment);
        }
    };
    // PDUs do not overtake each other; a clock's error may make it look so.
    let is_seen = |stay: &&Stay| stay.acknowledged >= window[0] && stay.acknowledged <= window[1];
    let within = |stay: &Stay| Stay { from: stay.from.max(window[0]), reported: stay.reported.min(window[1]), ..*stay };
    let mut stays: Vec<Stay> = stays.iter().filter(is_seen).map(within).collect();
    stays.sort_by_key(|stay| (stay.acknowledged, stay.from));
    let mut place = 0;
    let mut covered = 0_u64;
    for (number, stay) in stays.iter().enumerate() {
        // With those before it this one has the time from here on.
        let from = stay.from.max(covered);
        let to = stay.acknowledged.max(from);
        while place < parts.len() && parts[place].to <= from {
            place += 1;
        }
        let mut at = place;
        while at < parts.len() && parts[at].from < to {
            let part = parts[at];
            let what = doing(part, stay, stays.get(number + 1));
            add(&mut told, Moment { from: part.from.max(from), to: part.to.min(to), what });
            at += 1;
        }
        covered = covered.max(to);
        told.pdus += 1;
        // Of what was acknowledged and not yet told, the time in which nothing else was to be sent.
        let next = stays.get(number + 1).map_or(u64::MAX, |next| next.from);
        let late_to = stay.reported.min(next).max(covered);
        add(&mut told, Moment { from: covered, to: late_to, what: Doing::ReportsLate });
        covered = late_to;
    }
    told.held_ns = told.parts().iter().map(|(_, ns)| ns).sum();
    told
}

/// Where a part of the time belongs in which a PDU was the oldest without acknowledgement.
fn doing(part: Part, stay: &Stay, next: Option<&Stay>) -> Doing {
    match part.state {
        State::OnAir => Doing::OnAir,
        State::Repeats => Doing::Repeats,
        State::InEvent => Doing::InEvent,
        State::Between { has_room, last_chance } => {
            // Of a PDU that was sent only the acknowledgement is to come, with the next event.
            let waits = if stay.last > part.from { Some(stay) } else { next };
            // The sender had it when it could last have sent it, or told of it.
            let could = last_chance > 0 && waits.is_some_and(|waits| waits.from <= last_chance);
            if has_room && could { Doing::ClosedEarly } else { Doing::WaitsForEvent }
        }
        State::NotKnown => Doing::NotKnown,
    }
}

impl InController {
    const fn of(&mut self, what: Doing) -> &mut u64 {
        match what {
            Doing::OnAir => &mut self.on_air_ns,
            Doing::Repeats => &mut self.repeats_ns,
            Doing::WaitsForEvent => &mut self.waits_for_event_ns,
            Doing::ClosedEarly => &mut self.closed_early_ns,
            Doing::InEvent => &mut self.in_event_ns,
            Doing::ReportsLate => &mut self.reported_late_ns,
            Doing::NotKnown => &mut self.not_known_ns,
        }
    }
}

/// The connection events of a link: from the first PDU of each to the last one, as far as the sniffer has them. What
/// lies between two is time in which nothing can pass, unless something was missed; then it is left out of both.
pub(super) fn events(slots: &[Slot]) -> (Vec<[u64; 2]>, Vec<[u64; 2]>) {
    let (mut events, mut pauses): (Vec<[u64; 2]>, Vec<[u64; 2]>) = (Vec::new(), Vec::new());
    for slot in slots {
        match events.last_mut() {
            Some(event) if !slot.has(Slot::BEGINS) && !slot.has(Slot::HOLE) => event[1] = event[1].max(slot.end()),
            before => {
                let end = before.map(|event| event[1]);
                pauses.extend(end.filter(|end| !slot.has(Slot::HOLE) && *end < slot.at).map(|end| [end, slot.at]));
                let at = slot.at.max(end.unwrap_or(0));
                events.push([at, slot.end().max(at)]);
            }
        }
    }
    (events, pauses)
}

//! Where on the path the packets were seen, and how long a round takes from there to either end.

use taut_event::TimestampOption;

/// Loops from the vantage point, in nanoseconds: to an end, through it, and back.
#[derive(Debug, Default)]
pub(super) struct Loops {
    /// By index of the direction that the end sends.
    ends: [Loop; 2],
    told: Told,
}

/// What the loops come to, by index of the direction that an end sends: each segment asks for it several times, and few
/// change it.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// 0 where it is not known.
    to_sender: [u64; 2],
    round_trip: u64,
    is_known: [bool; 2],
    is_at_sender: [bool; 2],
}

impl Default for Told {
    fn default() -> Self {
        Self::of(&Default::default())
    }
}

impl Told {
    fn of(ends: &[Loop; 2]) -> Self {
        let known = ends.each_ref().map(Loop::known);
        let to_sender = known.map(Option::unwrap_or_default);
        let round_trip = (to_sender[0] + to_sender[1]).max(LEAST_ROUND_TRIP);
        let near = |loop_ns: u64| loop_ns <= NEAR_NS || loop_ns <= round_trip / 4;
        Self {
            to_sender,
            round_trip,
            is_known: known.map(|known| known.is_some()),
            is_at_sender: known.map(|known| known.is_some_and(near)),
        }
    }
}

/// The loop to one end.
#[derive(Debug, Default)]
struct Loop {
    /// The least that was seen.
    least: Option<u64>,
    is_by_handshake: bool,
    /// Where the opening does not tell.
    signs: Option<Box<Signs>>,
}

/// What else tells of a loop.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    /// Of the timestamps that the end echoed.
    echo: Echo,
    /// Where there are none.
    reactions: Reactions,
}

/// What the timestamps of an end tell that was not asked anything: it may have waited for its
/// program before it sent, so the least wait is the loop only where something else shows that the
/// loop is not much shorter.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    least: Option<u64>,
    /// Segments that left at most half as long ago: newer acknowledgements had passed, of which the
    /// end did not know yet.
    proofs: u32,
}

/// How soon data followed an acknowledgement, after a gap.
#[derive(Clone, Copy, Debug, Default)]
struct Reactions {
    least: Option<u64>,
    count: u32,
    /// Those that came at once.
    prompt: u32,
}

/// The opening of a connection.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// What has passed of it so far; gone once it is established, as nothing asks for it any more.
    sendings: Option<Box<Sendings>>,
    /// The first SYN was the one that was answered: that it was sent again was needless.
    is_first_answered: bool,
    pub(super) is_established: bool,
    repeated: u64,
}

/// Longer ones are no loops, in nanoseconds: a program waited, or the clock was set.
pub(super) const LONGEST_LOOP: u64 = 3_600_000_000_000;
/// No round trip is taken to be shorter, in nanoseconds.
const LEAST_ROUND_TRIP: u64 = 10_000;
/// A loop that is shorter than this is no way at all: the sender is on this host, or next to it.
const NEAR_NS: u64 = 300_000;
/// So many segments prove that a loop is long: one may have lost the acknowledgement that it lacks.
const LEAST_PROOFS: u32 = 3;
/// So soon does a sender send that an acknowledgement lets go, in nanoseconds.
const PROMPT_NS: u64 = 50_000;
/// So many that do, and hardly any other, are no chance.
const LEAST_PROMPT: u32 = 16;

#[derive(Debug, Default)]
struct Sendings {
    /// Time and packet.
    first_syn: Option<(u64, u64)>,
    syns: Sent,
    syn_acks: Sent,
    server_loop: Option<u64>,
}

/// The sendings of a SYN or SYN/ACK: an answer to one that was sent again may be to any of them
/// (Karn's algorithm, RFC 6298, section 3), unless it echoes a timestamp.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Time, and the clock of the timestamps option; of more, those that are known stay.
    known: [Option<(u64, Option<u32>)>; 4],
    count: usize,
}

impl Sent {
    fn add(&mut self, at: u64, value: Option<u32>) {
        if let Some(place) = self.known.get_mut(self.count) {
            *place = Some((at, value));
        }
        self.count += 1;
    }

    /// Number and time of the one that an answer is to, if that can be told.
    fn answered(&self, echo: Option<u32>) -> Option<(usize, u64)> {
        let first = self.known[0]?;
        if self.count == 1 {
            return Some((0, first.0));
        }
        let echo = echo?;
        let is_echoed = |known: &Option<(u64, Option<u32>)>| known.is_some_and(|(_, value)| value == Some(echo));
        let number = self.known.iter().position(is_echoed)?;
        let is_only = self.known.iter().filter(|known| is_echoed(known)).count() == 1;
        self.known[number].filter(|_| is_only).map(|(at, _)| (number, at))
    }
}

impl Opening {
    pub(super) fn syn(&mut self, at: u64, place: u64, stamps: Option<TimestampOption>) {
        let Some(sendings) = self.sendings() else {
            self.repeated += 1;
            return;
        };
        let is_repeated = sendings.first_syn.is_some();
        sendings.first_syn.get_or_insert((at, place));
        sendings.syns.add(at, stamps.map(|stamps| stamps.value));
        self.repeated += u64::from(is_repeated);
    }

    pub(super) fn syn_ack(&mut self, at: u64, stamps: Option<TimestampOption>) {
        let Some(sendings) = self.sendings() else {
            self.repeated += 1;
            return;
        };
        let is_repeated = sendings.syn_acks.count > 0;
        sendings.syn_acks.add(at, stamps.map(|stamps| stamps.value));
        if is_repeated {
            self.repeated += 1;
            return;
        }
        let answered = sendings.syns.answered(stamps.map(|stamps| stamps.echo));
        sendings.server_loop = answered.map(|(_, syn)| at.saturating_sub(syn));
        self.is_first_answered = sendings.syns.count > 1 && answered.is_some_and(|(number, _)| number == 0);
    }

    /// Whether something has passed of it, and it is not established.
    pub(super) const fn is_under_way(&self) -> bool {
        self.sendings.is_some()
    }

    /// What has passed of it, until it is established.
    fn sendings(&mut self) -> Option<&mut Sendings> {
        if self.is_established {
            return None;
        }
        Some(self.sendings.get_or_insert_default())
    }

    /// When it was first asked for, and in which packet, if it was asked for again and nothing came.
    pub(super) fn unanswered(&self) -> Option<(u64, u64)> {
        let sendings = self.sendings.as_ref().filter(|sendings| sendings.syn_acks.count == 0)?;
        sendings.first_syn.filter(|_| sendings.syns.count > 1)
    }

    /// Openings that were sent again for want of an answer.
    pub(super) const fn repeated(&self) -> u64 {
        if self.is_first_answered { 0 } else { self.repeated }
    }

    /// The first acknowledgement of the end that opened: when and where the opening began, and what it tells of
    /// both loops.
    pub(super) fn answer(&mut self, at: u64, stamps: Option<TimestampOption>) -> Option<((u64, u64), Loops)> {
        let is_answered = |sendings: &mut Box<Sendings>| sendings.first_syn.is_some() && sendings.syn_acks.count > 0;
        let Sendings { first_syn, syn_acks, server_loop, .. } = *self.sendings.take_if(is_answered)?;
        self.is_established = true;
        let answered = syn_acks.answered(stamps.map(|stamps| stamps.echo));
        let client_loop = answered.map(|(_, syn_ack)| at.saturating_sub(syn_ack));
        let of = |least: Option<u64>| Loop {
            least: least.map(|ns| ns.min(LONGEST_LOOP)),
            is_by_handshake: least.is_some(),
            ..Loop::default()
        };
        let ends = [of(client_loop), of(server_loop)];
        Some((first_syn?, Loops { told: Told::of(&ends), ends }))
    }
}

impl Loop {
    /// From the vantage point to the end and back, if that is known.
    fn known(&self) -> Option<u64> {
        if self.is_by_handshake {
            return self.least;
        }
        let Some(signs) = &self.signs else { return self.least };
        let Echo { least: echoed, proofs } = signs.echo;
        let Reactions { least: reacted, count, prompt } = signs.reactions;
        let echoed = echoed.filter(|&echoed| self.least.is_some() || echoed <= NEAR_NS || proofs >= LEAST_PROOFS);
        let reacted = reacted.filter(|_| prompt >= LEAST_PROMPT && prompt >= count - count / 8);
        [self.least, echoed, reacted].into_iter().flatten().min()
    }
}

impl Loops {
    /// Something was seen of the loop to the end that sends `direction`.
    #[inline(always)]
    fn saw(&mut self, direction: usize, what: impl FnOnce(&mut Loop)) {
        what(&mut self.ends[direction]);
        self.told = Told::of(&self.ends);
    }

    /// The same; an opening tells more than any of these.
    #[inline(always)]
    fn saw_sign(&mut self, direction: usize, what: impl FnOnce(&mut Signs)) {
        if !self.ends[direction].is_by_handshake {
            self.saw(direction, |end| what(end.signs.get_or_insert_default()));
        }
    }

    /// Data went towards the end that sends `direction`, and an acknowledgement came back.
    pub(super) fn saw_answer(&mut self, direction: usize, loop_ns: u64) {
        let least = self.ends[direction].least;
        if least.is_none_or(|least| loop_ns < least) {
            self.saw(direction, |end| end.least = Some(loop_ns.min(LONGEST_LOOP)));
        }
    }

    /// Data came that was the first to echo an acknowledgement which had passed so long ago.
    pub(super) fn saw_echo(&mut self, direction: usize, loop_ns: u64) {
        self.saw_sign(direction, |Signs { echo, .. }| {
            if echo.least.is_some_and(|least| loop_ns < least / 2) {
                echo.proofs = 0;
            }
            echo.least = Some(echo.least.unwrap_or(LONGEST_LOOP).min(loop_ns));
        });
    }

    /// Data came whose sender did not know of an acknowledgement that had passed so long ago.
    pub(super) fn saw_ignorance(&mut self, direction: usize, since_ns: u64) {
        let least = self.ends[direction].signs.as_ref().and_then(|signs| signs.echo.least);
        if least.is_some_and(|least| since_ns >= least / 2) {
            self.saw_sign(direction, |Signs { echo, .. }| echo.proofs = echo.proofs.saturating_add(1));
        }
    }

    /// An acknowledgement without a timestamp went towards the end that sends `direction`, and new
    /// data came after a gap.
    pub(super) fn saw_reaction(&mut self, direction: usize, loop_ns: u64) {
        self.saw_sign(direction, |Signs { reactions, .. }| {
            reactions.least = Some(reactions.least.unwrap_or(LONGEST_LOOP).min(loop_ns));
            reactions.count = reactions.count.saturating_add(1);
            reactions.prompt = reactions.prompt.saturating_add(u32::from(loop_ns <= PROMPT_NS));
        });
    }

    /// To the sender of a direction and back, if that is known.
    #[inline(always)]
    pub(super) fn known_to_sender(&self, direction: usize) -> Option<u64> {
        self.told.is_known[direction].then_some(self.told.to_sender[direction])
    }

    /// Whether the opening told it: what is seen later does not change it.
    #[inline(always)]
    pub(super) const fn is_by_handshake(&self, direction: usize) -> bool {
        self.ends[direction].is_by_handshake
    }

    /// The same, and 0 where it is not known.
    #[inline(always)]
    pub(super) const fn to_sender(&self, direction: usize) -> u64 {
        self.told.to_sender[direction]
    }

    /// To its receiver and back.
    pub(super) const fn to_receiver(&self, direction: usize) -> u64 {
        self.to_sender(1 - direction)
    }

    /// Whether both are known, without which there is neither a round trip nor a place.
    pub(super) fn are_known(&self) -> bool {
        self.told.is_known == [true; 2]
    }

    /// The least round trip, at least 10 µs.
    pub(super) const fn round_trip(&self) -> u64 {
        self.told.round_trip
    }

    /// 0 at the sender of a direction, 1 at its receiver.
    pub(super) fn position(&self, direction: usize) -> f64 {
        self.to_sender(direction) as f64 / self.round_trip() as f64
    }

    /// Whether what passes here is what the sender has sent just now and takes in at once.
    pub(super) const fn is_at_sender(&self, direction: usize) -> bool {
        self.told.is_at_sender[direction]
    }
}

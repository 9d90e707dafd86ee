//! Where on the path the packets were seen, and how long a round takes from there to either end.

/// Loops from the vantage point, in nanoseconds: to an end, through it, and back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loops {
    /// By index of the direction that the end sends.
    least: [Option<u64>; 2],
    is_by_handshake: bool,
}

/// The opening of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    pub(super) first_syn: Option<(u64, u64)>,
    last_syn: Option<u64>,
    syn_ack: Option<u64>,
    pub(super) repeated: u64,
    pub(super) established: Option<(u64, u64)>,
}

/// A loop that is shorter than this is no way at all: the sender is on this host, or next to it.
const NEAR_NS: u64 = 300_000;

impl Opening {
    pub(super) fn syn(&mut self, at: u64, place: u64) {
        if self.first_syn.is_some() {
            self.repeated += 1;
        }
        self.first_syn.get_or_insert((at, place));
        self.last_syn = Some(at);
    }

    pub(super) fn syn_ack(&mut self, at: u64) {
        self.repeated += u64::from(self.syn_ack.is_some());
        self.syn_ack.get_or_insert(at);
    }

    /// The first acknowledgement of the end that opened; what it tells of both loops.
    pub(super) fn answer(&mut self, at: u64, place: u64) -> Option<Loops> {
        let (syn, syn_ack) = (self.last_syn?, self.syn_ack?);
        if self.established.is_some() {
            return None;
        }
        self.established = Some((at, place));
        let client = at.saturating_sub(syn_ack);
        Some(Loops { least: [Some(client), Some(syn_ack.saturating_sub(syn))], is_by_handshake: true })
    }
}

impl Loops {
    /// Data went towards the end that sends `direction`, and an acknowledgement came back.
    pub(super) fn saw_answer(&mut self, direction: usize, loop_ns: u64) {
        let least = &mut self.least[direction];
        *least = Some(least.unwrap_or(u64::MAX).min(loop_ns));
    }

    /// An acknowledgement went towards the end that sends `direction`, and new data came back.
    /// It may have waited for its program, so a handshake knows better.
    pub(super) fn saw_reaction(&mut self, direction: usize, loop_ns: u64) {
        if !self.is_by_handshake {
            self.saw_answer(direction, loop_ns);
        }
    }

    /// To the sender of a direction and back.
    pub(super) fn to_sender(self, direction: usize) -> u64 {
        self.least[direction].unwrap_or(0)
    }

    /// To its receiver and back.
    pub(super) fn to_receiver(self, direction: usize) -> u64 {
        self.to_sender(1 - direction)
    }

    /// The least round trip, at least 10 µs.
    pub(super) fn round_trip(&self) -> u64 {
        (self.to_sender(0) + self.to_sender(1)).max(10_000)
    }

    /// 0 at the sender of a direction, 1 at its receiver.
    pub(super) fn position(&self, direction: usize) -> f64 {
        self.to_sender(direction) as f64 / self.round_trip() as f64
    }

    /// Whether what passes here is what the sender has sent just now and takes in at once.
    pub(super) fn is_at_sender(&self, direction: usize) -> bool {
        let loop_ns = self.to_sender(direction);
        loop_ns <= NEAR_NS || loop_ns <= self.round_trip() / 4
    }
}

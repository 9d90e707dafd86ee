//! One connection of the foreign peer: the receiving half of RFC 9293, section 3.10.7, and an own half that sends
//! nothing but its FIN.

use std::net::SocketAddrV4;

use taut_time::{ByteRange, Instant};

use super::policy::AckTimer;
use super::segment::{Flags, Segment, WINDOW};

/// One connection. Sends no data, so all that it ever has to repeat is an answer to a segment that the client repeats:
/// there is no retransmission timer.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The other end.
    pub(crate) client: SocketAddrV4,
    /// This end.
    local: SocketAddrV4,
    /// Sequence number of the own SYN.
    own_start: u32,
    /// Sequence number of the client's first data byte.
    first_byte: u32,
    /// Bytes taken in, in order.
    received: u64,
    /// How many of them are acknowledged.
    acknowledged: u64,
    /// Whether the client has acknowledged the own SYN.
    is_established: bool,
    /// Whether the client's FIN came. The own FIN goes out with its acknowledgement.
    is_finished: bool,
    /// When an acknowledgement has to go out.
    ack_due: Option<Instant>,
}

/// What a segment calls for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// Nothing, or an acknowledgement later.
    Nothing,
    /// A SYN with ACK.
    Synchronize,
    /// An acknowledgement now.
    Acknowledge,
    /// A RST, and the connection stays.
    Reset,
    /// The end of the connection, without a word.
    Forget,
}

impl Connection {
    /// The connection that a client's SYN opens.
    pub(crate) fn open(syn: &Segment<'_>, own_start: u32) -> Self {
        Self {
            client: syn.source,
            local: syn.destination,
            own_start,
            first_byte: syn.sequence.wrapping_add(1),
            received: 0,
            acknowledged: 0,
            is_established: false,
            is_finished: false,
            ack_due: None,
        }
    }

    /// Takes in a segment that arrived at `now`: the positions of its new bytes, and what to answer.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        policy: AckTimer,
    ) -> (Option<ByteRange>, Answer) {
        // Distance on the circle of sequence numbers: positive for a gap, negative for old data.
        let ahead = segment.sequence.wrapping_sub(self.next_expected()) as i32;
        if segment.flags.rst {
            let is_in_window = (0..i32::from(WINDOW)).contains(&ahead);
            return (None, if is_in_window { Answer::Forget } else { Answer::Nothing });
        }
        if segment.flags.syn {
            let is_repeated = !self.is_established && segment.sequence.wrapping_add(1) == self.first_byte;
            // For any other SYN a challenge ACK (RFC 5961, section 4): a client that has forgotten answers with a RST.
            return (None, if is_repeated { Answer::Synchronize } else { Answer::Acknowledge });
        }
        if !segment.flags.ack {
            return (None, Answer::Nothing);
        }
        if let Some(answer) = self.check_acknowledgment(segment.acknowledgment) {
            return (None, answer);
        }
        if segment.sequence_length() == 0 {
            let is_in_window = (0..=i32::from(WINDOW)).contains(&ahead);
            // A keep-alive probe lies before the window and wants an answer (RFC 1122, section 4.2.3.6).
            return (None, if is_in_window { Answer::Nothing } else { Answer::Acknowledge });
        }
        let arrived = self.take_in(segment, ahead);
        let answer = match arrived {
            Some(_) if !self.is_finished => self.acknowledge_later(now, policy),
            // A FIN, old data or a gap.
            _ => Answer::Acknowledge,
        };
        (arrived, answer)
    }

    /// What the acknowledgement number calls for, unless the rest of the segment is to be looked at.
    fn check_acknowledgment(&mut self, acknowledgment: u32) -> Option<Answer> {
        let beyond = acknowledgment.wrapping_sub(self.own_next()) as i32;
        if !self.is_established {
            self.is_established = beyond == 0;
            return (!self.is_established).then_some(Answer::Reset);
        }
        match beyond {
            1.. => Some(Answer::Acknowledge),
            0 if self.is_finished => Some(Answer::Forget),
            _ => None,
        }
    }

    /// Takes what is new and in order from a segment: data and FIN. There is no store for data after a gap: the client
    /// sends it again.
    fn take_in(&mut self, segment: &Segment<'_>, ahead: i32) -> Option<ByteRange> {
        if ahead > 0 || self.is_finished {
            return None;
        }
        let old = ahead.unsigned_abs() as usize;
        // Nothing at all is new, not even a FIN right after the data.
        let new = segment.payload.len().checked_sub(old)?;
        let bytes = ByteRange::new(self.received, self.received + new as u64);
        self.received = bytes.end;
        self.is_finished = segment.flags.fin;
        (!bytes.is_empty()).then_some(bytes)
    }

    fn acknowledge_later(&mut self, now: Instant, policy: AckTimer) -> Answer {
        if AckTimer::is_plenty(self.received - self.acknowledged) {
            return Answer::Acknowledge;
        }
        self.ack_due.get_or_insert_with(|| policy.due(now));
        Answer::Nothing
    }

    /// When an acknowledgement has to go out, if there is something to acknowledge.
    pub(crate) const fn ack_due(&self) -> Option<Instant> {
        self.ack_due
    }

    /// Bytes taken in, in order.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// The acknowledgement of all that was taken in, which is no longer due.
    pub(crate) fn acknowledge(&mut self) -> Segment<'static> {
        self.ack_due = None;
        self.acknowledged = self.received;
        let flags = Flags { ack: true, fin: self.is_finished, ..Flags::default() };
        Segment { sequence: self.own_start.wrapping_add(1), ..self.segment(flags) }
    }

    /// The SYN with ACK that accepts the connection.
    pub(crate) fn synchronize(&self) -> Segment<'static> {
        self.segment(Flags { syn: true, ack: true, ..Flags::default() })
    }

    fn segment(&self, flags: Flags) -> Segment<'static> {
        Segment {
            source: self.local,
            destination: self.client,
            sequence: self.own_start,
            acknowledgment: self.next_expected(),
            flags,
            payload: &[],
        }
    }

    /// RCV.NXT. Sequence numbers are positions modulo 2^32.
    const fn next_expected(&self) -> u32 {
        self.first_byte.wrapping_add(self.received as u32).wrapping_add(self.is_finished as u32)
    }

    /// SND.NXT.
    const fn own_next(&self) -> u32 {
        self.own_start.wrapping_add(1).wrapping_add(self.is_finished as u32)
    }
}

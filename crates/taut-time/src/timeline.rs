use alloc::vec::Vec;

use crate::{ByteRange, Event, Instant, What};

/// Events of all layers of one flow, on one clock.
#[derive(Clone, Debug)]
pub struct Timeline {
    framing: Framing,
    events: Vec<Event>,
}

/// How the transport treats the edges of the writes it is given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// Bytes in order, nothing lost, edges not kept: what happened to a byte happened to all bytes before it.
    Stream,
    /// Each write travels by itself, and may be lost.
    Datagram,
}

/// One message's way through the layers: when it reached each stage, if it did and if that is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MessageTimes {
    /// The message's bytes in the flow.
    pub bytes: ByteRange,
    /// When the schedule wanted it sent.
    pub intended: Instant,
    /// When the program called the first sending system call for it.
    pub write_begin: Option<Instant>,
    /// When the last sending system call for it came back.
    pub write_end: Option<Instant>,
    /// When the transport handed its last byte to the queueing discipline.
    pub scheduled: Option<Instant>,
    /// When its last byte left the host.
    pub left: Option<Instant>,
    /// When the peer acknowledged its last byte.
    pub acked: Option<Instant>,
    /// When the peer's kernel had taken in its last byte.
    pub received: Option<Instant>,
    /// When the reader's kernel had taken in what a broker passed on.
    pub forwarded: Option<Instant>,
    /// When the peer's program had read its last byte.
    pub read: Option<Instant>,
}

impl Timeline {
    /// A timeline without events.
    pub const fn new(framing: Framing) -> Self {
        Self { framing, events: Vec::new() }
    }

    /// Adds an event; the order of calls does not matter.
    pub fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Adds all events of an iterator.
    pub fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events);
    }

    /// How the flow's transport treats the edges of writes.
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// All events, in the order in which they were added.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The flow by message, in the order of their bytes: one entry for each [`What::Intended`].
    ///
    /// On a [`Framing::Stream`] a stage that has no event of its own takes the time of the next byte that
    /// has one. The kernel keeps one transmit timestamp in a segment (`struct skb_shared_info`), that of the
    /// last write merged into it, so the earlier writes of that segment reached the stage at that very time.
    pub fn messages(&self) -> Vec<MessageTimes> {
        let mut messages: Vec<MessageTimes> = self
            .of(|what| matches!(what, What::Intended))
            .map(|event| MessageTimes { bytes: event.bytes, intended: event.at, ..MessageTimes::default() })
            .collect();
        messages.sort_by_key(|message| message.bytes);

        let begin = self.stage(|what| matches!(what, What::WriteBegin));
        let end = self.stage(|what| matches!(what, What::WriteEnd));
        let scheduled = self.stage(|what| matches!(what, What::Scheduled));
        let left = self.stage(|what| matches!(what, What::Left));
        let acked = self.stage(|what| matches!(what, What::Acked));
        let received = self.stage(|what| matches!(what, What::Received));
        let forwarded = self.stage(|what| matches!(what, What::Forwarded));
        let read = self.stage(|what| matches!(what, What::Read));
        for message in &mut messages {
            let (first, last) = (message.bytes.start + 1, message.bytes.end);
            message.write_begin = begin.reached(first, Framing::Stream);
            message.write_end = end.reached(last, Framing::Stream);
            message.scheduled = scheduled.reached(last, self.framing);
            message.left = left.reached(last, self.framing);
            message.acked = acked.reached(last, self.framing);
            message.received = received.reached(last, self.framing);
            message.forwarded = forwarded.reached(last, self.framing);
            message.read = read.reached(last, self.framing);
        }
        messages
    }

    /// Events of one kind, in the order in which they were added.
    pub fn of(&self, wanted: impl Fn(&What) -> bool) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| wanted(&event.what))
    }

    fn stage(&self, wanted: impl Fn(&What) -> bool) -> Stage {
        let mut reached: Vec<(u64, Instant)> = self.of(wanted).map(|event| (event.bytes.end, event.at)).collect();
        // A retransmitted segment reports its stage again: the first time counts.
        reached.sort_unstable();
        reached.dedup_by_key(|&mut (end, _)| end);
        Stage(reached)
    }
}

/// End positions of byte ranges with the time at which they reached a stage, by position.
struct Stage(Vec<(u64, Instant)>);

impl Stage {
    fn reached(&self, end: u64, framing: Framing) -> Option<Instant> {
        let index = self.0.partition_point(|&(position, _)| position < end);
        let &(position, at) = self.0.get(index)?;
        (framing == Framing::Stream || position == end).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Layer};

    fn event(what: What, at: u64, start: u64, end: u64) -> Event {
        Event {
            at: Instant::from_nanos(at),
            host: Host::Local,
            layer: Layer::Socket,
            what,
            bytes: ByteRange::new(start, end),
        }
    }

    fn three_messages(framing: Framing) -> Timeline {
        let mut timeline = Timeline::new(framing);
        for i in 0..3 {
            timeline.push(event(What::Intended, 10 * i, 100 * i, 100 * (i + 1)));
            timeline.push(event(What::WriteBegin, 10 * i + 1, 100 * i, 100 * (i + 1)));
            timeline.push(event(What::WriteEnd, 10 * i + 2, 100 * i, 100 * (i + 1)));
        }
        timeline
    }

    #[test]
    fn merged_writes_take_the_time_of_their_segment() {
        let mut timeline = three_messages(Framing::Stream);
        timeline.push(event(What::Left, 5, 0, 100));
        timeline.push(event(What::Left, 50, 100, 300));
        let left: Vec<_> = timeline.messages().iter().map(|m| m.left.unwrap().as_nanos()).collect();
        assert_eq!(left, [5, 50, 50]);
    }

    #[test]
    fn a_lost_datagram_does_not_take_the_time_of_the_next() {
        let mut timeline = three_messages(Framing::Datagram);
        timeline.push(event(What::Received, 9, 0, 100));
        timeline.push(event(What::Received, 29, 200, 300));
        let received: Vec<_> = timeline.messages().iter().map(|m| m.received.map(Instant::as_nanos)).collect();
        assert_eq!(received, [Some(9), None, Some(29)]);
    }

    #[test]
    fn a_retransmission_does_not_move_the_first_time() {
        let mut timeline = three_messages(Framing::Stream);
        timeline.push(event(What::Left, 500, 0, 100));
        timeline.push(event(What::Left, 5, 0, 100));
        assert_eq!(timeline.messages()[0].left, Some(Instant::from_nanos(5)));
    }

    #[test]
    fn two_writes_of_one_message_span_from_first_begin_to_last_end() {
        let mut timeline = Timeline::new(Framing::Stream);
        timeline.push(event(What::Intended, 0, 0, 128));
        timeline.push(event(What::WriteBegin, 1, 0, 32));
        timeline.push(event(What::WriteEnd, 2, 0, 32));
        timeline.push(event(What::WriteBegin, 3, 32, 128));
        timeline.push(event(What::WriteEnd, 4, 32, 128));
        let message = timeline.messages()[0];
        assert_eq!(message.write_begin, Some(Instant::from_nanos(1)));
        assert_eq!(message.write_end, Some(Instant::from_nanos(4)));
    }
}

//! What two sources told, put into the order of their times.

use std::collections::VecDeque;

use taut_event::{Closed, Event, Flow, FlowId, Sink};

/// What a source told, which waits for what another one may tell of the same time.
#[derive(Debug, Default)]
pub(super) struct Told {
    waiting: VecDeque<(u64, One)>,
    /// Time of the newest event, in ns; what has no time of its own has this.
    newest: u64,
}

#[derive(Debug)]
enum One {
    Flow(FlowId, Flow),
    Event(Event),
    Close(FlowId, Closed),
}

impl One {
    fn tell(&self, sink: &mut impl Sink) {
        match self {
            Self::Flow(id, flow) => sink.flow(*id, flow),
            Self::Event(event) => sink.event(event),
            Self::Close(id, why) => sink.close(*id, *why),
        }
    }
}

impl Sink for Told {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        self.waiting.push_back((self.newest, One::Flow(id, *flow)));
    }

    fn event(&mut self, event: &Event) {
        self.newest = self.newest.max(event.at.as_nanos());
        self.waiting.push_back((self.newest, One::Event(*event)));
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.waiting.push_back((self.newest, One::Close(id, why)));
    }
}

/// Hands on what both told of the time before `until`, in ns. Each source's own order stays.
pub(super) fn hand_on(both: [&mut Told; 2], until: u64, sink: &mut impl Sink) {
    let [one, other] = both;
    loop {
        let next = |told: &Told| told.waiting.front().map(|(at, _)| *at).filter(|&at| at < until);
        let from = match (next(one), next(other)) {
            (None, None) => return,
            (Some(a), Some(b)) if b < a => &mut *other,
            (None, Some(_)) => &mut *other,
            (Some(_), _) => &mut *one,
        };
        if let Some((_, told)) = from.waiting.pop_front() {
            told.tell(sink);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_event::{Coverage, Direction, FlowKey, VantageId, What};
    use taut_time::{ByteRange, Instant, Layer};

    use super::*;

    /// Times of events, by flow.
    #[derive(Default)]
    struct Heard(Vec<(u64, u32)>, Vec<u32>);

    impl Sink for Heard {
        fn flow(&mut self, id: FlowId, _: &Flow) {
            self.1.push(id.0);
        }
        fn event(&mut self, event: &Event) {
            assert!(self.1.contains(&event.flow.0), "its flow was told before");
            self.0.push((event.at.as_nanos(), event.flow.0));
        }
        fn close(&mut self, _: FlowId, _: Closed) {}
    }

    fn event(at: u64, flow: u32) -> Event {
        Event {
            at: Instant::from_nanos(at),
            seen_by: VantageId(0),
            flow: FlowId(flow),
            direction: Direction::Forward,
            layer: Layer::Socket,
            what: What::Gap,
            bytes: ByteRange::default(),
            who: None,
            place: 0,
        }
    }

    proptest! {
        #[test]
        fn all_is_told_once_in_the_order_of_times_and_not_too_soon(
            a in proptest::collection::vec(0_u64..50, 0..20),
            b in proptest::collection::vec(0_u64..50, 0..20),
            until in 0_u64..60,
        ) {
            let flow = Flow { key: FlowKey::Socket(0), from_start: true, coverage: Coverage::NONE };
            let mut told = [a, b].map(|mut times| {
                times.sort_unstable();
                times
            }).map(|times| (Told::default(), times));
            for (number, (told, times)) in told.iter_mut().enumerate() {
                told.flow(FlowId(number as u32), &flow);
                times.iter().for_each(|&at| told.event(&event(at, number as u32)));
            }
            let [(mut one, a), (mut other, b)] = told;
            let mut heard = Heard::default();
            hand_on([&mut one, &mut other], until, &mut heard);
            prop_assert!(heard.0.is_sorted_by_key(|(at, _)| *at) && heard.0.iter().all(|(at, _)| *at < until));
            hand_on([&mut one, &mut other], u64::MAX, &mut heard);
            prop_assert!(heard.0.is_sorted_by_key(|(at, _)| *at));
            for (number, times) in [a, b].into_iter().enumerate() {
                let of = heard.0.iter().filter(|(_, flow)| *flow == number as u32).map(|(at, _)| *at);
                prop_assert_eq!(of.collect::<Vec<_>>(), times);
            }
        }
    }
}

use taut_time::{Instant, MessageTimes, Timeline, What};

use super::plan::{PaceOutcome, PacePlan, PeerKind};
use super::sender::SentRound;
use taut_record::stats::{Distribution, ExceedanceCounter, Quantile, Rounds};
use taut_record::{BrokerHold, Ended, MessageExcerpt, PaceRound, PaceRow, TcpFacts};

/// Messages of the last round that the recording keeps one by one.
const EXCERPT: usize = 300;

/// The distributions of one round.
struct Analysed {
    lateness: Distribution,
    call: Distribution,
    hold: Distribution,
    ack: Distribution,
    delivery: Distribution,
    sender_gap: Distribution,
    receiver_gap: Distribution,
    left: bool,
    with_broker: WithBroker,
}

/// What a broker had of a round's messages.
struct WithBroker {
    at_most: Distribution,
    at_least: Distribution,
    read_together: u64,
    is_told: bool,
}

/// Those of all rounds. A round's messages are gone when the next one is sent, and of its events
/// what there is no room for.
pub(super) struct Totals<'a> {
    plan: &'a PacePlan,
    receiver: Receiver,
    lateness: Rounds,
    call: Rounds,
    hold: Rounds,
    ack: Rounds,
    delivery: Rounds,
    sender_gap: Rounds,
    receiver_gap: Rounds,
    left: bool,
    broker_at_most: Rounds,
    broker_at_least: Rounds,
    read_together: Option<u64>,
    exceed: ExceedanceCounter,
    messages: u64,
    segments: Option<u64>,
    clock_uncertainty_ns: Option<u64>,
    rounds: Vec<PaceRound>,
    excerpt: Vec<MessageExcerpt>,
    timelines: Vec<Timeline>,
    events: usize,
    dropped_rounds: u64,
    is_placed: bool,
    nagle: Option<bool>,
    tcp: Option<TcpFacts>,
    options: Vec<String>,
}

/// Events of all rounds that are kept for the explainer and for pictures: less than 80 MB.
const MOST_EVENTS: usize = 1_000_000;

impl<'a> Totals<'a> {
    pub(super) fn new(plan: &'a PacePlan, receiver: Receiver) -> Self {
        Self {
            plan,
            receiver,
            lateness: Rounds::new(),
            call: Rounds::new(),
            hold: Rounds::new(),
            ack: Rounds::new(),
            delivery: Rounds::new(),
            sender_gap: Rounds::new(),
            receiver_gap: Rounds::new(),
            left: false,
            broker_at_most: Rounds::new(),
            broker_at_least: Rounds::new(),
            read_together: None,
            exceed: ExceedanceCounter::new(&plan.exceed),
            messages: 0,
            segments: Some(0),
            clock_uncertainty_ns: None,
            rounds: Vec::new(),
            excerpt: Vec::new(),
            timelines: Vec::new(),
            events: 0,
            dropped_rounds: 0,
            is_placed: true,
            nagle: None,
            tcp: None,
            options: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, round: SentRound) {
        let messages = round.timeline.messages();
        let tells = self.receiver.tells && round.is_told;
        if tells {
            for message in &messages {
                match delivered(message) {
                    Some(at) => self.exceed.record(at.saturating_since(message.intended)),
                    None => self.exceed.record_lost(1),
                }
            }
        }
        let analysed = analyse(&round.timeline, &messages, tells);
        let add = if round.complete { Rounds::add } else { Rounds::add_partial };
        add(&mut self.lateness, &analysed.lateness);
        add(&mut self.call, &analysed.call);
        add(&mut self.hold, &analysed.hold);
        add(&mut self.ack, &analysed.ack);
        add(&mut self.delivery, &analysed.delivery);
        add(&mut self.sender_gap, &analysed.sender_gap);
        add(&mut self.receiver_gap, &analysed.receiver_gap);
        add(&mut self.broker_at_most, &analysed.with_broker.at_most);
        add(&mut self.broker_at_least, &analysed.with_broker.at_least);
        if analysed.with_broker.is_told {
            *self.read_together.get_or_insert(0) += analysed.with_broker.read_together;
        }
        self.left |= analysed.left;
        self.rounds.push(pace_round(&round, &analysed));
        self.excerpt = excerpt(&messages);
        self.messages += round.messages;
        self.segments = self.segments.zip(round.segments).map(|(before, more)| before + more);
        self.clock_uncertainty_ns = self.clock_uncertainty_ns.max(round.clock_uncertainty_ns);
        (self.nagle, self.tcp, self.options) = (round.nagle, round.tcp, round.options);
        self.is_placed &= round.is_placed;
        self.keep(&round.timeline);
    }

    fn keep(&mut self, timeline: &Timeline) {
        let events = timeline.events().len();
        if self.dropped_rounds > 0 || self.events + events > MOST_EVENTS {
            self.dropped_rounds += 1;
            return;
        }
        // A copy has no more room than it needs.
        let mut kept = Timeline::new(timeline.framing());
        kept.extend(timeline.events().iter().copied());
        self.events += events;
        self.timelines.push(kept);
    }

    /// All there is, of a run that ended so.
    pub(super) fn finish(self, ended: Ended) -> PaceOutcome {
        let (messages, segments) = (self.messages, self.segments);
        let row = PaceRow {
            endpoint: self.receiver.endpoint,
            transport: self.receiver.transport,
            command: self.plan.command.clone(),
            message_bytes: self.plan.message_bytes as u64,
            period_ns: u64::try_from(self.plan.period.as_nanos()).unwrap_or(u64::MAX),
            nagle: self.nagle,
            peer: self.receiver.describe,
            messages,
            segments,
            messages_per_segment: segments
                .filter(|&segments| segments > 0)
                .map(|segments| messages as f64 / segments as f64),
            send_lateness_ns: self.lateness.summary(),
            send_call_ns: self.call.summary(),
            hold_ns: self.hold.summary(),
            ack_ns: self.ack.summary(),
            delivery_ns: self.delivery.summary(),
            sender_gap_ns: self.sender_gap.summary(),
            sender_gap_of: if self.left { "left" } else { "write" }.to_owned(),
            receiver_gap_ns: self.receiver_gap.summary(),
            exceed: if self.receiver.tells { self.exceed.table() } else { Vec::new() },
            lost: self.delivery.pooled().lost(),
            clock_uncertainty_ns: self.clock_uncertainty_ns,
            ledger_ns: Vec::new(),
            rounds: self.rounds,
            dropped_rounds: self.dropped_rounds,
            excerpt: self.excerpt,
            // Virtual time has no processors.
            placement: (!matches!(self.plan.peer, PeerKind::Simulated(_))).then(|| self.plan.spot.told(self.is_placed)),
            broker: self.read_together.map(|read_together| BrokerHold {
                at_most_ns: self.broker_at_most.summary(),
                at_least_ns: self.broker_at_least.summary(),
                read_together,
            }),
            tcp: self.tcp,
            options: self.options,
            observer: None,
        };
        PaceOutcome { row, deliveries: self.delivery.into_pooled(), timelines: self.timelines, ended }
    }
}

/// Who received, for the row.
pub(super) struct Receiver {
    pub(super) endpoint: String,
    pub(super) transport: String,
    pub(super) describe: String,
    /// Whether it tells what arrived.
    pub(super) tells: bool,
}

fn analyse(timeline: &Timeline, messages: &[MessageTimes], receiver_tells: bool) -> Analysed {
    let between = |from: fn(&MessageTimes) -> Option<Instant>, to: fn(&MessageTimes) -> Option<Instant>| {
        messages.iter().filter_map(|message| Some(to(message)?.saturating_since(from(message)?))).collect()
    };
    let mut delivery: Distribution = between(|message| Some(message.intended), delivered);
    if receiver_tells {
        delivery.record_lost(messages.len() as u64 - delivery.count());
    }
    let left = gaps(timeline, |what| matches!(what, What::Left));
    let written = gaps(timeline, |what| matches!(what, What::WriteBegin));
    let received = gaps(timeline, |what| matches!(what, What::Received | What::Forwarded));
    let same = |pair: &[MessageTimes]| pair[0].forwarded.is_some() && pair[0].forwarded == pair[1].forwarded;
    let with_broker = WithBroker {
        at_most: between(|message| message.left, |message| message.forwarded),
        at_least: between(|message| message.acked, |message| message.forwarded),
        read_together: messages.windows(2).filter(|pair| same(pair)).count() as u64,
        is_told: messages.iter().any(|message| message.forwarded.is_some()),
    };
    let read = gaps(timeline, |what| matches!(what, What::Read));
    Analysed {
        lateness: between(|message| Some(message.intended), |message| message.write_begin),
        call: between(|message| message.write_begin, |message| message.write_end),
        hold: between(|message| message.write_end, |message| message.left),
        ack: between(|message| message.left, |message| message.acked),
        delivery,
        left: left.count() > 0,
        sender_gap: if left.count() > 0 { left } else { written },
        receiver_gap: if received.count() > 0 { received } else { read },
        with_broker,
    }
}

/// When the message was with the peer's program, or as near to it as is known.
const fn delivered(message: &MessageTimes) -> Option<Instant> {
    match message.read {
        Some(read) => Some(read),
        None => message.received,
    }
}

/// Times between events of one kind, each position of the flow counted once.
fn gaps(timeline: &Timeline, wanted: fn(&What) -> bool) -> Distribution {
    let mut events: Vec<(u64, Instant)> = timeline.of(wanted).map(|event| (event.bytes.end, event.at)).collect();
    events.sort_unstable();
    events.dedup_by_key(|event| event.0);
    let mut times: Vec<Instant> = events.into_iter().map(|(_, at)| at).collect();
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect()
}

fn pace_round(round: &SentRound, analysed: &Analysed) -> PaceRound {
    PaceRound {
        sender_gap_mean_ns: analysed.sender_gap.mean(),
        receiver_gap_mean_ns: analysed.receiver_gap.mean(),
        delivery_p50_ns: analysed.delivery.quantile(0.5).and_then(Quantile::time),
        messages_per_segment: round
            .segments
            .filter(|&segments| segments > 0)
            .map(|segments| round.messages as f64 / segments as f64),
        messages: round.messages,
        complete: round.complete,
    }
}

fn excerpt(messages: &[MessageTimes]) -> Vec<MessageExcerpt> {
    let Some(first) = messages.first().map(|message| message.intended) else { return Vec::new() };
    let since = |at: Option<Instant>| at.map(|at| at.signed_since(first));
    messages
        .iter()
        .take(EXCERPT)
        .map(|message| MessageExcerpt {
            intended: message.intended.signed_since(first),
            write_begin: since(message.write_begin),
            write_end: since(message.write_end),
            scheduled: since(message.scheduled),
            left: since(message.left),
            acked: since(message.acked),
            received: since(message.received),
            forwarded: since(message.forwarded),
            read: since(message.read),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use taut_time::{ByteRange, Event, Framing, Host, Layer};

    use super::*;

    #[test]
    fn gaps_count_each_segment_once_and_in_order_of_time() {
        let mut timeline = Timeline::new(Framing::Stream);
        for (at, end) in [(10, 1), (30, 3), (20, 2), (35, 3)] {
            timeline.push(Event {
                at: Instant::from_nanos(at),
                host: Host::Local,
                layer: Layer::Driver,
                what: What::Left,
                bytes: ByteRange::new(end - 1, end),
            });
        }
        let gaps = gaps(&timeline, |what| matches!(what, What::Left));
        assert_eq!((gaps.count(), gaps.mean()), (2, Some(10)));
    }

    fn plan() -> PacePlan {
        PacePlan {
            peer: PeerKind::Plain("tcp://127.0.0.1:9".parse().unwrap()),
            message_bytes: 1,
            period: taut_time::Duration::from_millis(1),
            time: taut_time::Duration::from_secs(1),
            rounds: 6,
            options: Vec::new(),
            exceed: vec![taut_time::Duration::from_millis(1)],
            spot: crate::placement::Spot::default(),
            fifo: false,
            command: String::new(),
        }
    }

    fn receiver() -> Receiver {
        Receiver { endpoint: String::new(), transport: String::new(), describe: String::new(), tells: true }
    }

    /// Messages of which each took so long.
    fn round(messages: u64, took_ns: u64, complete: bool) -> SentRound {
        let mut timeline = Timeline::new(Framing::Stream);
        for at in 0..messages {
            let bytes = ByteRange::new(at, at + 1);
            let events = [
                (0, Host::Local, What::Intended),
                (0, Host::Local, What::WriteBegin),
                (took_ns, Host::Peer, What::Read),
            ];
            timeline.extend(events.map(|(after, host, what)| Event {
                at: Instant::from_nanos(at * 1_000_000 + after),
                host,
                layer: Layer::Application,
                what,
                bytes,
            }));
        }
        SentRound {
            timeline,
            messages,
            segments: None,
            nagle: None,
            clock_uncertainty_ns: None,
            tcp: None,
            options: Vec::new(),
            is_told: true,
            is_placed: true,
            complete,
        }
    }

    #[test]
    fn a_round_that_was_cut_short_is_in_no_interval() {
        let plan = plan();
        let mut totals = Totals::new(&plan, receiver());
        (0..5).for_each(|_| totals.add(round(20, 1_000, true)));
        totals.add(round(20, 9_000_000, false));
        // What had arrived of these nobody can tell: they are no losses.
        let mut untold = round(20, 1_000, false);
        let events: Vec<Event> = untold.timeline.of(|what| !matches!(what, What::Read)).copied().collect();
        untold.timeline = Timeline::new(Framing::Stream);
        untold.timeline.extend(events);
        totals.add(SentRound { is_told: false, ..untold });
        let row = totals.finish(Ended::Complete).row;
        let times = row.delivery_ns.unwrap();
        assert_eq!((times.p50.time(), times.p50_ci.unwrap().1.time()), (Some(1_000), Some(1_000)));
        assert_eq!((row.messages, times.count, row.lost, row.exceed[0].count), (140, 120, 0, 20));
        let complete: Vec<bool> = row.rounds.iter().map(|round| round.complete).collect();
        assert_eq!(complete, [true, true, true, true, true, false, false]);
    }

    #[test]
    fn the_events_of_many_rounds_are_bounded_and_what_is_dropped_is_counted() {
        let plan = plan();
        let mut totals = Totals::new(&plan, receiver());
        let of_each = MOST_EVENTS as u64 / 3 / 2;
        (0..4).for_each(|_| totals.add(round(of_each, 1_000, true)));
        let PaceOutcome { row, timelines, .. } = totals.finish(Ended::Complete);
        assert_eq!((row.messages, row.dropped_rounds, row.rounds.len(), timelines.len()), (4 * of_each, 2, 4, 2));
        assert_eq!(row.delivery_ns.unwrap().count, 4 * of_each);
        assert!(size_of::<Event>() * MOST_EVENTS <= 80_000_000, "{}", size_of::<Event>());
    }
}

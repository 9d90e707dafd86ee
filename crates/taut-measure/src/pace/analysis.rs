use taut_time::{Instant, MessageTimes, Timeline, What};

use super::PacePlan;
use super::sender::SentRound;
use crate::recording::{MessageExcerpt, PaceRound, PaceRow};
use crate::stats::{Distribution, ExceedanceCounter, Quantile, Rounds};

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
}

/// Those of all rounds. A round's messages are gone when the next one's are looked at.
#[derive(Default)]
struct Totals {
    lateness: Rounds,
    call: Rounds,
    hold: Rounds,
    ack: Rounds,
    delivery: Rounds,
    sender_gap: Rounds,
    receiver_gap: Rounds,
    left: bool,
    rounds: Vec<PaceRound>,
    excerpt: Vec<MessageExcerpt>,
}

impl Totals {
    fn add(&mut self, round: &SentRound, receiver: &Receiver, exceed: &mut ExceedanceCounter) {
        let messages = round.timeline.messages();
        if receiver.tells {
            for message in &messages {
                match delivered(message) {
                    Some(at) => exceed.record(at.saturating_since(message.intended)),
                    None => exceed.record_lost(1),
                }
            }
        }
        let analysed = analyse(&round.timeline, &messages, receiver.tells);
        self.lateness.add(&analysed.lateness);
        self.call.add(&analysed.call);
        self.hold.add(&analysed.hold);
        self.ack.add(&analysed.ack);
        self.delivery.add(&analysed.delivery);
        self.sender_gap.add(&analysed.sender_gap);
        self.receiver_gap.add(&analysed.receiver_gap);
        self.left |= analysed.left;
        self.rounds.push(pace_round(round, &analysed));
        self.excerpt = excerpt(&messages);
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

pub(super) fn row(plan: &PacePlan, receiver: &Receiver, rounds: &[SentRound]) -> PaceRow {
    let (mut totals, mut exceed) = (Totals::default(), ExceedanceCounter::new(&plan.exceed));
    rounds.iter().for_each(|round| totals.add(round, receiver, &mut exceed));
    let messages: u64 = rounds.iter().map(|round| round.messages).sum();
    let segments: Option<u64> = rounds.iter().map(|round| round.segments).sum();
    let last = rounds.last();
    PaceRow {
        endpoint: receiver.endpoint.clone(),
        transport: receiver.transport.clone(),
        command: plan.command.clone(),
        message_bytes: plan.message_bytes as u64,
        period_ns: u64::try_from(plan.period.as_nanos()).unwrap_or(u64::MAX),
        nagle: last.and_then(|round| round.nagle),
        peer: receiver.describe.clone(),
        messages,
        segments,
        messages_per_segment: segments
            .filter(|&segments| segments > 0)
            .map(|segments| messages as f64 / segments as f64),
        send_lateness_ns: totals.lateness.summary(),
        send_call_ns: totals.call.summary(),
        hold_ns: totals.hold.summary(),
        ack_ns: totals.ack.summary(),
        delivery_ns: totals.delivery.summary(),
        sender_gap_ns: totals.sender_gap.summary(),
        sender_gap_of: if totals.left { "left" } else { "write" }.to_owned(),
        receiver_gap_ns: totals.receiver_gap.summary(),
        exceed: if receiver.tells { exceed.table() } else { Vec::new() },
        lost: totals.delivery.pooled().lost(),
        clock_uncertainty_ns: rounds.iter().filter_map(|round| round.clock_uncertainty_ns).max(),
        ledger_ns: Vec::new(),
        rounds: totals.rounds,
        excerpt: totals.excerpt,
        tcp: last.and_then(|round| round.tcp),
        options: last.map_or_else(Vec::new, |round| round.options.clone()),
        observer: None,
    }
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
    let received = gaps(timeline, |what| matches!(what, What::Received));
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
}

//! The writer's side: what waits, what is under way, and what readers have told. No I/O.

use std::collections::{BTreeMap, VecDeque};

use taut_time::{Duration, Instant};

use super::account::{ReaderAccount, WrittenAccount};
use super::envelope::{Run, Stamp};
use super::receipt::{self, Receipt, ReceiptOf, Tally};
use super::suspicion::{Suspicion, Verdict};
use crate::broker::client::{Client, Letter, Posted};

/// Bytes that wait for the broker's socket before more messages are made bytes.
pub(super) const MOST_OUTPUT: usize = 256 << 10;
/// How often readers are told how far the writer is, and how long after their last word.
const TALLY_PERIOD: Duration = Duration::from_secs(1);
const READERS_THERE: Duration = Duration::from_secs(3);
/// How soon it is tried again where the broker lets no more be under way.
const TRY_PERIOD: Duration = Duration::from_millis(50);
/// Readers, and starts of one, that are kept: anybody can publish receipts.
const MOST_READERS: usize = 64;
const MOST_STARTS: usize = 256;

/// How far the readers are with all that was numbered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// One has read all, and nobody that is there is behind.
    Whole,
    /// All that are there have told of the last number, and some are missing.
    Told,
    /// Some have not told yet.
    Open,
    /// There are none; or all have left before they had read all, and another start of one may just have come.
    Nobody,
}

#[derive(Debug)]
pub(super) struct Writer {
    topic: String,
    tally_topic: String,
    run: Run,
    has_envelope: bool,
    is_confirmed: bool,
    /// Whether readers get the messages from a stream, which what they are told does not go through.
    is_in_stream: bool,
    /// Most messages that wait.
    limit: usize,
    waiting: VecDeque<Vec<u8>>,
    /// Those that were under way when a connection broke, in their order.
    again: VecDeque<Numbered>,
    under_way: VecDeque<(u16, Numbered)>,
    /// Those that wait until the broker has taken another one, since connections broke at them.
    aside: VecDeque<Numbered>,
    suspicion: Suspicion,
    /// Whether a message may be why the last connection broke.
    has_broken_at_one: bool,
    /// Those that the broker will not acknowledge and that its socket has not taken yet, by where each ends among all
    /// bytes of the connection.
    unwritten: VecDeque<(u64, Numbered)>,
    /// Bytes of the connection that its socket has taken.
    written: u64,
    /// The last number that was given.
    number: u64,
    sent: u64,
    confirmed: u64,
    repeated: u64,
    dropped: u64,
    readers: BTreeMap<String, BTreeMap<u64, Start>>,
    /// Some readers are not kept.
    has_more_readers: bool,
    heard_at: Option<Instant>,
    told: Option<(Instant, Tally)>,
    /// When it was last tried to tell: the broker may let no more be under way.
    tried: Instant,
}

#[derive(Debug)]
struct Numbered {
    number: u64,
    payload: Vec<u8>,
}

/// What one start of a reader has told.
#[derive(Debug, Default)]
struct Start {
    told: ReceiptOf,
    is_over: bool,
}

impl Writer {
    /// One that publishes to `topic`, and to `tally_topic` how far it is; at most `limit` messages wait.
    pub(super) fn new(topic: String, tally_topic: String, run: Run, limit: usize) -> Self {
        Self {
            topic,
            tally_topic,
            run,
            has_envelope: true,
            is_confirmed: false,
            is_in_stream: false,
            limit,
            waiting: VecDeque::new(),
            again: VecDeque::new(),
            under_way: VecDeque::new(),
            aside: VecDeque::new(),
            suspicion: Suspicion::default(),
            has_broken_at_one: false,
            unwritten: VecDeque::new(),
            written: 0,
            number: 0,
            sent: 0,
            confirmed: 0,
            repeated: 0,
            dropped: 0,
            readers: BTreeMap::new(),
            has_more_readers: false,
            heard_at: None,
            told: None,
            tried: Instant::from_nanos(0),
        }
    }

    /// Whether messages have their numbers with them, and whether the broker acknowledges them.
    pub(super) const fn with(mut self, has_envelope: bool, is_confirmed: bool) -> Self {
        (self.has_envelope, self.is_confirmed) = (has_envelope, is_confirmed);
        self
    }

    /// Whether readers get the messages from a stream.
    pub(super) const fn in_stream(mut self, is_in_stream: bool) -> Self {
        self.is_in_stream = is_in_stream;
        self
    }

    /// Whether there is room for a message without dropping one.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < self.limit
    }

    /// Takes a message; without room the oldest one that waits is dropped.
    pub(super) fn take(&mut self, payload: &[u8]) {
        if !self.has_room() && self.waiting.pop_front().is_some() {
            self.dropped += 1;
        }
        self.waiting.push_back(payload.to_vec());
        self.sent += 1;
    }

    /// Takes a message that no broker will have any more: it is dropped.
    pub(super) const fn discard(&mut self) {
        self.sent += 1;
        self.dropped += 1;
    }

    /// Whether all that was taken is with the broker, and acknowledged where it does that.
    pub(super) fn is_done(&self) -> bool {
        let is_given = self.waiting.is_empty() && self.again.is_empty() && self.aside.is_empty();
        is_given && self.under_way.is_empty() && self.unwritten.is_empty()
    }

    /// How much the broker and the readers have taken: it grows as long as there is progress.
    pub(super) fn taken(&self) -> u64 {
        let given = self.again.len() + self.under_way.len() + self.unwritten.len() + self.aside.len();
        let left = self.waiting.len() + given;
        let read = self.readers.values().map(|starts| sum_of(starts).read).fold(0, u64::saturating_add);
        self.sent.saturating_sub(left as u64).saturating_add(read)
    }

    /// The broker's socket has taken so many bytes more.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        while self.unwritten.pop_front_if(|(end, _)| *end <= self.written).is_some() {}
    }

    /// Gives the client what it takes now. An error concerns one message, which is lost; where the client failed, all
    /// goes again with the next one.
    pub(super) fn pump(&mut self, client: &mut dyn Client) -> Result<(), String> {
        let mut result = Ok(());
        if self.waiting.is_empty() && self.again.is_empty() && self.under_way.is_empty() {
            // There is no other one to go first.
            self.put_back();
        }
        let most = self.suspicion.most_under_way();
        while client.failure().is_none() && client.output().len() < MOST_OUTPUT && self.under_way.len() < most {
            let (is_again, next) = match (self.again.pop_front(), self.waiting.pop_front()) {
                (Some(numbered), waiting) => {
                    waiting.into_iter().for_each(|payload| self.waiting.push_front(payload));
                    (true, numbered)
                }
                (None, Some(payload)) => (false, Numbered { number: self.number + 1, payload }),
                (None, None) => break,
            };
            match self.post(client, &next) {
                Ok(Posted::Taken(ticket)) => {
                    self.number = self.number.max(next.number);
                    self.repeated += u64::from(is_again);
                    match ticket {
                        Some(ticket) => self.under_way.push_back((ticket, next)),
                        None if client.output().is_empty() => {}
                        None => self.unwritten.push_back((self.written + client.output().len() as u64, next)),
                    }
                }
                Ok(Posted::Later) if is_again => {
                    self.again.push_front(next);
                    break;
                }
                Ok(Posted::Later) => {
                    self.waiting.push_front(next.payload);
                    break;
                }
                Err(_) if client.failure().is_some() => {
                    self.number = self.number.max(next.number);
                    self.again.push_front(next);
                }
                Err(why) => {
                    // One that had its number is missed by its readers.
                    if is_again {
                        self.suspicion.lost(next.number);
                    } else {
                        self.dropped += 1;
                    }
                    result = Err(why);
                }
            }
        }
        result
    }

    fn post(&self, client: &mut dyn Client, message: &Numbered) -> Result<Posted, String> {
        let (topic, payload, is_casual) = (&self.topic, &message.payload, false);
        let stamp = Stamp { run: self.run, number: message.number };
        match (self.has_envelope, client.takes_tags()) {
            (false, _) => client.post(&Letter { topic, payload, tag: None, is_casual }),
            (true, true) => client.post(&Letter { topic, payload, tag: Some(&stamp.to_string()), is_casual }),
            (true, false) => {
                let payload = &[&stamp.prefix()[..], payload].concat();
                client.post(&Letter { topic, payload, tag: None, is_casual })
            }
        }
    }

    /// The broker has acknowledged the message of a ticket.
    pub(super) fn confirm(&mut self, ticket: u16) {
        let index = self.under_way.iter().position(|(under_way, _)| *under_way == ticket);
        let Some((_, confirmed)) = index.and_then(|index| self.under_way.remove(index)) else { return };
        self.confirmed += 1;
        self.suspicion.confirmed(confirmed.number);
        let is_last = self.under_way.is_empty() && self.again.is_empty() && self.waiting.is_empty();
        if is_last || self.suspicion.lets_pass() {
            self.suspicion.put_on_trial(self.aside.iter().map(|numbered| numbered.number));
            self.put_back();
        }
    }

    /// What is aside goes again, in front of what came after it.
    fn put_back(&mut self) {
        self.again = self.aside.drain(..).chain(self.again.drain(..)).collect();
    }

    /// The connection broke: what was under way goes again. Gives the number and the length of a message that does not,
    /// as the broker closes the connection at it each time.
    pub(super) fn lose_connection(&mut self) -> Option<(u64, usize)> {
        let numbers: Vec<u64> = self.under_way.iter().map(|(_, numbered)| numbered.number).collect();
        let under_way = self.under_way.drain(..).map(|(_, numbered)| numbered);
        let unwritten = self.unwritten.drain(..).map(|(_, numbered)| numbered);
        self.again = under_way.chain(unwritten).chain(self.again.drain(..)).collect();
        (self.told, self.written) = (None, 0);
        self.has_broken_at_one = false;
        // Else nothing that was sent can be why.
        if numbers.is_empty() {
            return None;
        }
        let verdict = self.suspicion.broke(&numbers, self.aside.len());
        self.has_broken_at_one = verdict == Verdict::GivenUp || self.suspicion.may_be_why();
        match verdict {
            Verdict::GivenUp => self.again.pop_front().map(|numbered| (numbered.number, numbered.payload.len())),
            Verdict::Aside if self.again.len() + self.waiting.len() > 1 => {
                self.aside.extend(self.again.pop_front());
                None
            }
            Verdict::Aside | Verdict::Again => {
                self.put_back();
                None
            }
        }
    }

    /// Whether a message may be why the last connection broke.
    pub(super) const fn has_broken_at_one(&self) -> bool {
        self.has_broken_at_one
    }

    /// When readers are to be told next; `None` when there is nothing to tell.
    pub(super) fn tally_due(&self, is_ending: bool) -> Option<Instant> {
        let told_at = self.told.as_ref().map_or(Instant::from_nanos(0), |(at, _)| *at);
        let there = is_ending || self.heard_at.is_some_and(|heard| told_at < heard + READERS_THERE);
        let is_new = self.told.as_ref().is_none_or(|(_, told)| is_ending || *told != self.tally(false));
        // At the end it is told once, behind the last message.
        let is_early = is_ending && !self.unwritten.is_empty();
        let wanted = self.has_envelope && self.given() > 0 && there && is_new && !is_early;
        let due = self.told.as_ref().map_or(self.tried, |(at, _)| *at + TALLY_PERIOD);
        wanted.then(|| due.max(self.tried + TRY_PERIOD))
    }

    /// The last number that has been given to the broker on this connection or before: what has to go again goes in
    /// front of what readers are told behind it.
    fn given(&self) -> u64 {
        self.again.iter().map(|numbered| numbered.number - 1).min().unwrap_or(self.number)
    }

    fn tally(&self, is_ending: bool) -> Tally {
        let open = self.under_way.iter().map(|(_, numbered)| numbered).chain(&self.again).chain(&self.aside);
        let first_open = open.map(|numbered| numbered.number).min().unwrap_or(self.number + 1);
        // What was given up the broker has not acknowledged.
        let first_unconfirmed = self.suspicion.first_given_up().map_or(first_open, |number| number.min(first_open));
        Tally {
            writer: self.run.writer,
            epoch: self.run.epoch,
            // Of what is on its way to a stream readers would be told before the stream has it for them.
            number: if self.is_in_stream { first_open - 1 } else { self.given() },
            confirmed: if self.is_confirmed { first_unconfirmed - 1 } else { 0 },
            dropped: self.dropped,
            over: is_ending && self.is_done(),
        }
    }

    /// Tells readers how far it is, where that is due.
    pub(super) fn tell(&mut self, client: &mut dyn Client, now: Instant, is_ending: bool) {
        if client.failure().is_some() || self.tally_due(is_ending).is_none_or(|due| due > now) {
            return;
        }
        self.tried = now;
        let tally = self.tally(is_ending);
        let letter = Letter { topic: &self.tally_topic, payload: &receipt::text(&tally), tag: None, is_casual: false };
        if matches!(client.post(&letter), Ok(Posted::Taken(_))) {
            self.told = Some((now, tally));
        }
    }

    /// When the end was first told, on this connection.
    pub(super) fn over_told(&self) -> Option<Instant> {
        self.told.as_ref().filter(|(_, told)| told.over).map(|(at, _)| *at)
    }

    /// A reader has told what it has.
    pub(super) fn take_receipt(&mut self, bytes: &[u8], now: Instant) {
        let Some(Receipt { reader, instance, of, over }) = receipt::parse(bytes) else { return };
        let is_name = reader.len() <= 200 && reader.chars().all(|letter| letter.is_ascii_graphic());
        let (known, is_known) = (self.readers.len(), self.readers.contains_key(&reader));
        if !is_name {
            return;
        }
        if !is_known && known >= MOST_READERS {
            self.has_more_readers = true;
            return;
        }
        // What concerns another run, or can't be, says only that the reader is there.
        let of = of.filter(|of| of.run() == self.run && of.is_of_numbers_up_to(self.number));
        self.heard_at = Some(now);
        let starts = self.readers.entry(reader).or_default();
        if !starts.contains_key(&instance)
            && starts.len() >= MOST_STARTS
            && let (Some((_, mut sum)), Some((_, oldest))) = (starts.pop_first(), starts.pop_first())
        {
            // The oldest ones become one.
            sum.told.add(&oldest.told);
            sum.is_over = true;
            starts.insert(0, sum);
        }
        let start = starts.entry(instance).or_default();
        start.is_over |= over;
        // What was told stays true.
        if let Some(of) = of.filter(|of| of.read >= start.told.read && of.up_to >= start.told.up_to) {
            start.told = of;
        }
    }

    /// How many were given up.
    #[cfg(test)]
    pub(super) const fn given_up(&self) -> u64 {
        self.suspicion.given_up()
    }

    /// How far the readers are.
    pub(super) fn answer(&self) -> Answer {
        if self.readers.is_empty() {
            return Answer::Nobody;
        }
        let read = |starts: &BTreeMap<u64, Start>| sum_of(starts).read;
        let is_over = |starts: &BTreeMap<u64, Start>| starts.values().all(|start| start.is_over);
        let up_to = |starts: &BTreeMap<u64, Start>| starts.values().map(|start| start.told.up_to).max().unwrap_or(0);
        let mut open = self.readers.values().filter(|starts| read(starts) < self.number && !is_over(starts)).peekable();
        let is_read = self.readers.values().any(|starts| read(starts) >= self.number);
        match (open.peek().is_none(), open.all(|starts| up_to(starts) >= self.number)) {
            (true, _) if is_read => Answer::Whole,
            (true, _) => Answer::Nobody,
            (_, true) => Answer::Told,
            _ => Answer::Open,
        }
    }

    /// The account; what still waits, and what no broker can have, counts as dropped when it is `over`.
    pub(super) fn account(&self, over: bool) -> WrittenAccount {
        // Of those that go again a broker that acknowledges messages may have some.
        let again = if self.is_confirmed { 0 } else { self.again.len() };
        let [waiting, given] = [self.waiting.len(), self.unwritten.len() + again].map(|left| left as u64);
        let dropped = self.dropped + if over { waiting } else { 0 };
        // What the socket had not taken whole: the records of TLS that it had taken may have brought some of it all the
        // same, and what was read was not dropped.
        let read = self.readers.values().map(|starts| sum_of(starts).read).max().unwrap_or(0);
        let unread = self.sent.saturating_sub(dropped.saturating_add(read));
        let dropped_here = dropped + if over { given.min(unread) } else { 0 };
        let reader = |(name, starts): (&String, &BTreeMap<u64, Start>)| {
            let told = sum_of(starts);
            let missing = self.sent.saturating_sub(dropped_here.saturating_add(told.read));
            ReaderAccount {
                name: name.clone(),
                read: told.read,
                twice: told.twice,
                out_of_order: told.out_of_order,
                missing,
                unanswered: self.number.saturating_sub(told.up_to).min(missing),
                passed_over: told.passed_over.min(missing),
            }
        };
        WrittenAccount {
            topic: self.topic.clone(),
            has_envelope: self.has_envelope,
            sent: self.sent,
            confirmed_by_broker: self.is_confirmed.then_some(self.confirmed),
            again: self.repeated,
            dropped_here,
            readers: if self.has_envelope { self.readers.iter().map(reader).collect() } else { Vec::new() },
            has_more_readers: self.has_envelope && self.has_more_readers,
        }
    }
}

/// All that the starts of a reader have told, in the order of their times.
fn sum_of(starts: &BTreeMap<u64, Start>) -> ReceiptOf {
    starts.values().fold(ReceiptOf::default(), |mut sum, start| {
        sum.add(&start.told);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let run = Run { writer: 1, epoch: 2 };
        Writer { number: 100, sent: 100, ..Writer::new("t".to_owned(), "t/sent".to_owned(), run, 10) }
    }

    fn receipt(reader: &str, instance: u64, up_to: u64, read: u64) -> Vec<u8> {
        let of = ReceiptOf { writer: 1, epoch: 2, up_to, read, ..ReceiptOf::default() };
        receipt::text(&Receipt { reader: reader.to_owned(), instance, of: Some(of), over: false })
    }

    #[test]
    fn what_a_reader_has_told_is_not_lowered_or_forged() {
        let (mut writer, now) = (writer(), Instant::from_nanos(1));
        for (up_to, read, stays) in [(50, 40, 40), (60, 3, 40), (60, 41, 41), (101, 101, 41), (9, u64::MAX, 41)] {
            writer.take_receipt(&receipt("r", 7, up_to, read), now);
            assert_eq!(writer.account(true).readers[0].read, stays, "{up_to} {read}");
        }
        writer.take_receipt(&receipt("r", 8, 100, 59), now);
        assert_eq!((writer.answer(), writer.account(true).readers[0].missing), (Answer::Whole, 0));
    }

    /// A start of the same reader that came as the writer was connecting is not known of until it tells again.
    #[test]
    fn readers_that_have_all_left_may_come_again() {
        let (mut writer, now) = (writer(), Instant::from_nanos(1));
        let of = ReceiptOf { writer: 1, epoch: 2, up_to: 100, read: 40, ..ReceiptOf::default() };
        let left = Receipt { reader: "r".to_owned(), instance: 7, of: Some(of), over: true };
        writer.take_receipt(&receipt::text(&left), now);
        assert_eq!(writer.answer(), Answer::Nobody);
        writer.take_receipt(&receipt("r", 8, 100, 20), now);
        assert_eq!(writer.answer(), Answer::Told);
        writer.take_receipt(&receipt("s", 9, 100, 100), now);
        writer.take_receipt(&receipt("r", 8, 100, 60), now);
        assert_eq!(writer.answer(), Answer::Whole);
    }

    /// Of records of TLS that were cut the broker may have had the first ones.
    #[test]
    fn what_was_read_was_not_dropped() {
        let (mut writer, now) = (writer(), Instant::from_nanos(1));
        writer.unwritten.extend((98..=100).map(|number| (number, Numbered { number, payload: Vec::new() })));
        writer.lose_connection();
        assert_eq!(writer.account(true).dropped_here, 3);
        for (read, dropped, missing) in [(50, 3, 47), (97, 3, 0), (99, 1, 0), (100, 0, 0)] {
            writer.take_receipt(&receipt("r", 7, 100, read), now);
            let account = writer.account(true);
            assert_eq!((account.dropped_here, account.readers[0].missing), (dropped, missing), "{read}");
        }
        assert_eq!(writer.account(false).dropped_here, 0);
    }

    #[test]
    fn more_starts_and_readers_than_are_kept_are_added_up_or_said() {
        let (mut writer, now) = (writer(), Instant::from_nanos(1));
        for instance in 1..=(MOST_STARTS as u64 + 10) {
            writer.take_receipt(&receipt("r", instance, 100, 1), now);
        }
        let account = writer.account(true);
        assert_eq!((account.readers[0].read, account.has_more_readers), (MOST_STARTS as u64 + 10, false));
        for reader in 0..MOST_READERS {
            writer.take_receipt(&receipt(&reader.to_string(), 1, 100, 100), now);
        }
        let account = writer.account(true);
        assert_eq!((account.readers.len(), account.has_more_readers), (MOST_READERS, true));
    }
}

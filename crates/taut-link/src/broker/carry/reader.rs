//! The reader's side: what came and was not given on yet, and the ledgers of those who wrote it. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use taut_time::{Duration, Instant};

use super::account::HeardAccount;
use super::envelope::{PREFIX, Run, Stamp};
use super::ledger::{Ledger, Sums};
use super::receipt::{self, Receipt, ReceiptOf, Tally};
use crate::broker::client::{Client, Letter, Message};

/// Messages that nobody acknowledges and that wait to be given on, before no more are read from the broker.
const MOST_READY: usize = 256;
/// As many of those that are acknowledged when they are given on: it is the broker that lets no more be under way
/// (Receive Maximum of MQTT 5, which is 65,535 unless it is said, section 3.1.2.11.3). Bytes are limited here.
const MOST_OPEN: usize = 65_535;
const MOST_READY_BYTES: usize = 16 << 20;
/// Time between receipts.
const RECEIPT_PERIOD: Duration = Duration::from_secs(1);
/// Runs of writers whose ledgers are kept: anybody can publish.
const MOST_RUNS: usize = 256;

#[derive(Debug)]
pub(super) struct Reader {
    topic: String,
    receipt_topic: String,
    has_envelope: bool,
    /// Whether the broker keeps what was not acknowledged.
    is_lasting: bool,
    name: String,
    instance: u64,
    /// What came, in its order: how far a writer is tells of what came before it.
    ready: VecDeque<Came>,
    /// Those of them that are acknowledged when they are given on, and the bytes of all messages, with what stands with
    /// them.
    open: usize,
    ready_bytes: usize,
    runs: BTreeMap<Run, Kept>,
    /// Goes up with each message and tally.
    turn: u64,
    /// Sums of runs that are not kept any more.
    retired: HeardAccount,
    read: u64,
    without_number: u64,
    too_long: u64,
    told_at: Option<Instant>,
    /// A receipt has to go at once.
    is_asked: bool,
}

#[derive(Debug)]
enum Came {
    Message(Message),
    Tally(Tally),
    /// The server had cut us off.
    CutOff,
}

#[derive(Debug, Default)]
struct Kept {
    ledger: Ledger,
    /// There is something to tell its writer.
    is_changed: bool,
    /// When it was heard of last.
    turn: u64,
    /// The highest number when the server had cut us off, until the next one comes.
    cut_at: Option<u64>,
    cut_off: u64,
}

impl Reader {
    /// One that hears `topic` and publishes what it has read to `receipt_topic`.
    pub(super) fn new(topic: String, receipt_topic: String, name: String, instance: u64) -> Self {
        Self {
            topic,
            receipt_topic,
            has_envelope: true,
            is_lasting: false,
            name,
            instance,
            ready: VecDeque::new(),
            open: 0,
            ready_bytes: 0,
            runs: BTreeMap::new(),
            turn: 0,
            retired: HeardAccount::default(),
            read: 0,
            without_number: 0,
            too_long: 0,
            told_at: None,
            is_asked: true,
        }
    }

    /// Whether messages have their numbers with them, and whether the broker keeps what was not acknowledged.
    pub(super) const fn with(mut self, has_envelope: bool, is_lasting: bool) -> Self {
        (self.has_envelope, self.is_lasting) = (has_envelope, is_lasting);
        self
    }

    /// Whether more may come. Before the broker has taken the subscription (`is_ready`) its answer stands behind what a
    /// session has kept, so all is read that memory is there for.
    pub(super) fn has_room(&self, is_ready: bool) -> bool {
        let others = self.ready.len() - self.open;
        let has_memory = self.ready_bytes < MOST_READY_BYTES && self.ready.len() < MOST_OPEN;
        has_memory && (!is_ready || others < MOST_READY)
    }

    /// Whether something may be there to be given on.
    pub(super) fn has_some(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A message has come.
    pub(super) fn push(&mut self, message: Message) {
        self.open += usize::from(message.number.is_some());
        self.ready_bytes += bytes_of(&message);
        self.ready.push_back(Came::Message(message));
    }

    /// A writer tells how far it is. It is believed once all that came before it was given on.
    pub(super) fn push_tally(&mut self, bytes: &[u8]) {
        self.ready.extend(receipt::parse(bytes).map(Came::Tally));
    }

    /// The next message to be given on, copied to `buffer`; its length. The broker is told that it is taken for good.
    pub(super) fn next(&mut self, mut client: Option<&mut dyn Client>, buffer: &mut [u8]) -> Option<usize> {
        while let Some(came) = self.ready.pop_front() {
            let message = match came {
                Came::Message(message) => message,
                Came::Tally(tally) => {
                    self.take_tally(&tally);
                    continue;
                }
                Came::CutOff => {
                    for kept in self.runs.values_mut() {
                        kept.cut_at.get_or_insert_with(|| kept.ledger.highest());
                    }
                    continue;
                }
            };
            self.open -= usize::from(message.number.is_some());
            self.ready_bytes -= bytes_of(&message);
            if let Some(client) = &mut client {
                client.acknowledge(&message);
            }
            if let Some(payload) = self.take(&message) {
                let Some(room) = buffer.get_mut(..payload.len()) else {
                    self.too_long += 1;
                    continue;
                };
                room.copy_from_slice(payload);
                self.read += 1;
                return Some(payload.len());
            }
        }
        None
    }

    /// A message's place in what its writer has sent, where it says so, and what its writer was given.
    fn stamp_of<'a>(&self, message: &'a Message) -> Option<(Stamp, &'a [u8])> {
        let payload = message.payload();
        let of_tag = || message.tag.as_deref().and_then(Stamp::of_tag).map(|stamp| (stamp, payload));
        let of_prefix = || Stamp::of_prefix(payload).map(|stamp| (stamp, &payload[PREFIX..]));
        if self.has_envelope { of_tag().or_else(of_prefix) } else { None }
    }

    /// Enters a message in its writer's ledger; its payload, where it comes for the first time.
    fn take<'a>(&mut self, message: &'a Message) -> Option<&'a [u8]> {
        let Some((stamp, payload)) = self.stamp_of(message) else {
            self.without_number += 1;
            return Some(message.payload());
        };
        let kept = self.kept(stamp.run);
        if let Some(cut_at) = kept.cut_at.take_if(|at| stamp.number > *at) {
            kept.cut_off += stamp.number - cut_at - 1;
        }
        kept.is_changed = true;
        kept.ledger.take(stamp.number).then_some(payload)
    }

    fn take_tally(&mut self, tally: &Tally) {
        if !self.has_envelope || tally.number.max(tally.dropped) > u64::MAX / 2 {
            return;
        }
        let kept = self.kept(tally.run());
        kept.ledger.tell(tally.number, tally.confirmed, tally.dropped);
        kept.is_changed = true;
        self.is_asked |= tally.over;
    }

    /// What is kept of a run that is heard of. Where there is no room, the one that was silent longest goes.
    fn kept(&mut self, run: Run) -> &mut Kept {
        if self.runs.len() >= MOST_RUNS
            && !self.runs.contains_key(&run)
            && let Some(silent) = self.runs.iter().min_by_key(|(_, kept)| kept.turn).map(|(run, _)| *run)
            && let Some(silent) = self.runs.remove(&silent)
        {
            add(&mut self.retired, &silent);
        }
        self.turn += 1;
        let kept = self.runs.entry(run).or_default();
        kept.turn = self.turn;
        kept
    }

    /// The connection broke. What came by it can't be acknowledged any more.
    pub(super) fn lose_connection(&mut self) {
        self.open = 0;
        for came in &mut self.ready {
            if let Came::Message(message) = came {
                message.number = None;
            }
        }
        self.is_asked = true;
    }

    /// The server had cut us off behind what came last.
    pub(super) fn be_cut_off(&mut self) {
        self.ready.push_back(Came::CutOff);
    }

    /// When the next receipts are due; `None` when there is nothing to tell.
    pub(super) fn receipts_due(&self) -> Option<Instant> {
        let since = self.told_at.filter(|_| !self.is_asked);
        let wanted = self.has_envelope && (self.is_asked || self.runs.values().any(|kept| kept.is_changed));
        wanted.then(|| since.map_or(Instant::from_nanos(0), |at| at + RECEIPT_PERIOD))
    }

    /// Tells the writers what was read of theirs, where that is due; all of it when it is `over`.
    pub(super) fn tell(&mut self, client: &mut dyn Client, now: Instant, over: bool) {
        let is_due = over || self.receipts_due().is_some_and(|due| due <= now);
        if !self.has_envelope || !is_due || client.failure().is_some() {
            return;
        }
        let of = |run: &Run, sums: Sums| ReceiptOf {
            writer: run.writer,
            epoch: run.epoch,
            first: sums.first,
            highest: sums.highest,
            up_to: sums.up_to,
            read: sums.read,
            twice: sums.twice,
            out_of_order: sums.out_of_order,
            missing: sums.missing,
            passed_over: sums.passed_over,
        };
        let changed = self.runs.iter_mut().filter_map(|(run, kept)| {
            let is_changed = std::mem::take(&mut kept.is_changed) || over;
            is_changed.then(|| Some(of(run, kept.ledger.sums())))
        });
        let mut told: Vec<_> = changed.collect();
        if told.is_empty() {
            // Who has read nothing is there too.
            told.push(None);
        }
        for of in told {
            let receipt = Receipt { reader: self.name.clone(), instance: self.instance, of, over };
            let payload = &receipt::text(&receipt);
            // Nothing of it has to be known: the next one says the same, and more.
            let _ = client.post(&Letter { topic: &self.receipt_topic, payload, tag: None, is_casual: true });
        }
        (self.told_at, self.is_asked) = (Some(now), false);
    }

    /// Bytes and number of the messages that came, were not given on, and that the broker does not keep.
    pub(super) fn unread(&self) -> (u64, u64) {
        let messages = || {
            self.ready.iter().filter_map(|came| match came {
                Came::Message(message) => Some(message),
                Came::Tally(_) | Came::CutOff => None,
            })
        };
        let is_kept = |message: &Message| self.is_lasting && message.number.is_some();
        let place = |message: &Message| self.stamp_of(message).map(|(stamp, _)| (stamp.run, stamp.number));
        // What came by a connection that broke a lasting session brings again by the next one.
        let again: BTreeSet<_> = messages().filter(|&message| is_kept(message)).filter_map(place).collect();
        let is_lost =
            |message: &Message| !is_kept(message) && place(message).is_none_or(|place| !again.contains(&place));
        let lost = messages().filter(|&message| is_lost(message)).map(|message| message.payload().len() as u64);
        lost.fold((0, 0), |(bytes, messages), length| (bytes + length, messages + 1))
    }

    pub(super) fn account(&self) -> HeardAccount {
        let mut sum = self.retired.clone();
        self.runs.values().for_each(|kept| add(&mut sum, kept));
        let Self { read, without_number, too_long, .. } = *self;
        HeardAccount { topic: self.topic.clone(), read, without_number, too_long, ..sum }
    }
}

/// Memory that grows with a message: whoever publishes it says how long a text stands with it.
fn bytes_of(message: &Message) -> usize {
    message.payload().len() + message.tag.as_ref().map_or(0, String::len)
}

/// Adds a run's account.
fn add(sum: &mut HeardAccount, kept: &Kept) {
    let sums = kept.ledger.sums();
    let behind = kept.cut_at.map_or(0, |at| sums.up_to.saturating_sub(at));
    // Anybody can forge numbers, so no sum of them may be too large.
    for (sum, more) in [
        (&mut sum.writers, 1),
        (&mut sum.twice, sums.twice),
        (&mut sum.out_of_order, sums.out_of_order),
        (&mut sum.missing, sums.missing),
        (&mut sum.passed_over, sums.passed_over),
        (&mut sum.cut_off, kept.cut_off.saturating_add(behind).min(sums.missing)),
        (&mut sum.before, sums.first - 1),
        (&mut sum.dropped_there, sums.dropped),
    ] {
        *sum = sum.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> Reader {
        Reader::new("t".to_owned(), "t/receipt".to_owned(), "r".to_owned(), 3)
    }

    fn message(run: Run, number: u64) -> Message {
        Message::new("t".to_owned(), Stamp { run, number }.prefix().to_vec())
    }

    #[test]
    fn a_run_that_goes_on_is_kept_however_many_others_come() {
        let (mut reader, mut buffer) = (reader(), [0; 8]);
        let lasting = Run { writer: 0, epoch: 0 };
        for index in 1..=3 * MOST_RUNS as u64 {
            reader.push(message(lasting, index));
            reader.push(message(Run { writer: 1, epoch: index }, 1));
            while reader.next(None, &mut buffer).is_some() {}
        }
        let account = reader.account();
        assert_eq!((account.read, account.missing, account.before), (6 * MOST_RUNS as u64, 0, 0));
        assert_eq!(account.writers, 3 * MOST_RUNS as u64 + 1);
    }

    #[test]
    fn what_a_lasting_session_has_brought_again_is_not_lost() {
        let (mut reader, run) = (reader().with(true, true), Run { writer: 1, epoch: 1 });
        let kept = |number: u16| message(run, number.into()).with(Some((number, false)), None);
        reader.push(kept(1));
        reader.push(kept(2));
        assert_eq!(reader.unread(), (0, 0));
        reader.lose_connection();
        assert_eq!(reader.unread(), (2 * PREFIX as u64, 2));
        reader.push(kept(2));
        assert_eq!(reader.unread(), (PREFIX as u64, 1));
        // Without one nothing is kept, whatever has come again.
        let reader = reader.with(true, false);
        assert_eq!(reader.unread().1, 3);
    }

    #[test]
    fn what_stands_with_messages_takes_of_the_memory() {
        let (mut reader, tag, mut messages) = (reader(), "x".repeat(60_000), 0);
        while reader.has_room(true) {
            let message = Message::new("t".to_owned(), Vec::new());
            reader.push(message.with(Some((1, false)), Some(tag.clone())));
            messages += 1;
        }
        assert_eq!(messages, MOST_READY_BYTES.div_ceil(tag.len()));
        while reader.next(None, &mut [0; 8]).is_some() {}
        assert!(reader.has_room(true) && reader.ready_bytes == 0);
    }

    #[test]
    fn what_the_broker_limits_by_itself_is_read_on() {
        let (mut reader, run) = (reader(), Run { writer: 1, epoch: 1 });
        for number in 1..=MOST_READY as u64 {
            assert!(reader.has_room(true));
            reader.push(message(run, number).with(Some((number as u16, false)), None));
        }
        assert!(reader.has_room(true));
        reader.lose_connection();
        assert!(!reader.has_room(true) && reader.has_room(false));
        while reader.next(None, &mut [0; 8]).is_some() {}
        assert!(reader.has_room(true) && reader.ready_bytes == 0);
    }
}

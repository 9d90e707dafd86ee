//! The reader's side: what came and was not given on yet, and the ledgers of those who wrote it. No I/O.

use std::collections::{BTreeMap, VecDeque};

use taut_time::{Duration, Instant};

use super::account::HeardAccount;
use super::envelope::{PREFIX, Run, Stamp};
use super::ledger::{Ledger, Sums};
use super::receipt::{self, Receipt, ReceiptOf, Tally};
use crate::broker::client::{Client, Letter, Message};

/// Messages that wait to be given on before no more are read from the broker.
const MOST_READY: usize = 256;
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
    runs: BTreeMap<Run, Kept>,
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
            runs: BTreeMap::new(),
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

    /// Whether more may come.
    pub(super) fn has_room(&self) -> bool {
        self.ready.len() < MOST_READY
    }

    /// Whether something may be there to be given on.
    pub(super) fn has_some(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A message has come.
    pub(super) fn push(&mut self, message: Message) {
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

    /// Enters a message in its writer's ledger; its payload, where it comes for the first time.
    fn take<'a>(&mut self, message: &'a Message) -> Option<&'a [u8]> {
        let payload = message.payload();
        let of_tag = || message.tag.as_deref().and_then(Stamp::of_tag).map(|stamp| (stamp, payload));
        let of_prefix = || Stamp::of_prefix(payload).map(|stamp| (stamp, &payload[PREFIX..]));
        let Some((stamp, payload)) = Some(()).filter(|()| self.has_envelope).and_then(|()| of_tag().or_else(of_prefix))
        else {
            self.without_number += 1;
            return Some(payload);
        };
        let kept = self.kept(stamp.run);
        if let Some(cut_at) = kept.cut_at.take_if(|at| stamp.number > *at) {
            kept.cut_off += stamp.number - cut_at - 1;
        }
        kept.is_changed = true;
        kept.ledger.take(stamp.number).then_some(payload)
    }

    fn take_tally(&mut self, tally: &Tally) {
        if !self.has_envelope || tally.number > u64::MAX / 2 {
            return;
        }
        let kept = self.kept(tally.run());
        kept.ledger.tell(tally.number, tally.confirmed, tally.dropped);
        kept.is_changed = true;
        self.is_asked |= tally.over;
    }

    fn kept(&mut self, run: Run) -> &mut Kept {
        if self.runs.len() >= MOST_RUNS
            && !self.runs.contains_key(&run)
            && let Some((_, oldest)) = self.runs.pop_first()
        {
            add(&mut self.retired, &oldest);
        }
        self.runs.entry(run).or_default()
    }

    /// The connection broke. What came by it can't be acknowledged any more.
    pub(super) fn lose_connection(&mut self) {
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
        let lost = self.ready.iter().filter_map(|came| match came {
            Came::Message(message) if !self.is_lasting || message.number.is_none() => Some(message.payload().len()),
            _ => None,
        });
        lost.fold((0, 0), |(bytes, messages), length| (bytes + length as u64, messages + 1))
    }

    pub(super) fn account(&self) -> HeardAccount {
        let mut sum = self.retired.clone();
        self.runs.values().for_each(|kept| add(&mut sum, kept));
        let Self { read, without_number, too_long, .. } = *self;
        HeardAccount { topic: self.topic.clone(), read, without_number, too_long, ..sum }
    }
}

/// Adds a run's account.
fn add(sum: &mut HeardAccount, kept: &Kept) {
    let sums = kept.ledger.sums();
    let behind = kept.cut_at.map_or(0, |at| sums.up_to.saturating_sub(at));
    sum.writers += 1;
    sum.twice += sums.twice;
    sum.out_of_order += sums.out_of_order;
    sum.missing += sums.missing;
    sum.passed_over += sums.passed_over;
    sum.cut_off += (kept.cut_off + behind).min(sums.missing);
    sum.before += sums.first - 1;
    sum.dropped_there += sums.dropped;
}

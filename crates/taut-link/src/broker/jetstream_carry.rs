//! What a client of a stream keeps beside it where messages are carried: the stream's are acknowledged when they are
//! taken, ours are told apart by the stream's acknowledgements, and what comes beside the stream keeps its place.

use std::collections::{BTreeMap, VecDeque};

use super::client::Message;

#[derive(Debug, Default)]
pub(super) struct Carrying {
    /// Number of the last message that was given one.
    last: u16,
    /// Where to acknowledge those that came and were not taken yet, by their numbers.
    open: BTreeMap<u16, String>,
    /// Ticket of the last message of ours, and of those that the stream keeps and nobody has asked for.
    ticket: u16,
    kept: VecDeque<u16>,
    /// What came beside the stream. It may be said of messages that the stream still has for us, and waits for these.
    beside: VecDeque<Beside>,
    /// How many of them, from the first one on, the question is about that was asked where the reader is.
    asked: usize,
    /// How many deliveries of the reader have come.
    delivered: u64,
    /// Numbers in the stream of those that came last.
    came: VecDeque<u64>,
}

#[derive(Debug)]
struct Beside {
    message: Message,
    /// The delivery that is the last one before it, once that is known.
    behind: Option<u64>,
}

/// Most messages that wait for those of the stream: tallies, one a second.
const MOST_BESIDE: usize = 64;
/// Numbers of messages that came: twice as many as may be with us.
const MOST_CAME: usize = 512;

impl Carrying {
    /// Messages that came and were not taken.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether this message has come on this connection already. What nobody takes for 30 s a server gives again, and
    /// the acknowledgement of the first one is good for both.
    pub(super) fn is_again(&mut self, reply: &str) -> bool {
        let Some(Delivery { times, sequence, number }) = Delivery::of(reply) else { return false };
        self.delivered = self.delivered.max(number);
        if times > 1 && self.came.contains(&sequence) {
            return true;
        }
        if self.came.len() >= MOST_CAME {
            self.came.pop_front();
        }
        self.came.push_back(sequence);
        false
    }

    /// A message of the stream has come that is acknowledged there; its number.
    pub(super) fn came(&mut self, reply: String) -> u16 {
        self.delivered = self.delivered.max(Delivery::of(&reply).map_or(0, |delivery| delivery.number));
        // There are never as many as numbers.
        while self.open.contains_key(&self.last) || self.last == 0 {
            self.last = self.last.wrapping_add(1);
        }
        self.open.insert(self.last, reply);
        self.last
    }

    /// Where a message is acknowledged that was taken now.
    pub(super) fn taken(&mut self, message: &Message) -> Option<String> {
        self.open.remove(&message.number?.0)
    }

    /// Where those are told of that nobody takes.
    pub(super) fn left(&mut self) -> impl Iterator<Item = String> + use<> {
        std::mem::take(&mut self.open).into_values()
    }

    /// The ticket of the next message of ours.
    pub(super) fn ticket(&mut self) -> u16 {
        self.ticket = self.ticket.checked_add(1).unwrap_or(1);
        self.ticket
    }

    pub(super) fn keep(&mut self, ticket: u16) {
        self.kept.push_back(ticket);
    }

    pub(super) fn next_kept(&mut self) -> Option<u16> {
        self.kept.pop_front()
    }

    /// The reader was so far before we came.
    pub(super) fn begin_behind(&mut self, delivered: u64) {
        self.delivered = self.delivered.max(delivered);
    }

    /// Something has come beside the stream. Whether to ask where the reader is.
    pub(super) fn hold(&mut self, message: Message) -> bool {
        if self.beside.len() >= MOST_BESIDE {
            self.beside.pop_front();
            self.asked = self.asked.saturating_sub(1);
        }
        self.beside.push_back(Beside { message, behind: None });
        self.ask()
    }

    /// All that came was taken: what is held may be behind messages that the stream has dropped since. Whether to ask.
    pub(super) fn ask_anew(&mut self) -> bool {
        self.open.is_empty() && self.ask_if(|_| true)
    }

    fn ask(&mut self) -> bool {
        self.ask_if(|beside| beside.behind.is_none())
    }

    fn ask_if(&mut self, is_open: impl Fn(&Beside) -> bool) -> bool {
        let is_wanted = self.asked == 0 && self.beside.iter().any(is_open);
        if is_wanted {
            self.asked = self.beside.len();
        }
        is_wanted
    }

    /// The reader has so many deliveries behind it, and so many messages before it. Whether to ask again.
    pub(super) fn told(&mut self, delivered: u64, pending: u64) -> bool {
        let asked = std::mem::take(&mut self.asked);
        let last = delivered.saturating_add(pending);
        for beside in self.beside.iter_mut().take(asked) {
            // Of what came since, none was before it.
            beside.behind = Some(beside.behind.map_or(last, |behind| behind.min(last)));
        }
        self.ask()
    }

    /// What came beside the stream and is behind nothing any more that the stream has.
    pub(super) fn released(&mut self) -> Option<Message> {
        let delivered = self.delivered;
        let front = self.beside.pop_front_if(|beside| beside.behind.is_some_and(|behind| behind <= delivered))?;
        self.asked = self.asked.saturating_sub(1);
        Some(front.message)
    }
}

/// What the subject says by which a message is acknowledged.
#[derive(Debug, Eq, PartialEq)]
struct Delivery {
    /// How often the message was delivered.
    times: u64,
    /// Its number in the stream.
    sequence: u64,
    /// The number of the delivery.
    number: u64,
}

impl Delivery {
    /// From `$JS.ACK.STREAM.READER.TIMES.SEQUENCE.DELIVERY.TIME.REST`, with a domain and an account before the stream
    /// in servers that have them there.
    fn of(reply: &str) -> Option<Self> {
        let parts: Vec<&str> = reply.split('.').collect();
        let at = match parts.len() {
            9 => 4,
            11.. => 6,
            _ => return None,
        };
        let [times, sequence, number] = [0, 1, 2].map(|index| parts[at + index].parse().ok());
        Some(Self { times: times?, sequence: sequence?, number: number? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message::new("t.sent".to_owned(), Vec::new())
    }

    #[test]
    fn a_delivery_has_its_number() {
        let seventh = Some(Delivery { times: 1, sequence: 70, number: 7 });
        assert_eq!(Delivery::of("$JS.ACK.S.R.1.70.7.1700000000.0"), seventh);
        assert_eq!(Delivery::of("$JS.ACK.domain.hash.S.R.1.70.7.1700000000.0.token"), seventh);
        assert_eq!(Delivery::of("$JS.ACK.S"), None);
    }

    #[test]
    fn what_comes_beside_the_stream_waits_for_what_was_in_it_before() {
        let mut carrying = Carrying::default();
        carrying.begin_behind(5);
        assert!(carrying.hold(message()));
        // One question at a time.
        assert!(!carrying.hold(message()));
        assert!(carrying.released().is_none());
        assert!(carrying.told(6, 1));
        assert!(carrying.released().is_none());
        for delivery in [6, 7] {
            carrying.came(format!("$JS.ACK.S.R.1.9.{delivery}.1.0"));
        }
        assert!(carrying.released().is_some() && carrying.released().is_none());
        assert!(!carrying.told(7, 0));
        assert!(carrying.released().is_some());
    }

    /// The stream has dropped the seventh. What goes on after that makes nobody wait longer.
    #[test]
    fn what_waits_for_a_message_that_is_dropped_is_released_when_all_others_are_taken() {
        let mut carrying = Carrying::default();
        assert!(carrying.hold(message()));
        assert!(!carrying.told(5, 2));
        let sixth = carrying.came("$JS.ACK.S.R.1.9.6.1.0".to_owned());
        assert!(!carrying.ask_anew());
        carrying.taken(&message().with(Some((sixth, false)), None));
        assert!(carrying.ask_anew() && !carrying.ask_anew());
        assert!(!carrying.told(6, 20));
        assert!(carrying.released().is_none() && carrying.ask_anew());
        assert!(!carrying.told(6, 0));
        assert!(carrying.released().is_some() && !carrying.ask_anew());
    }

    #[test]
    fn each_that_came_is_acknowledged_once_where_it_says() {
        let mut carrying = Carrying::default();
        let numbers: Vec<u16> = (1..=3).map(|at| carrying.came(format!("$JS.ACK.S.R.1.1.{at}.1.0"))).collect();
        let second = message().with(Some((numbers[1], false)), None);
        assert_eq!(carrying.taken(&second).as_deref(), Some("$JS.ACK.S.R.1.1.2.1.0"));
        assert!(carrying.taken(&second).is_none() && carrying.taken(&message()).is_none());
        assert_eq!((carrying.open(), carrying.left().count(), carrying.open()), (2, 2, 0));
    }
}

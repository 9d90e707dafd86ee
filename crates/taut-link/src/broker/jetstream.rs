//! JetStream on a connection to a NATS server, without I/O: what is published is kept in a stream, which acknowledges
//! each message; what is read comes from the stream by a reader (consumer) that remembers how far it has come.

use std::collections::VecDeque;

use serde::Serialize;

use super::client::{Client, Ending, Letter, Message, Posted};
use super::jetstream_api::{Config, NewReader, NewStream, Next, ReaderConfig, Told};
use super::jetstream_carry::Carrying;
use super::nats_client::{Answer, NatsClient};
use super::stream_settings::{Storage, is_name};

/// What a connection does with a stream.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// Its name.
    pub stream: String,
    /// Where it is made, and for which subjects, if it is not there.
    pub create: Option<(Storage, Vec<String>)>,
    /// The subject of what is published for it; what goes elsewhere is published as it is.
    pub publishes: Option<String>,
    /// What is read of it.
    pub reads: Option<Reading>,
}

/// A reader of a stream.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The subjects that it reads.
    pub filter: String,
    /// Its name, under which the server remembers how far it has come; without one it begins anew each time.
    pub name: Option<String>,
}

/// A client of NATS whose messages go through a stream.
#[derive(Debug)]
pub struct JetStream {
    nats: NatsClient,
    inbox: String,
    plan: StreamPlan,
    state: State,
    /// Name of the reader, ours or the server's.
    reader: String,
    /// Published and not acknowledged.
    under_way: usize,
    /// Asked for and not come.
    asked_for: usize,
    messages: VecDeque<Message>,
    ending: Ending,
    /// Where messages are carried.
    carrying: Option<Carrying>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    /// What the stream is, is asked.
    Looking,
    /// It is to be made.
    Making,
    /// What the reader is, is asked.
    LookingForReader,
    /// It is to be made.
    MakingReader,
    Ready,
}

/// Most messages that are published and not acknowledged.
const MOST_UNDER_WAY: usize = 512;
/// Messages that are asked for at once, and again when half of them have come.
const BATCH: usize = 256;
/// Limits of a stream that is made: 64 MiB, and ten minutes (in ns), after which the oldest go.
const MOST_STREAM_BYTES: u64 = 64 << 20;
const LONGEST_KEPT_NS: u64 = 600_000_000_000;
/// How long the server keeps a reader without a name when nobody reads, in ns.
const READER_FORGOTTEN_NS: u64 = 30_000_000_000;
/// Numbers of refusals (nats-server, `errors.json`).
const STREAM_NOT_FOUND: u32 = 10_059;
const CONSUMER_NOT_FOUND: u32 = 10_014;
/// Ends of our inbox's subjects, by what is answered there.
const TOLD: &str = "api";
const KEPT: &str = "ack";
const NEXT: &str = "next";
const WHERE: &str = "where";
/// A message that is not taken may go to somebody else at once (ADR-13 of NATS).
const NOT_TAKEN: &[u8] = b"-NAK";

impl JetStream {
    /// A client over that one, which has no inbox yet; answers come below `inbox`.
    pub fn new(mut nats: NatsClient, inbox: String, plan: StreamPlan) -> Self {
        nats.hear_answers(inbox.clone());
        let reader = plan.reads.as_ref().and_then(|reads| reads.name.clone()).unwrap_or_default();
        Self {
            nats,
            inbox,
            plan,
            state: State::Connecting,
            reader,
            under_way: 0,
            asked_for: 0,
            messages: VecDeque::new(),
            ending: Ending::Open,
            carrying: None,
        }
    }

    /// One that carries messages: it acknowledges what it is told to, and tells what the stream keeps.
    pub fn carrying(nats: NatsClient, inbox: String, plan: StreamPlan) -> Self {
        Self { carrying: Some(Carrying::default()), ..Self::new(nats, inbox, plan) }
    }

    fn go_on(&mut self) {
        if self.state == State::Connecting && self.nats.is_ready() {
            self.state = State::Looking;
            self.ask(&format!("STREAM.INFO.{}", self.plan.stream), TOLD, &());
        }
        while self.nats.failure().is_none() {
            let Some(answer) = self.nats.next_answer() else { break };
            let to = answer.subject.strip_prefix(&self.inbox).and_then(|rest| rest.strip_prefix('.'));
            match to.map(|to| to.split_once('.').unwrap_or((to, ""))) {
                Some((TOLD, _)) => self.told(&answer),
                Some((KEPT, ticket)) => self.kept(&answer, ticket),
                Some((NEXT, _)) => self.none_came(&answer),
                Some((WHERE, _)) => self.told_where(&answer),
                // Any client may publish to an inbox.
                Some(_) => {}
                None => self.came(answer),
            }
        }
        self.hold_what_is_beside();
    }

    /// What is said beside the stream of messages in it has to stay behind them.
    fn hold_what_is_beside(&mut self) {
        let Some(reads) = self.plan.reads.as_ref().filter(|_| self.state == State::Ready) else { return };
        let Some(carrying) = &mut self.carrying else { return };
        let mut asks = false;
        while let Some(message) = self.nats.next_message() {
            // What readers tell is of what we write, and waits for nothing that we read.
            if message.topic.strip_prefix(&reads.filter) == Some(".sent") {
                asks |= carrying.hold(message);
            } else {
                self.messages.push_back(message);
            }
        }
        self.messages.extend(std::iter::from_fn(|| carrying.released()));
        if asks {
            self.ask_where();
        }
    }

    fn ask_where(&mut self) {
        self.ask(&format!("CONSUMER.INFO.{}.{}", self.plan.stream, self.reader), WHERE, &());
    }

    fn told_where(&mut self, answer: &Answer) {
        let Some(carrying) = &mut self.carrying else { return };
        let told = serde_json::from_slice::<Told>(&answer.payload).ok().filter(|told| told.error.is_none());
        let Some(told) = told else { return self.fail("does not tell how far the reader of the stream is") };
        if carrying.told(told.delivered.consumer_seq, told.num_pending) {
            self.ask_where();
        }
    }

    /// Asks the API of JetStream.
    fn ask(&mut self, what: &str, reply: &str, question: &impl Serialize) {
        let Ok(question) = serde_json::to_string(question) else { return self.fail("can't be asked for a stream") };
        let question = if question == "null" { String::new() } else { question };
        let (subject, reply) = (format!("$JS.API.{what}"), format!("{}.{reply}", self.inbox));
        if let Err(why) = self.nats.ask(&subject, &reply, question.as_bytes()) {
            self.fail(&why);
        }
    }

    /// An answer of the API.
    fn told(&mut self, answer: &Answer) {
        if answer.status.is_some() {
            return self.fail("has no JetStream, or keeps it from this client (nats-server: -js)");
        }
        let Ok(told) = serde_json::from_slice::<Told>(&answer.payload) else {
            return self.fail("sent an answer of JetStream that can't be read");
        };
        let stream = self.plan.stream.clone();
        let refused = told.error.as_ref().map(|error| error.err_code);
        match (self.state, refused) {
            (State::Looking | State::Making, None) => self.found(&told.config.subjects),
            (State::Looking, Some(STREAM_NOT_FOUND)) => match self.plan.create.clone() {
                Some((storage, subjects)) => self.make(storage, &subjects),
                None => self.fail(&format!(
                    "has no stream {stream}: make it (`nats stream add`), or have it made with create=memory or create=file"
                )),
            },
            (State::LookingForReader, None) => {
                self.carrying.iter_mut().for_each(|carrying| carrying.begin_behind(told.delivered.consumer_seq));
                self.found_reader(&told.config);
            }
            (State::LookingForReader, Some(CONSUMER_NOT_FOUND)) => self.make_reader(),
            // The name goes into a line of ours.
            (State::MakingReader, None) if !is_name(&told.name) => {
                self.fail("made a reader of the stream that has no name");
            }
            (State::MakingReader, None) => {
                self.reader = told.name;
                self.begin_to_read();
            }
            (State::Connecting | State::Ready, None) => {}
            (_, Some(_)) => {
                let why = told.error.map_or_else(String::new, |error| printable(&error.description));
                let what = match self.state {
                    State::Making => "make the stream",
                    State::LookingForReader | State::MakingReader => "give a reader of the stream",
                    _ => "tell of the stream",
                };
                self.fail(&format!("refused to {what} {stream}: {why}"));
            }
        }
    }

    /// The stream is there, with these subjects.
    fn found(&mut self, subjects: &[String]) {
        let needed = self.plan.publishes.iter().chain(self.plan.reads.iter().map(|reads| &reads.filter));
        let missing = needed.into_iter().find(|needed| !subjects.iter().any(|subject| covers(subject, needed)));
        if let Some(missing) = missing {
            let (stream, has) = (&self.plan.stream, printable(&subjects.join(", ")));
            let why = format!("has a stream {stream} that does not keep {missing}: its subjects are {has}");
            return self.fail(&why);
        }
        match self.plan.reads.as_ref().map(|reads| reads.name.clone()) {
            None => self.state = State::Ready,
            Some(None) => self.make_reader(),
            Some(Some(name)) => {
                self.state = State::LookingForReader;
                self.ask(&format!("CONSUMER.INFO.{}.{name}", self.plan.stream), TOLD, &());
            }
        }
    }

    fn make(&mut self, storage: Storage, subjects: &[String]) {
        self.state = State::Making;
        let stream = self.plan.stream.clone();
        let new = NewStream {
            name: &stream,
            subjects,
            retention: "limits",
            storage: storage.name(),
            discard: "old",
            max_bytes: MOST_STREAM_BYTES,
            max_age: LONGEST_KEPT_NS,
            max_msgs: -1,
            max_consumers: -1,
            num_replicas: 1,
        };
        self.ask(&format!("STREAM.CREATE.{stream}"), TOLD, &new);
    }

    /// Somebody else's reader would lose what we read.
    fn found_reader(&mut self, config: &Config) {
        let filter = self.plan.reads.as_ref().map_or("", |reads| reads.filter.as_str());
        let is_ours = config.filter_subject == filter && config.filter_subjects.is_empty();
        if is_ours && config.deliver_subject.is_empty() {
            return self.begin_to_read();
        }
        let why =
            if is_ours { "is one that is pushed to, not pulled".to_owned() } else { format!("does not read {filter}") };
        self.fail(&format!("has a reader {} that {why}: give another name (reader=NAME)", self.reader));
    }

    fn make_reader(&mut self) {
        self.state = State::MakingReader;
        let Some(Reading { filter, name }) = self.plan.reads.clone() else { return };
        let stream = self.plan.stream.clone();
        let new = NewReader {
            stream_name: &stream,
            config: ReaderConfig {
                durable_name: name.as_deref(),
                // What is older has nobody who waits for an answer.
                deliver_policy: "new",
                ack_policy: "explicit",
                filter_subject: &filter,
                max_ack_pending: -1,
                inactive_threshold: name.is_none().then_some(READER_FORGOTTEN_NS),
            },
        };
        let what = match &name {
            Some(name) => format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"),
            None => format!("CONSUMER.CREATE.{stream}"),
        };
        self.ask(&what, TOLD, &new);
    }

    fn begin_to_read(&mut self) {
        self.state = State::Ready;
        self.ask_for_more();
    }

    /// Those that were not taken yet are among as many as may be with us.
    fn ask_for_more(&mut self) {
        let here = self.asked_for + self.carrying.as_ref().map_or(0, Carrying::open);
        if here > BATCH / 2 {
            return;
        }
        let batch = BATCH - here;
        self.asked_for += batch;
        self.ask(&format!("CONSUMER.MSG.NEXT.{}.{}", self.plan.stream, self.reader), NEXT, &Next { batch });
    }

    /// The stream has answered to a message, that it keeps it or why not.
    fn kept(&mut self, answer: &Answer, ticket: &str) {
        if answer.status.is_some() {
            self.ending = Ending::Refused;
            return self.fail("keeps no such message: no stream has its subject any more");
        }
        let Ok(told) = serde_json::from_slice::<Told>(&answer.payload) else {
            return self.fail("sent an acknowledgement of JetStream that can't be read");
        };
        if let Some(error) = told.error {
            self.ending = Ending::Refused;
            return self.fail(&format!("did not keep a message: {}", printable(&error.description)));
        }
        if told.stream != self.plan.stream {
            return self.fail("acknowledged a message for another stream");
        }
        match self.under_way.checked_sub(1) {
            Some(rest) => self.under_way = rest,
            None => return self.fail("acknowledged what was never published"),
        }
        if let (Some(carrying), Ok(ticket)) = (&mut self.carrying, ticket.parse()) {
            carrying.keep(ticket);
        }
    }

    /// There is no message for a question, or no more for it.
    fn none_came(&mut self, answer: &Answer) {
        match &answer.status {
            // A sign of life.
            Some((100, _)) => {}
            // Its time is over.
            Some((404 | 408, _)) if self.state == State::Ready && self.plan.reads.is_some() => {
                self.asked_for = 0;
                self.ask_for_more();
            }
            Some((503, _)) => self.fail("has no reader any more: no answer to the question for messages"),
            Some((_, why)) => {
                self.fail(&format!("ended the reading of the stream: {}", printable(&why.to_lowercase())))
            }
            None => {}
        }
    }

    /// A message of the stream, which is acknowledged when it is taken in, as stock clients do; one that is carried on
    /// when it is taken there.
    fn came(&mut self, answer: Answer) {
        let is_asked_for = self.state == State::Ready && self.asked_for > 0;
        let Some(reply) = answer.reply.filter(|reply| is_asked_for && reply.starts_with("$JS.ACK.")) else {
            return self.fail("sent a message that nobody here has asked for");
        };
        let message = Message::new(answer.subject, answer.payload);
        self.asked_for -= 1;
        if self.carrying.as_mut().is_some_and(|carrying| carrying.is_again(&reply)) {
            return self.ask_for_more();
        }
        match &mut self.carrying {
            Some(carrying) => {
                let number = carrying.came(reply);
                self.messages.push_back(message.with(Some((number, false)), answer.tag));
            }
            None => {
                self.messages.push_back(message);
                self.answer(&reply, b"");
            }
        }
        self.ask_for_more();
    }

    /// Whether what comes beside the stream is held until it is behind what the stream has.
    const fn holds(&self) -> bool {
        self.carrying.is_some() && self.plan.reads.is_some()
    }

    fn answer(&mut self, reply: &str, what: &[u8]) {
        if let Err(why) = self.nats.publish(reply, what) {
            self.fail(&why);
        }
    }
}

impl Client for JetStream {
    fn wants_tls(&self) -> bool {
        self.nats.wants_tls()
    }

    fn secured(&mut self) {
        self.nats.secured();
    }

    fn waits_for(&self) -> &'static str {
        match self.state {
            State::Connecting => self.nats.waits_for(),
            State::Looking | State::Making => "the question for the stream (JetStream)",
            State::LookingForReader | State::MakingReader | State::Ready => "the question for a reader of the stream",
        }
    }

    fn most_bytes(&self) -> Option<u64> {
        self.nats.most_bytes()
    }

    fn is_ready(&self) -> bool {
        self.state == State::Ready && self.nats.is_ready()
    }

    fn failure(&self) -> Option<&str> {
        self.nats.failure()
    }

    fn fail(&mut self, why: &str) {
        self.nats.fail(why);
    }

    fn handle(&mut self, bytes: &[u8]) {
        self.nats.handle(bytes);
        self.go_on();
    }

    fn next_message(&mut self) -> Option<Message> {
        let is_held = self.holds();
        self.messages.pop_front().or_else(|| if is_held { None } else { self.nats.next_message() })
    }

    fn has_message(&self) -> bool {
        !self.messages.is_empty() || !self.holds() && self.nats.has_message()
    }

    fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<bool, String> {
        if self.plan.publishes.is_none() {
            return self.nats.publish(subject, payload);
        }
        if self.under_way >= MOST_UNDER_WAY {
            return Ok(false);
        }
        let reply = format!("{}.{KEPT}", self.inbox);
        self.nats.ask(subject, &reply, payload)?;
        self.under_way += 1;
        Ok(true)
    }

    fn post(&mut self, letter: &Letter<'_>) -> Result<Posted, String> {
        let Some(carrying) = self.carrying.as_mut().filter(|_| self.plan.publishes.as_deref() == Some(letter.topic))
        else {
            return self.nats.post(letter);
        };
        if self.under_way >= MOST_UNDER_WAY {
            return Ok(Posted::Later);
        }
        let ticket = carrying.ticket();
        let reply = format!("{}.{KEPT}.{ticket}", self.inbox);
        self.nats.ask_with(letter.topic, &reply, letter.tag, letter.payload)?;
        self.under_way += 1;
        Ok(Posted::Taken(Some(ticket)))
    }

    fn next_confirmed(&mut self) -> Option<u16> {
        self.carrying.as_mut()?.next_kept()
    }

    fn takes_tags(&self) -> bool {
        self.nats.takes_tags()
    }

    fn acknowledge(&mut self, message: &Message) {
        if let Some(reply) = self.carrying.as_mut().and_then(|carrying| carrying.taken(message)) {
            self.answer(&reply, b"");
            self.ask_for_more();
            if self.carrying.as_mut().is_some_and(Carrying::ask_anew) {
                self.ask_where();
            }
        }
    }

    fn say_goodbye(&mut self) {
        let Some(carrying) = &mut self.carrying else { return };
        let left: Vec<String> = carrying.left().collect();
        // Else they would come back to us.
        self.nats.hear_no_answers();
        left.iter().for_each(|reply| self.answer(reply, NOT_TAKEN));
    }

    fn ending(&self) -> Ending {
        if self.ending == Ending::Open { self.nats.ending() } else { self.ending }
    }

    fn output(&self) -> &[u8] {
        self.nats.output()
    }

    fn wrote(&mut self, bytes: usize) {
        self.nats.wrote(bytes);
    }

    fn about(&self) -> Option<String> {
        self.nats.about()
    }
}

/// Whether all that the second stands for is among what the first one stands for.
fn covers(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(name)) if name != ">" => {}
            (Some(name), Some(other)) if name == other => {}
            _ => return false,
        }
    }
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_pattern_covers_what_it_stands_for() {
        for (pattern, subject, is_covered) in [
            ("t.*.req", "t.*.req", true),
            ("t.>", "t.*.req", true),
            (">", "t", true),
            ("t.>", "t", false),
            ("t.*.req", "t.7.req", true),
            ("t.*", "t.7.req", false),
            ("t.7.req", "t.*.req", false),
            ("t.*", "t.>", false),
            ("t", "t", true),
        ] {
            assert_eq!(covers(pattern, subject), is_covered, "{pattern} {subject}");
        }
    }
}

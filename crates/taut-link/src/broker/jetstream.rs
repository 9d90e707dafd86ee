//! JetStream on a connection to a NATS server, without I/O: what is published is kept in a stream, which acknowledges
//! each message; what is read comes from the stream by a reader (consumer) that remembers how far it has come.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::client::{Client, Message};
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

/// What of the API's answers concerns us. Members that an answer has not are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    error: Option<Refusal>,
    /// Of an acknowledgement: the stream.
    stream: String,
    /// Of a reader.
    name: String,
    config: Config,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    err_code: u32,
    description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    subjects: Vec<String>,
    deliver_subject: String,
    filter_subject: String,
    filter_subjects: Vec<String>,
}

/// A stream that is made.
#[derive(Serialize)]
struct NewStream<'a> {
    name: &'a str,
    subjects: &'a [String],
    retention: &'static str,
    storage: &'static str,
    discard: &'static str,
    max_bytes: u64,
    max_age: u64,
    max_msgs: i64,
    max_consumers: i64,
    num_replicas: u32,
}

/// A reader that is made.
#[derive(Serialize)]
struct NewReader<'a> {
    stream_name: &'a str,
    config: ReaderConfig<'a>,
}

#[derive(Serialize)]
struct ReaderConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    durable_name: Option<&'a str>,
    deliver_policy: &'static str,
    ack_policy: &'static str,
    filter_subject: &'a str,
    max_ack_pending: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inactive_threshold: Option<u64>,
}

#[derive(Serialize)]
struct Next {
    batch: usize,
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
        }
    }

    fn go_on(&mut self) {
        if self.state == State::Connecting && self.nats.is_ready() {
            self.state = State::Looking;
            self.ask(&format!("STREAM.INFO.{}", self.plan.stream), TOLD, &());
        }
        while self.nats.failure().is_none() {
            let Some(answer) = self.nats.next_answer() else { break };
            let to = answer.subject.strip_prefix(&self.inbox).and_then(|rest| rest.strip_prefix('.'));
            match to {
                Some(TOLD) => self.told(&answer),
                Some(KEPT) => self.kept(&answer),
                Some(NEXT) => self.none_came(&answer),
                // Any client may publish to an inbox.
                Some(_) => {}
                None => self.came(answer),
            }
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
            (State::LookingForReader, None) => self.found_reader(&told.config),
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

    fn ask_for_more(&mut self) {
        let batch = BATCH - self.asked_for;
        self.asked_for = BATCH;
        self.ask(&format!("CONSUMER.MSG.NEXT.{}.{}", self.plan.stream, self.reader), NEXT, &Next { batch });
    }

    /// The stream has answered to a message, that it keeps it or why not.
    fn kept(&mut self, answer: &Answer) {
        if answer.status.is_some() {
            return self.fail("keeps no such message: no stream has its subject any more");
        }
        let Ok(told) = serde_json::from_slice::<Told>(&answer.payload) else {
            return self.fail("sent an acknowledgement of JetStream that can't be read");
        };
        if let Some(error) = told.error {
            return self.fail(&format!("did not keep a message: {}", printable(&error.description)));
        }
        if told.stream != self.plan.stream {
            return self.fail("acknowledged a message for another stream");
        }
        match self.under_way.checked_sub(1) {
            Some(rest) => self.under_way = rest,
            None => self.fail("acknowledged what was never published"),
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

    /// A message of the stream, which is acknowledged when it is taken in, as stock clients do.
    fn came(&mut self, answer: Answer) {
        let is_asked_for = self.state == State::Ready && self.asked_for > 0;
        let Some(reply) = answer.reply.filter(|reply| is_asked_for && reply.starts_with("$JS.ACK.")) else {
            return self.fail("sent a message that nobody here has asked for");
        };
        self.messages.push_back(Message::new(answer.subject, answer.payload));
        self.asked_for -= 1;
        if let Err(why) = self.nats.publish(&reply, b"") {
            self.fail(&why);
        }
        if self.asked_for <= BATCH / 2 {
            self.ask_for_more();
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
        self.messages.pop_front().or_else(|| self.nats.next_message())
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

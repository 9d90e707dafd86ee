//! What the client of any broker does, whichever protocol it speaks.

use std::fmt;

use mqtt_protocol_core::mqtt::common::ArcPayload;

/// One connection to a broker, without I/O: bytes of the broker in; messages, and bytes for the broker, out. It logs in
/// and subscribes by itself. What the broker does wrong ends it, with a [`failure`](Self::failure) in words.
pub trait Client: fmt::Debug + Send {
    /// Whether the broker has taken the subscription.
    fn is_ready(&self) -> bool;

    /// Whether it can't go on before TLS has begun on the connection.
    fn wants_tls(&self) -> bool {
        false
    }

    /// TLS has begun, as it wanted.
    fn secured(&mut self) {}

    /// What it has no answer to, as long as it is not ready: `our CONNECT`.
    fn waits_for(&self) -> &'static str;

    /// Most bytes of a message that the broker takes, as far as it has said so.
    fn most_bytes(&self) -> Option<u64> {
        None
    }

    /// What the broker did that ended the connection: `refused …`, `closed …`.
    fn failure(&self) -> Option<&str>;

    /// The connection is over, for a reason that was seen elsewhere; the first reason counts.
    fn fail(&mut self, why: &str);

    /// Takes in what the broker sent.
    fn handle(&mut self, bytes: &[u8]);

    /// The next message that has come.
    fn next_message(&mut self) -> Option<Message>;

    /// Whether there is one.
    fn has_message(&self) -> bool;

    /// Publishes a message; `false` when the broker lets no more be under way until it has acknowledged some.
    ///
    /// # Errors
    /// The broker takes no such message: it is too large for it, or for its protocol.
    fn publish(&mut self, topic: &str, payload: &[u8]) -> Result<bool, String>;

    /// Bytes that are to be written to the broker.
    fn output(&self) -> &[u8];

    /// So many of them have been written.
    fn wrote(&mut self, bytes: usize);

    /// What the broker has said that it is, as it logged us in.
    fn about(&self) -> Option<String>;

    /// Publishes a message with what stands with it.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    fn post(&mut self, letter: &Letter<'_>) -> Result<Posted, String> {
        self.publish(letter.topic, letter.payload).map(|taken| if taken { Posted::Taken(None) } else { Posted::Later })
    }

    /// The next ticket of [`post`](Self::post) whose message the broker has acknowledged.
    fn next_confirmed(&mut self) -> Option<u16> {
        None
    }

    /// What the next ticket would be, where there are any: the next connection's go on there.
    fn next_ticket(&self) -> Option<u16> {
        None
    }

    /// What a user may want to read, in words that go after `the broker`; it is told once.
    fn take_note(&mut self) -> Option<String> {
        None
    }

    /// Whether a message may have a tag: a user property or header.
    fn takes_tags(&self) -> bool {
        false
    }

    /// A message has been taken for good: the broker may forget it. Clients that acknowledge by themselves have done
    /// so.
    fn acknowledge(&mut self, message: &Message) {
        let _ = message;
    }

    /// Nothing more will be published.
    fn say_goodbye(&mut self) {}

    /// What the end of the connection means, where the broker has said so.
    fn ending(&self) -> Ending {
        Ending::Open
    }
}

/// A message to be published.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    /// Topic or subject.
    pub topic: &'a str,
    /// Its bytes.
    pub payload: &'a [u8],
    /// A text that stands with it, where the protocol has a place for one.
    pub tag: Option<&'a str>,
    /// Whether it goes out at most once, whatever the quality of service of others.
    pub is_casual: bool,
}

/// What became of a message to be published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Posted {
    /// The broker lets no more be under way until it has acknowledged some.
    Later,
    /// It is among the bytes for the broker. With a ticket, the broker will acknowledge it.
    Taken(Option<u16>),
}

/// Why a broker ended a connection, where it matters for whether to come again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// It has not ended it, or has not said why.
    Open,
    /// A second client of the same name has taken the session over.
    TakenOver,
    /// It does not take what is published.
    Refused,
    /// Messages were not read as fast as they came.
    SlowConsumer,
}

/// Name of the user property or header that has a tag.
pub(super) const TAG: &str = "taut";

/// A message that came by the subscription.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its topic or subject.
    pub topic: String,
    /// The text that stands with it, in a user property or header of the name `taut`.
    pub tag: Option<String>,
    /// Number of the packet that it came in, and whether that has quality of service 2; `None` with 0.
    pub(super) number: Option<(u16, bool)>,
    payload: Payload,
}

#[derive(Clone, Debug)]
enum Payload {
    Shared(ArcPayload),
    Own(Vec<u8>),
}

/// Largest message that is taken, in bytes: the largest of the tests, and its header.
pub(super) const MOST_BYTES: usize = (1 << 20) + (1 << 17);

impl Message {
    /// One whose payload is a part of the packet in which it came.
    pub(super) fn shared(topic: &str, payload: &ArcPayload) -> Self {
        Self { topic: topic.to_owned(), tag: None, number: None, payload: Payload::Shared(payload.clone()) }
    }

    pub(super) fn new(topic: String, payload: Vec<u8>) -> Self {
        Self { topic, tag: None, number: None, payload: Payload::Own(payload) }
    }

    /// With the number of its packet, and whether that has quality of service 2; and with what stands with it.
    pub(super) fn with(self, number: Option<(u16, bool)>, tag: Option<String>) -> Self {
        Self { number, tag, ..self }
    }

    /// What was published.
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::Shared(payload) => payload.as_slice(),
            Payload::Own(payload) => payload,
        }
    }
}

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
}

/// A message that came by the subscription.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its topic or subject.
    pub topic: String,
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
        Self { topic: topic.to_owned(), payload: Payload::Shared(payload.clone()) }
    }

    pub(super) fn new(topic: String, payload: Vec<u8>) -> Self {
        Self { topic, payload: Payload::Own(payload) }
    }

    /// What was published.
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::Shared(payload) => payload.as_slice(),
            Payload::Own(payload) => payload,
        }
    }
}

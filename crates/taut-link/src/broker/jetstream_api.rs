//! What is asked of the API of JetStream, and what it answers: JSON (nats-server, `server/jetstream_api.go`).

use serde::{Deserialize, Serialize};

/// What of the API's answers concerns us. Members that an answer has not are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    pub(super) error: Option<Refusal>,
    /// Of an acknowledgement: the stream.
    pub(super) stream: String,
    /// Of a reader: its name, how far it is, and how many messages are before it.
    pub(super) name: String,
    pub(super) delivered: Delivered,
    pub(super) num_pending: u64,
    pub(super) config: Config,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delivered {
    pub(super) consumer_seq: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) err_code: u32,
    pub(super) description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) subjects: Vec<String>,
    pub(super) deliver_subject: String,
    pub(super) filter_subject: String,
    pub(super) filter_subjects: Vec<String>,
}

/// A stream that is made.
#[derive(Serialize)]
pub(super) struct NewStream<'a> {
    pub(super) name: &'a str,
    pub(super) subjects: &'a [String],
    pub(super) retention: &'static str,
    pub(super) storage: &'static str,
    pub(super) discard: &'static str,
    pub(super) max_bytes: u64,
    pub(super) max_age: u64,
    pub(super) max_msgs: i64,
    pub(super) max_consumers: i64,
    pub(super) num_replicas: u32,
}

/// A reader that is made.
#[derive(Serialize)]
pub(super) struct NewReader<'a> {
    pub(super) stream_name: &'a str,
    pub(super) config: ReaderConfig<'a>,
}

#[derive(Serialize)]
pub(super) struct ReaderConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) durable_name: Option<&'a str>,
    pub(super) deliver_policy: &'static str,
    pub(super) ack_policy: &'static str,
    pub(super) filter_subject: &'a str,
    pub(super) max_ack_pending: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inactive_threshold: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Next {
    pub(super) batch: usize,
}

//! Brokers as paths: a message to a peer is published, and comes to it by its subscription.
//!
//! - [`MqttAddress`], [`NatsAddress`]: which broker, which topic, and how; `BrokerAddress` is either.
//! - [`Client`]: what the client of any broker does, without I/O. [`MqttClient`] speaks MQTT 3.1.1 and 5, over
//!   `mqtt-protocol-core`; [`NatsClient`] speaks core NATS, and [`JetStream`] keeps its messages in a stream.
//! - `Channel`: a client over a socket, with TLS between them if wanted, for [`crate::Link`] and [`crate::Listener`].
//! - [`Carrier`]: messages from a writer to a reader, with an account of them.

mod address;
mod carry;
mod channel;
mod client;
mod jetstream;
mod jetstream_api;
mod jetstream_carry;
#[cfg(test)]
mod jetstream_tests;
mod mqtt_address;
mod mqtt_client;
mod mqtt_login;
mod mqtt_make;
mod mqtt_packet;
#[cfg(test)]
mod mqtt_tests;
mod mqtt_words;
mod nats_address;
mod nats_client;
#[cfg(test)]
mod nats_tests;
mod part;
mod secret;
mod secured;
mod stream_settings;
mod tls_settings;

pub(crate) use address::BrokerAddress;
pub use carry::{BrokerAccount, Carriage, Carrier, Directions, HeardAccount, Offered, ReaderAccount, WrittenAccount};
pub(crate) use channel::{Channel, wait_readable};
pub use client::{Client, Ending, Letter, Message, Posted};
pub use jetstream::{JetStream, Reading, StreamPlan};
pub use mqtt_address::{MqttAddress, MqttVersion};
pub use mqtt_client::MqttClient;
pub use mqtt_login::{Errand, Login};
pub use nats_address::NatsAddress;
pub use nats_client::{NatsClient, NatsLogin};
pub(crate) use part::Part;
pub use stream_settings::Storage;

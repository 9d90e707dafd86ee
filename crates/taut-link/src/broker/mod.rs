//! Brokers as paths: a message to a peer is published, and comes to it by its subscription.
//!
//! - [`MqttAddress`]: which broker, which topic, and how.
//! - [`MqttClient`]: the client's side of MQTT 3.1.1 and 5 without I/O, over `mqtt-protocol-core`.
//! - `Channel`: that client over a socket, for [`crate::Link`] and [`crate::Listener`].

mod address;
mod channel;
mod mqtt;
mod packet;
#[cfg(test)]
mod tests;
mod words;

pub use address::{MqttAddress, MqttVersion};
pub(crate) use channel::{Channel, Part};
pub use mqtt::{Login, Message, MqttClient};

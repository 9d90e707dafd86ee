//! Who a client of MQTT is to its broker.

use super::mqtt_address::MqttVersion;

/// Who we are to the broker, and what we want to hear.
#[derive(Clone, Debug)]
pub struct Login {
    /// Version of the protocol.
    pub version: MqttVersion,
    /// Identifier of the client; a second one of the same name takes the first one's place.
    pub client: String,
    /// User name.
    pub user: Option<String>,
    /// Password, which goes with a user name.
    pub password: Option<Vec<u8>>,
    /// Topics that are subscribed to.
    pub filter: String,
    /// Quality of service of what is published and subscribed to: 0, 1, and 2 for anything above.
    pub qos: u8,
}

/// What a client that carries messages wants beside that.
#[derive(Clone, Debug, Default)]
pub struct Errand {
    /// Whether the session goes on where an earlier connection of this name ended, and is kept when this one ends.
    pub is_lasting: bool,
    /// Topics that are subscribed to beside the login's filter.
    pub also: Vec<String>,
}

//! What a broker's codes mean, in words that say what to do.

use mqtt_protocol_core::mqtt::result_code::{ConnectReasonCode, ConnectReturnCode, MqttError};

use super::mqtt_address::MqttVersion;

/// Why a broker of MQTT 3.1.1 takes no connection (section 3.2.2.3); `None` when it does.
pub(super) fn refusal_of_3(code: ConnectReturnCode) -> Option<String> {
    Some(match code {
        ConnectReturnCode::Accepted => return None,
        ConnectReturnCode::UnacceptableProtocolVersion => wrong_version(MqttVersion::V3),
        ConnectReturnCode::IdentifierRejected => "refused the client identifier".to_owned(),
        ConnectReturnCode::ServerUnavailable => "says that it is not available".to_owned(),
        ConnectReturnCode::BadUserNameOrPassword => bad_password(),
        ConnectReturnCode::NotAuthorized => not_authorised(),
    })
}

/// Why a broker of MQTT 5 takes no connection (section 3.2.2.2); `None` when it does.
pub(super) fn refusal_of_5(code: ConnectReasonCode) -> Option<String> {
    Some(match code {
        ConnectReasonCode::Success => return None,
        ConnectReasonCode::UnsupportedProtocolVersion => wrong_version(MqttVersion::V5),
        ConnectReasonCode::BadUserNameOrPassword => bad_password(),
        ConnectReasonCode::NotAuthorized => not_authorised(),
        code => format!("refused the connection: {}", of_code(code)),
    })
}

/// What is wrong with the bytes of a broker.
pub(super) fn of_error(error: MqttError) -> String {
    match error {
        MqttError::PacketTooLarge => "sent a packet that is larger than what is taken here".to_owned(),
        MqttError::MalformedPacket | MqttError::InsufficientBytes => "sent a packet that is malformed".to_owned(),
        error => format!("broke the protocol: {}", of_code(error)),
    }
}

/// `NotAuthorized` as `not authorized`.
pub(super) fn of_code(code: impl std::fmt::Debug) -> String {
    let mut words = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn wrong_version(version: MqttVersion) -> String {
    format!("does not speak MQTT {}: try {}", version.name(), version.other())
}

fn bad_password() -> String {
    "did not accept the user name or the password: see user= and password-file=".to_owned()
}

fn not_authorised() -> String {
    "does not let this client in: it may want user= and password-file=".to_owned()
}

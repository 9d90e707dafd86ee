//! The packets that a client sends.

use mqtt_protocol_core::mqtt::packet::{
    Packet, Property, Qos, SessionExpiryInterval, SubEntry, SubOpts, UserProperty, v3_1_1, v5_0,
};
use mqtt_protocol_core::mqtt::result_code::MqttError;

use super::client::{Letter, TAG};
use super::mqtt_address::MqttVersion;
use super::mqtt_login::Login;

/// How long a broker keeps a lasting session of MQTT 5 while nobody is there, in seconds: a day. One of MQTT 3.1.1 it
/// keeps as long as it is set to.
const SESSION_SECONDS: u32 = 86_400;

pub(super) const fn qos(number: u8) -> Qos {
    match number {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        _ => Qos::ExactlyOnce,
    }
}

/// A session of its own that ends with the connection, or one that is kept; and no keep-alive: a ping would be one more
/// packet among those that are measured. Whether the broker is still there TCP finds out.
pub(super) fn connect(login: &Login, is_lasting: bool) -> Result<Packet, MqttError> {
    Ok(match login.version {
        MqttVersion::V3 => {
            let mut connect =
                v3_1_1::Connect::builder().client_id(&login.client)?.clean_session(!is_lasting).keep_alive(0);
            if let Some(user) = &login.user {
                connect = connect.user_name(user)?;
            }
            if let Some(password) = &login.password {
                connect = connect.password(password.clone())?;
            }
            connect.build()?.into()
        }
        MqttVersion::V5 => {
            let mut connect = v5_0::Connect::builder().client_id(&login.client)?.clean_start(!is_lasting).keep_alive(0);
            if is_lasting {
                connect =
                    connect.props(vec![Property::SessionExpiryInterval(SessionExpiryInterval::new(SESSION_SECONDS)?)]);
            }
            if let Some(user) = &login.user {
                connect = connect.user_name(user)?;
            }
            if let Some(password) = &login.password {
                connect = connect.password(password.clone())?;
            }
            connect.build()?.into()
        }
    })
}

pub(super) fn subscribe(login: &Login, also: &[String], number: u16) -> Result<Packet, MqttError> {
    let entry = |filter: &String| SubEntry::new(filter, SubOpts::new().set_qos(qos(login.qos)));
    let filters = std::iter::once(&login.filter).filter(|filter| !filter.is_empty()).chain(also);
    let entries = filters.map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(match login.version {
        MqttVersion::V3 => v3_1_1::Subscribe::builder().packet_id(number).entries(entries).build()?.into(),
        MqttVersion::V5 => v5_0::Subscribe::builder().packet_id(number).entries(entries).build()?.into(),
    })
}

pub(super) fn publish(
    version: MqttVersion,
    letter: &Letter<'_>,
    qos: Qos,
    number: Option<u16>,
) -> Result<Packet, MqttError> {
    Ok(match version {
        MqttVersion::V3 => {
            let publish = v3_1_1::Publish::builder().topic_name(letter.topic)?.qos(qos).payload(letter.payload);
            let numbered = if let Some(number) = number { publish.packet_id(number) } else { publish };
            numbered.build()?.into()
        }
        MqttVersion::V5 => {
            let publish = v5_0::Publish::builder().topic_name(letter.topic)?.qos(qos).payload(letter.payload);
            let numbered = if let Some(number) = number { publish.packet_id(number) } else { publish };
            let tagged = match letter.tag {
                Some(tag) => numbered.props(vec![Property::UserProperty(UserProperty::new(TAG, tag)?)]),
                None => numbered,
            };
            tagged.build()?.into()
        }
    })
}

/// What a user property of the name `taut` has.
pub(super) fn tag_of(properties: &[Property]) -> Option<String> {
    properties.iter().find_map(|property| match property {
        Property::UserProperty(pair) if pair.key() == TAG => Some(pair.val().to_owned()),
        _ => None,
    })
}

/// Most bytes of a packet that the broker takes, where its CONNACK says so (MQTT 5.0, section 3.2.2.3.6).
pub(super) fn most_packet_bytes(properties: &[Property]) -> Option<u32> {
    properties.iter().find_map(|property| match property {
        Property::MaximumPacketSize(most) => Some(most.val()),
        _ => None,
    })
}

pub(super) fn puback(version: MqttVersion, number: u16) -> Result<Packet, MqttError> {
    Ok(match version {
        MqttVersion::V3 => v3_1_1::Puback::builder().packet_id(number).build()?.into(),
        MqttVersion::V5 => v5_0::Puback::builder().packet_id(number).build()?.into(),
    })
}

pub(super) fn pubrec(version: MqttVersion, number: u16) -> Result<Packet, MqttError> {
    Ok(match version {
        MqttVersion::V3 => v3_1_1::Pubrec::builder().packet_id(number).build()?.into(),
        MqttVersion::V5 => v5_0::Pubrec::builder().packet_id(number).build()?.into(),
    })
}

pub(super) fn pubrel(version: MqttVersion, number: u16) -> Result<Packet, MqttError> {
    Ok(match version {
        MqttVersion::V3 => v3_1_1::Pubrel::builder().packet_id(number).build()?.into(),
        MqttVersion::V5 => v5_0::Pubrel::builder().packet_id(number).build()?.into(),
    })
}

pub(super) fn pubcomp(version: MqttVersion, number: u16) -> Result<Packet, MqttError> {
    Ok(match version {
        MqttVersion::V3 => v3_1_1::Pubcomp::builder().packet_id(number).build()?.into(),
        MqttVersion::V5 => v5_0::Pubcomp::builder().packet_id(number).build()?.into(),
    })
}

//! The client's side of MQTT without I/O: bytes of the broker in, messages and bytes for the broker out.

use std::collections::VecDeque;
use std::fmt;

use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{ConnectionOptions, Event};
use mqtt_protocol_core::mqtt::packet::{GenericPacketTrait, Packet, Qos, SubEntry, SubOpts, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::{MqttError, SubackReasonCode, SubackReturnCode};
use mqtt_protocol_core::mqtt::{Connection, Version, role};

use super::client::{Client, MOST_BYTES, Message};
use super::mqtt_address::MqttVersion;
use super::{mqtt_packet as packet, mqtt_words as words};

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

/// One connection to a broker: CONNECT, SUBSCRIBE, then messages in both directions, each acknowledged when it is
/// taken in. What the broker does wrong ends it, with a [`failure`](Self::failure) in words.
pub struct MqttClient {
    connection: Connection<role::Client>,
    login: Login,
    state: State,
    /// Whether the broker has said anything.
    has_spoken: bool,
    /// Whether the connection is one without TLS, which may be why the broker does not answer.
    is_plain: bool,
    /// The beginning of a packet.
    input: Vec<u8>,
    output: Vec<u8>,
    inbox: VecDeque<Message>,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Subscribing,
    Ready,
}

/// Largest packet that is taken, in bytes.
const MOST_PACKET_BYTES: u32 = MOST_BYTES as u32;

/// What a broker's first packet begins with (MQTT 5.0, section 3.2.1). Other servers than brokers may begin with a byte
/// after which a packet would be long in coming.
const CONNACK: u8 = 0x20;
/// What a record of TLS begins with that says what is wrong (RFC 8446, section 5.1).
const TLS_ALERT: u8 = 0x15;

impl MqttClient {
    /// A client whose [`output`](Self::output) begins with its CONNECT.
    ///
    /// # Errors
    /// What MQTT can't say: a name or filter that is too long or has a NUL.
    pub fn new(login: Login) -> Result<Self, String> {
        let version = match login.version {
            MqttVersion::V3 => Version::V3_1_1,
            MqttVersion::V5 => Version::V5_0,
        };
        let options = ConnectionOptions::new().maximum_packet_size_recv(MOST_PACKET_BYTES);
        let mut connection = Connection::<role::Client>::with_options(version, options);
        // Acknowledged when it is taken in, as stock clients do.
        connection.set_auto_pub_response(true);
        let connect =
            connect(&login).map_err(|error| format!("its CONNECT can't be made: {}", words::of_code(error)))?;
        let mut client = Self {
            connection,
            login,
            state: State::Connecting,
            has_spoken: false,
            is_plain: false,
            input: Vec::new(),
            output: Vec::new(),
            inbox: VecDeque::new(),
            failure: None,
        };
        let events = client.connection.send(connect);
        client.take(events);
        client.failure.take().map_or(Ok(client), Err)
    }

    /// Says whether the connection is one without TLS.
    pub(super) const fn is_plain(&mut self, is_plain: bool) {
        self.is_plain = is_plain;
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::RequestSendPacket { packet, .. } => self.output.extend(packet.to_continuous_buffer()),
                Event::NotifyPacketReceived(packet) => self.receive(packet),
                Event::NotifyError(error) => self.fail(&words::of_error(error)),
                // Its reason is among the other events. There are no timers without a keep-alive of ours.
                Event::RequestClose
                | Event::NotifyPacketIdReleased(_)
                | Event::RequestTimerReset { .. }
                | Event::RequestTimerCancel(_) => {}
            }
        }
    }

    fn receive(&mut self, packet: Packet) {
        match packet {
            Packet::V3_1_1Connack(answer) => self.connected(words::refusal_of_3(answer.return_code())),
            Packet::V5_0Connack(answer) => self.connected(words::refusal_of_5(answer.reason_code())),
            Packet::V3_1_1Suback(answer) => {
                let granted = |code: &SubackReturnCode| *code != SubackReturnCode::Failure;
                let why = "it may not be allowed to this client".to_owned();
                self.subscribed((!answer.return_codes().iter().all(granted)).then_some(why));
            }
            Packet::V5_0Suback(answer) => {
                let granted =
                    [SubackReasonCode::GrantedQos0, SubackReasonCode::GrantedQos1, SubackReasonCode::GrantedQos2];
                let codes = answer.reason_codes();
                self.subscribed(codes.iter().find(|code| !granted.contains(code)).map(words::of_code));
            }
            // Before it is ready nothing that comes is meant for it.
            Packet::V3_1_1Publish(message) if self.state == State::Ready => {
                self.inbox.push_back(Message::shared(message.topic_name(), message.payload()));
            }
            Packet::V5_0Publish(message) if self.state == State::Ready => {
                self.inbox.push_back(Message::shared(message.topic_name(), message.payload()));
            }
            Packet::V5_0Puback(answer) => self.acknowledged(answer.reason_code().filter(|code| code.is_failure())),
            Packet::V5_0Pubrec(answer) => self.acknowledged(answer.reason_code().filter(|code| code.is_failure())),
            Packet::V5_0Disconnect(end) => {
                let why = end.reason_code().map_or_else(|| "no reason".to_owned(), words::of_code);
                self.fail(&format!("ended the connection: {why}"));
            }
            _ => {}
        }
    }

    fn connected(&mut self, refusal: Option<String>) {
        if let Some(why) = refusal {
            self.failure.get_or_insert(why);
            return;
        }
        self.state = State::Subscribing;
        let Ok(number) = self.connection.acquire_packet_id() else { return self.fail("took all numbers of packets") };
        match subscribe(&self.login, number) {
            Ok(packet) => {
                let events = self.connection.send(packet);
                self.take(events);
            }
            Err(error) => self.fail(&format!("can't be asked for that topic: {}", words::of_code(error))),
        }
    }

    fn subscribed(&mut self, refusal: Option<String>) {
        match refusal {
            Some(why) => self.fail(&format!("refused to subscribe to {}: {why}", self.login.filter)),
            None => self.state = State::Ready,
        }
    }

    fn acknowledged(&mut self, refusal: Option<impl fmt::Debug>) {
        if let Some(code) = refusal {
            self.fail(&format!("refused a message: {}", words::of_code(code)));
        }
    }
}

impl Client for MqttClient {
    fn is_ready(&self) -> bool {
        self.state == State::Ready && self.failure.is_none()
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn fail(&mut self, why: &str) {
        let hint = if self.state == State::Connecting {
            let (name, other) = (self.login.version.name(), self.login.version.other());
            let tls = if self.is_plain { "; with TLS it is mqtts://" } else { "" };
            format!(
                ", before it had taken the connection: is it a broker, and does it speak MQTT {name}? (else {other}{tls})"
            )
        } else {
            String::new()
        };
        self.failure.get_or_insert_with(|| format!("{why}{hint}"));
    }

    fn handle(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first().filter(|_| !std::mem::replace(&mut self.has_spoken, true))
            && *first != CONNACK
        {
            if *first == TLS_ALERT {
                self.failure.get_or_insert_with(|| "wants TLS: write mqtts://".to_owned());
            }
            return self.fail("sent what is no answer");
        }
        self.input.extend_from_slice(bytes);
        let mut taken = 0;
        while self.failure.is_none() {
            let rest = &self.input[taken..];
            let length = match packet::length(rest) {
                Ok(Some(length)) if length <= MOST_PACKET_BYTES as usize => length,
                Ok(Some(_)) => return self.fail(&words::of_error(MqttError::PacketTooLarge)),
                Ok(None) => break,
                Err(why) => return self.fail(why),
            };
            let Some(whole) = rest.get(..length) else { break };
            if !packet::has_sound_number(whole) {
                return self.fail("sent a packet that is malformed: it has no number");
            }
            taken += length;
            let events = self.connection.recv(&mut Cursor::new(whole));
            self.take(events);
        }
        self.input.drain(..taken);
    }

    fn next_message(&mut self) -> Option<Message> {
        self.inbox.pop_front()
    }

    fn publish(&mut self, topic: &str, payload: &[u8]) -> Result<bool, String> {
        let qos = qos(self.login.qos);
        let is_full = || self.connection.get_receive_maximum_vacancy_for_send() == Some(0);
        if qos != Qos::AtMostOnce && is_full() {
            return Ok(false);
        }
        let number = match qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => match self.connection.acquire_packet_id() {
                Ok(number) => Some(number),
                Err(_) => return Ok(false),
            },
        };
        let packet = publish(self.login.version, topic, qos, number, payload)
            .map_err(|error| format!("takes no such message: {}", words::of_code(error)))?;
        let events = self.connection.send(packet);
        self.take(events);
        self.failure.clone().map_or(Ok(true), Err)
    }

    fn output(&self) -> &[u8] {
        &self.output
    }

    fn wrote(&mut self, bytes: usize) {
        self.output.drain(..bytes.min(self.output.len()));
    }

    fn waits_for(&self) -> &'static str {
        match self.state {
            State::Connecting if self.is_plain => "our CONNECT (is it a broker of MQTT? with TLS it is mqtts://)",
            State::Connecting => "our CONNECT (is it a broker of MQTT?)",
            State::Subscribing | State::Ready => "our SUBSCRIBE",
        }
    }

    /// MQTT has no place for it; Mosquitto's is a topic.
    fn about(&self) -> Option<String> {
        None
    }
}

impl fmt::Debug for MqttClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut form = f.debug_struct("MqttClient");
        form.field("client", &self.login.client).field("state", &self.state).field("failure", &self.failure);
        form.finish_non_exhaustive()
    }
}

const fn qos(number: u8) -> Qos {
    match number {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        _ => Qos::ExactlyOnce,
    }
}

/// A session of its own that ends with the connection, and no keep-alive: a ping would be one more packet among
/// those that are measured. Whether the broker is still there TCP finds out.
fn connect(login: &Login) -> Result<Packet, MqttError> {
    Ok(match login.version {
        MqttVersion::V3 => {
            let mut connect = v3_1_1::Connect::builder().client_id(&login.client)?.clean_session(true).keep_alive(0);
            if let Some(user) = &login.user {
                connect = connect.user_name(user)?;
            }
            if let Some(password) = &login.password {
                connect = connect.password(password.clone())?;
            }
            connect.build()?.into()
        }
        MqttVersion::V5 => {
            let mut connect = v5_0::Connect::builder().client_id(&login.client)?.clean_start(true).keep_alive(0);
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

fn subscribe(login: &Login, number: u16) -> Result<Packet, MqttError> {
    let entry = SubEntry::new(&login.filter, SubOpts::new().set_qos(qos(login.qos)))?;
    Ok(match login.version {
        MqttVersion::V3 => v3_1_1::Subscribe::builder().packet_id(number).entries(vec![entry]).build()?.into(),
        MqttVersion::V5 => v5_0::Subscribe::builder().packet_id(number).entries(vec![entry]).build()?.into(),
    })
}

fn publish(
    version: MqttVersion,
    topic: &str,
    qos: Qos,
    number: Option<u16>,
    payload: &[u8],
) -> Result<Packet, MqttError> {
    Ok(match version {
        MqttVersion::V3 => {
            let publish = v3_1_1::Publish::builder().topic_name(topic)?.qos(qos).payload(payload);
            let numbered = if let Some(number) = number { publish.packet_id(number) } else { publish };
            numbered.build()?.into()
        }
        MqttVersion::V5 => {
            let publish = v5_0::Publish::builder().topic_name(topic)?.qos(qos).payload(payload);
            let numbered = if let Some(number) = number { publish.packet_id(number) } else { publish };
            numbered.build()?.into()
        }
    })
}

//! The client's side of MQTT without I/O: bytes of the broker in, messages and bytes for the broker out.

use std::collections::VecDeque;
use std::fmt;

use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{ConnectionOptions, Event};
use mqtt_protocol_core::mqtt::packet::{GenericPacketTrait, Packet, Qos};
use mqtt_protocol_core::mqtt::result_code::{DisconnectReasonCode, MqttError, SubackReasonCode, SubackReturnCode};
use mqtt_protocol_core::mqtt::{Connection, Version, role};

use super::client::{Client, Ending, Letter, MOST_BYTES, Message, Posted};
use super::mqtt_address::MqttVersion;
use super::mqtt_login::{Errand, Login};
use super::mqtt_make as make;
use super::{mqtt_packet as packet, mqtt_words as words};

/// One connection to a broker: CONNECT, SUBSCRIBE, then messages in both directions, each acknowledged when it is
/// taken in, or, on an [`Errand`], when it is taken for good. What the broker does wrong ends it, with a
/// [`failure`](Self::failure) in words.
pub struct MqttClient {
    connection: Connection<role::Client>,
    login: Login,
    errand: Option<Errand>,
    /// Number of the next packet of an errand: going round, so that those that a broker may still have from an earlier
    /// connection come last.
    next_number: u16,
    confirmed: VecDeque<u16>,
    /// Most bytes of a packet that the broker takes, as far as it has said so.
    most_packet_bytes: Option<u32>,
    note: Option<String>,
    ending: Ending,
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

/// Messages of an errand that a broker of MQTT 3.1.1 is given before it has acknowledged the first of them.
pub(super) const MOST_UNDER_WAY: usize = 100;

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
        Self::make(login, None, 1)
    }

    /// As [`new`](Self::new), on an errand; packets are numbered from `first_number` on, going round.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on_errand(login: Login, errand: Errand, first_number: u16) -> Result<Self, String> {
        Self::make(login, Some(errand), first_number)
    }

    fn make(login: Login, errand: Option<Errand>, first_number: u16) -> Result<Self, String> {
        let version = match login.version {
            MqttVersion::V3 => Version::V3_1_1,
            MqttVersion::V5 => Version::V5_0,
        };
        let options = ConnectionOptions::new().maximum_packet_size_recv(MOST_PACKET_BYTES);
        let mut connection = Connection::<role::Client>::with_options(version, options);
        // Acknowledged when it is taken in, as stock clients do.
        connection.set_auto_pub_response(errand.is_none());
        let is_lasting = errand.as_ref().is_some_and(|errand| errand.is_lasting);
        let connect = make::connect(&login, is_lasting)
            .map_err(|error| format!("its CONNECT can't be made: {}", words::of_code(error)))?;
        let mut client = Self {
            connection,
            login,
            errand,
            next_number: first_number,
            confirmed: VecDeque::new(),
            most_packet_bytes: None,
            note: None,
            ending: Ending::Open,
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
        // The number of a message that is refused is free before the packet is told of that refuses it.
        let refused = events.iter().find_map(|event| match event {
            Event::NotifyPacketReceived(packet) => refused_by(packet),
            _ => None,
        });
        for event in events {
            match event {
                Event::RequestSendPacket { packet, .. } => self.output.extend(packet.to_continuous_buffer()),
                Event::NotifyPacketReceived(packet) => self.receive(packet),
                Event::NotifyError(error) => self.fail(&words::of_error(error)),
                Event::NotifyPacketIdReleased(number) if self.errand.is_some() && refused != Some(number) => {
                    self.confirmed.push_back(number);
                }
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
            Packet::V5_0Connack(answer) => {
                self.most_packet_bytes = make::most_packet_bytes(answer.props());
                self.connected(words::refusal_of_5(answer.reason_code()));
            }
            Packet::V3_1_1Suback(answer) => {
                let granted = |code: &SubackReturnCode| *code != SubackReturnCode::Failure;
                let why = "it may not be allowed to this client".to_owned();
                let lowest = answer.return_codes().iter().map(|code| *code as u8).min();
                self.subscribed((!answer.return_codes().iter().all(granted)).then_some(why), lowest);
            }
            Packet::V5_0Suback(answer) => {
                let granted =
                    [SubackReasonCode::GrantedQos0, SubackReasonCode::GrantedQos1, SubackReasonCode::GrantedQos2];
                let codes = answer.reason_codes();
                let lowest = codes.iter().map(|code| *code as u8).min();
                self.subscribed(codes.iter().find(|code| !granted.contains(code)).map(words::of_code), lowest);
            }
            Packet::V3_1_1Publish(message) if self.hears() => {
                let number = message.packet_id().map(|number| (number, message.qos() == Qos::ExactlyOnce));
                let heard = Message::shared(message.topic_name(), message.payload());
                self.inbox.push_back(heard.with(number, None));
            }
            Packet::V5_0Publish(message) if self.hears() => {
                let number = message.packet_id().map(|number| (number, message.qos() == Qos::ExactlyOnce));
                let tag = self.errand.as_ref().and_then(|_| make::tag_of(message.props()));
                let heard = Message::shared(message.topic_name(), message.payload());
                self.inbox.push_back(heard.with(number, tag));
            }
            Packet::V3_1_1Pubrec(answer) if self.errand.is_some() => self.answer(make::pubrel, answer.packet_id()),
            Packet::V5_0Pubrec(answer) if self.errand.is_some() => {
                match answer.reason_code().filter(|code| code.is_failure()) {
                    None => self.answer(make::pubrel, answer.packet_id()),
                    refusal => self.acknowledged(refusal),
                }
            }
            Packet::V3_1_1Pubrel(answer) if self.errand.is_some() => self.answer(make::pubcomp, answer.packet_id()),
            Packet::V5_0Pubrel(answer) if self.errand.is_some() => self.answer(make::pubcomp, answer.packet_id()),
            Packet::V5_0Puback(answer) => self.acknowledged(answer.reason_code().filter(|code| code.is_failure())),
            Packet::V5_0Pubrec(answer) => self.acknowledged(answer.reason_code().filter(|code| code.is_failure())),
            Packet::V5_0Disconnect(end) => {
                if end.reason_code() == Some(DisconnectReasonCode::SessionTakenOver) {
                    self.ending = Ending::TakenOver;
                }
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
        let has_nothing = self.errand.as_ref().is_some_and(|errand| errand.also.is_empty());
        if has_nothing && self.login.filter.is_empty() {
            // Who hears nothing has nothing to ask for (MQTT 5.0, section 3.8.3).
            self.state = State::Ready;
            return;
        }
        self.state = State::Subscribing;
        let Some(number) = self.number() else { return self.fail("took all numbers of packets") };
        let also = self.errand.as_ref().map_or(&[][..], |errand| &errand.also);
        match make::subscribe(&self.login, also, number) {
            Ok(packet) => {
                let events = self.connection.send(packet);
                self.take(events);
            }
            Err(error) => self.fail(&format!("can't be asked for that topic: {}", words::of_code(error))),
        }
    }

    /// Whether a message that comes is meant for it: before it is ready only what a session has kept is.
    fn hears(&self) -> bool {
        let is_lasting = || self.errand.as_ref().is_some_and(|errand| errand.is_lasting);
        self.state == State::Ready || self.state == State::Subscribing && is_lasting()
    }

    /// Answers what concerns the packet of a number.
    fn answer(&mut self, make: fn(MqttVersion, u16) -> Result<Packet, MqttError>, number: u16) {
        match make(self.login.version, number) {
            Ok(packet) => {
                let events = self.connection.send(packet);
                self.take(events);
            }
            Err(error) => self.fail(&words::of_error(error)),
        }
    }

    /// A number for a packet; `None` when all are under way.
    fn number(&mut self) -> Option<u16> {
        if self.errand.is_none() {
            return self.connection.acquire_packet_id().ok();
        }
        // No more are under way than `MOST_UNDER_WAY`, so a free one is near.
        for _ in 0..=MOST_UNDER_WAY {
            let number = self.next_number.max(1);
            self.next_number = number.wrapping_add(1);
            if self.connection.register_packet_id(number).is_ok() {
                return Some(number);
            }
        }
        None
    }

    /// The broker has answered to the subscription; the lowest quality of service that it grants.
    fn subscribed(&mut self, refusal: Option<String>, lowest: Option<u8>) {
        if let Some(why) = refusal {
            let filter = &self.login.filter;
            let to = if filter.is_empty() { String::new() } else { format!(" to {filter}") };
            return self.fail(&format!("refused to subscribe{to}: {why}"));
        }
        let wanted = self.login.qos.min(2);
        if let Some(granted) = lowest.filter(|granted| *granted < wanted) {
            self.note =
                Some(format!("brings messages with QoS {granted}, not {wanted}: it grants the subscription no more"));
        }
        self.state = State::Ready;
    }

    fn acknowledged(&mut self, refusal: Option<impl fmt::Debug>) {
        if let Some(code) = refusal {
            self.ending = Ending::Refused;
            self.fail(&format!("refused a message: {}", words::of_code(code)));
        }
    }
}

/// Number of the message that a packet refuses (MQTT 5.0, sections 3.4.2.1 and 3.5.2.1).
fn refused_by(packet: &Packet) -> Option<u16> {
    match packet {
        Packet::V5_0Puback(answer) if answer.reason_code().is_some_and(|code| code.is_failure()) => {
            Some(answer.packet_id())
        }
        Packet::V5_0Pubrec(answer) if answer.reason_code().is_some_and(|code| code.is_failure()) => {
            Some(answer.packet_id())
        }
        _ => None,
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
            // A second one would have all that is under way sent again.
            if whole[0] >> 4 == CONNACK >> 4 && self.state != State::Connecting {
                return self.fail("broke the protocol: it let this client in twice");
            }
            taken += length;
            let plain = packet::plain_pubrec(whole).filter(|_| self.login.version == MqttVersion::V5);
            let whole = plain.as_ref().map_or(whole, <[u8; 4]>::as_slice);
            let events = self.connection.recv(&mut Cursor::new(whole));
            self.take(events);
        }
        self.input.drain(..taken);
    }

    fn next_message(&mut self) -> Option<Message> {
        self.inbox.pop_front()
    }

    fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    fn publish(&mut self, topic: &str, payload: &[u8]) -> Result<bool, String> {
        let letter = Letter { topic, payload, tag: None, is_casual: false };
        self.post(&letter).map(|posted| posted != Posted::Later)
    }

    fn post(&mut self, letter: &Letter<'_>) -> Result<Posted, String> {
        let qos = if letter.is_casual { Qos::AtMostOnce } else { make::qos(self.login.qos) };
        let is_full = || self.connection.get_receive_maximum_vacancy_for_send() == Some(0);
        if qos != Qos::AtMostOnce && is_full() {
            return Ok(Posted::Later);
        }
        let number = match qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => match self.number() {
                Some(number) => Some(number),
                None => return Ok(Posted::Later),
            },
        };
        let made = make::publish(self.login.version, letter, qos, number)
            .map_err(|error| format!("takes no such message: {}", words::of_code(error)));
        let fits = made.and_then(|packet| match self.most_packet_bytes {
            Some(most) if packet.size() > most as usize => {
                Err(format!("takes no such message: its limit is {most} bytes (Maximum Packet Size)"))
            }
            _ => Ok(packet),
        });
        let packet = match fits {
            Ok(packet) => packet,
            Err(why) => {
                // It was never used.
                number.into_iter().for_each(|number| drop(self.connection.release_packet_id(number)));
                return Err(why);
            }
        };
        let events = self.connection.send(packet);
        self.take(events);
        self.failure.clone().map_or(Ok(Posted::Taken(number)), Err)
    }

    fn next_confirmed(&mut self) -> Option<u16> {
        self.confirmed.pop_front()
    }

    fn next_ticket(&self) -> Option<u16> {
        self.errand.as_ref().map(|_| self.next_number)
    }

    fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn takes_tags(&self) -> bool {
        self.errand.is_some() && self.login.version == MqttVersion::V5
    }

    fn acknowledge(&mut self, message: &Message) {
        let (Some(_), Some((number, exactly_once))) = (&self.errand, message.number) else { return };
        self.answer(if exactly_once { make::pubrec } else { make::puback }, number);
    }

    fn say_goodbye(&mut self) {
        // DISCONNECT without a reason is the same in both versions (MQTT 5.0, section 3.14.2.1).
        self.output.extend_from_slice(&[0xE0, 0]);
    }

    fn ending(&self) -> Ending {
        self.ending
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

//! The client against brokers of a few bytes: well behaved, refusing, and bad.

use proptest::prelude::*;

use super::{Client, Ending, Errand, Letter, Login, MqttClient, MqttVersion, Posted};

fn login(version: MqttVersion, qos: u8) -> MqttClient {
    let filter = "t/1/rep".to_owned();
    let (user, password) = (Some("ann".to_owned()), Some(b"secret".to_vec()));
    MqttClient::new(Login { version, client: "taut-1".to_owned(), user, password, filter, qos }).unwrap()
}

/// CONNACK (MQTT 3.1.1, section 3.2; with no properties in MQTT 5).
const fn taken(version: MqttVersion) -> &'static [u8] {
    match version {
        MqttVersion::V3 => &[0x20, 2, 0, 0],
        MqttVersion::V5 => &[0x20, 3, 0, 0, 0],
    }
}

/// SUBACK of packet 1.
const fn subscribed(version: MqttVersion) -> &'static [u8] {
    match version {
        MqttVersion::V3 => &[0x90, 3, 0, 1, 1],
        MqttVersion::V5 => &[0x90, 4, 0, 1, 0, 1],
    }
}

fn ready(version: MqttVersion, qos: u8) -> MqttClient {
    let mut client = login(version, qos);
    client.handle(taken(version));
    client.handle(subscribed(version));
    assert!(client.is_ready(), "{client:?}");
    client.wrote(usize::MAX);
    client
}

fn failure(mut client: MqttClient, bytes: &[u8]) -> String {
    client.handle(bytes);
    client.failure().unwrap_or_else(|| panic!("{bytes:x?} is taken by {client:?}")).to_owned()
}

const VERSIONS: [MqttVersion; 2] = [MqttVersion::V3, MqttVersion::V5];

#[test]
fn it_logs_in_publishes_and_acknowledges() {
    for version in VERSIONS {
        let mut client = login(version, 1);
        assert_eq!(client.output()[0], 0x10, "CONNECT");
        let text = String::from_utf8_lossy(client.output()).into_owned();
        assert!(text.contains("taut-1") && text.contains("ann") && text.contains("secret"), "{text:?}");
        client.wrote(usize::MAX);
        client.handle(taken(version));
        assert_eq!(client.output()[0], 0x82, "SUBSCRIBE");
        client.wrote(usize::MAX);
        assert!(!client.is_ready());
        client.handle(subscribed(version));
        assert!(client.is_ready());
        assert!(client.publish("t/1/req", b"hello").unwrap());
        assert_eq!(client.output()[0], 0x32, "PUBLISH with QoS 1");
        client.wrote(usize::MAX);
        // Its own acknowledgement, and a message of packet 7 in two pieces.
        client.handle(&[0x40, 2, 0, 1]);
        let message: &[u8] = match version {
            MqttVersion::V3 => b"\x32\x0d\x00\x07t/1/rep\x00\x07hi",
            MqttVersion::V5 => b"\x32\x0e\x00\x07t/1/rep\x00\x07\x00hi",
        };
        client.handle(&message[..5]);
        assert!(client.next_message().is_none());
        client.handle(&message[5..]);
        let heard = client.next_message().unwrap();
        assert_eq!((heard.topic.as_str(), heard.payload()), ("t/1/rep", &b"hi"[..]));
        assert_eq!(client.output()[..4], [0x40, 2, 0, 7], "PUBACK of packet 7");
        assert_eq!(client.failure(), None);
    }
}

#[test]
fn no_more_is_under_way_than_the_broker_lets() {
    let mut client = login(MqttVersion::V5, 1);
    // Receive Maximum 2 (MQTT 5.0, section 3.2.2.3.3).
    client.handle(&[0x20, 6, 0, 0, 3, 0x21, 0, 2]);
    client.handle(subscribed(MqttVersion::V5));
    assert_eq!([(); 3].map(|()| client.publish("t", b"x").unwrap()), [true, true, false]);
    // Packet 1 was the subscription's, which is free again.
    let first = client.output().windows(2).find(|pair| *pair == [0, 1]).is_some();
    client.handle(if first { &[0x40, 2, 0, 1] } else { &[0x40, 2, 0, 2] });
    assert!(client.publish("t", b"x").unwrap());
}

#[test]
fn refusals_say_what_to_do() {
    use MqttVersion::{V3, V5};
    for (version, answer, words) in [
        (V3, &[0x20_u8, 2, 0, 1][..], "does not speak MQTT 3.1.1: try v=5"),
        (V3, &[0x20, 2, 0, 4], "user name or the password"),
        (V3, &[0x20, 2, 0, 5], "may want user= and password-file="),
        (V5, &[0x20, 3, 0, 0x84, 0], "does not speak MQTT 5: try v=3"),
        (V5, &[0x20, 3, 0, 0x87, 0], "may want user="),
        (V5, &[0x20, 3, 0, 0x97, 0], "quota exceeded"),
        // As one that knows MQTT 3.1.1 only answers.
        (V5, &[0x20, 2, 0, 1], "else v=3"),
        (V3, b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it a broker"),
        (V3, b"SSH-2.0-OpenSSH\r\n", "is it a broker"),
    ] {
        let said = failure(login(version, 0), answer);
        assert!(said.contains(words), "{answer:x?}: {said}");
    }
    for (version, answer) in [(V3, &[0x90_u8, 3, 0, 1, 0x80][..]), (V5, &[0x90, 4, 0, 1, 0, 0x87])] {
        let mut client = login(version, 0);
        client.handle(taken(version));
        let said = failure(client, answer);
        assert!(said.contains("refused to subscribe to t/1/rep"), "{said}");
    }
    assert!(failure(ready(V5, 1), &[0xE0, 2, 0x8E, 0]).contains("session taken over"));
}

#[test]
fn a_bad_broker_ends_the_connection_and_takes_no_memory() {
    for version in VERSIONS {
        // Acknowledges what was never published; numbers of 0; a packet of 256 MiB; a length that does not end.
        for bytes in [
            &[0x40_u8, 2, 0x12, 0x34][..],
            &[0x3A, 4, 0, 0, 0, 0],
            &[0x62, 2, 0, 0],
            &[0x30, 0xFF, 0xFF, 0xFF, 0x7F],
            &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1],
        ] {
            let said = failure(ready(version, 1), bytes);
            assert!(said.contains("sent a packet") || said.contains("broke the protocol"), "{bytes:x?}: {said}");
        }
        // What comes before it was asked for is not kept.
        let mut client = login(version, 0);
        client.handle(taken(version));
        for _ in 0..1000 {
            client.handle(if version == MqttVersion::V3 { b"\x30\x04\x00\x01xy" } else { b"\x30\x05\x00\x01x\x00y" });
        }
        assert!(client.next_message().is_none());
    }
}

fn on_errand(version: MqttVersion, qos: u8, is_lasting: bool) -> MqttClient {
    let also = vec!["a".to_owned(), "a/sent".to_owned()];
    let login = Login { version, client: "r".to_owned(), user: None, password: None, filter: String::new(), qos };
    MqttClient::on_errand(login, Errand { is_lasting, also }, 7).unwrap()
}

#[test]
fn a_lasting_session_is_asked_for_and_its_messages_are_taken_before_the_subscription() {
    for version in VERSIONS {
        for is_lasting in [false, true] {
            let mut client = on_errand(version, 1, is_lasting);
            // Connect flags stand behind length, name and level of the protocol (MQTT 5.0, section 3.1.2.3).
            assert_eq!(client.output()[9] & 2 == 0, is_lasting, "{version:?}");
            // Session Expiry Interval, a day (section 3.1.2.11.2).
            let expiry = [0x11, 0, 1, 0x51, 0x80];
            let has_expiry = client.output().windows(5).any(|five| five == expiry);
            assert_eq!(has_expiry, is_lasting && version == MqttVersion::V5);
            client.wrote(usize::MAX);
            client.handle(taken(version));
            let subscribe = String::from_utf8_lossy(client.output()).into_owned();
            assert!(subscribe.contains("a/sent") && client.output()[2..4] == [0, 7], "{subscribe:?}");
            client.handle(if version == MqttVersion::V3 {
                b"\x32\x07\x00\x01a\x00\x09hi"
            } else {
                b"\x32\x08\x00\x01a\x00\x09\x00hi"
            });
            assert_eq!(client.next_message().is_some(), is_lasting);
        }
    }
}

#[test]
fn on_an_errand_a_message_is_acknowledged_when_it_is_taken_for_good() {
    for version in VERSIONS {
        for (first, answer) in [(0x32_u8, 0x40_u8), (0x34, 0x50)] {
            let mut client = on_errand(version, 2, true);
            client.handle(taken(version));
            client.handle(match version {
                MqttVersion::V3 => &[0x90, 4, 0, 7, 2, 2],
                MqttVersion::V5 => &[0x90, 5, 0, 7, 0, 2, 2],
            });
            assert!(client.is_ready());
            client.wrote(usize::MAX);
            let message: &[u8] = match version {
                MqttVersion::V3 => &[first, 7, 0, 1, b'a', 0, 9, b'h', b'i'],
                MqttVersion::V5 => &[first, 8, 0, 1, b'a', 0, 9, 0, b'h', b'i'],
            };
            client.handle(message);
            let heard = client.next_message().unwrap();
            assert!(client.output().is_empty());
            client.acknowledge(&heard);
            assert_eq!(client.output()[..4], [answer, 2, 0, 9], "{version:?}");
            client.wrote(usize::MAX);
            if first == 0x34 {
                client.handle(&[0x62, 2, 0, 9]);
                assert_eq!(client.output()[..4], [0x70, 2, 0, 9], "PUBCOMP");
            }
            assert_eq!(client.failure(), None);
        }
    }
}

#[test]
fn who_only_publishes_subscribes_to_nothing() {
    for version in VERSIONS {
        let login =
            Login { version, client: "w".to_owned(), user: None, password: None, filter: String::new(), qos: 1 };
        let errand = Errand { is_lasting: false, also: Vec::new() };
        let mut client = MqttClient::on_errand(login, errand, 7).unwrap();
        client.wrote(usize::MAX);
        client.handle(taken(version));
        assert!(client.is_ready() && client.output().is_empty(), "{client:?}");
        let letter = Letter { topic: "a", payload: b"x", tag: None, is_casual: false };
        assert_eq!(client.post(&letter), Ok(Posted::Taken(Some(7))));
    }
}

#[test]
fn a_tag_and_tickets_go_with_messages() {
    for (version, qos) in VERSIONS.into_iter().flat_map(|version| [(version, 1), (version, 2)]) {
        let mut client = on_errand(version, qos, false);
        client.handle(taken(version));
        client.handle(match version {
            MqttVersion::V3 => &[0x90, 4, 0, 7, 1, 1],
            MqttVersion::V5 => &[0x90, 5, 0, 7, 0, 1, 1],
        });
        while client.next_confirmed().is_some() {}
        client.wrote(usize::MAX);
        assert_eq!(client.takes_tags(), version == MqttVersion::V5);
        let letter = Letter { topic: "a", payload: b"x", tag: Some("1 2 3"), is_casual: false };
        assert_eq!(client.post(&letter), Ok(Posted::Taken(Some(8))));
        let has_tag = String::from_utf8_lossy(client.output()).contains("1 2 3");
        assert_eq!(has_tag, version == MqttVersion::V5);
        let casual = Letter { is_casual: true, ..letter };
        assert_eq!(client.post(&casual), Ok(Posted::Taken(None)));
        client.wrote(usize::MAX);
        if qos == 2 {
            client.handle(&[0x50, 2, 0, 8]);
            assert_eq!((client.next_confirmed(), &client.output()[..4]), (None, &[0x62, 2, 0, 8][..]));
            client.handle(&[0x70, 2, 0, 8]);
        } else {
            client.handle(&[0x40, 2, 0, 8]);
        }
        assert_eq!((client.next_confirmed(), client.next_confirmed()), (Some(8), None));
    }
    // What another client's message has with it.
    let mut client = on_errand(MqttVersion::V5, 0, false);
    client.handle(taken(MqttVersion::V5));
    client.handle(&[0x90, 5, 0, 7, 0, 0, 0]);
    client.handle(b"\x30\x11\x00\x01a\x0c\x26\x00\x04taut\x00\x03x yz");
    let heard = client.next_message().unwrap();
    assert_eq!((heard.tag.as_deref(), heard.payload()), (Some("x y"), &b"z"[..]));
    client.handle(&[0xE0, 2, 0x8E, 0]);
    assert_eq!(client.ending(), Ending::TakenOver);
}

#[test]
fn what_the_broker_refuses_is_not_confirmed_and_what_nobody_hears_is() {
    let posted = |qos: u8| {
        let mut client = on_errand(MqttVersion::V5, qos, false);
        client.handle(taken(MqttVersion::V5));
        client.handle(&[0x90, 5, 0, 7, 0, qos, qos]);
        while client.next_confirmed().is_some() {}
        let letter = Letter { topic: "a", payload: b"x", tag: None, is_casual: false };
        assert_eq!(client.post(&letter), Ok(Posted::Taken(Some(8))));
        client.wrote(usize::MAX);
        client
    };
    // Not authorized, as PUBACK and as PUBREC.
    for (qos, first) in [(1, 0x40_u8), (2, 0x50)] {
        let mut client = posted(qos);
        client.handle(&[first, 3, 0, 8, 0x87]);
        assert_eq!((client.next_confirmed(), client.ending()), (None, Ending::Refused));
        assert!(client.failure().is_some_and(|why| why.contains("refused a message: not authorized")), "{client:?}");
    }
    // No matching subscribers.
    let mut client = posted(1);
    client.handle(&[0x40, 3, 0, 8, 0x10]);
    assert_eq!((client.next_confirmed(), client.failure()), (Some(8), None));
    let mut client = posted(2);
    client.handle(&[0x50, 3, 0, 8, 0x10]);
    assert_eq!((client.next_confirmed(), &client.output()[..4]), (None, &[0x62, 2, 0, 8][..]));
    client.handle(&[0x70, 2, 0, 8]);
    assert_eq!((client.next_confirmed(), client.failure()), (Some(8), None));
}

#[test]
fn one_message_that_is_too_large_for_the_broker_does_not_end_the_connection() {
    let mut client = on_errand(MqttVersion::V5, 1, false);
    // Maximum Packet Size 64 (MQTT 5.0, section 3.2.2.3.6).
    client.handle(&[0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 64]);
    client.handle(&[0x90, 5, 0, 7, 0, 1, 1]);
    assert!(client.is_ready(), "{client:?}");
    let (large, small) = ([0; 64], [0; 8]);
    let letter = Letter { topic: "a", payload: &large, tag: None, is_casual: false };
    let why = client.post(&letter).unwrap_err();
    assert!(why.contains("its limit is 64 bytes (Maximum Packet Size)"), "{why}");
    assert_eq!(client.post(&Letter { payload: &small, ..letter }), Ok(Posted::Taken(Some(9))));
    assert_eq!(client.failure(), None);
}

#[test]
fn a_lower_quality_of_service_is_told_and_a_second_connack_is_not_taken() {
    let mut client = on_errand(MqttVersion::V5, 2, false);
    client.handle(taken(MqttVersion::V5));
    client.handle(&[0x90, 5, 0, 7, 0, 2, 1]);
    assert!(client.is_ready() && client.take_note().is_some_and(|note| note.contains("QoS 1, not 2")));
    for version in VERSIONS {
        assert!(failure(ready(version, 1), taken(version)).contains("let this client in twice"));
    }
}

proptest! {
    /// Whatever comes, no more is kept or answered than came.
    #[test]
    fn any_bytes_are_taken_or_end_the_connection(
        is_v5: bool, qos in 0_u8..3, is_ready: bool, errand in prop::option::of(any::<bool>()),
        pieces in prop::collection::vec(piece(), 0..12),
    ) {
        let version = if is_v5 { MqttVersion::V5 } else { MqttVersion::V3 };
        let mut client = match (errand, is_ready) {
            (None, true) => ready(version, qos),
            (None, false) => login(version, qos),
            (Some(is_lasting), _) => on_errand(version, qos, is_lasting),
        };
        if is_ready && errand.is_some() {
            client.handle(taken(version));
            client.handle(if is_v5 { &[0x90, 5, 0, 7, 0, 0, 0] } else { &[0x90, 4, 0, 7, 0, 0] });
        }
        client.wrote(usize::MAX);
        let mut came = 0;
        for piece in pieces {
            client.handle(&piece);
            came += piece.len();
        }
        let mut kept = 0;
        while let Some(message) = client.next_message() {
            kept += message.payload().len() + message.topic.len();
            client.acknowledge(&message);
        }
        prop_assert!(kept <= came);
        // An answer to a packet is not longer than it, but for the subscription.
        prop_assert!(client.output().len() <= 2 * came + 32, "{} of {came}", client.output().len());
        let _ = client.publish("t", b"x");
    }
}

/// Bytes that begin as packets do, so that some go far.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(any::<u8>(), 0..20);
    let packet = (any::<u8>(), body).prop_map(|(first, body)| {
        let mut packet = vec![first, body.len() as u8];
        packet.extend(body);
        packet
    });
    let publish = (0_u8..16, any::<u16>(), any::<[u8; 3]>()).prop_map(|(flags, number, payload)| {
        let [high, low] = number.to_be_bytes();
        [&[0x30 | flags, 8, 0, 1, b't', high, low][..], &payload].concat()
    });
    let known = (prop::sample::select(vec![0x40_u8, 0x50, 0x62, 0x70]), 0_u16..4).prop_map(|(first, number)| {
        let [high, low] = number.to_be_bytes();
        vec![first, 2, high, low]
    });
    prop_oneof![packet, publish, known, prop::collection::vec(any::<u8>(), 0..30)]
}

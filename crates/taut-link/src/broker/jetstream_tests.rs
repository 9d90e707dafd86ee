//! The client of JetStream against servers of a few lines: well behaved, refusing, and bad.

use proptest::prelude::*;

use super::{Client, Ending, JetStream, Letter, NatsClient, NatsLogin, Posted, Reading, Storage, StreamPlan};

const INBOX: &str = "_INBOX.taut-1";

fn plan(asks: bool, reads: Option<Option<&str>>) -> StreamPlan {
    StreamPlan {
        stream: "S".to_owned(),
        create: None,
        publishes: asks.then(|| "t.1.req".to_owned()),
        reads: reads.map(|name| Reading { filter: "t.*.req".to_owned(), name: name.map(str::to_owned) }),
    }
}

/// Logged in, with the question for the stream on its way.
fn asking(plan: StreamPlan) -> JetStream {
    let filter = plan.reads.is_none().then(|| "t.1.rep".to_owned());
    let nats = NatsClient::new(NatsLogin { filter, ..NatsLogin::default() });
    let mut client = JetStream::new(nats, INBOX.to_owned(), plan);
    client.handle(b"INFO {\"version\":\"2.9.10\",\"headers\":true}\r\n");
    let hello = written(&mut client);
    assert!(hello.contains("\"headers\":true") && hello.contains(&format!("SUB {INBOX}.> 2\r\n")), "{hello}");
    client.handle(b"PONG\r\n");
    assert_eq!(written(&mut client), format!("PUB $JS.API.STREAM.INFO.S {INBOX}.api 0\r\n\r\n"));
    assert!(!client.is_ready());
    client
}

fn written(client: &mut JetStream) -> String {
    let text = String::from_utf8(client.output().to_vec()).unwrap();
    client.wrote(usize::MAX);
    text
}

fn answer(client: &mut JetStream, to: &str, json: &str) {
    client.handle(format!("MSG {INBOX}.{to} 2 {}\r\n{json}\r\n", json.len()).as_bytes());
}

fn status(client: &mut JetStream, to: &str, status: &str) {
    let headers = format!("NATS/1.0 {status}\r\n\r\n");
    let bytes = headers.len();
    client.handle(format!("HMSG {INBOX}.{to} 2 {bytes} {bytes}\r\n{headers}\r\n").as_bytes());
}

const STREAM: &str = r#"{"type":"x","config":{"name":"S","subjects":["t.>"]}}"#;

fn asker() -> JetStream {
    let mut client = asking(plan(true, None));
    answer(&mut client, "api", STREAM);
    assert!(client.is_ready(), "{client:?}");
    client
}

fn reader() -> JetStream {
    let mut client = asking(plan(false, Some(None)));
    answer(&mut client, "api", STREAM);
    let made = written(&mut client);
    assert!(
        made.starts_with("PUB $JS.API.CONSUMER.CREATE.S ") && made.contains("\"ack_policy\":\"explicit\""),
        "{made}"
    );
    answer(&mut client, "api", r#"{"name":"anon7","config":{}}"#);
    assert!(client.is_ready(), "{client:?}");
    let asked = written(&mut client);
    assert_eq!(asked, format!("PUB $JS.API.CONSUMER.MSG.NEXT.S.anon7 {INBOX}.next 13\r\n{{\"batch\":256}}\r\n"));
    client
}

fn failure(client: &JetStream) -> &str {
    client.failure().unwrap_or_else(|| panic!("{client:?}"))
}

#[test]
fn what_is_published_is_acknowledged_by_the_stream_and_answers_come_as_they_are() {
    let mut client = asker();
    assert!(client.publish("t.1.req", b"hello").unwrap());
    assert_eq!(written(&mut client), format!("PUB t.1.req {INBOX}.ack 5\r\nhello\r\n"));
    client.handle(b"MSG t.1.rep 1 2\r\nhi\r\n");
    assert_eq!(client.next_message().unwrap().payload(), b"hi");
    answer(&mut client, "ack", r#"{"stream":"S","seq":1}"#);
    assert_eq!(client.failure(), None);
    // No more than 512 are under way.
    let taken = (0..600).filter(|_| client.publish("t.1.req", b"x").unwrap()).count();
    assert_eq!(taken, 512);
    answer(&mut client, "ack", r#"{"stream":"S","seq":2}"#);
    assert_eq!([(); 2].map(|()| client.publish("t.1.req", b"x").unwrap()), [true, false]);
}

#[test]
fn what_is_read_is_acknowledged_and_more_is_asked_for_in_time() {
    let mut client = reader();
    for number in 1..=128 {
        client.handle(format!("MSG t.9.req 2 $JS.ACK.S.anon7.1.{number}.1.0.0 2\r\nhi\r\n").as_bytes());
        let heard = client.next_message().unwrap();
        assert_eq!((heard.topic.as_str(), heard.payload()), ("t.9.req", &b"hi"[..]));
        let wrote = written(&mut client);
        assert!(wrote.starts_with(&format!("PUB $JS.ACK.S.anon7.1.{number}.1.0.0 0\r\n\r\n")), "{wrote}");
        assert_eq!(wrote.contains("{\"batch\":128}"), number == 128, "{wrote}");
    }
    // With headers of the writer's own; a sign of life; a question whose time is over.
    client.handle(b"HMSG t.9.req 2 $JS.ACK.x 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n");
    assert_eq!(client.next_message().unwrap().payload(), b"hi");
    status(&mut client, "next", "100 Idle Heartbeat");
    written(&mut client);
    status(&mut client, "next", "408 Request Timeout");
    assert!(written(&mut client).contains("{\"batch\":256}"));
    assert_eq!(client.failure(), None);
    // What it answers itself is not kept.
    assert!(client.publish("t.9.rep", b"yo").unwrap());
    assert_eq!(written(&mut client), "PUB t.9.rep 2\r\nyo\r\n");
    status(&mut client, "next", "409 Consumer Deleted");
    assert!(failure(&client).contains("ended the reading of the stream: consumer deleted"), "{client:?}");
}

/// One that carries: its core subscription is the first, its inbox the second.
fn carrier(publishes: bool, reads: bool) -> JetStream {
    let plan = StreamPlan {
        publishes: publishes.then(|| "t.1".to_owned()),
        reads: reads.then(|| Reading { filter: "t.2".to_owned(), name: Some("r".to_owned()) }),
        ..plan(false, None)
    };
    let nats = NatsClient::with_tags(NatsLogin::default(), vec!["t.2.sent".to_owned()]);
    let mut client = JetStream::carrying(nats, INBOX.to_owned(), plan);
    client.handle(b"INFO {\"version\":\"2.9.10\",\"headers\":true}\r\nPONG\r\n");
    answer(&mut client, "api", STREAM);
    if reads {
        let told = r#"{"name":"r","delivered":{"consumer_seq":4},"config":{"filter_subject":"t.2"}}"#;
        answer(&mut client, "api", told);
    }
    assert!(client.is_ready(), "{client:?}");
    written(&mut client);
    client
}

fn delivery(client: &mut JetStream, number: u64, payload: &str) {
    let (reply, header) = (format!("$JS.ACK.S.r.1.{number}.{number}.1.0"), "NATS/1.0\r\ntaut: tag\r\n\r\n");
    let (headers, bytes) = (header.len(), header.len() + payload.len());
    client.handle(format!("HMSG t.2 2 {reply} {headers} {bytes}\r\n{header}{payload}\r\n").as_bytes());
}

#[test]
fn what_is_given_again_while_it_is_with_us_is_given_on_once() {
    let mut client = carrier(false, true);
    delivery(&mut client, 5, "five");
    let again = |client: &mut JetStream| client.handle(b"MSG t.2 2 $JS.ACK.S.r.2.5.9.1.0 4\r\nfive\r\n");
    again(&mut client);
    let five = client.next_message().unwrap();
    client.acknowledge(&five);
    // On its way while the acknowledgement was.
    again(&mut client);
    assert!(client.next_message().is_none() && client.failure().is_none());
    assert_eq!(written(&mut client), "PUB $JS.ACK.S.r.1.5.5.1.0 0\r\n\r\n");
}

#[test]
fn what_is_carried_is_acknowledged_when_it_is_taken_and_given_back_at_the_end() {
    let mut client = carrier(false, true);
    delivery(&mut client, 5, "five");
    delivery(&mut client, 6, "six");
    assert_eq!(written(&mut client), "");
    let five = client.next_message().unwrap();
    assert_eq!((five.payload(), five.tag.as_deref(), five.topic.as_str()), (&b"five"[..], Some("tag"), "t.2"));
    client.acknowledge(&five);
    client.acknowledge(&five);
    assert_eq!(written(&mut client), "PUB $JS.ACK.S.r.1.5.5.1.0 0\r\n\r\n");
    // What the writer says beside the stream waits for what the stream had before.
    client.handle(b"MSG t.2.sent 1 5\r\ntally\r\n");
    assert_eq!(client.next_message().unwrap().payload(), b"six");
    assert!(client.next_message().is_none());
    assert_eq!(written(&mut client), format!("PUB $JS.API.CONSUMER.INFO.S.r {INBOX}.where 0\r\n\r\n"));
    // What readers tell of ours does not.
    client.handle(b"MSG t.1.receipt 1 2\r\n{}\r\n");
    assert_eq!(client.next_message().unwrap().topic, "t.1.receipt");
    answer(&mut client, "where", r#"{"delivered":{"consumer_seq":6},"num_pending":1}"#);
    assert!(client.next_message().is_none());
    delivery(&mut client, 7, "seven");
    assert_eq!(client.next_message().unwrap().payload(), b"seven");
    assert_eq!(client.next_message().unwrap().payload(), b"tally");
    client.say_goodbye();
    let back = |number: u64| format!("PUB $JS.ACK.S.r.1.{number}.{number}.1.0 4\r\n-NAK\r\n");
    assert_eq!(written(&mut client), format!("UNSUB 2\r\n{}{}", back(6), back(7)));
}

/// As many as are asked for at once, whether they have come or not.
#[test]
fn no_more_is_asked_for_than_is_taken() {
    let mut client = carrier(false, true);
    for number in 5..5 + 256 {
        delivery(&mut client, number, "x");
    }
    assert_eq!(written(&mut client), "");
    let mut asked = 0;
    while let Some(message) = client.next_message() {
        client.acknowledge(&message);
        asked += written(&mut client).matches("{\"batch\":128}").count();
    }
    // As many as were taken.
    assert_eq!(asked, 2);
}

#[test]
fn each_message_that_the_stream_keeps_is_told_apart_and_one_that_it_refuses_ends_it() {
    let mut client = carrier(true, false);
    let letter = |topic| Letter { topic, payload: b"x", tag: Some("1"), is_casual: false };
    assert_eq!(client.post(&letter("t.1")), Ok(Posted::Taken(Some(1))));
    assert_eq!(client.post(&letter("t.1")), Ok(Posted::Taken(Some(2))));
    let header = "NATS/1.0\r\ntaut: 1\r\n\r\n";
    assert!(written(&mut client).starts_with(&format!("HPUB t.1 {INBOX}.ack.1 {} {}\r\n{header}x", 21, 22)));
    // Beside the stream nobody acknowledges it.
    assert_eq!(client.post(&letter("t.1.sent")), Ok(Posted::Taken(None)));
    answer(&mut client, "ack.2", r#"{"stream":"S","seq":2}"#);
    answer(&mut client, "ack.1", r#"{"stream":"S","seq":1}"#);
    assert_eq!([client.next_confirmed(), client.next_confirmed(), client.next_confirmed()], [Some(2), Some(1), None]);
    client.post(&letter("t.1")).unwrap();
    answer(&mut client, "ack.3", r#"{"error":{"err_code":10077,"description":"maximum messages exceeded"}}"#);
    assert_eq!(client.ending(), Ending::Refused);
    assert!(failure(&client).contains("did not keep a message: maximum messages exceeded"), "{client:?}");
}

#[test]
fn a_stream_that_is_missing_is_made_where_that_is_asked_for() {
    const MISSING: &str = r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
    let mut client = asking(plan(true, None));
    answer(&mut client, "api", MISSING);
    assert!(failure(&client).contains("has no stream S") && failure(&client).contains("create=memory"), "{client:?}");
    let subjects = vec!["t.*.req".to_owned(), "t.*.own".to_owned()];
    let mut client = asking(StreamPlan { create: Some((Storage::Memory, subjects)), ..plan(true, None) });
    answer(&mut client, "api", MISSING);
    let made = written(&mut client);
    assert!(made.starts_with("PUB $JS.API.STREAM.CREATE.S ") && made.contains("\"max_bytes\":67108864"), "{made}");
    answer(&mut client, "api", r#"{"config":{"subjects":["t.*.req","t.*.own"]}}"#);
    assert!(client.is_ready());
}

#[test]
fn a_reader_with_a_name_goes_on_where_it_was_and_is_no_one_elses() {
    let looking = || {
        let mut client = asking(plan(false, Some(Some("r"))));
        answer(&mut client, "api", STREAM);
        assert_eq!(written(&mut client), format!("PUB $JS.API.CONSUMER.INFO.S.r {INBOX}.api 0\r\n\r\n"));
        client
    };
    let mut client = looking();
    answer(&mut client, "api", r#"{"name":"r","config":{"filter_subject":"t.*.req"}}"#);
    assert!(client.is_ready());
    let mut client = looking();
    answer(&mut client, "api", r#"{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}"#);
    let made = written(&mut client);
    assert!(made.contains("CONSUMER.DURABLE.CREATE.S.r ") && made.contains("\"durable_name\":\"r\""), "{made}");
    for (config, words) in [
        (r#"{"filter_subject":"orders"}"#, "does not read t.*.req"),
        ("{}", "does not read t.*.req"),
        (r#"{"filter_subject":"t.*.req","deliver_subject":"d"}"#, "pushed to"),
    ] {
        let mut client = looking();
        answer(&mut client, "api", &format!("{{\"name\":\"r\",\"config\":{config}}}"));
        assert!(failure(&client).contains(words) && failure(&client).contains("reader=NAME"), "{client:?}");
    }
}

#[test]
fn refusals_and_bad_answers_are_named() {
    let mut client = asking(plan(true, None));
    status(&mut client, "api", "503");
    assert!(failure(&client).contains("has no JetStream"), "{client:?}");
    for (json, words) in [
        (r#"{"config":{"subjects":["a","b.*"]}}"#, "does not keep t.1.req: its subjects are a, b.*"),
        (
            r#"{"error":{"err_code":10039,"description":"jetstream not enabled for account"}}"#,
            "not enabled for account",
        ),
        ("{", "can't be read"),
    ] {
        let mut client = asking(plan(true, None));
        answer(&mut client, "api", json);
        assert!(failure(&client).contains(words), "{client:?}");
    }
    for (json, words) in [
        (
            r#"{"error":{"err_code":10077,"description":"maximum messages exceeded"}}"#,
            "did not keep a message: maximum",
        ),
        (r#"{"stream":"T","seq":1}"#, "for another stream"),
        (r#"[]x"#, "can't be read"),
    ] {
        let mut client = asker();
        client.publish("t.1.req", b"x").unwrap();
        answer(&mut client, "ack", json);
        assert!(failure(&client).contains(words), "{client:?}");
    }
    let mut client = asker();
    answer(&mut client, "ack", r#"{"stream":"S","seq":1}"#);
    assert!(failure(&client).contains("never published"), "{client:?}");
    let mut client = asker();
    client.publish("t.1.req", b"x").unwrap();
    status(&mut client, "ack", "503");
    assert!(failure(&client).contains("no stream has its subject"), "{client:?}");
    // A name that would end the line in which we say it.
    for name in ["", "a b", "a\\r\\nPUB x 0", &"n".repeat(256)] {
        let mut client = asking(plan(false, Some(None)));
        answer(&mut client, "api", STREAM);
        answer(&mut client, "api", &format!("{{\"name\":\"{name}\"}}"));
        assert!(failure(&client).contains("has no name"), "{name}: {client:?}");
    }
    // More than was asked for, and what nobody can acknowledge.
    let mut client = reader();
    client.handle(b"MSG t.9.req 2 elsewhere 2\r\nhi\r\n");
    assert!(failure(&client).contains("nobody here has asked for"), "{client:?}");
    let mut client = asker();
    client.handle(b"MSG t.9.req 2 $JS.ACK.x 2\r\nhi\r\n");
    assert!(failure(&client).contains("nobody here has asked for"), "{client:?}");
    let mut client = asker();
    client.handle(b"HMSG t.1.rep 1 9 8\r\n");
    assert!(failure(&client).contains("larger than what is taken"), "{client:?}");
}

proptest! {
    /// Whatever comes, no more is kept than came, and answers are not much longer.
    #[test]
    fn any_bytes_are_taken_or_end_it(pieces in prop::collection::vec(piece(), 0..12), reads: bool) {
        let mut client = if reads { reader() } else { asker() };
        let mut came = 0;
        for piece in pieces {
            client.handle(&piece);
            came += piece.len();
        }
        let kept: usize = std::iter::from_fn(|| client.next_message()).map(|heard| heard.payload().len()).sum();
        prop_assert!(kept <= came);
        prop_assert!(client.output().len() <= 3 * came + 100, "{} of {came}", client.output().len());
    }
}

/// Lines that begin as a server's do, so that some go far.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let place = prop::sample::select(vec!["_INBOX.taut-1.api", "_INBOX.taut-1.ack", "_INBOX.taut-1.next", "t.1.req"]);
    let reply = prop::sample::select(vec!["", "$JS.ACK.x "]);
    let json = prop::sample::select(vec![r#"{"stream":"S"}"#, r#"{"error":{}}"#, "{", "x"]);
    let message = (place.clone(), reply, json)
        .prop_map(|(place, reply, json)| format!("MSG {place} 2 {reply}{}\r\n{json}\r\n", json.len()).into_bytes());
    let status = (place, 0_u16..600, 0_usize..40).prop_map(|(place, number, length)| {
        let headers = format!("NATS/1.0 {number} x\r\n\r\n");
        format!("HMSG {place} 2 {length} {}\r\n{headers}\r\n", headers.len()).into_bytes()
    });
    prop_oneof![message, status, prop::collection::vec(any::<u8>(), 0..30)]
}

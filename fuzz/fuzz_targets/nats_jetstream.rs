//! Whatever a NATS server sends to a client of JetStream, in whatever pieces: it keeps no more than came, answers
//! little, or ends the connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_link::broker::{Client, JetStream, Letter, NatsClient, NatsLogin, Reading, StreamPlan};

const INBOX: &str = "_INBOX.i";

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, mut rest)) = bytes.split_first() else { return };
    let reads = how & 1 != 0;
    let name = (how & 2 != 0).then(|| "r".to_owned());
    let plan = StreamPlan {
        stream: "S".to_owned(),
        create: None,
        publishes: (!reads).then(|| "t".to_owned()),
        reads: reads.then(|| Reading { filter: "t".to_owned(), name }),
    };
    let carries = how & 0x80 != 0;
    let mut client = if carries {
        // What is said beside the stream is heard as well, by the first subscription.
        let nats = NatsClient::with_tags(NatsLogin::default(), vec!["t.sent".to_owned()]);
        JetStream::carrying(nats, INBOX.to_owned(), plan)
    } else {
        JetStream::new(NatsClient::new(NatsLogin::default()), INBOX.to_owned(), plan)
    };
    client.handle(b"INFO {\"version\":\"2\",\"max_payload\":1048576}\r\nPONG\r\n");
    if how & 4 != 0 {
        let stream = r#"{"config":{"subjects":["t"]}}"#;
        client.handle(format!("MSG {INBOX}.api 2 {}\r\n{stream}\r\n", stream.len()).as_bytes());
    }
    client.wrote(usize::MAX);
    let came = rest.len();
    let piece = usize::from(how >> 4 & 7) + 1;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        client.handle(now);
        rest = later;
        if how & 8 != 0 {
            let letter = Letter { topic: "t", payload: b"x", tag: Some("1"), is_casual: false };
            let _ = if carries { client.post(&letter).map(drop) } else { client.publish("t", b"x").map(drop) };
            client.wrote(usize::MAX);
            while client.next_confirmed().is_some() {}
        }
    }
    let mut kept = 0;
    while let Some(message) = client.next_message() {
        kept += message.payload().len() + message.topic.len();
        client.acknowledge(&message);
    }
    assert!(kept <= came, "{kept} bytes are kept of {came}");
    // A reader's name has 255 bytes at most, and is in the question that follows each 42 bytes which say that there was
    // no message. A reader that is to be made takes the longest question.
    assert!(client.output().len() <= 10 * came + 600, "{} bytes answer {came}", client.output().len());
});

//! Whatever a NATS server sends, in whatever pieces: the client keeps and answers no more than came, or ends the
//! connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_link::broker::{Client, NatsClient, NatsLogin};

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, mut rest)) = bytes.split_first() else { return };
    let filter = Some("t".to_owned());
    let mut client = NatsClient::new(NatsLogin { name: "taut-1".to_owned(), user: None, password: None, filter });
    if how & 1 != 0 {
        client.handle(b"INFO {\"version\":\"2\",\"max_payload\":1048576}\r\nPONG\r\n");
        assert!(client.is_ready());
    }
    client.wrote(usize::MAX);
    let came = rest.len();
    let piece = usize::from(how >> 2) + 1;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        client.handle(now);
        rest = later;
        if how & 2 != 0 {
            let _ = client.publish("t", b"x");
            client.wrote(usize::MAX);
        }
    }
    let mut kept = 0;
    while let Some(message) = client.next_message() {
        kept += message.payload().len() + message.topic.len();
    }
    assert!(kept <= came, "{kept} bytes are kept of {came}");
    // A CONNECT, a SUB and a PING answer the greeting, and a PONG each PING.
    assert!(client.output().len() <= came + 400, "{} bytes answer {came}", client.output().len());
});

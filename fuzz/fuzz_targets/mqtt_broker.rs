//! Whatever a broker sends, in whatever pieces: the client keeps and answers no more than came, or ends the connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_link::broker::{Client, Login, MqttClient, MqttVersion};

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, mut rest)) = bytes.split_first() else { return };
    let version = if how & 1 == 0 { MqttVersion::V3 } else { MqttVersion::V5 };
    let login = Login {
        version,
        client: "taut-1".to_owned(),
        user: None,
        password: None,
        filter: "t".to_owned(),
        qos: (how >> 1) & 3,
    };
    let mut client = MqttClient::new(login).expect("a login like this can be said");
    if how & 8 != 0 {
        client.handle(if how & 1 == 0 { &[0x20, 2, 0, 0] } else { &[0x20, 3, 0, 0, 0] });
        client.handle(if how & 1 == 0 { &[0x90, 3, 0, 1, 1] } else { &[0x90, 4, 0, 1, 0, 1] });
    }
    client.wrote(usize::MAX);
    let came = rest.len();
    let piece = usize::from(how >> 4) + 1;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        client.handle(now);
        rest = later;
        if how & 16 != 0 {
            let _ = client.publish("t", b"x");
            client.wrote(usize::MAX);
        }
    }
    let mut kept = 0;
    while let Some(message) = client.next_message() {
        kept += message.payload().len() + message.topic.len();
    }
    assert!(kept <= came, "{kept} bytes are kept of {came}");
    assert!(client.output().len() <= 2 * came + 32, "{} bytes answer {came}", client.output().len());
});

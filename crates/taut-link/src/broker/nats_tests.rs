//! The client of NATS against servers of a few lines: well behaved, refusing, and bad.

use proptest::prelude::*;

use super::{Client, Ending, Letter, NatsClient, NatsLogin, Posted};

const INFO: &[u8] = b"INFO {\"server_id\":\"N\",\"version\":\"2.9.10\",\"max_payload\":64,\"headers\":true}\r\n";

fn greeted() -> NatsClient {
    let filter = Some("t.1.rep".to_owned());
    let (user, password) = (Some("ann".to_owned()), Some("sec\"ret".to_owned()));
    let mut client = NatsClient::new(NatsLogin { name: "taut-1".to_owned(), user, password, filter });
    client.handle(INFO);
    client
}

fn ready() -> NatsClient {
    let mut client = greeted();
    client.handle(b"PONG\r\n");
    assert!(client.is_ready(), "{client:?}");
    client.wrote(usize::MAX);
    client
}

fn failure(mut client: NatsClient, bytes: &[u8]) -> String {
    client.handle(bytes);
    client.failure().unwrap_or_else(|| panic!("{bytes:x?} is taken by {client:?}")).to_owned()
}

#[test]
fn it_logs_in_publishes_and_hears() {
    let client = greeted();
    let text = String::from_utf8(client.output().to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let connect: serde_json::Value =
        serde_json::from_str(lines.next().unwrap().strip_prefix("CONNECT ").unwrap()).unwrap();
    assert_eq!((&connect["user"], &connect["pass"]), (&"ann".into(), &"sec\"ret".into()), "{connect}");
    assert_eq!((&connect["verbose"], &connect["auth_token"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(lines.collect::<Vec<_>>(), ["SUB t.1.rep 1", "PING", ""]);
    assert!(!client.is_ready());
    let mut client = ready();
    assert_eq!(client.about().as_deref(), Some("nats-server 2.9.10"));
    assert!(client.publish("t.1.req", b"hello").unwrap());
    assert_eq!(client.output(), b"PUB t.1.req 5\r\nhello\r\n");
    client.wrote(usize::MAX);
    // A message in three pieces, with a line end in it; one with a place to reply to; a ping between them.
    client.handle(b"MSG t.1.rep 1 4\r\nh\r");
    client.handle(b"\nx");
    assert!(client.next_message().is_none());
    client.handle(b"\r\nPING\r\nMSG t.1.rep 1 _INBOX.7 0\r\n\r\n+OK\r\n");
    let heard = [client.next_message().unwrap(), client.next_message().unwrap()];
    assert_eq!(heard.each_ref().map(|heard| heard.payload()), [&b"h\r\nx"[..], b""]);
    assert_eq!(heard[0].topic, "t.1.rep");
    assert_eq!(client.output(), b"PONG\r\n");
    assert_eq!((client.next_message().is_none(), client.failure()), (true, None));
}

#[test]
fn nothing_is_said_before_tls_has_begun() {
    let login = || NatsLogin { user: Some("ann".to_owned()), password: Some("s3".to_owned()), ..NatsLogin::default() };
    let mut client = NatsClient::new(login());
    client.handle(b"INFO {\"tls_required\":true}\r\n");
    assert!(client.wants_tls() && client.output().is_empty() && !client.is_ready(), "{client:?}");
    client.secured();
    let text = String::from_utf8(client.output().to_vec()).unwrap();
    assert!(text.contains("\"tls_required\":true") && text.contains("s3"), "{text}");
    assert!(!client.wants_tls());
    client.handle(b"PONG\r\n");
    assert!(client.is_ready());
    // Offered only: as the address has it.
    let offered = b"INFO {\"tls_available\":true}\r\n";
    for insists in [false, true] {
        let mut client = NatsClient::new(login());
        client.insist_on_tls(insists);
        client.handle(offered);
        assert_eq!((client.wants_tls(), client.output().is_empty()), (insists, insists));
    }
    let mut client = NatsClient::new(login());
    client.insist_on_tls(true);
    let said = failure(client, INFO);
    assert!(said.contains("offers no TLS"), "{said}");
    // What somebody on the way adds is not taken for what comes over TLS.
    let said = failure(NatsClient::new(login()), b"INFO {\"tls_required\":true}\r\nPONG\r\n");
    assert!(said.contains("before TLS had begun"), "{said}");
}

#[test]
fn a_password_without_a_user_is_a_token() {
    let login = NatsLogin { password: Some("s3".to_owned()), ..NatsLogin::default() };
    let mut client = NatsClient::new(login);
    client.handle(INFO);
    let text = String::from_utf8(client.output().to_vec()).unwrap();
    assert!(text.contains("\"auth_token\":\"s3\"") && !text.contains("pass") && !text.contains("SUB"), "{text}");
}

#[test]
fn refusals_say_what_to_do() {
    for (line, words) in [
        (&b"-ERR 'Authorization Violation'\r\n"[..], "see user= and password-file="),
        (b"-ERR 'Permissions Violation for Subscription to \"t.1.rep\"'\r\n", "refused to subscribe"),
        (b"-ERR 'Slow Consumer'\r\n", "not read as fast as they came"),
        (b"-ERR 'Maximum Connections Exceeded'\r\n", "ended the connection: maximum connections exceeded"),
        (b"-ERR\r\n", "ended the connection"),
    ] {
        let said = failure(greeted(), line);
        assert!(said.contains(words), "{said}");
    }
    let said = failure(ready(), b"-ERR 'Permissions Violation for Publish to \"t\"'\r\n");
    assert!(said.contains("refused a message"), "{said}");
    for greeting in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH\r\n", b"PONG\r\n", b"\n"] {
        let said = failure(NatsClient::new(NatsLogin::default()), greeting);
        assert!(said.contains("is it a NATS server"), "{said}");
    }
    // The server's own limit is kept to.
    let said = ready().publish("t", &[0; 65]).unwrap_err();
    assert!(said.contains("64 bytes (max_payload)"), "{said}");
    assert!(ready().publish("t", &[0; 64]).unwrap());
}

#[test]
fn a_bad_server_ends_the_connection_and_takes_no_memory() {
    for (bytes, words) in [
        (&b"MSG t.1.rep 1 99999999999999999999\r\n"[..], "without a length"),
        (b"MSG t.1.rep 1 268435456\r\n", "larger than what is taken"),
        (b"MSG t.1.rep 1 -1\r\n", "without a length"),
        (b"MSG t.1.rep 2 1\r\nx\r\n", "nobody here has subscribed to"),
        (b"MSG t.1.rep 1 1\r\nxyz\r\n", "longer than it said"),
        (b"HMSG t.1.rep 1 12 12\r\n", "no line of NATS"),
        (b"\xff\xfe\r\n", "no text"),
        (b"INFO {\r\n", "can't be read"),
    ] {
        let said = failure(ready(), bytes);
        assert!(said.contains(words), "{said}");
    }
    let endless = [b'A'; 4096];
    let mut client = ready();
    for _ in 0..17 {
        client.handle(&endless);
    }
    assert!(client.failure().is_some_and(|why| why.contains("does not end")), "{client:?}");
}

fn with_tags(info: &[u8]) -> NatsClient {
    let mut client = NatsClient::with_tags(NatsLogin::default(), vec!["a".to_owned(), "a.sent".to_owned()]);
    client.handle(info);
    let text = String::from_utf8_lossy(client.output()).into_owned();
    assert!(text.contains("\"headers\":true") && text.contains("SUB a 1\r\nSUB a.sent 2\r\n"), "{text}");
    client.handle(b"PONG\r\n");
    client.wrote(usize::MAX);
    client
}

#[test]
fn a_tag_is_a_header_where_the_server_knows_them() {
    let mut client = with_tags(INFO);
    assert!(client.takes_tags());
    let letter = Letter { topic: "a", payload: b"xy", tag: Some("1 2 3"), is_casual: false };
    assert_eq!(client.post(&letter), Ok(Posted::Taken(None)));
    assert_eq!(client.output(), b"HPUB a 25 27\r\nNATS/1.0\r\ntaut: 1 2 3\r\n\r\nxy\r\n");
    client.handle(
        b"HMSG a 1 25 27\r\nNATS/1.0\r\ntaut: 1 2 3\r\n\r\nxy\r\nHMSG a.sent 2 r 12 13\r\nNATS/1.0\r\n\r\nz\r\n",
    );
    let heard = [client.next_message().unwrap(), client.next_message().unwrap()];
    assert_eq!(heard.each_ref().map(|heard| heard.payload()), [&b"xy"[..], b"z"]);
    assert_eq!(heard.each_ref().map(|heard| heard.tag.as_deref()), [Some("1 2 3"), None]);
    // The limit is for both together.
    assert!(client.post(&Letter { payload: &[0; 60], ..letter }).unwrap_err().contains("max_payload"));
    assert!(client.post(&Letter { payload: &[0; 60], tag: None, ..letter }).is_ok());
    let old = with_tags(b"INFO {\"version\":\"1.4\",\"max_payload\":64}\r\n");
    assert!(!old.takes_tags());
    for (bytes, words) in [
        (&b"HMSG a 1 5 4\r\n"[..], "larger"),
        (b"HMSG a 1 4\r\n", "nobody here"),
        (b"HMSG a 1 x 4\r\n", "without a length"),
        (b"HMSG a 3 1 4\r\n", "nobody here"),
        (b"-ERR 'Slow Consumer'\r\n", "not read as fast"),
    ] {
        let said = failure(with_tags(INFO), bytes);
        assert!(said.contains(words), "{bytes:x?}: {said}");
    }
    client.handle(b"-ERR 'Slow Consumer'\r\n");
    assert_eq!(client.ending(), Ending::SlowConsumer);
}

proptest! {
    /// However the bytes of messages are cut, the messages are the same.
    #[test]
    fn pieces_do_not_matter(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6), piece in 1_usize..30,
    ) {
        let mut bytes = Vec::new();
        for payload in &payloads {
            bytes.extend_from_slice(format!("MSG t.1.rep 1 {}\r\n", payload.len()).as_bytes());
            bytes.extend_from_slice(payload);
            bytes.extend_from_slice(b"\r\nPING\r\n");
        }
        let mut client = ready();
        bytes.chunks(piece).for_each(|piece| client.handle(piece));
        let heard: Vec<Vec<u8>> =
            std::iter::from_fn(|| client.next_message()).map(|heard| heard.payload().to_vec()).collect();
        prop_assert_eq!(client.failure(), None);
        prop_assert_eq!(client.output().len(), 6 * payloads.len());
        prop_assert_eq!(heard, payloads);
    }

    /// Whatever comes, no more is kept than came.
    #[test]
    fn any_bytes_are_taken_or_end_it(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
        let mut client = ready();
        bytes.chunks(piece).for_each(|piece| client.handle(piece));
        let kept: usize = std::iter::from_fn(|| client.next_message()).map(|heard| heard.payload().len()).sum();
        prop_assert!(kept <= bytes.len());
    }
}

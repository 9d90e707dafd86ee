//! The client's side of NATS (core: at most once) without I/O: a text protocol of lines, with payloads after some.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::client::{Client, Ending, Letter, MOST_BYTES, Message, Posted, TAG};

/// Who we are to the server, and what we want to hear.
#[derive(Clone, Debug, Default)]
pub struct NatsLogin {
    /// Name of the client, for the server's lists.
    pub name: String,
    /// User name.
    pub user: Option<String>,
    /// Password of the user; without a user it is a token.
    pub password: Option<String>,
    /// Subjects that are subscribed to; none where the server is only asked what it is.
    pub filter: Option<String>,
}

/// One connection to a NATS server: its INFO, our CONNECT and SUB, then messages in both directions.
#[derive(Debug)]
pub struct NatsClient {
    login: NatsLogin,
    /// Subjects that are subscribed to beside the login's.
    also: Vec<String>,
    /// Whether messages may have headers, where the server knows them.
    wants_tags: bool,
    ending: Ending,
    state: State,
    server: Info,
    /// A message whose payload is still to come.
    coming: Option<Coming>,
    /// The beginning of a line or of a payload.
    input: Vec<u8>,
    output: Vec<u8>,
    inbox: VecDeque<Message>,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The server speaks first.
    Greeting,
    /// It has our CONNECT and SUB, and is to answer the PING behind them.
    LoggingIn,
    Ready,
}

#[derive(Debug)]
struct Coming {
    subject: String,
    /// Those of them that are headers.
    header: usize,
    bytes: usize,
}

/// What of the server's INFO concerns us.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    version: String,
    max_payload: Option<u64>,
    tls_required: bool,
    headers: bool,
}

/// What the server is told. Unless headers are asked for, none come.
#[derive(Serialize)]
struct Connect<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    name: &'a str,
    lang: &'a str,
    version: &'a str,
    protocol: u8,
    echo: bool,
    headers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
}

/// Longest line that is taken, in bytes: a server's INFO names all servers of its cluster.
const MOST_LINE_BYTES: usize = 64 * 1024;
/// What headers begin with.
const HEADERS: &str = "NATS/1.0\r\n";

impl NatsClient {
    /// A client that waits for the server's INFO.
    pub const fn new(login: NatsLogin) -> Self {
        Self {
            login,
            also: Vec::new(),
            wants_tags: false,
            ending: Ending::Open,
            state: State::Greeting,
            server: Info { version: String::new(), max_payload: None, tls_required: false, headers: false },
            coming: None,
            input: Vec::new(),
            output: Vec::new(),
            inbox: VecDeque::new(),
            failure: None,
        }
    }

    /// One that also hears what `also` stands for, and whose messages may have tags.
    pub fn with_tags(login: NatsLogin, also: Vec<String>) -> Self {
        Self { also, wants_tags: true, ..Self::new(login) }
    }

    /// Takes one line or payload off the front of `rest`; how many bytes it had, 0 when it has not come whole.
    fn take(&mut self, rest: &[u8]) -> usize {
        if let Some(Coming { bytes, .. }) = &self.coming {
            let bytes = *bytes;
            let Some(whole) = rest.get(..bytes + 2) else { return 0 };
            if whole[bytes..] != *b"\r\n" {
                self.fail("sent a message that is longer than it said");
            } else if let Some(coming) = self.coming.take().filter(|_| self.state == State::Ready) {
                // Before it is ready nothing that comes is meant for it.
                let (header, payload) = whole[..bytes].split_at(coming.header);
                self.inbox.push_back(Message::new(coming.subject, payload.to_vec()).with(None, tag_of(header)));
            }
            return bytes + 2;
        }
        let Some(end) = rest.iter().take(MOST_LINE_BYTES).position(|byte| *byte == b'\n') else {
            if rest.len() >= MOST_LINE_BYTES {
                self.fail("sent a line that does not end");
            }
            return 0;
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        match std::str::from_utf8(line) {
            Ok(line) => self.line(line),
            Err(_) => self.fail("sent a line that is no text"),
        }
        end + 1
    }

    fn line(&mut self, line: &str) {
        let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        if self.state == State::Greeting && !word.eq_ignore_ascii_case("INFO") {
            return self.fail("sent what is no greeting");
        }
        match word.to_ascii_uppercase().as_str() {
            "INFO" => self.greeted(rest),
            "PING" => self.output.extend_from_slice(b"PONG\r\n"),
            "PONG" if self.state == State::LoggingIn => self.state = State::Ready,
            "PONG" | "+OK" => {}
            "MSG" => self.message(rest, false),
            "HMSG" if self.wants_tags => self.message(rest, true),
            "-ERR" => self.refused(rest.trim_matches(['\'', ' '])),
            _ => self.fail("sent what is no line of NATS"),
        }
    }

    fn greeted(&mut self, json: &str) {
        let Ok(info) = serde_json::from_str::<Info>(json) else { return self.fail("sent an INFO that can't be read") };
        self.server = info;
        if self.server.tls_required {
            return self.fail("wants TLS, which taut does not speak to brokers yet");
        }
        // Later ones tell of changes in the cluster.
        if self.state != State::Greeting {
            return;
        }
        let NatsLogin { name, user, password, filter } = &self.login;
        let (user, password) = (user.as_deref(), password.as_deref());
        let connect = Connect {
            verbose: false,
            pedantic: false,
            tls_required: false,
            name,
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            echo: true,
            headers: self.wants_tags,
            user,
            pass: password.filter(|_| user.is_some()),
            auth_token: password.filter(|_| user.is_none()),
        };
        let Ok(connect) = serde_json::to_string(&connect) else { return self.fail("can't be told who we are") };
        let filters = filter.iter().chain(&self.also).zip(1..);
        let subscribe: String = filters.map(|(filter, number)| format!("SUB {filter} {number}\r\n")).collect();
        self.output.extend_from_slice(format!("CONNECT {connect}\r\n{subscribe}PING\r\n").as_bytes());
        self.state = State::LoggingIn;
    }

    /// `MSG SUBJECT SUBSCRIPTION [REPLY-TO] BYTES`, or `HMSG …` with the bytes of its headers before those of all; then
    /// the payload.
    fn message(&mut self, rest: &str, has_header: bool) {
        let mut words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let bytes = words.pop().map(str::parse::<usize>);
        let header = if has_header { words.pop().map(str::parse::<usize>) } else { Some(Ok(0)) };
        let subscriptions = self.login.filter.iter().chain(&self.also).count();
        let is_ours = |number: &str| number.parse().is_ok_and(|number| (1..=subscriptions).contains(&number));
        let subject = match words[..] {
            [subject, number] | [subject, number, _] if is_ours(number) => subject,
            _ => return self.fail("sent a message that nobody here has subscribed to"),
        };
        match (header, bytes) {
            (Some(Ok(header)), Some(Ok(bytes))) if header <= bytes && bytes <= MOST_BYTES => {
                self.coming = Some(Coming { subject: subject.to_owned(), header, bytes });
            }
            (Some(Ok(_)), Some(Ok(_))) => self.fail("sent a message that is larger than what is taken here"),
            _ => self.fail("sent a message without a length"),
        }
    }

    fn refused(&mut self, why: &str) {
        let lower = why.to_ascii_lowercase();
        let why: String = lower.chars().filter(|c| !c.is_control()).take(200).collect();
        if lower.starts_with("permissions violation for subscription") {
            self.fail(&format!("refused to subscribe: {why}"));
        } else if lower.starts_with("permissions violation") {
            self.ending = Ending::Refused;
            self.fail(&format!("refused a message: {why}"));
        } else if lower.starts_with("authorization") || lower.starts_with("authentication") {
            self.fail(&format!("does not let this client in ({why}): see user= and password-file="));
        } else if lower.starts_with("slow consumer") {
            self.ending = Ending::SlowConsumer;
            self.fail("ended the connection: slow consumer, its messages were not read as fast as they came");
        } else {
            self.fail(&format!("ended the connection: {why}"));
        }
    }
}

impl Client for NatsClient {
    fn is_ready(&self) -> bool {
        self.state == State::Ready && self.failure.is_none()
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn fail(&mut self, why: &str) {
        let hint = if self.state == State::Greeting { ", before it had said INFO: is it a NATS server?" } else { "" };
        self.failure.get_or_insert_with(|| format!("{why}{hint}"));
    }

    fn handle(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut taken = 0;
        while self.failure.is_none() && taken < input.len() {
            match self.take(&input[taken..]) {
                0 => break,
                bytes => taken += bytes,
            }
        }
        self.input = input;
        self.input.drain(..taken);
    }

    fn next_message(&mut self) -> Option<Message> {
        self.inbox.pop_front()
    }

    fn publish(&mut self, topic: &str, payload: &[u8]) -> Result<bool, String> {
        let letter = Letter { topic, payload, tag: None, is_casual: false };
        self.post(&letter).map(|posted| posted != Posted::Later)
    }

    fn post(&mut self, letter: &Letter<'_>) -> Result<Posted, String> {
        let Letter { topic, payload, tag, .. } = letter;
        let header = tag.map(|tag| format!("{HEADERS}{TAG}: {tag}\r\n\r\n")).unwrap_or_default();
        let bytes = header.len() + payload.len();
        if let Some(most) = self.server.max_payload.filter(|most| bytes as u64 > *most) {
            return Err(format!("takes no such message: its limit is {most} bytes (max_payload)"));
        }
        let line = match header.len() {
            0 => format!("PUB {topic} {bytes}\r\n"),
            length => format!("HPUB {topic} {length} {bytes}\r\n"),
        };
        for part in [line.as_bytes(), header.as_bytes(), payload, b"\r\n"] {
            self.output.extend_from_slice(part);
        }
        Ok(Posted::Taken(None))
    }

    fn takes_tags(&self) -> bool {
        self.wants_tags && self.server.headers
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

    fn about(&self) -> Option<String> {
        (!self.server.version.is_empty()).then(|| format!("nats-server {}", self.server.version))
    }
}

/// What the header of the name `taut` has.
fn tag_of(header: &[u8]) -> Option<String> {
    let lines = std::str::from_utf8(header).ok()?.strip_prefix(HEADERS)?;
    let tag = lines.split("\r\n").filter_map(|line| line.split_once(':')).find(|(name, _)| *name == TAG)?.1;
    Some(tag.trim().to_owned())
}

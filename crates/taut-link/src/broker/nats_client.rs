//! The client's side of NATS (core: at most once) without I/O: a text protocol of lines, with payloads after some.
//! With an inbox it also hears what answers it, which JetStream needs ([`super::jetstream`]).

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
    /// Whether nothing is said before TLS has begun.
    insists_on_tls: bool,
    /// Below which subject answers to us come, where there are any.
    answers_to: Option<String>,
    /// What has come there.
    answers: VecDeque<Answer>,
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
    /// TLS has to begin before we say who we are.
    Securing,
    /// It has our CONNECT and SUB, and is to answer the PING behind them.
    LoggingIn,
    Ready,
}

#[derive(Debug)]
struct Coming {
    subject: String,
    is_answer: bool,
    reply: Option<String>,
    /// Bytes of the payload before its headers end.
    headers: usize,
    bytes: usize,
}

/// What came to our inbox.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// Where it was published.
    pub(super) subject: String,
    /// Where an answer to it would go.
    pub(super) reply: Option<String>,
    /// What its headers begin with: a number, and what it means.
    pub(super) status: Option<(u16, String)>,
    /// The text that stands with it.
    pub(super) tag: Option<String>,
    pub(super) payload: Vec<u8>,
}

/// What of the server's INFO concerns us.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    version: String,
    max_payload: Option<u64>,
    tls_required: bool,
    tls_available: bool,
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
    no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
}

/// Longest line that is taken, in bytes: a server's INFO names all servers of its cluster.
const MOST_LINE_BYTES: usize = 64 * 1024;
/// Most characters of a server's version that are told.
const MOST_VERSION_CHARS: usize = 64;
/// What headers begin with; a status may follow.
const HEADERS: &str = "NATS/1.0";

impl NatsClient {
    /// A client that waits for the server's INFO.
    pub const fn new(login: NatsLogin) -> Self {
        Self {
            login,
            also: Vec::new(),
            wants_tags: false,
            ending: Ending::Open,
            state: State::Greeting,
            server: Info {
                version: String::new(),
                max_payload: None,
                tls_required: false,
                tls_available: false,
                headers: false,
            },
            coming: None,
            insists_on_tls: false,
            answers_to: None,
            answers: VecDeque::new(),
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

    /// Has it say nothing before TLS has begun, also where the server does not ask for that.
    pub(super) const fn insist_on_tls(&mut self, insists: bool) {
        self.insists_on_tls = insists;
    }

    /// Has it hear what comes below that subject, with headers.
    pub(super) fn hear_answers(&mut self, below: String) {
        self.answers_to = Some(below);
    }

    /// The next message that came there.
    pub(super) fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Publishes a message that is to be answered at `reply`.
    ///
    /// # Errors
    /// As [`Client::publish`].
    pub(super) fn ask(&mut self, subject: &str, reply: &str, payload: &[u8]) -> Result<(), String> {
        self.write(subject, &format!(" {reply}"), "", payload)
    }

    /// The same, with a tag.
    ///
    /// # Errors
    /// As [`Client::publish`].
    pub(super) fn ask_with(
        &mut self,
        subject: &str,
        reply: &str,
        tag: Option<&str>,
        payload: &[u8],
    ) -> Result<(), String> {
        self.write(subject, &format!(" {reply}"), &header_of(tag), payload)
    }

    /// Hears nothing more that comes to the inbox.
    pub(super) fn hear_no_answers(&mut self) {
        let number = self.answers();
        self.output.extend_from_slice(format!("UNSUB {number}\r\n").as_bytes());
    }

    fn write(&mut self, subject: &str, reply: &str, header: &str, payload: &[u8]) -> Result<(), String> {
        let bytes = header.len() + payload.len();
        if let Some(most) = self.server.max_payload.filter(|most| bytes as u64 > *most) {
            return Err(format!("takes no such message: its limit is {most} bytes (max_payload)"));
        }
        let line = match header.len() {
            0 => format!("PUB {subject}{reply} {bytes}\r\n"),
            length => format!("HPUB {subject}{reply} {length} {bytes}\r\n"),
        };
        for part in [line.as_bytes(), header.as_bytes(), payload, b"\r\n"] {
            self.output.extend_from_slice(part);
        }
        Ok(())
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
                self.arrived(coming, &whole[..bytes]);
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
            "HMSG" if self.takes_headers() => self.message(rest, true),
            "-ERR" => self.refused(rest.trim_matches(['\'', ' '])),
            _ => self.fail("sent what is no line of NATS"),
        }
    }

    fn greeted(&mut self, json: &str) {
        let Ok(info) = serde_json::from_str::<Info>(json) else { return self.fail("sent an INFO that can't be read") };
        self.server = info;
        // Later ones tell of changes in the cluster.
        if self.state != State::Greeting {
            return;
        }
        if !self.insists_on_tls && !self.server.tls_required {
            return self.introduce(false);
        }
        if !self.server.tls_required && !self.server.tls_available {
            // Known at its port, but not with TLS.
            self.failure.get_or_insert_with(|| "offers no TLS, which the address asks for".to_owned());
            return;
        }
        self.state = State::Securing;
    }

    /// Says who we are and what we want to hear.
    fn introduce(&mut self, is_secured: bool) {
        let NatsLogin { name, user, password, filter } = &self.login;
        let (user, password) = (user.as_deref(), password.as_deref());
        let connect = Connect {
            verbose: false,
            pedantic: false,
            tls_required: is_secured,
            name,
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            echo: true,
            headers: self.takes_headers(),
            no_responders: self.answers_to.is_some(),
            user,
            pass: password.filter(|_| user.is_some()),
            auth_token: password.filter(|_| user.is_none()),
        };
        let Ok(connect) = serde_json::to_string(&connect) else { return self.fail("can't be told who we are") };
        let answers = self.answers_to.as_ref().map(|below| format!("{below}.>"));
        let filters =
            filter.iter().chain(&self.also).zip(1..).chain(answers.iter().map(|below| (below, self.answers())));
        let subscribe: String = filters.map(|(filter, number)| format!("SUB {filter} {number}\r\n")).collect();
        self.output.extend_from_slice(format!("CONNECT {connect}\r\n{subscribe}PING\r\n").as_bytes());
        self.state = State::LoggingIn;
    }

    /// Subscriptions to what we want to hear, numbered from 1 on.
    fn filters(&self) -> usize {
        self.login.filter.iter().chain(&self.also).count()
    }

    /// The number of the one to our inbox, behind all others.
    fn answers(&self) -> usize {
        self.filters().max(1) + 1
    }

    /// Whether headers were asked for.
    const fn takes_headers(&self) -> bool {
        self.wants_tags || self.answers_to.is_some()
    }

    /// `MSG SUBJECT SUBSCRIPTION [REPLY-TO] BYTES`, then the payload; `HMSG` with the bytes of its headers before those
    /// of all.
    fn message(&mut self, rest: &str, has_headers: bool) {
        let mut words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let bytes = words.pop().map(str::parse::<usize>);
        let headers = if has_headers { words.pop().map(str::parse::<usize>) } else { Some(Ok(0)) };
        let (subject, number, reply) = match words[..] {
            [subject, number] => (subject, number, None),
            [subject, number, reply] => (subject, number, Some(reply.to_owned())),
            _ => return self.fail("sent a message that nobody here has subscribed to"),
        };
        let number: usize = number.parse().unwrap_or(0);
        let is_answer = number == self.answers() && self.answers_to.is_some();
        if !(1..=self.filters()).contains(&number) && !is_answer {
            return self.fail("sent a message that nobody here has subscribed to");
        }
        match (bytes, headers) {
            (Some(Ok(bytes)), Some(Ok(headers))) if headers <= bytes && bytes <= MOST_BYTES => {
                self.coming = Some(Coming { subject: subject.to_owned(), is_answer, reply, headers, bytes });
            }
            (Some(Ok(_)), Some(Ok(_))) => self.fail("sent a message that is larger than what is taken here"),
            _ => self.fail("sent a message without a length"),
        }
    }

    fn arrived(&mut self, coming: Coming, whole: &[u8]) {
        let (headers, payload) = whole.split_at(coming.headers);
        if !coming.is_answer {
            let message = Message::new(coming.subject, payload.to_vec());
            return self.inbox.push_back(message.with(None, tag_of(headers)));
        }
        let first = headers.split(|byte| *byte == b'\r').next().map(String::from_utf8_lossy);
        let status = first.as_deref().and_then(|line| line.strip_prefix(HEADERS)).map(str::trim).and_then(|status| {
            let (number, words) = status.split_once(' ').unwrap_or((status, ""));
            Some((number.parse().ok()?, words.trim().to_owned()))
        });
        let Coming { subject, reply, .. } = coming;
        self.answers.push_back(Answer { subject, reply, status, tag: tag_of(headers), payload: payload.to_vec() });
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
    fn wants_tls(&self) -> bool {
        self.state == State::Securing && self.failure.is_none()
    }

    fn secured(&mut self) {
        if self.state == State::Securing {
            self.introduce(true);
        }
    }

    fn waits_for(&self) -> &'static str {
        match self.state {
            State::Greeting => "the connection (a NATS server speaks first: is it one?)",
            State::Securing => "the beginning of TLS",
            State::LoggingIn | State::Ready => "our CONNECT",
        }
    }

    fn most_bytes(&self) -> Option<u64> {
        self.server.max_payload
    }

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
            if self.state == State::Securing {
                // What somebody on the way has put there would seem to have come over TLS.
                self.fail("sent more than its INFO before TLS had begun");
                break;
            }
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

    fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<bool, String> {
        self.write(subject, "", "", payload).map(|()| true)
    }

    fn post(&mut self, letter: &Letter<'_>) -> Result<Posted, String> {
        let Letter { topic, payload, tag, .. } = letter;
        self.write(topic, "", &header_of(*tag), payload).map(|()| Posted::Taken(None))
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
        // It goes to terminals.
        let version: String =
            self.server.version.chars().filter(|c| !c.is_control()).take(MOST_VERSION_CHARS).collect();
        (!version.is_empty()).then(|| format!("nats-server {version}"))
    }
}

fn header_of(tag: Option<&str>) -> String {
    tag.map(|tag| format!("{HEADERS}\r\n{TAG}: {tag}\r\n\r\n")).unwrap_or_default()
}

/// What the header of the name `taut` has.
fn tag_of(header: &[u8]) -> Option<String> {
    let lines = std::str::from_utf8(header).ok()?.strip_prefix(HEADERS)?;
    let tag = lines.split("\r\n").filter_map(|line| line.split_once(':')).find(|(name, _)| *name == TAG)?.1;
    Some(tag.trim().to_owned())
}

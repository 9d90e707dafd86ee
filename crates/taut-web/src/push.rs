//! Texts sent to a collector by HTTP, one after another, and again while it is away.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use taut_link::clock;
use taut_time::{Duration, Instant};

/// Of one attempt, from the connection to the end of the answer.
const MOST_TIME: Duration = Duration::from_secs(5);
/// Bodies that wait while the collector is away. One more, and the oldest is dropped.
const MOST_WAITING: usize = 60;
/// Of all of these together, but for the newest.
const MOST_WAITING_BYTES: usize = 16 << 20;
/// After the first failure; twice as long after each further one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// While someone waits for the end.
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// Of an answer.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// Where to send to: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    host: String,
    port: u16,
    path: String,
}

/// Why an address is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadTarget {
    /// It is of another kind.
    #[error("write http://HOST:PORT/PATH")]
    Form,
    /// It asks for TLS.
    #[error(
        "https is not possible: figures leave by plain HTTP only. Send them to a collector on this host, such as \
         http://127.0.0.1:4318, and let it go on by TLS"
    )]
    Tls,
    /// It has a user's name in it.
    #[error("a name or password is not sent: there is no login by plain HTTP")]
    Login,
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        if text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
            return Err(BadTarget::Tls);
        }
        let is_ours = text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
        // All of it goes into a request's head.
        if !is_ours || !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('#') {
            return Err(BadTarget::Form);
        }
        let rest = &text[7..];
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(BadTarget::Login);
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(six) => {
                let (six, port) = six.split_once(']').ok_or(BadTarget::Form)?;
                six.parse::<Ipv6Addr>().map_err(|_| BadTarget::Form)?;
                (six, port)
            }
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or(BadTarget::Form)?,
            None if port.is_empty() => 80,
            None => return Err(BadTarget::Form),
        };
        if host.is_empty() {
            return Err(BadTarget::Form);
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

impl Target {
    /// With this path, if it has none of its own.
    #[must_use]
    pub fn or_path(mut self, path: &str) -> Self {
        if self.path == "/" {
            path.clone_into(&mut self.path);
        }
        self
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// What came of it so far.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// Bodies that the collector took.
    pub taken: u64,
    /// Bodies that it refused, or that had to make room while it was away.
    pub dropped: u64,
    /// Bodies that it has not taken yet.
    pub waiting: usize,
    /// What went wrong last, since it last took one.
    pub failure: Option<String>,
}

/// Sends bodies in their order, on a thread. One that can't be delivered waits, with a pause that grows.
#[derive(Debug)]
pub struct Push {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// The first one's numbers: those before it are gone.
    first: u64,
    taken: u64,
    dropped: u64,
    failure: Option<String>,
    is_over: bool,
}

/// What a collector said.
#[derive(Debug, Eq, PartialEq)]
enum Answer {
    Taken,
    /// Another attempt would end alike.
    Refused(String),
    /// Later perhaps, after this time if it says so.
    Away(String, Option<Duration>),
}

impl Push {
    /// Starts without a connection. `refused` finds in the answer of a collector that took a body what it did not take.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(target: Target, media_type: &'static str, refused: fn(&[u8]) -> Option<String>) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let its = Arc::clone(&shared);
        thread::Builder::new().name("push".to_owned()).spawn(move || its.run(&target, media_type, refused))?;
        Ok(Self { shared })
    }

    /// Sends one when those before it are gone.
    pub fn send(&self, body: Vec<u8>) {
        let mut state = self.shared.lock();
        state.waiting.push_back(body);
        let is_full = |waiting: &VecDeque<Vec<u8>>| {
            waiting.len() > MOST_WAITING || waiting.iter().map(Vec::len).sum::<usize>() > MOST_WAITING_BYTES
        };
        while state.waiting.len() > 1 && is_full(&state.waiting) {
            state.drop_first();
        }
        self.shared.changed.notify_all();
    }

    /// What came of it so far.
    pub fn so_far(&self) -> Pushed {
        self.shared.lock().told()
    }

    /// Waits at most so long for those that wait, and tells what came of all. What then waits still is dropped.
    pub fn finish(self, patience: Duration) -> Pushed {
        let deadline = clock::now() + patience;
        let mut state = self.shared.lock();
        state.is_over = true;
        self.shared.changed.notify_all();
        loop {
            let left = deadline.saturating_since(clock::now());
            if state.waiting.is_empty() || left.is_zero() {
                return state.told();
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        // The thread may wait for a collector; it ends by itself after that.
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl State {
    fn drop_first(&mut self) {
        self.waiting.pop_front();
        self.first += 1;
        self.dropped += 1;
    }

    fn told(&self) -> Pushed {
        let Self { taken, dropped, ref waiting, ref failure, .. } = *self;
        Pushed { taken, dropped, waiting: waiting.len(), failure: failure.clone() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: &Arc<Self>, target: &Target, media_type: &str, refused: fn(&[u8]) -> Option<String>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut state = self.lock();
            if state.is_over && Arc::strong_count(self) == 1 {
                return;
            }
            let (body, number) = loop {
                match state.waiting.front() {
                    Some(body) => break (body.clone(), state.first),
                    None if state.is_over => return,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            let answer = match post(target, media_type, &body) {
                Ok(answer) => judge(&answer, refused),
                Err(error) => Answer::Away(error.to_string(), None),
            };
            let mut state = self.lock();
            // It may have had to make room meanwhile, and is counted already.
            let is_there = state.first == number;
            match answer {
                Answer::Taken => {
                    pause = FIRST_PAUSE;
                    state.failure = None;
                    if is_there {
                        state.waiting.pop_front();
                        (state.first, state.taken) = (state.first + 1, state.taken + 1);
                    }
                }
                Answer::Refused(why) => {
                    state.failure = Some(why);
                    if is_there {
                        state.drop_first();
                    }
                }
                Answer::Away(why, after) => {
                    state.failure = Some(why);
                    let begin = clock::now();
                    let whole = after.unwrap_or(pause).min(LONGEST_PAUSE);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    loop {
                        // At the end someone waits for it.
                        let pause = if state.is_over { whole.min(LAST_PAUSE) } else { whole };
                        let left = (begin + pause).saturating_since(clock::now());
                        if left.is_zero() {
                            break;
                        }
                        state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                    }
                }
            }
            self.changed.notify_all();
        }
    }
}

/// One attempt: the whole answer.
fn post(target: &Target, media_type: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let deadline = clock::now() + MOST_TIME;
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let mut stream = None;
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left_until(deadline)?) {
            Ok(connected) => {
                stream = Some(connected);
                break;
            }
            Err(error) => failure = error,
        }
    }
    let Some(mut stream) = stream else { return Err(failure) };
    stream.set_nodelay(true)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nUser-Agent: taut\r\n\
         Connection: close\r\n\r\n",
        target.path,
        target.authority(),
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    let mut rest = request.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left_until(deadline)?))?;
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // One that refuses early says why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => return Err(error),
        }
    }
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while answer.len() < MOST_ANSWER_BYTES {
        match left_until(deadline) {
            Ok(left) => stream.set_read_timeout(Some(left))?,
            Err(_) if parts(&answer).is_some() => break,
            Err(error) => return Err(error),
        }
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // One that has answered and keeps the connection, or resets it, has answered.
            Err(_) if parts(&answer).is_some() => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
        if is_whole(&answer) {
            break;
        }
    }
    Ok(answer)
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_since(clock::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Head and body of an answer, if the head is whole.
fn parts(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn field<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

/// Whether as much is there as it says; one that does not say ends with the connection.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = parts(answer) else { return false };
    if field(head, "transfer-encoding").is_some() {
        return body.ends_with(b"0\r\n\r\n");
    }
    let length = field(head, "content-length").and_then(|length| length.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// What is tried again is as OTLP has it (OpenTelemetry Protocol 1.5, "Retryable Response Codes").
fn judge(answer: &[u8], refused: fn(&[u8]) -> Option<String>) -> Answer {
    let Some((head, body)) = parts(answer) else {
        return Answer::Away("its answer is no HTTP".to_owned(), None);
    };
    let first = head.split("\r\n").next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
    let shown = || first.chars().filter(|c| !c.is_control()).take(100).collect::<String>();
    match status {
        Some(200..=299) => refused(body).map_or(Answer::Taken, Answer::Refused),
        Some(429 | 502 | 503 | 504) => {
            let after = field(head, "retry-after").and_then(|after| after.parse().ok()).map(Duration::from_secs);
            Answer::Away(format!("it answers {}", shown()), after)
        }
        Some(_) => Answer::Refused(format!("it answers {}", shown())),
        None => Answer::Away("its answer is no HTTP".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for (text, told) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/"),
            ("HTTP://collector/v1/metrics", "http://collector:80/v1/metrics"),
            ("http://[::1]:9090/api?x=1", "http://[::1]:9090/api?x=1"),
            ("http://h:1?x", "http://h:1/?x"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), told, "{text}");
        }
        let path = |text: &str| text.parse::<Target>().unwrap().or_path("/v1/metrics").path;
        assert_eq!(
            (path("http://h"), path("http://h/"), path("http://h/x")),
            ("/v1/metrics".into(), "/v1/metrics".into(), "/x".into())
        );
        for (text, why) in [
            ("https://h", BadTarget::Tls),
            ("http://me:secret@h", BadTarget::Login),
            ("http://", BadTarget::Form),
            ("http://:80", BadTarget::Form),
            ("http://h:0", BadTarget::Form),
            ("http://h:99999", BadTarget::Form),
            ("http://[::1", BadTarget::Form),
            ("http://[::1]x", BadTarget::Form),
            ("http://h/a b", BadTarget::Form),
            ("http://h/\r\nX: y", BadTarget::Form),
            ("h:4318", BadTarget::Form),
            ("", BadTarget::Form),
        ] {
            assert_eq!(text.parse::<Target>(), Err(why), "{text}");
        }
    }

    fn none(_: &[u8]) -> Option<String> {
        None
    }

    /// Answers so many requests, each in turn, and gives their bodies.
    fn collector(listener: TcpListener, answers: Vec<&'static str>) -> thread::JoinHandle<Vec<String>> {
        thread::spawn(move || {
            answers
                .into_iter()
                .map(|answer| {
                    let (mut client, _) = listener.accept().unwrap();
                    let (mut request, mut part) = (Vec::new(), [0; 1024]);
                    while !is_whole(&request) {
                        let read = client.read(&mut part).unwrap();
                        request.extend_from_slice(&part[..read]);
                    }
                    client.write_all(answer.as_bytes()).unwrap();
                    String::from_utf8(parts(&request).unwrap().1.to_vec()).unwrap()
                })
                .collect()
        })
    }

    #[test]
    fn a_body_waits_while_the_collector_is_away_and_one_refused_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target: Target = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let answers = vec![
            "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        ];
        let collector = collector(listener, answers);
        let push = Push::start(target, "text/plain", none).unwrap();
        for body in ["one", "two", "three"] {
            push.send(body.into());
        }
        let pushed = push.finish(Duration::from_secs(10));
        assert_eq!((pushed.taken, pushed.dropped, pushed.waiting), (2, 1, 0), "{pushed:?}");
        assert_eq!(collector.join().unwrap(), ["one", "one", "two", "three"]);
    }

    #[test]
    fn what_waits_is_bounded_and_the_oldest_is_dropped_and_counted() {
        // Nobody listens there any more.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let push = Push::start(format!("http://{address}").parse().unwrap(), "text/plain", none).unwrap();
        for number in 0..MOST_WAITING + 5 {
            push.send(number.to_string().into());
        }
        let begun = clock::now();
        let pushed = push.finish(Duration::from_millis(300));
        assert!(clock::now().saturating_since(begun) < Duration::from_secs(3));
        assert_eq!((pushed.taken, pushed.dropped, pushed.waiting), (0, 5, MOST_WAITING));
        assert!(pushed.failure.unwrap().contains("refused"));
        // Of large ones fewer wait, and one always does.
        let push = Push::start(format!("http://{address}").parse().unwrap(), "text/plain", none).unwrap();
        let large = |count: usize| (0..count).for_each(|_| push.send(vec![0; MOST_WAITING_BYTES / 4]));
        large(6);
        assert_eq!((push.so_far().dropped, push.so_far().waiting), (2, 4));
        push.send(vec![0; MOST_WAITING_BYTES + 1]);
        assert_eq!((push.so_far().dropped, push.so_far().waiting), (6, 1));
    }

    #[test]
    fn answers_are_judged_by_their_status() {
        let judge = |answer: &str| judge(answer.as_bytes(), |body| (body == b"no").then(|| "no".to_owned()));
        assert_eq!(judge("HTTP/1.1 200 OK\r\n\r\n"), Answer::Taken);
        assert_eq!(judge("HTTP/1.0 204 x\r\n\r\n"), Answer::Taken);
        assert_eq!(judge("HTTP/1.1 200 OK\r\n\r\nno"), Answer::Refused("no".to_owned()));
        assert!(matches!(judge("HTTP/1.1 404 Not Found\r\n\r\n"), Answer::Refused(_)));
        let away = judge("HTTP/1.1 429 x\r\nretry-after: 7\r\n\r\n");
        assert!(matches!(away, Answer::Away(_, Some(after)) if after == Duration::from_secs(7)), "{away:?}");
        for answer in ["", "HTTP/1.1 200 OK", "SSH-2.0\r\n\r\n", "HTTP/1.1 2\r\n\r\n"] {
            assert!(matches!(judge(answer), Answer::Away(..)), "{answer}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_and_no_address_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".*") {
            judge(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat(), none);
            judge(&bytes, none);
            is_whole(&bytes);
            let _ = text.parse::<Target>();
            let _ = format!("http://{text}").parse::<Target>();
        }
    }
}

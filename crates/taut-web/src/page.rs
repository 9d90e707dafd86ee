//! One thing under one path, perhaps in several forms, for a program that collects it now and then: one client at a
//! time, and not for long.
//!
//! It costs no runtime and one sleeping thread. Whoever needs more takes [`Server`](crate::Server).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec};
use taut_link::{Interrupt, clock};
use taut_time::{Duration, Instant};

use crate::Hosts;

/// From the connection to the last byte of the answer.
const MOST_TIME: Duration = Duration::from_secs(2);
/// Of a request's head.
const MOST_HEAD_BYTES: usize = 8 << 10;
/// How often the thread looks whether it is to end.
const LOOK_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Media types in which a page is there.
type Forms = &'static [&'static str];

/// What is served. It ends when this is dropped.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    /// Serves under this path (`/metrics`) what [`Page::renew`] is told, at first nothing, and answers for `localhost`
    /// and addresses alone (`Host`). Whoever names none of the media types (`Accept`) gets the first.
    ///
    /// # Errors
    /// The address can't be listened on.
    pub fn serve(address: SocketAddr, path: &'static str, forms: Forms) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // A client that has gone since it was announced must not stop the thread.
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (bodies, stop) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Interrupt::default());
        let (served, ended) = (Arc::clone(&bodies), stop.clone());
        let thread = thread::Builder::new().name("page".to_owned()).spawn(move || {
            while !ended.is_set() {
                let mut wait = [PollFd::new(&listener, PollFlags::IN)];
                let is_there = rustix::event::poll(&mut wait, Some(&LOOK_PERIOD)).is_ok_and(|ready| ready > 0);
                if !is_there {
                    continue;
                }
                match listener.accept() {
                    // A client that breaks off has what it wanted.
                    Ok((client, _)) => drop(answer(client, path, forms, &served)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // No descriptors are left: it stays ready, and must not be asked all the time.
                    Err(_) => clock::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(Self { address, bodies, stop, thread: Some(thread) })
    }

    /// Where it listens, with the port that the kernel picked.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves something else from now on: a body for each media type.
    pub fn renew(&self, bodies: Vec<Vec<u8>>) {
        *self.bodies.lock().unwrap_or_else(PoisonError::into_inner) = bodies;
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

fn answer(mut client: TcpStream, path: &str, forms: Forms, bodies: &Mutex<Vec<Vec<u8>>>) -> io::Result<()> {
    let deadline = clock::now() + MOST_TIME;
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let status = match read_head(&mut client, deadline)? {
        Some(head) => judge(&head, path, forms),
        None => Status::TooLarge,
    };
    let (line, is_bodiless) = match status {
        Status::Fine { is_head, .. } => ("200 OK", is_head),
        Status::Bad => ("400 Bad Request", false),
        Status::NotFound => ("404 Not Found", false),
        Status::NoSuchMethod => ("405 Method Not Allowed\r\nAllow: GET, HEAD", false),
        Status::NotOurs => ("421 Misdirected Request", false),
        Status::TooLarge => ("431 Request Header Fields Too Large", false),
    };
    let (media_type, body) = match status {
        Status::Fine { form, .. } => {
            let bodies = bodies.lock().unwrap_or_else(PoisonError::into_inner);
            (forms[form], bodies.get(form).cloned().unwrap_or_default())
        }
        _ => ("text/plain; charset=utf-8", format!("{path} is what is here\n").into_bytes()),
    };
    let head = format!(
        "HTTP/1.1 {line}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nVary: Accept\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut answer = head.into_bytes();
    if !is_bodiless {
        answer.extend(body);
    }
    let mut rest = answer.as_slice();
    while !rest.is_empty() {
        client.set_write_timeout(Some(left_until(deadline)?))?;
        let written = client.write(rest)?;
        rest = &rest[written..];
    }
    client.shutdown(std::net::Shutdown::Write)?;
    // With something unread the close would be a reset, which takes the answer from the client.
    client.set_read_timeout(Some(left_until(deadline)?))?;
    let mut unread = [0; 1024];
    while client.read(&mut unread)? > 0 && clock::now() < deadline {}
    Ok(())
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_since(clock::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The head of a request; `None` if it is too long.
fn read_head(client: &mut TcpStream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        client.set_read_timeout(Some(left_until(deadline)?))?;
        let read = client.read(&mut part)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..read]);
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(Some(head));
        }
        if head.len() > MOST_HEAD_BYTES {
            return Ok(None);
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Status {
    /// The form has this number.
    Fine {
        is_head: bool,
        form: usize,
    },
    Bad,
    NotFound,
    NoSuchMethod,
    NotOurs,
    TooLarge,
}

fn judge(head: &[u8], path: &str, forms: Forms) -> Status {
    let Ok(head) = std::str::from_utf8(head) else { return Status::Bad };
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (first.next(), first.next(), first.next(), first.next())
    else {
        return Status::Bad;
    };
    if !version.starts_with("HTTP/1.") {
        return Status::Bad;
    }
    let fields = |wanted: &'static str| {
        let fields = lines.clone().filter_map(|line| line.split_once(':'));
        fields.filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    let mut hosts = fields("host");
    let host = hosts.next().unwrap_or_default();
    // Two may mean one to us and the other to whoever stands between (RFC 9112, section 3.2).
    if hosts.next().is_some() {
        return Status::Bad;
    }
    if !Hosts::default().know(host) {
        return Status::NotOurs;
    }
    match method {
        "GET" | "HEAD" if target.split('?').next() == Some(path) => {
            Status::Fine { is_head: method == "HEAD", form: wanted(fields("accept"), forms) }
        }
        "GET" | "HEAD" => Status::NotFound,
        _ => Status::NoSuchMethod,
    }
}

/// Which form is wanted most (RFC 9110, section 12.5.1). One counts as named if type and all parameters are; the first
/// of those wanted alike wins, and of those not named the first.
fn wanted<'a>(accepted: impl Iterator<Item = &'a str>, forms: Forms) -> usize {
    let mut best = (0.0, 0);
    for range in accepted.flat_map(|value| value.split(',')) {
        let parts = || range.split(';').map(str::trim);
        let weight = parts().skip(1).find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        let has = |part: &str| parts().any(|named| named.eq_ignore_ascii_case(part));
        for (at, form) in forms.iter().enumerate() {
            // What the first form says beyond its type (its character set) nobody needs to ask for.
            let wanted = if at == 0 { form.split(';').take(1) } else { form.split(';').take(usize::MAX) };
            if weight > best.0 && wanted.map(str::trim).all(has) {
                best = (weight, at);
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(page: &Page, request: &str) -> String {
        let mut client = TcpStream::connect(page.address()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn page() -> Page {
        Page::serve((std::net::Ipv4Addr::LOCALHOST, 0).into(), "/metrics", FORMS).unwrap()
    }

    const FORMS: Forms = &["text/plain; version=0.0.4", "application/x; proto=a.B; encoding=c"];

    #[test]
    fn the_form_is_the_one_that_is_wanted_most() {
        for (accept, form) in [
            ("", 0),
            ("*/*", 0),
            ("application/x", 0),
            ("application/x; proto=a.B", 0),
            ("application/x;proto=a.B;encoding=c", 1),
            ("application/x;proto=a.B;encoding=c;q=0", 0),
            ("application/x; PROTO=a.B ;encoding=c;q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", 1),
            ("application/x;proto=a.B;encoding=c;q=0.3,text/plain;version=0.0.4;q=0.7", 0),
            ("application/x;proto=a.B;encoding=c;q=nonsense", 0),
            (",;,q=1;;", 0),
        ] {
            assert_eq!(wanted([accept].into_iter(), FORMS), form, "{accept}");
        }
        let page = page();
        page.renew(vec![b"words".to_vec(), vec![0, 255]]);
        let mut client = TcpStream::connect(page.address()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nAccept: application/x;proto=a.B;encoding=c\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let head = String::from_utf8_lossy(&answer);
        assert!(head.contains("Content-Type: application/x; proto=a.B; encoding=c\r\n"), "{head}");
        assert!(head.contains("Content-Length: 2\r\n") && answer.ends_with(b"\r\n\r\n\x00\xff"), "{head}");
    }

    #[test]
    fn it_serves_its_newest_text_and_nothing_else() {
        let page = page();
        page.renew(vec![b"old 1\n".to_vec()]);
        page.renew(vec![b"new 2\n".to_vec()]);
        let got = ask(&page, "GET /metrics HTTP/1.1\r\nHost: localhost:9\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nnew 2\n"), "{got}");
        assert!(got.contains("Content-Length: 6\r\n") && got.contains("version=0.0.4"), "{got}");
        let got = ask(&page, "HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(got.contains("Content-Length: 6\r\n") && got.ends_with("\r\n\r\n"), "{got}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "400"),
            ("GET /metrics\r\n\r\n", "400"),
        ] {
            let got = ask(&page, request);
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {got}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(2 * MOST_HEAD_BYTES));
        assert!(ask(&page, &long).starts_with("HTTP/1.1 431 "));
    }

    /// A client that says nothing has its time, and then it is the next one's turn.
    #[test]
    fn a_client_that_says_nothing_is_dropped_and_others_are_served() {
        let page = page();
        page.renew(vec![b"here\n".to_vec()]);
        let mut silent = TcpStream::connect(page.address()).unwrap();
        let got = ask(&page, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(got.ends_with("here\n"), "{got}");
        assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
        drop(page);
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(head in proptest::collection::vec(any::<u8>(), 0..200)) {
            judge(&head, "/metrics", FORMS);
        }

        #[test]
        fn whatever_is_accepted_there_is_a_form_for_it(accept in "[a-z/*;,=q.0-9 éÿ-]{0,60}") {
            prop_assert!(wanted([accept.as_str()].into_iter(), FORMS) < FORMS.len());
        }
    }
}

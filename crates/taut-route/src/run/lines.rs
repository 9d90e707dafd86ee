//! Sources of lines, each with a number: the clients of a socket, or a file.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use taut_link::{Link, SocketFile};

use super::event::{Next, is_quiet, now_ns, number, wait};

/// The longest line; what is longer is no number anyway.
const LONGEST_LINE: usize = 4096;
/// Clients of a source of lines at once.
const MOST_CLIENTS: usize = 64;
/// When all places are taken, a client that has sent no number for so long loses its own to one
/// that comes; one that has never sent any before one that has.
const SILENT: Duration = Duration::from_secs(1);

/// Streams of lines: those of clients, or one of a file.
pub(super) struct Lines {
    listener: Option<Listener>,
    streams: Vec<Stream>,
    ready: VecDeque<Option<i64>>,
}

pub(super) enum Listener {
    Tcp(TcpListener),
    // The file goes before the socket does, while nobody else can have its place.
    Unix(#[expect(dead_code, reason = "removes the file when it goes")] SocketFile, UnixListener),
    Link(Box<taut_link::Listener>),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(_, listener) => listener.as_fd(),
            Self::Link(listener) => listener.as_fd(),
        }
    }
}

/// A client of an endpoint.
struct Client(Link);

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.receive(buffer)?)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Stream {
    reader: Box<dyn Readable>,
    line: Vec<u8>,
    /// When it last sent a number, or came.
    heard: Instant,
    has_sent: bool,
}

pub(super) trait Readable: Read + AsFd + Send {}
impl<T: Read + AsFd + Send> Readable for T {}

impl Lines {
    pub(super) fn of(listener: Option<Listener>, stream: Option<Box<dyn Readable>>) -> Self {
        let streams = stream.map(Stream::new).into_iter().collect();
        Self { listener, streams, ready: VecDeque::new() }
    }

    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        Ok(match self.ready.pop_front() {
            Some(Some(value)) => number(buffer, value, now_ns()),
            Some(None) => Next::Unreadable,
            None if self.listener.is_none() && self.streams.is_empty() => Next::End,
            None => Next::Nothing,
        })
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = self.streams.iter().map(|stream| stream.reader.as_fd()).collect();
        // A listener that nobody is accepted from would keep poll from waiting.
        let accepts = self.streams.len() < MOST_CLIENTS || self.most_silent().is_some();
        fds.extend(self.listener.as_ref().filter(|_| accepts).map(AsFd::as_fd));
        let mut readable = wait(&fds)?.into_iter();
        let ready = &mut self.ready;
        self.streams.retain_mut(|stream| !readable.next().unwrap_or(false) || stream.read(ready));
        if readable.next().unwrap_or(false)
            && let Some(stream) = self.accept()
        {
            // Its place may have become free meanwhile.
            if self.streams.len() >= MOST_CLIENTS
                && let Some(most_silent) = self.most_silent()
            {
                self.streams.swap_remove(most_silent);
            }
            self.streams.push(stream);
        }
        Ok(())
    }

    /// The client that has sent no number for the longest time, if that is long enough to give its
    /// place to another one. First those that have never sent one, or many that come and say
    /// nothing would take the place of one that speaks seldom.
    fn most_silent(&self) -> Option<usize> {
        let (at, stream) = self.streams.iter().enumerate().min_by_key(|(_, stream)| (stream.has_sent, stream.heard))?;
        (stream.heard.elapsed() >= SILENT).then_some(at)
    }

    fn accept(&self) -> Option<Stream> {
        let reader: Box<dyn Readable> = match self.listener.as_ref()? {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                Box::new(TcpStream::from(OwnedFd::from(stream)))
            }
            Listener::Unix(_, listener) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                Box::new(stream)
            }
            Listener::Link(listener) => {
                let link = listener.accept().ok()?;
                link.set_nonblocking(true).ok()?;
                Box::new(Client(link))
            }
        };
        Some(Stream::new(reader))
    }
}

impl Stream {
    fn new(reader: Box<dyn Readable>) -> Self {
        Self { reader, line: Vec::new(), heard: Instant::now(), has_sent: false }
    }

    /// Reads what is there and takes whole lines off; whether there can be more.
    fn read(&mut self, ready: &mut VecDeque<Option<i64>>) -> bool {
        let mut chunk = [0; LONGEST_LINE];
        let length = match self.reader.read(&mut chunk) {
            Ok(length) => length,
            Err(error) if is_quiet(&error) => return true,
            Err(_) => 0,
        };
        for &byte in &chunk[..length] {
            if byte == b'\n' {
                let value = parse(&self.line);
                if value.is_some() {
                    (self.heard, self.has_sent) = (Instant::now(), true);
                }
                ready.push_back(value);
                self.line.clear();
            } else if self.line.len() < LONGEST_LINE {
                self.line.push(byte);
            }
        }
        if length == 0 && !self.line.is_empty() {
            ready.push_back(parse(&self.line));
        }
        length > 0
    }
}

/// The whole number on a line.
fn parse(line: &[u8]) -> Option<i64> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The next number that comes.
    fn next_number(lines: &mut Lines) -> i64 {
        let mut buffer = [0; 8];
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Next::Event(_) = lines.next(&mut buffer).unwrap() {
                return i64::from_ne_bytes(buffer);
            }
        }
        panic!("no number came");
    }

    #[test]
    fn silent_clients_make_room_and_one_that_speaks_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut lines = Lines::of(Some(Listener::Tcp(listener)), None);
        let mut clients: Vec<TcpStream> = (0..MOST_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        while lines.streams.len() < MOST_CLIENTS {
            lines.fill().unwrap();
        }
        std::thread::sleep(SILENT);
        clients[0].write_all(b"1\n").unwrap();
        assert_eq!(next_number(&mut lines), 1);
        // Bytes that never become a number are as good as none.
        clients[1].write_all(b"x").unwrap();
        let mut late = TcpStream::connect(address).unwrap();
        late.write_all(b"65\n").unwrap();
        assert_eq!(next_number(&mut lines), 65);
        assert_eq!(lines.streams.len(), MOST_CLIENTS);
        clients[0].write_all(b"2\n").unwrap();
        assert_eq!(next_number(&mut lines), 2);
        // By now it has been silent for longer than any of those that come.
        std::thread::sleep(SILENT);
        let _crowd: Vec<TcpStream> = (0..MOST_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let until = Instant::now() + 2 * SILENT;
        while Instant::now() < until {
            lines.fill().unwrap();
        }
        clients[0].write_all(b"3\n").unwrap();
        assert_eq!(next_number(&mut lines), 3);
    }
}

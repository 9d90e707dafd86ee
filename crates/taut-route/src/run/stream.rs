//! A connection for lines, made again when it breaks. A thread of its own waits for the peer: one
//! that does not answer, or does not read, holds up neither the route nor its other sinks.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use taut_link::Link;

use super::status::Shared;
use crate::route::{Source, Target};

/// How long a connection may take to be set up, how long after a failure that is tried again, and
/// how long a peer may read nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Lines that wait for the peer; more are lost.
const WAITING: usize = 1024;

/// The route's end of it.
pub(super) struct Stream {
    target: Target,
    /// Whether the route waits where there is no room: what it reads from is a stream as well, and waits with it.
    waits: bool,
    counters: Arc<Shared>,
    worker: Option<(SyncSender<Vec<u8>>, JoinHandle<()>)>,
}

/// The end of the thread.
struct Worker {
    target: Target,
    counters: Arc<Shared>,
    connection: Option<Box<dyn Write + Send>>,
    /// When connecting failed the last time.
    failed: Option<Instant>,
}

impl Stream {
    /// One to be opened with the first line, for a route from `source`.
    pub(super) fn new(target: Target, source: &Source, counters: Arc<Shared>) -> Self {
        let waits = source.waits();
        Self { target, waits, counters, worker: None }
    }

    /// Hands over a line to be sent. Waits, for as long as a peer may read nothing, only where the source can wait too.
    ///
    /// # Errors
    /// There is no room, or no thread; lines that are lost later are counted.
    pub(super) fn send(&mut self, line: Vec<u8>) -> io::Result<()> {
        let worker = match &mut self.worker {
            Some(worker) => worker,
            // By the route's thread, whose processor and priority it is to have.
            none => none.insert(Worker::start(self.target.clone(), Arc::clone(&self.counters))?),
        };
        let sent = if self.waits { worker.0.send(line).is_ok() } else { worker.0.try_send(line).is_ok() };
        if sent { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some((lines, thread)) = self.worker.take() {
            // It sends what it has, which takes at most two times its patience.
            drop(lines);
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn start(target: Target, counters: Arc<Shared>) -> io::Result<(SyncSender<Vec<u8>>, JoinHandle<()>)> {
        let (sender, lines) = sync_channel(WAITING);
        let worker = Self { target, counters, connection: None, failed: None };
        let thread = thread::Builder::new().name("route-sink".to_owned()).spawn(move || worker.run(&lines))?;
        Ok((sender, thread))
    }

    fn run(mut self, lines: &Receiver<Vec<u8>>) {
        while let Ok(line) = lines.recv() {
            if self.send(&line).is_err() {
                Shared::add(&self.counters.lost, 1);
            }
        }
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        if self.connection.is_none() {
            if self.failed.is_some_and(|failed| failed.elapsed() < PATIENCE) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            match self.connect() {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    self.failed = Some(Instant::now());
                    return Err(error);
                }
            }
        }
        let sent = self.connection.as_mut().map_or(Ok(()), |connection| connection.write_all(line));
        if let Err(error) = &sent {
            self.connection = None;
            // Who went may be back already; who does not read would be waited for again and again.
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
                self.failed = Some(Instant::now());
            }
        }
        sent
    }

    fn connect(&self) -> io::Result<Box<dyn Write + Send>> {
        match &self.target {
            Target::Tcp(to) => {
                let stream = TcpStream::connect_timeout(to, PATIENCE)?;
                // A line is whole when it is written: nothing follows that it could wait for.
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Target::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Target::Bluetooth(to) => {
                let link = Link::connect(to, PATIENCE).map_err(io::Error::other)?;
                link.set_send_timeout(Some(PATIENCE)).map_err(io::Error::other)?;
                Ok(Box::new(Peer(link)))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A peer over Bluetooth.
struct Peer(Link);

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.send(bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::atomic::Ordering;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    /// A source that waits for nobody.
    const EVENTS: Source = Source::Timer(Duration::from_secs(1));

    #[test]
    fn all_lines_arrive_and_what_breaks_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let counters: Arc<Shared> = Arc::default();
        let mut sink = Stream::new(Target::Tcp(listener.local_addr().unwrap()), &EVENTS, Arc::clone(&counters));
        for number in 0..100 {
            sink.send(format!("{number}\n").into_bytes()).unwrap();
        }
        let mut peer = BufReader::new(listener.accept().unwrap().0);
        let mut line = String::new();
        for number in 0..100 {
            line.clear();
            peer.read_line(&mut line).unwrap();
            assert_eq!(line, format!("{number}\n"));
        }
        drop(peer);
        listener.set_nonblocking(true).unwrap();
        // The first one that goes to nobody tells that it broke.
        let began = Instant::now();
        let again = loop {
            sink.send(b"again\n".to_vec()).unwrap();
            if let Ok((peer, _)) = listener.accept() {
                break peer;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it was not made again");
            thread::sleep(Duration::from_millis(10));
        };
        again.set_nonblocking(false).unwrap();
        line.clear();
        BufReader::new(again).read_line(&mut line).unwrap();
        assert_eq!(line, "again\n");
    }

    #[test]
    fn what_comes_from_a_stream_waits_for_a_peer_that_reads_slowly() {
        const LINES: usize = 8 * WAITING;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (counters, source) = (Arc::<Shared>::default(), Source::Lines("-".into()));
        let mut sink = Stream::new(Target::Tcp(listener.local_addr().unwrap()), &source, Arc::clone(&counters));
        let reading = thread::spawn(move || {
            // More than has room before the connection is there.
            thread::sleep(Duration::from_millis(100));
            BufReader::new(listener.accept().unwrap().0).lines().count()
        });
        for _ in 0..LINES {
            sink.send(b"1\n".to_vec()).unwrap();
        }
        drop(sink);
        assert_eq!((reading.join().unwrap(), counters.lost.load(Ordering::Relaxed)), (LINES, 0));
    }

    #[test]
    fn a_peer_that_does_not_answer_holds_up_nobody() {
        // A listener whose queue is full answers nobody any more.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        listener.listen(0).unwrap();
        let to = listener.local_addr().unwrap();
        let _queue: Vec<Socket> = (0..4)
            .map(|_| {
                let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                client.set_nonblocking(true).unwrap();
                let _ = client.connect(&to);
                client
            })
            .collect();
        let counters: Arc<Shared> = Arc::default();
        let mut sink = Stream::new(Target::Tcp(to.as_socket().unwrap()), &EVENTS, Arc::clone(&counters));
        let began = Instant::now();
        let taken = (0..2 * WAITING).filter(|_| sink.send(b"1\n".to_vec()).is_ok()).count();
        assert!(began.elapsed() < PATIENCE, "it waited for {:?}", began.elapsed());
        drop(sink);
        // The rest was told at once.
        assert!((WAITING..=WAITING + 2).contains(&taken), "{taken}");
        assert_eq!(counters.lost.load(Ordering::Relaxed), taken as u64);
    }
}

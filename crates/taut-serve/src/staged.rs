//! A client and a server that lose time on purpose, by a cause that is known: for whoever wants to see it found.
//!
//! Nothing is faked: they are an ordinary client and server over loopback, with a mistake that programs have.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_congestion, set_tcp_cork,
};
use taut_link::{Interrupt, clock};
use taut_time::Duration;

/// The mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mistake {
    /// The client writes each request in two parts and reads the answer: Nagle's algorithm holds the second part until
    /// the delayed acknowledgement of the first.
    TwoWrites,
    /// The server reads late, into a small receive buffer: its window is closed nearly all the time.
    SlowReader,
    /// The client sets `TCP_CORK` and never clears it.
    Cork,
}

const HEADER: [u8; 16] = [1; 16];
const BODY: [u8; 48] = [2; 48];
const ANSWER: [u8; 8] = [3; 8];
/// What the client of a slow reader writes at once.
const BLOCK_BYTES: usize = 16 << 10;
/// Between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two blocks.
const BLOCK_PAUSE: Duration = Duration::from_millis(5);
/// Between two reads of a slow reader.
const READ_PAUSE: Duration = Duration::from_millis(50);

/// A client and a server at work in this process. They end when this is dropped.
#[derive(Debug)]
pub struct Staged {
    server: SocketAddr,
    stop: Interrupt,
    threads: Vec<JoinHandle<io::Result<()>>>,
    times: Receiver<Duration>,
}

impl Staged {
    /// Starts both on loopback, on a port that the kernel picks; `is_cured` leaves the mistake out.
    ///
    /// # Errors
    /// Loopback has no address or no port for them.
    pub fn start(mistake: Mistake, is_cured: bool) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let is_slow = mistake == Mistake::SlowReader && !is_cured;
        if is_slow {
            // Before the connection: its window is decided then.
            set_socket_recv_buffer_size(&listener, BLOCK_BYTES)?;
        }
        let server = listener.local_addr()?;
        let client = TcpStream::connect(server)?;
        let (accepted, _) = listener.accept()?;
        match mistake {
            Mistake::TwoWrites => client.set_nodelay(is_cured)?,
            Mistake::SlowReader => {
                // What is written waits for the reader, and not in a large buffer.
                set_socket_send_buffer_size(&client, BLOCK_BYTES)?;
                // BBR slows itself down to what the reader takes: then its pacing gets half of the blame.
                set_tcp_congestion(&client, "reno")?;
            }
            Mistake::Cork => set_tcp_cork(&client, !is_cured)?,
        }
        let stop = Interrupt::default();
        let (tell, times) = mpsc::channel();
        let (reader_stop, writer_stop) = (stop.clone(), stop.clone());
        let reads_blocks = mistake == Mistake::SlowReader;
        let reader = thread::Builder::new().name("demo-server".to_owned()).spawn(move || match reads_blocks {
            true => read_blocks(accepted, if is_slow { READ_PAUSE } else { Duration::ZERO }, &reader_stop),
            false => answer(accepted),
        })?;
        let writer = thread::Builder::new().name("demo-client".to_owned()).spawn(move || match mistake {
            Mistake::TwoWrites => ask(client, &[&HEADER, &BODY], &writer_stop, &tell),
            Mistake::Cork => ask(client, &[&[HEADER.as_slice(), &BODY].concat()], &writer_stop, &tell),
            Mistake::SlowReader => write_blocks(client, &writer_stop, &tell),
        })?;
        Ok(Self { server, stop, threads: vec![writer, reader], times })
    }

    /// Where the server listened: the connection's port.
    pub const fn address(&self) -> SocketAddr {
        self.server
    }

    /// Hands over how long each request took since this was last called: from its first write to the answer, or for a
    /// block to be taken.
    ///
    /// # Errors
    /// The connection broke.
    pub fn take_times(&mut self, mut take: impl FnMut(Duration)) -> io::Result<()> {
        loop {
            match self.times.try_recv() {
                Ok(time) => take(time),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return self.end(),
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        self.threads.drain(..).try_for_each(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(io::Error::other("a thread panicked")),
        })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.end();
    }
}

/// Sends requests in these parts, and waits for the answer to each. Ends with the connection, or when it is to stop.
fn ask(mut stream: TcpStream, parts: &[&[u8]], stop: &Interrupt, tell: &Sender<Duration>) -> io::Result<()> {
    let mut answer = ANSWER;
    while !stop.is_set() {
        let begin = clock::now();
        for part in parts {
            stream.write_all(part)?;
        }
        stream.read_exact(&mut answer)?;
        // Without a listener it ends by itself.
        let _ = tell.send(clock::now().saturating_since(begin));
        clock::sleep(PAUSE);
    }
    Ok(())
}

/// Answers each request, until the client has gone.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    // The client is what is looked at: nothing of this end may wait.
    stream.set_nodelay(true)?;
    let mut request = [0; HEADER.len() + BODY.len()];
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => stream.write_all(&ANSWER)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn write_blocks(mut stream: TcpStream, stop: &Interrupt, tell: &Sender<Duration>) -> io::Result<()> {
    let block = vec![0; BLOCK_BYTES];
    while !stop.is_set() {
        let begin = clock::now();
        stream.write_all(&block)?;
        let _ = tell.send(clock::now().saturating_since(begin));
        clock::sleep(BLOCK_PAUSE);
    }
    Ok(())
}

fn read_blocks(mut stream: TcpStream, pause: Duration, stop: &Interrupt) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        // What is left at the end is taken at once.
        if !stop.is_set() {
            clock::sleep(pause);
        }
        if stream.read(&mut buffer)? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median of what some requests took.
    fn median(mistake: Mistake, is_cured: bool, requests: usize) -> Duration {
        let mut staged = Staged::start(mistake, is_cured).unwrap();
        assert!(staged.address().ip().is_loopback());
        let mut times = Vec::new();
        while times.len() < requests {
            staged.take_times(|time| times.push(time)).unwrap();
            clock::sleep(PAUSE);
        }
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// Timers of the kernel never fire early, so a busy machine can't make these shorter.
    #[test]
    fn each_mistake_costs_what_the_kernel_makes_of_it() {
        assert!(median(Mistake::Cork, false, 5) >= Duration::from_millis(150));
        assert!(median(Mistake::TwoWrites, false, 60) >= Duration::from_millis(30));
        assert!(median(Mistake::SlowReader, false, 30) >= Duration::from_millis(10));
    }

    #[test]
    fn it_ends_at_once_when_it_is_dropped_though_much_waits() {
        let begin = clock::now();
        let staged = Staged::start(Mistake::SlowReader, false).unwrap();
        clock::sleep(Duration::from_millis(300));
        drop(staged);
        assert!(clock::now().saturating_since(begin) < Duration::from_secs(20));
    }
}

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::Connection;

use super::refusal;
use super::wording::Wording;

/// A connection's records, in front of a socket that does not wait; or without I/O, where the caller reads and writes
/// the socket ([`take`](Self::take), [`seal`](Self::seal)).
#[derive(Debug)]
pub struct Tls {
    connection: Box<Connection>,
    /// The socket will bring no more.
    ended: bool,
    /// Plain bytes that were taken and whose records are not all with the kernel yet.
    pending: usize,
    /// Why sending their records failed; told at the next call, as they were taken.
    failed: Option<io::Error>,
    wording: Wording,
}

struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0, buffer, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    pub(super) fn new(connection: Connection, wording: Wording) -> Self {
        Self { connection: Box::new(connection), ended: false, pending: 0, failed: None, wording }
    }

    /// The beginning, as far as it goes now; whether both sides are who they have to be.
    ///
    /// # Errors
    /// Which side refused, and why; else as recv(2) and send(2).
    pub fn greet(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        loop {
            let sent = self.flush(fd)?;
            if !self.connection.is_handshaking() {
                return Ok(sent);
            }
            match self.connection.read_tls(&mut Socket(fd)) {
                Ok(0) => return Err(self.closed("before TLS had begun")),
                Ok(_) => self.process(fd)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    let what = format!("{} reset the connection before TLS had begun", self.peer());
                    return Err(io::Error::new(error.kind(), what));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it has still to find out who is there.
    pub fn is_greeting(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn process(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The alert that says why, behind what waits before it.
                let _ = self.flush(fd);
                Err(io::Error::new(io::ErrorKind::InvalidData, refusal::explain(&error, self.peer(), self.wording)))
            }
        }
    }

    /// Who is at the other side.
    const fn peer(&self) -> &'static str {
        match *self.connection {
            Connection::Client(_) => "the server",
            Connection::Server(_) => "the client",
        }
    }

    fn closed(&self, when: &str) -> io::Error {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} closed {when}", self.peer()))
    }

    /// Plain bytes; 0 is the end that the other side has said. `WouldBlock` when the socket has no more.
    ///
    /// # Errors
    /// What came is not of this connection; it ended without TLS' own end; else as recv(2).
    pub fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if self.ended {
                // What the records did not say to be the end.
                return Err(self.closed("without TLS' own end: what it sent may have been cut off"));
            }
            if self.connection.read_tls(&mut Socket(fd))? == 0 {
                self.ended = true;
            }
            self.process(fd)?;
            self.flush(fd)?;
        }
    }

    /// Whether there is something that [`read`](Self::read) would give, an error included.
    pub fn has_bytes(&mut self, fd: BorrowedFd<'_>) -> bool {
        loop {
            match self.connection.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() == 0 => {}
                _ => return true,
            }
            if self.ended {
                return false;
            }
            match self.connection.read_tls(&mut Socket(fd)) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Makes records of plain bytes and sends what goes; how many were taken.
    ///
    /// # Errors
    /// As send(2).
    pub fn write(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        self.flush(fd)?;
        if self.connection.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.pending = self.connection.writer().write(bytes)?;
        let taken = self.pending;
        if let Err(error) = self.flush(fd) {
            // Some of the records may have gone.
            self.failed = Some(error);
        }
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Plain bytes that were taken and may not be with the kernel yet.
    pub const fn pending(&self) -> u64 {
        self.pending as u64
    }

    /// Sends records that wait, as far as the socket takes them; whether all went.
    ///
    /// # Errors
    /// As send(2).
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(fd)) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.pending = 0;
        Ok(true)
    }

    /// Says that no more will be sent.
    ///
    /// # Errors
    /// As send(2).
    pub fn finish(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.connection.send_close_notify();
        self.flush(fd)
    }

    /// Says that no more will be sent, in records that wait for [`seal`](Self::seal).
    pub fn say_end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Takes in what the caller has read from the socket; the plain bytes of it are added to `plain`, behind those that
    /// came with the end of the [greeting](Self::greet). Whether the other side has said that no more comes.
    ///
    /// # Errors
    /// Which side refused and why, or what is wrong with the bytes. What has to be said about that waits
    /// ([`seal`](Self::seal)).
    pub fn take(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            // To read nothing would be the end of the connection.
            if !bytes.is_empty() {
                self.connection.read_tls(&mut bytes)?;
            }
            let state = self.connection.process_new_packets().map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, refusal::explain(&error, self.peer(), self.wording))
            })?;
            let has_ended = state.peer_has_closed();
            match self.connection.reader().read_to_end(plain) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            if bytes.is_empty() || has_ended {
                return Ok(has_ended);
            }
        }
    }

    /// Makes records of plain bytes, as many as it takes at once, and adds them to `records`, behind what TLS itself
    /// has to say; how many were taken.
    ///
    /// # Errors
    /// None that a connection in order has.
    pub fn seal(&mut self, plain: &[u8], records: &mut Vec<u8>) -> io::Result<usize> {
        let taken = if plain.is_empty() { 0 } else { self.connection.writer().write(plain)? };
        while self.connection.wants_write() {
            self.connection.write_tls(records)?;
        }
        Ok(taken)
    }
}

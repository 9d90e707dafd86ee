//! An open end of a pipe: the same calls for every kind, none of which waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use taut_link::broker::{BrokerAccount, Carrier, Offered};
use taut_link::tls::Tls;
use taut_link::{Error, Listener, PeerAddress, clock};
use taut_time::Instant;

use crate::sys;
use crate::tty::Restore;

/// What reading or writing came to.
#[derive(Debug)]
pub(crate) enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// Not now.
    Blocked,
    /// The end of what is sent.
    End,
}

/// How bytes go in and out.
#[derive(Debug)]
pub(crate) enum Form {
    /// A stream socket.
    Stream,
    /// A stream socket with TLS on it.
    Tls(Tls),
    /// A socket of messages, connected.
    Messages,
    /// One of several clients at one socket of messages, whose messages the event loop sorts.
    Client { listener: Arc<Listener>, peer: PeerAddress, inbox: VecDeque<Vec<u8>> },
    /// Messages over a broker. Its descriptor only tells that there is something to do.
    Broker(Box<Carrier>),
    /// Pipes and terminals.
    File,
    /// Regular files and what else is always ready.
    Regular,
}

/// An open end.
#[derive(Debug)]
pub(crate) struct End {
    /// Who is there, for people.
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) input: Option<Arc<OwnedFd>>,
    pub(crate) output: Option<Arc<OwnedFd>>,
    /// Most bytes of one write.
    pub(crate) write_limit: usize,
    /// With which a socket's call of send(2) does not wait.
    pub(crate) send_flags: SendFlags,
    /// The kernel throws away what comes while its buffer is full, and has the other side send on.
    pub(crate) loses: bool,
    /// How many packets it has thrown away; what is read from now on came after them.
    lost: u64,
    /// Whether the end of what is sent can be told while receiving goes on.
    pub(crate) halves: bool,
    pub(crate) child: Option<Child>,
    pub(crate) restore: Option<Restore>,
    /// It was waited for, and came.
    pub(crate) is_client: bool,
    /// Reading may bring something.
    pub(crate) readable: bool,
    /// Writing may take something.
    pub(crate) writable: bool,
    /// The other side has closed, so that a short read doesn't mean that there is no more.
    pub(crate) hung_up: bool,
}

/// Whether somebody who left nothing behind to be read has gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Left {
    /// Still there, or something can be read; or nobody can tell, as of messages.
    No,
    /// Will send nothing, and may still read.
    Half,
    /// Neither reads nor sends.
    Both,
}

/// What came to an end and was not taken from it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unread {
    pub(crate) bytes: u64,
    /// Those of them that are messages.
    pub(crate) messages: u64,
    /// Messages for which the kernel had no room, whose length nobody knows.
    pub(crate) dropped: u64,
}

/// The most messages that are counted at the end: more than a socket holds.
pub(crate) const LEFT: u64 = 10_000;

/// The most messages of a client that wait for a pipe that does not keep up; more are lost, and counted.
pub(crate) const INBOX: usize = 256;

impl End {
    pub(crate) fn new(name: String, form: Form, fd: Option<Arc<OwnedFd>>) -> Self {
        let halves = matches!(form, Form::Stream | Form::Tls(_));
        let (readable, writable) = (true, true);
        let (write_limit, child, restore) = (usize::MAX, None, None);
        let send_flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Self {
            name,
            form,
            input: fd.clone(),
            output: fd,
            write_limit,
            send_flags,
            loses: false,
            lost: 0,
            halves,
            child,
            restore,
            is_client: false,
            readable,
            writable,
            hung_up: false,
        }
    }

    /// Whether edges of writes and reads are those of messages.
    pub(crate) const fn has_messages(&self) -> bool {
        matches!(self.form, Form::Messages | Form::Client { .. } | Form::Broker(_))
    }

    /// Whether the kernel can move what comes from here without showing it.
    pub(crate) const fn can_be_spliced(&self) -> bool {
        matches!(self.form, Form::Stream) && self.write_limit == usize::MAX
    }

    /// Whether it is no socket: a file, a terminal, a pipe of the kernel's.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self.form, Form::File | Form::Regular)
    }

    /// Whether it is a channel of Bluetooth, which is closed both ways at once.
    const fn is_channel(&self) -> bool {
        matches!(self.form, Form::Stream) && !self.halves
    }

    /// Reads what is there; of messages one.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Moved> {
        let Some(fd) = self.input.as_ref().map(|fd| fd.as_fd()) else {
            return Ok(self.read_inbox(buffer));
        };
        if self.lost > 0 {
            return Err(no_room(self.lost));
        }
        let capacity = buffer.len();
        let result = loop {
            let result = match &mut self.form {
                Form::Stream | Form::Messages => rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT)
                    .map(|(bytes, _)| bytes)
                    .map_err(io::Error::from),
                Form::Tls(tls) => tls.read(fd, buffer),
                Form::File | Form::Regular => rustix::io::read(fd, &mut *buffer).map_err(io::Error::from),
                Form::Client { .. } => return Ok(self.read_inbox(buffer)),
                Form::Broker(_) => return self.receive(buffer),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        if self.loses {
            // A full buffer takes nothing more until it is read from: what this call brought came
            // before the first that is lost.
            self.lost = sys::dropped(fd);
            if self.lost > 0 && !matches!(result, Ok(1..)) {
                return Err(no_room(self.lost));
            }
        }
        match result {
            Ok(bytes) if bytes > 0 => {
                // A stream that gave less than it could has no more: the next edge tells when there
                // is. Not so when its end has been told already, for which there is no further edge.
                if self.can_be_spliced() && bytes < capacity && !self.hung_up {
                    self.readable = false;
                }
                Ok(Moved::Bytes(bytes))
            }
            Ok(_) if self.has_messages() => Ok(Moved::Bytes(0)),
            Ok(_) => Ok(Moved::End),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(Moved::Blocked)
            }
            // So Bluetooth tells that the peer has closed its channel, once all that came before is
            // read (l2cap_disconnect_req() of l2cap_core.c, rfcomm_recv_disc() of rfcomm/core.c;
            // bt_sock_stream_recvmsg() of af_bluetooth.c). A link that is lost has ETIMEDOUT.
            Err(error) if self.is_channel() && error.kind() == io::ErrorKind::ConnectionReset => Ok(Moved::End),
            // What the last process that had the other side of a terminal leaves (pty(7)). Nobody reads
            // there any more either: when its buffer is full, writing would fail with EAGAIN for ever.
            Err(error) if self.is_file() && error.raw_os_error() == Some(libc::EIO) => {
                if let (Some(input), Some(output)) = (&self.input, &self.output)
                    && Arc::ptr_eq(input, output)
                {
                    (self.output, self.writable) = (None, true);
                }
                Ok(Moved::End)
            }
            Err(error) => Err(error),
        }
    }

    fn read_inbox(&mut self, buffer: &mut [u8]) -> Moved {
        let Form::Client { inbox, .. } = &mut self.form else { return Moved::End };
        let Some(message) = inbox.pop_front() else {
            self.readable = false;
            return Moved::Blocked;
        };
        // The event loop's buffer is no longer than this one.
        let length = message.len().min(buffer.len());
        buffer[..length].copy_from_slice(&message[..length]);
        Moved::Bytes(length)
    }

    /// Reads what a broker has brought, or what it brings now.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Moved> {
        let Form::Broker(carrier) = &mut self.form else { return Ok(Moved::Blocked) };
        if !carrier.has_some() {
            carrier.drive(clock::now());
        }
        if let Some(bytes) = carrier.receive(buffer) {
            return Ok(Moved::Bytes(bytes));
        }
        self.readable = false;
        match carrier.take_error() {
            Some(error) => Err(io::Error::other(error)),
            // The other way may have told why.
            None if carrier.has_left() => Ok(Moved::End),
            None => Ok(Moved::Blocked),
        }
    }

    /// Has a broker's connection do what it can; whether something can be read from it or written to it again.
    pub(crate) fn drive(&mut self, now: Instant) -> bool {
        let Form::Broker(carrier) = &mut self.form else { return false };
        carrier.drive(now);
        let readable = carrier.has_some() || carrier.has_left();
        let writable = carrier.has_room();
        let news = readable && !self.readable || writable && !self.writable;
        (self.readable, self.writable) = (readable, writable);
        news
    }

    /// No more is sent or received: what was sent is brought to a broker.
    pub(crate) fn wind_up(&mut self, now: Instant) {
        if let Form::Broker(carrier) = &mut self.form {
            carrier.finish(now);
        }
    }

    /// Whether a broker's connection is still to be waited for, once it is [wound up](Self::wind_up).
    pub(crate) fn is_winding_up(&mut self, now: Instant) -> bool {
        self.drive(now);
        matches!(self.form, Form::Broker(_)) && !self.is_gone()
    }

    /// Whether it is a broker's connection that is over for good.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.form, Form::Broker(carrier) if carrier.has_left())
    }

    /// What ended a broker's connection for good, and was told to nobody who read from it or wrote to it.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        if let Form::Broker(carrier) = &mut self.form { carrier.take_error() } else { None }
    }

    /// What a user may want to read of a broker's connection.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        if let Form::Broker(carrier) = &mut self.form { carrier.take_note() } else { None }
    }

    /// What became of a broker's messages.
    pub(crate) fn broker_account(&self) -> Option<BrokerAccount> {
        if let Form::Broker(carrier) = &self.form { Some(carrier.account()) } else { None }
    }

    /// When [`drive`](Self::drive) has to be called, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Instant> {
        if let Form::Broker(carrier) = &self.form { carrier.due() } else { None }
    }

    /// Writes as much as goes now; of messages all or nothing.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Moved> {
        let result = loop {
            let result = match (&mut self.form, &self.output) {
                (Form::Client { listener, peer, .. }, _) => listener.send_to(bytes, peer).map_err(io::Error::from),
                (Form::Broker(_), _) => return self.offer(bytes),
                (_, None) => return Err(io::ErrorKind::BrokenPipe.into()),
                (Form::Stream | Form::Messages, Some(fd)) => {
                    rustix::net::send(fd, bytes, self.send_flags).map_err(io::Error::from)
                }
                (Form::Tls(tls), Some(fd)) => tls.write(fd.as_fd(), bytes),
                (Form::File | Form::Regular, Some(fd)) => rustix::io::write(fd, bytes).map_err(io::Error::from),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match result {
            Ok(written) => {
                if written < bytes.len() && matches!(self.form, Form::Stream) {
                    self.writable = false;
                }
                Ok(Moved::Bytes(written))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(Moved::Blocked)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a message to a broker's connection.
    fn offer(&mut self, bytes: &[u8]) -> io::Result<Moved> {
        let Form::Broker(carrier) = &mut self.form else { return Ok(Moved::Blocked) };
        if bytes.len() > self.write_limit {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        if let Some(error) = carrier.take_error() {
            return Err(io::Error::other(error));
        }
        if carrier.offer(bytes) == Offered::Full {
            self.writable = false;
            return Ok(Moved::Blocked);
        }
        Ok(Moved::Bytes(bytes.len()))
    }

    /// Sends what is held in this process (records of TLS); whether nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let (Form::Tls(tls), Some(fd)) = (&mut self.form, &self.output) else { return Ok(true) };
        let done = tls.flush(fd.as_fd())?;
        if !done {
            self.writable = false;
        }
        Ok(done)
    }

    /// Tells that no more will be sent; what that means is the kind's.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match (&mut self.form, &self.output) {
            (Form::Tls(tls), Some(fd)) => {
                // A FIN before the record would be taken for an attack: where the record has to
                // wait, it ends with the close.
                let said = tls.finish(fd.as_fd()).and_then(|sent| match sent {
                    true => Ok(rustix::net::shutdown(fd, Shutdown::Write)?),
                    false => Ok(()),
                });
                // Who has closed already needs not be told.
                match said {
                    Err(error) if is_gone(&error) => {}
                    other => return other,
                }
            }
            (Form::Stream, Some(fd)) if self.halves => match rustix::net::shutdown(fd, Shutdown::Write) {
                // Closed by the other side already.
                Ok(()) | Err(Errno::NOTCONN) => {}
                Err(error) => return Err(error.into()),
            },
            // A file that is only written to, as stdout is, ends with its descriptor.
            (Form::File | Form::Regular, Some(output))
                if self.input.as_ref().is_none_or(|input| !Arc::ptr_eq(input, output)) =>
            {
                self.output = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// Bytes written to the kernel that the other side has not got yet, as far as the kind tells:
    /// TCP's without an acknowledgement, a pipe's that were not read, a terminal's that were not
    /// sent. Of a Unix socket, L2CAP and RFCOMM the most that it can be; of the latter two those
    /// that this side's kernel still has, since no more is known.
    pub(crate) fn unconfirmed(&self, finished: bool) -> Option<u64> {
        let fd: BorrowedFd<'_> = self.output.as_ref()?.as_fd();
        // The FIN counts as one.
        let unsent = || sys::unsent(fd).map(|bytes| bytes.saturating_sub(u64::from(finished && self.halves)));
        match &self.form {
            Form::Stream if self.is_channel() => sys::memory_of_unsent(fd),
            Form::Stream => unsent(),
            Form::Tls(tls) => unsent().map(|bytes| bytes + tls.pending()),
            Form::File if rustix::termios::isatty(fd) => sys::unsent(fd),
            Form::File => sys::unread(fd),
            Form::Messages | Form::Client { .. } | Form::Broker(_) | Form::Regular => None,
        }
    }

    /// What came to this end and was not taken. Of messages that are with the kernel it is taken
    /// now, as nothing else tells how many.
    pub(crate) fn unread(&mut self) -> Unread {
        match (&self.form, &self.input) {
            (Form::Client { inbox, .. }, _) => {
                let bytes = inbox.iter().map(|message| message.len() as u64).sum();
                Unread { bytes, messages: inbox.len() as u64, dropped: 0 }
            }
            (Form::Broker(carrier), _) => {
                let (bytes, messages) = carrier.unread();
                Unread { bytes, messages, dropped: 0 }
            }
            (Form::Stream | Form::File, Some(fd)) => {
                let dropped = if self.loses { sys::dropped(fd.as_fd()) } else { 0 };
                Unread { bytes: sys::unread(fd.as_fd()).unwrap_or(0), messages: 0, dropped }
            }
            (Form::Messages, Some(fd)) => {
                let mut unread = Unread { dropped: sys::dropped(fd.as_fd()), ..Unread::default() };
                let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
                // Whoever goes on sending does not keep it from ending.
                while unread.messages < LEFT
                    && let Ok((_, bytes)) = rustix::net::recv(fd, &mut [0_u8; 1][..], flags)
                {
                    unread.bytes += bytes as u64;
                    unread.messages += 1;
                }
                unread
            }
            _ => Unread::default(),
        }
    }

    /// Whether a client has gone before anything was taken from it.
    pub(crate) fn left(&mut self) -> Left {
        let (true, Some(fd)) = (self.is_client, &self.input) else { return Left::No };
        let fd = fd.as_fd();
        let has_bytes = match &mut self.form {
            Form::Stream => sys::unread(fd).is_some_and(|bytes| bytes > 0),
            Form::Tls(tls) => tls.has_bytes(fd),
            _ => return Left::No,
        };
        let closed = hang_up(fd);
        match () {
            () if has_bytes || closed.is_empty() => Left::No,
            () if closed == PollFlags::RDHUP => Left::Half,
            () => Left::Both,
        }
    }

    /// Whether more of what is unconfirmed may still be confirmed.
    pub(crate) fn may_confirm(&self) -> bool {
        self.output.as_ref().is_some_and(|fd| !sys::is_tcp_closed(fd.as_fd()))
    }

    /// Whether the kernel has bytes on the way to the other side.
    pub(crate) fn is_sending(&self) -> bool {
        self.output.as_ref().and_then(|fd| sys::memory_of_unsent(fd.as_fd())).is_some_and(|bytes| bytes > 0)
    }

    /// How the program ended, if it is one and has.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok()?
    }
}

/// There is a gap in what came.
fn no_room(packets: u64) -> io::Error {
    io::Error::other(format!(
        "this kernel threw {packets} packets away that came while its receive buffer was full, and let the peer send on (so does Linux \
         before 6.10): what is joined to it takes less than the link brings; give it room with `?rcvbuf=BYTES`, or have the peer send slower"
    ))
}

/// What of a connection is closed: nothing, what the other side sends (`RDHUP`), or all.
fn hang_up(fd: BorrowedFd<'_>) -> PollFlags {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), NotConnected | BrokenPipe | ConnectionReset)
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Who is still there at this point was asked to end before (`Pipe::close`).
            if !matches!(child.try_wait(), Ok(Some(_))) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// A socket that throws away what finds no room: of UDP, as an L2CAP socket does under older kernels.
    #[test]
    fn what_came_before_a_gap_is_read_and_nothing_after_it() {
        let (source, sink) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        sink.connect(source.local_addr().unwrap()).unwrap();
        source.connect(sink.local_addr().unwrap()).unwrap();
        socket2::SockRef::from(&sink).set_recv_buffer_size(8192).unwrap();
        let mut end = End::new("lossy".to_owned(), Form::Stream, Some(Arc::new(sink.into())));
        (end.loses, end.write_limit) = (true, 672);
        let mut buffer = [0; 2048];
        let mut read = |end: &mut End| end.read(&mut buffer).map(|moved| matches!(moved, Moved::Bytes(672)));
        source.send(&[0; 672]).unwrap();
        assert!(read(&mut end).unwrap());
        assert!(matches!(end.read(&mut [0; 10]).unwrap(), Moved::Blocked));
        for _ in 0..100 {
            source.send(&[0; 672]).unwrap();
        }
        // Of the whole run that found room the first packet; then nobody knows where the gap is.
        assert!(read(&mut end).unwrap());
        let error = read(&mut end).unwrap_err().to_string();
        assert!(error.contains("packets away"), "{error}");
        assert!(end.unread().dropped > 0 && end.unread().bytes > 0, "{:?}", end.unread());
    }
}

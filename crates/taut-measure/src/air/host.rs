//! The ways from a controller to its host.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use taut_air::hci::{H4Error, H4Received, H4Receiver};
use taut_link::bluetooth::VirtualAdapter;
use taut_link::{Endpoint, Error, Link, Listener};

/// Where the host of a controller is.
#[derive(Debug)]
pub(super) enum Host {
    /// This kernel.
    Kernel(VirtualAdapter),
    /// Whoever connects: packets with H4 framing on a stream.
    Stream(Box<StreamHost>),
}

/// What comes from a host.
#[derive(Debug)]
pub(super) enum FromHost {
    /// An HCI packet, H4 indicator first.
    Packet(Vec<u8>),
    /// It is there from now on.
    Came,
    /// It is gone, for this reason.
    Gone(String),
    /// What it sends can't be followed until it resets the controller.
    Lost(H4Error),
}

/// A host at the other end of a stream. One at a time: whoever comes while one is there waits for its end.
#[derive(Debug)]
pub(super) struct StreamHost {
    listener: Listener,
    link: Option<Link>,
    receiver: H4Receiver,
    acl_limit: usize,
    /// For the host, and not taken by its socket yet.
    unsent: Vec<u8>,
    /// Why the link can't be used any more; told with the next read.
    broken: Option<String>,
}

/// Bytes taken from a stream at once.
const READ: usize = 4096;
/// Bytes that wait for a host before it counts as gone. An adapter that is alive takes its few packets at once.
const MOST_UNSENT: usize = 1 << 20;

impl Host {
    /// The next thing that comes from it; `None` when there is nothing now.
    pub(super) fn read(&mut self) -> Result<Option<FromHost>, Error> {
        match self {
            Self::Kernel(adapter) => Ok(adapter.read()?.map(FromHost::Packet)),
            Self::Stream(host) => host.read(),
        }
    }

    /// Hands it a packet. Whether there was somebody to take it.
    pub(super) fn write(&mut self, packet: &[u8]) -> Result<bool, Error> {
        match self {
            Self::Kernel(adapter) => adapter.write(packet),
            Self::Stream(host) => Ok(host.write(packet)),
        }
    }

    /// What to wait for.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        match self {
            Self::Kernel(adapter) => PollFd::new(adapter, PollFlags::IN),
            Self::Stream(host) => {
                let more = if host.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
                PollFd::from_borrowed_fd(host.descriptor(), more)
            }
        }
    }
}

impl StreamHost {
    /// Takes hosts on `listener`, for a controller that takes ACL packets of so many bytes.
    pub(super) fn new(listener: Listener, acl_limit: usize) -> Result<Self, Error> {
        listener.set_nonblocking(true)?;
        let receiver = H4Receiver::new(acl_limit);
        Ok(Self { listener, link: None, receiver, acl_limit, unsent: Vec::new(), broken: None })
    }

    /// Where it is waited for.
    pub(super) const fn endpoint(&self) -> &Endpoint {
        self.listener.endpoint()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.as_ref().map_or_else(|| self.listener.as_fd(), AsFd::as_fd)
    }

    fn read(&mut self) -> Result<Option<FromHost>, Error> {
        if let Some(why) = self.broken.take() {
            return Ok(Some(self.hang_up(why)));
        }
        let Some(link) = &self.link else { return self.accept() };
        let mut bytes = [0; READ];
        loop {
            match self.receiver.poll() {
                Some(H4Received::Packet(packet)) => return Ok(Some(FromHost::Packet(packet))),
                Some(H4Received::Lost(error)) => return Ok(Some(FromHost::Lost(error))),
                None => {}
            }
            match link.receive_now(&mut bytes) {
                Ok(0) => return Ok(Some(self.hang_up("it closed the stream".to_owned()))),
                Ok(length) => self.receiver.push(&bytes[..length]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Ok(Some(self.hang_up(io::Error::from(error).to_string()))),
            }
        }
        self.flush();
        Ok(None)
    }

    fn accept(&mut self) -> Result<Option<FromHost>, Error> {
        match self.listener.accept() {
            Ok(link) => {
                link.set_nonblocking(true)?;
                self.receiver = H4Receiver::new(self.acl_limit);
                self.link = Some(link);
                Ok(Some(FromHost::Came))
            }
            // Whoever it was has thought better of it.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(Error::Host { what: format!("accept a host on {}", self.endpoint()), error }),
        }
    }

    fn write(&mut self, packet: &[u8]) -> bool {
        if self.link.is_none() || self.broken.is_some() {
            return false;
        }
        self.unsent.extend_from_slice(packet);
        self.flush();
        if self.unsent.len() > MOST_UNSENT {
            self.broken = Some(format!("it left {MOST_UNSENT} bytes untaken"));
        }
        self.broken.is_none()
    }

    fn flush(&mut self) {
        let Some(link) = &self.link else { return };
        while !self.unsent.is_empty() && self.broken.is_none() {
            match link.send(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => self.broken = Some(io::Error::from(error).to_string()),
            }
        }
    }

    fn hang_up(&mut self, why: String) -> FromHost {
        self.link = None;
        self.unsent.clear();
        FromHost::Gone(why)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use taut_air::hci::{self, command as op};

    use super::*;

    fn host() -> (StreamHost, std::path::PathBuf, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host");
        let endpoint: Endpoint = format!("unix:{}", path.display()).parse().unwrap();
        (StreamHost::new(Listener::bind(&endpoint).unwrap(), 251).unwrap(), path, directory)
    }

    fn next(host: &mut StreamHost) -> Option<FromHost> {
        host.read().unwrap()
    }

    #[test]
    fn hosts_come_one_after_another() {
        let (mut host, path, _directory) = host();
        assert!(next(&mut host).is_none());
        assert!(!host.write(&[4, 1, 0]), "nobody is there");
        let mut first = UnixStream::connect(&path).unwrap();
        assert!(matches!(next(&mut host), Some(FromHost::Came)));
        let second = UnixStream::connect(&path).unwrap();
        // Half a packet, and nothing to be had of it.
        let reset = hci::command(op::RESET, &[]);
        first.write_all(&reset[..2]).unwrap();
        assert!(next(&mut host).is_none());
        first.write_all(&reset[2..]).unwrap();
        assert!(matches!(next(&mut host), Some(FromHost::Packet(packet)) if packet == reset));
        assert!(host.write(&[4, 1, 0]));
        let mut got = [0; 3];
        first.read_exact(&mut got).unwrap();
        assert_eq!(got, [4, 1, 0]);
        first.write_all(&[0xff]).unwrap();
        assert!(matches!(next(&mut host), Some(FromHost::Lost(H4Error::Indicator(0xff)))));
        drop(first);
        assert!(matches!(next(&mut host), Some(FromHost::Gone(why)) if why == "it closed the stream"));
        // The next one begins with a stream of its own.
        assert!(matches!(next(&mut host), Some(FromHost::Came)));
        (&second).write_all(&reset).unwrap();
        assert!(matches!(next(&mut host), Some(FromHost::Packet(packet)) if packet == reset));
    }

    #[test]
    fn a_host_that_takes_nothing_is_gone() {
        let (mut host, path, _directory) = host();
        let _stands_still = UnixStream::connect(&path).unwrap();
        assert!(matches!(next(&mut host), Some(FromHost::Came)));
        let packet = hci::completed_packets(0x40, 1);
        let taken = (0..1_000_000).take_while(|_| host.write(&packet)).count();
        assert!(taken * packet.len() >= MOST_UNSENT);
        assert!(matches!(next(&mut host), Some(FromHost::Gone(why)) if why.contains("untaken")));
        assert!(host.unsent.is_empty());
    }
}

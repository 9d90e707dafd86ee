//! Sinks of the user path, kept open.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use taut_link::{Error, Result};

use super::broker::Broker;
use super::event::Event;
use super::led::Led;
use super::loops::{Hops, ReplyGuard};
use super::status::Shared;
use super::stream::Stream;
use super::{gpio, serial};
use crate::route::{Route, Target};

/// A sink at work.
pub(super) struct Output {
    kind: Kind,
    /// Our stdout, where the route waits for its reader: what it reads from waits as well.
    waits: Option<OwnedFd>,
    /// The program's output to send; none for the payload as it came.
    output: Option<usize>,
}

enum Kind {
    Reply(ReplyGuard),
    /// From the source's socket, or where that is none, from its own.
    Udp(SocketAddr, Option<(UdpSocket, Hops)>),
    UnixDgram(PathBuf, UnixDatagram),
    Stream(Stream),
    Broker(Broker),
    File(Box<dyn Write + Send>),
    Gpio(gpio::Output),
    Led(Led),
}

impl Output {
    /// Opens the sinks of a route. What is lost behind the back of [`send`](Self::send) is put down in `counters`; what
    /// takes its time to end hurries once it is asked to `stop`.
    pub(super) fn open_all(
        route: &Route,
        source: Option<&UdpSocket>,
        counters: &Arc<Shared>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Self>> {
        let open = |sink: &crate::route::Sink| {
            let failed = |error| Error::Io { operation: "send to", endpoint: sink.target.to_string(), error };
            let kind = match &sink.target {
                Target::Gpio(line) => gpio::Output::open(line).map(Kind::Gpio),
                Target::Led(name) => Led::open(name).map(Kind::Led),
                Target::Tcp(_) | Target::Unix(_) | Target::Bluetooth(_) => {
                    Ok(Kind::Stream(Stream::new(sink.target.clone(), &route.source, Arc::clone(counters))))
                }
                Target::Broker(endpoint) => {
                    Broker::open(endpoint, route.source.waits(), counters, stop).map(Kind::Broker)
                }
                other => Kind::open(other, source, route).map_err(failed),
            };
            let is_stdout = matches!(&sink.target, Target::File(path) if path.as_os_str() == "-");
            let waits = if is_stdout && route.source.waits() {
                let copy = io::stdout().as_fd().try_clone_to_owned();
                Some(copy.map_err(failed)?)
            } else {
                None
            };
            kind.map(|kind| Self { kind, waits, output: sink.output })
        };
        route.sinks.iter().map(open).collect()
    }

    /// Waits for its reader, for a tenth of a second at most; `false` where what has no room is lost.
    pub(super) fn wait(&self) -> bool {
        if let Kind::Broker(broker) = &self.kind {
            return broker.wait();
        }
        let Some(fd) = &self.waits else { return false };
        let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // What interrupts it is a reason to look.
        let _ = rustix::event::poll(&mut [PollFd::new(fd, PollFlags::OUT)], Some(&tenth));
        true
    }

    /// What was to be sent is lost, which the route counts: where there is an account, it is to have that as well.
    pub(super) fn miss(&self) {
        if let Kind::Broker(broker) = &self.kind {
            broker.miss();
        }
    }

    /// Takes no more. What has to be brought somewhere yet is, until this is dropped.
    pub(super) fn close(&mut self) {
        if let Kind::Broker(broker) = &mut self.kind {
            broker.close();
        }
    }

    /// Sends what it sends of an event.
    #[inline]
    pub(super) fn send(
        &mut self,
        source: Option<&UdpSocket>,
        event: &Event,
        payload: &[u8],
        outputs: &[i64],
    ) -> io::Result<()> {
        let number = self.output.and_then(|output| outputs.get(output).copied());
        let bytes = number.map(i64::to_be_bytes);
        let datagram = bytes.as_ref().map_or(payload, |bytes| bytes.as_slice());
        let unreachable = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        match &mut self.kind {
            Kind::Reply(_) | Kind::Udp(..) if !Hops::are_left(event.hops) => return Err(unreachable()),
            Kind::Reply(guard) => {
                let to = event.from.filter(|to| guard.allows(*to, event.now_ns)).ok_or_else(unreachable)?;
                source.ok_or_else(unreachable)?.send_to(datagram, to)?;
            }
            Kind::Udp(to, Some((own, hops))) => {
                hops.keep(own, *to, event.hops)?;
                own.send_to(datagram, *to)?;
            }
            Kind::Udp(to, None) => {
                source.ok_or_else(unreachable)?.send_to(datagram, *to)?;
            }
            Kind::UnixDgram(path, socket) => {
                socket.send_to(datagram, &*path)?;
            }
            Kind::Stream(stream) => stream.send(line(number.unwrap_or_default()))?,
            Kind::Broker(broker) => {
                broker.send(number.map_or_else(|| payload.to_vec(), |number| number.to_string().into_bytes()))?;
            }
            Kind::File(file) => {
                file.write_all(&line(number.unwrap_or_default()))?;
                file.flush()?;
            }
            Kind::Gpio(line) => line.set(number.unwrap_or_default() != 0)?,
            Kind::Led(led) => led.set(number.unwrap_or_default() != 0)?,
        }
        Ok(())
    }
}

fn line(number: i64) -> Vec<u8> {
    format!("{number}\n").into_bytes()
}

/// Opens a file to append to, or stdout. Neither opening nor writing waits for the reader of a FIFO: the former
/// fails where there is none, the latter with `WouldBlock` where it does not read. A pipe at our stdout is no other.
pub(super) fn append(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    Ok(if path.as_os_str() == "-" {
        match once_more(io::stdout().as_fd()) {
            Ok(pipe) => Box::new(pipe),
            // Of another user, or nobody reads from it.
            Err(_) => Box::new(io::stdout()),
        }
    } else {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().append(true).create(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::new(error.kind(), "nobody reads from the other end of it"),
            _ => error,
        })?;
        // A terminal would take a part of a line.
        if !file.metadata()?.file_type().is_fifo() {
            rustix::io::ioctl_fionbio(&file, false)?;
        }
        Box::new(file)
    })
}

/// Opens a pipe once more, to be written to without waiting: others may share what we were given,
/// and it stays as it is.
fn once_more(pipe: BorrowedFd<'_>) -> io::Result<File> {
    if !FileType::from_raw_mode(rustix::fs::fstat(pipe)?.st_mode).is_fifo() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    File::options().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

impl Kind {
    fn open(target: &Target, source: Option<&UdpSocket>, route: &Route) -> io::Result<Self> {
        Ok(match target {
            Target::Reply => {
                let own = source.ok_or(io::ErrorKind::Unsupported)?.local_addr()?;
                Self::Reply(ReplyGuard::new(own, route.replies))
            }
            Target::Udp(to) => {
                let same_family =
                    |socket: &&UdpSocket| socket.local_addr().is_ok_and(|address| address.is_ipv4() == to.is_ipv4());
                let own = match source.filter(same_family) {
                    Some(_) => None,
                    None => {
                        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                        let socket = UdpSocket::bind(any)?;
                        socket.set_nonblocking(true)?;
                        Some((socket, Hops::default()))
                    }
                };
                Self::Udp(*to, own)
            }
            Target::UnixDgram(path) => {
                let socket = UnixDatagram::unbound()?;
                // A receiver that does not read must not hold up the others.
                socket.set_nonblocking(true)?;
                Self::UnixDgram(path.clone(), socket)
            }
            Target::File(path) => Self::File(append(path)?),
            Target::Tty(line) => Self::File(Box::new(serial::open(line)?)),
            // They have openings of their own.
            Target::Gpio(_)
            | Target::Led(_)
            | Target::Tcp(_)
            | Target::Unix(_)
            | Target::Bluetooth(_)
            | Target::Broker(_) => return Err(io::ErrorKind::Unsupported.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_the_reader_of_a_fifo() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let error = append(&path).err().unwrap().to_string();
        assert_eq!(error, "nobody reads from the other end of it");
        let _reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let mut fifo = append(&path).unwrap();
        let refused = (0..1 << 20).find_map(|_| fifo.write_all(b"1\n").err()).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        // What was given stays as it is.
        let (_reader, given) = rustix::pipe::pipe().unwrap();
        let mut pipe = once_more(given.as_fd()).unwrap();
        let refused = (0..1 << 20).find_map(|_| pipe.write_all(b"1\n").err()).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(!rustix::fs::fcntl_getfl(&given).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        // Files are what they were.
        append(&directory.path().join("file")).unwrap().write_all(b"1\n").unwrap();
    }
}

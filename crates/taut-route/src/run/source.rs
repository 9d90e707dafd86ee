//! Sources of the user path: each hands over one event at a time, and looks up from waiting often enough to be stopped.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};

use rustix::event::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use socket2::Type;
use taut_link::{Error, Result, SocketFile, message};

use super::event::{Event, LOOK_UP, Next, is_quiet, now_ns, number, wait};
use super::lines::{Lines, Listener};
use super::loops::Hops;
use super::{evdev, gpio, serial};
use crate::route::{Route, Source};

pub(super) enum Input {
    Udp { socket: UdpSocket, overflows: u32, realtime_ns: i64, hops: Hops },
    // The file goes before the socket does, while nobody else can have its place.
    UnixDgram { _file: SocketFile, socket: UnixDatagram },
    Lines(Lines),
    Timer { fd: OwnedFd },
    Gpio(gpio::Edges),
    Evdev(Box<evdev::Events>),
}

impl Input {
    /// Opens a route's source.
    pub(super) fn open(route: &Route) -> Result<Self> {
        let source = &route.source;
        let failed = |error: io::Error| Error::Io { operation: "take from", endpoint: source.to_string(), error };
        match source {
            Source::Bluetooth(endpoint) => {
                let listener = Listener::Link(Box::new(taut_link::Listener::bind(endpoint)?));
                rustix::io::ioctl_fionbio(listener.as_fd(), true).map_err(|errno| failed(errno.into()))?;
                Ok(Self::Lines(Lines::of(Some(listener), None)))
            }
            Source::Gpio(edges) => {
                // Without a real-time thread to wake up the character device is sooner.
                let sysfs_will_do = route.fifo.is_some() && !route.program.remembers();
                gpio::Edges::open(edges, sysfs_will_do).map(Self::Gpio)
            }
            Source::Input(events) => evdev::Events::open(events).map(|events| Self::Evdev(Box::new(events))),
            other => Self::try_open(other).map_err(failed),
        }
    }

    fn try_open(source: &Source) -> io::Result<Self> {
        Ok(match source {
            Source::Udp(address) => {
                let socket = UdpSocket::bind(address)?;
                socket.set_read_timeout(Some(LOOK_UP))?;
                message::prepare(socket.as_fd())?;
                Self::Udp { socket, overflows: 0, realtime_ns: realtime_offset(), hops: Hops::default() }
            }
            Source::UnixDgram(path) => {
                SocketFile::remove_dead(path, Type::DGRAM)?;
                let socket = UnixDatagram::bind(path)?;
                let file = SocketFile::of(path.clone());
                socket.set_read_timeout(Some(LOOK_UP))?;
                Self::UnixDgram { _file: file, socket }
            }
            Source::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                // For all clients to come.
                taut_link::keep_alive(&listener)?;
                Self::Lines(Lines::of(Some(Listener::Tcp(listener)), None))
            }
            Source::Unix(path) => {
                SocketFile::remove_dead(path, Type::STREAM)?;
                let listener = UnixListener::bind(path)?;
                let file = SocketFile::of(path.clone());
                listener.set_nonblocking(true)?;
                Self::Lines(Lines::of(Some(Listener::Unix(file, listener)), None))
            }
            Source::Lines(path) if path.as_os_str() == "-" => {
                // Without the buffer of the standard library, in which lines would hide from poll.
                let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
                Self::Lines(Lines::of(None, Some(Box::new(stdin))))
            }
            Source::Lines(path) => {
                // A serial device may have no carrier yet, which opening would wait for.
                let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
                let file = File::options().read(true).custom_flags(flags).open(path)?;
                Self::Lines(Lines::of(None, Some(Box::new(file))))
            }
            Source::Tty(line) => Self::Lines(Lines::of(None, Some(Box::new(serial::open(line)?)))),
            // They have openings of their own.
            Source::Gpio(_) | Source::Input(_) | Source::Bluetooth(_) => return Err(io::ErrorKind::Unsupported.into()),
            Source::Timer(period) => {
                let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
                let time = Timespec { tv_sec: period.as_secs() as i64, tv_nsec: period.subsec_nanos().into() };
                let setting = Itimerspec { it_interval: time, it_value: time };
                rustix::time::timerfd_settime(&fd, TimerfdTimerFlags::empty(), &setting)?;
                Self::Timer { fd }
            }
        })
    }

    /// The socket of a source of UDP: replies and further datagrams leave from its address, as they do in the kernel.
    pub(super) fn udp(&self) -> Option<&UdpSocket> {
        if let Self::Udp { socket, .. } = self { Some(socket) } else { None }
    }

    /// Has what leaves from a source of UDP go as far as what came still might.
    pub(super) fn keep_hops(&mut self, event: &Event) -> io::Result<()> {
        match (self, event.from) {
            (Self::Udp { socket, hops, .. }, Some(from)) => hops.keep(socket, from, event.hops),
            _ => Ok(()),
        }
    }

    /// Waits for an event, for a while.
    #[inline]
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        match self {
            Self::Udp { socket, overflows, realtime_ns, .. } => {
                let received = match message::datagram(socket.as_fd(), buffer) {
                    Err(error) if is_quiet(&error) => {
                        // The wall clock may be set; what is measured with it is a time of this moment.
                        *realtime_ns = realtime_offset();
                        return Ok(Next::Nothing);
                    }
                    other => other?,
                };
                let at_ns = received.stamp.map_or_else(now_ns, |(s, ns)| s * 1_000_000_000 + ns - *realtime_ns);
                let lost =
                    received.overflows.map_or(0, |total| total.wrapping_sub(std::mem::replace(overflows, total)));
                let (bytes, from, hops, lost) = (received.bytes, received.from, received.hops, lost.into());
                Ok(Next::Event(Event { bytes, at_ns, now_ns: now_ns(), from, hops, lost }))
            }
            Self::UnixDgram { socket, .. } => match socket.recv(buffer) {
                Err(error) if is_quiet(&error) => Ok(Next::Nothing),
                result => {
                    let now_ns = now_ns();
                    Ok(Next::Event(Event { bytes: result?, at_ns: now_ns, now_ns, from: None, hops: None, lost: 0 }))
                }
            },
            Self::Lines(lines) => lines.next(buffer),
            Self::Timer { fd } => {
                if !wait(&[fd.as_fd()])?[0] {
                    return Ok(Next::Nothing);
                }
                let mut count = [0; 8];
                rustix::io::read(&*fd, &mut count)?;
                let at_ns = now_ns();
                Ok(number(buffer, u64::from_ne_bytes(count).cast_signed(), at_ns))
            }
            Self::Gpio(edges) => edges.next(buffer),
            Self::Evdev(events) => events.next(buffer),
        }
    }

    /// Events that were lost and have not been told of, when nothing more is taken.
    pub(super) fn finish(&mut self) -> u64 {
        if let Self::Gpio(edges) = self { edges.finish() } else { 0 }
    }
}

/// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
fn realtime_offset() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec - now_ns()
}

//! Opening ends: everything that may wait, done by a thread of its own.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use taut_link::broker::{Carrier, Directions};
use taut_link::tls::TlsRole;
use taut_link::{Endpoint, Error, Link, Result, SocketOption, clock};
use taut_time::{Duration, Framing as Edges};

use crate::address::Address;
use crate::end::{End, Form};
use crate::sys;
use crate::tty;

/// Which of a pipe's two ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Which {
    /// The first.
    A,
    /// The second.
    B,
}

impl Which {
    /// Its place in an array of both.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// From its place.
    pub(crate) const fn of(index: usize) -> Self {
        if index == 0 { Self::A } else { Self::B }
    }

    /// `a` or `b`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// The longest datagram that becomes one of several from a stream without framing: what fits into an Ethernet frame.
const UDP_CHUNK: usize = 1472;

/// Goes to an address, as the end `which` of a pipe whose other end is `other`.
pub(crate) fn open(
    address: &Address,
    which: Which,
    other: &Address,
    tls: Option<&TlsRole>,
    timeout: Duration,
) -> Result<End> {
    match address {
        Address::Link(endpoint) if endpoint.has_broker() => broker(endpoint, which, other, timeout),
        Address::Link(endpoint) => {
            let link = Link::connect(endpoint, timeout)?;
            of_link(link, endpoint.to_string())
        }
        Address::Tls { host, endpoint } => {
            let role = tls.ok_or_else(|| Error::Input("TLS is not set up".to_owned()))?;
            let end = of_link(Link::connect(endpoint, timeout)?, address.to_string())?;
            with_tls(end, role, host, timeout)
        }
        Address::Tty { path, settings } => {
            let (fd, restore) = tty::open(path, *settings)?;
            let mut end = End::new(address.to_string(), Form::File, Some(fd));
            end.restore = Some(restore);
            Ok(end)
        }
        Address::Exec { words, pty } => exec(words, *pty, address.to_string()),
        Address::Stdio => stdio(),
        Address::File(path) => file(path, which, address.to_string()),
    }
}

/// An end of a link that is open.
pub(crate) fn of_link(link: Link, name: String) -> Result<End> {
    link.set_nonblocking(true)?;
    link.keep_alive()?;
    if SocketOption::Nodelay(true).applies_to(link.endpoint()) {
        // What is joined must not be slower for it: RFC 896 would hold small messages back.
        link.set_options(&[SocketOption::Nodelay(true)])?;
    }
    let form = if link.endpoint().framing() == Edges::Stream { Form::Stream } else { Form::Messages };
    let (limit, halves) = (link.write_limit(), link.endpoint().closes_by_halves());
    let chunk = match link.endpoint() {
        Endpoint::Udp(_) => UDP_CHUNK,
        endpoint => endpoint.datagram_limit().unwrap_or(limit),
    };
    let (send_flags, loses) = (link.flags_of_send_now(), link.loses_what_finds_no_room());
    let mut end = End::new(name, form, Some(Arc::new(OwnedFd::from(link))));
    end.write_limit = limit.min(chunk);
    end.send_flags = send_flags;
    end.loses = loses;
    end.halves &= halves;
    Ok(end)
}

/// A broker is read from as the first end and written to as the second; beside a file, nothing goes the other way.
fn broker(endpoint: &Endpoint, which: Which, other: &Address, timeout: Duration) -> Result<End> {
    let goes_back = !matches!(other, Address::File(_));
    let directions = match which {
        Which::A => Directions { reads: true, writes: goes_back, topic_is_heard: true },
        Which::B => Directions { reads: goes_back, writes: true, topic_is_heard: false },
    };
    let carrier = Carrier::open(endpoint, directions, timeout)?;
    let fail = |error| Error::Host { what: format!("wait for {endpoint}"), error };
    let watched = Arc::new(carrier.watch().map_err(fail)?);
    let mut end = End::new(endpoint.to_string(), Form::Broker(Box::new(carrier)), Some(watched));
    end.write_limit = crate::MESSAGE_LIMIT;
    // Who reads goes on when it has nothing more to send, as to a server; who writes is done then.
    end.halves = which == Which::A;
    Ok(end)
}

/// The name of a client: what it came to and where from.
pub(crate) fn client_name(side: &str, from: Option<IpAddr>, link: &Link) -> String {
    match (link.peer_address(), from) {
        (Some(address), _) => format!("{side} from {address}"),
        (None, Some(ip)) => format!("{side} from {ip}"),
        (None, None) => side.to_owned(),
    }
}

fn with_tls(mut end: End, role: &TlsRole, host: &str, timeout: Duration) -> Result<End> {
    let fail = |error: io::Error| Error::Unsecured { endpoint: end.name.clone(), reason: error.to_string() };
    let mut tls = role.begin(host)?;
    let Some(fd) = end.input.clone() else { return Err(Error::Input("TLS needs a socket".to_owned())) };
    let begin = clock::now();
    while !tls.greet(fd.as_fd()).map_err(fail)? {
        let left = timeout.saturating_sub(clock::now().saturating_since(begin));
        if left.is_zero() {
            let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Silent { endpoint: end.name.clone(), to: "the beginning of TLS", after_ms });
        }
        wait_readable(&fd, left).map_err(fail)?;
    }
    end.form = Form::Tls(tls);
    Ok(end)
}

fn wait_readable(fd: &OwnedFd, time: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(time).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn exec(words: &[String], pty: bool, name: String) -> Result<End> {
    let fail = |error: io::Error| Error::Host { what: name.clone(), error };
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::Input("the command is missing".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let (ours, theirs) = if pty { terminal() } else { pair() }.map_err(fail)?;
    let copy = theirs.try_clone().map_err(fail)?;
    command.stdin(Stdio::from(copy)).stdout(Stdio::from(theirs));
    if pty {
        sys::lead_a_session(&mut command);
    }
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Input(format!("{name}: there is no program `{program}`")),
        _ => fail(error),
    })?;
    let form = if pty { Form::File } else { Form::Stream };
    let mut end = End::new(name.clone(), form, Some(Arc::new(ours)));
    end.child = Some(child);
    Ok(end)
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((ours.into(), theirs.into()))
}

/// A pseudoterminal, raw and without echo, so that bytes pass unchanged unless the program wants it otherwise.
fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(&*name, flags, Mode::empty())?;
    let mut settings = rustix::termios::tcgetattr(&theirs)?;
    settings.make_raw();
    rustix::termios::tcsetattr(&theirs, rustix::termios::OptionalActions::Now, &settings)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

fn file(path: &Path, which: Which, name: String) -> Result<End> {
    let base = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let flags = match which {
        Which::A => base | OFlags::RDONLY,
        Which::B => base | OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND,
    };
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)).map_err(|error| match error {
        Errno::NXIO => Error::Input(format!("{name}: nobody reads from the other end of it")),
        Errno::NOENT | Errno::ISDIR | Errno::NOTDIR => Error::Input(format!("{name}: {error}")),
        _ => Error::Host { what: name.clone(), error: error.into() },
    })?;
    let form = form_of(&fd).map_err(|error| Error::Host { what: name.clone(), error: error.into() })?;
    let mut end = End::new(name, form, None);
    match which {
        Which::A => end.input = Some(Arc::new(fd)),
        Which::B => end.output = Some(Arc::new(fd)),
    }
    Ok(end)
}

fn form_of(fd: &OwnedFd) -> rustix::io::Result<Form> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    Ok(match kind {
        FileType::Socket => Form::Stream,
        FileType::Fifo => Form::File,
        FileType::CharacterDevice if rustix::termios::isatty(fd) => Form::File,
        _ => Form::Regular,
    })
}

/// Our own stdin and stdout. They are shared with the shell and others, so that they can't be set
/// not to wait: pipes and terminals are opened once more, sockets are told at each call.
fn stdio() -> Result<End> {
    let fail =
        |what: &str, error: Errno| Error::Host { what: format!("open our {what} once more"), error: error.into() };
    let input = once_more(rustix::stdio::stdin(), OFlags::RDONLY).map_err(|error| fail("stdin", error))?;
    let output = once_more(rustix::stdio::stdout(), OFlags::WRONLY).map_err(|error| fail("stdout", error))?;
    let forms = (
        form_of(&input).map_err(|error| fail("stdin", error))?,
        form_of(&output).map_err(|error| fail("stdout", error))?,
    );
    let form = match forms {
        // Both the same socket, as inetd(8) and systemd give it.
        (Form::Stream, Form::Stream) => Form::Stream,
        (Form::Stream, _) | (_, Form::Stream) | (Form::File, _) | (_, Form::File) => Form::File,
        _ => Form::Regular,
    };
    // The copies are those that are used: the reader of our stdout sees its end when the pipe says so.
    let null = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", null, Mode::empty()).map_err(|error| fail("null device", error))?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| fail("stdin", error))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| fail("stdout", error))?;
    let mut end = End::new("stdio:".to_owned(), form, None);
    end.input = Some(Arc::new(input));
    end.output = Some(Arc::new(output));
    end.halves = true;
    Ok(end)
}

fn once_more(fd: impl AsFd + Copy, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
    let is_waiting = matches!(form_of(&copy)?, Form::File);
    if !is_waiting {
        return Ok(copy);
    }
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

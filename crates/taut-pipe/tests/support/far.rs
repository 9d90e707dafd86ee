//! The far sides of ends of all kinds that a host has by itself: what a user has there, as one form.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use socket2::SockRef;
use taut_link::Endpoint;

use super::PATIENCE;
use super::tls::Certificates;

/// An end as written: its kind, and whether clients are waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Tcp,
    Unix,
    Abstract,
    Tls,
    Udp,
    UnixDgram,
    ListenTcp,
    ListenUnix,
    ListenAbstract,
    ListenTls,
    ListenUdp,
    ListenUnixDgram,
    Tty,
    Exec,
    ExecPty,
    File,
}

impl Kind {
    pub(crate) const ALL: [Self; 16] = [
        Self::Tcp,
        Self::Unix,
        Self::Abstract,
        Self::Tls,
        Self::Udp,
        Self::UnixDgram,
        Self::ListenTcp,
        Self::ListenUnix,
        Self::ListenAbstract,
        Self::ListenTls,
        Self::ListenUdp,
        Self::ListenUnixDgram,
        Self::Tty,
        Self::Exec,
        Self::ExecPty,
        Self::File,
    ];

    pub(crate) const fn has_messages(self) -> bool {
        matches!(self, Self::Udp | Self::UnixDgram | Self::ListenUdp | Self::ListenUnixDgram)
    }

    pub(crate) const fn listens(self) -> bool {
        matches!(
            self,
            Self::ListenTcp
                | Self::ListenUnix
                | Self::ListenAbstract
                | Self::ListenTls
                | Self::ListenUdp
                | Self::ListenUnixDgram
        )
    }

    pub(crate) const fn is_udp(self) -> bool {
        matches!(self, Self::Udp | Self::ListenUdp)
    }

    /// Whether its far side can say that it sends no more and go on receiving.
    pub(crate) const fn halves(self) -> bool {
        !self.has_messages() && !matches!(self, Self::Tty | Self::ExecPty)
    }

    /// Whether its far side knows the pipe only once something came from it.
    pub(crate) const fn answers_only(self) -> bool {
        matches!(self, Self::Udp | Self::UnixDgram)
    }
}

/// Why two kinds can't be joined; a part of what is said.
pub(crate) fn refusal(a: Kind, b: Kind) -> Option<&'static str> {
    if (a, b) == (Kind::File, Kind::File) {
        return Some("cp(1)");
    }
    if a.listens() && b.listens() && (a.has_messages() || b.has_messages()) {
        return Some("both listened on");
    }
    if a.answers_only() && (b.answers_only() || b == Kind::File) {
        return Some("sends the first message");
    }
    None
}

/// What a kind needs before the pipe is there.
pub(crate) enum Waiting {
    Tcp(TcpListener),
    Unix(UnixListener),
    Terminal(OwnedFd),
    Udp(UdpSocket),
    UnixDgram(UnixDatagram),
    /// A program, known by its arguments.
    Program(String),
    File(PathBuf),
    /// The far side comes to the pipe, at this name where it is a Unix socket.
    Comes(String),
}

fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The address of an end, and what there is before the pipe is made. `content` is that of a file that is read from.
pub(crate) fn prepare(kind: Kind, directory: &Path, name: &str, content: &[u8]) -> (String, Waiting) {
    let path = directory.join(name);
    let file = path.display();
    let abstract_name = format!("taut-{}-{}", std::process::id(), number());
    match kind {
        Kind::Tcp | Kind::Tls => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let address =
                if kind == Kind::Tls { format!("tls://localhost:{port}") } else { format!("tcp://127.0.0.1:{port}") };
            (address, Waiting::Tcp(listener))
        }
        Kind::Unix => (format!("unix:{file}"), Waiting::Unix(UnixListener::bind(&path).unwrap())),
        Kind::Abstract => {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&abstract_name).unwrap();
            (format!("unix:@{abstract_name}"), Waiting::Unix(UnixListener::bind_addr(&address).unwrap()))
        }
        Kind::Udp => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            (format!("udp://{}", socket.local_addr().unwrap()), Waiting::Udp(socket))
        }
        Kind::UnixDgram => (format!("unix-dgram:{file}"), Waiting::UnixDgram(UnixDatagram::bind(&path).unwrap())),
        Kind::ListenTcp => ("listen:tcp://127.0.0.1:0".to_owned(), Waiting::Comes(String::new())),
        Kind::ListenTls => ("listen:tls://127.0.0.1:0".to_owned(), Waiting::Comes(String::new())),
        Kind::ListenUdp => ("listen:udp://127.0.0.1:0".to_owned(), Waiting::Comes(String::new())),
        Kind::ListenUnix => (format!("listen:unix:{file}"), Waiting::Comes(file.to_string())),
        Kind::ListenUnixDgram => (format!("listen:unix-dgram:{file}"), Waiting::Comes(file.to_string())),
        Kind::ListenAbstract => (format!("listen:unix:@{abstract_name}"), Waiting::Comes(abstract_name)),
        Kind::Tty => {
            use rustix::pty::OpenptFlags;
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let ours = rustix::pty::openpt(flags).unwrap();
            rustix::pty::grantpt(&ours).unwrap();
            rustix::pty::unlockpt(&ours).unwrap();
            // What is typed when the pipe has put the settings back is not to come back to us.
            let mut settings = rustix::termios::tcgetattr(&ours).unwrap();
            settings.local_modes.remove(rustix::termios::LocalModes::ECHO);
            rustix::termios::tcsetattr(&ours, rustix::termios::OptionalActions::Now, &settings).unwrap();
            let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
            (format!("tty:{name}?baud=115200"), Waiting::Terminal(ours))
        }
        Kind::Exec | Kind::ExecPty => {
            let command = format!("sleep 864{:05}", number());
            let kind = if kind == Kind::Exec { "exec" } else { "exec-pty" };
            (format!("{kind}:{command}"), Waiting::Program(command))
        }
        Kind::File => {
            if !content.is_empty() {
                std::fs::write(&path, content).unwrap();
            } else if name == "a" {
                File::create(&path).unwrap();
            }
            (format!("file:{file}"), Waiting::File(path))
        }
    }
}

/// The far side of an end once the pipe is there; `index` is its place among those that are
/// listened on. `None` of a file, and when the pipe has ended before it came to it.
pub(crate) fn meet(
    kind: Kind,
    waiting: Waiting,
    endpoints: &[Endpoint],
    index: usize,
    tls: &Certificates,
    has_ended: &AtomicBool,
) -> Option<Far> {
    let until = |is_there: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !is_there() {
            if has_ended.load(Ordering::Acquire) {
                return None;
            }
            assert!(begin.elapsed() < PATIENCE, "the pipe does not come to {kind:?} in {PATIENCE:?}");
            thread::sleep(LOOK / 5);
        }
        Some(())
    };
    let port = || super::port(&endpoints[index]);
    let far = match (kind, waiting) {
        (_, Waiting::Tcp(listener)) => {
            until(&|| wait(&listener, PollFlags::IN, LOOK))?;
            let (socket, _) = listener.accept().unwrap();
            if kind == Kind::Tls { Far::tls(tls.accept(socket).into_parts()) } else { Far::new(socket) }
        }
        (_, Waiting::Unix(listener)) => {
            until(&|| wait(&listener, PollFlags::IN, LOOK))?;
            Far::new(listener.accept().unwrap().0)
        }
        (_, Waiting::Terminal(ours)) => {
            // What is typed before the pipe has set the terminal is treated as lines.
            let is_raw = || {
                let modes = rustix::termios::tcgetattr(&ours).unwrap().local_modes;
                !modes.contains(rustix::termios::LocalModes::ICANON)
            };
            until(&is_raw)?;
            Far::new(ours)
        }
        (_, Waiting::Udp(socket)) => Far::new(socket).answering(),
        (_, Waiting::UnixDgram(socket)) => Far::new(socket).answering(),
        (_, Waiting::Program(command)) => {
            let words = format!("{}\0", command.replace(' ', "\0"));
            let found = std::cell::Cell::new(None);
            until(&|| {
                found.set(child(&words));
                found.get().is_some()
            })?;
            Far::program(found.get()?)?
        }
        (_, Waiting::File(_)) => return None,
        (Kind::ListenTls, Waiting::Comes(_)) => {
            Far::tls(tls.connect(TcpStream::connect(port()).unwrap(), true).into_parts())
        }
        (Kind::ListenUnix, Waiting::Comes(name)) => Far::new(UnixStream::connect(name).unwrap()),
        (Kind::ListenAbstract, Waiting::Comes(name)) => {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
            Far::new(UnixStream::connect_addr(&address).unwrap())
        }
        (Kind::ListenUnixDgram, Waiting::Comes(name)) => {
            let socket = UnixDatagram::bind(format!("{name}.client")).unwrap();
            socket.connect(name).unwrap();
            Far::new(socket)
        }
        (Kind::ListenUdp, Waiting::Comes(_)) => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(port().parse::<SocketAddr>().unwrap()).unwrap();
            Far::new(socket)
        }
        (_, Waiting::Comes(_)) => Far::new(TcpStream::connect(port()).unwrap()),
    };
    Some(far)
}

/// Whether the descriptor became ready within the time.
fn wait(fd: impl AsFd, flags: PollFlags, time: Duration) -> bool {
    let time = Timespec::try_from(time).unwrap();
    poll(&mut [PollFd::new(&fd, flags)], Some(&time)).is_ok_and(|ready| ready > 0)
}

/// How long a wait lasts before it is looked whether it is still wanted.
const LOOK: Duration = Duration::from_millis(5);

/// A far side, for one thread that reads and one that writes.
pub(crate) struct Far {
    fd: OwnedFd,
    tls: Option<Mutex<rustls::Connection>>,
    /// Whether it is known where to send to.
    knows: AtomicBool,
    cancelled: AtomicBool,
    _child: Option<Child>,
}

impl Far {
    fn new(fd: impl Into<OwnedFd>) -> Self {
        let fd = fd.into();
        rustix::io::ioctl_fionbio(&fd, true).unwrap();
        Self { fd, tls: None, knows: AtomicBool::new(true), cancelled: AtomicBool::new(false), _child: None }
    }

    fn answering(self) -> Self {
        self.knows.store(false, Ordering::Relaxed);
        self
    }

    fn tls((connection, socket): (impl Into<rustls::Connection>, TcpStream)) -> Self {
        let mut connection = connection.into();
        // Until both know each other.
        while connection.is_handshaking() {
            connection.complete_io(&mut &socket).unwrap();
        }
        Self { tls: Some(Mutex::new(connection)), ..Self::new(socket) }
    }

    /// A copy of a program's stdin and stdout: what it would read and write is up to us. `None`
    /// when the pipe has ended it already.
    fn program(pid: Pid) -> Option<Self> {
        let is_gone = |error: &Errno| matches!(*error, Errno::SRCH | Errno::BADF);
        let copy =
            pidfd_open(pid, PidfdFlags::empty()).and_then(|process| pidfd_getfd(&process, 0, PidfdGetfdFlags::empty()));
        if copy.as_ref().is_err_and(is_gone) {
            return None;
        }
        let fd = copy.unwrap();
        Some(Self { _child: Some(Child(pid)), ..Self::new(fd) })
    }

    /// What is there, waiting for it for so long; `TimedOut` then.
    pub(crate) fn read(&self, buffer: &mut [u8], time: Duration) -> io::Result<usize> {
        let begin = Instant::now();
        loop {
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = time.saturating_sub(begin.elapsed());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    wait(&self.fd, PollFlags::IN, left.min(4 * LOOK));
                }
                other => return other,
            }
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(tls) = &self.tls {
            let mut connection = tls.lock().unwrap();
            loop {
                match connection.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                }
                connection.read_tls(&mut &File::from(self.fd.try_clone()?))?;
                connection.process_new_packets().map_err(io::Error::other)?;
            }
        }
        if self.knows.load(Ordering::Acquire) {
            return Ok(rustix::io::read(&self.fd, buffer)?);
        }
        let (bytes, _, from) = rustix::net::recvfrom(&self.fd, &mut *buffer, RecvFlags::empty())?;
        // Who sent it may have gone since.
        let is_there = rustix::net::connect(&self.fd, &from.unwrap()).is_ok();
        self.knows.store(is_there, Ordering::Release);
        Ok(bytes)
    }

    /// Writes what goes, waiting until something does; of messages all. `Interrupted` when it is not wanted any more.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if !self.knows.load(Ordering::Acquire) {
                thread::sleep(LOOK / 5);
                continue;
            }
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.fd, PollFlags::OUT, LOOK);
                }
                other => return other,
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => Ok(rustix::io::write(&self.fd, bytes)?),
                result => Ok(result?),
            };
        };
        let mut connection = tls.lock().unwrap();
        self.flush(&mut connection)?;
        let taken = connection.writer().write(bytes)?;
        match self.flush(&mut connection) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            result => result.map(|()| taken),
        }
    }

    fn flush(&self, connection: &mut rustls::Connection) -> io::Result<()> {
        while connection.wants_write() {
            connection.write_tls(&mut &File::from(self.fd.try_clone()?))?;
        }
        Ok(())
    }

    /// Says that no more will be sent.
    pub(crate) fn finish(&self) {
        if let Some(tls) = &self.tls {
            let begin = Instant::now();
            tls.lock().unwrap().send_close_notify();
            while let Err(error) = self.flush(&mut tls.lock().unwrap()) {
                if error.kind() != io::ErrorKind::WouldBlock || begin.elapsed() > PATIENCE {
                    break;
                }
                wait(&self.fd, PollFlags::OUT, LOOK);
            }
        }
        self.shut(Shutdown::Write);
    }

    fn shut(&self, how: Shutdown) {
        // It may be gone already, or be no socket.
        let _ = SockRef::from(&self.fd).shutdown(how);
    }

    /// Lets the writer go; with `reset`, the other side gets one when this one is dropped.
    pub(crate) fn cancel(&self, reset: bool) {
        self.cancelled.store(true, Ordering::Relaxed);
        if reset {
            let _ = SockRef::from(&self.fd).set_linger(Some(Duration::ZERO));
        }
    }
}

/// A program that is killed with its far side.
struct Child(Pid);

impl Drop for Child {
    fn drop(&mut self) {
        // Where the pipe has ended it already, there is none.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// A child of this process, by its command line.
fn child(words: &str) -> Option<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<Pid> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>())
        .collect();
    let is_it = |pid: &Pid| {
        std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).is_ok_and(|is| is == words)
    };
    pids.into_iter().find(is_it)
}

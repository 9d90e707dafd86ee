//! Every pair of kinds of ends that a host has by itself carries bytes both ways. (L2CAP and RFCOMM need a lab.)

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use support::tls::Certificates;
use support::{PATIENCE, Random, Running};
use taut_pipe::framing::Framing;
use taut_pipe::{EndedBy, Options, TlsFiles};

/// Bytes each way: more than the buffers of a pseudoterminal or a socket hold.
const BYTES: usize = 300_000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Tcp,
    ListenTcp,
    Unix,
    ListenUnix,
    Abstract,
    Tls,
    ListenTls,
    Tty,
    Exec,
    ExecPty,
    Udp,
    ListenUdp,
    UnixDgram,
    ListenUnixDgram,
}

const ALL: [Kind; 14] = [
    Kind::Tcp,
    Kind::ListenTcp,
    Kind::Unix,
    Kind::ListenUnix,
    Kind::Abstract,
    Kind::Tls,
    Kind::ListenTls,
    Kind::Tty,
    Kind::Exec,
    Kind::ExecPty,
    Kind::Udp,
    Kind::ListenUdp,
    Kind::UnixDgram,
    Kind::ListenUnixDgram,
];

impl Kind {
    fn has_messages(self) -> bool {
        matches!(self, Self::Udp | Self::ListenUdp | Self::UnixDgram | Self::ListenUnixDgram)
    }

    fn listens(self) -> bool {
        matches!(self, Self::ListenTcp | Self::ListenUnix | Self::ListenTls | Self::ListenUdp | Self::ListenUnixDgram)
    }

    /// `cat`: what is sent comes back.
    fn echoes(self) -> bool {
        matches!(self, Self::Exec | Self::ExecPty)
    }

    /// Whether the end of what is sent can be told.
    fn halves(self) -> bool {
        !self.has_messages() && !matches!(self, Self::Tty | Self::ExecPty)
    }
}

/// The far side of an end: what a user has there.
trait Far: Read + Write + Send {
    fn finish(&mut self) {}
}

impl Far for TcpStream {
    fn finish(&mut self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Far for UnixStream {
    fn finish(&mut self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Far for File {}

struct Datagrams<T>(T);

impl Read for Datagrams<UdpSocket> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.recv(buffer)
    }
}

impl Write for Datagrams<UdpSocket> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Datagrams<UnixDatagram> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.recv(buffer)
    }
}

impl Write for Datagrams<UnixDatagram> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Far for Datagrams<UdpSocket> {}
impl Far for Datagrams<UnixDatagram> {}

impl Far for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn finish(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap();
        self.sock.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Far for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn finish(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap();
        self.sock.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// What a kind needs before the pipe is there.
enum Waiting {
    Tcp(TcpListener),
    Unix(UnixListener),
    Terminal(File),
    Udp(UdpSocket),
    UnixDgram(UnixDatagram),
    /// The far side comes to the pipe.
    Comes,
    Nothing,
}

/// The address of an end, and what is to be done before the pipe is made.
fn prepare(kind: Kind, directory: &Path, name: &str) -> (String, Waiting) {
    let path = directory.join(name);
    let file = path.display();
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
            use std::os::linux::net::SocketAddrExt;
            let name = format!("taut-{}-{name}", file.to_string().replace('/', "-"));
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
            (format!("unix:@{name}"), Waiting::Unix(UnixListener::bind_addr(&address).unwrap()))
        }
        Kind::Tty => {
            let ours = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
            rustix::pty::grantpt(&ours).unwrap();
            rustix::pty::unlockpt(&ours).unwrap();
            let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
            (format!("tty:{name}?baud=115200"), Waiting::Terminal(File::from(ours)))
        }
        Kind::Exec => ("exec:cat".to_owned(), Waiting::Nothing),
        Kind::ExecPty => ("exec-pty:cat".to_owned(), Waiting::Nothing),
        Kind::Udp => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            (format!("udp://{}", socket.local_addr().unwrap()), Waiting::Udp(socket))
        }
        Kind::UnixDgram => (format!("unix-dgram:{file}"), Waiting::UnixDgram(UnixDatagram::bind(&path).unwrap())),
        Kind::ListenTcp => ("listen:tcp://127.0.0.1:0".to_owned(), Waiting::Comes),
        Kind::ListenTls => ("listen:tls://127.0.0.1:0".to_owned(), Waiting::Comes),
        Kind::ListenUnix => (format!("listen:unix:{file}"), Waiting::Comes),
        Kind::ListenUdp => ("listen:udp://127.0.0.1:0".to_owned(), Waiting::Comes),
        Kind::ListenUnixDgram => (format!("listen:unix-dgram:{file}"), Waiting::Comes),
    }
}

fn come(kind: Kind, running: &Running, index: usize, directory: &Path, name: &str, tls: &Certificates) -> Box<dyn Far> {
    let to = || support::port(&running.endpoints[index]);
    match kind {
        Kind::ListenTcp => Box::new(TcpStream::connect(to()).unwrap()),
        Kind::ListenTls => Box::new(tls.connect(TcpStream::connect(to()).unwrap(), false)),
        Kind::ListenUnix => Box::new(UnixStream::connect(directory.join(name)).unwrap()),
        Kind::ListenUdp => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(to()).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(Datagrams(socket))
        }
        Kind::ListenUnixDgram => {
            let socket = UnixDatagram::bind(directory.join(format!("{name}.client"))).unwrap();
            socket.connect(directory.join(name)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            Box::new(Datagrams(socket))
        }
        _ => unreachable!("{kind:?} does not listen"),
    }
}

fn meet(kind: Kind, waiting: Waiting, tls: &Certificates) -> Option<Box<dyn Far>> {
    Some(match waiting {
        Waiting::Tcp(listener) => {
            let (socket, _) = listener.accept().unwrap();
            if kind == Kind::Tls { Box::new(tls.accept(socket)) } else { Box::new(socket) }
        }
        Waiting::Unix(listener) => Box::new(listener.accept().unwrap().0),
        Waiting::Terminal(file) => {
            // What is typed before the pipe has set the terminal is treated as lines.
            while rustix::termios::tcgetattr(&file).unwrap().local_modes.contains(rustix::termios::LocalModes::ICANON) {
                thread::sleep(Duration::from_millis(1));
            }
            Box::new(file)
        }
        Waiting::Udp(socket) => {
            // Who writes is known from the first datagram, which the other side sends.
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let (_, from) = socket.peek_from(&mut [0; 1]).unwrap();
            socket.connect(from).unwrap();
            Box::new(Datagrams(socket))
        }
        Waiting::UnixDgram(socket) => {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let from =
                rustix::net::recvfrom(&socket, &mut [0_u8; 1][..], rustix::net::RecvFlags::PEEK).unwrap().2.unwrap();
            rustix::net::connect(&socket, &from).unwrap();
            Box::new(Datagrams(socket))
        }
        Waiting::Comes | Waiting::Nothing => return None,
    })
}

/// Sizes of the messages in which bytes go to an end of messages.
fn sizes(random: &mut Random) -> Vec<usize> {
    (0..60).map(|_| 1 + random.below(1400) as usize).collect()
}

fn send(far: &mut dyn Far, messages: &[Vec<u8>], kind: Kind, other: Kind) {
    for message in messages {
        if !kind.has_messages() && other.has_messages() {
            far.write_all(&(message.len() as u32).to_be_bytes()).unwrap();
        }
        far.write_all(message).unwrap();
        far.flush().unwrap();
        if kind.has_messages() {
            // No link of messages holds any number of them.
            thread::sleep(Duration::from_micros(300));
        }
    }
}

fn receive(far: &mut dyn Far, messages: &[Vec<u8>], kind: Kind, other: Kind) {
    for (number, message) in messages.iter().enumerate() {
        let mut got = vec![0; 70_000];
        if kind.has_messages() {
            let bytes = far.read(&mut got).unwrap_or_else(|error| panic!("message {number}: {error}"));
            assert!(
                got[..bytes] == message[..],
                "message {number} is another one: {bytes} bytes, not {}",
                message.len()
            );
        } else {
            if other.has_messages() {
                let mut length = [0; 4];
                far.read_exact(&mut length).unwrap();
                assert_eq!(u32::from_be_bytes(length) as usize, message.len());
            }
            got.resize(message.len(), 0);
            far.read_exact(&mut got).unwrap();
            assert!(got == *message, "message {number} is another one");
        }
    }
}

fn pair(a: Kind, b: Kind, tls: &Certificates) {
    let directory = tempfile::tempdir().unwrap();
    let ((to_a, waiting_a), (to_b, waiting_b)) = (prepare(a, directory.path(), "a"), prepare(b, directory.path(), "b"));
    let mixed = a.has_messages() != b.has_messages();
    let mut tls_files = tls.files("server", false);
    if a == Kind::Tls || b == Kind::Tls {
        tls_files.ca = Some(tls.file("root.pem"));
    }
    let options = Options {
        framing: if mixed { Framing::Length } else { Framing::None },
        tls: if a == Kind::Tls || b == Kind::Tls {
            TlsFiles { ca: tls_files.ca, ..TlsFiles::default() }
        } else {
            tls_files
        },
        once: true,
        ..Options::default()
    };
    let running = Running::start(&to_a, &to_b, options);
    let far_a = if a.listens() { Some(come(a, &running, 0, directory.path(), "a", tls)) } else { None };
    let mut random = Random::new(7);
    let messages: Vec<Vec<u8>> = if a.has_messages() || b.has_messages() {
        sizes(&mut random).into_iter().map(|size| random.bytes(size)).collect()
    } else {
        // An echo is read only after all was sent, so that it has to fit into what the kernel holds.
        vec![random.bytes(if b.echoes() { 2_000 } else { BYTES })]
    };
    // Where nobody has sent anything, the far side of messages does not know the pipe yet: so A sends first, and B answers.
    let far_a = far_a.or_else(|| if matches!(a, Kind::Udp | Kind::UnixDgram) { None } else { meet(a, waiting_a, tls) });
    let Some(mut far_a) = far_a else { panic!("{a:?} has no far side") };
    thread::scope(|scope| {
        let messages = &messages;
        let sender = scope.spawn(move || {
            send(far_a.as_mut(), messages, a, b);
            if a.halves() && b.halves() && b.echoes() {
                // `cat` ends with its input.
                far_a.finish();
            }
            if b.echoes() {
                receive(far_a.as_mut(), messages, a, b);
            }
            far_a
        });
        if b.echoes() {
            drop(sender.join().unwrap());
            return;
        }
        let mut far_b = meet(b, waiting_b, tls).unwrap_or_else(|| panic!("{b:?} has no far side"));
        receive(far_b.as_mut(), messages, b, a);
        let mut far_a = sender.join().unwrap();
        let back = scope.spawn(move || {
            send(far_b.as_mut(), messages, b, a);
            if a.halves() && b.halves() {
                far_b.finish();
            }
            far_b
        });
        receive(far_a.as_mut(), messages, a, b);
        let far_b = back.join().unwrap();
        if a.halves() && b.halves() {
            far_a.finish();
        }
        drop(far_b);
    });
    if a.halves() && b.halves() {
        let summary = running.next();
        let bytes: u64 = messages.iter().map(|message| message.len() as u64).sum();
        assert!(!summary.failed, "{summary:?}");
        assert_eq!(
            summary.accounts.map(|account| (account.bytes, account.undelivered)),
            [(bytes, 0), (bytes, 0)],
            "{summary:?}"
        );
        assert!(matches!(summary.ended_by, EndedBy::A | EndedBy::B));
    }
}

#[test]
fn every_pair_of_kinds_carries_bytes_both_ways() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = Certificates::new();
    for a in ALL {
        for b in ALL {
            // The side that begins needs a far side that is known from the start; two that echo have nobody to begin; two listeners
            // are in a test of their own, as are two that need the same certificates in different roles.
            let begins = !a.echoes() && !matches!(a, Kind::Udp | Kind::UnixDgram);
            let needs_both_roles = matches!((a, b), (Kind::Tls, Kind::ListenTls) | (Kind::ListenTls, Kind::Tls));
            if begins && !b.listens() && !needs_both_roles {
                eprintln!("{a:?} and {b:?}");
                pair(a, b, &tls);
            }
        }
    }
}

#[test]
fn two_that_listen_are_joined_in_the_order_in_which_clients_come() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b");
    let running =
        Running::start("listen:tcp://127.0.0.1:0", &format!("listen:unix:{}", path.display()), Options::default());
    let mut near = TcpStream::connect(support::port(&running.endpoints[0])).unwrap();
    let mut far = UnixStream::connect(&path).unwrap();
    near.write_all(b"there").unwrap();
    assert_eq!(support::read_exact(&mut far, 5), b"there");
    far.write_all(b"and back").unwrap();
    assert_eq!(support::read_exact(&mut near, 8), b"and back");
    drop((near, far));
    assert_eq!(running.next().accounts.map(|account| account.bytes), [5, 8]);
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_needed() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = Certificates::new();
    let options = Options { tls: tls.files("server", true), ..Options::default() };
    let running = Running::start("listen:tls://127.0.0.1:0", "exec:cat", options);
    let connect = || TcpStream::connect(support::port(&running.endpoints[0])).unwrap();
    let mut known = tls.connect(connect(), true);
    known.write_all(b"hello").unwrap();
    assert_eq!(support::read_exact(&mut known, 5), b"hello");
    known.finish();
    drop(known);
    assert!(!running.next().failed);

    let mut unknown = tls.connect(connect(), false);
    // TLS 1.3 tells the client only after its own part is over.
    let _ = unknown.write_all(b"hello");
    assert!(unknown.read(&mut [0; 5]).is_err());
    let summary = running.next();
    assert!(summary.failed && summary.accounts[0].bytes == 0, "{summary:?}");

    let mut plain = connect();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert!(running.next().failed);
}

#[test]
fn a_server_of_another_name_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = Certificates::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options =
        Options { tls: TlsFiles { ca: Some(tls.file("root.pem")), ..TlsFiles::default() }, ..Options::default() };
    let running = Running::start(&format!("tls://127.0.0.1:{port}"), "exec:cat", options);
    let mut server = tls.accept(listener.accept().unwrap().0);
    assert!(server.read(&mut [0; 1]).is_err());
    let summary = running.next();
    assert!(summary.failed && summary.why.contains("certificate"), "{summary:?}");
}

#[test]
fn files_are_read_as_the_first_end_and_appended_to_as_the_second() {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("in"), directory.path().join("out"));
    let bytes = Random::new(3).bytes(BYTES);
    std::fs::write(&input, &bytes).unwrap();
    std::fs::write(&output, b"before").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp://{}", listener.local_addr().unwrap());
    let running = Running::start(&format!("file:{}", input.display()), &to, Options::default());
    let mut far = listener.accept().unwrap().0;
    assert!(support::read_exact(&mut far, BYTES) == bytes);
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    drop(far);
    assert_eq!(running.next().accounts[0].bytes, BYTES as u64);

    let running = Running::start(
        "listen:tcp://127.0.0.1:0",
        &format!("file:{}", output.display()),
        Options { once: true, ..Options::default() },
    );
    let mut near = TcpStream::connect(support::port(&running.endpoints[0])).unwrap();
    near.write_all(&bytes).unwrap();
    near.finish();
    assert!(!running.next().failed);
    assert!(std::fs::read(&output).unwrap() == [b"before".to_vec(), bytes].concat());
}

#[test]
fn a_terminal_gets_its_settings_back() {
    let terminal = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let other: OwnedFd = File::options().read(true).write(true).open(&name).unwrap().into();
    let modes = || rustix::termios::tcgetattr(&other).unwrap().local_modes;
    let before = modes();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp://{}", listener.local_addr().unwrap());
    let running = Running::start(&format!("tty:{name}?baud=9600"), &to, Options::default());
    let mut far = listener.accept().unwrap().0;
    far.write_all(b"x").unwrap();
    assert_eq!(support::read_exact(&mut File::from(terminal.try_clone().unwrap()), 1), b"x");
    assert_ne!(modes(), before);
    drop(far);
    running.next();
    assert_eq!(modes(), before);
}

//! Every pair of kinds of ends that a host has by itself carries bytes both ways. (L2CAP and RFCOMM need a lab.)

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use support::far::{Far, Kind, meet, prepare, refusal};
use support::tls::Certificates;
use support::{PATIENCE, Random, Running};
use taut_pipe::framing::Framing;
use taut_pipe::{EndedBy, Options, TlsFiles};

/// Bytes each way: more than the buffers of a pseudoterminal or a socket hold.
const BYTES: usize = 300_000;

/// What goes each way: messages where one side has them, else one long piece.
fn pieces(random: &mut Random, of_messages: bool) -> Vec<Vec<u8>> {
    if of_messages {
        let sizes: Vec<usize> = (0..60).map(|_| 1 + random.below(1400) as usize).collect();
        sizes.into_iter().map(|size| random.bytes(size)).collect()
    } else {
        vec![random.bytes(BYTES)]
    }
}

fn send(far: &Far, pieces: &[Vec<u8>], kind: Kind, is_framed: bool) {
    for piece in pieces {
        if kind.has_messages() {
            assert_eq!(far.write(piece).unwrap(), piece.len());
            // No link of messages holds any number of them.
            thread::sleep(Duration::from_micros(300));
            continue;
        }
        let length = (piece.len() as u32).to_be_bytes();
        let mut rest = [if is_framed { &length[..] } else { &[] }, piece].concat();
        while !rest.is_empty() {
            rest.drain(..far.write(&rest).unwrap());
        }
    }
}

fn receive(far: &Far, pieces: &[Vec<u8>], kind: Kind, is_framed: bool) {
    let mut buffer = vec![0; 70_000];
    let mut exactly = |length: usize| {
        let mut got = Vec::new();
        while got.len() < length {
            let most = buffer.len().min(length - got.len());
            let bytes = far.read(&mut buffer[..most], PATIENCE).unwrap();
            assert!(bytes > 0, "the end came after {} of {length} bytes", got.len());
            got.extend_from_slice(&buffer[..bytes]);
        }
        got
    };
    for (number, piece) in pieces.iter().enumerate() {
        if is_framed {
            assert_eq!(exactly(4), (piece.len() as u32).to_be_bytes(), "the length of message {number}");
        }
        let got = if kind.has_messages() {
            let mut message = vec![0; 70_000];
            let bytes = far.read(&mut message, PATIENCE).unwrap_or_else(|error| panic!("message {number}: {error}"));
            message.truncate(bytes);
            message
        } else {
            exactly(piece.len())
        };
        assert!(got == *piece, "message {number} is another one: {} bytes, not {}", got.len(), piece.len());
    }
}

fn pair(kinds: [Kind; 2], tls: &Certificates) {
    let [a, b] = kinds;
    let directory = tempfile::tempdir().unwrap();
    let ((to_a, waiting_a), (to_b, waiting_b)) =
        (prepare(a, directory.path(), "a", &[]), prepare(b, directory.path(), "b", &[]));
    let mixed = a.has_messages() != b.has_messages();
    let options = Options {
        framing: if mixed { Framing::Length } else { Framing::None },
        tls: tls.files("server", true),
        once: kinds.iter().any(|kind| kind.listens()),
        ..Options::default()
    };
    let running = Running::start(&to_a, &to_b, options);
    let pieces = pieces(&mut Random::new(7), a.has_messages() || b.has_messages());
    // Who comes with messages is known by them, and who is come to knows the pipe only by what came from it.
    let begins = usize::from(a.answers_only() || b.listens() && b.has_messages());
    let fars = thread::scope(|scope| {
        let sides = [(0, a, waiting_a, 0), (1, b, waiting_b, usize::from(a.listens()))];
        let play = |(me, kind, waiting, place)| {
            let (endpoints, pieces) = (running.endpoints.as_slice(), pieces.as_slice());
            scope.spawn(move || {
                let far = meet(kind, waiting, endpoints, place, tls, &AtomicBool::new(false)).unwrap();
                let is_framed = mixed && !kind.has_messages();
                if me == begins {
                    send(&far, pieces, kind, is_framed);
                    receive(&far, pieces, kind, is_framed);
                } else {
                    receive(&far, pieces, kind, is_framed);
                    send(&far, pieces, kind, is_framed);
                }
                far
            })
        };
        sides.map(play).map(|side| side.join().unwrap())
    });
    if a.halves() && b.halves() {
        fars.iter().for_each(Far::finish);
        // A program does not end by itself.
        drop(fars);
        let summary = running.next();
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        assert!(!summary.failed, "{summary:?}");
        let told = summary.accounts.map(|account| (account.bytes, account.undelivered));
        assert_eq!(told, [(bytes, 0), (bytes, 0)], "{summary:?}");
        assert!(matches!(summary.ended_by, EndedBy::A | EndedBy::B));
    }
}

#[test]
fn every_pair_of_kinds_carries_bytes_both_ways() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = Certificates::new();
    for a in Kind::ALL {
        for b in Kind::ALL {
            let is_one_way = a == Kind::File || b == Kind::File;
            if !is_one_way && refusal(a, b).is_none() {
                eprintln!("{a:?} and {b:?}");
                pair([a, b], &tls);
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
    known.conn.send_close_notify();
    known.flush().unwrap();
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
    near.shutdown(Shutdown::Write).unwrap();
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

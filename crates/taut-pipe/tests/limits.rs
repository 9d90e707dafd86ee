//! Limits, abuse, and what only some kinds can do.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::thread;
use std::time::{Duration, Instant};

use support::{Random, Running};
use taut_link::service;
use taut_pipe::framing::Framing;
use taut_pipe::{EndedBy, Engine, Options};

fn echo_server() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (format!("tcp://{}", listener.local_addr().unwrap()), listener)
}

fn connect(running: &Running) -> TcpStream {
    let socket = TcpStream::connect(support::port(&running.endpoints[0])).unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    socket
}

#[test]
fn a_client_too_many_waits_until_there_is_room() {
    let options = Options { clients: 2, ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec:cat", options);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(&running)).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    for client in &mut clients[..2] {
        assert_eq!(support::read_exact(client, 1), b"x");
    }
    clients[2].set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(clients[2].read(&mut [0; 1]).is_err(), "the third one is not served");
    drop(clients.remove(0));
    clients[1].set_read_timeout(Some(support::PATIENCE)).unwrap();
    assert_eq!(support::read_exact(&mut clients[1], 1), b"x");
}

#[test]
fn a_client_that_does_not_read_stops_its_own_pipe_and_no_other() {
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec:cat /dev/zero", Options::default());
    let slow = connect(&running);
    let mut quick = connect(&running);
    // Far more than all buffers together hold.
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..64 {
        quick.read_exact(&mut buffer).unwrap();
    }
    drop(quick);
    let summary = running.next();
    assert!(summary.accounts[1].bytes >= 64 << 20, "{summary:?}");
    drop(slow);
    let summary = running.next();
    assert!(summary.accounts[1].bytes < 32 << 20, "what nobody takes is not given: {summary:?}");
    assert!(summary.failed && summary.ended_by == EndedBy::A, "{summary:?}");
}

#[test]
fn limits_of_time_and_of_silence_end_a_pipe() {
    let (to, listener) = echo_server();
    let options = Options { idle: Some(Duration::from_millis(200)), ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, options);
    let mut near = connect(&running);
    let far = listener.accept().unwrap().0;
    let begin = Instant::now();
    for _ in 0..4 {
        near.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    assert!(begin.elapsed() >= Duration::from_millis(500), "ended while something moved");
    let summary = running.next();
    assert_eq!((summary.ended_by, summary.accounts[0].bytes), (EndedBy::IdleLimit, 4));
    drop((running, far));

    let options = Options { time: Some(Duration::from_millis(300)), ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec:cat /dev/zero", options);
    let mut near = connect(&running);
    let begin = Instant::now();
    let mut buffer = vec![0; 65_536];
    while near.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    assert!(begin.elapsed() >= Duration::from_millis(250));
    assert_eq!(running.next().ended_by, EndedBy::TimeLimit);
}

#[test]
fn the_rate_is_kept() {
    let options = Options { rate: Some(1_000_000), ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec:cat /dev/zero", options);
    let mut near = connect(&running);
    let begin = Instant::now();
    support::read_exact(&mut near, 600_000);
    let took = begin.elapsed();
    // At most a tenth of a second's worth is given in advance.
    assert!(took >= Duration::from_millis(450), "{took:?}");
}

#[test]
fn a_connection_that_fails_is_tried_again() {
    let (to, listener) = echo_server();
    drop(listener);
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, Options { retries: 3, ..Options::default() });
    let mut near = connect(&running);
    near.write_all(b"early").unwrap();
    let note = running.notes.recv_timeout(support::PATIENCE).unwrap();
    assert!(note.contains("trying again in 100ms"), "{note}");
    let listener = TcpListener::bind(to.trim_start_matches("tcp://")).unwrap();
    let mut far = listener.accept().unwrap().0;
    assert_eq!(support::read_exact(&mut far, 5), b"early");
    drop((near, far));
    running.next();

    let (to, listener) = echo_server();
    drop(listener);
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, Options { retries: 1, ..Options::default() });
    let mut near = connect(&running);
    assert_eq!(near.read(&mut [0; 1]).unwrap_or(0), 0);
    let summary = running.next();
    assert!(summary.failed && summary.ended_by == EndedBy::B && summary.why.contains("connect to"), "{summary:?}");
}

#[test]
fn a_pipe_between_two_servers_is_made_anew_when_it_breaks() {
    let ((to_a, a), (to_b, b)) = (echo_server(), echo_server());
    let running = Running::start(&to_a, &to_b, Options { retries: u32::MAX, ..Options::default() });
    let (mut near, mut far) = (a.accept().unwrap().0, b.accept().unwrap().0);
    // Until both ends are joined, a connection that breaks is only tried again.
    near.write_all(b"first").unwrap();
    assert_eq!(support::read_exact(&mut far, 5), b"first");
    socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
    drop(near);
    let _ = far.read(&mut [0; 1]);
    drop(far);
    assert!(running.next().failed);
    let (mut near, mut far) = (a.accept().unwrap().0, b.accept().unwrap().0);
    near.write_all(b"again").unwrap();
    assert_eq!(support::read_exact(&mut far, 5), b"again");
}

#[test]
fn each_client_of_a_datagram_socket_has_a_pipe_of_its_own() {
    let (to, listener) = echo_server();
    let options =
        Options { framing: Framing::Line, clients: 2, idle: Some(Duration::from_millis(300)), ..Options::default() };
    let running = Running::start("listen:udp://127.0.0.1:0", &to, options);
    let client = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(support::port(&running.endpoints[0])).unwrap();
        socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
        socket
    };
    let (one, two, three) = (client(), client(), client());
    one.send(b"of one").unwrap();
    let mut far_one = listener.accept().unwrap().0;
    two.send(b"of two").unwrap();
    let mut far_two = listener.accept().unwrap().0;
    three.send(b"too many").unwrap();
    assert!(running.notes.recv_timeout(support::PATIENCE).unwrap().contains("no room"));
    assert_eq!(support::read_exact(&mut far_one, 7), b"of one\n");
    assert_eq!(support::read_exact(&mut far_two, 7), b"of two\n");
    far_two.write_all(b"to two\nand more").unwrap();
    let mut buffer = [0; 100];
    assert_eq!(two.recv(&mut buffer).unwrap(), 6);
    assert_eq!(&buffer[..6], b"to two");
    // Silence ends both; the line without its newline was never a message.
    let ended = [running.next(), running.next()];
    assert!(ended.iter().all(|summary| summary.ended_by == EndedBy::IdleLimit));
    assert_eq!(ended.iter().map(|summary| summary.accounts[1].undelivered).sum::<u64>(), 8);
}

#[test]
fn a_message_that_can_not_be_framed_ends_the_pipe_with_the_reason() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = format!("udp://{}", far.local_addr().unwrap());
    let options = Options { framing: Framing::Length, ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, options);
    let mut near = connect(&running);
    near.write_all(&[0, 0, 0, 2, b'o', b'k', 0xff, 0xff, 0xff, 0xff]).unwrap();
    let mut buffer = [0; 10];
    far.set_read_timeout(Some(support::PATIENCE)).unwrap();
    assert_eq!(far.recv(&mut buffer).unwrap(), 2);
    let summary = running.next();
    assert!(
        summary.failed && summary.ended_by == EndedBy::A && summary.why.contains("65507 is the most"),
        "{summary:?}"
    );
}

#[test]
fn a_half_closed_side_still_gets_its_answer() {
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec:sha256sum", Options::default());
    let mut near = connect(&running);
    near.write_all(&Random::new(1).bytes(100_000)).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    near.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("  -\n") && text.len() == 68, "{text}");
    let summary = running.next();
    assert_eq!((summary.failed, summary.exits[1], summary.ended_by), (false, Some(0), EndedBy::A));
}

#[test]
fn a_program_that_does_not_end_is_asked_to() {
    let options = Options { linger: Duration::from_millis(100), ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec:sh -c 'exec <&- >&-; sleep 60'", options);
    let near = connect(&running);
    let begin = Instant::now();
    drop(near);
    let summary = running.next();
    assert!(begin.elapsed() < Duration::from_secs(30), "{summary:?}");
    assert_eq!(summary.exits[1], Some(-15), "{summary:?}");
}

#[test]
fn sockets_that_were_passed_are_listened_on_and_must_be_of_the_kind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let plan = || support::plan("listen:tcp://127.0.0.1:1", "exec:cat", Options::default());
    let engine = Engine::new(vec![plan()], vec![listener.into()]).unwrap();
    assert_eq!(engine.listening()[0].to_string(), format!("tcp://{address}"));
    let wrong: OwnedFd = UnixDatagram::unbound().unwrap().into();
    assert!(Engine::new(vec![plan()], vec![wrong]).err().unwrap().to_string().contains("not of this kind"));
    let one_more = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let error = Engine::new(vec![plan()], vec![one_more(), one_more()]).err().unwrap();
    assert!(error.to_string().contains("1 more sockets"), "{error}");
    // This process was started by no service manager.
    assert!(service::passed_sockets().unwrap_err().to_string().contains("LISTEN_FDS"));
}

#[test]
fn an_accepted_pipe_of_bulk_goes_through_the_kernel_alone() {
    let (to, listener) = echo_server();
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, Options::default());
    let mut near = connect(&running);
    let mut far = listener.accept().unwrap().0;
    let bytes = Random::new(5).bytes(32 << 20);
    let reader = thread::spawn(move || {
        let got = support::read_exact(&mut far, 32 << 20);
        (far, got)
    });
    near.write_all(&bytes).unwrap();
    let (far, got) = reader.join().unwrap();
    assert!(got == bytes);
    drop((near, far));
    let summary = running.next();
    // How soon a stream counts as bulk depends on how much of it is there at a time.
    assert!(summary.accounts[0].spliced > 8 << 20, "{summary:?}");
    assert_eq!(summary.accounts[0].bytes, 32 << 20);
}

#[test]
fn datagrams_that_are_too_many_are_counted_every_one() {
    const SENT: u64 = 30_000;
    let (to, listener) = echo_server();
    let options = Options { framing: Framing::Length, ..Options::default() };
    let mut running = Running::start("listen:udp://127.0.0.1:0", &to, options);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(support::port(&running.endpoints[0])).unwrap();
    socket.send(&[7; 1000]).unwrap();
    let mut far = listener.accept().unwrap().0;
    // Nobody reads meanwhile, so that neither the pipe nor the kernel has room for all.
    for _ in 1..SENT {
        socket.send(&[7; 1000]).unwrap();
    }
    far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut frame = vec![0; 1004];
    let mut received = 0;
    while far.read_exact(&mut frame).is_ok() {
        assert_eq!(frame[..5], [0, 0, 3, 232, 7]);
        received += 1;
    }
    running.stop();
    let summary = running.next();
    let account = summary.accounts[0];
    assert!(account.lost_messages > 0 && summary.failed, "{summary:?}");
    assert_eq!((account.messages, account.messages + account.lost_messages), (received, SENT), "{summary:?}");
}

#[test]
fn datagrams_that_are_lost_before_the_other_end_is_open_are_counted_too() {
    const SENT: u64 = 1000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("late");
    let options = Options { framing: Framing::Length, retries: u32::MAX, ..Options::default() };
    let mut running = Running::start("listen:udp://127.0.0.1:0", &format!("unix:{}", path.display()), options);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(support::port(&running.endpoints[0])).unwrap();
    for sent in 0..SENT {
        socket.send(&[7; 1000]).unwrap();
        if sent % 50 == 0 {
            // So that most of them get past the kernel, to where they wait for the other end.
            thread::sleep(Duration::from_millis(5));
        }
    }
    let mut far = UnixListener::bind(&path).unwrap().accept().unwrap().0;
    far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut frame = vec![0; 1004];
    let mut received = 0;
    while far.read_exact(&mut frame).is_ok() {
        received += 1;
    }
    running.stop();
    let summary = running.next();
    let account = summary.accounts[0];
    assert_eq!((account.messages, account.messages + account.lost_messages), (received, SENT), "{summary:?}");
    assert!(account.lost_messages > 0, "{summary:?}");
}

#[test]
fn datagrams_that_nobody_had_taken_when_it_was_stopped_are_counted() {
    const SENT: u64 = 1000;
    let (to, listener) = echo_server();
    let options = Options { framing: Framing::Length, ..Options::default() };
    for _ in 0..20 {
        let mut running = Running::start("listen:udp://127.0.0.1:0", &to, options.clone());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(support::port(&running.endpoints[0])).unwrap();
        socket.send(&[7; 1000]).unwrap();
        let mut far = listener.accept().unwrap().0;
        let reader = thread::spawn(move || far.read_to_end(&mut Vec::new()));
        for _ in 1..SENT {
            socket.send(&[7; 1000]).unwrap();
        }
        running.stop();
        let summary = running.next();
        let account = summary.accounts[0];
        assert_eq!(account.messages + account.lost_messages, SENT, "{summary:?}");
        drop(reader.join());
    }
}

#[test]
fn datagrams_that_come_while_their_pipe_ends_are_counted() {
    // It does not read, and is waited for.
    let program = "exec:sh -c 'trap : TERM; exec <&- >&-; sleep 1; sleep 1'";
    let options = Options { time: Some(Duration::from_millis(200)), ..Options::default() };
    let running = Running::start("listen:udp://127.0.0.1:0", program, options);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(support::port(&running.endpoints[0])).unwrap();
    for _ in 0..10 {
        socket.send(&[7; 1000]).unwrap();
        thread::sleep(Duration::from_millis(60));
    }
    let summary = running.next();
    let account = summary.accounts[0];
    assert_eq!(account.messages + account.lost_messages, 10, "{summary:?}");
}

#[test]
fn a_program_that_goes_while_its_terminal_is_full_ends_the_pipe() {
    let running = Running::start("listen:tcp://127.0.0.1:0", "exec-pty:sleep 0.2", Options::default());
    let mut near = connect(&running);
    // More than a terminal holds, which nobody reads.
    near.write_all(&[b'x'; 100_000]).unwrap();
    let summary = running.next();
    let account = summary.accounts[0];
    assert_eq!((summary.ended_by, summary.failed), (EndedBy::B, true), "{summary:?}");
    assert_eq!(account.bytes + account.undelivered, 100_000, "{summary:?}");
    assert!(account.undelivered > 0, "{summary:?}");
}

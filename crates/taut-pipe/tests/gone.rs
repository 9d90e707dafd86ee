//! Clients that have gone, or say nothing, hold no place while they wait for the other end.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use support::Running;
use support::tls::Certificates;
use taut_pipe::{EndedBy, Options};

const FOREVER: u32 = u32::MAX;

fn connect(running: &Running, end: usize) -> TcpStream {
    let socket = TcpStream::connect(running.endpoints[end].to_string().rsplit('/').next().unwrap()).unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    socket
}

/// An address where nobody listens yet.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn who_left_while_it_waited_for_the_second_client_is_joined_to_nobody() {
    let options = Options { clients: 3, ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", "listen:tcp://127.0.0.1:0", options);
    for _ in 0..3 {
        drop(connect(&running, 0));
    }
    let given_up: Vec<_> = (0..3).map(|_| running.next()).collect();
    assert!(given_up.iter().all(|summary| summary.ended_by == EndedBy::A && !summary.failed), "{given_up:?}");
    let mut near = connect(&running, 0);
    near.write_all(b"hello").unwrap();
    assert_eq!(support::read_exact(&mut connect(&running, 1), 5), b"hello");
}

#[test]
fn who_closed_its_side_at_once_still_reads_what_the_second_client_says() {
    for _ in 0..20 {
        let running = Running::start("listen:tcp://127.0.0.1:0", "listen:tcp://127.0.0.1:0", Options::default());
        let mut near = connect(&running, 0);
        near.shutdown(Shutdown::Write).unwrap();
        let mut far = connect(&running, 1);
        far.write_all(b"answer").unwrap();
        assert_eq!(support::read_exact(&mut near, 6), b"answer");
    }
}

#[test]
fn who_is_there_is_joined_before_who_has_closed_its_side() {
    let running = Running::start("listen:tcp://127.0.0.1:0", "listen:tcp://127.0.0.1:0", Options::default());
    drop(connect(&running, 0));
    let mut near = connect(&running, 0);
    near.write_all(b"hello").unwrap();
    // The second client finds both parked.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(support::read_exact(&mut connect(&running, 1), 5), b"hello");
}

#[test]
fn who_left_while_the_server_was_away_makes_room() {
    let to = nobody();
    let options = Options { clients: 3, retries: FOREVER, ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", &format!("tcp://{to}"), options);
    for _ in 0..3 {
        drop(connect(&running, 0));
    }
    for _ in 0..3 {
        assert_eq!(running.next().why, "closed before the other end was there");
    }
    // Without their places the fourth would not even be accepted.
    let mut near = connect(&running, 0);
    near.write_all(b"fourth").unwrap();
    assert!(running.notes.recv_timeout(support::PATIENCE).unwrap().contains("trying again"));
    let far = TcpListener::bind(&to).unwrap();
    assert_eq!(support::read_exact(&mut far.accept().unwrap().0, 6), b"fourth");
}

#[test]
fn what_a_client_left_behind_is_still_carried() {
    let to = nobody();
    let running = Running::start(
        "listen:tcp://127.0.0.1:0",
        &format!("tcp://{to}"),
        Options { retries: FOREVER, ..Options::default() },
    );
    let mut near = connect(&running, 0);
    near.write_all(b"last words").unwrap();
    drop(near);
    assert!(running.notes.recv_timeout(support::PATIENCE).unwrap().contains("trying again"));
    let far = TcpListener::bind(&to).unwrap();
    assert_eq!(support::read_exact(&mut far.accept().unwrap().0, 10), b"last words");
}

#[test]
fn who_says_nothing_and_closes_its_side_still_gets_an_answer() {
    for _ in 0..20 {
        let running = Running::start("listen:tcp://127.0.0.1:0", "exec:echo answer", Options::default());
        let mut near = connect(&running, 0);
        near.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer\n");
    }
}

#[test]
fn the_limit_of_silence_holds_while_a_client_waits_too() {
    let idle = Some(Duration::from_millis(300));
    let parked = Options { idle, ..Options::default() };
    let backing_off = Options { idle, retries: FOREVER, ..Options::default() };
    let to = format!("tcp://{}", nobody());
    for (to, options) in [("listen:tcp://127.0.0.1:0", parked), (to.as_str(), backing_off)] {
        let running = Running::start("listen:tcp://127.0.0.1:0", to, options);
        let mut near = connect(&running, 0);
        assert_eq!(near.read(&mut [0; 1]).unwrap(), 0, "{to}");
        assert_eq!(running.next().ended_by, EndedBy::IdleLimit, "{to}");
    }
}

#[test]
fn who_ended_tls_while_it_waited_makes_room() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = Certificates::new();
    let to = nobody();
    let tls = certificates.files("server", false);
    let options = Options { clients: 1, retries: FOREVER, tls, ..Options::default() };
    let running = Running::start("listen:tls://127.0.0.1:0", &format!("tcp://{to}"), options);
    let mut near = certificates.connect(connect(&running, 0), false);
    // Says that it ends, which is bytes too.
    near.conn.complete_io(&mut near.sock).unwrap();
    near.conn.send_close_notify();
    near.conn.complete_io(&mut near.sock).unwrap();
    drop(near);
    assert_eq!(running.next().why, "closed before the other end was there");
}

#[test]
fn made_up_senders_do_not_start_a_program_each() {
    const SENDERS: usize = 60;
    let options = Options { children: 5, ..Options::default() };
    let running = Running::start("listen:udp://127.0.0.1:0", "exec:cat", options);
    let senders: Vec<UdpSocket> = (0..SENDERS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for socket in &senders {
        socket.send_to(b"x", support::port(&running.endpoints[0])).unwrap();
    }
    let note = running.notes.recv_timeout(support::PATIENCE).unwrap();
    assert!(note.contains("5 programs (--children)"), "{note}");
    let mut answered = 0;
    for socket in &senders {
        // The first ones have to come; others have had the same time then.
        let wait = if answered < 5 { support::PATIENCE / 10 } else { Duration::from_millis(20) };
        socket.set_read_timeout(Some(wait)).unwrap();
        answered += usize::from(socket.recv(&mut [0; 9]).is_ok());
    }
    assert_eq!(answered, 5);
}

#[test]
fn the_kernel_is_told_to_find_out_who_vanishes() {
    /// The keepalive timer of /proc/net/tcp (`get_tcp4_sock` of net/ipv4/tcp_ipv4.c), and its hertz.
    const KEEPALIVE: &str = "02:";
    const HERTZ: u64 = 100;
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp://{}", far.local_addr().unwrap());
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, Options::default());
    let mut near = connect(&running, 0);
    near.write_all(b"x").unwrap();
    let (mut far, from) = far.accept().unwrap();
    assert_eq!(support::read_exact(&mut far, 1), b"x");
    // The pipe's own two sockets: the one that has `near` as its peer, and the one that went to `far`.
    let ours = [(1, near.local_addr().unwrap()), (0, from)];
    for (column, address) in ours.map(|(column, address)| (column, format!(":{:04X}", address.port()))) {
        // The table is read part by part: while others open and close connections, it may lack a row, or have it twice.
        let table = || std::fs::read_to_string("/proc/net/tcp").unwrap();
        let timer = std::iter::repeat_with(table).take(100).find_map(|table| {
            table.lines().find_map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                (fields[1 + column].ends_with(&address) && fields[3] == "01").then(|| fields[5].to_owned())
            })
        });
        let timer = timer.unwrap_or_else(|| panic!("{address} is not in /proc/net/tcp"));
        let due = timer.strip_prefix(KEEPALIVE).unwrap_or_else(|| panic!("no keepalive: {timer}"));
        assert!(u64::from_str_radix(due, 16).unwrap() <= 60 * HERTZ, "{timer}");
    }
}

#[test]
fn a_datagram_that_says_to_come_from_the_pipe_itself_goes_nowhere() {
    const NAME: &str = "a_datagram_that_says_to_come_from_the_pipe_itself_goes_nowhere";
    for any in ["127.0.0.1", "0.0.0.0"] {
        let options = Options { children: 1, ..Options::default() };
        let running = Running::start(&format!("listen:udp://{any}:0"), "exec:cat", options);
        let port = support::port(&running.endpoints[0]).rsplit(':').next().unwrap().parse::<u16>().unwrap();
        let raw = match socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(255.into())) {
            Ok(raw) => raw,
            Err(error) => return eprintln!("skipped {NAME}: {error} (CAP_NET_RAW)"),
        };
        // An IPv4 header, whose length, number and checksum the kernel fills in (raw(7)), and one
        // of UDP without a checksum.
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
        for field in [port, port, 8 + 4, 0] {
            packet.extend(field.to_be_bytes());
        }
        packet.extend(b"loop");
        raw.send_to(&packet, &std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        // The one place is still free.
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(support::PATIENCE)).unwrap();
        client.send_to(b"x", ("127.0.0.1", port)).unwrap();
        let mut answer = [0; 9];
        assert_eq!(client.recv(&mut answer).unwrap(), 1, "{any}");
    }
}

#[test]
fn who_comes_and_goes_does_not_start_a_thread_each_time() {
    /// More than the two clients' and those that may be left behind, fewer than there are clients.
    const MOST: usize = 120;
    // A server whose queue is full answers nobody.
    let server = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    server.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    server.listen(0).unwrap();
    let to = server.local_addr().unwrap();
    let queue = (0..4).map(|_| {
        let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        client.set_nonblocking(true).unwrap();
        let _ = client.connect(&to);
        client
    });
    let _queue: Vec<_> = queue.collect();
    let options = Options { clients: 2, connect_timeout: Duration::from_secs(60), ..Options::default() };
    let to = format!("tcp://{}", to.as_socket().unwrap());
    let running = Running::start("listen:tcp://127.0.0.1:0", &to, options);
    let openers = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim_end() == "opener").count()
    };
    let mut most = 0;
    for _ in 0..4 * MOST {
        let near = connect(&running, 0);
        // A reset, which can't be taken for somebody who will read.
        socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
        drop(near);
        if let Ok(summary) = running.ended.recv_timeout(Duration::from_millis(20)) {
            assert_eq!(summary.why, "closed before the other end was there");
        }
        most = most.max(openers());
    }
    assert!((1..MOST).contains(&most), "{most} threads");
}

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;

use taut_link::wire::Frame;

use super::*;
use taut_serve::{Server, ServerConfig};

fn plain(endpoint: &str, time: Duration, rounds: usize) -> StreamRow {
    let plan = StreamPlan {
        endpoint: endpoint.parse().unwrap(),
        direction: Direction::Up,
        connections: 1,
        block_bytes: 128 * 1024,
        time,
        rounds,
        options: Vec::new(),
        acks: AckPolicy::System,
        plain: true,
        spot: Spot::default(),
        command: String::new(),
    };
    let outcome = run(&plan, &Interrupt::default(), &mut |_, _| {}).unwrap();
    assert_eq!(outcome.ended, Ended::Complete);
    outcome.row
}

/// Megabytes go into the buffers of a peer that never reads, and not one counts as a rate.
#[test]
fn a_plain_peer_that_never_reads_has_no_throughput() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let row = plain(&endpoint, Duration::from_secs(1), 2);
    assert_eq!((row.throughput_bps, row.counted), (0.0, Counted::Acknowledged));
    assert!(row.bytes > 0 && row.unconfirmed_bytes > 0 && row.lost_bytes == 0, "{row:?}");

    let name = SocketAddr::from_abstract_name("taut-never-reads").unwrap();
    let _listener = UnixListener::bind_addr(&name).unwrap();
    let row = plain("unix:@taut-never-reads", Duration::from_secs(1), 2);
    assert_eq!((row.throughput_bps, row.counted), (0.0, Counted::Taken));
    assert!(row.bytes > 0 && row.lost_bytes == 0, "{row:?}");
}

/// The rate of a plain peer is that at which it reads, though the socket takes seconds' worth at once.
#[test]
fn a_plain_peer_that_reads_slowly_is_as_slow_as_it_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let (mut buffer, began, mut total) = (vec![0; 50_000], std::time::Instant::now(), 0);
        while let Ok(bytes @ 1..) = peer.read(&mut buffer) {
            total += bytes;
            // 4 Mbit/s.
            let due = Duration::from_secs_f64(total as f64 / 500_000.0);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
    });
    let row = plain(&endpoint, Duration::from_secs(4), 1);
    let mbit = row.throughput_bps / 1e6;
    assert!((2.5..6.0).contains(&mbit), "{mbit} Mbit/s: {row:?}");
}

/// What a kernel takes at a time for a slow reader is most of its buffer. The first rate of few
/// such steps is a quarter low; with the links going on, the others are that of the reader.
#[test]
fn a_plain_peer_that_takes_much_at_a_time_is_as_slow_as_it_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for peer in listener.incoming() {
            let mut peer = peer.unwrap();
            thread::spawn(move || {
                let (mut buffer, began, mut total) = (vec![0; 12_500], std::time::Instant::now(), 0);
                while let Ok(bytes @ 1..) = peer.read(&mut buffer) {
                    total += bytes;
                    // 4 Mbit/s.
                    let due = Duration::from_secs_f64(total as f64 / 500_000.0);
                    thread::sleep(due.saturating_sub(began.elapsed()));
                }
            });
        }
    });
    let row = plain(&endpoint, Duration::from_millis(3500), 7);
    let mbit = row.throughput_bps / 1e6;
    assert!((3.7..4.3).contains(&mbit), "{mbit} Mbit/s: {row:?}");
    let (low, high) = row.throughput_bps_ci.unwrap();
    assert!(low <= 4.1e6 && high >= 3.9e6, "{row:?}");
    let coarse = row.coarse.unwrap();
    assert!(coarse.steps < 8 && coarse.step_bytes > 20_000, "{row:?}");
    // What is still on its way is told once, though every round ends with it.
    assert!(row.unconfirmed_bytes < 8 << 20 && row.lost_bytes == 0, "{row:?}");
}

fn server(endpoint: &str) -> Server {
    Server::start(&[endpoint.parse().unwrap()], ServerConfig::default()).unwrap()
}

fn address(server: &Server) -> String {
    server.endpoints()[0].to_string().split_once("//").unwrap().1.to_owned()
}

fn to_server(endpoint: &str, direction: Direction, time: Duration, interrupt: &Interrupt) -> StreamOutcome {
    let plan = StreamPlan {
        endpoint: endpoint.parse().unwrap(),
        direction,
        connections: 1,
        block_bytes: 1200,
        time,
        rounds: 1,
        options: Vec::new(),
        acks: AckPolicy::System,
        plain: false,
        spot: Spot::default(),
        command: String::new(),
    };
    run(&plan, interrupt, &mut |_, _| {}).unwrap()
}

/// 400 datagrams come through within milliseconds, and no other.
#[test]
fn a_path_that_dies_is_not_fast() {
    let server = server("udp://127.0.0.1:0");
    let path = UdpSocket::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("udp://{}", path.local_addr().unwrap());
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    to.connect(address(&server)).unwrap();
    thread::spawn(move || {
        let (mut buffer, mut passed) = ([0; 2048], 0);
        let mut back = None;
        while let Ok((bytes, from)) = path.recv_from(&mut buffer) {
            if back.is_none() {
                let (to, path) = (to.try_clone().unwrap(), path.try_clone().unwrap());
                back = Some(thread::spawn(move || {
                    let mut buffer = [0; 2048];
                    while let Ok(bytes) = to.recv(&mut buffer) {
                        let _ = path.send_to(&buffer[..bytes], from);
                    }
                }));
            }
            passed += u32::from(bytes == 1200);
            if bytes != 1200 || passed <= 400 {
                let _ = to.send(&buffer[..bytes]);
            }
        }
    });
    let row = to_server(&endpoint, Direction::Up, Duration::from_millis(500), &Interrupt::default()).row;
    assert!(row.bytes > 0 && row.bytes <= 400 * 1200, "{row:?}");
    assert!(row.rounds[0].duration_ns >= 500_000_000 && row.throughput_bps <= 400.0 * 9600.0 / 0.5, "{row:?}");
}

/// A path to a server whose answers go through `down`.
fn path(server: &Server, down: impl FnOnce(TcpStream, TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let to = address(server);
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(to).unwrap();
        let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || {
            let _ = io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(std::net::Shutdown::Write);
        });
        down(server, client);
    });
    endpoint
}

/// The answers to the hello and to the start.
const ANSWERS: u64 = 2 * CONTROL_BYTES as u64;

#[test]
fn silence_at_the_end_is_time_of_a_stream() {
    let server = server("tcp://127.0.0.1:0");
    // Closed after a while.
    let endpoint = path(&server, |server, mut client| {
        io::copy(&mut server.take(ANSWERS + 100_000), &mut client).unwrap();
        thread::sleep(Duration::from_millis(500));
    });
    let outcome = to_server(&endpoint, Direction::Down, Duration::from_millis(200), &Interrupt::default());
    assert!(matches!(outcome.ended, Ended::PeerGone(_)), "{outcome:?}");
    assert!(outcome.row.rounds[0].duration_ns >= 400_000_000, "{outcome:?}");

    // Left by the user, who does not have to wait until patience is at an end.
    let endpoint = path(&server, |server, mut client| {
        io::copy(&mut server.take(ANSWERS + 100_000), &mut client).unwrap();
        thread::sleep(Duration::from_secs(60));
    });
    let interrupt = Interrupt::default();
    let user = interrupt.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(2));
        user.flag().store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let began = std::time::Instant::now();
    let outcome = to_server(&endpoint, Direction::Down, Duration::from_millis(200), &interrupt);
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(outcome.row.rounds[0].duration_ns >= 500_000_000, "{outcome:?}");
}

#[test]
fn a_stream_that_never_ends_is_no_complete_one() {
    let server = server("tcp://127.0.0.1:0");
    let endpoint = path(&server, |server, mut client| {
        io::copy(&mut server.take(ANSWERS), &mut client).unwrap();
        while client.write_all(&[0; 1000]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let outcome = to_server(&endpoint, Direction::Down, Duration::from_millis(100), &Interrupt::default());
    assert!(matches!(&outcome.ended, Ended::PeerGone(why) if why.contains("does not end")), "{outcome:?}");
}

#[test]
fn a_summary_that_can_not_be_is_not_believed() {
    let server = server("tcp://127.0.0.1:0");
    let with = |lie: fn(&mut Totals)| {
        let endpoint = path(&server, move |mut server, mut client| {
            let mut answer = [0; CONTROL_BYTES];
            while server.read_exact(&mut answer).is_ok() {
                let (session, mut frame) = Frame::parse(&answer).unwrap();
                if let Frame::Summary(summary) = &mut frame {
                    lie(summary);
                }
                client.write_all(&frame.emit(session)).unwrap();
            }
        });
        to_server(&endpoint, Direction::Up, Duration::from_millis(300), &Interrupt::default())
    };
    let lies: [fn(&mut Totals); 3] = [
        |summary| summary.bytes *= 1000,
        |summary| summary.bytes = u64::MAX,
        |summary| summary.last_ns = summary.first_ns + 1_000_000_000_000,
    ];
    for lie in lies {
        let outcome = with(lie);
        assert!(matches!(&outcome.ended, Ended::PeerGone(why) if why.contains("the peer says")), "{outcome:?}");
        assert!(outcome.row.bytes == 0 && outcome.row.unconfirmed_bytes > 0, "{outcome:?}");
    }
    let outcome = with(|summary| summary.last_ns = summary.first_ns + 1);
    assert_eq!(outcome.ended, Ended::Complete);
    assert!(outcome.row.rounds[0].duration_ns >= 300_000_000, "{outcome:?}");
}

/// The user does not wait until patience with a server that never answers is at an end.
#[test]
fn a_silent_server_does_not_keep_the_user() {
    let (listener, socket) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let endpoints =
        [format!("tcp://{}", listener.local_addr().unwrap()), format!("udp://{}", socket.local_addr().unwrap())];
    for endpoint in endpoints {
        let interrupt = Interrupt::default();
        let user = interrupt.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            user.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let began = std::time::Instant::now();
        let outcome = to_server(&endpoint, Direction::Up, Duration::from_secs(1), &interrupt);
        assert_eq!(outcome.ended, Ended::Interrupted, "{endpoint}");
        assert!(began.elapsed() < Duration::from_secs(4), "{endpoint}: {:?}", began.elapsed());
        assert!(outcome.row.rounds.is_empty(), "{outcome:?}");
    }
}

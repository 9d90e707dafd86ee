//! Clients that never pause: their time, their rate and the server's end bind them like any other.
//!
//! The bounds are wide for a busy machine, and far below what a client gets that is looked at only
//! when it pauses: those here go on for [`BUSY`].

use std::time::Instant;

use rustix::io::Errno;
use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Request, Session};
use taut_time::{Duration, Framing};

use super::{Faults, Limits, Server, ServerConfig};

/// How long the clients go on when nothing stops them.
const BUSY: Duration = Duration::from_secs(6);
/// What is soon: each wait of the server is 50 ms, the rest is for other programs on the machine.
const SOON: Duration = Duration::from_millis(2000);

fn server(endpoint: &str, limits: Limits) -> Server {
    Server::start(&[endpoint.parse().unwrap()], ServerConfig { limits, ..ServerConfig::default() }).unwrap()
}

fn open(endpoint: &Endpoint, work: Work) -> Session {
    let request = Request {
        endpoint: endpoint.clone(),
        work,
        acks: AckPolicy::System,
        message_bytes: 4096,
        // As a client with --count does: for as long as there is anything to do.
        duration: Duration::ZERO,
        options: Vec::new(),
        plain: false,
        timeout: Duration::from_secs(5),
        core: None,
    };
    Session::open(&request).unwrap()
}

/// Sends without a pause, and takes in what comes, until the server is heard no more: how long that took.
fn keep_busy(session: &Session) -> Duration {
    let link = session.link();
    let datagrams = link.endpoint().framing() == Framing::Datagram;
    let (mut message, mut scratch) = (vec![7; 4096], vec![0; 65_536]);
    let began = Instant::now();
    let (mut answered, mut sequence) = (Instant::now(), 0);
    while began.elapsed() < BUSY {
        if datagrams {
            session.mark(&mut message, sequence);
            sequence += 1;
        }
        match link.send_now(&message) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
            Err(_) => return began.elapsed(),
        }
        loop {
            match link.receive_now(&mut scratch) {
                Ok(0) => return began.elapsed(),
                Ok(_) => answered = Instant::now(),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => return began.elapsed(),
            }
        }
        if datagrams && answered.elapsed() > Duration::from_secs(1) {
            return answered.duration_since(began);
        }
    }
    began.elapsed()
}

fn kinds(name: &str) -> Vec<(String, Work)> {
    let mut kinds = Vec::new();
    for endpoint in ["tcp://127.0.0.1:0".to_owned(), format!("unix:@{name}")] {
        for work in [Work::Echo, Work::Sink, Work::Collect] {
            kinds.push((endpoint.clone(), work));
        }
    }
    // Of a datagram server only the answers tell whether it goes on.
    kinds.extend(
        ["udp://127.0.0.1:0".to_owned(), format!("unix-dgram:@{name}-d")].map(|endpoint| (endpoint, Work::Echo)),
    );
    kinds
}

#[test]
fn a_busy_client_gets_no_more_than_the_longest_session() {
    for (endpoint, work) in kinds("taut-busy") {
        let limits = Limits { session: Duration::from_millis(300), ..Limits::default() };
        let server = server(&endpoint, limits);
        let session = open(&server.endpoints()[0], work);
        let took = keep_busy(&session);
        assert!(took < SOON, "{endpoint} {work:?}: {took:?}");
    }
}

#[test]
fn a_server_ends_while_clients_are_busy() {
    for (endpoint, work) in kinds("taut-ends") {
        let server = server(&endpoint, Limits::default());
        let session = open(&server.endpoints()[0], work);
        let client = std::thread::spawn(move || keep_busy(&session));
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        drop(server);
        let took = began.elapsed();
        assert!(took < SOON, "{endpoint} {work:?}: {took:?}");
        assert!(client.join().unwrap() < BUSY, "{endpoint} {work:?}");
    }
}

/// What waits: for a rate, for a client that does not read, on purpose.
#[test]
fn a_server_ends_while_it_waits() {
    let slow = Limits { rate: 1, ..Limits::default() };
    let stands = Faults { delay: BUSY, stall: None };
    for (work, limits, faults) in [
        (Work::Sink, slow, Faults::default()),
        (Work::Source, Limits::default(), Faults::default()),
        (Work::Echo, Limits::default(), stands),
    ] {
        let endpoint: Endpoint = "tcp://127.0.0.1:0".parse().unwrap();
        let config = ServerConfig { limits, faults, ..ServerConfig::default() };
        let server = Server::start(&[endpoint], config).unwrap();
        let session = open(&server.endpoints()[0], work);
        let block = vec![7; 4096];
        for _ in 0..64 {
            // What does not fit is no matter.
            let _ = session.link().send_now(&block);
        }
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        drop(server);
        assert!(began.elapsed() < SOON, "{work:?}: {:?}", began.elapsed());
    }
}

/// A sender without a name can't be answered; it must not keep the server from looking up either.
#[test]
fn a_server_ends_under_datagrams_of_nobody() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let server = server("unix-dgram:@taut-nobody", Limits::default());
    let address = SocketAddr::from_abstract_name("taut-nobody").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let nobody = UnixDatagram::unbound().unwrap();
            let began = Instant::now();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && began.elapsed() < BUSY {
                // Refused once the server is gone.
                let _ = nobody.send_to_addr(&[0; 64], &address);
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        drop(server);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    });
}

/// Two clients at once used one thread's CPU time, and each was told all of it.
#[test]
fn cpu_time_of_a_thread_is_counted_once() {
    use taut_link::clock;

    let server = server("udp://127.0.0.1:0", Limits::default());
    let endpoint = &server.endpoints()[0];
    let sessions: Vec<_> = (0..6).map(|_| open(endpoint, Work::Sink)).collect();
    let cpu_before = clock::process_cpu();
    let began = Instant::now();
    let mut message = vec![7; 1024];
    let mut sequence = 0;
    while began.elapsed() < Duration::from_millis(500) {
        for session in &sessions {
            session.mark(&mut message, sequence);
            // What finds no room is lost.
            let _ = session.link().send_now(&message);
        }
        sequence += 1;
    }
    let told: Duration = sessions.iter().map(|session| session.finish(u64::MAX).unwrap().unwrap().0.cpu).sum();
    let used = clock::process_cpu().saturating_sub(cpu_before);
    assert!(told > Duration::ZERO && told <= used, "told {told:?} of {used:?}");
}

/// A datagram that comes three times would otherwise stand in for two that were lost.
#[test]
fn repeated_datagrams_are_counted_apart() {
    let server = server("udp://127.0.0.1:0", Limits::default());
    let session = open(&server.endpoints()[0], Work::Sink);
    let mut message = vec![7; 1000];
    for sequence in [0, 0, 0, 5, 4, 5] {
        session.mark(&mut message, sequence);
        session.link().send(&message).unwrap();
    }
    let (summary, _) = session.finish(6000).unwrap().unwrap();
    assert_eq!((summary.messages, summary.bytes), (3, 3000));
    assert_eq!(server.served().datagrams_dropped, 3);
}

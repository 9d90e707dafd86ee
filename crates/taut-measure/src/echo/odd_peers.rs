//! Round trips to peers that stall, die, drip or aren't there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;

use taut_link::wire::AckPolicy;
use taut_time::Duration;

use super::tests::plan;
use super::*;
use crate::placement::Spot;

/// A peer for one link, and what its endpoint is called.
fn peer(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    thread::spawn(move || serve(listener.accept().unwrap().0));
    endpoint
}

fn echo(link: &mut TcpStream, messages: usize) {
    let mut message = [0; 32];
    for _ in 0..messages {
        link.read_exact(&mut message).unwrap();
        link.write_all(&message).unwrap();
    }
}

fn measure(
    endpoint: &str,
    engine: EngineKind,
    plan: &EchoPlan,
    interrupt: &Interrupt,
) -> taut_link::Result<EchoOutcome> {
    let subject = EchoSubject {
        endpoint: endpoint.parse().unwrap(),
        engine,
        options: Vec::new(),
        acks: AckPolicy::default(),
        writes: WriteStyle::One,
        spot: Spot::default(),
        observe: false,
        command: String::new(),
    };
    run(plan, &[subject], interrupt, &mut |_, _| {})
}

/// Row of a measurement, in which every message is either answered or lost.
fn row(outcome: &EchoOutcome) -> &EchoRow {
    let row = outcome.rows[0].as_ref().unwrap();
    assert_eq!(row.sent, row.rtt_ns.as_ref().unwrap().count + row.lost, "{row:?}");
    row
}

/// The warm-up is over before the peer has had as many.
const SOUND: usize = 60;

#[test]
fn what_is_under_way_when_the_user_interrupts_a_stall_is_lost() {
    for (engine, rate_hz, least) in
        [(EngineKind::Spin, None, 1), (EngineKind::Epoll, Some(200.0), 5), (EngineKind::Spin, Some(200.0), 5)]
    {
        let interrupt = Interrupt::default();
        let stop = interrupt.flag();
        let endpoint = peer(move |mut link| {
            echo(&mut link, SOUND);
            thread::sleep(Duration::from_millis(300));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let _ = link.read_to_end(&mut Vec::new());
        });
        let limit = RunLength::Time(Duration::from_secs(60));
        let plan = EchoPlan { rate_hz, limit, timeout: Duration::from_secs(30), ..plan() };
        let outcome = measure(&endpoint, engine, &plan, &interrupt).unwrap();
        assert!(row(&outcome).lost >= least, "{engine}, {rate_hz:?}: {:?}", outcome.rows);
        assert_eq!(outcome.ended, Ended::Interrupted);
    }
}

#[test]
fn what_is_under_way_when_the_peer_dies_is_lost() {
    for (engine, rate_hz, unanswered) in [(EngineKind::Blocking, None, 1), (EngineKind::Epoll, Some(1000.0), 5)] {
        let endpoint = peer(move |mut link| {
            echo(&mut link, SOUND);
            link.read_exact(&mut [0; 32 * 5][..32 * unanswered]).unwrap();
        });
        let limit = RunLength::Time(Duration::from_secs(60));
        let plan = EchoPlan { rate_hz, limit, timeout: Duration::from_secs(30), ..plan() };
        let outcome = measure(&endpoint, engine, &plan, &Interrupt::default()).unwrap();
        assert!(row(&outcome).lost >= unanswered as u64, "{engine}, {rate_hz:?}: {:?}", outcome.rows);
        assert!(matches!(outcome.ended, Ended::PeerGone(_)), "{:?}", outcome.ended);
    }
}

#[test]
fn a_warm_up_that_fails_leaves_no_figures() {
    for (engine, rate_hz) in [(EngineKind::Blocking, None), (EngineKind::Epoll, Some(1000.0))] {
        let endpoint = peer(|mut link| link.read_exact(&mut [0; 32]).unwrap());
        let plan = EchoPlan { rate_hz, timeout: Duration::from_secs(30), ..plan() };
        let error = measure(&endpoint, engine, &plan, &Interrupt::default()).unwrap_err();
        assert_eq!(error.fault(), Fault::Peer, "{error}");
    }
}

#[test]
fn nobody_behind_an_address_of_datagrams_is_no_peer_that_went_away() {
    for engine in [EngineKind::Blocking, EngineKind::Epoll] {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = measure(&format!("udp://{address}"), engine, &plan(), &Interrupt::default()).unwrap_err();
        assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
    }
}

/// Each half comes within the time-out after what was last heard, and the whole reply does not.
#[test]
fn a_reply_in_pieces_is_in_time_when_its_last_one_is() {
    for engine in [EngineKind::Blocking, EngineKind::Spin, EngineKind::Epoll] {
        let endpoint = peer(|mut link| {
            let mut message = [0; 32];
            while link.read_exact(&mut message).is_ok() {
                for half in message.chunks(16) {
                    thread::sleep(Duration::from_millis(150));
                    let _ = link.write_all(half);
                }
            }
        });
        let plan = EchoPlan { limit: RunLength::Count(3), timeout: Duration::from_millis(200), ..plan() };
        let outcome = measure(&endpoint, engine, &plan, &Interrupt::default()).unwrap();
        let row = outcome.rows[0].as_ref().unwrap();
        assert_eq!((row.sent, row.lost), (3, 3), "{engine}: {row:?}");
    }
}

/// Found out in the warm-up or, on a machine that is too busy for more than one message of that, later.
fn assert_no_echo(measured: taut_link::Result<EchoOutcome>, engine: EngineKind) {
    let told = match measured {
        Err(error) => error.to_string(),
        Ok(EchoOutcome { ended: Ended::Failed(why), .. }) => why,
        Ok(outcome) => panic!("{engine}: {outcome:?}"),
    };
    assert!(told.contains("it is no echo server"), "{engine}: {told}");
}

type Answer = fn(&[u8]) -> Vec<u8>;

/// What each does with a message of 32 bytes is no echo.
#[test]
fn a_stream_that_is_no_echo_is_told() {
    let twice: Answer = |message| [message, message].concat();
    let another_number: Answer = |message| [b"+", &message[1..]].concat();
    let another_end: Answer = |message| [&message[..31], b"+"].concat();
    for (engine, rate_hz) in [(EngineKind::Blocking, None), (EngineKind::Spin, None), (EngineKind::Epoll, Some(1000.0))]
    {
        for answer in [twice, another_number, another_end] {
            let endpoint = peer(move |mut link| {
                let mut message = [0; 32];
                while link.read_exact(&mut message).is_ok() && link.write_all(&answer(&message)).is_ok() {}
            });
            let plan = EchoPlan { rate_hz, limit: RunLength::Count(100), ..plan() };
            assert_no_echo(measure(&endpoint, engine, &plan, &Interrupt::default()), engine);
        }
    }
}

#[test]
fn datagrams_that_are_no_copies_are_told() {
    for (engine, rate_hz) in [(EngineKind::Blocking, None), (EngineKind::Epoll, Some(1000.0))] {
        let answers: [Answer; 4] =
            [|message| message[..8].to_vec(), |_| b"OK".to_vec(), |_| vec![0xFF; 32], |_| Vec::new()];
        for answer in answers {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("udp://{}", socket.local_addr().unwrap());
            let _serving = thread::spawn(move || {
                let mut message = [0; 64];
                let (bytes, from) = socket.recv_from(&mut message).unwrap();
                socket.send_to(&answer(&message[..bytes]), from)
            });
            let plan = EchoPlan { rate_hz, limit: RunLength::Count(100), ..plan() };
            assert_no_echo(measure(&endpoint, engine, &plan, &Interrupt::default()), engine);
        }
    }
}

/// Short messages hold the last bytes of their number only, and large ones come in pieces.
#[test]
fn echoes_of_every_length_are_echoes() {
    for (engine, rate_hz) in [(EngineKind::Blocking, None), (EngineKind::Epoll, Some(5000.0))] {
        for message_bytes in [1, 2, 7, 8, 9, 300_000] {
            let stream = peer(|mut link| {
                let mut received = [0; 10_007];
                while let Ok(bytes) = link.read(&mut received) {
                    if bytes == 0 || link.write_all(&received[..bytes]).is_err() {
                        break;
                    }
                }
            });
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let datagrams = format!("udp://{}", socket.local_addr().unwrap());
            let _serving = thread::spawn(move || {
                let mut message = [0; 64];
                while let Ok((bytes, from)) = socket.recv_from(&mut message) {
                    let _ = socket.send_to(&message[..bytes], from);
                }
            });
            // With those of the warm-up more than a byte can number, and fewer than a socket's buffer holds.
            let count = if message_bytes > 9 { 5 } else { 240 };
            let plan = EchoPlan {
                rate_hz: rate_hz.filter(|_| message_bytes <= 9),
                limit: RunLength::Count(count),
                message_bytes,
                timeout: Duration::from_secs(10),
                ..plan()
            };
            for endpoint in [Some(stream), Some(datagrams).filter(|_| message_bytes <= 9)].into_iter().flatten() {
                let outcome = measure(&endpoint, engine, &plan, &Interrupt::default()).unwrap();
                let row = row(&outcome);
                assert_eq!((row.sent, row.lost, row.duplicates), (count, 0, 0), "{endpoint}, {message_bytes} bytes");
            }
        }
    }
}

/// Nobody's signal wakes up the threads of several links, and a link that takes no more has no time-out of its own.
#[test]
fn whoever_waits_in_a_blocking_call_hears_the_user() {
    for (connections, message_bytes) in [(1, 32), (3, 32), (1, 64 << 20)] {
        let endpoint = mute();
        let plan = EchoPlan { connections, message_bytes, timeout: Duration::from_secs(120), ..plan() };
        let interrupt = Interrupt::default();
        let user = interrupt.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            user.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let began = std::time::Instant::now();
        let outcome = measure(&endpoint, EngineKind::Blocking, &plan, &interrupt).unwrap();
        assert_eq!(outcome.ended, Ended::Interrupted, "{connections} of {message_bytes}");
        assert!(began.elapsed() < Duration::from_secs(60), "{connections} of {message_bytes}: {:?}", began.elapsed());
    }
}

#[test]
fn a_peer_that_reads_nothing_ends_a_closed_loop() {
    for engine in [EngineKind::Blocking, EngineKind::Epoll, EngineKind::Spin] {
        let plan = EchoPlan { message_bytes: 64 << 20, timeout: Duration::from_millis(200), ..plan() };
        let error = measure(&mute(), engine, &plan, &Interrupt::default()).unwrap_err().to_string();
        assert!(error.contains("it reads nothing"), "{engine}: {error}");
    }
}

/// Takes connections, and nothing else.
fn mute() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    endpoint
}

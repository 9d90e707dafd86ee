//! Round trips to peers that stall, die, drip or aren't there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;

use super::tests::plan;
use super::*;

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
        let limit = Limit::Time(Duration::from_secs(60));
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
        let limit = Limit::Time(Duration::from_secs(60));
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
        let plan = EchoPlan { limit: Limit::Count(3), timeout: Duration::from_millis(200), ..plan() };
        let outcome = measure(&endpoint, engine, &plan, &Interrupt::default()).unwrap();
        let row = outcome.rows[0].as_ref().unwrap();
        assert_eq!((row.sent, row.lost), (3, 3), "{engine}: {row:?}");
    }
}

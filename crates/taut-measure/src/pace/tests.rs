//! Peers that say what can't be.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;

use taut_link::peer_clock::Disagreement;
use taut_link::wire::{self, AckPolicy, ArrivalRecord, Frame, HEADER_BYTES};
use taut_time::Duration;

use super::*;
use crate::placement::Spot;
use taut_record::Ended;
use taut_serve::{Server, ServerConfig};

/// Sends what it is given on to the client; `false` once that is gone.
type Onward<'a> = &'a mut dyn FnMut(&[u8]) -> bool;
/// Makes a part of a report from its number.
type Part = fn(u64) -> Frame;
/// Changes what a server says.
type Lie = fn(&mut Frame);

fn server(endpoint: &str) -> Server {
    Server::start(&[endpoint.parse().unwrap()], ServerConfig::default()).unwrap()
}

fn address(server: &Server) -> String {
    server.endpoints()[0].to_string().split_once("//").unwrap().1.to_owned()
}

/// A path to a server on which its answers pass through `lie`, with the number of the link from 0 on.
fn path(server: &Server, lie: impl Fn(usize, u64, Frame, Onward<'_>) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let (to, lie) = (address(server), Arc::new(lie));
    thread::spawn(move || {
        for (link, client) in listener.incoming().enumerate() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&to).unwrap());
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Write);
            });
            let lie = Arc::clone(&lie);
            thread::spawn(move || {
                let mut bytes = vec![0; HEADER_BYTES];
                while server.read_exact(&mut bytes).is_ok() {
                    bytes.resize(wire::frame_length(&bytes).unwrap(), 0);
                    server.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
                    let (session, frame) = Frame::parse(&bytes).unwrap();
                    lie(link, session, frame, &mut |bytes| client.write_all(bytes).is_ok());
                    bytes.resize(HEADER_BYTES, 0);
                }
            });
        }
    });
    endpoint
}

fn pace(endpoint: &str) -> Result<PaceOutcome> {
    let plan = PacePlan {
        peer: PeerKind::Server { endpoint: endpoint.parse().unwrap(), acks: AckPolicy::System },
        message_bytes: 64,
        period: Duration::from_millis(10),
        time: Duration::from_millis(200),
        rounds: 1,
        options: Vec::new(),
        exceed: Vec::new(),
        spot: Spot::default(),
        fifo: false,
        command: String::new(),
    };
    run(&plan, &Interrupt::default(), &mut |_, _| {})
}

/// The server seems to be of another host, whose clock jumps by so many ns, or which boots, before it is asked again.
fn elsewhere(server: &Server, jump_ns: u64, boots: bool) -> String {
    path(server, move |link, session, mut frame, onward| {
        let again = link > 0;
        match &mut frame {
            Frame::Accept(accept) => accept.boot = if boots && again { 2 } else { 1 },
            Frame::Clock { server_ns } if again => *server_ns += jump_ns,
            _ => {}
        }
        onward(&frame.emit(session));
    })
}

/// 200 ms of sleep in less than a second would pass for a clock that is a fifth off.
#[test]
fn a_clock_that_jumps_or_is_another_gives_no_times() {
    let server = server("tcp://127.0.0.1:0");
    let row = pace(&elsewhere(&server, 0, false)).unwrap().row;
    assert!(row.clock_uncertainty_ns.is_some_and(|ns| ns > 0) && row.delivery_ns.is_some(), "{row:?}");

    let why = |endpoint: &str| match pace(endpoint) {
        Err(Error::Clocks { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let jumped = why(&elsewhere(&server, 200_000_000, false));
    assert!(matches!(jumped, Disagreement::Jump { moved_ns, .. } if moved_ns > 100_000_000), "{jumped}");
    assert_eq!(why(&elsewhere(&server, 0, true)), Disagreement::OtherBoot);
}

/// Sends a report without end, whose parts are made from their number.
fn endless(server: &Server, part: Part) -> String {
    path(server, move |_, session, frame, onward| match frame {
        Frame::Records { .. } => {
            let mut number = 0;
            while onward(&part(number).emit(session)) {
                number += 1;
            }
        }
        frame => drop(onward(&frame.emit(session))),
    })
}

const fn arrival(end: u64) -> ArrivalRecord {
    ArrivalRecord { end, received_ns: 0, read_ns: 0 }
}

#[test]
fn a_report_that_does_not_end_is_none() {
    let server = server("tcp://127.0.0.1:0");
    let parts: [(Part, &str); 4] = [
        (|number| Frame::Records { index: 0, records: vec![arrival(number + 1)] }, "out of place"),
        (|_| Frame::Records { index: 0, records: vec![arrival(0)] }, "bring nothing"),
        (|number| Frame::Records { index: number, records: vec![arrival(64)] }, "bring nothing"),
        (|number| Frame::Records { index: number, records: vec![arrival(number + 1)] }, "were sent"),
    ];
    for (part, says) in parts {
        let outcome = pace(&endless(&server, part)).unwrap();
        assert!(matches!(&outcome.ended, Ended::PeerGone(why) if why.contains(says)), "{says}: {:?}", outcome.ended);
    }
    // A byte now and then is no sign of a report either.
    let endpoint = path(&server, |_, session, frame, onward| {
        let bytes = frame.emit(session);
        match frame {
            Frame::Records { .. } => {
                for byte in bytes.chunks(1) {
                    if !onward(byte) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(500));
                }
            }
            _ => drop(onward(&bytes)),
        }
    });
    let outcome = pace(&endpoint).unwrap();
    assert!(matches!(&outcome.ended, Ended::PeerGone(why) if why.contains("the report")), "{:?}", outcome.ended);
}

#[test]
fn a_report_of_datagrams_that_never_were_is_none() {
    let server = server("udp://127.0.0.1:0");
    let path = UdpSocket::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("udp://{}", path.local_addr().unwrap());
    let lies: [(Lie, &str); 2] = [
        (
            |frame| {
                if let Frame::Summary(summary) = frame {
                    summary.messages = u64::MAX;
                }
            },
            "arrivals",
        ),
        (
            |frame| {
                if let Frame::Records { records, .. } = frame {
                    records[0].end += 1 << 40;
                }
            },
            "were sent",
        ),
    ];
    for (lie, says) in lies {
        let (path, to) = (path.try_clone().unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        to.connect(address(&server)).unwrap();
        path.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let relay = thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut back = None;
            while let Ok((bytes, from)) = path.recv_from(&mut buffer) {
                let _ = to.send(&buffer[..bytes]);
                back.get_or_insert_with(|| {
                    let (to, path) = (to.try_clone().unwrap(), path.try_clone().unwrap());
                    thread::spawn(move || {
                        let mut buffer = [0; 2048];
                        while let Ok(bytes) = to.recv(&mut buffer) {
                            let bytes = &mut buffer[..bytes];
                            let number = wire::number_of(bytes);
                            let (session, mut frame) = Frame::parse(bytes).unwrap();
                            lie(&mut frame);
                            let mut told = frame.emit(session);
                            if !matches!(frame, Frame::Records { .. }) {
                                wire::set_number(&mut told, number);
                            }
                            let _ = path.send_to(&told, from);
                        }
                    })
                });
            }
        });
        let outcome = pace(&endpoint).unwrap();
        assert!(matches!(&outcome.ended, Ended::PeerGone(why) if why.contains(says)), "{says}: {:?}", outcome.ended);
        relay.join().unwrap();
    }
}

use std::io::Read;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;

use super::*;

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

/// What a kernel takes at a time for a slow reader is most of its buffer. The first rate of few such steps is a quarter low; with
/// the links going on, the others are that of the reader.
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

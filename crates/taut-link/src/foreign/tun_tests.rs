//! The peer against the kernel's TCP. Needs the right to make network namespaces, and /dev/net/tun.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};

use taut_time::Duration;

use super::*;

const DELAY: Duration = Duration::from_millis(56);
const PERIOD: Duration = Duration::from_millis(10);
const MESSAGE: [u8; 128] = [0x55; 128];
const MESSAGES: u32 = 100;

/// A host, or `None` and a note that the test is skipped.
fn host_or_skip(test: &str, delay: Duration) -> Option<ForeignHost> {
    match ForeignHost::start(AckTimer::after(delay)) {
        Ok(host) => Some(host),
        Err(Error::Unavailable(reason)) => {
            crate::skip::note(&format!("foreign::{test}"), &reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn connect(host: &ForeignHost) -> (TcpStream, u16) {
    let stream = host.in_namespace(|| TcpStream::connect(host.address())).unwrap().unwrap();
    let port = stream.local_addr().unwrap().port();
    (stream, port)
}

/// Writes messages on an absolute schedule and returns what arrived.
fn arrivals_of_a_run(host: &ForeignHost, no_delay: bool) -> Vec<Arrival> {
    let (mut stream, port) = connect(host);
    stream.set_nodelay(no_delay).unwrap();
    clock::set_timer_slack(Duration::from_nanos(1));
    let start = clock::now();
    for index in 0..MESSAGES {
        clock::sleep_until(start + PERIOD * index);
        stream.write_all(&MESSAGE).unwrap();
    }
    let mut arrivals = Vec::new();
    wait_until("all has arrived", || {
        arrivals.extend(host.take_arrivals(port));
        let bytes: u64 = arrivals.iter().map(|arrival: &Arrival| arrival.bytes.len()).sum();
        bytes == u64::from(MESSAGES) * MESSAGE.len() as u64
    });
    arrivals
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = clock::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(clock::now() < deadline, "waited in vain until {what}");
        clock::sleep(Duration::from_millis(1));
    }
}

/// The median: a thread that wakes up late on a busy machine makes single gaps longer.
fn median_gap_ms(arrivals: &[Arrival]) -> f64 {
    let mut gaps: Vec<Duration> = arrivals.windows(2).map(|pair| pair[1].at.saturating_since(pair[0].at)).collect();
    gaps.sort_unstable();
    gaps[gaps.len() / 2].as_secs_f64() * 1000.0
}

#[test]
fn nagle_waits_for_the_delayed_ack_and_no_delay_does_not() {
    let Some(host) = host_or_skip("nagle_waits_for_the_delayed_ack_and_no_delay_does_not", DELAY) else { return };
    let held = arrivals_of_a_run(&host, false);
    let gap = median_gap_ms(&held);
    eprintln!("Nagle: {} segments, median gap {gap:.3} ms", held.len());
    assert!((gap - 56.0).abs() < 0.05 * 56.0, "median gap {gap} ms");
    let inner = &held[1..held.len() - 1];
    let per_segment = inner.iter().map(|arrival| arrival.bytes.len()).sum::<u64>() as f64 / inner.len() as f64 / 128.0;
    assert!((5.0..=6.5).contains(&per_segment), "{per_segment} messages a segment");

    let sent_at_once = arrivals_of_a_run(&host, true);
    let gap = median_gap_ms(&sent_at_once);
    eprintln!("TCP_NODELAY: {} segments, median gap {gap:.3} ms", sent_at_once.len());
    assert!((9.5..10.5).contains(&gap), "median gap {gap} ms");
    assert_eq!(host.lost_records(), 0);
}

#[test]
fn an_ack_is_sent_after_the_delay_and_not_before() {
    let Some(host) = host_or_skip("an_ack_is_sent_after_the_delay_and_not_before", DELAY) else { return };
    let (mut stream, port) = connect(&host);
    for sent in 1..=5 {
        stream.write_all(&MESSAGE).unwrap();
        wait_until("the ACK is sent", || host.acks_sent(port).len() == sent);
    }
    let (arrivals, acks) = (host.take_arrivals(port), host.acks_sent(port));
    assert_eq!((arrivals.len(), acks.len()), (5, 5));
    let late = arrivals.iter().zip(&acks).map(|(arrival, ack)| {
        assert_eq!(arrival.bytes.end, ack.up_to);
        ack.at.signed_since(arrival.at + DELAY)
    });
    let late: Vec<_> = late.collect();
    assert!(late.iter().all(|&nanos| nanos >= 0), "never early: {late:?} ns");
    assert!(late.iter().any(|&nanos| nanos < 5_000_000), "late: {late:?} ns");
}

#[test]
fn a_connection_closes_in_order_and_a_closed_port_refuses() {
    let Some(host) = host_or_skip("a_connection_closes_in_order_and_a_closed_port_refuses", DELAY) else { return };
    for _ in 0..3 {
        let (mut stream, port) = connect(&host);
        stream.write_all(&vec![1; 100_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(io::Read::read(&mut stream, &mut [0; 1]).unwrap(), 0, "the peer closes too");
        assert_eq!(host.take_arrivals(port).last().unwrap().bytes.end, 100_000);
    }
    let refused = host.in_namespace(|| TcpStream::connect((PEER_ADDRESS, PEER_PORT + 1))).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_host_leaves_nothing_behind_and_costs_nothing_while_idle() {
    let Some(host) = host_or_skip("a_host_leaves_nothing_behind_and_costs_nothing_while_idle", DELAY) else { return };
    let (mut stream, _) = connect(&host);
    stream.write_all(&MESSAGE).unwrap();
    clock::sleep(4 * DELAY);
    let wake_ups = || {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", thread_id(&host))).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let before = wake_ups();
    clock::sleep(Duration::from_millis(300));
    // The kernel's IPv6 may send a packet or two of its own.
    assert!(wake_ups() - before < 10);

    let shared = Arc::downgrade(&host.shared);
    let outside = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let inside = host.in_namespace(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_ne!(inside, outside);
    drop(host);
    assert!(shared.upgrade().is_none(), "the thread has ended");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    assert!(open.into_iter().all(|target| target != inside), "the namespace is closed");
}

#[test]
fn a_panic_inside_goes_on_outside() {
    let Some(host) = host_or_skip("a_panic_inside_goes_on_outside", DELAY) else { return };
    let call = || host.in_namespace(|| panic!("inside")).unwrap_or(());
    let cause = panic::catch_unwind(panic::AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(cause.downcast_ref::<&str>(), Some(&"inside"));
}

/// The kernel's number of the host's thread: the one that sits in its namespace.
fn thread_id(host: &ForeignHost) -> u32 {
    let inside = host.in_namespace(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let mut own = tasks.filter(|task| std::fs::read_link(task.join("ns/net")).is_ok_and(|link| link == inside));
    own.next().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

//! Routes in the kernel module on the simulated chip: for guests of the lab that have both (`xtask/tests/lab_route.rs`).

mod support;

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use taut_route::bench::KernelPath;
use taut_route::bench::sim::Sim;
use taut_route::route::{Route, parse_file};
use taut_route::run::{Counters, Engine};

#[test]
fn x() {
    let Ok(_) = Sim::find() else { return };
    for path in KernelPath::ALL {
        let mut m = path.edges(2000, Duration::from_millis(1)).unwrap();
        m.edge_to_edge_ns.sort();
        let n = m.edge_to_edge_ns.len();
        println!(
            "{} n {n} p50 {} p99 {} max {} sent {} lost {}",
            path.name(),
            m.edge_to_edge_ns[n / 2],
            m.edge_to_edge_ns[n * 99 / 100],
            m.edge_to_edge_ns[n - 1],
            m.sent,
            m.lost
        );
        if path.name().starts_with("hard") {
            println!("loop {}", path.loop_ns(10000).unwrap());
        }
    }
    for path in KernelPath::ALL {
        let m = path.edges(50000, Duration::from_micros(20)).unwrap();
        println!("{} sent {} lost {}", path.name(), m.sent, m.lost);
    }
}

//! Where to look next when a traced program waits for its peer: what holds the data at the other end is not seen from
//! this one.

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};

use taut_event::Holder;
use taut_explain::trace::TracedDirection;
use taut_explain::{Verdict, VerdictOn};
use taut_report::units;
use taut_source::trace::{Tracer, has_kernels_numbers};
use taut_source::{Owners, SocketTable};

use super::names::named;
use crate::output;

/// In less of the time the peer is as quick as others.
const MUCH: f64 = 0.5;
/// A finding of so much of a direction's time is what to look at.
const ENOUGH: f64 = 0.25;

/// Where little was found at this end: who the first of the peers is that is mostly waited for.
pub(super) fn remark(worst: &[TracedDirection], tracer: &Tracer) -> Option<String> {
    let is_found = |on: &VerdictOn| matches!(&on.verdict, Verdict::Found(found) if found.cost.share >= ENOUGH);
    if worst.iter().any(|direction| direction.verdicts.iter().any(is_found)) {
        return None;
    }
    let peer_turn = |direction: &TracedDirection| {
        direction.breakdown.iter().find(|held| held.holder == Holder::PeerTurn.name()).map_or(0.0, |held| held.share)
    };
    let is_waiting = |direction: &&TracedDirection| {
        !direction.is_outgoing && direction.transport == "tcp" && peer_turn(direction) >= MUCH
    };
    let direction = worst.iter().find(is_waiting)?;
    let process = direction.thread.and_then(|thread| tracer.process_of(thread)).map(u32::cast_signed);
    let is_of_this_network = has_kernels_numbers() && process.is_some_and(is_of_this_network);
    let peer = if is_of_this_network { Programs::now().of(&direction.from, &direction.to) } else { None };
    let next = match peer {
        Some(pid) if tracer.follows(pid) => return None,
        Some(pid) => format!(
            "That is {}, on this host: `taut trace --pid {pid}`, or `--port {}` for both ends.",
            named(pid),
            port(direction)
        ),
        // Which program had that end can't be told any more.
        None if is_of_this_host(&direction.from) => return None,
        None => "Trace the program there, or explain a capture that was taken there.".to_owned(),
    };
    Some(format!(
        "For {} of the time nothing had come from {}. What held it there is seen at that end only. {next}",
        units::share(peer_turn(direction)),
        output::printable(&direction.from)
    ))
}

/// The programs of this host's connections, by the addresses of both ends.
struct Programs {
    inodes: HashMap<(String, String), u32>,
    owners: Owners,
}

impl Programs {
    fn now() -> Self {
        let mut inodes = HashMap::new();
        // Without the table nobody is known.
        let looked = SocketTable::open().and_then(|mut table| {
            table.look(|socket| {
                let [local, peer] = [socket.local, socket.peer].map(canonical);
                inodes.insert((local, peer), socket.inode);
            })
        });
        if looked.is_err() {
            inodes.clear();
        }
        Self { inodes, owners: Owners::read(None) }
    }

    fn of(&self, from: &str, to: &str) -> Option<i32> {
        let inode = self.inodes.get(&(from.to_owned(), to.to_owned()))?;
        self.owners.of(*inode).map(|owner| owner.pid)
    }
}

/// An IPv4 address as such, also that of a socket of IPv6.
fn canonical(end: SocketAddr) -> String {
    SocketAddr::new(end.ip().to_canonical(), end.port()).to_string()
}

/// The same addresses may be used in another network namespace.
fn is_of_this_network(pid: i32) -> bool {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    network("self").is_some_and(|own| network(&pid.to_string()) == Some(own))
}

/// Whether one of this host's interfaces has the address: only then it can be bound.
fn is_of_this_host(end: &str) -> bool {
    end.parse::<SocketAddr>().is_ok_and(|end| UdpSocket::bind((end.ip(), 0)).is_ok())
}

/// The one of both ends that is more likely a server's.
fn port(direction: &TracedDirection) -> u16 {
    let port = |end: &str| end.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(u16::MAX);
    port(&direction.from).min(port(&direction.to))
}

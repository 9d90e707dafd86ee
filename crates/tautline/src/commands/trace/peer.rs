//! Where to look next when a traced program waits for its peer: what holds the data at the other end is not seen from
//! this one.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;

use taut_event::Holder;
use taut_explain::trace::TracedDirection;
use taut_explain::{Verdict, VerdictOn};
use taut_report::units;
use taut_source::trace::{Tracer, has_kernels_numbers};
use taut_source::{Owners, SocketTable, State, is_own_address};

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
    // What comes is always waited for while none is there; only what goes tells whose turn it was.
    let has_the_turn = |direction: &TracedDirection| {
        let mut back =
            worst.iter().filter(|out| out.is_outgoing && out.from == direction.to && out.to == direction.from);
        back.next().is_some_and(|out| peer_turn(out) < MUCH)
    };
    let is_waiting = |direction: &&TracedDirection| {
        !direction.is_outgoing
            && direction.transport == "tcp"
            && peer_turn(direction) >= MUCH
            && !has_the_turn(direction)
    };
    let mut programs = None;
    worst.iter().filter(is_waiting).find_map(|direction| told(direction, peer_turn(direction), &mut programs, tracer))
}

fn told(direction: &TracedDirection, share: f64, programs: &mut Option<Programs>, tracer: &Tracer) -> Option<String> {
    let process = direction.thread.and_then(|thread| tracer.process_of(thread)).map(u32::cast_signed);
    let is_of_this_network = has_kernels_numbers() && process.is_some_and(is_of_this_network);
    let programs = programs.get_or_insert_with(Programs::now);
    let peer = programs.of(&direction.from, &direction.to).filter(|_| is_of_this_network);
    let next = match peer {
        Some(pid) if tracer.follows(pid) => return None,
        Some(pid) => format!(
            "That is {}, on this host: `taut trace --pid {pid}`, or `--port {}` for both ends.",
            named(pid),
            programs.port(direction)
        ),
        // Which program had that end can't be told any more.
        None if is_of_this_host(&direction.from) => return None,
        None => "Trace the program there, or explain a capture that was taken there.".to_owned(),
    };
    Some(format!(
        "For {} of the time nothing had come from {}. What held it there is seen at that end only. {next}",
        units::share(share),
        output::printable(&direction.from)
    ))
}

/// The programs of this host's connections, by the addresses of both ends.
struct Programs {
    inodes: HashMap<(String, String), u32>,
    /// Ports of listening sockets.
    servers: HashSet<u16>,
    owners: Owners,
}

impl Programs {
    fn now() -> Self {
        let (mut inodes, mut servers) = (HashMap::new(), HashSet::new());
        // Without the table nobody is known.
        let looked = SocketTable::open().and_then(|mut table| {
            table.look(|socket| {
                if socket.state == State::Listen {
                    servers.insert(socket.local.port());
                }
                let [local, peer] = [socket.local, socket.peer].map(canonical);
                inodes.insert((local, peer), socket.inode);
            })
        });
        if looked.is_err() {
            inodes.clear();
        }
        Self { inodes, servers, owners: Owners::read(None) }
    }

    /// The server's of both ends, or what is more likely its.
    fn port(&self, direction: &TracedDirection) -> u16 {
        let port = |end: &str| end.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(u16::MAX);
        let ports = [port(&direction.from), port(&direction.to)];
        let served = ports.into_iter().find(|port| self.servers.contains(port));
        served.unwrap_or_else(|| ports[0].min(ports[1]))
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

/// Whether one of this host's interfaces has the address.
fn is_of_this_host(end: &str) -> bool {
    end.parse::<SocketAddr>().is_ok_and(|end| is_own_address(end.ip()))
}

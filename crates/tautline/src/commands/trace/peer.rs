//! Where to look next when a traced program waits for its peer: what holds the data at the other end is not seen from
//! this one.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;

use taut_event::Holder;
use taut_explain::Verdict;
use taut_explain::trace::TracedDirection;
use taut_source::trace::{Tracer, has_kernels_numbers};
use taut_source::{Owners, SocketTable};

use super::names::named;
use crate::output;

/// In less of the time the peer is as quick as others.
const MUCH: f64 = 0.5;

/// Says of each direction that mostly waits for its peer who that is.
pub(super) fn point_out(worst: &mut [TracedDirection], tracer: &Tracer) {
    let mut here = None;
    for direction in worst.iter_mut().filter(|direction| !direction.is_outgoing && direction.transport == "tcp") {
        let waits = direction.breakdown.iter().find(|held| held.holder == Holder::PeerTurn.name());
        let Some(share) = waits.map(|held| held.share).filter(|share| *share >= MUCH) else { continue };
        if direction.verdicts.iter().any(|on| matches!(on.verdict, Verdict::Found(_))) {
            continue;
        }
        let process = direction.thread.and_then(|thread| tracer.process_of(thread)).map(u32::cast_signed);
        let is_of_this_network = has_kernels_numbers() && process.is_some_and(is_of_this_network);
        let programs = here.get_or_insert_with(Programs::now);
        let peer = programs.of(&direction.from, &direction.to).filter(|_| is_of_this_network);
        if peer.is_some_and(|pid| tracer.follows(pid)) {
            continue;
        }
        let next = match peer {
            Some(pid) => format!(
                "That is {}, on this host: `taut trace --pid {pid}`, or `--port {}` for both ends.",
                named(pid),
                port(direction)
            ),
            None => "Trace the program there, or explain a capture that was taken there.".to_owned(),
        };
        direction.remarks.push(format!(
            "For {:.1} % of the time nothing had come from {}. What held it there is seen at that end only. {next}",
            share * 100.0,
            output::printable(&direction.from)
        ));
    }
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

/// The one of both ends that is more likely a server's.
fn port(direction: &TracedDirection) -> u16 {
    let port = |end: &str| end.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(u16::MAX);
    port(&direction.from).min(port(&direction.to))
}

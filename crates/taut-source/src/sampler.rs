use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use taut_event::{Holder, SocketState};
use taut_link::clock;
use taut_time::{Duration, Instant};

use crate::{Error, Options, Owner, Owners, Socket, SocketId, SocketTable, State};

/// What was seen of one socket over the time of looking.
#[derive(Clone, Debug)]
pub struct Seen {
    /// As it was when it was first seen.
    pub first: Socket,
    /// As it was last.
    pub last: Socket,
    /// The program that has it, where that may be looked at.
    pub owner: Option<Owner>,
    /// The program at the other end, where that is in this network namespace and may be looked at.
    pub peer: Option<Owner>,
    /// Its options, where they may be looked at; as they were last.
    pub options: Option<Options>,
    /// How often it was looked at.
    pub samples: u32,
    /// Samples in which bytes waited to be read.
    pub unread_samples: u32,
    /// Time in which bytes waited to be read.
    pub unread: Duration,
    /// Samples in which it was open and no program had accepted it.
    pub unaccepted_samples: u32,
    /// Time in which it was open and no program had accepted it.
    pub unaccepted: Duration,
    /// Samples in which the queue of a listening socket was full.
    pub full_samples: u32,
    /// Time in which the queue of a listening socket was full.
    pub full: Duration,
    /// From the first sample to the last.
    pub span: Duration,
    /// Time with something to send, by who held it, in the order of [`Holder::ALL`]. A sample stands for the
    /// time until the next one.
    pub held: [Duration; Holder::ALL.len()],
    /// The holder at the last sample; `None` when nothing waited to be sent or acknowledged.
    pub holder: Option<Holder>,
    at: Instant,
    /// Whether its time begins with the next look.
    is_new: bool,
    /// When something waited last that need not.
    met: Option<Instant>,
    /// Times that its owner was looked for in vain.
    tries: u8,
    /// Whether its options may not be looked at.
    is_refused: bool,
    /// Whether it is one of [`Sampler::suspects`].
    is_suspect: bool,
    /// The count that its figures are of.
    epoch: u64,
}

impl Seen {
    fn read_options(&mut self) -> Result<(), Errno> {
        // One that no program has open any more keeps those that it had.
        let is_open = self.last.inode != 0 && !self.is_refused;
        if let Some(owner) = self.owner.as_ref().filter(|_| is_open) {
            self.options = Some(Options::read(owner, self.last.inode)?);
        }
        Ok(())
    }

    /// Whether bytes wait for the program to read them. While fewer have come than it asked for (`SO_RCVLOWAT`), the
    /// kernel does not tell it of them, unless none come any more.
    pub fn has_unread(&self) -> bool {
        let least = self.options.map_or(1, |options| options.receive_low_water.max(1));
        let is_short = self.last.state == State::Established && self.last.unread_bytes < least;
        self.last.unread_bytes > 0 && !is_short
    }

    /// Whether something waits that need not: all but the way to the peer and back.
    fn waits(&self) -> bool {
        let is_held = self.holder.is_some_and(|holder| holder != Holder::Delivery);
        is_held || self.last.is_full() || self.has_unread() || self.last.is_unaccepted()
    }

    /// Whether something waited a short while ago.
    fn has_waited(&self, now: Instant) -> bool {
        self.met.is_some_and(|met| now.saturating_since(met) < SUSPECT_FOR)
    }

    /// From now on it counts anew.
    fn restart(&mut self) {
        self.first = self.last;
        (self.samples, self.unread_samples, self.unaccepted_samples, self.full_samples) = (0, 0, 0, 0);
        (self.span, self.unread, self.unaccepted, self.full) = Default::default();
        self.held = [Duration::ZERO; Holder::ALL.len()];
    }

    /// Time in which nothing waited to be sent or acknowledged.
    pub fn idle(&self) -> Duration {
        self.held.iter().fold(self.span, |rest, held| rest.saturating_sub(*held))
    }
}

/// Who holds what a socket has to send; `None` when nothing waits.
pub type Reason = fn(&SocketState) -> Option<Holder>;

/// Looks at all sockets again and again.
#[derive(Debug)]
pub struct Sampler {
    table: SocketTable,
    reason: Reason,
    only: Option<i32>,
    owners: Owners,
    /// From when on they may be looked for again.
    owners_due: Option<Instant>,
    most_work: u32,
    seen: HashMap<SocketId, Seen>,
    /// How often it began to count anew, and those that were looked at since. The others count anew when they are
    /// looked at: with very many sockets it would take long to do so for all.
    epoch: u64,
    counted: Vec<SocketId>,
    /// Those in which something waited a short while ago, and may not any more. With very many sockets it takes longer
    /// to pass over the others than to look at these.
    suspects: Vec<SocketId>,
    /// Which one has these ends, this one's and the other's.
    ends: HashMap<(SocketAddr, SocketAddr), SocketId>,
    /// Those of the last look, of any program.
    latest: Vec<Socket>,
    /// Where programs listened then.
    listening: HashSet<SocketAddr>,
    port: Option<u16>,
    looks: u32,
    /// When all were looked at last.
    looked_at: Option<Instant>,
    forgotten: usize,
}

/// Owners of sockets that came up are looked for at most this often: it takes a system call for each descriptor of the
/// host.
const OWNERS_EVERY: Duration = Duration::from_millis(500);
/// And then takes at most this part of a processor, as all other looking does (`taut sockets`).
const MOST_WORK: u32 = 5;
/// What waited is looked at more often for so long. If that ended with the wait, one that waits half of the time would
/// be met in few of its waits, and booked as idle for the others.
const SUSPECT_FOR: Duration = Duration::from_secs(2);
/// A socket may be on its way to a program, so one look for its owner is not enough.
const TRIES: u8 = 3;
/// Sockets that are gone and still kept.
const MOST_GONE: usize = 100_000;

impl Sampler {
    /// Looks at the sockets of one program, of one port (at either end), or at all; `reason` says who holds.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn new(only: Option<i32>, port: Option<u16>, reason: Reason) -> Result<Self, Error> {
        Ok(Self {
            table: SocketTable::open()?,
            reason,
            only,
            owners: Owners::default(),
            owners_due: None,
            most_work: MOST_WORK,
            seen: HashMap::new(),
            epoch: 0,
            counted: Vec::new(),
            suspects: Vec::new(),
            ends: HashMap::new(),
            latest: Vec::new(),
            listening: HashSet::new(),
            port,
            looks: 0,
            looked_at: None,
            forgotten: 0,
        })
    }

    /// To look for the programs of new sockets takes at most this part of a processor; a fifth unless told otherwise.
    #[must_use]
    pub const fn within(mut self, part: u32) -> Self {
        self.most_work = part;
        self
    }

    /// Looks once.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn look(&mut self, now: Instant) -> Result<(), Error> {
        let mut sockets = std::mem::take(&mut self.latest);
        sockets.clear();
        self.listening.clear();
        let (port, listening) = (self.port, &mut self.listening);
        self.table.look(|socket| {
            if port.is_none_or(|port| socket.local.port() == port || socket.peer.port() == port) {
                sockets.push(*socket);
                if socket.state == State::Listen {
                    listening.insert(socket.local);
                }
            }
        })?;
        let is_due = self.owners_due.is_none_or(|due| now >= due);
        let is_asked = is_due && sockets.iter().any(|socket| self.lacks_owner(socket));
        if is_asked {
            let before = clock::thread_cpu();
            self.owners = Owners::read(self.only);
            let work = clock::thread_cpu().saturating_sub(before);
            self.owners_due = Some(now + OWNERS_EVERY.max(work * self.most_work));
        }
        self.looks += 1;
        self.looked_at = Some(now);
        for socket in &sockets {
            self.book(socket, now, is_asked);
        }
        self.latest = sockets;
        self.forget(now, MOST_GONE);
        Ok(())
    }

    /// Whether a program may have it that is not known yet.
    fn lacks_owner(&self, socket: &Socket) -> bool {
        let is_open = |seen: &Seen| seen.owner.is_none() && seen.tries < TRIES;
        socket.inode != 0 && self.seen.get(&socket.id).is_none_or(is_open)
    }

    fn book(&mut self, socket: &Socket, now: Instant, is_asked: bool) {
        let entry = self.seen.entry(socket.id);
        if matches!(entry, Entry::Vacant(_)) {
            if self.only.is_some() && self.owners.of(socket.inode).is_none() {
                return;
            }
            self.ends.insert((socket.local, socket.peer), socket.id);
        }
        let seen = entry.or_insert_with(|| Seen {
            first: *socket,
            last: *socket,
            owner: None,
            peer: None,
            options: None,
            samples: 0,
            unread_samples: 0,
            unread: Duration::ZERO,
            unaccepted_samples: 0,
            unaccepted: Duration::ZERO,
            full_samples: 0,
            full: Duration::ZERO,
            span: Duration::ZERO,
            held: [Duration::ZERO; Holder::ALL.len()],
            holder: None,
            at: now,
            is_new: true,
            met: None,
            tries: 0,
            is_refused: false,
            is_suspect: false,
            // Of none so far.
            epoch: u64::MAX,
        });
        if std::mem::replace(&mut seen.epoch, self.epoch) != self.epoch {
            seen.restart();
            self.counted.push(socket.id);
        }
        if std::mem::take(&mut seen.is_new) {
            (seen.first, seen.last, seen.at) = (*socket, *socket, now);
        }
        let since = now.saturating_since(seen.at);
        seen.span += since;
        if let Some(holder) = seen.holder {
            seen.held[holder.index()] += since;
        }
        if seen.has_unread() {
            seen.unread += since;
        }
        if seen.last.is_unaccepted() {
            seen.unaccepted += since;
        }
        if seen.last.is_full() {
            seen.full += since;
        }
        if seen.owner.is_none() {
            seen.owner = self.owners.of(socket.inode).cloned();
            seen.tries = seen.tries.saturating_add(u8::from(is_asked && seen.owner.is_none() && socket.inode != 0));
        }
        seen.last = *socket;
        // They seldom change, and reading them takes several system calls: once, and where who has to act depends on
        // them.
        if seen.options.is_none() || socket.info.unsent_bytes > 0 || socket.unread_bytes > 0 {
            match seen.read_options() {
                Ok(()) => {}
                // Closed by this one, while another has it.
                Err(Errno::BADF | Errno::SRCH) => (seen.owner, seen.tries) = (None, 0),
                Err(_) => seen.is_refused = true,
            }
        }
        seen.samples += 1;
        seen.unread_samples += u32::from(seen.has_unread());
        seen.unaccepted_samples += u32::from(socket.is_unaccepted());
        seen.full_samples += u32::from(socket.is_full());
        seen.holder = (self.reason)(&socket.state_with(seen.options));
        seen.at = now;
        if seen.waits() {
            seen.met = Some(now);
            if !std::mem::replace(&mut seen.is_suspect, true) {
                self.suspects.push(socket.id);
            }
        }
    }

    /// Forgets those that are gone when they are too many: on a busy host they would fill its memory in the end.
    fn forget(&mut self, now: Instant, most: usize) {
        if self.seen.len() > self.latest.len().saturating_add(most) {
            let all = self.seen.len();
            self.keep(|seen| seen.at == now);
            self.forgotten += all - self.seen.len();
        }
    }

    fn keep(&mut self, is_kept: impl Fn(&Seen) -> bool) {
        let ends = &mut self.ends;
        self.seen.retain(|id, seen| {
            let is_kept = is_kept(seen);
            // The same ends may be another one's by now.
            let ends_of = (seen.last.local, seen.last.peer);
            if !is_kept && ends.get(&ends_of) == Some(id) {
                ends.remove(&ends_of);
            }
            is_kept
        });
    }

    /// Lets the next look be the first one, with the owners and options that are known by now: to
    /// find them takes so long on a large host that one sample would stand for most of the time.
    pub fn settle(&mut self) {
        self.count_anew();
        for seen in self.seen.values_mut() {
            (seen.holder, seen.is_new) = (None, true);
        }
    }

    fn count_anew(&mut self) {
        self.looks = 0;
        self.epoch += 1;
        self.counted.clear();
    }

    /// Looks once at those alone in which something waited in the last two seconds; how many these are.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn look_at_suspects(&mut self, now: Instant) -> Result<usize, Error> {
        let mut suspects = Vec::with_capacity(self.suspects.len());
        let seen = &mut self.seen;
        self.suspects.retain(|id| {
            let Some(seen) = seen.get_mut(id) else { return false };
            seen.is_suspect = seen.has_waited(now);
            suspects.extend(seen.is_suspect.then_some(seen.last));
            seen.is_suspect
        });
        let (listening, others): (Vec<_>, Vec<_>) = suspects.iter().partition(|socket| socket.state == State::Listen);
        let mut found = Vec::with_capacity(suspects.len());
        self.table.look_at(&others, |socket| found.push(*socket))?;
        if !listening.is_empty() {
            self.table.look_at_listening(|socket| {
                if listening.iter().any(|known: &Socket| known.id == socket.id) {
                    found.push(*socket);
                }
            })?;
        }
        for socket in &found {
            self.book(socket, now, false);
        }
        Ok(suspects.len())
    }

    /// From now on it counts anew: what waits goes on to wait, and those that are gone are forgotten.
    pub fn restart(&mut self) {
        if self.looks > 0 {
            let looked = self.looked_at;
            self.keep(|seen| looked.is_none_or(|looked| seen.at >= looked));
        }
        self.count_anew();
    }

    /// Those that were looked at since it began to count: all after a look at all, else the suspects. Their other ends
    /// are not looked for.
    pub fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.counted.iter().filter_map(|id| self.seen.get(id))
    }

    /// The program that has the other end, where that is in this network namespace and may be looked at.
    pub fn peer_of(&self, seen: &Seen) -> Option<&Owner> {
        let other = self.ends.get(&(seen.last.peer, seen.last.local))?;
        self.seen.get(other)?.owner.as_ref()
    }

    /// Whether a program listens where this end is: at its address, or at any. The connection was accepted then.
    pub fn listens_at(&self, local: SocketAddr) -> bool {
        self.listener_at(local).is_some()
    }

    /// The address at which a program listens that takes connections to this one.
    fn listener_at(&self, local: SocketAddr) -> Option<SocketAddr> {
        // A socket of IPv6 at any address takes connections of IPv4, too.
        let addresses = [local.ip(), any(local), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let addresses = addresses.map(|address| SocketAddr::new(address, local.port()));
        addresses.into_iter().find(|address| self.listening.contains(address))
    }

    /// The program that has a connection with these ends, as far as it was met.
    pub fn program_of(&self, local: SocketAddr, peer: SocketAddr) -> Option<&Owner> {
        self.seen.get(self.ends.get(&(local, peer))?)?.owner.as_ref()
    }

    /// The program that listens where this end is.
    pub fn program_at(&self, local: SocketAddr) -> Option<&Owner> {
        let listener = self.listener_at(local)?;
        self.program_of(listener, SocketAddr::new(any(listener), 0))
    }

    /// How often it looked.
    pub const fn looks(&self) -> u32 {
        self.looks
    }

    /// Processes whose descriptors may not be looked at.
    pub const fn hidden(&self) -> usize {
        self.owners.hidden
    }

    /// Connections that ended and were forgotten: more than are kept.
    pub const fn forgotten(&self) -> usize {
        self.forgotten
    }

    /// What was seen.
    pub fn finish(mut self) -> Vec<Seen> {
        if self.only.is_some() {
            // Other ends may be other programs'.
            self.owners = Owners::read(None);
        }
        let ends = |socket: &Socket| (socket.local, socket.peer);
        let mut programs: HashMap<_, Owner> = HashMap::new();
        for socket in &self.latest {
            if let Some(owner) = self.owners.of(socket.inode) {
                programs.insert(ends(socket), owner.clone());
            }
        }
        for seen in self.seen.values() {
            if let Some(owner) = &seen.owner {
                programs.entry(ends(&seen.last)).or_insert_with(|| owner.clone());
            }
        }
        // Those that were only seen before it settled are none of these.
        let mut all: Vec<Seen> = self.seen.into_values().filter(|seen| seen.epoch == self.epoch).collect();
        for seen in &mut all {
            seen.peer = programs.get(&(seen.last.peer, seen.last.local)).cloned();
            // One that ended meanwhile keeps those that it had.
            let _ = seen.read_options();
        }
        all
    }
}

/// All addresses of this family.
const fn any(of: SocketAddr) -> IpAddr {
    match of {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;

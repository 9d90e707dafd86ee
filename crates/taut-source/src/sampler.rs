use std::collections::HashMap;

use rustix::io::Errno;
use taut_event::{Holder, SocketState};
use taut_time::{Duration, Instant};

use crate::{AcceptQueue, Error, Options, Owner, Owners, Socket, SocketId, SocketTable};

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
    /// Samples in which it was open and no program had accepted it.
    pub unaccepted_samples: u32,
    /// Samples in which the queue of a listening socket was full.
    pub full_samples: u32,
    /// From the first sample to the last.
    pub span: Duration,
    /// Time with something to send, by who held it, in the order of [`Holder::ALL`]. A sample stands for the
    /// time until the next one.
    pub held: [Duration; Holder::ALL.len()],
    /// The holder at the last sample; `None` when nothing waited to be sent or acknowledged.
    pub holder: Option<Holder>,
    at: Instant,
    /// Times that its owner was looked for in vain.
    tries: u8,
    /// Whether its options may not be looked at.
    is_refused: bool,
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
    owners_at: Option<Instant>,
    seen: HashMap<SocketId, Seen>,
    /// Those of the last look, of any program.
    latest: Vec<Socket>,
    port: Option<u16>,
    looks: u32,
    forgotten: usize,
}

/// Owners of sockets that came up are looked for at most this often: it takes a system call for each descriptor of the
/// host.
const OWNERS_EVERY: Duration = Duration::from_millis(500);
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
            owners_at: None,
            seen: HashMap::new(),
            latest: Vec::new(),
            port,
            looks: 0,
            forgotten: 0,
        })
    }

    /// Looks once.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn look(&mut self, now: Instant) -> Result<(), Error> {
        let mut sockets = std::mem::take(&mut self.latest);
        sockets.clear();
        let port = self.port;
        self.table.look(|socket| {
            if port.is_none_or(|port| socket.local.port() == port || socket.peer.port() == port) {
                sockets.push(*socket);
            }
        })?;
        let is_due = self.owners_at.is_none_or(|last| now.saturating_since(last) >= OWNERS_EVERY);
        let is_asked = is_due && sockets.iter().any(|socket| self.lacks_owner(socket));
        if is_asked {
            self.owners = Owners::read(self.only);
            self.owners_at = Some(now);
        }
        self.looks += 1;
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
        let owner = self.owners.of(socket.inode);
        if self.only.is_some() && owner.is_none() && !self.seen.contains_key(&socket.id) {
            return;
        }
        let seen = self.seen.entry(socket.id).or_insert_with(|| Seen {
            first: *socket,
            last: *socket,
            owner: None,
            peer: None,
            options: None,
            samples: 0,
            unread_samples: 0,
            unaccepted_samples: 0,
            full_samples: 0,
            span: Duration::ZERO,
            held: [Duration::ZERO; Holder::ALL.len()],
            holder: None,
            at: now,
            tries: 0,
            is_refused: false,
        });
        if seen.samples == 0 {
            (seen.first, seen.at) = (*socket, now);
        }
        let since = now.saturating_since(seen.at);
        seen.span += since;
        if let Some(holder) = seen.holder {
            seen.held[holder.index()] += since;
        }
        if seen.owner.is_none() {
            seen.owner = owner.cloned();
            seen.tries = seen.tries.saturating_add(u8::from(is_asked && seen.owner.is_none() && socket.inode != 0));
        }
        seen.last = *socket;
        // They seldom change, and reading them takes several system calls: once, and where a holder depends on them.
        if seen.options.is_none() || socket.info.unsent_bytes > 0 {
            match seen.read_options() {
                Ok(()) => {}
                // Closed by this one, while another has it.
                Err(Errno::BADF | Errno::SRCH) => (seen.owner, seen.tries) = (None, 0),
                Err(_) => seen.is_refused = true,
            }
        }
        seen.samples += 1;
        seen.unread_samples += u32::from(socket.unread_bytes > 0);
        seen.unaccepted_samples += u32::from(socket.is_unaccepted());
        seen.full_samples += u32::from(socket.accept_queue.is_some_and(AcceptQueue::is_full));
        seen.holder = (self.reason)(&socket.state_with(seen.options));
        seen.at = now;
    }

    /// Forgets those that are gone when they are too many: on a busy host they would fill its memory in the end.
    fn forget(&mut self, now: Instant, most: usize) {
        if self.seen.len() > self.latest.len().saturating_add(most) {
            let all = self.seen.len();
            self.seen.retain(|_, seen| seen.at == now);
            self.forgotten += all - self.seen.len();
        }
    }

    /// Lets the next look be the first one, with the owners and options that are known by now: to
    /// find them takes so long on a large host that one sample would stand for most of the time.
    pub fn settle(&mut self) {
        self.looks = 0;
        for seen in self.seen.values_mut() {
            (seen.samples, seen.unread_samples, seen.unaccepted_samples, seen.full_samples) = (0, 0, 0, 0);
            (seen.span, seen.holder) = (Duration::ZERO, None);
            seen.held = [Duration::ZERO; Holder::ALL.len()];
        }
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
        let mut all: Vec<Seen> = self.seen.into_values().filter(|seen| seen.samples > 0).collect();
        for seen in &mut all {
            seen.peer = programs.get(&(seen.last.peer, seen.last.local)).cloned();
            // One that ended meanwhile keeps those that it had.
            let _ = seen.read_options();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    fn pair() -> (TcpStream, TcpStream, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0, listener.local_addr().unwrap().port())
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn one_that_comes_between_two_looks_for_owners_has_its_owner_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sampler = Sampler::new(None, Some(address.port()), |_| None).unwrap();
        let _first = TcpStream::connect(address).unwrap();
        sampler.look(at(1000)).unwrap();
        let late = TcpStream::connect(address).unwrap();
        sampler.look(at(1100)).unwrap();
        // Nothing else is new.
        sampler.look(at(1600)).unwrap();
        let seen = sampler.finish();
        let late = seen.iter().find(|seen| seen.last.local == late.local_addr().unwrap()).unwrap();
        assert_eq!(late.owner.as_ref().unwrap().pid, std::process::id() as i32);
        assert_eq!((late.samples, late.span), (2, Duration::from_millis(500)));
        let waiting = seen.iter().find(|seen| seen.last.peer == late.last.local).unwrap();
        assert_eq!((waiting.unaccepted_samples, &waiting.owner), (2, &None));
    }

    #[test]
    fn what_was_seen_before_it_settled_takes_no_time() {
        let (client, server, port) = pair();
        let (gone, other, gone_port) = pair();
        let mut sampler = Sampler::new(None, None, |_| Some(Holder::Nagle)).unwrap();
        sampler.look(at(0)).unwrap();
        sampler.settle();
        drop((gone, other));
        sampler.look(at(5000)).unwrap();
        sampler.look(at(5020)).unwrap();
        assert_eq!(sampler.looks(), 2);
        let seen: Vec<Seen> = sampler.finish();
        assert!(seen.iter().all(|seen| seen.last.local.port() != gone_port));
        let ends = [client.local_addr().unwrap().port(), server.local_addr().unwrap().port()];
        let ours: Vec<_> = seen.iter().filter(|seen| ends.contains(&seen.last.local.port())).collect();
        assert_eq!((ours.len(), port), (2, ends[1]));
        for one in ours {
            let held = one.held[Holder::Nagle.index()];
            assert_eq!((one.samples, one.span, held), (2, Duration::from_millis(20), Duration::from_millis(20)));
            assert!(one.owner.is_some() && one.options.is_some());
        }
    }

    #[test]
    fn options_are_those_of_the_end() {
        let (client, _server, port) = pair();
        let mut sampler = Sampler::new(None, Some(port), |_| None).unwrap();
        sampler.look(at(0)).unwrap();
        client.set_nodelay(true).unwrap();
        let seen = sampler.finish();
        let client = seen.iter().find(|seen| seen.last.local == client.local_addr().unwrap()).unwrap();
        assert!(client.options.unwrap().no_delay);
    }

    #[test]
    fn the_other_end_of_one_program_is_named() {
        let (client, server, port) = pair();
        // Another program has the other end as well; ours is the one asked for.
        let other = std::process::Stdio::from(std::os::fd::OwnedFd::from(server.try_clone().unwrap()));
        let mut cat =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).stdout(other).spawn().unwrap();
        drop(server);
        let mut sampler = Sampler::new(Some(std::process::id() as i32), Some(port), |_| None).unwrap();
        sampler.look(at(0)).unwrap();
        let seen = sampler.finish();
        drop(cat.stdin.take());
        cat.wait().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].owner.as_ref().unwrap().fd, client.as_raw_fd());
        assert_eq!(seen[0].peer.as_ref().unwrap().pid, cat.id() as i32);
    }

    #[test]
    fn those_that_are_gone_are_kept_up_to_a_number() {
        let (client, server, port) = pair();
        let mut sampler = Sampler::new(None, Some(port), |_| None).unwrap();
        sampler.look(at(0)).unwrap();
        drop((client, server));
        sampler.look(at(20)).unwrap();
        sampler.latest.clear();
        sampler.forget(at(20), 2);
        assert_eq!(sampler.forgotten(), 0);
        sampler.forget(at(21), 1);
        assert_eq!((sampler.forgotten(), sampler.finish().len()), (2, 0));
    }
}

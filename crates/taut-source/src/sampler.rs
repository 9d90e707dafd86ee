use std::collections::HashMap;

use taut_event::{Holder, SocketState};
use taut_time::{Duration, Instant};

use crate::{Error, Options, Owner, Owners, Socket, SocketId, SocketTable};

/// What was seen of one socket over the time of looking.
#[derive(Clone, Debug)]
pub struct Seen {
    /// As it was when it was first seen.
    pub first: Socket,
    /// As it was last.
    pub last: Socket,
    /// The program that has it, where that may be looked at.
    pub owner: Option<Owner>,
    /// Its options, where they may be looked at; as they were last.
    pub options: Option<Options>,
    /// How often it was looked at.
    pub samples: u32,
    /// Samples in which bytes waited to be read.
    pub unread_samples: u32,
    /// From the first sample to the last.
    pub span: Duration,
    /// Time with something to send, by who held it, in the order of [`Holder::ALL`]. A sample stands for the
    /// time until the next one.
    pub held: [Duration; Holder::ALL.len()],
    /// The holder at the last sample; `None` when nothing waited to be sent or acknowledged.
    pub holder: Option<Holder>,
    at: Instant,
}

impl Seen {
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
    port: Option<u16>,
    looks: u32,
}

/// Owners of sockets that came up are looked for at most this often: it takes a system call for each descriptor of the host.
const OWNERS_EVERY: Duration = Duration::from_millis(500);

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
            port,
            looks: 0,
        })
    }

    /// Looks once.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn look(&mut self, now: Instant) -> Result<(), Error> {
        let mut sockets = Vec::new();
        let port = self.port;
        self.table.look(|socket| {
            if port.is_none_or(|port| socket.local.port() == port || socket.peer.port() == port) {
                sockets.push(*socket);
            }
        })?;
        let is_new = |socket: &Socket| !self.seen.contains_key(&socket.id);
        let is_due = self.owners_at.is_none_or(|last| now.saturating_since(last) >= OWNERS_EVERY);
        if is_due && sockets.iter().any(is_new) {
            self.owners = Owners::read(self.only);
            self.owners_at = Some(now);
        }
        self.looks += 1;
        for socket in sockets {
            self.book(socket, now);
        }
        Ok(())
    }

    fn book(&mut self, socket: Socket, now: Instant) {
        let owner = self.owners.of(socket.inode);
        if self.only.is_some() && owner.is_none() {
            return;
        }
        let seen = self.seen.entry(socket.id).or_insert_with(|| Seen {
            first: socket,
            last: socket,
            owner: None,
            options: None,
            samples: 0,
            unread_samples: 0,
            span: Duration::ZERO,
            held: [Duration::ZERO; Holder::ALL.len()],
            holder: None,
            at: now,
        });
        let since = now.saturating_since(seen.at);
        seen.span += since;
        if let Some(holder) = seen.holder {
            seen.held[holder.index()] += since;
        }
        if seen.owner.is_none() {
            seen.owner = owner.cloned();
        }
        // They seldom change, and reading them takes four system calls: once, and where a holder depends on them.
        let is_asked = seen.samples == 0 || socket.info.unsent_bytes > 0 || seen.options.is_none();
        if let (true, Some(owner)) = (is_asked, &seen.owner) {
            seen.options = Options::read(owner, &socket).or(seen.options);
        }
        seen.samples += 1;
        seen.unread_samples += u32::from(socket.unread_bytes > 0);
        seen.holder = (self.reason)(&socket.state_with(seen.options));
        seen.last = socket;
        seen.at = now;
    }

    /// How often it looked.
    pub const fn looks(&self) -> u32 {
        self.looks
    }

    /// Processes whose descriptors may not be looked at.
    pub const fn hidden(&self) -> usize {
        self.owners.hidden
    }

    /// What was seen.
    pub fn finish(self) -> Vec<Seen> {
        self.seen.into_values().collect()
    }
}

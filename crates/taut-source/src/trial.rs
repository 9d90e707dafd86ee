use std::collections::HashSet;
use std::net::SocketAddr;

use crate::options::{set_cork, set_no_delay};
use crate::{Error, Options, Owner, Owners, SocketTable, State};

/// What can be changed on sockets of running programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// `TCP_NODELAY` is set, where it is not and no cork is.
    NoDelay,
    /// `TCP_CORK` is cleared.
    Uncork,
}

/// A change of sockets of running programs, for a while: they have it from [`Trying::set`] to [`Trying::clear`], or
/// until this value goes.
///
/// No descriptor is kept meanwhile: a program that closes its socket closes the connection. A process that is killed
/// leaves the sockets changed.
#[derive(Debug)]
pub struct Trying {
    change: Change,
    table: SocketTable,
    set: Vec<Changed>,
}

/// A socket that is changed, by its inode.
#[derive(Debug)]
struct Changed {
    owner: Owner,
    inode: u32,
    ends: (SocketAddr, SocketAddr),
}

/// What became of the sockets that were to have it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Sockets that are changed now.
    pub set: usize,
    /// Those that are so anyway.
    pub had: usize,
    /// Those that are corked and are left alone: to change them would send what the program holds back on purpose.
    pub corked: usize,
    /// Those that may not be changed: the right to trace the program is missing, or pidfd_getfd(2).
    pub refused: usize,
}

impl Trying {
    /// Opens the way to the kernel; changes nothing.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn open(change: Change) -> Result<Self, Error> {
        Ok(Self { change, table: SocketTable::open()?, set: Vec::new() })
    }

    /// Changes the open connections of these processes, or all with this port at either end. A corked one is uncorked
    /// only if `is_forgotten` says so of it, by its own end and its peer: a program that clears the cork itself at the
    /// end of a message may be amid one.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn set(
        &mut self,
        processes: &HashSet<i32>,
        port: Option<u16>,
        is_forgotten: impl Fn(SocketAddr, SocketAddr) -> bool,
    ) -> Result<Settings, Error> {
        // All processes of a large host take long.
        let owners: Vec<Owners> = match port {
            Some(_) => vec![Owners::read(None)],
            None => processes.iter().map(|&pid| Owners::read(Some(pid))).collect(),
        };
        let mut wanted = Vec::new();
        self.table.look(|socket| {
            let is_open = matches!(socket.state, State::Established | State::CloseWait);
            let is_asked = port.is_none_or(|port| socket.local.port() == port || socket.peer.port() == port);
            let owner = owners.iter().find_map(|owners| owners.of(socket.inode)).filter(|_| is_asked);
            if let Some(owner) = owner.filter(|_| is_open) {
                let ends = (socket.local, socket.peer);
                wanted.push(Changed { owner: owner.clone(), inode: socket.inode, ends });
            }
        })?;
        let mut settings = Settings::default();
        for socket in wanted {
            let Ok(options) = Options::read(&socket.owner, socket.inode) else {
                settings.refused += 1;
                continue;
            };
            let (has, is_left_alone) = match self.change {
                Change::NoDelay => (options.no_delay, options.cork),
                Change::Uncork => (!options.cork, !is_forgotten(socket.ends.0, socket.ends.1)),
            };
            if has {
                settings.had += 1;
            } else if is_left_alone {
                settings.corked += 1;
            } else if self.change.apply(&socket, true).is_ok() {
                settings.set += 1;
                self.set.push(socket);
            } else {
                settings.refused += 1;
            }
        }
        Ok(settings)
    }

    /// Puts nothing back on a connection, by its own end and its peer: its program has taken the option in hand.
    pub fn leave(&mut self, local: SocketAddr, peer: SocketAddr) {
        self.set.retain(|socket| socket.ends != (local, peer));
    }

    /// Puts back what [`Trying::set`] changed.
    pub fn clear(&mut self) {
        for socket in self.set.drain(..) {
            // A socket that is gone has nothing to put back.
            let _ = self.change.apply(&socket, false);
        }
    }
}

impl Change {
    fn apply(self, socket: &Changed, is_on: bool) -> rustix::io::Result<()> {
        match self {
            Self::NoDelay => set_no_delay(&socket.owner, socket.inode, is_on),
            Self::Uncork => set_cork(&socket.owner, socket.inode, !is_on),
        }
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::{set_tcp_cork, tcp_cork};

    use super::*;

    #[test]
    fn it_is_set_where_it_was_not_and_put_back_also_when_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let servers: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        clients[1].set_nodelay(true).unwrap();
        set_tcp_cork(&clients[2], true).unwrap();
        let of = |streams: &[TcpStream]| streams.iter().map(|one| one.nodelay().unwrap()).collect::<Vec<_>>();
        let mut trial = Trying::open(Change::NoDelay).unwrap();
        let none = trial.set(&HashSet::new(), Some(1), |_, _| true).unwrap();
        assert_eq!(none, Settings::default());
        let settings = trial.set(&HashSet::new(), Some(address.port()), |_, _| true).unwrap();
        assert_eq!(settings, Settings { set: 4, had: 1, corked: 1, refused: 0 });
        assert_eq!((of(&clients), of(&servers)), (vec![true, true, false], vec![true; 3]));
        trial.clear();
        assert_eq!((of(&clients), of(&servers)), (vec![false, true, false], vec![false; 3]));
        let own = HashSet::from([std::process::id() as i32]);
        assert!(trial.set(&own, None, |_, _| true).unwrap().set >= 4);
        drop(trial);
        assert_eq!((of(&clients), of(&servers)), (vec![false, true, false], vec![false; 3]));
    }
    #[test]
    fn a_forgotten_cork_is_cleared_and_put_back_and_another_one_is_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        clients[..2].iter().for_each(|client| set_tcp_cork(client, true).unwrap());
        let corked = || clients.iter().map(|one| tcp_cork(one).unwrap()).collect::<Vec<_>>();
        let forgotten = clients[0].local_addr().unwrap();
        let mut trial = Trying::open(Change::Uncork).unwrap();
        let set = |trial: &mut Trying| {
            trial
                .set(&HashSet::new(), Some(address.port()), |local, peer| (local, peer) == (forgotten, address))
                .unwrap()
        };
        let settings = set(&mut trial);
        assert_eq!((settings.set, settings.corked, settings.refused), (1, 1, 0));
        assert_eq!(corked(), [false, true, false]);
        trial.clear();
        assert_eq!(corked(), [true, true, false]);
        set(&mut trial);
        drop(trial);
        assert_eq!(corked(), [true, true, false]);
        let mut trial = Trying::open(Change::Uncork).unwrap();
        set(&mut trial);
        trial.leave(forgotten, address);
        drop(trial);
        assert_eq!(corked(), [false, true, false]);
    }
}
